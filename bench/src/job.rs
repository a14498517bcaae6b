//! The protocols of the queue servers, and the clients that put, take and end jobs on them.
//!
//! On Redis, lists serve as a reliable queue: taking a job moves it to its consumer's own list, and ending it removes it from that list.

use crate::load::{Client, Turn, Wrong};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::Write as _;
use std::rc::Rc;
use std::time::Instant;

/// The protocol of a queue server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobProtocol {
    /// beanstalkd's protocol.
    Beanstalk,
    /// Redis' lists.
    Lists,
}

/// A client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Put,
    Take,
    End,
}

/// A server's answer.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// The job was put.
    Put,
    /// The job with this id was taken. The id is 0 for Redis, whose lists have no ids.
    Taken(u64),
    /// The job was removed.
    Ended,
}

impl JobProtocol {
    fn put(self, body: &[u8], output: &mut Vec<u8>) {
        match self {
            Self::Beanstalk => {
                say(output, format_args!("put 1024 0 600 {}\r\n", body.len()));
                output.extend_from_slice(body);
                output.extend_from_slice(b"\r\n");
            }
            Self::Lists => {
                output.extend_from_slice(b"*3\r\n$5\r\nLPUSH\r\n$5\r\nqueue\r\n");
                bulk(output, body);
            }
        }
    }

    fn take(self, client: u32, waits: bool, output: &mut Vec<u8>) {
        match (self, waits) {
            (Self::Beanstalk, _) => output.extend_from_slice(b"reserve\r\n"),
            (Self::Lists, false) => {
                output.extend_from_slice(b"*5\r\n$5\r\nLMOVE\r\n$5\r\nqueue\r\n");
                bulk(output, own_list(client).as_bytes());
                output.extend_from_slice(b"$5\r\nRIGHT\r\n$4\r\nLEFT\r\n");
            }
            (Self::Lists, true) => {
                output.extend_from_slice(b"*6\r\n$6\r\nBLMOVE\r\n$5\r\nqueue\r\n");
                bulk(output, own_list(client).as_bytes());
                output.extend_from_slice(b"$5\r\nRIGHT\r\n$4\r\nLEFT\r\n$1\r\n0\r\n");
            }
        }
    }

    fn end(self, client: u32, id: u64, body: &[u8], output: &mut Vec<u8>) {
        match self {
            Self::Beanstalk => say(output, format_args!("delete {id}\r\n")),
            Self::Lists => {
                output.extend_from_slice(b"*4\r\n$4\r\nLREM\r\n");
                bulk(output, own_list(client).as_bytes());
                output.extend_from_slice(b"$1\r\n1\r\n");
                bulk(output, body);
            }
        }
    }

    /// Parses the answer to `asked` at the front of `input`, and returns it with its length in bytes; `None` if it is incomplete, and an
    /// error if it is not a valid answer to `asked`.
    fn receive(self, asked: Request, input: &[u8]) -> Result<Option<(Answer, usize)>, Wrong> {
        let Some(end) = input.windows(2).position(|two| two == b"\r\n") else {
            return Ok(None);
        };
        let line = input.get(..end).unwrap_or(&[]);
        let text = std::str::from_utf8(line).unwrap_or_default();
        let wrong = || Wrong::Contradiction(format!("unexpected answer to {asked:?}: {text:?}"));
        let mut words = text.split(' ');
        let first = words.next().unwrap_or_default();
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        let with_body = |heard: Answer, len: Option<u64>| {
            let len = len.and_then(|len| usize::try_from(len).ok());
            let whole = end + 2 + len.ok_or_else(wrong)? + 2;
            Ok((input.len() >= whole).then_some((heard, whole)))
        };
        let is_put = match self {
            Self::Beanstalk => first == "INSERTED",
            Self::Lists => first.starts_with(':'),
        };
        match (self, asked, first) {
            (_, Request::Put, _) if is_put => Ok(Some((Answer::Put, end + 2))),
            (Self::Beanstalk, Request::Take, "RESERVED") => {
                let id = number().ok_or_else(wrong)?;
                let len = number();
                with_body(Answer::Taken(id), len)
            }
            (Self::Beanstalk, Request::End, "DELETED") | (Self::Lists, Request::End, ":1") => {
                Ok(Some((Answer::Ended, end + 2)))
            }
            (Self::Lists, Request::Take, first) if first.starts_with('$') && first != "$-1" => {
                let len = first.get(1..).and_then(|len| len.parse().ok());
                with_body(Answer::Taken(0), len)
            }
            _ => Err(wrong()),
        }
    }
}

fn say(output: &mut Vec<u8>, words: std::fmt::Arguments<'_>) {
    output.write_fmt(words).expect("writing to memory does not fail");
}

fn bulk(output: &mut Vec<u8>, bytes: &[u8]) {
    say(output, format_args!("${}\r\n", bytes.len()));
    output.extend_from_slice(bytes);
    output.extend_from_slice(b"\r\n");
}

fn own_list(client: u32) -> String {
    format!("taken:{client:04}")
}

/// What a job client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Puts several jobs in one write, takes the same number of jobs in a second write, and ends the taken ones in a third.
    Cycles,
    /// Only puts.
    Puts,
}

/// A client that repeats its [`Work`] without pause.
pub(crate) struct Jobs {
    protocol: JobProtocol,
    work: Work,
    client: u32,
    depth: u32,
    body: Rc<[u8]>,
    asked: Request,
    /// The number of outstanding answers.
    open: u32,
    taken: Vec<u64>,
    began: Instant,
    done: u64,
    finishing: bool,
    finished: bool,
}

impl Jobs {
    pub(crate) fn new(
        (protocol, work): (JobProtocol, Work),
        (client, depth): (u32, u32),
        body: Rc<[u8]>,
        now: Instant,
    ) -> Self {
        Self {
            protocol,
            work,
            client,
            depth,
            body,
            asked: Request::Put,
            open: 0,
            taken: Vec::new(),
            began: now,
            done: 0,
            finishing: false,
            finished: false,
        }
    }

    /// Sends this request `depth` times.
    fn ask(&mut self, asked: Request, turn: &mut Turn<'_>) {
        self.asked = asked;
        self.open = self.depth;
        match asked {
            Request::Put => {
                self.began = turn.now;
                for _ in 0..self.depth {
                    self.protocol.put(&self.body, turn.output);
                }
            }
            Request::Take => {
                for _ in 0..self.depth {
                    self.protocol.take(self.client, false, turn.output);
                }
            }
            Request::End => {
                for id in std::mem::take(&mut self.taken) {
                    self.protocol.end(self.client, id, &self.body, turn.output);
                }
            }
        }
    }

    /// Sends the next requests. Called when all previous ones are answered. After the last step of the work, counts the jobs and records
    /// how long the work took.
    fn go_on(&mut self, turn: &mut Turn<'_>) {
        match (self.asked, self.work) {
            (Request::Put, Work::Cycles) => self.ask(Request::Take, turn),
            (Request::Take, _) => self.ask(Request::End, turn),
            (Request::Put, Work::Puts) | (Request::End, _) => {
                self.done += u64::from(self.depth);
                turn.latencies.note(turn.now - self.began);
                if self.finishing {
                    self.finished = true;
                } else {
                    self.ask(Request::Put, turn);
                }
            }
        }
    }
}

impl Client for Jobs {
    fn wake(&mut self, turn: &mut Turn<'_>) {
        self.ask(Request::Put, turn);
    }

    fn receive(&mut self, input: &[u8], turn: &mut Turn<'_>) -> Result<usize, Wrong> {
        let mut taken = 0;
        while self.open > 0
            && let Some((heard, len)) =
                self.protocol.receive(self.asked, input.get(taken..).unwrap_or(&[]))?
        {
            taken += len;
            self.open -= 1;
            if let Answer::Taken(id) = heard {
                self.taken.push(id);
            }
            if self.open == 0 {
                self.go_on(turn);
            }
        }
        Ok(taken)
    }

    fn finish(&mut self, _: &mut Turn<'_>) {
        self.finishing = true;
    }

    fn is_finished(&self) -> bool {
        self.finished
    }

    fn done(&self) -> u64 {
        self.done
    }
}

/// A client that puts a given number of jobs as fast as it can, and then ends.
pub(crate) struct Filler {
    protocol: JobProtocol,
    body: Rc<[u8]>,
    /// The number of jobs yet to be put.
    left: u32,
    /// The number of outstanding answers.
    open: u32,
}

/// The maximum number of jobs that a [`Filler`] puts in one write.
const FILLED: u32 = 64;

impl Filler {
    pub(crate) const fn new(protocol: JobProtocol, jobs: u32, body: Rc<[u8]>) -> Self {
        Self { protocol, body, left: jobs, open: 0 }
    }
}

impl Client for Filler {
    fn wake(&mut self, turn: &mut Turn<'_>) {
        self.open = self.left.min(FILLED);
        self.left -= self.open;
        for _ in 0..self.open {
            self.protocol.put(&self.body, turn.output);
        }
    }

    fn receive(&mut self, input: &[u8], turn: &mut Turn<'_>) -> Result<usize, Wrong> {
        let mut taken = 0;
        while let Some((_, len)) =
            self.protocol.receive(Request::Put, input.get(taken..).unwrap_or(&[]))?
        {
            taken += len;
            self.open -= 1;
            if self.open == 0 {
                self.wake(turn);
            }
        }
        Ok(taken)
    }

    fn finish(&mut self, _: &mut Turn<'_>) {}

    fn is_finished(&self) -> bool {
        self.open == 0 && self.left == 0
    }

    fn done(&self) -> u64 {
        0
    }
}

/// When the job that the consumers wait for was put; `None` if no job is in flight.
pub(crate) type InFlight = Rc<Cell<Option<Instant>>>;

/// A client of a queue that is empty most of the time. The first client puts a job every [`PAUSE`], and the others wait for it.
pub(crate) struct WakeClient {
    protocol: JobProtocol,
    client: u32,
    on_its_way: InFlight,
    /// The requests that are not yet answered, oldest first.
    open: VecDeque<Request>,
    done: u64,
    finished: bool,
}

/// The pause between two jobs, long enough for all consumers to be waiting again.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(2);

/// The body of the jobs that the consumers wait for.
const WAITED_FOR: &[u8] = b"0123456789abcdef";

impl WakeClient {
    /// Creates the client with the number `client`. Client 0 puts jobs, and all others wait for them.
    pub(crate) fn new(protocol: JobProtocol, client: u32, on_its_way: InFlight) -> Self {
        Self { protocol, client, on_its_way, open: VecDeque::new(), done: 0, finished: false }
    }

    const fn is_putting(&self) -> bool {
        self.client == 0
    }
}

impl Client for WakeClient {
    fn wake(&mut self, turn: &mut Turn<'_>) {
        if !self.is_putting() {
            self.protocol.take(self.client, true, turn.output);
            self.open.push_back(Request::Take);
            return;
        }
        if self.on_its_way.get().is_none() && !self.finished {
            self.protocol.put(WAITED_FOR, turn.output);
            self.open.push_back(Request::Put);
            self.on_its_way.set(Some(turn.now));
        }
        turn.wake_at = Some(turn.now + PAUSE);
    }

    fn receive(&mut self, input: &[u8], turn: &mut Turn<'_>) -> Result<usize, Wrong> {
        let mut taken = 0;
        while let Some(asked) = self.open.front().copied()
            && let Some((heard, len)) =
                self.protocol.receive(asked, input.get(taken..).unwrap_or(&[]))?
        {
            taken += len;
            self.open.pop_front();
            if let Answer::Taken(id) = heard {
                if let Some(put) = self.on_its_way.take() {
                    turn.latencies.note(turn.now - put);
                }
                self.done += 1;
                self.protocol.end(self.client, id, WAITED_FOR, turn.output);
                self.open.push_back(Request::End);
                self.protocol.take(self.client, true, turn.output);
                self.open.push_back(Request::Take);
            }
        }
        Ok(taken)
    }

    /// Ends the client immediately, without waiting for answers, because a consumer that waits for a job would not get one.
    fn finish(&mut self, _: &mut Turn<'_>) {
        self.finished = true;
    }

    fn is_finished(&self) -> bool {
        self.finished
    }

    fn done(&self) -> u64 {
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_heard_whole_or_not_at_all() {
        let hear = |asked, input: &[u8]| JobProtocol::Beanstalk.receive(asked, input);
        assert_eq!(
            hear(Request::Take, b"RESERVED 7 3\r\nab")
                .expect("an incomplete answer is not an error"),
            None
        );
        assert_eq!(
            hear(Request::Take, b"RESERVED 7 3\r\nabc\r\nx").expect("the answer is valid"),
            Some((Answer::Taken(7), 19))
        );
        hear(Request::Put, b"DRAINING\r\n").unwrap_err();
        let hear = |asked, input: &[u8]| JobProtocol::Lists.receive(asked, input);
        assert_eq!(
            hear(Request::Take, b"$3\r\nabc\r\n").expect("the answer is valid"),
            Some((Answer::Taken(0), 9))
        );
        hear(Request::Take, b"$-1\r\n").unwrap_err();
        hear(Request::End, b":0\r\n").unwrap_err();
    }
}
