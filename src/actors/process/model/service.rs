//! Services in the model: the requests to them, and their steps that are due.

use super::{Actions, Changed, Entry, Model};
use sexton::actors::process::{
    Announced, Definition, Flaw, Last, Launching, Message, Parentage, Phase, Ready, RecordView,
    Refused, Reply, ServiceMessage, Spec, Tags, Verdict,
};
use sexton::bytes::Bytes;
use sexton::clock::Timestamp;
use sexton::ids::{ProcessId, Seq, Slot};

/// The delay before a refused launch is tried again, in milliseconds.
const DEFERRAL_MS: u64 = 5000;

/// A service in the model.
#[expect(clippy::struct_excessive_bools, reason = "the flags are independent of each other")]
#[derive(Clone, Debug)]
pub(in super::super) struct Served {
    pub(in super::super) slot: Slot,
    pub(super) definition: Definition,
    pub(super) listed: bool,
    pub(super) wanted: bool,
    pub(super) held: bool,
    /// Processes that were launched before this entry must be replaced.
    pub(super) revision: Seq,
    pub(super) places: Vec<Place>,
    /// Whether its due steps are skipped because one of them panicked.
    pub(in super::super) quarantined: bool,
}

/// One of the instances of a service, running or not.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    pub(super) process: Option<ProcessId>,
    pub(super) launched: Seq,
    pub(super) next: Option<Timestamp>,
    pub(super) restarts: Vec<Timestamp>,
    pub(super) series: u32,
    pub(super) verdict: Option<Verdict>,
    pub(super) last: Option<Last>,
}

/// The next step of a service.
enum Act {
    Remove,
    Stop(ProcessId),
    Launch(usize),
}

impl Served {
    fn new(slot: Slot, definition: &Definition, revision: Seq) -> Self {
        let mut new = Self {
            slot,
            definition: definition.clone(),
            listed: true,
            wanted: definition.autostart,
            held: false,
            revision,
            places: Vec::new(),
            quarantined: false,
        };
        new.fit();
        new
    }

    pub(super) const fn is_up(&self) -> bool {
        self.listed && self.wanted && !self.held
    }

    pub(super) fn size(&self) -> usize {
        self.definition.instances.into()
    }

    pub(super) fn place(&self, nth: usize) -> &Place {
        self.places.get(nth).expect("the instance exists")
    }

    /// Returns whether the process of an instance must be stopped.
    pub(super) fn must_stop(&self, nth: usize) -> bool {
        let is_old = self.place(nth).launched < self.revision;
        !self.is_up() || is_old || nth >= self.size()
    }

    /// Returns the processes of the service, each with its zero-based instance number.
    pub(super) fn processes(&self) -> impl Iterator<Item = (usize, ProcessId)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(nth, it)| Some((nth, it.process?)))
    }

    /// Resets the restart delays, restart counts and verdicts of all instances.
    fn reset(&mut self) {
        for it in &mut self.places {
            (it.next, it.series, it.verdict) = (None, 0, None);
            it.restarts.clear();
        }
    }

    /// Adjusts the number of instances to the definition, and ends the quarantine of the service. Excess instances are removed from the
    /// last one down, each only after its process has ended.
    pub(super) fn fit(&mut self) {
        self.quarantined = false;
        let size = self.size();
        while self.places.len() > size && self.places.last().is_some_and(|it| it.process.is_none())
        {
            self.places.pop();
        }
        while self.places.len() < size {
            self.places.push(Place::default());
        }
    }

    pub(super) fn launching(&self, nth: usize) -> Launching {
        let name = &self.definition.name;
        let number = (nth + 1).to_string();
        let below = if nth == 0 { String::new() } else { format!("/{number}") };
        let mut env = self.definition.spec.env.clone();
        let variable = |name: &str, value: &str| (name.to_owned(), Bytes::new(value.as_bytes()));
        env.push(variable("SEXTON_SERVICE", name));
        env.push(variable("SEXTON_INSTANCE", &number));
        let run_dir = format!("services/{name}{below}");
        let labels = [("service", name), ("instance", &number)];
        Launching {
            deferred: false,
            spec: Spec {
                env,
                run_dir: Some(Bytes::new(run_dir.as_bytes())),
                appends: true,
                ..self.definition.spec.clone()
            },
            tags: Tags {
                kind: "service".to_owned(),
                url: None,
                labels: labels.map(|(name, it)| (name.to_owned(), it.clone())).into(),
            },
            parentage: Parentage::default(),
        }
    }
}

impl Model {
    pub(super) fn served(&self, slot: Slot) -> &Served {
        let mut all = self.services.iter();
        let found = all.find(|it| it.slot == slot);
        found.expect("the service exists")
    }

    pub(super) fn served_mut(&mut self, slot: Slot) -> &mut Served {
        let mut all = self.services.iter_mut();
        let found = all.find(|it| it.slot == slot);
        found.expect("the service exists")
    }

    pub(super) fn service_of_name(&self, name: &str) -> Option<&Served> {
        self.services.iter().find(|it| it.definition.name == name)
    }

    fn has_stop(&self, id: ProcessId) -> bool {
        self.find(id).is_some_and(|it| it.view.stop.is_some())
    }

    /// Returns whether a process of the service is being stopped. A stop cannot be withdrawn, so such a process must be replaced if the
    /// service is to be up.
    fn is_being_stopped(&self, it: &Served) -> bool {
        it.processes().any(|(_, id)| self.has_stop(id))
    }

    pub(super) fn is_ready(&self, id: ProcessId) -> bool {
        let it = self.find(id).expect("the process of a service has a record");
        let says = it.spec.ready != Ready::Running;
        it.view.phase == Phase::Running && (!says || it.view.announced == Announced::Ready)
    }

    /// Returns the services that this one waits for: those in its `after` list that should be up but are neither ready nor finished.
    pub(super) fn awaited<'a>(&'a self, it: &'a Served) -> impl Iterator<Item = &'a Served> {
        let names = it.definition.after.iter();
        let others = names.filter_map(|name| self.service_of_name(name));
        others.filter(|other| {
            let has_come = |nth: usize| match other.place(nth).process {
                Some(id) => self.is_ready(id) && !other.must_stop(nth),
                None => other.place(nth).verdict == Some(Verdict::Finished),
            };
            other.is_up() && !(0..other.size()).all(has_come)
        })
    }

    pub(super) fn serve(
        &mut self,
        asked: &ServiceMessage,
        entry: Entry,
        actions: &mut Actions,
    ) -> Changed {
        if let ServiceMessage::Lapse { slot } = asked {
            self.lapse_of_service(*slot, entry, actions);
            return Ok((true, Reply::Done));
        }
        if let ServiceMessage::Configure(all) = asked {
            if !Definition::check_all(all).is_empty() {
                return Err(Refused::Invalid(Flaw::Services));
            }
            return Ok((self.configure(all, entry.seq), Reply::Done));
        }
        let (ServiceMessage::Start(name)
        | ServiceMessage::Stop(name)
        | ServiceMessage::Restart(name)) = asked
        else {
            let held = self.all_listed(None)?;
            let held = held.into_iter().filter(|slot| !self.served(*slot).held);
            let held: Vec<Slot> = held.collect();
            for slot in &held {
                let it = self.served_mut(*slot);
                it.held = true;
                it.fit();
            }
            return Ok((!held.is_empty(), Reply::Done));
        };
        let mut changed = false;
        for slot in self.all_listed(name.as_deref())? {
            changed |= self.ask_service(slot, (asked, name.is_some()), entry.seq);
        }
        Ok((changed, Reply::Done))
    }

    fn all_listed(&self, name: Option<&str>) -> Result<Vec<Slot>, Refused> {
        let listed = self.services.iter().filter(|it| it.listed);
        let meant = listed.filter(|it| name.is_none_or(|name| it.definition.name == name));
        let slots: Vec<Slot> = meant.map(|it| it.slot).collect();
        if name.is_some() && slots.is_empty() {
            return Err(Refused::NoService);
        }
        Ok(slots)
    }

    /// Applies a request to one service, and returns whether the request changes it. The flag in `asked` is set if the request names the
    /// service, and clear if it is to all services.
    fn ask_service(&mut self, slot: Slot, asked: (&ServiceMessage, bool), entry: Seq) -> bool {
        let stops = self.is_being_stopped(self.served(slot));
        let it = self.served_mut(slot);
        let waits = |it: &Place| it.next.is_some() || it.verdict.is_some();
        match asked {
            (ServiceMessage::Start(_), _) if it.is_up() && !it.places.iter().any(waits) => {
                return false;
            }
            (ServiceMessage::Start(_), _) => {
                (it.wanted, it.held) = (true, false);
                if stops {
                    it.revision = entry;
                }
            }
            (ServiceMessage::Stop(_), _) if it.wanted => it.wanted = false,
            (ServiceMessage::Restart(_), is_named) if is_named || it.wanted => {
                (it.wanted, it.held, it.revision) = (true, false, entry);
            }
            _ => return false,
        }
        it.reset();
        it.fit();
        true
    }

    fn configure(&mut self, all: &[Definition], entry: Seq) -> bool {
        let mut changed = false;
        let known = self.services.clone();
        for definition in all {
            let Some(slot) = self.service_of_name(&definition.name).map(|it| it.slot) else {
                let mut slots = (0..).map(Slot);
                let free = slots.find(|slot| self.services.iter().all(|it| it.slot != *slot));
                let free = free.expect("there are more slots than services");
                self.services.push(Served::new(free, definition, entry));
                changed = true;
                continue;
            };
            changed |= self.redefine(slot, definition, entry);
        }
        for it in known.iter().filter(|it| it.listed) {
            if all.iter().all(|other| other.name != it.definition.name) {
                let gone = self.served_mut(it.slot);
                gone.listed = false;
                gone.fit();
                changed = true;
            }
        }
        changed
    }

    fn redefine(&mut self, slot: Slot, definition: &Definition, entry: Seq) -> bool {
        let stops = self.is_being_stopped(self.served(slot));
        let it = self.served_mut(slot);
        let is_same = it.listed && it.definition == *definition;
        if is_same && !it.held {
            return false;
        }
        let is_back = it.held || !it.listed;
        let differs = it.definition.spec != definition.spec;
        if it.held || differs || is_back && stops {
            it.reset();
        }
        if differs || is_back && stops {
            it.revision = entry;
        }
        (it.held, it.listed) = (false, true);
        it.definition = definition.clone();
        it.fit();
        true
    }

    /// Returns the slot of the service whose next step became due first; `None` if no step is due at `at`. Quarantined services are
    /// skipped.
    pub(super) fn due_service(&self, at: Timestamp) -> Option<Slot> {
        let acts = self.services.iter().filter(|it| !it.quarantined);
        let due = acts.filter_map(|it| Some((self.next_act(it)?.0, it.slot)));
        due.filter(|(due, _)| *due <= at).min().map(|(_, slot)| slot)
    }

    fn next_act(&self, it: &Served) -> Option<(Timestamp, Act)> {
        const NOW: Timestamp = Timestamp(0);
        if !it.listed && it.processes().next().is_none() {
            return Some((NOW, Act::Remove));
        }
        let is_left = |id: ProcessId| {
            let view = self.find(id).map(|it| &it.view);
            let stops_tree = |view: &RecordView| view.stop.is_some_and(|stop| stop.tree);
            view.is_some_and(|view| view.end.is_some() && !stops_tree(view))
        };
        if let Some((_, id)) = it.processes().find(|(_, id)| is_left(*id)) {
            return Some((NOW, Act::Stop(id)));
        }
        let mut to_stop = it.processes().filter(|(nth, _)| it.must_stop(*nth));
        let to_stop = to_stop.find(|(_, id)| !self.has_stop(*id));
        if let Some((_, id)) = to_stop.filter(|_| !self.is_held_up(it)) {
            return Some((NOW, Act::Stop(id)));
        }
        if !it.is_up() || self.awaited(it).next().is_some() {
            return None;
        }
        let empty = (0..it.size()).filter(|nth| {
            let place = it.place(*nth);
            place.process.is_none() && place.verdict.is_none()
        });
        let first = empty.min_by_key(|nth| (it.place(*nth).next.unwrap_or(NOW), *nth))?;
        Some((it.place(first).next.unwrap_or(NOW), Act::Launch(first)))
    }

    /// Returns whether this service cannot be stopped yet, because processes of a service that depends on it must end first. A service
    /// whose processes have all survived SIGKILL does not delay others.
    fn is_held_up(&self, it: &Served) -> bool {
        let is_stuck = |id| self.find(id).is_some_and(|it| it.view.stuck.is_some());
        let mut later = self.services.iter();
        later.any(|other| {
            let comes_after = other.definition.after.contains(&it.definition.name);
            let mut to_go = other.processes().filter(|(nth, _)| other.must_stop(*nth));
            let goes = to_go.next().is_some();
            comes_after && goes && !other.processes().all(|(_, id)| is_stuck(id))
        })
    }

    fn lapse_of_service(&mut self, slot: Slot, entry: Entry, actions: &mut Actions) {
        let next = self.next_act(self.served(slot));
        let (_, act) = next.expect("a due service has a next step");
        match act {
            Act::Remove => self.services.retain(|it| it.slot != slot),
            Act::Stop(id) => {
                let stop = Message::Stop { id, signal: None, grace_ms: None, tree: true };
                let epoch = self.epoch;
                let it = self.find_mut(id).expect("the process to stop has a record");
                let asked = it.asked_stop(&stop, entry);
                if self.stop_part(id, asked, actions) {
                    return;
                }
                let it = self.find_mut(id).expect("the process to stop has a record");
                let done = it.ask(&stop, entry, (epoch, actions));
                let changed = done.expect("a live process can be stopped");
                self.stop_below_too((id, changed), asked, actions);
            }
            Act::Launch(nth) => {
                let launching = self.served(slot).launching(nth);
                match self.add(&launching, None, entry) {
                    Ok(id) => self.launch_in((slot, nth), id, (entry.seq, actions)),
                    Err(_) => {
                        let until = entry.now.at.plus_ms(DEFERRAL_MS);
                        self.place_mut((slot, nth)).next = Some(until);
                        self.served_mut(slot).fit();
                    }
                }
            }
        }
    }

    pub(super) fn place_mut(&mut self, (slot, nth): (Slot, usize)) -> &mut Place {
        let place = self.served_mut(slot).places.get_mut(nth);
        place.expect("the instance exists")
    }

    /// Assigns a newly created record to an instance of a service, and requests the launch of the process.
    pub(super) fn launch_in(
        &mut self,
        place: (Slot, usize),
        id: ProcessId,
        (entry, actions): (Seq, &mut Actions),
    ) {
        self.served_mut(place.0).quarantined = false;
        let it = self.place_mut(place);
        (it.process, it.launched, it.next) = (Some(id), entry, None);
        let new = self.find(id).expect("the record was just added");
        new.attempt(actions);
    }
}
