//! A network between coordinator and server that fails for a second, for longer than the timeout of a connection, and for
//! longer than an attempt may run without a connection.

use crate::daemon::text;
use crate::far::Far;
use crate::network::Network;
use crate::patience::until;
use crate::remote::{add, assert_settled, let_go, lines, lives, over, show};
use crate::tree::Tree;
use std::time::Duration;

/// The time without a message after which the other machine ends an attempt.
const LOST_AFTER: &str = "16s";

fn start() -> Option<(Far, Tree)> {
    let far = Far::start_in(Some(Network::make()?))?;
    let config = format!("[tasks]\nserver_lost_after = \"{LOST_AFTER}\"\n");
    let tree = Tree::started_by(far.network().near(), &config);
    far.add_to(&tree, 4);
    Some((far, tree))
}

#[expect(clippy::disallowed_methods, reason = "the duration of the failure is what is tested")]
fn down(far: &Far, span: Duration) {
    far.network().set_link(false);
    std::thread::sleep(span);
    far.network().set_link(true);
}

/// Returns the beginning of every script, which leaves a file if two attempts of a task run at once.
fn alone(far: &Far) -> String {
    let (held, twice) = (far.path("held"), far.path("twice"));
    format!(
        "exec 9> {}-$SEXTON_TASK_ID; flock -n 9 || echo $SEXTON_TASK_ID >> {};",
        text(&held),
        text(&twice)
    )
}

fn assert_never_two_at_once(far: &Far) {
    let twice = std::fs::read_to_string(far.path("twice"));
    assert!(twice.is_err(), "{twice:?}");
}

#[test]
fn a_link_that_fails_for_a_while_interrupts_nothing() {
    let Some((far, tree)) = start() else { return };
    let count = 100;
    let saved = far.path("saved");
    let script = format!(
        "{} for n in $(seq {count}); do \"$0\" task save $n || exit 1; echo $n >> {}; done; \
         while [ ! -e {} ]; do sleep 0.02; done",
        alone(&far),
        text(&saved),
        text(&far.path("go"))
    );
    let id = add(&tree, &[], &script);
    // The connection survives the first outage, and is made again after the second. Each outage begins between a report
    // and its answer.
    for (at, span) in [(10, 1), (40, 8)] {
        lines(&saved, at);
        down(&far, Duration::from_secs(span));
    }
    lines(&saved, count);
    let task = show(&tree, id);
    assert_eq!(task["revision"], count, "each report was applied once: {task}");
    assert_eq!(task["attempts"], 1, "{task}");
    let_go(&far);
    let task = over(&tree, id);
    assert_eq!(
        (&task["exit"], &task["attempts"], &task["revision"]),
        (&"completed".into(), &1.into(), &count.into()),
        "{task}"
    );
    assert_never_two_at_once(&far);
    assert_settled(&far, &tree);
}

#[test]
fn a_link_that_fails_for_too_long_loses_the_server_and_nothing_runs_twice() {
    let Some((far, tree)) = start() else { return };
    let (log, go) = (far.path("log"), far.path("go"));
    let script = |report: &str| {
        format!(
            "{} {report} echo begin $$ >> {}; while [ ! -e {} ]; do sleep 0.02; done",
            alone(&far),
            text(&log),
            text(&go)
        )
    };
    let fails = add(&tree, &[], &script(""));
    let again = add(&tree, &["--retry"], &script(""));
    let saves = add(&tree, &[], &script("\"$0\" task save half;"));
    let begun = lines(&log, 3);
    far.network().set_link(false);
    let failed = over(&tree, fails);
    assert_eq!(
        (&failed["exit"], &failed["past"][0]["cause"]),
        (&"system-error".into(), &"server-lost".into()),
        "{failed}"
    );
    for line in begun {
        let pid = line.rsplit(' ').next().unwrap_or_default();
        assert!(!lives(pid), "{pid} is alive, and was given up");
    }
    tree.assert_all_agrees();
    // Each attempt is given up on its own. One that is reached again before that is known to have been cut short instead.
    for id in [again, saves] {
        let cause = until("the attempt is given up", || {
            let shown = show(&tree, id);
            let cause = shown.pointer("/past/0/cause");
            cause.filter(|it| !it.is_null()).cloned()
        });
        assert_eq!(cause, "server-lost", "{}", show(&tree, id));
    }
    far.network().set_link(true);
    let_go(&far);
    for id in [again, saves] {
        let task = over(&tree, id);
        assert_eq!(task["exit"], "completed", "{task}");
    }
    assert_never_two_at_once(&far);
    tree.assert_all_agrees();
}
