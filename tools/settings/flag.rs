//! The settings of `sexton serve` with their defaults, and the node configuration made from them.
//!
//! Each setting has one name, written `--lock-entries` as a flag, `lock-entries` in the file, `SEXTON_LOCK_ENTRIES` in the environment.
//! The code here does not distinguish these sources.

use crate::report::Failure;
use crate::size;
use crate::span::{milliseconds, seconds};
use clap::{Args, ValueEnum};
use sexton::actors::{Rules, dispatch, lease, lock, process, queue};
use sexton::config::{
    Address, BeanstalkConfig, Config, HTTP_PORT, HttpConfig, KeeperProgram, LOCKSERVER_PORT,
    LockserverConfig, LongWidth, Network, parse_socket,
};
use sexton::persist::journal::Fsync;
use sexton::spine::checkpoint;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// The values of all settings.
#[derive(Args, Debug)]
pub(crate) struct Settings {
    /// Read settings from a TOML file, with the names of these flags as keys; `sexton config` shows the settings that result
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    #[arg(
        long,
        value_name = "DIR",
        help = "The data directory [env: SEXTON_DATA] [default: $XDG_STATE_HOME/sexton or ~/.local/state/sexton]"
    )]
    data: Option<PathBuf>,

    /// Keep no files: everything is lost when the process ends
    #[arg(long, conflicts_with = "data")]
    memory: bool,

    /// When changes are synced to disk: always (before the answer), interval:MS, or never
    #[arg(long, value_name = "WHEN", default_value = "always", value_parser = parse_fsync, conflicts_with = "memory")]
    fsync: Fsync,

    /// Address of the LockServer listener, or off; port 0 picks a free port
    #[arg(long, value_name = "ADDR", default_value_t = default_address(LOCKSERVER_PORT))]
    lockserver: Listener,

    /// Address of the beanstalkd listener, unix:PATH for a Unix socket, or off; port 0 picks a free port
    #[arg(long, value_name = "ADDR", default_value_t = default_beanstalk())]
    beanstalk: BeanstalkSetting,

    /// Network whose hosts may use the beanstalkd listener besides loopback, such as 10.0.0.0/8; repeatable
    #[arg(long = "beanstalk-hosts", value_name = "NETWORK")]
    beanstalk_hosts: Vec<Network>,

    /// The maximum number of beanstalkd connections at a time; more are refused
    #[arg(long, value_name = "N", default_value_t = 16_384)]
    pub(crate) beanstalk_connections: u32,

    /// The maximum size of a job's body, in bytes; larger bodies are refused
    #[arg(long, value_name = "BYTES", default_value_t = 65_535)]
    job_bytes: u32,

    /// The maximum number of jobs in all queues together; more are refused
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    jobs: u32,

    /// The maximum size of the commands and other texts of all processes, of all leases, and of all tasks, in bytes each; more are refused
    #[arg(long, value_name = "BYTES", default_value_t = 512 << 20)]
    text_bytes: u64,

    /// Address of the HTTP listener, or off; port 0 picks a free port
    #[arg(long, value_name = "ADDR", default_value_t = default_address(HTTP_PORT))]
    http: Listener,

    /// Mode of the Unix socket, such as 0660; every user who can connect is served [default: 0600, or 0660 with --socket-group]
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    socket_mode: Option<Mode>,

    /// Group of the Unix socket, by name or number; its members may use the coordinator
    #[arg(long, value_name = "GROUP", value_parser = parse_group)]
    socket_group: Option<Group>,

    /// File with the token that HTTP requests over TCP must carry; required if --http is not on loopback
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Certificate chain for TLS on the HTTP listener, in PEM, the server's own certificate first; needs --tls-key
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,

    /// Host name that HTTP requests over TCP may use for this machine, besides its addresses and localhost; repeatable
    #[arg(long = "http-host", value_name = "NAME")]
    http_hosts: Vec<String>,

    /// File of hosts that may use LockServer: one address or prefix per line, # for comments [default: loopback]
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,

    /// The maximum number of LockServer connections at a time; more are refused
    #[arg(long, value_name = "N", default_value_t = 4096)]
    pub(crate) lockserver_connections: u32,

    /// Close LockServer connections that have been idle for this long; off for no limit
    #[arg(long, value_name = "SPAN", default_value = "off", value_parser = parse_idle)]
    lockserver_idle: Idle,

    /// Whether high or low priority numbers go first
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = First::High)]
    lockserver_priority: First,

    /// Size of `long` in the statistics reply, in bytes: 4, as on 32-bit machines, or 8
    #[arg(long, value_name = "BYTES", default_value = "4", value_parser = ["4", "8"])]
    lockserver_long: String,

    /// The maximum number of lock owners and waiters together; further requests are refused
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    lock_entries: u32,

    /// Take a snapshot after this many changes; at startup, the changes after the last snapshot are replayed [default: after
    /// 200000 or 64 MiB of changes, but not before they are as large as the last snapshot]
    #[arg(long, value_name = "N")]
    checkpoint_every: Option<u64>,

    /// How long the journal is kept after a snapshot has made it unnecessary, so that `sexton replay` and `sexton inspect` show what
    /// happened
    #[arg(long, value_name = "SPAN", value_parser = milliseconds, default_value = "1d")]
    journal_kept: u64,

    /// The maximum size of what --journal-kept keeps; 0 keeps nothing
    #[arg(long, value_name = "SIZE", value_parser = size::bytes, default_value = "256MiB")]
    journal_kept_max: u64,

    /// What to do with services at a clean stop of the coordinator: stop ends them, leave keeps them running
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = OnStop::Stop)]
    pub(crate) on_stop: OnStop,

    /// Print each LockServer command and its answer to standard error
    #[arg(short = 'd', long)]
    pub(crate) debug: bool,

    /// What to log to standard error: off, error, warn, info, debug, trace; also by module, as in `info,sexton::persist=debug`
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = parse_log)]
    pub(crate) log: Targets,

    /// How log lines are written: text for people, json for programs
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

/// What happens to services at a clean stop of the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnStop {
    Stop,
    Leave,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum First {
    High,
    Low,
}

/// The address of a listener, or off.
#[derive(Clone, Copy, Debug)]
enum Listener {
    At(SocketAddr),
    Off,
}

/// The address of the beanstalkd listener; `None` if it is off.
#[derive(Clone, Debug)]
struct BeanstalkSetting(Option<Address>);

impl std::str::FromStr for BeanstalkSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self(None)),
            text => text.parse().map(|address| Self(Some(address))).map_err(|_| {
                "expected an address and port such as 127.0.0.1:11300, unix:PATH, or off".to_owned()
            }),
        }
    }
}

impl std::fmt::Display for BeanstalkSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("off"),
        }
    }
}

fn default_beanstalk() -> BeanstalkSetting {
    BeanstalkSetting(Some(BeanstalkConfig::default().address))
}

/// How long a connection may be silent; `None` for no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle(Option<Duration>);

/// The mode of the Unix socket.
#[derive(Clone, Copy, Debug)]
struct Mode(u32);

fn parse_mode(text: &str) -> Result<Mode, String> {
    let mode = u32::from_str_radix(text, 8);
    mode.map(Mode).map_err(|_| "expected a mode in octal, such as 0660".to_owned())
}

/// The group of the Unix socket, by its GID.
#[derive(Clone, Copy, Debug)]
struct Group(u32);

/// Parses a GID, or the name of a group in `/etc/group`. The error is a message.
fn parse_group(text: &str) -> Result<Group, String> {
    let named = || {
        let groups = std::fs::read_to_string("/etc/group").ok()?;
        let of = |line: &str| line.strip_prefix(text)?.strip_prefix(':').map(str::to_owned);
        let rest = groups.lines().find_map(of)?;
        rest.split(':').nth(1)?.parse().ok()
    };
    let group = text.parse().ok().or_else(named).map(Group);
    group.ok_or_else(|| "no such group in /etc/group; a number also works".to_owned())
}

impl std::str::FromStr for Listener {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            text => parse_socket(text).map(Self::At).ok_or_else(|| {
                "expected an address and port such as 127.0.0.1:11340, or off".to_owned()
            }),
        }
    }
}

impl std::fmt::Display for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::At(address) => address.fmt(f),
            Self::Off => f.write_str("off"),
        }
    }
}

impl Listener {
    fn address(self) -> Option<SocketAddr> {
        match self {
            Self::At(address) => Some(address),
            Self::Off => None,
        }
    }
}

fn default_address(port: u16) -> Listener {
    Listener::At(SocketAddr::from(([127, 0, 0, 1], port)))
}

/// Parses `always`, `never`, or `interval:MS`. The error is a message.
fn parse_fsync(text: &str) -> Result<Fsync, String> {
    match text.split_once(':') {
        None if text == "always" => Ok(Fsync::Always),
        None if text == "never" => Ok(Fsync::Never),
        Some(("interval", ms)) => {
            let ms: u64 =
                ms.parse().map_err(|_| format!("{ms:?} is not a number of milliseconds"))?;
            if (1..=60_000).contains(&ms) {
                Ok(Fsync::Interval(Duration::from_millis(ms)))
            } else {
                Err(format!("{ms} ms is out of range: expected 1 ms to 60000 ms"))
            }
        }
        Some(_) | None => Err("expected always, interval:MS or never".to_owned()),
    }
}

fn parse_idle(text: &str) -> Result<Idle, String> {
    match text {
        "off" => Ok(Idle(None)),
        text => match seconds(1, 31_536_000)(text) {
            Ok(seconds) => Ok(Idle(Some(Duration::from_secs(seconds)))),
            Err(_) => Err("expected 1 to 31536000 seconds, such as 90 or 5m, or off".to_owned()),
        },
    }
}

/// Parses levels separated by commas, each for all modules or for one of them. Refuses a word that is neither a level nor
/// `MODULE=LEVEL`, because [`Targets`] would take it for the name of a module, and then log only that module.
fn parse_log(text: &str) -> Result<Targets, String> {
    text.split(',').try_fold(Targets::new(), |targets, part| {
        let (module, level) = match part.split_once('=') {
            None => (None, part),
            Some((module, level)) => (Some(module), level),
        };
        let known = ["off", "error", "warn", "info", "debug", "trace"].contains(&level);
        let level = level.parse::<LevelFilter>().ok().filter(|_| known);
        let level = level.ok_or_else(|| {
            format!("{part:?} is not a level: expected off, error, warn, info, debug, trace, or MODULE=LEVEL")
        })?;
        Ok(match module {
            None => targets.with_default(level),
            Some(module) => targets.with_target(module, level),
        })
    })
}

impl Settings {
    /// Returns the node's configuration, whose values `Config::problems` has yet to check. Fails if the node needs a data directory and
    /// none can be determined.
    pub(crate) fn node(&self) -> Result<Config, Failure> {
        let data = if self.memory { None } else { Some(data_directory(self.data.as_deref())?) };
        let socket = data.as_ref().map(|data| data.join("sexton.sock"));
        let http = self.http.address();
        let lockserver = self.lockserver.address().map(|address| LockserverConfig {
            address,
            hosts: self.hosts.clone(),
            connections_max: self.lockserver_connections,
            idle: self.lockserver_idle.0,
            long: if self.lockserver_long == "4" { LongWidth::Four } else { LongWidth::Eight },
        });
        let beanstalk = self.beanstalk.0.clone().map(|address| BeanstalkConfig {
            address,
            hosts: self.beanstalk_hosts.clone(),
            connections_max: self.beanstalk_connections,
            job_bytes_max: self.job_bytes,
        });
        Ok(Config {
            checkpoints: checkpoint::Rules {
                history_ms: self.journal_kept,
                history_bytes_max: self.journal_kept_max,
                ..self
                    .checkpoint_every
                    .map_or_else(checkpoint::Rules::default, checkpoint::Rules::every)
            },
            keeper: if data.is_some() { KeeperProgram::Own } else { KeeperProgram::None },
            is_init: std::process::id() == 1,
            data,
            fsync: self.fsync,
            rules: self.rules(),
            lockserver,
            beanstalk,
            http: (http.is_some() || socket.is_some()).then(|| HttpConfig {
                tcp: http,
                socket,
                socket_mode: self.socket_mode.map_or(
                    if self.socket_group.is_some() { 0o660 } else { 0o600 },
                    |Mode(mode)| mode,
                ),
                socket_group: self.socket_group.map(|Group(group)| group),
                token_file: self.token_file.clone(),
                tls_certificate: self.tls_cert.clone(),
                tls_key: self.tls_key.clone(),
                names: self.http_hosts.clone(),
                ..HttpConfig::default()
            }),
            ..Config::in_memory()
        })
    }

    /// Returns the limits and orders of the actors.
    fn rules(&self) -> Rules {
        Rules {
            lock: lock::Rules {
                high_first: self.lockserver_priority == First::High,
                entries_max: self.lock_entries,
                ..lock::Rules::default()
            },
            queue: queue::Rules {
                jobs_max: self.jobs,
                body_bytes_max: self.job_bytes,
                ..queue::Rules::default()
            },
            process: process::Rules { bytes_max: self.text_bytes, ..process::Rules::default() },
            lease: lease::Rules { bytes_max: self.text_bytes, ..lease::Rules::default() },
            dispatch: dispatch::Rules { bytes_max: self.text_bytes, ..dispatch::Rules::default() },
            ..Rules::default()
        }
    }
}

/// Returns `--data`, otherwise `SEXTON_DATA`, otherwise the directory that the XDG specification derives from `XDG_STATE_HOME` or
/// `HOME`. Fails if none of these is set. clap does not read `SEXTON_DATA`, because it would treat that as a conflict with `--memory`.
pub(crate) fn data_directory(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    given
        .map(Path::to_owned)
        .or_else(|| set("SEXTON_DATA"))
        .or_else(|| Some(set("XDG_STATE_HOME")?.join("sexton")))
        .or_else(|| Some(set("HOME")?.join(".local/state/sexton")))
        .ok_or_else(|| {
            Failure::usage("no data directory: give --data DIR, or set SEXTON_DATA or HOME")
        })
}

#[cfg(test)]
mod tests {
    use super::{parse_group, parse_log, parse_mode};

    #[test]
    fn a_group_is_a_number_or_a_name_that_has_one() {
        let group = |text| parse_group(text).map(|group| group.0).ok();
        assert_eq!([group("root"), group("4711")], [Some(0), Some(4711)]);
        for wrong in ["", "roo", "root:x", "no-such-group", "-1"] {
            assert_eq!(group(wrong), None, "{wrong:?}");
        }
        let mode = |text| parse_mode(text).map(|mode| mode.0).ok();
        assert_eq!([mode("0660"), mode("rw"), mode("9")], [Some(0o660), None, None]);
    }

    #[test]
    fn a_filter_is_made_of_levels() {
        for right in ["info", "off", "warn,sexton::persist=debug", "sexton=trace"] {
            assert!(parse_log(right).is_ok(), "{right:?}");
        }
        for wrong in ["", "inof", "info,", "sexton", "sexton=loud", "3", "INFO "] {
            assert!(parse_log(wrong).is_err(), "{wrong:?}");
        }
    }
}
