//! The capacity limits of one group of callers, on connections, waiting requests, large answers, unread answers and running streams. There are
//! three groups: callers over TCP, other users on the Unix socket, and the coordinator's own user and root there. No group can take
//! anything from another, so neither TCP clients nor a user whom the socket admits can lock out the command line.

use crate::problem::Problem;
use sexton::actors::queue::QueueName;
use sexton::config::HttpConfig;
use sexton::protocols::bounds::{NAMED_BYTES_MAX, Turns, bytes_to_name};
use sexton::protocols::listener::{Place, Places};
use sexton::refusal::Reason;
use sexton::spine::budget::{Budget, Reservation};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The maximum number of connections of the coordinator's own user and root above the limit, on a socket that others may use. Below the limit,
/// they share the connections of the socket.
const OWN_MAX: u32 = 64;

/// The maximum number of large answers being built or sent at a time.
const LARGE_MAX: usize = 128;

/// The maximum total size of the answers that clients have not read to their end, in bytes. If none are unread, one may be larger.
const UNREAD_BYTES_MAX: u64 = 64 << 20;

/// The maximum time for which a request waits for a permit to build a large answer.
const LARGE_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of streams that run at a time. They share a thread with all requests: if one event woke thousands of
/// streams, they would all run before the next request.
const STREAMS_MAX: usize = 16;

/// The capacity limits of a group of callers.
pub(crate) struct Capacity {
    pub(crate) connections: Arc<Places>,
    waits: Arc<Places>,
    large: Arc<Semaphore>,
    /// Limits the number of event streams that run at a time.
    streams: Turns,
    /// The memory budget for requests that have not arrived completely or are not answered yet.
    pub(crate) unfinished: Arc<Budget>,
    /// The memory budget for answers that have not been written completely.
    pub(super) unread: Arc<Budget>,
    /// The memory budget for queues that exist only because requests wait for them.
    named: Arc<Budget>,
}

impl Capacity {
    /// Creates the limits of callers whose requests may use at most half of the memory budget `unfinished`, which they share with others.
    pub(crate) fn new(config: &HttpConfig, unfinished: &Arc<Budget>) -> Self {
        Self::with(config, config.connections_max, Budget::half_of(unfinished))
    }

    /// Creates the limits of the coordinator's own user and root on the socket. Their requests have a memory budget of their own, as large
    /// as half of `unfinished`. Their connections are those above the limit, for the time when other users have taken all of the socket's.
    pub(crate) fn of_owner(config: &HttpConfig, unfinished: &Arc<Budget>) -> Self {
        Self::with(config, OWN_MAX, Budget::beside(unfinished))
    }

    fn with(config: &HttpConfig, connections_max: u32, unfinished: Arc<Budget>) -> Self {
        Self {
            connections: Places::of_connections(connections_max),
            waits: Places::new(config.waits_max),
            unfinished,
            unread: Budget::new(UNREAD_BYTES_MAX),
            named: Budget::new(NAMED_BYTES_MAX),
            large: Arc::new(Semaphore::new(LARGE_MAX)),
            streams: Turns::new(STREAMS_MAX),
        }
    }

    /// Returns the limit on the number of event streams that run at a time.
    pub(crate) fn streams(&self) -> Turns {
        self.streams.clone()
    }

    /// Takes one of the slots for waiting requests, and refuses the request if none is free.
    pub(crate) fn wait(&self) -> Result<Place, Problem> {
        let words = "too many requests are waiting: try again later, or without waiting";
        let place = self.waits.take();
        place.ok_or_else(|| Problem::new(Reason::Waits, words))
    }

    /// Reserves memory for the queues that a request waits for, and refuses the request if there is not enough.
    pub(crate) fn name(&self, queues: &[QueueName]) -> Result<Reservation, Problem> {
        let mut held = Reservation::new(&self.named);
        let words = "requests are waiting for too many queues: try again later, or without waiting";
        if held.set(queues.iter().map(bytes_to_name).sum()) {
            Ok(held)
        } else {
            Err(Problem::new(Reason::Waits, words))
        }
    }

    /// Takes a permit for a large answer, and refuses the request if none is free within `LARGE_TIMEOUT`. The permit must be taken before
    /// the answer is built, and held until the answer is written.
    pub(crate) async fn large(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let words = "too many large answers are being sent: try again later";
        let place = Arc::clone(&self.large).acquire_owned();
        match timeout(LARGE_TIMEOUT, place).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => Err(Problem::new(Reason::Large, words)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, Capacity, HttpConfig, QueueName, STREAMS_MAX};
    use std::cell::Cell;
    use std::rc::Rc;
    use tokio::task::{LocalSet, spawn_local, yield_now};

    /// The number of times a request is rescheduled before it is answered.
    const HOPS: usize = 10;

    /// Returns the number of turns that streams get while a request is answered, if all of them always have more to send.
    fn turns_during_a_request(streams: usize) -> usize {
        let turns = Capacity::new(&HttpConfig::default(), &Budget::new(0)).streams();
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
            assert!(turns > 0, "none of {streams} streams got a turn");
            assert!(turns <= (HOPS + 1) * STREAMS_MAX, "{turns} of {streams}");
        }
    }

    #[test]
    fn requests_wait_for_a_bounded_number_of_queues() {
        let room = Capacity::new(&HttpConfig::default(), &Budget::new(0));
        let name = QueueName::new(&[b'q'; 200]).unwrap();
        let names = vec![name; 1000];
        let held: Vec<_> = (0..12_288).map_while(|_| room.name(&names).ok()).collect();
        assert!((100..1000).contains(&held.len()), "{}", held.len());
        drop(held);
        assert!(room.name(&names).is_ok());
    }
}
