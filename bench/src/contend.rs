//! A client that wants the one lock that everybody wants: it acquires it, gives it back at once, and again.
//!
//! docs/benchmarks.md, "Waiting in line", tells for users how the sexton client paces itself.

use crate::chance::Chance;
use crate::codec::{Answer, Asked, Name, Protocol, name};
use crate::load::{Client, Turn, Wrong};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How a client that does not have the lock asks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// It tries to take the lock, this long after it was taken; the server knows of no line.
    Try(Duration),
    /// It stands in line, and asks for its place when it expects to be the next.
    Line,
    /// As long as nobody else stands in line it goes on; then it steps aside for a while, and stands in line again.
    Turns,
}

/// One connection that wants the lock.
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent: a client in line may rest or look, be about to end or not"
)]
pub(crate) struct Contender {
    protocol: Rc<Protocol>,
    pace: Pace,
    key: Name,
    owner: Name,
    /// Asked and not yet answered.
    open: VecDeque<Asked>,
    /// It has nothing open and waits to be woken.
    resting: bool,
    /// The server keeps a place for it.
    in_line: bool,
    /// It saw itself near the front, and looks at once again.
    near: bool,
    /// It gave the lock back, and asked for it again with the same write.
    again: bool,
    /// When it first asked for the lock that it waits for.
    wanted: Instant,
    progress: Progress,
    /// How long it steps aside for each grant of its turn: whoever had much stays away long.
    aside: Duration,
    /// Grants since it came back.
    in_turn: u32,
    /// A little disorder: clients that step aside together must not come back together.
    chance: Chance,
    done: u64,
    finishing: bool,
}

/// Up to this place a client looks at once again: it must see the lock the moment it is there.
const NEAR: u32 = 3;

/// So much longer for each grant of its turn a client stays away, for each one it finds waiting already.
const ASIDE_STEP: Duration = Duration::from_micros(100);

/// More than so many waiting say no more than these.
const CROWD_MAX: u32 = 4;

/// The longest a client stays away.
const ASIDE_MAX: Duration = Duration::from_millis(50);

/// What a client knows of how fast the line moves.
#[derive(Default)]
struct Progress {
    /// When it came into this line, and at which place.
    joined: Option<(Instant, u32)>,
    /// What a place takes when nothing disturbs the line; unknown at first.
    per_place: Option<Duration>,
}

impl Progress {
    /// Notes a place in line, and tells how long to wait before looking again.
    fn rest(&mut self, now: Instant, place: u32) -> Duration {
        self.joined.get_or_insert((now, place));
        // Early: looking once more costs the line little, looking too late stops it for everybody behind.
        self.per_place.unwrap_or_default() * place.saturating_sub(NEAR) * 3 / 4
    }

    /// Notes the lock. Whoever did not look before it was there came late, and held up the line itself.
    ///
    /// Slowness is learned slowly: a line that waited for one late client looks slow to all, and if all believed it,
    /// all would come late.
    fn granted(&mut self, now: Instant, late: bool) {
        if let Some((joined, place)) = self.joined.take() {
            let seen = (now - joined) / (place - 1);
            let known = self.per_place.map_or(seen, |known| seen.min(known * 9 / 8));
            self.per_place = Some(if late { known / 2 } else { known });
        }
    }
}

impl Contender {
    /// The client on this connection.
    pub(crate) fn new(
        protocol: Rc<Protocol>,
        pace: Pace,
        key: Name,
        connection: u32,
        now: Instant,
    ) -> Self {
        Self {
            protocol,
            pace,
            key,
            owner: name(connection, u32::MAX),
            open: VecDeque::new(),
            resting: true,
            in_line: false,
            near: false,
            again: false,
            wanted: now,
            progress: Progress::default(),
            aside: ASIDE_STEP,
            in_turn: 0,
            chance: Chance::new(connection),
            done: 0,
            finishing: false,
        }
    }

    fn ask(&mut self, asked: Asked, turn: &mut Turn<'_>) {
        self.resting = false;
        self.open.push_back(asked);
        self.protocol
            .ask(asked, &self.key, &self.owner, turn.output);
    }

    /// Asks for the lock anew.
    fn want(&mut self, turn: &mut Turn<'_>) {
        self.wanted = turn.now;
        self.ask(Asked::Acquire, turn);
    }

    fn granted(&mut self, turn: &mut Turn<'_>) {
        self.done += 1;
        turn.latencies.note(turn.now - self.wanted);
        self.progress.granted(turn.now, !self.near);
        if !self.in_line && !self.again {
            self.meets(1);
        }
        self.in_line = false;
        self.near = false;
        self.again = false;
        self.ask(Asked::Release, turn);
        // Where there is a line, this does not take the lock from those who wait: it goes behind them.
        self.in_turn += 1;
        self.again = match self.pace {
            Pace::Try(_) => false,
            Pace::Line | Pace::Turns => !self.finishing,
        };
        if self.again {
            self.want(turn);
        }
    }

    fn waits(&mut self, place: u32, turn: &mut Turn<'_>) {
        self.in_line = true;
        let again = std::mem::take(&mut self.again);
        if self.finishing || (again && matches!(self.pace, Pace::Turns)) {
            self.ask(Asked::Release, turn);
            return;
        }
        if self.progress.joined.is_none() {
            self.meets(place);
        }
        self.near = place <= NEAR;
        let rest = self.progress.rest(turn.now, place);
        if rest.is_zero() {
            self.ask(Asked::Place, turn);
        } else {
            self.rest(rest, turn);
        }
    }

    /// Comes back, and learns how crowded the line is. Steps that are added and shares that are taken off bring clients
    /// with different habits together.
    fn meets(&mut self, place: u32) {
        self.aside = match place.saturating_sub(2) {
            0 => self.aside * 7 / 8,
            waiting => self.aside + ASIDE_STEP * waiting.min(CROWD_MAX),
        };
    }

    fn refused(&mut self, turn: &mut Turn<'_>) {
        match self.pace {
            Pace::Try(Duration::ZERO) if !self.finishing => self.ask(Asked::Acquire, turn),
            Pace::Try(rest) => self.rest(rest, turn),
            Pace::Line | Pace::Turns => {
                unreachable!("LockServer refuses with place 0, which is no answer here")
            }
        }
    }

    fn rest(&mut self, rest: Duration, turn: &mut Turn<'_>) {
        self.resting = true;
        turn.wake_at = Some(turn.now + rest);
    }

    fn released(&mut self, turn: &mut Turn<'_>) {
        self.in_line = false;
        if !self.open.is_empty() {
            return;
        }
        match self.pace {
            _ if self.finishing => self.resting = true,
            Pace::Turns => {
                let span = self.aside * std::mem::take(&mut self.in_turn);
                // Between half and one and a half times as long.
                let rest = span / 2 + span * self.chance.below(1000) / 1000;
                self.rest(rest.min(ASIDE_MAX), turn);
            }
            Pace::Try(_) | Pace::Line => self.want(turn),
        }
    }
}

impl Client for Contender {
    fn wake(&mut self, turn: &mut Turn<'_>) {
        if !self.resting || self.finishing {
            return;
        }
        if self.in_line {
            self.ask(Asked::Place, turn);
        } else {
            self.ask(Asked::Acquire, turn);
        }
    }

    fn hear(&mut self, input: &[u8], turn: &mut Turn<'_>) -> Result<usize, Wrong> {
        let mut taken = 0;
        while let Some(asked) = self.open.front().copied()
            && let Some((answer, len)) = self
                .protocol
                .hear(asked, input.get(taken..).unwrap_or(&[]))?
        {
            taken += len;
            self.open.pop_front();
            match answer {
                Answer::Granted => self.granted(turn),
                Answer::InLine(place) => self.waits(place, turn),
                Answer::Taken => self.refused(turn),
                Answer::Released(1) => self.released(turn),
                Answer::Released(count) => {
                    let words = format!("the release of the one lock we had ended {count}");
                    return Err(Wrong::Untrue(words));
                }
                Answer::Renewed(_) => unreachable!("a contender renews nothing"),
            }
        }
        Ok(taken)
    }

    fn finish(&mut self, turn: &mut Turn<'_>) {
        self.finishing = true;
        if self.resting && self.in_line {
            self.ask(Asked::Release, turn);
        }
    }

    fn is_finished(&self) -> bool {
        self.finishing && self.resting && !self.in_line
    }

    fn done(&self) -> u64 {
        self.done
    }
}
