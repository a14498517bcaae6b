//! A coordinator (`sexton serve`) under test that launches processes. Dropping it also kills its keeper, the process that launches commands
//! for it, and all processes that the keeper launched, so that nothing outlives a measurement, even a failed one.

use crate::failure::Failure;
use crate::interrupt::Stop;
use crate::load::now;
use crate::peer::Peer;
use crate::question::{exchange, on_socket, rest};
use crate::site::Site;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The number of connections that send requests concurrently.
const CLIENTS: u32 = 16;

/// A coordinator that does not answer for this long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// The pause between two polls of the coordinator's state.
const LOOK: Duration = Duration::from_millis(1);

/// Where coordinators are started, and the folder to which their directories are moved afterwards. These are removed only when everything
/// has been measured: for minutes after files are removed, ext4 examines each of their inodes whenever it creates a file, which would
/// distort the next measurement.
#[derive(Clone, Copy)]
pub(crate) struct Grounds<'a> {
    pub(crate) site: &'a Site,
    pub(crate) attic: &'a Path,
}

/// A running coordinator that syncs each change to disk before it answers.
pub(crate) struct Coordinator {
    peer: Peer<()>,
    attic: PathBuf,
}

/// A launched process.
#[derive(Clone, Debug)]
pub(crate) struct Launched {
    pub(crate) id: String,
    pub(crate) pid: u32,
}

impl Coordinator {
    /// Starts a coordinator in a fresh directory, with this configuration file if there is one.
    pub(crate) fn start(config: Option<&Path>, grounds: Grounds<'_>) -> Result<Self, Failure> {
        let peer = Peer::sexton_for_processes(config, grounds.site)?;
        let attic = grounds.attic.to_owned();
        Ok(Self { peer, attic })
    }

    /// Returns the data directory.
    pub(crate) fn data(&self) -> &Path {
        self.peer.data()
    }

    /// Returns the address of the LockServer listener.
    pub(crate) fn address(&self) -> SocketAddr {
        self.peer.address
    }

    /// Connects to the coordinator's Unix socket.
    pub(crate) fn connect(&self) -> Result<UnixStream, Failure> {
        connect(self.data())
    }

    /// Sends one request on a new connection, and returns the answer; a status other than 200 is an error.
    pub(crate) fn ask(&self, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        ask(&mut self.connect()?, path, body)
    }

    /// Starts the keeper if it is not running.
    pub(crate) fn start_keeper(&self) -> Result<(), Failure> {
        self.ask("/v1/processes/keeper", Some(&json!({}))).map(drop)
    }

    /// Launches `count` processes over several connections, and returns them in no particular order. Each launch is answered once its
    /// process runs and the request is on disk.
    pub(crate) fn launch(
        &self,
        count: u32,
        body: &Value,
        stop: &Stop,
    ) -> Result<Vec<Launched>, Failure> {
        let launch = |stream: &mut UnixStream, _| {
            let record = ask(stream, "/v1/processes/launch", Some(body))?;
            launched_of(&record)
        };
        self.concurrently(count, stop, launch)
    }

    /// Calls `each` with every number below `count`, over [`CLIENTS`] connections concurrently, and returns the results in no particular
    /// order. A connection makes no more calls after an error; one such error is returned once all connections are done.
    pub(crate) fn concurrently<T: Send>(
        &self,
        count: u32,
        stop: &Stop,
        each: impl Fn(&mut UnixStream, u32) -> Result<T, Failure> + Sync,
    ) -> Result<Vec<T>, Failure> {
        let (data, next) = (self.data(), AtomicU32::new(0));
        let client = || {
            let mut stream = connect(data)?;
            let mut done = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok::<_, Failure>(done);
                }
                stop.check()?;
                done.push(each(&mut stream, number)?);
            }
        };
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for _ in 0..CLIENTS {
                let thread = std::thread::Builder::new().name("sexton-bench-ask".to_owned());
                let thread = thread.spawn_scoped(scope, client);
                threads.push(thread.map_err(Failure::to("start a thread"))?);
            }
            let mut all = Vec::new();
            for thread in threads {
                let done = thread.join();
                all.extend(done.map_err(|_| Failure::new("a client thread panicked"))??);
            }
            Ok(all)
        })
    }

    /// Returns how many process records have this status; `None` if the coordinator does not answer yet.
    fn count(&self, status: &str) -> Option<u64> {
        let path = format!("/v1/processes/count?status={status}");
        let mut stream = on_socket(self.peer.data(), PATIENCE).ok()?;
        ask(&mut stream, &path, None).ok()?.get("count")?.as_u64()
    }

    /// Waits until exactly `wanted` process records have this status. Returns an error after [`PATIENCE`].
    pub(crate) fn await_count(
        &mut self,
        status: &str,
        wanted: u32,
        stop: &Stop,
    ) -> Result<(), Failure> {
        let patience = now() + PATIENCE;
        loop {
            stop.check()?;
            let counted = self.count(status);
            if counted == Some(wanted.into()) {
                return Ok(());
            }
            self.peer.check()?;
            if now() > patience {
                let words = format!("expected {wanted} records to be {status}, found {counted:?}");
                return Err(Failure::new(words));
            }
            rest(LOOK);
        }
    }

    /// Kills the coordinator with SIGKILL, to simulate a crash. Its keeper and the launched processes keep running.
    pub(crate) fn kill(&mut self) -> Result<(), Failure> {
        self.peer.kill()
    }

    /// Starts the coordinator again. Returns before it serves requests.
    pub(crate) fn start_again(&mut self) -> Result<(), Failure> {
        self.peer.start_again()
    }

    /// Returns the memory used by the coordinator and its keeper, in bytes. A page shared with other processes counts in part (`Pss`).
    pub(crate) fn memory(&self) -> Result<f64, Failure> {
        let keeper = self.keeper();
        let keeper = keeper.ok_or_else(|| Failure::new("the keeper is not running"))?;
        Ok(proportional(self.peer.pid())? + proportional(keeper)?)
    }

    /// Returns the resident memory of the coordinator, in bytes.
    pub(crate) fn resident(&self) -> Result<u64, Failure> {
        self.peer.resident()
    }

    /// Returns the processor time that the coordinator has used so far, including exited threads, to a hundredth of a second.
    pub(crate) fn cpu(&self) -> Duration {
        self.peer.cpu()
    }

    /// Returns the processor time that the coordinator's live threads have used so far, to the nanosecond.
    pub(crate) fn processor_time(&self) -> Result<Duration, Failure> {
        let cannot = || Failure::to("read the processor time of the coordinator");
        let tasks = fs::read_dir(format!("/proc/{}/task", self.peer.pid())).map_err(cannot())?;
        let mut all = Duration::ZERO;
        for task in tasks {
            let task = task.map_err(cannot())?.path();
            // A thread may have exited meanwhile.
            let taken = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
            let taken = taken.split_whitespace().next();
            let nanos = taken.and_then(|taken| taken.parse().ok()).unwrap_or(0);
            all += Duration::from_nanos(nanos);
        }
        Ok(all)
    }

    /// Returns the PID in the keeper's lock file; `None` if the file does not exist or contains no number.
    pub(crate) fn keeper(&self) -> Option<u32> {
        let lock = fs::read_to_string(self.peer.data().join("keeper.lock"));
        lock.ok()?.trim().parse().ok()
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        // `drop` cannot return an error.
        drop(self.peer.kill());
        if let Some(keeper) = self.keeper() {
            end_keeper(keeper);
        }
        // A directory that cannot be moved is removed when `peer` is dropped.
        let data = self.peer.data();
        drop(fs::rename(data, self.attic.join(data.file_name().unwrap_or_default())));
    }
}

fn connect(data: &Path) -> Result<UnixStream, Failure> {
    on_socket(data, PATIENCE).map_err(Failure::to("connect"))
}

fn end_keeper(keeper: u32) {
    let patience = now() + PATIENCE;
    while is_alive(keeper) && now() < patience {
        let children = children_of(keeper);
        for child in &children {
            signal(*child, Signal::KILL);
        }
        if children.is_empty() {
            // On this signal, a keeper without children removes its control group and exits.
            signal(keeper, Signal::TERM);
        }
        rest(LOOK);
    }
}

/// Sends one request on a persistent connection, and returns the answer; a status other than 200 is an error.
pub(crate) fn ask(
    stream: &mut UnixStream,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, Failure> {
    let (status, answer) = exchange(stream, path, body).map_err(Failure::to(path))?;
    if status != 200 {
        return Err(Failure::new(format!("{path}: {status} {answer}")));
    }
    serde_json::from_str(&answer).map_err(Failure::to(path))
}

fn launched_of(record: &Value) -> Result<Launched, Failure> {
    let id = record.get("id").and_then(Value::as_str);
    let pid = record.get("pid").and_then(Value::as_u64);
    match (id, pid.and_then(|pid| u32::try_from(pid).ok())) {
        (Some(id), Some(pid)) => Ok(Launched { id: id.to_owned(), pid }),
        _ => Err(Failure::new(format!("the process was not launched: {record}"))),
    }
}

/// Sends a signal to the process with this PID, if it exists.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pidfd = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    if let Some(pidfd) = pidfd {
        // A process that has exited meanwhile needs no signal.
        let _ = pidfd_send_signal(pidfd, signal);
    }
}

/// Returns whether a process is running; a zombie is not.
fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != "Z")
}

fn children_of(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |pid: &u32| stat(*pid).is_some_and(|(state, of)| of == parent && state != "Z");
    pids.filter(is_child).collect()
}

/// Returns the state and the parent of a process; `None` if there is no such process.
fn stat(pid: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // proc(5): the name, in parentheses, may itself contain parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// Returns the proportional set size of a process, in bytes.
fn proportional(pid: u32) -> Result<f64, Failure> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).map_err(Failure::to(format!("read {path}")))?;
    let kibibytes = text.lines().find_map(|line| {
        let line = line.strip_prefix("Pss:")?.trim().strip_suffix("kB")?;
        line.trim().parse::<f64>().ok()
    });
    let kibibytes = kibibytes.ok_or_else(|| Failure::new(format!("{path} has no line `Pss:`")))?;
    Ok(kibibytes * 1024.0)
}
