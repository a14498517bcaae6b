//! The script commands of the queue actor. [`message`] and [`question`] parse most of them.

#![expect(clippy::wildcard_enum_match_arm, reason = "all else is shown as is")]

use crate::lock::binding;
use crate::node::{Parsed, Vocabulary, milliseconds, moment, number, split};
use crate::queue_about::about;
use crate::queue_views::{backoff, job_in_words, queue_in_words, result_in_words, totals_in_words};
use sexton::actors::binding::{Binding, EndNotice, Exit};
use sexton::actors::queue::{
    AnyType, Body, Choice, Claim, Claimant, Class, DedupKey, Message, Order, Outcome, Phase, Pop,
    Put, Query, QueueMachine, QueueName, Refused, Reply, Right, Root, Rules, TenantRules,
    TypeRules, Watch, Worker,
};
use sexton::ids::{Slot, Token};
use sexton::spine::delivery::Item;
use sexton::spine::machine::Stamp;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) type Options<'w> = BTreeMap<&'w str, &'w str>;

/// The job in each slot, according to the journal.
#[derive(Default)]
pub(crate) struct Words {
    jobs: BTreeMap<Slot, u64>,
}

impl Vocabulary for Words {
    type Machine = QueueMachine;

    /// Returns rules with claims of one hour and unlimited tries, which apply unless a script changes them.
    fn rules() -> Rules {
        let default = TypeRules {
            claim_ttl_ms: 3_600_000,
            max_tries: 0,
            backoff: None,
            crash_tries: 0,
            ..TypeRules::default()
        };
        Rules { default, ..Rules::default() }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each setting")]
    fn rule(rules: &mut Rules, words: &[&str]) -> Parsed<()> {
        const KNOWN: &[&str] = &[
            "order",
            "claim_ttl",
            "max_tries",
            "class",
            "retries",
            "dedup",
            "prune",
            "throttle_milli",
            "backoff",
            "read_only",
            "jobs_max",
            "queues_max",
            "rank",
            "in_any",
            "weight",
            "keys_max",
            "results_max",
            "results_bytes_max",
            "crash_tries",
            "tube_crash_tries",
        ];
        let (places, options) = split(words, KNOWN);
        rules.jobs_max = number(&options, "jobs_max", rules.jobs_max)?;
        rules.queues_max = number(&options, "queues_max", rules.queues_max)?;
        if let (Some(weight), [tenant]) = (options.get("weight"), places.as_slice()) {
            let weight = weight.parse().map_err(|_| "how much?".to_owned())?;
            let tenants = &mut rules.across.tenants;
            tenants.insert((*tenant).to_owned(), TenantRules { weight });
            return Ok(());
        }
        rules.across.keys_max = number(&options, "keys_max", rules.across.keys_max)?;
        let results = &mut rules.across.results;
        results.count_max = number(&options, "results_max", results.count_max)?;
        results.bytes_max = number(&options, "results_bytes_max", results.bytes_max)?;
        let default = rules.default.clone();
        let of_type = match places.as_slice() {
            [] => &mut rules.default,
            [kind] => rules.types.entry((*kind).to_owned()).or_insert(default),
            _ => return Err("rules are for one type".to_owned()),
        };
        of_type.order = match options.get("order") {
            None => of_type.order,
            Some(&"priority") => Order::Priority,
            Some(&"fifo") => Order::Fifo,
            Some(&"timestamp") => Order::Timestamp,
            Some(&"random") => Order::Random,
            Some(other) => return Err(format!("there is no order `{other}`")),
        };
        of_type.claim_ttl_ms = span(&options, "claim_ttl", of_type.claim_ttl_ms)?;
        of_type.max_tries = number(&options, "max_tries", of_type.max_tries)?;
        of_type.tube_max_tries = of_type.max_tries;
        of_type.crash_tries = number(&options, "crash_tries", of_type.crash_tries)?;
        let tube = number(&options, "tube_crash_tries", of_type.tube_crash_tries)?;
        of_type.tube_crash_tries = tube;
        of_type.class = match options.get("class") {
            None => of_type.class,
            Some(&"durable") => Class::Durable,
            Some(&"memory") => Class::Memory,
            Some(other) => return Err(format!("there is no class `{other}`")),
        };
        of_type.retries = yes(&options, "retries", of_type.retries)?;
        of_type.dedup = yes(&options, "dedup", of_type.dedup)?;
        of_type.in_any = yes(&options, "in_any", of_type.in_any)?;
        of_type.rank = number(&options, "rank", of_type.rank)?;
        of_type.prune_ms = span(&options, "prune", of_type.prune_ms)?;
        of_type.throttle_milli = number(&options, "throttle_milli", of_type.throttle_milli)?;
        if let Some(words) = options.get("backoff") {
            of_type.backoff = Some(backoff(words)?);
        }
        of_type.read_only = options.get("read_only").map(|why| (*why).to_owned());
        Ok(())
    }

    fn item(&self, words: &[&str]) -> Parsed<Option<Item<QueueMachine>>> {
        if let Some(query) = question(words)? {
            return Ok(Some(Item::Query(query)));
        }
        Ok(message(words)?.map(Item::Message))
    }

    fn watch(&self, words: &[&str]) -> Parsed<Option<(String, Watch)>> {
        Ok(match words {
            ["wait", who, queues @ ..] => {
                let watch = Watch::Job(pop(queues, claimant(who), true)?);
                Some(((*who).to_owned(), watch))
            }
            ["over", who, id] => Some(((*who).to_owned(), Watch::Over { id: id_of(id)? })),
            ["attend", who, using, watching @ ..] => {
                let watch = Watch::Presence { using: queue(using)?, watching: queues(watching)? };
                Some(((*who).to_owned(), watch))
            }
            _ => None,
        })
    }

    fn told(&self, reply: &Reply) -> Vec<String> {
        vec![told(reply)]
    }

    fn woken(name: &str, reply: &Reply) -> String {
        format!("{name}: {}", told(reply))
    }

    fn note(&mut self, _: Stamp, message: &Message, outcome: &Outcome) -> Option<String> {
        if let Outcome::Put { slot, job } = outcome {
            self.jobs.insert(*slot, job.id);
        }
        if let Outcome::Forgotten { .. } = outcome {
            return Some("a root job is forgotten".to_owned());
        }
        if let Outcome::ResultDropped { .. } = outcome {
            return Some("a result is forgotten".to_owned());
        } else if let Outcome::KeyForgotten { .. } = outcome {
            return Some("a key is forgotten".to_owned());
        }
        if let Message::Unpause { queue } = message {
            return Some(format!("{queue} is paused no longer"));
        }
        let Message::Expire { slot } = message else {
            return None;
        };
        let what = match outcome {
            Outcome::Ready { .. } => "is ready",
            Outcome::TimedOut { .. } => "ran out of time",
            Outcome::Abandoned { .. } => "is abandoned",
            Outcome::Pruned { .. } => "is pruned",
            Outcome::Fenced { .. } => "waits for the tree of its process to end",
            _ => return Some(format!("{outcome:?}")),
        };
        let id = self.jobs.get(slot).copied().unwrap_or_default();
        Some(format!("{id} {what}"))
    }
}

#[expect(clippy::too_many_lines, reason = "one arm for each command")]
fn message(words: &[&str]) -> Parsed<Option<Message>> {
    const KNOWN: &[&str] = &[
        "prio",
        "delay",
        "ttr",
        "key",
        "by",
        "token",
        "after",
        "error",
        "retries",
        "root",
        "is_root",
        "bound",
        "claim",
        "items",
        "percent",
        "text",
        "except",
        "tenant",
        "for",
        "done",
        "exit",
        "output",
        "took",
        "unique",
        "signal",
        "pid",
        "code",
        "crashed",
        "interrupted",
        "completes",
    ];
    if let ["batch", puts @ ..] = words {
        let puts = puts.split(|word| *word == ";");
        let puts = puts.map(|put| {
            let (places, options) = split(put, KNOWN);
            put_of(&places, &options)
        });
        return Ok(Some(Message::Batch(puts.collect::<Parsed<_>>()?)));
    }
    let (places, options) = split(words, KNOWN);
    Ok(Some(match places.as_slice() {
        ["put", to_and_body @ ..] => Message::Put(put_of(to_and_body, &options)?),
        ["register", root] => Message::Register(root_of(root)?),
        ["pop", from @ ..] => Message::Pop(Pop {
            ttr_ms: span(&options, "claim", 0)?,
            ..pop(from, by(&options)?, false)?
        }),
        ["turn", types @ ..] => Message::Pop(turn(types, &options)?),
        ["pop-job", id] => Message::PopJob { id: id_of(id)?, by: by(&options)? },
        ["repush", of, count] => Message::Repush {
            queue: queue(of)?,
            count: count.parse().map_err(|_| "how many?".to_owned())?,
        },
        ["kick", of, count] => Message::Kick {
            queue: queue(of)?,
            count: count.parse().map_err(|_| "how many?".to_owned())?,
        },
        ["kick-job", id] => Message::KickJob { id: id_of(id)? },
        ["cancel", id] => Message::Cancel { id: id_of(id)?, error: None },
        ["cancel", id, why @ ..] => {
            Message::Cancel { id: id_of(id)?, error: Some(why.join(" ").into()) }
        }
        ["pause", which, ms] => Message::Pause { queue: queue(which)?, ms: milliseconds(ms)? },
        ["flush", which] => Message::Flush { queue: queue(which)? },
        ["depart", who] => Message::Depart { worker: worker(who) },
        ["gone", process] => {
            let Binding { process, until, .. } = binding(process)?;
            let (pid, signal) = (number(&options, "pid", 0)?, number(&options, "signal", 0)?);
            let exit = (signal > 0).then_some(Exit::Signal(signal));
            let code = options.get("code").map(|_| number(&options, "code", 0));
            let exit = exit.or(code.transpose()?.map(Exit::Code));
            Message::Gone(EndNotice { process, until, exit, pid: (pid > 0).then_some(pid) })
        }
        ["drain"] => Message::Drain,
        ["spoil"] => Message::Spoil,
        _ => return about(&places, &options),
    }))
}

fn put_of(places: &[&str], options: &Options<'_>) -> Parsed<Put> {
    let [to, body] = places else {
        return Err(format!("`{}` is no queue and body", places.join(" ")));
    };
    let root = match (options.get("root"), options.get("is_root")) {
        (Some(root), _) | (None, Some(root)) => Some(root_of(root)?),
        (None, None) => None,
    };
    Ok(Put {
        queue: queue(to)?,
        priority: number(options, "prio", 1024)?,
        delay_ms: span(options, "delay", 0)?,
        ttr_ms: span(options, "ttr", 0)?,
        dedup: options.get("key").map(|key| key_of(key)),
        retries: yes(options, "retries", true)?,
        root,
        is_root: options.contains_key("is_root"),
        tube: false,
        items: number(options, "items", 0)?,
        unique_for_ms: span(options, "unique", 0)?,
        body: body_of(body)?,
    })
}

/// Parses `signature@time`, which identifies a root job.
fn root_of(word: &str) -> Parsed<Root> {
    let (key, at) =
        word.split_once('@').ok_or_else(|| format!("`{word}` is no root job: signature@time"))?;
    Ok(Root { key: key_of(key), at: id_of(at)? })
}

pub(crate) fn yes(options: &Options<'_>, option: &str, otherwise: bool) -> Parsed<bool> {
    match options.get(option) {
        None => Ok(otherwise),
        Some(&"yes") => Ok(true),
        Some(&"no") => Ok(false),
        Some(other) => Err(format!("`{option}` is yes or no, not `{other}`")),
    }
}

fn question(words: &[&str]) -> Parsed<Option<Query>> {
    Ok(Some(match words {
        ["peek", id] => Query::Peek { id: id_of(id)? },
        ["next", of, phase] => Query::PeekNext {
            queue: queue(of)?,
            phase: match *phase {
                "ready" => Phase::Ready,
                "delayed" => Phase::Delayed,
                "buried" => Phase::Buried,
                other => return Err(format!("nothing is asked of the {other}")),
            },
        },
        ["job", id] => Query::Job { id: id_of(id)? },
        ["ended", id] => Query::Result { id: id_of(id)? },
        ["queue", which] => Query::Queue { queue: queue(which)? },
        ["queues"] => Query::Queues { from: Slot(0) },
        ["any", chance, kinds @ ..] => Query::Next(Choice {
            chance: id_of(chance)?,
            kinds: Arc::new(kinds.iter().map(|kind| kind.as_bytes().to_vec()).collect()),
            from: 0,
            among: 0,
        }),
        ["totals"] => Query::Totals,
        _ => return Ok(None),
    }))
}

/// Parses a claim of a job of the tenant whose turn it is.
fn turn(types: &[&str], options: &Options<'_>) -> Parsed<Pop> {
    let text = |word: &str| word.to_owned();
    let except = options.get("except").into_iter();
    let any = AnyType {
        tenant: options.get("tenant").map(|it| text(it)),
        except: except.flat_map(|it| it.split(',')).map(text).collect(),
        types: types.iter().map(|it| text(it)).collect(),
    };
    Ok(Pop { any: Some(Arc::new(any)), ..pop(&[], by(options)?, false)? })
}

fn pop(from: &[&str], by: Claimant, waits: bool) -> Parsed<Pop> {
    Ok(Pop {
        queues: queues(from)?,
        weights: [].into(),
        by,
        waits,
        ticket: None,
        ttr_ms: 0,
        any: None,
    })
}

fn queues(names: &[&str]) -> Parsed<Arc<[QueueName]>> {
    names.iter().map(|name| queue(name)).collect()
}

fn queue(name: &str) -> Parsed<QueueName> {
    QueueName::parse(name.as_bytes()).ok_or_else(|| format!("`{name}` is no queue"))
}

pub(crate) fn id_of(word: &str) -> Parsed<u64> {
    word.parse().map_err(|_| format!("`{word}` is no number"))
}

/// Parses a body: `''` is an empty body, and `x{255}` is 255 times x.
pub(crate) fn body_of(word: &str) -> Parsed<Body> {
    if word == "''" {
        return Ok(Body::default());
    }
    let repeated = word.strip_suffix('}').and_then(|word| word.split_once('{'));
    let Some((part, count)) = repeated else {
        return Ok(Body::new(word.as_bytes()));
    };
    let count = count.parse().map_err(|_| format!("`{word}` repeats how often?"))?;
    Ok(Body::new(part.repeat(count).into_bytes()))
}

fn key_of(word: &str) -> DedupKey {
    let mut key = [0; 20];
    for (place, byte) in key.iter_mut().zip(word.bytes()) {
        *place = byte;
    }
    DedupKey(key)
}

/// Parses the claimant. By default, any client with the token has the claim.
fn by(options: &Options<'_>) -> Parsed<Claimant> {
    Ok(match (options.get("by"), options.get("bound")) {
        (Some(who), _) => claimant(who),
        (None, Some(process)) => Claimant::Process(binding(process)?),
        (None, None) => Claimant::Bearer,
    })
}

fn claimant(who: &str) -> Claimant {
    Claimant::Worker(worker(who))
}

fn worker(who: &str) -> Worker {
    Worker(who.bytes().fold(0, |number, byte| number << 8 | u64::from(byte)))
}

pub(crate) fn right(options: &Options<'_>) -> Parsed<Right> {
    Ok(match (options.get("by"), options.get("token")) {
        (Some(who), None) => Right::Worker(worker(who)),
        (None, Some(_)) => Right::Token(Token(number(options, "token", 0)?)),
        (None, None) => Right::Unclaimed,
        (Some(_), Some(_)) => return Err("by one right, not by two".to_owned()),
    })
}

pub(crate) fn span(options: &Options<'_>, option: &str, otherwise: u64) -> Parsed<u64> {
    options.get(option).map_or(Ok(otherwise), |span| milliseconds(span))
}

/// Returns the text of an answer.
fn told(reply: &Reply) -> String {
    match reply {
        Reply::Put { id, duplicate: None } => format!("put {id}"),
        Reply::Put { id, duplicate: Some(phase) } => format!("{id} is there ({})", named(*phase)),
        Reply::Remembered { id, .. } => format!("{id} is remembered"),
        Reply::Batch(placed) => {
            let placed = placed.iter().map(|(id, new)| {
                let what = if *new { "" } else { " is there" };
                format!("{id}{what}")
            });
            format!("put {}", placed.collect::<Vec<_>>().join(", "))
        }
        Reply::Claim(claim) => claimed(claim),
        Reply::Nothing { soonest, .. } => {
            let soonest = soonest.map(|at| format!(" (a claim ends at {})", moment(at)));
            format!("nothing{}", soonest.unwrap_or_default())
        }
        Reply::Done => "done".to_owned(),
        Reply::Abandoned => "abandoned".to_owned(),
        Reply::Count(count) => count.to_string(),
        Reply::Absent => "absent".to_owned(),
        Reply::Refused(refused) => format!("refused: {}", reason(*refused)),
        Reply::ReadOnly(why) => format!("refused: read only: {why}"),
        Reply::Found(id, body) => format!("{id} {}", text(body)),
        Reply::Job(job) => job_in_words(job),
        Reply::Queue(queue) => queue_in_words(queue),
        Reply::Result(result) => result_in_words(result),
        Reply::Totals(totals) => totals_in_words(totals),
        Reply::Queues { names, .. } => {
            let mut names: Vec<&str> = names.iter().map(QueueName::as_str).collect();
            names.sort_unstable();
            names.join(" ")
        }
        Reply::Chosen { queue, .. } => {
            queue.as_ref().map_or("absent", QueueName::as_str).to_owned()
        }
        Reply::JobPage { .. } | Reply::QueuePage { .. } | Reply::Busiest { .. } => {
            unreachable!("no script asks for pages")
        }
    }
}

fn claimed(claim: &Claim) -> String {
    let Claim { id, token, queue, attempts, until, retries, duplicate, body } = claim;
    let until = if claim.ends().is_some() {
        format!("until {}", moment(*until))
    } else {
        "without an end".to_owned()
    };
    let body = text(body);
    let once = if *retries { "" } else { ", at most once" };
    let duplicate = if *duplicate { ", a duplicate" } else { "" };
    format!("{id} {body} of {queue}, try {attempts} {until}, token {token}{once}{duplicate}")
}

pub(crate) fn named(phase: Phase) -> String {
    format!("{phase:?}").to_lowercase()
}

fn text(body: &Body) -> String {
    let text = String::from_utf8_lossy(body.as_bytes()).into_owned();
    match text.chars().next() {
        None => "''".to_owned(),
        Some(first) if text.len() > 20 => format!("{first}{{{}}}", text.len()),
        Some(_) => text,
    }
}

fn reason(refused: Refused) -> &'static str {
    match refused {
        Refused::Draining => "draining",
        Refused::StaleToken => "stale token",
        Refused::Fencing => "fencing",
        Refused::Full => "full",
        Refused::QueuesFull => "too many queues",
        Refused::RootsFull => "too many root jobs",
        Refused::KeysFull => "too many keys",
        Refused::TooBig => "too big",
        Refused::ReadOnly => "read only",
        Refused::DiskFull => "disk full",
        Refused::KeyReused | Refused::ReceiptsFull => "key reused",
        Refused::Forbidden => "forbidden",
    }
}
