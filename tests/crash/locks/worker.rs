//! One client under load. It records every command that was answered, and the one batch that was unanswered when the server ended. No
//! other client uses its name, so these determine which entries it has.

use crate::chance::Chance;
use crate::lockserver::{self, Client};
use sexton::actors::lock::{Message, Name};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// A key and an index.
pub(crate) type Lock = (String, String);

/// How many keys all workers use.
const SHARED_KEYS: u64 = 3;

/// The maximum number of commands in a batch.
const BURST_MAX: u64 = 16;

/// The TTL of locks, long enough that nothing expires while a test runs.
const TTL: u16 = 60_000;

/// The commands of a client.
#[derive(Clone, Debug)]
enum Command {
    Request(Lock),
    Renew(Lock),
    Release(Lock),
    ReleaseKey(String),
    ReleaseAll,
}

/// A client.
pub(crate) struct Worker {
    name: String,
    chance: Chance,
    priority: u8,
    /// The locks that it holds or waits for.
    entries: BTreeSet<Lock>,
    /// The locks that it owns according to an answer.
    owned: BTreeSet<Lock>,
    /// Answered commands that changed something, since the last comparison.
    answered: Vec<Message>,
    /// Commands that were sent and not answered.
    open: Vec<Command>,
}

impl Worker {
    pub(crate) fn new(number: u64, seed: u64) -> Self {
        Self {
            name: format!("worker-{number}"),
            chance: Chance::new(seed ^ (number << 32)),
            priority: u8::try_from(number % 3).expect("it is less than 3"),
            entries: BTreeSet::new(),
            owned: BTreeSet::new(),
            answered: Vec::new(),
            open: Vec::new(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns every key that the client uses.
    pub(crate) fn keys(&self) -> Vec<String> {
        let shared = (0..SHARED_KEYS).map(|number| format!("shared-{number}"));
        shared.chain([self.private_key()]).collect()
    }

    /// Works until the connection breaks, counting answers.
    pub(crate) fn work(&mut self, address: SocketAddr, answered: &AtomicU64) {
        assert!(self.open.is_empty(), "the last crash was compared");
        let Ok(mut client) = Client::connect(address) else {
            return;
        };
        while self.burst(&mut client, answered).is_ok() {}
    }

    /// Sends a few commands in one write, and receives their answers one by one.
    fn burst(&mut self, client: &mut Client, answered: &AtomicU64) -> io::Result<()> {
        let count = 1 + self.chance.below(BURST_MAX).min(self.chance.below(BURST_MAX));
        self.open = (0..count).map(|_| self.choose()).collect();
        let bytes: Vec<u8> = self.open.iter().flat_map(|command| self.bytes(command)).collect();
        client.send(&bytes)?;
        while let Some(command) = self.open.first().cloned() {
            let found = match command {
                Command::Renew(_) => client.receive(1)?.iter().map(|byte| u16::from(*byte)).sum(),
                Command::Request(_)
                | Command::Release(_)
                | Command::ReleaseKey(_)
                | Command::ReleaseAll => client.receive_number()?,
            };
            self.open.remove(0);
            self.check(&command, found);
            if let Some(message) = self.apply(&command) {
                self.answered.push(message);
            }
            answered.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn choose(&mut self) -> Command {
        let lock = match self.chance.below(2) {
            0 => {
                let key = format!("shared-{}", self.chance.below(SHARED_KEYS));
                (key, self.chance.below(2).to_string())
            }
            _ => (self.private_key(), self.chance.below(8).to_string()),
        };
        match self.chance.below(100) {
            0 => Command::ReleaseAll,
            1..=3 => Command::ReleaseKey(lock.0),
            4..=30 => Command::Release(lock),
            31..=60 => Command::Renew(lock),
            _ => Command::Request(lock),
        }
    }

    fn private_key(&self) -> String {
        format!("of-{}", self.name)
    }

    fn bytes(&self, command: &Command) -> Vec<u8> {
        match command {
            Command::Request((key, index)) => {
                lockserver::request(key, index, &self.name, (TTL, TTL, self.priority))
            }
            Command::Renew((key, index)) => lockserver::renew(key, index, &self.name),
            Command::Release((key, index)) => lockserver::release(key, index, &self.name),
            Command::ReleaseKey(key) => lockserver::release(key, "*", &self.name),
            Command::ReleaseAll => lockserver::release_all(&self.name),
        }
    }

    /// Checks that the answer is the expected one, unless it depends on other clients.
    fn check(&mut self, command: &Command, found: u16) {
        let entries = &self.entries;
        let count = |has: &dyn Fn(&Lock) -> bool| {
            u16::try_from(entries.iter().filter(|lock| has(lock)).count()).expect("a small number")
        };
        let expected = match command {
            Command::Request(lock) => {
                assert!(found > 0, "{}: refused {lock:?}", self.name);
                let alone = lock.0 == self.private_key() || self.owned.contains(lock);
                if found == 1 {
                    self.owned.insert(lock.clone());
                }
                if alone { 1 } else { found }
            }
            Command::Renew(lock) | Command::Release(lock) => count(&|has| has == lock),
            Command::ReleaseKey(key) => count(&|(has, _)| has == key),
            Command::ReleaseAll => count(&|_| true),
        };
        assert_eq!(found, expected, "{}: {command:?} with {entries:?}", self.name);
    }

    /// Applies the command to the client's entries. Returns the message that the journal must have; `None` if nothing changed.
    fn apply(&mut self, command: &Command) -> Option<Message> {
        let had = self.entries.len();
        let changed = match command {
            Command::Request(lock) => {
                self.entries.insert(lock.clone());
                true
            }
            Command::Renew(lock) => self.entries.contains(lock),
            Command::Release(lock) => self.entries.remove(lock),
            Command::ReleaseKey(key) => {
                self.entries.retain(|(has, _)| has != key);
                self.entries.len() < had
            }
            Command::ReleaseAll => {
                self.entries.clear();
                had > 0
            }
        };
        let entries = &self.entries;
        self.owned.retain(|lock| entries.contains(lock));
        changed.then(|| self.message(command))
    }

    fn message(&self, command: &Command) -> Message {
        let name = |text: &str| Name::try_from(text).expect("names here are short");
        let owner = name(&self.name);
        match command {
            Command::Request((key, index)) => Message::Request {
                key: name(key),
                index: name(index),
                owner,
                ttl: TTL,
                ttw: TTL,
                priority: self.priority,
            },
            Command::Renew((key, index)) => {
                Message::Renew { key: name(key), index: name(index), owner, token: None }
            }
            Command::Release((key, index)) => {
                Message::Release { key: name(key), index: Some(name(index)), owner, token: None }
            }
            Command::ReleaseKey(key) => {
                Message::Release { key: name(key), index: None, owner, token: None }
            }
            Command::ReleaseAll => Message::ReleaseAll { owner },
        }
    }

    /// Compares the client's record with its messages in the journal since the last comparison. These must be all that were answered, in
    /// order, followed by the part of the open batch that the server had processed.
    pub(crate) fn reckon(&mut self, journaled: &[&Message]) {
        let answered = std::mem::take(&mut self.answered);
        let mut unanswered = journaled.iter();
        for answered in &answered {
            let kept = unanswered.next();
            assert_eq!(
                kept,
                Some(&answered),
                "{}: answered, and the journal has something else",
                self.name
            );
        }
        let mut next = unanswered.next();
        for command in std::mem::take(&mut self.open) {
            let Some(message) = next else { break };
            let before = (self.entries.clone(), self.owned.clone());
            match self.apply(&command) {
                Some(mine) if mine == **message => next = unanswered.next(),
                Some(_) => (self.entries, self.owned) = before,
                None => {}
            }
        }
        assert!(next.is_none(), "{}: no client sent {next:?}", self.name);
    }

    /// Checks that all entries of the client exist, and that it still owns every lock that it owned according to an answer.
    pub(crate) fn compare(&self, there: &BTreeSet<Lock>, owned: &BTreeSet<Lock>) {
        assert_eq!(there, &self.entries, "{}: entries", self.name);
        let lost: Vec<_> = self.owned.difference(owned).collect();
        assert!(lost.is_empty(), "{}: was told that it owns {lost:?}", self.name);
    }
}
