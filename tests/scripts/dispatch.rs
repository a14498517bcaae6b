//! The script commands of the dispatch actor. A task is identified by its name in the script.

#![expect(clippy::wildcard_enum_match_arm, reason = "what has no words of its own is passed over")]

use crate::node::{Parsed, Vocabulary, milliseconds, number, split};
use sexton::actors::binding::{EndNotice, Exit, Until};
use sexton::actors::dispatch::{
    Act, DispatchMachine, Host, Message, NewTask, Outcome, Past, Pause, Priority, Query, Remote,
    RemoteEnd, Reply, Report, Rules, ServerChange, Stage, Step, TaskStep, TaskView, Terms, Verdict,
    Watch,
};
use sexton::actors::lock::{LockState, Name};
use sexton::actors::process::{Launching, Spec};
use sexton::bytes::Bytes;
use sexton::ids::{ProcessId, Slot, Token};
use sexton::spine::delivery::Item;
use sexton::spine::machine::Stamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The options of all commands in this file.
const OPTIONS: &[&str] = &[
    "code",
    "fail-after",
    "group",
    "group_max",
    "keep",
    "kept",
    "kept_max",
    "local",
    "per_thread",
    "priority",
    "progress",
    "saved_max",
    "signal",
    "tasks_max",
    "threads",
    "work",
    "nth",
    "ssh",
];

type Options<'w> = BTreeMap<&'w str, &'w str>;

/// A task, according to the journal.
#[derive(Default)]
struct TrackedTask {
    id: u64,
    token: Token,
    process: Option<ProcessId>,
    /// The process of the previous attempt.
    former: Option<ProcessId>,
    cleanup: Option<ProcessId>,
    server: Option<Slot>,
}

/// The time at which every script begins, in milliseconds.
const BEGIN: u64 = 1_000_000_000_000;

/// Tasks by name, and the names of tasks and servers by slot.
#[derive(Default)]
pub(crate) struct Words {
    tasks: BTreeMap<String, TrackedTask>,
    names: BTreeMap<Slot, String>,
    servers: BTreeMap<Slot, String>,
}

impl Vocabulary for Words {
    type Machine = DispatchMachine;

    fn rules() -> Rules {
        Rules::default()
    }

    fn rule(rules: &mut Rules, words: &[&str]) -> Parsed<()> {
        let (_, options) = split(words, OPTIONS);
        rules.tasks_max = number(&options, "tasks_max", rules.tasks_max)?;
        rules.local_threads = number(&options, "local", rules.local_threads)?;
        rules.tasks_per_thread = number(&options, "per_thread", rules.tasks_per_thread)?;
        rules.saved_bytes_max = number(&options, "saved_max", rules.saved_bytes_max)?;
        rules.kept_max = number(&options, "kept_max", rules.kept_max)?;
        rules.group_max = number(&options, "group_max", rules.group_max)?;
        if let Some(span) = options.get("kept") {
            rules.kept_ms = milliseconds(span)?;
        }
        Ok(())
    }

    fn item(&self, words: &[&str]) -> Parsed<Option<Item<DispatchMachine>>> {
        let (places, options) = split(words, OPTIONS);
        let query = match places.as_slice() {
            ["show", task] => Some(Query::Task(self.id(task)?)),
            ["servers"] => Some(Query::Servers),
            ["groups"] => Some(Query::Groups),
            ["totals"] => Some(Query::Totals),
            ["saved", task] => Some(Query::Saved(self.process(task)?)),
            _ => None,
        };
        if let Some(query) = query {
            return Ok(Some(Item::Query(query)));
        }
        let message = self.message(&places, &options)?;
        Ok(message.map(Item::Message))
    }

    fn watch(&self, words: &[&str]) -> Parsed<Option<(String, Watch)>> {
        match words {
            ["wait", who, "idle"] => Ok(Some(((*who).to_owned(), Watch::Idle))),
            ["wait", who, "servers"] => Ok(Some(((*who).to_owned(), Watch::ServersWanted))),
            ["wait", who, task] => Ok(Some(((*who).to_owned(), Watch::Over(self.id(task)?)))),
            _ => Ok(None),
        }
    }

    fn told(&self, reply: &Reply) -> Vec<String> {
        answer(reply)
    }

    fn woken(name: &str, reply: &Reply) -> String {
        format!("{name}: {}", answer(reply).join("; "))
    }

    fn note(&mut self, stamp: Stamp, message: &Message, outcome: &Outcome) -> Option<String> {
        let by_time = matches!(message, Message::Lapse { .. } | Message::Dispatch);
        let Outcome::Changed { steps, .. } = outcome else {
            return None;
        };
        let told: Vec<String> =
            steps.iter().filter_map(|step| self.follow(stamp, message, step)).collect();
        by_time.then(|| told.join(", "))
    }
}

impl Words {
    /// Applies a step of an entry. Returns its description if it is of interest.
    fn follow(&mut self, stamp: Stamp, message: &Message, step: &Step) -> Option<String> {
        let (slot, step) = match step {
            Step::Task(slot, step) => (slot, step),
            Step::ServerMade { name, .. } => {
                let free = (0..1000).map(Slot).find(|it| !self.servers.contains_key(it));
                self.servers.insert(free?, name.to_text());
                return None;
            }
            Step::ServerRemoved(slot) => {
                let runs = |it: &TrackedTask| it.server == Some(*slot);
                if !self.tasks.values().any(runs) {
                    self.servers.remove(slot);
                }
                return None;
            }
            Step::Rests => return Some("rests".to_owned()),
            _ => return None,
        };
        if let (TaskStep::Added { .. }, Message::Add(adding)) = (step, message) {
            let name = adding.name.to_text();
            self.names.insert(*slot, name.clone());
            let id = stamp.seq.0;
            let known = TrackedTask { id, ..TrackedTask::default() };
            self.tasks.insert(name, known);
        }
        let name = self.names.get(slot)?.clone();
        let known = self.tasks.get_mut(&name)?;
        Some(match step {
            TaskStep::Claimed { server, process, .. } => {
                known.former = known.process.replace(*process);
                known.token = stamp.seq.into();
                known.server = Some(*server);
                let server = self.servers.get(server);
                let server = server.map_or("?", String::as_str);
                format!("{name} begins on {server}")
            }
            TaskStep::Ended { verdict, cleanup, .. } => {
                known.cleanup = *cleanup;
                known.server = None;
                format!("{name} {}", came_to(*verdict))
            }
            TaskStep::Stopping(cause) => format!("{name} is stopped: {}", cause.name()),
            TaskStep::Excused => format!("{name} is excused"),
            TaskStep::Reattached { process } => {
                known.former = known.process.replace(*process);
                format!("{name} is asked for again")
            }
            TaskStep::Woken(_) => format!("{name} wakes"),
            TaskStep::Forgotten => format!("{name} is forgotten"),
            other => format!("{name} {other:?}"),
        })
    }

    fn known(&self, task: &str) -> Parsed<&TrackedTask> {
        let known = self.tasks.get(task);
        known.ok_or_else(|| format!("there is no task `{task}`"))
    }

    fn id(&self, task: &str) -> Parsed<u64> {
        match task.parse() {
            Ok(id) => Ok(id),
            Err(_) => Ok(self.known(task)?.id),
        }
    }

    fn process(&self, task: &str) -> Parsed<ProcessId> {
        let process = self.known(task)?.process;
        process.ok_or_else(|| format!("`{task}` never began"))
    }

    fn held(&self, task: &str, key: &str, granted: bool) -> Parsed<Message> {
        let known = self.known(task)?;
        Ok(Message::Held(LockState {
            key: name(&format!("wip-pool-lock-{key}"))?,
            index: name(&known.id.to_string())?,
            owner: name(&format!("attempt-{}", known.token))?,
            granted,
        }))
    }

    fn message(&self, places: &[&str], options: &Options<'_>) -> Parsed<Option<Message>> {
        let act = |task: &str, act| Ok(Some(Message::Act { task: self.id(task)?, act }));
        let report = |process, report| {
            Ok(Some(Message::Report {
                process,
                report,
                nth: number::<u32>(options, "nth", 0)
                    .ok()
                    .filter(|nth| *nth > 0)
                    .map(|nth: u32| nth.into()),
            }))
        };
        match places {
            ["add", task, more @ ..] => adding(task, more, options).map(Some),
            ["ready", task] => act(task, Act::Ready),
            ["pause", task] => act(task, Act::Pause),
            ["resume", task] => act(task, Act::Resume),
            ["wake", task] => act(task, Act::Wake),
            ["terminate", task, more @ ..] => {
                let now = more.contains(&"now");
                act(task, Act::Terminate { now })
            }
            ["restart", task] => act(task, Act::Restart),
            ["granted", task, key] => self.held(task, key, true).map(Some),
            ["busy", task, key] => self.held(task, key, false).map(Some),
            ["launched", task] => Ok(Some(Message::Launched(self.process(task)?))),
            ["gone", task, more @ ..] => {
                let process = self.process(task)?;
                gone(process, more, options).map(Some)
            }
            ["cleaned", task, more @ ..] => {
                let process = self.known(task)?.cleanup;
                let process = process.ok_or_else(|| format!("nothing cleans up after `{task}`"))?;
                gone(process, more, options).map(Some)
            }
            ["save", task, text] => {
                let body = Bytes::new(text.as_bytes());
                report(self.process(task)?, Report::Save(body))
            }
            ["save-late", task, text] => {
                let former = self.known(task)?.former;
                let process = former.ok_or_else(|| format!("`{task}` had one attempt"))?;
                report(process, Report::Save(Bytes::new(text.as_bytes())))
            }
            ["beat", task] => report(self.process(task)?, Report::Beat),
            ["done", task, more @ ..] => {
                let (warning, words) = (more.contains(&"warning"), String::new());
                report(self.process(task)?, Report::Done { warning, words })
            }
            ["waits", task, span] => {
                let ms = milliseconds(span)?;
                report(self.process(task)?, Report::Wait { ms })
            }
            ["reached", task] => report(self.process(task)?, Report::Reached),
            ["there", task, how @ ..] => report(self.process(task)?, Report::Far(there(how)?)),
            ["fails", task, words @ ..] => {
                let words = words.join(" ");
                report(self.process(task)?, Report::Fail { words })
            }
            _ => operating(places, options),
        }
    }
}

/// Parses the result of an attempt on another machine, such as `code 0` or `lost`.
fn there(how: &[&str]) -> Parsed<RemoteEnd> {
    let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is no number"));
    Ok(match how {
        ["unreachable"] => RemoteEnd::Unreachable,
        ["not-reached"] => RemoteEnd::NotReached,
        ["lost"] => RemoteEnd::Ended(Exit::Lost),
        ["failed"] => RemoteEnd::Ended(Exit::Failed),
        ["code", code] => RemoteEnd::Ended(Exit::Code(number(code)?)),
        _ => return Err(format!("`{how:?}`?")),
    })
}

/// Parses a request of an operator. Returns `None` for other commands.
fn operating(places: &[&str], options: &Options<'_>) -> Parsed<Option<Message>> {
    let server = |server: &str, change| {
        let name = name(server)?;
        Ok(Some(Message::Server { name, change }))
    };
    match places {
        ["pause-all", how] => Ok(Some(Message::Pause { group: None, pause: pause(how)? })),
        ["pause-group", group, how] => {
            Ok(Some(Message::Pause { group: Some(name(group)?), pause: pause(how)? }))
        }
        ["limit", group, max] => Ok(Some(Message::Limit {
            group: name(group)?,
            max: max.parse().map_err(|_| format!("`{max}` is no number"))?,
        })),
        ["server", which, "on"] => server(which, ServerChange::Enabled(true)),
        ["server", which, "off"] => server(which, ServerChange::Enabled(false)),
        ["server", which, "remove"] => server(which, ServerChange::Removed),
        ["server", which] => {
            let threads = number(options, "threads", 1)?;
            match options.get("ssh") {
                None => server(which, ServerChange::Threads(threads)),
                Some(to) => {
                    let remote = Remote { to: name(to)?, ..Remote::default() };
                    server(which, ServerChange::Reached { threads, remote })
                }
            }
        }
        ["inventory", hosts @ ..] => {
            let host = |text: &&str| {
                let (host, threads) = text.split_once(':').unwrap_or((text, "1"));
                let threads = threads.parse().map_err(|_| format!("`{text}`?"))?;
                let name = name(host)?;
                let remote = None;
                Ok(Host { name, threads, remote })
            };
            let hosts: Parsed<Vec<Host>> = hosts.iter().map(host).collect();
            Ok(Some(Message::Inventory { hosts: hosts? }))
        }
        ["prune"] => Ok(Some(Message::Prune {
            before: None,
            keep: number(options, "keep", 0)?,
            limit: 1000,
        })),
        _ => Ok(None),
    }
}

fn adding(task: &str, more: &[&str], options: &Options<'_>) -> Parsed<Message> {
    let named = |option| options.get(option).map_or(Ok(Name::default()), |it| name(it));
    let usual = Terms::default();
    let span = |option, usual| options.get(option).map_or(Ok(usual), |it| milliseconds(it));
    let terms = Terms {
        fail_after_ms: span("fail-after", usual.fail_after_ms)?,
        progress_ms: span("progress", usual.progress_ms)?,
        abort_on_failure: !more.contains(&"retry"),
        report_required: more.contains(&"required"),
        ..usual
    };
    let priority = match options.get("priority").copied() {
        None | Some("2") => Priority::Medium,
        Some("0") => Priority::Critical,
        Some("1") => Priority::High,
        Some("3") => Priority::Low,
        Some(other) => return Err(format!("there is no priority {other}")),
    };
    let cleanup = more.contains(&"cleans").then(|| command("clean"));
    Ok(Message::Add(Box::new(NewTask {
        work: named("work")?,
        group: named("group")?,
        name: name(task)?,
        priority,
        command: command("work"),
        cleanup,
        terms: Some(terms),
        not_ready: more.contains(&"not-ready"),
        paused: more.contains(&"paused"),
    })))
}

fn gone(process: ProcessId, more: &[&str], options: &Options<'_>) -> Parsed<Message> {
    let signal: u8 = number(options, "signal", 0)?;
    let exit = match more.first() {
        Some(&"unlaunched") => Exit::Failed,
        Some(&"lost") => Exit::Lost,
        _ if signal > 0 => Exit::Signal(signal),
        _ => Exit::Code(number(options, "code", 0)?),
    };
    Ok(Message::Gone(EndNotice { process, until: Until::Tree, exit: Some(exit), pid: None }))
}

fn command(word: &str) -> Arc<Launching> {
    let spec = Spec { argv: vec![Bytes::new(word.as_bytes())], ..Spec::default() };
    Arc::new(Launching { spec, ..Launching::default() })
}

fn pause(how: &str) -> Parsed<Pause> {
    match how {
        "off" => Ok(Pause::Off),
        "soft" => Ok(Pause::Soft),
        "hard" => Ok(Pause::Hard),
        _ => Err(format!("nothing is paused `{how}`")),
    }
}

fn name(text: &str) -> Parsed<Name> {
    Name::try_from(text).map_err(|error| error.to_string())
}

fn answer(reply: &Reply) -> Vec<String> {
    vec![match reply {
        Reply::Task(view) => shown(view),
        Reply::Tasks(_) => "more than one".to_owned(),
        Reply::Saved(revision, body) => {
            let body = body.as_ref().map(|it| String::from_utf8_lossy(it.as_bytes()));
            format!("revision {revision}: {}", body.unwrap_or("nothing".into()))
        }
        Reply::Servers(servers) => {
            let all = servers.iter().map(|it| {
                let name = it.name.to_text();
                let state = match (it.leaves, it.enabled) {
                    (true, _) => ", leaves",
                    (false, true) => "",
                    (false, false) => ", disabled",
                };
                let outage = it.outage.map_or_else(String::new, |it| {
                    let retry = it.retry.0.saturating_sub(BEGIN);
                    format!(", not reached {} times, retry at {retry} ms", it.failures)
                });
                format!("{name}: {} of {}{state}{outage}", it.used, it.threads)
            });
            return all.collect();
        }
        Reply::Groups(groups) => {
            let all = groups.iter().map(|it| {
                let (name, pause) = (it.name.to_text(), it.pause.name());
                let (used, max, ready) = (it.used, it.max, it.ready);
                format!("{name}: {used} of {max}, {ready} ready, pause {pause}")
            });
            return all.collect();
        }
        Reply::Totals(totals) => format!("{totals:?}"),
        Reply::Terms(terms) => format!("{terms:?}"),
        Reply::WorkInProgress(standing) => format!("{standing:?}"),
        Reply::Reconciled { added, removed, changed } => {
            format!("{added} added, {removed} removed, {changed} changed")
        }
        Reply::Pruned(count, more) => format!("{count} pruned, more: {more}"),
        Reply::Done => "done".to_owned(),
        Reply::Absent => "nothing of the kind".to_owned(),
        Reply::Refused(refused) => format!("refused: {refused}"),
    }]
}

fn shown(view: &TaskView) -> String {
    let task = &view.task;
    let mut words = vec![task.status.name().to_owned()];
    if task.exit.number() > 0 {
        words.push(task.exit.name().to_owned());
    }
    if let (Some(attempt), Some(server)) = (&task.attempt, &view.server) {
        let stage = match attempt.stage {
            Stage::Claimed => "claimed",
            Stage::Locked => "locked",
            Stage::Launched => "launched",
        };
        words.push(format!("{stage} on {}", server.to_text()));
        words.extend(attempt.stopping.map(|it| format!("stopping: {}", it.name())));
    }
    if let Some(obstacle) = &view.obstacle {
        words.push(obstacle.to_string());
    }
    if !task.words.is_empty() {
        words.push(task.words.clone());
    }
    if task.revision > 0 {
        words.push(format!("revision {}", task.revision));
    }
    let past = |it: &Past| came_to(it.verdict);
    let past: Vec<String> = task.past.iter().map(past).collect();
    if !past.is_empty() {
        words.push(format!("({})", past.join(", ")));
    }
    words.join("; ")
}

fn came_to(verdict: Verdict) -> String {
    match verdict {
        Verdict::Ended(exit) => exit.name().to_owned(),
        Verdict::Waits => "waits".to_owned(),
        Verdict::Reset(cause) => format!("reset by {}", cause.name()),
        Verdict::FailedOut(cause) => format!("failed by {}", cause.name()),
    }
}
