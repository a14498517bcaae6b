//! Parcels: the streams and the environment for a child, which callers pass to the keeper directly.

use crate::wire::{Kept, Peer, attempt, bytes, framed};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use sexton::keeper::protocol::{Launch, PARCELS_MAX, PARCELS_STAYING_MAX, Parcel, Report, Request};
use std::io::{IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};

/// Passes a parcel with these descriptors, which the keeper holds for a minute, and returns the answer.
pub(crate) fn hand_over(
    peer: &mut Peer,
    ticket: u128,
    parcel: Parcel,
    fds: &[BorrowedFd<'_>],
) -> Report {
    give(peer, (ticket, false), parcel, fds)
}

/// Like [`hand_over`], but if `stays`, the keeper holds the parcel for as long as the connection is open.
fn give(
    peer: &mut Peer,
    (ticket, stays): (u128, bool),
    parcel: Parcel,
    fds: &[BorrowedFd<'_>],
) -> Report {
    let parcel = Box::new(parcel);
    let frame = framed(&Request::Parcel { ticket, parcel, stays });
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    let iov = [IoSlice::new(&frame)];
    let sent = sendmsg(&peer.socket, &iov, &mut control, SendFlags::empty());
    let sent = sent.expect("the keeper reads the parcel");
    let rest = frame.get(sent..).unwrap_or_default();
    peer.socket.write_all(rest).expect("connected");
    peer.next()
}

fn whole() -> Parcel {
    Parcel {
        env: vec![bytes("PATH=/usr/bin:/bin"), bytes("A=theirs"), bytes("B=theirs")],
        umask: 0o027,
        limits: vec![(7, 77, 177)],
        // This has no effect where control groups have no memory controller.
        memory_max: Some(1 << 40),
    }
}

#[test]
fn a_child_has_its_callers_streams_environment_umask_and_limits() {
    let kept = Kept::new();
    let (mut coordinator, _) = kept.hello();
    let mut caller = kept.connect();
    let (input, mut to_child) = std::io::pipe().expect("a pipe");
    let (mut from_child, output) = std::io::pipe().expect("a pipe");
    let fds = [input.as_fd(), output.as_fd(), output.as_fd()];
    let taken = hand_over(&mut caller, 9, whole(), &fds);
    assert_eq!(taken, Report::Taken { ticket: 9 });
    drop((input, output));
    let script = "read line; echo got $line; echo $A $B >&2; umask; ulimit -n; ls /proc/self/fd";
    let mut launch = Launch { parcel: Some(9), ..kept.shell(script) };
    launch.env = vec![bytes("B=ours")];
    to_child.write_all(b"word\n").expect("connected");
    assert_eq!(coordinator.run_through(attempt(1), launch.clone()), 0);
    drop(to_child);
    let mut words = String::new();
    // The stream ends only if the keeper has no copy left.
    from_child.read_to_string(&mut words).expect("UTF-8");
    assert_eq!(words, "got word\ntheirs ours\n0027\n77\n0\n1\n2\n3\n");
    // A parcel is used for one launch.
    coordinator.launch(attempt(2), launch);
    assert!(matches!(coordinator.next(), Report::Failed { step: 3, .. }));
}

#[test]
fn parcels_that_are_not_whole_or_too_many_are_refused() {
    let kept = Kept::new();
    let null = std::fs::File::open("/dev/null").expect("the file exists");
    let fd = null.as_fd();
    let put = |ticket, fds: &[BorrowedFd<'_>]| {
        let mut peer = kept.connect();
        let answer = hand_over(&mut peer, ticket, whole(), fds);
        (answer, peer)
    };
    for count in [0, 1, 2, 4, 8] {
        let fds = vec![fd; count];
        let (answer, mut peer) = put(1, &fds);
        assert!(matches!(answer, Report::Refused { .. }), "{count}");
        assert_eq!(peer.try_next(), None);
    }
    let mut givers = Vec::new();
    for ticket in 0..PARCELS_MAX as u128 {
        let (answer, giver) = put(ticket, &[fd; 3]);
        assert_eq!(answer, Report::Taken { ticket });
        givers.push(giver);
    }
    for ticket in [0, 1000] {
        let (answer, _) = put(ticket, &[fd; 3]);
        assert!(matches!(answer, Report::Refused { .. }), "twice, or many");
    }
    let (mut peer, _) = kept.hello();
    let answer = hand_over(&mut peer, 2000, whole(), &[fd; 3]);
    assert!(matches!(answer, Report::Refused { .. }));
}

#[test]
fn a_parcel_is_let_go_of_with_whoever_gave_it() {
    for stays in [false, true] {
        let_go(stays);
    }
}

fn let_go(stays: bool) {
    let kept = Kept::new();
    let (mut reader, output) = std::io::pipe().expect("a pipe");
    let mut giver = kept.connect();
    let taken = give(&mut giver, (9, stays), whole(), &[output.as_fd(); 3]);
    assert_eq!(taken, Report::Taken { ticket: 9 });
    drop((giver, output));
    let mut words = String::new();
    // The stream ends only if the keeper has no copy left.
    reader.read_to_string(&mut words).expect("UTF-8");
    let (mut coordinator, _) = kept.hello();
    let launch = Launch { parcel: Some(9), ..kept.shell("exit 0") };
    coordinator.launch(attempt(1), launch);
    assert!(matches!(coordinator.next(), Report::Failed { step: 3, .. }));
}

#[test]
fn parcels_that_stay_leave_room_for_others() {
    let kept = Kept::new();
    let null = std::fs::File::open("/dev/null").expect("the file exists");
    let fds = [null.as_fd(); 3];
    let mut peers: Vec<Peer> = (0..=PARCELS_STAYING_MAX).map(|_| kept.connect()).collect();
    let mut last = peers.pop().expect("there is one more");
    for (ticket, peer) in (0_u128..).zip(&mut peers) {
        let taken = give(peer, (ticket, true), whole(), &fds);
        assert_eq!(taken, Report::Taken { ticket });
    }
    let Report::Refused { reason } = give(&mut last, (1000, true), whole(), &fds) else {
        panic!("the limit is reached");
    };
    assert!(reason.contains("32 parcels wait"), "{reason}");
    let taken = hand_over(&mut kept.connect(), 1001, whole(), &fds);
    assert_eq!(taken, Report::Taken { ticket: 1001 });
}
