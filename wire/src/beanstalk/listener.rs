//! The beanstalkd listener: which connections are admitted, and how many at a time.

use crate::beanstalk::command::TubeName;
use crate::beanstalk::counters::Stats;
use crate::beanstalk::request::queue;
use crate::beanstalk::session::BeanstalkSession;
use crate::beanstalk::shared::Shared;
use crate::connection::{self, Stream};
use sexton::actors::queue::{QueueMachine, Watch};
use sexton::config::{Address, BeanstalkConfig, Opened};
use sexton::handle::{Handle, ListenerStatus};
use sexton::kernel::socket::Peers;
use sexton::protocols::listener::{self, Place};
use sexton::spine::runtime::{self, Mailbox};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, UnixListener};

/// A handle to the listener and the state its connections share. Clones refer to the same listener.
#[derive(Clone)]
pub struct Listener {
    shared: Arc<Shared>,
    address: Address,
}

impl Listener {
    /// Starts to serve the connections of an open socket. Must be called on the core thread.
    pub(crate) fn open(
        config: &BeanstalkConfig,
        open: &Opened,
        node: &Handle,
        id: u64,
    ) -> io::Result<Self> {
        let address = open.address()?;
        let listener = Listening::on(open)?;
        let queues = node.queues().mailbox().clone();
        let shared = Arc::new(Shared::new(config, node, id));
        let serving = serve(listener, config.clone(), queues, Arc::clone(&shared));
        runtime::spawn("beanstalkd listener", serving);
        Ok(Self { shared, address })
    }

    /// Returns the address that the listener is bound to.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the listener's statistics since it was opened.
    pub fn stats(&self) -> Stats {
        self.shared.counters.stats(self.shared.places.taken())
    }
}

impl ListenerStatus for Listener {
    fn show(&self, _locks: (u32, u32), listening: &mut sexton::status::Listening) {
        listening.listeners.beanstalk = Some(self.address.clone());
        listening.beanstalk = Some(self.stats());
    }
}

/// A listening TCP or Unix socket.
enum Listening {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listening {
    fn on(open: &Opened) -> io::Result<Self> {
        Ok(match open {
            Opened::Tcp(open) => Self::Tcp(listener::listen_on(open)?),
            Opened::Unix(open) => {
                let listener = open.try_clone()?;
                listener.set_nonblocking(true)?;
                Self::Unix(UnixListener::from_std(listener)?)
            }
        })
    }
}

async fn serve(
    listener: Listening,
    config: BeanstalkConfig,
    queues: Mailbox<QueueMachine>,
    shared: Arc<Shared>,
) {
    // This watch keeps the default tube in existence even if it has no jobs and no clients.
    let _standing = queues.begin_watch(Watch::KeepQueue(queue(TubeName::DEFAULT)));
    let session = || BeanstalkSession::new(&queues, Arc::clone(&shared));
    match listener {
        Listening::Tcp(listener) => loop {
            let (stream, peer) = listener::accept(&listener).await;
            if let Some(place) = admit(&config, &shared, Some(peer)) {
                runtime::spawn_brief(serve_connection(stream, session(), place));
            }
        },
        // The list of hosts does not apply: every user with access to the socket file may connect.
        Listening::Unix(listener) => loop {
            let (stream, _) = listener::accept_unix(&listener, Peers::OfFile).await;
            if let Some(place) = admit(&config, &shared, None) {
                runtime::spawn_brief(serve_connection(stream, session(), place));
            }
        },
    }
}

/// Returns a place for a new connection, or `None` if its host is not allowed or no place is free. The protocol has no reply for a
/// refusal, so a refused connection is just closed.
fn admit(config: &BeanstalkConfig, shared: &Arc<Shared>, peer: Option<IpAddr>) -> Option<Place> {
    if let Some(peer) = peer.filter(|peer| !config.lets_in(*peer)) {
        let so_far = shared.counters.rejected_host();
        listener::refused(&peer, so_far, "not in the list of hosts");
        return None;
    }
    let place = shared.places.take();
    if place.is_none() {
        let so_far = shared.counters.rejected_busy();
        match peer {
            Some(peer) => listener::refused(&peer, so_far, "too many connections"),
            None => listener::refused(&"the socket", so_far, "too many connections"),
        }
    }
    place
}

async fn serve_connection(stream: impl Stream, mut session: BeanstalkSession, place: Place) {
    match connection::serve(&stream, &mut session, None).await {
        Ok(()) => {
            // Draining the connection may take a while. Dropping the session first gives the client's claims back at once.
            drop(session);
            connection::finish(stream).await;
        }
        Err(error) => tracing::debug!(%error, "a connection failed"),
    }
    drop(place);
}
