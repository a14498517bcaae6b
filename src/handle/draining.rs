//! Draining: nothing new is taken on until the next start, and what is held comes to its end.

use crate::actors::{dispatch, lease, lock, queue};
use crate::handle::{Command, Handle, QueueError};
use crate::ids::ActorId;
use crate::spine::delivery::Item;
use crate::spine::machine::Draining;
use crate::spine::runtime::Stopped;
use tokio::sync::oneshot;

/// What a drain has a node take on no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "http",
    derive(serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "snake_case"),
    schemars(rename = "DrainWhat")
)]
pub enum Drain {
    /// No new locks: renewals and releases go on, and who waits is granted.
    Locks,
    /// No new jobs, and no new claims of jobs: what is claimed may be touched, and comes to its end.
    Queues,
    /// No new passes of leases: those that run come to their end, and requests of before stay.
    Leases,
    /// No new tasks, and no new bursts of those that are there: attempts that are under way come to their end.
    Tasks,
    /// All of these.
    All,
    /// No new jobs. Claims go on, and the node does not end by it: what beanstalkd means by draining.
    #[cfg_attr(feature = "http", serde(skip))]
    Jobs,
}

impl Drain {
    /// What is taken on no more.
    const fn drains(self) -> Drains {
        Drains {
            locks: matches!(self, Self::Locks | Self::All),
            jobs: matches!(self, Self::Queues | Self::All | Self::Jobs),
            claims: matches!(self, Self::Queues | Self::All),
            passes: matches!(self, Self::Leases | Self::All),
            tasks: matches!(self, Self::Tasks | Self::All),
        }
    }

    /// The same, actor by actor.
    pub(crate) fn actors(self) -> impl Iterator<Item = (ActorId, Draining)> {
        let Drains {
            locks,
            jobs,
            claims,
            passes,
            tasks,
        } = self.drains();
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

/// What a node takes on no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is drained for itself")]
pub struct Drains {
    /// New locks.
    pub locks: bool,
    /// New jobs.
    pub jobs: bool,
    /// Claims of jobs.
    pub claims: bool,
    /// New passes of leases.
    pub passes: bool,
    /// New tasks, and new bursts.
    pub tasks: bool,
}

impl Drains {
    /// Whether there is anything.
    pub const fn any(self) -> bool {
        self.locks || self.jobs || self.claims || self.passes || self.tasks
    }

    /// What it is, in words.
    pub fn words(self) -> Vec<&'static str> {
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

/// What a drain waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Locks, held or waited for.
    pub locks: u64,
    /// Claimed jobs.
    pub claims: u64,
    /// Passes of leases that run.
    pub passes: u64,
    /// Tasks with an attempt under way.
    pub tasks: u64,
}

impl Handle {
    /// Takes nothing new of this on from now on, and resolves when no lock, no claim of a job, no pass of a lease and no
    /// attempt of a task is left.
    pub async fn drain(&self, what: Drain) -> Result<(), Stopped> {
        self.begin_drain(what).await?;
        self.drained().await
    }

    /// Takes nothing new of this on from now on, beside what a drain before has ended.
    pub async fn begin_drain(&self, what: Drain) -> Result<(), Stopped> {
        let (answer, begun) = oneshot::channel();
        let sent = self.facts.commands.send(Command::Drain(what, answer));
        sent.map_err(|_| Stopped)?;
        begun.await.map_err(|_| Stopped)?;
        let draining = &self.facts.draining;
        draining.send_modify(|drains| *drains = drains.and(what.drains()));
        Ok(())
    }

    /// What is taken on no more.
    pub fn draining(&self) -> Drains {
        *self.facts.draining.borrow()
    }

    /// Resolves at the first moment after a drain of locks, queues, leases or tasks has begun, by whomever, at which no lock, no
    /// claim, no pass and no attempt is left, whichever of them drains. Never, if none begins.
    pub async fn drained(&self) -> Result<(), Stopped> {
        let mut draining = self.facts.draining.subscribe();
        let begun = draining.wait_for(|it| it.locks || it.claims || it.passes || it.tasks);
        drop(begun.await.map_err(|_| Stopped)?);
        loop {
            drop(self.actors.lock.watch(lock::Watch::Empty).await?);
            drop(self.actors.queue.watch(queue::Watch::Unclaimed).await?);
            drop(self.actors.lease.watch(lease::Watch::Idle).await?);
            drop(self.actors.dispatch.watch(dispatch::Watch::Idle).await?);
            // Of what does not drain, there may be more meanwhile.
            match self.left().await {
                Ok(left) if left == Left::default() => return Ok(()),
                Err(QueueError::Stopped(stopped)) => return Err(stopped),
                // An actor that panicked is served again, or the node halts.
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// What a drain would wait for now.
    pub async fn left(&self) -> Result<Left, QueueError> {
        let counts = vec![Item::Query(lock::Query::Counts)];
        let counts = self.actors.lock.call(counts).await?.pop();
        let lock::Reply::Counts { owners, contenders } = counts.ok_or(Stopped)?? else {
            unreachable!("counts are the answer to a question about counts");
        };
        let locks = u64::from(owners) + u64::from(contenders);
        let claims = self.queues().totals().await?.jobs.claimed.into();
        let totals = vec![Item::Query(lease::Query::Totals)];
        let totals = self.actors.lease.call(totals).await?.pop();
        let lease::Reply::Totals(lease::Totals {
            running: passes, ..
        }) = totals.ok_or(Stopped)??
        else {
            unreachable!("totals are the answer to a question about totals");
        };
        let totals = vec![Item::Query(dispatch::Query::Totals)];
        let totals = self.actors.dispatch.call(totals).await?.pop();
        let dispatch::Reply::Totals(dispatch::Totals {
            processing: tasks, ..
        }) = totals.ok_or(Stopped)??
        else {
            unreachable!("totals are the answer to a question about totals");
        };
        Ok(Left {
            locks,
            claims,
            passes,
            tasks,
        })
    }
}
