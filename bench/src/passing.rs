//! Owners and waiters of locks that pass to the next client in line when the owner is killed, and a query for the number of waiters.

use crate::codec::{Answer, Name, Protocol, Verb, name};
use crate::coordinator::{Coordinator, ask, signal};
use crate::failure::Failure;
use crate::load::now;
use crate::question::{read_more, receive, rest, say};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The number of connections that wait for the locks of one owner.
pub(crate) const WAITERS: u32 = 100;

/// The maximum time to wait for an answer, and for all waiters to be granted their locks.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Opens a connection that waits in line for its share of `entries` locks: those whose number modulo [`WAITERS`] is `waiter`.
pub(crate) fn in_line(
    coordinator: &Coordinator,
    waiter: u32,
    entries: u32,
) -> Result<TcpStream, Failure> {
    let mut stream = lockserver(coordinator)?;
    let mut asked = Vec::new();
    for number in (0..entries).filter(|number| number % WAITERS == waiter) {
        let (key, owner): (Name, Name) = (name(0, number), name(1, number));
        Protocol::Lockserver.ask(Verb::Acquire, &key, &owner, &mut asked);
    }
    let cannot = || Failure::to("wait in line");
    stream.write_all(&asked).map_err(cannot())?;
    let mut input = Vec::new();
    for _ in 0..entries / WAITERS {
        while input.len() < 2 {
            read_more(&mut stream, &mut input).map_err(cannot())?;
        }
        let answer = Protocol::Lockserver.receive(Verb::Acquire, &input);
        if !matches!(answer, Ok(Some((Answer::InLine(_), _)))) {
            return Err(Failure::new(format!("a waiter was answered with {answer:?}")));
        }
        input.drain(..2);
    }
    Ok(stream)
}

/// A child process that is registered with the coordinator. It is killed on drop.
pub(crate) struct Registered {
    child: Child,
    pub(crate) id: String,
}

impl Registered {
    pub(crate) fn start(line: &mut Line) -> Result<Self, Failure> {
        let mut command = Command::new("sleep");
        command.arg("1000000").stdin(Stdio::null());
        let mut child = command.spawn().map_err(Failure::to("start sleep"))?;
        let body = json!({ "pid": child.id() });
        let registered = ask(&mut line.asks, "/v1/processes/register", Some(&body));
        let id = registered.map(|it| it.get("id").and_then(Value::as_str).map(str::to_owned));
        match id {
            Ok(Some(id)) => Ok(Self { child, id }),
            other => {
                drop(child.kill());
                drop(child.wait());
                Err(other.map_or_else(
                    |error| error,
                    |_| Failure::new("the answer to the registration has no id"),
                ))
            }
        }
    }
}

impl Registered {
    /// Kills the process, and leaves it a zombie: the lock must pass on although the process has not been reaped.
    pub(crate) fn kill(&self) {
        signal(self.child.id(), Signal::KILL);
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Two connections to a coordinator: one sends requests, and one waits for the lock.
pub(crate) struct Line {
    asks: UnixStream,
    waits: UnixStream,
}

impl Line {
    pub(crate) fn to(coordinator: &Coordinator) -> Result<Self, Failure> {
        Ok(Self { asks: coordinator.connect()?, waits: coordinator.connect()? })
    }

    /// Takes the lock, bound to a process by the fields in `bound`.
    pub(crate) fn hold(&mut self, bound: &Value) -> Result<(), Failure> {
        let mut asked = json!({ "key": "k", "owner": "owner" });
        if let (Value::Object(asked), Value::Object(bound)) = (&mut asked, bound) {
            asked.extend(bound.clone());
        }
        ask(&mut self.asks, "/v1/locks/acquire", Some(&asked)).map(drop)
    }

    /// Measures the time from the call of `ends`, which ends the owner, until the waiter has the lock. The waiter then releases it.
    pub(crate) fn passed_on(&mut self, ends: impl FnOnce()) -> Result<Duration, Failure> {
        self.passed_on_after(|| {}, ends)
    }

    /// Like [`passed_on`](Self::passed_on), but calls `before` once the waiter is in line, and before the measured time begins.
    pub(crate) fn passed_on_after(
        &mut self,
        before: impl FnOnce(),
        ends: impl FnOnce(),
    ) -> Result<Duration, Failure> {
        let cannot = || Failure::to("wait for the lock");
        let next = json!({ "key": "k", "owner": "next", "wait": 60 });
        say(&mut self.waits, "/v1/locks/acquire", Some(&next)).map_err(cannot())?;
        // The waiter must be in line before the owner ends. The query for the waiter's position fails until it is.
        let place = "/v1/locks/place?key=k&owner=next";
        while ask(&mut self.asks, place, None).is_err() {
            rest(Duration::from_millis(1));
        }
        before();
        let began = now();
        ends();
        let (status, answer) = receive(&mut self.waits).map_err(cannot())?;
        let took = now() - began;
        if status != 200 {
            return Err(Failure::new(format!("the next in line did not get the lock: {answer}")));
        }
        ask(&mut self.asks, "/v1/locks/release", Some(&json!({ "key": "k", "owner": "next" })))?;
        Ok(took)
    }
}

/// Connects to the LockServer listener, and reads the greeting.
pub(crate) fn lockserver(coordinator: &Coordinator) -> Result<TcpStream, Failure> {
    let cannot = || Failure::to("connect to the LockServer listener");
    let mut stream = TcpStream::connect(coordinator.address()).map_err(cannot())?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(cannot())?;
    stream.read_exact(&mut [0]).map_err(cannot())?;
    Ok(stream)
}

/// Returns the number of contenders. The answer arrives once everything that it counts is on disk.
pub(crate) fn contenders(stream: &mut TcpStream) -> Result<u32, Failure> {
    let cannot = || Failure::to("request statistics");
    stream.write_all(&[8]).map_err(cannot())?;
    // Fourteen numbers of four bytes each, the last of which counts contenders, and two more bytes.
    let mut answer = [0; 58];
    stream.read_exact(&mut answer).map_err(cannot())?;
    let contenders = answer.get(52..56).and_then(|bytes| bytes.try_into().ok());
    Ok(contenders.map_or(0, u32::from_be_bytes))
}
