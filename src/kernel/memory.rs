//! A limit on the total memory of all processes in a control group (version 2), enforced by the memory controller.
//!
//! A group has the controller if its parent enables it for its children. A group that contains processes cannot enable it, unless it is the
//! root.

use crate::kernel::cgroup::{absent_is_none, create};
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

/// The name of the controller in control files.
const NAME: &str = "memory";

/// The memory limit of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The limit in bytes.
    pub most: u64,
    /// Whether processes of the group were killed for reaching it.
    pub was_reached: bool,
}

/// Creates the group `name` below `base`, as [`create`] does, and enables the memory controller for the children of both groups if
/// possible.
///
/// # Errors
/// Returns the errors of [`create`].
pub fn create_with_memory(base: &Path, name: &str) -> io::Result<std::path::PathBuf> {
    let path = create(base, name)?;
    // If either call fails, the memory of groups cannot be limited, and only the limits of each process apply.
    drop(delegate(base));
    drop(delegate(&path));
    Ok(path)
}

/// Returns whether the children of this group have the controller.
pub fn is_delegated(group: &Path) -> bool {
    let given = fs::read_to_string(group.join("cgroup.subtree_control"));
    given.is_ok_and(|given| given.split_whitespace().any(|it| it == NAME))
}

/// Limits the memory of a group to `most` bytes and denies it swap space. If the group exceeds the limit, all its processes are killed.
/// Returns whether the limit is in force: `false` if the group does not have the controller.
///
/// # Errors
/// Returns the underlying I/O error.
pub fn bound(group: &Path, most: u64) -> io::Result<bool> {
    if !write(group, "memory.max", &most.to_string())? {
        return Ok(false);
    }
    // Kernels without swap accounting have no such file.
    write(group, "memory.swap.max", "0")?;
    // If only one process of a command were killed, the effects of the others would be unpredictable.
    write(group, "memory.oom.group", "1")?;
    Ok(true)
}

/// Returns the memory limit of a group; `None` if it has none or does not exist.
///
/// # Errors
/// Returns the underlying I/O error.
pub fn bound_of(group: &Path) -> io::Result<Option<Bound>> {
    let most = absent_is_none(fs::read_to_string(group.join("memory.max")))?;
    let Some(most) = most.and_then(|text| text.trim().parse().ok()) else {
        return Ok(None);
    };
    let events = absent_is_none(fs::read_to_string(group.join("memory.events")))?;
    let events = events.unwrap_or_default();
    let kills = events.lines().filter_map(|it| it.strip_prefix("oom_kill "));
    let was_reached =
        kills.filter_map(|count| count.trim().parse::<u64>().ok()).any(|count| count > 0);
    Ok(Some(Bound { most, was_reached }))
}

fn delegate(group: &Path) -> io::Result<bool> {
    if is_delegated(group) {
        return Ok(true);
    }
    write(group, "cgroup.subtree_control", "+memory")
}

/// Writes to a control file of a group. Returns whether the file exists.
fn write(group: &Path, name: &str, text: &str) -> io::Result<bool> {
    let file = fs::OpenOptions::new().write(true).open(group.join(name));
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    Ok(absent_is_none(written)?.is_some())
}

#[cfg(test)]
mod tests {
    use super::{Bound, bound, bound_of, create_with_memory, is_delegated};
    use std::fs;
    use std::path::Path;
    use tempfile::TempDir;

    /// Creates a directory that stands in for a group and contains these files, all empty.
    fn group(files: &[&str]) -> TempDir {
        let dir = tempfile::tempdir().expect("a directory can be created");
        for name in files {
            fs::write(dir.path().join(name), "").expect("the file can be written");
        }
        dir
    }

    fn read(group: &Path, name: &str) -> String {
        fs::read_to_string(group.join(name)).unwrap_or_default()
    }

    #[test]
    fn a_group_with_the_controller_is_bounded_as_a_whole() {
        let dir = group(&["memory.max", "memory.swap.max", "memory.oom.group"]);
        assert!(bound(dir.path(), 1 << 20).expect("the limit can be written"));
        let written = ["memory.max", "memory.swap.max", "memory.oom.group"];
        let written = written.map(|name| read(dir.path(), name));
        assert_eq!(written, ["1048576", "0", "1"]);
    }

    #[test]
    fn a_group_without_the_controller_is_not_and_gets_no_file() {
        let dir = group(&[]);
        assert!(!bound(dir.path(), 1 << 20).expect("a missing file is not an error"));
        assert_eq!(bound_of(dir.path()).expect("a missing file is not an error"), None);
        assert_eq!(fs::read_dir(dir.path()).expect("the files can be read").count(), 0);
        // Not every kernel accounts for swap.
        let dir = group(&["memory.max"]);
        assert!(bound(dir.path(), 1 << 20).expect("the limit can be written"));
    }

    #[test]
    fn what_was_reached_is_told_by_the_kernel() {
        let dir = group(&[]);
        let of = |most: &str, events: &str| {
            fs::write(dir.path().join("memory.max"), most).expect("the file can be written");
            fs::write(dir.path().join("memory.events"), events).expect("the file can be written");
            bound_of(dir.path()).expect("the files can be read")
        };
        let most = 4096;
        let before = "low 0\nhigh 0\nmax 17\noom 1\noom_kill 0\noom_group_kill 0\n";
        let was_reached = false;
        assert_eq!(of("4096\n", before), Some(Bound { most, was_reached }));
        let was_reached = true;
        let after = "max 17\noom 1\noom_kill 3\noom_group_kill 1\n";
        assert_eq!(of("4096\n", after), Some(Bound { most, was_reached }));
        assert_eq!(of("max\n", after), None, "the group has no limit");
    }

    #[test]
    fn a_base_has_the_controller_given_out_where_it_can_be() {
        let base = group(&["cgroup.subtree_control"]);
        let path = create_with_memory(base.path(), "ours").expect("the group is created");
        // The kernel would add the controller to the list; this plain file contains what was written.
        assert_eq!(read(base.path(), "cgroup.subtree_control"), "+memory");
        assert!(!is_delegated(&path), "the new group has no `cgroup.subtree_control`");
        let list = path.join("cgroup.subtree_control");
        fs::write(list, "cpu memory pids\n").expect("the file can be written");
        create_with_memory(base.path(), "ours").expect("the group exists");
        assert!(is_delegated(&path));
        assert_eq!(
            read(&path, "cgroup.subtree_control"),
            "cpu memory pids\n",
            "a controller that is enabled already is not enabled again"
        );
    }
}
