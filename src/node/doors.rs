//! Opens what the configuration asks for on a running node, and closes it: the only place that knows every protocol.

use super::NodeError;
use super::chance::chance;
use crate::config::Config;
use crate::handle::Handle;
use crate::protocols::beanstalk;
use crate::protocols::lockserver::{self, Hosts};
use std::sync::Arc;

/// The doors of a node. Cloning gives other handles of them.
#[derive(Clone, Default)]
pub(super) struct OpenDoors {
    pub(super) lockserver: Option<lockserver::Door>,
    #[cfg(feature = "http")]
    pub(super) http: Option<crate::protocols::http::Door>,
}

impl OpenDoors {
    /// The hosts that LockServer lets in. Read before anything is opened, since a list that cannot be used stops the start.
    pub(super) fn hosts(config: &Config) -> Result<Hosts, NodeError> {
        let lockserver = config.lockserver.as_ref();
        match lockserver.and_then(|lockserver| lockserver.hosts.as_ref()) {
            Some(file) => Ok(Hosts::read(file)?),
            None => Ok(Hosts::Loopback),
        }
    }

    /// Opens each, in an order in which the last one can show all of them. On the core thread.
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

    /// Lets nobody in any more. What has no thread of its own ends with the core.
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
