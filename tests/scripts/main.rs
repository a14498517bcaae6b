//! Dialogues: a script sends messages and lets time pass, and the answers of the node are compared with the recorded
//! ones.
//!
//! A script is a list of blocks: input lines, a line `----`, and the output, up to an empty line. Messages to the actor
//! in one block arrive together, as if from one read of a socket. `#` begins a comment. `UPDATE=1 cargo test --test
//! scripts` records the output again; review the change before you commit it. No real time passes: only the
//! command `advance` moves the clock.

mod dialogue;
mod dispatch;
mod json;
mod lease;
mod lock;
mod node;
mod process;
mod process_service;
mod queue;
mod queue_about;
mod queue_views;

use dialogue::Dialogue;
use json::Json;
use node::{Node, Vocabulary};
use sexton::spine::each::Family;
use sexton::spine::machine::{Actor, Machine};
use std::path::{Path, PathBuf};

sexton::actors_of_a_node! {
    $ each;
    /// Unused, but the macro requires a type.
    struct Spoken<F: Family> {}
}

#[test]
fn every_lock_dialogue_goes_as_recorded() {
    every_dialogue_goes_as_recorded::<lock::Words>(8);
}

#[test]
fn every_queue_dialogue_goes_as_recorded() {
    every_dialogue_goes_as_recorded::<queue::Words>(8);
}

#[test]
fn every_process_dialogue_goes_as_recorded() {
    every_dialogue_goes_as_recorded::<process::Words>(8);
}

#[test]
fn every_lease_dialogue_goes_as_recorded() {
    every_dialogue_goes_as_recorded::<lease::Words>(4);
}

#[test]
fn every_dispatch_dialogue_goes_as_recorded() {
    every_dialogue_goes_as_recorded::<dispatch::Words>(5);
}

/// Checks the scripts of actors without special commands.
#[test]
fn every_other_dialogue_goes_as_recorded() {
    fn of<M: Actor>() {
        if !["dispatch", "lease", "lock", "process", "queue"].contains(&M::NAME) {
            every_dialogue_goes_as_recorded::<Json<M>>(1);
        }
    }
    each!(type M => of::<M>());
}

fn every_dialogue_goes_as_recorded<T: Vocabulary>(least: usize) {
    let actor = <T::Machine as Machine>::NAME;
    let update = std::env::var_os("UPDATE").is_some_and(|value| value == "1");
    let mut differences = String::new();
    let scripts = scripts_of(actor);
    assert!(scripts.len() >= least, "the dialogues are found");
    for path in scripts {
        let recorded = std::fs::read_to_string(&path).expect("a script can be read");
        let mut dialogue = Dialogue::parse(&recorded);
        let difference = dialogue.run(&mut Node::<T>::new());
        if update {
            std::fs::write(&path, dialogue.to_string()).expect("a script can be written");
        } else if let Some(difference) = difference {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            differences.extend(["tests/scripts/", actor, "/", &name, "\n", &difference, "\n"]);
        }
    }
    assert!(
        differences.is_empty(),
        "what comes back has changed (UPDATE=1 records it anew)\n\n{differences}"
    );
}

#[test]
fn what_comes_back_otherwise_is_shown_as_a_difference() {
    let mut dialogue = Dialogue::parse(
        "# words\nowner a 1\n----\nalice\n\ncounts\n----\n0 owners, 0 contenders\n",
    );
    let difference = dialogue.run(&mut Node::<lock::Words>::new());
    assert_eq!(difference.as_deref(), Some("2: owner a 1\n  - alice\n  + nobody\n"));
    assert_eq!(
        dialogue.to_string(),
        "# words\nowner a 1\n----\nnobody\n\ncounts\n----\n0 owners, 0 contenders\n"
    );
}

#[test]
fn what_is_not_understood_is_said_and_not_passed_over() {
    let mut dialogue = Dialogue::parse("sing\n----\n\nrequest a\n----\n\nadvance 5\n----\n");
    dialogue.run(&mut Node::<lock::Words>::new());
    let said = dialogue.to_string();
    assert!(said.contains("sing\n----\n?? nobody here knows `sing`"), "{said}");
    assert!(said.contains("request a\n----\n?? "), "{said}");
    assert!(said.contains("advance 5\n----\n?? "), "{said}");
}

fn scripts_of(actor: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts").join(actor);
    let entries = std::fs::read_dir(folder).expect("the folder of an actor's dialogues is there");
    let mut scripts: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a folder can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    scripts.sort();
    scripts
}
