//! New records: their position in the tree, and which records are removed to make room.

#![expect(clippy::wildcard_enum_match_arm, reason = "only some outcomes create a record")]

use super::{Actions, Changed, Entry, Model, Modelled};
use sexton::actors::process::{
    Announced, Cause, Deferral, Flaw, Identity, Insertion, Launching, Outcome, Parentage, Phase,
    RecordView, Refused, Registering, Reply, ServiceStep, Spec, Tags, kind_of, masked,
};
use sexton::clock::Date;
use sexton::ids::{ProcessId, Slot};

/// Returns the insertion in an outcome that creates a record; `None` for any other outcome. If an outcome launches several processes of
/// services, returns the insertion of the first.
pub(in super::super) fn insertion_of(outcome: &Outcome) -> Option<&Insertion> {
    match outcome {
        Outcome::Launched(insertion)
        | Outcome::Registered(insertion)
        | Outcome::Child(insertion) => Some(insertion),
        Outcome::Service(turn) => turn.steps.iter().find_map(|step| match step {
            ServiceStep::Launched { insertion, .. } => Some(&**insertion),
            _ => None,
        }),
        _ => None,
    }
}

impl Model {
    pub(super) fn register(&mut self, registering: &Registering, entry: Entry) -> Changed {
        if registering.identity.pid == 0 {
            return Err(Refused::Invalid(Flaw::Identity));
        }
        if let Some(it) = self.live(&registering.identity) {
            let (record, known) = (Box::new(it.view.clone()), true);
            return Ok((false, Reply::Registered { record, known }));
        }
        let spec = Spec {
            argv: registering.argv.clone(),
            dir: registering.dir.clone(),
            ..Spec::default()
        };
        let launching = Launching {
            spec,
            tags: registering.tags.clone(),
            parentage: registering.parentage.clone(),
            deferred: false,
        };
        let running = Some((registering.identity, registering.started));
        let id = self.add(&launching, running, entry)?;
        let (record, known) = (self.view(id).expect("the record was just added"), false);
        Ok((true, Reply::Registered { record, known }))
    }

    /// Adds a record and returns its id, or the reason if it is refused. `running` is the identity and start time of a process that is
    /// already running; `None` for a process to be launched.
    pub(super) fn add(
        &mut self,
        launching: &Launching,
        running: Option<(Identity, Date)>,
        entry: Entry,
    ) -> Result<ProcessId, Refused> {
        let Launching { spec, tags, parentage, deferred } = launching;
        if running.is_none() {
            spec.check().map_err(Refused::Invalid)?;
            if *deferred && spec.parcel.is_some() {
                return Err(Refused::Invalid(Flaw::Deferred));
            }
        }
        if running.is_none() {
            let named = parentage.named.and_then(|id| self.find(id));
            let lives =
                named.is_some_and(|it| it.view.phase != Phase::Exited && it.view.end.is_none());
            let fenced = |id: &ProcessId| {
                let it = &self.find(*id).expect("the ancestors of a record exist").view;
                it.phase != Phase::Exited && it.stop.is_some_and(|stop| stop.cause == Cause::Fence)
            };
            let above = named.map_or_else(Vec::new, |it| self.and_above(Some(it.view.id)));
            if parentage.bound && !lives || above.iter().any(fenced) {
                return Err(Refused::Ended);
            }
        }
        tags.check().map_err(Refused::Invalid)?;
        let live = self.records.iter();
        let live = live.filter(|it| it.view.phase != Phase::Exited).count();
        if live >= self.rules.live_max as usize {
            return Err(Refused::Full);
        }
        let parent = self.parent(parentage, running.map(|(identity, _)| identity));
        let stop = if running.is_none() { self.inherited(parent, entry.seq)? } else { None };
        let is_stopped = *deferred && stop.is_some();
        let mut tags = tags.clone();
        if tags.kind.is_empty() {
            kind_of(&spec.argv).clone_into(&mut tags.kind);
        }
        let bytes = (spec.bytes() + tags.bytes()) as u64;
        let above = self.and_above(parent);
        let mut new = self.new_record((spec, &tags), (parent, running), entry);
        (new.bytes, new.view.stop) = (bytes, stop);
        let bound = parentage.bound;
        new.view.deferred = deferred.then_some(Deferral { bound });
        let gone = self.making_room(bytes, &above)?;
        if is_stopped {
            return Err(Refused::Ended);
        }
        self.remove(&gone);
        // The parent still exists: ancestors of the new record are not removed to make room.
        let id = new.view.id;
        self.records.push(new);
        Ok(id)
    }

    /// Launches a process whose launch was deferred.
    pub(super) fn begin(&mut self, id: ProcessId, actions: &mut Actions) -> Changed {
        let it = self.find(id).ok_or(Refused::Unknown)?;
        if it.view.phase == Phase::Exited {
            return Err(Refused::Ended);
        }
        let bound = it.view.deferred.ok_or(Refused::NotDeferred)?.bound;
        let parent = it.view.parent.and_then(|id| self.find(id));
        let lives =
            parent.is_some_and(|it| it.view.phase != Phase::Exited && it.view.end.is_none());
        if it.view.stop.is_some() || bound && !lives {
            return Err(Refused::Ended);
        }
        let it = self.find_mut(id).expect("the record was just found");
        it.view.deferred = None;
        it.quarantined = false;
        it.attempt(actions);
        Ok((true, Reply::Launched(Box::new(it.view.clone()))))
    }

    /// Returns the slots of the records to remove to make room: those of the processes that ended longest ago, except ancestors of the new
    /// record. Refuses the new record if not enough records can be removed.
    pub(super) fn making_room(
        &self,
        bytes: u64,
        above: &[ProcessId],
    ) -> Result<Vec<Slot>, Refused> {
        let mut gone = Vec::new();
        let mut after = self.clone();
        loop {
            let all: u64 = after.records.iter().map(|it| it.bytes).sum();
            let is_over = after.records.len() >= self.rules.records_max as usize
                || all + bytes > self.rules.bytes_max;
            if !is_over {
                return Ok(gone);
            }
            let free = self.removable().into_iter().map(|(_, slot)| slot);
            let mut free = free.filter(|slot| {
                let is_above = self.records.iter().find(|it| it.slot == *slot);
                let is_above = is_above.is_some_and(|it| above.contains(&it.view.id));
                !is_above && !gone.contains(slot)
            });
            let next = free.next().ok_or(Refused::Full)?;
            gone.push(next);
            after.remove(&[next]);
        }
    }

    pub(super) fn new_record(
        &self,
        (spec, tags): (&Spec, &Tags),
        (parent, running): (Option<ProcessId>, Option<(Identity, Date)>),
        Entry { seq, now, new }: Entry,
    ) -> Modelled {
        // `new` is missing if the machine created no record. The model must then refuse the record too, so the default id is not used.
        let (id, slot) = new.unwrap_or((ProcessId::default(), Slot::NONE));
        let parent = parent.and_then(|id| self.find(id));
        let of_kind = self.records.iter().filter(|it| it.view.kind == tags.kind);
        let phase = match running {
            Some(_) => Phase::Running,
            None => Phase::Queued,
        };
        let view = RecordView {
            id,
            parent: parent.map(|it| it.view.id),
            root: parent.map_or(id, |it| it.view.root),
            depth: parent.map_or(0, |it| it.view.depth + 1),
            kind: tags.kind.clone(),
            number: 1 + of_kind.map(|it| it.view.number).max().unwrap_or(0),
            url: tags.url.clone(),
            labels: tags.labels.clone(),
            argv: masked(&spec.argv),
            dir: spec.dir.clone(),
            env: {
                let mut names: Vec<String> =
                    spec.env.iter().map(|(name, _)| name.clone()).collect();
                names.extend(spec.secrets.iter().cloned());
                names
            },
            run_dir: spec.run_dir.clone(),
            timeout_ms: spec.timeout_ms,
            launched: running.is_none(),
            is_hook: spec.is_hook,
            phase,
            deferred: None,
            identity: running.map(|(identity, _)| identity),
            contained: false,
            queued: now.date(),
            started: running.map(|(_, started)| started),
            ended: None,
            stop: None,
            end: None,
            failure: None,
            error: None,
            remains: None,
            stuck: None,
            sent: None,
            announced: Announced::Nothing,
            said: None,
            found: None,
            live_children: 0,
        };
        Modelled {
            view,
            slot,
            made: seq,
            spec: spec.clone(),
            expires: None,
            ready_by: None,
            empty: false,
            signals: Vec::new(),
            bytes: 0,
            quarantined: false,
            watchers: Vec::new(),
            awaited: None,
            tree_watched: false,
            handled: 0,
            refused: 0,
        }
    }

    /// Returns the ids of a record and all its ancestors, the topmost first; empty if the record does not exist.
    pub(super) fn and_above(&self, id: Option<ProcessId>) -> Vec<ProcessId> {
        let found = id.and_then(|id| self.find(id));
        found.map_or_else(Vec::new, |it| {
            let mut above = self.and_above(it.view.parent);
            above.push(it.view.id);
            above
        })
    }

    fn parent(&self, parentage: &Parentage, own: Option<Identity>) -> Option<ProcessId> {
        let here = own.or(parentage.line.first().copied());
        if let Some(named) = parentage.named.and_then(|id| self.find(id)) {
            let its = named.view.identity;
            let elsewhere = its.is_some_and(|its| {
                here.is_some_and(|it| it.machine != its.machine || it.boot != its.boot)
            });
            let itself = its.is_some_and(|its| own.is_some_and(|own| own.is(&its)));
            if !elsewhere && !itself {
                return Some(named.view.id);
            }
        }
        let line = parentage.line.iter();
        let mut line = line.filter(|it| own.is_none_or(|own| !own.is(it)));
        line.find_map(|it| self.live(it)).map(|it| it.view.id)
    }
}
