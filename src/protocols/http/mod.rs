//! HTTP/JSON: on TCP, and on a Unix socket for the command line.

use crate::config::HttpConfig;
use crate::node::{Handle, NodeError};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The HTTP door. Cloning gives another handle.
#[derive(Clone)]
pub struct Door {
    address: Option<SocketAddr>,
    socket: Option<PathBuf>,
}

impl Door {
    pub(crate) async fn open(_config: &HttpConfig, _node: &Handle) -> Result<Self, NodeError> {
        Ok(Self {
            address: None,
            socket: None,
        })
    }

    /// Where it listens on TCP.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Where it listens as a Unix socket.
    pub fn socket(&self) -> Option<PathBuf> {
        self.socket.clone()
    }

    pub(crate) async fn close(&self) {}
}
