//! The rules for new records: their position in the tree, and which records are removed to make room.

use crate::actors::process::identity::Identity;
use crate::actors::process::machine::ProcessMachine;
use crate::actors::process::message::{Launching, Registering};
use crate::actors::process::outcome::{Insertion, Outcome, Refused};
use crate::actors::process::record::{Cause, Profile, Record, Stop};
use crate::actors::process::spec::{Flaw, Parentage, Spec, Tags, kind_of};
use crate::bytes::Bytes;
use crate::ids::{ProcessId, Slot};
use crate::spine::machine::Moment;
use std::collections::BTreeSet;

/// The maximum number of records removed to make room for a new one.
const EVICTED_MAX: usize = 256;

/// A record to be created.
pub(super) struct NewRecord<'a> {
    pub(super) kind: String,
    pub(super) profile: Profile,
    pub(super) parentage: &'a Parentage,
    /// The identity of the process, if it is already running.
    pub(super) identity: Option<Identity>,
    /// The id chosen by the caller, which must not be in use; `None` to draw a random one.
    pub(super) id: Option<ProcessId>,
    /// Whether the process has already ended, or is the server itself. If so, its record is created even while the server is draining or has
    /// reached the limit on live processes.
    pub(super) is_past: bool,
}

impl ProcessMachine {
    pub(super) fn launching(
        &self,
        moment: &Moment,
        (launching, parentage): (&Launching, &Parentage),
        id: Option<ProcessId>,
    ) -> Result<Outcome, Refused> {
        launching.spec.check().map_err(Refused::Invalid)?;
        // The keeper does not keep a parcel for long, and actors expect what they request to start.
        if launching.deferred && (launching.spec.parcel.is_some() || id.is_some()) {
            return Err(Refused::Invalid(Flaw::Deferred));
        }
        let kind = kind(&launching.tags, &launching.spec.argv);
        let wanted = NewRecord {
            kind: kind.to_owned(),
            profile: launching.profile(kind),
            parentage,
            identity: None,
            id,
            is_past: false,
        };
        self.check_above(parentage)?;
        let insertion = self.insertion(moment, &wanted)?;
        // What is being stopped with its tree would cancel it.
        if launching.deferred && insertion.stop.is_some() {
            return Err(Refused::Ended);
        }
        Ok(Outcome::Launched(Box::new(insertion)))
    }

    /// Returns where a process that the server launches of its own accord belongs in the tree: as requested or, if nothing was, below the
    /// record of the server.
    pub(super) fn below_server(&self, launching: &Launching) -> Parentage {
        let mut parentage = launching.parentage.clone();
        if parentage == Parentage::default() {
            parentage.named = self.state.head.server;
        }
        parentage
    }

    /// Refuses a launch that is bound to a process that has ended or has no record. Also refuses a launch below a process that is being
    /// fenced, that is, stopped with its tree because the right bound to it has ended: new processes could keep the tree from becoming
    /// empty.
    pub(super) fn check_above(&self, parentage: &Parentage) -> Result<(), Refused> {
        let named = parentage.named.and_then(|id| self.state.find(id));
        let lives = named.is_some_and(|(_, record)| record.end.is_none() && record.is_live());
        let is_fenced = |record: &Record| {
            let stop = record.rare.stop.filter(|_| record.is_live());
            stop.is_some_and(|stop| stop.cause == Cause::Fence)
        };
        let mut above = self.state.above(parentage.named);
        if parentage.bound && !lives || above.any(|(_, record)| is_fenced(record)) {
            return Err(Refused::Ended);
        }
        Ok(())
    }

    pub(super) fn registering(
        &self,
        moment: &Moment,
        registering: &Registering,
    ) -> Result<Outcome, Refused> {
        let wanted = running(registering)?;
        if let Some((_, record)) = self.state.find_live(&registering.identity) {
            return Ok(Outcome::Known { id: record.id });
        }
        // The process is already running, so its spec is not validated: only the size limits apply.
        if wanted.profile.spec.argv.len() > Spec::ARGV_MAX {
            return Err(Refused::Invalid(Flaw::Argv));
        }
        if wanted.profile.spec.bytes() > Spec::BYTES_MAX {
            return Err(Refused::Invalid(Flaw::Bytes));
        }
        let insertion = self.insertion(moment, &wanted)?;
        Ok(Outcome::Registered(Box::new(insertion)))
    }

    /// Decides about the record of the server itself. It is created once, whatever the limits and even while the server is draining, and
    /// stands for each process that takes the place of the earlier one.
    pub(super) fn serving(
        &self,
        moment: &Moment,
        registering: &Registering,
    ) -> Result<Outcome, Refused> {
        let wanted = running(registering)?;
        let server = self.state.head.server;
        if let Some((slot, record)) = server.and_then(|id| self.state.find(id)) {
            let id = record.id;
            let known = record.identity.as_ref();
            let is_known = known.is_some_and(|it| it.is(&registering.identity));
            return Ok(if is_known {
                Outcome::Known { id }
            } else {
                Outcome::Renewed { slot, id }
            });
        }
        let wanted = NewRecord { is_past: true, ..wanted };
        let insertion = self.insertion(moment, &wanted)?;
        Ok(Outcome::Serving(Box::new(insertion)))
    }

    /// Determines the slot, id and position in the tree of a new record, and the records to remove to make room for it. Returns the reason
    /// if the record is refused.
    pub(super) fn insertion(
        &self,
        moment: &Moment,
        wanted: &NewRecord<'_>,
    ) -> Result<Insertion, Refused> {
        if moment.draining.has_begun() && !wanted.is_past {
            return Err(Refused::Draining);
        }
        wanted.profile.tags.check().map_err(Refused::Invalid)?;
        let state = &self.state;
        let is_full = state.index.live.len() >= state.rules.live_max as usize;
        if is_full && !wanted.is_past {
            return Err(Refused::Full);
        }
        let at = moment.now.date();
        let ids = (0..).map(|nth| ProcessId::new(at.0, moment.random(nth)));
        let mut unused = ids.filter(|id| !state.index.ids.contains_key(id));
        let drawn = || unused.next().expect("there should be more ids than records");
        let id = wanted.id.unwrap_or_else(drawn);
        let parent = self.parent(wanted);
        let depth = parent.map_or(0, |it| it.depth + 1);
        if depth > Record::DEPTH_MAX {
            return Err(Refused::TooDeep);
        }
        let is_launch = wanted.identity.is_none() && !wanted.is_past;
        let stop = is_launch.then(|| self.inherited(moment, parent));
        let stop = stop.transpose()?.flatten();
        let evicted = self.evicted(parent.map(|it| it.id), wanted.profile.bytes())?;
        let free = evicted.iter().copied();
        let slot = free.fold(state.records.next_free(), Slot::min);
        Ok(Insertion {
            slot,
            id,
            parent: parent.map(|it| it.id),
            root: parent.map_or(id, |it| it.root),
            depth,
            number: state.index.next_number(&wanted.kind),
            kind: wanted.kind.clone(),
            at,
            evicted,
            stop,
        })
    }

    /// Returns the stop that a launch below `parent` inherits from the nearest ancestor that is being stopped with its tree; `None` if no
    /// ancestor is. Refuses the launch if SIGKILL has been requested for the tree of any ancestor: a new process could keep that tree from
    /// becoming empty.
    fn inherited(&self, moment: &Moment, parent: Option<&Record>) -> Result<Option<Stop>, Refused> {
        let above = self.state.above(parent.map(|it| it.id));
        let live = above.filter(|(_, it)| it.is_live());
        let stops = live.filter_map(|(_, it)| it.rare.stop.filter(|stop| stop.tree));
        let mut nearest = None;
        for stop in stops {
            if stop.killed {
                return Err(Refused::Ended);
            }
            nearest = nearest.or(Some(stop));
        }
        Ok(nearest.map(|stop| Stop { asked: moment.seq, errno: None, ..stop }))
    }

    /// Returns the parent record: the named one, or otherwise that of the nearest ancestor with a live record; `None` if there is neither.
    /// The named record is ignored if it belongs to the process itself, to another machine or to another boot: the name comes from an
    /// environment variable, which may have been copied from elsewhere.
    fn parent(&self, wanted: &NewRecord<'_>) -> Option<&Record> {
        let own = wanted.identity.as_ref();
        let line = || wanted.parentage.line.iter().take(Parentage::LINE_MAX);
        let here = own.or_else(|| line().next());
        let place = here.map(|it| (it.machine, it.boot));
        let is_itself = |record: &Record| {
            let its = record.identity.as_ref();
            its.is_some_and(|its| own.is_some_and(|own| own.is(its)))
        };
        let named = wanted.parentage.named.and_then(|id| self.state.find(id));
        let named = named.map(|(_, record)| record);
        let named = named.filter(|it| !it.is_from_other_boot(place) && !is_itself(it));
        named.or_else(|| {
            let others = line().filter(|it| own.is_none_or(|own| !own.is(it)));
            let mut found = others.filter_map(|it| self.state.find_live(it));
            found.next().map(|(_, record)| record)
        })
    }

    /// Returns the slots of the records to remove to make room for a record of `bytes` bytes: those of the processes that ended longest
    /// ago, except the new record's ancestors. At most [`EVICTED_MAX`] are removed at once, so after a limit has been lowered, it may take
    /// several new records to get below it. Refuses the new record if not enough records can be removed.
    fn evicted(&self, parent: Option<ProcessId>, bytes: u64) -> Result<Vec<Slot>, Refused> {
        let state = &self.state;
        let mut count = state.records.len() as u64 + 1;
        let mut bytes = state.index.totals.bytes + bytes;
        let is_over = |count, bytes| {
            count > u64::from(state.rules.records_max) || bytes > state.rules.bytes_max
        };
        let mut evicted = Vec::new();
        if !is_over(count, bytes) {
            return Ok(evicted);
        }
        let above: BTreeSet<Slot> = state.ancestors(parent).map(|(slot, _)| slot).collect();
        let oldest = state.index.removable.iter().map(|(_, slot)| *slot);
        for slot in oldest.filter(|slot| !above.contains(slot)) {
            let record = state.records.get(slot);
            let record = record.expect("the index should contain only existing records");
            evicted.push(slot);
            count -= 1;
            bytes -= record.bytes();
            if !is_over(count, bytes) || evicted.len() == EVICTED_MAX {
                return Ok(evicted);
            }
        }
        Err(Refused::Full)
    }
}

impl Launching {
    /// Returns the immutable part of the record that this launch creates.
    pub(super) fn profile(&self, kind: &str) -> Profile {
        Profile::new(self.spec.clone(), &self.tags, kind)
    }
}

impl Registering {
    /// Returns the immutable part of the record that this registration creates.
    pub(super) fn profile(&self, kind: &str) -> Profile {
        let spec = Spec { argv: self.argv.clone(), dir: self.dir.clone(), ..Spec::default() };
        Profile::new(spec, &self.tags, kind)
    }
}

impl Profile {
    fn new(spec: Spec, tags: &Tags, kind: &str) -> Self {
        let mut tags = tags.clone();
        kind.clone_into(&mut tags.kind);
        Self { spec, tags }
    }
}

/// Returns the record of a process that is already running. Refuses an identity that names no process.
fn running(registering: &Registering) -> Result<NewRecord<'_>, Refused> {
    if registering.identity.pid == 0 {
        return Err(Refused::Invalid(Flaw::Identity));
    }
    let kind = kind(&registering.tags, &registering.argv);
    Ok(NewRecord {
        kind: kind.to_owned(),
        profile: registering.profile(kind),
        parentage: &registering.parentage,
        identity: Some(registering.identity),
        id: None,
        is_past: false,
    })
}

fn kind<'a>(tags: &'a Tags, argv: &[Bytes]) -> &'a str {
    if tags.kind.is_empty() { kind_of(argv) } else { &tags.kind }
}
