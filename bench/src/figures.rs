//! Turns measurements into figures: quantiles of one round, medians of several, a table as text, and JSON.

use serde::Serialize;
use std::fmt::Write as _;
use std::time::Duration;

/// The number of histogram steps per doubling of the duration. A quantile is reported as the start of its step, and so is at most six per
/// cent too small.
const STEPS: u64 = 16;

/// A histogram of durations in nanoseconds, with steps that grow with the duration.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    counts: Vec<u64>,
}

impl Latencies {
    /// Records a duration.
    pub(crate) fn note(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let step = step_of(nanos);
        if self.counts.len() <= step {
            self.counts.resize(step + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(step) {
            *count += 1;
        }
    }

    /// Returns the latency in microseconds that this share of the durations does not exceed, to the accuracy of a step; zero if nothing was
    /// recorded.
    pub(crate) fn quantile_us(&self, share: f64) -> f64 {
        let all: u64 = self.counts.iter().sum();
        let wanted = as_float(all) * share;
        let mut passed = 0;
        for (step, count) in (0u64..).zip(&self.counts) {
            passed += count;
            if *count > 0 && as_float(passed) >= wanted {
                return as_float(start_of(step)) / 1000.0;
            }
        }
        0.0
    }
}

/// Returns the step that contains a number. The highest five bits of the number determine it.
fn step_of(number: u64) -> usize {
    let step = match number.checked_ilog2() {
        None | Some(0..4) => number,
        Some(octave) => u64::from(octave - 3) * STEPS + ((number >> (octave - 4)) & (STEPS - 1)),
    };
    usize::try_from(step).expect("at most 64 times 16 steps")
}

/// Returns the smallest number in a step.
fn start_of(step: u64) -> u64 {
    match step / STEPS {
        0 => step,
        octave => (STEPS + step % STEPS) << (octave - 1),
    }
}

/// Converts a count to a float. Counts of a measurement are far below 2^52, up to which this is exact.
#[expect(clippy::cast_precision_loss, reason = "sixteen digits are precise enough for a figure")]
pub(crate) fn as_float(count: u64) -> f64 {
    count as f64
}

/// The measurement of one contestant (a server, or one way of using it) in one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Cycles or grants of the client that had the most.
    pub(crate) busiest: u64,
    /// Cycles or grants of the client that had the fewest.
    pub(crate) idlest: u64,
    /// The share of a processor that the load generator used.
    pub(crate) load_cpu: f64,
    /// The share of a processor that the server used.
    pub(crate) server_cpu: f64,
}

/// The median and the extremes of several measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Computes the spread of these numbers; all zero if there are none.
    pub(crate) fn of(numbers: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = numbers.collect();
        sorted.sort_by(f64::total_cmp);
        let at = |at: usize| sorted.get(at).copied().unwrap_or_default();
        let (low, high) = (sorted.len().saturating_sub(1) / 2, sorted.len() / 2);
        Self {
            median: f64::midpoint(at(low), at(high)),
            min: at(0),
            max: at(sorted.len().saturating_sub(1)),
        }
    }
}

/// The result of a contestant for one row of the table, over all rounds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Standing {
    pub(crate) name: String,
    /// Whether the contestant is a program other than sexton.
    pub(crate) peer: bool,
    /// Cycles, grants or puts per second.
    pub(crate) per_second: Spread,
    /// The median over the rounds of the median latency of a cycle, or of waiting for a grant, in microseconds.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Grants of the client that had the most, in the round with the most uneven shares; `None` if clients did not compete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) busiest: Option<u64>,
    /// Grants of the client that had the fewest, in the same round; `None` if clients did not compete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idlest: Option<u64>,
    pub(crate) load_cpu: f64,
    pub(crate) server_cpu: f64,
    #[serde(skip)]
    pub(crate) rounds: Vec<Round>,
}

impl Standing {
    /// Summarizes the rounds of one contestant. `contended` says whether the clients competed for one lock; if they did not, `busiest` and
    /// `idlest` are `None`.
    pub(crate) fn of((name, peer): (String, bool), contended: bool, rounds: Vec<Round>) -> Self {
        let spread = |figure: fn(&Round) -> f64| Spread::of(rounds.iter().map(figure));
        let unfair = |round: &&Round| as_float(round.busiest) / as_float(round.idlest.max(1));
        let worst =
            (rounds.iter()).max_by(|a, b| unfair(a).total_cmp(&unfair(b))).filter(|_| contended);
        Self {
            name,
            peer,
            per_second: spread(|round| round.per_second),
            p50_us: spread(|round| round.p50_us).median,
            p99_us: spread(|round| round.p99_us).median,
            busiest: worst.map(|round| round.busiest),
            idlest: worst.map(|round| round.idlest),
            load_cpu: spread(|round| round.load_cpu).median,
            server_cpu: spread(|round| round.server_cpu).median,
            rounds,
        }
    }
}

/// The time from a release or a put until a waiting client has the lock or the job, over all rounds, in microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Wait {
    pub(crate) row: String,
    pub(crate) name: &'static str,
    p50_us: Spread,
    p99_us: Spread,
}

impl Wait {
    /// Summarizes rounds.
    pub(crate) fn of(row: String, name: &'static str, rounds: &[Latencies]) -> Self {
        let quantile = |share| Spread::of(rounds.iter().map(|round| round.quantile_us(share)));
        Self { row, name, p50_us: quantile(0.5), p99_us: quantile(0.99) }
    }

    /// Formats the result as a line of text.
    pub(crate) fn line(&self) -> String {
        let spread =
            |Spread { median, min, max }: Spread| format!("{median:.0} us ({min:.0}-{max:.0})");
        let (p50, p99) = (spread(self.p50_us), spread(self.p99_us));
        format!("{:<13} {:<18} p50 {p50}, p99 {p99}\n", self.row, self.name)
    }
}

/// A measured row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) row: String,
    /// What was counted: `cycles`, `grants` or `puts`.
    pub(crate) unit: &'static str,
    pub(crate) standings: Vec<Standing>,
    /// sexton's figure divided by that of the fastest peer, computed in each round; `None` without a peer.
    pub(crate) ratio: Option<Spread>,
}

impl Measured {
    /// Creates a row from its results, sexton's first.
    pub(crate) fn new(row: String, unit: &'static str, standings: Vec<Standing>) -> Self {
        let ratio = standings.split_first().and_then(|(own, peers)| {
            let best = peers
                .iter()
                .filter(|standing| standing.peer)
                .max_by(|a, b| a.per_second.median.total_cmp(&b.per_second.median))?;
            let pairs = own.rounds.iter().zip(&best.rounds);
            Some(Spread::of(pairs.map(|(own, peer)| own.per_second / peer.per_second)))
        });
        Self { row, unit, standings, ratio }
    }

    /// Formats the row as text: a line for each contestant.
    pub(crate) fn lines(&self) -> String {
        let mut lines = String::new();
        for (at, standing) in self.standings.iter().enumerate() {
            let first = at == 0;
            let ratio = match self.ratio {
                Some(Spread { median, min, max }) if first => {
                    format!("{median:>5.2} ({min:.2}-{max:.2})")
                }
                Some(_) | None => String::new(),
            };
            let Spread { median, min, max } = standing.per_second;
            let shares = match (standing.busiest, standing.idlest) {
                (Some(busiest), Some(idlest)) => format!("  busiest {busiest}, idlest {idlest}"),
                (None, _) | (_, None) => String::new(),
            };
            writeln!(
                lines,
                "{:<13} {:<18} {:>9} {:<19} {:>7.0} {:>8.0} {:>5.0}% {:>5.0}%  {ratio}{shares}",
                if first { &self.row } else { "" },
                standing.name,
                grouped(median),
                format!("({}-{})", grouped(min), grouped(max)),
                standing.p50_us,
                standing.p99_us,
                standing.server_cpu * 100.0,
                standing.load_cpu * 100.0,
            )
            .expect("writing to memory does not fail");
        }
        lines
    }
}

/// Returns the heading above the rows.
pub(crate) fn heading() -> String {
    format!(
        "{:<13} {:<18} {:>9} {:<19} {:>7} {:>8} {:>6} {:>6}  {}\n",
        "row", "", "per s", "(min-max)", "p50 us", "p99 us", "server", "load", "ratio"
    )
}

/// Formats a number without decimals, with commas between thousands.
pub(crate) fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_begin_at_their_least_number() {
        for step in 0..600 {
            let start = start_of(step);
            assert_eq!(step_of(start) as u64, step);
            if start > 0 {
                assert_eq!(step_of(start - 1) as u64, step - 1);
            }
        }
    }

    #[test]
    fn quantiles_are_within_a_step() {
        let mut latencies = Latencies::default();
        for us in 1..=1000 {
            latencies.note(Duration::from_micros(us));
        }
        let (half, most) = (latencies.quantile_us(0.5), latencies.quantile_us(0.99));
        assert!((470.0..=500.0).contains(&half), "{half}");
        assert!((930.0..=990.0).contains(&most), "{most}");
    }

    #[test]
    fn medians_and_groups() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0].into_iter());
        assert_eq!(spread, Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(
            [1.0, 999.0, 1000.0, 1_234_567.0].map(grouped),
            ["1", "999", "1,000", "1,234,567"]
        );
    }
}
