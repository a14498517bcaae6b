//! Writes the output of a replay, and formats its lines as text.

use crate::report::{self, Failure};
use crate::{events, text};
use sexton::ids::Seq;
use sexton::replay::{HEADER, HistoryEvent, Kind, Line, header_after};
use sexton::spine::machine::About;
use std::io::{BufWriter, Write};

/// The destination of the output, with the number of records written to it.
pub(crate) struct Sink {
    pub(crate) output: BufWriter<Box<dyn Write>>,
    pub(crate) exports: bool,
    /// The sequence number after which the output begins; 0 for the beginning of the log.
    pub(crate) after: Seq,
    pub(crate) records: u64,
}

impl Default for Sink {
    fn default() -> Self {
        Self {
            output: BufWriter::new(Box::new(std::io::sink())),
            exports: false,
            after: Seq(0),
            records: 0,
        }
    }
}

impl Sink {
    /// Writes a record, preceded by the header if it is the first of an export.
    pub(crate) fn record(&mut self, line: &str) -> Result<(), Failure> {
        if self.records == 0 {
            self.header()?;
        }
        self.records += 1;
        self.line(line)
    }

    fn header(&mut self) -> Result<(), Failure> {
        match self.after {
            _ if !self.exports => Ok(()),
            Seq(0) => self.line(HEADER),
            after => self.line(&header_after(after)),
        }
    }

    /// Writes a line. Control characters other than line breaks are escaped, which does not change the meaning of JSON.
    pub(crate) fn line(&mut self, line: &str) -> Result<(), Failure> {
        let line = text::json(line);
        report::written(writeln!(self.output, "{line}"))
    }

    /// Flushes the output. An export without records still gets its header.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        if self.records == 0 {
            self.header()?;
        }
        report::written(self.output.flush())
    }
}

/// Formats a line of a log as text.
pub(crate) fn words(line: &Line) -> String {
    let seq = line.seq.map_or("-".to_owned(), |seq| seq.to_string());
    let at = line.at.map_or("-".to_owned(), text::time);
    let json = |value: &Option<serde_json::Value>| {
        value.as_ref().map_or_else(String::new, ToString::to_string)
    };
    let what = match line.kind {
        Kind::Entry => format!(
            "{}  ->  {}{}",
            json(&line.message),
            json(&line.outcome),
            line.about.iter().map(about).collect::<String>()
        ),
        Kind::Poisoned => format!(
            "{}  PANICKED in {}: {}",
            json(&line.message),
            line.stage.map_or_else(String::new, |stage| format!("{stage:?}").to_lowercase()),
            line.cause.as_deref().map_or("-".to_owned(), text::plain),
        ),
        Kind::Mark => serde_json::to_string(&line.mark).unwrap_or_default(),
        Kind::Time => "time passes".to_owned(),
    };
    format!("{seq:>10}  {at}  {:<6} {what}", line.actor)
}

/// Formats the names of the item in a slot. They are shown because the record itself contains only the slot number.
fn about(about: &About) -> String {
    let name = |(called, name): (&String, &String)| format!(" {called} {name:?}");
    let names: String = about.names.iter().map(name).collect();
    format!("  slot {}:{names}", about.slot.0)
}

/// Formats what a record did to the selected item, one line per event.
pub(crate) fn story(line: &Line) -> Vec<String> {
    let place = line.seq.map_or("-".to_owned(), |seq| seq.to_string());
    let event = |HistoryEvent { kind, fields }: &HistoryEvent| {
        let fields = fields.iter();
        let fields = fields.map(|(field, value)| (field.as_str(), value_words(value)));
        events::line(&place, line.at, (line.actor.as_str(), kind.as_str()), fields)
    };
    line.events.iter().map(event).collect()
}

fn value_words(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), text::plain)
}
