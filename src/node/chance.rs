//! Random bytes from the operating system.

use super::NodeError;

/// Returns `LEN` unpredictable bytes.
pub(super) fn chance<const LEN: usize>() -> Result<[u8; LEN], NodeError> {
    let mut bytes = [0; LEN];
    getrandom::fill(&mut bytes).map_err(|error| NodeError::Core(std::io::Error::other(error)))?;
    Ok(bytes)
}
