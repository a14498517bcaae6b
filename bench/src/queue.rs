//! `sexton-bench queue`: measures jobs over TCP, compared with beanstalkd and Redis' lists.

use crate::course::Course;
use crate::failure::Failure;
use crate::figures::{self, Measured, Round, Standing, Wait};
use crate::interrupt::Stop;
use crate::job::{JobProtocol, Jobs, WakeClient, Work};
use crate::load::{Load, now};
use crate::output::{document, heading, print, show};
use crate::peer::{self, Peer};
use crate::row::{CONNECTIONS_MAX, DEPTH_MAX, number};
use crate::site::Site;
use clap::Args;
use serde_json::json;
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

/// Measure jobs over TCP, compared with beanstalkd and Redis' lists in the same run.
///
/// In a row such as memory:50x16, 50 connections each put 16 jobs in one write, then reserve 16 in one write, and then delete them in one
/// write; all connections share one queue. sexton runs with --memory, and beanstalkd and Redis without files. In fsync:50x1, everything is
/// on disk before the answer: sexton runs with its defaults, beanstalkd with -f 0, and Redis with appendfsync always. put:50 only puts
/// jobs, with the same settings as fsync. In a row that ends in /4096, each body has 4096 bytes; the default is 64.
///
/// Redis' lists are used so that no job is lost if its consumer dies: LPUSH, LMOVE to the consumer's own list, LREM.
///
/// wake:256 is the time from a put until one of 256 waiting consumers has the job.
///
/// All servers run at the same time and are measured in turn. The ratio is sexton's figure divided by the better peer's, taken in each
/// round: its median, minimum and maximum are printed. Every answer is checked.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton-bench queue
  sexton-bench queue --rows memory:50x1,put:50 --rounds 9
  sexton-bench queue --json

See docs/benchmarks.md for how to read the results.")]
pub(crate) struct Queue {
    /// Rows: memory:CxD, fsync:CxD (connections x jobs per write), put:C, wake:C, each with an optional /BYTES [default: all
    /// in docs/benchmarks.md]
    #[arg(long, value_name = "ROW,...", value_delimiter = ',')]
    rows: Vec<Row>,

    #[command(flatten)]
    course: Course,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    kind: Kind,
    connections: u32,
    depth: u32,
    bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Memory,
    Fsync,
    Put,
    Wake,
}

const BODY_BYTES: u32 = 64;

/// The largest body, in bytes: beanstalkd's default limit.
const BYTES_MAX: u32 = 65_535;

impl Row {
    fn all() -> Vec<Self> {
        let names = "memory:1x1,memory:50x1,memory:50x16,memory:256x1,memory:50x1/4096,put:1,put:50,put:256,\
                     fsync:1x1,fsync:50x1,fsync:256x1,wake:1,wake:256";
        let rows = names.split(',').map(str::parse);
        rows.collect::<Result<_, _>>().expect("the default rows are valid")
    }

    fn is_durable(self) -> bool {
        matches!(self.kind, Kind::Fsync | Kind::Put)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, connections, depth, bytes } = self;
        let mut name = match kind {
            Kind::Memory => format!("memory:{connections}x{depth}"),
            Kind::Fsync => format!("fsync:{connections}x{depth}"),
            Kind::Put => format!("put:{connections}"),
            Kind::Wake => format!("wake:{connections}"),
        };
        if *bytes != BODY_BYTES {
            name = format!("{name}/{bytes}");
        }
        f.pad(&name)
    }
}

impl FromStr for Row {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "expected memory:CxD, fsync:CxD, put:C or wake:C, with 1 to {CONNECTIONS_MAX} connections, a depth of \
                 1 to {DEPTH_MAX}, and optionally /BYTES up to {BYTES_MAX}"
            )
        };
        let (rest, bytes) = text.split_once('/').unwrap_or((text, "64"));
        let (kind, shape) = rest.split_once(':').ok_or_else(wrong)?;
        let (kind, (connections, depth)) = match kind {
            "memory" => (Kind::Memory, shape.split_once('x').ok_or_else(wrong)?),
            "fsync" => (Kind::Fsync, shape.split_once('x').ok_or_else(wrong)?),
            "put" => (Kind::Put, (shape, "1")),
            "wake" => (Kind::Wake, (shape, "1")),
            _ => return Err(wrong()),
        };
        Ok(Self {
            kind,
            connections: number(connections, CONNECTIONS_MAX).ok_or_else(wrong)?,
            depth: number(depth, DEPTH_MAX).ok_or_else(wrong)?,
            bytes: number(bytes, BYTES_MAX).ok_or_else(wrong)?,
        })
    }
}

type Server = Peer<JobProtocol>;

/// The contestants, in the order in which they are measured and printed.
const CONTESTANTS: [&str; 3] = ["sexton", "beanstalkd", "redis lists"];

impl Queue {
    pub(crate) fn run(self, stop: &Stop) -> Result<(), Failure> {
        let rows = if self.rows.is_empty() { Row::all() } else { self.rows.clone() };
        let site = &self.course.site;
        let own = site.version()?;
        let versions = [peer::beanstalkd_version(), peer::redis_version()];
        let mut notes = site.remarks(&versions)?;
        if rows.iter().any(|row| row.is_durable()) {
            notes.extend(site.in_memory("give --dir for the rows on disk"));
        }
        let [beanstalkd, redis] = versions.map(Result::ok);
        if !site.json {
            let peers = [("beanstalkd", beanstalkd.as_deref()), ("Redis", redis.as_deref())];
            print(&heading(&own, &peers, &notes))?;
            print(&figures::heading())?;
        }
        let there = [true, beanstalkd.is_some(), redis.is_some()];
        let (mut measured, mut woken) = (Vec::new(), Vec::new());
        for row in rows {
            let peers = start(row, there, site)?;
            if row.kind == Kind::Wake {
                for told in self.wake(row, &peers, stop)? {
                    if !site.json {
                        print(&told.line())?;
                    }
                    woken.push(told);
                }
            } else {
                let row = self.measure(row, &peers, stop)?;
                if !site.json {
                    print(&row.lines())?;
                }
                measured.push(row);
            }
        }
        if site.json {
            document(&json!({
                "sexton": own,
                "beanstalkd": beanstalkd,
                "redis": redis,
                "notes": notes,
                "rounds": self.course.rounds,
                "seconds": self.course.seconds.as_secs_f64(),
                "rows": measured,
                "wake": woken,
            }))?;
        }
        Ok(())
    }

    /// Measures each installed contestant once per round. Returns the results of each of the [`CONTESTANTS`], empty if it is not installed.
    fn rounds<T>(
        &self,
        row: Row,
        peers: &[Option<Server>],
        measure: impl Fn(&Server) -> Result<T, Failure>,
    ) -> Result<[Vec<T>; 3], Failure> {
        let mut rounds = CONTESTANTS.map(|_| Vec::new());
        for round in 1..=self.course.rounds {
            let contestants = CONTESTANTS.iter().zip(peers).zip(&mut rounds);
            for ((name, peer), rounds) in contestants {
                let Some(peer) = peer else { continue };
                show(&format!("{row}, round {round} of {}, {name}", self.course.rounds));
                rounds.push(measure(peer)?);
            }
        }
        show("");
        Ok(rounds)
    }

    fn measure(
        &self,
        row: Row,
        peers: &[Option<Server>],
        stop: &Stop,
    ) -> Result<Measured, Failure> {
        let rounds = self.rounds(row, peers, |peer| self.round(row, peer, stop))?;
        let standings = CONTESTANTS
            .iter()
            .zip(rounds)
            .enumerate()
            .filter(|(_, (_, rounds))| !rounds.is_empty())
            .map(|(at, (name, rounds))| Standing::of(((*name).to_owned(), at > 0), false, rounds));
        let unit = if row.kind == Kind::Put { "puts" } else { "cycles" };
        Ok(Measured::new(row.to_string(), unit, standings.collect()))
    }

    fn round(&self, row: Row, peer: &Server, stop: &Stop) -> Result<Round, Failure> {
        let body: Rc<[u8]> = (0..row.bytes).map(|_| b'x').collect();
        let work = if row.kind == Kind::Put { Work::Puts } else { Work::Cycles };
        let how = (peer.protocol, work);
        let clients =
            (0..row.connections).map(|at| Jobs::new(how, (at, row.depth), Rc::clone(&body), now()));
        self.course.round((peer, &[]), clients, 1, stop)
    }

    /// Measures the time from a put until one of the waiting consumers has the job.
    fn wake(&self, row: Row, peers: &[Option<Server>], stop: &Stop) -> Result<Vec<Wait>, Failure> {
        let Course { warm_up, seconds, .. } = self.course;
        let rounds = self.rounds(row, peers, |peer| {
            let on_its_way = Rc::new(Cell::new(None));
            let clients = (0..=row.connections)
                .map(|at| WakeClient::new(peer.protocol, at, Rc::clone(&on_its_way)));
            let load = Load::connect(peer.address, &[], clients)?;
            Ok(load.measure(warm_up, seconds, stop)?.latencies)
        })?;
        let told = CONTESTANTS.iter().zip(rounds);
        let told = told.filter(|(_, rounds)| !rounds.is_empty());
        let told = told.map(|(name, rounds)| Wait::of(row.to_string(), name, &rounds));
        Ok(told.collect())
    }
}

/// Starts the servers for a row; `None` for those that are not installed.
fn start(row: Row, there: [bool; 3], site: &Site) -> Result<Vec<Option<Server>>, Failure> {
    let durable = row.is_durable();
    let start = [Peer::sexton_for_jobs, Peer::beanstalkd, Peer::redis_lists];
    let peers = there.into_iter().zip(start);
    peers.map(|(there, start)| there.then(|| start(durable, site)).transpose()).collect()
}

#[cfg(test)]
mod tests {
    use super::Row;

    #[test]
    fn rows_are_read_as_they_are_shown() {
        for row in Row::all() {
            assert_eq!(row.to_string().parse(), Ok(row));
        }
        for wrong in ["memory", "memory:0x1", "put:1x1", "fsync:1", "wake:1/99999", "put:9999"] {
            wrong.parse::<Row>().unwrap_err();
        }
    }
}
