//! Replies without the parts that differ between two servers.

use std::collections::BTreeMap;

/// Statistics that always differ between two servers, or that queries for statistics change.
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

/// Statistics in seconds, which may differ by one because a second passed between the two queries.
const SECONDS: &[&str] = &["age", "time-left", "pause-time-left"];

/// A reply in comparable form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Masked {
    /// Any other reply, unchanged.
    Plain(String),
    /// A list, whose order does not matter.
    List(Vec<String>),
    /// A map without its statistics in seconds, and those statistics.
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
            // A job has the same key `id` as a server. A job's id, which is shorter, is compared.
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

    /// Returns the parts in which the replies differ. Of a map, these are the differing values.
    pub(crate) fn beside(&self, other: &Self) -> String {
        match (self, other) {
            (Self::Map(ours, our_seconds), Self::Map(theirs, their_seconds)) => {
                let words = ours.iter().filter(|(key, value)| theirs.get(*key) != Some(*value));
                let seconds = our_seconds.iter();
                let seconds =
                    seconds.filter(|(key, value)| their_seconds.get(*key) != Some(*value));
                format!("{:?} {:?}", words.collect::<Vec<_>>(), seconds.collect::<Vec<_>>())
            }
            (ours, _) => format!("{ours:?}"),
        }
    }

    /// Returns whether both replies are the same, except for the allowed difference in seconds.
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
