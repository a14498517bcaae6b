//! The subcommand: its flags, and its output when standard output is not a terminal.

use crate::client::Where;
use crate::report::{Failure, print};
use crate::top::screen::{Abilities, Pane, Screen};
use crate::top::terminal::{self, Poller};
use crate::top::view;
use clap::Args;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

/// The width and height of a printed frame: as wide as most terminals, and taller than needed, since trailing blank lines are trimmed.
const PRINTED: (u16, u16) = (80, 100);

/// Watch a running coordinator: queues, locks with waiters, requests over each protocol, and its health
///
/// Each queue has a row with its jobs, its oldest ready job, and the jobs in and out per second; the busiest queues come first.
///
/// Services and processes are read only while they are shown, and the resource usage of a process only while its line is on the
/// screen.
///
/// Connects to `DATA/sexton.sock`, or to the coordinator of --url, once a second. If the coordinator exits, keeps trying until it
/// is back. If standard output is not a terminal, prints one frame.
#[derive(Args)]
#[command(
    after_help = "Keys: q, Esc or Ctrl-C quits; p pauses the display, not the sampling; Tab switches to services and processes, then to the internals: journal, checkpoints, panics of actors; arrows scroll \
them; + and - change the interval; Ctrl-Z suspends.\n\n\
Exit status: 0 it was quit; 3 no coordinator runs there, or it cannot be reached; 4 it has halted. On a terminal, and with --json, \
it keeps trying instead.",
    after_long_help = "Examples:\n  sexton top --data /var/lib/sexton\n  sexton top --once\n  \
sexton top --json --every 10 | jq -c '[.at, .per_second.commands]'\n\n\
Keys: q, Esc or Ctrl-C quits; p pauses the display, not the sampling; Tab switches to services and processes, then to the internals: journal, checkpoints, panics of actors; arrows scroll \
them; + and - change the interval; Ctrl-Z suspends.\n\n\
Exit status: 0 it was quit; 3 no coordinator runs there, or it cannot be reached; 4 it has halted. On a terminal, and with --json, \
it keeps trying instead."
)]
pub(crate) struct Top {
    #[command(flatten)]
    at: Where,

    /// Interval between samples, 0.1 to 3600 seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    every: Duration,

    /// Take two samples, print one frame, and exit
    #[arg(long)]
    once: bool,

    /// Print each sample as a line of JSON: rates, and the status
    #[arg(long)]
    json: bool,
}

impl Top {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let target = self.at.target()?;
        let abilities = terminal::abilities();
        let mut screen = Screen::new(target.shown(), self.every, abilities);
        let is_printed = self.once || !io::stdout().is_terminal();
        if is_printed && !self.json {
            screen.pane = Pane::Whole;
        }
        let asker = Poller::start(&target, screen.question())?;
        if self.json {
            lines(screen, &asker, self.once)
        } else if is_printed {
            twice(&mut screen, &asker)?;
            print(&frame(&mut screen))
        } else {
            terminal::watch(screen, &asker)
        }
    }
}

/// Takes two samples, the minimum for a rate. Fails if the coordinator does not answer.
fn twice(screen: &mut Screen, asker: &Poller) -> Result<(), Failure> {
    for _ in 0..2 {
        let (at, answer) = asker.answer()?;
        screen.watched.take(at, Ok(answer?));
        if screen.pane == Pane::Whole {
            // Which processes are in view is known only after drawing.
            frame(screen);
            asker.ask(screen.question());
        }
    }
    Ok(())
}

/// Prints a line for each sample except the first status, which has no rates. With `once`, prints only the second sample.
fn lines(mut screen: Screen, asker: &Poller, once: bool) -> Result<(), Failure> {
    if once {
        twice(&mut screen, asker)?;
        return print(&format!("{}\n", screen.watched.line()));
    }
    loop {
        let (at, answer) = asker.answer()?;
        let answer = answer.map_err(|failure| terminal::no_answer(&failure));
        let is_first = screen.watched.status.is_none() && answer.is_ok();
        screen.watched.take(at, answer);
        if !is_first {
            print(&format!("{}\n", screen.watched.line()))?;
        }
    }
}

/// Draws the screen as plain text, without the key hints.
fn frame(screen: &mut Screen) -> String {
    let plain = Abilities { colours: false, ..screen.abilities };
    screen.abilities = plain;
    let (width, height) = PRINTED;
    let mut terminal =
        Terminal::new(TestBackend::new(width, height)).expect("drawing to memory should not fail");
    let drawn = terminal
        .draw(|frame| view::draw(frame, screen))
        .expect("drawing to memory should not fail");
    let text = text(drawn.buffer);
    let (page, _keys) = text.rsplit_once('\n').unwrap_or((&text, ""));
    format!("{}\n", page.trim_end())
}

/// Returns the text of a buffer, without trailing blanks.
pub(crate) fn text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width.max(1));
    let lines = buffer.content.chunks(width).map(|line| {
        let line: String = line.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("not between 0.1 and 3600".to_owned())
    }
}
