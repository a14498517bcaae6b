//! Opens the configured listeners on a running node, and closes them: those of the library's own protocols, and those of the protocols that
//! other packages serve.

use super::NodeError;
use super::chance::chance;
use super::protocol::{Protocols, Served};
use crate::config::{Address, Config, Opened};
use crate::handle::Handle;
use crate::protocols::beanstalk;
use crate::protocols::lockserver::{self, Hosts};
use std::sync::Arc;

/// The open listeners of a node, except beanstalkd's, of which nothing is asked once it is open. Clones share them.
#[derive(Clone, Default)]
pub(super) struct OpenListeners {
    pub(super) lockserver: Option<lockserver::Listener>,
    pub(super) others: Vec<Arc<dyn Served>>,
}

impl OpenListeners {
    /// Checks the files that the listeners use and, if there is no data directory yet, listens on the TCP addresses. Called before anything
    /// else, so that a first start that fails here creates no directory. Returns the hosts that LockServer admits.
    pub(super) fn prepare(config: &mut Config, protocols: &Protocols) -> Result<Hosts, NodeError> {
        let hosts = Self::check_files(config, protocols)?;
        if config.data.as_ref().is_some_and(|data| !data.exists()) {
            listen_on_tcp(config)?;
        }
        Ok(hosts)
    }

    /// Reads the list of hosts that LockServer admits, and checks that the files of the other protocols can be used. Returns the hosts.
    pub(super) fn check_files(config: &Config, protocols: &Protocols) -> Result<Hosts, NodeError> {
        let listed = config.lockserver.as_ref().and_then(|it| it.hosts.as_ref());
        let hosts = match listed {
            Some(file) => Hosts::read(file)?,
            None => Hosts::Loopback,
        };
        for protocol in protocols {
            protocol.check_files(config)?;
        }
        Ok(hosts)
    }

    /// Listens on every configured address that is not open yet. Called after recovery, because a client that connects earlier would have to
    /// wait, and before services are launched, so that a start that fails here launches none.
    pub(super) fn listen(config: &mut Config, protocols: &mut Protocols) -> Result<(), NodeError> {
        listen_on_tcp(config)?;
        if let Some(beanstalk) = &config.beanstalk
            && config.listeners.beanstalk.is_none()
        {
            let at = &beanstalk.address;
            let opened = Opened::at(at).map_err(NodeError::listener("beanstalk", at))?;
            config.listeners.beanstalk = Some(opened);
        }
        for protocol in protocols {
            protocol.listen(config)?;
        }
        Ok(())
    }

    /// Starts to serve on the sockets, the other packages' protocols last, so that the first status they serve shows the others. Runs on
    /// the core thread.
    pub(super) async fn open(
        config: &Config,
        hosts: Hosts,
        protocols: &mut Protocols,
        handle: &Handle,
    ) -> Result<Self, NodeError> {
        let clock = &handle.facts.clock;
        let mut listeners = Self::default();
        let open = &config.listeners;
        let lockserver = config.lockserver.as_ref().zip(open.lockserver.as_ref());
        if let Some((lockserver, open)) = lockserver {
            let locks = handle.actors.lock.clone();
            let listener =
                lockserver::Listener::open(lockserver, open, hosts, locks, Arc::clone(clock));
            let listener =
                listener.map_err(NodeError::listener("lockserver", &lockserver.address))?;
            handle.add_listener(listener.clone());
            listeners.lockserver = Some(listener);
        }
        let beanstalk = config.beanstalk.as_ref().zip(open.beanstalk.as_ref());
        if let Some((beanstalk, open)) = beanstalk {
            let queues = handle.actors.queue.clone();
            let queues = (queues, handle.facts.draining.subscribe());
            let id = u64::from_le_bytes(chance()?);
            let listener =
                beanstalk::Listener::open(beanstalk, open, queues, Arc::clone(clock), id);
            let listener =
                listener.map_err(NodeError::listener("beanstalk", &beanstalk.address))?;
            handle.add_listener(listener);
        }
        for protocol in protocols {
            listeners.others.extend(protocol.serve(config, handle).await?);
        }
        Ok(listeners)
    }

    /// Closes the listeners of other packages, and waits a limited time until they have completed pending requests. The library's own run
    /// on the core thread and stop with it.
    pub(super) async fn close(&self) {
        for listener in &self.others {
            listener.close().await;
        }
    }
}

/// Listens on the configured TCP addresses that are not open yet.
fn listen_on_tcp(config: &mut Config) -> Result<(), NodeError> {
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
    if let Some(at) = config.http.as_ref().and_then(|http| http.tcp)
        && listeners.http.is_none()
    {
        listeners.http = tcp("http", at)?;
    }
    Ok(())
}
