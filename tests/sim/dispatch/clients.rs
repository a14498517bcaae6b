//! Requests of clients about tasks, and reports of the commands that their bursts run.

use super::judge::Dispatches;
use crate::actor::{Ask, Call};
use crate::chance::Chance;
use crate::reference::Clients;
use crate::setting::Setting;
use sexton::actors::binding::Exit;
use sexton::actors::dispatch::{
    Act, Host, Message, NewTask, Pause, Priority, Query, Remote, RemoteEnd, Reply, Report,
    ServerChange, TaskFilter, TaskView, Terms, Watch,
};
use sexton::actors::lock::Name;
use sexton::actors::process::{Launching, Spec};
use sexton::bytes::Bytes;
use sexton::clock::Date;
use sexton::ids::ProcessId;
use std::sync::Arc;

/// The maximum number of tasks, and of processes, that are remembered.
const REMEMBERED: usize = 8;

/// Clients of one run.
pub(crate) struct TaskClients {
    tasks: Vec<u64>,
    /// Process ids of attempts that were shown, the latest last. Some of the processes have ended.
    processes: Vec<ProcessId>,
}

fn name(chance: &mut Chance, names: &[&str]) -> Name {
    Name::try_from(*chance.pick(names)).expect("the name is short")
}

fn small(chance: &mut Chance, bound: u64) -> u32 {
    u32::try_from(chance.below(bound)).expect("a small number")
}

fn command(chance: &mut Chance) -> Arc<Launching> {
    let argv = *chance.pick(&["true", "work", "work", ""]);
    let spec = Spec { argv: vec![Bytes::new(argv.as_bytes())], ..Spec::default() };
    Arc::new(Launching { spec, ..Launching::default() })
}

fn report(chance: &mut Chance) -> Report {
    match chance.weighted(&[
        (40, 0),
        (15, 1),
        (10, 2),
        (30, 3),
        (5, 4),
        (6, 5),
        (2, 6),
        (3, 7),
        (4, 8),
    ]) {
        0 => {
            let body = *chance.pick(&["a", "bc", "", "longer"]);
            Report::Save(Bytes::new(body.as_bytes()))
        }
        1 => Report::Beat,
        2 => Report::Done { warning: chance.per_mille(300), words: "well".to_owned() },
        3 => Report::Wait { ms: *chance.pick(&[0, 300, 2000, 30_000]) },
        4 => Report::Fail { words: "no".to_owned() },
        5 => Report::Far(RemoteEnd::Ended(*chance.pick(&[
            Exit::Code(0),
            Exit::Signal(9),
            Exit::Lost,
            Exit::Failed,
        ]))),
        6 => Report::Far(RemoteEnd::Unreachable),
        7 => Report::Reached,
        _ => Report::Far(RemoteEnd::NotReached),
    }
}

/// Returns the address of another machine.
fn far() -> Remote {
    Remote { to: Name::try_from("far").expect("the name is short"), ..Remote::default() }
}

fn adding(chance: &mut Chance) -> Message {
    let terms = Terms {
        burst_ms: 300,
        // Pick long times mostly, since the steps of a run cover a long time and short ones would fail every task.
        fail_after_ms: *chance.pick(&[5000, 200_000_000, 200_000_000, 200_000_000]),
        progress_ms: *chance.pick(&[700, 60_000, 200_000_000]),
        abort_on_failure: chance.per_mille(500),
        report_required: chance.per_mille(300),
    };
    Message::Add(Box::new(NewTask {
        work: name(chance, &["", "", "w", "v"]),
        group: name(chance, &["", "g", "g", "h"]),
        name: Name::default(),
        priority: *chance.pick(&[Priority::High, Priority::Medium, Priority::Low]),
        command: command(chance),
        cleanup: chance.per_mille(600).then(|| command(chance)),
        terms: chance.per_mille(900).then_some(terms),
        not_ready: chance.per_mille(60),
        paused: chance.per_mille(60),
    }))
}

fn setting(chance: &mut Chance) -> Message {
    let hosts = |chance: &mut Chance| {
        let host = |chance: &mut Chance| Host {
            name: name(chance, &["local", "a", "b", "c"]),
            threads: small(chance, 4),
            remote: chance.per_mille(400).then(far),
        };
        (0..chance.below(3)).map(|_| host(chance)).collect()
    };
    match chance.weighted(&[(25, 0), (20, 1), (40, 2), (15, 3)]) {
        0 => Message::Pause {
            group: chance.per_mille(500).then(|| name(chance, &["default", "g"])),
            pause: *chance.pick(&[Pause::Off, Pause::Off, Pause::Off, Pause::Soft, Pause::Hard]),
        },
        1 => Message::Limit {
            group: name(chance, &["default", "g", "h", "i"]),
            max: *chance.pick(&[0, 0, 1, 3]),
        },
        2 => Message::Server {
            name: name(chance, &["local", "local", "a", "b", "c"]),
            change: chance
                .pick(&[
                    ServerChange::Threads(1),
                    ServerChange::Threads(2),
                    ServerChange::Threads(3),
                    ServerChange::Enabled(true),
                    ServerChange::Enabled(true),
                    ServerChange::Enabled(false),
                    ServerChange::Removed,
                    ServerChange::Reached { threads: 2, remote: far() },
                    ServerChange::Reached { threads: 3, remote: far() },
                ])
                .clone(),
        },
        _ => Message::Inventory { hosts: hosts(chance) },
    }
}

impl TaskClients {
    fn task(&self, chance: &mut Chance) -> u64 {
        if self.tasks.is_empty() { 1 } else { *chance.pick(&self.tasks) }
    }

    fn process(&self, chance: &mut Chance) -> ProcessId {
        // Prefer the latest process, because it is more likely to be live.
        let last = self.processes.last().filter(|_| chance.per_mille(600));
        if let Some(last) = last {
            *last
        } else if self.processes.is_empty() {
            ProcessId(1)
        } else {
            *chance.pick(&self.processes)
        }
    }

    fn message(&self, chance: &mut Chance) -> Message {
        match chance.weighted(&[(20, 0), (50, 1), (20, 2), (8, 3), (2, 4)]) {
            0 => adding(chance),
            1 => {
                let process = self.process(chance);
                let report = report(chance);
                let nth = chance.per_mille(300).then(|| chance.below(4));
                Message::Report { process, report, nth }
            }
            2 => Message::Act {
                task: self.task(chance),
                act: *chance.pick(&[
                    Act::Ready,
                    Act::Pause,
                    Act::Resume,
                    Act::Resume,
                    Act::Wake,
                    Act::Wake,
                    Act::Wake,
                    Act::Terminate { now: false },
                    Act::Terminate { now: true },
                    Act::Restart,
                    Act::Restart,
                    Act::Restart,
                    Act::Restart,
                ]),
            },
            3 => setting(chance),
            _ => Message::Prune {
                before: Some(Date(*chance.pick(&[0, u64::MAX]))),
                keep: small(chance, 3),
                limit: small(chance, 3),
            },
        }
    }

    fn query(&self, chance: &mut Chance) -> Query {
        match chance.below(10) {
            0 => Query::Task(self.task(chance)),
            1 => Query::Saved(self.process(chance)),
            2 => Query::Servers,
            3 => Query::Groups,
            4 => Query::Totals,
            _ => Query::Tasks {
                filter: TaskFilter::default(),
                after: None,
                limit: small(chance, 8) + 1,
            },
        }
    }

    fn see(&mut self, view: &TaskView) {
        self.tasks.push(view.task.id);
        let attempt = view.task.attempt.as_ref();
        self.processes.extend(attempt.map(|it| it.process));
    }
}

impl Clients<Dispatches> for TaskClients {
    fn new(_: &Setting) -> Self {
        Self { tasks: Vec::new(), processes: Vec::new() }
    }

    fn call(&mut self, chance: &mut Chance) -> Vec<Ask<Dispatches>> {
        (0..*chance.pick(&[1, 1, 1, 2, 3]))
            .map(|_| {
                if chance.per_mille(300) {
                    Ask::Query(self.query(chance))
                } else {
                    Ask::Message(self.message(chance))
                }
            })
            .collect()
    }

    fn watch(&self, chance: &mut Chance) -> Watch {
        match chance.weighted(&[(70, 0), (20, 1), (10, 2)]) {
            0 => Watch::Over(self.task(chance)),
            1 => Watch::Idle,
            _ => Watch::ServersWanted,
        }
    }

    fn note(&mut self, call: &Call<Dispatches>) {
        for answer in call.answers.iter().flatten().flatten() {
            if let Reply::Task(view) = answer {
                self.see(view);
            } else if let Reply::Tasks(list) = answer {
                for view in &list.tasks {
                    self.see(view);
                }
            }
        }
        let old = self.tasks.len().saturating_sub(REMEMBERED);
        self.tasks.drain(..old);
        let old = self.processes.len().saturating_sub(REMEMBERED);
        self.processes.drain(..old);
    }
}
