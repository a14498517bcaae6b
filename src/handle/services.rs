//! Typed access to a node's services: commands that the node starts and supervises. See `docs/services.md`.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a reply of any other kind is an error"
)]

use crate::actors::process::{
    Definition, Message, ProcessMachine, Query, Reply, ServiceMessage, ServiceView, Watch,
};
use crate::bytes::Bytes;
use crate::handle::processes::ProcessError;
use crate::handle::unexpected::unexpected;
use crate::ids::ProcessId;
use crate::ports::process::ProcessPortHandle;
use crate::spine::delivery::Item;
use crate::spine::runtime::{Mailbox, Stopped};
use std::path::PathBuf;

/// A handle to the services of a node, usable from any thread. A name of `None` means all services.
#[derive(Clone)]
pub struct Services {
    mailbox: Mailbox<ProcessMachine>,
    port: ProcessPortHandle,
}

impl Services {
    pub(super) const fn new(mailbox: Mailbox<ProcessMachine>, port: ProcessPortHandle) -> Self {
        Self { mailbox, port }
    }

    /// Replaces the node's set of services: starts new ones, restarts those with a changed definition, and stops and removes those that
    /// `definitions` does not contain. Unchanged services keep running. Resolves when the request is durable, before it is carried out.
    pub async fn configure(&self, definitions: Vec<Definition>) -> Result<(), ProcessError> {
        self.send(ServiceMessage::Configure(definitions)).await
    }

    /// Starts services, including those that are no longer restarted because they failed too often. Resolves when the request is durable;
    /// see [`Services::settled`].
    pub async fn start(&self, name: Option<String>) -> Result<(), ProcessError> {
        self.send(ServiceMessage::Start(name)).await
    }

    /// Stops services until they are started again; a restart of the node does not start them.
    pub async fn stop(&self, name: Option<String>) -> Result<(), ProcessError> {
        self.send(ServiceMessage::Stop(name)).await
    }

    /// Replaces the processes of services with new ones. A service that is named is started if it is down; with `None`, services that are
    /// meant to be down stay down.
    pub async fn restart(&self, name: Option<String>) -> Result<(), ProcessError> {
        self.send(ServiceMessage::Restart(name)).await
    }

    /// Stops all services, and keeps them down until they are configured again or started. If the node stops without this request, its
    /// services keep running.
    pub async fn hold(&self) -> Result<(), ProcessError> {
        self.send(ServiceMessage::Hold).await
    }

    /// Returns the service named `name`, or all services if it is `None`, sorted by name.
    pub async fn list(&self, name: Option<String>) -> Result<Vec<ServiceView>, ProcessError> {
        match self.one(Item::Query(Query::Services(name))).await? {
            Reply::Services(views) => Ok(views),
            other => Err(refusal(&other)),
        }
    }

    /// Resolves when each of the services has settled: it is running and ready, or it is down and stays down, it could not be launched and
    /// waits for the next attempt, or it waits for a service that has failed.
    pub async fn settled(&self, name: Option<String>) -> Result<(), ProcessError> {
        match self.mailbox.watch(Watch::Services(name)).await?? {
            Reply::Done => Ok(()),
            other => Err(refusal(&other)),
        }
    }

    /// Returns the path of the directory with an instance's files, given the path that [`Services::list`] shows, which is relative
    /// to the data directory. Returns `None` if the node keeps no files.
    pub fn run_dir(&self, shown: &str) -> Option<PathBuf> {
        let own = Bytes::new(shown.as_bytes());
        self.port.run_dir(ProcessId::default(), Some(&own))
    }

    async fn send(&self, message: ServiceMessage) -> Result<(), ProcessError> {
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

/// Converts a reply of an unexpected kind to an error.
fn refusal(reply: &Reply) -> ProcessError {
    match reply {
        Reply::Refused(refused) => ProcessError::Refused(*refused),
        other => unexpected(other).into(),
    }
}
