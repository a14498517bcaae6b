//! The rules for hooks: commands that report what they did as JSON objects on standard output. For an object that describes a process, a
//! record is created below the hook's own; other objects are stored in the hook's record. The port, which does the actor's I/O, reads the
//! output. See `docs/processes.md`, "Hooks".

use crate::actors::process::adding::NewRecord;
use crate::actors::process::identity::Identity;
use crate::actors::process::machine::ProcessMachine;
use crate::actors::process::message::{Child, End, HookOutput, Lost, Warning};
use crate::actors::process::outcome::{Insertion, Outcome, Refused};
use crate::actors::process::record::{Phase, Profile, Record};
use crate::actors::process::secret::masked_in_records;
use crate::actors::process::spec::{Parentage, Spec, Tags};
use crate::clock::Date;
use crate::ids::{ProcessId, Slot};
use crate::spine::machine::{Moment, Stamp};

/// The type of the processes that a hook ran.
const KIND: &str = "binary";

/// The label that holds the number of the output line a record comes from.
const LINE: &str = "line";

impl Child {
    /// Returns the immutable part of the record of a process that a hook ran.
    fn profile(&self, hook: &Record) -> Profile {
        let dir = self.dir.clone();
        let spec = Spec {
            argv: masked_in_records(&self.argv),
            dir: dir.unwrap_or_else(|| hook.profile.spec.dir.clone()),
            ..Spec::default()
        };
        let tags = Tags {
            kind: KIND.to_owned(),
            url: None,
            labels: vec![(LINE.to_owned(), self.line.to_string())],
        };
        Profile { spec, tags }
    }

    /// Returns when it started and ended. It was recorded at `at`; the launch of its hook was requested at `begin`. A process may have ended
    /// before its hook started, but not after the hook's output was read.
    pub(super) fn dates(&self, begin: Date, at: Date) -> (Option<Date>, Date) {
        let ended = self.ended.unwrap_or(at).min(at);
        if !self.exact {
            return (self.started, ended.max(begin));
        }
        let started = self.started.map(|started| started.min(at));
        (started, ended.max(started.unwrap_or_default()))
    }
}

impl HookOutput {
    /// Takes into account that `refused` of the reported processes have no records, and adds a warning.
    pub(super) fn without(mut self, refused: u32) -> Self {
        if refused > 0 {
            self.children = self.children.saturating_sub(refused);
            self.broken += 1;
            let words = format!(
                "{refused} of the processes that it reports have no record: there was no room for more records, or the tree is too deep"
            );
            self.warnings.insert(0, Warning { line: 0, words });
            self.warnings.truncate(Self::WARNINGS_MAX);
        }
        self
    }
}

impl Record {
    /// Returns whether this is the record of a launched hook that has ended and whose output has not been read yet.
    pub(super) fn is_to_be_read(&self) -> bool {
        let has_run = self.phase == Phase::Exited && self.end.is_some() && self.launched;
        has_run && self.profile.spec.is_hook && self.rare.found.is_none()
    }
}

impl ProcessMachine {
    /// Decides the outcome of a report that a hook ran a process. Only the process that follows the last one handled is accepted, so that
    /// none gets two records. A process that is refused because the disk is full does not count as handled, so those after it are ignored
    /// until the output is read again.
    pub(super) fn child(&self, moment: &Moment, (of, child): (ProcessId, &Child)) -> Outcome {
        let found = self.state.find(of).filter(|(_, hook)| hook.is_to_be_read());
        let next = found.filter(|(_, hook)| child.nth == hook.rare.handled + 1);
        let Some((_, hook)) = next else {
            return Outcome::Unchanged;
        };
        self.child_below(moment, (of, hook), child).unwrap_or_else(Outcome::Declined)
    }

    fn child_below(
        &self,
        moment: &Moment,
        (of, hook): (ProcessId, &Record),
        child: &Child,
    ) -> Result<Outcome, Refused> {
        let profile = child.profile(hook);
        profile.spec.check().map_err(Refused::Invalid)?;
        let parentage = Parentage { named: Some(of), line: Vec::new(), bound: false };
        let wanted = NewRecord {
            kind: KIND.to_owned(),
            profile,
            parentage: &parentage,
            identity: None,
            id: None,
            is_past: true,
        };
        let insertion = self.insertion(moment, &wanted)?;
        Ok(Outcome::Child(Box::new(insertion)))
    }

    /// Decides the outcome of reading a hook's output. The result is ignored if it exceeds the limits of [`HookOutput`], or if a process in
    /// the output has not been handled yet; the output is read again later.
    pub(super) fn found(&self, id: ProcessId, found: &HookOutput) -> Outcome {
        let hook = self.state.find(id).filter(|(_, hook)| hook.is_to_be_read());
        match hook {
            Some((slot, hook)) if found.fits() && hook.rare.handled >= found.children => {
                Outcome::Found { slot }
            }
            Some(_) | None => Outcome::Unchanged,
        }
    }

    pub(super) fn commit_child(
        &mut self,
        entry: Stamp,
        (of, child): (ProcessId, &Child),
        insertion: Option<&Insertion>,
    ) {
        let (slot, _) = self.state.find(of).expect("a hook should have a record");
        let refused = u32::from(insertion.is_none() && child.exact);
        self.state.change(entry.seq, slot, |it| {
            it.rare.handled += 1;
            it.rare.refused += refused;
        });
        let Some(insertion) = insertion else {
            return;
        };
        let hook = self.record(slot);
        let (profile, begin) = (child.profile(hook), hook.queued);
        let of_hook = hook.identity.unwrap_or_default();
        self.add(entry.seq, insertion, profile, |it| {
            it.phase = Phase::Exited;
            // The identity shows the PID that the process had. Inode and start time are not known, but they are not needed either: the
            // record of an ended process is never looked up by its identity.
            it.identity = child.pid.map(|pid| Identity { pid, inode: 0, ticks: 0, ..of_hook });
            let (started, ended) = child.dates(begin, insertion.at);
            (it.started, it.ended) = (started, Some(ended));
            it.end = Some(child.end.unwrap_or(End::Lost(Lost::NotOurs)));
        });
    }

    pub(super) fn commit_found(&mut self, entry: Stamp, slot: Slot, found: &HookOutput) {
        self.state.change(entry.seq, slot, |it| {
            let found = found.clone().without(it.rare.refused);
            it.rare.found = Some(Box::new(found));
        });
    }
}
