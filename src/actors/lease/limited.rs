//! What a client that may neither start nor end processes may not do with leases: make the coordinator run a command, or change a pass that
//! depends on a process.

use crate::actors::lease::machine::LeaseMachine;
use crate::actors::lease::message::Message;
use crate::actors::lock::Name;

impl LeaseMachine {
    /// Returns whether only those who may start and end processes may send a message: it concerns a command, or a pass that depends on a
    /// process. A client without that right claims passes that depend on its own renewals.
    pub(super) fn is_forbidden(&self, message: &Message) -> bool {
        let has_process = |name: &Name| {
            let found = self.state.find(name);
            let current = found.and_then(|(_, lease)| lease.running());
            current.is_some_and(|it| it.holder.process().is_some())
        };
        match message {
            Message::Request(asked) => match &asked.claim {
                Some(claim) => claim.process.is_some() || asked.log.is_some(),
                None => true,
            },
            Message::Renew { name, process, .. } => process.is_some() || has_process(name),
            Message::Finish { name, .. } => has_process(name),
            Message::Reset { name, force } => *force && has_process(name),
            // Otherwise, a client that is gone could not give up what it asked for.
            Message::Withdraw { .. } => false,
            Message::Set { .. }
            | Message::Import { .. }
            | Message::Gone(_)
            | Message::Launched(_)
            | Message::Started(_)
            | Message::Lapse { .. }
            | Message::Due { .. } => true,
        }
    }
}
