//! The contract of a protocol, which another package serves: a node checks, opens and closes the listeners of all protocols in one order.

use super::NodeError;
use crate::config::Config;
use crate::handle::Handle;
use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A future that stays on the core thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The name of the protocol that [`Config::lockserver`] configures.
pub const LOCKSERVER: &str = "lockserver";

/// The name of the protocol that [`Config::beanstalk`] configures.
pub const BEANSTALK: &str = "beanstalk";

/// The name of the protocol that [`Config::http`] configures.
pub const HTTP: &str = "http";

/// The protocols that a node serves, in the order in which it opens them. HTTP comes last, so that the first status which it serves shows the
/// others.
pub type Protocols = Vec<Box<dyn Protocol>>;

/// A protocol, as passed to [`Node::open_with`](super::Node::open_with). Its settings are in the [`Config`]; the node calls the methods
/// in the order in which they stand here.
pub trait Protocol: Send {
    /// Returns the name of the protocol, such as [`HTTP`]. A node that is configured to serve one of these is opened only with a protocol of
    /// that name.
    fn name(&self) -> &'static str;

    /// Checks that the files which the configuration names can be used. Called before the data directory is created.
    fn check_files(&self, config: &Config) -> Result<(), NodeError>;

    /// Listens on every configured address that is not open yet; the node has opened those of TCP. Called after recovery, and before
    /// services are launched, so that a start that fails here launches none.
    fn listen(&mut self, config: &Config) -> Result<(), NodeError>;

    /// Starts to serve on the sockets that [`listen`](Self::listen) opened. Called once, on the core thread. Returns `None` if the protocol is
    /// not configured.
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
