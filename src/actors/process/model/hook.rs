//! What hooks report. First the processes that they ran are handled, each exactly once and in order, and then everything else.

use super::{Actions, Entry, Model, Modelled};
use sexton::actors::process::{
    Action, Child, End, HookOutput, Identity, Lost, Phase, Refused, Reply, Spec, Tags, Warning,
    masked,
};
use sexton::ids::ProcessId;

impl Modelled {
    /// Returns whether this is the record of a launched hook that has ended and whose output has not been read yet.
    pub(in super::super) fn is_to_be_read(&self) -> bool {
        let view = &self.view;
        let has_run = view.phase == Phase::Exited && view.end.is_some() && view.launched;
        has_run && view.is_hook && view.found.is_none()
    }

    /// If this is the record of an ended hook whose output has not been read yet, requests that it be read.
    pub(super) fn read(&self, actions: &mut Actions) {
        if self.is_to_be_read() {
            let (id, run_dir) = (self.view.id, self.spec.run_dir.clone());
            let what = Action::Read { id, run_dir };
            actions.push((self.slot.0.into(), self.made, what));
        }
    }
}

impl Model {
    /// Handles a process that a hook ran. Returns whether that changes anything, and the reply.
    pub(super) fn child(
        &mut self,
        (of, child): (ProcessId, &Child),
        entry: Entry,
    ) -> (bool, Reply) {
        let hook = self.find_mut(of);
        let next = hook.filter(|it| it.is_to_be_read() && it.handled + 1 == child.nth);
        let Some(hook) = next else {
            return (false, Reply::Done);
        };
        hook.handled += 1;
        hook.quarantined = false;
        match self.add_child((of, child), entry) {
            Ok(()) => (true, Reply::Done),
            Err(refused) => {
                let hook = self.find_mut(of).expect("the hook was just found");
                hook.refused += u32::from(child.exact);
                (true, Reply::Refused(refused))
            }
        }
    }

    fn add_child(&mut self, (of, child): (ProcessId, &Child), entry: Entry) -> Result<(), Refused> {
        let hook = self.find(of).expect("the hook was just found");
        let its = hook.view.identity.unwrap_or_default();
        let queued = hook.view.queued;
        let spec = Spec {
            argv: masked(&child.argv),
            dir: child.dir.clone().unwrap_or_else(|| hook.spec.dir.clone()),
            ..Spec::default()
        };
        spec.check().map_err(Refused::Invalid)?;
        let tags = Tags {
            kind: "binary".to_owned(),
            url: None,
            labels: vec![("line".to_owned(), child.line.to_string())],
        };
        let bytes = (spec.bytes() + tags.bytes()) as u64;
        let above = self.and_above(Some(of));
        let mut new = self.new_record((&spec, &tags), (Some(of), None), entry);
        let now = entry.now.date();
        new.bytes = bytes;
        new.view.launched = false;
        new.view.phase = Phase::Exited;
        new.view.identity = child.pid.map(|pid| Identity { pid, inode: 0, ticks: 0, ..its });
        let ended = child.ended.unwrap_or(now).min(now);
        if child.exact {
            new.view.started = child.started.map(|it| it.min(now));
            new.view.ended = new.view.started.max(Some(ended));
        } else {
            new.view.started = child.started;
            new.view.ended = Some(ended.max(queued));
        }
        new.view.end = Some(child.end.unwrap_or(End::Lost(Lost::NotOurs)));
        let gone = self.making_room(bytes, &above)?;
        self.remove(&gone);
        self.records.push(new);
        Ok(())
    }

    /// Stores the summary of a hook's output, if all processes in it have been handled. Returns whether that changes anything.
    pub(super) fn found(&mut self, id: ProcessId, found: &HookOutput) -> bool {
        let hook = self.find_mut(id);
        let read = hook.filter(|it| it.is_to_be_read() && it.handled >= found.children);
        let Some(hook) = read else {
            return false;
        };
        let mut found = found.clone();
        if hook.refused > 0 {
            let words = format!(
                "{} of the processes that it reports have no record: there was no room for more records, or the tree is too deep",
                hook.refused
            );
            found.children -= hook.refused.min(found.children);
            found.broken += 1;
            let first = [Warning { line: 0, words }];
            let warnings = first.into_iter().chain(found.warnings);
            found.warnings = warnings.take(HookOutput::WARNINGS_MAX).collect();
        }
        let kept = found.kept.iter().map(|it| it.as_bytes().len());
        let words = found.warnings.iter().map(|it| it.words.len());
        hook.bytes += kept.chain(words).sum::<usize>() as u64;
        hook.view.found = Some(Box::new(found));
        hook.quarantined = false;
        true
    }
}
