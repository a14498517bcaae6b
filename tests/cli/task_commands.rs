//! What commands about tasks take, and what they print of what they did.

use crate::tree::Tree;

#[test]
fn what_is_no_number_is_said_to_be_none() {
    let tree = Tree::start();
    for (words, error) in [
        (&["task", "show", "abc"][..], "`abc` is no task number: "),
        (&["task", "pause", "abc"], "`abc` is no task number: "),
        (&["queue", "peek", "abc"], "`abc` is no job number: "),
        (&["queue", "kick", "--id", "x"], "`x` is no job number: "),
        (&["queue", "result", "abc"], "`abc` is no job number: "),
        (&["queue", "ack", "1", "abc"], "`abc` is no token: "),
        (
            &["lock", "release", "k", "--token", "y"],
            "`y` is no token: ",
        ),
        (&["events", "--task", "abc"], "`abc` is no task number: "),
        (&["events", "--job", "abc"], "`abc` is no job number: "),
        (&["replay", ".", "--job", "abc"], "`abc` is no job number: "),
        (
            &["recover", ".", "--skip", "z"],
            "`z` is no sequence number: ",
        ),
        (&["register", "--pid", "z"], "`z` is no process number: "),
    ] {
        let done = tree.run(words);
        assert_eq!(done.status, 2, "{words:?}: {done:?}");
        assert!(done.err.contains(error), "{words:?}: {done:?}");
        assert!(!done.err.contains("invalid digit"), "{words:?}: {done:?}");
    }
}
