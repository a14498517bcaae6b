//! Sets up logging to standard error. A log line is an event: a level, a message, and fields with stable names.
//!
//! A server must not stop because nobody reads its log, so lines are handed to a thread of their own, and dropped when too many wait. The
//! same goes for whatever else a server writes to its standard streams.

mod output;

use crate::log::output::Output;
use crate::report::{self, Failure};
use crate::settings::{LogFormat, Settings};
use sexton_wire::lockserver::DEBUG_TARGET;
use std::cell::Cell;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry, reload};

/// How long the end of the program waits for the reader of each of its two standard streams: for both, at most a second.
const FLUSH_MAX: Duration = Duration::from_millis(500);
/// The same for a panic, which may be about to abort the program.
const FLUSH_AT_PANIC_MAX: Duration = Duration::from_millis(100);

static ERRORS: Output = Output::new();
static ANSWERS: Output = Output::new();
/// Whether what goes to standard error goes through [`ERRORS`].
static IS_LOGGING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this is the thread that writes the log. What it logs itself is written at once.
    static IS_WRITER: Cell<bool> = const { Cell::new(false) };
}

/// Starts logging to standard error, with the filter and format of `settings`.
///
/// # Errors
/// Fails if no thread can be started.
pub(crate) fn start(settings: &Settings) -> Result<Filter, Failure> {
    let filter = start_with(filter(settings), settings.log_format);
    start_writing()?;
    Ok(filter)
}

/// The filter in force, which can be changed later.
pub(crate) struct Filter(reload::Handle<Targets, Registry>);

impl Filter {
    /// Replaces the filter with that of `settings`.
    pub(crate) fn change(&self, settings: &Settings) {
        // Fails only if the subscriber was dropped, but it lives as long as the process.
        drop(self.0.reload(filter(settings)));
    }
}

fn filter(settings: &Settings) -> Targets {
    let wire = if settings.debug { LevelFilter::DEBUG } else { LevelFilter::OFF };
    settings.log.clone().with_target(DEBUG_TARGET, wire)
}

/// Starts logging with `filter` and `format`. Lines wait until [`start_writing`] is called, or the program ends.
pub(crate) fn start_with(filter: Targets, format: LogFormat) -> Filter {
    let (filter, changing) = reload::Layer::new(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(|| Line);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(report::colours()).with_target(false).boxed(),
        LogFormat::Json => {
            lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
        }
    };
    tracing_subscriber::registry().with(filter).with(lines).init();
    IS_LOGGING.store(true, Ordering::Release);
    // Log each panic as an event, in one line, instead of the several lines that the default hook prints.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let words = panic.payload_as_str().unwrap_or("(no message)");
        tracing::error!(place, "panicked: {words}");
        ERRORS.flush(FLUSH_AT_PANIC_MAX);
    }));
    Filter(changing)
}

/// Starts the thread that writes the log. It stays as privileged as the program is now.
///
/// # Errors
/// Fails if no thread can be started.
pub(crate) fn start_writing() -> Result<(), Failure> {
    start_writer().map_err(|error| {
        Failure::unreachable(format!("failed to start the thread that writes the log: {error}"))
    })
}

fn start_writer() -> io::Result<()> {
    ERRORS.start("sexton-log", rustix::stdio::stderr(), |lines| {
        IS_WRITER.set(true);
        let what = if lines == 1 { "1 line was" } else { &format!("{lines} lines were") };
        tracing::error!(lines, "{what} not logged: standard error was not read");
    })
}

/// Writes text to standard error, in order with the log if there is one. Errors, such as a full disk or a closed pipe, are ignored.
pub(crate) fn write(text: &str) {
    if IS_LOGGING.load(Ordering::Acquire) {
        ERRORS.push(text.as_bytes());
    } else {
        drop(io::stderr().lock().write_all(text.as_bytes()));
    }
}

/// Writes a line to standard output, without waiting for its reader. If that fails, it is ignored.
///
/// # Errors
/// Fails if no thread can be started.
pub(crate) fn announce(line: &str) -> Result<(), Failure> {
    ANSWERS.push(line.as_bytes());
    ANSWERS.start("sexton-output", rustix::stdio::stdout(), |_| {}).map_err(|error| {
        Failure::unreachable(format!("failed to start the thread for standard output: {error}"))
    })
}

/// Writes what waits for the standard streams when it is dropped, but does not wait long for their readers.
pub(crate) struct FlushAtEnd;

impl Drop for FlushAtEnd {
    fn drop(&mut self) {
        if IS_LOGGING.load(Ordering::Acquire) {
            // Without a thread, nothing is written: there is no other way that surely ends.
            drop(start_writer());
            ANSWERS.flush(FLUSH_MAX);
            ERRORS.flush(FLUSH_MAX);
        }
    }
}

/// Where the subscriber writes an event, at once and with the end of the line.
struct Line;

impl io::Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if IS_WRITER.get() {
            output::write(rustix::stdio::stderr(), line);
        } else {
            ERRORS.push(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
