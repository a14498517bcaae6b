//! Checks whether two commands ran at the same time. Every line of the file is from one command, `WORD ID PID`: `b` when it
//! begins, `h` while it runs, `l` from a process that it left, `e` when it ends. A killed command writes no end, so the check
//! is that nothing is written for one command after another has begun.

use std::fmt;
use std::path::Path;

/// What the lines of a file show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Observations {
    /// Commands that began.
    pub(crate) begun: u64,
    /// Commands that ended without being killed.
    pub(crate) ended: u64,
    /// Lines of processes that commands left.
    pub(crate) left: u64,
    /// Lines that were written for a command after another had begun.
    pub(crate) beside: Vec<String>,
}

impl Observations {
    /// Returns whether every case occurred: commands that ended, that left a process, and one that was killed, besides the one
    /// that may be running now.
    pub(crate) fn all(&self) -> bool {
        self.begun > self.ended + 1 && self.ended > 0 && self.left > 0
    }
}

impl fmt::Display for Observations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { begun, ended, left, beside } = self;
        let overlaps = beside.len();
        write!(
            f,
            "{begun} began, {ended} ended, {left} lines of what was left, {overlaps} lines beside another"
        )
    }
}

/// Returns the command that wrote the last line: its id, and the processes that wrote its first line and its last one. Returns `None` if
/// no command has written.
pub(crate) fn newest(file: &Path) -> Option<(String, [u32; 2])> {
    let text = std::fs::read_to_string(file).ok()?;
    let mut lines = text.lines().rev().map(|line| line.split(' '));
    let mut last = lines.clone().next()?.skip(1);
    let (id, pid) = (last.next()?, last.next()?.parse().ok()?);
    let first = lines.find_map(|mut words| {
        let is_first = words.next() == Some("b") && words.next() == Some(id);
        is_first.then(|| words.next()?.parse().ok()).flatten()
    });
    Some((id.to_owned(), [first?, pid]))
}

/// Reads the whole file.
pub(crate) fn seen(file: &Path) -> Observations {
    // If no command has had the lock, there is no file.
    judged(&std::fs::read_to_string(file).unwrap_or_default())
}

fn judged(text: &str) -> Observations {
    let mut seen = Observations::default();
    let mut there = "";
    for line in text.lines() {
        let mut words = line.split(' ');
        let (word, id) = (words.next(), words.next().expect("a line names its command"));
        if word == Some("b") {
            seen.begun += 1;
            there = id;
        } else if id != there {
            seen.beside.push(format!("{line} beside {there}"));
        }
        seen.ended += u64::from(word == Some("e"));
        seen.left += u64::from(word == Some("l"));
    }
    seen
}

#[test]
fn a_line_of_one_after_the_beginning_of_another_is_an_overlap() {
    let well = judged("b 1 7\nh 1 7\ne 1 7\nl 1 8\nb 2 9\nb 3 10\ne 3 10\n");
    assert_eq!((well.begun, well.ended, well.left), (3, 2, 1));
    assert_eq!(well.beside, Vec::<String>::new());
    for text in ["b 1 7\nb 2 8\ne 1 7\n", "b 1 7\ne 1 7\nb 2 8\nl 1 9\n"] {
        assert_eq!(judged(text).beside.len(), 1, "{text}");
    }
}
