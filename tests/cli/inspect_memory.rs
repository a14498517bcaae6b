//! `sexton inspect` of a directory with jobs that are kept in memory only.

use crate::tree::Tree;

#[test]
fn jobs_that_a_start_would_not_have_are_named() {
    let mut tree = Tree::configured("[queues.passing]\nclass = \"memory\"\n");
    for queue in ["passing", "passing", "lasting"] {
        tree.well(&["queue", "push", queue, "body"]);
    }
    tree.daemon.take().expect("a server").kill();
    let data = tree.data.to_str().expect("UTF-8");
    let all = tree.well(&["inspect", data]);
    assert!(all.contains("would remove 2 jobs kept in memory only"), "{all}");
    let one = tree.well(&["inspect", data, "--job", "1"]);
    assert!(one.contains("startup would remove it"), "{one}");
    let other = tree.well(&["inspect", data, "--job", "3"]);
    assert!(!other.contains("startup would remove it"), "{other}");
}
