//! The statistics of a job, a tube and the server: the keys of beanstalkd 1.13, in its order and with its quoting.
//!
//! Clients compare these maps as a whole, so no key may be added or removed.

use crate::beanstalk::command::Counted;
use crate::beanstalk::decimal::put_number;
use std::time::Duration;

/// The statistics of a job, for `stats-job`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobStats<'a> {
    /// The job's id.
    pub id: u64,
    /// The job's tube.
    pub tube: &'a [u8],
    /// The job's state.
    pub state: JobState,
    /// The priority; 0 is the most urgent.
    pub priority: u32,
    /// Seconds since the job was put.
    pub age: u64,
    /// The most recent delay, in seconds.
    pub delay: u64,
    /// The duration of a reservation, in seconds.
    pub ttr: u64,
    /// Seconds left of the reservation or the delay; 0 if there is neither.
    pub time_left: u64,
    /// The index of the binlog file that contains the job. This server always reports 0.
    pub file: u64,
    /// The number of times the job was reserved.
    pub reserves: u64,
    /// The number of times a reservation of the job expired.
    pub timeouts: u64,
    /// The number of times the job was released.
    pub releases: u64,
    /// The number of times the job was buried.
    pub buries: u64,
    /// The number of times the job was kicked.
    pub kicks: u64,
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// Can be reserved.
    Ready,
    /// Becomes ready later.
    Delayed,
    /// Reserved by a client.
    Reserved,
    /// Set aside until it is kicked.
    Buried,
    /// Deleted, with its key still reserved. This state occurs only in `INSERTED`.
    Deleted,
}

impl JobState {
    /// Returns the word for the state, as used in statistics. `INSERTED` contains it in upper case.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Delayed => "delayed",
            Self::Reserved => "reserved",
            Self::Buried => "buried",
            Self::Deleted => "deleted",
        }
    }
}

/// The number of jobs in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// Ready, with a priority below 1024.
    pub urgent: u64,
    /// Ready, including the urgent ones.
    pub ready: u64,
    /// Reserved.
    pub reserved: u64,
    /// Delayed.
    pub delayed: u64,
    /// Buried.
    pub buried: u64,
}

/// The statistics of a tube, for `stats-tube`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TubeStats<'a> {
    /// The tube's name.
    pub name: &'a [u8],
    /// The number of jobs now in the tube, by state.
    pub jobs: JobCounts,
    /// The number of jobs put so far.
    pub total_jobs: u64,
    /// The number of connections that use the tube.
    pub using: u64,
    /// The number of connections that watch the tube.
    pub watching: u64,
    /// The number of connections that wait for a job from the tube.
    pub waiting: u64,
    /// The number of the tube's jobs deleted so far.
    pub deletes: u64,
    /// The number of times the tube was paused.
    pub pauses: u64,
    /// The length of the current pause in seconds; 0 if there is none.
    pub pause: u64,
    /// Seconds until the pause ends; 0 if there is none.
    pub pause_time_left: u64,
}

/// The statistics of the server, for `stats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStats<'a> {
    /// All current jobs.
    pub jobs: JobCounts,
    /// How often each command was received, indexed by `Counted as usize`.
    pub commands: [u64; Counted::COUNT],
    /// The number of reservations that expired.
    pub job_timeouts: u64,
    /// The number of jobs put so far.
    pub total_jobs: u64,
    /// The limit on the length of a body, in bytes.
    pub job_bytes_max: u64,
    /// The number of tubes.
    pub tubes: u64,
    /// The number of open connections.
    pub connections: u64,
    /// The number of open connections that have used `put`.
    pub producers: u64,
    /// The number of open connections that have used `reserve`, or reserved a job with `reserve-job`.
    pub workers: u64,
    /// The number of open connections that wait for a job.
    pub waiting: u64,
    /// The number of connections so far.
    pub total_connections: u64,
    /// The process id of the server.
    pub pid: u32,
    /// The version of beanstalkd whose protocol this server implements.
    pub version: &'a str,
    /// The processor time that the process has used, in user mode and in the kernel together: this server does not separate the two.
    pub user_time: Duration,
    /// The processor time used in the kernel. This server always reports 0, since `user_time` includes it.
    pub system_time: Duration,
    /// Seconds since the listener was opened.
    pub uptime: u64,
    /// Statistics of the journal, in beanstalkd's terms.
    pub binlog: BinlogStats,
    /// Whether the server has stopped accepting jobs.
    pub draining: bool,
    /// The server's id: 16 hexadecimal digits, chosen at random at startup.
    pub id: &'a str,
    /// The name of this machine.
    pub hostname: &'a str,
    /// The version of the operating system.
    pub os: &'a str,
    /// The machine's architecture.
    pub platform: &'a str,
}

/// Statistics of the journal, in beanstalkd's terms. This server reports 0 in every field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BinlogStats {
    /// The index of the oldest file that contains jobs.
    pub oldest_index: u64,
    /// The index of the file that is being written.
    pub current_index: u64,
    /// The number of records copied to a newer file so that an older one could be removed.
    pub records_migrated: u64,
    /// The number of records written.
    pub records_written: u64,
    /// The size limit of a file, in bytes.
    pub file_bytes_max: u64,
}

impl JobStats<'_> {
    /// Returns the YAML map, without the line end that follows it.
    pub fn to_yaml(&self) -> Vec<u8> {
        let mut yaml = Yaml::new();
        yaml.number("id", self.id);
        yaml.quoted("tube", self.tube);
        yaml.bare("state", self.state.word());
        yaml.number("pri", self.priority.into());
        yaml.number("age", self.age);
        yaml.number("delay", self.delay);
        yaml.number("ttr", self.ttr);
        yaml.number("time-left", self.time_left);
        yaml.number("file", self.file);
        yaml.number("reserves", self.reserves);
        yaml.number("timeouts", self.timeouts);
        yaml.number("releases", self.releases);
        yaml.number("buries", self.buries);
        yaml.number("kicks", self.kicks);
        yaml.output
    }
}

impl TubeStats<'_> {
    /// Returns the YAML map, without the line end that follows it.
    pub fn to_yaml(&self) -> Vec<u8> {
        let mut yaml = Yaml::new();
        yaml.quoted("name", self.name);
        yaml.jobs(self.jobs);
        yaml.number("total-jobs", self.total_jobs);
        yaml.number("current-using", self.using);
        yaml.number("current-watching", self.watching);
        yaml.number("current-waiting", self.waiting);
        yaml.number("cmd-delete", self.deletes);
        yaml.number("cmd-pause-tube", self.pauses);
        yaml.number("pause", self.pause);
        yaml.number("pause-time-left", self.pause_time_left);
        yaml.output
    }
}

impl ServerStats<'_> {
    /// Returns the YAML map, without the line end that follows it.
    pub fn to_yaml(&self) -> Vec<u8> {
        let mut yaml = Yaml::new();
        yaml.jobs(self.jobs);
        for (key, count) in COMMAND_KEYS.iter().zip(self.commands) {
            yaml.number(key, count);
        }
        yaml.number("job-timeouts", self.job_timeouts);
        yaml.number("total-jobs", self.total_jobs);
        yaml.number("max-job-size", self.job_bytes_max);
        yaml.number("current-tubes", self.tubes);
        yaml.number("current-connections", self.connections);
        yaml.number("current-producers", self.producers);
        yaml.number("current-workers", self.workers);
        yaml.number("current-waiting", self.waiting);
        yaml.number("total-connections", self.total_connections);
        yaml.number("pid", self.pid.into());
        yaml.quoted("version", self.version.as_bytes());
        yaml.bare("rusage-utime", &seconds(self.user_time));
        yaml.bare("rusage-stime", &seconds(self.system_time));
        yaml.number("uptime", self.uptime);
        yaml.number("binlog-oldest-index", self.binlog.oldest_index);
        yaml.number("binlog-current-index", self.binlog.current_index);
        yaml.number("binlog-records-migrated", self.binlog.records_migrated);
        yaml.number("binlog-records-written", self.binlog.records_written);
        yaml.number("binlog-max-size", self.binlog.file_bytes_max);
        yaml.bare("draining", if self.draining { "true" } else { "false" });
        yaml.bare("id", self.id);
        yaml.quoted("hostname", self.hostname.as_bytes());
        yaml.quoted("os", self.os.as_bytes());
        yaml.quoted("platform", self.platform.as_bytes());
        yaml.output
    }
}

/// Pairs each count with the name of its command.
pub(crate) fn named(
    counts: impl IntoIterator<Item = u64>,
) -> impl Iterator<Item = (&'static str, u64)> {
    let names = COMMAND_KEYS.into_iter();
    let names = names.map(|key| key.strip_prefix("cmd-").unwrap_or(key));
    names.zip(counts)
}

/// The keys of the counted commands, in the order of [`Counted`].
const COMMAND_KEYS: [&str; Counted::COUNT] = [
    "cmd-put",
    "cmd-peek",
    "cmd-peek-ready",
    "cmd-peek-delayed",
    "cmd-peek-buried",
    "cmd-reserve",
    "cmd-reserve-with-timeout",
    "cmd-delete",
    "cmd-release",
    "cmd-use",
    "cmd-watch",
    "cmd-ignore",
    "cmd-bury",
    "cmd-kick",
    "cmd-touch",
    "cmd-stats",
    "cmd-stats-job",
    "cmd-stats-tube",
    "cmd-list-tubes",
    "cmd-list-tube-used",
    "cmd-list-tubes-watched",
    "cmd-pause-tube",
];

fn seconds(time: Duration) -> String {
    format!("{}.{:06}", time.as_secs(), time.subsec_micros())
}

/// A one-level YAML map under construction.
struct Yaml {
    output: Vec<u8>,
}

impl Yaml {
    fn new() -> Self {
        Self { output: b"---\n".to_vec() }
    }

    fn jobs(&mut self, jobs: JobCounts) {
        self.number("current-jobs-urgent", jobs.urgent);
        self.number("current-jobs-ready", jobs.ready);
        self.number("current-jobs-reserved", jobs.reserved);
        self.number("current-jobs-delayed", jobs.delayed);
        self.number("current-jobs-buried", jobs.buried);
    }

    fn number(&mut self, key: &str, number: u64) {
        self.key(key);
        put_number(&mut self.output, number);
        self.output.push(b'\n');
    }

    fn bare(&mut self, key: &str, word: &str) {
        self.key(key);
        self.output.extend_from_slice(word.as_bytes());
        self.output.push(b'\n');
    }

    /// Adds a quoted value, for text that could be read as a number without quotes.
    fn quoted(&mut self, key: &str, text: &[u8]) {
        self.key(key);
        self.output.push(b'"');
        for byte in text {
            if matches!(byte, b'"' | b'\\') {
                self.output.push(b'\\');
            }
            self.output.push(*byte);
        }
        self.output.extend_from_slice(b"\"\n");
    }

    fn key(&mut self, key: &str) {
        self.output.extend_from_slice(key.as_bytes());
        self.output.extend_from_slice(b": ");
    }
}
