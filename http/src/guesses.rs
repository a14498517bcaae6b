//! Wrong tokens: how many are answered as such in a minute, from each address and in total. Beyond that, wrong tokens are answered with 429. A
//! right token is always accepted: otherwise whoever can reach the listener could lock out all others (decision 71).

use crate::problem::Problem;
use sexton::clock::Date;
use sexton::refusal::Reason;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The time after which wrong tokens are forgotten, in milliseconds.
const WINDOW_MS: u64 = 60_000;

/// The maximum number of wrong tokens from one address in that time.
const OF_ADDRESS_MAX: u32 = 20;

/// The maximum number of wrong tokens in that time.
const ALL_MAX: u32 = 1000;

/// The recent wrong tokens.
#[derive(Debug, Default)]
pub(crate) struct Guesses(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    /// When the first of the wrong tokens was sent.
    since: Date,
    all: u32,
    by_address: HashMap<IpAddr, u32>,
}

impl Guesses {
    /// Compares a token: `compare` returns `None` if it is wrong. If too many wrong tokens were sent, the error is the answer to a wrong one.
    pub(crate) fn compare<T>(
        &self,
        (address, now): (IpAddr, Date),
        compare: impl FnOnce() -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        if let Some(found) = compare() {
            return Ok(Some(found));
        }
        let mut recent = self.recent();
        recent.forget(now);
        if recent.is_over(address) {
            let words = "the token is unknown, and too many wrong tokens were sent: wait a minute before the next one";
            return Err(Problem::new(Reason::Throttled, words));
        }
        recent.note(address, now);
        Ok(None)
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recent {
    /// Forgets all wrong tokens if the first of them was sent long enough ago, or if the wall clock was set back.
    fn forget(&mut self, now: Date) {
        if now < self.since || now.0 - self.since.0 >= WINDOW_MS {
            self.all = 0;
            self.by_address.clear();
        }
    }

    fn is_over(&self, address: IpAddr) -> bool {
        let of_address = self.by_address.get(&address);
        self.all >= ALL_MAX || of_address.is_some_and(|count| *count >= OF_ADDRESS_MAX)
    }

    /// Notes a wrong token. There are at most [`ALL_MAX`] of them, so the number of addresses is bounded, too.
    fn note(&mut self, address: IpAddr, now: Date) {
        if self.all == 0 {
            self.since = now;
        }
        self.all += 1;
        *self.by_address.entry(address).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{ALL_MAX, Guesses, OF_ADDRESS_MAX, WINDOW_MS};
    use sexton::clock::Date;
    use std::net::IpAddr;

    fn address(last: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0x0a00_0000 + last).into()
    }

    /// Sends a token. Returns whether it was accepted, or `None` if it was one wrong token too many.
    fn send(guesses: &Guesses, from: u32, at: u64, is_right: bool) -> Option<bool> {
        let compared = guesses.compare((address(from), Date(at)), || is_right.then_some(()));
        compared.ok().map(|it| it.is_some())
    }

    #[test]
    fn an_address_sends_a_bounded_number_of_wrong_tokens_a_minute() {
        let guesses = Guesses::default();
        for _ in 0..OF_ADDRESS_MAX {
            assert_eq!(send(&guesses, 1, 5, false), Some(false));
        }
        assert_eq!(send(&guesses, 1, WINDOW_MS, false), None);
        assert_eq!(send(&guesses, 2, WINDOW_MS, false), Some(false), "another address");
        assert_eq!(send(&guesses, 1, WINDOW_MS + 5, false), Some(false), "a minute later");
    }

    #[test]
    fn a_right_token_is_accepted_whoever_has_sent_wrong_ones() {
        let guesses = Guesses::default();
        for from in 0..ALL_MAX {
            assert_eq!(send(&guesses, from / OF_ADDRESS_MAX, 5, false), Some(false));
        }
        assert_eq!(send(&guesses, 1, 5, false), None);
        for from in [1, ALL_MAX + 1] {
            assert_eq!(send(&guesses, from, 5, true), Some(true), "its first");
            assert_eq!(send(&guesses, from, 5, false), None);
            assert_eq!(send(&guesses, from, 5, true), Some(true));
        }
    }

    #[test]
    fn all_addresses_together_send_a_bounded_number_of_wrong_tokens() {
        let guesses = Guesses::default();
        for from in 1..=ALL_MAX {
            assert_eq!(send(&guesses, from, 5, false), Some(false));
        }
        assert_eq!(send(&guesses, ALL_MAX + 1, 5, false), None);
        assert_eq!(send(&guesses, 1, 4, false), Some(false), "the clock was set back");
    }
}
