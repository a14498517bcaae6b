//! A beanstalkd client: its commands become messages for the QueueActor, and the replies are returned in order.
//!
//! Commands that only concern the connection (`use`, `watch`, `ignore`, …) are handled here. The others are sent to the actor in runs:
//! consecutive commands that have arrived are sent together. A `reserve` that finds no job ends its run: later commands are processed only
//! after it is answered. The memory held for a client that does not read is bounded: at most `BATCH_MAX` commands, their answers, and
//! `OUTPUT_BYTES` of output plus one reply, or only one reply if the clients of the listener leave too much unread.

use crate::beanstalk::DEBUG_TARGET;
use crate::beanstalk::client::Client;
use crate::beanstalk::codec::Decoder;
use crate::beanstalk::command::Counted;
use crate::beanstalk::reply::{Job, Reply, encode};
use crate::beanstalk::request::Request;
use crate::beanstalk::shared::Shared;
use crate::beanstalk::show;
use crate::bounds::{Turns, Unread};
use crate::session::{NextStep, Session};
use sexton::actors::queue::{
    Claim, Message, Query, QueueMachine, QueueName, Refused, Reply as ActorReply, Watch, Worker,
};
use sexton::clock::Timestamp;
use sexton::ids::Slot;
use sexton::protocols::bounds::bytes_to_name;
use sexton::protocols::listener;
use sexton::spine::budget::Reservation;
use sexton::spine::delivery::{Answer, Item};
use sexton::spine::runtime::{Mailbox, Stopped, Waiting};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// The maximum number of decoded commands that wait to be carried out.
const BATCH_MAX: usize = 1024;

/// The maximum number of items in a delivery to the actor, unless a single command needs more.
const ITEMS_MAX: usize = 1024;

/// The size of the output, in bytes, beyond which it is written before another reply is appended. A reply with more body bytes than this
/// counts as large.
const OUTPUT_BYTES: usize = 256 * 1024;

/// The number of body bytes beyond which a client's next replies are written down only when it is its turn.
const LONG_BYTES: usize = 16 * 1024;

/// The maximum number of tubes that a client may watch.
const WATCHED_MAX: usize = 1024;

/// The time that a client has from a job's command line to the end of its body, in seconds. It has one more second for every
/// `BODY_BYTES_A_SECOND` announced bytes.
const BODY_SECONDS: u64 = 60;

/// The number of announced bytes for which the client gets one more second to send a job's body.
const BODY_BYTES_A_SECOND: u64 = 256 * 1024;

/// A `reserve` that finds no job is answered with `DEADLINE_SOON` once one of the client's reservations has at most this much time left.
const MARGIN: Duration = Duration::from_secs(1);

/// A client's protocol state.
pub(crate) struct BeanstalkSession {
    client: Client,
    queues: Mailbox<QueueMachine>,
    shared: Arc<Shared>,
    decoder: Decoder,
    /// Commands to be carried out, each with the command that it counts as in the statistics.
    taken: VecDeque<(Request, Option<Counted>)>,
    /// Whether the `put` whose body is arriving has been counted.
    is_put_counted: bool,
    /// Answers to the first commands of `taken`, still to be written.
    answers: VecDeque<Answer<ActorReply>>,
    /// Registers the queues that this client uses and watches.
    presence: Waiting<QueueMachine>,
    /// Whether `presence` is out of date.
    is_presence_stale: bool,
    /// The `reserve` that waits for a job.
    reserving: Option<Reserving>,
    /// Held while a large answer is being sent.
    large: Option<OwnedSemaphorePermit>,
    /// Accounts for the memory of output that is not written.
    unread: Unread,
    /// Accounts for the memory of a job that has not arrived completely.
    unfinished: Reservation,
    /// The deadline for the job that is arriving; `None` if none is.
    patience: Option<Timestamp>,
    /// Accounts for the memory of the tubes that the client watches.
    named: Reservation,
    role: Role,
}

/// What the client has done so far.
#[derive(Default)]
struct Role {
    /// Whether the client has used `put`.
    is_producer: bool,
    /// Whether the client has used `reserve`, or has reserved a job with `reserve-job`.
    is_worker: bool,
    /// Whether the client may hold claims that are given back when it disconnects.
    may_hold: bool,
}

/// A `reserve` that found no job and waits.
struct Reserving {
    waiting: Waiting<QueueMachine>,
    /// The maximum wait, and the reply if it passes without a job; `None` if the client waits indefinitely.
    patience: Option<(Duration, Reply<'static>)>,
}

impl BeanstalkSession {
    pub(crate) fn new(queues: &Mailbox<QueueMachine>, shared: Arc<Shared>) -> Self {
        shared.counters.connected();
        // The protocol has neither tokens nor users: whoever can connect is trusted with nothing that a process depends on.
        let queues = queues.for_strangers();
        let client = Client::new(Worker(queues.ticket().0));
        Self {
            decoder: Decoder::new(shared.job_bytes_max),
            unfinished: Reservation::new(&shared.unfinished),
            named: Reservation::new(&shared.named),
            unread: Unread::new(&shared.unread),
            presence: queues.begin_watch(client.presence()),
            client,
            queues,
            shared,
            taken: VecDeque::new(),
            is_put_counted: false,
            answers: VecDeque::new(),
            is_presence_stale: false,
            reserving: None,
            large: None,
            patience: None,
            role: Role::default(),
        }
    }

    /// Returns the items to send to the actor for the next commands: at most `ITEMS_MAX`, unless the first command needs more. Stops before
    /// a command that the session handles itself, and after a `pause-tube`.
    fn run(&self) -> Vec<Item<QueueMachine>> {
        let mut items = Vec::new();
        for (asked, _) in &self.taken {
            let before = items.len();
            if before > 0 && before + asked.items() > ITEMS_MAX {
                break;
            }
            self.client.push_items(asked, &mut items);
            // The pause itself is sent only once a query has found the tube, and later commands must not overtake it.
            if items.len() == before || matches!(asked, Request::Pause { .. }) {
                break;
            }
        }
        items
    }

    /// Carries out a command that only concerns the connection. Returns whether the connection continues or is to be closed.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "requests for the actor are matched in `client.rs`"
    )]
    fn settle(&mut self, asked: &Request, output: &mut Vec<u8>) -> NextStep {
        match asked {
            Request::Use(tube) => {
                self.client.using = tube.clone();
                self.is_presence_stale = true;
                self.send(&Reply::Using(tube.as_bytes()), output);
            }
            Request::Watch(tube, weight) => {
                if !self.client.watches(tube) && !self.has_room_to_watch(tube) {
                    self.send(&Reply::OutOfMemory, output);
                    return NextStep::Continue;
                }
                self.is_presence_stale |= self.client.watch(tube, *weight);
                self.send(&Reply::Watching(self.client.watching().len() as u64), output);
            }
            Request::Ignore(tube) if self.client.watching().iter().all(|it| it == tube) => {
                self.send(&Reply::NotIgnored, output);
            }
            Request::Ignore(tube) => {
                let ignored = self.client.ignore(tube);
                self.is_presence_stale |= ignored;
                if ignored {
                    self.named.shrink(bytes_to_name(tube));
                }
                self.send(&Reply::Watching(self.client.watching().len() as u64), output);
            }
            Request::ListTubeUsed => self.send(&Reply::Using(self.client.using.as_bytes()), output),
            Request::ListTubesWatched => {
                let names = self.client.watching().iter().map(QueueName::as_bytes);
                self.send(&Reply::Tubes(names.collect()), output);
            }
            Request::Mode(mode) => {
                self.client.mode = *mode;
                self.send(&Reply::UsingMode(*mode), output);
            }
            Request::Refused(refusal) => self.send(&(*refusal).into(), output),
            Request::PutBegun { .. } => {}
            Request::Quit => return NextStep::Close,
            Request::Http => {
                let so_far = self.shared.counters.http();
                listener::refused(
                    &"a connection",
                    so_far,
                    "it carries an HTTP request or a TLS handshake",
                );
                return NextStep::Close;
            }
            other => unreachable!("{other:?} must go to the actor"),
        }
        NextStep::Continue
    }

    /// Returns whether the client may watch one more tube, and if so, accounts for the tube's memory.
    fn has_room_to_watch(&mut self, tube: &QueueName) -> bool {
        self.client.watching().len() < WATCHED_MAX && self.named.grow(bytes_to_name(tube))
    }

    /// Accounts for the memory of the body that is arriving, and sets its deadline if it has none yet. If the memory budget is exhausted,
    /// the body is discarded.
    fn hold_unfinished(&mut self) {
        if !self.unfinished.set(self.decoder.held_bytes()) {
            self.decoder.discard_body();
            self.unfinished.release();
        }
        let announced = self.decoder.announced_bytes();
        self.patience = announced.map(|bytes| {
            let seconds = BODY_SECONDS + u64::from(bytes) / BODY_BYTES_A_SECOND;
            let by = || self.shared.clock.now().plus_seconds(seconds);
            self.patience.unwrap_or_else(by)
        });
    }

    /// Registers this client's queues again if they have changed. The old registration ends after the new one begins, so
    /// that no queue disappears in between.
    fn renew_presence(&mut self) {
        if !std::mem::take(&mut self.is_presence_stale) {
            return;
        }
        self.presence = self.queues.begin_watch(self.client.presence());
    }

    /// Takes the next command from the queue, and updates the statistics. Returns `None` if the queue is empty.
    fn next(&mut self) -> Option<Request> {
        let (asked, counted) = self.taken.pop_front()?;
        let counters = &self.shared.counters;
        if let Some(counted) = counted {
            counters.command(counted);
        }
        if asked.is_put() && !std::mem::replace(&mut self.role.is_producer, true) {
            counters.producers(1);
        }
        if asked.is_reserve() {
            self.note_worker();
        }
        Some(asked)
    }

    /// If the line of a `put` has arrived, but not yet its body, queues a request that counts the `put` when its turn comes, as beanstalkd
    /// does.
    fn count_put(&mut self) {
        if let Some(fits) = self.decoder.put_under_way()
            && !std::mem::replace(&mut self.is_put_counted, true)
        {
            let begun = (Request::PutBegun { fits }, Some(Counted::Put));
            self.taken.push_back(begun);
        }
    }

    fn note_worker(&mut self) {
        if !std::mem::replace(&mut self.role.is_worker, true) {
            self.shared.counters.workers(1);
        }
    }

    /// Appends the reply to the next command to `output`. Returns `false` if the command is a `reserve` that must wait for a job.
    fn reply_next(&mut self, output: &mut Vec<u8>) -> bool {
        let Some(asked) = self.next() else {
            unreachable!("every answer belongs to a request");
        };
        if asked.is_batch() {
            let answers: Vec<_> = self.answers.drain(..asked.items()).collect();
            self.reply_to_batch(&asked, &answers, output);
            return true;
        }
        let answer = self.answers.pop_front();
        self.reply(&asked, answer.expect("each request should have an answer"), output)
    }

    fn reply_to_batch(
        &self,
        asked: &Request,
        answers: &[Answer<ActorReply>],
        output: &mut Vec<u8>,
    ) {
        if asked.is_reserve() {
            let claims = answers.iter().filter_map(|answer| {
                let Ok(ActorReply::Claim(claim)) = answer else {
                    return None;
                };
                Some(job(claim))
            });
            let claims: Vec<_> = claims.collect();
            let drains = |answer| matches!(answer, &Ok(ActorReply::Refused(Refused::Draining)));
            let reply = if claims.is_empty() && answers.iter().any(drains) {
                Reply::Draining
            } else {
                Reply::ReservedBatch(claims)
            };
            self.send(&reply, output);
        } else {
            let done = answers.iter().filter(|answer| **answer == Ok(ActorReply::Done));
            let deleted = done.count() as u64;
            let absent = answers.len() as u64 - deleted;
            self.send(&Reply::DeletedBatch { deleted, absent }, output);
        }
    }

    /// Handles the actor's answer to a command: appends the reply to `output` or, if the answer shows that the tube of a `pause-tube`
    /// exists, queues the pause. Returns `false` if the command is a `reserve` that must wait for a job.
    fn reply(&mut self, asked: &Request, answer: Answer<ActorReply>, output: &mut Vec<u8>) -> bool {
        let Ok(told) = answer else {
            self.send(&Reply::InternalError, output);
            return true;
        };
        let now = || self.shared.clock.now();
        match (asked, told) {
            (Request::Reserve { .. } | Request::ReserveJob(_), ActorReply::Claim(claim)) => {
                self.note_worker();
                self.send(&Reply::Reserved(job(&claim)), output);
            }
            (Request::Reserve { patience }, ActorReply::Nothing { soonest, .. }) => {
                return self.reserve(*patience, soonest, output);
            }
            (_, ActorReply::Found(id, body)) => {
                let body = body.as_bytes();
                self.send(&Reply::Found(Job { id, body }), output);
            }
            (Request::Stats, ActorReply::Totals(totals)) => {
                let reply = self.shared.server_stats(&totals, now());
                self.send(&reply, output);
            }
            (_, ActorReply::Job(job)) => {
                self.send(&Reply::JobStats(show::job(&job, now())), output);
            }
            // Whether a tube exists is not durable state, so no message may depend on it: a query precedes the message.
            (Request::Pause { tube, seconds }, ActorReply::Queue(_)) => {
                let found = Request::PauseFound { tube: tube.clone(), seconds: *seconds };
                self.taken.push_front((found, None));
            }
            (_, ActorReply::Queue(queue)) => {
                self.send(&Reply::TubeStats(show::tube(&queue, now())), output);
            }
            (asked, told) => self.send(&show::plain(asked, &told), output),
        }
        true
    }

    /// Handles a `reserve` that found no job: replies immediately, or begins to wait and returns `false`.
    fn reserve(
        &mut self,
        patience: Option<u32>,
        soonest: Option<Timestamp>,
        output: &mut Vec<u8>,
    ) -> bool {
        // A client whose own reservation is about to expire should handle that job first.
        let until_margin = soonest.map(|until| {
            let left = until.since(self.shared.clock.now());
            left.saturating_sub(MARGIN)
        });
        if until_margin == Some(Duration::ZERO) {
            self.send(&Reply::DeadlineSoon, output);
            return true;
        }
        if patience == Some(0) {
            self.send(&Reply::TimedOut, output);
            return true;
        }
        let margin = until_margin.map(|span| (span, Reply::DeadlineSoon));
        let patience = patience.map(|seconds| {
            let span = Duration::from_secs(seconds.into());
            (span, Reply::TimedOut)
        });
        self.reserving = Some(Reserving {
            waiting: self.queues.begin_watch(Watch::Job(self.client.pop(true))),
            patience: margin.into_iter().chain(patience).min_by_key(|(span, _)| *span),
        });
        false
    }

    /// Takes a permit for a large answer, to be held until the output is written.
    async fn hold_large(&mut self) {
        if self.large.is_none() {
            self.large = Some(self.shared.large.admit().await);
        }
    }

    /// Replies with the list of all tubes of the default tenant. Several queries each return a part of the list; a tube that exists
    /// throughout is listed once.
    async fn list_tubes(&mut self, output: &mut Vec<u8>) -> Result<(), Stopped> {
        self.hold_large().await;
        let mut tubes: Vec<QueueName> = Vec::new();
        let mut next = Some(Slot(0));
        while let Some(from) = next {
            let asked = vec![Item::Query(Query::Queues { from })];
            let mut answers = self.queues.scan(asked).await?;
            let Some(Ok(ActorReply::Queues { names, next: after })) = answers.pop() else {
                self.send(&Reply::InternalError, output);
                return Ok(());
            };
            tubes.extend(names.into_iter().filter(|name| name.tenant().is_empty()));
            next = after;
        }
        let names = tubes.iter().map(QueueName::as_bytes).collect();
        self.send(&Reply::Tubes(names), output);
        Ok(())
    }

    /// Returns the number of body bytes in the next reply.
    fn next_bytes(&self) -> usize {
        let items = self.taken.front().map_or(1, |(asked, _)| asked.items());
        let answers = self.answers.iter().take(items);
        answers.map(body_bytes).sum()
    }

    /// Returns whether writing down the answers that have arrived takes more than a little time.
    fn is_long(&self) -> bool {
        let mut bytes = 0;
        self.answers.iter().any(|answer| {
            bytes += body_bytes(answer);
            bytes > LONG_BYTES
        })
    }

    fn send(&self, reply: &Reply<'_>, output: &mut Vec<u8>) {
        tracing::debug!(target: DEBUG_TARGET, "{} <- {reply}", self.client.worker.0);
        encode(reply, output);
    }

    /// Withdraws the `reserve` that waits for a job, if there is one. The client receives `instead`, unless a job has been claimed for it
    /// meanwhile.
    async fn withdraw(&mut self, instead: &Reply<'_>, output: &mut Vec<u8>) {
        if let Some(Reserving { mut waiting, .. }) = self.reserving.take() {
            let answer = waiting.withdraw().await;
            self.finish_wait(answer, instead, output);
        }
    }

    /// Handles the result of a `reserve` that waited: the actor's answer, or `None` if the request was withdrawn without one. In the latter
    /// case, the reply is `instead`.
    fn finish_wait(
        &mut self,
        answer: Option<Answer<ActorReply>>,
        instead: &Reply<'_>,
        output: &mut Vec<u8>,
    ) {
        match answer {
            // The job may be large, so the reply goes through the same path as one without a wait.
            Some(Ok(ActorReply::Claim(claim))) => {
                self.taken.push_front((Request::ReserveJob(claim.id), None));
                self.answers.push_front(Ok(ActorReply::Claim(claim)));
            }
            Some(_) => self.send(&Reply::InternalError, output),
            None => self.send(instead, output),
        }
    }
}

impl Session for BeanstalkSession {
    fn take(&mut self, input: &[u8]) -> usize {
        let mut taken = 0;
        while self.taken.len() < BATCH_MAX {
            let (bytes, command) = self.decoder.take(input.get(taken..).unwrap_or(&[]));
            taken += bytes;
            let Some(command) = command else {
                self.count_put();
                break;
            };
            self.patience = None;
            tracing::debug!(target: DEBUG_TARGET, "{} -> {command}", self.client.worker.0);
            let is_counted = std::mem::take(&mut self.is_put_counted);
            let counted = command.counted().filter(|_| !is_counted);
            let asked = Request::from(command);
            self.role.may_hold |= asked.may_claim();
            self.taken.push_back((asked, counted));
        }
        self.hold_unfinished();
        taken
    }

    fn turns(&self) -> &Turns {
        &self.shared.turns
    }

    fn timeout(&self) -> Option<Duration> {
        let until = self.patience?;
        Some(until.since(self.shared.clock.now()))
    }

    async fn perform(&mut self, output: &mut Vec<u8>) -> NextStep {
        let mut lists = false;
        loop {
            if output.len() > OUTPUT_BYTES || !self.unread.admits_more(output) {
                return NextStep::Again;
            }
            if !self.answers.is_empty() {
                if self.next_bytes() > OUTPUT_BYTES {
                    self.hold_large().await;
                }
                if !self.reply_next(output) {
                    return NextStep::Wait;
                }
                continue;
            }
            let run = self.run();
            if !run.is_empty() {
                self.renew_presence();
                let Ok(answers) = self.queues.call(run).await else {
                    return NextStep::Close;
                };
                self.answers = answers.into();
                if self.is_long() {
                    self.shared.turns.pass().await;
                }
                continue;
            }
            let Some(asked) = self.next() else {
                self.renew_presence();
                return NextStep::Continue;
            };
            if matches!(asked, Request::ListTubes) {
                self.renew_presence();
                // Return after each list, so that its output is written before a pipelined request builds the next one.
                let listed = self.list_tubes(output).await;
                return listed.map_or(NextStep::Close, |()| NextStep::Again);
            }
            // Other than what else is settled here, this takes time.
            if matches!(asked, Request::ListTubesWatched) && !std::mem::replace(&mut lists, true) {
                self.shared.turns.pass().await;
            }
            if self.settle(&asked, output) == NextStep::Close {
                return NextStep::Close;
            }
        }
    }

    fn answered(&mut self) {
        self.large = None;
        self.unread.written();
    }

    async fn wait(&mut self, output: &mut Vec<u8>) {
        let Some(Reserving { waiting, patience }) = &mut self.reserving else {
            return;
        };
        let instead = tokio::select! {
            biased;
            answer = waiting.answer() => {
                self.reserving = None;
                return self.finish_wait(answer.ok(), &Reply::InternalError, output);
            }
            instead = over(patience.as_ref()) => instead,
            () = self.shared.until_draining() => Reply::Draining,
        };
        self.withdraw(&instead, output).await;
    }

    async fn give_up(&mut self, output: &mut Vec<u8>) {
        self.withdraw(&Reply::TimedOut, output).await;
    }
}

impl Drop for BeanstalkSession {
    fn drop(&mut self) {
        let counters = &self.shared.counters;
        counters.disconnected();
        if self.role.is_producer {
            counters.producers(-1);
        }
        if self.role.is_worker {
            counters.workers(-1);
        }
        if self.role.may_hold {
            // The message is ordered after everything in flight, so a job claimed meanwhile is given back, too.
            self.reserving = None;
            let worker = self.client.worker;
            self.queues.cast(vec![Item::Message(Message::Depart { worker })]);
        }
    }
}

fn body_bytes(answer: &Answer<ActorReply>) -> usize {
    match answer {
        Ok(ActorReply::Claim(claim)) => claim.body.as_bytes().len(),
        Ok(ActorReply::Found(_, body)) => body.as_bytes().len(),
        _ => 0,
    }
}

fn job(claim: &Claim) -> Job<'_> {
    let (id, body) = (claim.id, claim.body.as_bytes());
    Job { id, body }
}

/// Resolves to the reply to send when the maximum wait has passed; never resolves if there is no maximum. No durable state depends on this
/// time, so tokio measures it.
async fn over(patience: Option<&(Duration, Reply<'static>)>) -> Reply<'static> {
    let never = std::future::pending();
    match patience {
        Some((span, instead)) => {
            tokio::time::timeout(*span, never).await.unwrap_or_else(|_| instead.clone())
        }
        None => never.await,
    }
}
