//! Control groups, version 2: where this process may create groups, and operations on a whole group.

use rustix::fs::{Mode, OFlags};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

/// The maximum depth below a group at which its descendants are visited; deeper ones are ignored.
const DEPTH_MAX: u32 = 64;

/// Returns the control group below which this process can create and kill groups, or `None` if there is none. It is the parent of this
/// process's own group if systemd has delegated the parent and that is possible there, else the own group. Requires a kernel that can kill
/// a group (Linux 5.14). A version 2 hierarchy mounted alongside version 1 is enough, even without controllers.
pub fn writable() -> Option<PathBuf> {
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    let own = fs::read("/proc/self/cgroup").ok()?;
    let own = own_group(&own)?;
    let found = mounted(&mounts);
    let path = found.into_iter().find_map(|mount| mount.place(&own))?;
    // A group that contains processes cannot enable controllers for its children, so systemd's `DelegateSubgroup=` puts us in a subgroup of
    // the delegated one. Therefore the parent is tried first.
    let above = path.parent().filter(|above| is_delegated(above));
    above.and_then(usable).or_else(|| usable(&path))
}

/// Returns whether systemd has delegated this group, that is, leaves the management of its subtree to the processes in it.
fn is_delegated(path: &Path) -> bool {
    let mut value = [0; 8];
    let read = rustix::fs::getxattr(path, "user.delegate", &mut value[..]);
    read.is_ok_and(|length| value.get(..length) == Some(b"1"))
}

/// Returns `path` if groups can be created and killed below it.
fn usable(path: &Path) -> Option<PathBuf> {
    let trial = create(path, &format!("sexton-trial-{}", std::process::id())).ok()?;
    let can_kill = trial.join("cgroup.kill").exists();
    let removed = fs::remove_dir(&trial);
    (can_kill && removed.is_ok()).then(|| path.to_owned())
}

/// Creates the group `name` below `base` unless it exists, and returns its path.
///
/// # Errors
/// Returns `InvalidInput` if `name` is not a single plain path component, else the underlying I/O error.
pub fn create(base: &Path, name: &str) -> io::Result<PathBuf> {
    let mut parts = Path::new(name).components();
    if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let path = base.join(name);
    match fs::create_dir(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(path),
    }
}

/// Opens the group's directory, so that a process can be created in the group.
///
/// # Errors
/// Returns the underlying I/O error.
pub fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Returns the path of the group that a process is in; `None` if the process no longer exists or its group is not visible.
pub fn of(pid: u32) -> Option<PathBuf> {
    let own = fs::read(format!("/proc/{pid}/cgroup")).ok()?;
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    let own = own_group(&own)?;
    let found = mounted(&mounts);
    found.into_iter().find_map(|mount| mount.place(&own))
}

/// Kills all processes in the group and its descendants in one step. Returns `false` if the group does not exist or the kernel cannot kill
/// a group.
///
/// # Errors
/// Returns the underlying I/O error.
pub fn kill(path: &Path) -> io::Result<bool> {
    let file = fs::OpenOptions::new().write(true).open(path.join("cgroup.kill"));
    let written = file.and_then(|mut file| io::Write::write_all(&mut file, b"1"));
    Ok(absent_is_none(written)?.is_some())
}

/// Returns whether there is a process in the group or below it; `false` if the group does not exist.
///
/// # Errors
/// Returns the underlying I/O error.
pub fn is_populated(path: &Path) -> io::Result<bool> {
    let events = absent_is_none(fs::read_to_string(path.join("cgroup.events")))?;
    Ok(events.is_some_and(|events| events.lines().any(|line| line == "populated 1")))
}

/// Returns the PIDs of all processes in the group and its descendants; none if the group does not exist.
///
/// # Errors
/// Returns the underlying I/O error.
pub fn procs(path: &Path) -> io::Result<Vec<u32>> {
    let mut pids = Vec::new();
    let each = |group: &Path| {
        let lines = absent_is_none(fs::read_to_string(group.join("cgroup.procs")))?;
        let lines = lines.unwrap_or_default();
        pids.extend(lines.lines().filter_map(|line| line.parse::<u32>().ok()));
        Ok(())
    };
    bottom_up(path, DEPTH_MAX, &mut { each })?;
    Ok(pids)
}

/// Removes the group and its descendants, from the bottom up. Succeeds if the group does not exist.
///
/// # Errors
/// Returns `ResourceBusy` if there is a process in one of them, else the underlying I/O error.
pub fn remove(path: &Path) -> io::Result<()> {
    // Few groups have children, and looking for them costs more than attempting the removal.
    if absent_is_none(fs::remove_dir(path)).is_ok() {
        return Ok(());
    }
    bottom_up(path, DEPTH_MAX, &mut |group: &Path| absent_is_none(fs::remove_dir(group)).map(drop))
}

/// Returns the processor time in milliseconds and the memory in bytes used by everything in the group and below it; `None` if the group
/// does not exist or has no memory controller.
///
/// # Errors
/// Returns the underlying I/O error.
pub fn usage(path: &Path) -> io::Result<Option<(u64, u64)>> {
    let memory = absent_is_none(fs::read_to_string(path.join("memory.current")))?;
    let memory = memory.and_then(|text| text.trim().parse().ok());
    let stat = absent_is_none(fs::read_to_string(path.join("cpu.stat")))?;
    let used = stat.as_deref().and_then(|stat| {
        let line = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
        line?.trim().parse::<u64>().ok()
    });
    Ok(used.zip(memory).map(|(used, memory)| (used / 1000, memory)))
}

/// Opens a descriptor that becomes ready with `POLLPRI` when the group becomes populated or empty.
///
/// # Errors
/// Returns the underlying I/O error.
pub fn events(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path.join("cgroup.events"), flags, Mode::empty())?)
}

fn bottom_up(
    path: &Path,
    depth: u32,
    each: &mut impl FnMut(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let entries = absent_is_none(fs::read_dir(path))?;
    for entry in entries.into_iter().flatten() {
        let entry = entry?;
        if entry.file_type()?.is_dir() && depth > 0 {
            bottom_up(&entry.path(), depth - 1, each)?;
        }
    }
    each(path)
}

/// Maps to `None` the errors for a group or control file that does not exist or is removed while it is being accessed.
pub(super) fn absent_is_none<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV) => Ok(None),
            _ => Err(error),
        },
    }
}

/// A mount of a version 2 hierarchy.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// The group at the root of this mount, as a path in the hierarchy.
    root: PathBuf,
    /// The mount point.
    point: PathBuf,
}

impl Mount {
    /// Returns the path of `group` in the file system; `None` if it is not below the root of this mount.
    fn place(&self, group: &Path) -> Option<PathBuf> {
        let below = group.strip_prefix(&self.root).ok()?;
        let climbs = below.components().any(|part| part == Component::ParentDir);
        (!climbs).then(|| self.point.join(below))
    }
}

/// Parses the version 2 mounts from `/proc/self/mountinfo`.
fn mounted(text: &[u8]) -> Vec<Mount> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter_map(mount).collect()
}

/// Parses one line: number, parent, device, root, point, options, optional fields, `-`, type, source, options. Returns `None` if it is not
/// a mount of version 2.
fn mount(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    if dash < 6 || fields.get(dash + 1) != Some(&b"cgroup2".as_slice()) {
        return None;
    }
    Some(Mount { root: path(fields.get(3)?), point: path(fields.get(4)?) })
}

/// Decodes a path in which special characters, such as spaces, are written as `\` and three octal digits.
fn path(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match byte {
            Some(byte) if first == b'\\' => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Parses the version 2 group of a process from the line of hierarchy 0 in its `/proc/PID/cgroup`; `None` if there is no such line.
fn own_group(text: &[u8]) -> Option<PathBuf> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let own = lines.find_map(|line| line.strip_prefix(b"0::"))?;
    Some(PathBuf::from(OsString::from_vec(own.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::{mounted, own_group};
    use std::path::{Path, PathBuf};

    const HYBRID: &[u8] = b"31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    #[test]
    fn a_mount_beside_version_1_counts() {
        let found = mounted(HYBRID);
        let [mount] = found.as_slice() else {
            panic!("expected one mount: {found:?}");
        };
        let place = mount.place(Path::new("/system.slice/x.service"));
        let wanted = "/sys/fs/cgroup/unified/system.slice/x.service";
        assert_eq!(place, Some(PathBuf::from(wanted)));
    }

    #[test]
    fn a_part_that_is_mounted_elsewhere_is_found_below_its_root() {
        let line = b"9 1 0:3 /docker/ab /a\\040b/cg rw shared:7 master:1 - cgroup2 none rw";
        let found = mounted(line);
        let mount = found.first().expect("there is one mount");
        assert_eq!(mount.place(Path::new("/docker/ab/c")), Some("/a b/cg/c".into()));
        assert_eq!(mount.place(Path::new("/elsewhere")), None);
        assert_eq!(mount.place(Path::new("/docker/ab/../x")), None);
        for broken in ["", "1 2 3 - cgroup2", "1 2 3 / /x rw - ", "-"] {
            assert!(mounted(broken.as_bytes()).is_empty(), "{broken}");
        }
    }

    #[test]
    fn our_own_group_is_that_of_hierarchy_0() {
        let text = b"9:name=systemd:/x\n1:cpu:/y\n0::/user.slice/a b\n";
        assert_eq!(own_group(text), Some("/user.slice/a b".into()));
        assert_eq!(own_group(b"1:cpu:/\n"), None);
    }
}
