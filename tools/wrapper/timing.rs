//! When the near end of an attempt pings, reconnects and gives up, in milliseconds since boot. It is given the time, and has no clock.
//!
//! An attempt that must stop is waited for only so long: nothing that the other machine sends extends that.

/// How long the far end may take to identify itself.
const GREETING_MS: u64 = 30_000;
/// The first pause before reconnecting.
const PAUSE_MS: u64 = 50;
/// The maximum pause before reconnecting.
const PAUSE_MS_MAX: u64 = 2000;
/// How long a connection must have lasted for the next pause to be the first one again.
const STEADY_MS: u64 = 10_000;
/// The maximum interval between two pings.
const BEAT_MS_MAX: u64 = 5000;
/// How much longer than the far end's own limit to wait for contact before the attempt is reported as unreachable.
const SLACK_MS: u64 = 3000;
/// How much longer than the grace period an attempt that must stop may take to end, at most: the rest of its output may be on the way.
const STOP_SLACK_MS_MAX: u64 = 15_000;

/// The times that matter to a wait for an attempt.
#[derive(Clone, Debug)]
pub(super) struct Timing {
    /// After how long without contact the far end stops the attempt.
    lost_after: u64,
    /// The time between SIGTERM and SIGKILL.
    grace: u64,
    /// When the last message was sent.
    sent_at: u64,
    /// When the last message was received, or the connection was opened.
    received_at: u64,
    /// When the far end of the current connection identified itself.
    greeted_at: Option<u64>,
    /// When the far end was first ordered to stop the attempt.
    stop_sent_at: Option<u64>,
    /// When to reconnect.
    reconnect_at: u64,
    /// The pause after the next loss of the connection.
    pause: u64,
}

impl Timing {
    pub(super) const fn new(lost_after: u64, grace: u64, now: u64) -> Self {
        Self {
            lost_after,
            grace,
            sent_at: now,
            received_at: now,
            greeted_at: None,
            stop_sent_at: None,
            reconnect_at: now,
            pause: PAUSE_MS,
        }
    }

    /// Returns the interval between two pings.
    pub(super) fn beat(&self) -> u64 {
        (self.lost_after / 10).clamp(100, BEAT_MS_MAX)
    }

    pub(super) const fn opened(&mut self, now: u64) {
        (self.received_at, self.greeted_at) = (now, None);
    }

    pub(super) const fn greeted(&mut self, now: u64) {
        self.greeted_at = Some(now);
    }

    /// Returns whether the far end of the current connection has identified itself.
    pub(super) const fn is_greeted(&self) -> bool {
        self.greeted_at.is_some()
    }

    pub(super) const fn received(&mut self, now: u64) {
        self.received_at = now;
    }

    pub(super) const fn sent(&mut self, now: u64) {
        self.sent_at = now;
    }

    /// The far end was ordered to stop the attempt, for the first time or again.
    pub(super) fn stop_sent(&mut self, now: u64) {
        self.stop_sent_at.get_or_insert(now);
    }

    /// The connection was lost. The pause before the next one grows, unless this one lasted.
    pub(super) fn closed(&mut self, now: u64) {
        let lasted = self.greeted_at.take().map_or(0, |at| now.saturating_sub(at));
        if lasted >= STEADY_MS {
            self.pause = PAUSE_MS;
        }
        self.reconnect_at = now.saturating_add(self.pause);
        // The far end must be reached again before it stops the attempt.
        let most = (self.lost_after / 4).clamp(PAUSE_MS, PAUSE_MS_MAX);
        self.pause = self.pause.saturating_mul(2).min(most);
    }

    /// Returns whether nothing has been received for so long that the connection counts as lost.
    pub(super) fn is_silent(&self, now: u64) -> bool {
        let patience = match self.greeted_at {
            // A lost connection must be detected early enough to reconnect in time.
            Some(_) => (3 * self.beat() + 1000).min(self.lost_after / 2),
            None => GREETING_MS,
        };
        now > self.received_at.saturating_add(patience)
    }

    pub(super) fn is_ping_due(&self, now: u64) -> bool {
        self.is_greeted() && now >= self.sent_at.saturating_add(self.beat())
    }

    pub(super) const fn is_reconnect_due(&self, now: u64) -> bool {
        now >= self.reconnect_at
    }

    /// Returns whether the far end was ordered to stop the attempt so long ago that it should have ended.
    pub(super) fn is_stop_overdue(&self, now: u64) -> bool {
        let slack = (self.lost_after / 8).clamp(SLACK_MS, STOP_SLACK_MS_MAX);
        let most = self.grace.saturating_add(slack);
        self.stop_sent_at.is_some_and(|at| now > at.saturating_add(most))
    }

    /// Returns whether the far end has been without contact for so long that it must have stopped the attempt.
    pub(super) const fn is_unreachable(&self, now: u64) -> bool {
        let most = self.lost_after.saturating_add(self.grace).saturating_add(SLACK_MS);
        now > self.sent_at.saturating_add(most)
    }
}

#[cfg(test)]
mod tests {
    use super::Timing;

    /// Opens and loses connections, each of which lasts this long. Returns the pauses.
    fn pauses(timing: &mut Timing, now: &mut u64, lasting: &[u64]) -> Vec<u64> {
        let mut pauses = Vec::new();
        for lasting in lasting {
            timing.opened(*now);
            timing.greeted(*now);
            *now += lasting;
            timing.closed(*now);
            let lost_at = *now;
            while !timing.is_reconnect_due(*now) {
                *now += 1;
            }
            pauses.push(*now - lost_at);
        }
        pauses
    }

    #[test]
    fn a_connection_that_did_not_last_makes_the_next_pause_longer() {
        let (mut now, mut timing) = (0, Timing::new(120_000, 2000, 0));
        let short = pauses(&mut timing, &mut now, &[5, 0, 9000, 5, 5, 5, 5, 5]);
        assert_eq!(short, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        assert_eq!(pauses(&mut timing, &mut now, &[10_000, 5]), [50, 100]);
        // The far end of a short limit is reached again in time.
        let (mut now, mut timing) = (0, Timing::new(1000, 0, 0));
        assert_eq!(pauses(&mut timing, &mut now, &[0, 0, 0, 0, 0]), [50, 100, 200, 250, 250]);
    }

    #[test]
    fn an_attempt_that_must_stop_is_waited_for_only_so_long_whatever_is_received() {
        let mut timing = Timing::new(120_000, 2000, 0);
        timing.opened(0);
        timing.greeted(0);
        for now in (0..=100_000).step_by(100) {
            timing.received(now);
            timing.sent(now);
            assert!(!timing.is_stop_overdue(now), "it need not stop");
        }
        timing.stop_sent(100_000);
        for now in (100_000..=117_000).step_by(100) {
            timing.received(now);
            timing.sent(now);
            timing.stop_sent(now);
            assert!(!timing.is_stop_overdue(now), "{now}");
        }
        assert!(timing.is_stop_overdue(117_001));
        // From then on nothing is sent, and the far end stops the attempt by itself.
        assert!(!timing.is_unreachable(117_000 + 125_000));
        assert!(timing.is_unreachable(117_000 + 125_001));
    }
}
