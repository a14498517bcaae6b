//! HTTP as one of the protocols that a node serves: opens nodes that speak it.

use crate::listener::{Listener, OpenError, Sockets};
use sexton::config::Config;
use sexton::handle::Handle;
use sexton::node::{HTTP, LocalFuture, Node, NodeError, Protocol, Protocols, Served};
use std::sync::Arc;

/// Opens a node like [`Node::open`] that also serves HTTP, as configured in [`Config::http`].
///
/// # Errors
/// [`NodeError::Protocol`] contains an [`OpenError`].
pub fn open(config: Config) -> Result<Node, NodeError> {
    Node::open_with(config, protocols())
}

/// Returns HTTP as the only protocol, for [`Node::open_with`] and [`Node::check_files`].
pub fn protocols() -> Protocols {
    vec![Box::new(Http::default())]
}

/// Returns a node's HTTP listener, if it is open.
pub fn listener(node: &Node) -> Option<&Listener> {
    node.listener()
}

/// HTTP, before it is served.
#[derive(Default)]
struct Http {
    /// The sockets on which it listens, until it serves on them.
    sockets: Option<Sockets>,
}

impl Protocol for Http {
    fn name(&self) -> &'static str {
        HTTP
    }

    fn check_files(&self, config: &Config) -> Result<(), NodeError> {
        if let Some(http) = &config.http {
            Listener::check_files(http)?;
        }
        Ok(())
    }

    fn listen(&mut self, config: &Config) -> Result<(), NodeError> {
        let opened = config.http.as_ref().map(|http| Sockets::open(http, &config.listeners));
        self.sockets = opened.transpose()?;
        Ok(())
    }

    fn serve<'a>(
        &'a mut self,
        config: &'a Config,
        node: &'a Handle,
    ) -> LocalFuture<'a, Result<Option<Arc<dyn Served>>, NodeError>> {
        Box::pin(async move {
            let Some((http, sockets)) = config.http.as_ref().zip(self.sockets.take()) else {
                return Ok(None);
            };
            let most = config.request_bytes_max();
            let opened: Arc<dyn Served> =
                Arc::new(Listener::open(http, sockets, node, most).await?);
            Ok(Some(opened))
        })
    }
}

impl Served for Listener {
    fn close(&self) -> LocalFuture<'_, ()> {
        Box::pin(self.close_in_time())
    }
}

impl From<OpenError> for NodeError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Listen { address, source } => Self::listener("http", &address)(source),
            OpenError::Thread(error) => Self::Core(error),
            error @ (OpenError::Token(_) | OpenError::Tls(_)) => Self::Protocol(Box::new(error)),
        }
    }
}
