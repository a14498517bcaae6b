//! Tables in which each row is a measurement and each column is a server, as printed by `recovery` and `backlog`. Lower figures are better
//! in every row.

use crate::figures::{Spread, grouped};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A row of the table.
pub(crate) struct Row {
    name: &'static str,
    words: String,
    unit: &'static str,
    /// Whether the figure is a difference. No ratio is computed for differences: they may be zero or negative, so it would be meaningless.
    difference: bool,
}

impl Row {
    /// Creates a row with its name in JSON, its description in text, and its unit.
    pub(crate) fn new(name: &'static str, words: impl Into<String>, unit: &'static str) -> Self {
        Self { name, words: words.into(), unit, difference: false }
    }

    pub(crate) fn difference(self) -> Self {
        Self { difference: true, ..self }
    }
}

/// The figures of one server in one round, by the name of the row. Rows that could not be measured are absent.
pub(crate) type Round = BTreeMap<&'static str, f64>;

/// The rows, and for each server its name and its rounds. Sexton comes first.
pub(crate) struct Table {
    rows: Vec<Row>,
    servers: Vec<(&'static str, Vec<Round>)>,
}

impl Table {
    pub(crate) fn new(rows: Vec<Row>, servers: Vec<(&'static str, Vec<Round>)>) -> Self {
        for name in servers.iter().flat_map(|(_, rounds)| rounds).flat_map(Round::keys) {
            let known = rows.iter().any(|row| row.name == *name);
            assert!(known, "no row is named {name}");
        }
        Self { rows, servers }
    }

    /// Returns the name of each server and its result in this row. The result is `None` if the server has no figure for the row.
    fn spreads(&self, row: &Row) -> impl Iterator<Item = (&'static str, Option<Spread>)> {
        self.servers.iter().map(|(name, rounds)| {
            let figures: Vec<f64> =
                rounds.iter().filter_map(|round| round.get(row.name).copied()).collect();
            let measured = !figures.is_empty();
            (*name, measured.then(|| Spread::of(figures.into_iter())))
        })
    }

    /// Divides sexton's figure by the last server's in each round, and returns the spread of these ratios. Returns `None` if the row is a
    /// difference, if sexton is the only server, or if no round has a finite ratio.
    fn ratio(&self, row: &Row) -> Option<Spread> {
        let [(_, own), .., (_, last)] = self.servers.as_slice() else {
            return None;
        };
        let ratios: Vec<f64> = (own.iter().zip(last))
            .filter_map(|(own, last)| Some(own.get(row.name)? / last.get(row.name)?))
            .filter(|ratio| ratio.is_finite())
            .collect();
        let measured = !ratios.is_empty() && !row.difference;
        measured.then(|| Spread::of(ratios.into_iter()))
    }

    /// Returns the rows as JSON.
    pub(crate) fn document(&self) -> Value {
        let line = |row: &Row| {
            let mut line = Map::new();
            line.insert("row".to_owned(), json!(row.name));
            line.insert("unit".to_owned(), json!(row.unit));
            for (name, spread) in self.spreads(row) {
                line.insert(name.to_owned(), json!(spread));
            }
            line.insert("ratio".to_owned(), json!(self.ratio(row)));
            Value::Object(line)
        };
        self.rows.iter().map(line).collect()
    }

    /// Formats the rows as text.
    pub(crate) fn lines(&self) -> String {
        let line = |words: &str, unit: &str, cells: Vec<String>, ratio: &str| {
            let line = format!("{words:<41} {unit:<5} {} {ratio}", cells.join(" "));
            line.trim_end().to_owned() + "\n"
        };
        let cell = |middle: &str, range: &str| format!("{middle:>13} {range:<19}");
        let heads = self.servers.iter().map(|(name, _)| cell(name, "(min-max)"));
        let ratio = if self.servers.len() > 1 { " ratio" } else { "" };
        let mut lines = line("lower is better", "", heads.collect(), ratio);
        for row in &self.rows {
            let cells = self.spreads(row).map(|(_, spread)| match spread {
                Some(Spread { median, min, max }) => {
                    let range = format!("({}-{})", figure(min), figure(max));
                    cell(&figure(median), &range)
                }
                None => cell("not available", ""),
            });
            let ratio = self.ratio(row).map_or_else(String::new, |ratio| {
                let Spread { median, min, max } = ratio;
                format!("{median:>6.2} ({min:.2}-{max:.2})")
            });
            lines.push_str(&line(&row.words, row.unit, cells.collect(), &ratio));
        }
        lines
    }
}

/// Formats a figure with two decimals if it is between -100 and 100, otherwise as a whole number with commas between thousands.
fn figure(number: f64) -> String {
    if number.abs() < 100.0 {
        format!("{number:.2}")
    } else if number < 0.0 {
        format!("-{}", grouped(-number))
    } else {
        grouped(number)
    }
}

#[cfg(test)]
mod tests {
    use super::{Round, Row, Table};

    #[test]
    fn every_row_is_shown_and_what_is_missing_is_said() {
        let row = |name| Row::new(name, format!("the {name}"), "ms");
        let rows = vec![row("load"), row("restart"), row("more").difference()];
        let own = Round::from([("load", 50.0), ("more", -1500.0)]);
        let peer = Round::from([("load", 100.0), ("more", 3.0)]);
        let table = Table::new(rows, vec![("sexton", vec![own]), ("redis", vec![peer])]);
        let text = table.lines();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[1].starts_with("the load"), "{text}");
        assert!(lines[1].ends_with("0.50 (0.50-0.50)"), "{text}");
        assert!(lines[2].contains("not available"), "{text}");
        assert!(lines[3].contains("-1,500"), "{text}");
        let document = table.document();
        assert_eq!(document[0]["sexton"]["median"], 50.0);
        assert!(document[1]["redis"].is_null());
        assert!(document[2]["ratio"].is_null(), "a difference has no ratio");
    }
}
