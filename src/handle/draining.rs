//! Draining: the node accepts no new work until it restarts, while work in progress is allowed to finish.

use crate::actors::{dispatch, lease, lock, queue};
use crate::handle::{Command, Handle, QueueError};
use crate::ids::ActorId;
use crate::spine::delivery::Item;
use crate::spine::machine::Draining;
use crate::spine::runtime::Stopped;
use sexton_api::operate::DrainWhat;
use tokio::sync::{oneshot, watch};

/// The part of a node's work to drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// No new locks. Renewals and releases continue, and locks are still granted to those who wait already.
    Locks,
    /// No new jobs and no new claims. Claimed jobs may be touched and completed.
    Queues,
    /// No new lease passes. Running passes finish; requests that wait for their turn are kept until the node is restarted.
    Leases,
    /// No new tasks, and no new bursts of existing tasks. Attempts under way finish.
    Tasks,
    /// All of the above.
    All,
    /// No new jobs, but existing jobs can still be claimed. This is what beanstalkd calls draining. [`Handle::drained`] ignores a drain of
    /// this kind.
    Jobs,
}

impl From<DrainWhat> for Drain {
    fn from(what: DrainWhat) -> Self {
        match what {
            DrainWhat::Locks => Self::Locks,
            DrainWhat::Queues => Self::Queues,
            DrainWhat::Leases => Self::Leases,
            DrainWhat::Tasks => Self::Tasks,
            DrainWhat::All => Self::All,
        }
    }
}

impl Drain {
    /// Returns the kinds of work that are refused during this drain.
    const fn drains(self) -> Drains {
        Drains {
            locks: matches!(self, Self::Locks | Self::All),
            jobs: matches!(self, Self::Queues | Self::All | Self::Jobs),
            claims: matches!(self, Self::Queues | Self::All),
            passes: matches!(self, Self::Leases | Self::All),
            tasks: matches!(self, Self::Tasks | Self::All),
        }
    }

    /// Returns the actors that refuse work during this drain, each with its draining state.
    pub(crate) fn actors(self) -> impl Iterator<Item = (ActorId, Draining)> {
        let Drains { locks, jobs, claims, passes, tasks } = self.drains();
        let of = |additions, all| match (additions, all) {
            (_, true) => Draining::All,
            (true, false) => Draining::Additions,
            (false, false) => Draining::No,
        };
        let all = [
            (ActorId::LOCK, of(locks, locks)),
            (ActorId::QUEUE, of(jobs, claims)),
            (ActorId::LEASE, of(passes, passes)),
            (ActorId::DISPATCH, of(tasks, tasks)),
        ];
        all.into_iter().filter(|(_, draining)| draining.has_begun())
    }
}

/// The kinds of work a node no longer accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each kind is drained independently")]
pub struct Drains {
    /// New locks.
    pub locks: bool,
    /// New jobs.
    pub jobs: bool,
    /// New claims of jobs.
    pub claims: bool,
    /// New lease passes.
    pub passes: bool,
    /// New tasks, and new bursts of existing ones.
    pub tasks: bool,
}

impl Drains {
    /// Returns whether anything is draining.
    pub const fn any(self) -> bool {
        self.locks || self.jobs || self.claims || self.passes || self.tasks
    }

    /// Returns the names of the kinds of work that are being drained, for display.
    pub fn names(self) -> Vec<&'static str> {
        let all = [
            (self.locks, "locks"),
            (self.jobs, "jobs"),
            (self.claims, "claims"),
            (self.passes, "passes"),
            (self.tasks, "tasks"),
        ];
        let all = all.into_iter().filter(|(is, _)| *is);
        all.map(|(_, word)| word).collect()
    }

    const fn and(self, other: Self) -> Self {
        Self {
            locks: self.locks || other.locks,
            jobs: self.jobs || other.jobs,
            claims: self.claims || other.claims,
            passes: self.passes || other.passes,
            tasks: self.tasks || other.tasks,
        }
    }
}

/// How much work is in progress that a drain waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InProgress {
    /// Lock entries, counting both the holders of locks and the waiters.
    pub locks: u64,
    /// Claimed jobs.
    pub claims: u64,
    /// Lease passes that are running.
    pub passes: u64,
    /// Tasks with an attempt under way.
    pub tasks: u64,
}

impl Handle {
    /// Starts draining `what`, and resolves when no lock entry, claim, lease pass or task attempt is left. For [`Drain::Jobs`], never
    /// resolves unless another drain begins: see [`Handle::drained`].
    pub async fn drain(&self, what: Drain) -> Result<(), Stopped> {
        self.begin_drain(what).await?;
        self.drained().await
    }

    /// Starts draining `what`, in addition to what is being drained already.
    pub async fn begin_drain(&self, what: Drain) -> Result<(), Stopped> {
        let (answer, begun) = oneshot::channel();
        let sent = self.facts.commands.send(Command::Drain(what, answer));
        sent.map_err(|_| Stopped)?;
        begun.await.map_err(|_| Stopped)?;
        let draining = &self.facts.draining;
        draining.send_modify(|drains| *drains = drains.and(what.drains()));
        Ok(())
    }

    /// Returns a channel with the kinds of work the node no longer accepts, for those who wait for a drain to begin.
    pub fn drains(&self) -> watch::Receiver<Drains> {
        self.facts.draining.subscribe()
    }

    /// Returns the kinds of work the node no longer accepts.
    pub fn draining(&self) -> Drains {
        *self.facts.draining.borrow()
    }

    /// Resolves once a drain of locks, queues, leases or tasks has begun, regardless of who started it, and no lock entry, claim, lease
    /// pass or task attempt is left, including those of kinds that are not draining. Never resolves if no drain begins.
    pub async fn drained(&self) -> Result<(), Stopped> {
        let mut draining = self.drains();
        let begun = draining.wait_for(|it| it.locks || it.claims || it.passes || it.tasks);
        drop(begun.await.map_err(|_| Stopped)?);
        loop {
            drop(self.actors.lock.watch(lock::Watch::Empty).await?);
            drop(self.actors.queue.watch(queue::Watch::Unclaimed).await?);
            drop(self.actors.lease.watch(lease::Watch::Idle).await?);
            drop(self.actors.dispatch.watch(dispatch::Watch::Idle).await?);
            // Work of kinds that are not draining may have been added in the meantime.
            match self.left().await {
                Ok(left) if left == InProgress::default() => return Ok(()),
                Err(QueueError::Stopped(stopped)) => return Err(stopped),
                // Try again. An actor that panicked will have been restarted, or the node halts and the next query fails.
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Returns the work in progress that a drain would wait for now.
    pub async fn left(&self) -> Result<InProgress, QueueError> {
        let counts = vec![Item::Query(lock::Query::Counts)];
        let counts = self.actors.lock.call(counts).await?.pop();
        let lock::Reply::Counts { owners, contenders } = counts.ok_or(Stopped)?? else {
            unreachable!("a query for counts is answered with counts");
        };
        let locks = u64::from(owners) + u64::from(contenders);
        let claims = self.queues().totals().await?.jobs.claimed.into();
        let totals = vec![Item::Query(lease::Query::Totals)];
        let totals = self.actors.lease.call(totals).await?.pop();
        let lease::Reply::Totals(lease::Totals { running: passes, .. }) =
            totals.ok_or(Stopped)??
        else {
            unreachable!("a query for totals is answered with totals");
        };
        let totals = vec![Item::Query(dispatch::Query::Totals)];
        let totals = self.actors.dispatch.call(totals).await?.pop();
        let dispatch::Reply::Totals(dispatch::Totals { processing: tasks, .. }) =
            totals.ok_or(Stopped)??
        else {
            unreachable!("a query for totals is answered with totals");
        };
        Ok(InProgress { locks, claims, passes, tasks })
    }
}
