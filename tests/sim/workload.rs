//! Requests of clients about locks, with few names, so that they often concern the same lock.

use crate::actor::{Ask, Call};
use crate::chance::Chance;
use crate::locks::Locks;
use crate::reference::Clients;
use crate::setting::Setting;
use sexton::actors::binding::{Binding, Until};
use sexton::actors::lock::{Message, Name, Query, Reply, Tie, Watch};
use sexton::ids::{ProcessId, Token};

/// Clients of one run.
pub(crate) struct Workload {
    keys: Vec<Name>,
    indexes: Vec<Name>,
    owners: Vec<Name>,
    ttl_max: u64,
    /// Tokens that clients received, the latest last.
    tokens: Vec<Token>,
    /// Processes to which entries may be bound.
    processes: Vec<ProcessId>,
}

impl Clients<Locks> for Workload {
    fn new(setting: &Setting) -> Self {
        let names = |stem: &str, count: u64| -> Vec<Name> {
            (0..count).map(|number| name(&format!("{stem}{number}"))).collect()
        };
        Self {
            keys: names("k", setting.keys),
            indexes: names("", 2),
            owners: names("o", setting.owners),
            ttl_max: setting.ttl_max,
            tokens: Vec::new(),
            processes: Vec::new(),
        }
    }

    fn call(&mut self, chance: &mut Chance) -> Vec<Ask<Locks>> {
        if chance.per_mille(160) {
            return if chance.per_mille(400) { line(chance) } else { vec![leave_line(chance)] };
        }
        let queries_only = chance.per_mille(250);
        (0..*chance.pick(&[1, 1, 1, 2, 4]))
            .map(|_| {
                if queries_only || chance.per_mille(120) {
                    Ask::Query(self.query(chance))
                } else {
                    Ask::Message(self.message(chance))
                }
            })
            .collect()
    }

    fn watch(&self, chance: &mut Chance) -> Watch {
        let key = chance.pick(&self.keys).clone();
        let index = chance.pick(&self.indexes).clone();
        let owner = chance.pick(&self.owners).clone();
        match chance.below(3) {
            0 => Watch::Empty,
            1 => Watch::Granted { key, index, owner },
            _ => Watch::Lost { key, index, owner, token: self.token(chance).unwrap_or(Token(1)) },
        }
    }

    fn note(&mut self, call: &Call<Locks>) {
        for answer in call.answers.iter().flatten().flatten() {
            if let Reply::LinePosition(standing) = answer {
                self.tokens.extend(standing.token);
            }
        }
        let old = self.tokens.len().saturating_sub(8);
        self.tokens.drain(..old);
    }
}

/// Returns a binding to a random process of these.
pub(crate) fn binding(processes: &[ProcessId], chance: &mut Chance) -> Binding {
    let until = *chance.pick(&[Until::Process, Until::Tree]);
    Binding {
        process: *chance.pick(processes),
        until,
        fence: until == Until::Tree && chance.per_mille(400),
    }
}

impl Workload {
    /// Sets the processes that have a record, or had one, to which entries may be bound.
    pub(crate) fn see(&mut self, processes: Vec<ProcessId>) {
        self.processes = processes;
    }

    fn tie(&self, chance: &mut Chance) -> Tie {
        match chance.below(3) {
            0 => Tie::None,
            1 if !self.processes.is_empty() => Tie::Process(binding(&self.processes, chance)),
            _ => Tie::Connection,
        }
    }

    fn message(&self, chance: &mut Chance) -> Message {
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
            (4, 7),
        ]) {
            0 if chance.per_mille(300) => Message::Acquire {
                key,
                index,
                owner,
                ttl: self.span(chance),
                ttw: self.span(chance),
                priority: u8::try_from(chance.below(3)).expect("a small number"),
                tie: self.tie(chance),
                waits: chance.per_mille(600),
            },
            0 => Message::Request {
                key,
                index,
                owner,
                ttl: self.span(chance),
                ttw: self.span(chance),
                priority: u8::try_from(chance.below(3)).expect("a small number"),
            },
            1 => {
                let (owner, token) = self.shown(chance, owner);
                Message::Renew { key, index, owner, token }
            }
            2 => {
                let (owner, token) = self.shown(chance, owner);
                Message::Release { key, index: Some(index), owner, token }
            }
            3 => Message::Release { key, index: None, owner, token: None },
            4 => Message::ReleaseAll { owner },
            5 => Message::Drain,
            7 => Message::Force { key, index },
            _ => {
                Message::Request { key, index, owner: Name::default(), ttl: 1, ttw: 1, priority: 0 }
            }
        }
    }

    fn query(&self, chance: &mut Chance) -> Query {
        let key = chance.pick(&self.keys).clone();
        let index = chance.pick(&self.indexes).clone();
        let owner = chance.pick(&self.owners).clone();
        match chance.below(5) {
            0 => Query::Owner { key, index },
            1 => Query::Place { key, index, owner },
            2 => Query::List { key: Some(key), entries_max: 65_535 },
            3 => Query::List { key: None, entries_max: 65_535 },
            _ => Query::Counts,
        }
    }

    fn span(&self, chance: &mut Chance) -> u16 {
        u16::try_from(chance.within(0, self.ttl_max)).expect("spans are short")
    }

    fn token(&self, chance: &mut Chance) -> Option<Token> {
        (chance.per_mille(200) && !self.tokens.is_empty()).then(|| *chance.pick(&self.tokens))
    }

    /// Returns an owner and a token to identify an entry in a request. The owner may be empty if there is a token, and
    /// the token may be absent.
    fn shown(&self, chance: &mut Chance, owner: Name) -> (Name, Option<Token>) {
        let token = self.token(chance);
        let nameless = token.is_some() && chance.per_mille(500);
        (if nameless { Name::default() } else { owner }, token)
    }

    /// Returns requests for many locks with the same TTL, so that more of them are due at one time than one turn handles.
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

/// The owners that wait in one line. Clients of the last two poll; those of the others stay away after a crash until they request the lock
/// again.
const IN_LINE: [&str; 5] = ["w0", "w1", "w2", "w3", "w4"];

/// Returns requests for one lock that wait for long, from clients that are cut off by a crash and from others.
fn line(chance: &mut Chance) -> Vec<Ask<Locks>> {
    let from = usize::try_from(chance.below(5)).expect("it is small");
    let owners = IN_LINE.iter().cycle().skip(from).take(4);
    let requests = owners.map(|owner| {
        let waits = !matches!(*owner, "w3" | "w4");
        let (key, index, owner) = (name("line"), Name::default(), name(owner));
        let (ttl, ttw) = (u16::MAX, u16::MAX);
        let priority = u8::try_from(chance.below(2)).expect("a small number");
        if waits {
            let tie = Tie::None;
            Ask::Message(Message::Acquire { key, index, owner, ttl, ttw, priority, tie, waits })
        } else {
            Ask::Message(Message::Request { key, index, owner, ttl, ttw, priority })
        }
    });
    requests.collect()
}

/// Returns a request that ends an entry of that line, mostly that of the holder.
fn leave_line(chance: &mut Chance) -> Ask<Locks> {
    let (key, index) = (name("line"), Name::default());
    if chance.per_mille(700) {
        return Ask::Message(Message::Force { key, index });
    }
    let owner: &&str = chance.pick(&IN_LINE);
    let owner = name(owner);
    Ask::Message(Message::Release { key, index: Some(index), owner, token: None })
}

fn name(text: &str) -> Name {
    Name::try_from(text).expect("names are short")
}
