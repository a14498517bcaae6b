//! The far end of a connection: starts an attempt or attaches to an existing one, then relays messages between the connection and the
//! process that supervises the attempt. It exits when the connection is closed; the attempt keeps running.

use crate::client::rest;
use crate::report::Failure;
use crate::wrapper::descendants;
use crate::wrapper::pipe;
use crate::wrapper::place::{self, End, Place};
use crate::wrapper::protocol::{Exit, FarMessage, Order, Start, VERSION, line};
use sexton::kernel::socket;
use std::io::{self, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The time between two tries to connect to the process that supervises an attempt.
const LOOK: Duration = Duration::from_millis(20);
/// The maximum number of such tries.
const LOOKS: u32 = 500;

/// Serves one connection, over the standard streams.
pub(super) fn run(state: Option<PathBuf>) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::unreachable(format!("wrapper: {error}"));
    let base = place::base(state).map_err(failed)?;
    say(&FarMessage::Hello { version: VERSION }).map_err(failed)?;
    let mut input = BufReader::new(io::stdin());
    let served = match pipe::next(&mut input) {
        Some(Order::Start(start)) => begin(&base, start, input),
        Some(Order::Attach { attempt, from }) => attach(&base, (&attempt, from), None, input),
        Some(Order::Ping | Order::Stop | Order::Answer { .. } | Order::Acknowledge) | None => {
            return Err(Failure::usage(
                "wrapper: expected a coordinator to name an attempt, as JSON on standard input",
            ));
        }
    };
    served.map_err(failed)
}

fn say(word: &FarMessage) -> io::Result<()> {
    let mut output = io::stdout();
    output.write_all(line(word).as_bytes())?;
    output.flush()
}

/// Begins an attempt, unless it has begun before, and attaches to it.
fn begin(base: &Path, start: Start, input: BufReader<io::Stdin>) -> io::Result<()> {
    place::clean(base);
    let place = Place::of(base, &start.attempt)?;
    if place.is_there() {
        return attach(base, (&start.attempt, [0, 0]), None, input);
    }
    let mut keeper = Command::new(std::env::current_exe()?)
        .args(["wrapper", "keep", "--base"])
        .arg(base)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut handed = keeper.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let attempt = start.attempt.clone();
    handed.write_all(line(&Order::Start(start)).as_bytes())?;
    drop(handed);
    attach(base, (&attempt, [0, 0]), Some(keeper), input)
}

/// Attaches to an attempt that has begun; if no process supervises it, determines how it ended.
fn attach(
    base: &Path,
    (attempt, from): (&str, [u64; 2]),
    mut keeper: Option<Child>,
    input: BufReader<io::Stdin>,
) -> io::Result<()> {
    let place = Place::of(base, attempt)?;
    for _ in 0..LOOKS {
        if let Ok(control) = socket::connect_to_own(&place.dir.join("control"), LOOK) {
            let attached = Order::Attach { attempt: attempt.to_owned(), from };
            return bridge(control, &attached, input);
        }
        let is_beginning = match &mut keeper {
            Some(keeper) => keeper.try_wait()?.is_none(),
            None => false,
        };
        if !is_beginning && let Some(end) = settled(&place, attempt)? {
            return send_end(&place, end, input);
        }
        rest(LOOK);
    }
    Err(io::Error::other("the process that supervises the attempt does not answer"))
}

/// If no process supervises an attempt, kills what is left of it, and determines and records how it ended. Otherwise, returns `None`.
fn settled(place: &Place, attempt: &str) -> io::Result<Option<End>> {
    let never = || End { exit: Exit::Failed, words: "it never began".to_owned() };
    if !place.is_there() {
        // Record the end, so that a later request to begin the attempt finds that it has ended.
        let draft = place.draft()?;
        draft.set_end(&never())?;
        return Ok(place.become_of(&draft)?.then(never));
    }
    let Some(_lock) = place.lock()? else {
        return Ok(None);
    };
    if let Some(end) = place.end() {
        return Ok(Some(end));
    }
    let rebooted = place.is_of_another_boot();
    let words = if rebooted {
        "its machine was rebooted"
    } else {
        // A process that is created during one search is found by a later one.
        let mut quiet = 0;
        while quiet < 3 {
            let is_quiet = descendants::kill_left(attempt)? == 0;
            quiet = if is_quiet { quiet + 1 } else { 0 };
            rest(LOOK);
        }
        "the process that supervised it there was killed"
    };
    let end = End { exit: Exit::Lost, words: words.to_owned() };
    place.set_end(&end)?;
    Ok(Some(end))
}

/// Reports the end of an attempt, and forgets the attempt once the report is acknowledged.
fn send_end(place: &Place, end: End, mut input: BufReader<io::Stdin>) -> io::Result<()> {
    say(&FarMessage::Ended { exit: end.exit, words: end.words })?;
    while let Some(order) = pipe::next::<Order>(&mut input) {
        match order {
            Order::Acknowledge => {
                place.remove();
                return Ok(());
            }
            Order::Ping => say(&FarMessage::Pong)?,
            Order::Start(_) | Order::Attach { .. } | Order::Stop | Order::Answer { .. } => {}
        }
    }
    Ok(())
}

/// Forwards messages until either side closes.
fn bridge(control: UnixStream, first: &Order, input: BufReader<io::Stdin>) -> io::Result<()> {
    let mut to = control.try_clone()?;
    to.write_all(line(first).as_bytes())?;
    pipe::begin("input", move || {
        let mut input = input;
        // Even after an error, the supervising process must see that the connection is closed.
        drop(copy(&mut input, &mut to));
        drop(to.shutdown(std::net::Shutdown::Both));
    });
    let mut from = control;
    copy(&mut from, &mut io::stdout())
}

/// Copies bytes as they arrive.
fn copy(from: &mut impl io::Read, to: &mut impl io::Write) -> io::Result<()> {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let count = from.read(&mut bytes)?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(bytes.get(..count).unwrap_or_default())?;
        to.flush()?;
    }
}
