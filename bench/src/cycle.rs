//! A client with its own locks: it acquires several, and releases them once it holds all of them.

use crate::codec::{Answer, Name, Protocol, Verb, name};
use crate::load::{Client, Turn, Wrong};
use std::rc::Rc;
use std::time::Instant;

/// The cycles of one connection. A cycle is an acquisition and a release; with a depth of 16, sixteen locks are requested in
/// one write, and released in one write when all are granted.
pub(crate) struct Cycles {
    protocol: Rc<Protocol>,
    connection: u32,
    owner: Name,
    keys: Vec<Name>,
    next: u32,
    asked: Verb,
    answered: usize,
    began: Instant,
    done: u64,
    finishing: bool,
    finished: bool,
}

impl Cycles {
    /// Creates the client of this connection, with `depth` locks at a time.
    pub(crate) fn new(protocol: Rc<Protocol>, connection: u32, depth: u32, now: Instant) -> Self {
        Self {
            protocol,
            connection,
            owner: name(connection, u32::MAX),
            keys: vec![[0; 16]; usize::try_from(depth).expect("a depth fits in usize")],
            next: 0,
            asked: Verb::Acquire,
            answered: 0,
            began: now,
            done: 0,
            finishing: false,
            finished: false,
        }
    }

    fn ask(&mut self, asked: Verb, turn: &mut Turn<'_>) {
        self.asked = asked;
        self.answered = 0;
        for key in &self.keys {
            self.protocol.ask(asked, key, &self.owner, turn.output);
        }
    }

    fn begin(&mut self, turn: &mut Turn<'_>) {
        for key in &mut self.keys {
            *key = name(self.connection, self.next);
            self.next = self.next.wrapping_add(1);
        }
        self.began = turn.now;
        self.ask(Verb::Acquire, turn);
    }

    /// Sends the next requests. Called when all previous ones are answered.
    fn go_on(&mut self, turn: &mut Turn<'_>) {
        if self.asked == Verb::Acquire {
            self.ask(Verb::Release, turn);
            return;
        }
        self.done += self.keys.len() as u64;
        turn.latencies.note(turn.now - self.began);
        if self.finishing {
            self.finished = true;
        } else {
            self.begin(turn);
        }
    }
}

impl Client for Cycles {
    fn wake(&mut self, turn: &mut Turn<'_>) {
        self.begin(turn);
    }

    fn receive(&mut self, input: &[u8], turn: &mut Turn<'_>) -> Result<usize, Wrong> {
        let mut taken = 0;
        while let Some((answer, len)) =
            self.protocol.receive(self.asked, input.get(taken..).unwrap_or(&[]))?
        {
            taken += len;
            match (self.asked, answer) {
                (Verb::Acquire, Answer::Granted) | (Verb::Release, Answer::Released(1)) => {}
                (asked, answer) => {
                    let words =
                        format!("{asked:?} of the client's own lock was answered with {answer:?}");
                    return Err(Wrong::Contradiction(words));
                }
            }
            self.answered += 1;
            if self.answered == self.keys.len() {
                self.go_on(turn);
            }
        }
        Ok(taken)
    }

    fn finish(&mut self, _: &mut Turn<'_>) {
        self.finishing = true;
    }

    fn is_finished(&self) -> bool {
        self.finished
    }

    fn done(&self) -> u64 {
        self.done
    }
}
