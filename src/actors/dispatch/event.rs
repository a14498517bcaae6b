//! The events that a journal entry causes, for subscribers: changes to tasks, their attempts, servers, groups and pauses.

use crate::actors::binding::Exit;
use crate::actors::dispatch::message::{Message, Report};
use crate::actors::dispatch::outcome::{Outcome, Step, TaskStep};
use crate::actors::dispatch::remote::RemoteEnd;
use crate::actors::dispatch::state::State;
use crate::actors::dispatch::task::{Task, Verdict};
use crate::ids::Slot;
use crate::spine::event::EventBody;
use crate::spine::machine::Stamp;

pub(super) const KINDS: &[&str] = &[
    "added",
    "blocked",
    "claimed",
    "cleaned",
    "completed",
    "failed",
    "forgotten",
    "group-set",
    "launched",
    "locked",
    "pause",
    "paused",
    "ready",
    "reattached",
    "reset",
    "restarted",
    "resumed",
    "said",
    "saved",
    "server-added",
    "server-answered",
    "server-changed",
    "server-disabled",
    "server-enabled",
    "server-failed",
    "server-removed",
    "stopping",
    "terminating",
    "unblocked",
    "unreachable",
    "waits",
    "woken",
];

/// Passes the events of an outcome to `emit`, in order. Must be called before the outcome is committed, while `state` is unchanged.
pub(super) fn events(
    state: &State,
    entry: Stamp,
    (message, outcome): (&Message, &Outcome),
    emit: &mut dyn FnMut(EventBody),
) {
    let Outcome::Changed { steps, .. } = outcome else {
        return;
    };
    for step in steps {
        let what = match step {
            Step::Task(slot, step) => of_task(state, entry, message, (*slot, step)),
            Step::ServerMade { name, threads, .. } => Some(
                EventBody::new("server-added")
                    .name("server", name.as_bytes())
                    .number("threads", *threads),
            ),
            Step::ServerThreads(slot, threads) => {
                of_server(state, *slot, "server-changed").map(|it| it.number("threads", *threads))
            }
            Step::ServerReached(slot, remote) => of_server(state, *slot, "server-changed")
                .map(|it| it.name("ssh", remote.to.as_bytes())),
            Step::ServerEnabled(slot, true) => of_server(state, *slot, "server-enabled"),
            Step::ServerEnabled(slot, false) => of_server(state, *slot, "server-disabled"),
            Step::ServerFailed(slot, outage) => {
                of_server(state, *slot, "server-failed").map(|it| {
                    let it = it.text("process", outage.process.to_string());
                    let it = it.number("failures", outage.failures);
                    it.number("retry", outage.retry.0)
                })
            }
            Step::ServerAnswered(slot) => of_server(state, *slot, "server-answered"),
            Step::ServerRemoved(slot) => of_server(state, *slot, "server-removed"),
            Step::GroupSet { name, max, pause, .. } => {
                let set = EventBody::new("group-set").name("group", name.as_bytes());
                let set = match max {
                    Some(max) => set.number("max", *max),
                    None => set,
                };
                Some(set.text("pause", pause.name()))
            }
            Step::Paused(pause) => Some(EventBody::new("pause").text("pause", pause.name())),
            Step::Rests | Step::GivesBack(_) => None,
        };
        what.into_iter().for_each(&mut *emit);
    }
}

fn of_server(state: &State, slot: Slot, kind: &'static str) -> Option<EventBody> {
    let server = state.servers.get(slot)?;
    Some(EventBody::new(kind).name("server", server.name.as_bytes()))
}

fn of_task(
    state: &State,
    entry: Stamp,
    message: &Message,
    (slot, step): (Slot, &TaskStep),
) -> Option<EventBody> {
    let task = state.tasks.get(slot);
    let id = task.map_or(entry.seq.0, |it| it.id);
    let named = |kind| EventBody::new(kind).number("task", id);
    let attempt = task.and_then(|it| it.attempt.as_ref());
    let token = attempt.map_or(0, |it| it.token.0);
    let of_attempt = |kind| named(kind).number("attempt", token);
    let what = match step {
        TaskStep::Added { .. } => {
            let Message::Add(adding) = message else {
                return None;
            };
            named("added")
                .name("group", adding.group.as_bytes())
                .name("name", adding.name.as_bytes())
                .name("work", adding.work.as_bytes())
        }
        TaskStep::Claimed { server, process, .. } => {
            let name = state.servers.get(*server).map(|it| it.name.clone());
            named("claimed")
                .number("attempt", entry.seq.0)
                .name("server", name.unwrap_or_default().as_bytes())
                .text("process", process.to_string())
                .number("used", state.index.threads.used(*server))
        }
        TaskStep::Reattached { process } => {
            of_attempt("reattached").text("process", process.to_string())
        }
        TaskStep::Locked => of_attempt("locked"),
        TaskStep::Launched => of_attempt("launched"),
        TaskStep::Blocked => of_attempt("blocked"),
        TaskStep::Unblocked => named("unblocked"),
        TaskStep::Reported { .. } => return reported(task, message, of_attempt),
        TaskStep::Stopping(cause) => of_attempt("stopping").text("cause", cause.name()),
        TaskStep::Ended { exit, verdict, .. } => ended(of_attempt, *verdict, *exit),
        TaskStep::Over { exit, .. } => named("completed").text("exit", exit.name()),
        TaskStep::Ready => named("ready"),
        TaskStep::Paused(true) => named("paused"),
        TaskStep::Paused(false) => named("resumed"),
        TaskStep::Woken(_) => named("woken"),
        TaskStep::Terminating => named("terminating"),
        TaskStep::Restarted => named("restarted"),
        TaskStep::Forgotten => named("forgotten"),
        TaskStep::CleanupEnded(exit) => with_exit(named("cleaned"), Some(*exit)),
        TaskStep::Updates | TaskStep::Excused | TaskStep::CleanupLaunched => return None,
    };
    Some(what)
}

fn reported(
    task: Option<&Task>,
    message: &Message,
    of_attempt: impl Fn(&'static str) -> EventBody,
) -> Option<EventBody> {
    let Message::Report { report, .. } = message else {
        return None;
    };
    let said = |what| Some(of_attempt("said").text("what", what));
    match report {
        Report::Save(body) => {
            let revision = task.map_or(0, |it| it.revision) + 1;
            let bytes = body.as_bytes().len() as u64;
            let saved = of_attempt("saved").number("revision", revision);
            Some(saved.number("bytes", bytes))
        }
        Report::Far(RemoteEnd::Unreachable) => Some(of_attempt("unreachable")),
        Report::Beat
        | Report::Reached
        | Report::Far(RemoteEnd::Ended(_) | RemoteEnd::NotReached) => None,
        Report::Done { .. } => said("done"),
        Report::Wait { .. } => said("wait"),
        Report::Fail { .. } => said("fail"),
    }
}

fn ended(
    of_attempt: impl Fn(&'static str) -> EventBody,
    verdict: Verdict,
    exit: Option<Exit>,
) -> EventBody {
    let what = match verdict {
        Verdict::Ended(exit) if exit.is_failure() => of_attempt("failed").text("exit", exit.name()),
        Verdict::Ended(exit) => of_attempt("completed").text("exit", exit.name()),
        Verdict::Waits => of_attempt("waits"),
        Verdict::Reset(cause) => of_attempt("reset").text("cause", cause.name()),
        Verdict::FailedOut(cause) => of_attempt("failed").text("cause", cause.name()),
    };
    with_exit(what, exit)
}

fn with_exit(what: EventBody, exit: Option<Exit>) -> EventBody {
    match exit {
        Some(Exit::Code(code)) => what.number("code", code),
        Some(Exit::Signal(signal)) => what.number("signal", signal),
        Some(Exit::Lost) => what.text("exit", "lost"),
        Some(Exit::Failed) => what.text("exit", "failed"),
        None => what,
    }
}
