//! From a PID to an identity, and from an identity back to a process. See `docs/decisions/0036-identity.md`.

use crate::actors::process::Identity;
use crate::kernel::host;
use crate::kernel::pidfd::Pidfd;
use crate::kernel::proc;
use std::io;

/// What became of a process that is looked for.
#[derive(Debug)]
pub enum Found {
    /// It lives.
    Alive(Pidfd),
    /// It has ended, and its parent has not reaped it. When it has, the descriptor may know the exit status.
    Ended(Pidfd),
    /// It is no more.
    Gone,
    /// It cannot be told: no descriptor was left, or it is of a namespace that cannot be seen into.
    Unknown(io::Error),
}

/// The process that has this PID now, and which it is; `None` if none has.
///
/// The PID is read while the descriptor proves that it is still that process's: one that was reused in between is
/// never described by the other's start.
///
/// # Errors
/// If there is no descriptor for it, or `/proc` cannot be read.
pub fn identify(pid: u32) -> io::Result<Option<(Pidfd, Identity)>> {
    let Some(pidfd) = Pidfd::open(pid)? else {
        return Ok(None);
    };
    let identity = describe(pid, &pidfd)?;
    Ok(identity.map(|identity| (pidfd, identity)))
}

/// The process that has this PID now, and the PID of its parent, read at once; `None` if none has.
///
/// # Errors
/// If there is no descriptor for it, or `/proc` cannot be read.
pub fn identify_with_parent(pid: u32) -> io::Result<Option<(Identity, u32)>> {
    let Some(pidfd) = Pidfd::open(pid)? else {
        return Ok(None);
    };
    described(pid, &pidfd)
}

/// Who the process of this descriptor is, whose PID this is; `None` if it is gone.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn describe(pid: u32, pidfd: &Pidfd) -> io::Result<Option<Identity>> {
    Ok(described(pid, pidfd)?.map(|(identity, _)| identity))
}

/// Both are of one process: it had its PID before they were read, and has it after.
fn described(pid: u32, pidfd: &Pidfd) -> io::Result<Option<(Identity, u32)>> {
    let inode = pidfd.inode()?;
    let Some(stat) = proc::stat(pid)? else {
        return Ok(None);
    };
    if !pidfd.is_held()? {
        return Ok(None);
    }
    let identity = Identity {
        machine: host::machine(),
        boot: host::boot(),
        namespace: host::namespace(),
        pid,
        inode,
        ticks: stat.start_ticks,
    };
    Ok(Some((identity, stat.parent)))
}

/// Looks for a process.
pub fn find(identity: &Identity) -> Found {
    if (identity.machine, identity.boot) != (host::machine(), host::boot()) {
        return Found::Gone;
    }
    match open(identity) {
        Ok(Some(pidfd)) => match pidfd.has_ended() {
            Ok(false) => Found::Alive(pidfd),
            Ok(true) => Found::Ended(pidfd),
            Err(error) => Found::Unknown(error),
        },
        // What is of another namespace may live without being seen from here.
        Ok(None) if identity.namespace != host::namespace() => {
            Found::Unknown(io::Error::from(io::ErrorKind::PermissionDenied))
        }
        Ok(None) => Found::Gone,
        Err(error) => Found::Unknown(error),
    }
}

fn open(identity: &Identity) -> io::Result<Option<Pidfd>> {
    if identity.inode != 0 && host::abilities().handles.is_some() {
        return Pidfd::open_inode(identity.inode);
    }
    if identity.namespace != host::namespace() {
        return Ok(None);
    }
    let found = identify(identity.pid)?;
    Ok(found.and_then(|(pidfd, now)| now.is(identity).then_some(pidfd)))
}
