//! Services of a node, typed. See `docs/services.md`.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an answer of another kind is a refusal, whichever it is"
)]

use crate::actors::process::{
    Definition, Message, ProcessMachine, Query, Refused, Reply, ServiceMessage, ServiceView, Watch,
};
use crate::bytes::Bytes;
use crate::handle::processes::ProcessError;
use crate::ids::ProcessId;
use crate::ports::process::Keeping;
use crate::spine::delivery::Item;
use crate::spine::runtime::{Mailbox, Stopped};
use std::path::PathBuf;

/// The services of a node, from any thread. A name of `None` stands for all of them.
#[derive(Clone)]
pub struct Services {
    mailbox: Mailbox<ProcessMachine>,
    keeping: Keeping,
}

impl Services {
    pub(super) const fn new(mailbox: Mailbox<ProcessMachine>, keeping: Keeping) -> Self {
        Self { mailbox, keeping }
    }

    /// Makes these the services of the node: starts what is new, replaces what is run otherwise, and stops and removes
    /// what is not among them. All others are left alone. Resolves when that is durable, and not yet done.
    pub async fn configure(&self, definitions: Vec<Definition>) -> Result<(), ProcessError> {
        self.tell(ServiceMessage::Configure(definitions)).await
    }

    /// Brings services up, also those that were given up. Resolves when that is durable; see [`Services::settled`].
    pub async fn start(&self, name: Option<String>) -> Result<(), ProcessError> {
        self.tell(ServiceMessage::Start(name)).await
    }

    /// Brings services down, until they are started again: a restart of the node starts none of them.
    pub async fn stop(&self, name: Option<String>) -> Result<(), ProcessError> {
        self.tell(ServiceMessage::Stop(name)).await
    }

    /// Replaces the processes of services by new ones; of all, those that are to be up.
    pub async fn restart(&self, name: Option<String>) -> Result<(), ProcessError> {
        self.tell(ServiceMessage::Restart(name)).await
    }

    /// Brings all services down until the node is configured again. A node that is stopped without this leaves them
    /// running.
    pub async fn hold(&self) -> Result<(), ProcessError> {
        self.tell(ServiceMessage::Hold).await
    }

    /// Services, by name.
    pub async fn list(&self, name: Option<String>) -> Result<Vec<ServiceView>, ProcessError> {
        match self.one(Item::Query(Query::Services(name))).await? {
            Reply::Services(views) => Ok(views),
            other => Err(refusal(&other)),
        }
    }

    /// Resolves when services stand still: each runs, or is down and stays so.
    pub async fn settled(&self, name: Option<String>) -> Result<(), ProcessError> {
        match self.mailbox.watch(Watch::Services(name)).await?? {
            Reply::Done => Ok(()),
            other => Err(refusal(&other)),
        }
    }

    /// The directory of the files of an instance, by what is shown of it; none if the node keeps no files.
    pub fn run_dir(&self, shown: &str) -> Option<PathBuf> {
        let own = Bytes::new(shown.as_bytes());
        self.keeping.run_dir(ProcessId::default(), Some(&own))
    }

    async fn tell(&self, message: ServiceMessage) -> Result<(), ProcessError> {
        match self.one(Item::Message(Message::Service(message))).await? {
            Reply::Done => Ok(()),
            other => Err(refusal(&other)),
        }
    }

    async fn one(&self, item: Item<ProcessMachine>) -> Result<Reply, ProcessError> {
        let answer = self.mailbox.call(vec![item]).await?.pop();
        Ok(answer.ok_or(Stopped)??)
    }
}

/// What an answer means that is not the one hoped for.
fn refusal(reply: &Reply) -> ProcessError {
    ProcessError::Refused(match reply {
        Reply::Refused(refused) => *refused,
        _ => Refused::NoService,
    })
}
