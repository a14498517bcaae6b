//! A client that wants the one lock that everybody wants: it acquires it, gives it back at once, and again.
//!
//! docs/benchmarks.md, "Waiting in line", tells for users how the sexton client paces itself.

use crate::bench::codec::{Answer, Asked, Name, Protocol, name};
use crate::bench::load::{Client, Turn, Wrong};
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
}

/// One connection that wants the lock.
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
    /// When it first asked for the lock that it waits for.
    wanted: Instant,
    progress: Progress,
    done: u64,
    finishing: bool,
}

/// What a client knows of how fast the line moves.
#[derive(Default)]
struct Progress {
    seen: Option<(Instant, u32)>,
    per_grant: Option<Duration>,
}

impl Progress {
    /// Notes a place, and tells how long to wait before asking again.
    fn rest(&mut self, now: Instant, place: u32) -> Duration {
        if let Some((before, old_place)) = self.seen
            && old_place > place
        {
            let observed = (now - before) / (old_place - place);
            self.per_grant = Some(
                self.per_grant
                    .map_or(observed, |known| (known * 3 + observed) / 4),
            );
        }
        self.seen = Some((now, place));
        self.per_grant.unwrap_or_default() * (place - 2)
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
            wanted: now,
            progress: Progress::default(),
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
        self.progress.seen = None;
        self.ask(Asked::Acquire, turn);
    }

    fn granted(&mut self, turn: &mut Turn<'_>) {
        self.done += 1;
        self.in_line = false;
        turn.latencies.note(turn.now - self.wanted);
        self.ask(Asked::Release, turn);
        // Whoever stands in line goes to its end with the same write; elsewhere that would mean winning each race.
        if self.pace == Pace::Line && !self.finishing {
            self.want(turn);
        }
    }

    fn waits(&mut self, place: u32, turn: &mut Turn<'_>) {
        self.in_line = true;
        if self.finishing {
            self.ask(Asked::Release, turn);
            return;
        }
        let rest = self.progress.rest(turn.now, place);
        if rest.is_zero() {
            self.ask(Asked::Place, turn);
        } else {
            self.rest(rest, turn);
        }
    }

    fn refused(&mut self, turn: &mut Turn<'_>) {
        match self.pace {
            Pace::Try(Duration::ZERO) if !self.finishing => self.ask(Asked::Acquire, turn),
            Pace::Try(rest) => self.rest(rest, turn),
            Pace::Line => unreachable!("LockServer refuses with place 0, which is no answer here"),
        }
    }

    fn rest(&mut self, rest: Duration, turn: &mut Turn<'_>) {
        self.resting = true;
        turn.wake_at = Some(turn.now + rest);
    }

    fn released(&mut self, turn: &mut Turn<'_>) {
        self.in_line = false;
        if self.open.is_empty() {
            if self.finishing {
                self.resting = true;
            } else {
                self.want(turn);
            }
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
        } else if self.done == 0 && self.progress.seen.is_none() {
            self.want(turn);
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
