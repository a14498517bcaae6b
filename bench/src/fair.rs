//! Measures fairness between tenants by the order of claims: how long ten jobs of one tenant wait while very many of another are ready.

use crate::coordinator::Coordinator;
use crate::event::{Event, listen};
use crate::failure::Failure;
use crate::figures::as_float;
use serde_json::Value;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// The queue of the tenant with many jobs.
pub(crate) const BIG: &str = "big:bench";

/// The queue of the tenant with few jobs.
pub(crate) const SMALL: &str = "small:bench";

/// The number of jobs in the small queue.
pub(crate) const FEW: u32 = 10;

/// The number of claims before the small queue's jobs are added; until then the other tenant is alone.
const BEFORE: u32 = 100;

/// The maximum time to wait for the next event.
const PATIENCE: Duration = Duration::from_mins(1);

/// A subscription to the events of a coordinator that report jobs as added or claimed.
pub(crate) struct Claims(Receiver<Result<Event, Failure>>);

impl Claims {
    pub(crate) fn listen(coordinator: &Coordinator) -> Result<Self, Failure> {
        listen(coordinator, "actor=queue&kind=added,claimed").map(Self)
    }

    /// Returns the kind and queue of the next event.
    fn next(&self) -> Result<(String, String), Failure> {
        let heard = self.0.recv_timeout(PATIENCE);
        let Event { what, .. } =
            heard.map_err(|_| Failure::new("no job was added or claimed for a minute"))??;
        let word = |name: &str| what.get(name).and_then(Value::as_str).map(str::to_owned);
        match (word("kind"), word("queue")) {
            (Some(kind), Some(queue)) => Ok((kind, queue)),
            _ => Err(Failure::new("events were missed: they arrived too fast")),
        }
    }

    /// Waits for [`BEFORE`] claims, so that the runner (`sexton work`) is busy with the jobs of [`BIG`].
    pub(crate) fn begun(&self) -> Result<(), Failure> {
        let mut claims = 0;
        while claims < BEFORE {
            let (kind, _) = self.next()?;
            claims += u32::from(kind == "claimed");
        }
        Ok(())
    }

    /// Returns the largest wait of the jobs in [`SMALL`]. The wait of the k-th of them to be claimed is n / k, where n is the number of
    /// claims from any queue since [`SMALL`] got its first job, including the claim of that k-th job.
    pub(crate) fn largest_wait(&self) -> Result<f64, Failure> {
        let (mut is_there, mut place, mut found, mut largest) = (false, 0, 0, 0.0_f64);
        while found < FEW {
            let (kind, queue) = self.next()?;
            is_there |= kind == "added" && queue == SMALL;
            if kind != "claimed" || !is_there {
                continue;
            }
            place += 1;
            if queue == SMALL {
                found += 1;
                largest = largest.max(as_float(place) / f64::from(found));
            }
        }
        Ok(largest)
    }
}
