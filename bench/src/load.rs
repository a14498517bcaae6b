//! Drives many connections from one thread, with epoll, non-blocking reads and writes, and timed wake-ups.
//!
//! The same code loads every server that a measurement compares; only the requests differ. It runs on the same machine as the server, so it
//! does as little as it can, and reports how much processor time it used.

use crate::codec::Unexpected;
use crate::failure::Failure;
use crate::figures::Latencies;
use crate::interrupt::Stop;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The maximum number of events taken from epoll at a time.
const EVENTS_MAX: usize = 512;

/// The maximum time to wait for events before checking for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// How long to wait for a server: for each connection, for each answer, and for all clients to finish at the end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The behaviour of one connection. It never reads the clock: times are passed in.
pub(crate) trait Client {
    /// Sends requests. Called once when the measurement begins, and at each time that the client sets as [`Turn::wake_at`].
    fn wake(&mut self, turn: &mut Turn<'_>);
    /// Consumes the complete answers at the front of `input`, and returns the number of bytes consumed, or an error if an answer is wrong.
    fn receive(&mut self, input: &[u8], turn: &mut Turn<'_>) -> Result<usize, Wrong>;
    /// Makes the client end soon: it releases what it holds, and begins nothing new.
    fn finish(&mut self, turn: &mut Turn<'_>);
    /// Returns whether the client has ended.
    fn is_finished(&self) -> bool;
    /// Returns the number of cycles that the client has done so far.
    fn done(&self) -> u64;
}

/// What a call to a client gets: the current time, and fields in which the client leaves its requests and results.
pub(crate) struct Turn<'a> {
    /// The current time.
    pub(crate) now: Instant,
    /// Where the client appends its requests.
    pub(crate) output: &'a mut Vec<u8>,
    /// Where the client records the durations that it measures.
    pub(crate) latencies: &'a mut Latencies,
    /// When to call [`Client::wake`], whether or not answers have arrived by then; `None` for no such call.
    pub(crate) wake_at: Option<Instant>,
}

/// A wrong answer from the server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Wrong {
    /// The protocol does not allow this answer to the request.
    #[error(transparent)]
    Unexpected(#[from] Unexpected),
    /// Any other wrong answer, such as one that contradicts what the client did before.
    #[error("{0}")]
    Contradiction(String),
}

/// The result of a measurement.
#[derive(Debug)]
pub(crate) struct Measured {
    /// How long cycles were counted.
    pub(crate) span: Duration,
    /// The number of counted cycles of each client.
    pub(crate) done: Vec<u64>,
    /// The measured durations.
    pub(crate) latencies: Latencies,
    /// The processor time that the load generator's thread used during `span`.
    pub(crate) load_cpu: Duration,
}

/// The connections to one server, and the client of each.
pub(crate) struct Load<C> {
    epoll: OwnedFd,
    lines: Vec<Line<C>>,
    wakes: BinaryHeap<Reverse<(Instant, usize)>>,
    scratch: Vec<u8>,
    latencies: Latencies,
    rests: bool,
}

struct Line<C> {
    stream: TcpStream,
    client: C,
    unread: Vec<u8>,
    unsent: Vec<u8>,
    /// Whether the socket's buffer is full, and epoll reports when there is room again.
    blocked: bool,
}

/// Returns the current time, for measurements.
#[expect(
    clippy::disallowed_methods,
    reason = "a measurement needs nanoseconds, and has no state that must be replayed"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

impl<C: Client> Load<C> {
    /// Connects every client. `greeting` is what the server sends on each new connection.
    pub(crate) fn connect(
        address: SocketAddr,
        greeting: &[u8],
        clients: impl Iterator<Item = C>,
    ) -> Result<Self, Failure> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Failure::to("watch connections"))?;
        let open = |client| -> io::Result<Line<C>> {
            let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let mut greeted = vec![0; greeting.len()];
            stream.read_exact(&mut greeted)?;
            if greeted != greeting {
                return Err(io::Error::other("the server sent an unexpected greeting"));
            }
            stream.set_nonblocking(true)?;
            Ok(Line { stream, client, unread: Vec::new(), unsent: Vec::new(), blocked: false })
        };
        let lines: Vec<_> = clients
            .map(open)
            .collect::<io::Result<_>>()
            .map_err(Failure::to(&format!("connect to {address}")))?;
        for (at, line) in lines.iter().enumerate() {
            let event = EventData::new_u64(at as u64);
            epoll::add(&epoll, &line.stream, event, EventFlags::IN)
                .map_err(Failure::to("watch a connection"))?;
        }
        Ok(Self {
            epoll,
            lines,
            wakes: BinaryHeap::new(),
            scratch: vec![0; 64 * 1024],
            latencies: Latencies::default(),
            rests: false,
        })
    }

    /// Makes the load sleep until the next wake-up instead of spinning. This leaves the processor to the server, but wake-ups are up to a
    /// millisecond late.
    pub(crate) fn resting(self) -> Self {
        Self { rests: true, ..self }
    }

    /// Runs the clients until each has finished its work, and returns how long that took.
    pub(crate) fn complete(mut self, stop: &Stop) -> Result<Duration, Failure> {
        let began = now();
        for at in 0..self.lines.len() {
            self.act(at, now(), C::wake)?;
        }
        self.run(stop, |lines, _| lines.iter().all(|line| line.client.is_finished()))?;
        Ok(now() - began)
    }

    /// Runs the clients for `warm_up` without counting their cycles, then for `span` while counting, and then until each has ended.
    pub(crate) fn measure(
        self,
        warm_up: Duration,
        span: Duration,
        stop: &Stop,
    ) -> Result<Measured, Failure> {
        self.measure_while(warm_up, stop, |counted| counted < span)
    }

    /// Like [`measure`](Self::measure), but counts as long as `goes_on` returns true for the time since counting began.
    pub(crate) fn measure_while(
        mut self,
        warm_up: Duration,
        stop: &Stop,
        mut goes_on: impl FnMut(Duration) -> bool,
    ) -> Result<Measured, Failure> {
        for at in 0..self.lines.len() {
            self.act(at, now(), C::wake)?;
        }
        let begin = now() + warm_up;
        self.run(stop, |_, now| now >= begin)?;
        let before: Vec<u64> = self.lines.iter().map(|line| line.client.done()).collect();
        self.latencies = Latencies::default();
        let (began, cpu) = (now(), thread_cpu());
        self.run(stop, |_, now| !goes_on(now - began))?;
        let (span, load_cpu) = (now() - began, thread_cpu().saturating_sub(cpu));
        let latencies = std::mem::take(&mut self.latencies);
        let done = (self.lines.iter().zip(before))
            .map(|(line, before)| line.client.done() - before)
            .collect();
        self.finish(stop)?;
        Ok(Measured { span, done, latencies, load_cpu })
    }

    fn finish(&mut self, stop: &Stop) -> Result<(), Failure> {
        for at in 0..self.lines.len() {
            self.act(at, now(), C::finish)?;
        }
        let patience = now() + PATIENCE;
        self.run(stop, |lines, now| {
            now >= patience || lines.iter().all(|line| line.client.is_finished())
        })?;
        if self.lines.iter().all(|line| line.client.is_finished()) {
            Ok(())
        } else {
            Err(Failure::new("the server left requests unanswered for ten seconds"))
        }
    }

    /// Handles events and wake-ups until `until` returns true. Returns an error if the measurement is interrupted, or if the server fails
    /// or sends nothing for [`PATIENCE`].
    fn run(
        &mut self,
        stop: &Stop,
        mut until: impl FnMut(&[Line<C>], Instant) -> bool,
    ) -> Result<(), Failure> {
        let none = epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let mut events = [none; EVENTS_MAX];
        let mut heard = now();
        loop {
            let now = now();
            if until(&self.lines, now) {
                return Ok(());
            }
            stop.check()?;
            while let Some(Reverse((due, at))) = self.wakes.peek().copied() {
                if due > now {
                    break;
                }
                self.wakes.pop();
                self.act(at, now, C::wake)?;
            }
            let timeout = self.wait_for(now);
            let count = match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
                Ok(count) => count,
                Err(rustix::io::Errno::INTR) => 0,
                Err(error) => return Err(Failure::to("wait for answers")(error)),
            };
            for event in events.iter().take(count) {
                let at =
                    usize::try_from(event.data.u64()).expect("every registered index is a usize");
                self.ready(at)?;
                heard = now;
            }
            if now - heard > PATIENCE {
                return Err(Failure::new("the server sent nothing for ten seconds"));
            }
        }
    }

    /// Returns the timeout for epoll in whole milliseconds: the time until the next wake-up, but at most [`LOOK`]. It is rounded up if this
    /// load is [resting](Self::resting). Otherwise it is rounded down, and the remainder is spent spinning.
    fn wait_for(&self, now: Instant) -> Timespec {
        let wait = self
            .wakes
            .peek()
            .map_or(LOOK, |Reverse((due, _))| due.saturating_duration_since(now).min(LOOK));
        let whole = wait.subsec_millis();
        let begun = self.rests && wait.subsec_nanos() > whole * 1_000_000;
        Timespec { tv_sec: 0, tv_nsec: i64::from(whole + u32::from(begun)) * 1_000_000 }
    }

    /// Reads what a connection has received, passes it to the client, and sends the client's requests.
    fn ready(&mut self, at: usize) -> Result<(), Failure> {
        let line = self.lines.get_mut(at).expect("epoll returns the index that was registered");
        let read = match line.stream.read(&mut self.scratch) {
            Ok(0) => return Err(Failure::new("the server closed a connection")),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(Failure::to("read an answer")(error)),
        };
        let bytes = self.scratch.get(..read).unwrap_or(&[]);
        let mut unread = std::mem::take(&mut line.unread);
        let whole = if unread.is_empty() {
            bytes
        } else {
            unread.extend_from_slice(bytes);
            &unread
        };
        let mut turn = Turn {
            now: now(),
            output: &mut line.unsent,
            latencies: &mut self.latencies,
            wake_at: None,
        };
        let taken = line
            .client
            .receive(whole, &mut turn)
            .map_err(|wrong| Failure::new(format!("the server gave a wrong answer: {wrong}")))?;
        let left = whole.get(taken..).unwrap_or(&[]).to_vec();
        if let Some(wake_at) = turn.wake_at {
            self.wakes.push(Reverse((wake_at, at)));
        }
        line.unread = left;
        self.send(at)
    }

    fn act(
        &mut self,
        at: usize,
        now: Instant,
        act: impl FnOnce(&mut C, &mut Turn<'_>),
    ) -> Result<(), Failure> {
        let line = self.lines.get_mut(at).expect("the connection exists");
        let mut turn =
            Turn { now, output: &mut line.unsent, latencies: &mut self.latencies, wake_at: None };
        act(&mut line.client, &mut turn);
        if let Some(wake_at) = turn.wake_at {
            self.wakes.push(Reverse((wake_at, at)));
        }
        self.send(at)
    }

    /// Sends a client's requests. Bytes that do not fit into the socket's buffer are sent later, when epoll reports that there is room.
    fn send(&mut self, at: usize) -> Result<(), Failure> {
        let line = self.lines.get_mut(at).expect("the connection exists");
        let mut sent = 0;
        while let Some(rest) = line.unsent.get(sent..).filter(|rest| !rest.is_empty()) {
            match line.stream.write(rest) {
                Ok(written) => sent += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(Failure::to("send a command")(error)),
            }
        }
        line.unsent.drain(..sent);
        let blocked = !line.unsent.is_empty();
        if blocked != line.blocked {
            line.blocked = blocked;
            let flags = if blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(&self.epoll, &line.stream, EventData::new_u64(at as u64), flags)
                .map_err(Failure::to("watch a connection"))?;
        }
        Ok(())
    }
}

/// Returns the processor time of this thread.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}
