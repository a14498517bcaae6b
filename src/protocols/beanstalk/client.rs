//! What the QueueActor is asked for a client: that depends on the command, and on the tubes it uses and watches.

use crate::actors::host::Item;
use crate::actors::queue::{
    Claimant, Message, Phase, Pop, Put, Query, QueueMachine, QueueName, Right, Watch, Worker,
};
use crate::protocols::beanstalk::asked::Asked;
use crate::protocols::beanstalk::door::DEFAULT_TUBE;
use std::sync::Arc;

/// A client, as the QueueActor knows it.
pub(crate) struct Client {
    pub(crate) worker: Worker,
    pub(crate) using: QueueName,
    pub(crate) watching: Arc<[QueueName]>,
}

impl Client {
    pub(crate) fn new(worker: Worker) -> Self {
        let using = QueueName::new(DEFAULT_TUBE).expect("it is one");
        let watching = [using.clone()].into();
        Self {
            worker,
            using,
            watching,
        }
    }

    /// Says which queues it has to do with.
    pub(crate) fn presence(&self) -> Watch {
        Watch::Presence {
            using: self.using.clone(),
            watching: Arc::clone(&self.watching),
        }
    }

    /// Puts what a command asks of the actor behind `items`; nothing, if it only concerns the connection.
    pub(crate) fn ask(&self, asked: &Asked, items: &mut Vec<Item<QueueMachine>>) {
        let by = Right::Worker(self.worker);
        if let Asked::ReserveBatch(count) = asked {
            let pops = (0..*count).map(|_| Item::Message(Message::Pop(self.pop(false))));
            items.extend(pops);
        } else if let Asked::DeleteBatch(ids) = asked {
            let deletes = ids.iter().map(|id| Message::Delete { id: *id, by });
            items.extend(deletes.map(Item::Message));
        } else {
            items.extend(self.item(asked, by));
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the rest asks, or is for the session"
    )]
    fn item(&self, asked: &Asked, by: Right) -> Option<Item<QueueMachine>> {
        let message = match asked {
            Asked::Put(put) => Message::Put(Put {
                queue: self.using.clone(),
                priority: put.priority,
                delay_ms: ms(put.delay),
                ttr_ms: ms(put.ttr),
                dedup: put.dedup,
                body: put.body.clone(),
            }),
            Asked::Spoiled => Message::Spoil,
            Asked::Reserve { patience } => Message::Pop(self.pop(*patience != Some(0))),
            Asked::ReserveJob(id) => Message::PopJob {
                id: *id,
                by: Claimant::Worker(self.worker),
            },
            Asked::Delete(id) => Message::Delete { id: *id, by },
            Asked::Release {
                id,
                priority,
                delay,
            } => Message::Release {
                id: *id,
                by,
                priority: Some(*priority),
                delay_ms: ms(*delay),
            },
            Asked::Bury { id, priority } => Message::Bury {
                id: *id,
                by,
                priority: Some(*priority),
            },
            Asked::Touch(id) => Message::Touch { id: *id, by },
            Asked::Kick(count) => Message::Kick {
                queue: self.using.clone(),
                count: *count,
            },
            Asked::KickJob(id) => Message::KickJob { id: *id },
            Asked::PauseFound { tube, seconds } => Message::Pause {
                queue: tube.clone(),
                ms: ms(*seconds),
            },
            Asked::Flush(tube) => Message::Flush {
                queue: tube.clone(),
            },
            asked => return self.query(asked).map(Item::Query),
        };
        Some(Item::Message(message))
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the rest is for the session"
    )]
    fn query(&self, asked: &Asked) -> Option<Query> {
        let next = |phase| Query::PeekNext {
            queue: self.using.clone(),
            phase,
        };
        Some(match asked {
            Asked::Peek(id) => Query::Peek { id: *id },
            Asked::PeekReady => next(Phase::Ready),
            Asked::PeekDelayed => next(Phase::Delayed),
            Asked::PeekBuried => next(Phase::Buried),
            Asked::StatsJob(id) => Query::Job { id: *id },
            Asked::StatsTube(tube) | Asked::Pause { tube, .. } => Query::Queue {
                queue: tube.clone(),
            },
            Asked::Stats => Query::Totals,
            Asked::ListTubes => Query::Queues { most: u32::MAX },
            _ => return None,
        })
    }

    pub(crate) fn pop(&self, waits: bool) -> Pop {
        Pop {
            queues: Arc::clone(&self.watching),
            by: Claimant::Worker(self.worker),
            waits,
            ticket: None,
        }
    }
}

fn ms(seconds: u32) -> u64 {
    u64::from(seconds) * 1000
}
