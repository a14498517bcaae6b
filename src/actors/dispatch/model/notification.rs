//! The messages to other actors: to the `LockActor` about locks, to the `ProcessActor` about processes.

use super::Model;
use sexton::actors::binding::{Until, Watch};
use sexton::actors::dispatch::{Attempt, Cleaning, RemoteAttempt, Stage, Task, Verdict};
use sexton::actors::lock::{self, Hold, Name};
use sexton::actors::process::{self, LaunchAs, Launching, Spec};
use sexton::bytes::Bytes;
use sexton::ids::{ActorId, ProcessId, Slot, Token};

/// A message to another actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notification {
    Lock(lock::Message),
    Process(Box<process::Message>),
}

fn name(text: &str) -> Name {
    Name::try_from(text).expect("the name is short")
}

fn hold([key, index, owner]: [&Name; 3]) -> Hold {
    Hold { by: ActorId::DISPATCH, key: key.clone(), index: index.clone(), owner: owner.clone() }
}

/// Returns the launch of one of a task's commands, with the environment variables that describe the task and the attempt.
fn launching(
    command: &Launching,
    task: &Task,
    token: Token,
    more: [(&str, String); 2],
) -> Launching {
    let mut launching = command.clone();
    // `past` contains only the latest past attempts, in order; `attempts` counts all attempts so far.
    let place = task.past.iter().position(|it| it.token == token);
    let under_way = usize::from(task.attempt.is_some());
    let later = place.map_or(0, |place| task.past.len() - place - 1 + under_way);
    let all = [
        ("SEXTON_FENCE", token.0.to_string()),
        ("SEXTON_TASK_ATTEMPT", (task.attempts - later as u64).to_string()),
        ("SEXTON_TASK_ID", task.id.to_string()),
        ("SEXTON_TASK_GROUP", task.group.to_text()),
        ("SEXTON_TASK_NAME", task.name.to_text()),
        ("SEXTON_TASK_WORK", task.work.to_text()),
        ("SEXTON_TASK_REVISION", task.revision.to_string()),
    ];
    for (name, value) in all.into_iter().chain(more) {
        let value = Bytes::new(value.into_bytes());
        launching.spec.env.push((name.to_owned(), value));
    }
    launching
}

fn of_attempt(task: &Task, attempt: &Attempt) -> Launching {
    let more = [
        ("SEXTON_TASK_BURST_MS", task.terms.burst_ms.to_string()),
        ("SEXTON_TASK_TERMINATING", u8::from(attempt.last).to_string()),
    ];
    let mut launching = launching(&task.command, task, attempt.token, more);
    launching.spec.secrets.push("SEXTON_TASK_SECRET".to_owned());
    if let Some(reach) = &attempt.reach {
        there(&mut launching.spec, reach);
    }
    launching
}

/// Rewrites a spec into that of the local process that runs the command on another machine and waits for it.
fn there(spec: &mut Spec, reach: &RemoteAttempt) {
    let mut words = vec!["/proc/self/exe wrapper near --to".to_owned(), reach.remote.to.to_text()];
    if !reach.remote.config.as_bytes().is_empty() {
        words.push(format!("--ssh-config {}", reach.remote.config.to_text()));
    }
    if !reach.remote.program.as_bytes().is_empty() {
        words.push(format!("--program {}", reach.remote.program.to_text()));
    }
    words.push(format!("--attempt {}", reach.known_as));
    words.push(format!("--lost-after {}", reach.lost_after_ms));
    words.push(format!("--grace {}", spec.grace_ms));
    let mut argv: Vec<Bytes> =
        words.iter().flat_map(|it| it.split(' ')).map(|it| Bytes::new(it.as_bytes())).collect();
    argv.extend([Bytes::new(*b"--dir"), spec.dir.clone()]);
    if let Some(file) = &spec.env_file {
        argv.extend([Bytes::new(*b"--env-file"), file.clone()]);
    }
    let flags = [(reach.again > 0, "--attach"), (reach.stops, "--stop")];
    let flags = flags.iter().filter(|(is_set, _)| *is_set);
    argv.extend(flags.map(|(_, flag)| Bytes::new(flag.as_bytes())));
    let names = spec.env.iter().map(|(name, _)| name).chain(&spec.secrets);
    for name in names.filter(|it| it.as_str() != "SEXTON_TASK_SECRET") {
        argv.extend([Bytes::new(*b"--pass"), Bytes::new(name.as_bytes())]);
    }
    argv.push(Bytes::new(*b"--"));
    argv.extend(spec.argv.iter().cloned());
    (spec.argv, spec.dir, spec.stop_signal) = (argv, Bytes::new(*b"/"), 15);
    spec.limits.clear();
    spec.grace_ms +=
        u32::try_from(reach.lost_after_ms).expect("the time is at most a day") + 30_000;
}

fn of_cleanup(task: &Task, cleaning: Cleaning) -> Launching {
    let past = task.past.iter().find(|it| it.token == cleaning.token);
    let ended = match past.map(|it| it.verdict) {
        Some(Verdict::Ended(exit)) => exit.name(),
        Some(Verdict::Waits) => "waits",
        Some(Verdict::Reset(cause) | Verdict::FailedOut(cause)) => cause.name(),
        None => "",
    };
    let more = [
        ("SEXTON_TASK_ENDED", ended.to_owned()),
        ("SEXTON_TASK_STATUS", task.status.name().to_owned()),
    ];
    let command = task.cleanup.as_ref().unwrap_or(&task.command);
    launching(command, task, cleaning.token, more)
}

impl Model {
    pub(super) fn tell_yield(&mut self, names: [&Name; 3]) {
        let told = lock::Message::Yield(hold(names));
        self.messages.push(Notification::Lock(told));
    }

    /// Gives up the locks with these keys, whether held or waited for: those of the task's attempt or, without an attempt, those for which
    /// the task itself waits in line.
    pub(super) fn tell_yield_of(&mut self, slot: Slot, keys: &[&str]) {
        let Some(task) = self.task(slot).cloned() else {
            return;
        };
        let attempt = task.attempt.as_ref().map(|it| it.token);
        if let Some(token) = attempt.or(task.blocked) {
            for key in keys {
                let (index, owner) = (task.id.to_string(), format!("attempt-{}", token.0));
                self.tell_yield([&name(key), &name(&index), &name(&owner)]);
            }
        }
    }

    /// Gives up the execute lock when a task ends without an attempt, since the task may be waiting for the lock.
    pub(super) fn tell_over(&mut self, slot: Slot) {
        self.tell_yield_of(slot, &["wip-pool-lock-execute"]);
    }

    pub(super) fn tell_watch(&mut self, process: ProcessId) {
        let (by, until) = (ActorId::DISPATCH, Until::Tree);
        let watch = process::Message::Watch(Watch { by, process, until });
        self.messages.push(Notification::Process(Box::new(watch)));
    }

    /// Requests a launch or, once the launch was accepted, notification of the end of the process.
    fn tell_process(&mut self, id: ProcessId, taken: bool, launching: Launching) {
        if taken {
            return self.tell_watch(id);
        }
        let by = ActorId::DISPATCH;
        let launch = LaunchAs { by, id, launching };
        let told = process::Message::LaunchAs(Box::new(launch));
        self.messages.push(Notification::Process(Box::new(told)));
    }

    /// Sends all outstanding requests for a task.
    pub(super) fn tell_obligations(&mut self, slot: Slot) {
        let Some(task) = self.task(slot).cloned() else {
            return;
        };
        let index = name(&task.id.to_string());
        let mut holds = Vec::new();
        if let Some(token) = task.blocked {
            holds.push(("wip-pool-lock-execute", token));
        }
        let claimed = task.attempt.as_ref().filter(|it| it.stage == Stage::Claimed);
        if let Some(attempt) = claimed {
            holds.push(("wip-pool-lock-execute", attempt.token));
            holds.push(("wip-pool-lock-update", attempt.token));
        }
        for (key, token) in holds {
            let owner = name(&format!("attempt-{}", token.0));
            let told = lock::Message::Hold(hold([&name(key), &index, &owner]));
            self.messages.push(Notification::Lock(told));
        }
        if let Some(cleaning) = task.cleaning {
            let launching = of_cleanup(&task, cleaning);
            self.tell_process(cleaning.process, cleaning.taken, launching);
        }
        if let Some(attempt) = task.attempt.as_ref().filter(|it| it.stage != Stage::Claimed) {
            let launching = of_attempt(&task, attempt);
            self.tell_process(attempt.process, attempt.launched.is_some(), launching);
            let is_told = attempt.reach.as_ref().is_some_and(|it| it.stops);
            if attempt.stopping.is_some() && !is_told {
                let fence = process::Message::Fence(attempt.process);
                self.messages.push(Notification::Process(Box::new(fence)));
            }
        }
    }

    /// Sends all outstanding requests for all tasks, as after startup.
    pub(crate) fn tell_all(&mut self) {
        let mut slots: Vec<Slot> = self.state.tasks.iter().map(|(slot, _)| *slot).collect();
        slots.sort_unstable();
        for slot in slots {
            self.tell_obligations(slot);
        }
    }
}
