//! Finds the third-party clients of beanstalkd's protocol that tests run: greenstalk, for Python, and jackd, for Node.
//! `.ci/run` fetches both. If one is missing, the tests that need it are reported as skipped.

use crate::left_out::left_out;
use std::process::Command;

#[expect(clippy::disallowed_methods, reason = "the caller of the tests says where clients are")]
fn set(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns a Python interpreter that has greenstalk: `SEXTON_PYTHON`, or `python3`. If there is none, reports `what` as
/// skipped and returns `None`.
pub(crate) fn greenstalk(what: &str) -> Option<String> {
    let python = set("SEXTON_PYTHON").unwrap_or_else(|| "python3".to_owned());
    let mut import = Command::new(&python);
    match import.args(["-c", "import greenstalk"]).output() {
        Ok(output) if output.status.success() => return Some(python),
        Ok(_) => left_out(format!("{what}, {python} has no greenstalk")),
        Err(error) => left_out(format!("{what}, {python}: {error}")),
    }
    None
}

/// Returns the directory of jackd's package, from `SEXTON_JACKD`. Without it or Node, reports `what` as skipped and
/// returns `None`.
pub(crate) fn jackd(what: &str) -> Option<String> {
    let Some(package) = set("SEXTON_JACKD") else {
        left_out(format!("{what}, SEXTON_JACKD names no directory of jackd's package"));
        return None;
    };
    match Command::new("node").arg("--version").output() {
        Ok(_) => Some(package),
        Err(error) => {
            left_out(format!("{what}, node: {error}"));
            None
        }
    }
}
