//! Control groups of keepers that a test killed. No other process would remove them.

use sexton::kernel::cgroup;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Removes the control groups of this directory's keeper, unless a process is left in them.
pub(crate) fn remove(data: &Path) {
    let (Ok(data), Some(base)) = (data.canonicalize(), cgroup::writable()) else {
        return;
    };
    let digest = xxhash_rust::xxh3::xxh3_64(data.as_os_str().as_bytes());
    let group = base.join(format!("sexton-{digest:016x}"));
    // A killed process may still be exiting, so this is retried.
    for _ in 0..1000 {
        if cgroup::remove(&group).is_ok() {
            return;
        }
        std::thread::yield_now();
    }
}
