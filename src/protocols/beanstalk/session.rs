//! One beanstalkd client: its commands become messages for the QueueActor, its replies come back in order.
//!
//! Commands that only concern the connection (`use`, `watch`, `ignore`, …) are carried out here; others go to the actor
//! in runs, as many as came. A run ends at a `reserve` that finds nothing: nothing behind it is read on until it is
//! answered. What is held for a client that does not read is bounded: some commands, their answers, some output.

use crate::actors::host::{Answer, Item};
use crate::actors::queue::{
    Claim, Claimant, Message, Phase, Pop, Put, Query, QueueMachine, QueueName, Refused,
    Reply as Told, Right, Watch, Worker,
};
use crate::actors::runtime::{Mailbox, Waiting};
use crate::clock::Timestamp;
use crate::protocols::beanstalk::DEBUG_TARGET;
use crate::protocols::beanstalk::asked::Asked;
use crate::protocols::beanstalk::codec::Decoder;
use crate::protocols::beanstalk::command::Counted;
use crate::protocols::beanstalk::door::{DEFAULT_TUBE, Shared};
use crate::protocols::beanstalk::reply::{Job, Reply, encode};
use crate::protocols::beanstalk::show;
use crate::protocols::session::{Session, Then};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The most commands of one batch.
const BATCH_MAX: usize = 1024;

/// The most that one delivery asks of the actor, unless a single command asks more.
const ITEMS_MAX: usize = 1024;

/// Output beyond this is written before more is put behind it.
const OUTPUT_BYTES: usize = 256 * 1024;

/// The most tubes that a client watches.
const WATCHED_MAX: usize = 1024;

/// A reservation that has no more than this left is about to end: a client that asks for more is told so.
const MARGIN: Duration = Duration::from_secs(1);

/// A client's protocol state.
pub(crate) struct BeanstalkSession {
    queues: Mailbox<QueueMachine>,
    shared: Arc<Shared>,
    worker: Worker,
    decoder: Decoder,
    /// Commands to be carried out, and what each is counted as.
    taken: VecDeque<(Asked, Option<Counted>)>,
    /// Answers to the first of them, still to be written.
    answers: VecDeque<Answer<Told>>,
    using: QueueName,
    watching: Arc<[QueueName]>,
    /// Says that this client uses and watches its queues.
    presence: Waiting<QueueMachine>,
    /// What it says is no longer so.
    is_moved: bool,
    /// The `reserve` that waits for a job.
    reserving: Option<Reserving>,
    is_producer: bool,
    is_worker: bool,
    /// It may have claims that its end gives back.
    may_hold: bool,
}

/// A `reserve` that found nothing.
struct Reserving {
    waiting: Waiting<QueueMachine>,
    /// How long the client waits, and what it is told then.
    patience: Option<(Duration, Reply<'static>)>,
}

impl BeanstalkSession {
    pub(crate) fn new(queues: Mailbox<QueueMachine>, shared: Arc<Shared>) -> Self {
        let using = QueueName::new(DEFAULT_TUBE).expect("it is one");
        let watching: Arc<[QueueName]> = [using.clone()].into();
        shared.counters.connected();
        Self {
            worker: Worker(queues.ticket().0),
            decoder: Decoder::new(shared.job_bytes_max),
            presence: queues.begin_watch(Watch::Presence {
                using: using.clone(),
                watching: Arc::clone(&watching),
            }),
            queues,
            shared,
            taken: VecDeque::new(),
            answers: VecDeque::new(),
            is_moved: false,
            using,
            watching,
            reserving: None,
            is_producer: false,
            is_worker: false,
            may_hold: false,
        }
    }

    /// The next commands' items for the actor, up to one that only concerns the connection.
    fn run(&self) -> Vec<Item<QueueMachine>> {
        let mut items = Vec::new();
        for (asked, _) in &self.taken {
            let before = items.len();
            if before > 0 && before + asked.items() > ITEMS_MAX {
                break;
            }
            self.ask(asked, &mut items);
            // A pause is asked for once it is known whether its tube is there: what stands behind it comes later.
            if items.len() == before || matches!(asked, Asked::Pause { .. }) {
                break;
            }
        }
        items
    }

    /// Puts what a command asks of the actor behind `items`; nothing, if it only concerns the connection.
    fn ask(&self, asked: &Asked, items: &mut Vec<Item<QueueMachine>>) {
        let by = Right::Worker(self.worker);
        match asked {
            Asked::ReserveBatch(count) => {
                let pops = (0..*count).map(|_| Item::Message(Message::Pop(self.pop(false))));
                items.extend(pops);
            }
            Asked::DeleteBatch(ids) => {
                let deletes = ids.iter().map(|id| Message::Delete { id: *id, by });
                items.extend(deletes.map(Item::Message));
            }
            asked => items.extend(self.item(asked, by)),
        }
    }

    fn item(&self, asked: &Asked, by: Right) -> Option<Item<QueueMachine>> {
        let message = match asked {
            Asked::Put(put) => Message::Put(Put {
                queue: self.using.clone(),
                priority: put.priority,
                delay_ms: ms(put.delay),
                ttr_ms: ms(put.ttr),
                dedup: put.dedup,
                body: put.body.clone(),
            }),
            Asked::Spoiled => Message::Spoil,
            Asked::Reserve { patience } => Message::Pop(self.pop(*patience != Some(0))),
            Asked::ReserveJob(id) => Message::PopJob {
                id: *id,
                by: Claimant::Worker(self.worker),
            },
            Asked::Delete(id) => Message::Delete { id: *id, by },
            Asked::Release {
                id,
                priority,
                delay,
            } => Message::Release {
                id: *id,
                by,
                priority: Some(*priority),
                delay_ms: ms(*delay),
            },
            Asked::Bury { id, priority } => Message::Bury {
                id: *id,
                by,
                priority: Some(*priority),
            },
            Asked::Touch(id) => Message::Touch { id: *id, by },
            Asked::Kick(count) => Message::Kick {
                queue: self.using.clone(),
                count: *count,
            },
            Asked::KickJob(id) => Message::KickJob { id: *id },
            Asked::PauseFound { tube, seconds } => Message::Pause {
                queue: tube.clone(),
                ms: ms(*seconds),
            },
            Asked::Flush(tube) => Message::Flush {
                queue: tube.clone(),
            },
            asked => return self.query(asked).map(Item::Query),
        };
        Some(Item::Message(message))
    }

    fn query(&self, asked: &Asked) -> Option<Query> {
        let next = |phase| Query::PeekNext {
            queue: self.using.clone(),
            phase,
        };
        Some(match asked {
            Asked::Peek(id) => Query::Peek { id: *id },
            Asked::PeekReady => next(Phase::Ready),
            Asked::PeekDelayed => next(Phase::Delayed),
            Asked::PeekBuried => next(Phase::Buried),
            Asked::StatsJob(id) => Query::Job { id: *id },
            Asked::StatsTube(tube) | Asked::Pause { tube, .. } => Query::Queue {
                queue: tube.clone(),
            },
            Asked::Stats => Query::Totals,
            Asked::ListTubes => Query::Queues { most: u32::MAX },
            _ => return None,
        })
    }

    fn pop(&self, waits: bool) -> Pop {
        Pop {
            queues: Arc::clone(&self.watching),
            by: Claimant::Worker(self.worker),
            waits,
            ticket: None,
        }
    }

    /// Carries out a command that only concerns the connection.
    fn settle(&mut self, asked: &Asked, output: &mut Vec<u8>) -> Then {
        match asked {
            Asked::Use(tube) => {
                self.using = tube.clone();
                self.is_moved = true;
                self.tell(&Reply::Using(tube.as_bytes()), output);
            }
            Asked::Watch(tube) => {
                if !self.watching.contains(tube) {
                    if self.watching.len() >= WATCHED_MAX {
                        self.tell(&Reply::OutOfMemory, output);
                        return Then::Continue;
                    }
                    self.watching = self.watching.iter().chain([tube]).cloned().collect();
                    self.is_moved = true;
                }
                self.tell(&Reply::Watching(self.watching.len() as u64), output);
            }
            Asked::Ignore(tube) => {
                let rest: Arc<[QueueName]> = self
                    .watching
                    .iter()
                    .filter(|it| *it != tube)
                    .cloned()
                    .collect();
                if rest.is_empty() {
                    self.tell(&Reply::NotIgnored, output);
                } else {
                    if rest.len() < self.watching.len() {
                        self.watching = rest;
                        self.is_moved = true;
                    }
                    self.tell(&Reply::Watching(self.watching.len() as u64), output);
                }
            }
            Asked::ListTubeUsed => self.tell(&Reply::Using(self.using.as_bytes()), output),
            Asked::ListTubesWatched => {
                let names = self.watching.iter().map(QueueName::as_bytes).collect();
                self.tell(&Reply::Tubes(names), output);
            }
            Asked::Mode(mode) => self.tell(&Reply::UsingMode(*mode), output),
            Asked::Refused(refusal) => self.tell(&(*refusal).into(), output),
            Asked::Quit => return Then::Close,
            other => unreachable!("{other:?} is for the actor"),
        }
        Then::Continue
    }

    /// Says anew which queues this client has to do with, if they are others. The old saying ends behind the new one, so
    /// that no queue goes away in between.
    fn attend(&mut self) {
        if !std::mem::take(&mut self.is_moved) {
            return;
        }
        self.presence = self.queues.begin_watch(Watch::Presence {
            using: self.using.clone(),
            watching: Arc::clone(&self.watching),
        });
    }

    /// The next command is carried out: what the statistics say of that.
    fn next(&mut self) -> Option<Asked> {
        let (asked, counted) = self.taken.pop_front()?;
        let counters = &self.shared.counters;
        if let Some(counted) = counted {
            counters.command(counted);
        }
        if asked.is_put() && !std::mem::replace(&mut self.is_producer, true) {
            counters.producers(1);
        }
        if asked.is_reserve() {
            self.is_a_worker();
        }
        Some(asked)
    }

    fn is_a_worker(&mut self) {
        if !std::mem::replace(&mut self.is_worker, true) {
            self.shared.counters.workers(1);
        }
    }

    /// Puts the reply to the next command behind `output`; false if the client must wait for it.
    fn reply_next(&mut self, output: &mut Vec<u8>) -> bool {
        let Some(asked) = self.next() else {
            unreachable!("an answer is to something that was asked");
        };
        match &asked {
            Asked::ReserveBatch(_) | Asked::DeleteBatch(_) => {
                let answers: Vec<_> = self.answers.drain(..asked.items()).collect();
                self.reply_to_batch(&asked, &answers, output);
                true
            }
            asked => {
                let answer = self.answers.pop_front();
                self.reply(asked, answer.expect("there is one"), output)
            }
        }
    }

    fn reply_to_batch(&self, asked: &Asked, answers: &[Answer<Told>], output: &mut Vec<u8>) {
        let claims = answers.iter().filter_map(|answer| match answer {
            Ok(Told::Claim(claim)) => Some(job(claim)),
            _ => None,
        });
        let done = answers.iter().filter(|answer| **answer == Ok(Told::Done));
        let reply = match asked {
            Asked::ReserveBatch(_) => Reply::ReservedBatch(claims.collect()),
            _ => {
                let deleted = done.count() as u64;
                let absent = answers.len() as u64 - deleted;
                Reply::DeletedBatch { deleted, absent }
            }
        };
        self.tell(&reply, output);
    }

    /// Puts the reply to a command behind `output`; false if the client must wait for it.
    fn reply(&mut self, asked: &Asked, answer: Answer<Told>, output: &mut Vec<u8>) -> bool {
        let Ok(told) = answer else {
            self.tell(&Reply::InternalError, output);
            return true;
        };
        let now = self.shared.clock.now();
        match (asked, told) {
            (Asked::Reserve { .. } | Asked::ReserveJob(_), Told::Claim(claim)) => {
                self.is_a_worker();
                self.tell(&Reply::Reserved(job(&claim)), output);
            }
            (Asked::Reserve { patience }, Told::Nothing { soonest, .. }) => {
                return self.reserve(now, *patience, soonest, output);
            }
            (_, Told::Found(id, body)) => {
                let body = body.as_bytes();
                self.tell(&Reply::Found(Job { id, body }), output);
            }
            (Asked::Stats, Told::Totals(totals)) => {
                let reply = self.shared.server_stats(&totals, now);
                self.tell(&reply, output);
            }
            (_, Told::Job(job)) => self.tell(&Reply::JobStats(show::job(&job, now)), output),
            // That it is there is no durable state, so no message may rest on it.
            (Asked::Pause { tube, seconds }, Told::Queue(_)) => {
                let found = Asked::PauseFound {
                    tube: tube.clone(),
                    seconds: *seconds,
                };
                self.taken.push_front((found, None));
            }
            (_, Told::Queue(queue)) => {
                self.tell(&Reply::TubeStats(show::tube(&queue, now)), output);
            }
            (_, Told::Queues(names)) => {
                let tubes = names.iter().filter(|name| name.tenant().is_empty());
                self.tell(
                    &Reply::Tubes(tubes.map(QueueName::as_bytes).collect()),
                    output,
                );
            }
            (asked, told) => self.tell(&plain(asked, &told), output),
        }
        true
    }

    /// There is nothing to reserve: says so, or begins to wait, which is false.
    fn reserve(
        &mut self,
        now: Timestamp,
        patience: Option<u32>,
        soonest: Option<Timestamp>,
        output: &mut Vec<u8>,
    ) -> bool {
        // The first of its own reservations to end: the client should see to that instead.
        let until_margin = soonest.map(|until| until.since(now).saturating_sub(MARGIN));
        if until_margin == Some(Duration::ZERO) {
            self.tell(&Reply::DeadlineSoon, output);
            return true;
        }
        if patience == Some(0) {
            self.tell(&Reply::TimedOut, output);
            return true;
        }
        let margin = until_margin.map(|span| (span, Reply::DeadlineSoon));
        let patience = patience.map(|seconds| {
            let span = Duration::from_secs(seconds.into());
            (span, Reply::TimedOut)
        });
        self.reserving = Some(Reserving {
            waiting: self.queues.begin_watch(Watch::Job(self.pop(true))),
            patience: margin
                .into_iter()
                .chain(patience)
                .min_by_key(|(span, _)| *span),
        });
        false
    }

    fn tell(&self, reply: &Reply<'_>, output: &mut Vec<u8>) {
        tracing::debug!(target: DEBUG_TARGET, "{} <- {reply}", self.worker.0);
        encode(reply, output);
    }

    /// What came for a `reserve` that waited.
    fn came(&self, answer: Option<Answer<Told>>, instead: &Reply<'_>, output: &mut Vec<u8>) {
        match answer {
            Some(Ok(Told::Claim(claim))) => self.tell(&Reply::Reserved(job(&claim)), output),
            Some(_) => self.tell(&Reply::InternalError, output),
            None => self.tell(instead, output),
        }
    }
}

impl Session for BeanstalkSession {
    fn take(&mut self, input: &[u8]) -> usize {
        let mut taken = 0;
        while self.taken.len() < BATCH_MAX {
            let (bytes, command) = self.decoder.take(input.get(taken..).unwrap_or(&[]));
            taken += bytes;
            let Some(command) = command else { break };
            tracing::debug!(target: DEBUG_TARGET, "{} -> {command}", self.worker.0);
            let counted = command.counted();
            let asked = Asked::from(command);
            self.may_hold |= asked.may_claim();
            self.taken.push_back((asked, counted));
        }
        taken
    }

    async fn perform(&mut self, output: &mut Vec<u8>) -> Then {
        loop {
            if output.len() > OUTPUT_BYTES {
                return Then::Again;
            }
            if !self.answers.is_empty() {
                if !self.reply_next(output) {
                    return Then::Wait;
                }
                continue;
            }
            let run = self.run();
            if !run.is_empty() {
                self.attend();
                let Ok(answers) = self.queues.call(run).await else {
                    return Then::Close;
                };
                self.answers = answers.into();
                continue;
            }
            let Some(asked) = self.next() else {
                self.attend();
                return Then::Continue;
            };
            if self.settle(&asked, output) == Then::Close {
                return Then::Close;
            }
        }
    }

    async fn wait(&mut self, output: &mut Vec<u8>) {
        let Some(Reserving { waiting, patience }) = &mut self.reserving else {
            return;
        };
        let answer = match patience {
            None => Some(waiting.answer().await),
            Some((span, _)) => within(*span, waiting.answer()).await,
        };
        match answer {
            Some(answer) => {
                self.reserving = None;
                self.came(answer.ok(), &Reply::InternalError, output);
            }
            None => self.give_up(output).await,
        }
    }

    async fn give_up(&mut self, output: &mut Vec<u8>) {
        if let Some(Reserving { waiting, patience }) = self.reserving.take() {
            let instead = patience.map_or(Reply::TimedOut, |(_, reply)| reply);
            let answer = waiting.withdraw().await;
            self.came(answer, &instead, output);
        }
    }
}

impl Drop for BeanstalkSession {
    fn drop(&mut self) {
        let counters = &self.shared.counters;
        counters.disconnected();
        if self.is_producer {
            counters.producers(-1);
        }
        if self.is_worker {
            counters.workers(-1);
        }
        if self.may_hold {
            // Behind whatever is on its way: a job that is claimed meanwhile is given back, too.
            self.reserving = None;
            let worker = self.worker;
            self.queues
                .cast(vec![Item::Message(Message::Depart { worker })]);
        }
    }
}

fn job(claim: &Claim) -> Job<'_> {
    let (id, body) = (claim.id, claim.body.as_bytes());
    Job { id, body }
}

fn ms(seconds: u32) -> u64 {
    u64::from(seconds) * 1000
}

/// Replies that need no more than a word.
fn plain(asked: &Asked, told: &Told) -> Reply<'static> {
    match (asked, told) {
        (Asked::Put(_), Told::Put { id, duplicate }) => match duplicate {
            None => Reply::Inserted(*id),
            Some(phase) => Reply::InsertedBefore {
                id: *id,
                state: show::state(*phase),
                priority: None,
            },
        },
        (Asked::Spoiled, _) => Reply::ExpectedCrlf,
        (_, Told::Refused(Refused::Draining | Refused::ReadOnly)) => Reply::Draining,
        (_, Told::Refused(Refused::TooBig)) => Reply::JobTooBig,
        (_, Told::Refused(Refused::Full | Refused::QueuesFull | Refused::DiskFull)) => {
            Reply::OutOfMemory
        }
        (Asked::Delete(_), Told::Done) => Reply::Deleted,
        (Asked::Release { .. }, Told::Done) => Reply::Released,
        (Asked::Bury { .. }, Told::Done) | (Asked::Release { .. }, Told::Abandoned) => {
            Reply::Buried
        }
        (Asked::Touch(_), Told::Done) => Reply::Touched,
        (Asked::KickJob(_), Told::Done) => Reply::JobKicked,
        (Asked::PauseFound { .. }, Told::Done) => Reply::Paused,
        (Asked::Kick(_), Told::Count(count)) => Reply::Kicked((*count).into()),
        (Asked::Flush(_), Told::Count(count)) => Reply::Flushed((*count).into()),
        (_, Told::Absent | Told::Refused(Refused::StaleToken)) => Reply::NotFound,
        (asked, told) => unreachable!("{asked:?} is not answered with {told:?}"),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long a client waits is its own affair: no state depends on it"
)]
async fn within<T>(span: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(span, future).await.ok()
}
