//! The counts that a pass (one run of a lease's command) reports by printing a line of the form `{"counts": {…}}`. If it prints several
//! such lines, the last one applies.

use crate::bytes::Bytes;
use crate::ids::ProcessId;
use crate::ports::process::files::{STDOUT, opened, run_dir};
use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// The number of bytes at the end of a pass's output that are searched for counts.
const COUNTS_BYTES_MAX: u64 = 64 << 10;

/// The maximum number of counts of a pass.
const COUNTS_MAX: usize = 32;

/// The maximum length of the name of a count, in bytes.
const COUNT_NAME_BYTES_MAX: usize = 64;

/// The line of output with which a pass reports its counts.
#[cfg(feature = "replay")]
#[derive(serde::Deserialize)]
struct Counted {
    counts: BTreeMap<String, u64>,
}

/// Returns the last counts in the output of a pass; `None` if it reported none or its output is not in a file. Counts with invalid names
/// are left out. At most [`COUNTS_MAX`] counts are returned: those whose names come first in byte order.
pub(super) fn counts(
    (id, own): &(ProcessId, Option<Bytes>),
    data: &Path,
) -> Option<BTreeMap<String, u64>> {
    let mut file = opened(&run_dir(data, *id, own.as_ref()).join(STDOUT)).ok()?;
    let length = file.metadata().ok()?.len();
    let begin = length.saturating_sub(COUNTS_BYTES_MAX);
    file.seek(SeekFrom::Start(begin)).ok()?;
    let mut output = Vec::new();
    file.take(COUNTS_BYTES_MAX).read_to_end(&mut output).ok()?;
    let mut lines = output.rsplit(|byte| *byte == b'\n');
    let mut counts = lines.find_map(counted)?;
    let is_word = |name: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        (1..=COUNT_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain)
    };
    counts.retain(|name, _| is_word(name));
    while counts.len() > COUNTS_MAX {
        counts.pop_last();
    }
    Some(counts)
}

#[cfg(feature = "replay")]
fn counted(line: &[u8]) -> Option<BTreeMap<String, u64>> {
    if !line.starts_with(b"{") {
        return None;
    }
    serde_json::from_slice::<Counted>(line).ok().map(|it| it.counts)
}

/// Returns `None`: counts are not supported without a JSON parser.
#[cfg(not(feature = "replay"))]
const fn counted(_: &[u8]) -> Option<BTreeMap<String, u64>> {
    None
}
