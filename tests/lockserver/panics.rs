//! Panics injected into a node that is in use: 64 clients over TCP, 20,000 locks, each with an owner and a contender. Only the request that
//! caused the panic fails; every other request gets a correct answer; the state afterwards is the one that the clients expect.

use crate::lockserver::{self, Client, request};
use crate::node;
use crate::past;
use crate::served;
use sexton::actors;
use sexton::actors::lock::{LockMachine, Message, Name, Query};
use sexton::actors::queue::{self, Body, Put, QueueName};
use sexton::actors::supervisor::{Cause, Rules};
use sexton::ids::Digest;
use sexton::node::{Drain, Entry, Handle, Terms};
use sexton::spine::delivery::Stage;
use sexton::spine::delivery::{Item, Report};
use sexton::spine::machine::Paged as _;
use sexton::spine::shared::Halt;
use sexton::spine::supervision::Intensity;
use sexton::status::ActorReport;
use sexton::{Config, Node};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const CLIENTS: usize = 64;
/// The number of locks held during the panics; each has an owner and a contender.
const LOCKS: usize = 20_000;
/// The number of panics in each stage.
const PANICS: usize = 20;
/// How many commands go into one write while loading.
const BURST: usize = 500;

/// Key, index, owner: they identify an entry.
type Place = (Vec<u8>, Vec<u8>, Vec<u8>);

fn place(key: &str, index: &str, owner: &str) -> Place {
    (key.into(), index.into(), owner.into())
}

#[expect(clippy::disallowed_methods, reason = "the time to recover is measured and printed")]
fn now() -> Instant {
    Instant::now()
}

/// Injects a panic whenever a message of the owner `culprit` reaches this stage. Every tick counts as one of the culprit's, since
/// no other entry expires. Returns the time of the last panic.
fn plant(handle: &Handle, at: Stage) -> Arc<Mutex<Option<Instant>>> {
    let struck = Arc::new(Mutex::new(None));
    let strike = Arc::clone(&struck);
    handle.actors().lock.inject_panics(Box::new(move |stage, message| {
        let culprit = match message {
            Some(Message::Request { owner, .. } | Message::Acquire { owner, .. }) => {
                owner.as_bytes() == b"culprit"
            }
            Some(Message::Expire { .. }) => true,
            None
            | Some(
                Message::Renew { .. }
                | Message::Release { .. }
                | Message::ReleaseAll { .. }
                | Message::EndMore(_)
                | Message::Force { .. }
                | Message::Leave { .. }
                | Message::Gone(_)
                | Message::Hold(_)
                | Message::Yield(_)
                | Message::Drain,
            ) => false,
        };
        if stage == at && culprit {
            *strike.lock().unwrap_or_else(PoisonError::into_inner) = Some(now());
            panic!("planted in {stage:?}");
        }
    }));
    struck
}

/// Runs one client under load, with commands whose answers it can predict; returns the number of answers.
fn work(address: SocketAddr, name: &str, stop: &AtomicBool) -> u64 {
    let mut client = Client::connect(address).expect("connected");
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut asked = request(name, "a", name, (6000, 6000, 0));
        asked.extend(request(name, "b", name, (6000, 6000, 0)));
        asked.extend(lockserver::renew(name, "a", name));
        asked.extend(lockserver::find_owner(name, "b"));
        asked.extend(lockserver::release(name, "a", name));
        asked.extend(lockserver::release(name, "*", name));
        client.send(&asked).expect("connected");
        let mut expected = vec![0, 1, 0, 1, 1, u8::try_from(name.len()).expect("a small number")];
        expected.extend(name.as_bytes());
        expected.extend([0, 1, 0, 1]);
        let found = client.receive(expected.len()).expect("no request is lost");
        assert_eq!(found, expected, "{name}");
        rounds += 1;
    }
    assert_eq!(client.number(&request(name, "last", name, (6000, 0, 0))).expect("an answer"), 1);
    rounds * 6 + 1
}

/// Creates owners and contenders, and returns them.
fn load(address: SocketAddr) -> BTreeSet<Place> {
    let mut client = Client::connect(address).expect("connected");
    let mut there = BTreeSet::new();
    let numbers: Vec<usize> = (0..LOCKS).collect();
    for burst in numbers.chunks(BURST) {
        let mut asked = Vec::new();
        for number in burst {
            let (key, index) = (format!("held-{}", number / 100), number.to_string());
            for owner in ["alice", "bob"] {
                asked.extend(request(&key, &index, owner, (6000, 6000, 0)));
                there.insert(place(&key, &index, owner));
            }
        }
        client.send(&asked).expect("connected");
        let found = client.receive(burst.len() * 4).expect("answers");
        assert_eq!(found, [0, 1, 0, 2].repeat(burst.len()));
    }
    there
}

/// Causes one panic, and returns the time from the panic to the answer to the first request after it.
fn provoke(
    client: &mut Client,
    at: Stage,
    number: usize,
    struck: &Mutex<Option<Instant>>,
) -> Duration {
    let index = number.to_string();
    let key = format!("{at:?}");
    // A time to live of zero is over at the next command.
    let ttl = if at == Stage::Tick { 0 } else { 6000 };
    let mut asked = request(&key, &index, "culprit", (ttl, 0, 0));
    asked.extend(request(&key, &index, "next", (6000, 6000, 0)));
    client.send(&asked).expect("connected");
    let found = client.receive(4).expect("both are answered");
    let answered = now();
    // A panic in a tick fails no request: the culprit's request was granted, and its entry stays when the tick fails.
    let expected = if at == Stage::Tick { [0, 1, 0, 2] } else { [0, 0, 0, 1] };
    assert_eq!(found, expected, "only the culprit fails");
    let struck = struck.lock().unwrap_or_else(PoisonError::into_inner).take();
    answered - struck.expect("the panic went off")
}

fn there(handle: &Handle) -> BTreeSet<Place> {
    let entries = node::entries(handle);
    let bytes = |name: &Name| name.as_bytes().to_vec();
    let places =
        entries.iter().map(|entry| (bytes(&entry.key), bytes(&entry.index), bytes(&entry.owner)));
    places.collect()
}

/// Returns rules that allow this many restarts and rebuilds in a period.
fn within(restarts_max: u32, rebuilds_max: u32, period_ms: u64) -> Rules {
    let within = |restarts_max| Intensity { restarts_max, period_ms };
    Rules { restarts: within(restarts_max), rebuilds: within(rebuilds_max) }
}

fn durable(files: &TempDir, supervisor: Rules) -> (Node, SocketAddr) {
    served::open(Config {
        rules: actors::Rules { supervisor, ..actors::Rules::default() },
        lockserver: Some(served::listener()),
        ..Config::at(files.path())
    })
}

/// Causes the panics of each stage, one after the other, while the clients work.
#[expect(clippy::print_stdout, reason = "the times are of interest")]
fn provoke_all(handle: &Handle, address: SocketAddr, names: &[String]) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let clients: Vec<_> =
            names.iter().map(|name| threads.spawn(|| work(address, name, &stop))).collect();
        let mut client = Client::connect(address).expect("connected");
        for at in [Stage::Decide, Stage::Tick, Stage::Commit] {
            let struck = plant(handle, at);
            let mut times: Vec<Duration> =
                (0..PANICS).map(|number| provoke(&mut client, at, number, &struck)).collect();
            times.sort();
            let (median, longest) = (times.get(PANICS / 2), times.last());
            let [median, longest] = [median, longest].map(|time| time.expect("there were panics"));
            println!(
                "{at:?}: from panic to the next answer {median:?} at the median, {longest:?} at most"
            );
        }
        stop.store(true, Ordering::Relaxed);
        let answered: u64 =
            clients.into_iter().map(|client| client.join().expect("every answer was right")).sum();
        println!("{answered} other commands were answered meanwhile");
    });
}

/// Asserts that the node reports the earlier panics; returns the digest of the locks.
fn accounts_for_them(handle: &Handle) -> Option<Digest> {
    let status = node::wait(handle.status()).expect("the node runs");
    let actors = status.actors.iter();
    let (locks, others): (Vec<_>, Vec<_>) = actors.partition(|it| it.status.name == "lock");
    let [lock] = locks.as_slice() else { panic!("expected one lock actor, not {locks:?}") };
    assert_eq!(others.len() + 1, actors::names().len(), "every actor is listed");
    let none = |it: &&ActorReport| it.panics.restarts == 0 && it.panics.rebuilds == 0;
    assert!(others.iter().all(none), "nothing was planted there: {others:?}");
    let panics = PANICS as u64;
    let counted = (lock.panics.restarts, lock.panics.rebuilds);
    assert_eq!(counted, (2 * panics, panics));
    let quarantined = &lock.status.quarantined;
    assert_eq!(quarantined.len(), PANICS);
    let of_tick = |report: &Report| report.stage == Stage::Tick && report.item.is_some();
    assert!(quarantined.iter().all(of_tick), "{quarantined:?}");
    let planted = |cause: &Cause| cause.cause.starts_with("planted in");
    assert!(lock.panics.causes.iter().all(planted));
    lock.status.digest
}

#[test]
fn exactly_the_culprit_fails() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let often = within(10_000, 10_000, 10_000);
    let (node, address) = durable(&files, often);
    let handle = node.handle();
    let mut expected = load(address);
    let names: Vec<String> = (0..CLIENTS).map(|number| format!("client-{number}")).collect();
    provoke_all(&handle, address, &names);
    for name in &names {
        expected.insert(place(name, "last", name));
    }
    for number in 0..PANICS {
        let index = number.to_string();
        for stage in ["Decide", "Tick", "Commit"] {
            expected.insert(place(stage, &index, "next"));
        }
        expected.insert(place("Tick", &index, "culprit"));
    }
    assert!(there(&handle) == expected, "the state is as the clients expect");

    let digest = accounts_for_them(&handle);
    node.stop().expect("a clean stop");
    let past = past::read::<LockMachine>(files.path());
    assert_eq!(digest, Some(past.machine().digest()), "a replay gives the same state");
    assert_eq!(
        past.entries.iter().filter(|entry| culprit_of(&entry.message)).count(),
        PANICS,
        "only the items of the ticks"
    );
}

/// Injects one panic at this stage, and returns a flag that is set when it happens. For a panic at `Resume`, a panic in commit is injected
/// first, because only the rebuild after it reaches that stage.
fn plant_once(handle: &Handle, at: Stage) -> Arc<AtomicBool> {
    let struck = Arc::new(AtomicBool::new(false));
    let strike = Arc::clone(&struck);
    let spent = AtomicBool::new(false);
    handle.actors().lock.inject_panics(Box::new(move |stage, _| {
        let first = at == Stage::Resume && stage == Stage::Commit;
        let strikes = first && !spent.swap(true, Ordering::Relaxed)
            || stage == at && !strike.swap(true, Ordering::Relaxed);
        assert!(!strikes, "planted in {stage:?}");
    }));
    struck
}

#[test]
fn a_panic_of_which_no_message_is_the_culprit_takes_nothing_along() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let (node, _) = durable(&files, within(100, 100, 3_600_000));
    let handle = node.handle();
    let locks = handle.locks();
    let entry = |key: &str, owner: &str| Entry::new(key, owner).expect("names are short");
    let brief = Terms { ttl: 0, ..Terms::default() };
    for at in [Stage::Keeping, Stage::Due, Stage::Watch, Stage::Resume] {
        let [held, over, next] = ["held", "over", "next"].map(|what| format!("{what} {at:?}"));
        let held = entry(&held, "alice");
        let token = node::wait(locks.acquire(&held, Terms::default())).expect("the lock is free");
        let struck = plant_once(&handle, at);
        // This request may be the one that fails. After it, a wait begins, and a tick must act.
        drop(node::wait(locks.acquire(&entry(&over, "alice"), brief)));
        {
            let mut lost = pin!(locks.lost(&held, token));
            let mut context = Context::from_waker(Waker::noop());
            // If the wait itself panicked, the answer may already have arrived.
            let is_pending = lost.as_mut().poll(&mut context).is_pending();
            assert!(is_pending || at == Stage::Watch, "{at:?}");
            let got = node::wait(locks.acquire(&entry(&next, "alice"), Terms::default()));
            got.expect("the next request is served");
        }
        assert!(struck.load(Ordering::Relaxed), "nothing panicked in {at:?}");
        let renewed = node::wait(locks.renew(&held, Some(token)));
        renewed.expect("locks that were held before are held");
    }
    let status = node::wait(handle.status()).expect("the node runs");
    let lock = status.actors.iter().find(|actor| actor.status.name == "lock");
    let digest = lock.expect("it is one of them").status.digest;
    node.stop().expect("a clean stop");
    let past = past::read::<LockMachine>(files.path());
    assert_eq!(digest, Some(past.machine().digest()));
}

/// Blocks the core thread while a job is added to this queue, and in each tick of the QueueActor, which it reports first.
#[expect(clippy::disallowed_methods, reason = "a thread is blocked by sleeping")]
fn block_the_core(handle: &Handle, slow: &'static str) -> Receiver<()> {
    let (blocked, is_blocked) = mpsc::channel();
    handle.actors().queue.inject_panics(Box::new(move |stage, message| {
        let is_slow = matches!(message, Some(queue::Message::Put(put)) if put.queue == name(slow));
        if stage == Stage::Tick {
            let _ = blocked.send(());
        } else if stage != Stage::Decide || !is_slow {
            return;
        }
        std::thread::sleep(Duration::from_millis(200));
    }));
    is_blocked
}

/// Lets the timers of two actors end while the core thread is blocked, with a request between the two that makes one of the actors panic.
#[expect(
    clippy::disallowed_methods,
    reason = "a blocked thread produces the order of timers under test"
)]
fn panic_before_a_timer() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let (node, _) = durable(&files, within(100, 100, 3_600_000));
    let handle = node.handle();
    handle.actors().lock.inject_panics(Box::new(|stage, message| {
        assert!(stage != Stage::Commit || !message.is_some_and(culprit_of), "planted");
    }));
    let is_blocked = block_the_core(&handle, "slow");
    let (locks, queues) = (handle.locks(), handle.queues());
    let put = |queue: &str| Put::new(name(queue), Body::new(b"a job".as_slice()));
    let late = Put { delay_ms: 900, ..put("late") };
    node::wait(queues.put(late)).expect("the node adds it");
    let brief = Terms { ttl: 1, ..Terms::default() };
    let held = Entry::new("held", "alice").expect("names are short");
    node::wait(locks.acquire(&held, brief)).expect("the lock is free");
    std::thread::scope(|threads| {
        std::thread::sleep(Duration::from_millis(850));
        threads.spawn(|| node::wait(queues.put(put("slow"))));
        is_blocked.recv().expect("the delay ends");
        let culprit = Entry::new("other", "culprit").expect("names are short");
        let failed = node::wait(locks.acquire(&culprit, Terms::default()));
        failed.expect_err("it panics");
    });
    let served = Entry::new("other", "alice").expect("names are short");
    node::wait(locks.acquire(&served, Terms::default())).expect("the actor is running again");
    node.stop().expect("a clean stop");
}

#[test]
fn a_timer_that_ends_behind_a_panic_waits_for_the_rebuild() {
    // About one try in three has the timers in this order.
    std::thread::scope(|threads| {
        for _ in 0..12 {
            threads.spawn(panic_before_a_timer);
        }
    });
}

fn name(queue: &str) -> QueueName {
    queue.try_into().expect("a valid name")
}

fn culprit_of(message: &Message) -> bool {
    matches!(message, Message::Request { owner, .. } | Message::Acquire { owner, .. } if owner.as_bytes() == b"culprit")
}

/// Asserts that every kind of request soon ends with an error, and that nothing waits forever.
fn halted(node: &Node, mut clients: Vec<Client>, words: &str) {
    let handle = node.handle();
    let reason = node::wait(node.halted());
    assert!(reason.to_string().contains(words), "{reason}");
    let asked = vec![Item::<LockMachine>::Query(Query::Counts)];
    assert!(
        node::wait(handle.locks().batch(asked)).is_err(),
        "a handle reports that the node stopped"
    );
    assert!(
        node::wait(handle.status()).is_err()
            || node::wait(handle.status()).is_ok_and(|status| status.halted.is_some())
    );
    assert!(node::wait(handle.drain(Drain::All)).is_err(), "new waits are refused");
    for client in &mut clients {
        // This fails if the server has already closed the connection.
        drop(client.send(&lockserver::find_owner("k", "i")));
        match client.receive_all() {
            Ok(rest) => assert!(rest.is_empty(), "requests are no longer answered"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "it ends"),
        }
    }
}

#[test]
fn too_many_panics_halt_the_node() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let seldom = within(3, 1, 3_600_000);
    let (node, address) = durable(&files, seldom);
    let handle = node.handle();
    let mut client = Client::connect(address).expect("connected");
    let mut idle = Client::connect(address).expect("connected");
    assert_eq!(idle.number(&request("k", "i", "alice", (6000, 60, 0))).expect("an answer"), 1);
    let struck = plant(&handle, Stage::Decide);
    for number in 0..3 {
        provoke(&mut client, Stage::Decide, number, &struck);
    }
    std::thread::scope(|threads| {
        let draining = handle.clone();
        let waits = threads.spawn(move || node::wait(draining.drain(Drain::All)));
        while there_is_room(&mut idle) {}
        let culprit = request("one", "more", "culprit", (6000, 60, 0));
        client.send(&culprit).expect("connected");
        halted(&node, vec![client, idle], "lock panics too often");
        assert!(waits.join().expect("no panic").is_err(), "waiting clients are answered");
    });
    assert!(matches!(node.stop(), Err(Halt::Panics(_))));
    let (node, address) = durable(&files, Rules::default());
    let mut client = Client::connect(address).expect("connected");
    assert_eq!(
        client.owner("k", "i").expect("an answer"),
        b"alice",
        "nothing acknowledged is lost"
    );
    node.stop().expect("a clean stop");
}

/// Returns whether new connections are still accepted, which ends when a drain is in force.
fn there_is_room(client: &mut Client) -> bool {
    client.number(&request("probe", "", "p", (0, 0, 0))).expect("an answer") == 1
}

#[test]
fn a_commit_that_panics_halts_a_node_without_files() {
    let (node, address) =
        served::open(Config { lockserver: Some(served::listener()), ..Config::in_memory() });
    drop(plant(&node.handle(), Stage::Commit));
    let mut client = Client::connect(address).expect("connected");
    let idle = Client::connect(address).expect("connected");
    client.send(&request("k", "i", "culprit", (60, 60, 0))).expect("connected");
    halted(&node, vec![client, idle], "lost its state to a panic and keeps no journal");
    assert!(matches!(node.stop(), Err(Halt::Spent(_))));
}
