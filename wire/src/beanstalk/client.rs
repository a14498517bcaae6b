//! Converts a client's requests to messages and queries for the QueueActor, based on the tubes that the client uses and watches.

use crate::beanstalk::command::{ReserveMode, TubeName};
use crate::beanstalk::request::{Request, queue};
use sexton::actors::queue::{
    Claimant, Message, Phase, Pop, Put, Query, QueueMachine, QueueName, Right, Watch, Worker,
};
use sexton::spine::delivery::Item;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

/// The part of a client's state that determines its requests to the QueueActor.
pub(crate) struct Client {
    pub(crate) worker: Worker,
    pub(crate) using: QueueName,
    watching: Vec<QueueName>,
    /// The weight of each watched tube, in the order of `watching`.
    weights: Vec<u32>,
    /// The index of each tube in `watching`.
    places: HashMap<QueueName, usize>,
    /// The watched tubes and their weights as shared slices. They are built when a request first needs them, and discarded when a tube or
    /// a weight changes: building them for every `watch` would be slow for a client that watches a thousand tubes in a row.
    shared: OnceCell<Watched>,
    /// How `reserve` chooses among the watched tubes: by weight, or by the most urgent job.
    pub(crate) mode: ReserveMode,
    /// An empty list of weights, used unless `mode` is [`ReserveMode::Weighted`].
    evenly: Arc<[u32]>,
}

/// The watched tubes and their weights.
struct Watched {
    tubes: Arc<[QueueName]>,
    weights: Arc<[u32]>,
}

/// The default weight of a tube.
const WEIGHT: u32 = 1;

impl Client {
    pub(crate) fn new(worker: Worker) -> Self {
        let using = queue(TubeName::DEFAULT);
        let mut client = Self {
            worker,
            using: using.clone(),
            watching: Vec::new(),
            weights: Vec::new(),
            places: HashMap::new(),
            shared: OnceCell::new(),
            mode: ReserveMode::Default,
            evenly: [].into(),
        };
        client.watch(&using, None);
        client
    }

    /// Returns the tubes that the client watches.
    pub(crate) fn watching(&self) -> &[QueueName] {
        &self.watching
    }

    /// Returns whether the client watches a tube.
    pub(crate) fn watches(&self, tube: &QueueName) -> bool {
        self.places.contains_key(tube)
    }

    /// Watches a tube with the given weight, or with weight `WEIGHT` if `weight` is `None`. If the tube is already watched, changes only
    /// its weight, or nothing if `weight` is `None`. Returns whether the tube was not watched before.
    pub(crate) fn watch(&mut self, tube: &QueueName, weight: Option<u32>) -> bool {
        let known = self.places.get(tube);
        let kept = known.and_then(|place| self.weights.get_mut(*place));
        let is_new = kept.is_none();
        if let Some(kept) = kept {
            *kept = weight.unwrap_or(*kept);
        } else {
            self.places.insert(tube.clone(), self.watching.len());
            self.watching.push(tube.clone());
            self.weights.push(weight.unwrap_or(WEIGHT));
        }
        if is_new || weight.is_some() {
            self.shared.take();
        }
        is_new
    }

    /// Stops watching a tube, and returns whether it was watched. The last watched tube moves to the freed position, as in beanstalkd.
    pub(crate) fn ignore(&mut self, tube: &QueueName) -> bool {
        let Some(place) = self.places.remove(tube) else {
            return false;
        };
        self.watching.swap_remove(place);
        self.weights.swap_remove(place);
        if let Some(moved) = self.watching.get(place) {
            self.places.insert(moved.clone(), place);
        }
        self.shared.take();
        true
    }

    fn watched(&self) -> &Watched {
        self.shared.get_or_init(|| Watched {
            tubes: self.watching.as_slice().into(),
            weights: self.weights.as_slice().into(),
        })
    }

    /// Returns the [`Watch`] that registers this client as a user of the queues that it uses and watches.
    pub(crate) fn presence(&self) -> Watch {
        Watch::Presence { using: self.using.clone(), watching: Arc::clone(&self.watched().tubes) }
    }

    /// Appends the messages and queries for a request to `items`. A request that only concerns the connection adds none.
    pub(crate) fn push_items(&self, asked: &Request, items: &mut Vec<Item<QueueMachine>>) {
        let by = Right::Worker(self.worker);
        if let Request::ReserveBatch(count) = asked {
            let pops = (0..*count).map(|_| Item::Message(Message::Pop(self.pop(false))));
            items.extend(pops);
        } else if let Request::DeleteBatch(ids) = asked {
            let deletes = ids.iter().map(|id| Message::Delete { id: *id, by });
            items.extend(deletes.map(Item::Message));
        } else {
            items.extend(self.item(asked, by));
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all other requests are queries or are handled by the session"
    )]
    fn item(&self, asked: &Request, by: Right) -> Option<Item<QueueMachine>> {
        let message = match asked {
            Request::Put(put) => Message::Put(Put {
                priority: put.priority,
                delay_ms: ms(put.delay),
                ttr_ms: ms(put.ttr),
                dedup: put.dedup,
                tube: true,
                ..Put::new(self.using.clone(), put.body.clone())
            }),
            Request::Spoiled => Message::Spoil,
            Request::Reserve { patience } => Message::Pop(self.pop(*patience != Some(0))),
            Request::ReserveJob(id) => {
                Message::PopJob { id: *id, by: Claimant::Worker(self.worker) }
            }
            Request::Delete(id) => Message::Delete { id: *id, by },
            Request::Release { id, priority, delay } => {
                Message::Release { id: *id, by, priority: Some(*priority), delay_ms: ms(*delay) }
            }
            Request::Bury { id, priority } => {
                Message::Bury { id: *id, by, priority: Some(*priority) }
            }
            Request::Touch(id) => Message::Touch { id: *id, by },
            Request::Kick(count) => Message::Kick { queue: self.using.clone(), count: *count },
            Request::KickJob(id) => Message::KickJob { id: *id },
            Request::PauseFound { tube, seconds } => {
                Message::Pause { queue: tube.clone(), ms: ms(*seconds) }
            }
            Request::Flush(tube) => Message::Flush { queue: tube.clone() },
            asked => return self.query(asked).map(Item::Query),
        };
        Some(Item::Message(message))
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all other requests are handled by the session"
    )]
    fn query(&self, asked: &Request) -> Option<Query> {
        let next = |phase| Query::PeekNext { queue: self.using.clone(), phase };
        Some(match asked {
            Request::Peek(id) => Query::Peek { id: *id },
            Request::PeekReady => next(Phase::Ready),
            Request::PeekDelayed => next(Phase::Delayed),
            Request::PeekBuried => next(Phase::Buried),
            Request::StatsJob(id) => Query::Job { id: *id },
            Request::StatsTube(tube) | Request::Pause { tube, .. } => {
                Query::Queue { queue: tube.clone() }
            }
            Request::Stats => Query::Totals,
            _ => return None,
        })
    }

    pub(crate) fn pop(&self, waits: bool) -> Pop {
        let watched = self.watched();
        Pop {
            queues: Arc::clone(&watched.tubes),
            weights: match self.mode {
                ReserveMode::Weighted => Arc::clone(&watched.weights),
                ReserveMode::Default | ReserveMode::Fifo => Arc::clone(&self.evenly),
            },
            by: Claimant::Worker(self.worker),
            waits,
            ticket: None,
            ttr_ms: 0,
            any: None,
        }
    }
}

fn ms(seconds: u32) -> u64 {
    u64::from(seconds) * 1000
}

#[cfg(test)]
mod tests {
    use super::Client;
    use sexton::actors::queue::{QueueName, Worker};
    use std::sync::Arc;

    fn tube(number: usize) -> QueueName {
        QueueName::new(format!("t{number}").as_bytes()).unwrap()
    }

    #[test]
    fn a_thousand_tubes_are_watched_before_a_list_of_them_is_made() {
        let mut client = Client::new(Worker(1));
        for number in 0..1000 {
            assert!(client.watch(&tube(number), None));
            assert!(client.shared.get().is_none());
        }
        let first = client.pop(false).queues;
        assert!(!client.watch(&tube(7), None));
        assert!(Arc::ptr_eq(&first, &client.pop(true).queues));
        assert_eq!(first.len(), 1001);
    }

    #[test]
    fn the_last_takes_the_place_of_one_that_is_ignored() {
        let mut client = Client::new(Worker(1));
        for number in 0..4 {
            client.watch(&tube(number), Some(10 + u32::try_from(number).unwrap()));
        }
        assert!(client.ignore(&tube(1)) && !client.ignore(&tube(1)));
        assert!(client.watches(&tube(3)) && !client.watches(&tube(1)));
        client.watch(&tube(3), Some(99));
        let names: Vec<_> = client.watching().iter().map(QueueName::as_str).collect();
        assert_eq!(names, ["default", "t0", "t3", "t2"]);
        assert_eq!(*client.watched().weights, [1, 10, 99, 12]);
    }
}
