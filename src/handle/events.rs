//! The live stream of a node's events, for programs that embed it and for the listeners.

use super::{Command, Handle};
use crate::ids::Seq;
use crate::spine::event::{Event, Position};
use crate::spine::feed::{Notification, Reader};
use crate::spine::runtime::Stopped;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// The number of events taken from the feed at a time.
const TAKEN: usize = 64;

/// A reader of events. It costs the node nothing while it is not polled. A reader that falls too far behind receives a notification of the
/// range that it has missed.
#[derive(Debug)]
pub struct Events {
    reader: Reader,
    taken: VecDeque<Notification>,
    core: mpsc::UnboundedSender<Command>,
}

impl Handle {
    /// Subscribes to events (locks granted or lost and why, restarts, checkpoints), from now on or after a position.
    ///
    /// Events are collected while there are subscribers and for ten minutes afterwards; the newest 65,536 are kept, in
    /// memory only.
    pub async fn events(&self, after: Option<Position>) -> Result<Events, Stopped> {
        let core = self.facts.commands.clone();
        let (answer, reader) = oneshot::channel();
        let asked = core.send(Command::Listen(after, answer));
        asked.map_err(|_| Stopped)?;
        Ok(Events {
            reader: reader.await.map_err(|_| Stopped)?,
            taken: VecDeque::new(),
            core,
        })
    }
}

impl Events {
    /// Waits for the next event; `None` once the node has stopped or halted. Cancel safe: dropping the future loses no
    /// event.
    pub async fn next(&mut self) -> Option<Notification> {
        loop {
            if let Some(heard) = self.at_once() {
                return Some(heard);
            }
            tokio::select! {
                biased;
                more = self.reader.more() => if !more {
                    // The last events may have arrived just before the end.
                    return self.at_once();
                },
                () = self.core.closed() => return self.at_once(),
            }
        }
    }

    /// Returns up to `most` retained events, newest first: those before the position `before`, or the newest of all if it is `None`. Does
    /// not move the reader.
    pub fn before(&self, before: Option<Position>, most: usize) -> Vec<Arc<Event>> {
        self.reader.before(before, most)
    }

    /// Returns the retained events of the journal entry `seq`. A token is the number of the entry that granted it, so this also finds the
    /// events of a grant.
    pub fn of(&self, seq: Seq) -> Vec<Arc<Event>> {
        self.reader.of(seq)
    }

    /// Returns the next event without waiting; `None` if there is none yet.
    pub fn at_once(&mut self) -> Option<Notification> {
        if self.taken.is_empty() {
            self.taken.extend(self.reader.take(TAKEN));
        }
        self.taken.pop_front()
    }
}
