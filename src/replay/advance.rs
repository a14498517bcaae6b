//! Applies records without converting each to JSON, which would slow down the replay of a long journal.

use crate::persist::format;
use crate::persist::journal::Record;
use crate::replay::history::HistoryEvent;
use crate::replay::run::{Replay, ReplayError, actor_of};
use crate::spine::machine::Stamp;
use crate::spine::recovery::decode_mark;

impl Replay {
    /// Applies a journal record. Returns its effects on the followed item; empty if no item is followed.
    pub fn advance(&mut self, record: &Record<'_>) -> Result<Vec<HistoryEvent>, ReplayError> {
        let events = match record.kind {
            format::Kind::Mark | format::Kind::End => {
                let stamp = Stamp { seq: record.seq, at: record.at };
                self.mark(stamp, &decode_mark(record)?);
                Vec::new()
            }
            format::Kind::Entry => self.apply(record)?,
            format::Kind::Poisoned => self.pass_over(record)?,
        };
        (self.last, self.at) = (record.seq, record.at);
        Ok(events)
    }

    fn apply(&mut self, record: &Record<'_>) -> Result<Vec<HistoryEvent>, ReplayError> {
        let actor = actor_of(&mut self.actors, record)?;
        // The initial state already includes this record.
        if record.seq <= actor.last() {
            return Ok(Vec::new());
        }
        let item = self.followed.as_ref();
        let Some(item) = item.filter(|item| item.concerns(actor.name())) else {
            actor.apply(record)?;
            return Ok(Vec::new());
        };
        let before = actor.before(record, item)?;
        actor.apply(record)?;
        Ok(actor.after(item, before))
    }

    /// Skips a message that panicked, because it was never applied. Returns an event if the message names the followed item.
    fn pass_over(&mut self, record: &Record<'_>) -> Result<Vec<HistoryEvent>, ReplayError> {
        let actor = actor_of(&mut self.actors, record)?;
        let item = self.followed.as_ref();
        let Some(item) = item.filter(|item| item.concerns(actor.name())) else {
            return Ok(Vec::new());
        };
        Ok(item.panicked(&actor.poisoned(record)?))
    }
}
