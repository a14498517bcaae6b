//! Every setting of a node, with its default and its bounds, all checked together before anything is opened.
//!
//! This module does not read flags or the environment: the program's `tools/settings/` turns them into these settings.

use crate::actors::Rules;
use crate::actors::process::Definition;
pub use crate::address::{Address, Listeners, Network, Opened, parse_socket};
use crate::clock::ManualClock;
use crate::persist::disk::Disk;
use crate::persist::journal::{Fsync, Sizes};
use crate::persist::snapshots::Stores;
pub use crate::ports::process::KeeperProgram;
use crate::spine::checkpoint;
use crate::spine::progress::Progress;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The default port of the LockServer listener.
pub const LOCKSERVER_PORT: u16 = 11340;
/// The default port of the beanstalkd listener.
pub const BEANSTALK_PORT: u16 = 11300;
/// The default port of the HTTP listener.
pub const HTTP_PORT: u16 = 11380;

/// The maximum length in bytes of an HTTP request's body, not counting the body of a job.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// The maximum of `job-bytes`. If jobs are on disk, the body of a job must fit into a page of a snapshot.
const JOB_BYTES_MAX: u32 = 1 << 30;
const JOB_BYTES_MAX_ON_DISK: u32 = 250_000_000;

/// The maximum length in bytes of an HTTP request's body that contains an inventory of servers.
pub const INVENTORY_BYTES_MAX: usize = 1024 * 1024;

/// A node's settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// The data directory. With `None`, the node keeps no files, and all state is lost when the process exits.
    pub data: Option<PathBuf>,
    /// When the journal is synced to disk.
    pub fsync: Fsync,
    /// The sizes of journal segments.
    pub segments: Sizes,
    /// When snapshots are taken.
    pub checkpoints: checkpoint::Rules,
    /// The maximum cost of the commands delivered and not yet answered, over all connections. Clients of LockServer and beanstalkd have a
    /// quarter of that in addition, and none of it.
    pub open_commands_max: u32,
    /// The rules of every actor.
    pub rules: Rules,
    /// The LockServer listener; `None` leaves it closed.
    pub lockserver: Option<LockserverConfig>,
    /// The beanstalkd listener; `None` leaves it closed.
    pub beanstalk: Option<BeanstalkConfig>,
    /// The HTTP listener; `None` leaves it closed.
    pub http: Option<HttpConfig>,
    /// Listeners that are open already, used instead of the configured addresses.
    pub listeners: Listeners,
    /// The clock; `None` uses the operating system's.
    pub clock: Option<ManualClock>,
    /// The program that launches processes and waits for them; with [`KeeperProgram::None`], nothing is launched.
    pub keeper: KeeperProgram,
    /// Whether this process is PID 1 and reaps the children that it inherits: see [`Processes::reap`](crate::handle::Processes::reap).
    pub is_init: bool,
    /// The services, which are kept running while they are listed here. They need a data directory and a keeper.
    pub services: Vec<Definition>,
    /// Whether a task may inject a fault into the coordinator itself (`sexton task add --inject`), to try out how tasks recover.
    pub allow_fault_injection: bool,
    /// The progress of startup; keep a clone to read it from another thread.
    pub progress: Progress,
    /// A function called after every checkpoint, even one that failed, on the snapshot thread. A checkpoint frees much memory, so the
    /// function can make the allocator return free memory to the operating system.
    pub after_checkpoint: Option<fn()>,
    /// What tests put in place of the disk.
    #[doc(hidden)]
    pub planted: Planted,
}

/// Replacements for parts of a node, with which tests make them fail.
#[doc(hidden)]
#[derive(Clone, Default)]
pub struct Planted {
    /// Wraps the disk.
    pub disk: Option<Wrapping<dyn Disk>>,
    /// Wraps the stores of snapshots.
    pub stores: Option<Wrapping<dyn Stores>>,
    /// How long a step of a snapshot may take.
    pub patience: Option<Duration>,
}

type Wrapping<T> = Arc<dyn Fn(Arc<T>) -> Arc<T> + Send + Sync>;

impl Planted {
    pub(crate) fn disk(&self, disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
        match &self.disk {
            Some(wrap) => wrap(disk),
            None => disk,
        }
    }

    pub(crate) fn stores(&self, stores: Arc<dyn Stores>) -> Arc<dyn Stores> {
        match &self.stores {
            Some(wrap) => wrap(stores),
            None => stores,
        }
    }
}

impl std::fmt::Debug for Planted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Planted").finish_non_exhaustive()
    }
}

impl Config {
    /// Returns the settings of a node with this data directory and no listeners.
    pub fn at(data: impl Into<PathBuf>) -> Self {
        Self { data: Some(data.into()), ..Self::in_memory() }
    }

    /// Returns the settings of a node without files or listeners.
    pub fn in_memory() -> Self {
        Self {
            data: None,
            fsync: Fsync::Always,
            segments: Sizes::default(),
            checkpoints: checkpoint::Rules::default(),
            open_commands_max: 65_536,
            rules: Rules::default(),
            lockserver: None,
            beanstalk: None,
            http: None,
            listeners: Listeners::default(),
            clock: None,
            keeper: KeeperProgram::None,
            is_init: false,
            services: Vec::new(),
            allow_fault_injection: false,
            progress: Progress::default(),
            after_checkpoint: None,
            planted: Planted::default(),
        }
    }

    /// Returns the settings of a node without files or listeners whose time moves only with `clock`, for tests.
    pub fn manual(clock: &ManualClock) -> Self {
        Self { clock: Some(clock.clone()), ..Self::in_memory() }
    }

    /// Returns the maximum length of a request body in bytes: enough for the largest job in base64, with the JSON around it.
    pub fn request_bytes_max(&self) -> usize {
        REQUEST_BYTES_MAX + (self.rules.queue.body_bytes_max as usize).div_ceil(3) * 4
    }

    fn check_queues(&self, check: &mut impl FnMut(bool, &'static str, String)) {
        let jobs = self.rules.queue.jobs_max;
        check(
            (1..=1 << 28).contains(&jobs),
            "jobs",
            format!("{jobs} is out of range: expected 1 to 268435456"),
        );
        let bytes = self.rules.queue.body_bytes_max;
        let bytes_max = match self.data {
            Some(_) => JOB_BYTES_MAX_ON_DISK,
            None => JOB_BYTES_MAX,
        };
        check(
            (1..=bytes_max).contains(&bytes),
            "job-bytes",
            format!("{bytes} is out of range: expected 1 to {bytes_max}"),
        );
        if let Some(listener) = &self.beanstalk {
            let most = listener.connections_max;
            check(
                (1..=1 << 20).contains(&most),
                "beanstalk-connections",
                format!("{most} is out of range: expected 1 to 1048576"),
            );
            let address = &listener.address;
            check(
                address.is_local() || !listener.hosts.is_empty(),
                "beanstalk",
                format!(
                    "{address} is not a loopback address, so it needs a list of networks: give one with --beanstalk-hosts"
                ),
            );
        }
    }

    fn check_tasks(&self, check: &mut impl FnMut(bool, &'static str, String)) {
        let flaw = self.rules.dispatch.flaw();
        check(flaw.is_none(), "tasks", flaw.unwrap_or_default());
    }

    fn check_texts(&self, check: &mut impl FnMut(bool, &'static str, String)) {
        let rules = &self.rules;
        for bytes in [rules.process.bytes_max, rules.lease.bytes_max, rules.dispatch.bytes_max] {
            check(
                (1 << 20..=1 << 40).contains(&bytes),
                "text-bytes",
                format!("{bytes} is out of range: expected 1048576 to 1099511627776"),
            );
        }
    }

    fn check_services(&self, check: &mut impl FnMut(bool, &'static str, String)) {
        let launches = self.data.is_some() && !matches!(self.keeper, KeeperProgram::None);
        check(
            self.services.is_empty() || launches,
            "services",
            "services need a data directory and a keeper".to_owned(),
        );
        for (place, fault) in Definition::check_all(&self.services) {
            let name = self.services.get(place).map_or("", |it| it.name.as_str());
            check(false, "services", format!("{name}: {fault}"));
        }
    }

    /// Returns the problems with the settings; empty if there are none.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut check = |holds: bool, setting: &'static str, words: String| {
            if !holds {
                problems.push(Problem { setting, words });
            }
        };
        if let Fsync::Interval(interval) = self.fsync {
            let bounds = Duration::from_millis(1)..=Duration::from_mins(1);
            let found = interval.as_millis();
            check(
                bounds.contains(&interval),
                "fsync",
                format!("{found} ms is out of range: expected 1 ms to 60000 ms"),
            );
        }
        let open = self.open_commands_max;
        check(
            (1024..=1 << 24).contains(&open),
            "open-commands",
            format!("{open} is out of range: expected 1024 to 16777216"),
        );
        let records = self.checkpoints.records;
        check(
            (1..=1 << 40).contains(&records),
            "checkpoint-every",
            format!("{records} entries is out of range: expected 1 to 1099511627776"),
        );
        let history = self.checkpoints.history_bytes_max;
        check(
            history <= 1 << 50,
            "journal-kept-max",
            format!("{history} bytes is out of range: expected at most 1125899906842624"),
        );
        let entries = self.rules.lock.entries_max;
        check(
            (1..=1 << 28).contains(&entries),
            "lock-entries",
            format!("{entries} is out of range: expected 1 to 268435456"),
        );
        if let Some(listener) = &self.lockserver {
            let most = listener.connections_max;
            check(
                (1..=1 << 20).contains(&most),
                "lockserver-connections",
                format!("{most} is out of range: expected 1 to 1048576"),
            );
        }
        self.check_queues(&mut check);
        self.check_tasks(&mut check);
        self.check_texts(&mut check);
        self.check_services(&mut check);
        if let Some(http) = &self.http {
            http.check(&mut check);
        }
        problems
    }
}

/// Returns whether `name` is a host name or an IP address.
fn is_name_of_a_host(name: &str) -> bool {
    let may_hold = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_name = !name.is_empty() && name.len() <= 253 && name.bytes().all(may_hold);
    is_name || name.parse::<IpAddr>().is_ok()
}

/// A setting whose value is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The setting, by the name of the program's flag.
    pub setting: &'static str,
    /// What is wrong with its value.
    pub words: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { setting, words } = self;
        write!(f, "{setting}: {words}")
    }
}

/// Settings of the LockServer listener.
#[derive(Clone, Debug)]
pub struct LockserverConfig {
    /// The address to listen on; port 0 picks a free port.
    pub address: SocketAddr,
    /// The file that lists the hosts allowed to connect; without one, only loopback is allowed.
    pub hosts: Option<PathBuf>,
    /// The maximum number of connections at a time.
    pub connections_max: u32,
    /// The maximum time a connection may be idle; `None` means no limit.
    pub idle: Option<Duration>,
    /// Width of `long` in the statistics reply.
    pub long: LongWidth,
}

impl Default for LockserverConfig {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], LOCKSERVER_PORT)),
            hosts: None,
            connections_max: 4096,
            idle: None,
            long: LongWidth::Four,
        }
    }
}

/// The size of a C `long` on the machine where LockServer ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongWidth {
    /// Four bytes: 32-bit Linux, as in 2000.
    Four,
    /// Eight bytes: 64-bit Linux.
    Eight,
}

/// Settings of the beanstalkd listener.
#[derive(Clone, Debug)]
pub struct BeanstalkConfig {
    /// The address to listen on.
    pub address: Address,
    /// Networks allowed to connect, in addition to loopback.
    pub hosts: Vec<Network>,
    /// The maximum number of connections at a time.
    pub connections_max: u32,
    /// The maximum length of a job body, in bytes.
    pub job_bytes_max: u32,
}

impl BeanstalkConfig {
    /// Returns whether a client at the address `peer` may connect.
    pub fn lets_in(&self, peer: IpAddr) -> bool {
        let is_known = |network: &Network| network.contains(peer);
        peer.to_canonical().is_loopback() || self.hosts.iter().any(is_known)
    }
}

impl Default for BeanstalkConfig {
    fn default() -> Self {
        Self {
            address: Address::Tcp(SocketAddr::from(([127, 0, 0, 1], BEANSTALK_PORT))),
            hosts: Vec::new(),
            connections_max: 16_384,
            job_bytes_max: 65_535,
        }
    }
}

/// Settings of the HTTP listener.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// The TCP address to listen on; port 0 picks a free port. `None` opens no TCP listener.
    pub tcp: Option<SocketAddr>,
    /// The path of the Unix socket to listen on; `None` opens none.
    pub socket: Option<PathBuf>,
    /// The file mode of the Unix socket. If it allows users other than the owner to connect, every user who can connect is served;
    /// otherwise, only the owner and root are.
    pub socket_mode: u32,
    /// The numeric group id of the Unix socket; `None` keeps the group of the process.
    pub socket_group: Option<u32>,
    /// A file with the token that requests over TCP must carry. Required if `tcp` is not a loopback address.
    pub token_file: Option<PathBuf>,
    /// A PEM file with the certificate chain, the server's own certificate first; it turns on TLS for TCP. Needs `tls_key`.
    pub tls_certificate: Option<PathBuf>,
    /// A PEM file with the certificate's private key.
    pub tls_key: Option<PathBuf>,
    /// Host names that requests over TCP may name in their Host header, in addition to the machine's addresses and `localhost`.
    pub names: Vec<String>,
    /// The maximum number of connections at a time, for each listener separately.
    pub connections_max: u32,
    /// The maximum number of requests that may wait at the same time for a condition, such as a granted lock or a ready job.
    pub waits_max: u32,
}

impl HttpConfig {
    fn check(&self, check: &mut impl FnMut(bool, &'static str, String)) {
        let (certificate, key) = (self.tls_certificate.is_some(), self.tls_key.is_some());
        check(
            certificate || !key,
            "tls-key",
            "there is a key but no certificate: tls-cert is missing".to_owned(),
        );
        check(
            key || !certificate,
            "tls-cert",
            "there is a certificate but no key: tls-key is missing".to_owned(),
        );
        for name in &self.names {
            check(
                is_name_of_a_host(name),
                "http-host",
                format!(
                    "{name:?} is not a host name: give it without http://, port or path, as in locks.example.org"
                ),
            );
        }
        let beyond = self.tcp.filter(|address| !address.ip().is_loopback());
        if let Some(address) = beyond {
            check(
                self.token_file.is_some(),
                "http",
                format!(
                    "{address} is not a loopback address, so it needs a token file: give one with --token-file FILE"
                ),
            );
        }
        let mode = self.socket_mode;
        check(
            mode & !0o666 == 0 && mode & 0o600 == 0o600,
            "socket-mode",
            format!("{mode:04o} is not a mode for a socket: use 0600, 0660 or 0666"),
        );
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            tcp: None,
            socket: None,
            socket_mode: 0o600,
            socket_group: None,
            token_file: None,
            tls_certificate: None,
            tls_key: None,
            names: Vec::new(),
            connections_max: 16_384,
            waits_max: 12_288,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::BeanstalkConfig;

    #[test]
    fn beanstalkd_clients_are_let_in_from_here_and_from_the_networks_named() {
        let lets_in = |hosts: &[&str], peer: &str| {
            let hosts = hosts.iter().map(|network| network.parse().unwrap());
            let config = BeanstalkConfig { hosts: hosts.collect(), ..BeanstalkConfig::default() };
            config.lets_in(peer.parse().unwrap())
        };
        for here in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert!(lets_in(&[], here) && lets_in(&["192.0.2.0/24"], here));
        }
        assert!(!lets_in(&[], "192.0.2.7") && !lets_in(&["192.0.2.0/29"], "192.0.2.8"));
        for hosts in [&["192.0.2.0/24"][..], &["::1", "::ffff:192.0.2.7"], &["0.0.0.0/0"]] {
            assert!(lets_in(hosts, "192.0.2.7") && lets_in(hosts, "::ffff:192.0.2.7"));
        }
    }
}
