//! A node with the LockActor in it, spoken to in words.
//!
//! The real spine stands behind it: ledger, host, journal files and recovery, driven by hand, with a clock that moves
//! when told to. Every word of a script is in [`Node::hear`].

use crate::dialogue::Listener;
use sexton::actors::host::{Answer, Delivery, Flow, Host, Item};
use sexton::actors::ledger::{Ledger, Stage};
use sexton::actors::lock::{
    Gone, Listed, LockMachine, Message, Name, Outcome, Query, Refused, Reply, Rules, Watch,
};
use sexton::actors::machine::Machine as _;
use sexton::actors::recovery::{Replica, Scope, recover};
use sexton::clock::{Clock, ManualClock, Timestamp};
use sexton::ids::{Digest, Seq, Slot, Ticket};
use sexton::persist::disk::{Disk, RealDisk};
use sexton::persist::format::{Chance, Kind};
use sexton::persist::journal::{InlineFiller, Reader, Room, Sizes, Tail, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// When every script begins.
const BEGIN: Timestamp = Timestamp(1_000_000_000_000);

const SIZES: Sizes = Sizes {
    first_bytes: 64 << 10,
    max_bytes: 64 << 10,
};

type Heard<T> = Result<T, String>;

/// A node that a script speaks to. Begins at the first word, so that rules can be chosen before.
pub(crate) struct Node {
    rules: Rules,
    clock: Arc<ManualClock>,
    folder: tempfile::TempDir,
    running: Option<Running>,
    /// Where the next message that gets there panics.
    armed: Arc<Mutex<Option<Stage>>>,
    names: Names,
    tickets: BTreeMap<String, Ticket>,
    /// Waits that were answered and not yet told.
    woken: Arc<Mutex<Vec<String>>>,
}

struct Running {
    disk: Arc<RealDisk>,
    ledger: Ledger,
    writer: Writer,
    host: Host<LockMachine>,
}

/// Who stands in which slot, as the journal tells it.
#[derive(Default)]
struct Names {
    seen: Seq,
    entries: BTreeMap<Slot, [String; 3]>,
    owners: BTreeSet<Slot>,
}

impl Listener for Node {
    fn hear(&mut self, said: &[&str]) -> Vec<String> {
        match self.answer(said) {
            Ok(back) => back,
            Err(problem) => vec![format!("?? {problem}")],
        }
    }
}

impl Node {
    pub(crate) fn new() -> Self {
        Self {
            rules: Rules::default(),
            clock: Arc::new(ManualClock::at(BEGIN)),
            folder: tempfile::tempdir().expect("a temporary folder can be made"),
            running: None,
            armed: Arc::default(),
            names: Names::default(),
            tickets: BTreeMap::new(),
            woken: Arc::default(),
        }
    }

    fn answer(&mut self, said: &[&str]) -> Heard<Vec<String>> {
        let mut items = Vec::new();
        let mut back = Vec::new();
        for line in said {
            let words: Vec<&str> = line.split_whitespace().collect();
            match item(&words)? {
                Some(item) => items.push(item),
                None if items.is_empty() => back.extend(self.around(&words)?),
                None => return Err(format!("`{line}` is not for the actor: give it a block")),
            }
        }
        if !items.is_empty() {
            back.extend(self.deliver(items)?);
        }
        Ok(back)
    }

    /// What is said not to the actor but about the world around it.
    fn around(&mut self, words: &[&str]) -> Heard<Vec<String>> {
        let known: &[&str] = match words {
            ["rules", ..] => &["priority", "entries_max"],
            _ => &[],
        };
        let (places, options) = split(words, known);
        match places.as_slice() {
            ["rules"] => {
                self.rules.high_first = options.get("priority") != Some(&"low");
                self.rules.entries_max = number(&options, "entries_max", self.rules.entries_max)?;
                Ok(Vec::new())
            }
            ["advance", span] => {
                self.clock.advance_ms(milliseconds(span)?);
                Ok(Vec::new())
            }
            // The timer fires.
            ["tick"] => self.deliver(Vec::new()),
            ["panic", stage] => {
                let stage = match *stage {
                    "decide" => Stage::Decide,
                    "commit" => Stage::Commit,
                    "tick" => Stage::Tick,
                    other => return Err(format!("nothing panics in `{other}`")),
                };
                *self.armed.lock().expect("no panic while armed") = Some(stage);
                Ok(Vec::new())
            }
            ["disk", room] => {
                let room = match *room {
                    "ample" => Room::Ample,
                    "low" => Room::Low,
                    "scant" => Room::Scant,
                    other => return Err(format!("a disk is never `{other}`")),
                };
                self.running()?.ledger.set_room(room);
                Ok(Vec::new())
            }
            ["watch-empty", name] => self.watch_empty(name),
            ["unwatch", name] => {
                let ticket = self
                    .tickets
                    .remove(*name)
                    .ok_or("nobody of that name waits")?;
                self.running()?.host.unwatch(ticket);
                Ok(Vec::new())
            }
            ["restart"] => self.start_again(true),
            ["crash"] => self.start_again(false),
            ["digest"] => {
                let digest = self.running()?.host.machine().digest();
                Ok(vec![digest.to_string()])
            }
            ["quarantined"] => {
                let reports = self.running()?.host.quarantined();
                let say = |report: &sexton::actors::host::Report| {
                    format!(
                        "slot {} since entry {}",
                        report.item.unwrap_or(0),
                        report.seq
                    )
                };
                Ok(reports.iter().map(say).collect())
            }
            ["log"] => self.log(),
            _ => Err(format!("nobody here knows `{}`", words.join(" "))),
        }
    }

    fn running(&mut self) -> Heard<&mut Running> {
        if self.running.is_none() {
            self.begin()?;
        }
        self.running
            .as_mut()
            .ok_or_else(|| "the node does not run".to_owned())
    }

    /// Opens the data directory, as a start of the coordinator does; the digest before spans begin again.
    fn begin(&mut self) -> Heard<(Tail, Digest)> {
        let disk = Arc::new(RealDisk::new(self.folder.path()));
        let mut replica = Replica::<LockMachine>::new(self.rules.clone());
        let tail = recover(disk.as_ref(), None, &mut [&mut replica], Scope::default())
            .map_err(|error| error.to_string())?
            .tail;
        let (machine, last) = replica.into_parts();
        let digest = machine.digest();
        let filler = Box::new(InlineFiller::new(Arc::clone(&disk) as Arc<dyn Disk>));
        let writer = Writer::open(Arc::clone(&disk) as Arc<dyn Disk>, SIZES, filler, &tail)
            .map_err(|error| error.to_string())?;
        let mut ledger = Ledger::new(Arc::clone(&self.clock) as Arc<dyn Clock>, &tail, false);
        let mut host = Host::new(machine, last);
        let stamp = ledger.start(Chance([0; 32]));
        host.start(stamp);
        let armed = Arc::clone(&self.armed);
        host.sabotage(Box::new(move |stage, _| {
            let mut armed = armed.lock().expect("no panic while armed");
            let hit = armed.take_if(|planted| *planted == stage).is_some();
            drop(armed);
            assert!(!hit, "planted");
        }));
        let mut running = Running {
            disk,
            ledger,
            writer,
            host,
        };
        running.write();
        self.running = Some(running);
        Ok((tail, digest))
    }

    fn start_again(&mut self, clean: bool) -> Heard<Vec<String>> {
        let running = self.running()?;
        if clean {
            running.ledger.stop();
            running.write();
        }
        let before = running.host.machine().digest();
        self.running = None;
        self.tickets.clear();
        let (tail, digest) = self.begin()?;
        assert!(tail.cut.is_none() && tail.clean == clean, "{tail:?}");
        assert!(digest == before, "the log tells the state as it was");
        let begun = self.running()?.ledger.last();
        Ok(vec![format!("began again with entry {begun}")])
    }

    fn watch_empty(&mut self, name: &str) -> Heard<Vec<String>> {
        let ticket = Ticket(self.tickets.len() as u64 + 1);
        self.tickets.insert(name.to_owned(), ticket);
        let woken = Arc::clone(&self.woken);
        let owned = name.to_owned();
        let running = self.running()?;
        running.host.watch(
            ticket,
            Watch::Empty,
            Box::new(move |_| woken.lock().expect("a wake does not panic").push(owned)),
        );
        running.write();
        Ok(self.wakes())
    }

    /// One delivery, with the Supervisor's part in it: a spent machine is rebuilt from the log.
    fn deliver(&mut self, items: Vec<Item<LockMachine>>) -> Heard<Vec<String>> {
        let rules = self.rules.clone();
        let running = self.running()?;
        let answers: Arc<Mutex<Vec<Answer<Reply>>>> = Arc::default();
        let theirs = Arc::clone(&answers);
        let delivery = Delivery {
            items,
            reply_to: Box::new(move |answers| {
                *theirs.lock().expect("an answer does not panic") = answers;
            }),
        };
        let mut panics = Vec::new();
        let mut flow = running.host.deliver(&mut running.ledger, delivery);
        loop {
            running.write();
            match flow {
                Flow::Done => break,
                Flow::Yield => {}
                Flow::Panicked(report) => {
                    let words = format!("panic in {:?}", report.stage).to_lowercase();
                    panics.push(format!("{words}, entry {}: {}", report.seq, report.cause));
                    if running.host.is_spent() {
                        let mut replica = Replica::<LockMachine>::new(rules.clone());
                        recover(
                            running.disk.as_ref(),
                            None,
                            &mut [&mut replica],
                            Scope::default(),
                        )
                        .map_err(|error| error.to_string())?;
                        running.host.rebuilt(replica.into_parts().0);
                        panics.push("rebuilt from the log".to_owned());
                    }
                }
            }
            flow = running.host.proceed(&mut running.ledger);
        }
        let answers = std::mem::take(&mut *answers.lock().expect("an answer does not panic"));
        let mut back = self.ticks()?;
        back.extend(panics);
        for answer in answers {
            match answer {
                Ok(reply) => back.extend(told(&reply)),
                Err(failed) => back.push(failed.to_string()),
            }
        }
        back.extend(self.wakes());
        Ok(back)
    }

    /// What time has done since the last word, as the journal has it.
    fn ticks(&mut self) -> Heard<Vec<String>> {
        let disk = RealDisk::new(self.folder.path());
        let mut reader = Reader::open(&disk).map_err(|error| error.to_string())?;
        let mut told = Vec::new();
        while let Some(record) = reader.next().map_err(|error| error.to_string())? {
            if record.seq <= self.names.seen || record.kind != Kind::Entry {
                continue;
            }
            self.names.seen = record.seq;
            let (message, outcome) =
                Replica::<LockMachine>::decode(&record).map_err(|error| error.to_string())?;
            let ends = self.names.note(&message, &outcome);
            if matches!(message, Message::Expire { .. }) {
                let at = moment(record.at);
                let (seq, ends) = (record.seq, ends.join(", "));
                told.push(format!("[entry {seq} at {at}: {ends}]"));
            }
        }
        Ok(told)
    }

    /// The whole log, one line a record.
    fn log(&mut self) -> Heard<Vec<String>> {
        self.running()?;
        let disk = RealDisk::new(self.folder.path());
        let mut reader = Reader::open(&disk).map_err(|error| error.to_string())?;
        let mut lines = Vec::new();
        while let Some(record) = reader.next().map_err(|error| error.to_string())? {
            let kind = format!("{:?}", record.kind).to_lowercase();
            lines.push(format!("{} at {} {kind}", record.seq, moment(record.at)));
        }
        Ok(lines)
    }

    fn wakes(&self) -> Vec<String> {
        let mut woken = self.woken.lock().expect("a wake does not panic");
        woken
            .drain(..)
            .map(|name| format!("{name}: nothing is left"))
            .collect()
    }
}

impl Running {
    /// What the journal thread does: writes and syncs, and lets out what rests on it.
    fn write(&mut self) {
        let mut batch = self.ledger.take_batch();
        self.writer
            .write(&mut batch)
            .expect("the disk takes what is written");
        self.writer.sync().expect("the disk syncs");
        self.ledger.durable(self.writer.last());
        self.host.outbox().release(self.writer.last());
    }
}

impl Names {
    /// Follows an entry; what it ends, in words.
    fn note(&mut self, message: &Message, outcome: &Outcome) -> Vec<String> {
        let mut ends = Vec::new();
        match outcome {
            Outcome::Granted { slot } | Outcome::Queued { slot, .. } => {
                if let Message::Request {
                    key, index, owner, ..
                } = message
                {
                    let names = [key, index, owner].map(shown);
                    self.entries.insert(*slot, names);
                }
                if matches!(outcome, Outcome::Granted { .. }) {
                    self.owners.insert(*slot);
                }
            }
            Outcome::Ended { gone } => ends.extend(gone.iter().map(|gone| self.end(gone))),
            Outcome::Renewed { .. } | Outcome::Draining | Outcome::Absent | Outcome::Refused(_) => {
            }
        }
        ends
    }

    fn end(&mut self, gone: &Gone) -> String {
        let [key, index, owner] = self.entries.remove(&gone.slot).unwrap_or_default();
        let owned = self.owners.remove(&gone.slot);
        match gone.heir.map(|heir| (heir, self.entries.get(&heir))) {
            Some((heir, names)) => {
                let next = names.map_or("?", |[_, _, next]| next);
                let words = format!("{key} {index} passes from {owner} to {next}");
                self.owners.insert(heir);
                words
            }
            None if owned => format!("{key} {index} of {owner} is free"),
            None => format!("{owner} waits no longer for {key} {index}"),
        }
    }
}

/// What is said to the actor; `None` for other words.
fn item(words: &[&str]) -> Heard<Option<Item<LockMachine>>> {
    let known: &[&str] = match words {
        ["request", ..] => &["ttl", "ttw", "prio"],
        ["renew" | "release", ..] => &["token"],
        ["list", ..] => &["max"],
        _ => return plain(words),
    };
    let (places, options) = split(words, known);
    let token = || match options.get("token") {
        None => Ok(None),
        Some(_) => number(&options, "token", 0).map(|token| Some(sexton::ids::Token(token))),
    };
    Ok(Some(match places.as_slice() {
        ["request", key, index, owner] => Item::Message(Message::Request {
            key: name(key)?,
            index: name(index)?,
            owner: name(owner)?,
            ttl: number(&options, "ttl", 60)?,
            ttw: number(&options, "ttw", 30)?,
            priority: number(&options, "prio", 5)?,
        }),
        ["renew", key, index, owner] => Item::Message(Message::Renew {
            key: name(key)?,
            index: name(index)?,
            owner: name(owner)?,
            token: token()?,
        }),
        ["release", key, index, owner] => Item::Message(Message::Release {
            key: name(key)?,
            index: (*index != "*").then(|| name(index)).transpose()?,
            owner: name(owner)?,
            token: token()?,
        }),
        ["list", key @ ..] if key.len() < 2 => Item::Query(Query::List {
            key: key.first().map(|key| name(key)).transpose()?,
            entries_max: number(&options, "max", u32::MAX)?,
        }),
        _ => {
            return Err(format!(
                "`{}` has too few or too many words",
                words.join(" ")
            ));
        }
    }))
}

/// What is said without options.
fn plain(words: &[&str]) -> Heard<Option<Item<LockMachine>>> {
    Ok(Some(match words {
        ["release-all", owner] => Item::Message(Message::ReleaseAll {
            owner: name(owner)?,
        }),
        ["drain"] => Item::Message(Message::Drain),
        ["owner", key, index] => Item::Query(Query::Owner {
            key: name(key)?,
            index: name(index)?,
        }),
        ["place", key, index, owner] => Item::Query(Query::Place {
            key: name(key)?,
            index: name(index)?,
            owner: name(owner)?,
        }),
        ["counts"] => Item::Query(Query::Counts),
        _ => return Ok(None),
    }))
}

/// An answer in words.
fn told(reply: &Reply) -> Vec<String> {
    vec![match reply {
        Reply::Standing(standing) => match standing.token {
            Some(token) => format!("{} (owner, token {token})", standing.place),
            None => format!("{} (waits)", standing.place),
        },
        Reply::Ended(count) => format!("{count} ended"),
        Reply::Absent => "absent".to_owned(),
        Reply::Refused(refused) => format!("refused: {}", reason(*refused)),
        Reply::Draining => "draining".to_owned(),
        Reply::Owner(owner) => owner.as_ref().map_or_else(|| "nobody".to_owned(), shown),
        Reply::Counts { owners, contenders } => {
            format!("{owners} owners, {contenders} contenders")
        }
        Reply::Due => "due".to_owned(),
        Reply::Page { .. } => "a page".to_owned(),
        Reply::List(entries) if entries.is_empty() => "nothing".to_owned(),
        Reply::List(entries) => {
            return entries.iter().map(listed).collect();
        }
    }]
}

fn listed(entry: &Listed) -> String {
    let [key, index, owner] = [&entry.key, &entry.index, &entry.owner].map(shown);
    let Listed {
        place,
        ttl,
        ttw,
        priority,
        deadline,
        ..
    } = entry;
    let until = moment(*deadline);
    let token = entry
        .token
        .map_or_else(String::new, |token| format!(" token {token}"));
    format!(
        "{key} {index} {place} {owner} prio={priority} ttl={ttl} ttw={ttw} until {until}{token}"
    )
}

fn reason(refused: Refused) -> &'static str {
    match refused {
        Refused::Draining => "draining",
        Refused::NoOwner => "no owner",
        Refused::Reserved => "the key is reserved",
        Refused::StaleToken => "stale token",
        Refused::Full => "full",
        Refused::DiskFull => "disk full",
    }
}

/// Words as they stand, and the options among them that are known.
type Split<'w> = (Vec<&'w str>, BTreeMap<&'w str, &'w str>);

fn split<'w>(words: &[&'w str], known: &[&str]) -> Split<'w> {
    let mut places = Vec::new();
    let mut options = BTreeMap::new();
    for word in words {
        match word.split_once('=') {
            Some((option, value)) if known.contains(&option) => {
                options.insert(option, value);
            }
            _ => places.push(*word),
        }
    }
    (places, options)
}

fn number<T: std::str::FromStr>(
    options: &BTreeMap<&str, &str>,
    option: &str,
    otherwise: T,
) -> Heard<T> {
    match options.get(option) {
        None => Ok(otherwise),
        Some(value) => value
            .parse()
            .map_err(|_| format!("`{option}={value}` is no such number")),
    }
}

/// A name as scripts write it: `''` for the empty one, `k{255}` for 255 times k, `\xNN` for any byte.
fn name(word: &str) -> Heard<Name> {
    if word == "''" {
        return Ok(Name::default());
    }
    let repeated = word.strip_suffix('}').and_then(|word| word.split_once('{'));
    let named = match repeated {
        Some((part, count)) => {
            let count: usize = count
                .parse()
                .map_err(|_| format!("`{word}` repeats how often?"))?;
            Name::new(part.repeat(count).into_bytes())
        }
        None => Name::from_text(word),
    };
    named.ok_or_else(|| format!("`{word}` is no name"))
}

fn shown(name: &Name) -> String {
    let text = name.to_text().replace(' ', "\\x20");
    let first = text.chars().next();
    match first {
        None => "''".to_owned(),
        Some(first) if text.len() > 8 && text.chars().all(|other| other == first) => {
            format!("{first}{{{}}}", text.len())
        }
        Some(_) => text,
    }
}

/// Time since the beginning of the script.
fn moment(at: Timestamp) -> String {
    let since = at.since(BEGIN).as_millis();
    match since % 1000 {
        0 => format!("{}s", since / 1000),
        rest => format!("{}.{rest:03}s", since / 1000),
    }
}

fn milliseconds(span: &str) -> Heard<u64> {
    let (digits, factor) = match (span.strip_suffix("ms"), span.strip_suffix('s')) {
        (Some(digits), _) => (digits, 1),
        (None, Some(digits)) => (digits, 1000),
        (None, None) => return Err(format!("`{span}` of what? say 5s or 5ms")),
    };
    let count: u64 = digits.parse().map_err(|_| format!("`{span}` is no span"))?;
    Ok(count * factor)
}
