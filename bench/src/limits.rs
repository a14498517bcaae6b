//! The table of figures that `bindings`, `dispatch`, `page`, `processes` and `work` print. Each figure is the median over all rounds. Some
//! figures have a limit; one that misses its limit is marked as missed.

use crate::failure::Failure;
use crate::figures::{Spread, grouped};
use crate::output::{document, heading, print};
use crate::table::Round;
use serde_json::{Map, Value, json};

/// The limit on a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    Below(f64),
    AtMost(f64),
    AtLeast(f64),
}

impl Limit {
    fn holds(self, figure: f64) -> bool {
        match self {
            Self::Below(most) => figure < most,
            Self::AtMost(most) => figure <= most,
            Self::AtLeast(least) => figure >= least,
        }
    }

    fn words(self) -> String {
        match self {
            Self::Below(most) => format!("< {}", number(most)),
            Self::AtMost(most) => format!("<= {}", number(most)),
            Self::AtLeast(least) => format!(">= {}", number(least)),
        }
    }
}

/// A row of the table.
pub(crate) struct Row {
    name: &'static str,
    words: String,
    unit: &'static str,
    limit: Option<Limit>,
}

impl Row {
    /// Creates a row with a name for JSON, a description for the text, a unit, and the limit, if there is one.
    pub(crate) fn new(
        name: &'static str,
        words: String,
        unit: &'static str,
        limit: Option<Limit>,
    ) -> Self {
        Self { name, words, unit, limit }
    }
}

/// The table: its rows, and each server's figures for each round. sexton is the first server, and the limits apply to it alone.
pub(crate) struct Limits {
    rows: Vec<Row>,
    servers: Vec<(&'static str, Vec<Round>)>,
}

impl Limits {
    pub(crate) fn new(rows: Vec<Row>, servers: Vec<(&'static str, Vec<Round>)>) -> Self {
        Self { rows, servers }
    }

    /// Prints sexton's version, the notes and the table, as text or, if `is_json`, as one JSON document.
    pub(crate) fn report(
        &self,
        sexton: &str,
        notes: &[String],
        rounds: u32,
        is_json: bool,
    ) -> Result<(), Failure> {
        if is_json {
            return document(&json!({
                "sexton": sexton,
                "notes": notes,
                "rounds": rounds,
                "rows": self.document(),
            }));
        }
        print(&heading(sexton, &[], notes))?;
        print(&self.lines())
    }

    fn spreads(&self, row: &Row) -> impl Iterator<Item = (&'static str, Option<Spread>)> {
        self.servers.iter().map(|(name, rounds)| {
            let figures = rounds.iter().filter_map(|round| round.get(row.name));
            let figures: Vec<f64> = figures.copied().collect();
            let measured = !figures.is_empty();
            (*name, measured.then(|| Spread::of(figures.into_iter())))
        })
    }

    /// Returns whether the first server's median is within the limit; `None` if there is no limit or no figure.
    fn holds(&self, row: &Row) -> Option<bool> {
        let (_, own) = self.spreads(row).next()?;
        Some(row.limit?.holds(own?.median))
    }

    /// Returns the rows as JSON.
    pub(crate) fn document(&self) -> Value {
        let line = |row: &Row| {
            let mut line = Map::new();
            line.insert("row".to_owned(), json!(row.name));
            line.insert("unit".to_owned(), json!(row.unit));
            let (name, limit) = match row.limit {
                Some(Limit::Below(most)) => ("below", Some(most)),
                Some(Limit::AtMost(most)) => ("at_most", Some(most)),
                Some(Limit::AtLeast(least)) => ("at_least", Some(least)),
                None => ("below", None),
            };
            for each in ["below", "at_most", "at_least"] {
                line.insert(each.to_owned(), json!(limit.filter(|_| each == name)));
            }
            line.insert("holds".to_owned(), json!(self.holds(row)));
            for (name, spread) in self.spreads(row) {
                line.insert(name.to_owned(), json!(spread));
            }
            Value::Object(line)
        };
        self.rows.iter().map(line).collect()
    }

    /// Formats the rows as text.
    pub(crate) fn lines(&self) -> String {
        let line = |words: &str, unit: &str, limit: &str, cells: Vec<String>| {
            let line = format!("{words:<46} {unit:<5} {limit:<10} {}", cells.join(" "));
            line.trim_end().to_owned() + "\n"
        };
        let cell = |middle: &str, range: &str| format!("{middle:>9} {range:<17}");
        let heads = self.servers.iter().map(|(name, _)| cell(name, "(min-max)"));
        let mut lines = line("", "", "limit", heads.collect());
        for row in &self.rows {
            let missed = self.holds(row) == Some(false);
            let mut cells: Vec<String> = Vec::new();
            for (_, spread) in self.spreads(row) {
                cells.push(match spread {
                    Some(Spread { median, min, max }) => {
                        let range = format!("({}-{})", number(min), number(max));
                        cell(&number(median), &range)
                    }
                    None => cell("", ""),
                });
            }
            if missed {
                cells.push("missed".to_owned());
            }
            let limit = row.limit.map_or_else(String::new, Limit::words);
            lines.push_str(&line(&row.words, row.unit, &limit, cells));
        }
        lines
    }
}

/// Formats a figure: with two decimals if its absolute value is below 10, with one if it is below 100, and otherwise as a whole number.
/// Decimals that are all zero are omitted.
fn number(number: f64) -> String {
    let text = match number.abs() {
        ..10.0 => format!("{number:.2}"),
        ..100.0 => format!("{number:.1}"),
        _ if number < 0.0 => format!("-{}", grouped(-number)),
        _ => grouped(number),
    };
    match text.split_once('.') {
        Some((whole, part)) if part.bytes().all(|digit| digit == b'0') => whole.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::{Limit, Limits, Row};
    use crate::table::Round;

    #[test]
    fn a_figure_beyond_its_limit_is_marked_and_a_peer_has_none() {
        let rows = vec![
            Row::new("restart", "a restart".to_owned(), "ms", Some(Limit::Below(3.0))),
            Row::new("rate", "a rate".to_owned(), "/s", Some(Limit::AtLeast(500.0))),
            Row::new("other", "without".to_owned(), "ms", None),
        ];
        let own = Round::from([("restart", 3.25), ("rate", 1500.0), ("other", 0.5)]);
        let peer = Round::from([("restart", 1015.0)]);
        let table = Limits::new(rows, vec![("sexton", vec![own]), ("runit", vec![peer])]);
        let text = table.lines();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[1].contains("< 3 ") && lines[1].ends_with("missed"), "{text}");
        assert!(lines[1].contains("1,015"), "{text}");
        assert!(lines[2].contains(">= 500") && !lines[2].contains("missed"), "{text}");
        let document = table.document();
        assert_eq!(document[0]["holds"], false);
        assert_eq!(document[1]["holds"], true);
        assert!(document[2]["holds"].is_null() && document[2]["runit"].is_null());
    }
}
