//! Opens the configured listeners on a running node, and closes them. This is the only code that depends on every protocol.

use super::NodeError;
use super::chance::chance;
use crate::config::{Address, Config, Opened};
use crate::handle::Handle;
use crate::protocols::beanstalk;
use crate::protocols::lockserver::{self, Hosts};
use std::sync::Arc;

/// The open LockServer and HTTP listeners of a node. Clones share them.
#[derive(Clone, Default)]
pub(super) struct OpenListeners {
    pub(super) lockserver: Option<lockserver::Listener>,
    #[cfg(feature = "http")]
    pub(super) http: Option<crate::protocols::http::Listener>,
}

impl OpenListeners {
    /// Checks the files that the listeners use and, if there is no data directory yet, binds the TCP addresses. Called before anything
    /// else, so that a startup that fails here creates no directory and launches no service. Returns the hosts that LockServer admits.
    pub(super) fn prepare(config: &mut Config) -> Result<Hosts, NodeError> {
        let hosts = Self::check_files(config)?;
        Self::bind_at_first_start(config)?;
        Ok(hosts)
    }

    /// Reads the list of hosts that LockServer admits, and checks that the token file and the certificate can be used. Returns the hosts.
    pub(super) fn check_files(config: &Config) -> Result<Hosts, NodeError> {
        let listed = config.lockserver.as_ref().and_then(|it| it.hosts.as_ref());
        let hosts = match listed {
            Some(file) => Hosts::read(file)?,
            None => Hosts::Loopback,
        };
        #[cfg(feature = "http")]
        if let Some(http) = &config.http {
            crate::protocols::http::Listener::check_files(http)?;
        }
        Ok(hosts)
    }

    /// Listens on the configured TCP addresses if there is no data directory yet. If that fails, no data directory is created. If the
    /// directory exists, the listeners are opened after recovery instead, because a client that connects earlier would have to wait. Unix
    /// sockets are always opened later, because their paths may be in the data directory.
    fn bind_at_first_start(config: &mut Config) -> Result<(), NodeError> {
        if config.data.as_ref().is_none_or(|data| data.exists()) {
            return Ok(());
        }
        let tcp = |name, at| -> Result<_, NodeError> {
            let opened = Opened::at(&Address::Tcp(at)).map_err(NodeError::listener(name, &at))?;
            match opened {
                Opened::Tcp(listener) => Ok(Some(listener)),
                Opened::Unix(_) => Ok(None),
            }
        };
        let listeners = &mut config.listeners;
        if let Some(lockserver) = config.lockserver.as_ref()
            && listeners.lockserver.is_none()
        {
            listeners.lockserver = tcp("lockserver", lockserver.address)?;
        }
        if let Some(beanstalk) = config.beanstalk.as_ref()
            && listeners.beanstalk.is_none()
            && let Address::Tcp(at) = beanstalk.address
        {
            listeners.beanstalk = tcp("beanstalk", at)?.map(Opened::Tcp);
        }
        #[cfg(feature = "http")]
        if let Some(at) = config.http.as_ref().and_then(|http| http.tcp)
            && listeners.http.is_none()
        {
            listeners.http = tcp("http", at)?;
        }
        Ok(())
    }

    /// Opens every configured listener, HTTP last, so that the first status it serves shows the others. Runs on the core thread.
    #[cfg_attr(
        not(feature = "http"),
        expect(clippy::unused_async, reason = "only opening the HTTP listener awaits")
    )]
    pub(super) async fn open(
        config: &Config,
        hosts: Hosts,
        handle: &Handle,
    ) -> Result<Self, NodeError> {
        let clock = &handle.facts.clock;
        let mut listeners = Self::default();
        if let Some(lockserver) = &config.lockserver {
            let open = config.listeners.lockserver.as_ref();
            let locks = handle.actors.lock.clone();
            let listener =
                lockserver::Listener::open(lockserver, open, hosts, locks, Arc::clone(clock));
            let listener =
                listener.map_err(NodeError::listener("lockserver", &lockserver.address))?;
            handle.add_listener(listener.clone());
            listeners.lockserver = Some(listener);
        }
        if let Some(beanstalk) = &config.beanstalk {
            let open = config.listeners.beanstalk.as_ref();
            let queues = handle.actors.queue.clone();
            let queues = (queues, handle.facts.draining.subscribe());
            let id = u64::from_le_bytes(chance()?);
            let listener =
                beanstalk::Listener::open(beanstalk, open, queues, Arc::clone(clock), id);
            let listener =
                listener.map_err(NodeError::listener("beanstalk", &beanstalk.address))?;
            handle.add_listener(listener);
        }
        #[cfg(feature = "http")]
        if let Some(http) = &config.http {
            let most = config.request_bytes_max();
            let opened =
                crate::protocols::http::Listener::open(http, &config.listeners, handle, most);
            listeners.http = Some(opened.await?);
        }
        Ok(listeners)
    }

    /// Closes the HTTP listener, and waits a limited time until it has completed pending requests. The other listeners run on the core
    /// thread and stop with it.
    #[cfg_attr(
        not(feature = "http"),
        expect(clippy::unused_async, reason = "only closing the HTTP listener awaits")
    )]
    pub(super) async fn close(&self) {
        #[cfg(feature = "http")]
        if let Some(http) = &self.http {
            http.close().await;
        }
    }
}
