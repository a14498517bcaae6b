//! What is left out where a program of others is missing: said to whoever runs the tests, and a failure where `CI` is set.

use std::fmt::Display;

/// Says that something is left out.
///
/// # Panics
/// In CI, where nothing is.
#[expect(clippy::print_stdout, reason = "what is left out is said")]
pub(crate) fn left_out(what: impl Display) {
    let is_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
    assert!(!is_ci, "nothing is left out in CI: {what}");
    println!("left out: {what}");
}
