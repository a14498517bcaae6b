//! Sends the same bytes to beanstalkd itself. Replies that depend on queues are ignored. The test compares which commands
//! are refused, with which error, and which bytes are skipped.

use crate::beanstalkd::Server;
use crate::chance::Chance;
use crate::codec::encode::server;
use crate::codec::row::{Client, KnownTo, Row, is_refusal};
use crate::left_out::left_out;
use sexton_wire::beanstalk::stats::JobCounts;
use sexton_wire::beanstalk::{Job, JobState, JobStats, Reply, TubeStats, encode};
use std::io::Write as _;
use std::net::Shutdown;

/// A running beanstalkd. Killed when dropped.
struct Beanstalkd {
    server: Server,
    /// Whether it is 1.13 or newer.
    since_13: bool,
}

impl Beanstalkd {
    /// Starts beanstalkd. If that is impossible, reports what is skipped and returns `None`.
    fn start() -> Option<Self> {
        let (server, version) = match Server::beanstalkd() {
            Ok(started) => started,
            Err(error) => {
                left_out(format!("what beanstalkd itself says, {error}"));
                return None;
            }
        };
        let since_13 = match minor(&version) {
            Some(..12) => {
                left_out(format!("what beanstalkd itself says, {version} is too old"));
                return None;
            }
            Some(12) => false,
            // A build from source may have no version; it is taken for a new one.
            Some(13..) | None => true,
        };
        Some(Self { server, since_13 })
    }

    /// Sends these bytes, and returns all replies.
    fn say(&self, input: &[u8]) -> Vec<u8> {
        let mut client = self.server.connect();
        let mut writer = client.stream().try_clone().expect("a second handle can be opened");
        // beanstalkd stops reading while its replies are unread, so the input is sent by another thread.
        std::thread::scope(|threads| {
            let writing = threads.spawn(move || -> std::io::Result<()> {
                writer.write_all(input)?;
                writer.shutdown(Shutdown::Write)
            });
            let output = client.rest();
            writing.join().expect("no panic").expect("it reads all of it");
            output
        })
    }
}

/// Returns the minor number of a version 1.x, or `None` if it is another version.
fn minor(version: &str) -> Option<u32> {
    let (_, numbers) = version.split_once(" 1.")?;
    let digits = numbers.split(|it: char| !it.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// Returns the error of each reply, or "accepted" if the reply is not an error.
fn verdicts(mut replies: &[u8]) -> Vec<String> {
    let mut verdicts = Vec::new();
    while !replies.is_empty() {
        let end = replies.windows(2).position(|pair| pair == b"\r\n");
        let line = take(&mut replies, end.expect("a reply has an end"));
        let line = std::str::from_utf8(line).expect("a reply is text");
        let words: Vec<&str> = line.split(' ').collect();
        if let ["OK", bytes] | ["FOUND" | "RESERVED", _, bytes] = words.as_slice() {
            take(&mut replies, bytes.parse().expect("a length is a number"));
        }
        verdicts.push(verdict(line));
    }
    verdicts
}

/// Takes this number of bytes and the line end after them.
fn take<'a>(replies: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, rest) = replies.split_at(len);
    *replies = rest.strip_prefix(b"\r\n").expect("an end of line");
    taken
}

fn verdict(outcome: &str) -> String {
    if is_refusal(outcome) { outcome.to_owned() } else { "accepted".to_owned() }
}

#[test]
fn beanstalkd_says_what_the_table_says() {
    let Some(beanstalkd) = Beanstalkd::start() else {
        return;
    };
    let mut wrong = Vec::new();
    for row in Row::all() {
        match row.known_to {
            KnownTo::Ours => continue,
            KnownTo::Since13 if !beanstalkd.since_13 => continue,
            KnownTo::Since13 | KnownTo::Beanstalkd => {}
        }
        let expected: Vec<String> = row.outcomes.iter().map(|it| verdict(it)).collect();
        let found = verdicts(&beanstalkd.say(&row.input));
        if found != expected {
            wrong.push(format!("{}\n    but {found:?}", row.text));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The pieces of random inputs. No piece is a command that waits, and none has a CR except before an LF: the table covers
/// both.
const PIECES: &[&[u8]] = &[
    b"put 0 0 1 5\r\nhello\r\n",
    b"put 0 0 1 5\r\nhello world\r\n",
    b"put 0 0 1 20\r\n",
    b"put 0 0 1 70 \r\n",
    b"put 0 0 1 66000\r\n",
    b"hello",
    b"\r\n",
    b"\r\n",
    b"\r\n",
    b"\n",
    b"\0",
    b" ",
    b" 7",
    b"-",
    b"x",
    b"delete ",
    b"delete 7\r\n",
    b"release 1 2 3\r\n",
    b"bury ",
    b"touch 0",
    b"reserve-with-timeout 0",
    b"reserve-job",
    b"peek",
    b"peek-ready",
    b"kick",
    b"kick-job ",
    b"kick  +3",
    b"stats",
    b"stats-tube default",
    b"stats-job 99",
    b"use ",
    b"use a\r\n",
    b"watch b\r\n",
    b"ignore default",
    b"list-tubes",
    b"list-tube-used\r\n",
    b"pause-tube",
    b"pause-tube zz 1\r\n",
];

#[test]
fn random_sequences_come_to_the_same() {
    let Some(beanstalkd) = Beanstalkd::start() else {
        return;
    };
    for seed in 0..1000 {
        let mut chance = Chance::new(seed);
        let mut input = Vec::new();
        // Lines stay well below 224 bytes; the table covers that limit.
        while input.len() < 150 {
            let piece = chance.below(u64::try_from(PIECES.len()).expect("a small number"));
            let piece = usize::try_from(piece).expect("a small number");
            input.extend_from_slice(PIECES.get(piece).expect("it is one of them"));
        }
        if chance.below(4) == 0 {
            input.resize(input.len() + 300, b'y');
        }
        input.extend_from_slice(b"\r\nlist-tube-used\r\n");
        let ours: Vec<String> = Client::of([input.as_slice()])
            .outcomes
            .iter()
            .map(|outcome| verdict(outcome))
            .collect();
        let theirs = verdicts(&beanstalkd.say(&input));
        assert_eq!(ours, theirs, "seed {seed}: {}", input.escape_ascii());
    }
}

/// Intentional differences: with each of these inputs, a client of beanstalkd waits for a reply.
#[test]
fn beanstalkd_still_waits_where_the_table_says_so() {
    let Some(beanstalkd) = Beanstalkd::start() else {
        return;
    };
    let long = |len| [b"x".repeat(len).as_slice(), b"\r\nstats\r\n"].concat();
    for (input, ours, theirs) in [
        (b"stats\rx\r\n".to_vec(), &["BAD_FORMAT"][..], &[][..]),
        (b"\r\r\nstats\r\n".to_vec(), &["UNKNOWN_COMMAND", "accepted"], &[]),
        (long(223), &["BAD_FORMAT", "accepted"], &["BAD_FORMAT"]),
        (long(447), &["BAD_FORMAT", "accepted"], &["BAD_FORMAT"]),
    ] {
        let found = Client::of([input.as_slice()]).outcomes;
        let found: Vec<String> = found.iter().map(|it| verdict(it)).collect();
        assert_eq!(found, ours, "{}", input.escape_ascii());
        let found = verdicts(&beanstalkd.say(&input));
        assert_eq!(found, theirs, "{}", input.escape_ascii());
    }
}

/// Clients read the whole block of statistics, so sexton has the same keys as beanstalkd, in the same order.
#[test]
fn the_servers_statistics_have_the_keys_of_beanstalkd() {
    let Some(beanstalkd) = Beanstalkd::start() else {
        return;
    };
    let keys = |yaml: &[u8]| -> Vec<String> {
        String::from_utf8_lossy(yaml)
            .lines()
            .filter_map(|line| Some(line.split_once(": ")?.0.to_owned()))
            .collect()
    };
    let theirs = keys(&beanstalkd.say(b"stats\r\n"));
    assert_eq!(keys(&server().to_yaml()), theirs);
}

const JOB: Job<'static> = Job { id: 1, body: b"hello" };

const FRESH: JobStats<'static> = JobStats {
    id: 1,
    tube: b"2010",
    state: JobState::Ready,
    priority: 7,
    age: 0,
    delay: 0,
    ttr: 60,
    time_left: 0,
    file: 0,
    reserves: 0,
    timeouts: 0,
    releases: 0,
    buries: 0,
    kicks: 0,
};

const PAUSED_ONCE: TubeStats<'static> = TubeStats {
    name: b"2010",
    jobs: JobCounts { urgent: 1, ready: 1, reserved: 0, delayed: 0, buried: 0 },
    total_jobs: 1,
    using: 1,
    watching: 1,
    waiting: 0,
    deletes: 0,
    pauses: 1,
    pause: 0,
    pause_time_left: 0,
};

/// Returns the commands in a job's life, with their replies.
fn life() -> Vec<(&'static str, Reply<'static>)> {
    vec![
        ("use 2010", Reply::Using(b"2010")),
        ("put 7 0 60 5\r\nhello", Reply::Inserted(1)),
        ("stats-job 1", Reply::JobStats(FRESH)),
        ("watch 2010", Reply::Watching(2)),
        ("ignore default", Reply::Watching(1)),
        ("ignore 2010", Reply::NotIgnored),
        ("reserve", Reply::Reserved(JOB)),
        ("bury 1 9", Reply::Buried),
        ("peek-buried", Reply::Found(JOB)),
        ("kick-job 1", Reply::JobKicked),
        ("kick 1", Reply::Kicked(0)),
        ("list-tubes", Reply::Tubes(vec![b"default", b"2010"])),
        ("list-tubes-watched", Reply::Tubes(vec![b"2010"])),
        ("pause-tube 2010 0", Reply::Paused),
        ("stats-tube 2010", Reply::TubeStats(PAUSED_ONCE)),
        ("peek 1", Reply::Found(JOB)),
        ("reserve-job 1", Reply::Reserved(JOB)),
        ("touch 1", Reply::Touched),
        ("release 1 3 0", Reply::Released),
        ("delete 1", Reply::Deleted),
        ("delete 1", Reply::NotFound),
        ("reserve-with-timeout 0", Reply::TimedOut),
    ]
}

#[test]
fn the_replies_to_a_jobs_life_are_those_of_beanstalkd() {
    let Some(beanstalkd) = Beanstalkd::start() else {
        return;
    };
    let mut input = Vec::new();
    let mut ours = Vec::new();
    for (line, reply) in life() {
        input.extend_from_slice(line.as_bytes());
        input.extend_from_slice(b"\r\n");
        encode(&reply, &mut ours);
    }
    let mut ours = String::from_utf8(ours).expect("these replies are text");
    let mut theirs = String::from_utf8(beanstalkd.say(&input)).expect("these replies are text");
    if !beanstalkd.since_13 {
        // sexton does not quote names, so the lengths of its blocks are ignored, and so are quotes.
        for replies in [&mut ours, &mut theirs] {
            let lines = replies.lines().filter(|line| !line.starts_with("OK "));
            *replies = lines.collect::<Vec<_>>().join("\n").replace('"', "");
        }
    }
    assert_eq!(ours, theirs);
}
