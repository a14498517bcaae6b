//! Addresses where no process listens. It is not enough to listen and to close the listener again: a process that another
//! test starts at that moment has a copy of the listener until it executes its program, and accepts connections in the
//! meantime.

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketAddrV4, SocketFlags, SocketType, bind, getsockname,
    socket_with, sockopt,
};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Returns a port of loopback on which no process listens: this one, or any free one for 0. Returns an error if the port
/// is in use.
pub(crate) fn port(port: u16) -> io::Result<u16> {
    let socket = socket(AddressFamily::INET)?;
    // Without this option, a later listener could not bind to the port while such a copy exists.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    let bound = SocketAddrV4::try_from(getsockname(&socket)?)?;
    Ok(bound.port())
}

/// Leaves a Unix socket at this path on which no process listens, as after a kill.
pub(crate) fn left_behind(path: &Path) -> io::Result<()> {
    let address = SocketAddrUnix::new(path)?;
    Ok(bind(&socket(AddressFamily::UNIX)?, &address)?)
}

fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    Ok(socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}
