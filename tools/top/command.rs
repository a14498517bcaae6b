//! The subcommand: its flags, and what is printed where nobody looks at a terminal.

use crate::client::Where;
use crate::report::{Failure, written};
use crate::top::screen::{Abilities, Pane, Screen};
use crate::top::terminal::{self, Asker};
use crate::top::view;
use clap::Args;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

/// The frame that is printed: as wide as most terminals, and as high as it needs.
const PRINTED: (u16, u16) = (80, 100);

/// Watch a running coordinator: queues, locks that are waited for, what is asked over each door, and how it is.
///
/// A queue has a row with its jobs, its oldest ready job, and what goes in and out a second; the busiest come first.
///
/// Services and processes are asked for while they are shown, and what a process uses only while its line is on the screen.
///
/// Asks over `DATA/sexton.sock`, or where --url says, once a second, and goes on asking when the coordinator ends, until it is there again.
/// Where standard output is no terminal, it prints one frame.
#[derive(Args)]
#[command(
    after_help = "Keys: q, Esc or Ctrl-C quits; p pauses the picture, not the asking; tab shows services and the tree of processes, then the internals: journal, checkpoints, panics of actors; arrows scroll \
them; + and - change how often it asks; Ctrl-Z goes back to the shell for a while.\n\n\
Exit status: 0 it was quit; 3 no coordinator runs there, or it cannot be asked; 4 it has halted. On a terminal, and with --json, \
it goes on asking instead.",
    after_long_help = "Examples:\n  sexton top --data /var/lib/sexton\n  sexton top --once\n  \
sexton top --json --every 10 | jq -c '[.at, .per_second.commands]'\n\n\
Keys: q, Esc or Ctrl-C quits; p pauses the picture, not the asking; tab shows services and the tree of processes, then the internals: journal, checkpoints, panics of actors; arrows scroll \
them; + and - change how often it asks; Ctrl-Z goes back to the shell for a while.\n\n\
Exit status: 0 it was quit; 3 no coordinator runs there, or it cannot be asked; 4 it has halted. On a terminal, and with --json, \
it goes on asking instead."
)]
pub(crate) struct Top {
    #[command(flatten)]
    at: Where,

    /// Ask so often: 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    every: Duration,

    /// Ask twice, print what came of it, and end
    #[arg(long)]
    once: bool,

    /// Print each sample as a line of JSON: rates, and the status as it is
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
        let asker = Asker::start(&target, screen.question())?;
        if self.json {
            lines(screen, &asker, self.once)
        } else if is_printed {
            twice(&mut screen, &asker)?;
            written(write!(io::stdout(), "{}", frame(&mut screen)))
        } else {
            terminal::watch(screen, &asker)
        }
    }
}

/// Two samples make a rate. A coordinator that does not answer is the end.
fn twice(screen: &mut Screen, asker: &Asker) -> Result<(), Failure> {
    for _ in 0..2 {
        let (at, answer) = asker.answer()?;
        screen.watched.take(at, Ok(answer?));
        if screen.pane == Pane::Whole {
            // Which processes have room is known when they are drawn.
            frame(screen);
            asker.ask(screen.question());
        }
    }
    Ok(())
}

/// A line for each sample from the second on: the first has no rates yet.
fn lines(mut screen: Screen, asker: &Asker, once: bool) -> Result<(), Failure> {
    if once {
        twice(&mut screen, asker)?;
        return written(writeln!(io::stdout(), "{}", screen.watched.line()));
    }
    loop {
        let (at, answer) = asker.answer()?;
        let answer = answer.map_err(|failure| terminal::silence(&failure));
        let is_first = screen.watched.status.is_none() && answer.is_ok();
        screen.watched.take(at, answer);
        if !is_first {
            written(writeln!(io::stdout(), "{}", screen.watched.line()))?;
        }
    }
}

/// The screen as plain lines, without the keys that nobody can press.
fn frame(screen: &mut Screen) -> String {
    let plain = Abilities {
        colours: false,
        ..screen.abilities
    };
    screen.abilities = plain;
    let (width, height) = PRINTED;
    let mut terminal =
        Terminal::new(TestBackend::new(width, height)).expect("a buffer cannot fail");
    let drawn = terminal
        .draw(|frame| view::draw(frame, screen))
        .expect("a buffer cannot fail");
    let text = text(drawn.buffer);
    let (page, _keys) = text.rsplit_once('\n').unwrap_or((&text, ""));
    format!("{}\n", page.trim_end())
}

/// What stands in a buffer, without blanks at the end of lines.
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
