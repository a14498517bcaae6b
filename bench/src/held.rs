//! Clients for a large table of held locks. [`Taker`] takes all locks, [`Toucher`] renews random ones, [`Churner`] releases and takes
//! random ones, and [`Paced`] uses locks of its own at a fixed pace while the others are held.

use crate::chance::Chance;
use crate::codec::{Answer, Name, Protocol, Verb, name};
use crate::load::{Client, Turn, Wrong};
use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The maximum number of requests that a [`Taker`] or a [`Churner`] sends in one write.
const DEPTH: u32 = 64;

/// Returns the key and the owner of a held lock. Each lock has its own owner.
fn held_by(lock: u32) -> (Name, Name) {
    (name(1, lock), name(2, lock))
}

fn contradiction(asked: Verb, answer: Answer) -> Wrong {
    Wrong::Contradiction(format!("{asked:?} of the client's own lock was answered with {answer:?}"))
}

/// A client that takes a range of locks, many in one write, and ends when it holds all of them.
pub(crate) struct Taker {
    protocol: Rc<Protocol>,
    left: Range<u32>,
    open: u32,
    taken: u64,
}

impl Taker {
    /// Creates a client that takes these locks.
    pub(crate) fn new(protocol: Rc<Protocol>, locks: Range<u32>) -> Self {
        Self { protocol, left: locks, open: 0, taken: 0 }
    }
}

impl Client for Taker {
    fn wake(&mut self, turn: &mut Turn<'_>) {
        for lock in self.left.by_ref().take(DEPTH as usize) {
            let (key, owner) = held_by(lock);
            self.protocol.ask(Verb::Hold, &key, &owner, turn.output);
            self.open += 1;
        }
    }

    fn receive(&mut self, input: &[u8], turn: &mut Turn<'_>) -> Result<usize, Wrong> {
        let mut taken = 0;
        while self.open > 0
            && let Some((answer, len)) =
                self.protocol.receive(Verb::Hold, input.get(taken..).unwrap_or(&[]))?
        {
            taken += len;
            if answer != Answer::Granted {
                return Err(contradiction(Verb::Hold, answer));
            }
            self.open -= 1;
            self.taken += 1;
            if self.open == 0 {
                self.wake(turn);
            }
        }
        Ok(taken)
    }

    fn finish(&mut self, _: &mut Turn<'_>) {
        self.left = 0..0;
    }

    fn is_finished(&self) -> bool {
        self.left.is_empty() && self.open == 0
    }

    fn done(&self) -> u64 {
        self.taken
    }
}

/// A client that renews random held locks one after another, each as its owner.
pub(crate) struct Toucher {
    protocol: Rc<Protocol>,
    locks: u32,
    chance: Chance,
    asked: Instant,
    touched: u64,
    finishing: bool,
    finished: bool,
}

impl Toucher {
    /// Creates the client of this connection, for a table of `locks` held locks.
    pub(crate) fn new(protocol: Rc<Protocol>, connection: u32, locks: u32, now: Instant) -> Self {
        Self {
            protocol,
            locks,
            chance: Chance::new(connection),
            asked: now,
            touched: 0,
            finishing: false,
            finished: false,
        }
    }
}

impl Client for Toucher {
    fn wake(&mut self, turn: &mut Turn<'_>) {
        let (key, owner) = held_by(self.chance.below(self.locks));
        self.asked = turn.now;
        self.protocol.ask(Verb::Renew, &key, &owner, turn.output);
    }

    fn receive(&mut self, input: &[u8], turn: &mut Turn<'_>) -> Result<usize, Wrong> {
        let Some((answer, len)) = self.protocol.receive(Verb::Renew, input)? else {
            return Ok(0);
        };
        if answer != Answer::Renewed(true) {
            return Err(contradiction(Verb::Renew, answer));
        }
        self.touched += 1;
        turn.latencies.note(turn.now - self.asked);
        if self.finishing {
            self.finished = true;
        } else {
            self.wake(turn);
        }
        Ok(len)
    }

    fn finish(&mut self, _: &mut Turn<'_>) {
        self.finishing = true;
    }

    fn is_finished(&self) -> bool {
        self.finished
    }

    fn done(&self) -> u64 {
        self.touched
    }
}

/// A client that picks random locks of its own share, many in one write, and acquires those that are free and releases those that it
/// holds. It continues until all clients together have made the requested number of changes.
pub(crate) struct Churner {
    protocol: Rc<Protocol>,
    first: u32,
    held: Vec<bool>,
    chance: Chance,
    /// Requests not yet answered.
    open: VecDeque<Verb>,
    done: u64,
    /// The number of changes that all clients together have yet to request.
    left: Rc<Cell<u64>>,
}

impl Churner {
    /// Creates a client for these locks, all of which are free.
    pub(crate) fn new(protocol: Rc<Protocol>, locks: Range<u32>, left: Rc<Cell<u64>>) -> Self {
        Self {
            protocol,
            first: locks.start,
            chance: Chance::new(locks.start),
            held: locks.map(|_| false).collect(),
            open: VecDeque::new(),
            done: 0,
            left,
        }
    }
}

impl Client for Churner {
    fn wake(&mut self, turn: &mut Turn<'_>) {
        let share = u32::try_from(self.held.len()).expect("the share was made from a range of u32");
        for _ in 0..self.left.get().min(DEPTH.into()) {
            let lock = self.chance.below(share);
            let held = self.held.get_mut(lock as usize).expect("the index is within the share");
            let asked = if *held { Verb::Release } else { Verb::Hold };
            *held = !*held;
            let (key, owner) = held_by(self.first + lock);
            self.protocol.ask(asked, &key, &owner, turn.output);
            self.open.push_back(asked);
            self.left.set(self.left.get() - 1);
        }
    }

    fn receive(&mut self, input: &[u8], turn: &mut Turn<'_>) -> Result<usize, Wrong> {
        let mut taken = 0;
        while let Some(asked) = self.open.front().copied()
            && let Some((answer, len)) =
                self.protocol.receive(asked, input.get(taken..).unwrap_or(&[]))?
        {
            taken += len;
            match (asked, answer) {
                (Verb::Hold, Answer::Granted) | (Verb::Release, Answer::Released(1)) => {}
                (asked, answer) => return Err(contradiction(asked, answer)),
            }
            self.open.pop_front();
            self.done += 1;
            if self.open.is_empty() {
                self.wake(turn);
            }
        }
        Ok(taken)
    }

    fn finish(&mut self, _: &mut Turn<'_>) {
        self.left.set(0);
    }

    fn is_finished(&self) -> bool {
        self.left.get() == 0 && self.open.is_empty()
    }

    fn done(&self) -> u64 {
        self.done
    }
}

/// A client that acquires and releases a lock of its own at a fixed interval. A cycle that could not begin when it was due, because
/// the previous one had not ended, is timed from when it was due, so that the longest waits are not left out.
pub(crate) struct Paced {
    protocol: Rc<Protocol>,
    connection: u32,
    period: Duration,
    /// When the next cycle is due.
    due: Instant,
    /// The unanswered request, and the time from which its cycle is timed; `None` between cycles.
    open: Option<(Verb, Instant)>,
    /// Whether the next cycle is already due and waits for the current one to end.
    owed: bool,
    cycles: u32,
    finishing: bool,
}

impl Paced {
    /// Creates the client of this connection, whose first cycle begins at `due`.
    pub(crate) fn new(
        protocol: Rc<Protocol>,
        connection: u32,
        period: Duration,
        due: Instant,
    ) -> Self {
        Self {
            protocol,
            connection,
            period,
            due,
            open: None,
            owed: false,
            cycles: 0,
            finishing: false,
        }
    }

    fn ask(&mut self, asked: Verb, since: Instant, turn: &mut Turn<'_>) {
        let key = name(3 + self.connection, self.cycles);
        let owner = name(self.connection, u32::MAX);
        self.open = Some((asked, since));
        self.protocol.ask(asked, &key, &owner, turn.output);
    }

    fn begin(&mut self, since: Instant, turn: &mut Turn<'_>) {
        self.due += self.period;
        turn.wake_at = Some(self.due);
        self.ask(Verb::Acquire, since, turn);
    }
}

impl Client for Paced {
    fn wake(&mut self, turn: &mut Turn<'_>) {
        if self.finishing {
            return;
        }
        if turn.now < self.due {
            turn.wake_at = Some(self.due);
        } else if self.open.is_some() {
            self.owed = true;
        } else {
            // The cycle is timed from now, since a late wake-up is not a delay of the server.
            self.begin(turn.now, turn);
        }
    }

    fn receive(&mut self, input: &[u8], turn: &mut Turn<'_>) -> Result<usize, Wrong> {
        let Some((asked, since)) = self.open else {
            return Ok(0);
        };
        let Some((answer, len)) = self.protocol.receive(asked, input)? else {
            return Ok(0);
        };
        match (asked, answer) {
            (Verb::Acquire, Answer::Granted) => self.ask(Verb::Release, since, turn),
            (Verb::Release, Answer::Released(1)) => {
                turn.latencies.note(turn.now - since);
                self.open = None;
                self.cycles += 1;
                if std::mem::take(&mut self.owed) && !self.finishing {
                    self.begin(self.due, turn);
                }
            }
            (asked, answer) => return Err(contradiction(asked, answer)),
        }
        Ok(len)
    }

    fn finish(&mut self, _: &mut Turn<'_>) {
        self.finishing = true;
    }

    fn is_finished(&self) -> bool {
        self.finishing && self.open.is_none()
    }

    fn done(&self) -> u64 {
        self.cycles.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Latencies;
    use crate::load::now;

    /// Calls `act` with a turn at this time, and returns what the client sends and its `wake_at`.
    fn turn(
        latencies: &mut Latencies,
        now: Instant,
        act: impl FnOnce(&mut Turn<'_>),
    ) -> (Vec<u8>, Option<Instant>) {
        let mut output = Vec::new();
        let mut turn = Turn { now, output: &mut output, latencies, wake_at: None };
        act(&mut turn);
        let wake_at = turn.wake_at;
        (output, wake_at)
    }

    #[test]
    fn a_taker_asks_for_each_lock_once() {
        let mut latencies = Latencies::default();
        let mut taker = Taker::new(Rc::new(Protocol::Lockserver), 5..5 + DEPTH + 1);
        let (said, _) = turn(&mut latencies, now(), |turn| taker.wake(turn));
        assert_eq!(said.len() % DEPTH as usize, 0);
        let answers = [0, 1].repeat(DEPTH as usize);
        let (said, _) = turn(&mut latencies, now(), |turn| {
            assert_eq!(taker.receive(&answers, turn).unwrap(), answers.len());
        });
        assert!(said.windows(16).any(|window| window == name(1, 5 + DEPTH)));
        assert!(!taker.is_finished());
        turn(&mut latencies, now(), |turn| {
            taker.receive(&[0, 1], turn).unwrap();
        });
        assert!(taker.is_finished());
        assert_eq!(taker.done(), u64::from(DEPTH) + 1);
    }

    #[test]
    fn a_churner_takes_what_is_free_and_lets_go_of_what_it_holds() {
        let mut latencies = Latencies::default();
        let left = Rc::new(Cell::new(100));
        let mut churner = Churner::new(Rc::new(Protocol::Lockserver), 5..6, Rc::clone(&left));
        turn(&mut latencies, now(), |turn| churner.wake(turn));
        assert_eq!(churner.open.iter().filter(|asked| **asked == Verb::Hold).count(), 32);
        for asked in [64, 36] {
            turn(&mut latencies, now(), |turn| {
                churner.receive(&[0, 1].repeat(asked), turn).unwrap();
            });
        }
        assert!(churner.is_finished());
        assert_eq!((churner.done(), left.get()), (100, 0));
    }

    #[test]
    fn a_cycle_that_was_held_up_counts_from_when_it_was_due() {
        let begin = now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut latencies = Latencies::default();
        let mut paced =
            Paced::new(Rc::new(Protocol::Lockserver), 0, Duration::from_millis(4), begin);
        let (_, next) = turn(&mut latencies, begin, |turn| paced.wake(turn));
        assert_eq!(next, Some(at(4)));
        let (said, _) = turn(&mut latencies, at(4), |turn| paced.wake(turn));
        assert!(said.is_empty(), "the first cycle is in progress");
        for (ms, answer) in [(50, [0, 1]), (100, [0, 1])] {
            turn(&mut latencies, at(ms), |turn| {
                paced.receive(&answer, turn).unwrap();
            });
        }
        assert_eq!(paced.open, Some((Verb::Acquire, at(4))));
        for ms in [101, 102] {
            turn(&mut latencies, at(ms), |turn| {
                paced.receive(&[0, 1], turn).unwrap();
            });
        }
        let least = latencies.quantile_us(0.5);
        assert!((90_000.0..=98_000.0).contains(&least), "{least}");
    }
}
