//! Numbers in answers of the coordinator, which may be of another version than this program: one that it did not send is absent, not zero.

use crate::report::Failure;
use serde_json::Value;
use std::fmt;
use std::iter::Sum;
use std::ops::Add;

/// A number in an answer; shown as `-` if it is absent or null. A sum or difference is absent if a part of it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Figure(Option<u64>);

/// Returns the number at `path`, a JSON pointer.
pub(crate) fn number(value: &Value, path: &str) -> Figure {
    Figure(value.pointer(path).and_then(Value::as_u64))
}

/// Returns the number at `path`, a JSON pointer, without which the command cannot continue.
pub(crate) fn required(value: &Value, path: &str) -> Result<u64, Failure> {
    number(value, path).known().ok_or_else(|| {
        let field = path.trim_start_matches('/').replace('/', ".");
        let words = format!("the coordinator's answer lacks the number {field}");
        Failure::unreachable(words)
            .help("the coordinator may be of another version: `sexton status` shows it")
    })
}

impl Figure {
    /// Returns the number; `None` if it is absent.
    pub(crate) const fn known(self) -> Option<u64> {
        self.0
    }

    /// Returns the number, or 0 if it is absent: for numbers that are left out where there is nothing to count.
    pub(crate) fn or_zero(self) -> u64 {
        self.0.unwrap_or(0)
    }

    /// Returns the difference; 0 if `other` is larger.
    pub(crate) fn minus(self, other: impl Into<Self>) -> Self {
        let both = self.0.zip(other.into().0);
        Self(both.map(|(number, other)| number.saturating_sub(other)))
    }

    /// Formats the number by `form`.
    pub(crate) fn shown(self, form: impl FnOnce(u64) -> String) -> String {
        self.0.map_or_else(|| "-".to_owned(), form)
    }
}

impl From<u64> for Figure {
    fn from(number: u64) -> Self {
        Self(Some(number))
    }
}

/// Nothing absent equals a number.
impl PartialEq<u64> for Figure {
    fn eq(&self, other: &u64) -> bool {
        self.0 == Some(*other)
    }
}

/// Nothing absent is less or more than a number.
impl PartialOrd<u64> for Figure {
    fn partial_cmp(&self, other: &u64) -> Option<std::cmp::Ordering> {
        self.0.map(|number| number.cmp(other))
    }
}

impl Add for Figure {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.zip(other.0).map(|(number, other)| number + other))
    }
}

impl Sum for Figure {
    fn sum<I: Iterator<Item = Self>>(numbers: I) -> Self {
        numbers.fold(0.into(), Add::add)
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.shown(|number| number.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Figure, number, required};
    use crate::text::{bytes, count, grouped, span};
    use serde_json::json;

    #[test]
    fn what_is_absent_is_not_zero() {
        let answer = json!({"jobs": {"ready": 1200, "none": null}});
        let ready = number(&answer, "/jobs/ready");
        assert!(ready == 1200 && ready > 0);
        assert_eq!(format!("{ready:>6}"), "  1200");
        for path in ["/jobs/none", "/jobs/claimed", "/more"] {
            let absent = number(&answer, path);
            assert_eq!((absent == 0, absent.partial_cmp(&0)), (false, None), "{path}");
            assert_eq!(absent.or_zero(), 0);
            let shown = [
                absent.to_string(),
                grouped(absent),
                bytes(absent),
                span(absent),
                ready.minus(absent).to_string(),
                (ready + absent).to_string(),
                [ready, absent].into_iter().sum::<Figure>().to_string(),
            ];
            assert_eq!(shown, ["-"; 7].map(str::to_owned), "{path}");
            assert_eq!(count(absent, "job"), "- jobs");
        }
        assert_eq!(ready.minus(1000), Figure::from(200));
        assert_eq!([ready, ready].into_iter().sum::<Figure>(), Figure::from(2400));
    }

    #[test]
    fn a_number_that_must_be_there_is_named_if_it_is_not() {
        let answer = json!({"job": {"id": 7}});
        assert_eq!(required(&answer, "/job/id").ok(), Some(7));
        let failure = required(&answer, "/job/token").expect_err("it is not there");
        let words = "the coordinator's answer lacks the number job.token";
        assert_eq!(failure.words(), words);
    }
}
