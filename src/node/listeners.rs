//! Opens the listeners of a node's protocols on the running node, and closes them.

use super::NodeError;
use super::protocol::{BEANSTALK, HTTP, LOCKSERVER, Protocols, Served};
use crate::config::{Address, Config, Opened};
use crate::handle::Handle;
use std::sync::Arc;

/// The open listeners of a node, in the order in which they were opened. Clones share them.
#[derive(Clone)]
pub(super) struct OpenListeners(pub(super) Vec<Arc<dyn Served>>);

impl OpenListeners {
    /// Returns a description of each protocol that is configured and not among `protocols`: nobody should believe that it is served.
    pub(super) fn unserved(config: &Config, protocols: &Protocols) -> Vec<String> {
        let configured = [
            (LOCKSERVER, config.lockserver.is_some(), "sexton_wire"),
            (BEANSTALK, config.beanstalk.is_some(), "sexton_wire"),
            (HTTP, config.http.is_some(), "sexton_http"),
        ];
        let is_served = |name| protocols.iter().any(|protocol| protocol.name() == name);
        let configured = configured.into_iter().filter(|(_, is_configured, _)| *is_configured);
        let unserved = configured.filter(|(name, ..)| !is_served(*name));
        let words = |(name, _, package)| {
            format!(
                "{name} is configured, which a node serves only with the protocol of another package: pass `{package}::protocols()` to `Node::open_with`"
            )
        };
        unserved.map(words).collect()
    }

    /// Checks the files that the listeners use and, if there is no data directory yet, listens on the TCP addresses. Called before anything
    /// else, so that a first start that fails here creates no directory.
    pub(super) fn prepare(config: &mut Config, protocols: &Protocols) -> Result<(), NodeError> {
        Self::check_files(config, protocols)?;
        if config.data.as_ref().is_some_and(|data| !data.exists()) {
            listen_on_tcp(config)?;
        }
        Ok(())
    }

    /// Checks that the files of the protocols can be used.
    pub(super) fn check_files(config: &Config, protocols: &Protocols) -> Result<(), NodeError> {
        protocols.iter().try_for_each(|protocol| protocol.check_files(config))
    }

    /// Listens on every configured address that is not open yet. Called after recovery, because a client that connects earlier would have to
    /// wait, and before services are launched, so that a start that fails here launches none.
    pub(super) fn listen(config: &mut Config, protocols: &mut Protocols) -> Result<(), NodeError> {
        listen_on_tcp(config)?;
        protocols.iter_mut().try_for_each(|protocol| protocol.listen(config))
    }

    /// Starts to serve on the sockets. Runs on the core thread.
    pub(super) async fn open(
        config: &Config,
        protocols: &mut Protocols,
        handle: &Handle,
    ) -> Result<Self, NodeError> {
        let mut listeners = Vec::new();
        for protocol in protocols {
            listeners.extend(protocol.serve(config, handle).await?);
        }
        Ok(Self(listeners))
    }

    /// Closes the listeners, and waits a limited time until they have completed pending requests.
    pub(super) async fn close(&self) {
        for listener in &self.0 {
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
        listeners.lockserver = tcp(LOCKSERVER, lockserver.address)?;
    }
    if let Some(beanstalk) = config.beanstalk.as_ref()
        && listeners.beanstalk.is_none()
        && let Address::Tcp(at) = beanstalk.address
    {
        listeners.beanstalk = tcp(BEANSTALK, at)?.map(Opened::Tcp);
    }
    if let Some(at) = config.http.as_ref().and_then(|http| http.tcp)
        && listeners.http.is_none()
    {
        listeners.http = tcp(HTTP, at)?;
    }
    Ok(())
}
