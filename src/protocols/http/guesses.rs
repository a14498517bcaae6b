//! Wrong tokens: how many are compared in a minute, from each address and in total. Beyond that, tokens are refused without being compared,
//! and nobody waits. An address that has sent a right token is not locked out, since other users of its machine may be the ones who guess.

use crate::clock::Date;
use crate::protocols::http::problem::Problem;
use crate::refusal::Reason;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The time after which wrong tokens are forgotten, in milliseconds.
const WINDOW_MS: u64 = 60_000;

/// The maximum number of wrong tokens from one address in that time.
const OF_ADDRESS_MAX: u32 = 20;

/// The maximum number of wrong tokens in that time.
const ALL_MAX: u32 = 1000;

/// The maximum number of addresses that have sent a right token and are remembered.
const KNOWN_MAX: usize = 4096;

/// The recent wrong tokens.
#[derive(Debug, Default)]
pub(crate) struct Guesses(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    /// When the first of the wrong tokens was sent.
    since: Date,
    all: u32,
    by_address: HashMap<IpAddr, u32>,
    /// Addresses that have sent a right token.
    known: HashSet<IpAddr>,
}

impl Guesses {
    /// Compares a token: `compare` returns `None` if it is wrong. Refuses it without a comparison if too many wrong tokens were sent and no
    /// right one has come from this address.
    pub(crate) fn compare<T>(
        &self,
        (address, now): (IpAddr, Date),
        compare: impl FnOnce() -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        let (is_over, is_known) = {
            let mut recent = self.recent();
            recent.forget(now);
            (recent.is_over(address), recent.known.contains(&address))
        };
        let words = "too many wrong tokens were sent: wait a minute before the next one";
        let refused = || Err(Problem::new(Reason::Throttled, words));
        if is_over && !is_known {
            return refused();
        }
        let found = compare();
        let mut recent = self.recent();
        match found {
            Some(_) if recent.known.len() < KNOWN_MAX => {
                recent.known.insert(address);
            }
            Some(_) => {}
            None if is_over => return refused(),
            None => recent.note(address, now),
        }
        Ok(found)
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
    use crate::clock::Date;
    use std::net::IpAddr;

    fn address(last: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0x0a00_0000 + last).into()
    }

    /// Sends a token. Returns whether it was accepted, or `None` if it was not compared, or was one wrong token too many.
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
        assert_eq!(
            send(&guesses, 1, WINDOW_MS, true),
            None,
            "it is not compared"
        );
        assert_eq!(
            send(&guesses, 2, WINDOW_MS, true),
            Some(true),
            "nobody else waits"
        );
        assert_eq!(
            send(&guesses, 1, WINDOW_MS + 5, true),
            Some(true),
            "a minute later"
        );
    }

    #[test]
    fn one_that_knows_a_token_is_not_locked_out_by_another_on_its_address() {
        let guesses = Guesses::default();
        assert_eq!(send(&guesses, 1, 5, true), Some(true));
        for _ in 0..OF_ADDRESS_MAX {
            assert_eq!(send(&guesses, 1, 5, false), Some(false));
        }
        assert_eq!(send(&guesses, 1, 5, false), None);
        assert_eq!(send(&guesses, 1, 5, true), Some(true));
    }

    #[test]
    fn all_addresses_together_send_a_bounded_number_of_wrong_tokens() {
        let guesses = Guesses::default();
        assert_eq!(send(&guesses, 0, 5, true), Some(true));
        for from in 1..=ALL_MAX {
            assert_eq!(send(&guesses, from, 5, false), Some(false));
        }
        assert_eq!(send(&guesses, ALL_MAX + 1, 5, true), None);
        assert_eq!(send(&guesses, 0, 5, true), Some(true), "it is known");
        assert_eq!(
            send(&guesses, 1, 4, true),
            Some(true),
            "the clock was set back"
        );
    }
}
