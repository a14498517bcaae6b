//! The section "In bytes" of `docs/protocols/keeper.md`, compared with real messages.

use crate::wire::{Kept, Peer, bytes, hex};
use sexton::ids::ProcessId;
use sexton::keeper::protocol::{Exited, Launch, Parcel, Report, Request, Started};
use std::io::{Read as _, Write as _};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/protocols/keeper.md");

const ATTEMPT: ProcessId = ProcessId(0x0192_f5e0_7a4b_7c11_9d2e_5f6a_7b8c_9d0e);

/// Returns a line of the example: the direction, the name of the message, and the frame (length and payload) in hexadecimal digits.
fn line(direction: char, name: &str, payload: &[u8]) -> String {
    let length = u32::try_from(payload.len()).expect("a small number");
    let length = hex(&length.to_le_bytes());
    format!("{direction} {name:<9} {length} {}", hex(payload))
}

fn request(name: &str, request: &Request) -> String {
    line('>', name, &rmp_serde::to_vec(request).expect("it encodes"))
}

fn report(name: &str, report: &Report) -> String {
    line('<', name, &rmp_serde::to_vec(report).expect("it encodes"))
}

fn parcel(ticket: u128, stays: bool) -> String {
    let parcel = Box::new(Parcel {
        env: vec![bytes("PATH=/bin")],
        umask: 0o022,
        limits: vec![(7, 1024, 4096)],
        ..Parcel::default()
    });
    let parcel = Request::Parcel { ticket, parcel, stays };
    request("Parcel", &parcel)
}

fn spoken() -> Vec<String> {
    let started = Started {
        attempt: ATTEMPT,
        pid: 4242,
        namespace: 4_026_531_836,
        inode: 77,
        ticks: 123_456,
        at: 1_700_000_000_000,
        contained: false,
    };
    let launch = Launch {
        argv: vec![bytes("true")],
        dir: bytes("/"),
        env: vec![bytes("PATH=/bin")],
        ..Launch::default()
    };
    vec![
        request("Hello", &Request::Hello { version: 1 }),
        report(
            "Welcome",
            &Report::Welcome {
                version: 1,
                pid: 4000,
                boot: 0x7dd6_1100_63c4_4c78_bf22_7cc8_12b8_0398,
                groups: None,
            },
        ),
        report("Told", &Report::Told),
        request("Launch", &Request::Launch { attempt: ATTEMPT, launch: Box::new(launch) }),
        report("Started", &Report::Started(started)),
        report(
            "Exited",
            &Report::Exited(Exited {
                started,
                status: 0,
                at: 1_700_000_000_004,
                cpu_ms: 1,
                memory_max: 1 << 20,
            }),
        ),
        request("Ask", &Request::Ask { attempt: ProcessId(1) }),
        report("Absent", &Report::Absent { attempt: ProcessId(1) }),
        request("Forget", &Request::Forget { attempts: vec![ATTEMPT] }),
        parcel(7, false),
        report("Taken", &Report::Taken { ticket: 7 }),
        parcel(8, true),
    ]
}

fn written() -> Vec<String> {
    let page = std::fs::read_to_string(PAGE).expect("the page exists");
    let (_, example) = page.split_once("## In bytes").expect("it has an example");
    let lines = example.lines().filter(|line| line.starts_with(['>', '<']));
    lines.map(str::to_owned).collect()
}

#[test]
fn the_page_has_what_is_said() {
    let spoken = spoken();
    assert_eq!(written(), spoken, "\n{}\n", spoken.join("\n"));
}

#[test]
fn a_keeper_understands_what_the_page_has() {
    let kept = Kept::new();
    let mut peer = kept.connect();
    let frame = |line: &str| -> Vec<u8> {
        let hex: String = line.split(' ').filter(|word| !word.is_empty()).skip(2).collect();
        let digits = hex.as_bytes().chunks(2);
        let byte = |pair: &[u8]| u8::from_str_radix(&String::from_utf8_lossy(pair), 16);
        digits.map(|pair| byte(pair).expect("it is a number")).collect()
    };
    let of = |name: &str| {
        let line = written().into_iter().find(|line| line.contains(name));
        frame(&line.expect("the page has it"))
    };
    peer.socket.write_all(&of("> Hello")).expect("connected");
    assert!(matches!(peer.next(), Report::Welcome { version: 1, .. }));
    let exactly = |peer: &mut Peer, wanted: Vec<u8>| {
        let mut found = vec![0; wanted.len()];
        peer.socket.read_exact(&mut found).expect("the request is answered");
        assert_eq!(found, wanted);
    };
    exactly(&mut peer, of("< Told"));
    peer.socket.write_all(&of("> Ask")).expect("connected");
    exactly(&mut peer, of("< Absent"));
    peer.socket.write_all(&of("> Launch")).expect("connected");
    assert_eq!(peer.exit(ATTEMPT).status, 0);
    peer.socket.write_all(&of("> Forget")).expect("connected");
    peer.send(&Request::Ask { attempt: ATTEMPT });
    // The exit may have been reported more than once.
    let absent = Report::Absent { attempt: ATTEMPT };
    while peer.next() != absent {}
}
