//! The process actor's script commands for services. `configure db web/after=db/instances=2` configures two services.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "what has no words of its own is shown as it is"
)]

use crate::node::{Parsed, milliseconds};
use sexton::actors::process::{
    Consequence, Definition, InstanceView, Message, Policy, Ready, ServiceMessage,
    ServiceStep as Step, ServiceView, Turn, Verdict,
};
use sexton::bytes::Bytes;

/// Parses a request about services. Returns `None` for other commands.
pub(crate) fn asked(places: &[&str]) -> Parsed<Option<ServiceMessage>> {
    let name = |name: &str| (name != "all").then(|| name.to_owned());
    Ok(Some(match places {
        ["configure", all @ ..] => {
            let all: Parsed<Vec<Definition>> = all.iter().map(|words| defined(words)).collect();
            ServiceMessage::Configure(all?)
        }
        ["service", "start", which] => ServiceMessage::Start(name(which)),
        ["service", "stop", which] => ServiceMessage::Stop(name(which)),
        ["service", "restart", which] => ServiceMessage::Restart(name(which)),
        ["hold"] => ServiceMessage::Hold,
        _ => return Ok(None),
    }))
}

fn defined(words: &str) -> Parsed<Definition> {
    let mut parts = words.split('/');
    let name = parts.next().unwrap_or_default();
    let mut it = Definition { name: name.to_owned(), ..Definition::default() };
    it.spec.argv = vec![Bytes::new(format!("./{name}").into_bytes())];
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let wrong = |_| format!("`{part}` is no number");
        match key {
            "after" => it.after = value.split(',').map(str::to_owned).collect(),
            "instances" => it.instances = value.parse().map_err(wrong)?,
            "ready" => it.spec.ready = Ready::Notify,
            "ready_timeout" => {
                let span = u32::try_from(milliseconds(value)?);
                it.spec.ready_timeout_ms = span.map_err(|_| "too long".to_owned())?;
            }
            "lazy" => it.autostart = false,
            "arg" => it.spec.argv.push(Bytes::new(value.as_bytes())),
            "max" => {
                if let Some(intensity) = &mut it.intensity {
                    intensity.restarts_max = value.parse().map_err(wrong)?;
                }
            }
            "period" => {
                if let Some(intensity) = &mut it.intensity {
                    intensity.period_ms = milliseconds(value)?;
                }
            }
            "never" => it.restart = Policy::Never,
            "on-failure" => it.restart = Policy::OnFailure,
            other => return Err(format!("a service has no `{other}`")),
        }
    }
    Ok(it)
}

/// Describes the effect of time on a service. Returns `None` for other messages.
pub(crate) fn note(message: &Message, turn: &Turn) -> Option<String> {
    let Message::Service(ServiceMessage::Lapse { .. }) = message else {
        return None;
    };
    let words = turn.steps.iter().map(step);
    let words: Vec<String> = words
        .chain(turn.process.iter().map(|_| "a process of a service is stopped".to_owned()))
        .collect();
    Some(words.join(", "))
}

fn step(step: &Step) -> String {
    match step {
        Step::Launched { nth, insertion, .. } => format!(
            "{}{} is launched, process {} of its service",
            insertion.kind,
            insertion.number,
            nth + 1
        ),
        Step::Removed { .. } => "a service is removed".to_owned(),
        Step::Deferred { .. } => "a launch is put off".to_owned(),
        Step::Ended { then, .. } => match then {
            Consequence::Nothing => "a process has ended as it was to".to_owned(),
            Consequence::Again { .. } => "a process has ended, and is launched again".to_owned(),
            Consequence::Never(Verdict::Finished) => "a process has done its work".to_owned(),
            Consequence::Never(Verdict::Failed) => "a process is given up".to_owned(),
        },
        other => format!("{other:?}"),
    }
}

/// Returns a description of a service. Empty parts are left out.
pub(crate) fn shown(view: &ServiceView) -> String {
    let mut words = vec![format!("{} {}", view.name, view.status.name())];
    if !view.waits_for.is_empty() {
        words.push(format!("for {}", view.waits_for.join(", ")));
    }
    words.extend(view.instances.iter().map(instance));
    words.join("; ")
}

fn instance(view: &InstanceView) -> String {
    let pid = view.pid.map_or("no PID".to_owned(), |pid| format!("PID {pid}"));
    format!("{} {} restarts", pid, view.restarts)
}
