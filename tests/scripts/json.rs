//! Script commands for any actor: messages and outcomes in the JSON of an exported log.
//!
//! `{"add":{…}}` or `"drain"` is a message, and `rules {…}` sets all rules at once. Every entry is shown, and each answer
//! in Rust's debug format. `view` shows the state, since queries and waits cannot be parsed from JSON.

use crate::node::{Parsed, Vocabulary};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sexton::spine::delivery::Item;
use sexton::spine::machine::{Actor, Stamp};
use std::marker::PhantomData;

/// The vocabulary of an actor without special commands.
pub(crate) struct Json<M>(PhantomData<M>);

impl<M> Default for Json<M> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<M: Actor> Vocabulary for Json<M> {
    type Machine = M;

    fn rules() -> M::Rules {
        M::Rules::default()
    }

    fn rule(rules: &mut M::Rules, words: &[&str]) -> Parsed<()> {
        *rules = read(words)?;
        Ok(())
    }

    fn item(&self, words: &[&str]) -> Parsed<Option<Item<M>>> {
        let is_message = words.first().is_some_and(|word| word.starts_with(['{', '"', '[']));
        is_message.then(|| read(words).map(Item::Message)).transpose()
    }

    fn watch(&self, _: &[&str]) -> Parsed<Option<(String, M::Watch)>> {
        Ok(None)
    }

    fn told(&self, reply: &M::Reply) -> Vec<String> {
        vec![format!("{reply:?}")]
    }

    fn woken(name: &str, reply: &M::Reply) -> String {
        format!("{name}: {reply:?}")
    }

    fn note(&mut self, _: Stamp, message: &M::Message, outcome: &M::Outcome) -> Option<String> {
        Some(format!("{} {}", written(message), written(outcome)))
    }
}

fn read<T: DeserializeOwned>(words: &[&str]) -> Parsed<T> {
    serde_json::from_str(&words.join(" ")).map_err(|error| error.to_string())
}

pub(crate) fn written(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("it is plain data")
}
