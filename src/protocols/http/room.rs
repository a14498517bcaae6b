//! What one listener has to give: connections, requests that wait, large answers, turns of streams. The Unix socket has a room of its
//! own, so that whatever happens on TCP, the command line gets in and is served.

use crate::actors::queue::QueueName;
use crate::config::HttpConfig;
use crate::protocols::bounds::{NAMED_BYTES_MAX, bytes_to_name};
use crate::protocols::http::problem::Problem;
use crate::protocols::listener::{Place, Places};
use crate::refusal::Reason;
use crate::spine::budget::{Budget, Held};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Large answers that are gathered, or lie unread, at a time.
const LARGE_MAX: usize = 128;

/// How long a request waits for its turn to gather one.
const LARGE_PATIENCE: Duration = Duration::from_secs(10);

/// Streams that are given more to say at a time. They share a thread with every request: thousands that are woken by
/// one event would all stand before whoever asks something then.
const STREAMS_MAX: usize = 16;

/// The places of a listener.
pub(crate) struct Room {
    pub(crate) connections: Arc<Places>,
    waits: Arc<Places>,
    large: Arc<Semaphore>,
    streams: Turns,
    /// What requests hold that have not come whole, or are not answered.
    pub(crate) unfinished: Arc<Budget>,
    /// What the queues cost that are waited for.
    named: Arc<Budget>,
}

/// Whose turn it is among streams, one after the other.
#[derive(Clone)]
pub(crate) struct Turns(Arc<Semaphore>);

impl Turns {
    /// Waits for the turn of a stream. It is over when what this gives is dropped.
    pub(crate) async fn next(&self) -> Option<OwnedSemaphorePermit> {
        let turn = Arc::clone(&self.0).acquire_owned().await.ok();
        // Even one alone that always has more to say lets others in between.
        tokio::task::yield_now().await;
        turn
    }
}

impl Room {
    /// The room of a listener, with its part of what requests may hold.
    pub(crate) fn new(config: &HttpConfig, unfinished: &Arc<Budget>) -> Self {
        Self {
            connections: Places::new(config.connections_max),
            waits: Places::new(config.waits_max),
            unfinished: Budget::half_of(unfinished),
            named: Budget::new(NAMED_BYTES_MAX),
            large: Arc::new(Semaphore::new(LARGE_MAX)),
            streams: Turns(Arc::new(Semaphore::new(STREAMS_MAX))),
        }
    }

    /// The turns of those who listen.
    pub(crate) fn streams(&self) -> Turns {
        self.streams.clone()
    }

    /// A place among the requests that wait.
    pub(crate) fn wait(&self) -> Result<Place, Problem> {
        let words = "as many requests wait as are allowed: ask again later, or without waiting";
        let place = self.waits.take();
        place.ok_or_else(|| Problem::new(Reason::Waits, words))
    }

    /// Room to wait for jobs of these queues.
    pub(crate) fn name(&self, queues: &[QueueName]) -> Result<Held, Problem> {
        let mut held = Held::new(&self.named);
        let words =
            "requests wait for as many queues as are allowed: ask again later, or without waiting";
        if held.set(queues.iter().map(bytes_to_name).sum()) {
            Ok(held)
        } else {
            Err(Problem::new(Reason::Waits, words))
        }
    }

    /// A place among the large answers: taken before one is gathered, and kept until it is written.
    pub(crate) async fn large(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let words = "as many large answers lie unread as are allowed: ask again later";
        let place = Arc::clone(&self.large).acquire_owned();
        match timeout(LARGE_PATIENCE, place).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => Err(Problem::new(Reason::Large, words)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, HttpConfig, QueueName, Room, STREAMS_MAX};
    use std::cell::Cell;
    use std::rc::Rc;
    use tokio::task::{LocalSet, spawn_local, yield_now};

    /// How often a request comes back to the end of the line before it is answered.
    const HOPS: usize = 10;

    /// The turns that streams are given while a request is answered, if all of them always have more to say.
    fn turns_during_a_request(streams: usize) -> usize {
        let turns = Room::new(&HttpConfig::default(), &Budget::new(0)).streams();
        let given = Rc::new(Cell::new(0));
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            for _ in 0..streams {
                let (turns, given) = (turns.clone(), Rc::clone(&given));
                drop(spawn_local(async move {
                    loop {
                        let turn = turns.next().await;
                        given.set(given.get() + 1);
                        drop(turn);
                    }
                }));
            }
            while given.get() < 2 * streams {
                yield_now().await;
            }
            let request = spawn_local(async move {
                let before = given.get();
                for _ in 0..HOPS {
                    yield_now().await;
                }
                given.get() - before
            });
            request.await.unwrap()
        })
    }

    #[test]
    fn however_many_streams_speak_a_request_has_few_of_them_before_it() {
        for streams in [1, 100, 2000] {
            let turns = turns_during_a_request(streams);
            assert!(turns > 0, "{streams} streams go on meanwhile");
            assert!(turns <= (HOPS + 1) * STREAMS_MAX, "{turns} of {streams}");
        }
    }

    #[test]
    fn requests_wait_for_a_bounded_number_of_queues() {
        let room = Room::new(&HttpConfig::default(), &Budget::new(0));
        let name = QueueName::new(&[b'q'; 200]).unwrap();
        let names = vec![name; 1000];
        let held: Vec<_> = (0..12_288).map_while(|_| room.name(&names).ok()).collect();
        assert!((100..1000).contains(&held.len()), "{}", held.len());
        drop(held);
        assert!(room.name(&names).is_ok());
    }
}
