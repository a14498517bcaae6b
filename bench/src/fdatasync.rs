//! What a sync costs here: nothing that waits for the disk can be faster, and no two machines are alike in it.

use crate::failure::Failure;
use crate::figures::Latencies;
use crate::load::now;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// How often it is tried.
const TRIES: u64 = 200;

/// What is written before each, as a small record is: into blocks that are there.
const BYTES: usize = 512;

/// The median of a bare fdatasync behind a small write to a file below this directory, in microseconds.
pub(crate) fn median_us(root: &Path) -> Result<f64, Failure> {
    let cannot = || Failure::to("measure a sync");
    let folder = tempfile::tempdir_in(root).map_err(cannot())?;
    let file = File::create_new(folder.path().join("synced")).map_err(cannot())?;
    let record = [1; BYTES];
    let filled = vec![0; BYTES * usize::try_from(TRIES).unwrap_or(0)];
    file.write_all_at(&filled, 0).map_err(cannot())?;
    file.sync_all().map_err(cannot())?;
    let mut taken = Latencies::default();
    for offset in (0..TRIES).map(|place| place * BYTES as u64) {
        file.write_all_at(&record, offset).map_err(cannot())?;
        let began = now();
        file.sync_data().map_err(cannot())?;
        taken.note(now() - began);
    }
    Ok(taken.quantile_us(0.5))
}

/// The same as a remark.
pub(crate) fn remark(root: &Path) -> Result<String, Failure> {
    let median = median_us(root)?;
    Ok(format!(
        "a bare fdatasync takes {median:.0} us here, at the median of {TRIES}"
    ))
}
