//! The event sources of a keeper, polled together.

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The listening socket.
    Listener,
    /// The signal descriptor.
    Signals,
    /// The connection with this number.
    Client(u32),
    /// The child with this PID, which has not executed its program yet.
    Starting(u32),
}

/// An event at one of the sources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollEvent {
    pub(crate) source: Source,
    /// Whether there is something to read.
    pub(crate) reads: bool,
    /// Whether the other end has been closed, or the descriptor has failed.
    pub(crate) is_closed: bool,
}

/// An epoll instance.
pub(crate) struct Poll {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl Source {
    fn to_data(self) -> EventData {
        let (kind, number) = match self {
            Self::Listener => (0, 0),
            Self::Signals => (1, 0),
            Self::Client(number) => (2, number),
            Self::Starting(pid) => (3, pid),
        };
        EventData::new_u64(kind << 32 | u64::from(number))
    }

    fn from_data(data: EventData) -> Self {
        let number = u32::try_from(data.u64() & u64::from(u32::MAX)).unwrap_or_default();
        match data.u64() >> 32 {
            0 => Self::Listener,
            1 => Self::Signals,
            2 => Self::Client(number),
            _ => Self::Starting(number),
        }
    }
}

impl Poll {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, events: Vec::with_capacity(64) })
    }

    /// Starts waiting for `fd` to become readable.
    pub(crate) fn add(&self, fd: impl AsFd, source: Source) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, source.to_data(), EventFlags::IN)?)
    }

    /// Changes the events waited for on `fd`: reading, writing, both or neither. Cannot fail, because `fd` was added before.
    pub(crate) fn set(&self, fd: impl AsFd, source: Source, (reads, writes): (bool, bool)) {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, reads);
        flags.set(EventFlags::OUT, writes);
        let _there = epoll::modify(&self.epoll, fd, source.to_data(), flags);
    }

    /// Stops waiting for `fd`. Closing it is not enough while a newly created child holds a copy.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        let _there = epoll::delete(&self.epoll, fd);
    }

    /// Waits for events, for at most `seconds`, or indefinitely if that is `None`. Returns no events if none occurs in that time, or if a
    /// signal interrupts the wait.
    pub(crate) fn wait(&mut self, seconds: Option<i64>) -> io::Result<Vec<PollEvent>> {
        let limit = seconds.map(|tv_sec| Timespec { tv_sec, tv_nsec: 0 });
        let place = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, place, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let events = self.events.drain(..).map(|event| {
            let flags = event.flags;
            PollEvent {
                source: Source::from_data(event.data),
                reads: flags.contains(EventFlags::IN),
                is_closed: flags.intersects(EventFlags::HUP | EventFlags::ERR),
            }
        });
        Ok(events.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::Source;

    #[test]
    fn sources_come_back_as_they_were_given() {
        let all = [Source::Listener, Source::Signals];
        let numbered =
            [0, 1, u32::MAX].map(|number| [Source::Client(number), Source::Starting(number)]);
        for source in all.into_iter().chain(numbered.into_iter().flatten()) {
            assert_eq!(Source::from_data(source.to_data()), source);
        }
    }
}
