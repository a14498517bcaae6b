//! The user at the other end of a TCP connection within this machine. The kernel is asked for the socket there, by `sock_diag` (netlink).

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use std::net::{IpAddr, SocketAddr};

/// `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`: the type of the request, and of its answer.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST` of `linux/netlink.h`.
const REQUEST: u16 = 1;
/// `AF_INET` and `AF_INET6`.
const FAMILIES: (u8, u8) = (2, 10);
/// `IPPROTO_TCP`.
const TCP: u8 = 6;
/// The lengths of `nlmsghdr`, `inet_diag_sockid` and `inet_diag_req_v2`.
const HEAD: usize = 16;
const SOCKET: usize = 48;
const LENGTH: usize = HEAD + 8 + SOCKET;
/// Where `inet_diag_msg` has the socket, its user and its inode, after the head.
const ID: usize = HEAD + 4;
const USER: usize = HEAD + 64;
const INODE: usize = HEAD + 68;

/// Returns the user who opened the socket at `far` of a connection that was accepted at `near`; `None` if that is not a socket of this
/// machine and this network namespace, its process has closed it, or the kernel cannot tell.
pub fn user(near: SocketAddr, far: SocketAddr) -> Option<u32> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = Some(netlink::SOCK_DIAG);
    let asked = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol).ok()?;
    let request = request(near, far)?;
    send(&asked, &request, SendFlags::empty()).ok()?;
    let mut answer = [0; 512];
    let (_, length) = recv(&asked, &mut answer, RecvFlags::DONTWAIT).ok()?;
    let answer = answer.get(..length)?;
    let number = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let is_answer = answer.get(4..6)? == BY_FAMILY.to_ne_bytes();
    // The kernel answers with a listener if there is no such connection; that has no port at the other end.
    let is_it = answer.get(ID..ID + 4)? == request.get(HEAD + 8..HEAD + 8 + 4)?;
    // A socket that its process has closed is said to be root's.
    (is_answer && is_it && number(INODE)? != 0).then(|| number(USER)).flatten()
}

/// Builds the request for the socket at `far`.
fn request(near: SocketAddr, far: SocketAddr) -> Option<Vec<u8>> {
    let (family, addresses) = match (far.ip().to_canonical(), near.ip().to_canonical()) {
        (IpAddr::V4(far), IpAddr::V4(near)) => {
            let wide = |address: [u8; 4]| [&address[..], &[0; 12]].concat();
            (FAMILIES.0, [wide(far.octets()), wide(near.octets())])
        }
        (IpAddr::V6(far), IpAddr::V6(near)) => {
            (FAMILIES.1, [far.octets().to_vec(), near.octets().to_vec()])
        }
        _ => return None,
    };
    let mut request = Vec::with_capacity(LENGTH);
    request.extend(u32::try_from(LENGTH).ok()?.to_ne_bytes());
    request.extend(BY_FAMILY.to_ne_bytes());
    request.extend(REQUEST.to_ne_bytes());
    // Neither number nor sender of the request matter.
    request.extend([0; 8]);
    // All states; no further data.
    request.extend([family, TCP, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    request.extend(far.port().to_be_bytes());
    request.extend(near.port().to_be_bytes());
    request.extend(addresses.concat());
    // Any interface, and any cookie.
    request.extend([0; 4]);
    request.extend([0xff; 8]);
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::user;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_user_at_the_other_end_is_known_while_the_socket_is_open() {
        let own = rustix::process::geteuid().as_raw();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let near = listener.local_addr().unwrap();
            let client = TcpStream::connect(near).unwrap();
            let (accepted, far) = listener.accept().unwrap();
            let found = user(near, far);
            assert_eq!(found, Some(own), "{address}");
            // A listener is not the other end of anything.
            assert_eq!(user(far, near), Some(own), "the accepted end");
            let mut other = far;
            other.set_port(1);
            assert_eq!(user(other, near), None, "no such connection");
            assert_eq!(user("192.0.2.1:9".parse().unwrap(), near), None);
            drop(client);
            assert_eq!(user(near, far), None, "it was closed");
            drop(accepted);
        }
    }
}
