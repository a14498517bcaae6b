//! What is shown of services and processes: why one could not be launched, its output, how it stands, and what the system lists.

use crate::patience::until;
use crate::tree::Tree;

#[test]
fn a_command_that_is_over_while_its_children_live_is_shown_so() {
    let tree = Tree::start();
    let script = "sleep 1000 & exit 0";
    tree.well(&["task", "add", "--", "sh", "-c", script]);
    until("it has ended", || {
        let listed = tree.well(&["ps"]);
        listed.contains("exit 0, children live").then_some(())
    });
}

#[test]
fn the_keeper_is_listed_by_name() {
    let tree = Tree::start();
    tree.well(&["run", "--detach", "--", "true"]);
    let keeper = until("a keeper runs", || tree.keeper()).as_raw_nonzero();
    let read = |file: &str| std::fs::read(format!("/proc/{keeper}/{file}")).unwrap_or_default();
    let begin = b"sexton\0keeper\0--data\0";
    until("it has its name", || {
        (read("cmdline").starts_with(begin) && read("comm") == b"sexton\n").then_some(())
    });
}
