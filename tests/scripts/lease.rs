//! The script commands of the lease actor. Times are milliseconds since the beginning of the script.

#![expect(clippy::wildcard_enum_match_arm, reason = "what has no words of its own is passed over")]

use crate::node::{Parsed, Vocabulary, milliseconds, number, split};
use sexton::actors::binding::{Binding, EndNotice, Exit, Until};
use sexton::actors::lease::{
    Action, Claim, Command, FossilLease, Holder, Imported, LeaseMachine, LeaseView, LogEvent,
    Message, Outcome, PassRequest, Query, Reply, Rules, Setting, Step, Watch,
};
use sexton::actors::lock::Name;
use sexton::actors::process::{Launching, Spec};
use sexton::bytes::Bytes;
use sexton::clock::Date;
use sexton::ids::{ProcessId, Slot, Token};
use sexton::schedule::Schedule;
use sexton::spine::delivery::Item;
use sexton::spine::machine::Stamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The time at which every script begins, in milliseconds.
const BEGIN: u64 = 1_000_000_000_000;

/// The options of all commands in this file.
const OPTIONS: &[&str] =
    &["alive", "code", "leases_max", "log", "max_run", "period", "pid", "signal", "ttl"];

type Options<'w> = BTreeMap<&'w str, &'w str>;

/// The process of the last pass of each lease, and the lease in each slot, according to the journal.
#[derive(Default)]
pub(crate) struct Words {
    processes: BTreeMap<Name, ProcessId>,
    names: BTreeMap<Slot, Name>,
}

impl Vocabulary for Words {
    type Machine = LeaseMachine;

    fn rules() -> Rules {
        Rules::default()
    }

    fn rule(rules: &mut Rules, words: &[&str]) -> Parsed<()> {
        let (_, options) = split(words, OPTIONS);
        rules.leases_max = number(&options, "leases_max", rules.leases_max)?;
        Ok(())
    }

    fn item(&self, words: &[&str]) -> Parsed<Option<Item<LeaseMachine>>> {
        let (places, options) = split(words, OPTIONS);
        if let ["show", lease] = places.as_slice() {
            return Ok(Some(Item::Query(Query::Of(name(lease)?))));
        }
        let message = self.message(&places, &options)?;
        Ok(message.map(Item::Message))
    }

    fn watch(&self, words: &[&str]) -> Parsed<Option<(String, Watch)>> {
        let ["wait", who, what, lease, nth] = words else {
            return Ok(None);
        };
        let name = name(lease)?;
        let number = nth.parse().map_err(|_| format!("`{nth}` is no number"))?;
        let watch = match *what {
            "begun" => Watch::Begun { name, number },
            "whole" => Watch::Whole { name, number },
            "ended" => Watch::Ended { name, token: Token(number) },
            _ => return Err(format!("nobody waits for `{what}`")),
        };
        Ok(Some(((*who).to_owned(), watch)))
    }

    fn told(&self, reply: &Reply) -> Vec<String> {
        vec![answer(reply)]
    }

    fn action(what: &Action) -> String {
        let Action { file, token, .. } = what;
        let what = match &what.what {
            LogEvent::Began => "began".to_owned(),
            LogEvent::Ended { ran_ms, exit, warns, .. } => {
                let warns = if *warns { ", with a warning" } else { "" };
                format!("ended after {ran_ms} ms, {exit:?}{warns}")
            }
            LogEvent::Overran { ran_ms, over_ms, .. } => {
                format!("overran after {ran_ms} ms, by {over_ms} ms")
            }
            LogEvent::Missed(missed) => {
                let first = missed.first.0 - BEGIN;
                format!("missed dates from {first}: {}", missed.cause())
            }
        };
        let file = file.as_deref().unwrap_or("no file");
        format!("{file}: {token} {what}")
    }

    fn woken(name: &str, reply: &Reply) -> String {
        format!("{name}: {}", answer(reply))
    }

    fn note(&mut self, stamp: Stamp, message: &Message, outcome: &Outcome) -> Option<String> {
        let at = stamp.at.0 - BEGIN;
        let what = match (message, outcome) {
            (Message::Lapse { .. } | Message::Due { .. }, Outcome::Changed { steps, .. }) => {
                let steps = steps.iter().map(|(_, step)| {
                    let words = format!("{step:?}").to_lowercase();
                    words.split([' ', '(']).next().unwrap_or_default().to_owned()
                });
                let steps: Vec<String> = steps.collect();
                Some(format!("{at} ms: {}", steps.join(", ")))
            }
            _ => None,
        };
        self.follow(message, outcome);
        what
    }
}

impl Words {
    /// Records which lease each process belongs to, and the slots of leases.
    fn follow(&mut self, message: &Message, outcome: &Outcome) {
        let Outcome::Changed { steps, .. } = outcome else {
            return;
        };
        for (slot, step) in steps {
            match step {
                Step::Made => self.names.extend(message.name().map(|name| (*slot, name.clone()))),
                Step::Began { process: Some(process), .. } | Step::Relaunched { process } => {
                    let name = self.names.get(slot).cloned().unwrap_or_default();
                    self.processes.insert(name, *process);
                }
                _ => {}
            }
        }
    }

    fn process(&self, lease: &str) -> Parsed<ProcessId> {
        let process = self.processes.get(&name(lease)?).copied();
        process.ok_or_else(|| format!("nothing was launched for `{lease}`"))
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each command")]
    fn message(&self, places: &[&str], options: &Options<'_>) -> Parsed<Option<Message>> {
        let period = options.get("period").map(|span| milliseconds(span));
        let period_ms = period.transpose()?;
        let max_run = options.get("max_run").map(|span| milliseconds(span));
        let max_run_ms = max_run.transpose()?;
        Ok(Some(match places {
            ["run", lease, more @ ..] => Message::Request(Box::new(PassRequest {
                name: name(lease)?,
                command: (!more.contains(&"set")).then(|| command("work")),
                no_delay: more.contains(&"no-delay"),
                period_ms,
                claim: None,
                log: options.get("log").map(|file| (*file).to_owned()),
                max_run_ms,
            })),
            ["claim", lease, more @ ..] => {
                let pid = number(options, "pid", 0)?;
                let claim = Claim {
                    process: (pid > 0).then(|| bound(pid)),
                    pid,
                    ttl_ms: options.get("ttl").map_or(Ok(60_000), |span| milliseconds(span))?,
                    waits: more.contains(&"waits"),
                };
                Message::Request(Box::new(PassRequest {
                    name: name(lease)?,
                    command: None,
                    no_delay: more.contains(&"no-delay"),
                    period_ms,
                    claim: Some(claim),
                    log: None,
                    max_run_ms,
                }))
            }
            ["renew", lease, token] => {
                Message::Renew { name: name(lease)?, token: of(token)?, process: None }
            }
            ["finish", lease, token] => Message::Finish {
                name: name(lease)?,
                token: of(token)?,
                code: number(options, "code", 0)?,
            },
            ["withdraw", lease, token] => {
                Message::Withdraw { name: name(lease)?, place: of(token)? }
            }
            ["started", lease] => Message::Started(self.process(lease)?),
            ["launched", lease] => Message::Launched(self.process(lease)?),
            ["gone", lease] => {
                let signal: u8 = number(options, "signal", 0)?;
                let exit = if signal > 0 {
                    Exit::Signal(signal)
                } else {
                    Exit::Code(number(options, "code", 0)?)
                };
                let mut gone = gone(self.process(lease)?, Some(exit));
                let pid = options.get("pid").map(|_| number(options, "pid", 0));
                if let Message::Gone(gone) = &mut gone {
                    gone.pid = pid.transpose()?;
                }
                gone
            }
            ["fails", lease] => gone(self.process(lease)?, Some(Exit::Failed)),
            ["lost", lease] => gone(self.process(lease)?, Some(Exit::Lost)),
            ["ends"] => gone(bound(number(options, "pid", 0)?).process, Some(Exit::Lost)),
            ["import", lease, four @ ..] => import(lease, &four.join(" "), options)?,
            ["reset", lease, more @ ..] => {
                Message::Reset { name: name(lease)?, force: more.contains(&"force") }
            }
            ["set", lease, what, value @ ..] => {
                Message::Set { name: name(lease)?, setting: setting(what, &value.join(" "))? }
            }
            _ => return Ok(None),
        }))
    }
}

fn setting(what: &str, value: &str) -> Parsed<Setting> {
    let on = value == "on";
    Ok(match what {
        "period" => Setting::Period(milliseconds(value)?),
        "max-run" => Setting::MaxRun(milliseconds(value)?),
        "no-delay" => Setting::NoDelay(on),
        "disabled" => Setting::Disabled(on),
        "catch-up" => Setting::CatchesUp(on),
        "command" => Setting::Command((value != "none").then(|| command(value))),
        "logfile" => Setting::Log((value != "none").then(|| value.to_owned())),
        "schedule" if value == "none" => Setting::Schedule(None),
        "schedule" => {
            let schedule = Schedule::new(value, None).map_err(|error| error.to_string())?;
            Setting::Schedule(Some(schedule))
        }
        _ => return Err(format!("nobody sets `{what}`")),
    })
}

/// Parses a lease in Fossil's format. The times in it are milliseconds since the beginning of the script.
fn import(lease: &str, text: &str, options: &Options<'_>) -> Parsed<Message> {
    let FossilLease([current, until, next, until_next]) = FossilLease::read(text);
    let alive = options.get("alive").map_or("", |pids| *pids);
    let is_alive = |pid: u64| alive.split(',').any(|it| it.parse() == Ok(pid));
    let imported = |pid: u64, until: u64| Imported {
        pid,
        until: Date(if until == 0 { 0 } else { BEGIN + until }),
        process: is_alive(pid).then(|| bound(pid).process),
    };
    Ok(Message::Import {
        name: name(lease)?,
        current: imported(current, until),
        next: imported(next, until_next),
    })
}

fn gone(process: ProcessId, exit: Option<Exit>) -> Message {
    let until = Until::Tree;
    Message::Gone(EndNotice { process, until, exit, pid: None })
}

fn bound(pid: u64) -> Binding {
    Binding { process: ProcessId(pid.into()), until: Until::Process, fence: false }
}

fn command(word: &str) -> Command {
    let spec = Spec { argv: vec![Bytes::new(word.as_bytes())], ..Spec::default() };
    Arc::new(Launching { spec, ..Launching::default() })
}

fn name(text: &str) -> Parsed<Name> {
    Name::try_from(text).map_err(|error| error.to_string())
}

fn of(text: &str) -> Parsed<Token> {
    let token = text.parse().map_err(|_| format!("`{text}` is no token"))?;
    Ok(Token(token))
}

fn answer(reply: &Reply) -> String {
    match reply {
        Reply::Turned { turn, lease, .. } => {
            let turn = format!("{turn:?}").to_lowercase();
            format!("{turn}; {}", shown(lease))
        }
        Reply::Lease(view) => shown(view),
        Reply::Refused(refused) => format!("refused: {refused}"),
        Reply::Done => "done".to_owned(),
        Reply::Absent => "nothing of the kind".to_owned(),
        Reply::List(_) | Reply::Totals(_) => "more than one".to_owned(),
    }
}

fn shown(view: &LeaseView) -> String {
    let lease = &view.lease;
    let since = |at: u64| at.saturating_sub(BEGIN);
    let mut words = vec![format!("{} begun, {} whole", lease.begun, lease.whole)];
    if view.wanted {
        words.push(format!("{} owed", lease.wanted));
    }
    if let Some(current) = &lease.current {
        let who = match &current.holder {
            Holder::Launched { taken: false, .. } => "launching".to_owned(),
            Holder::Launched { .. } => "launched".to_owned(),
            Holder::Process(_) => format!("process {}", current.pid),
            Holder::Timed { .. } => "client".to_owned(),
            Holder::Nobody => format!("nobody ({})", current.pid),
        };
        let (token, until) = (current.token.0, since(current.until.0));
        let stands = match (&current.end, current.stopping) {
            (Some(_), _) => "over",
            (None, true) => "stopping",
            (None, false) => "runs",
        };
        words.push(format!("{who} {stands} by {token} until {until}"));
    }
    if let Some(place) = &lease.next {
        let who = match (&place.command, place.pid) {
            (Some(_), _) => "a command".to_owned(),
            (None, 0) => "a client".to_owned(),
            (None, pid) => format!("process {pid}"),
        };
        words.push(format!("{who} next by {}, until {}", place.token.0, since(place.until.0)));
    }
    if let Some(missed) = lease.extra.missed {
        words.push(format!("missed dates from {}", since(missed.first.0)));
    }
    if let Some(due) = view.due {
        words.push(format!("asks at {}", since(due.0)));
    }
    words.join("; ")
}
