//! Every setting of a node with its default and its bounds, checked all at once before anything is opened.
//!
//! Flags and environment are the program's business (`tools/settings/`); this is what they lead to.

use crate::actors::Rules;
use crate::actors::process::Definition;
pub use crate::address::{Address, Listeners, Network, Opened, parse_socket};
use crate::clock::ManualClock;
use crate::persist::journal::{Fsync, Sizes};
pub use crate::ports::process::KeeperProgram;
use crate::spine::checkpoint;
use crate::spine::progress::Progress;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// The LockServer door's own port.
pub const LOCKSERVER_PORT: u16 = 11340;
/// The beanstalkd door's own port.
pub const BEANSTALK_PORT: u16 = 11300;
/// The HTTP door's own port.
pub const HTTP_PORT: u16 = 11380;

/// The longest body of a request over HTTP, but for what a job has.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// The longest body of a request over HTTP that brings an inventory of servers.
pub const INVENTORY_BYTES_MAX: usize = 1024 * 1024;

/// A node's settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// The data directory; `None` keeps no files, and everything is gone with the process.
    pub data: Option<PathBuf>,
    /// When what was acknowledged is on disk.
    pub fsync: Fsync,
    /// How large journal segments are.
    pub segments: Sizes,
    /// When a snapshot is taken.
    pub checkpoints: checkpoint::Rules,
    /// The most commands delivered and not yet answered, over all connections.
    pub open_commands_max: u32,
    /// The rules of every actor.
    pub rules: Rules,
    /// The LockServer door; closed if `None`.
    pub lockserver: Option<LockserverConfig>,
    /// The beanstalkd door; closed if `None`.
    pub beanstalk: Option<BeanstalkConfig>,
    /// The HTTP door; closed if `None`.
    pub http: Option<HttpConfig>,
    /// Listeners that are open already, in place of the doors' addresses.
    pub listeners: Listeners,
    /// Where time comes from; the operating system's if `None`.
    pub clock: Option<ManualClock>,
    /// Which program launches processes and waits for them; none launches nothing.
    pub keeper: KeeperProgram,
    /// Whether this process is PID 1 and reaps the children that it inherits: see [`Processes::reap`](crate::handle::Processes::reap).
    pub is_init: bool,
    /// The services: what is to run as long as this has it. They need a data directory and a keeper.
    pub services: Vec<Definition>,
    /// Whether a task may ask for a fault of the coordinator itself (`sexton task add --inject`): for trying out how tasks recover.
    pub allow_fault_injection: bool,
    /// Where a start shows how far it has come: keep a clone to look at from another thread.
    pub progress: Progress,
    /// Called behind every checkpoint, on its thread: much was freed at once, which an allocator may be asked to give
    /// back.
    pub after_checkpoint: Option<fn()>,
}

impl Config {
    /// A node on this data directory, with every door closed.
    pub fn at(data: impl Into<PathBuf>) -> Self {
        Self {
            data: Some(data.into()),
            ..Self::in_memory()
        }
    }

    /// A node that keeps no files, with every door closed.
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
        }
    }

    /// A node that keeps no files, with every door closed, whose time moves when `clock` is moved: for tests.
    pub fn manual(clock: &ManualClock) -> Self {
        Self {
            clock: Some(clock.clone()),
            ..Self::in_memory()
        }
    }

    /// The longest request there may be: a job over HTTP, in base64, with what stands around it.
    pub fn request_bytes_max(&self) -> usize {
        REQUEST_BYTES_MAX + (self.rules.queue.body_bytes_max as usize).div_ceil(3) * 4
    }

    fn check_queues(&self, check: &mut impl FnMut(bool, &'static str, String)) {
        let jobs = self.rules.queue.jobs_max;
        check(
            (1..=1 << 28).contains(&jobs),
            "jobs",
            format!("{jobs} is not within 1 to 268435456"),
        );
        let bytes = self.rules.queue.body_bytes_max;
        check(
            (1..=1 << 30).contains(&bytes),
            "job-bytes",
            format!("{bytes} is not within 1 to 1073741824"),
        );
        if let Some(door) = &self.beanstalk {
            let most = door.connections_max;
            check(
                (1..=1 << 20).contains(&most),
                "beanstalk-connections",
                format!("{most} is not within 1 to 1048576"),
            );
            let address = &door.address;
            check(
                address.is_local() || !door.hosts.is_empty(),
                "beanstalk",
                format!("{address} is beyond loopback, and needs --beanstalk-hosts"),
            );
        }
    }

    fn check_tasks(&self, check: &mut impl FnMut(bool, &'static str, String)) {
        let flaw = self.rules.dispatch.flaw();
        check(flaw.is_none(), "tasks", flaw.unwrap_or_default());
    }

    fn check_services(&self, check: &mut impl FnMut(bool, &'static str, String)) {
        let launches = self.data.is_some() && !matches!(self.keeper, KeeperProgram::None);
        check(
            self.services.is_empty() || launches,
            "services",
            "there are services, which need a data directory and a keeper".to_owned(),
        );
        for (place, fault) in Definition::check_all(&self.services) {
            let name = self.services.get(place).map_or("", |it| it.name.as_str());
            check(false, "services", format!("{name}: {fault}"));
        }
    }

    /// Everything that is wrong; empty if nothing is.
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
                format!("{found} ms is not within 1 ms to 60000 ms"),
            );
        }
        let open = self.open_commands_max;
        check(
            (1024..=1 << 24).contains(&open),
            "open-commands",
            format!("{open} is not within 1024 to 16777216"),
        );
        let records = self.checkpoints.records;
        check(
            (1..=1 << 40).contains(&records),
            "checkpoint-every",
            format!("{records} entries is not within 1 to 1099511627776"),
        );
        let entries = self.rules.lock.entries_max;
        check(
            (1..=1 << 28).contains(&entries),
            "lock-entries",
            format!("{entries} is not within 1 to 268435456"),
        );
        if let Some(door) = &self.lockserver {
            let most = door.connections_max;
            check(
                (1..=1 << 20).contains(&most),
                "lockserver-connections",
                format!("{most} is not within 1 to 1048576"),
            );
        }
        self.check_queues(&mut check);
        self.check_tasks(&mut check);
        self.check_services(&mut check);
        if let Some(http) = &self.http {
            http.check(&mut check);
        }
        problems
    }
}

/// Whether a request can call a machine so.
fn is_name_of_a_host(name: &str) -> bool {
    let may_hold = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_name = !name.is_empty() && name.len() <= 253 && name.bytes().all(may_hold);
    is_name || name.parse::<IpAddr>().is_ok()
}

/// A setting that cannot be as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Which, by the name that the program's flag has.
    pub setting: &'static str,
    /// What is wrong with it.
    pub words: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { setting, words } = self;
        write!(f, "{setting}: {words}")
    }
}

/// Settings of the LockServer door.
#[derive(Clone, Debug)]
pub struct LockserverConfig {
    /// Where it listens; port 0 picks one.
    pub address: SocketAddr,
    /// The list of hosts that are let in; without one, only loopback.
    pub hosts: Option<PathBuf>,
    /// The most connections at a time.
    pub connections_max: u32,
    /// How long a connection may be silent; for ever if `None`.
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

/// How many bytes a C `long` had where LockServer ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongWidth {
    /// 32-bit Linux, as in 2000.
    Four,
    /// 64-bit Linux.
    Eight,
}

/// Settings of the beanstalkd door.
#[derive(Clone, Debug)]
pub struct BeanstalkConfig {
    /// Where it listens.
    pub address: Address,
    /// Networks that are let in, beside loopback.
    pub hosts: Vec<Network>,
    /// The most connections at a time.
    pub connections_max: u32,
    /// The longest body of a job.
    pub job_bytes_max: u32,
}

impl BeanstalkConfig {
    /// Whether a client at this address is let in.
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

/// Settings of the HTTP door.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Where it listens on TCP; port 0 picks one.
    pub tcp: Option<SocketAddr>,
    /// Where it listens as a Unix socket.
    pub socket: Option<PathBuf>,
    /// The mode of the Unix socket. Who may connect is heard, if others than its owner may; else its owner and root.
    pub socket_mode: u32,
    /// The group of the Unix socket, by number; that of the process if `None`.
    pub socket_group: Option<u32>,
    /// A file with the token that requests over TCP must carry.
    pub token_file: Option<PathBuf>,
    /// A chain of certificates in PEM, our own first: with it TCP speaks TLS. Needs `tls_key`.
    pub tls_certificate: Option<PathBuf>,
    /// The private key of the certificate, in PEM.
    pub tls_key: Option<PathBuf>,
    /// Names by which requests over TCP may call this machine, beside its addresses and `localhost`.
    pub names: Vec<String>,
    /// Connections of each listener at a time.
    pub connections_max: u32,
    /// Requests that wait for something at a time.
    pub waits_max: u32,
}

impl HttpConfig {
    fn check(&self, check: &mut impl FnMut(bool, &'static str, String)) {
        let (certificate, key) = (self.tls_certificate.is_some(), self.tls_key.is_some());
        check(
            certificate || !key,
            "tls-key",
            "there is a key and no certificate: tls-cert is missing".to_owned(),
        );
        check(
            key || !certificate,
            "tls-cert",
            "there is a certificate and no key: tls-key is missing".to_owned(),
        );
        for name in &self.names {
            check(
                is_name_of_a_host(name),
                "http-host",
                format!(
                    "{name:?} is no name of a host: it has none of http://, a port or a path, as in locks.example.org"
                ),
            );
        }
        let beyond = self.tcp.filter(|address| !address.ip().is_loopback());
        if let Some(address) = beyond {
            check(
                self.token_file.is_some(),
                "http",
                format!(
                    "{address} is beyond loopback, and needs a token file: give it one by --token-file FILE"
                ),
            );
        }
        let mode = self.socket_mode;
        check(
            mode & !0o666 == 0 && mode & 0o600 == 0o600,
            "socket-mode",
            format!("{mode:04o} is no mode of a socket: 0600, 0660 or 0666"),
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
            let config = BeanstalkConfig {
                hosts: hosts.collect(),
                ..BeanstalkConfig::default()
            };
            config.lets_in(peer.parse().unwrap())
        };
        for here in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert!(lets_in(&[], here) && lets_in(&["192.0.2.0/24"], here));
        }
        assert!(!lets_in(&[], "192.0.2.7") && !lets_in(&["192.0.2.0/29"], "192.0.2.8"));
        for hosts in [
            &["192.0.2.0/24"][..],
            &["::1", "::ffff:192.0.2.7"],
            &["0.0.0.0/0"],
        ] {
            assert!(lets_in(hosts, "192.0.2.7") && lets_in(hosts, "::ffff:192.0.2.7"));
        }
    }
}
