//! Processes that are made queued and launched later, from a shell: across restarts, once, or never.

use crate::tree::Tree;
use serde_json::{Value, json};

fn deferred(tree: &Tree, script: &str) -> String {
    let words = ["run", "--detach", "--deferred", "--", "sh", "-c", script];
    tree.well(&words).trim_end().to_owned()
}

fn standing(tree: &Tree, id: &str) -> [Value; 3] {
    let record = tree.record(id);
    ["status", "deferred", "code"].map(|field| record.get(field).cloned().unwrap_or_default())
}

#[test]
fn what_is_queued_outlives_the_server_and_is_launched_once() {
    let mut tree = Tree::start();
    let mark = tree.data.join("mark");
    let id = deferred(&tree, &format!("echo ran >> {}; exit 4", mark.display()));
    let other = deferred(&tree, "exit 0");
    let waits = [json!("queued"), json!(true), Value::Null];
    for _ in 0..2 {
        assert_eq!(standing(&tree, &id), waits);
        assert_eq!(tree.well(&["ps", "--count", "--status", "queued"]), "2\n");
        let listed = tree.well(&["ps"]);
        assert!(listed.contains("queued, deferred"), "{listed}");
        let page = tree.page("/page/processes?status=queued");
        assert!(page.contains(&id) && page.contains("deferred"), "{page}");
        // A launch that is not deferred starts the keeper.
        tree.detach("exit 0");
        tree.daemon.take().expect("a server").kill();
        tree.kill_keeper();
        tree.serve();
    }
    assert!(!mark.exists(), "nothing was launched");
    let started = tree.run(&["start", &id]);
    assert_eq!((started.status, started.err.as_str()), (0, ""), "{started:?}");
    assert_eq!(tree.run(&["wait", &id]).status, 4);
    let again = tree.run(&["start", &id]);
    assert_eq!(again.status, 1, "{again:?}");
    assert!(again.err.contains("has ended"), "{again:?}");
    let ran = std::fs::read_to_string(&mark).expect("it ran");
    assert_eq!(ran, "ran\n");
    assert_eq!(standing(&tree, &id), [json!("exited"), json!(false), json!(4)]);
    assert_eq!(standing(&tree, &other), waits);
}

#[test]
fn what_is_stopped_before_it_starts_is_cancelled_with_its_tree() {
    let tree = Tree::start();
    let id = deferred(&tree, "exit 0");
    let killed = tree.well(&["kill", &id]);
    assert_eq!(killed, format!("{id}  cancelled\n"));
    let waited = tree.run(&["wait", &id]);
    assert_eq!(waited.status, 125, "{waited:?}");
    assert!(waited.err.contains("stopped before it was launched"), "{waited:?}");
    let record = tree.record(&id);
    let shown = (&record["status"], &record["failure"]["step"], &record["stopped_by"]);
    assert_eq!(shown, (&json!("exited"), &json!("cancelled"), &json!("request")));
    // A parent that ends leaves what it queued; a stop of its tree cancels it.
    let parent = tree.detach("exec sleep 1000");
    let fields = json!({"command": ["true"], "parent": parent, "deferred": true});
    let child = tree.post("/v1/processes/launch", &fields.to_string());
    let child = child["id"].as_str().expect("an id").to_owned();
    tree.well(&["kill", "--tree", "--wait", &parent]);
    assert_eq!(tree.record(&child)["failure"]["step"], "cancelled");
    assert_eq!(tree.well(&["ps", "prune"]), "forgot 3 records\n");
}

#[test]
fn a_launch_that_is_not_deferred_is_not_started_again_and_a_lease_defers_none() {
    let tree = Tree::start();
    let id = tree.detach("exec sleep 1000");
    let started = tree.run(&["start", &id]);
    assert_eq!(started.status, 1, "{started:?}");
    assert!(started.err.contains("not deferred"), "{started:?}");
    let launch = json!({"command": ["true"], "dir": "/", "deferred": true});
    let asked = json!({"name": "nightly", "launch": launch});
    let answer = tree.post("/v1/leases/run", &asked.to_string());
    assert_eq!(answer["reason"], "field", "{answer}");
    let bad = json!({"command": ["true"], "parcel": "1", "deferred": true});
    let answer = tree.post("/v1/processes/launch", &bad.to_string());
    assert_eq!(answer["reason"], "field", "{answer}");
}
