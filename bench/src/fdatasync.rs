//! The cost of a sync on this machine. It differs between machines, and no request that waits for the disk can be faster than a sync.

use crate::failure::Failure;
use crate::figures::Latencies;
use crate::load::now;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// The number of syncs measured.
const TRIES: u64 = 200;

/// The number of bytes written before each sync, about as many as a small record has. They overwrite blocks that already exist.
const BYTES: usize = 512;

/// Returns the median time of an fdatasync after a small write to a file below `root`, in microseconds.
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

/// Returns the median as a remark for the output.
pub(crate) fn remark(root: &Path) -> Result<String, Failure> {
    let median = median_us(root)?;
    Ok(format!("a bare fdatasync takes {median:.0} us here (median of {TRIES})"))
}
