//! A reply without the parts that differ between two servers.

use std::collections::BTreeMap;

/// Statistics that belong to a server, or that the queries themselves change.
const OWN: &[&str] = &[
    "pid",
    "version",
    "rusage-utime",
    "rusage-stime",
    "uptime",
    "id",
    "hostname",
    "os",
    "platform",
    "cmd-stats",
];

/// Statistics in seconds, of which one may have begun on one side only.
const SECONDS: &[&str] = &["age", "time-left", "pause-time-left"];

/// A reply in comparable form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Masked {
    /// Unchanged.
    Plain(String),
    /// A list, in any order.
    List(Vec<String>),
    /// A map, and its statistics in seconds.
    Map(BTreeMap<String, String>, BTreeMap<String, i64>),
}

impl Masked {
    pub(crate) fn of(reply: &[u8]) -> Self {
        let plain = || Self::Plain(reply.escape_ascii().to_string());
        if !reply.starts_with(b"OK ") {
            return plain();
        }
        let text = String::from_utf8_lossy(reply).replace('"', "");
        let mut lines = text.trim_end_matches("\r\n").split('\n').skip(1);
        if lines.next() != Some("---") {
            return plain();
        }
        let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        if lines.iter().all(|line| line.starts_with("- ")) {
            let mut list: Vec<String> = lines.into_iter().map(str::to_owned).collect();
            list.sort_unstable();
            return Self::List(list);
        }
        let mut map = BTreeMap::new();
        let mut seconds = BTreeMap::new();
        for line in lines {
            let Some((key, value)) = line.split_once(": ") else {
                return plain();
            };
            // The id of a job has the same key as that of the server, but is compared.
            let is_own = OWN.contains(&key) && !(key == "id" && value.len() < 16);
            if SECONDS.contains(&key) {
                seconds.insert(key.to_owned(), value.parse().unwrap_or(-1));
            } else if is_own || key.starts_with("binlog-") {
                map.insert(key.to_owned(), String::new());
            } else {
                map.insert(key.to_owned(), value.to_owned());
            }
        }
        Self::Map(map, seconds)
    }

    /// Returns the parts that differ: of a map, only the differing entries.
    pub(crate) fn beside(&self, other: &Self) -> String {
        match (self, other) {
            (Self::Map(ours, our_seconds), Self::Map(theirs, their_seconds)) => {
                let words = ours
                    .iter()
                    .filter(|(key, value)| theirs.get(*key) != Some(*value));
                let seconds = our_seconds.iter();
                let seconds =
                    seconds.filter(|(key, value)| their_seconds.get(*key) != Some(*value));
                format!(
                    "{:?} {:?}",
                    words.collect::<Vec<_>>(),
                    seconds.collect::<Vec<_>>()
                )
            }
            (ours, _) => format!("{ours:?}"),
        }
    }

    /// Returns whether both mean the same.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Map(ours, our_seconds), Self::Map(theirs, their_seconds)) => {
                let near = |(one, other): (&i64, &i64)| (one - other).abs() <= 1;
                ours == theirs
                    && our_seconds.keys().eq(their_seconds.keys())
                    && our_seconds.values().zip(their_seconds.values()).all(near)
            }
            (ours, theirs) => ours == theirs,
        }
    }
}
