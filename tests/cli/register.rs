//! `sexton register` in scripts: a process has the same record before and after exec, and its parent is found even after
//! double forks.

use crate::daemon::{PROGRAM, text};
use crate::patience::until;
use crate::tree::Tree;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Waits until a script has written `count` ids that `sexton register` printed, one per line, and returns them.
fn ids(file: &Path, count: usize) -> Vec<String> {
    until("all have registered", || {
        let written = std::fs::read_to_string(file).ok()?;
        let ids: Vec<String> = written.lines().map(str::to_owned).collect();
        (written.ends_with('\n') && ids.len() == count).then_some(ids)
    })
}

/// Launches a script in which `$R` registers its caller and prints the record's id, and `$F` is a file. Returns the id of
/// the script's process, and the path of the file.
fn registering(tree: &Tree, script: &str, count: usize) -> (String, PathBuf) {
    let file = tree.data.join(format!("ids-{count}"));
    drop(std::fs::remove_file(&file));
    let register = format!("{PROGRAM} register --data {}", text(&tree.data));
    let script = format!("export R='{register}' F={}; {script}; exec sleep 1000", text(&file));
    (tree.detach(&script), file)
}

/// Launches such a script, and waits until the file has `count` ids. Returns the id of the script's process, and those
/// ids.
fn registered(tree: &Tree, script: &str, count: usize) -> (String, Vec<String>) {
    let (id, file) = registering(tree, script, count);
    let ids = ids(&file, count);
    (id, ids)
}

fn parent(tree: &Tree, id: &str) -> Value {
    let record = tree.record(id);
    record.get("parent").expect("it has the field").clone()
}

#[test]
fn a_process_has_one_record_before_and_after_exec() {
    let tree = Tree::start();
    // The launched process has a record already. Its child gets one, and keeps it across exec.
    let inner = "$R >> $F; exec sh -c \"\\$R >> \\$F; exec sleep 1000\"";
    let script = format!("$R >> $F; sh -c '{inner}' & sleep 0.01");
    let (launched, ids) = registered(&tree, &script, 3);
    let [own, before, after] = ids.as_slice() else {
        panic!("expected three registered processes, found {ids:?}");
    };
    assert_eq!(*own, launched);
    assert_ne!(*before, launched);
    assert_eq!(before, after, "it is the same process after exec");
    assert_eq!(parent(&tree, before), *launched);
    let record = tree.record(before);
    assert_eq!(record["launched"], false, "{record}");
    assert_eq!(record["depth"], 1, "{record}");
}

#[test]
fn whom_the_kernel_no_longer_has_under_its_parent_is_linked_by_the_variable() {
    let tree = Tree::start();
    // The parent of the process has ended, so the process is a child of the keeper when it registers.
    let orphan = "(setsid sh -c 'sleep 0.2; $R >> $F; exec sleep 1000' &)";
    let (launched, ids) = registered(&tree, orphan, 1);
    let record = tree.record(&ids[0]);
    assert_ne!(ids[0], launched);
    assert_eq!(record["parent"], *launched, "{record}");
}

#[test]
fn without_the_variable_the_line_of_parents_is_asked() {
    let tree = Tree::start();
    // The child registers after the start of its parent is on record, since nothing else links the two.
    let go = tree.data.join("go");
    let script = format!(
        "sh -c 'unset SEXTON_PROCESS_ID; while [ ! -e {} ]; do sleep 0.01; done; $R >> $F; exec sleep 1000' & sleep 0.01",
        text(&go)
    );
    let (launched, file) = registering(&tree, &script, 1);
    std::fs::write(&go, "").expect("a writable file");
    let ids = ids(&file, 1);
    assert_ne!(ids[0], launched);
    assert_eq!(parent(&tree, &ids[0]), *launched);
    // A process that does not name its parent and is not a descendant of a recorded process has no parent. A wrong parent
    // would be worse.
    let script = "(setsid sh -c 'unset SEXTON_PROCESS_ID; sleep 0.2; $R >> $F; $R >> $F; exec sleep 1000' &)";
    let (_, ids) = registered(&tree, script, 2);
    assert_eq!(ids[0], ids[1]);
    assert_eq!(parent(&tree, &ids[0]), Value::Null);
}
