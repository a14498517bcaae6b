//! The four numbers in which Fossil stores a lease: the PID of the current holder and the time when its lease expires, then the same two
//! for the next holder.
//!
//! They are parsed as in Fossil's `backoffice.c`: for each number, spaces are skipped and digits are read. Any other character ends the
//! parsing, and the numbers after it are 0.

/// A lease as Fossil stores it: `idCurrent tmCurrent idNext tmNext`, with times in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FossilLease(pub [u64; 4]);

impl FossilLease {
    /// Parses a lease. As in Fossil, every text is a valid lease. A number that is too large becomes `u64::MAX`.
    pub fn read(text: &str) -> Self {
        let mut bytes = text.bytes().peekable();
        let mut numbers = [0_u64; 4];
        for number in &mut numbers {
            while bytes.next_if(|it| *it == b' ').is_some() {}
            while let Some(digit) = bytes.next_if(u8::is_ascii_digit) {
                *number = number.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
            }
        }
        Self(numbers)
    }
}

impl std::fmt::Display for FossilLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [current, until, next, until_next] = self.0;
        write!(f, "{current} {until} {next} {until_next}")
    }
}

/// Returns how long ago a lease was last used, in the words of Fossil's settings page.
///
/// `now` is in seconds since 1970, like the times of the lease. `age` formats a number of seconds.
pub fn last_run(four: &FossilLease, now: u64, age: impl Fn(u64) -> String) -> String {
    const PERIOD: u64 = 60;
    let [_, until, ..] = four.0;
    if until == 0 {
        "never".to_owned()
    } else if now.saturating_add(PERIOD) <= until {
        "moments ago".to_owned()
    } else {
        let ago = now.saturating_add(PERIOD).saturating_sub(until);
        format!("{} ago", age(ago))
    }
}

#[cfg(test)]
mod tests {
    use super::{FossilLease, last_run};

    #[test]
    fn a_lease_is_read_as_fossil_reads_it() {
        for (text, four) in [
            ("", [0; 4]),
            ("17294 1795217173 17388 1795217233", [17_294, 1_795_217_173, 17_388, 1_795_217_233]),
            ("12 abc 34 56", [12, 0, 0, 0]),
            ("  1   2 3", [1, 2, 3, 0]),
            ("1 -2 3 4", [1, 0, 0, 0]),
            ("1\t2", [1, 0, 0, 0]),
            ("99999999999999999999999 5", [u64::MAX, 5, 0, 0]),
        ] {
            assert_eq!(FossilLease::read(text), FossilLease(four), "{text:?}");
        }
        let text = "17294 1795217173 17388 1795217233";
        assert_eq!(FossilLease::read(text).to_string(), text);
    }

    #[test]
    fn the_last_run_is_said_as_fossil_says_it() {
        let age = |seconds: u64| format!("{seconds} seconds");
        let of = |until| last_run(&FossilLease([1, until, 0, 0]), 1000, age);
        assert_eq!(of(0), "never");
        assert_eq!(of(1060), "moments ago");
        assert_eq!(of(1059), "1 seconds ago");
        assert_eq!(of(560), "500 seconds ago");
    }
}
