//! `sexton task transcript`: the history of a task, attempt by attempt.

use crate::patience::until;
use crate::tree::Tree;
use serde_json::Value;

const SEXTON: &str = env!("CARGO_BIN_EXE_sexton");

fn story(tree: &Tree, id: &str) -> Value {
    let printed = tree.well(&["task", "transcript", id, "--json"]);
    serde_json::from_str(&printed).expect("valid JSON")
}

/// Returns the phases of an attempt, in order.
fn phases(story: &Value) -> Vec<&str> {
    let phases = story["phases"].as_array().expect("phases");
    assert!(phases.iter().all(|it| it["at"].is_u64()), "{story}");
    let words = phases.iter().map(|it| it["phase"].as_str());
    words.map(|it| it.expect("a word")).collect()
}

#[test]
fn a_transcript_tells_each_attempt_with_its_phases_and_its_output() {
    let tree = Tree::start();
    let script = r#"
echo "burst $SEXTON_TASK_REVISION"
"$0" task save x || exit 1
[ "$SEXTON_TASK_REVISION" = 0 ] && exec "$0" task wait 10ms
[ "$SEXTON_TASK_REVISION" = 1 ] && kill -9 $$
echo bad >&2; exit 3
"#;
    let cleanup = "sh -c 'exit 0'";
    let flags = ["--name", "import", "--cleanup", cleanup];
    let words = [&["task", "add"], &flags[..], &["--", "sh", "-c", script, SEXTON]].concat();
    let id = tree.well(&words);
    let id = id.trim_end();
    let told = until("the transcript is complete", || {
        let told = story(&tree, id);
        let cleaned = |it: &Value| phases(it).contains(&"cleaned");
        let stories = told["stories"].as_array()?;
        (told["status"] == "complete" && stories.last().is_some_and(cleaned)).then_some(told)
    });
    let stories = told["stories"].as_array().expect("stories");
    let outcomes: Vec<_> = stories.iter().map(|it| (&it["outcome"], &it["cause"])).collect();
    let expected =
        [("waits", Value::Null), ("reset", "died".into()), ("ended", "user-error".into())];
    assert_eq!(outcomes.len(), expected.len(), "{told}");
    for ((outcome, cause), (right, by)) in outcomes.into_iter().zip(&expected) {
        assert_eq!((outcome, cause), (&(*right).into(), by), "{told}");
    }
    let whole = "dispatched locked launched started saved ended released cleaned";
    assert_eq!(phases(&stories[2]).join(" "), whole, "{told}");
    assert_eq!((&stories[1]["signal"], &stories[2]["code"]), (&9.into(), &3.into()));
    assert_eq!(stories[0]["stdout"]["head"], "burst 0\n");
    assert_eq!(stories[2]["stderr"]["head"], "bad\n");
    assert_eq!(
        (&stories[0]["dispatch"]["used"], &stories[0]["dispatch"]["threads"]),
        (&0.into(), &4.into())
    );
    let dir = stories[2]["dir"].as_str().expect("a directory");
    let printed = std::fs::read_to_string(format!("{dir}/stderr.log")).expect("the file exists");
    assert_eq!(printed, "bad\n");

    assert_pages(&tree, id);
}

/// Checks the text that is printed for people.
fn assert_pages(tree: &Tree, id: &str) {
    let page = tree.well(&["task", "transcript", id]);
    for line in [
        "import: complete, user-error",
        "on local: reset: died",
        "its command was killed by signal 9",
        "its command ended with status 3",
        "stdout: 8 bytes in",
        "    bad",
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
    assert!(!page.contains("threads were taken"), "{page}");
    let page = tree.well(&["task", "transcript", id, "--dispatch"]);
    assert!(page.contains("chose local: 0 of 4 threads were taken"), "{page}");
}

#[test]
fn a_transcript_marks_where_output_was_cut_and_shows_its_end() {
    let tree = Tree::start();
    let script = "i=0; while [ $i -lt 20000 ]; do echo \"line $i\"; i=$((i+1)); done >&2; echo 'KeyError: the cause' >&2; exit 3";
    let id = tree.well(&["task", "add", "--", "sh", "-c", script]);
    let id = id.trim_end();
    let told = until("it is over", || {
        let told = story(&tree, id);
        (told["status"] == "complete").then_some(told)
    });
    let stderr = &told["stories"][0]["stderr"];
    let length = |part: &str| stderr[part].as_str().expect("text").len() as u64;
    let left_out = stderr["bytes"].as_u64().expect("a size") - length("head") - length("tail");
    assert!(left_out > 100_000, "{stderr}");
    let page = tree.well(&["task", "transcript", id]);
    let lines: Vec<&str> = page.lines().map(str::trim).collect();
    let mark =
        lines.iter().position(|line| line.starts_with("[... ") && line.ends_with(" left out ...]"));
    let mark = mark.unwrap_or_else(|| panic!("a mark in {page}"));
    assert!(lines[..mark].contains(&"line 0"), "{page}");
    let end = lines.iter().position(|line| *line == "KeyError: the cause");
    assert!(end.is_some_and(|end| end > mark), "{page}");
}

#[test]
fn what_has_not_come_so_far_is_left_out_and_what_is_not_there_is_refused() {
    let tree = Tree::start();
    let waits = tree.well(&["task", "add", "--paused", "--", "true"]);
    let told = story(&tree, waits.trim_end());
    assert_eq!(told["stories"].as_array().map(Vec::len), Some(0), "{told}");
    let none = tree.well(&["task", "add", "--", "/no/such/program"]);
    let none = none.trim_end();
    let told = until("it was tried", || {
        let told = story(&tree, none);
        (told["stories"][0]["outcome"] == "reset").then_some(told)
    });
    assert_eq!(told["stories"][0]["cause"], "not-launched", "{told}");
    let failure = told["stories"][0]["failure"].as_str().expect("the refusal has a detail");
    assert!(failure.starts_with("exec: "), "{failure}");
    assert!(!phases(&told["stories"][0]).contains(&"started"), "{told}");
    assert_eq!(tree.run(&["task", "transcript", "7777777"]).status, 1);
}
