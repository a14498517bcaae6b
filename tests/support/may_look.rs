//! Whether a test may look into the server and the keeper, which hide from all but root.

use crate::left_out::left_out;
use std::fmt::Display;

/// Returns whether this test may look into them, and reports that it is skipped if not.
pub(crate) fn may_look(what: impl Display) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        left_out(format!("{what}: only root may look into that process"));
    }
    is_root
}
