//! The clients of the benchmark `page`: a browser that loads views, browsers that are left open, and a client that only takes
//! and releases a lock.

use crate::codec::{Answer, Protocol, Verb, name};
use crate::failure::Failure;
use crate::figures::Latencies;
use crate::load::now;
use crate::question::{exchange, on_socket, read_more, rest, say};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How long to wait for an answer of the coordinator, and for it to serve pages after a restart.
const PATIENCE: Duration = Duration::from_mins(1);

/// The delay from a change to the next load, as in `page.js`.
const SOON: Duration = Duration::from_millis(100);

/// The time between two loads if nothing changes, as in `page.js`.
const IDLE: Duration = Duration::from_secs(10);

/// The minimum time between two loads, as in `page.js`.
const LEAST: Duration = Duration::from_secs(1);

/// Loads a page as a browser does, and returns its HTML.
pub(crate) fn load(data: &Path, path: &str) -> Result<String, Failure> {
    let loaded = on_socket(data, PATIENCE).and_then(|mut stream| exchange(&mut stream, path, None));
    match loaded.map_err(Failure::to(format!("load {path}")))? {
        (200, page) => Ok(page),
        (status, page) => Err(Failure::new(format!("{path}: {status} {page}"))),
    }
}

/// Loads a page repeatedly until it is no longer marked as incomplete, and returns its HTML.
pub(crate) fn load_whole(data: &Path, path: &str) -> Result<String, Failure> {
    loop {
        let page = load(data, path)?;
        if !page.contains("data-again") {
            return Ok(page);
        }
    }
}

/// Returns the number in the first attribute of this name; an error if there is none.
pub(crate) fn attribute(page: &str, name: &str) -> Result<u64, Failure> {
    let begin = format!(" {name}=\"");
    let value = page.split_once(&begin).and_then(|(_, rest)| rest.split('"').next());
    let number = value.and_then(|value| value.parse().ok());
    number.ok_or_else(|| Failure::new(format!("the page has no numeric attribute {name:?}")))
}

/// Pages that are left open, each by a thread that does what a browser does.
pub(crate) struct Open {
    over: Arc<AtomicBool>,
    browsers: Vec<JoinHandle<Result<u64, Failure>>>,
}

impl Open {
    /// Opens `count` pages, cycling through `views`.
    pub(crate) fn pages(data: &Path, views: &[&'static str], count: u32) -> Result<Self, Failure> {
        let mut open = Self { over: Arc::default(), browsers: Vec::new() };
        for view in views.iter().cycle().copied().take(count as usize) {
            let (data, over) = (data.to_owned(), Arc::clone(&open.over));
            let browser = Builder::new().name("sexton-bench-page".to_owned());
            let browser = browser.spawn(move || stay_open(&data, view, &over));
            open.browsers.push(browser.map_err(Failure::to("start a thread"))?);
        }
        Ok(open)
    }

    /// Closes all pages, and returns how often they were loaded in total.
    pub(crate) fn close(self) -> Result<u64, Failure> {
        self.over.store(true, Ordering::Relaxed);
        let mut loads = 0;
        for browser in self.browsers {
            let loaded = browser.join();
            loads += loaded.map_err(|_| Failure::new("a browser panicked"))??;
        }
        Ok(loads)
    }
}

/// Keeps a page up to date as its script does until `over` is set, and returns how often it was loaded.
fn stay_open(data: &Path, view: &str, over: &AtomicBool) -> Result<u64, Failure> {
    let cannot = || Failure::to("receive page changes");
    let mut loads = 1;
    load(data, view)?;
    let mut loaded = now();
    let mut stream = on_socket(data, PATIENCE).map_err(cannot())?;
    say(&mut stream, "/page/changes", None).map_err(cannot())?;
    let mut due = loaded + IDLE;
    let mut bytes = [0; 4096];
    while !over.load(Ordering::Relaxed) {
        let left = due.saturating_duration_since(now());
        if left.is_zero() {
            load(data, view)?;
            loads += 1;
            loaded = now();
            due = loaded + IDLE;
            continue;
        }
        stream.set_read_timeout(Some(left.min(LEAST))).map_err(cannot())?;
        match stream.read(&mut bytes) {
            Ok(0) => {
                return Err(Failure::new("the server closed the connection for page changes"));
            }
            Ok(read) => {
                let told = bytes.get(..read).unwrap_or(&[]);
                if told.windows(7).any(|word| word == b"changed") {
                    due = due.min((now() + SOON).max(loaded + LEAST));
                }
            }
            Err(error) if is_silence(&error) => {}
            Err(error) => return Err(cannot()(error)),
        }
    }
    Ok(loads)
}

fn is_silence(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
    kinds.contains(&error.kind()) || error.kind() == io::ErrorKind::Interrupted
}

/// A client that takes and releases locks that no other client requests, one after another, over LockServer's protocol.
pub(crate) struct LockClient {
    stream: TcpStream,
    cycles: u32,
}

impl LockClient {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self, Failure> {
        let cannot = || Failure::to("connect to the LockServer listener");
        let mut stream = TcpStream::connect(address).map_err(cannot())?;
        stream.set_nodelay(true).map_err(cannot())?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(cannot())?;
        let mut greeting = vec![0; Protocol::Lockserver.greeting().len()];
        stream.read_exact(&mut greeting).map_err(cannot())?;
        Ok(Self { stream, cycles: 0 })
    }

    /// Takes and releases the next lock, and returns how long the answer to each of the two requests took.
    fn cycle(&mut self) -> Result<[Duration; 2], Failure> {
        self.cycles += 1;
        let expected = [Answer::Granted, Answer::Released(1)];
        let mut took = [Duration::ZERO; 2];
        for (nth, asked) in [Verb::Acquire, Verb::Release].into_iter().enumerate() {
            let began = now();
            let answer = self.ask(asked)?;
            if Some(&answer) != expected.get(nth) {
                return Err(Failure::new(format!("{asked:?} was answered with {answer:?}")));
            }
            if let Some(took) = took.get_mut(nth) {
                *took = now() - began;
            }
        }
        Ok(took)
    }

    fn ask(&mut self, asked: Verb) -> Result<Answer, Failure> {
        let cannot = || Failure::to("request a lock");
        let (key, owner) = (name(1, self.cycles), name(2, self.cycles));
        let (mut output, mut input) = (Vec::new(), Vec::new());
        Protocol::Lockserver.ask(asked, &key, &owner, &mut output);
        self.stream.write_all(&output).map_err(cannot())?;
        loop {
            let heard = Protocol::Lockserver.receive(asked, &input);
            if let Some((answer, _)) = heard.map_err(|it| Failure::new(it.to_string()))? {
                return Ok(answer);
            }
            read_more(&mut self.stream, &mut input).map_err(cannot())?;
        }
    }
}

/// How long another client waited for answers while some work was done.
pub(crate) struct Beside {
    pub(crate) longest: Duration,
    pub(crate) latencies: Latencies,
}

/// Runs `work` while another client takes and releases a lock every millisecond, and returns the result of `work` and the client's waits.
pub(crate) fn beside_locks<T>(
    address: SocketAddr,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<(T, Beside), Failure> {
    let over = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&over);
    let mut client = LockClient::connect(address)?;
    let asking = Builder::new().name("sexton-bench-lock".to_owned());
    let asking = asking.spawn(move || {
        let mut beside = Beside { longest: Duration::ZERO, latencies: Latencies::default() };
        while !until.load(Ordering::Relaxed) {
            for took in client.cycle()? {
                beside.longest = beside.longest.max(took);
                beside.latencies.note(took);
            }
            rest(Duration::from_millis(1));
        }
        Ok::<_, Failure>(beside)
    });
    let asking = asking.map_err(Failure::to("start a thread"))?;
    let done = work();
    over.store(true, Ordering::Relaxed);
    let beside = asking.join();
    let beside = beside.map_err(|_| Failure::new("the lock client panicked"))??;
    Ok((done?, beside))
}

/// Waits until a restarted coordinator serves pages. Returns the last error if it does not within [`PATIENCE`].
pub(crate) fn await_pages(data: &Path) -> Result<(), Failure> {
    let patience: Instant = now() + PATIENCE;
    let data: PathBuf = data.to_owned();
    loop {
        match load(&data, "/page/tasks") {
            Ok(_) => return Ok(()),
            Err(error) if now() > patience => return Err(error),
            Err(_) => rest(Duration::from_millis(5)),
        }
    }
}
