//! `sexton ps`: which processes it finds by a text of their output, by PID, and in the tree of one of them.

use crate::coordinator::done;
use crate::patience::until;
use crate::tree::Tree;
use serde_json::Value;

#[test]
fn the_tree_of_a_process_has_its_ancestors_and_marks_it() {
    let tree = Tree::start();
    let top = tree.detach("exec sleep 1000");
    let under = |id: &str| {
        let mut run = tree.command(&["run", "--detach", "--", "sleep", "1000"]);
        run.env("SEXTON_PROCESS_ID", id);
        done(run.output().expect("the command runs")).out.trim().to_owned()
    };
    let middle = under(&top);
    let (below, beside) = (under(&middle), under(&top));
    let page = tree.well(&["ps", "--tree", &middle]);
    let shown: Vec<&str> = page.lines().collect();
    assert_eq!(shown.len(), 3, "{page}");
    for (line, id) in shown.iter().zip([&top, &middle, &below]) {
        assert!(line.starts_with(id.as_str()), "{page}");
        assert_eq!(line.ends_with(" [CURRENT]"), *id == middle, "{page}");
    }
    assert!(!page.contains(&beside), "{page}");
}

#[test]
fn processes_are_found_by_their_output_and_by_pid() {
    let tree = Tree::start();
    let id = tree.detach("printf 'lost the %s\\n' Needle");
    tree.well(&["wait", &id]);
    let found = |args: &[&str]| {
        let all = [&["ps", "--all", "--json"], args].concat();
        let found: Value = serde_json::from_str(&tree.well(&all)).expect("JSON");
        let records = found["processes"].as_array().expect("a list").clone();
        let ids = records.iter().map(|it| it["id"].as_str().expect("an id"));
        ids.map(str::to_owned).collect::<Vec<_>>()
    };
    let lives = tree.detach("exec sleep 1000");
    assert_eq!(found(&["--search", "the needle"]), [id.as_str()]);
    let pid = tree.record(&lives)["pid"].to_string();
    let here = found(&["--pid", &pid]);
    assert!(here.contains(&lives), "{here:?}");
    let count = tree.well(&["ps", "--all", "--count"]);
    assert_eq!(found(&["--pid", "1"]), Vec::<String>::new());
    assert_eq!(tree.well(&["ps", "--all", "--count"]), count, "no record was made");
}

#[test]
fn one_process_is_shown_with_its_usage_and_the_processes_below_it() {
    let tree = Tree::start();
    let id = tree.detach("sleep 1000.5 & sleep 1000.25 & wait");
    let (record, page) = until("both children run", || {
        let record: Value = serde_json::from_str(&tree.well(&["ps", &id, "--json"])).expect("JSON");
        let children = record["children"].as_array().map_or(0, Vec::len);
        (children == 2).then(|| (record, tree.well(&["ps", &id])))
    });
    let usage = &record["usage"];
    let number = |name: &str| usage[name].as_f64().expect("a number");
    assert!(number("virtual_bytes") > 0.0 && number("memory_bytes") > 0.0, "{usage}");
    assert!(number("cpu_percent") >= 0.0, "{usage}");
    for words in ["sleep 1000.5", "sleep 1000.25", " virtual", "% since its start"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let children = record["children"].as_array().expect("a list");
    assert!(children.iter().all(|it| it["pid"] != record["pid"]), "{record}");
}
