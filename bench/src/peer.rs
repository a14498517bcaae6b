//! The servers of a measurement. Each is started on loopback with a directory of its own; dropping it kills the server and removes the
//! directory.

use crate::codec::{self, Protocol};
use crate::failure::Failure;
use crate::job::JobProtocol;
use crate::load::now;
use crate::question::rest;
use crate::site::Site;
use rustix::param::clock_ticks_per_second;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A server that does not answer for this long has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The name of the listener for locks.
const LOCKSERVER: &str = "lockserver";

const SEXTON: &str = "sexton";
const REDIS: &str = "redis-server";
const ETCD: &str = "etcd";
const BEANSTALKD: &str = "beanstalkd";

/// A running server, and the protocol over which it is measured.
pub(crate) struct Peer<P = Protocol> {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) protocol: P,
    name: &'static str,
    again: Again,
    /// The server's directory. It is removed after the server has exited.
    directory: TempDir,
}

/// A function that builds the command that starts a server with the given directory and address.
type Again = Box<dyn Fn(&Path, SocketAddr) -> Result<Command, Failure>>;

impl<P> Drop for Peer<P> {
    fn drop(&mut self) {
        // Errors do not matter, since the server is no longer needed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn cannot(name: &str, error: impl std::fmt::Display) -> Failure {
    Failure::to(format!("start {name}"))(error)
}

/// Returns the version of the installed Redis; the error is the reason why it is unknown.
pub(crate) fn redis_version() -> Result<String, String> {
    let version = version(REDIS, "--version", |word| word.starts_with("v="))?;
    Ok(version.trim_start_matches("v=").to_owned())
}

/// Returns the version of the installed etcd; the error is the reason why it is unknown.
pub(crate) fn etcd_version() -> Result<String, String> {
    version(ETCD, "--version", is_number)
}

/// Returns the version of the installed beanstalkd; the error is the reason why it is unknown.
pub(crate) fn beanstalkd_version() -> Result<String, String> {
    version(BEANSTALKD, "-v", is_number)
}

fn is_number(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_digit())
}

/// Returns the version of a sexton program.
pub(crate) fn sexton_version(program: &Path) -> Result<String, Failure> {
    version(program, "--version", is_number).map_err(Failure::new)
}

/// Runs a program with this flag, and returns the first word of its output that satisfies `is_one`. The error describes why the program
/// could not be run, or that it printed no such word.
fn version(
    program: impl AsRef<Path>,
    flag: &str,
    is_one: impl Fn(&str) -> bool,
) -> Result<String, String> {
    let program = program.as_ref();
    let name = program.display();
    let output = Command::new(program).arg(flag).output().map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            format!("{name} is not installed")
        } else {
            format!("{name} does not start: {error}")
        }
    })?;
    let words = String::from_utf8_lossy(&output.stdout);
    let version = words.split_whitespace().find(|word| is_one(word));
    let version = version.map(str::to_owned);
    version.ok_or_else(|| format!("{name} does not print its version"))
}

impl Peer {
    /// Starts sexton with a LockServer listener. If `durable`, it syncs each change to disk before it answers; otherwise it has no files.
    pub(crate) fn sexton(durable: bool, site: &Site) -> Result<Self, Failure> {
        Self::start_sexton(Protocol::Lockserver, LOCKSERVER, (durable, site), None)
    }

    /// Starts Redis. If `durable`, it syncs its append-only file before each answer; otherwise it has no files.
    pub(crate) fn redis(durable: bool, site: &Site) -> Result<Self, Failure> {
        // `Protocol::Lockserver` is a placeholder: the Redis variant needs the digests that Redis returns when it loads the scripts.
        let mut peer = Self::start_redis(Protocol::Lockserver, durable, site)?;
        peer.protocol = keep_scripts(peer.address).map_err(|error| cannot(REDIS, error))?;
        Ok(peer)
    }

    /// Loads the scripts again if the server is Redis, which loses them in a restart; does nothing for other servers. The server must
    /// already serve requests.
    pub(crate) fn teach(&mut self) -> Result<(), Failure> {
        if self.is_redis() {
            self.protocol = keep_scripts(self.address).map_err(|error| cannot(REDIS, error))?;
        }
        Ok(())
    }
}

impl Peer<()> {
    /// Starts sexton with an HTTP listener; `durable` as for [`Peer::sexton`].
    pub(crate) fn sexton_over_http(durable: bool, site: &Site) -> Result<Self, Failure> {
        Self::start_sexton((), "http", (durable, site), None)
    }

    /// Starts a durable sexton, as [`Peer::sexton`] does, with the configuration file `config` if there is one.
    pub(crate) fn sexton_for_processes(
        config: Option<&Path>,
        site: &Site,
    ) -> Result<Self, Failure> {
        Self::start_sexton((), LOCKSERVER, (true, site), config)
    }

    /// Starts etcd with its defaults: a cluster of one that syncs each change to disk before it answers.
    pub(crate) fn etcd(site: &Site) -> Result<Self, Failure> {
        let directory = directory(&site.root())?;
        let [address, among_peers] = [free_address(), free_address()];
        let address = address.map_err(|error| cannot(ETCD, error))?;
        let among_peers = among_peers.map_err(|error| cannot(ETCD, error))?;
        let (child, mut output) = start(etcd(directory.path(), address, among_peers), ETCD)?;
        let peer = Self {
            child,
            address,
            protocol: (),
            name: ETCD,
            again: Box::new(|_, _| Err(cannot(ETCD, "restarting it is not supported"))),
            directory,
        };
        line_with(&mut output, ETCD, "serving client traffic insecurely")?;
        drain(output, ETCD)?;
        Ok(peer)
    }
}

impl Peer<JobProtocol> {
    /// Starts sexton with a beanstalkd listener; `durable` as for [`Peer::sexton`].
    pub(crate) fn sexton_for_jobs(durable: bool, site: &Site) -> Result<Self, Failure> {
        Self::start_sexton(JobProtocol::Beanstalk, "beanstalk", (durable, site), None)
    }

    /// Starts beanstalkd. If `durable`, it syncs its log before each answer; otherwise it has no files.
    pub(crate) fn beanstalkd(durable: bool, site: &Site) -> Result<Self, Failure> {
        Self::start_beanstalkd(if durable { &["-f", "0"] } else { &[] }, site)
    }

    /// Starts beanstalkd. If `durable`, it writes a log but never syncs it; otherwise it has no files.
    pub(crate) fn beanstalkd_unsynced(durable: bool, site: &Site) -> Result<Self, Failure> {
        Self::start_beanstalkd(if durable { &["-F"] } else { &[] }, site)
    }

    fn start_beanstalkd(log: &'static [&'static str], site: &Site) -> Result<Self, Failure> {
        let directory = directory(&site.root())?;
        let address = free_address().map_err(|error| cannot(BEANSTALKD, error))?;
        let command = beanstalkd(log, directory.path(), address);
        let (child, output) = start(command, BEANSTALKD)?;
        drain(output, BEANSTALKD)?;
        let peer = Self {
            child,
            address,
            protocol: JobProtocol::Beanstalk,
            name: BEANSTALKD,
            again: Box::new(move |data, address| Ok(beanstalkd(log, data, address))),
            directory,
        };
        // beanstalkd prints nothing when it is ready, so wait until it accepts a connection.
        let patience = now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            if now() > patience {
                return Err(cannot(BEANSTALKD, "it does not listen"));
            }
            rest(Duration::from_millis(1));
        }
        Ok(peer)
    }

    /// Starts Redis like [`Peer::redis`], to use its lists as queues.
    pub(crate) fn redis_lists(durable: bool, site: &Site) -> Result<Self, Failure> {
        Self::start_redis(JobProtocol::Lists, durable, site)
    }
}

impl<P> Peer<P> {
    /// Starts a killed server again, with the same directory and address. Does not wait until it serves requests.
    pub(crate) fn start_again(&mut self) -> Result<(), Failure> {
        let command = (self.again)(self.directory.path(), self.address)?;
        let (child, output) = start(command, self.name)?;
        self.child = child;
        drain(output, self.name)
    }

    /// Returns an error if the server has exited.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(cannot(self.name, format!("it ended with {status}"))),
            Err(error) => Err(cannot(self.name, error)),
        }
    }

    pub(crate) fn is_redis(&self) -> bool {
        self.name == REDIS
    }

    pub(crate) fn is_sexton(&self) -> bool {
        self.name == SEXTON
    }

    fn start_sexton(
        protocol: P,
        listener: &'static str,
        (durable, site): (bool, &Site),
        config: Option<&Path>,
    ) -> Result<Self, Failure> {
        let directory = directory(&site.root())?;
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let program = site.program()?.to_owned();
        let config = config.map(Path::to_owned);
        let again: Again = Box::new(move |data, address| {
            let mut command = sexton(&program, listener, durable.then_some(data), address);
            if let Some(config) = &config {
                command.arg("--config").arg(config);
            }
            Ok(command)
        });
        let command = again(directory.path(), any_port)?;
        let (child, mut output) = start(command, SEXTON)?;
        let mut peer = Self { child, address: any_port, protocol, name: SEXTON, again, directory };
        let ready = line_with(&mut output, SEXTON, "ready ")?;
        peer.address = ready
            .split_whitespace()
            .filter_map(|word| word.split_once('='))
            .find_map(|(name, address)| (name == listener).then(|| address.parse().ok())?)
            .ok_or_else(|| {
                cannot(SEXTON, format!("it printed no {listener} address: {ready:?}"))
            })?;
        drain(output, SEXTON)?;
        Ok(peer)
    }

    fn start_redis(protocol: P, durable: bool, site: &Site) -> Result<Self, Failure> {
        let directory = directory(&site.root())?;
        let address = free_address().map_err(|error| cannot(REDIS, error))?;
        let (child, mut output) = start(redis(durable, directory.path(), address), REDIS)?;
        let peer = Self {
            child,
            address,
            protocol,
            name: REDIS,
            again: Box::new(move |data, address| Ok(redis(durable, data, address))),
            directory,
        };
        line_with(&mut output, REDIS, "eady to accept connections")?;
        drain(output, REDIS)?;
        Ok(peer)
    }

    /// Kills the server with SIGKILL, to simulate a crash, and waits until it has exited.
    pub(crate) fn kill(&mut self) -> Result<(), Failure> {
        self.child
            .kill()
            .and_then(|()| self.child.wait())
            .map(drop)
            .map_err(Failure::to("kill a server"))
    }

    /// Returns the server's PID.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the data directory.
    pub(crate) fn data(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the server's resident memory, in bytes.
    pub(crate) fn resident(&self) -> Result<u64, Failure> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(&path)
            .map_err(|error| Failure::new(format!("failed to read {path}: {error}")))?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"))
            .and_then(|kibibytes| kibibytes.trim().parse::<u64>().ok())
            .map(|kibibytes| kibibytes * 1024)
            .ok_or_else(|| Failure::new(format!("failed to find VmRSS in {path}")))
    }

    /// Returns the processor time that the server has used so far; zero if it cannot be read.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let stat = stat.unwrap_or_default();
        // proc(5): the name, in parentheses, may itself contain parentheses; utime and stime are fields 14 and 15.
        let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
        let ticks: u64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<u64>().ok())
            .sum();
        Duration::from_millis(ticks * 1000 / clock_ticks_per_second().max(1))
    }
}

/// All listeners; a measurement enables one of them.
const LISTENERS: [&str; 3] = [LOCKSERVER, "beanstalk", "http"];

/// Returns the command that starts sexton with one listener, with its data in a directory or without files.
fn sexton(program: &Path, listener: &str, data: Option<&Path>, address: SocketAddr) -> Command {
    let mut command = Command::new(program);
    command.args(["serve", "--log", "error"]);
    for name in LISTENERS {
        let place = if name == listener { address.to_string() } else { "off".to_owned() };
        command.args([format!("--{name}"), place]);
    }
    command.env_remove("SEXTON_DATA").env_remove("NOTIFY_SOCKET");
    match data {
        Some(data) => command.arg("--data").arg(data),
        None => command.arg("--memory"),
    };
    command
}

/// Returns the command that starts Redis.
fn redis(durable: bool, directory: &Path, address: SocketAddr) -> Command {
    let mut command = Command::new(REDIS);
    command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
    command.args(["--save", "", "--dir"]).arg(directory);
    if durable {
        // Rewriting the file during the measurement would cost Redis time, so the rewrite is off.
        command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        command.args(["--auto-aof-rewrite-percentage", "0"]);
    } else {
        command.args(["--appendonly", "no"]);
    }
    command
}

/// Returns the command that starts beanstalkd; `log` has the flags that specify how its log is synced, and is empty for no log.
fn beanstalkd(log: &[&str], directory: &Path, address: SocketAddr) -> Command {
    let mut command = Command::new(BEANSTALKD);
    command.args(["-l", "127.0.0.1", "-p", &address.port().to_string()]);
    if !log.is_empty() {
        command.args(log).arg("-b").arg(directory);
    }
    command
}

/// Returns the command that starts etcd.
fn etcd(directory: &Path, address: SocketAddr, among_peers: SocketAddr) -> Command {
    let mut command = Command::new(ETCD);
    // Discards etcd's warnings about settings that are intended here.
    command.stderr(Stdio::null());
    let (own, peers) = (format!("http://{address}"), format!("http://{among_peers}"));
    command.arg("--data-dir").arg(directory);
    command.args(["--name", "one", "--logger", "zap", "--log-outputs", "stdout"]);
    command.args(["--listen-client-urls", &own, "--advertise-client-urls", &own]);
    command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
    command.args(["--initial-cluster", &format!("one={peers}")]);
    command
}

/// Creates a data directory. Dropping the returned value removes it.
pub(crate) fn directory(root: &Path) -> Result<TempDir, Failure> {
    let made = tempfile::Builder::new().prefix("sexton-bench-").tempdir_in(root);
    made.map_err(Failure::to(format!("create a directory in {}", root.display())))
}

/// Returns an address with a free port, for servers that cannot choose a port themselves and report it.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

fn start(mut command: Command, name: &str) -> Result<(Child, BufReader<ChildStdout>), Failure> {
    // In a process group of its own, the server does not receive Ctrl-C: the measurement does, and then stops its servers.
    command.process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| cannot(name, error))?;
    let output = child.stdout.take().expect("the server's stdout is a pipe");
    Ok((child, BufReader::new(output)))
}

/// Reads a server's output up to a line that contains `words`, and returns that line; an error if the output ends first.
fn line_with(
    output: &mut BufReader<ChildStdout>,
    name: &str,
    words: &str,
) -> Result<String, Failure> {
    let mut before = String::new();
    loop {
        let mut line = String::new();
        let read = output.read_line(&mut line).map_err(|error| cannot(name, error))?;
        if line.contains(words) {
            return Ok(line);
        }
        if read == 0 {
            return Err(cannot(name, format!("it ended after printing {before:?}")));
        }
        before = line;
    }
}

/// Starts a thread that discards all further output of a server, so that the server never blocks on a full pipe.
fn drain(mut output: BufReader<ChildStdout>, name: &str) -> Result<(), Failure> {
    std::thread::Builder::new()
        .name("sexton-bench-output".to_owned())
        .spawn(move || drop(io::copy(&mut output, &mut io::sink())))
        .map(drop)
        .map_err(|error| cannot(name, error))
}

/// Loads the scripts into Redis, and returns the protocol with their digests.
fn keep_scripts(address: SocketAddr) -> io::Result<Protocol> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut keep = |script: &[u8]| {
        stream.write_all(script)?;
        let mut answer = [0; 5 + 40 + 2];
        stream.read_exact(&mut answer)?;
        let name = answer.get(5..45).filter(|_| answer.starts_with(b"$40\r\n"));
        name.and_then(|name| String::from_utf8(name.to_vec()).ok())
            .ok_or_else(|| io::Error::other("it does not accept a script"))
    };
    let [release, renew] = codec::load_scripts();
    Ok(Protocol::Redis { release: keep(&release)?, renew: keep(&renew)? })
}
