//! Addresses where nobody listens. To listen there and stop again would not do: a process that another test starts at
//! that moment has a copy of the listener until it runs its own program, and clients are let in meanwhile.

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketAddrV4, SocketFlags, SocketType, bind, getsockname,
    socket_with, sockopt,
};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A port of loopback, this one or any. An error if somebody has it.
pub(crate) fn port(port: u16) -> io::Result<u16> {
    let socket = socket(AddressFamily::INET)?;
    // Or whoever is to listen there would be kept from it as long as there is a copy.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    let bound = SocketAddrV4::try_from(getsockname(&socket)?)?;
    Ok(bound.port())
}

/// Leaves a Unix socket behind, as one does that was killed.
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
