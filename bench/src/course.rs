//! The flags that set the rounds and durations of a measurement over sockets, and the measurement of one server in one round.

use crate::failure::Failure;
use crate::figures::{Round, as_float};
use crate::interrupt::Stop;
use crate::load::{Client, Load, now};
use crate::peer::Peer;
use crate::site::Site;
use clap::Args;
use std::time::Duration;

/// The flags of a measurement.
#[derive(Args)]
pub(crate) struct Course {
    /// Number of rounds for each row
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,

    /// Duration of a measurement
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds)]
    pub(crate) seconds: Duration,

    /// Duration of the uncounted warm-up
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = parse_seconds)]
    pub(crate) warm_up: Duration,

    #[command(flatten)]
    pub(crate) site: Site,
}

impl Course {
    /// Measures one round of a server with these clients: an uncounted warm-up, then `longer` times the duration that the flags set.
    pub(crate) fn round<P, C: Client>(
        &self,
        (peer, greeting): (&Peer<P>, &[u8]),
        clients: impl Iterator<Item = C>,
        longer: u32,
        stop: &Stop,
    ) -> Result<Round, Failure> {
        let (began, wall) = (peer.cpu(), now());
        let load = Load::connect(peer.address, greeting, clients)?;
        let measured = load.measure(self.warm_up, self.seconds * longer, stop)?;
        let cpu = peer.cpu().saturating_sub(began).as_secs_f64();
        let span = measured.span.as_secs_f64();
        Ok(Round {
            per_second: as_float(measured.done.iter().sum()) / span,
            p50_us: measured.latencies.quantile_us(0.5),
            p99_us: measured.latencies.quantile_us(0.99),
            busiest: measured.done.iter().copied().max().unwrap_or(0),
            idlest: measured.done.iter().copied().min().unwrap_or(0),
            load_cpu: measured.load_cpu.as_secs_f64() / span,
            server_cpu: cpu / (now() - wall).as_secs_f64(),
        })
    }
}

pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    if (0.01..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("{text} s is out of range: expected 0.01 to 3600 s"))
    }
}
