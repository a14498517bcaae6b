//! Shows the progress of a run: on a terminal, in a line that is rewritten; to a service manager, if there is one, as the status.

use crate::client::instant;
use crate::notify::Notify;
use crate::progress::Progress;
use crate::text::{grouped, span};
use crate::work::runner::{RunTotals, Runner};
use crate::work::tally::failed;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often to read the number of remaining jobs from the coordinator.
const LOOK: Duration = Duration::from_secs(1);

/// Shows progress until the returned values are dropped. The first reports to the service
/// manager, the second to the terminal; each is `None` if its destination does not exist.
pub(super) fn start(runner: &Arc<Runner>) -> [Option<Progress>; 2] {
    let theirs = Arc::clone(runner);
    let told = Notify::from_environment().while_ready(move || counts(&theirs.totals()).join(", "));
    [told, on_terminal(runner)]
}

fn on_terminal(runner: &Arc<Runner>) -> Option<Progress> {
    if !std::io::stderr().is_terminal() {
        return None;
    }
    let runner = Arc::clone(runner);
    let asked: std::sync::Mutex<Option<(Instant, Option<u64>)>> = std::sync::Mutex::default();
    let words = move || {
        let mut asked = asked.lock().ok()?;
        let (_, ready) = match *asked {
            Some((at, ready)) if at.elapsed() < LOOK => (at, ready),
            _ => *asked.insert((instant(), runner.attempts.jobs.ready())),
        };
        Some(line(&runner.totals(), ready))
    };
    Some(Progress::start(words, |_| {}))
}

fn counts(standing: &RunTotals) -> [String; 3] {
    [
        format!("{} done", grouped(standing.done)),
        failed(standing.failed, standing.failed_tries),
        format!("{} running", standing.busy),
    ]
}

/// Formats the progress and the rate, and, if known, the number of ready jobs and an estimate of the time left.
fn line(standing: &RunTotals, ready: Option<u64>) -> String {
    let ended = standing.done + standing.failed_tries;
    let ms = u64::try_from(standing.elapsed.as_millis()).unwrap_or(u64::MAX);
    let tenths = (ended * 10_000).checked_div(ms).unwrap_or(0);
    let mut parts = counts(standing).to_vec();
    parts.push(format!("{}.{}/s", grouped(tenths / 10), tenths % 10));
    if let Some(ready) = ready {
        parts.push(format!("{} ready", grouped(ready)));
        if let Some(left) = (ready * ms).checked_div(ended) {
            parts.push(format!("{} left", span(left)));
        }
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::{RunTotals, line};
    use std::time::Duration;

    #[test]
    fn a_line_has_rate_and_time_left() {
        let mut standing = RunTotals {
            done: 90,
            failed: 10,
            failed_tries: 10,
            busy: 4,
            elapsed: Duration::from_secs(40),
        };
        let shown = line(&standing, Some(1000));
        let whole = "90 done, 10 failed, 4 running, 2.5/s, 1,000 ready, 6 min 40 s left";
        assert_eq!(shown, whole);
        (standing.failed, standing.failed_tries) = (1, 10);
        let shown = line(&standing, None);
        assert_eq!(shown, "90 done, 1 failed, 10 failed tries, 4 running, 2.5/s");
        (standing.done, standing.failed, standing.failed_tries) = (0, 0, 0);
        let shown = line(&standing, Some(1000));
        assert_eq!(shown, "0 done, 0 failed, 4 running, 0.0/s, 1,000 ready");
        assert!(!line(&standing, None).contains("ready"));
    }
}
