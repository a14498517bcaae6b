//! Encoding of replies.

use sexton_wire::beanstalk::stats::{BinlogStats, JobCounts};
use sexton_wire::beanstalk::{
    Counted, Job, JobState, JobStats, Reply, ReserveMode, ServerStats, TubeStats, encode,
};
use std::time::Duration;

fn bytes(reply: &Reply<'_>) -> String {
    let mut output = b"before".to_vec();
    encode(reply, &mut output);
    let output = String::from_utf8(output).expect("these replies are text");
    let reply = output.strip_prefix("before").expect("the job is added after the others");
    reply.to_owned()
}

#[test]
fn replies_are_the_bytes_that_clients_know() {
    let job = Job { id: 7, body: b"hello" };
    let empty = Job { id: 8, body: b"" };
    for (reply, expected) in [
        (Reply::Inserted(u64::MAX), "INSERTED 18446744073709551615\r\n"),
        (Reply::ExpectedCrlf, "EXPECTED_CRLF\r\n"),
        (Reply::JobTooBig, "JOB_TOO_BIG\r\n"),
        (Reply::Draining, "DRAINING\r\n"),
        (Reply::Using(b"default"), "USING default\r\n"),
        (Reply::Reserved(job), "RESERVED 7 5\r\nhello\r\n"),
        (Reply::Reserved(empty), "RESERVED 8 0\r\n\r\n"),
        (Reply::DeadlineSoon, "DEADLINE_SOON\r\n"),
        (Reply::TimedOut, "TIMED_OUT\r\n"),
        (Reply::Deleted, "DELETED\r\n"),
        (Reply::Released, "RELEASED\r\n"),
        (Reply::Buried, "BURIED\r\n"),
        (Reply::Touched, "TOUCHED\r\n"),
        (Reply::Watching(2), "WATCHING 2\r\n"),
        (Reply::NotIgnored, "NOT_IGNORED\r\n"),
        (Reply::Found(job), "FOUND 7 5\r\nhello\r\n"),
        (Reply::Kicked(0), "KICKED 0\r\n"),
        (Reply::JobKicked, "KICKED\r\n"),
        (Reply::Paused, "PAUSED\r\n"),
        (Reply::NotFound, "NOT_FOUND\r\n"),
        (Reply::OutOfMemory, "OUT_OF_MEMORY\r\n"),
        (Reply::InternalError, "INTERNAL_ERROR\r\n"),
        (Reply::BadFormat, "BAD_FORMAT\r\n"),
        (Reply::UnknownCommand, "UNKNOWN_COMMAND\r\n"),
        (Reply::Tubes(vec![]), "OK 4\r\n---\n\r\n"),
        (Reply::Tubes(vec![b"default", b"1"]), "OK 18\r\n---\n- default\n- 1\n\r\n"),
    ] {
        assert_eq!(bytes(&reply), expected, "{reply:?}");
    }
}

#[test]
fn replies_of_the_extensions_are_the_bytes_that_their_clients_know() {
    let jobs = vec![Job { id: 1, body: b"hello" }, Job { id: 2, body: b"" }];
    let before = |state, priority| Reply::InsertedBefore { id: 7, state, priority };
    for (reply, expected) in [
        (before(JobState::Ready, None), "INSERTED 7 READY\r\n"),
        (before(JobState::Delayed, Some(10)), "INSERTED 7 DELAYED 10\r\n"),
        (before(JobState::Deleted, None), "INSERTED 7 DELETED\r\n"),
        (Reply::UsingMode(ReserveMode::Fifo), "USING fifo\r\n"),
        (Reply::UsingMode(ReserveMode::Weighted), "USING weighted\r\n"),
        (
            Reply::ReservedBatch(jobs),
            "RESERVED_BATCH 2\r\nRESERVED 1 5\r\nhello\r\nRESERVED 2 0\r\n\r\n",
        ),
        (Reply::ReservedBatch(vec![]), "RESERVED_BATCH 0\r\n"),
        (Reply::DeletedBatch { deleted: 2, absent: 1 }, "DELETED_BATCH 2 1\r\n"),
        (Reply::Flushed(3), "FLUSHED 3\r\n"),
    ] {
        assert_eq!(bytes(&reply), expected, "{reply:?}");
    }
}

#[test]
fn a_body_may_hold_any_bytes() {
    let body: Vec<u8> = (0..=255).collect();
    let mut output = Vec::new();
    encode(&Reply::Found(Job { id: 1, body: &body }), &mut output);
    assert_eq!(output, [b"FOUND 1 256\r\n", body.as_slice(), b"\r\n"].concat());
}

#[test]
fn a_jobs_statistics_have_their_keys_in_order() {
    let stats = JobStats {
        id: 1,
        tube: b"2010",
        state: JobState::Reserved,
        priority: 3,
        age: 4,
        delay: 5,
        ttr: 6,
        time_left: 7,
        file: 8,
        reserves: 9,
        timeouts: 10,
        releases: 11,
        buries: 12,
        kicks: 13,
    };
    let block = "---\nid: 1\ntube: \"2010\"\nstate: reserved\npri: 3\nage: 4\ndelay: 5\nttr: 6\ntime-left: 7\nfile: 8\n\
                 reserves: 9\ntimeouts: 10\nreleases: 11\nburies: 12\nkicks: 13\n";
    assert_eq!(bytes(&Reply::JobStats(stats)), format!("OK {}\r\n{block}\r\n", block.len()));
}

const JOBS: JobCounts = JobCounts { urgent: 1, ready: 2, reserved: 3, delayed: 4, buried: 5 };

#[test]
fn a_tubes_statistics_have_their_keys_in_order() {
    let stats = TubeStats {
        name: b"default",
        jobs: JOBS,
        total_jobs: 6,
        using: 7,
        watching: 8,
        waiting: 9,
        deletes: 10,
        pauses: 11,
        pause: 12,
        pause_time_left: 13,
    };
    let block = "---\nname: \"default\"\ncurrent-jobs-urgent: 1\ncurrent-jobs-ready: 2\ncurrent-jobs-reserved: 3\n\
                 current-jobs-delayed: 4\ncurrent-jobs-buried: 5\ntotal-jobs: 6\ncurrent-using: 7\n\
                 current-watching: 8\ncurrent-waiting: 9\ncmd-delete: 10\ncmd-pause-tube: 11\npause: 12\n\
                 pause-time-left: 13\n";
    assert_eq!(bytes(&Reply::TubeStats(stats)), format!("OK {}\r\n{block}\r\n", block.len()));
}

/// Returns a server's statistics in which every number is different.
pub(crate) fn server() -> ServerStats<'static> {
    let mut commands = [0; Counted::COUNT];
    for (count, number) in commands.iter_mut().zip(100..) {
        *count = number;
    }
    ServerStats {
        jobs: JOBS,
        commands,
        job_timeouts: 6,
        total_jobs: 7,
        job_bytes_max: 65_535,
        tubes: 8,
        connections: 9,
        producers: 10,
        workers: 11,
        waiting: 12,
        total_connections: 13,
        pid: 14,
        version: "1.13",
        user_time: Duration::from_micros(1_000_015),
        system_time: Duration::from_millis(2500),
        uptime: 16,
        binlog: BinlogStats {
            oldest_index: 17,
            current_index: 18,
            records_migrated: 19,
            records_written: 20,
            file_bytes_max: 21,
        },
        draining: true,
        id: "0123456789abcdef",
        hostname: "host",
        os: "#1 \"SMP\"",
        platform: "x86_64",
    }
}

#[test]
fn the_servers_statistics_have_their_keys_in_order() {
    let block = "---\ncurrent-jobs-urgent: 1\ncurrent-jobs-ready: 2\ncurrent-jobs-reserved: 3\n\
                 current-jobs-delayed: 4\ncurrent-jobs-buried: 5\ncmd-put: 100\ncmd-peek: 101\ncmd-peek-ready: 102\n\
                 cmd-peek-delayed: 103\ncmd-peek-buried: 104\ncmd-reserve: 105\ncmd-reserve-with-timeout: 106\n\
                 cmd-delete: 107\ncmd-release: 108\ncmd-use: 109\ncmd-watch: 110\ncmd-ignore: 111\ncmd-bury: 112\n\
                 cmd-kick: 113\ncmd-touch: 114\ncmd-stats: 115\ncmd-stats-job: 116\ncmd-stats-tube: 117\n\
                 cmd-list-tubes: 118\ncmd-list-tube-used: 119\ncmd-list-tubes-watched: 120\ncmd-pause-tube: 121\n\
                 job-timeouts: 6\ntotal-jobs: 7\nmax-job-size: 65535\ncurrent-tubes: 8\ncurrent-connections: 9\n\
                 current-producers: 10\ncurrent-workers: 11\ncurrent-waiting: 12\ntotal-connections: 13\npid: 14\n\
                 version: \"1.13\"\nrusage-utime: 1.000015\nrusage-stime: 2.500000\nuptime: 16\n\
                 binlog-oldest-index: 17\nbinlog-current-index: 18\nbinlog-records-migrated: 19\n\
                 binlog-records-written: 20\nbinlog-max-size: 21\ndraining: true\nid: 0123456789abcdef\n\
                 hostname: \"host\"\nos: \"#1 \\\"SMP\\\"\"\nplatform: \"x86_64\"\n";
    assert_eq!(
        bytes(&Reply::ServerStats(Box::new(server()))),
        format!("OK {}\r\n{block}\r\n", block.len())
    );
}

/// The commands are listed in the order of their numbers.
#[test]
fn each_command_is_counted_under_its_own_key() {
    for (counted, key) in [
        (Counted::Put, "cmd-put"),
        (Counted::ReserveWithTimeout, "cmd-reserve-with-timeout"),
        (Counted::Delete, "cmd-delete"),
        (Counted::Use, "cmd-use"),
        (Counted::Bury, "cmd-bury"),
        (Counted::Touch, "cmd-touch"),
        (Counted::Stats, "cmd-stats"),
        (Counted::ListTubeUsed, "cmd-list-tube-used"),
        (Counted::ListTubesWatched, "cmd-list-tubes-watched"),
        (Counted::PauseTube, "cmd-pause-tube"),
    ] {
        let yaml = ServerStats {
            commands: std::array::from_fn(|at| u64::from(at == counted as usize)),
            ..server()
        }
        .to_yaml();
        let yaml = String::from_utf8(yaml).expect("UTF-8");
        let found: Vec<&str> =
            yaml.lines().filter(|line| line.starts_with("cmd-") && line.ends_with(": 1")).collect();
        assert_eq!(found, [format!("{key}: 1")]);
    }
    assert_eq!(Counted::PauseTube as usize, Counted::COUNT - 1);
}
