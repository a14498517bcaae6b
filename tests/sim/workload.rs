//! What clients ask for: a small world, so that they get in each other's way.

use crate::actor::Ask;
use crate::chance::Chance;
use crate::counter::{self, What};
use crate::counters::Counters;
use crate::locks::Locks;
use crate::setting::Setting;
use sexton::actors::lock::{Message, Name, Query, Watch};
use sexton::ids::{Slot, Token};

/// Clients of one run.
pub(crate) struct Workload {
    keys: Vec<Name>,
    indexes: Vec<Name>,
    owners: Vec<Name>,
    ttl_max: u64,
    /// Tokens that were shown, the newest last.
    tokens: Vec<Token>,
}

impl Workload {
    pub(crate) fn new(setting: &Setting) -> Self {
        let names = |stem: &str, count: u64| -> Vec<Name> {
            (0..count)
                .map(|number| name(&format!("{stem}{number}")))
                .collect()
        };
        Self {
            keys: names("k", setting.keys),
            indexes: names("", 2),
            owners: names("o", setting.owners),
            ttl_max: setting.ttl_max,
            tokens: Vec::new(),
        }
    }

    /// A client was shown this token.
    pub(crate) fn note(&mut self, token: Token) {
        self.tokens.push(token);
        if self.tokens.len() > 8 {
            self.tokens.remove(0);
        }
    }

    /// What one read of a socket brings for the locks.
    pub(crate) fn lock_call(&self, chance: &mut Chance) -> Vec<Ask<Locks>> {
        let queries_only = chance.per_mille(250);
        (0..*chance.pick(&[1, 1, 1, 2, 4]))
            .map(|_| {
                if queries_only || chance.per_mille(120) {
                    Ask::Query(self.lock_query(chance))
                } else {
                    Ask::Message(self.lock_message(chance))
                }
            })
            .collect()
    }

    /// Something about locks that a client waits for.
    pub(crate) fn lock_watch(&self, chance: &mut Chance) -> Watch {
        let key = chance.pick(&self.keys).clone();
        let index = chance.pick(&self.indexes).clone();
        let owner = chance.pick(&self.owners).clone();
        match chance.below(3) {
            0 => Watch::Empty,
            1 => Watch::Granted { key, index, owner },
            _ => Watch::Lost {
                key,
                index,
                owner,
                token: self.token(chance).unwrap_or(Token(1)),
            },
        }
    }

    fn lock_message(&self, chance: &mut Chance) -> Message {
        let key = chance.pick(&self.keys).clone();
        let index = chance.pick(&self.indexes).clone();
        let owner = chance.pick(&self.owners).clone();
        match chance.weighted(&[
            (500, 0),
            (200, 1),
            (200, 2),
            (40, 3),
            (50, 4),
            (2, 5),
            (8, 6),
        ]) {
            0 => Message::Request {
                key,
                index,
                owner,
                ttl: self.span(chance),
                ttw: self.span(chance),
                priority: u8::try_from(chance.below(3)).expect("a small number"),
            },
            1 => Message::Renew {
                key,
                index,
                owner,
                token: self.token(chance),
            },
            2 => Message::Release {
                key,
                index: Some(index),
                owner,
                token: self.token(chance),
            },
            3 => Message::Release {
                key,
                index: None,
                owner,
                token: None,
            },
            4 => Message::ReleaseAll { owner },
            5 => Message::Drain,
            _ => Message::Request {
                key,
                index,
                owner: Name::default(),
                ttl: 1,
                ttw: 1,
                priority: 0,
            },
        }
    }

    fn lock_query(&self, chance: &mut Chance) -> Query {
        let key = chance.pick(&self.keys).clone();
        let index = chance.pick(&self.indexes).clone();
        let owner = chance.pick(&self.owners).clone();
        match chance.below(5) {
            0 => Query::Owner { key, index },
            1 => Query::Place { key, index, owner },
            2 => Query::List {
                key: Some(key),
                entries_max: 65_535,
            },
            3 => Query::List {
                key: None,
                entries_max: 65_535,
            },
            _ => Query::Counts,
        }
    }

    fn span(&self, chance: &mut Chance) -> u16 {
        u16::try_from(chance.within(0, self.ttl_max)).expect("spans are short")
    }

    fn token(&self, chance: &mut Chance) -> Option<Token> {
        (chance.per_mille(200) && !self.tokens.is_empty()).then(|| *chance.pick(&self.tokens))
    }

    /// What one read of a socket brings for a counter actor.
    pub(crate) fn counter_call<const ID: u8>(chance: &mut Chance) -> Vec<Ask<Counters<ID>>> {
        (0..*chance.pick(&[1, 1, 2, 3]))
            .map(|_| {
                let name = counter_name(chance);
                match chance.below(40) {
                    39 => Ask::Query(counter::PANICS),
                    0..12 => Ask::Query(name),
                    _ => Ask::Message((name, Self::addition(chance))),
                }
            })
            .collect()
    }

    /// A message that takes more than one part of a record.
    pub(crate) fn long_call<const ID: u8>(chance: &mut Chance) -> Vec<Ask<Counters<ID>>> {
        let bytes = 600_000 + chance.index(700_000);
        let label = "y".repeat(bytes);
        vec![Ask::Message((
            counter_name(chance),
            What::Add(1, 500, label),
        ))]
    }

    fn addition(chance: &mut Chance) -> What {
        let by = u32::try_from(chance.below(8)).expect("a small number");
        let span_ms = u32::try_from(chance.within(0, 6000)).expect("a short span");
        What::Add(by, span_ms, "x".repeat(chance.index(40)))
    }

    /// So many locks at once, with one span, that time has too much to do for one turn.
    pub(crate) fn crowd(chance: &mut Chance) -> Vec<Ask<Locks>> {
        let ttl = u16::try_from(chance.within(2, 4)).expect("spans are short");
        (0..1100)
            .map(|number| {
                Ask::Message(Message::Request {
                    key: name(&format!("crowd{number}")),
                    index: Name::default(),
                    owner: name("crowd"),
                    ttl,
                    ttw: 1,
                    priority: 0,
                })
            })
            .collect()
    }
}

fn counter_name(chance: &mut Chance) -> Slot {
    Slot(u32::try_from(chance.below(3)).expect("a small number"))
}

fn name(text: &str) -> Name {
    Name::try_from(text).expect("names are short")
}
