//! Computes rates and histories from successive answers.
//!
//! A rate is the difference of two counts, divided by the difference of the coordinator's uptimes, so a late answer does not distort
//! it. No rate spans a restart or a time without answers: the charts show a gap.

use crate::figure::Figure;
use crate::text::{self, number};
use crate::top::family::Family;
use crate::top::work::Work;
use serde_json::{Value, json};
use sexton::clock::Timestamp;
use std::collections::VecDeque;

/// The maximum number of samples kept: ten minutes at one per second.
const POINTS_MAX: usize = 600;

/// Commands of the LockServer protocol: their names in the status, and on the screen.
pub(crate) const COMMANDS: [(&str, &str); 8] = [
    ("requests", "request"),
    ("renewals", "renew"),
    ("releases", "release"),
    ("release_alls", "release-all"),
    ("owner_lookups", "owner"),
    ("contender_lookups", "place"),
    ("dumps", "list"),
    ("statistics", "statistics"),
];

/// A rate, in thousandths per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rate(pub(crate) u64);

/// The rates between two answers of the same coordinator; `None` for those whose counts are not in both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rates {
    /// The time between the two answers, in milliseconds.
    pub(crate) over_ms: u64,
    /// Commands of the LockServer protocol, in the order of [`COMMANDS`].
    pub(crate) commands: [Option<Rate>; COMMANDS.len()],
    /// Commands of the beanstalkd protocol, by name.
    pub(crate) beanstalk: Vec<(String, Option<Rate>)>,
    /// Entries, counted by the highest durable sequence number; without a journal, by the highest sequence number of any actor.
    pub(crate) entries: Option<Rate>,
    /// Bytes written to the journal.
    pub(crate) bytes: Option<Rate>,
    /// Writes to the journal.
    pub(crate) writes: Option<Rate>,
    /// Syncs of the journal.
    pub(crate) syncs: Option<Rate>,
    /// Jobs added.
    pub(crate) jobs: Option<Rate>,
    /// Claims that expired before their jobs ended.
    pub(crate) timeouts: Option<Rate>,
    /// Requests over HTTP, including those of `sexton top` itself.
    pub(crate) http: Option<Rate>,
}

/// A sample. Values that were unknown are `None`.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) at: Timestamp,
    pub(crate) rates: Option<Rates>,
    pub(crate) owners: Option<u64>,
    pub(crate) contenders: Option<u64>,
    /// Jobs that can be claimed.
    pub(crate) ready: Option<u64>,
    /// Commands that are not answered yet.
    pub(crate) open: Option<u64>,
}

/// Whether the coordinator answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Contact {
    /// No answer yet.
    Asking,
    /// The last request was answered.
    Answering,
    /// The last request failed, or its answer was not a status. `since` is the time of the first such request in a row.
    Lost { since: Timestamp, no_answer: NoAnswer },
}

/// The reason why there is no status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoAnswer {
    /// Whether the coordinator answers but cannot serve: it has halted, or is too busy.
    pub(crate) is_there: bool,
    pub(crate) why: String,
}

/// A replacement of the coordinator by another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Succession {
    /// When the new process answered for the first time.
    pub(crate) at: Timestamp,
    /// The PID of the previous process.
    pub(crate) before: Figure,
}

/// The data received from a coordinator.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) contact: Contact,
    /// The last status, and when it was received.
    pub(crate) status: Option<(Timestamp, Value)>,
    /// The busiest queues, locks, leases and tasks, from the same answer as `status`.
    pub(crate) work: Work,
    /// Services and processes, from the same answer as `status`, if they were requested.
    pub(crate) family: Family,
    pub(crate) points: VecDeque<Point>,
    /// The number of all samples so far, including those no longer in `points`.
    pub(crate) taken: usize,
    pub(crate) succession: Option<Succession>,
}

impl Watched {
    pub(crate) fn new() -> Self {
        Self {
            contact: Contact::Asking,
            status: None,
            work: Work::default(),
            family: Family::default(),
            points: VecDeque::new(),
            taken: 0,
            succession: None,
        }
    }

    /// Applies an answer: a status, or the reason why there is none. `at` is the wall-clock time when it was received.
    pub(crate) fn take(&mut self, at: Timestamp, answer: Result<Value, NoAnswer>) {
        let point = match answer {
            Ok(status) => self.received(at, status),
            Err(no_answer) => self.lost(at, no_answer),
        };
        if self.points.len() == POINTS_MAX {
            self.points.pop_front();
        }
        self.points.push_back(point);
        self.taken += 1;
    }

    /// Applies a status, to which `terminal.rs` has added the answer of `/v1/busiest` as `busiest`, and the answers about services and
    /// processes as `processes`. Returns the sample.
    fn received(&mut self, at: Timestamp, mut status: Value) -> Point {
        let busiest = status.as_object_mut().and_then(|it| it.remove("busiest"));
        let family = status.as_object_mut().and_then(|it| it.remove("processes"));
        let gauge = |path| status.pointer(path).and_then(Value::as_u64);
        let mut point = Point {
            at,
            rates: None,
            owners: gauge("/lock_owners"),
            contenders: gauge("/lock_contenders"),
            ready: gauge("/queues/jobs/ready"),
            open: gauge("/open_commands"),
        };
        if let Some((_, before)) = &self.status {
            if self.contact != Contact::Answering || !is_same(before, &status) {
                self.work = Work::default();
                self.family = Family::default();
            }
            if is_same(before, &status) {
                // After a time without answers, the increase is known, but not how it was spread over that time.
                let heard_before = self.contact == Contact::Answering;
                point.rates = rates(before, &status).filter(|_| heard_before);
            } else {
                let before = number(before, "/pid");
                self.succession = Some(Succession { at, before });
            }
        }
        let uptime_ms = number(&status, "/uptime_ms").or_zero();
        self.work.take(&busiest.unwrap_or_default(), uptime_ms);
        self.family.take(&mut family.unwrap_or_default(), uptime_ms);
        self.contact = Contact::Answering;
        self.status = Some((at, status));
        point
    }

    fn lost(&mut self, at: Timestamp, no_answer: NoAnswer) -> Point {
        let since = match self.contact {
            Contact::Lost { since, .. } => since,
            Contact::Asking | Contact::Answering => at,
        };
        self.contact = Contact::Lost { since, no_answer };
        Point { at, rates: None, owners: None, contenders: None, ready: None, open: None }
    }

    /// Returns the current rates, if they are known.
    pub(crate) fn rates(&self) -> Option<&Rates> {
        self.points.back()?.rates.as_ref()
    }

    /// Returns the last sample as JSON: the time, the rates, the busiest items and the status, or why there is no
    /// status.
    pub(crate) fn line(&self) -> Value {
        let at = self.points.back().map(|point| text::time(point.at));
        let lost = match &self.contact {
            Contact::Lost { since, no_answer } => {
                json!({"since": text::time(*since), "why": no_answer.why, "is_there": no_answer.is_there})
            }
            Contact::Asking | Contact::Answering => Value::Null,
        };
        let status = match self.contact {
            Contact::Answering => self.status.as_ref().map(|(_, status)| status),
            Contact::Asking | Contact::Lost { .. } => None,
        };
        let rates = self.rates();
        json!({
            "at": at,
            "lost": lost,
            "over_ms": rates.map(|rates| rates.over_ms),
            "per_second": rates.map(Rates::line),
            "queues": status.map(|_| self.work.line()),
            "locks": status.map(|_| &self.work.locks),
            "leases": status.map(|_| &self.work.leases),
            "tasks": status.map(|_| &self.work.tasks),
            "status": status,
        })
    }
}

impl Rates {
    /// Returns the rate of all LockServer commands.
    pub(crate) fn all_commands(&self) -> Option<Rate> {
        sum(self.commands.iter().copied())
    }

    /// Returns the rate of all beanstalkd commands; `None` if there are none.
    pub(crate) fn all_beanstalk(&self) -> Option<Rate> {
        sum(self.beanstalk.iter().map(|(_, rate)| *rate)).filter(|_| !self.beanstalk.is_empty())
    }

    fn line(&self) -> Value {
        let kinds = COMMANDS.iter().zip(self.commands);
        let kinds = kinds.map(|((name, _), rate)| ((*name).to_owned(), line(rate)));
        let beanstalk = self.beanstalk.iter();
        let beanstalk = beanstalk.map(|(name, rate)| (name.clone(), line(*rate)));
        json!({
            "beanstalk_commands": line(self.all_beanstalk()),
            "beanstalk_commands_by_kind": Value::Object(beanstalk.collect()),
            "commands": line(self.all_commands()),
            "commands_by_kind": Value::Object(kinds.collect()),
            "entries": line(self.entries),
            "http_requests": line(self.http),
            "job_timeouts": line(self.timeouts),
            "jobs_added": line(self.jobs),
            "journal_bytes": line(self.bytes),
            "journal_syncs": line(self.syncs),
            "journal_writes": line(self.writes),
        })
    }
}

impl Rate {
    pub(crate) fn new(count: u64, over_ms: u64) -> Self {
        let thousandths = u128::from(count) * 1_000_000 / u128::from(over_ms.max(1));
        Self(u64::try_from(thousandths).unwrap_or(u64::MAX))
    }

    /// Returns the rate per second, rounded to a whole number.
    pub(crate) fn whole(self) -> u64 {
        self.0.saturating_add(500) / 1000
    }

    #[expect(clippy::cast_precision_loss, reason = "the rate is already rounded to thousandths")]
    pub(crate) fn line(self) -> Value {
        json!(self.0 as f64 / 1000.0)
    }
}

/// Returns whether both statuses are of the same process: the PID is the same, and the uptime and counts have not decreased.
fn is_same(before: &Value, now: &Value) -> bool {
    let grows = ["/uptime_ms", "/journal/bytes", "/http/accepted"];
    number(before, "/pid") == number(now, "/pid")
        && grows.iter().all(|path| number(before, path) <= number(now, path))
}

/// Computes the rates between two statuses of the same process; `None` if the uptime has not increased.
fn rates(before: &Value, now: &Value) -> Option<Rates> {
    let uptime_ms = |status| number(status, "/uptime_ms").known();
    let over_ms = uptime_ms(now)?.checked_sub(uptime_ms(before)?)?;
    if over_ms == 0 {
        return None;
    }
    let grown = |path: &str| number(now, path).minus(number(before, path));
    let of = |count: Figure| Some(Rate::new(count.known()?, over_ms));
    let rate = |path: &str| of(grown(path));
    let http = ["/http/answered", "/http/refused", "/http/failed"].map(grown);
    Some(Rates {
        over_ms,
        commands: COMMANDS.map(|(name, _)| {
            let path = format!("/lockserver/{name}");
            let count = wrapped(now, &path)?.wrapping_sub(wrapped(before, &path)?);
            Some(Rate::new(count.into(), over_ms))
        }),
        beanstalk: beanstalk(now)
            .map(|name| (name.clone(), rate(&format!("/beanstalk/commands/{name}"))))
            .collect(),
        entries: of(entries(now).minus(entries(before))),
        bytes: rate("/journal/bytes"),
        writes: rate("/journal/writes"),
        syncs: rate("/journal/syncs"),
        jobs: rate("/queues/added"),
        timeouts: rate("/queues/timeouts"),
        http: of(http.into_iter().sum()),
    })
}

/// Returns the sum of rates; `None` if one of them is unknown.
fn sum(rates: impl Iterator<Item = Option<Rate>>) -> Option<Rate> {
    let sum: Option<u64> = rates.map(|rate| Some(rate?.0)).sum();
    sum.map(Rate)
}

fn line(rate: Option<Rate>) -> Value {
    rate.map_or(Value::Null, Rate::line)
}

/// Returns the names of the beanstalkd commands that are counted.
fn beanstalk(status: &Value) -> impl Iterator<Item = &String> {
    let counts = status.pointer("/beanstalk/commands");
    counts.and_then(Value::as_object).into_iter().flat_map(|counts| counts.keys())
}

/// Reads a count of the LockServer protocol. Such counts wrap at 2^32.
fn wrapped(status: &Value, path: &str) -> Option<u32> {
    u32::try_from(number(status, path).known()?).ok()
}

/// Returns the number of entries: the highest sequence number that is known.
fn entries(status: &Value) -> Figure {
    let released = number(status, "/journal/released");
    if released.known().is_some() {
        return released;
    }
    let newest = actors(status).iter().filter_map(|actor| number(actor, "/last").known());
    newest.max().map_or_else(Figure::default, Figure::from)
}

/// Returns the actors of a status.
pub(crate) fn actors(status: &Value) -> &[Value] {
    list(status, "/actors")
}

/// Returns the list at `path`; empty if there is none.
pub(crate) fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    let list = value.pointer(path).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}
