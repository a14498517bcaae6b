//! The test bed of `dispatch`: a coordinator that runs tasks, and its events.

use crate::coordinator::{Coordinator, Grounds, ask, signal};
use crate::event::{Event, clock, listen};
use crate::failing::{CommandEnd, Written, written};
use crate::failure::Failure;
use crate::figures::Latencies;
use crate::interrupt::Stop;
use crate::load::now;
use crate::pulse::Fifo;
use crate::question::rest;
use crate::recovery::ms;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// The time limit of an attempt (one run of a task's command) whose command loops, in milliseconds.
pub(crate) const FAIL_AFTER_MS: u64 = 200;

/// The maximum time to wait for an event or a status.
const PATIENCE: Duration = Duration::from_mins(1);

/// The pause between two polls.
const LOOK: Duration = Duration::from_millis(2);

/// A coordinator that runs tasks, and a subscription to its events.
pub(crate) struct Bed {
    pub(crate) coordinator: Coordinator,
    last: Fifo,
    events: Receiver<Result<Event, Failure>>,
}

impl Bed {
    /// Starts a coordinator that allows fault injection, and its keeper. Tasks run on one server with `threads` threads, each of which runs
    /// one task at a time, and the group `default` may run a million.
    pub(crate) fn make(grounds: Grounds<'_>, folder: &Path, threads: u32) -> Result<Self, Failure> {
        let config = folder.join("sexton.toml");
        std::fs::write(&config, "[tasks]\nallow_fault_injection = true\n")
            .map_err(Failure::to("write a configuration"))?;
        let coordinator = Coordinator::start(Some(&config), grounds)?;
        coordinator.start_keeper()?;
        let last = Fifo::create(&folder.join("last"))?;
        let server = json!({"server": "local", "threads": threads});
        coordinator.ask("/v1/servers/set", Some(&server))?;
        let events = listen(
            &coordinator,
            "actor=dispatch&kind=claimed,locked,completed,failed,reset,waits",
        )?;
        let bed = Self { coordinator, last, events };
        bed.limit("default", 1_000_000)?;
        Ok(bed)
    }

    pub(crate) fn limit(&self, group: &str, max: u32) -> Result<(), Failure> {
        let limit = json!({"group": group, "max": max});
        self.coordinator.ask("/v1/tasks/limit", Some(&limit)).map(drop)
    }

    /// Returns the body of a request to add a task whose command ends as `how` specifies. The fields of the object `more` are added to the
    /// body, and replace those of the same name.
    pub(crate) fn of(&self, how: CommandEnd, more: &Value) -> Result<Value, Failure> {
        let own = std::env::current_exe().map_err(Failure::to("find this program"))?;
        let word = how.word();
        let words = [own.as_path(), Path::new("failing"), Path::new(&word), self.last.path()];
        let command = words.map(|word| word.to_string_lossy().into_owned());
        let mut body = json!({"launch": {"command": command, "dir": "/"}});
        merge(&mut body, more);
        Ok(body)
    }

    /// Adds `count` tasks, over several connections at once.
    pub(crate) fn add(&self, count: u32, body: &Value, stop: &Stop) -> Result<(), Failure> {
        let add = |stream: &mut _, _| ask(stream, "/v1/tasks/add", Some(body)).map(drop);
        self.coordinator.concurrently(count, stop, add).map(drop)
    }

    fn add_one(&self, body: &Value) -> Result<u64, Failure> {
        let task = self.coordinator.ask("/v1/tasks/add", Some(body))?;
        let id = task.get("id").and_then(Value::as_u64);
        id.ok_or_else(|| Failure::new(format!("the task was not added: {task}")))
    }

    /// Returns the next event whose kind is `wanted` and that is about `task`, or about any task if that is `None`. Other events are
    /// discarded. If none arrives for a minute, an error is returned.
    fn next(&self, wanted: impl Fn(&str) -> bool, task: Option<u64>) -> Result<Event, Failure> {
        loop {
            let heard = self.events.recv_timeout(PATIENCE);
            let heard = heard.map_err(|_| Failure::new("no task event arrived in time"))??;
            let kind = heard.what.get("kind").and_then(Value::as_str);
            let of = heard.what.get("task").and_then(Value::as_u64);
            if kind.is_some_and(&wanted) && (task.is_none() || of == task) {
                return Ok(heard);
            }
        }
    }

    /// Waits until an attempt of `task` (if `None`, of any task) ends, and returns the event that reports the end.
    pub(crate) fn await_end(&self, task: Option<u64>) -> Result<Event, Failure> {
        let is_end = |kind: &str| ["completed", "failed", "reset", "waits"].contains(&kind);
        self.next(is_end, task)
    }

    /// Waits until a command writes to the pipe, and returns what it wrote.
    pub(crate) fn written(&mut self) -> Result<Written, Failure> {
        written(&mut self.last)
    }

    /// Waits until the command of this task writes to the pipe, and returns what it wrote. What commands of other tasks write is discarded.
    fn written_by(&mut self, task: u64) -> Result<Written, Failure> {
        loop {
            let command = self.written()?;
            if command.task == task {
                return Ok(command);
            }
        }
    }

    /// Cancels the task if its attempt ended with a reset, since it would otherwise be run again.
    fn end(&self, task: u64, end: &Event) -> Result<(), Failure> {
        if end.what.get("kind").and_then(Value::as_str) != Some("reset") {
            return Ok(());
        }
        let body = json!({"id": task, "act": "terminate", "now": true});
        let mut stream = self.coordinator.connect()?;
        // The request is refused if the task has ended meanwhile; then there is nothing to cancel.
        drop(ask(&mut stream, "/v1/tasks/act", Some(&body)));
        Ok(())
    }

    /// Measures the time from the last action of a task's command, as the command recorded it, to the end of the attempt, in milliseconds.
    pub(crate) fn measure(&mut self, body: &Value, stop: &Stop) -> Result<f64, Failure> {
        stop.check()?;
        let task = self.add_one(body)?;
        let command = self.written_by(task)?;
        let end = self.await_end(Some(task))?;
        self.end(task, &end)?;
        Ok(since(command.at, end.at))
    }

    /// Measures a task whose launch fails: the time from the event `locked`, with which the launch is requested, to the end of the attempt,
    /// in milliseconds.
    pub(crate) fn unlaunched(&self, body: &Value, stop: &Stop) -> Result<f64, Failure> {
        stop.check()?;
        let task = self.add_one(body)?;
        let asked = self.next(|kind| kind == "locked", Some(task))?;
        let end = self.await_end(Some(task))?;
        self.end(task, &end)?;
        Ok(since(asked.at, end.at))
    }

    /// Measures by how much an attempt exceeds its time limit, in milliseconds.
    pub(crate) fn overdue(&mut self, body: &Value, stop: &Stop) -> Result<f64, Failure> {
        stop.check()?;
        let task = self.add_one(body)?;
        let claimed = self.next(|kind| kind == "claimed", Some(task))?;
        let end = self.await_end(Some(task))?;
        written(&mut self.last)?;
        Ok(since(claimed.at + FAIL_AFTER_MS * 1_000_000, end.at))
    }

    /// Adds a task, kills the keeper and then the task's command, and measures the time from the first kill to the end of the attempt, in
    /// milliseconds.
    pub(crate) fn keeper_killed(&mut self, body: &Value, stop: &Stop) -> Result<f64, Failure> {
        stop.check()?;
        let task = self.add_one(body)?;
        let command = self.written_by(task)?;
        let keeper = self.coordinator.keeper();
        let keeper = keeper.ok_or_else(|| Failure::new("the keeper is not running"))?;
        let killed = clock();
        signal(keeper, Signal::KILL);
        signal(command.pid, Signal::KILL);
        let end = self.await_end(Some(task))?;
        self.end(task, &end)?;
        Ok(since(killed, end.at))
    }

    /// Measures the time from adding a task to the start of its command, for 200 tasks, one after another.
    pub(crate) fn started(&mut self, stop: &Stop) -> Result<Latencies, Failure> {
        let body = self.of(CommandEnd::Ends, &json!({}))?;
        let mut latencies = Latencies::default();
        for _ in 0..200 {
            stop.check()?;
            let began = clock();
            let task = self.add_one(&body)?;
            let command = written(&mut self.last)?;
            latencies.note(Duration::from_nanos(command.at.saturating_sub(began)));
            self.await_end(Some(task))?;
        }
        Ok(latencies)
    }

    /// Waits until exactly `wanted` tasks have this status. Returns an error after a minute.
    pub(crate) fn await_count(
        &self,
        status: &str,
        wanted: u32,
        stop: &Stop,
    ) -> Result<(), Failure> {
        let patience = now() + PATIENCE;
        loop {
            stop.check()?;
            let counted = self.count(status);
            if counted.as_ref().is_ok_and(|counted| *counted == wanted) {
                return Ok(());
            }
            if now() > patience {
                let words = format!("expected {wanted} tasks to be {status}, found {counted:?}");
                return Err(Failure::new(words));
            }
            rest(LOOK);
        }
    }

    fn count(&self, status: &str) -> Result<u32, Failure> {
        let (mut counted, mut after) = (0, String::new());
        let mut stream = self.coordinator.connect()?;
        loop {
            let path = format!("/v1/tasks?status={status}&limit=1000{after}");
            let page = ask(&mut stream, &path, None)?;
            let tasks = page.get("tasks").and_then(Value::as_array);
            counted += u32::try_from(tasks.map_or(0, Vec::len)).unwrap_or(u32::MAX);
            match page.get("next").and_then(Value::as_u64) {
                Some(next) => after = format!("&after={next}"),
                None => return Ok(counted),
            }
        }
    }
}

pub(crate) fn merge(body: &mut Value, more: &Value) {
    let more = more.as_object().into_iter().flatten();
    for (name, value) in more {
        body[name] = value.clone();
    }
}

/// Returns the milliseconds between two readings of [`clock`].
fn since(began: u64, ended: u64) -> f64 {
    ms(Duration::from_nanos(ended.saturating_sub(began)))
}
