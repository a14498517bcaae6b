//! Bells, as a file to which a line is added for each action. The file outlives every process, and a kill is either before or
//! after a line is written.
//!
//! The bells do what a port must do (see `Action` in `src/spine/effect.rs`), but are slow, refuse some attempts, and do not report
//! some that they have performed.

use super::program::started;
use crate::counter::{self, CounterMachine};
use sexton::ids::{Seq, Slot};
use sexton::spine::effect::Action;
use sexton::spine::port::Port;
use sexton::spine::runtime::Completions;
use std::collections::{BTreeMap, VecDeque};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// The maximum number of actions that wait until another is requested, and how long they wait.
const IN_HAND: usize = 3;
const LATE: Duration = Duration::from_millis(20);

/// The result of a requested attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingResult {
    Rung,
    Refused,
    /// The attempt was requested again, and reported again.
    Again,
    /// The bell was rung, and no report of that was received.
    Unreported,
}

const WORDS: [(RingResult, &str); 4] = [
    (RingResult::Rung, "rung"),
    (RingResult::Refused, "refused"),
    (RingResult::Again, "again"),
    (RingResult::Unreported, "unreported"),
];

/// An action, and its result.
pub(super) struct Line {
    pub(super) actor: u8,
    pub(super) id: u32,
    pub(super) attempt: u64,
    pub(super) what: RingResult,
}

/// The file to which actions are written.
#[derive(Clone)]
pub(super) struct World(PathBuf);

impl World {
    pub(super) fn beside(files: &Path) -> Self {
        Self(files.join("bells"))
    }

    /// Returns all actions in the file.
    pub(super) fn read(files: &Path) -> Vec<Line> {
        let text = std::fs::read_to_string(files.join("bells")).unwrap_or_default();
        text.lines().map(parse).collect()
    }

    fn note(&self, line: &Line) {
        let word = WORDS.iter().find(|(what, _)| *what == line.what);
        let word = word.map_or("", |(_, word)| word);
        let text = format!("{} {} {} {word}\n", line.actor, line.id, line.attempt);
        let file = OpenOptions::new().create(true).append(true).open(&self.0);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.expect("the world takes it");
    }
}

fn parse(line: &str) -> Line {
    let words: Vec<&str> = line.split(' ').collect();
    let [actor, id, attempt, word] = words.as_slice() else {
        panic!("{line:?} is not a line of the world");
    };
    let what = WORDS.iter().find(|(_, known)| known == word);
    Line {
        actor: actor.parse().expect("a number"),
        id: id.parse().expect("a number"),
        attempt: attempt.parse().expect("a number"),
        what: what.expect("a word").0,
    }
}

/// The bells of one actor, rung on a separate thread.
pub(super) struct Bells(mpsc::Sender<Action<u64>>);

impl<const ID: u8> Port<CounterMachine<ID>> for Bells {
    fn perform(&mut self, action: Action<u64>) {
        // Sending fails only if the thread has ended, and then the test fails.
        drop(self.0.send(action));
    }
}

impl Bells {
    pub(super) fn start<const ID: u8>(
        files: &Path,
        plant: String,
        completions: Completions<CounterMachine<ID>>,
    ) -> Self {
        let (asks, asked) = mpsc::channel::<Action<u64>>();
        let ringer = Ringer {
            newest: newest::<ID>(files),
            asked: BTreeMap::new(),
            world: World::beside(files),
            plant,
        };
        let thread = std::thread::Builder::new().name("bells".to_owned());
        let ringing = thread.spawn(move || ringer.ring::<ID>(&asked, &completions));
        ringing.expect("a new thread");
        Self(asks)
    }
}

/// Returns the last attempt for each bell, and whether it was rung.
fn newest<const ID: u8>(files: &Path) -> BTreeMap<u64, (Seq, bool)> {
    let log = World::read(files).into_iter();
    let ours = log.filter(|line| {
        line.actor == ID && matches!(line.what, RingResult::Rung | RingResult::Refused)
    });
    ours.map(|line| (line.id.into(), (Seq(line.attempt), line.what == RingResult::Rung))).collect()
}

struct Ringer {
    newest: BTreeMap<u64, (Seq, bool)>,
    /// The last requested attempt for each bell.
    asked: BTreeMap<u64, Seq>,
    world: World,
    plant: String,
}

impl Ringer {
    /// Performs requested actions, some of them late: a kill loses those in progress.
    fn ring<const ID: u8>(
        mut self,
        asked: &mpsc::Receiver<Action<u64>>,
        completions: &Completions<CounterMachine<ID>>,
    ) {
        let mut in_hand = VecDeque::new();
        loop {
            let late = match asked.recv_timeout(LATE) {
                Ok(action) => {
                    self.asked.insert(action.id, action.attempt);
                    in_hand.push_back(action);
                    false
                }
                Err(RecvTimeoutError::Timeout) => true,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            while late || in_hand.len() > IN_HAND {
                let Some(action) = in_hand.pop_front() else {
                    break;
                };
                self.perform(&action, completions);
            }
        }
    }

    fn perform<const ID: u8>(
        &mut self,
        action: &Action<u64>,
        completions: &Completions<CounterMachine<ID>>,
    ) {
        let Action { id, attempt, .. } = *action;
        let name = Slot(u32::try_from(id).expect("bells have the names of counters"));
        let reported = match self.asked.get(&id) {
            Some(newest) if self.plant == "mistakes" => *newest,
            _ => attempt,
        };
        let report = |refused| {
            completions.report(&(name, counter::CounterMessage::Rung(reported, refused)));
        };
        let note = |what| Line { actor: ID, id: name.0, attempt: attempt.0, what };
        let known = self.newest.get(&id).copied();
        match known {
            Some((newest, _)) if newest > attempt => report(true),
            Some((newest, rung)) if newest == attempt && self.plant != "repeats" => {
                self.world.note(&note(RingResult::Again));
                report(!rung);
            }
            _ if self.plant == "forgets" && attempt < started() => {}
            _ if self.plant == "pretends" => report(false),
            _ if attempt.0 % 5 == 2 => {
                self.newest.insert(id, (attempt, false));
                self.world.note(&note(RingResult::Refused));
                report(true);
            }
            _ => {
                self.newest.insert(id, (reported, true));
                self.world.note(&note(RingResult::Rung));
                if attempt.0 % 3 == 1 && known.map(|known| known.0) != Some(attempt) {
                    self.world.note(&note(RingResult::Unreported));
                } else {
                    report(false);
                }
            }
        }
    }
}
