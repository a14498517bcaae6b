//! The queue rules a second time: one list of jobs, searched from end to end.
//!
//! Follows the descriptions in `src/actors/queue/message.rs` and decision 0011, not the machine. Who waits for a job
//! stands in no log: a claim for somebody who waits must be right where it stands, and that nobody waits in vain is
//! looked at when a run has come to rest.

use crate::coverage::Coverage;
use crate::reference::{Origin, Reference, Told};
use sexton::actors::Machine as _;
use sexton::actors::host::Answer;
use sexton::actors::machine::{Stamp, Start};
use sexton::actors::queue::{
    Body, Claim, Claimant, Class, DedupKey, JobView, Message, Order, Outcome, Phase, Pop, Put,
    Query, QueueMachine, QueueName, Refused, Reply, Right, Root, Rules, TypeRules, Watch, Worker,
};
use sexton::clock::Timestamp;
use sexton::ids::{Seq, Slot};
use std::collections::{BTreeMap, BTreeSet};

/// More jobs than this are refused.
pub(crate) const JOBS_MAX: u32 = 24;

/// How long a root job is remembered.
const REMEMBERED_MS: u64 = 28 * 24 * 3_600_000;

#[derive(Clone, Debug)]
struct Job {
    view: JobView,
    body: Body,
    worker: Option<Worker>,
    /// Milliseconds that its claim lasts.
    span: u64,
    /// If this is its last try: when it is pruned.
    last: Option<Timestamp>,
    buried: Seq,
    dedup: Option<DedupKey>,
    root: Option<Root>,
    /// Time does not act on it until something else does.
    quarantined: bool,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Timestamp,
    quarantined: bool,
}

/// Queues, as the text has them.
#[derive(Clone, Default)]
pub(crate) struct Queues {
    jobs: BTreeMap<Slot, Job>,
    pauses: BTreeMap<QueueName, Pause>,
    roots: BTreeMap<Slot, (Root, Timestamp)>,
    /// The number that was given last.
    last_id: u64,
    draining: bool,
    /// Every number that any job had.
    seen: BTreeSet<u64>,
    /// What was claimed last by somebody who waited, and how.
    woken: Option<(Pop, Reply)>,
}

/// What time acts on first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Job(Slot),
    Pause,
    Root(Slot),
}

/// The rules of a queue.
pub(crate) fn rules_of(queue: &QueueName) -> TypeRules {
    let default = TypeRules {
        order: Order::Priority,
        claim_ttl_ms: 3000,
        ..TypeRules::default()
    };
    match queue.as_bytes() {
        b"few" => TypeRules {
            max_tries: 2,
            prune_ms: 9000,
            ..default
        },
        b"once" => TypeRules {
            retries: false,
            ..default
        },
        b"memory" => TypeRules {
            class: Class::Memory,
            ..default
        },
        b"same" => TypeRules {
            dedup: true,
            ..default
        },
        _ => default,
    }
}

/// The names of all queues.
pub(crate) fn names() -> [QueueName; 6] {
    ["a", "b", "few", "once", "memory", "same"]
        .map(|name| QueueName::parse(name.as_bytes()).expect("a name"))
}

impl Job {
    fn go(&mut self, phase: Phase, until: Option<Timestamp>) {
        (self.view.phase, self.view.until) = (phase, until);
        (self.view.token, self.worker) = (None, None);
        self.quarantined = false;
        if phase != Phase::Claimed {
            self.last = None;
        }
    }

    fn kick(&mut self) {
        self.view.kicks += 1;
        self.view.attempts = 0;
        self.go(Phase::Ready, None);
    }

    fn is_unclaimed(&self) -> bool {
        matches!(self.view.phase, Phase::Ready | Phase::Delayed)
    }
}

impl Queues {
    fn find(&self, id: u64) -> Option<(Slot, &Job)> {
        let mut jobs = self.jobs.iter();
        let found = jobs.find(|(_, job)| job.view.id == id);
        found.map(|(slot, job)| (*slot, job))
    }

    fn job(&mut self, slot: Slot) -> &mut Job {
        self.jobs.get_mut(&slot).expect("slots come from the list")
    }

    /// The jobs of a queue in a phase, in order.
    fn line(&self, queue: &QueueName, phase: Phase) -> Vec<Slot> {
        let of = |(_, job): &(&Slot, &Job)| job.view.queue == *queue && job.view.phase == phase;
        let mut line: Vec<(&Slot, &Job)> = self.jobs.iter().filter(of).collect();
        line.sort_by_key(|(_, job)| {
            let view = &job.view;
            let first = match phase {
                Phase::Ready => view.priority.into(),
                Phase::Buried => job.buried.0,
                Phase::Delayed | Phase::Claimed | Phase::Abandoned => {
                    view.until.unwrap_or_default().0
                }
            };
            (first, view.id)
        });
        line.into_iter().map(|(slot, _)| *slot).collect()
    }

    /// The job that a claim takes: the most urgent of all queues; if chance is asked, the best of some queue.
    fn best(&self, pop: &Pop, chosen: Option<u64>) -> Option<Slot> {
        let open = pop.queues.iter().filter(|it| !self.pauses.contains_key(it));
        let bests = open.filter_map(|queue| self.line(queue, Phase::Ready).first().copied());
        let view = |slot: &Slot| &self.jobs.get(slot).expect("it is in line").view;
        if pop.weights.is_empty() {
            bests.min_by_key(|slot| (view(slot).priority, view(slot).id))
        } else {
            let mut bests = bests.peekable();
            let any = bests.peek().copied();
            bests.find(|slot| Some(view(slot).id) == chosen).or(any)
        }
    }

    fn is_outdated(&self, root: Root) -> bool {
        let mut roots = self.roots.values();
        roots.any(|(known, _)| known.key == root.key && known.at > root.at)
    }

    fn claim(&mut self, slot: Slot, by: Claimant, stamp: Stamp) -> Reply {
        let job = self.job(slot);
        let rules = rules_of(&job.view.queue);
        if matches!(job.view.phase, Phase::Buried | Phase::Abandoned) {
            job.view.attempts = 0;
        }
        job.span = span(&job.view);
        job.go(Phase::Claimed, Some(stamp.at.plus_ms(job.span)));
        job.view.attempts += 1;
        job.view.reserves += 1;
        job.view.token = Some(stamp.seq.into());
        let is_last =
            rules.max_tries > 0 && job.view.attempts >= rules.max_tries && job.view.retries;
        job.last = is_last.then(|| stamp.at.plus_ms(rules.prune_ms + 1));
        job.worker = match by {
            Claimant::Worker(worker) => Some(worker),
            Claimant::Bearer => None,
        };
        let job = job.clone();
        Reply::Claim(Box::new(Claim {
            id: job.view.id,
            token: stamp.seq.into(),
            queue: job.view.queue,
            attempts: job.view.attempts,
            until: job.view.until.unwrap_or_default(),
            retries: job.view.retries,
            duplicate: job.root.is_some_and(|root| self.is_outdated(root)),
            body: job.body,
        }))
    }

    /// The claim is over, and nothing was said.
    fn give_back(&mut self, slot: Slot) {
        let job = self.job(slot);
        match job.last {
            _ if !job.view.retries => drop(self.jobs.remove(&slot)),
            Some(prune) => job.go(Phase::Abandoned, Some(prune)),
            None => job.go(Phase::Ready, None),
        }
    }

    fn register(&mut self, root: Root, at: Timestamp) -> Reply {
        let known = self.roots.iter().find(|(_, (it, _))| it.key == root.key);
        let slot = match known {
            Some((_, (known, _))) if known.at >= root.at => return Reply::Absent,
            Some((slot, _)) => *slot,
            None => free(&self.roots),
        };
        let until = at.plus_ms(REMEMBERED_MS);
        self.roots.insert(slot, (root, until));
        Reply::Done
    }

    fn twin(&self, put: &Put) -> Option<&Job> {
        let key = key_of(put)?;
        let same = |job: &&Job| {
            job.is_unclaimed() && job.view.queue == put.queue && job.dedup == Some(key)
        };
        self.jobs
            .values()
            .filter(same)
            .min_by_key(|job| job.view.id)
    }

    fn put(&mut self, put: &Put, at: Timestamp) -> u64 {
        self.last_id += 1;
        let (id, rules) = (self.last_id, rules_of(&put.queue));
        let delayed = put.delay_ms > 0;
        let view = JobView {
            id,
            queue: put.queue.clone(),
            phase: if delayed {
                Phase::Delayed
            } else {
                Phase::Ready
            },
            priority: put.priority,
            created: at,
            until: delayed.then(|| at.plus_ms(put.delay_ms)),
            delay_ms: put.delay_ms,
            ttr_ms: put.ttr_ms,
            attempts: 0,
            reserves: 0,
            timeouts: 0,
            releases: 0,
            buries: 0,
            kicks: 0,
            token: None,
            retries: put.retries && rules.retries,
            passing: rules.class == Class::Memory,
            bytes: put.body.as_bytes().len() as u64,
        };
        let job = Job {
            view,
            body: put.body.clone(),
            worker: None,
            span: 0,
            last: None,
            buried: Seq(0),
            dedup: key_of(put),
            root: put.root,
            quarantined: false,
        };
        self.jobs.insert(free(&self.jobs), job);
        self.seen.insert(id);
        if let Some(root) = put.registers() {
            self.register(root, at);
        }
        id
    }

    fn is_full(&self, more: usize) -> bool {
        self.jobs.len() + more > JOBS_MAX as usize
    }

    fn put_one(&mut self, put: &Put, at: Timestamp) -> Reply {
        if self.draining {
            return Reply::Refused(Refused::Draining);
        }
        if let Some(twin) = self.twin(put) {
            return Reply::Put {
                id: twin.view.id,
                duplicate: Some(twin.view.phase),
            };
        }
        if self.is_full(1) {
            return Reply::Refused(Refused::Full);
        }
        Reply::Put {
            id: self.put(put, at),
            duplicate: None,
        }
    }

    /// All of them, or none; of those that are one with each other the last counts.
    fn put_all(&mut self, puts: &[Put], at: Timestamp) -> Reply {
        if self.draining && !puts.is_empty() {
            return Reply::Refused(Refused::Draining);
        }
        let name = |put: &Put| key_of(put).map(|key| (put.queue.clone(), key));
        let last = |place: usize, put: &Put| {
            let mut rest = puts.iter().skip(place + 1);
            name(put).is_none() || rest.all(|other| name(other) != name(put))
        };
        let twins: Vec<Option<u64>> = puts
            .iter()
            .map(|put| self.twin(put).map(|twin| twin.view.id))
            .collect();
        let is_new: Vec<bool> = (0..)
            .zip(puts.iter().zip(&twins))
            .map(|(place, (put, twin))| twin.is_none() && last(place, put))
            .collect();
        if self.is_full(is_new.iter().filter(|new| **new).count()) && is_new.contains(&true) {
            return Reply::Refused(Refused::Full);
        }
        let ids: Vec<Option<u64>> = puts
            .iter()
            .zip(&is_new)
            .map(|(put, new)| new.then(|| self.put(put, at)))
            .collect();
        let one = |put: &Put| {
            let mut all = puts.iter().zip(&ids);
            all.find_map(|(other, id)| id.filter(|_| name(other) == name(put)))
        };
        let told = puts.iter().zip(&ids).zip(&twins);
        let told = told.map(|((put, id), twin)| match (id, twin) {
            (Some(id), _) => (*id, true),
            (None, Some(twin)) => (*twin, false),
            (None, None) => (one(put).unwrap_or_default(), false),
        });
        Reply::Batch(told.collect())
    }

    /// What a message does, and what is answered. `chosen` is the job that chance fell on.
    fn message(&mut self, message: &Message, stamp: Stamp, chosen: Option<u64>) -> Reply {
        let at = stamp.at;
        match message {
            Message::Put(put) => self.put_one(put, at),
            Message::Batch(puts) => self.put_all(puts, at),
            Message::Spoil => {
                self.last_id += 1;
                Reply::Done
            }
            Message::Register(root) => self.register(*root, at),
            Message::Pop(pop) => match self.best(pop, chosen) {
                Some(slot) => self.claim(slot, pop.by, stamp),
                None => Reply::Nothing {
                    waits: pop.waits,
                    soonest: self.soonest(pop.by),
                },
            },
            Message::PopJob { id, by } => match self.find(*id) {
                Some((slot, job)) if job.view.phase != Phase::Claimed => {
                    self.claim(slot, *by, stamp)
                }
                Some(_) | None => Reply::Absent,
            },
            Message::Delete { id, by }
            | Message::Release { id, by, .. }
            | Message::Bury { id, by, .. }
            | Message::Touch { id, by }
            | Message::Fail { id, by, .. } => self.end(message, (*id, *by), stamp),
            Message::Kick { queue, count } => {
                let mut line = self.line(queue, Phase::Buried);
                if line.is_empty() {
                    line = self.line(queue, Phase::Delayed);
                }
                line.truncate(*count as usize);
                for slot in &line {
                    self.job(*slot).kick();
                }
                Reply::Count(u32::try_from(line.len()).expect("worlds are small"))
            }
            Message::KickJob { id } => match self.find(*id) {
                Some((slot, job)) if !matches!(job.view.phase, Phase::Ready | Phase::Claimed) => {
                    self.job(slot).kick();
                    Reply::Done
                }
                Some(_) | None => Reply::Absent,
            },
            Message::Pause { queue, ms } => {
                let pause = Pause {
                    until: at.plus_ms(*ms),
                    quarantined: false,
                };
                if *ms == 0 {
                    self.pauses.remove(queue);
                } else {
                    self.pauses.insert(queue.clone(), pause);
                }
                Reply::Done
            }
            Message::Flush { queue } => {
                let before = self.jobs.len();
                self.jobs.retain(|_, job| job.view.queue != *queue);
                let gone = before - self.jobs.len();
                Reply::Count(u32::try_from(gone).expect("worlds are small"))
            }
            Message::Depart { worker } => {
                let its = |(_, job): &(&Slot, &Job)| job.worker == Some(*worker);
                let its: Vec<Slot> = self.jobs.iter().filter(its).map(|it| *it.0).collect();
                for slot in &its {
                    self.give_back(*slot);
                }
                if its.is_empty() {
                    Reply::Absent
                } else {
                    Reply::Done
                }
            }
            Message::Drain if self.draining => Reply::Absent,
            Message::Drain => {
                self.draining = true;
                Reply::Done
            }
            Message::Expire { .. } | Message::Unpause { .. } | Message::Forget { .. } => {
                unreachable!("time is followed by `tick`")
            }
        }
    }

    fn soonest(&self, by: Claimant) -> Option<Timestamp> {
        let Claimant::Worker(worker) = by else {
            return None;
        };
        let its = self.jobs.values().filter(|job| job.worker == Some(worker));
        its.filter_map(|job| job.view.until).min()
    }

    /// What whoever has a job says of it.
    fn end(&mut self, message: &Message, (id, by): (u64, Right), stamp: Stamp) -> Reply {
        let Some((slot, job)) = self.find(id) else {
            return Reply::Absent;
        };
        let is_its = job.view.phase == Phase::Claimed
            && match by {
                Right::Worker(worker) => job.worker == Some(worker),
                Right::Token(token) => job.view.token == Some(token),
                Right::Unclaimed => false,
            };
        let is_free = job.view.phase != Phase::Claimed && !matches!(by, Right::Token(_));
        let may = is_its || is_free && matches!(message, Message::Delete { .. });
        match by {
            Right::Token(_) if !may => return Reply::Refused(Refused::StaleToken),
            Right::Worker(_) | Right::Unclaimed if !may => return Reply::Absent,
            Right::Token(_) | Right::Worker(_) | Right::Unclaimed => {}
        }
        let at = stamp.at;
        let job = self.job(slot);
        let urgency = |job: &mut Job, priority: &Option<u32>| {
            job.view.priority = priority.unwrap_or(job.view.priority);
        };
        match message {
            Message::Release {
                priority, delay_ms, ..
            } => {
                urgency(job, priority);
                job.view.releases += 1;
                if job.last.is_some() {
                    self.give_back(slot);
                    return Reply::Abandoned;
                }
                job.view.delay_ms = *delay_ms;
                match delay_ms {
                    0 => job.go(Phase::Ready, None),
                    ms => job.go(Phase::Delayed, Some(at.plus_ms(*ms))),
                }
            }
            Message::Bury { priority, .. } => {
                urgency(job, priority);
                job.view.buries += 1;
                job.buried = stamp.seq;
                job.go(Phase::Buried, None);
            }
            Message::Touch { .. } => {
                job.span = span(&job.view);
                job.view.until = Some(at.plus_ms(job.span));
                job.quarantined = false;
            }
            Message::Fail { retry_after_ms, .. } if job.view.retries => {
                let until = retry_after_ms.map(|ms| at.plus_ms(ms)).or(job.view.until);
                job.span = until.unwrap_or_default().0.saturating_sub(at.0);
                job.go(Phase::Claimed, until);
            }
            _ => drop(self.jobs.remove(&slot)),
        }
        Reply::Done
    }

    /// What is due first at `at`.
    fn first_due(&self, at: Timestamp) -> Option<(Timestamp, Due)> {
        let jobs = self.jobs.iter().filter(|(_, job)| !job.quarantined);
        let jobs = jobs.filter_map(|(slot, job)| Some((job.view.until?, Due::Job(*slot))));
        let pauses = self.pauses.values().filter(|pause| !pause.quarantined);
        let pauses = pauses.map(|pause| (pause.until, Due::Pause));
        let roots = self.roots.iter();
        let roots = roots.map(|(slot, (_, until))| (*until, Due::Root(*slot)));
        let due = jobs
            .chain(pauses)
            .chain(roots)
            .filter(|(until, _)| *until <= at);
        due.min()
    }

    fn tick(&mut self, at: Timestamp, message: &Message) -> Result<(), String> {
        let first = self.first_due(at);
        let wrong = || Err(format!("time acted, where {first:?} is due"));
        match (message, &first) {
            (Message::Expire { slot }, Some((_, Due::Job(due)))) if slot == due => {
                self.expire(*slot);
            }
            (Message::Unpause { queue }, Some((until, Due::Pause))) => {
                let pause = self.pauses.remove(queue);
                if pause.is_none_or(|pause| pause.until != *until || pause.quarantined) {
                    return wrong();
                }
            }
            (Message::Forget { slot }, Some((_, Due::Root(due)))) if slot == due => {
                self.roots.remove(slot);
            }
            _ => return wrong(),
        }
        Ok(())
    }

    fn expire(&mut self, slot: Slot) {
        let job = self.job(slot);
        match job.view.phase {
            Phase::Abandoned => drop(self.jobs.remove(&slot)),
            Phase::Claimed => {
                job.view.timeouts += 1;
                self.give_back(slot);
            }
            Phase::Delayed | Phase::Ready | Phase::Buried => job.go(Phase::Ready, None),
        }
    }

    fn found(&self, slot: Option<&Slot>) -> Reply {
        let job = slot.and_then(|slot| self.jobs.get(slot));
        job.map_or(Reply::Absent, |job| {
            Reply::Found(job.view.id, job.body.clone())
        })
    }
}

/// The lowest slot that is free.
fn free<T>(taken: &BTreeMap<Slot, T>) -> Slot {
    let mut slots = (0..).map(Slot);
    slots
        .find(|slot| !taken.contains_key(slot))
        .expect("worlds are small")
}

fn key_of(put: &Put) -> Option<DedupKey> {
    let says = || DedupKey::of(put.body.as_bytes());
    put.dedup.or_else(|| rules_of(&put.queue).dedup.then(says))
}

/// Milliseconds that a claim of this job lasts.
fn span(view: &JobView) -> u64 {
    match view.ttr_ms {
        0 => rules_of(&view.queue).claim_ttl_ms + 1,
        ttr => ttr,
    }
}

fn is_in_memory(queue: &QueueName) -> bool {
    rules_of(queue).class == Class::Memory
}

/// Whether a claim ends with the process, and nobody counts it.
fn claim_passes(by: Claimant, claim: &Claim) -> bool {
    let counted = rules_of(&claim.queue).max_tries > 0 || !claim.retries;
    is_in_memory(&claim.queue) || matches!(by, Claimant::Worker(_)) && !counted
}

/// The numbers of jobs that a reply shows to be kept in memory.
fn in_memory((message, reply): (&Message, &Reply)) -> Vec<u64> {
    match (message, reply) {
        (Message::Put(put), Reply::Put { id, .. }) if is_in_memory(&put.queue) => vec![*id],
        (Message::Batch(puts), Reply::Batch(told)) => {
            let told = puts.iter().zip(told);
            let told = told.filter(|(put, _)| is_in_memory(&put.queue));
            told.map(|(_, (id, _))| *id).collect()
        }
        (_, Reply::Claim(claim)) if is_in_memory(&claim.queue) => vec![claim.id],
        _ => Vec::new(),
    }
}

impl Reference for Queues {
    type Machine = QueueMachine;

    fn rules() -> Rules {
        let types = names().map(|name| {
            let text = String::from_utf8(name.as_bytes().to_vec()).expect("names are text");
            (text, rules_of(&name))
        });
        Rules {
            jobs_max: JOBS_MAX,
            default: rules_of(&QueueName::parse(b"any").expect("a name")),
            types: types.into(),
            ..Rules::default()
        }
    }

    fn apply(
        &mut self,
        stamp: Stamp,
        message: &Message,
        (outcome, reply): (&Outcome, &Reply),
    ) -> Result<(), String> {
        self.woken = None;
        if let Message::Expire { .. } | Message::Unpause { .. } | Message::Forget { .. } = message {
            return self.tick(stamp.at, message);
        }
        if let Some(due) = self.due(stamp.at) {
            return Err(format!("it was ordered before {due}, which was due"));
        }
        if let Outcome::Put { slot, .. } = outcome
            && *slot != free(&self.jobs)
        {
            return Err(format!("{slot:?} is not the lowest that is free"));
        }
        let chosen = match reply {
            Reply::Claim(claim) => Some(claim.id),
            _ => None,
        };
        let right = self.message(message, stamp, chosen);
        if right != *reply || !Self::changes(reply) {
            return Err(format!("{reply:?}, where {right:?} is right"));
        }
        if let Message::Pop(pop) = message
            && pop.ticket.is_some()
        {
            self.woken = Some((pop.clone(), right));
        }
        Ok(())
    }

    fn start(&mut self, Start { stamp, skipped }: Start) {
        self.woken = None;
        self.draining = false;
        self.last_id += skipped;
        self.jobs.retain(|_, job| !job.view.passing);
        let slots: Vec<Slot> = self.jobs.keys().copied().collect();
        for slot in slots {
            let job = self.job(slot);
            job.quarantined = false;
            if job.worker.is_some() {
                self.give_back(slot);
            } else if job.view.phase == Phase::Claimed {
                job.view.until = Some(stamp.at.plus_ms(job.span));
            }
        }
        for pause in self.pauses.values_mut() {
            pause.quarantined = false;
        }
    }

    fn poisoned(&mut self, message: &Message) {
        match message {
            Message::Expire { slot } => self.job(*slot).quarantined = true,
            Message::Unpause { queue } => {
                if let Some(pause) = self.pauses.get_mut(queue) {
                    pause.quarantined = true;
                }
            }
            _ => {}
        }
    }

    fn due(&self, at: Timestamp) -> Option<String> {
        self.first_due(at).map(|due| format!("{due:?}"))
    }

    fn without_change(&self, message: &Message) -> Option<Reply> {
        let stamp = Stamp {
            seq: Seq(0),
            at: Timestamp(0),
        };
        let reply = self.clone().message(message, stamp, None);
        (!Self::changes(&reply)).then_some(reply)
    }

    fn answer(&self, query: &Query) -> Answer<Reply> {
        Ok(match query {
            Query::Peek { id } => self.found(self.find(*id).map(|(slot, _)| slot).as_ref()),
            Query::PeekNext { queue, phase } => match phase {
                Phase::Ready | Phase::Delayed | Phase::Buried => {
                    self.found(self.line(queue, *phase).first())
                }
                Phase::Claimed | Phase::Abandoned => Reply::Absent,
            },
            Query::Job { id } => self.find(*id).map_or(Reply::Absent, |(_, job)| {
                Reply::Job(Box::new(job.view.clone()))
            }),
            Query::Queue { .. } | Query::Totals | Query::Queues { .. } | Query::Next { .. } => {
                unreachable!("clients do not ask for what is volatile")
            }
        })
    }

    fn agrees(&self, machine: &QueueMachine) -> Result<(), String> {
        let view = machine.view();
        let mut mine: Vec<&JobView> = self.jobs.values().map(|job| &job.view).collect();
        mine.sort_by_key(|job| job.id);
        if view.jobs.iter().ne(mine.iter().copied()) {
            return Err(format!("jobs are {:?}, where {mine:?} is right", view.jobs));
        }
        if (view.next_id, view.totals.draining) != (self.next_id(), self.draining) {
            let (next, draining) = (view.next_id, view.totals.draining);
            return Err(format!("the next is {next}, and draining is {draining}"));
        }
        let paused = view.queues.iter();
        let paused = paused.filter_map(|queue| Some((&queue.name, queue.paused_until?)));
        let mine = self.pauses.iter().map(|(name, pause)| (name, pause.until));
        if paused.clone().ne(mine) {
            let paused: Vec<_> = paused.collect();
            return Err(format!("{paused:?}, where {:?} is right", self.pauses));
        }
        Ok(())
    }

    fn origin(message: &Message) -> Origin {
        match message {
            Message::Expire { .. }
            | Message::Unpause { .. }
            | Message::Forget { .. }
            | Message::Pop(Pop {
                ticket: Some(_), ..
            }) => Origin::Tick,
            _ => Origin::Client,
        }
    }

    fn changes(reply: &Reply) -> bool {
        match reply {
            Reply::Put { duplicate, .. } => duplicate.is_none(),
            Reply::Count(count) => *count > 0,
            Reply::Batch(_) | Reply::Claim(_) | Reply::Done | Reply::Abandoned => true,
            Reply::Nothing { .. }
            | Reply::Absent
            | Reply::Refused(_)
            | Reply::Found(..)
            | Reply::Job(_)
            | Reply::Queue(_)
            | Reply::Totals(_)
            | Reply::Queues(_) => false,
        }
    }

    fn wakes(&self, watch: &Watch) -> Option<Reply> {
        let (Watch::Job(wanted), Some((pop, reply))) = (watch, &self.woken) else {
            return None;
        };
        let is_it =
            (&pop.queues, &pop.weights, pop.by) == (&wanted.queues, &wanted.weights, wanted.by);
        is_it.then(|| reply.clone())
    }

    /// Decision 0011: claims and touches of connections as long as nobody counts them, the return of their jobs, and
    /// whatever becomes of jobs that are kept in memory.
    fn may_pass<'a>(
        (message, reply): (&Message, &Reply),
        told: impl Fn() -> Told<'a, Self>,
    ) -> bool {
        let is_in_memory_by_id = |id: u64| told().any(|it| in_memory(it).contains(&id));
        match (message, reply) {
            (_, reply) if !Self::changes(reply) => true,
            (Message::Put(put), _) => is_in_memory(&put.queue) && put.registers().is_none(),
            (Message::Pop(Pop { by, .. }) | Message::PopJob { by, .. }, Reply::Claim(claim)) => {
                claim_passes(*by, claim)
            }
            (Message::Spoil | Message::Depart { .. }, _) => true,
            (Message::Touch { id, by }, _) => {
                told().any(|told| match told {
                    (
                        Message::Pop(Pop { by: to, .. }) | Message::PopJob { by: to, .. },
                        Reply::Claim(claim),
                    ) => {
                        claim.id == *id
                            && matches!(by, Right::Worker(_))
                            && claim_passes(*to, claim)
                    }
                    _ => false,
                }) || is_in_memory_by_id(*id)
            }
            (
                Message::Delete { id, .. }
                | Message::Release { id, .. }
                | Message::Bury { id, .. }
                | Message::Fail { id, .. }
                | Message::KickJob { id },
                _,
            ) => is_in_memory_by_id(*id),
            _ => false,
        }
    }

    fn may_wake_pass(watch: &Watch, reply: &Reply) -> bool {
        match (watch, reply) {
            (Watch::Job(pop), Reply::Claim(claim)) => claim_passes(pop.by, claim),
            _ => false,
        }
    }

    /// No claim shows a job whose put is not on disk.
    fn has_seen(&self, reply: &Reply) -> bool {
        match reply {
            Reply::Claim(claim) => is_in_memory(&claim.queue) || self.seen.contains(&claim.id),
            _ => true,
        }
    }

    fn count(message: &Message, outcome: &Outcome, counted: &mut Coverage) {
        let waited = matches!(message, Message::Pop(pop) if pop.ticket.is_some());
        match outcome {
            Outcome::Put { .. } => counted.jobs_put += 1,
            Outcome::Batch { .. } => counted.batches += 1,
            Outcome::Registered { .. } => counted.roots_registered += 1,
            Outcome::Claimed { .. } if waited => counted.claims_waited_for += 1,
            Outcome::Claimed { .. } => counted.claims += 1,
            Outcome::Touched { .. } => counted.touches += 1,
            Outcome::Deleted { .. } => counted.deletes += 1,
            Outcome::Released { .. } => counted.jobs_released += 1,
            Outcome::Buried { .. } => counted.burials += 1,
            Outcome::Failed { .. } => counted.failures += 1,
            Outcome::Kicked { .. } | Outcome::KickedJob { .. } => counted.kicks += 1,
            Outcome::Paused { .. } => counted.pauses += 1,
            Outcome::Flushed { .. } => counted.flushes += 1,
            Outcome::Departed { .. } => counted.departures += 1,
            Outcome::Ready { .. } => counted.delays_over += 1,
            Outcome::TimedOut { .. } => counted.claims_over += 1,
            Outcome::Abandoned { .. } => counted.jobs_abandoned += 1,
            Outcome::Pruned { .. } => counted.jobs_pruned += 1,
            Outcome::Spoiled { .. }
            | Outcome::Forgotten { .. }
            | Outcome::Draining
            | Outcome::Duplicate { .. }
            | Outcome::Absent
            | Outcome::Refused(_) => {}
        }
    }

    fn may_be_refused(message: &Message) -> bool {
        matches!(
            message,
            Message::Put(_)
                | Message::Batch(_)
                | Message::Register(_)
                | Message::Pop(_)
                | Message::PopJob { .. }
                | Message::Spoil
                | Message::Touch { .. }
                | Message::Kick { .. }
                | Message::KickJob { .. }
                | Message::Pause { .. }
        )
    }

    fn is_disk_full(reply: &Reply) -> bool {
        *reply == Reply::Refused(Refused::DiskFull)
    }
}

impl Queues {
    fn next_id(&self) -> u64 {
        self.last_id + 1
    }
}
