//! Decoding of lines and bodies into commands.

use crate::chance::Chance;
use crate::codec::row::{Client, JOB_BYTES_MAX, Row};
use proptest::prelude::*;
use sexton_wire::beanstalk::codec::LINE_BYTES_MAX;
use sexton_wire::beanstalk::{Command, Counted, Decoder, Refusal};
use std::borrow::Cow;

#[test]
fn every_line_is_read_as_the_table_says() {
    let rows = Row::all();
    assert!(rows.len() > 350, "the table was found");
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|row| {
            let found = Client::of([row.input.as_slice()]).outcomes;
            (found != row.outcomes).then(|| format!("{}\n    but {found:?}", row.text))
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn where_the_bytes_are_cut_makes_no_difference() {
    for row in Row::all() {
        let whole = Client::of([row.input.as_slice()]);
        let single = Client::of(row.input.chunks(1));
        assert_eq!(single.outcomes, whole.outcomes, "{}", row.text);
        assert_eq!(single.bodies, whole.bodies, "{}", row.text);
        // Short inputs are split at every position, and long ones near both ends and at some positions in between.
        let len = row.input.len();
        for at in (0..=len).filter(|at| len < 1500 || *at < 300 || len - at < 50 || at % 997 == 0) {
            let (first, second) = row.input.split_at(at);
            let cut = Client::of([first, second]);
            assert_eq!(cut.outcomes, whole.outcomes, "{} at {at}", row.text);
            assert_eq!(cut.bodies, whole.bodies, "{} at {at}", row.text);
        }
    }
}

/// The pieces of random streams, with an example of everything that has a meaning at some position.
const PIECES: &[&[u8]] = &[
    b"put 0 0 1 5\r\nhello\r\n",
    b"put 0 0 1 5\r\n",
    b"put 1 2 3 70000\r\n",
    b"put 0 0 1 300 idp:k:1\r\n",
    b"hello",
    b"\r\n",
    b"\r",
    b"\n",
    b"\0",
    b" ",
    b"7",
    b"delete 1\r\n",
    b"reserve",
    b"reserve-with-timeout ",
    b"pause-tube",
    b"watch a",
    b"stats",
    b"kick -",
    b"use ",
    b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
];

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => proptest::sample::select(PIECES).prop_map(<[u8]>::to_vec),
        1 => proptest::collection::vec(any::<u8>(), 1..8),
    ];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_bytes_come_to_the_same_however_they_are_cut(input in stream(), seed: u64) {
        let whole = Client::of([input.as_slice()]);
        let mut chance = Chance::new(seed);
        let mut client = Client::new();
        let mut rest = input.as_slice();
        while !rest.is_empty() {
            let len = usize::try_from(1 + chance.below(40)).expect("a small number");
            let (piece, after) = rest.split_at(len.min(rest.len()));
            client.offer(piece);
            rest = after;
        }
        prop_assert_eq!(&client.outcomes, &whole.outcomes);
        prop_assert_eq!(&client.bodies, &whole.bodies);
        // The decoder holds less than a line, and no more of a body than has arrived, rounded up to the first size of the
        // buffer.
        prop_assert!(client.held_bytes_max < LINE_BYTES_MAX + 4096);
    }
}

#[test]
fn a_body_in_one_piece_is_not_copied() {
    let mut decoder = Decoder::new(JOB_BYTES_MAX);
    let input = b"put 0 0 1 5\r\nhello\r\nstats\r\n";
    let (taken, command) = decoder.take(input);
    let Some(Command::Put(put)) = command else {
        panic!("{command:?}");
    };
    assert_eq!(taken, 20);
    assert!(matches!(put.body, Cow::Borrowed(b"hello")), "{put:?}");
}

#[test]
fn a_body_in_pieces_takes_memory_as_it_comes_and_none_to_spare() {
    let job_bytes_max = 1 << 30;
    let mut decoder = Decoder::new(job_bytes_max);
    let line = format!("put 0 0 1 {job_bytes_max}\r\n");
    assert_eq!(decoder.take(line.as_bytes()), (line.len(), None));
    assert_eq!(decoder.held_bytes(), 0, "nothing is held");
    assert_eq!(decoder.take(b"x"), (1, None));
    assert!(decoder.held_bytes() <= 4096, "{}", decoder.held_bytes());
    let mut came = 1;
    for _ in 0..100 {
        let piece = [b'y'; 10_000];
        assert_eq!(decoder.take(&piece), (piece.len(), None));
        came += piece.len();
        assert!(decoder.held_bytes() <= 2 * came);
    }

    for size in [1, 4095, 4096, 4097, 9000, 65_535] {
        let mut decoder = Decoder::new(JOB_BYTES_MAX);
        let mut input = format!("put 0 0 1 {size}\r\n").into_bytes();
        input.resize(input.len() + size, b'z');
        let pieces = input.chunks(1000);
        for piece in pieces {
            assert_eq!(decoder.take(piece), (piece.len(), None));
        }
        assert!(decoder.held_bytes() <= size);
        let (taken, command) = decoder.take(b"\r\nstats\r\n");
        let Some(Command::Put(put)) = command else {
            panic!("{command:?}");
        };
        assert_eq!(taken, 2);
        let Cow::Owned(body) = put.body else {
            panic!("it arrived in pieces");
        };
        assert_eq!(body.capacity(), size, "no spare capacity");
        assert_eq!(decoder.held_bytes(), 0);
    }
}

#[test]
fn what_is_swallowed_takes_no_memory() {
    for line in ["", "put 0 0 1 4294967295\r\n"] {
        let mut decoder = Decoder::new(JOB_BYTES_MAX);
        decoder.take(line.as_bytes());
        for _ in 0..1000 {
            let piece = [b'x'; 1000];
            let (taken, command) = decoder.take(&piece);
            assert_eq!(command, None);
            assert!(taken > 1000 - LINE_BYTES_MAX);
            assert_eq!(decoder.held_bytes(), 0);
        }
    }
}

#[test]
fn a_body_that_is_let_go_of_is_swallowed_to_its_end() {
    let input = b"put 0 0 1 10\r\n0123456789\r\n";
    for cut in 14..input.len() {
        let (first, second) = input.split_at(cut);
        let mut decoder = Decoder::new(JOB_BYTES_MAX);
        assert_eq!(decoder.take(first), (cut, None));
        assert_eq!(decoder.announced_bytes(), Some(10));
        decoder.discard_body();
        assert_eq!((decoder.held_bytes(), decoder.announced_bytes()), (0, None));
        let refused =
            Command::Refused { refusal: Refusal::OutOfMemory, counted: Some(Counted::Put) };
        assert_eq!(decoder.take(second), (second.len(), Some(refused)));
        assert_eq!(decoder.take(b"quit\r\n"), (6, Some(Command::Quit)));
    }
}

/// The decoder gets its limit as a parameter, so this needs no large bodies.
#[test]
fn the_size_limit_is_the_decoders_and_to_the_byte() {
    for (limit, size, fits) in [(0, 0, true), (0, 1, false), (10, 10, true), (10, 11, false)] {
        let mut decoder = Decoder::new(limit);
        let mut input = format!("put 0 0 1 {size}\r\n").into_bytes();
        input.resize(input.len() + size, b'x');
        input.extend_from_slice(b"\r\n");
        let (taken, command) = decoder.take(&input);
        assert_eq!(taken, input.len());
        assert_eq!(matches!(command, Some(Command::Put(_))), fits, "{limit} {size}");
    }
}

#[test]
fn what_is_refused_is_counted_as_beanstalkd_counts_it() {
    let counted = |input: &[u8]| {
        let (_, command) = Decoder::new(3).take(input);
        let Some(Command::Refused { refusal, counted }) = command else {
            panic!("{command:?}");
        };
        (refusal, counted)
    };
    for (input, expected) in [
        (&b"put 0 0 1 9\r\n123456789\r\n"[..], (Refusal::JobTooBig, Some(Counted::Put))),
        (b"put 0 0 1 3\r\n12345", (Refusal::ExpectedCrlf, Some(Counted::Put))),
        (b"put 0 0 1 3 \r\n", (Refusal::BadFormat, Some(Counted::Put))),
        (b"put 0 0 1\r\n", (Refusal::BadFormat, None)),
        (b"pause-tube -a 1\r\n", (Refusal::BadFormat, Some(Counted::PauseTube))),
        (b"pause-tube -a x\r\n", (Refusal::BadFormat, None)),
        (b"delete x\r\n", (Refusal::BadFormat, None)),
        (b"use -a\r\n", (Refusal::BadFormat, None)),
        (b"foo\r\n", (Refusal::UnknownCommand, None)),
    ] {
        assert_eq!(counted(input), expected, "{}", input.escape_ascii());
    }
}
