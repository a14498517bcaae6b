//! A second implementation of the queue rules: a plain list of jobs and linear searches. `tests.rs` and the simulation
//! (`tests/sim/queues/`) compare the machine with it. The simulation is a separate crate that includes this folder, so
//! imports name `sexton` instead of `crate`. The model shares no code with `decide.rs`, `commit.rs` or `state.rs`.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "each rule names only the messages that it applies to"
)]

mod adding;
mod crashes;
mod ending;
mod many;
mod results;
mod time;
mod turns;
mod uniques;

use sexton::actors::binding::{self, Binding, ToProcesses};
use sexton::actors::queue::{
    Body, Claim, Claimant, Counts, DedupKey, JobView, Message, Order, Phase, Pop, QueueName,
    Refused, Reply, Root, Rules, TypeRules, Worker,
};
use sexton::clock::{Date, Offset, Timestamp};
use sexton::ids::{ActorId, Seq, Slot, Ticket, Token};

/// The state of the model: plain lists, which are searched linearly.
#[derive(Clone)]
pub(super) struct Model {
    pub(super) rules: Rules,
    pub(super) draining: bool,
    /// How far the wall clock is ahead of node time.
    pub(super) offset: Offset,
    /// Whether removals by time are held back because the wall clock is in doubt.
    pub(crate) held: bool,
    pub(super) next_id: u64,
    pub(super) jobs: Vec<Entry>,
    pub(super) pauses: Vec<Pause>,
    /// Queues that are closed after a claim, and when they open.
    pub(super) closings: Vec<(QueueName, Timestamp)>,
    /// The turns of tenants.
    pub(super) turns: turns::Turns,
    /// Root jobs by slot, and until when they are remembered.
    roots: Vec<Option<(Root, Timestamp)>>,
    /// Stored results, by slot.
    pub(super) results: Vec<Option<results::Kept>>,
    /// Remembered keys, by slot.
    pub(super) keys: Vec<Option<uniques::RememberedKey>>,
    /// Queues that have jobs or are paused, by number.
    numbers: Vec<Option<QueueName>>,
    pub(super) waiters: Vec<(Ticket, Pop)>,
    pub(super) present: Vec<(Ticket, QueueName, Vec<QueueName>)>,
    /// The id of the job that the machine claimed; the model follows this choice where it is random.
    pub(super) chosen: Option<u64>,
    /// The retry time in the machine's outcome; the model follows it where it is random.
    pub(super) parked: Option<Timestamp>,
    /// The number of retry times that were chosen at random.
    pub(super) backed_off: u32,
    /// Messages sent to the `ProcessActor` since this list was last taken.
    pub(super) told: Vec<ToProcesses>,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) slot: Slot,
    /// The view as stored: the end of a claim or of a wait for a retry is a node time, and every other deadline is a date.
    pub(super) view: JobView,
    pub(super) worker: Option<Worker>,
    /// Length of the claim, or of the wait for a retry, in milliseconds.
    span: u64,
    /// If this is the last try, the date on which the job will be removed if it is abandoned.
    last: Option<Timestamp>,
    buried: Seq,
    dedup: Option<DedupKey>,
    root: Option<Root>,
    /// Whether the job was added by a command of the beanstalk protocol.
    tube: bool,
    /// Number of work items, for the throttle of its queue; 0 counts as 1.
    items: u32,
    pub(super) body: Body,
    /// Whether it must be removed, because its claim has ended and it runs at most once.
    is_gone: bool,
    /// If set, the job's deadline is ignored until the job changes or the server restarts.
    pub(super) quarantined: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Pause {
    pub(super) queue: QueueName,
    pub(super) ms: u64,
    /// The date on which the pause ends.
    pub(super) until: Timestamp,
    /// See `Entry::quarantined`.
    pub(super) quarantined: bool,
}

/// The item that is due next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Job(Slot),
    Pause(QueueName),
    Root(Slot),
    Result(Slot),
    Key(Slot),
    Waiter(Ticket),
}

/// The sequence number of a message's journal entry, and the time of the message.
type Moment = (Seq, Timestamp);

impl Entry {
    fn go(&mut self, phase: Phase, until: Option<Timestamp>) {
        (self.view.phase, self.view.until) = (phase, until);
        (self.view.token, self.worker) = (None, None);
        self.view.claimed = None;
        (self.view.bound, self.view.fencing) = (None, false);
        (self.view.cancelled, self.view.command) = (false, None);
        self.quarantined = false;
        if phase != Phase::Claimed {
            self.last = None;
        }
    }

    /// Ends a claim without success: the job becomes ready again or, if this was its last try, is abandoned. A job that runs
    /// at most once is marked for removal.
    fn give_back(&mut self) {
        self.is_gone = !self.view.retries;
        match self.last {
            Some(prune) => self.go(Phase::Abandoned, Some(prune)),
            None => self.go(Phase::Ready, None),
        }
    }

    fn kick(&mut self) {
        self.view.kicks += 1;
        self.view.attempts = 0;
        self.view.crashes = 0;
        self.go(Phase::Ready, None);
    }

    /// Handles a server start: a claim of a connection is given back, and the spans of other claims and of waits for a retry restart.
    fn start(&mut self, at: Timestamp) {
        self.quarantined = false;
        if self.worker.is_some() {
            self.give_back();
        } else if matches!(self.view.phase, Phase::Claimed | Phase::Retrying) {
            // A claim that ends only with its process has no deadline, so there is nothing to move.
            self.view.until = self.view.until.map(|_| at.plus_ms(self.span));
        }
    }

    /// Returns the messages about the claim that the machine must send to the `ProcessActor`.
    fn obligations(&self) -> Vec<ToProcesses> {
        let Some(Binding { process, until, .. }) = self.view.bound else {
            return Vec::new();
        };
        let by = ActorId::QUEUE;
        let mut said = vec![ToProcesses::Watch(binding::Watch { by, process, until })];
        if self.view.fencing {
            said.push(ToProcesses::Fence(process));
        }
        said
    }
}

impl Model {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            draining: false,
            offset: Offset::default(),
            held: false,
            next_id: 1,
            jobs: Vec::new(),
            pauses: Vec::new(),
            closings: Vec::new(),
            turns: turns::Turns::default(),
            roots: Vec::new(),
            results: Vec::new(),
            keys: Vec::new(),
            numbers: Vec::new(),
            waiters: Vec::new(),
            present: Vec::new(),
            chosen: None,
            parked: None,
            backed_off: 0,
            told: Vec::new(),
        }
    }

    /// Records the messages that the machine's `resume` must send to the `ProcessActor`.
    pub(crate) fn resume(&mut self) {
        self.told = self.jobs.iter().flat_map(Entry::obligations).collect();
    }

    /// Returns the wall-clock date at a node time.
    fn date(&self, at: Timestamp) -> Timestamp {
        Timestamp(self.offset.date(at).0)
    }

    /// Returns the node time of a date, provided that the wall clock does not step.
    pub(super) fn time(&self, date: Timestamp) -> Timestamp {
        self.offset.time(Date(date.0))
    }

    /// Returns the deadline of a job in node time; `None` if it has none.
    pub(super) fn ends(&self, job: &Entry) -> Option<Timestamp> {
        let until = job.view.until?;
        let is_time = matches!(job.view.phase, Phase::Claimed | Phase::Retrying);
        Some(if is_time { until } else { self.time(until) })
    }

    /// Returns the view of a job as it is shown to clients.
    pub(super) fn shown(&self, job: &Entry) -> JobView {
        JobView { until: self.ends(job), ..job.view.clone() }
    }

    fn rules_of(&self, queue: &QueueName) -> TypeRules {
        let kind = String::from_utf8_lossy(queue.kind()).into_owned();
        let rules = self.rules.types.get(&kind);
        rules.unwrap_or(&self.rules.default).clone()
    }

    fn lasts(&self, queue: &QueueName) -> bool {
        self.jobs.iter().any(|job| job.view.queue == *queue)
            || self.pauses.iter().any(|pause| pause.queue == *queue)
    }

    /// Returns all queues that exist, for any reason.
    pub(super) fn queues(&self) -> Vec<QueueName> {
        let jobs = self.jobs.iter().map(|job| job.view.queue.clone());
        let pauses = self.pauses.iter().map(|pause| pause.queue.clone());
        let waiting = self.waiters.iter().flat_map(|(_, pop)| pop.queues.to_vec());
        let present = self.present.iter().flat_map(|(_, using, watching)| {
            let mut queues = watching.clone();
            queues.push(using.clone());
            queues
        });
        let closed = self.closings.iter().map(|(queue, _)| queue.clone());
        let named = jobs.chain(pauses).chain(closed);
        let mut queues: Vec<QueueName> = named.chain(waiting).chain(present).collect();
        queues.sort();
        queues.dedup();
        queues
    }

    pub(super) fn counts(&self, queue: Option<&QueueName>) -> Counts {
        let count = |phases: &[Phase], below: u64| {
            let of_queue = |job: &&Entry| queue.is_none_or(|queue| job.view.queue == *queue);
            let of_phase = |job: &&Entry| phases.contains(&job.view.phase);
            let urgent = |job: &&Entry| u64::from(job.view.priority) < below;
            let jobs = self.jobs.iter();
            let counted = jobs.filter(of_queue).filter(of_phase).filter(urgent);
            u32::try_from(counted.count()).expect("the model is small")
        };
        Counts {
            urgent: count(&[Phase::Ready], 1024),
            ready: count(&[Phase::Ready], u64::MAX),
            delayed: count(&[Phase::Delayed], u64::MAX),
            claimed: count(&[Phase::Claimed], u64::MAX),
            buried: count(&[Phase::Buried], u64::MAX),
            abandoned: count(&[Phase::Abandoned], u64::MAX),
            retrying: count(&[Phase::Retrying], u64::MAX),
            quarantined: count(&[Phase::Quarantined], u64::MAX),
        }
    }

    /// Returns the ids of a queue's jobs in this phase, in the order in which they are processed.
    pub(super) fn line(&self, queue: &QueueName, phase: Phase) -> Vec<u64> {
        let jobs = self.jobs.iter();
        let mut line: Vec<&Entry> =
            jobs.filter(|job| job.view.queue == *queue && job.view.phase == phase).collect();
        line.sort_by_key(|job| match phase {
            Phase::Ready => self.rank(job),
            Phase::Buried => (job.buried.0, job.view.id),
            Phase::Retrying | Phase::Abandoned | Phase::Quarantined => (0, job.view.id),
            Phase::Delayed | Phase::Claimed => (job.view.until.unwrap_or_default().0, job.view.id),
        });
        line.iter().map(|job| job.view.id).collect()
    }

    /// Returns the ids of the jobs that a kick or a peek considers for a phase: delayed jobs and then jobs that wait for a
    /// retry, or buried jobs, then abandoned and then quarantined jobs. For any other phase, only the jobs in it.
    pub(super) fn kickable(&self, queue: &QueueName, phase: Phase) -> Vec<u64> {
        let mut line = self.line(queue, phase);
        line.extend(match phase {
            Phase::Delayed => self.line(queue, Phase::Retrying),
            Phase::Buried => {
                let mut aside = self.line(queue, Phase::Abandoned);
                aside.extend(self.line(queue, Phase::Quarantined));
                aside
            }
            _ => Vec::new(),
        });
        line
    }

    fn rank(&self, job: &Entry) -> (u64, u64) {
        let rank = match self.rules.default.order {
            Order::Priority => job.view.priority.into(),
            Order::Timestamp => job.view.created.0,
            Order::Fifo | Order::Random => 0,
        };
        (rank, job.view.id)
    }

    /// Returns whether a queue is paused or closed by its throttle, so that no job can be claimed from it.
    pub(super) fn is_shut(&self, queue: &QueueName) -> bool {
        self.pauses.iter().any(|pause| pause.queue == *queue)
            || self.closings.iter().any(|(closed, _)| closed == queue)
    }

    /// Returns whether any closed queue has ready jobs.
    pub(super) fn has_held_back_jobs(&self) -> bool {
        let closed = &mut self.closings.iter();
        closed.any(|(queue, _)| !self.line(queue, Phase::Ready).is_empty())
    }

    /// Returns the job that this claim takes; `None` if it finds no job. If the queue is chosen at random, returns the job
    /// that the machine chose, provided that it is the first of its queue in claiming order, and otherwise the first job
    /// of the first queue that has one.
    fn taken(&self, pop: &Pop) -> Option<&Entry> {
        if let Some(any) = &pop.any {
            return self.best(&[self.turn(any)?]);
        }
        if pop.weights.is_empty() {
            return self.best(&pop.queues);
        }
        let queues = pop.queues.iter();
        let bests = || queues.clone().filter_map(|queue| self.best(std::slice::from_ref(queue)));
        let chosen = bests().find(|job| Some(job.view.id) == self.chosen);
        chosen.or_else(|| bests().next())
    }

    /// Returns the job that a claim from these queues takes; `None` if there is none.
    fn best(&self, queues: &[QueueName]) -> Option<&Entry> {
        let can = |job: &&Entry| {
            let queue = &job.view.queue;
            job.view.phase == Phase::Ready && queues.contains(queue) && !self.is_shut(queue)
        };
        let jobs = self.jobs.iter().filter(can);
        match (self.rules.default.order, self.chosen) {
            (Order::Random, Some(chosen)) => jobs.into_iter().find(|job| job.view.id == chosen),
            _ => jobs.min_by_key(|job| self.rank(job)),
        }
    }

    pub(super) fn message(&mut self, message: &Message, (seq, at): Moment) -> Reply {
        let reply = match message {
            Message::Put(put) => self.put(put, at),
            Message::Batch(puts) => self.batch(puts, at),
            Message::Register(root) => self.register(*root, at),
            Message::Spoil => {
                self.next_id += 1;
                Reply::Done
            }
            Message::Pop(pop) => self.pop(pop, (seq, at)),
            Message::PopJob { id, by } => self.pop_job(*id, *by, (seq, at)),
            Message::Kick { queue, count } => {
                let buried = self.kickable(queue, Phase::Buried);
                let delayed = self.kickable(queue, Phase::Delayed);
                self.kick(if buried.is_empty() { delayed } else { buried }, *count, 0)
            }
            Message::Repush { queue, count } => {
                self.kick(self.line(queue, Phase::Abandoned), *count, 0)
            }
            Message::KickMore(more) => self.kick_more(more),
            Message::KickJob { id } => match self.job(*id) {
                Some(job) if !matches!(job.view.phase, Phase::Ready | Phase::Claimed) => {
                    job.kick();
                    Reply::Done
                }
                _ => Reply::Absent,
            },
            Message::Pause { queue, ms } => self.pause(queue, *ms, at),
            Message::Flush { queue } if self.counts(Some(queue)).all() > self.rules.across.part => {
                self.flush_part(queue, (0, self.next_id), 0)
            }
            Message::FlushMore(more) => self.flush_more(more),
            Message::Flush { queue } => {
                let count = self.counts(Some(queue)).all();
                let ids = self.jobs.iter().filter(|job| job.view.queue == *queue);
                let ids: Vec<u64> = ids.map(|job| job.view.id).collect();
                self.forget_keys_of(&ids);
                self.jobs.retain(|job| job.view.queue != *queue);
                Reply::Count(count)
            }
            Message::Depart { worker } => self.depart(*worker, at),
            Message::Gone(gone) => self.gone(*gone, at),
            Message::Cancel { id, error } => self.cancel(*id, error.as_ref(), at),
            Message::Drain if self.draining => Reply::Absent,
            Message::Drain => {
                self.draining = true;
                Reply::Done
            }
            Message::KeepResult(keep) => self.keep(message, keep, (seq, at)),
            Message::Expire { .. }
            | Message::Unpause { .. }
            | Message::Forget { .. }
            | Message::DropResult { .. }
            | Message::ForgetKey { .. } => {
                unreachable!("ticks are handled by `tick`")
            }
            Message::Delete { id, by }
            | Message::Release { id, by, .. }
            | Message::Bury { id, by, .. }
            | Message::Touch { id, by }
            | Message::Report { id, by, .. }
            | Message::Bind { id, by, .. }
            | Message::Attach { id, by, .. }
            | Message::Defer { id, by, .. }
            | Message::Fail { id, by, .. } => self.end(message, (*id, *by), (seq, at)),
        };
        self.number();
        self.update_line();
        reply
    }

    fn pop_job(&mut self, id: u64, by: Claimant, moment: Moment) -> Reply {
        match self.job(id) {
            Some(job) if job.view.phase != Phase::Claimed => self.claim(id, (by, 0), moment),
            _ => Reply::Absent,
        }
    }

    fn pop(&mut self, pop: &Pop, moment: Moment) -> Reply {
        let Some(id) = self.taken(pop).map(|job| job.view.id) else {
            return Reply::Nothing { waits: pop.waits, soonest: self.soonest(pop.by) };
        };
        let waiters = &mut self.waiters;
        waiters.retain(|(ticket, _)| Some(*ticket) != pop.ticket);
        let reply = self.claim(id, (pop.by, pop.ttr_ms), moment);
        if let (Reply::Claim(claim), Some(_)) = (&reply, &pop.any) {
            self.take_turn(&claim.queue);
        }
        if let Reply::Claim(claim) = &reply
            && !claim.duplicate
            && let milli @ 1.. = self.rules_of(&claim.queue).throttle_milli
        {
            let items = self.job(id).map_or(1, |job| job.items.max(1));
            let opens = moment.1.plus_ms(u64::from(1_000_000 / milli) * u64::from(items));
            self.closings.push((claim.queue.clone(), opens));
        }
        reply
    }

    /// Assigns the lowest free numbers to queues that have jobs or are paused, and frees the numbers of other queues.
    fn number(&mut self) {
        for place in 0..self.numbers.len() {
            if let Some(queue) = self.numbers[place].clone()
                && !self.lasts(&queue)
            {
                self.numbers[place] = None;
            }
        }
        for queue in self.queues() {
            if self.lasts(&queue) && !self.numbers.contains(&Some(queue.clone())) {
                match self.numbers.iter().position(Option::is_none) {
                    Some(place) => self.numbers[place] = Some(queue),
                    None => self.numbers.push(Some(queue)),
                }
            }
        }
    }

    /// Records the request to the `ProcessActor` to report the end of a claim's process, unless another claim requires the
    /// same report.
    fn watch(&mut self, id: u64) {
        let same = |one: &Binding, other: &Binding| {
            (one.process, one.until) == (other.process, other.until)
        };
        let job = self.jobs.iter().find(|job| job.view.id == id);
        let job = job.expect("the job exists");
        let is_watched = job.view.bound.is_some_and(|binding| {
            let mut others = self.jobs.iter().filter(|other| other.view.id != id);
            others.any(|other| other.view.bound.is_some_and(|other| same(&binding, &other)))
        });
        if !is_watched {
            let requests = job.obligations();
            self.told.extend(requests);
        }
    }

    fn job(&mut self, id: u64) -> Option<&mut Entry> {
        self.jobs.iter_mut().find(|job| job.view.id == id)
    }

    fn soonest(&self, by: Claimant) -> Option<Timestamp> {
        let Claimant::Worker(worker) = by else {
            return None;
        };
        let mine = self.jobs.iter().filter(|job| job.worker == Some(worker));
        mine.filter_map(|job| job.view.until).min()
    }

    fn span(&self, job: &JobView) -> u64 {
        let rules = self.rules_of(&job.queue);
        match (job.ttr_ms, rules.claim_ttl_ms) {
            (0, 0) => rules.prune_ms + 1,
            (0, ttl) => ttl + 1,
            (ttr, _) => ttr,
        }
    }

    fn claim(&mut self, id: u64, (by, ttr_ms): (Claimant, u64), (seq, at): Moment) -> Reply {
        let view = self.job(id).expect("the job exists").view.clone();
        let rules = self.rules_of(&view.queue);
        let is_endless = matches!(by, Claimant::Process(_)) && ttr_ms == 0;
        let span = Some(ttr_ms).filter(|ms| *ms > 0);
        let span = span.or(is_endless.then_some(u64::MAX));
        let span = span.unwrap_or_else(|| self.span(&view));
        let date = self.date(at);
        let root = self.jobs.iter().find(|job| job.view.id == id).and_then(|job| job.root);
        let duplicate = root.is_some_and(|root| self.newest(root.key) > Some(root.at));
        let job = self.job(id).expect("the job exists");
        if matches!(view.phase, Phase::Buried | Phase::Abandoned | Phase::Quarantined) {
            job.view.attempts = 0;
        }
        if view.phase == Phase::Quarantined {
            job.view.crashes = 0;
        }
        job.go(Phase::Claimed, (!is_endless).then(|| at.plus_ms(span)));
        job.span = span;
        job.view.progress = None;
        job.view.attempts += 1;
        job.view.reserves += 1;
        job.view.token = Some(seq.into());
        job.view.claimed = Some(at);
        let most = if job.tube { rules.tube_max_tries } else { rules.max_tries };
        let last = most > 0 && job.view.attempts >= most && view.retries;
        job.last = last.then(|| date.plus_ms(rules.prune_ms + 1));
        job.worker = match by {
            Claimant::Worker(worker) => Some(worker),
            Claimant::Bearer | Claimant::Process(_) => None,
        };
        job.view.bound = match by {
            Claimant::Process(binding) => Some(binding),
            Claimant::Worker(_) | Claimant::Bearer => None,
        };
        self.watch(id);
        let job = self.job(id).expect("the job exists");
        Reply::Claim(Box::new(Claim {
            id,
            token: Token(seq.0),
            queue: job.view.queue.clone(),
            attempts: job.view.attempts,
            until: at.plus_ms(span),
            retries: view.retries,
            duplicate,
            body: job.body.clone(),
        }))
    }

    fn pause(&mut self, queue: &QueueName, ms: u64, at: Timestamp) -> Reply {
        if ms > 0 && self.is_one_too_many(queue) {
            return Reply::Refused(Refused::QueuesFull);
        }
        self.pauses.retain(|pause| pause.queue != *queue);
        if ms > 0 {
            let date = self.date(at);
            self.pauses.push(Pause {
                queue: queue.clone(),
                ms,
                until: date.plus_ms(ms),
                quarantined: false,
            });
        }
        Reply::Done
    }
}
