//! The state of the screen: pane, scroll position, interval, pause. Handles keys and returns what to do; does no I/O.

use crate::top::sample::Watched;
use std::time::Duration;

/// The intervals that `+` and `-` step through, in milliseconds.
const PACES_MS: [u64; 9] = [100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];

/// The part of the screen that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pane {
    /// Jobs, queues, locks, leases and tasks; requests over each protocol; the host.
    Work,
    /// Services and the tree of processes.
    Processes,
    /// Journal, checkpoints and recovery; panics and quarantined items of each actor, in detail.
    Internals,
    /// All parts, for printed output.
    Whole,
}

/// The meaning of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Quit,
    Pause,
    NextPane,
    Up,
    Down,
    PageUp,
    PageDown,
    Faster,
    Slower,
    /// Suspend the program, as Ctrl-Z usually does.
    Suspend,
}

/// The data to request, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) every: Duration,
    /// The processes whose resource usage to request; `None` to request no processes at all.
    pub(crate) processes: Option<Vec<String>>,
}

/// What `terminal.rs` has to do after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScreenRequest {
    Draw,
    Quit,
    Suspend,
}

/// The abilities of the terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abilities {
    /// Whether it can show characters beyond ASCII.
    pub(crate) unicode: bool,
    pub(crate) colours: bool,
}

/// The state of the screen.
#[derive(Clone, Debug)]
pub(crate) struct Screen {
    pub(crate) abilities: Abilities,
    /// The data directory or URL of the coordinator, shown until there is a status.
    pub(crate) data: String,
    pub(crate) watched: Watched,
    /// The data that is shown while paused; `watched` is still updated.
    pub(crate) frozen: Option<Box<Watched>>,
    pub(crate) every: Duration,
    /// How long the next answer has been overdue; `None` if it is not, or for less than `LATE` of `terminal.rs`.
    pub(crate) overdue: Option<Duration>,
    pub(crate) pane: Pane,
    /// The number of lines scrolled off the top. Drawing reduces it if it is beyond the end.
    pub(crate) scroll: usize,
    /// The processes whose lines are on the screen, as of the last drawing.
    pub(crate) in_view: Vec<String>,
}

impl Screen {
    pub(crate) fn new(data: String, every: Duration, abilities: Abilities) -> Self {
        Self {
            abilities,
            data,
            watched: Watched::new(),
            frozen: None,
            every,
            overdue: None,
            pane: Pane::Work,
            scroll: 0,
            in_view: Vec::new(),
        }
    }

    /// Returns what to request for the current pane. Processes are requested only while they are shown.
    pub(crate) fn question(&self) -> Question {
        let is_shown = match self.pane {
            Pane::Processes | Pane::Whole => true,
            Pane::Work | Pane::Internals => false,
        };
        Question { every: self.every, processes: is_shown.then(|| self.in_view.clone()) }
    }

    /// Returns the data to draw: while paused, that of the moment of the pause.
    pub(crate) fn shown(&self) -> &Watched {
        self.frozen.as_deref().unwrap_or(&self.watched)
    }

    pub(crate) fn key(&mut self, key: Key) -> ScreenRequest {
        match key {
            Key::Quit => return ScreenRequest::Quit,
            Key::Suspend => return ScreenRequest::Suspend,
            Key::Faster => self.pace(faster(self.every)),
            Key::Slower => self.pace(slower(self.every)),
            Key::Pause => {
                self.frozen = match self.frozen {
                    None => Some(Box::new(self.watched.clone())),
                    Some(_) => None,
                };
            }
            Key::NextPane => {
                self.scroll = 0;
                self.pane = match self.pane {
                    Pane::Work => Pane::Processes,
                    Pane::Processes => Pane::Internals,
                    Pane::Internals => Pane::Work,
                    Pane::Whole => Pane::Whole,
                };
            }
            Key::Up => self.scroll = self.scroll.saturating_sub(1),
            Key::Down => self.scroll = self.scroll.saturating_add(1),
            Key::PageUp => self.scroll = self.scroll.saturating_sub(10),
            Key::PageDown => self.scroll = self.scroll.saturating_add(10),
        }
        ScreenRequest::Draw
    }

    fn pace(&mut self, every: Option<u64>) {
        if let Some(ms) = every {
            self.every = Duration::from_millis(ms);
        }
    }
}

fn faster(every: Duration) -> Option<u64> {
    let ms = every.as_millis();
    let mut paces = PACES_MS.into_iter().rev();
    paces.find(|pace| u128::from(*pace) < ms)
}

fn slower(every: Duration) -> Option<u64> {
    let ms = every.as_millis();
    PACES_MS.into_iter().find(|pace| u128::from(*pace) > ms)
}
