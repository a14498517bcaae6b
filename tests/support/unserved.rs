//! Addresses where no process listens. Listening there and stopping again would not be enough: a process that another test
//! starts at that moment has a copy of the listener until it executes its program, and accepts connections meanwhile.

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketAddrV4, SocketFlags, SocketType, bind, getsockname,
    socket_with, sockopt,
};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Returns a port of loopback, this one or any for 0, on which no process listens. Fails if it is in use.
pub(crate) fn port(port: u16) -> io::Result<u16> {
    let socket = socket(AddressFamily::INET)?;
    // Otherwise a later listener there could not bind while such a copy exists.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    let bound = SocketAddrV4::try_from(getsockname(&socket)?)?;
    Ok(bound.port())
}

/// Leaves a Unix socket behind, like a process that was killed.
pub(crate) fn left_behind(path: &Path) -> io::Result<()> {
    let address = SocketAddrUnix::new(path)?;
    Ok(bind(&socket(AddressFamily::UNIX)?, &address)?)
}

fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    Ok(socket_with(
        family,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?)
}
