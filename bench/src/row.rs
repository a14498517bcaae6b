//! The rows that `sexton-bench locks` can measure, and their names.

use std::fmt;
use std::str::FromStr;

/// The maximum number of connections that a row may specify.
pub(crate) const CONNECTIONS_MAX: u32 = 4000;

/// The maximum depth that a row may specify. The depth is the number of requests that a connection sends in one write.
pub(crate) const DEPTH_MAX: u32 = 1024;

/// A workload, measured as one row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Row {
    /// Each connection acquires and releases its own locks.
    Cycles {
        /// Whether the servers sync each change to disk before they answer.
        durable: bool,
        /// The number of connections.
        connections: u32,
        /// The number of locks that each connection requests in one write.
        depth: u32,
    },
    /// All clients compete for the same lock.
    Contended {
        /// The number of clients.
        clients: u32,
    },
}

impl Row {
    /// Returns the rows that are measured by default.
    pub(crate) fn all() -> Vec<Self> {
        let shapes = [(1, 1), (50, 1), (50, 16), (256, 1)];
        let cycles = |durable| {
            shapes.map(|(connections, depth)| Self::Cycles { durable, connections, depth })
        };
        let mut rows = Vec::from(cycles(false));
        rows.extend(cycles(true));
        rows.push(Self::Contended { clients: 50 });
        rows
    }

    /// Returns whether the servers sync each change to disk before they answer.
    pub(crate) fn is_durable(self) -> bool {
        match self {
            Self::Cycles { durable, .. } => durable,
            Self::Contended { .. } => false,
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Cycles { durable, connections, depth } => {
                let kind = if durable { "fsync" } else { "memory" };
                let name = format!("{kind}:{connections}x{depth}");
                f.pad(&name)
            }
            Self::Contended { clients } => f.pad(&format!("contended:{clients}")),
        }
    }
}

impl FromStr for Row {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "expected memory:CxD, fsync:CxD or contended:C, with 1 to {CONNECTIONS_MAX} \
                 connections and a depth of 1 to {DEPTH_MAX}"
            )
        };
        let (kind, shape) = text.split_once(':').ok_or_else(wrong)?;
        let row = match kind {
            "memory" | "fsync" => shape.split_once('x').and_then(|(connections, depth)| {
                Some(Self::Cycles {
                    durable: kind == "fsync",
                    connections: number(connections, CONNECTIONS_MAX)?,
                    depth: number(depth, DEPTH_MAX)?,
                })
            }),
            "contended" => {
                number(shape, CONNECTIONS_MAX).map(|clients| Self::Contended { clients })
            }
            _ => None,
        };
        row.ok_or_else(wrong)
    }
}

/// Parses a number from 1 to `most`. Returns `None` if the text is not a number or the number is out of this range.
pub(crate) fn number(text: &str, most: u32) -> Option<u32> {
    let number = text.parse().ok();
    number.filter(|number| (1..=most).contains(number))
}

#[cfg(test)]
mod tests {
    use super::Row;

    #[test]
    fn rows_are_read_as_they_are_shown() {
        for row in Row::all() {
            assert_eq!(row.to_string().parse(), Ok(row));
        }
        for wrong in
            ["memory", "memory:0x1", "fsync:1", "fsync:1x2000", "disk:1x1", "contended:9999"]
        {
            wrong.parse::<Row>().unwrap_err();
        }
    }
}
