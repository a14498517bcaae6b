//! Unrelated processes that get the PIDs of processes that ended unobserved. No signal is sent to them, whatever the records contain, and
//! they inherit no right.

use crate::left_out::left_out;
use crate::patience::until;
use crate::processes::children::{Children, Last, Recorded, by_number, recorded};
use crate::processes::host::{Host, is_taken};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use serde_json::{Value, json};
use sexton::bytes::Bytes;
use sexton::kernel::pidfd::Pidfd;
use sexton::kernel::plan::Plan;
use sexton::kernel::spawn::{SpawnOptions, spawn};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};

/// The number of launched processes, and of registered ones.
const EACH: u64 = 50;

/// A process of this test with a chosen PID.
struct Stranger(Pidfd);

impl Stranger {
    /// Starts a process with this PID, which is free or becomes free when the last process of its group has ended.
    fn with(pid: u32) -> Self {
        let words = ["sleep", "1000"].map(|word| Bytes::new(word.as_bytes()));
        let env = [Bytes::new(*b"PATH=/usr/bin:/bin")];
        let plan = Plan::new(&words, &env, &Bytes::default()).expect("it is a plan");
        let null = File::options().read(true).write(true).open("/dev/null");
        let null = null.expect("it exists");
        let birth = SpawnOptions { group: None, pid: i32::try_from(pid).ok(), further: &[] };
        let spawned = until("the PID is free", || match spawn(&plan, [null.as_fd(); 3], birth) {
            Ok(spawned) => Some(spawned),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => None,
            Err(error) => panic!("choosing a PID requires CAP_CHECKPOINT_RESTORE: {error}"),
        });
        assert_eq!(spawned.pid, pid);
        let pidfd = Pidfd::open(pid).expect("descriptors are left").expect("it waits");
        spawned.release().expect("the child waits for its release");
        Self(pidfd)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        drop(self.0.signal(9));
        let _reaped = waitid(WaitId::PidFd(self.0.as_fd()), WaitIdOptions::EXITED);
    }
}

/// A registered process of this test. Killed when dropped.
struct Registered(Child);

impl Registered {
    fn start() -> Self {
        let mut command = Command::new("sleep");
        let command = command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.spawn().expect("the command starts"))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Returns the number of locks that are held.
fn held(host: &Host) -> u64 {
    let status = host.get("/v1/status");
    let held = status.get("lock_owners").and_then(Value::as_u64);
    held.expect("the status has it")
}

/// The grace period of those that [`stop_some`] stops and whose numbers are divisible by four, in milliseconds. It ends before or after the
/// crash that follows, depending on the machine.
const SHORT_GRACE_MS: u64 = 2000;

/// Stops half of the launched processes. They ignore SIGTERM, so the stops continue after the restart, when some grace periods end.
fn stop_some(host: &Host, records: &BTreeMap<u64, Value>) {
    for (number, record) in records.range(0..EACH).filter(|(number, _)| *number % 2 == 0) {
        let grace = if number % 4 == 0 { SHORT_GRACE_MS } else { 600_000 };
        let body = json!({"id": record.get("id"), "tree": number % 3 == 0, "grace_ms": grace});
        host.well("/v1/processes/stop", &body);
    }
}

/// Binds a lock to each process, or to its tree. Only their end releases it.
fn bind_locks(host: &Host, records: &BTreeMap<u64, Value>) {
    for (number, record) in records {
        let release = if number % 2 == 0 { "process" } else { "tree" };
        let body = json!({"key": format!("k{number}"), "index": "1", "owner": "it",
            "process": record.get("id"), "release": release});
        host.well("/v1/locks/acquire", &body);
    }
    assert_eq!(held(host), records.len() as u64);
}

#[test]
fn no_signal_reaches_a_stranger_that_has_the_pid() {
    if !rustix::process::geteuid().is_root() {
        return left_out("PIDs that are reused: only root may choose a PID");
    }
    let host = Host::new();
    let children = Children::of(&host);
    let daemon = host.start();
    for number in 0..EACH {
        host.well("/v1/processes/launch", &children.held(number));
    }
    let registered: Vec<Registered> = (0..EACH).map(|_| Registered::start()).collect();
    for (process, number) in registered.iter().zip(EACH..) {
        let labels = json!({"number": number.to_string()});
        let body = json!({"pid": process.0.id(), "labels": labels});
        host.well("/v1/processes/register", &body);
    }
    let records = by_number(host.records());
    assert_eq!(records.len() as u64, 2 * EACH);
    children.begun(0..EACH);
    // The locks are bound and counted first: those of processes whose short grace periods end before the crash are released.
    bind_locks(&host, &records);
    stop_some(&host, &records);
    daemon.kill();
    host.kill_keeper();
    drop(registered);
    host.kill_children();
    let pid = |number: &u64| {
        let pid = records[number]["pid"].as_u64().expect("it was started");
        u32::try_from(pid).expect("a small number")
    };
    let taken = |number| {
        until("it is gone", || (!is_taken(pid(number))).then_some(()));
        Stranger::with(pid(number))
    };
    let strangers: Vec<Stranger> = records.keys().map(taken).collect();

    let daemon = host.start();
    for (number, record) in &records {
        let id = &record["id"];
        let signal = json!({"id": id, "signal": 9, "group": number % 2 == 0});
        assert_ne!(host.try_post("/v1/processes/signal", &signal), 200, "{record}");
        // The status is not checked, since the process may be recorded as ended or not yet.
        host.try_post("/v1/processes/stop", &json!({"id": id, "grace_ms": 0, "tree": true}));
    }
    let ended = until("all have ended", || {
        let records = by_number(host.records());
        let is_over = |record| recorded(record) != Recorded::Alive;
        records.values().all(is_over).then_some(records)
    });
    for (number, record) in &ended {
        match recorded(record) {
            Recorded::Lost(_) => {}
            // Its short grace period ended before the crash.
            Recorded::Ended(Last::Signal(9)) if *number < EACH && number % 4 == 0 => {}
            other @ (Recorded::Alive | Recorded::Ended(_) | Recorded::Failed(_)) => {
                panic!("{other:?}: {record}")
            }
        }
    }
    until("the rights of all have ended", || (held(&host) == 0).then_some(()));
    for Stranger(pidfd) in &strangers {
        let has_ended = pidfd.has_ended().expect("it can be polled");
        assert!(!has_ended, "a stranger was killed");
    }
    daemon.kill();
}
