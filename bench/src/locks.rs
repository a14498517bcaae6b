//! `sexton-bench locks`: measures locks over TCP, by row, round and contestant, and prints the table.

use crate::codec::{Name, name};
use crate::contend::{Contender, Pace};
use crate::course::Course;
use crate::cycle::Cycles;
use crate::failure::Failure;
use crate::figures::{self, Measured, Round, Standing};
use crate::interrupt::Stop;
use crate::load::now;
use crate::output::{document, heading, print, show};
use crate::peer::{self, Peer};
use crate::row::Row;
use clap::Args;
use serde_json::json;
use std::rc::Rc;
use std::time::Duration;

/// Measure locks over TCP, compared with Redis in the same run.
///
/// In a row such as memory:50x16, 50 connections each acquire 16 locks of their own in one write, and once they hold all of them, release
/// them in one write; sexton runs with --memory, and Redis without files. In fsync:50x16, both sync each change to disk before they
/// answer. In contended:50, 50 clients compete for one lock, and each releases it as soon as it holds it.
///
/// Both servers run at the same time and are measured in turn, so that other work on the machine affects both. The ratio is sexton's
/// figure divided by that of the faster Redis variant, taken in each round: its median, minimum and maximum are printed. Every answer is
/// checked.
#[derive(Args)]
#[command(mut_arg("seconds", |seconds| seconds.long_help(SECONDS)))]
pub(crate) struct Locks {
    /// Rows: memory:CxD, fsync:CxD (connections x locks per write), contended:C [default: all nine]
    #[arg(long, value_name = "ROW,...", value_delimiter = ',')]
    rows: Vec<Row>,

    #[command(flatten)]
    course: Course,
}

const SECONDS: &str = "Duration of a measurement

A contended row takes four times as long, because fairness shows only over many turns.";

/// How many times as long as other rows a contended row is measured. A client with more grants stays away longer, so the clients'
/// shares even out only over many turns.
const TURNS: u32 = 4;

/// How long a Redis client waits before it retries a lock that was taken.
const RETRY: Duration = Duration::from_millis(5);

/// A program under test, and how its clients retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contestant {
    Sexton,
    SextonInLine,
    Redis,
    RedisTrying(Duration),
}

impl Contestant {
    fn name(self) -> String {
        match self {
            Self::Sexton => "sexton".to_owned(),
            Self::SextonInLine => "sexton, in line".to_owned(),
            Self::Redis => "redis".to_owned(),
            Self::RedisTrying(Duration::ZERO) => "redis, at once".to_owned(),
            Self::RedisTrying(rest) => format!("redis, every {} ms", rest.as_millis()),
        }
    }

    fn is_peer(self) -> bool {
        match self {
            Self::Sexton | Self::SextonInLine => false,
            Self::Redis | Self::RedisTrying(_) => true,
        }
    }

    fn pace(self) -> Pace {
        match self {
            Self::Sexton => Pace::Turns,
            Self::SextonInLine => Pace::Line,
            Self::Redis => Pace::Try(Duration::ZERO),
            Self::RedisTrying(rest) => Pace::Try(rest),
        }
    }

    fn of(row: Row, redis: bool) -> Vec<Self> {
        let mut contestants = vec![Self::Sexton];
        match row {
            Row::Cycles { .. } if redis => contestants.push(Self::Redis),
            Row::Cycles { .. } => {}
            Row::Contended { .. } => {
                contestants.push(Self::SextonInLine);
                if redis {
                    contestants.extend([Duration::ZERO, RETRY].map(Self::RedisTrying));
                }
            }
        }
        contestants
    }
}

impl Locks {
    pub(crate) fn run(self, stop: &Stop) -> Result<(), Failure> {
        let rows = if self.rows.is_empty() { Row::all() } else { self.rows.clone() };
        let site = &self.course.site;
        let (own, redis) = (site.version()?, peer::redis_version());
        let mut notes = site.remarks([&redis])?;
        if rows.iter().any(|row| row.is_durable()) {
            notes.extend(site.in_memory("give --dir for the fsync rows"));
        }
        let redis = redis.ok();
        if !site.json {
            print(&heading(&own, &[("Redis", redis.as_deref())], &notes))?;
            print(&figures::heading())?;
        }
        let mut measured = Vec::new();
        for row in rows {
            let row = self.measure(row, redis.is_some(), stop)?;
            if !site.json {
                print(&row.lines())?;
            }
            measured.push(row);
        }
        if site.json {
            document(&json!({
                "sexton": own,
                "redis": redis,
                "notes": notes,
                "rounds": self.course.rounds,
                "seconds": self.course.seconds.as_secs_f64(),
                "rows": measured,
            }))?;
        }
        Ok(())
    }

    /// Measures a row: in each round, one contestant after another.
    fn measure(&self, row: Row, redis: bool, stop: &Stop) -> Result<Measured, Failure> {
        let site = &self.course.site;
        let contestants = Contestant::of(row, redis);
        let sexton = Peer::sexton(row.is_durable(), site)?;
        let redis = redis.then(|| Peer::redis(row.is_durable(), site)).transpose()?;
        let mut rounds = vec![Vec::new(); contestants.len()];
        for round in 1..=self.course.rounds {
            for (contestant, rounds) in contestants.iter().zip(&mut rounds) {
                show(&format!(
                    "{row}, round {round} of {}, {}",
                    self.course.rounds,
                    contestant.name()
                ));
                let peer = match contestant {
                    Contestant::Sexton | Contestant::SextonInLine => &sexton,
                    Contestant::Redis | Contestant::RedisTrying(_) => {
                        redis.as_ref().unwrap_or(&sexton)
                    }
                };
                rounds.push(self.round(row, *contestant, peer, (round, stop))?);
            }
        }
        show("");
        let contended = matches!(row, Row::Contended { .. });
        let standings = contestants
            .iter()
            .zip(rounds)
            .map(|(contestant, rounds)| {
                Standing::of((contestant.name(), contestant.is_peer()), contended, rounds)
            })
            .collect();
        let unit = if contended { "grants" } else { "cycles" };
        Ok(Measured::new(row.to_string(), unit, standings))
    }

    fn round(
        &self,
        row: Row,
        contestant: Contestant,
        peer: &Peer,
        (round, stop): (u32, &Stop),
    ) -> Result<Round, Failure> {
        let protocol = Rc::new(peer.protocol.clone());
        let server = (peer, protocol.greeting());
        match row {
            Row::Cycles { connections, depth, .. } => {
                let clients =
                    (0..connections).map(|at| Cycles::new(Rc::clone(&protocol), at, depth, now()));
                self.course.round(server, clients, 1, stop)
            }
            Row::Contended { clients } => {
                let key: Name = name(u32::MAX, round);
                let clients = (0..clients).map(|at| {
                    Contender::new(Rc::clone(&protocol), contestant.pace(), key, at, now())
                });
                self.course.round(server, clients, TURNS, stop)
            }
        }
    }
}
