//! Prints figures to standard output, and progress to a terminal.

use crate::failure::Failure;
use serde_json::Value;
use std::io::{IsTerminal as _, Write as _};

/// Shows a progress message in place of the previous one, if standard error is a terminal.
pub(crate) fn show(what: &str) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        // A failure to show progress must not stop the measurement.
        drop(write!(terminal, "\r\x1b[K{what}").and_then(|()| terminal.flush()));
    }
}

/// Prints to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    std::io::stdout().write_all(text.as_bytes()).map_err(Failure::to("print"))
}

/// Prints a JSON document.
pub(crate) fn document(document: &Value) -> Result<(), Failure> {
    print(&format!("{document:#}\n"))
}

/// Returns the heading above figures: the versions of sexton and of the installed peers, and a line for each remark.
pub(crate) fn heading(sexton: &str, peers: &[(&str, Option<&str>)], notes: &[String]) -> String {
    let mut heading = format!("sexton {sexton}");
    for (name, version) in peers {
        if let Some(version) = version {
            heading = format!("{heading}, {name} {version}");
        }
    }
    for note in notes {
        heading = format!("{heading}\n{note}");
    }
    heading + "\n\n"
}
