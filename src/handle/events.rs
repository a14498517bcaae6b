//! What happens on a node, as it happens: for programs that embed it, and for the doors.

use super::{Command, Handle};
use crate::ids::Seq;
use crate::spine::event::{Event, Position};
use crate::spine::feed::{Heard, Reader};
use crate::spine::runtime::Stopped;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// How much is taken at a time.
const TAKEN: usize = 64;

/// A reader of what happens. Costs the node nothing while it is not asked; who falls behind what is kept is told so.
#[derive(Debug)]
pub struct Events {
    reader: Reader,
    taken: VecDeque<Heard>,
    core: mpsc::UnboundedSender<Command>,
}

impl Handle {
    /// Listens to what happens from now on, or behind a position: who was granted a lock, who lost one and why,
    /// restarts, checkpoints.
    ///
    /// Events are gathered while somebody listens and ten minutes longer; the newest 65,536 are kept, in memory alone.
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
    /// Waits for what is heard next; nothing once the node has stopped or halted. Nothing is passed over if the
    /// future is dropped.
    pub async fn next(&mut self) -> Option<Heard> {
        loop {
            if let Some(heard) = self.at_once() {
                return Some(heard);
            }
            tokio::select! {
                biased;
                more = self.reader.more() => if !more {
                    // The last of it may have come just before the end.
                    return self.at_once();
                },
                () = self.core.closed() => return self.at_once(),
            }
        }
    }

    /// What is kept before a position, or at all, the newest first, at most so many: beside what is heard.
    pub fn before(&self, before: Option<Position>, most: usize) -> Vec<Arc<Event>> {
        self.reader.before(before, most)
    }

    /// What happened in an entry, as far as it is kept: in that of a token, that it was given.
    pub fn of(&self, seq: Seq) -> Vec<Arc<Event>> {
        self.reader.of(seq)
    }

    /// What is there to be heard now.
    pub fn at_once(&mut self) -> Option<Heard> {
        if self.taken.is_empty() {
            self.taken.extend(self.reader.take(TAKEN));
        }
        self.taken.pop_front()
    }
}
