//! A client that competes with all others for one lock: it acquires the lock, releases it immediately, and starts over.
//!
//! docs/benchmarks.md, "Waiting in line", describes for users how the sexton client paces itself.

use crate::chance::Chance;
use crate::codec::{Answer, Name, Protocol, Verb, name};
use crate::load::{Client, Turn, Wrong};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How a client without the lock retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Tries to take the lock again after this time; the server keeps no line.
    Try(Duration),
    /// Waits in line, and requests its position again when it expects to be near the front.
    Line,
    /// Acquires the lock again and again as long as no other client is in line. Otherwise it steps aside, that is, leaves the line for a
    /// while, and then joins it again.
    Turns,
}

/// A connection that competes for the lock.
#[expect(
    clippy::struct_excessive_bools,
    reason = "the flags are independent: a client in line may rest or poll, and may be about to end"
)]
pub(crate) struct Contender {
    protocol: Rc<Protocol>,
    pace: Pace,
    key: Name,
    owner: Name,
    /// Requests not yet answered.
    open: VecDeque<Verb>,
    /// Whether the client has no open request and waits to be woken.
    resting: bool,
    /// Whether the client has a position in line.
    in_line: bool,
    /// Whether the client is near the front of the line, and so requests its position again immediately.
    near: bool,
    /// Whether the client has released the lock and requested it again in the same write, and has no answer to that request yet.
    again: bool,
    /// When the client began to wait for the next grant, that is, first requested the lock after the last grant.
    wanted: Instant,
    progress: Progress,
    /// How long the client steps aside, per grant since it last stepped aside. A client with more grants therefore stays away longer.
    aside: Duration,
    /// The number of grants since the client last stepped aside.
    in_turn: u32,
    /// A source of randomness, so that clients that step aside together do not come back together.
    chance: Chance,
    done: u64,
    finishing: bool,
}

/// At this position in line or a better one, a client polls without pause, because it must notice the moment the lock is free.
const NEAR: u32 = 3;

/// The increase of [`Contender::aside`] for each client that is already waiting when a client comes back.
const ASIDE_STEP: Duration = Duration::from_micros(100);

/// The maximum number of waiting clients for each of which [`ASIDE_STEP`] is added.
const CROWD_MAX: u32 = 4;

/// The maximum time for which a client steps aside.
const ASIDE_MAX: Duration = Duration::from_millis(50);

/// A client's estimate of how fast the line moves.
#[derive(Default)]
struct Progress {
    /// When the client joined the line, and at which position; `None` if it is not in line.
    joined: Option<(Instant, u32)>,
    /// The time that the line takes to advance by one position if no client delays it; `None` before the first grant.
    per_place: Option<Duration>,
}

impl Progress {
    /// Records a position in line, and returns how long to wait before requesting the position again. That is zero at positions up to
    /// [`NEAR`], and as long as there is no estimate.
    fn rest(&mut self, now: Instant, place: u32) -> Duration {
        self.joined.get_or_insert((now, place));
        // Better too early than too late: one more request costs little, but a late one delays every client further back in line.
        self.per_place.unwrap_or_default() * place.saturating_sub(NEAR) * 3 / 4
    }

    /// Updates the estimate when the lock is granted. `late` means that the client was not polling yet when the lock became free, and so
    /// delayed the line itself; the estimate is then halved.
    ///
    /// Estimates increase slowly: a line that waited for one late client looks slow to every client, and if each adopted that
    /// estimate, all would be late.
    fn granted(&mut self, now: Instant, late: bool) {
        if let Some((joined, place)) = self.joined.take() {
            let seen = (now - joined) / (place - 1);
            let known = self.per_place.map_or(seen, |known| seen.min(known * 9 / 8));
            self.per_place = Some(if late { known / 2 } else { known });
        }
    }
}

impl Contender {
    /// Creates the client of this connection.
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

    fn ask(&mut self, asked: Verb, turn: &mut Turn<'_>) {
        self.resting = false;
        self.open.push_back(asked);
        self.protocol.ask(asked, &self.key, &self.owner, turn.output);
    }

    /// Requests the lock, and begins to time the wait for it.
    fn want(&mut self, turn: &mut Turn<'_>) {
        self.wanted = turn.now;
        self.ask(Verb::Acquire, turn);
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
        self.ask(Verb::Release, turn);
        self.in_turn += 1;
        // If the server keeps a line, the lock is requested again in the same write. The request goes to the end of the line, so it does
        // not overtake clients that wait.
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
            self.ask(Verb::Release, turn);
            return;
        }
        if self.progress.joined.is_none() {
            self.meets(place);
        }
        self.near = place <= NEAR;
        let rest = self.progress.rest(turn.now, place);
        if rest.is_zero() {
            self.ask(Verb::Place, turn);
        } else {
            self.rest(rest, turn);
        }
    }

    /// Adjusts [`Contender::aside`] to the position at which the client came back into the line. Additive increase and multiplicative
    /// decrease let clients with different times converge.
    fn meets(&mut self, place: u32) {
        self.aside = match place.saturating_sub(2) {
            0 => self.aside * 7 / 8,
            waiting => self.aside + ASIDE_STEP * waiting.min(CROWD_MAX),
        };
    }

    fn refused(&mut self, turn: &mut Turn<'_>) {
        match self.pace {
            Pace::Try(Duration::ZERO) if !self.finishing => self.ask(Verb::Acquire, turn),
            Pace::Try(rest) => self.rest(rest, turn),
            Pace::Line | Pace::Turns => {
                unreachable!("LockServer refuses with position 0, which the codec rejects")
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
                // A random time between half and one and a half times the span.
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
            self.ask(Verb::Place, turn);
        } else {
            self.ask(Verb::Acquire, turn);
        }
    }

    fn receive(&mut self, input: &[u8], turn: &mut Turn<'_>) -> Result<usize, Wrong> {
        let mut taken = 0;
        while let Some(asked) = self.open.front().copied()
            && let Some((answer, len)) =
                self.protocol.receive(asked, input.get(taken..).unwrap_or(&[]))?
        {
            taken += len;
            self.open.pop_front();
            match answer {
                Answer::Granted => self.granted(turn),
                Answer::InLine(place) => self.waits(place, turn),
                Answer::Taken => self.refused(turn),
                Answer::Released(1) => self.released(turn),
                Answer::Released(count) => {
                    let words = format!("one lock was released, but the answer counts {count}");
                    return Err(Wrong::Contradiction(words));
                }
                Answer::Renewed(_) => unreachable!("a contender never renews"),
            }
        }
        Ok(taken)
    }

    fn finish(&mut self, turn: &mut Turn<'_>) {
        self.finishing = true;
        if self.resting && self.in_line {
            self.ask(Verb::Release, turn);
        }
    }

    fn is_finished(&self) -> bool {
        self.finishing && self.resting && !self.in_line
    }

    fn done(&self) -> u64 {
        self.done
    }
}
