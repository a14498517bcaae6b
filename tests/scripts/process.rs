//! The script commands of the process actor. A record is named by its type and a number: the first `worker` is `worker1`.
//!
//! [`Words::asked`] parses requests of clients, and [`Words::reported`] parses reports of the port.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "what has no words of its own is shown as it is"
)]

use crate::node::{Parsed, Split, Vocabulary, milliseconds, number, split};
use crate::process_service;
use sexton::actors::binding;
use sexton::actors::process::{
    Action, Child, End, Failure, HookOutput, Identity, LaunchAs, Launching, Lost, Message, Notice,
    Outcome, Parentage, Phase, ProcessMachine, Query, Reach, RecordView, Registering, Remains,
    Reply, Rules, Selection, ServiceStep, Spec, Step, Tags, Watch,
};
use sexton::bytes::Bytes;
use sexton::clock::Date;
use sexton::ids::{ActorId, ProcessId, Seq, Slot};
use sexton::spine::delivery::Item;
use sexton::spine::machine::Stamp;
use std::collections::BTreeMap;

/// The wall-clock time at which every script begins, in milliseconds.
const BEGIN: u64 = 1_000_000_000_000;

/// The options of all commands in this file.
const OPTIONS: &[&str] = &[
    "after",
    "alive",
    "at",
    "boot",
    "empty",
    "before",
    "code",
    "deferred",
    "entry",
    "errno",
    "error",
    "grace",
    "inode",
    "keep",
    "limit",
    "line",
    "lost",
    "machine",
    "most",
    "phase",
    "pid",
    "retention",
    "records_max",
    "live_max",
    "signal",
    "text",
    "ticks",
    "timeout",
    "under",
    "bound",
    "unkillable",
    "nth",
    "children",
    "unknown",
];

type Options<'w> = BTreeMap<&'w str, &'w str>;

/// The name and the slot of each record, according to the journal.
#[derive(Default)]
pub(crate) struct Words {
    names: BTreeMap<String, ProcessId>,
    slots: BTreeMap<Slot, String>,
}

impl Vocabulary for Words {
    type Machine = ProcessMachine;

    fn rules() -> Rules {
        Rules::default()
    }

    fn rule(rules: &mut Rules, words: &[&str]) -> Parsed<()> {
        let (_, options) = split(words, OPTIONS);
        rules.records_max = number(&options, "records_max", rules.records_max)?;
        rules.live_max = number(&options, "live_max", rules.live_max)?;
        if let Some(span) = options.get("retention") {
            rules.retention_ms = milliseconds(span)?;
        }
        Ok(())
    }

    fn item(&self, words: &[&str]) -> Parsed<Option<Item<ProcessMachine>>> {
        let parts = split(words, OPTIONS);
        if let Some(query) = self.question(&parts)? {
            return Ok(Some(Item::Query(query)));
        }
        let message = match self.asked(&parts)? {
            None => self.reported(&parts)?,
            asked => asked,
        };
        Ok(message.map(Item::Message))
    }

    fn watch(&self, words: &[&str]) -> Parsed<Option<(String, Watch)>> {
        if let ["wait", who, "services"] = words {
            return Ok(Some(((*who).to_owned(), Watch::Services(None))));
        }
        let ["wait", who, what, name] = words else {
            return Ok(None);
        };
        let id = self.id(name)?;
        let watch = match *what {
            "start" => Watch::Start(id),
            "end" => Watch::End(id),
            "leader" => Watch::Leader(id),
            entry => {
                let asked = entry.parse().map_err(|_| format!("nobody waits for `{entry}`"))?;
                Watch::Signal(id, Seq(asked))
            }
        };
        Ok(Some(((*who).to_owned(), watch)))
    }

    fn told(&self, reply: &Reply) -> Vec<String> {
        self.answer(reply)
    }

    fn action(what: &Action) -> String {
        action(what)
    }

    fn woken(name: &str, reply: &Reply) -> String {
        let words = Self::default().answer(reply);
        format!("{name}: {}", words.join(", "))
    }

    fn note(&mut self, _: Stamp, message: &Message, outcome: &Outcome) -> Option<String> {
        if let Outcome::Launched(it) | Outcome::Registered(it) = outcome {
            let name = format!("{}{}", it.kind, it.number);
            self.slots.insert(it.slot, name.clone());
            self.names.insert(name, it.id);
        }
        if let Outcome::Service(turn) = outcome {
            for step in &turn.steps {
                if let ServiceStep::Launched { insertion: it, .. } = step {
                    let name = format!("{}{}", it.kind, it.number);
                    self.slots.insert(it.slot, name.clone());
                    self.names.insert(name, it.id);
                }
            }
            return process_service::note(message, turn);
        }
        if let Some(told) = for_another(message, outcome) {
            return Some(told);
        }
        let Message::Lapse { slot } = message else {
            return None;
        };
        let name = self.slots.get(slot).map_or("?", String::as_str);
        Some(match outcome {
            Outcome::Stopping { .. } | Outcome::StoppingTree { .. } => {
                format!("{name} ran too long")
            }
            Outcome::Killing { .. } => format!("the grace of {name} is over"),
            Outcome::Cancelled { .. } => format!("{name} is cancelled"),
            Outcome::Pruned { .. } => format!("{name} is removed"),
            other => format!("{name}: {other:?}"),
        })
    }
}

impl Words {
    fn id(&self, name: &str) -> Parsed<ProcessId> {
        if name == "nobody" {
            return Ok(ProcessId(1));
        }
        if let Some(chosen) = name.strip_prefix('#') {
            return chosen.parse().map(ProcessId).map_err(|_| name.to_owned());
        }
        let id = self.names.get(name).copied();
        id.ok_or_else(|| format!("no record was ever `{name}`"))
    }

    fn name(&self, id: ProcessId) -> String {
        let known = self.names.iter().find(|(_, its)| **its == id);
        known.map_or_else(|| "one above".to_owned(), |(name, _)| name.clone())
    }

    fn parentage(&self, options: &Options<'_>) -> Parsed<Parentage> {
        let named = options.get("under").map(|name| self.id(name)).transpose()?;
        let pids = options.get("line").map_or("", |line| *line).split(',');
        let mut line = Vec::new();
        for pid in pids.filter(|pid| !pid.is_empty()) {
            line.push(identity(&BTreeMap::from([("pid", pid)]))?);
        }
        let bound = options.get("bound").is_some();
        Ok(Parentage { named, line, bound })
    }

    fn launching(&self, kind: &str, argv: &[&str], options: &Options<'_>) -> Parsed<Launching> {
        let timeout = options.get("timeout").map(|span| milliseconds(span));
        let spec = Spec {
            argv: argv.iter().map(|word| Bytes::new(word.as_bytes())).collect(),
            timeout_ms: timeout.transpose()?.unwrap_or(0),
            grace_ms: grace(options)?.unwrap_or(5000),
            stop_signal: signal(options)?.unwrap_or(0),
            is_hook: kind == "reader",
            ..Spec::default()
        };
        Ok(Launching {
            spec,
            tags: tags(kind),
            parentage: self.parentage(options)?,
            deferred: options.get("deferred").is_some(),
        })
    }

    /// Parses a request of a client or of another actor. Returns `None` for other commands.
    fn asked(&self, (places, options): &Split<'_>) -> Parsed<Option<Message>> {
        Ok(Some(match places.as_slice() {
            ["launch", kind, argv @ ..] => {
                Message::Launch(Box::new(self.launching(kind, argv, options)?))
            }
            ["begin", name] => Message::Begin { id: self.id(name)? },
            // A launch by another actor, with an id that the actor chose.
            ["launch-as", by, id, kind, argv @ ..] => Message::LaunchAs(Box::new(LaunchAs {
                by: actor(by)?,
                id: self.id(id)?,
                launching: self.launching(kind, argv, options)?,
            })),
            ["watch", by, id] => Message::Watch(binding::Watch {
                by: actor(by)?,
                process: self.id(id)?,
                until: binding::Until::Tree,
            }),
            ["register", kind, argv @ ..] => Message::Register(Box::new(Registering {
                identity: identity(options)?,
                argv: argv.iter().map(|word| Bytes::new(word.as_bytes())).collect(),
                dir: Bytes::default(),
                started: Date(BEGIN),
                tags: tags(kind),
                parentage: self.parentage(options)?,
            })),
            ["configure" | "service" | "hold", ..] => {
                return Ok(process_service::asked(places)?.map(Message::Service));
            }
            ["finish", name] => Message::Finish {
                id: self.id(name)?,
                code: number(options, "code", 0)?,
                error: options.get("error").map(|text| (*text).to_owned()),
            },
            ["stop", name, tree @ ..] => Message::Stop {
                id: self.id(name)?,
                signal: signal(options)?,
                grace_ms: grace(options)?,
                tree: *tree == ["tree"],
            },
            ["signal", name, signal, group @ ..] => Message::Signal {
                id: self.id(name)?,
                signal: signal.parse().map_err(|_| "a signal is a number")?,
                group: *group == ["group"],
            },
            ["settle", name] => Message::Settle { id: self.id(name)? },
            ["prune"] => Message::Prune {
                before: date(options, "before")?,
                keep: number(options, "keep", 0)?,
                limit: number(options, "limit", 100)?,
            },
            _ => return Ok(None),
        }))
    }

    /// Parses a report of the port. Returns `None` for other commands.
    fn reported(&self, (places, options): &Split<'_>) -> Parsed<Option<Message>> {
        let at = || date(options, "at").map(|at| at.unwrap_or(Date(BEGIN)));
        Ok(Some(match places.as_slice() {
            ["started", name, contained @ ..] => Message::Started {
                id: self.id(name)?,
                identity: identity(options)?,
                at: at()?,
                contained: *contained == ["contained"],
            },
            ["failed", name, about @ ..] => Message::Failed {
                id: self.id(name)?,
                failure: Failure {
                    step: Step::Exec,
                    errno: number(options, "errno", 2)?,
                    about: about.first().map(|it| (*it).to_owned()),
                },
            },
            ["ended", name] => Message::Ended {
                id: self.id(name)?,
                end: end(options)?,
                at: at()?,
                left: Box::new(Remains {
                    alive: number(options, "alive", 0)?,
                    empty: number::<u8>(options, "empty", 0)? == 1,
                    ..Remains::default()
                }),
            },
            ["empty", name] => Message::Empty { id: self.id(name)? },
            ["stuck", name] => Message::Stuck {
                id: self.id(name)?,
                unkillable: number(options, "unkillable", 0)?,
                unknown: number(options, "unknown", 0)?,
            },
            ["child", name, argv @ ..] => Message::Child {
                of: self.id(name)?,
                child: Box::new(Child {
                    line: number(options, "line", 1)?,
                    nth: number(options, "nth", 1)?,
                    argv: argv.iter().map(|word| Bytes::new(word.as_bytes())).collect(),
                    end: options.get("code").map(|_| end(options)).transpose()?,
                    ..Child::default()
                }),
            },
            ["found", name] => Message::Found { id: self.id(name)?, found: printed(options)? },
            ["notice", name, what] => Message::Notice {
                id: self.id(name)?,
                notice: match *what {
                    "ready" => Notice::Ready,
                    "leaving" => Notice::Leaving,
                    "silent" => Notice::Silent,
                    words => Notice::Words(words.to_owned()),
                },
            },
            ["signalled", name] => Message::Signalled {
                id: self.id(name)?,
                asked: Seq(number(options, "entry", 0)?),
                errno: options.get("errno").map(|_| number(options, "errno", 0)).transpose()?,
            },
            _ => return Ok(None),
        }))
    }

    fn question(&self, (places, options): &Split<'_>) -> Parsed<Option<Query>> {
        Ok(Some(match places.as_slice() {
            ["services"] => Query::Services(None),
            ["service", name] => Query::Services(Some((*name).to_owned())),
            ["show", name] => Query::One(self.id(name)?),
            ["find"] => Query::Process(identity(options)?),
            ["above", name] => Query::Ancestors(self.id(name)?),
            ["below", name] => Query::Descendants { of: self.id(name)?, after: None, most: 100 },
            ["list", kind @ ..] => Query::List(selection(kind, options)?),
            ["count", kind @ ..] => Query::Count(selection(kind, options)?),
            _ => return Ok(None),
        }))
    }

    fn answer(&self, reply: &Reply) -> Vec<String> {
        match reply {
            Reply::Launched(record) | Reply::Stopping(record) | Reply::Record(record) => {
                vec![self.shown(record)]
            }
            Reply::Registered { record, known } => {
                let known = if *known { " (known)" } else { "" };
                vec![format!("{}{known}", self.shown(record))]
            }
            Reply::Page { records, .. } if records.is_empty() => vec!["nobody".to_owned()],
            Reply::Page { records, .. } => records.iter().map(|it| self.shown(it)).collect(),
            Reply::Refused(refused) => vec![refused.to_string()],
            Reply::Pruned { count, more } => {
                let more = if *more { ", and there are more" } else { "" };
                vec![format!("{count} removed{more}")]
            }
            Reply::Signalling(entry) => vec![format!("on its way, by entry {entry}")],
            Reply::Sent(sent) => vec![match sent.map(|sent| sent.errno) {
                None => "nobody knows".to_owned(),
                Some(None) => "sent".to_owned(),
                Some(Some(errno)) => format!("errno {errno}"),
            }],
            Reply::Count { count, .. } => vec![format!("{count} of them")],
            Reply::Done => Vec::new(),
            Reply::Services(views) => views.iter().map(process_service::shown).collect(),
            Reply::Spec(_) | Reply::Ambiguous(_) | Reply::Ids { .. } | Reply::Totals(_) => {
                vec![format!("{reply:?}")]
            }
        }
    }

    /// Returns a description of a record. Empty parts are left out.
    fn shown(&self, view: &RecordView) -> String {
        let mut words = vec![format!("{}{} {}", view.kind, view.number, view.phase.name())];
        words.extend(view.deferred.map(|_| "deferred".to_owned()));
        words.extend(view.identity.map(|it| it.to_string()));
        let above = view.parent.map(|id| self.name(id));
        words.extend(above.map(|name| format!("under {name} at depth {}", view.depth)));
        if let Some(stop) = view.stop {
            let whom = if stop.tree { "its tree" } else { "it" };
            let cause = format!("{:?}", stop.cause).to_lowercase();
            let killed = if stop.killed { ", killed" } else { "" };
            let errno = stop.errno.map_or(String::new(), |it| format!(", errno {it}"));
            let (signal, grace) = (stop.signal, stop.grace_ms);
            words.push(format!(
                "stop of {whom} by {cause}: signal {signal}, grace {grace} ms{killed}{errno}"
            ));
        }
        words.extend(view.stuck.map(|it| {
            let (left, unknown) = (it.unkillable, it.unknown);
            format!("stuck: {left} do not end, {unknown} unknown")
        }));
        words.extend(view.sent.map(|it| format!("signal of entry {} sent", it.asked)));
        words.extend(view.end.map(ending));
        let failure = view.failure.as_ref();
        words.extend(failure.map(|it| {
            if it.is_cancellation() {
                "cancelled".to_owned()
            } else {
                format!("failed: errno {}", it.errno)
            }
        }));
        words.extend(view.error.as_ref().map(|it| format!("error {it}")));
        let left = view.remains.as_ref().filter(|it| it.alive > 0);
        words.extend(left.map(|it| format!("{} left alive", it.alive)));
        words.join("; ")
    }
}

/// Describes the outcome of another actor's message. Returns `None` for other messages.
fn for_another(message: &Message, outcome: &Outcome) -> Option<String> {
    let (what, id) = match message {
        Message::LaunchAs(asked) => ("launch", asked.id),
        Message::Watch(watch) => ("watch", watch.process),
        _ => return None,
    };
    let came = match outcome {
        Outcome::Launched(_) => "taken on".to_owned(),
        Outcome::Watched { .. } => "is there, and watched".to_owned(),
        Outcome::Gone => "is gone".to_owned(),
        Outcome::Taken => "was taken on before".to_owned(),
        Outcome::Declined(refused) => format!("declined: {refused}"),
        other => format!("{other:?}"),
    };
    Some(format!("{what} of #{}: {came}", id.0))
}

fn actor(number: &str) -> Parsed<ActorId> {
    let number = number.parse().map_err(|_| "an actor has a number")?;
    Ok(ActorId(number))
}

fn printed(options: &Options<'_>) -> Parsed<Box<HookOutput>> {
    Ok(Box::new(HookOutput { children: number(options, "children", 0)?, ..HookOutput::default() }))
}

fn grace(options: &Options<'_>) -> Parsed<Option<u32>> {
    let grace = options.get("grace").map(|span| milliseconds(span));
    Ok(grace.transpose()?.map(small))
}

fn signal(options: &Options<'_>) -> Parsed<Option<u8>> {
    let signal = options.get("signal").map(|_| number(options, "signal", 0));
    signal.transpose()
}

fn ending(end: End) -> String {
    let code = end.code().map_or("no code".to_owned(), |it| format!("code {it}"));
    match end {
        End::Code(_) => code,
        End::Signal { signal, .. } => format!("signal {signal}, {code}"),
        End::Lost(lost) => format!("lost, {lost:?}, {code}"),
    }
}

fn action(what: &Action) -> String {
    let whole = |tree: &bool| if *tree { " and its tree" } else { "" };
    match what {
        Action::Launch { spec, .. } => {
            let argv = spec.argv.iter();
            let words = argv.map(|word| String::from_utf8_lossy(word.as_bytes()).into_owned());
            format!("launch {}", words.collect::<Vec<_>>().join(" "))
        }
        Action::Follow { identity, launched, .. } => {
            let whose = if *launched { "launched" } else { "registered" };
            format!("follow {identity}, {whose}")
        }
        Action::Signal { identity, signal, reach, .. } => {
            let whom = match reach {
                Reach::Leader => "",
                Reach::Group => " and its group",
                Reach::Tree => " and its tree",
            };
            format!("signal {signal} to {identity}{whom}")
        }
        Action::Kill { identity, tree, .. } => format!("kill {identity}{}", whole(tree)),
        Action::Await { identity, .. } => format!("await the end of the tree of {identity}"),
        Action::Read { .. } => "read its output".to_owned(),
        Action::Forget { .. } => "forget".to_owned(),
        Action::ForgetOthers => "forget others".to_owned(),
    }
}

fn tags(kind: &str) -> Tags {
    Tags { kind: if kind == "-" { "" } else { kind }.to_owned(), ..Tags::default() }
}

fn small(ms: u64) -> u32 {
    u32::try_from(ms).unwrap_or(u32::MAX)
}

/// Parses an option such as `at=5s`, a date five seconds after the beginning of the script.
fn date(options: &Options<'_>, option: &str) -> Parsed<Option<Date>> {
    let span = options.get(option).map(|span| milliseconds(span));
    Ok(span.transpose()?.map(|ms| Date(BEGIN + ms)))
}

/// Parses `pid=50` and the other options that identify a process.
fn identity(options: &Options<'_>) -> Parsed<Identity> {
    Ok(Identity {
        machine: number(options, "machine", 7)?,
        boot: number(options, "boot", 1)?,
        namespace: 3,
        pid: number(options, "pid", 0)?,
        inode: number(options, "inode", 0)?,
        ticks: number(options, "ticks", 99_000)?,
    })
}

fn end(options: &Options<'_>) -> Parsed<End> {
    if options.contains_key("signal") {
        let signal = number(options, "signal", 0)?;
        let dumped = false;
        return Ok(End::Signal { signal, dumped });
    }
    Ok(match options.get("lost").copied() {
        None => End::Code(number(options, "code", 0)?),
        Some("rebooted") => End::Lost(Lost::Rebooted),
        Some("keeper") => End::Lost(Lost::KeeperGone),
        Some("elsewhere") => End::Lost(Lost::AnotherMachine),
        Some("stranger") => End::Lost(Lost::NotOurs),
        Some(_) => End::Lost(Lost::Unknown),
    })
}

fn selection(kind: &[&str], options: &Options<'_>) -> Parsed<Selection> {
    let phase = |name: &&str| Phase::ALL.into_iter().find(|it| it.name() == *name);
    let machine = options.get("machine");
    Ok(Selection {
        kind: kind.first().map(|kind| (*kind).to_owned()),
        phases: options.get("phase").and_then(phase).into_iter().collect(),
        text: options.get("text").map(|text| (*text).to_owned()),
        machine: machine.map(|_| number(options, "machine", 0)).transpose()?,
        most: number(options, "most", 100)?,
        ..Selection::default()
    })
}
