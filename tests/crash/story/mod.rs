//! The example of `examples/shop/`, started by one command, under kill -9 of each of its parts in turn, and then of two at once at random,
//! while orders arrive. At the end the log alone accounts for every order, job, task, lock and process. The random part lasts ten seconds
//! in `cargo test`, and a minute with `SEXTON_CRASH_SECONDS=60`.
//!
//! | file | holds |
//! |---|---|
//! | `past.rs` | what the log records about the orders and everything they caused |

mod past;

use crate::chance::Chance;
use crate::daemon::{Daemon, ended, serve, sexton, text};
use crate::kept::Kept;
use crate::left_out::left_out;
use crate::lives;
use crate::patience::until;
use crate::processes::asking;
use crate::processes::host::Host;
use crate::story::past::{Order, Past};
use rustix::process::Signal;
use serde_json::{Value, json};
use sexton::kernel::pidfd::Pidfd;
use sexton::kernel::proc;
use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long `cargo test` kills two parts at the same time, in seconds.
const SECONDS: u64 = 10;

/// The time between two orders, and before a refused request is repeated.
const PAUSE: Duration = Duration::from_millis(30);

/// The parts that are killed. Each is found by the second word of its command line, except the coordinator and its keeper.
const PARTS: [(&str, Option<&str>); 7] = [
    ("coordinator", None),
    ("keeper", None),
    ("web service", Some("web.py")),
    ("runner of the workers", Some("work")),
    ("mail", Some("./mail.sh")),
    ("pass of the lease", Some("./nightly.sh")),
    ("burst of a task", Some("./export.sh")),
];

#[expect(clippy::disallowed_methods, reason = "acts of other processes are not events in this one")]
fn rest(pause: Duration) {
    std::thread::sleep(pause);
}

/// A thread that sends orders, one after the other, each repeated until it succeeds, and after each a request for a pass of the lease (a
/// run of its command).
struct Customer {
    stops: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Order>>,
}

impl Customer {
    fn begin(port: u16, host: &Host) -> Self {
        let stops = Arc::new(AtomicBool::new(false));
        let (theirs, socket) = (Arc::clone(&stops), host.socket());
        let ordering = move || {
            let mut orders = Vec::new();
            while !theirs.load(Ordering::Relaxed) {
                let name = format!("order-{}", orders.len());
                orders.push(answered(|| order(port, &name)));
                let pass = json!({"name": "nightly"});
                let key = format!("pass-{name}");
                let asked = || asking::post(&socket, "/v1/leases/run", &key, &pass).ok();
                answered(|| asked().filter(|(status, _)| *status == 200));
                rest(PAUSE);
            }
            orders
        };
        let thread = std::thread::Builder::new().name("customer".to_owned());
        Self { stops, thread: thread.spawn(ordering).expect("a new thread") }
    }

    /// Ends the thread, and returns every successful order.
    fn end(self) -> Vec<Order> {
        self.stops.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic")
    }
}

/// Repeats a request until it is answered, whatever is killed meanwhile, and returns the answer.
fn answered<T>(ask: impl Fn() -> Option<T>) -> T {
    until("it is answered", || {
        let answer = ask();
        if answer.is_none() {
            rest(PAUSE);
        }
        answer
    })
}

/// Sends an order to the web service; `None` if it is not running or refuses the order.
fn order(port: u16, name: &str) -> Option<Order> {
    let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let head = format!("POST /order?name={name} HTTP/1.1");
    let (status, said) = asking::ask_on(stream, &head, "").ok()?;
    let number = |path| said.pointer(path).and_then(Value::as_u64);
    (status == 200).then_some(Order {
        name: name.to_owned(),
        mail: number("/mail")?,
        export: number("/export")?,
    })
}

struct Shop {
    host: Host,
    kept: Kept,
    port: u16,
    daemon: Option<Daemon>,
    killed: BTreeMap<&'static str, u64>,
}

impl Shop {
    fn open() -> Self {
        let host = Host::new();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let mut shop = Self {
            kept: Kept::beside(&host.data()),
            host,
            port,
            daemon: None,
            killed: BTreeMap::new(),
        };
        shop.serve();
        shop
    }

    /// Starts the shop with its one command.
    fn serve(&mut self) {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let config = root.join("examples/shop/sexton.toml");
        let data = self.host.data();
        let mut command = serve(&["--data", text(&data), "--config", text(&config)]);
        let program = Path::new(env!("CARGO_BIN_EXE_sexton"));
        let folder = program.parent().expect("it is in a folder");
        let mut path = std::ffi::OsString::from(folder);
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        command.env("PATH", path).env("SHOP_PORT", self.port.to_string());
        self.daemon = Some(Daemon::start(command));
    }

    /// Kills a part with SIGKILL if it is running, and returns whether it was.
    fn kill(&mut self, (part, word): (&'static str, Option<&str>)) -> bool {
        self.kept.keep();
        let is_killed = match word {
            Some(word) => self.find(word).is_some_and(|process| process.signal(9).is_ok()),
            None if part == "keeper" => {
                self.host.keeper().is_some_and(|keeper| keeper.signal(9).is_ok())
            }
            None => {
                self.daemon.take().expect("a server").kill();
                true
            }
        };
        *self.killed.entry(part).or_default() += u64::from(is_killed);
        is_killed
    }

    /// Starts the web service if it was killed more often than its `intensity` allows, as an operator would.
    fn start_again(&self) {
        let web = self.host.get("/v1/services/service?name=web");
        if web.get("status") == Some(&"failed".into()) {
            self.host.well("/v1/services/start", &json!({"name": "web"}));
        }
    }

    /// Returns a process of this shop whose command line has this second word.
    fn find(&self, word: &str) -> Option<Pidfd> {
        let mut pids = proc::pids().expect("they are read").into_iter();
        pids.find_map(|pid| {
            let process = Pidfd::open(pid).ok()??;
            let argv = proc::cmdline(pid).ok()??;
            let second = argv.get(1)?;
            (second.as_bytes() == word.as_bytes() && self.host.is_of_it(pid)).then_some(process)
        })
    }

    /// Waits until all mails are sent, all exports are over, and no pass is running or due.
    fn settle(&self) {
        until("every mail is sent", || {
            let queue = self.host.get("/v1/queues/queue?queue=mails");
            let states = ["ready", "delayed", "claimed", "retrying", "buried"];
            let count = |state| queue.get(state).and_then(Value::as_u64);
            (states.map(count) == [Some(0); 5]).then_some(())
        });
        until("every export is over", || (self.host.tasks_left() == 0).then_some(()));
        until("no pass runs or is due", || {
            let lease = self.host.get("/v1/leases/lease?name=nightly");
            let runs = lease.pointer("/current/running") == Some(&true.into());
            let is_next = lease.get("next").is_none_or(|it| !it.is_null());
            (!runs && !is_next && lease.get("owed") == Some(&false.into())).then_some(())
        });
    }

    /// Stops the shop cleanly, and returns the content of its log, from the first entry, and the number of kills of each part.
    fn past(mut self) -> (Past, BTreeMap<&'static str, u64>) {
        let daemon = self.daemon.take().expect("a server");
        daemon.signal(Signal::TERM);
        let (status, log) = daemon.end();
        assert!(status.success(), "it stops cleanly: {log}");
        let kept = self.kept.keep();
        let read = |flags: &[&str]| {
            let mut replay = sexton();
            replay.arg("replay").arg(kept).args(flags);
            let [log, _] = ended(replay.output().expect("the command runs"), 0);
            log
        };
        let state = read(&["--state", "--json"]);
        let state = serde_json::from_str(&state).expect("valid JSON");
        (Past::of(&read(&["--json"]), &state), self.killed)
    }
}

fn is_installed() -> bool {
    let version = Command::new("python3").arg("--version").output();
    let is_installed = version.is_ok_and(|it| it.status.success());
    if !is_installed {
        left_out("the shop under kill -9: its web service needs Python 3, which is not installed");
    }
    is_installed
}

#[test]
#[expect(clippy::disallowed_methods, reason = "acts of other processes are not events in this one")]
fn the_log_accounts_for_all_that_a_shop_did_whatever_of_it_was_killed() {
    if !is_installed() {
        return;
    }
    let (span, seed) = (Duration::from_secs(lives::seconds(SECONDS)), lives::seed());
    let mut chance = Chance::new(seed);
    let mut shop = Shop::open();
    let customer = Customer::begin(shop.port, &shop.host);
    for part in PARTS {
        until("it is running, and is killed", || {
            let is_killed = shop.kill(part);
            if shop.daemon.is_none() {
                shop.serve();
            }
            is_killed.then_some(())
        });
    }
    let begun = Instant::now();
    while begun.elapsed() < span {
        rest(Duration::from_millis(chance.below(300)));
        for _ in 0..2 {
            let nth = usize::try_from(chance.below(PARTS.len() as u64)).expect("a small number");
            let part = PARTS.get(nth).expect("one of them");
            // While the coordinator is down, only the other parts can be killed.
            if part.0 != "coordinator" || shop.daemon.is_some() {
                shop.kill(*part);
            }
        }
        if shop.daemon.is_none() {
            shop.serve();
        }
        shop.start_again();
    }
    let orders = customer.end();
    shop.settle();
    let (past, killed) = shop.past();
    println!(
        "seed {seed}, {:?}: {} orders; {past}; killed: {killed:?}",
        begun.elapsed(),
        orders.len()
    );
    assert_eq!(past.wrong(&orders), Vec::<String>::new(), "seed {seed}");
}
