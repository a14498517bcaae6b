//! Reports tests that are skipped because a third-party program is missing. In CI, where `CI` is set, this is a failure.

use std::fmt::Display;

/// Reports that something is skipped.
///
/// # Panics
/// In CI, where nothing may be skipped.
#[expect(clippy::print_stdout, reason = "skipped tests are reported")]
pub(crate) fn left_out(what: impl Display) {
    let is_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
    assert!(!is_ci, "nothing may be skipped in CI: {what}");
    println!("skipped: {what}");
}
