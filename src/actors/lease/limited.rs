//! What a client that may neither start nor end processes may not do with leases: make the coordinator run a command or keep it from running
//! one, change a pass that depends on a process, or remove settings.

use crate::actors::lease::item::Lease;
use crate::actors::lease::machine::LeaseMachine;
use crate::actors::lease::message::Message;
use crate::actors::lock::Name;

impl LeaseMachine {
    /// Returns whether only those who may start and end processes may send a message: it concerns a command, a pass that depends on a
    /// process, or settings. A client without that right claims passes that depend on its own renewals, of leases for which no command is
    /// launched: its pass would delay the command for as long as it likes, and count in its stead.
    pub(super) fn is_forbidden(&self, message: &Message) -> bool {
        let found = |name: &Name| self.state.find(name).map(|(_, lease)| lease);
        let has_process = |name: &Name| {
            let current = found(name).and_then(Lease::running);
            current.is_some_and(|it| it.holder.process().is_some())
        };
        let launches = |name: &Name| found(name).is_some_and(Lease::launches);
        let is_set = |name: &Name| found(name).is_some_and(Lease::is_set);
        match message {
            Message::Request(asked) => match &asked.claim {
                Some(claim) => {
                    claim.process.is_some() || asked.log.is_some() || launches(&asked.name)
                }
                None => true,
            },
            Message::Renew { name, process, .. } => {
                process.is_some() || has_process(name) || launches(name)
            }
            Message::Finish { name, .. } => has_process(name) || launches(name),
            Message::Reset { name, force } => {
                *force && has_process(name) || launches(name) || is_set(name)
            }
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
