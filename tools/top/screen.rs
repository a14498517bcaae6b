//! What a person sees and may change: pane, place, pace, pause. Keys come in, wishes go out; nothing is done here.

use crate::top::sample::Watched;
use std::time::Duration;

/// The paces that `+` and `-` step through.
const PACES_MS: [u64; 9] = [100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pane {
    /// Queues, locks, what comes in over each door.
    Work,
    /// Services, and the tree of processes.
    Processes,
    /// Journal, checkpoints, machine; panics and quarantined items of each actor, in full.
    Internals,
    /// All, where nobody can press a key.
    Whole,
}

/// What a key means.
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
    /// Back to the shell for a while.
    Suspend,
}

/// What is asked, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) every: Duration,
    /// Of which processes it is asked what they use; none where processes are not asked for at all.
    pub(crate) processes: Option<Vec<String>>,
}

/// What the terminal has to do about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Draw,
    Quit,
    Suspend,
}

/// What the terminal can show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abilities {
    /// Characters beyond ASCII.
    pub(crate) unicode: bool,
    pub(crate) colours: bool,
}

/// The state of the screen.
#[derive(Clone, Debug)]
pub(crate) struct Screen {
    pub(crate) abilities: Abilities,
    pub(crate) data: String,
    pub(crate) watched: Watched,
    /// What is shown while paused; the rest goes on behind it.
    pub(crate) frozen: Option<Box<Watched>>,
    pub(crate) every: Duration,
    /// For how long an answer is overdue.
    pub(crate) overdue: Option<Duration>,
    pub(crate) pane: Pane,
    /// Lines of the pane that are above the screen. Drawing bounds it.
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

    /// What has to be asked for what is shown. Of processes nothing is read for nobody.
    pub(crate) fn question(&self) -> Question {
        let is_shown = match self.pane {
            Pane::Processes | Pane::Whole => true,
            Pane::Work | Pane::Internals => false,
        };
        Question {
            every: self.every,
            processes: is_shown.then(|| self.in_view.clone()),
        }
    }

    /// What is to be drawn.
    pub(crate) fn shown(&self) -> &Watched {
        self.frozen.as_deref().unwrap_or(&self.watched)
    }

    pub(crate) fn key(&mut self, key: Key) -> Wish {
        match key {
            Key::Quit => return Wish::Quit,
            Key::Suspend => return Wish::Suspend,
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
        Wish::Draw
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
