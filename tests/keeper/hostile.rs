//! Clients that violate the protocol, or send nothing.

use crate::left_out::left_out;
use crate::may_look::may_look;
use crate::wire::{Kept, attempt, framed, hex};
use sexton::keeper::protocol::{FRAME_BYTES_MAX, Report, Request, VERSION};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

#[test]
fn frames_that_are_none_are_refused_and_harm_nobody() {
    let kept = Kept::new();
    let (mut peer, _) = kept.hello();
    let started = peer.run(attempt(1), kept.launch(&["sleep", "1000"]));
    let long = u32::try_from(FRAME_BYTES_MAX + 1).expect("it fits");
    let nested = [&200_u32.to_le_bytes()[..], &[0x91; 200]].concat();
    let ask = framed(&Request::Ask { attempt: attempt(1) });
    let frames: [&[u8]; 6] = [
        &long.to_le_bytes(),
        &u32::MAX.to_le_bytes(),
        &[0, 0, 0, 0],
        &[3, 0, 0, 0, 0xc1, 0xff, 0x00],
        &nested,
        &ask,
    ];
    for frame in frames {
        let mut stranger = kept.connect();
        stranger.socket.write_all(frame).expect("connected");
        let answer = stranger.next();
        assert!(matches!(answer, Report::Refused { .. }), "{frame:?}: {answer:?}");
        assert_eq!(stranger.try_next(), None, "{frame:?}");
    }
    assert_eq!(peer.ask(attempt(1)), Report::Started(started));
    // Even the coordinator must not send an invalid frame.
    peer.socket.write_all(&[1, 0, 0, 0, 0xc1]).expect("connected");
    assert!(matches!(peer.next(), Report::Refused { .. }));
    assert_eq!(peer.try_next(), None);
    assert_eq!(kept.hello().1[1..], [Report::Started(started)]);
}

#[test]
fn frames_that_come_in_pieces_are_put_together() {
    let kept = Kept::new();
    let (mut other, _) = kept.hello();
    let mut peer = kept.connect();
    let hello = framed(&Request::Hello { version: VERSION });
    let (last, before) = hello.split_last().expect("it is not empty");
    for byte in before {
        peer.socket.write_all(&[*byte]).expect("connected");
        // When the other client has been answered twice, the keeper has read this byte.
        for _ in 0..2 {
            other.ask(attempt(1));
        }
    }
    peer.socket.write_all(&[*last]).expect("connected");
    assert!(matches!(peer.next(), Report::Welcome { .. }));
    assert_eq!(peer.next(), Report::Told);
}

#[test]
fn a_thousand_connections_do_not_keep_the_coordinator_away_for_ever() {
    let kept = Kept::new();
    let (mut peer, _) = kept.hello();
    let half = [0xff, 0xff];
    let mut silent = Vec::new();
    for _ in 0..1000 {
        let mut socket = UnixStream::connect(kept.path("keeper.sock")).expect("it listens");
        // This fails if the connection is beyond the limit and already closed.
        drop(socket.write_all(&half));
        silent.push(socket);
    }
    assert_eq!(peer.run_through(attempt(1), kept.shell("exit 2")), 0x200);
    if may_look("the descriptors of the keeper") {
        let fds = format!("/proc/{}/fd", kept.pid());
        let fds = std::fs::read_dir(fds).expect("a live process").count();
        assert!(fds < 200, "{fds} descriptors are open");
    }
    // Accepted connections that stay silent are closed as well.
    for mut socket in silent {
        drop(socket.read_to_end(&mut Vec::new()));
    }
    drop(peer);
    assert_eq!(kept.hello().1.len(), 2);
}

#[test]
fn a_reader_that_does_not_read_costs_a_bounded_amount_and_misses_nothing() {
    let kept = Kept::new();
    let (mut peer, _) = kept.hello();
    for number in 0..200 {
        peer.launch(attempt(number), kept.launch(&["/no/such/program"]));
    }
    let mut failed = std::collections::BTreeSet::new();
    while failed.len() < 200 {
        if let Report::Failed { attempt, .. } = peer.next() {
            failed.insert(attempt);
        }
    }
    peer.socket
        .set_write_timeout(Some(std::time::Duration::from_millis(200)))
        .expect("a nonzero timeout");
    let ask = framed(&Request::Ask { attempt: attempt(3) });
    // The keeper stops reading requests while its answers are not read, so that it does not have to hold them.
    let many = ask.repeat(1000);
    let stopped = (0..10_000).any(|_| peer.socket.write_all(&many).is_err());
    assert!(stopped, "it reads forever");
    let status = format!("/proc/{}/statm", kept.pid());
    let status = std::fs::read_to_string(status).expect("a live process");
    let pages: u64 = status
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .expect("it is a number");
    assert!(pages < 16 << 10, "{pages} pages are resident");
    drop(peer);
    assert_eq!(kept.hello().1.len(), 201);
}

#[test]
fn strangers_are_not_answered() {
    if !rustix::process::geteuid().is_root() {
        return left_out("another user at the keeper's socket: only root can become one");
    }
    let kept = Kept::new();
    // Even if the modes of directory and socket let other users connect, the keeper checks the user that the kernel reports for the peer.
    for (path, mode) in [("", 0o755), ("keeper.sock", 0o666)] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(kept.path(path), mode).expect("our own file");
    }
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
        s.settimeout(60)\n\n\
        try: s.sendall(bytes.fromhex(sys.argv[2])); answer=s.recv(1)\n\
        except (BrokenPipeError, ConnectionResetError): answer=b''\nsys.exit(0 if answer==b'' else 1)";
    let hello = framed(&Request::Hello { version: VERSION });
    let hello = hex(&hello);
    let connect = |user: u32| {
        let mut command = Command::new("python3");
        let command = command.args(["-c", script]).arg(kept.path("keeper.sock"));
        let command = command.arg(&hello);
        command.uid(user).gid(user).current_dir("/").status()
    };
    assert!(connect(65534).expect("python3 is installed").success());
    let (mut peer, _) = kept.hello();
    assert_eq!(peer.run_through(attempt(1), kept.shell("exit 2")), 0x200);
    let mode = std::fs::metadata(kept.path("keeper.sock")).expect("the file exists").permissions();
    assert_eq!(mode.mode() & 0o777, 0o666, "the mode is the one that the test set");
}

#[test]
fn the_socket_and_the_files_are_the_owners_alone() {
    let kept = Kept::new();
    for name in ["keeper.sock", "keeper.lock", "keeper.log"] {
        let mode = std::fs::metadata(kept.path(name)).expect("the file exists").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600, "{name}");
    }
}
