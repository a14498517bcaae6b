//! The script commands of the lock actor. [`Words::item`] parses most of them.

use crate::node::{Parsed, Vocabulary, moment, number, split};
use sexton::actors::binding::{self, Binding, Until};
use sexton::actors::lock::{
    EntryView, LockMachine, Message, Name, Outcome, Query, Refused, Removal, Reply, Rules, Tie,
    Watch,
};
use sexton::ids::{ProcessId, Slot, Token};
use sexton::spine::delivery::Item;
use sexton::spine::machine::Stamp;
use std::collections::{BTreeMap, BTreeSet};

/// The entry in each slot, according to the journal.
#[derive(Default)]
pub(crate) struct Words {
    entries: BTreeMap<Slot, [String; 3]>,
    owners: BTreeSet<Slot>,
}

impl Vocabulary for Words {
    type Machine = LockMachine;

    fn rules() -> Rules {
        Rules::default()
    }

    fn rule(rules: &mut Rules, words: &[&str]) -> Parsed<()> {
        let (_, options) = split(words, &["priority", "entries_max"]);
        rules.high_first = options.get("priority") != Some(&"low");
        rules.entries_max = number(&options, "entries_max", rules.entries_max)?;
        Ok(())
    }

    fn item(&self, words: &[&str]) -> Parsed<Option<Item<LockMachine>>> {
        item(words)
    }

    fn watch(&self, words: &[&str]) -> Parsed<Option<(String, Watch)>> {
        Ok(match words {
            ["watch-empty", name] => Some(((*name).to_owned(), Watch::Empty)),
            _ => None,
        })
    }

    fn told(&self, reply: &Reply) -> Vec<String> {
        told(reply)
    }

    fn woken(name: &str, _reply: &Reply) -> String {
        format!("{name}: nothing is left")
    }

    fn note(&mut self, _: Stamp, message: &Message, outcome: &Outcome) -> Option<String> {
        let ends = self.follow(message, outcome);
        matches!(message, Message::Expire { .. }).then(|| ends.join(", "))
    }
}

impl Words {
    /// Applies an entry. Returns descriptions of the entries that it ends.
    fn follow(&mut self, message: &Message, outcome: &Outcome) -> Vec<String> {
        let mut ends = Vec::new();
        match outcome {
            Outcome::Granted { slot } | Outcome::Queued { slot, .. } => {
                if let Message::Request { key, index, owner, .. }
                | Message::Acquire { key, index, owner, .. } = message
                {
                    let names = [key, index, owner].map(shown);
                    self.entries.insert(*slot, names);
                }
                if matches!(outcome, Outcome::Granted { .. }) {
                    self.owners.insert(*slot);
                }
            }
            Outcome::Ended { gone } | Outcome::EndedPart { gone, .. } => {
                ends.extend(gone.iter().map(|gone| self.end(gone)));
            }
            Outcome::Fenced { slot } => {
                let [key, index, owner] = self.entries.get(slot).cloned().unwrap_or_default();
                ends.push(format!("{key} {index} waits for the tree of {owner} to end"));
            }
            Outcome::Renewed { .. } | Outcome::Draining | Outcome::Absent | Outcome::Refused(_) => {
            }
        }
        ends
    }

    fn end(&mut self, gone: &Removal) -> String {
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

/// Parses a command with options for the actor. Returns `None` for other commands.
fn item(words: &[&str]) -> Parsed<Option<Item<LockMachine>>> {
    let known: &[&str] = match words {
        ["request", ..] => &["ttl", "ttw", "prio"],
        ["acquire", ..] => &["ttl", "ttw", "prio", "attended", "bound", "waits"],
        ["renew" | "release", ..] => &["token"],
        ["list", ..] => &["max"],
        _ => return plain(words),
    };
    let (places, options) = split(words, known);
    let token = || match options.get("token") {
        None => Ok(None),
        Some(_) => number(&options, "token", 0).map(|token| Some(Token(token))),
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
        ["acquire", key, index, owner] => Item::Message(Message::Acquire {
            key: name(key)?,
            index: name(index)?,
            owner: name(owner)?,
            ttl: number(&options, "ttl", 60)?,
            ttw: number(&options, "ttw", 30)?,
            priority: number(&options, "prio", 5)?,
            tie: match options.get("bound") {
                Some(bound) => Tie::Process(binding(bound)?),
                None if number(&options, "attended", 1u8)? == 1 => Tie::Connection,
                None => Tie::None,
            },
            waits: number(&options, "waits", 0u8)? == 1,
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
            return Err(format!("`{}` has too few or too many words", words.join(" ")));
        }
    }))
}

/// Parses a command without options. Returns `None` for other commands.
fn plain(words: &[&str]) -> Parsed<Option<Item<LockMachine>>> {
    Ok(Some(match words {
        ["release-all", owner] => Item::Message(Message::ReleaseAll { owner: name(owner)? }),
        ["leave", key, index, token] => Item::Message(Message::Leave {
            key: name(key)?,
            index: name(index)?,
            token: Token(token.parse().map_err(|_| format!("`{token}` is no token"))?),
        }),
        ["force", key, index] => {
            Item::Message(Message::Force { key: name(key)?, index: name(index)? })
        }
        ["gone", process] => {
            let Binding { process, until, .. } = binding(process)?;
            Item::Message(Message::Gone(binding::EndNotice {
                process,
                until,
                exit: None,
                pid: None,
            }))
        }
        ["drain"] => Item::Message(Message::Drain),
        ["owner", key, index] => Item::Query(Query::Owner { key: name(key)?, index: name(index)? }),
        ["place", key, index, owner] => {
            Item::Query(Query::Place { key: name(key)?, index: name(index)?, owner: name(owner)? })
        }
        ["counts"] => Item::Query(Query::Counts),
        _ => return Ok(None),
    }))
}

/// Parses the id of a process, and until when the entry is bound to it: `7` is until process 7 has ended, `7:tree` until
/// its tree has ended, and `7:fence` means in addition that the tree is killed when the entry's time runs out.
pub(crate) fn binding(word: &str) -> Parsed<Binding> {
    let (number, until) = word.split_once(':').unwrap_or((word, "process"));
    let number: u128 = number.parse().map_err(|_| format!("`{word}` is no process"))?;
    let until_tree = matches!(until, "tree" | "fence");
    Ok(Binding {
        process: ProcessId(number),
        until: if until_tree { Until::Tree } else { Until::Process },
        fence: until == "fence",
    })
}

/// Returns the text of an answer.
fn told(reply: &Reply) -> Vec<String> {
    vec![match reply {
        Reply::LinePosition(standing) => match standing.token {
            Some(token) => format!("{} (owner, token {token})", standing.place),
            None if standing.away => format!("{} (waits, away)", standing.place),
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
        Reply::Page { .. } | Reply::Contended { .. } => "a page".to_owned(),
        Reply::List(entries) if entries.is_empty() => "nothing".to_owned(),
        Reply::List(entries) => {
            return entries.iter().map(listed).collect();
        }
    }]
}

fn listed(entry: &EntryView) -> String {
    let [key, index, owner] = [&entry.key, &entry.index, &entry.owner].map(shown);
    let EntryView { place, ttl, ttw, priority, deadline, .. } = entry;
    let until = match deadline {
        Some(deadline) => format!("until {}", moment(*deadline)),
        None if entry.fencing => "until its tree has ended".to_owned(),
        None => "until its process has ended".to_owned(),
    };
    let token = entry.token.map_or_else(String::new, |token| format!(" token {token}"));
    let away = if entry.away { " away" } else { "" };
    format!(
        "{key} {index} {place} {owner} prio={priority} ttl={ttl} ttw={ttw} {until}{token}{away}"
    )
}

fn reason(refused: Refused) -> &'static str {
    match refused {
        Refused::Draining => "draining",
        Refused::NoOwner => "no owner",
        Refused::Reserved => "the key is reserved",
        Refused::StaleToken => "stale token",
        Refused::Fencing => "fencing",
        Refused::Full => "full",
        Refused::DiskFull => "disk full",
        Refused::KeyReused => "key reused",
        Refused::ReceiptsFull => "receipts full",
        Refused::Forbidden => "forbidden",
    }
}

/// Parses a name: `''` is the empty name, `k{255}` is 255 times k, and `\xNN` is any byte.
fn name(word: &str) -> Parsed<Name> {
    if word == "''" {
        return Ok(Name::default());
    }
    let repeated = word.strip_suffix('}').and_then(|word| word.split_once('{'));
    let named = match repeated {
        Some((part, count)) => {
            let count: usize = count.parse().map_err(|_| format!("`{word}` repeats how often?"))?;
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
