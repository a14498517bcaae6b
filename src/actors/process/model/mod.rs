//! A model of the process machine: a plain list of records as clients see them, without indexes. `tests/` and the simulation
//! (`tests/sim/processes/`) compare the machine with this model. The simulation includes the model in another crate, so the model imports
//! from `sexton` rather than `crate`. It shares no code with `decide.rs`, `commit.rs` or `state.rs`.
//!
//! | file | holds |
//! |---|---|
//! | `adding.rs` | new records |
//! | `record.rs` | changes to one record |
//! | `hook.rs` | what hooks report |
//! | `watching.rs` | notifications that a process is gone, and launches by other actors |
//! | `service.rs` `restart.rs` | services: requests and due steps; the consequences of an end |
//! | `look.rs` `status.rs` | answers to queries; the status of services |

mod adding;
mod hook;
mod look;
mod record;
mod restart;
mod service;
mod status;
mod watching;

pub(super) use adding::insertion_of;
use record::new_stop;
use service::Served;
use sexton::actors::binding::{EndNotice, Exit, ToHolder, Until};
use sexton::actors::process::{
    Action, Cause, Failure, Identity, Message, Phase, RecordView, Refused, Reply, Rules,
    ServiceMessage, Spec, Stop,
};
use sexton::clock::{Date, Now, Timestamp};
use sexton::ids::{ActorId, ProcessId, Seq, Slot};

/// A record: its view, which clients see, and the parts that they do not see.
#[derive(Clone, Debug)]
pub(super) struct Modelled {
    pub(super) view: RecordView,
    pub(super) slot: Slot,
    made: Seq,
    spec: Spec,
    expires: Option<Timestamp>,
    /// The node time at which it is stopped unless it is ready by then.
    ready_by: Option<Timestamp>,
    empty: bool,
    signals: Vec<(Seq, u8, bool)>,
    pub(super) bytes: u64,
    /// Whether its deadlines are ignored because handling one of them panicked.
    pub(super) quarantined: bool,
    /// The actors to notify, and for each whether that happens when the process itself is gone or when its whole tree is.
    watchers: Vec<(ActorId, Until)>,
    /// The actor that requested the launch, until that actor watches the process.
    awaited: Option<ActorId>,
    /// Whether its tree, or a tree that contains it, was watched before the current message.
    tree_watched: bool,
    /// For a hook, the number of processes in its output that have been handled.
    pub(super) handled: u32,
    /// For a hook, the number of processes in its output that were refused a record.
    pub(super) refused: u32,
}

/// The model: all records in order of creation, and all services.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) records: Vec<Modelled>,
    pub(super) services: Vec<Served>,
    pub(super) rules: Rules,
    pub(super) epoch: Timestamp,
    pub(super) started: Seq,
    pub(super) contradictions: u64,
}

/// The effect of a message: it was refused, changed nothing, or changed something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Refused(Refused),
    Nothing,
    Changed,
}

/// Everything that a message causes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) verdict: Verdict,
    pub(super) reply: Reply,
    /// The actions requested from the port. Those of a new record come last.
    pub(super) actions: Actions,
    /// The notifications to other actors. Their order is not compared.
    pub(super) tells: Vec<(ActorId, ToHolder)>,
}

/// Requested actions. Each is a triple: the slot of the record (`u64::MAX` for [`Action::ForgetOthers`]), the entry that requested it, and the
/// action.
pub(super) type Actions = Vec<(u64, Seq, Action)>;

/// The journal entry for a message: its sequence number and time, and the id and slot of the record that it creates, if any.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) seq: Seq,
    pub(super) now: Now,
    pub(super) new: Option<(ProcessId, Slot)>,
}

/// Whether a message changed anything, and the reply; an error if it was refused.
type Changed = Result<(bool, Reply), Refused>;

impl Model {
    fn find(&self, id: ProcessId) -> Option<&Modelled> {
        self.records.iter().find(|it| it.view.id == id)
    }

    fn find_mut(&mut self, id: ProcessId) -> Option<&mut Modelled> {
        self.records.iter_mut().find(|it| it.view.id == id)
    }

    /// Returns the view of the record with this id; `None` if there is none.
    pub(super) fn view(&self, id: ProcessId) -> Option<Box<RecordView>> {
        Some(Box::new(self.find(id)?.view.clone()))
    }

    fn at(&mut self, slot: Slot) -> &mut Modelled {
        let mut records = self.records.iter_mut();
        let found = records.find(|it| it.slot == slot);
        found.expect("a due record exists")
    }

    /// Returns whether a record or one of its descendants is live.
    fn is_kept(&self, id: ProcessId) -> bool {
        self.records.iter().any(|it| {
            let own = it.view.id == id && it.view.phase != Phase::Exited;
            own || it.view.parent == Some(id) && self.is_kept(it.view.id)
        })
    }

    /// Returns the slot of every removable record, each with the date at which its retention begins, the earliest first.
    fn removable(&self) -> Vec<(Date, Slot)> {
        let free = self.records.iter();
        let free = free.filter(|it| !self.is_kept(it.view.id) && it.awaited.is_none());
        let mut free: Vec<_> = free
            .map(|it| (it.view.ended.expect("it has ended").max(it.view.queued), it.slot))
            .collect();
        free.sort_unstable();
        free
    }

    /// Returns the live record of a process; `None` if there is none.
    fn live(&self, identity: &Identity) -> Option<&Modelled> {
        let is_it = |it: &&Modelled| {
            let its = it.view.identity.as_ref();
            it.view.phase != Phase::Exited && its.is_some_and(|its| its.is(identity))
        };
        let found = self.records.iter().filter(is_it);
        found.min_by_key(|it| (!it.view.launched, it.view.id))
    }

    /// Returns the message for the first due item; `None` if nothing is due. Services take precedence over records.
    pub(super) fn due(&self, now: Now, held: bool) -> Option<Message> {
        if let Some(slot) = self.due_service(now.at) {
            return Some(Message::Service(ServiceMessage::Lapse { slot }));
        }
        let slot = self.due_record(now, held)?;
        Some(Message::Lapse { slot })
    }

    /// Returns the slot of the record with the first due deadline: its timeout, its time to become ready, its grace period or its
    /// retention. `None` if nothing is due.
    fn due_record(&self, now: Now, held: bool) -> Option<Slot> {
        let acts = self.records.iter().filter(|it| !it.quarantined);
        let acts = acts.filter_map(|it| {
            let at = match (it.view.phase, it.view.stop) {
                (Phase::Running, _) => [it.expires, it.ready_by].into_iter().flatten().min(),
                (Phase::Stopping, Some(stop))
                    if !stop.killed && (stop.tree || it.view.end.is_none()) =>
                {
                    Some(record::ends(&stop, self.epoch))
                }
                (Phase::Queued, Some(stop)) if it.view.deferred.is_some() => Some(stop.since),
                (Phase::Queued | Phase::Stopping | Phase::Exited, _) => None,
            };
            at.map(|at| (at, it.slot))
        });
        let kept = self.rules.retention_ms;
        let resting = |slot: Slot| self.records.iter().any(|it| it.slot == slot && it.quarantined);
        let removals = self.removable().into_iter().filter(|_| !held);
        let removals = removals.filter(|(_, slot)| !resting(*slot));
        let removals = removals.map(|(ended, slot)| (now.offset.time(ended.plus_ms(kept)), slot));
        let due = acts.chain(removals).filter(|(at, _)| *at <= now.at);
        due.min().map(|(_, slot)| slot)
    }

    fn remove(&mut self, slots: &[Slot]) {
        let gone: Vec<ProcessId> = slots.iter().map(|slot| self.at(*slot).view.id).collect();
        self.records.retain(|it| !gone.contains(&it.view.id));
        for it in &mut self.records {
            it.view.parent = it.view.parent.filter(|parent| !gone.contains(parent));
        }
    }

    /// Handles a startup of the server: grace periods begin again, and every quarantine ends.
    pub(super) fn start(&mut self, at: Timestamp, seq: Seq) {
        (self.epoch, self.started) = (at, seq);
        for it in &mut self.records {
            it.quarantined = false;
        }
        for it in &mut self.services {
            it.quarantined = false;
        }
    }

    /// Applies a message, and returns everything that it causes.
    pub(super) fn send(&mut self, message: &Message, entry: Entry) -> Answer {
        let mut actions = Actions::new();
        self.note_watched();
        let before = self.watched_and_gone();
        let done = self.change(message, entry, &mut actions);
        let mut tells = self.watched_and_gone();
        tells.retain(|it| !before.contains(it));
        if let (Message::Watch(watch), Ok((true, _))) = (message, &done) {
            tells.extend(self.gone_already(*watch));
        }
        if let (Message::Started { id, .. }, Ok((true, _))) = (message, &done)
            && let Some(it) = self.find(*id)
            && it.launched_for(ActorId::LEASE)
        {
            tells.push((ActorId::LEASE, ToHolder::Started(*id)));
        }
        if let (Message::LaunchAs(asked), Ok((_, reply))) = (message, &done) {
            let (by, process, until) = (asked.by, asked.id, Until::Tree);
            if matches!(reply, Reply::Refused(_)) {
                let exit = Some(Exit::Failed);
                let gone = EndNotice { process, until, exit, pid: None };
                tells.push((by, ToHolder::Gone(gone)));
            } else {
                tells.push((by, ToHolder::Launched(process)));
            }
        }
        self.count_below();
        let (verdict, reply) = match done {
            Err(refused) => (Verdict::Refused(refused), Reply::Refused(refused)),
            Ok((false, reply)) => (Verdict::Nothing, reply),
            Ok((true, reply)) => (Verdict::Changed, reply),
        };
        let is_addition =
            matches!(reply, Reply::Launched(_) | Reply::Registered { known: false, .. });
        let is_addition = is_addition && !matches!(message, Message::Begin { .. });
        let new = self.records.last().filter(|_| is_addition);
        if let Some(it) = new.filter(|_| verdict == Verdict::Changed) {
            it.attempt(&mut actions);
        }
        Answer { verdict, reply, actions, tells }
    }

    /// Returns the ids of a record and of its descendants, level by level.
    fn and_below(&self, id: ProcessId) -> Vec<ProcessId> {
        let mut ids = vec![id];
        let mut next = 0;
        while let Some(above) = ids.get(next).copied() {
            next += 1;
            let mut children: Vec<ProcessId> = self
                .records
                .iter()
                .filter(|it| it.view.parent == Some(above))
                .map(|it| it.view.id)
                .collect();
            children.sort_unstable();
            ids.extend(children);
        }
        ids
    }

    /// Stops the live launched processes below a record as `asked`, at most `most` of them. Returns how many that changes.
    fn stop_below(
        &mut self,
        (id, most): (ProcessId, usize),
        asked: Stop,
        actions: &mut Actions,
    ) -> usize {
        let epoch = self.epoch;
        let mut changed = 0;
        for id in self.and_below(id).into_iter().skip(1) {
            let it = self.find_mut(id).expect("the descendants of a record exist");
            let can_be = it.view.launched && it.view.phase != Phase::Exited;
            if can_be && changed < most && it.stop(asked, epoch, actions) {
                it.quarantined = false;
                changed += 1;
            }
        }
        changed
    }

    /// If more processes below a record are to be stopped as `asked` than one part stops besides the record itself, stops those of one
    /// part. Returns whether that is so.
    fn stop_part(&mut self, id: ProcessId, asked: Stop, actions: &mut Actions) -> bool {
        let most = self.rules.part as usize - 1;
        let mut tried = self.clone();
        let all = tried.stop_below((id, usize::MAX), asked, &mut Actions::new());
        if all > most {
            self.stop_below((id, most), asked, actions);
        }
        all > most
    }

    /// Stops the live launched processes below a record that was just stopped with its tree. `changed` tells whether that stop changed the
    /// record. If it did not, but a process below it is stopped now, this entry repeats the record's own stop. Returns whether anything
    /// changed, including the record itself.
    fn stop_below_too(
        &mut self,
        (id, changed): (ProcessId, bool),
        asked: Stop,
        actions: &mut Actions,
    ) -> bool {
        let mut below = Actions::new();
        let changed_below = self.stop_below((id, usize::MAX), asked, &mut below) > 0;
        let it = self.find_mut(id).expect("a record that was just stopped exists");
        if let Some(stop) = it.view.stop.as_mut().filter(|_| changed_below && !changed) {
            (stop.asked, stop.errno) = (asked.asked, None);
            it.quarantined = false;
            it.step(asked.asked, actions);
        }
        actions.extend(below);
        changed || changed_below
    }

    /// Returns the stop that a new record below `parent` inherits from the nearest ancestor that is being stopped with its tree; `None` if
    /// no ancestor is. Refuses the record if SIGKILL has been requested for the tree of any ancestor.
    fn inherited(&self, parent: Option<ProcessId>, entry: Seq) -> Result<Option<Stop>, Refused> {
        let above = self.and_above(parent).into_iter().rev();
        let live = above.filter_map(|id| self.find(id));
        let live = live.filter(|it| it.view.phase != Phase::Exited);
        let stops: Vec<Stop> =
            live.filter_map(|it| it.view.stop).filter(|stop| stop.tree).collect();
        if stops.iter().any(|stop| stop.killed) {
            return Err(Refused::Ended);
        }
        Ok(stops.first().map(|stop| Stop { asked: entry, errno: None, ..*stop }))
    }

    /// Stops the live launched processes among a record and its descendants, because the right bound to the tree has ended. Returns whether
    /// that changes anything.
    fn fence(&mut self, id: ProcessId, entry: Entry, actions: &mut Actions) -> bool {
        let mut changed = 0;
        let epoch = self.epoch;
        for id in self.and_below(id) {
            if changed == self.rules.part {
                break;
            }
            let it = self.find_mut(id);
            let Some(it) = it.filter(|it| it.view.launched && it.view.phase != Phase::Exited)
            else {
                continue;
            };
            if it.view.stop.is_some_and(|stop| stop.cause == Cause::Fence) {
                continue;
            }
            let signal = (Cause::Fence, record::first_signal(&it.spec));
            let asked = new_stop(entry, signal, (it.spec.grace_ms, true));
            it.stop(asked, epoch, actions);
            if let Some(stop) = &mut it.view.stop {
                stop.cause = Cause::Fence;
            }
            it.quarantined = false;
            changed += 1;
        }
        changed > 0
    }

    /// Updates, for each record, the number of its children that are live or have live descendants.
    fn count_below(&mut self) {
        let lively = self.records.iter().filter(|it| self.is_kept(it.view.id));
        let parents: Vec<_> = lively.filter_map(|it| it.view.parent).collect();
        for it in &mut self.records {
            let children = parents.iter().filter(|parent| **parent == it.view.id);
            let children = u32::try_from(children.count()).expect("there are few records");
            // The quarantine of an ended record ends when the number of its live children changes.
            let settles = it.view.live_children != children && it.view.phase == Phase::Exited;
            it.quarantined &= !settles;
            it.view.live_children = children;
        }
    }

    fn change(&mut self, message: &Message, entry: Entry, actions: &mut Actions) -> Changed {
        match message {
            Message::Launch(launching) => {
                let id = self.add(launching, None, entry)?;
                let record = self.view(id).expect("the record was just added");
                Ok((true, Reply::Launched(record)))
            }
            Message::Begin { id } => self.begin(*id, actions),
            Message::Register(registering) => self.register(registering, entry),
            Message::Serve(_) => unreachable!("the model has no record of the server"),
            Message::Prune { before, keep, limit } => {
                Ok(self.prune(*before, *keep as usize, *limit as usize))
            }
            Message::Watch(watch) => Ok((self.watch(*watch), Reply::Done)),
            Message::LaunchAs(asked) => Ok((true, self.launch_as(asked, entry))),
            Message::Fence(id) => Ok((self.fence(*id, entry, actions), Reply::Done)),
            Message::Service(asked) => self.serve(asked, entry, actions),
            Message::Child { of, child } => Ok(self.child((*of, child), entry)),
            Message::Found { id, found } => Ok((self.found(*id, found), Reply::Done)),
            Message::Lapse { slot } => Ok((true, self.lapse(*slot, entry, actions))),
            Message::Finish { id, .. } | Message::Stop { id, .. } | Message::Signal { id, .. } => {
                let epoch = self.epoch;
                let it = self.find_mut(*id).ok_or(Refused::Unknown)?;
                if it.view.phase == Phase::Exited {
                    return Err(Refused::Ended);
                }
                let asked = it.stops_tree(message, entry);
                let changed = if asked.is_some_and(|it| self.stop_part(*id, it, actions)) {
                    true
                } else {
                    let it = self.find_mut(*id).expect("it was just found");
                    let changed = it.ask(message, entry, (epoch, actions))?;
                    asked.map_or(changed, |asked| {
                        self.stop_below_too((*id, changed), asked, actions)
                    })
                };
                let it = self.find(*id).expect("these requests remove no record");
                let record = Box::new(it.view.clone());
                let reply = if matches!(message, Message::Finish { .. }) {
                    Reply::Record(record)
                } else if matches!(message, Message::Stop { .. }) {
                    Reply::Stopping(record)
                } else {
                    Reply::Signalling(entry.seq)
                };
                Ok((changed, reply))
            }
            Message::Settle { id } => {
                let it = self.find(*id).ok_or(Refused::Unknown)?;
                it.settles()?;
                self.reported((*id, &Message::Empty { id: *id }), entry, actions);
                Ok((true, Reply::Done))
            }
            Message::Started { id, .. }
            | Message::Failed { id, .. }
            | Message::Ended { id, .. }
            | Message::Empty { id }
            | Message::Stuck { id, .. }
            | Message::Notice { id, .. }
            | Message::Signalled { id, .. } => {
                let changed = self.reported((*id, message), entry, actions);
                Ok((changed, Reply::Done))
            }
        }
    }

    fn prune(&mut self, before: Option<Date>, keep: usize, limit: usize) -> (bool, Reply) {
        let old = self.removable();
        let most = old.len().saturating_sub(keep);
        let old = old.into_iter().take(most);
        let old = old.filter(|(ended, _)| before.is_none_or(|before| *ended < before));
        let mut slots: Vec<Slot> = old.map(|(_, slot)| slot).collect();
        let more = slots.len() > limit;
        slots.truncate(limit);
        self.remove(&slots);
        let count = u32::try_from(slots.len()).expect("there are few records");
        (count > 0, Reply::Pruned { count, more })
    }

    /// Applies an expired deadline of a record: its timeout, its time to become ready, its grace period or its retention. Returns the
    /// reply.
    fn lapse(&mut self, slot: Slot, entry: Entry, actions: &mut Actions) -> Reply {
        let it = self.at(slot);
        match (it.view.phase, &mut it.view.stop) {
            (Phase::Running, _) => {
                let is_over = it.expires.is_some_and(|at| at <= entry.now.at);
                let cause = if is_over { Cause::Timeout } else { Cause::NotReady };
                let signal = (cause, record::first_signal(&it.spec));
                let asked = new_stop(entry, signal, (it.spec.grace_ms, true));
                let id = it.view.id;
                if self.stop_part(id, asked, actions) {
                    return Reply::Done;
                }
                let it = self.at(slot);
                it.view.stop = Some(asked);
                it.view.phase = Phase::Stopping;
                it.quarantined = false;
                it.step(entry.seq, actions);
                self.stop_below((id, usize::MAX), asked, actions);
                return Reply::Done;
            }
            (Phase::Stopping, Some(stop)) => {
                (stop.killed, stop.asked, stop.errno) = (true, entry.seq, None);
            }
            (Phase::Queued, Some(_)) => {
                it.view.deferred = None;
                it.view.failure = Some(Failure::cancelled());
                it.view.ended = Some(entry.now.date());
                it.quarantined = false;
                it.leave(entry.seq, actions);
                return Reply::Done;
            }
            (Phase::Queued | Phase::Stopping | Phase::Exited, _) => {
                self.remove(&[slot]);
                let (count, more) = (1, false);
                return Reply::Pruned { count, more };
            }
        }
        it.quarantined = false;
        it.step(entry.seq, actions);
        Reply::Done
    }

    /// Returns all actions that the machine must request again at startup.
    pub(super) fn resume(&self) -> Actions {
        let live = self.records.iter();
        let mut live: Vec<_> = live.filter(|it| it.view.phase != Phase::Exited).collect();
        live.sort_by_key(|it| it.view.id);
        let mut actions = Actions::new();
        for it in live {
            it.attempt(&mut actions);
            for signal in &it.signals {
                it.signal(*signal, &mut actions);
            }
            if it.view.phase == Phase::Stopping {
                it.step(it.view.stop.map_or(it.made, |stop| stop.asked), &mut actions);
            }
        }
        let mut all: Vec<_> = self.records.iter().collect();
        all.sort_by_key(|it| it.slot);
        for it in all {
            it.read(&mut actions);
        }
        actions.push((u64::MAX, self.started, Action::ForgetOthers));
        actions
    }
}
