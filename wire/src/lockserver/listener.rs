//! The LockServer listener: the handshake byte, refusals and limits.

use crate::connection;
use crate::lockserver::hosts::{Hosts, HostsError};
use crate::lockserver::session::LockserverSession;
use crate::lockserver::shared::Shared;
use crate::lockserver::stats::Stats;
use sexton::actors::lock::LockMachine;
use sexton::config::LockserverConfig;
use sexton::handle::{Handle, ListenerStatus};
use sexton::protocols::listener::{self, Place};
use sexton::spine::runtime::{self, Mailbox};
use sexton::status::Listening;
use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const ALLOWED: &[u8] = &[1];
const REFUSED: &[u8] = &[0];

/// A handle to the listener and the state its connections share. Clones refer to the same listener.
#[derive(Clone)]
pub struct Listener {
    shared: Arc<Shared>,
    address: SocketAddr,
    hosts_file: Option<PathBuf>,
}

impl Listener {
    /// Starts to serve the connections of an open socket. Must be called on the core thread.
    pub(crate) fn open(
        config: &LockserverConfig,
        open: &std::net::TcpListener,
        hosts: Hosts,
        node: &Handle,
    ) -> io::Result<Self> {
        let listener = listener::listen_on(open)?;
        let address = listener.local_addr()?;
        let locks = node.locks().mailbox().clone();
        let shared = Arc::new(Shared::new(config, hosts, node.clock()));
        let config = config.clone();
        let hosts_file = config.hosts.clone();
        let serving = serve(listener, config, locks, Arc::clone(&shared));
        runtime::spawn("lockserver listener", serving);
        Ok(Self { shared, address, hosts_file })
    }

    /// Returns the address that the listener is bound to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the current statistics.
    pub fn stats(&self, owners: u32, contenders: u32) -> Stats {
        self.shared.stats((owners, contenders))
    }

    /// Reloads the hosts list; if that fails, the old list stays in force. Closes the connections of hosts that are not in it any more. Returns
    /// whether the list changed, or `None` if no list is configured.
    pub fn reload_hosts(&self) -> Result<Option<bool>, HostsError> {
        let Some(file) = &self.hosts_file else {
            return Ok(None);
        };
        let hosts = Arc::new(Hosts::read(file)?);
        let former = self.shared.hosts.send_replace(Arc::clone(&hosts));
        Ok(Some(former != hosts))
    }
}

impl ListenerStatus for Listener {
    fn show(&self, (owners, contenders): (u32, u32), listening: &mut Listening) {
        listening.listeners.lockserver = Some(self.address());
        listening.lockserver = Some(self.stats(owners, contenders));
    }
}

async fn serve(
    listener: TcpListener,
    config: LockserverConfig,
    locks: Mailbox<LockMachine>,
    shared: Arc<Shared>,
) {
    loop {
        let (stream, peer) = listener::accept(&listener).await;
        match admit(&shared, peer) {
            Some(place) => {
                let session =
                    LockserverSession::new(&locks, Arc::clone(&shared), peer, config.long);
                // Without a list, no host is ever removed from it.
                let hosts = config.hosts.is_some().then(|| shared.hosts.subscribe());
                let removed = removed(hosts, peer);
                let served = greet(stream, session, (config.idle, removed), place);
                runtime::spawn_brief(served);
            }
            None => refuse(stream, &shared),
        }
    }
}

/// Refuses a connection. The refusal byte arrives even if the client has already sent something. If `REFUSALS_MAX` refused
/// connections are still being closed, the connection is closed without the byte.
fn refuse(stream: TcpStream, shared: &Arc<Shared>) {
    if let Some(place) = shared.refusals.take() {
        runtime::spawn_brief(async move {
            if connection::write(&stream, REFUSED).await.is_ok() {
                connection::finish(stream).await;
            }
            drop(place);
        });
    }
}

/// Returns a slot for a connection, or `None` if it is refused. The host is checked first, then the number of connections (rows 22 and 23
/// of `docs/protocols/lockserver.md`).
fn admit(shared: &Arc<Shared>, peer: IpAddr) -> Option<Place> {
    if !shared.hosts().allow(peer) {
        let so_far = shared.counters.rejected_host();
        listener::refused(&peer, so_far, "not in the hosts list");
        return None;
    }
    let place = shared.places.take();
    if place.is_some() {
        shared.counters.accepted();
    } else {
        let so_far = shared.counters.rejected_busy();
        listener::refused(&peer, so_far, "too many connections");
    }
    place
}

/// Resolves when a host is not admitted any more.
async fn removed(hosts: Option<watch::Receiver<Arc<Hosts>>>, peer: IpAddr) {
    match hosts {
        Some(mut hosts) => drop(hosts.wait_for(|hosts| !hosts.allow(peer)).await),
        None => pending().await,
    }
}

async fn greet(
    stream: TcpStream,
    mut session: LockserverSession,
    (idle, removed): (Option<std::time::Duration>, impl Future<Output = ()>),
    place: Place,
) {
    let served = async {
        connection::write(&stream, ALLOWED).await?;
        connection::serve(&stream, &mut session, idle).await
    };
    let served = tokio::select! {
        biased;
        served = served => served,
        () = removed => Ok(()),
    };
    match served {
        Ok(()) => connection::finish(stream).await,
        Err(error) => tracing::debug!(%error, "a connection failed"),
    }
    drop(place);
}
