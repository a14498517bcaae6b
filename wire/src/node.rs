//! LockServer and beanstalkd's protocol as two of the protocols that a node serves: opens nodes that speak them.

use crate::beanstalk;
use crate::lockserver::{self, Hosts, HostsError};
use sexton::config::{Config, Opened};
use sexton::handle::Handle;
use sexton::node::{
    BEANSTALK, LOCKSERVER, LocalFuture, Node, NodeError, Protocol, Protocols, Served,
};
use std::io;
use std::sync::Arc;

/// Opens a node like [`Node::open`] that also serves LockServer and beanstalkd's protocol, as configured in [`Config::lockserver`] and
/// [`Config::beanstalk`].
///
/// # Errors
/// [`NodeError::Protocol`] contains a [`HostsError`].
pub fn open(config: Config) -> Result<Node, NodeError> {
    Node::open_with(config, protocols())
}

/// Returns LockServer and beanstalkd's protocol, for [`Node::open_with`] and [`Node::check_files`].
pub fn protocols() -> Protocols {
    vec![Box::new(Lockserver::default()), Box::new(Beanstalk::default())]
}

/// LockServer, before it is served.
#[derive(Default)]
struct Lockserver {
    /// The hosts that are admitted when it begins to serve.
    hosts: Option<Hosts>,
}

impl Lockserver {
    /// Returns the hosts that are admitted; `None` if LockServer is not configured.
    fn hosts(config: &Config) -> Result<Option<Hosts>, HostsError> {
        let Some(lockserver) = &config.lockserver else {
            return Ok(None);
        };
        lockserver.hosts.as_ref().map_or(Ok(Hosts::Loopback), |file| Hosts::read(file)).map(Some)
    }
}

impl Protocol for Lockserver {
    fn name(&self) -> &'static str {
        LOCKSERVER
    }

    fn check_files(&self, config: &Config) -> Result<(), NodeError> {
        Self::hosts(config)?;
        Ok(())
    }

    /// Only reads the hosts list: the node has opened the socket.
    fn listen(&mut self, config: &Config) -> Result<(), NodeError> {
        self.hosts = Self::hosts(config)?;
        Ok(())
    }

    fn serve<'a>(
        &'a mut self,
        config: &'a Config,
        node: &'a Handle,
    ) -> LocalFuture<'a, Result<Option<Arc<dyn Served>>, NodeError>> {
        Box::pin(async move {
            let open = config.lockserver.as_ref().zip(config.listeners.lockserver.as_ref());
            let Some(((lockserver, open), hosts)) = open.zip(self.hosts.take()) else {
                return Ok(None);
            };
            let listener = lockserver::Listener::open(lockserver, open, hosts, node)
                .map_err(NodeError::listener(LOCKSERVER, &lockserver.address))?;
            node.add_listener(listener.clone());
            let opened: Arc<dyn Served> = Arc::new(listener);
            Ok(Some(opened))
        })
    }
}

/// beanstalkd's protocol, before it is served.
#[derive(Default)]
struct Beanstalk {
    /// The socket on which it listens.
    socket: Option<Opened>,
}

impl Protocol for Beanstalk {
    fn name(&self) -> &'static str {
        BEANSTALK
    }

    fn check_files(&self, _: &Config) -> Result<(), NodeError> {
        Ok(())
    }

    fn listen(&mut self, config: &Config) -> Result<(), NodeError> {
        let opened = config.beanstalk.as_ref().map(|beanstalk| {
            let at = &beanstalk.address;
            let opened = config.listeners.beanstalk.clone();
            opened.map_or_else(|| Opened::at(at), Ok).map_err(NodeError::listener(BEANSTALK, at))
        });
        self.socket = opened.transpose()?;
        Ok(())
    }

    fn serve<'a>(
        &'a mut self,
        config: &'a Config,
        node: &'a Handle,
    ) -> LocalFuture<'a, Result<Option<Arc<dyn Served>>, NodeError>> {
        Box::pin(async move {
            let Some((beanstalk, socket)) = config.beanstalk.as_ref().zip(self.socket.take())
            else {
                return Ok(None);
            };
            let id = getrandom::u64().map_err(|error| NodeError::Core(io::Error::other(error)))?;
            let listener = beanstalk::Listener::open(beanstalk, &socket, node, id)
                .map_err(NodeError::listener(BEANSTALK, &beanstalk.address))?;
            node.add_listener(listener.clone());
            let opened: Arc<dyn Served> = Arc::new(listener);
            Ok(Some(opened))
        })
    }
}

impl Served for lockserver::Listener {
    /// Does nothing: its tasks run on the core thread and stop with it.
    fn close(&self) -> LocalFuture<'_, ()> {
        Box::pin(async {})
    }
}

impl Served for beanstalk::Listener {
    /// Does nothing: its tasks run on the core thread and stop with it.
    fn close(&self) -> LocalFuture<'_, ()> {
        Box::pin(async {})
    }
}

impl From<HostsError> for NodeError {
    fn from(error: HostsError) -> Self {
        Self::Protocol(Box::new(error))
    }
}
