//! Charts of figures over time. Each is a line of bars, with one character per column.

use crate::text::{bytes, grouped};
use crate::top::sample::{Point, Rate, Rates};

/// The minimum number of samples that a chart is to cover: each column of a narrow chart combines several.
const SAMPLES_MIN: usize = 120;

/// A figure that is charted over time.
pub(crate) struct Series {
    pub(crate) name: &'static str,
    /// Charts with the highest rank are dropped first on a small screen.
    pub(crate) rank: u8,
    /// A JSON pointer to an object in the status; if there is no such object, the chart is left out.
    pub(crate) of: &'static str,
    /// Returns the value of the figure in a sample; `None` if it is unknown.
    pub(crate) value: fn(&Point) -> Option<u64>,
    pub(crate) words: fn(u64) -> String,
}

/// The charts of the load: requests, jobs, and locks.
pub(crate) const WORK: [Series; 7] = [
    Series {
        name: "lockserver/s",
        rank: 6,
        of: "/lockserver",
        value: |point| rate(point, Rates::all_commands),
        words: |value| rate_words(Rate(value)),
    },
    Series {
        name: "beanstalk/s",
        rank: 6,
        of: "/beanstalk",
        value: |point| rate(point, Rates::all_beanstalk),
        words: |value| rate_words(Rate(value)),
    },
    Series {
        name: "http/s",
        rank: 11,
        of: "/http",
        value: |point| rate(point, |rates| rates.http),
        words: |value| rate_words(Rate(value)),
    },
    Series {
        name: "jobs added/s",
        rank: 7,
        of: "/queues",
        value: |point| rate(point, |rates| rates.jobs),
        words: |value| rate_words(Rate(value)),
    },
    Series {
        name: "jobs ready",
        rank: 1,
        of: "/queues",
        value: |point| point.ready,
        words: grouped,
    },
    Series { name: "owners", rank: 2, of: "", value: |point| point.owners, words: grouped },
    Series { name: "contenders", rank: 3, of: "", value: |point| point.contenders, words: grouped },
];

/// The charts of the coordinator's internals: entries, journal and open commands.
pub(crate) const INTERNALS: [Series; 4] = [
    Series {
        name: "entries/s",
        rank: 4,
        of: "",
        value: |point| rate(point, |rates| rates.entries),
        words: |value| rate_words(Rate(value)),
    },
    Series {
        name: "journal/s",
        rank: 5,
        of: "/journal",
        value: |point| rate(point, |rates| rates.bytes),
        words: |value| bytes(Rate(value).whole()),
    },
    Series {
        name: "syncs/s",
        rank: 5,
        of: "/journal",
        value: |point| rate(point, |rates| rates.syncs),
        words: |value| rate_words(Rate(value)),
    },
    Series { name: "open", rank: 6, of: "", value: |point| point.open, words: grouped },
];

/// The latest samples, grouped into columns.
pub(crate) struct Window<'a> {
    columns: Vec<Vec<&'a Point>>,
}

impl<'a> Window<'a> {
    /// Groups `points` into at most `width` columns. `taken` is the number of all samples so far, including those no longer kept;
    /// it aligns the columns, so that samples in the same column stay together as more samples arrive.
    pub(crate) fn new(points: impl Iterator<Item = &'a Point>, taken: usize, width: usize) -> Self {
        let points: Vec<&Point> = points.collect();
        let share = SAMPLES_MIN.div_ceil(width.max(1));
        let first = taken - points.len();
        let mut columns: Vec<Vec<&Point>> = Vec::new();
        for (place, point) in points.into_iter().enumerate() {
            match columns.last_mut() {
                Some(column) if !(first + place).is_multiple_of(share) => column.push(point),
                _ => columns.push(vec![point]),
            }
        }
        columns.drain(..columns.len().saturating_sub(width));
        Self { columns }
    }

    /// Returns the time from the first to the last sample in view, in milliseconds; 0 if there are no samples.
    pub(crate) fn ms(&self) -> u64 {
        let first = self.columns.first().and_then(|column| column.first());
        let last = self.columns.last().and_then(|column| column.last());
        match (first, last) {
            (Some(first), Some(last)) => last.at.0.saturating_sub(first.at.0),
            _ => 0,
        }
    }

    /// Returns the highest value in view; `None` if no value is known.
    pub(crate) fn peak(&self, series: &Series) -> Option<u64> {
        self.values(series).flatten().max()
    }

    /// Draws a bar for each column: its highest value, relative to the peak. Columns without a known value are left blank.
    pub(crate) fn bars(&self, series: &Series, unicode: bool) -> String {
        let peak = self.peak(series).unwrap_or(0);
        let bar = |value| bar(value, peak, unicode);
        self.values(series).map(bar).collect()
    }

    fn values(&self, series: &Series) -> impl Iterator<Item = Option<u64>> {
        let columns = self.columns.iter();
        columns.map(|column| column.iter().filter_map(|point| (series.value)(point)).max())
    }
}

/// Returns a bar of one of eight heights, or a blank if the value is unknown. Zero has a character of its own, so it differs from a small
/// value.
fn bar(value: Option<u64>, peak: u64, unicode: bool) -> char {
    let heights = if unicode { "▁▂▃▄▅▆▇█" } else { ".:-=+*#@" };
    match value {
        None => ' ',
        Some(0) => '_',
        Some(value) => {
            let height = (u128::from(value) * 8).div_ceil(u128::from(peak.max(1)));
            let height = usize::try_from(height).unwrap_or(8).clamp(1, 8);
            heights.chars().nth(height - 1).unwrap_or('?')
        }
    }
}

fn rate(point: &Point, of: impl Fn(&Rates) -> Option<Rate>) -> Option<u64> {
    of(point.rates.as_ref()?).map(|rate| rate.0)
}

/// Formats a rate, with tenths if it rounds to less than 10.
pub(crate) fn rate_words(rate: Rate) -> String {
    match rate.0 {
        0 => "0".to_owned(),
        1..50 => "<0.1".to_owned(),
        50..9950 => {
            let tenths = (rate.0 + 50) / 100;
            format!("{}.{}", tenths / 10, tenths % 10)
        }
        _ => grouped(rate.whole()),
    }
}
