//! What `bench recovery` measures, by name, and the lines that show it. Less is better in every row.

use crate::bench::figures::{Spread, grouped};
use serde::Serialize;
use std::collections::BTreeMap;

/// How many locks are a few.
pub(crate) const FEW: u32 = 1000;

/// One line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Row {
    Load,
    MemoryLoaded,
    RestartLoaded,
    PanicLoaded,
    Checkpoint,
    MemoryCheckpointed,
    RestartCheckpointed,
    PanicCheckpointed,
    PanicOthers,
    TouchFew,
    TouchAll,
    TouchSlower,
    CycleP50,
    CycleP99,
    CycleP999,
    CycleMax,
    CheckpointCycleP50,
    CheckpointCycleP99,
    CheckpointCycleP999,
    CheckpointCycleMax,
    CheckpointCycleP999More,
}

/// Rows of one contestant in one round. What could not be measured is not in it.
pub(crate) type Round = BTreeMap<Row, f64>;

impl Row {
    /// Every row, in the order of the table.
    const ALL: [Self; 21] = [
        Self::Load,
        Self::MemoryLoaded,
        Self::RestartLoaded,
        Self::PanicLoaded,
        Self::Checkpoint,
        Self::MemoryCheckpointed,
        Self::RestartCheckpointed,
        Self::PanicCheckpointed,
        Self::PanicOthers,
        Self::TouchFew,
        Self::TouchAll,
        Self::TouchSlower,
        Self::CycleP50,
        Self::CycleP99,
        Self::CycleP999,
        Self::CycleMax,
        Self::CheckpointCycleP50,
        Self::CheckpointCycleP99,
        Self::CheckpointCycleP999,
        Self::CheckpointCycleMax,
        Self::CheckpointCycleP999More,
    ];

    /// p50, p99, p99.9 and the longest of cycles without a checkpoint.
    pub(crate) const QUIET: [Self; 4] = [
        Self::CycleP50,
        Self::CycleP99,
        Self::CycleP999,
        Self::CycleMax,
    ];

    /// The same while a checkpoint is made.
    pub(crate) const DURING: [Self; 4] = [
        Self::CheckpointCycleP50,
        Self::CheckpointCycleP99,
        Self::CheckpointCycleP999,
        Self::CheckpointCycleMax,
    ];

    /// What it measures, and in which unit.
    fn words(self, locks: u32) -> (String, &'static str) {
        let few = grouped(locks.min(FEW).into());
        let locks = grouped(locks.into());
        let (words, unit) = match self {
            Self::Load => (format!("take {locks} locks"), "ms"),
            Self::MemoryLoaded | Self::MemoryCheckpointed => {
                ("memory a lock, after that".to_owned(), "B")
            }
            Self::RestartLoaded | Self::RestartCheckpointed => {
                ("kill -9 after that, until all are served".to_owned(), "ms")
            }
            Self::PanicLoaded | Self::PanicCheckpointed => {
                ("panic in commit, until locks are served".to_owned(), "ms")
            }
            Self::PanicOthers => ("longest answer of others meanwhile".to_owned(), "ms"),
            Self::Checkpoint => ("checkpoint".to_owned(), "ms"),
            Self::TouchFew => (format!("touch one of {few} held"), "us"),
            Self::TouchAll => (format!("touch one of {locks} held"), "us"),
            Self::TouchSlower => ("the second for the first".to_owned(), "times"),
            Self::CycleP50 => ("cycle, p50".to_owned(), "us"),
            Self::CycleP99 => ("cycle, p99".to_owned(), "us"),
            Self::CycleP999 => ("cycle, p99.9".to_owned(), "us"),
            Self::CycleMax => ("cycle, longest".to_owned(), "us"),
            Self::CheckpointCycleP50 => ("cycle during a checkpoint, p50".to_owned(), "us"),
            Self::CheckpointCycleP99 => ("cycle during a checkpoint, p99".to_owned(), "us"),
            Self::CheckpointCycleP999 => ("cycle during a checkpoint, p99.9".to_owned(), "us"),
            Self::CheckpointCycleMax => ("cycle during a checkpoint, longest".to_owned(), "us"),
            Self::CheckpointCycleP999More => ("p99.9 longer than without one by".to_owned(), "us"),
        };
        (words, unit)
    }

    /// Whether one contestant's figure for each of the other's says something.
    fn has_ratio(self) -> bool {
        // A difference may be zero, or less.
        self != Self::CheckpointCycleP999More
    }
}

/// A row of all rounds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    row: Row,
    unit: &'static str,
    /// None where it could not be measured.
    sexton: Option<Spread>,
    redis: Option<Spread>,
    /// sexton's figure for each of Redis', round by round.
    ratio: Option<Spread>,
    #[serde(skip)]
    words: String,
}

/// Sums up rounds, of sexton and of Redis.
pub(crate) fn lines(locks: u32, sexton: &[Round], redis: &[Round]) -> Vec<Line> {
    let line = |row: Row| {
        let (words, unit) = row.words(locks);
        let spread = |rounds: &[Round]| {
            let figures: Vec<f64> = rounds
                .iter()
                .filter_map(|round| round.get(&row).copied())
                .collect();
            (!figures.is_empty()).then(|| Spread::of(figures.into_iter()))
        };
        let ratios: Vec<f64> = (sexton.iter().zip(redis))
            .filter(|_| row.has_ratio())
            .filter_map(|(own, peer)| Some(own.get(&row)? / peer.get(&row)?))
            .filter(|ratio| ratio.is_finite())
            .collect();
        Line {
            row,
            unit,
            sexton: spread(sexton),
            redis: spread(redis),
            ratio: (!ratios.is_empty()).then(|| Spread::of(ratios.into_iter())),
            words,
        }
    };
    Row::ALL.map(line).into()
}

/// The table for people.
pub(crate) fn table(lines: &[Line], redis: bool) -> String {
    let shown = |spread: Option<Spread>| match spread {
        Some(Spread { median, min, max }) => {
            let range = format!("({}-{})", figure(min), figure(max));
            format!("{:>13} {range:<19}", figure(median))
        }
        None => format!("{:>13} {:<19}", "not available", ""),
    };
    let cells = |words: &str, unit: &str, cells: [String; 3]| {
        let [own, peer, ratio] = cells;
        let line = if redis {
            format!("{words:<41} {unit:<5} {own} {peer} {ratio}")
        } else {
            format!("{words:<41} {unit:<5} {own}")
        };
        format!("{}\n", line.trim_end())
    };
    let title = |name| format!("{name:>13} {:<19}", "(min-max)");
    let heads = [title("sexton"), title("redis"), " ratio".to_owned()];
    let mut table = cells("less is better", "", heads);
    for line in lines {
        let ratio = line.ratio.map_or_else(String::new, |ratio| {
            let Spread { median, min, max } = ratio;
            format!("{median:>6.2} ({min:.2}-{max:.2})")
        });
        let line = cells(
            &line.words,
            line.unit,
            [shown(line.sexton), shown(line.redis), ratio],
        );
        table.push_str(&line);
    }
    table
}

/// A figure with about three digits that mean something.
fn figure(number: f64) -> String {
    if number.abs() < 100.0 {
        format!("{number:.2}")
    } else if number < 0.0 {
        format!("-{}", grouped(-number))
    } else {
        grouped(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_shown_and_what_is_missing_is_said() {
        let own = Round::from([(Row::Load, 50.0), (Row::CheckpointCycleP999More, -1500.0)]);
        let peer = Round::from([(Row::Load, 100.0), (Row::CheckpointCycleP999More, 3.0)]);
        let summed = lines(1000, &[own], &[peer]);
        assert!(Row::ALL.is_sorted_by(|a, b| a < b), "in order, each once");
        let table = table(&summed, true);
        let shown: Vec<&str> = table.lines().collect();
        assert_eq!(shown.len(), 1 + Row::ALL.len());
        assert!(shown[1].starts_with("take 1,000 locks"), "{table}");
        assert!(shown[1].ends_with("0.50 (0.50-0.50)"), "{table}");
        assert!(shown[2].contains("not available"), "{table}");
        let last = Row::ALL.len();
        assert!(shown[last].contains("-1,500"), "{table}");
        assert!(
            summed[last - 1].ratio.is_none(),
            "of differences there is none"
        );
    }
}
