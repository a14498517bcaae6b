//! What the QueueActor is asked for a client: that depends on the command, and on the tubes it uses and watches.

use crate::actors::queue::{
    Claimant, Message, Phase, Pop, Put, Query, QueueMachine, QueueName, Right, Watch, Worker,
};
use crate::protocols::beanstalk::asked::Asked;
use crate::protocols::beanstalk::command::ReserveMode;
use crate::protocols::beanstalk::door::DEFAULT_TUBE;
use crate::spine::delivery::Item;
use std::sync::Arc;

/// A client, as the QueueActor knows it.
pub(crate) struct Client {
    pub(crate) worker: Worker,
    pub(crate) using: QueueName,
    pub(crate) watching: Arc<[QueueName]>,
    /// The weights of those that are watched, in their order.
    weights: Arc<[u32]>,
    /// Whether it reserves by weight; else from the tube with the most urgent job.
    pub(crate) mode: ReserveMode,
    /// No weights.
    evenly: Arc<[u32]>,
}

/// What a tube weighs if nothing is said.
const WEIGHT: u32 = 1;

impl Client {
    pub(crate) fn new(worker: Worker) -> Self {
        let using = QueueName::new(DEFAULT_TUBE).expect("it is one");
        let watching = [using.clone()].into();
        Self {
            worker,
            using,
            watching,
            weights: [WEIGHT].into(),
            mode: ReserveMode::Default,
            evenly: [].into(),
        }
    }

    /// Watches a tube, or one that it watches already with another weight. Whether it did not watch it.
    pub(crate) fn watch(&mut self, tube: &QueueName, weight: Option<u32>) -> bool {
        let known = self.watching.iter().position(|it| it == tube);
        let place = known.unwrap_or(self.watching.len());
        if known.is_none() {
            self.watching = self.watching.iter().chain([tube]).cloned().collect();
        }
        let others = self.weights.iter().copied();
        let mut weights: Vec<u32> = others.chain([WEIGHT]).take(self.watching.len()).collect();
        if let (Some(weight), Some(kept)) = (weight, weights.get_mut(place)) {
            *kept = weight;
        }
        self.weights = weights.into();
        known.is_none()
    }

    /// Watches a tube no longer. Whether it did. The last one takes its place, as it does in beanstalkd's lists.
    pub(crate) fn ignore(&mut self, tube: &QueueName) -> bool {
        let Some(place) = self.watching.iter().position(|it| it == tube) else {
            return false;
        };
        let (mut watching, mut weights) = (self.watching.to_vec(), self.weights.to_vec());
        watching.swap_remove(place);
        weights.swap_remove(place);
        (self.watching, self.weights) = (watching.into(), weights.into());
        true
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
                priority: put.priority,
                delay_ms: ms(put.delay),
                ttr_ms: ms(put.ttr),
                dedup: put.dedup,
                ..Put::new(self.using.clone(), put.body.clone())
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
            weights: match self.mode {
                ReserveMode::Weighted => Arc::clone(&self.weights),
                ReserveMode::Default | ReserveMode::Fifo => Arc::clone(&self.evenly),
            },
            by: Claimant::Worker(self.worker),
            waits,
            ticket: None,
        }
    }
}

fn ms(seconds: u32) -> u64 {
    u64::from(seconds) * 1000
}
