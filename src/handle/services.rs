//! Typed access to a node's services: commands that the node starts and supervises. See `docs/services.md`.

#![expect(clippy::wildcard_enum_match_arm, reason = "a reply of any other kind is an error")]

use crate::actors::process::{
    Definition, Message, ProcessMachine, Query, Reply, ServiceMessage, ServiceView, Tags, Watch,
};
use crate::bytes::Bytes;
use crate::handle::processes::ProcessError;
use crate::handle::unexpected::unexpected;
use crate::ids::ProcessId;
use crate::ports::process::{ProcessPortHandle, Requester, requester};
use crate::spine::delivery::Item;
use crate::spine::runtime::{Mailbox, Stopped};
use std::path::PathBuf;

/// The type of the server's own record.
const SUPERVISOR: &str = "supervisord";

/// The type of the record of the process that started the server.
const STARTER: &str = "cli";

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
    ///
    /// The record of this process, of type `supervisord`, becomes the parent of what services launch; it is made with the first services,
    /// and stands for whichever process the node runs in. So is a record of the process that started this one, as the parent of that.
    pub async fn configure(&self, definitions: Vec<Definition>) -> Result<(), ProcessError> {
        if let Err(error) = self.serve(!definitions.is_empty()).await {
            tracing::warn!("the services stand below no record of the server: {error}");
        }
        self.send(ServiceMessage::Configure(definitions)).await
    }

    /// Lets the record of the server stand for this process. If there is none, makes one if `is_needed`, and one of the process that started
    /// this one, unless the kernel hides it.
    async fn serve(&self, is_needed: bool) -> Result<(), ProcessError> {
        let exists = |reply: &Reply| matches!(reply, Reply::Record(_));
        let known = exists(&self.one(Item::Query(Query::Server)).await?);
        if !known && !is_needed {
            return Ok(());
        }
        let named = requester::own_record();
        let tags = |kind: &str| Tags { kind: kind.to_owned(), ..Tags::default() };
        let own = Requester::from(std::process::id());
        let Some(own) = requester::describe(own, tags(SUPERVISOR), named) else {
            return Ok(());
        };
        let above = named.map(Query::One);
        let is_below = match above {
            Some(query) => exists(&self.one(Item::Query(query)).await?),
            None => false,
        };
        let starter = own.parentage.line.first().filter(|_| !known && !is_below);
        let starter = starter.map(|it| Requester::from(it.pid));
        let starter = starter.and_then(|it| requester::describe(it, tags(STARTER), None));
        if let Some(starter) = starter {
            let message = Message::Register(Box::new(starter));
            self.registered(message).await?;
        }
        self.registered(Message::Serve(Box::new(own))).await
    }

    async fn registered(&self, message: Message) -> Result<(), ProcessError> {
        match self.one(Item::Message(message)).await? {
            Reply::Registered { .. } => Ok(()),
            other => Err(refusal(&other)),
        }
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
