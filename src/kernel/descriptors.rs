//! The soft limit on open descriptors. A server needs many of them, but a program that it starts must find the limit that the server was
//! started with: some programs close or allocate something for every possible descriptor, and `select` cannot handle numbers from 1024 on.

use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use std::sync::OnceLock;

/// The limits before [`raise`].
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit of this process to its hard limit.
///
/// # Errors
/// Returns the error of `setrlimit`.
pub fn raise() -> Result<(), Errno> {
    let limit = getrlimit(Resource::Nofile);
    let maximum = limit.maximum;
    BEFORE.get_or_init(|| limit);
    let raised = Rlimit { current: maximum, maximum };
    setrlimit(Resource::Nofile, raised)
}

/// Gives a child the limits that this process had before [`raise`]. Does nothing if they were not raised.
///
/// # Errors
/// Returns the error of `prlimit`.
pub(crate) fn restore(child: Pid) -> Result<(), Errno> {
    let Some(before) = BEFORE.get() else {
        return Ok(());
    };
    let (current, maximum) = (before.current, before.maximum);
    prlimit(Some(child), Resource::Nofile, Rlimit { current, maximum }).map(drop)
}
