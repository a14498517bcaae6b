//! `sexton-bench http`: locks over HTTP with JSON, compared with etcd's gateway in the same run.

use crate::codec::{Answer, Name, Protocol, Verb, name};
use crate::course::Course;
use crate::cycle::Cycles;
use crate::failure::Failure;
use crate::figures::{self, Latencies, Measured, Round, Standing, Wait};
use crate::gateway::{Gateway, LEASE_SECONDS, lease};
use crate::interrupt::Stop;
use crate::load::now;
use crate::output::{document, heading, print, show};
use crate::peer::{self, Peer};
use crate::question::{exchange, read_more};
use clap::Args;
use serde_json::json;
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::rc::Rc;
use std::time::Duration;

/// Measure locks over HTTP, compared with etcd's JSON gateway in the same run.
///
/// Each connection is persistent, and acquires and releases its own lock, one request after another. Both servers have everything on disk
/// before they answer. etcd is measured in two ways: with its lock service (lock and unlock under a lease), which keeps a line as sexton
/// does; and with a transaction that puts a key if it does not exist, and a delete, which keeps no line. Leases are granted beforehand, one
/// for each connection. The ratio is sexton's figure divided by the better of etcd's.
///
/// Then the passing of a lock is measured: one connection holds a lock, another waits for it, and the time is counted from sending the
/// release until the waiter is answered.
#[derive(Args)]
#[command(mut_arg("rounds", |rounds| rounds.value_name("R").help("Number of rounds")))]
#[command(mut_arg("seconds", |seconds| seconds.help("Duration of each measurement")))]
#[command(after_help = "Examples:
  sexton-bench http
  sexton-bench http --connections 200 --rounds 9 --seconds 2
  sexton-bench http --json

See docs/benchmarks.md for how to read the results.")]
pub(crate) struct Http {
    /// Number of connections
    #[arg(long, value_name = "C", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,

    #[command(flatten)]
    course: Course,
}

/// A server under test; etcd is used in two ways.
type Server = Peer<()>;

/// The contestants by name; the two for etcd are two ways to use one server.
const CONTESTANTS: [(&str, Gateway); 3] = [
    ("sexton", Gateway::Sexton),
    ("etcd, lock", Gateway::EtcdLock),
    ("etcd, txn", Gateway::EtcdTxn),
];

impl Http {
    pub(crate) fn run(self, stop: &Stop) -> Result<(), Failure> {
        let site = &self.course.site;
        let (own, version) = (site.version()?, peer::etcd_version());
        let mut notes = site.remarks([&version])?;
        notes.extend(site.in_memory("give --dir"));
        let sexton = Peer::sexton_over_http(true, site)?;
        let etcd = match version {
            Ok(_) => Some(Peer::etcd(site)?),
            Err(_) => None,
        };
        if let Some(etcd) = &etcd {
            grant_leases(etcd, self.connections.max(2))?;
        }
        let measured = self.cycles((&sexton, etcd.as_ref()), stop)?;
        let told = self.waits((&sexton, etcd.as_ref()), stop)?;
        show("");
        let version = version.ok();
        if site.json {
            return document(&json!({
                "sexton": own,
                "etcd": version,
                "notes": notes,
                "rounds": self.course.rounds,
                "seconds": self.course.seconds.as_secs_f64(),
                "rows": [measured],
                "told": told,
            }));
        }
        print(&heading(&own, &[("etcd", version.as_deref())], &notes))?;
        print(&format!("{}{}\n", figures::heading(), measured.lines()))?;
        told.iter().try_for_each(|told| print(&told.line()))
    }

    /// Measures cycles of each contestant, round by round.
    fn cycles(
        &self,
        (sexton, etcd): (&Server, Option<&Server>),
        stop: &Stop,
    ) -> Result<Measured, Failure> {
        let mut rounds = CONTESTANTS.map(|_| Vec::new());
        for round in 1..=self.course.rounds {
            for ((name, gateway), rounds) in CONTESTANTS.iter().zip(&mut rounds) {
                show(&format!("round {round} of {}, {name}", self.course.rounds));
                match (gateway, etcd) {
                    (Gateway::Sexton, _) => rounds.push(self.round(*gateway, sexton, stop)?),
                    (_, Some(etcd)) => rounds.push(self.round(*gateway, etcd, stop)?),
                    (_, None) => {}
                }
            }
        }
        let standings =
            CONTESTANTS.iter().zip(rounds).filter(|(_, rounds)| !rounds.is_empty()).map(
                |((name, gateway), rounds)| {
                    let peer = *gateway != Gateway::Sexton;
                    Standing::of(((*name).to_owned(), peer), false, rounds)
                },
            );
        let row = format!("http:{}", self.connections);
        Ok(Measured::new(row, "cycles", standings.collect()))
    }

    fn round(&self, gateway: Gateway, peer: &Server, stop: &Stop) -> Result<Round, Failure> {
        let protocol = Rc::new(Protocol::Http(gateway));
        let clients =
            (0..self.connections).map(|at| Cycles::new(Rc::clone(&protocol), at, 1, now()));
        let server = (peer, protocol.greeting());
        self.course.round(server, clients, 1, stop)
    }

    /// Measures, for each contestant that keeps a line, how long it takes from a release until the waiter has the lock.
    fn waits(
        &self,
        (sexton, etcd): (&Server, Option<&Server>),
        stop: &Stop,
    ) -> Result<Vec<Wait>, Failure> {
        let lines =
            [("sexton", Gateway::Sexton, Some(sexton)), ("etcd, lock", Gateway::EtcdLock, etcd)];
        let mut told = Vec::new();
        for (name, gateway, peer) in lines {
            let Some(peer) = peer else { continue };
            let mut rounds = Vec::new();
            for round in 1..=self.course.rounds {
                show(&format!("waiting, round {round} of {}, {name}", self.course.rounds));
                rounds.push(self.waiting(gateway, peer, stop)?);
            }
            told.push(Wait::of("wait:1".to_owned(), name, &rounds));
        }
        Ok(told)
    }

    /// Measures two clients that pass a lock back and forth: the time from each release until the other client has the lock.
    fn waiting(&self, gateway: Gateway, peer: &Server, stop: &Stop) -> Result<Latencies, Failure> {
        let mut latencies = Latencies::default();
        let key = name(u32::MAX, 0);
        let talk = |owner| SingleClient::open(peer, gateway, (key, name(owner, u32::MAX)));
        let (mut holder, mut waiter, mut watcher) = (talk(0)?, talk(1)?, talk(1)?);
        holder.ask(Verb::Acquire)?;
        holder.receive()?;
        let end = now() + self.course.seconds;
        while now() < end {
            stop.check()?;
            waiter.ask(Verb::Acquire)?;
            // The lock must not be released before the waiter is in line.
            loop {
                watcher.ask(Verb::Place)?;
                if let Answer::InLine(2) = watcher.receive()? {
                    break;
                }
            }
            let began = now();
            holder.ask(Verb::Release)?;
            waiter.receive()?;
            latencies.note(now() - began);
            holder.receive()?;
            std::mem::swap(&mut holder, &mut waiter);
            watcher.owner = waiter.owner;
        }
        holder.ask(Verb::Release)?;
        holder.receive()?;
        Ok(latencies)
    }
}

/// A connection that sends one request at a time.
struct SingleClient {
    stream: TcpStream,
    gateway: Gateway,
    key: Name,
    owner: Name,
    asked: Verb,
}

impl SingleClient {
    fn open(peer: &Server, gateway: Gateway, (key, owner): (Name, Name)) -> Result<Self, Failure> {
        Ok(Self { stream: connect(peer).map_err(lost)?, gateway, key, owner, asked: Verb::Acquire })
    }

    fn ask(&mut self, asked: Verb) -> Result<(), Failure> {
        let mut request = Vec::new();
        self.asked = asked;
        self.gateway.ask(asked, &self.key, &self.owner, &mut request);
        self.stream.write_all(&request).map_err(lost)
    }

    fn receive(&mut self) -> Result<Answer, Failure> {
        let mut input = Vec::new();
        loop {
            let heard = self.gateway.receive(self.asked, &input);
            if let Some((answer, _)) = heard.map_err(lost)? {
                return Ok(answer);
            }
            read_more(&mut self.stream, &mut input).map_err(lost)?;
        }
    }
}

/// Grants a lease to each client of etcd, under which the client holds its locks.
fn grant_leases(etcd: &Server, clients: u32) -> Result<(), Failure> {
    let grant = || -> io::Result<()> {
        let mut stream = connect(etcd)?;
        for client in 0..clients {
            let lease = lease(&name(client, u32::MAX));
            let body = json!({"ID": lease, "TTL": LEASE_SECONDS});
            let (status, words) = exchange(&mut stream, "/v3/lease/grant", Some(&body))?;
            if status != 200 {
                return Err(io::Error::other(words));
            }
        }
        Ok(())
    };
    grant().map_err(lost)
}

fn connect(peer: &Server) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(peer.address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    Ok(stream)
}

fn lost(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("failed to measure locks over HTTP: {error}"))
}
