//! Tells (messages between actors) that are lost or refused between two actors of one process, without a restart that sends them again.

use super::{Running, undelivered};
use std::time::Duration;
use tempfile::TempDir;

/// How often clients add to the counters of each actor, so that each of its four counters passes one stride and causes a tell.
const ADDS: u32 = 16;

/// How long the first process runs, in which all tells should arrive. Each later process runs twice as long; and how many are tried.
const SHORTEST: Duration = Duration::from_secs(2);
const ROUNDS: u32 = 4;

/// Runs one process, which is then killed. Returns its directory, and how many tells were refused in it.
#[expect(
    clippy::disallowed_methods,
    reason = "a journal in use is not read, so there is no event when it settles"
)]
fn life(plant: &str, lasts: Duration) -> (TempDir, usize) {
    let files = tempfile::tempdir().expect("a temporary directory");
    let mut running = Running::start(files.path(), plant, ADDS);
    let mut lines = Vec::new();
    let answered = |lines: &[String]| lines.iter().filter(|line| line.contains("answered")).count();
    while answered(&lines) < 2 * ADDS as usize {
        let line = running.said.next().expect("it ended before it was killed");
        lines.push(line.expect("the peer sends a line"));
    }
    std::thread::sleep(lasts);
    running.kill();
    lines.extend(running.said.by_ref().map_while(Result::ok));
    let refused = lines.iter().filter(|line| line.contains("refused")).count();
    (files, refused)
}

/// Returns a tell that arrived in none of the processes, if there is one, and how many the last process refused.
fn in_the_end(plant: &str) -> (Option<String>, usize) {
    let mut end = (None, 0);
    for round in 0..ROUNDS {
        let (files, refused) = life(plant, SHORTEST * 2_u32.pow(round));
        end = (undelivered(files.path()), refused);
        if end.0.is_none() {
            break;
        }
    }
    end
}

#[test]
fn what_is_told_is_heard_without_a_start() {
    assert_eq!(in_the_end(""), (None, 0));
}

#[test]
fn a_tell_that_is_lost_without_a_start_is_caught() {
    let (files, _) = life("loses", SHORTEST);
    let found = undelivered(files.path()).unwrap_or_default();
    assert!(found.contains("was not received"), "{found}");
}

#[test]
fn a_tell_that_a_full_disk_refuses_is_told_again() {
    let (unheard, refused) = in_the_end("full");
    assert_eq!(unheard, None);
    assert!(refused > 0, "the full disk refused nothing");
}

#[test]
fn a_refused_tell_that_is_forgotten_is_caught() {
    let (files, refused) = life("full, forgets", SHORTEST * 2);
    assert!(refused > 0, "the full disk refused nothing");
    let found = undelivered(files.path()).unwrap_or_default();
    assert!(found.contains("was not received"), "{found}");
}

#[test]
fn obligations_that_a_start_does_not_let_out_are_caught() {
    let (files, _) = life("loses", Duration::ZERO);
    assert_ne!(super::at_rest(files.path(), "undrained", 3), None);
    let found = undelivered(files.path()).unwrap_or_default();
    assert!(found.contains("was not received"), "{found}");
    // A start that sends them repairs the loss.
    assert_eq!(super::at_rest(files.path(), "", super::ROUNDS), None);
}
