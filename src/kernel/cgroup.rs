//! Control groups of version 2: where we may make some, and what holds for all that is in one.

use rustix::fs::{Mode, OFlags};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

/// How deep below a group others are removed.
const DEPTH_MAX: u32 = 64;

/// The group that this process is in, or the one above where that is delegated to us, if groups can be made below it: version 2,
/// also one without controllers beside version 1, of a kernel that can kill a group (5.14).
pub fn writable() -> Option<PathBuf> {
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    let own = fs::read("/proc/self/cgroup").ok()?;
    let own = own_group(&own)?;
    let found = mounted(&mounts);
    let path = found.into_iter().find_map(|mount| mount.place(&own))?;
    // A group with processes gives no controller to those below it, so systemd's `DelegateSubgroup=` puts us below the one
    // that is ours.
    let above = path.parent().filter(|above| is_delegated(above));
    above.and_then(tried).or_else(|| tried(&path))
}

/// Whether whoever manages the groups has left this one, and all below it, to the processes in it: systemd says so.
fn is_delegated(path: &Path) -> bool {
    let mut value = [0; 8];
    let read = rustix::fs::getxattr(path, "user.delegate", &mut value[..]);
    read.is_ok_and(|length| value.get(..length) == Some(b"1"))
}

/// The group, if others can be made below it, and killed.
fn tried(path: &Path) -> Option<PathBuf> {
    let trial = create(path, &format!("sexton-trial-{}", std::process::id())).ok()?;
    let can_kill = trial.join("cgroup.kill").exists();
    let removed = fs::remove_dir(&trial);
    (can_kill && removed.is_ok()).then(|| path.to_owned())
}

/// Makes the group of this name below another, unless it is there; its path.
///
/// # Errors
/// Those of the file system; `InvalidInput` if the name is no plain one.
pub fn create(base: &Path, name: &str) -> io::Result<PathBuf> {
    let mut parts = Path::new(name).components();
    if !matches!(
        (parts.next(), parts.next()),
        (Some(Component::Normal(_)), None)
    ) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let path = base.join(name);
    match fs::create_dir(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(path),
    }
}

/// A descriptor of the group itself, to make a process in it.
///
/// # Errors
/// Those of the file system.
pub fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// The group that a process is in, by its path; `None` if it is gone, or that is not to be seen.
pub fn of(pid: u32) -> Option<PathBuf> {
    let own = fs::read(format!("/proc/{pid}/cgroup")).ok()?;
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    let own = own_group(&own)?;
    let found = mounted(&mounts);
    found.into_iter().find_map(|mount| mount.place(&own))
}

/// Kills all that is in the group and below it, at once; whether the group was there.
///
/// # Errors
/// Those of the file system.
pub fn kill(path: &Path) -> io::Result<bool> {
    let file = fs::OpenOptions::new()
        .write(true)
        .open(path.join("cgroup.kill"));
    let written = file.and_then(|mut file| io::Write::write_all(&mut file, b"1"));
    Ok(absent_is_none(written)?.is_some())
}

/// Whether a process lives in the group or below it. A group that is not there has none.
///
/// # Errors
/// Those of the file system.
pub fn is_populated(path: &Path) -> io::Result<bool> {
    let events = absent_is_none(fs::read_to_string(path.join("cgroup.events")))?;
    Ok(events.is_some_and(|events| events.lines().any(|line| line == "populated 1")))
}

/// The PIDs in the group and in those below it.
///
/// # Errors
/// Those of the file system.
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

/// Removes the group and those that were made below it, from the bottom up. One that is not there is removed.
///
/// # Errors
/// `ResourceBusy` if something lives in one of them, else those of the file system.
pub fn remove(path: &Path) -> io::Result<()> {
    // Few have others below them, and to look for those costs more than to try.
    if absent_is_none(fs::remove_dir(path)).is_ok() {
        return Ok(());
    }
    bottom_up(path, DEPTH_MAX, &mut |group: &Path| {
        absent_is_none(fs::remove_dir(group)).map(drop)
    })
}

/// Processor time in milliseconds and memory in bytes of all that is in the group and below it; `None` where the group is not
/// there, or has no controller that counts memory.
///
/// # Errors
/// Those of the file system.
pub fn usage(path: &Path) -> io::Result<Option<(u64, u64)>> {
    let memory = absent_is_none(fs::read_to_string(path.join("memory.current")))?;
    let memory = memory.and_then(|text| text.trim().parse().ok());
    let stat = absent_is_none(fs::read_to_string(path.join("cpu.stat")))?;
    let used = stat.as_deref().and_then(|stat| {
        let line = stat
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "));
        line?.trim().parse::<u64>().ok()
    });
    Ok(used.zip(memory).map(|(used, memory)| (used / 1000, memory)))
}

/// A descriptor that has priority data (`POLLPRI`) when the group has become populated or empty.
///
/// # Errors
/// Those of the file system.
pub fn events(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(
        path.join("cgroup.events"),
        flags,
        Mode::empty(),
    )?)
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

/// Also a group that is removed while it is read is absent.
pub(super) fn absent_is_none<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV) => Ok(None),
            _ => Err(error),
        },
    }
}

/// A mount of version 2.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// What of the tree of groups is mounted.
    root: PathBuf,
    /// Where.
    point: PathBuf,
}

impl Mount {
    /// Where this group is to be found, if it is below what is mounted.
    fn place(&self, group: &Path) -> Option<PathBuf> {
        let below = group.strip_prefix(&self.root).ok()?;
        let climbs = below.components().any(|part| part == Component::ParentDir);
        (!climbs).then(|| self.point.join(below))
    }
}

/// The mounts of version 2 in `/proc/self/mountinfo`.
fn mounted(text: &[u8]) -> Vec<Mount> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter_map(mount).collect()
}

/// A line: number, parent, device, root, point, options, optional fields, `-`, type, source, options.
fn mount(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    if dash < 6 || fields.get(dash + 1) != Some(&b"cgroup2".as_slice()) {
        return None;
    }
    Some(Mount {
        root: path(fields.get(3)?),
        point: path(fields.get(4)?),
    })
}

/// A path in which blanks and the like are written as `\` and three octal digits.
fn path(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
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

/// Our group of version 2 in `/proc/self/cgroup`: the line of hierarchy 0.
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
            panic!("one of them: {found:?}");
        };
        let place = mount.place(Path::new("/system.slice/x.service"));
        let wanted = "/sys/fs/cgroup/unified/system.slice/x.service";
        assert_eq!(place, Some(PathBuf::from(wanted)));
    }

    #[test]
    fn a_part_that_is_mounted_elsewhere_is_found_below_its_root() {
        let line = b"9 1 0:3 /docker/ab /a\\040b/cg rw shared:7 master:1 - cgroup2 none rw";
        let found = mounted(line);
        let mount = found.first().expect("it is one");
        assert_eq!(
            mount.place(Path::new("/docker/ab/c")),
            Some("/a b/cg/c".into())
        );
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
