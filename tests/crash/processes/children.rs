//! The launched children, and what each of them wrote about itself: that it began, and how it was about to end.

use crate::patience::until;
use crate::processes::host::Host;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

/// The children launched on one data directory, each with a number.
pub(crate) struct Children {
    files: PathBuf,
}

/// How a child was about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// With this exit code.
    Code(u8),
    /// By this signal.
    Signal(u8),
}

/// The end of a child according to its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// It is running.
    Alive,
    /// It ended in this way.
    Ended(Last),
    /// How it ended is unknown, for this reason.
    Lost(String),
    /// It was not started.
    Failed(String),
}

impl Children {
    /// Creates the children of this host.
    pub(crate) fn of(host: &Host) -> Self {
        let files = host.file("children");
        std::fs::create_dir_all(&files).expect("the disk has space");
        Self { files }
    }

    fn file(&self, number: u64, what: &str) -> PathBuf {
        self.files.join(format!("{number}.{what}"))
    }

    /// Returns the request for a child that runs for this long. How it ends depends on its number: every seventh ends by a signal.
    pub(crate) fn launch(&self, number: u64, ms: u64) -> Value {
        let waits = format!("sleep {}.{:03}", ms / 1000, ms % 1000);
        self.launch_of(number, "", &waits)
    }

    /// Returns the request for a child that runs until [`let_go`](Self::let_go) is called for it, and ignores SIGTERM until then.
    pub(crate) fn held(&self, number: u64) -> Value {
        let go = self.file(number, "go");
        let go = go.display();
        let waits = format!("while ! [ -e {go} ]; do sleep 0.02; done; trap - TERM");
        self.launch_of(number, "trap '' TERM; ", &waits)
    }

    fn launch_of(&self, number: u64, first: &str, waits: &str) -> Value {
        let base = self.files.join(number.to_string());
        let base = base.display();
        let (word, end) = match Self::last(number) {
            Last::Code(code) => (format!("c{code}"), format!("exit {code}")),
            Last::Signal(signal) => (format!("s{signal}"), format!("kill -{signal} $$")),
        };
        // The child writes its last line in one step, by renaming a file.
        let script = format!(
            "{first}echo $$ >> {base}.start; {waits}; echo {word} > {base}.next; mv {base}.next {base}.last; {end}"
        );
        json!({"command": ["sh", "-c", script], "labels": {"number": number.to_string()}})
    }

    /// Lets a child end that was launched with [`held`](Self::held).
    pub(crate) fn let_go(&self, number: u64) {
        std::fs::write(self.file(number, "go"), "").expect("the disk has space");
    }

    fn last(number: u64) -> Last {
        let small = u8::try_from(number % 251).expect("a small number");
        match number % 7 {
            3 => Last::Signal(if number.is_multiple_of(2) { 9 } else { 15 }),
            _ => Last::Code(small),
        }
    }

    /// Waits until these children have begun.
    pub(crate) fn begun(&self, numbers: Range<u64>) {
        for number in numbers {
            until("it has begun", || (self.starts(number) > 0).then_some(()));
        }
    }

    /// Returns how often the child began.
    pub(crate) fn starts(&self, number: u64) -> usize {
        let starts = std::fs::read_to_string(self.file(number, "start"));
        starts.unwrap_or_default().lines().count()
    }

    /// Returns how the child wrote that it is about to end; `None` if it did not get that far.
    pub(crate) fn wrote(&self, number: u64) -> Option<Last> {
        let last = std::fs::read_to_string(self.file(number, "last")).ok()?;
        let (kind, rest) = last.trim().split_at(1);
        let value = rest.parse().expect("it is a number");
        Some(match kind {
            "c" => Last::Code(value),
            _ => Last::Signal(value),
        })
    }
}

/// Returns the records of children, by number; fails if a child has two.
pub(crate) fn by_number(records: Vec<Value>) -> BTreeMap<u64, Value> {
    let mut all = BTreeMap::new();
    for record in records {
        let number = record.pointer("/labels/number").and_then(Value::as_str);
        let number = number.and_then(|number| number.parse().ok()).expect("it is numbered");
        let before = all.insert(number, record);
        assert!(before.is_none(), "{number} has two records: {before:?}");
    }
    all
}

/// Returns the end in a record.
pub(crate) fn recorded(record: &Value) -> Recorded {
    let text = |pointer| record.pointer(pointer).and_then(Value::as_str);
    let small = |pointer| {
        let number = record.pointer(pointer).and_then(Value::as_u64);
        number.and_then(|number| u8::try_from(number).ok())
    };
    let (code, signal) = (small("/code"), small("/signal"));
    let nothing = (None, None);
    if text("/status") != Some("exited") {
        // Once the process has ended, its end is known, while its tree is not proved to be empty.
        if record.pointer("/ended_at").is_none_or(Value::is_null) {
            assert_eq!((code, signal), nothing, "{record}");
            assert_eq!(text("/lost"), None, "{record}");
        }
        return Recorded::Alive;
    }
    if let Some(words) = text("/failure/words") {
        assert_eq!((code, signal), nothing, "{record}");
        return Recorded::Failed(words.to_owned());
    }
    if let Some(reason) = text("/lost") {
        assert_eq!((code, signal), nothing, "{record}");
        return Recorded::Lost(reason.to_owned());
    }
    match (code, signal) {
        (Some(_), Some(signal)) => Recorded::Ended(Last::Signal(signal)),
        (Some(code), None) => Recorded::Ended(Last::Code(code)),
        (None, _) => panic!("the record has no end: {record}"),
    }
}
