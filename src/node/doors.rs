//! Opens the configured listeners on a running node, and closes them: the only place that knows every protocol.

use super::NodeError;
use super::chance::chance;
use crate::config::Config;
use crate::handle::Handle;
use crate::protocols::beanstalk;
use crate::protocols::lockserver::{self, Hosts};
use std::sync::Arc;

/// The listeners of a node. Clones share them.
#[derive(Clone, Default)]
pub(super) struct OpenDoors {
    pub(super) lockserver: Option<lockserver::Door>,
    #[cfg(feature = "http")]
    pub(super) http: Option<crate::protocols::http::Door>,
}

impl OpenDoors {
    /// Returns the hosts that LockServer admits. They are read before anything is opened, since an unusable list prevents the start.
    pub(super) fn hosts(config: &Config) -> Result<Hosts, NodeError> {
        let lockserver = config.lockserver.as_ref();
        match lockserver.and_then(|lockserver| lockserver.hosts.as_ref()) {
            Some(file) => Ok(Hosts::read(file)?),
            None => Ok(Hosts::Loopback),
        }
    }

    /// Opens every configured listener, HTTP last so that it can show the others. Runs on the core thread.
    #[cfg_attr(
        not(feature = "http"),
        expect(clippy::unused_async, reason = "opening the HTTP door waits")
    )]
    pub(super) async fn open(
        config: &Config,
        hosts: Hosts,
        handle: &Handle,
    ) -> Result<Self, NodeError> {
        let clock = &handle.facts.clock;
        let mut doors = Self::default();
        if let Some(lockserver) = &config.lockserver {
            let open = config.listeners.lockserver.as_ref();
            let locks = handle.actors.lock.clone();
            let door = lockserver::Door::open(lockserver, open, hosts, locks, Arc::clone(clock));
            let door = door.map_err(NodeError::door("lockserver", &lockserver.address))?;
            handle.add_listener(door.clone());
            doors.lockserver = Some(door);
        }
        if let Some(beanstalk) = &config.beanstalk {
            let open = config.listeners.beanstalk.as_ref();
            let queues = handle.actors.queue.clone();
            let queues = (queues, handle.facts.draining.subscribe());
            let id = u64::from_le_bytes(chance()?);
            let door = beanstalk::Door::open(beanstalk, open, queues, Arc::clone(clock), id);
            let door = door.map_err(NodeError::door("beanstalk", &beanstalk.address))?;
            handle.add_listener(door);
        }
        #[cfg(feature = "http")]
        if let Some(http) = &config.http {
            let most = config.request_bytes_max();
            let opened = crate::protocols::http::Door::open(http, &config.listeners, handle, most);
            doors.http = Some(opened.await?);
        }
        Ok(doors)
    }

    /// Stops accepting connections over HTTP. The other listeners run on the core thread and end with it.
    #[cfg_attr(
        not(feature = "http"),
        expect(clippy::unused_async, reason = "closing the HTTP door waits")
    )]
    pub(super) async fn close(&self) {
        #[cfg(feature = "http")]
        if let Some(http) = &self.http {
            http.close().await;
        }
    }
}
