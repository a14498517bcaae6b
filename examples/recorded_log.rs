//! A test that replays the recorded log of an incident, and compares the resulting state with the expected one.
//!
//! The log was written by `sexton replay DATA --export recorded_log.jsonl`, after a night in which the coordinator (`sexton serve`) was
//! killed. Each line after the first is an entry (a message that an actor processed, with its outcome) or a mark (a record of the node
//! itself). Lines may be removed, or written by hand. `cargo run --example recorded_log` prints the resulting state, and `cargo test` runs
//! the tests.

use serde_json::Value;
use sexton::replay::{Replay, ReplayError};
use std::error::Error;
use std::io::Write;

const LOG: &str = include_str!("recorded_log.jsonl");

/// Replays the log, and decides each entry again. Entries that are now decided differently are in [`Replay::mismatches`].
fn replayed(log: &str) -> Result<Replay, ReplayError> {
    let mut replay = Replay::default().verifying();
    replay.log(log)?;
    Ok(replay)
}

/// Returns the key and the owner of each holder and waiter at the end of the log: lock by lock, each in the order of its line.
fn in_line(replay: &Replay) -> Vec<(String, String)> {
    let locks = replay.states().find(|(actor, ..)| *actor == "lock");
    let (_, _, state) = locks.expect("every node has a lock actor");
    let entries = state.get("entries").and_then(Value::as_array);
    let text = |entry: &Value, name| entry.get(name)?.as_str().map(str::to_owned);
    let names = |entry| Some((text(entry, "key")?, text(entry, "owner")?));
    let names = entries.expect("the entries are a list").iter().map(names);
    names.collect::<Option<_>>().expect("each entry has a key and an owner")
}

pub(crate) fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    for (key, owner) in in_line(&replayed(LOG)?) {
        writeln!(out, "{key}: {owner}")?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(key: &str, owner: &str) -> (String, String) {
        (key.to_owned(), owner.to_owned())
    }

    #[test]
    fn the_night_ends_with_the_locks_where_they_belong() {
        let found = in_line(&replayed(LOG).expect("the log is valid"));
        assert_eq!(found, [held("cleanup", "carol"), held("nightly-report", "bob")]);
    }

    #[test]
    fn bob_waited_until_the_time_of_alice_ran_out() {
        let before: Vec<_> = LOG.lines().take_while(|line| !line.contains("expire")).collect();
        let held_before = in_line(&replayed(&before.join("\n")).expect("a shortened log is valid"));
        let report = [("nightly-report", "alice"), ("nightly-report", "bob")];
        assert_eq!(held_before[1..], report.map(|(key, owner)| held(key, owner)));
    }

    #[test]
    fn the_same_would_be_decided_today() {
        let replay = replayed(LOG).expect("the log is valid");
        assert_eq!(replay.mismatches(), []);
    }
}
