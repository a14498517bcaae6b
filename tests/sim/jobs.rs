//! Requests of clients about queues, with few names and jobs, so that they often concern the same job. Also checks that
//! no id and no token that clients receive is ever issued again.

#![expect(clippy::wildcard_enum_match_arm, reason = "each rule names its messages")]

use crate::actor::{Ask, Call};
use crate::chance::Chance;
use crate::queues::{Queues, names};
use crate::reference::Clients;
use crate::setting::Setting;
use crate::violation::{Promise, Violation, ensure};
use crate::workload::binding;
use sexton::actors::queue::{
    AnyType, Body, Claimant, Command, DedupKey, JobEnd, KeepResult, Message, Phase, Pop, Progress,
    Put, Query, QueueName, Reply, Right, Root, Watch, Worker,
};
use sexton::ids::{ProcessId, Token};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The maximum number of ids, and of claims, that are remembered.
const REMEMBERED: usize = 12;

/// Clients of one run.
#[derive(Default)]
pub(crate) struct Jobs {
    /// Ids that clients received, the latest last.
    ids: Vec<u64>,
    /// Claims that clients received, with their holders.
    claims: Vec<(u64, Right)>,
    /// Processes that claims may be bound to.
    processes: Vec<ProcessId>,
    bodies: u64,
}

/// Every id and every token that was issued on this disk.
#[derive(Default)]
pub(crate) struct IssuedNumbers {
    ids: BTreeSet<u64>,
    tokens: BTreeSet<Token>,
}

impl IssuedNumbers {
    /// Records the ids and tokens in the answers to a call, and checks that none was issued before.
    pub(crate) fn note(&mut self, call: &Call<Queues>) -> Result<(), Violation> {
        for answer in call.answers.iter().flatten().flatten() {
            let ids = match answer {
                Reply::Put { id, duplicate: None } => vec![*id],
                Reply::Batch(told) => {
                    let new = told.iter().filter(|(_, new)| *new);
                    new.map(|(id, _)| *id).collect()
                }
                _ => Vec::new(),
            };
            for id in ids {
                ensure(self.ids.insert(id), Promise::GivenOnce, || {
                    format!("job {id} was issued before")
                })?;
            }
            self.note_claim(answer)?;
        }
        Ok(())
    }

    /// Records the token of a claim, and checks that it was not issued before. This includes claims by clients that
    /// waited.
    pub(crate) fn note_claim(&mut self, answer: &Reply) -> Result<(), Violation> {
        let Reply::Claim(claim) = answer else {
            return Ok(());
        };
        ensure(self.tokens.insert(claim.token), Promise::GivenOnce, || {
            format!("{claim:?} has a token that was issued before")
        })
    }
}

impl Clients<Queues> for Jobs {
    fn new(_: &Setting) -> Self {
        Self::default()
    }

    fn note(&mut self, call: &Call<Queues>) {
        let answers = call.answers.iter().flatten();
        for (ask, answer) in call.asks.iter().zip(answers) {
            match (ask, answer) {
                (_, Ok(Reply::Put { id, .. })) => remember(&mut self.ids, *id),
                (_, Ok(Reply::Batch(told))) => {
                    for (id, _) in told {
                        remember(&mut self.ids, *id);
                    }
                }
                (
                    Ask::Message(Message::Pop(Pop { by, .. }) | Message::PopJob { by, .. }),
                    Ok(Reply::Claim(claim)),
                ) => {
                    let right = match by {
                        Claimant::Worker(worker) => Right::Worker(*worker),
                        Claimant::Bearer | Claimant::Process(_) => Right::Token(claim.token),
                    };
                    remember(&mut self.claims, (claim.id, right));
                }
                _ => {}
            }
        }
    }

    fn call(&mut self, chance: &mut Chance) -> Vec<Ask<Queues>> {
        let queries_only = chance.per_mille(150);
        let count = *chance.pick(&[1, 1, 1, 2, 4]);
        let ask = |_| {
            if queries_only || chance.per_mille(100) {
                Ask::Query(self.query(chance))
            } else {
                Ask::Message(self.message(chance))
            }
        };
        (0..count).map(ask).collect()
    }

    fn watch(&self, chance: &mut Chance) -> Watch {
        let waits_for_turn = chance.per_mille(300);
        Watch::Job(if waits_for_turn { self.turn(chance) } else { self.pop(chance) })
    }
}

fn cancel(id: u64, chance: &mut Chance) -> Message {
    Message::Cancel { id, error: chance.per_mille(500).then(|| "not wanted".to_owned().into()) }
}

/// Returns a request to store the result of a job whose claim is about to end.
fn keep_result(id: u64, by: Right, chance: &mut Chance) -> KeepResult {
    KeepResult {
        id,
        by,
        ms: *chance.pick(&[500, 3000, 60_000]),
        end: JobEnd {
            done: chance.per_mille(700),
            exit: chance.per_mille(500).then_some(0),
            error: None,
            output: Body::new(*b"said").into(),
            took_ms: chance.below(5000),
        },
    }
}

impl Jobs {
    /// Sets the processes that have a record, or had one, to which claims may be bound.
    pub(crate) fn see(&mut self, processes: Vec<ProcessId>) {
        self.processes = processes;
    }

    fn message(&mut self, chance: &mut Chance) -> Message {
        let id = self.id(chance);
        match chance.weighted(&[
            (300, 0),
            (40, 1),
            (250, 2),
            (30, 3),
            (300, 4),
            (40, 5),
            (20, 6),
            (20, 7),
            (6, 8),
            (25, 9),
            (15, 10),
            (8, 11),
            (1, 12),
            (12, 13),
        ]) {
            0 => Message::Put(self.put(chance)),
            1 => Message::Batch((0..chance.below(5)).map(|_| self.put(chance)).collect()),
            2 if chance.per_mille(200) => Message::Pop(self.turn(chance)),
            2 => Message::Pop(Pop { waits: chance.per_mille(200), ..self.pop(chance) }),
            3 => Message::PopJob { id, by: self.claimant(chance) },
            4 => self.about_a_claim(chance),
            5 if chance.per_mille(300) => Message::Repush {
                queue: QueueName::parse(b"few").expect("a valid name"),
                count: u32::try_from(chance.below(3)).expect("a small number"),
            },
            5 => Message::Kick {
                queue: queue(chance),
                count: u32::try_from(chance.below(4)).expect("a small number"),
            },
            6 => Message::KickJob { id },
            7 => Message::Pause { queue: queue(chance), ms: *chance.pick(&[0, 0, 500, 3000]) },
            8 => Message::Flush { queue: queue(chance) },
            9 => Message::Depart { worker: worker(chance) },
            10 => Message::Register(root(chance)),
            11 => Message::Spoil,
            13 => cancel(id, chance),
            _ => Message::Drain,
        }
    }

    /// Returns a message about a claim. Its token is mostly that of the current holder, and sometimes that of a former
    /// holder or none.
    fn about_a_claim(&self, chance: &mut Chance) -> Message {
        let (id, by) = match chance.below(8) {
            0 => (self.id(chance), Right::Unclaimed),
            1 => (self.id(chance), Right::Worker(worker(chance))),
            _ if self.claims.is_empty() => (self.id(chance), Right::Unclaimed),
            // Prefer the last three claims: the older a claim is, the more likely it has ended.
            _ => {
                *chance.pick(self.claims.get(self.claims.len().saturating_sub(3)..).unwrap_or(&[]))
            }
        };
        let priority = chance.per_mille(500).then(|| priority(chance));
        match chance.weighted(&[
            (6, 0),
            (4, 1),
            (4, 2),
            (2, 3),
            (4, 4),
            (2, 5),
            (2, 6),
            (2, 7),
            (2, 8),
            (1, 9),
            (2, 10),
        ]) {
            0 => Message::Delete { id, by },
            1 => Message::Release { id, by, priority, delay_ms: span(chance) },
            2 => Message::Bury { id, by, priority },
            5 if !self.processes.is_empty() => {
                Message::Bind { id, by, to: binding(&self.processes, chance) }
            }
            10 if !self.processes.is_empty() => Message::Attach {
                id,
                by,
                command: Command {
                    process: binding(&self.processes, chance).process,
                    completes: chance.per_mille(500),
                },
                ttr_ms: if chance.per_mille(500) { 0 } else { span(chance) },
            },
            3 | 5 | 10 => Message::Touch { id, by },
            6 => Message::Defer {
                id,
                by,
                error: None,
                retry_after_ms: chance.per_mille(300).then(|| span(chance)),
                interrupted: chance.per_mille(200),
            },
            // The worker of a claimed job may be told to stop.
            8 => cancel(id, chance),
            9 => Message::KeepResult(Box::new(keep_result(id, by, chance))),
            7 => Message::Report {
                id,
                by,
                progress: Progress {
                    percent: chance.per_mille(800).then_some(50),
                    text: chance.per_mille(300).then(|| "half of it".to_owned().into()),
                },
            },
            _ => Message::Fail {
                id,
                by,
                retry_after_ms: chance.per_mille(500).then(|| span(chance)),
                error: chance.per_mille(500).then(|| format!("error {}", chance.below(99)).into()),
                crashed: chance.per_mille(200),
            },
        }
    }

    fn put(&mut self, chance: &mut Chance) -> Put {
        self.bodies += 1;
        let queue = queue(chance);
        // Bodies are mostly different. In a snapshot, a long body has a separate page.
        let body = match chance.below(12) {
            0 => b"the same".to_vec(),
            1 => format!("{} {}", self.bodies, "z".repeat(250)).into_bytes(),
            _ => format!("job {}", self.bodies).into_bytes(),
        };
        let keyed = chance.per_mille(150);
        Put {
            priority: priority(chance),
            delay_ms: span(chance),
            ttr_ms: *chance.pick(&[0, 0, 1000, 4000]),
            dedup: keyed.then(|| key(chance)),
            retries: chance.per_mille(900),
            root: chance.per_mille(150).then(|| root(chance)),
            is_root: chance.per_mille(400),
            tube: chance.per_mille(300),
            // Only queues with a throttle use the number of items.
            unique_for_ms: *chance.pick(&[0, 0, 0, 0, 0, 0, 0, 3000]),
            items: if self.bodies.is_multiple_of(3) { 3 } else { 0 },
            ..Put::new(queue, Body::new(body))
        }
    }

    fn query(&self, chance: &mut Chance) -> Query {
        let id = self.id(chance);
        match chance.below(4) {
            0 => Query::Peek { id },
            1 => Query::Job { id },
            2 => Query::Result { id },
            _ => Query::PeekNext {
                queue: queue(chance),
                phase: *chance.pick(&[Phase::Ready, Phase::Delayed, Phase::Buried]),
            },
        }
    }

    fn pop(&self, chance: &mut Chance) -> Pop {
        let queues: Vec<QueueName> = (0..chance.within(1, 4)).map(|_| queue(chance)).collect();
        let weighted = chance.per_mille(150);
        let weights: Vec<u32> = queues.iter().filter(|_| weighted).map(|_| 2).collect();
        Pop {
            queues: queues.into(),
            weights: weights.into(),
            by: self.claimant(chance),
            waits: false,
            ticket: None,
            ttr_ms: *chance.pick(&[0, 0, 0, 2000]),
            any: None,
        }
    }

    /// Returns a claim of a job of the tenant whose turn it is.
    fn turn(&self, chance: &mut Chance) -> Pop {
        let mut kinds = || {
            let kinds = (0..chance.within(1, 3)).map(|_| queue(chance).kind().to_vec());
            let kinds = kinds.map(|kind| String::from_utf8(kind).expect("names are text"));
            kinds.collect::<Vec<_>>()
        };
        let (types, except) = (kinds(), kinds());
        let types = Some(types).filter(|_| chance.per_mille(500));
        let except = Some(except).filter(|_| chance.per_mille(200));
        Pop {
            queues: [].into(),
            weights: [].into(),
            any: Some(Arc::new(AnyType {
                tenant: None,
                except: except.unwrap_or_default(),
                types: types.unwrap_or_default(),
            })),
            ..self.pop(chance)
        }
    }

    fn claimant(&self, chance: &mut Chance) -> Claimant {
        if chance.per_mille(500) {
            Claimant::Worker(worker(chance))
        } else if !self.processes.is_empty() && chance.per_mille(400) {
            Claimant::Process(binding(&self.processes, chance))
        } else {
            Claimant::Bearer
        }
    }

    fn id(&self, chance: &mut Chance) -> u64 {
        if self.ids.is_empty() {
            return 1;
        }
        *chance.pick(&self.ids)
    }
}

fn remember<T>(list: &mut Vec<T>, item: T) {
    list.push(item);
    if list.len() > REMEMBERED {
        list.remove(0);
    }
}

fn queue(chance: &mut Chance) -> QueueName {
    let [a, b, few, once, memory, same, slow] = names();
    chance.pick(&[a, b, few, once, memory, same, slow]).clone()
}

fn worker(chance: &mut Chance) -> Worker {
    Worker(chance.within(1, 3))
}

fn key(chance: &mut Chance) -> DedupKey {
    DedupKey([u8::try_from(chance.below(2)).expect("a small number"); 20])
}

fn root(chance: &mut Chance) -> Root {
    Root { key: key(chance), at: chance.within(1, 5) }
}

fn priority(chance: &mut Chance) -> u32 {
    *chance.pick(&[0, 1, 1, 1024, u32::MAX])
}

fn span(chance: &mut Chance) -> u64 {
    *chance.pick(&[0, 0, 0, 800, 2500])
}
