//! The real program, killed at random moments while third-party clients share jobs: greenstalk and jackd, unchanged, one
//! process for each connection (`tests/clients/crash.*`).
//!
//! Each client logs every request before it sends it and every reply after it arrives. After a kill, the lines of all logs
//! are replayed in order of time into a [`Book`], which `queues/` also uses for its shared tubes. It asserts that an
//! acknowledged put exists exactly once until its delete, that a deleted job never returns, that no job is reserved by two
//! connections at once, and that no job id is issued twice. `support/lives.rs` checks journal and snapshots.
//! `SEXTON_CRASH_KILLS=500 cargo test --test crash clients` is the long campaign.

use crate::beanstalk::Client;
use crate::client_programs;
use crate::lives::{self, Counts, Lives};
use crate::patience::until;
use crate::queues::book::{Book, Pages};
use crate::queues::{self, QUEUES};
use sexton::actors::queue::QueueMachine;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

/// Connections of each program.
const CONNECTIONS: u64 = 2;

/// Replies that each program must have had at least once in each directory.
const REPLIES: [&str; 4] = ["inserted", "reserved", "released", "deleted"];

/// The number of lives (runs of the server, each ended by a kill), beyond two per kill, within which each program must have had all of
/// these replies.
const LIVES_MORE: u64 = 20;

/// A third-party client.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Program {
    /// greenstalk, with the Python interpreter that it is installed for.
    Greenstalk(String),
    /// jackd, with the directory of its package.
    Jackd(String),
}

/// One connection of one life.
struct Worker {
    number: u64,
    program: Program,
    log: PathBuf,
}

/// A client's process. Killed when dropped.
struct Process(Child);

/// A line of a client's log.
struct Event {
    /// Nanoseconds of the machine's monotonic clock, before a request or after a reply.
    at: u64,
    number: u64,
    words: Vec<String>,
}

/// The campaign on one data directory, over many lives.
struct Campaign {
    lives: Lives<QueueMachine>,
    programs: Vec<Program>,
    logs: TempDir,
    book: Book,
    seed: u64,
    life: u64,
    /// The words that each program has logged.
    logged: BTreeSet<(Program, String)>,
}

impl Program {
    /// Returns the installed clients; reports the others as skipped.
    fn installed() -> Vec<Self> {
        let greenstalk = client_programs::greenstalk("crashes with greenstalk as client");
        let jackd = client_programs::jackd("crashes with jackd as client");
        let both = [greenstalk.map(Self::Greenstalk), jackd.map(Self::Jackd)];
        both.into_iter().flatten().collect()
    }

    fn start(&self, address: SocketAddr, log: &Path, (seed, number): (u64, u64)) -> Process {
        let clients = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/clients");
        let mut command = match self {
            Self::Greenstalk(python) => {
                let mut command = Command::new(python);
                command.arg(clients.join("crash.py"));
                command
            }
            Self::Jackd(_) => {
                let mut command = Command::new("node");
                command.arg(clients.join("crash.js"));
                command
            }
        };
        let [ip, port] = [address.ip().to_string(), address.port().to_string()];
        command.args([ip, port]).arg(log);
        command.args([seed, number].map(|number| number.to_string()));
        if let Self::Jackd(package) = self {
            command.arg(package);
        }
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        Process(command.spawn().expect("the command starts"))
    }
}

impl Process {
    fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("our child")
    }

    /// Returns the standard error of the process, once it has ended.
    fn errors(&mut self) -> String {
        let mut errors = String::new();
        let stderr = self.0.stderr.as_mut().expect("a pipe");
        stderr.read_to_string(&mut errors).expect("UTF-8");
        errors
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may already have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Worker {
    /// Runs the client until its server ends, counting replies.
    fn work(&self, address: SocketAddr, seed: u64, answered: &AtomicU64) {
        let file = std::fs::File::create(&self.log).expect("a writable file");
        drop(file);
        let mut process = self.program.start(address, &self.log, (seed, self.number));
        let mut lines = Lines::of(&self.log);
        let status = until("the client ends with its server", || {
            let ended = process.ended();
            let replies = lines.by_ref().filter(|line| is_reply(line));
            answered.fetch_add(replies.count() as u64, Ordering::Relaxed);
            ended
        });
        let errors = process.errors();
        assert!(status.success(), "{:?}, connection {}: {errors}", self.program, self.number);
    }

    fn events(&self) -> impl Iterator<Item = Event> {
        let number = self.number;
        Lines::of(&self.log).map(move |line| {
            let mut words = line.split(' ').map(str::to_owned);
            let at = words.next().and_then(|at| at.parse().ok());
            Event { at: at.expect("a line begins with its time"), number, words: words.collect() }
        })
    }
}

/// Returns whether a line is about a reply rather than a request.
fn is_reply(line: &str) -> bool {
    let word = line.split(' ').nth(1).unwrap_or_default();
    word == "timed-out" || REPLIES.contains(&word)
}

/// The complete lines of a file that is still being written.
struct Lines {
    file: BufReader<std::fs::File>,
    line: String,
}

impl Lines {
    fn of(path: &Path) -> Self {
        let file = std::fs::File::open(path).expect("it was made before");
        Self { file: BufReader::new(file), line: String::new() }
    }
}

impl Iterator for Lines {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let read = self.file.read_line(&mut self.line);
        read.expect("UTF-8");
        let whole = self.line.strip_suffix('\n')?.to_owned();
        self.line.clear();
        Some(whole)
    }
}

/// Enters one line into the book. `passing` has the jobs that the connection has reserved since its last reply that implies a sync.
fn enter(event: &Event, passing: &mut Vec<u64>, pages: &mut Pages) {
    let words: Vec<&str> = event.words.iter().map(String::as_str).collect();
    let id = words.get(1).and_then(|id| id.parse().ok());
    let id = || -> u64 { id.expect("a job id") };
    match *words {
        ["putting", body] => pages.put(body.as_bytes()),
        ["inserted", _, body] => {
            pages.inserted(id());
            pages.known_or_gone(id(), body.as_bytes());
        }
        ["reserving"] => pages.reserving += 1,
        ["timed-out"] => pages.reserving -= 1,
        ["reserved", _, body] => {
            pages.reserving -= 1;
            pages.reserved(id(), body.as_bytes(), event.number);
            passing.push(id());
        }
        ["deleting", _] => pages.ending(id()),
        ["deleted", _] => pages.deleted(id()),
        ["releasing", _] => pages.parting(id()).releases.most += 1,
        ["released", _] => pages.released(id()),
        ["parting", _] => drop(pages.parting(id())),
        _ => panic!("an unknown line: {words:?}"),
    }
    if matches!(words.first(), Some(&("inserted" | "deleted" | "released"))) {
        pages.reserves_kept(passing.drain(..));
    }
}

impl Campaign {
    fn new(programs: &[Program], fsync: &'static str, seed: u64) -> Self {
        Self {
            lives: Lives::new(QUEUES, fsync, seed),
            programs: programs.to_vec(),
            logs: tempfile::tempdir().expect("a temporary directory"),
            book: Book::default(),
            seed,
            life: 0,
            logged: BTreeSet::new(),
        }
    }

    /// Returns the connections of this life, of each program in turn.
    fn workers(&self) -> Vec<Worker> {
        let numbers = 0..CONNECTIONS * self.programs.len() as u64;
        let programs = self.programs.iter().cycle().cloned();
        let worker = |(number, program)| Worker {
            number,
            program,
            log: self.logs.path().join(format!("{}-{number}", self.life)),
        };
        numbers.zip(programs).map(worker).collect()
    }

    /// Runs one life: starts the program, compares its jobs with the book, lets the clients work, and kills it.
    fn round(&mut self) {
        self.life += 1;
        let daemon = self.lives.begin();
        self.reckon(daemon.beanstalk());
        let address = daemon.beanstalk();
        // Bodies are unique over all lives.
        let seed = self.seed * 1000 + self.life;
        let workers = self.workers();
        self.lives.end(daemon, &workers, |worker, answered| {
            worker.work(address, seed, answered);
        });
        let events = workers.iter().flat_map(Worker::events).collect();
        self.enter(&workers, events);
    }

    /// Enters the logs of one life into the book, in order of time.
    fn enter(&mut self, workers: &[Worker], mut events: Vec<Event>) {
        // The sort is stable: lines of one client keep their order.
        events.sort_by_key(|event| event.at);
        let mut passing = vec![Vec::new(); workers.len()];
        for event in &events {
            let at = usize::try_from(event.number).expect("a small number");
            let passing = passing.get_mut(at).expect("there is this one");
            enter(event, passing, &mut self.book.open());
            let worker = workers.get(at).expect("there is this one");
            let word = event.words.first().expect("a line has words").clone();
            self.logged.insert((worker.program.clone(), word));
        }
    }

    /// Compares the jobs of a program that has just started with the book.
    fn reckon(&self, address: SocketAddr) {
        let mut client = Client::connect(address).expect("connected");
        let found = queues::found(&self.lives, &mut client);
        self.book.open().reckon(&found);
    }

    /// Returns whether each program has had each kind of reply.
    fn is_covered(&self) -> bool {
        let logged = |program: &Program, word: &str| {
            let pair = (program.clone(), word.to_owned());
            self.logged.contains(&pair)
        };
        let all = |program| REPLIES.iter().all(|word| logged(program, word));
        self.programs.iter().all(all)
    }
}

/// Kills the program this many times, over as many directories as that takes. Returns `None` if no client is installed.
fn campaign(fsync: &'static str, kills: u64) -> Option<Counts> {
    let programs = Program::installed();
    if programs.is_empty() {
        return None;
    }
    let counts = lives::campaign(kills, |seed, enough| {
        let mut campaign = Campaign::new(&programs, fsync, seed);
        while campaign.lives.counts.kills < enough || !campaign.is_covered() {
            let logged = &campaign.logged;
            assert!(campaign.life < enough * 2 + LIVES_MORE, "only {logged:?}");
            campaign.round();
        }
        let daemon = campaign.lives.begin();
        campaign.reckon(daemon.beanstalk());
        daemon.kill();
        campaign.lives.reckon();
        campaign.lives.compare_again();
        campaign.lives.counts
    });
    Some(counts)
}

#[test]
fn killed_with_fsync_always_third_party_clients_lose_nothing_acknowledged() {
    if let Some(counts) = campaign("always", lives::kills(4, 8)) {
        println!("third-party clients, fsync always: {counts}");
    }
}

#[test]
fn killed_with_fsync_at_intervals_third_party_clients_lose_nothing_acknowledged() {
    if let Some(counts) = campaign("interval:50", lives::kills(2, 8)) {
        println!("third-party clients, fsync interval:50: {counts}");
    }
}

#[test]
fn killed_without_fsync_third_party_clients_lose_nothing_acknowledged() {
    if let Some(counts) = campaign("never", lives::kills(2, 8)) {
        println!("third-party clients, fsync never: {counts}");
    }
}
