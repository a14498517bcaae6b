//! Requests of clients about processes, of which there are few, so that requests often concern the same one.

use super::judge::Processes;
use super::services::{self, Configuration};
use crate::actor::{Ask, Call};
use crate::chance::Chance;
use crate::reference::Clients;
use crate::setting::Setting;
use sexton::actors::process::{
    Identity, Launching, Message, Parentage, Phase, Query, Registering, Reply, Selection, Spec,
    Tags, Watch,
};
use sexton::bytes::Bytes;
use sexton::clock::Date;
use sexton::ids::{ProcessId, Seq};

/// The maximum number of records that are remembered.
const REMEMBERED: usize = 10;

/// Clients of one run.
#[derive(Default)]
pub(crate) struct Callers {
    /// Ids of records that clients received, the latest last.
    ids: Vec<ProcessId>,
    /// Those of them whose launch was deferred when they were received, the latest last.
    deferred: Vec<ProcessId>,
    /// Entries that requested a signal, each with the process.
    signals: Vec<(ProcessId, Seq)>,
    /// Processes that may register themselves.
    strangers: Vec<Identity>,
    configuration: Configuration,
}

impl Callers {
    /// Sets the processes that are running and may register themselves.
    pub(crate) fn see(&mut self, strangers: Vec<Identity>) {
        self.strangers = strangers;
    }

    /// Returns the ids of records that clients of other actors may use.
    pub(crate) fn known(&self) -> Vec<ProcessId> {
        self.ids.clone()
    }

    /// Returns the request that configures services, at startup of the node or when the configuration is reloaded.
    pub(crate) fn configure(&mut self, chance: &mut Chance) -> Vec<Ask<Processes>> {
        vec![self.configuration.ask(chance)]
    }

    fn id(&self, chance: &mut Chance) -> ProcessId {
        if self.ids.is_empty() || chance.per_mille(20) {
            return ProcessId(1);
        }
        // Prefer later records, because their processes are more likely to be alive.
        let old = self.ids.len() - 1 - chance.index(self.ids.len());
        let newer = chance.index(self.ids.len()).max(old);
        *self.ids.get(newer).expect("the index is below the length")
    }

    /// Returns a process whose launch may still be deferred; sometimes, or if there is none, `None`.
    fn deferred(&self, chance: &mut Chance) -> Option<ProcessId> {
        let is_any = self.deferred.is_empty() || chance.per_mille(200);
        (!is_any).then(|| *chance.pick(&self.deferred))
    }

    fn parentage(&self, chance: &mut Chance) -> Parentage {
        let line = self.strangers.iter().take(chance.index(3)).copied();
        Parentage {
            named: chance.per_mille(400).then(|| self.id(chance)),
            line: line.collect(),
            bound: chance.per_mille(100),
        }
    }

    fn message(&self, chance: &mut Chance) -> Message {
        let id = self.id(chance);
        match chance.weighted(&[
            (30, 0),
            (10, 1),
            (22, 2),
            (16, 3),
            (5, 4),
            (3, 5),
            (12, 6),
            (6, 7),
        ]) {
            0 => self.launch(chance),
            1 => self.register(chance),
            2 => Message::Stop {
                id,
                signal: chance.per_mille(200).then_some(2),
                grace_ms: *chance.pick(&[None, Some(0), Some(700), Some(4000)]),
                tree: chance.per_mille(600),
            },
            3 => Message::Signal {
                id,
                signal: *chance.pick(&[10, 15]),
                group: chance.per_mille(300),
            },
            4 => Message::Finish {
                id,
                code: u8::try_from(chance.below(4)).expect("a small number"),
                error: chance.per_mille(500).then(|| "no".to_owned()),
            },
            6 => services::request(chance),
            7 => Message::Begin { id: self.deferred(chance).unwrap_or(id) },
            _ => Message::Prune {
                before: None,
                keep: u32::try_from(chance.below(6)).expect("a small number"),
                limit: u32::try_from(chance.below(3)).expect("a small number"),
            },
        }
    }

    fn launch(&self, chance: &mut Chance) -> Message {
        let argv = chance.pick(&["true", "archivebox add", "curl --token x", ""]);
        let spec = Spec {
            argv: words(argv),
            timeout_ms: *chance.pick(&[0, 0, 900, 5000]),
            grace_ms: *chance.pick(&[0, 300, 2500]),
            stop_signal: *chance.pick(&[0, 0, 2]),
            is_hook: chance.per_mille(150),
            ..Spec::default()
        };
        Message::Launch(Box::new(Launching {
            spec,
            tags: tags(chance),
            parentage: self.parentage(chance),
            deferred: chance.per_mille(120),
        }))
    }

    fn register(&self, chance: &mut Chance) -> Message {
        let none = [Identity::default()];
        let some = if self.strangers.is_empty() { &none } else { self.strangers.as_slice() };
        Message::Register(Box::new(Registering {
            identity: *chance.pick(some),
            argv: words("runner_watch"),
            dir: Bytes::default(),
            started: Date(5),
            tags: tags(chance),
            parentage: self.parentage(chance),
        }))
    }

    fn query(&self, chance: &mut Chance) -> Query {
        let id = self.id(chance);
        let selection = Selection {
            kind: chance.per_mille(200).then(|| "worker".to_owned()),
            phases: chance.pick(&[vec![], vec![Phase::Running]]).clone(),
            parent: chance.per_mille(100).then_some(id),
            newest_first: chance.per_mille(500),
            most: 100,
            ..Selection::default()
        };
        match chance.below(7) {
            0 => Query::One(id),
            1 => Query::List(selection),
            2 => Query::Count(selection),
            3 => Query::Ancestors(id),
            4 => Query::Descendants { of: id, after: None, most: 100 },
            6 => services::query(),
            _ => {
                let identity = self.strangers.first().copied();
                Query::Process(identity.unwrap_or_default())
            }
        }
    }

    fn remember(&mut self, known: ProcessId) {
        self.ids.retain(|id| *id != known);
        self.ids.push(known);
        let old = self.ids.len().saturating_sub(REMEMBERED);
        self.ids.drain(..old);
    }
}

impl Clients<Processes> for Callers {
    fn new(_: &Setting) -> Self {
        Self::default()
    }

    fn call(&mut self, chance: &mut Chance) -> Vec<Ask<Processes>> {
        if chance.per_mille(15) {
            return self.configure(chance);
        }
        (0..*chance.pick(&[1, 1, 1, 2, 4]))
            .map(|_| {
                if chance.per_mille(250) {
                    Ask::Query(self.query(chance))
                } else {
                    Ask::Message(self.message(chance))
                }
            })
            .collect()
    }

    fn watch(&self, chance: &mut Chance) -> Watch {
        let id = self.id(chance);
        match chance.below(5) {
            0 => Watch::Start(id),
            1 => Watch::Leader(id),
            2 if !self.signals.is_empty() => {
                let (id, asked) = *chance.pick(&self.signals);
                Watch::Signal(id, asked)
            }
            4 => services::watch(chance),
            _ => Watch::End(id),
        }
    }

    fn note(&mut self, call: &Call<Processes>) {
        let answers = call.answers.iter().flatten();
        for (ask, answer) in call.asks.iter().zip(answers) {
            match (ask, answer) {
                (_, Ok(Reply::Launched(record) | Reply::Registered { record, .. })) => {
                    self.remember(record.id);
                    self.deferred.retain(|id| *id != record.id);
                    self.deferred.extend(record.deferred.map(|_| record.id));
                    let old = self.deferred.len().saturating_sub(4);
                    self.deferred.drain(..old);
                }
                (_, Ok(Reply::Services(services))) => {
                    let instances = services.iter().flat_map(|it| &it.instances);
                    let ids: Vec<_> = instances.filter_map(|it| it.process).collect();
                    for id in ids {
                        self.remember(id);
                    }
                }
                (Ask::Message(Message::Signal { id, .. }), Ok(Reply::Signalling(asked))) => {
                    self.signals.push((*id, *asked));
                    let old = self.signals.len().saturating_sub(4);
                    self.signals.drain(..old);
                }
                _ => {}
            }
        }
    }
}

fn words(line: &str) -> Vec<Bytes> {
    let words = line.split(' ');
    words.map(|word| Bytes::new(word.as_bytes())).collect()
}

fn tags(chance: &mut Chance) -> Tags {
    let kind = chance.pick(&["", "worker", "hook"]);
    Tags { kind: (*kind).to_owned(), ..Tags::default() }
}
