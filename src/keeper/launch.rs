//! Turns a launch request into a process that waits for permission to run.

use crate::bytes::Bytes;
use crate::ids::ProcessId;
use crate::keeper::parcels::Waiting;
use crate::keeper::protocol::{Inheritance, Launch, Parcel, Started, step};
use crate::kernel::inheritance::Priorities;
use crate::kernel::plan::{Plan, Step, User};
use crate::kernel::spawn::{SpawnOptions, Spawned, spawn};
use crate::kernel::{cgroup, file, host, identity, memory, proc};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The step at which a launch failed (see [`step`]), and the kernel's error number, or 0 if there is none.
pub(crate) type Failed = (u8, i32);

/// A prepared launch, ready for its process to be created.
pub(crate) struct Ready {
    plan: Plan,
    streams: [OwnedFd; 3],
    /// Further descriptors, each with its number.
    further: Vec<(OwnedFd, RawFd)>,
    memory_max: Option<u64>,
}

/// Returns the protocol's number for a step at which a child failed.
pub(crate) const fn step_of(failed: Step) -> u8 {
    match failed {
        Step::Streams => step::OUTPUT,
        Step::User => step::USER,
        Step::Limits => step::LIMITS,
        Step::Directory => step::DIRECTORY,
        Step::Exec => step::EXEC,
    }
}

/// Prepares a launch with the environment, limits and streams of its parcel. Without a parcel, opens the streams itself.
pub(crate) fn prepare(launch: &Launch, parcel: Option<Waiting>) -> Result<Ready, Failed> {
    let (umask, parcel, streams) = match parcel {
        Some(waiting) => {
            let (parcel, inheritance) = (waiting.parcel, waiting.inheritance);
            let numbers = inheritance.descriptors.iter().copied();
            let further: Vec<(OwnedFd, RawFd)> = waiting.further.into_iter().zip(numbers).collect();
            let streams = (waiting.streams, further, inheritance);
            (Some(parcel.umask), parcel, Some(streams))
        }
        None => (None, Parcel::default(), None),
    };
    let mut limits = parcel.limits;
    limits.extend_from_slice(&launch.limits);
    let env = environment(parcel.env, &launch.env);
    let plan = Plan::new(&launch.argv, &env, &launch.dir).map_err(at(step::EXEC))?;
    let (streams, further, inheritance) = match streams {
        Some(streams) => streams,
        None => {
            let opened = open_streams(launch).map_err(at(step::OUTPUT))?;
            (opened, Vec::new(), Inheritance::default())
        }
    };
    let user = launch.user.clone().map(|(user, group, groups)| User { user, group, groups });
    let priorities = Priorities {
        nice: inheritance.nice,
        io_priority: inheritance.io_priority,
        cpus: inheritance.cpus,
    };
    let plan = plan.umask(umask).limits(&limits);
    let plan = plan.priorities(priorities).terminal(inheritance.terminal);
    Ok(Ready {
        plan: plan.user(user.filter(|user| !is_our_own(user))),
        streams,
        further,
        memory_max: parcel.memory_max,
    })
}

/// Creates the process, in a control group of its own if possible, and returns its description. The process waits until it is released.
pub(crate) fn start(
    attempt: ProcessId,
    ready: &Ready,
    groups: Option<&Path>,
    now: u64,
) -> Result<(Spawned, Started), Failed> {
    // If no control group can be created for the process, its descendants are tracked in other ways.
    let path = groups.and_then(|base| cgroup::create(base, &attempt.to_string()).ok());
    if let (Some(path), Some(most)) = (&path, ready.memory_max) {
        // If the group cannot be limited, only the limits of each process apply.
        drop(memory::bound(path, most));
    }
    let group = path.as_deref().and_then(|path| cgroup::open(path).ok());
    let birth = SpawnOptions {
        group: group.as_ref().map(|group| group.as_fd()),
        pid: None,
        further: &ready.further,
    };
    let streams = ready.streams.each_ref().map(|stream| stream.as_fd());
    let spawned = spawn(&ready.plan, streams, birth);
    let made = spawned.and_then(|spawned| {
        let started = describe(attempt, &spawned, now)?;
        Ok((spawned, started))
    });
    if let Some(path) = &path
        && !made.as_ref().is_ok_and(|(spawned, _)| spawned.contained)
    {
        // If this fails, the group is removed together with the keeper's group.
        drop(cgroup::remove(path));
    }
    made.map_err(at(step::FORK))
}

/// Describes the new process. The process is still waiting, so everything read here is certain to be about it.
fn describe(attempt: ProcessId, spawned: &Spawned, now: u64) -> io::Result<Started> {
    let gone = || io::Error::from_raw_os_error(Errno::SRCH.raw_os_error());
    let (inode, ticks) = match &spawned.pidfd {
        Some(pidfd) => {
            let identity = identity::describe(spawned.pid, pidfd)?.ok_or_else(gone)?;
            (identity.inode, identity.ticks)
        }
        None => (0, proc::stat(spawned.pid)?.ok_or_else(gone)?.start_ticks),
    };
    Ok(Started {
        attempt,
        pid: spawned.pid,
        namespace: host::namespace(),
        inode,
        ticks,
        at: now,
        contained: spawned.contained,
    })
}

/// Merges two environments; of two variables with the same name, the one in `own` wins. Those in `own` come first, since the id among them is
/// looked for at the beginning only, if there is much.
fn environment(inherited: Vec<Bytes>, own: &[Bytes]) -> Vec<Bytes> {
    fn name(variable: &Bytes) -> &[u8] {
        let bytes = variable.as_bytes();
        bytes.split(|byte| *byte == b'=').next().unwrap_or(bytes)
    }
    let names: BTreeSet<&[u8]> = own.iter().map(name).collect();
    let inherited = inherited.into_iter().filter(|variable| !names.contains(name(variable)));
    own.iter().cloned().chain(inherited).collect()
}

/// Opens `/dev/null` as input and two files for output; without files, the output is discarded.
fn open_streams(launch: &Launch) -> io::Result<[OwnedFd; 3]> {
    let null = || rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let (output, errors) = match &launch.output {
        Some((output, errors)) => {
            let first = open_output(output, launch.appends)?;
            // If both streams go to one file, they share its offset.
            let second = if output == errors {
                first.try_clone()?
            } else {
                open_output(errors, launch.appends)?
            };
            (first, second)
        }
        None => (null()?, null()?),
    };
    Ok([null()?, output, errors])
}

fn open_output(path: &Bytes, appends: bool) -> io::Result<OwnedFd> {
    let path = Path::new(std::ffi::OsStr::from_bytes(path.as_bytes()));
    // Even an emptied file is opened for appending, because its beginning may be removed later while the process writes to it.
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
    // Another user who may write to its directory could read what the process writes, make us write to a file of ours, or stop us.
    let file = OwnedFd::from(file::own(path, flags, Mode::RUSR | Mode::WUSR)?);
    if !appends {
        rustix::fs::ftruncate(&file, 0)?;
    }
    rustix::io::ioctl_fionbio(&file, false)?;
    Ok(file)
}

/// Returns whether `user` is the one we already run as. Such a request is valid even without the privileges to change users.
fn is_our_own(user: &User) -> bool {
    use rustix::process::{getegid, geteuid, getgroups};
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let groups = getgroups().unwrap_or_default();
    let further = groups.iter().map(|group| group.as_raw());
    // Whether the supplementary groups include the primary group, as after a login, makes no difference to access rights.
    let ours: BTreeSet<u32> = further.chain([gid]).collect();
    let theirs: BTreeSet<u32> = user.groups.iter().copied().chain([user.group]).collect();
    (uid, gid) == (user.user, user.group) && ours == theirs
}

fn at(step: u8) -> impl Fn(io::Error) -> Failed {
    move |error| (step, file::errno(&error))
}

#[cfg(test)]
mod tests {
    use super::environment;
    use crate::bytes::Bytes;

    #[test]
    fn the_later_of_one_name_counts() {
        let list = |words: &[&str]| -> Vec<Bytes> {
            words.iter().map(|word| Bytes::new(word.as_bytes())).collect()
        };
        let all = environment(list(&["A=1", "AB=2", "C"]), &list(&["A=3", "C=4"]));
        assert!(all == list(&["A=3", "C=4", "AB=2"]));
    }
}
