//! The live stream of a node's events, for programs that embed the node and for the listeners.

use super::{Command, Handle};
use crate::ids::Seq;
use crate::spine::event::{Event, Position};
use crate::spine::feed::{Notification, Reader};
use crate::spine::runtime::Stopped;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// The maximum number of events taken from the feed at a time.
const TAKEN: usize = 64;

/// A reader of events. The node never waits for a reader: one that falls too far behind is notified of the range of events that it has
/// missed.
#[derive(Debug)]
pub struct Events {
    reader: Reader,
    buffer: VecDeque<Notification>,
    core: mpsc::UnboundedSender<Command>,
}

impl Handle {
    /// Subscribes to events, such as granted and lost locks, restarts and checkpoints: all events after the position `after` or, if it is
    /// `None`, all events from now on.
    ///
    /// Events are collected while there are subscribers and for ten minutes afterwards. The newest 65,536 events are kept, or fewer if they
    /// exceed 64 MiB, and only in memory.
    pub async fn events(&self, after: Option<Position>) -> Result<Events, Stopped> {
        let core = self.facts.commands.clone();
        let (answer, reader) = oneshot::channel();
        let asked = core.send(Command::Listen(after, answer));
        asked.map_err(|_| Stopped)?;
        let reader = reader.await.map_err(|_| Stopped)?.without(self.hidden.clone());
        Ok(Events { reader, buffer: VecDeque::new(), core })
    }
}

impl Events {
    /// Waits for the next event or notification of a gap. Returns `None` once the node has stopped or halted and nothing is left to read.
    /// Cancel safe: dropping the future loses no event.
    pub async fn next(&mut self) -> Option<Notification> {
        loop {
            if let Some(heard) = self.try_next() {
                return Some(heard);
            }
            tokio::select! {
                biased;
                more = self.reader.more() => if !more {
                    // The last events may have arrived just before the end.
                    return self.try_next();
                },
                () = self.core.closed() => return self.try_next(),
            }
        }
    }

    /// Returns up to `most` retained events, newest first. If `before` is given, only events before that position are returned. Does not
    /// move the reader.
    pub fn before(&self, before: Option<Position>, most: usize) -> Vec<Arc<Event>> {
        self.reader.before(before, most)
    }

    /// Returns the retained events of the journal entry `seq`. A token is the number of the entry that granted it, so the events of a grant
    /// are found by its token.
    pub fn of(&self, seq: Seq) -> Vec<Arc<Event>> {
        self.reader.of(seq)
    }

    /// Returns the next event or notification of a gap without waiting, or `None` if there is none yet.
    pub fn try_next(&mut self) -> Option<Notification> {
        if self.buffer.is_empty() {
            self.buffer.extend(self.reader.take(TAKEN));
        }
        self.buffer.pop_front()
    }
}
