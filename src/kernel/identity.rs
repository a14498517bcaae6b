//! Conversion from a PID to an identity, and from an identity back to a process. See `docs/decisions/0036-identity.md`.

use crate::actors::process::Identity;
use crate::kernel::host;
use crate::kernel::pidfd::Pidfd;
use crate::kernel::proc;
use std::io;

/// The result of looking for a process.
#[derive(Debug)]
pub enum Lookup {
    /// It is alive.
    Alive(Pidfd),
    /// It has ended, whether or not its parent has reaped it. Once it has been reaped, the descriptor may provide its exit status.
    Ended(Pidfd),
    /// It no longer exists.
    Gone,
    /// This could not be determined, for example because no descriptor could be opened, or because the process belongs to a namespace that
    /// is not visible from here.
    Unknown(io::Error),
}

/// Opens the process that has this PID now and returns it with its identity; `None` if no process has it.
///
/// After reading the start time, this checks that the PID still belongs to the process of the descriptor, so a descriptor is never paired
/// with the start time of another process that has reused the PID.
///
/// # Errors
/// Returns an error if no descriptor can be opened, or `/proc` cannot be read.
pub fn identify(pid: u32) -> io::Result<Option<(Pidfd, Identity)>> {
    let Some(pidfd) = Pidfd::open(pid)? else {
        return Ok(None);
    };
    let identity = describe(pid, &pidfd)?;
    Ok(identity.map(|identity| (pidfd, identity)))
}

/// Returns the identity of the process that has this PID now, and the PID of its parent, both taken from a single read of its `stat` file;
/// `None` if no process has this PID.
///
/// # Errors
/// Returns an error if no descriptor can be opened, or `/proc` cannot be read.
pub fn identify_with_parent(pid: u32) -> io::Result<Option<(Identity, u32)>> {
    let Some(pidfd) = Pidfd::open(pid)? else {
        return Ok(None);
    };
    described(pid, &pidfd)
}

/// Returns the identity of the process `pid`, to which `pidfd` refers; `None` if it no longer exists.
///
/// # Errors
/// Returns an error if `/proc` cannot be read.
pub fn describe(pid: u32, pidfd: &Pidfd) -> io::Result<Option<Identity>> {
    Ok(described(pid, pidfd)?.map(|(identity, _)| identity))
}

/// Returns the identity of the process and the PID of its parent; `None` if the process no longer has its PID after both have been read.
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

/// Looks for the process with this identity.
pub fn find(identity: &Identity) -> Lookup {
    if (identity.machine, identity.boot) != (host::machine(), host::boot()) {
        return Lookup::Gone;
    }
    match open(identity) {
        Ok(Some(pidfd)) => match pidfd.has_ended() {
            Ok(false) => Lookup::Alive(pidfd),
            Ok(true) => Lookup::Ended(pidfd),
            Err(error) => Lookup::Unknown(error),
        },
        // A process of another namespace may be alive without being visible from here.
        Ok(None) if identity.namespace != host::namespace() => {
            Lookup::Unknown(io::Error::from(io::ErrorKind::PermissionDenied))
        }
        Ok(None) => Lookup::Gone,
        Err(error) => Lookup::Unknown(error),
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
