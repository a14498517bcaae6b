//! The contract of a protocol that another package serves, such as HTTP: a node checks, opens and closes its listeners in the same order as
//! its own.

use super::NodeError;
use crate::config::Config;
use crate::handle::Handle;
use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A future that stays on the core thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The protocols of other packages that a node serves, in the order in which it opens them.
pub type Protocols = Vec<Box<dyn Protocol>>;

/// A protocol, as passed to [`Node::open_with`](super::Node::open_with). Its settings are in the [`Config`]; the node calls the methods
/// in the order in which they stand here.
pub trait Protocol: Send {
    /// Returns the name of the protocol, such as `http`. A node that is configured to serve HTTP is opened only with a protocol of that name.
    fn name(&self) -> &'static str;

    /// Checks that the files which the configuration names can be used. Called before the data directory is created.
    fn check_files(&self, config: &Config) -> Result<(), NodeError>;

    /// Listens on every configured address that is not open yet; the node has opened those of TCP. Called after recovery, and before
    /// services are launched, so that a start that fails here launches none.
    fn listen(&mut self, config: &Config) -> Result<(), NodeError>;

    /// Starts to serve on the sockets that [`listen`](Self::listen) opened. Called once, on the core thread, after the node's own listeners
    /// were opened. Returns `None` if the protocol is not configured.
    fn serve<'a>(
        &'a mut self,
        config: &'a Config,
        node: &'a Handle,
    ) -> LocalFuture<'a, Result<Option<Arc<dyn Served>>, NodeError>>;
}

/// An open listener of a [`Protocol`]; [`Node::listener`](super::Node::listener) finds it by its type.
pub trait Served: Any + Send + Sync {
    /// Stops accepting connections, and waits a limited time until pending requests are completed.
    fn close(&self) -> LocalFuture<'_, ()>;
}
