//! `--beanstalk-hosts` over real sockets: a client at an address that is not listed is disconnected, and its commands are
//! not executed. Clients at listed addresses and on loopback are served.

use crate::beanstalk::Client;
use crate::daemon::{Daemon, ended};
use crate::left_out::left_out;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

/// Returns an address of this machine other than loopback: the source address of a datagram to another network. No
/// datagram is sent.
fn own_address() -> Option<IpAddr> {
    let elsewhere = SocketAddr::from((Ipv4Addr::new(198, 51, 100, 1), 9));
    let own = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect(elsewhere)?;
        socket.local_addr()
    });
    match own {
        Ok(own) => Some(own.ip()),
        Err(error) => {
            left_out(format!(
                "clients from beyond loopback, this machine has no such address: {error}"
            ));
            None
        }
    }
}

/// Returns the address that differs only in its last bit.
fn neighbour(address: IpAddr) -> IpAddr {
    let IpAddr::V4(address) = address else {
        panic!("{address} was requested over IPv4");
    };
    IpAddr::from(Ipv4Addr::from(u32::from(address) ^ 1))
}

/// Starts the program with a beanstalkd listener on `own`, and with these networks listed.
fn serve(own: IpAddr, networks: &[&str]) -> Daemon {
    let address = SocketAddr::from((own, 0)).to_string();
    let listed = networks.iter().flat_map(|network| ["--beanstalk-hosts", network]);
    let listeners = ["--memory", "--lockserver", "off", "--beanstalk", &address];
    let flags: Vec<&str> = listeners.into_iter().chain(listed).collect();
    Daemon::serve(&flags)
}

/// Connects from a loopback address to this address of the machine.
fn from_loopback(to: SocketAddr) -> TcpStream {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("any port of loopback");
    connect(&socket, &to).expect("it listens");
    TcpStream::from(socket)
}

/// Sends commands, and returns everything that the server sends until it closes the connection.
fn exchange(mut stream: TcpStream, commands: &[u8]) -> Vec<u8> {
    let patience = Some(Duration::from_mins(1));
    stream.set_read_timeout(patience).expect("a nonzero timeout");
    // This may fail, because the server may have closed the connection already.
    drop(stream.write_all(commands));
    let mut received = Vec::new();
    match stream.read_to_end(&mut received) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the connection stays open: {error}"),
    }
    received
}

#[test]
fn a_host_that_is_not_listed_is_not_served_and_loopback_always_is() {
    let Some(own) = own_address() else { return };
    let neighbour = format!("{}/32", neighbour(own));
    let daemon = serve(own, &[&neighbour, "203.0.113.0/24"]);
    let address = daemon.beanstalk();
    let stranger = TcpStream::connect(address).expect("it listens");
    assert_eq!(stranger.local_addr().expect("an address").ip(), own);
    let received = exchange(stranger, b"put 0 0 60 1\r\nx\r\n");
    assert_eq!(received.escape_ascii().to_string(), "");
    daemon.until_logged("not in the list of hosts");
    assert!(daemon.log().contains(&own.to_string()), "{}", daemon.log());
    // The put of the refused client had no effect.
    let received = exchange(from_loopback(address), b"peek-ready\r\nput 0 0 60 1\r\nx\r\nquit\r\n");
    assert_eq!(received.escape_ascii().to_string(), "NOT_FOUND\\r\\nINSERTED 1\\r\\n");
}

#[test]
fn a_host_that_is_listed_is_served() {
    let Some(own) = own_address() else { return };
    let exactly = format!("{own}/32");
    for networks in [&["203.0.113.0/24", &exactly][..], &["0.0.0.0/0"]] {
        let daemon = serve(own, networks);
        let mut client = Client::connect(daemon.beanstalk()).expect("it listens");
        let put = client.ask("put 0 0 60 1\r\nx").expect("it is served");
        assert_eq!(put.line, "INSERTED 1", "{networks:?}");
    }
}

#[test]
fn without_a_list_the_program_does_not_listen_beyond_loopback() {
    let Some(own) = own_address() else { return };
    let address = SocketAddr::from((own, 0)).to_string();
    let mut command = crate::daemon::serve(&["--memory", "--beanstalk", &address]);
    let output = command.output().expect("the program runs");
    let [_, errors] = ended(output, 2);
    assert!(errors.contains("--beanstalk-hosts"), "{errors}");
}
