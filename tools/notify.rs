//! Tells a service manager, using the `sd_notify` protocol, that the program is ready or stopping, what it is doing, and, if the
//! manager has a watchdog for it, that it is alive.
//!
//! Sends nothing unless `NOTIFY_SOCKET` is set. Never waits for the manager, and continues if a notice cannot be sent.

use crate::progress::Progress;
use sexton::node::Handle;
use std::convert::Infallible;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// How long each notice extends the manager's start or stop timeout. Notices are sent every few seconds.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The connection to the service manager, if there is one. Clones share it.
#[derive(Clone)]
pub(crate) struct Notify(Option<Arc<Connection>>);

struct Connection {
    socket: UnixDatagram,
    manager: SocketAddr,
    watchdog: Option<Duration>,
}

impl Notify {
    /// Connects to the manager that `NOTIFY_SOCKET` names, if any. If that fails, logs a warning; then nothing is sent.
    pub(crate) fn from_environment() -> Self {
        let Some(path) = std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
            return Self(None);
        };
        let open = || {
            let manager = match path.as_bytes().strip_prefix(b"@") {
                Some(name) => SocketAddr::from_abstract_name(name)?,
                None => SocketAddr::from_pathname(&path)?,
            };
            let socket = UnixDatagram::unbound()?;
            // A manager that does not read must not block this process.
            socket.set_nonblocking(true)?;
            std::io::Result::Ok(Connection { socket, manager, watchdog: watchdog() })
        };
        Self(match open() {
            Ok(manager) => Some(Arc::new(manager)),
            Err(error) => {
                warn_unsent(&error);
                None
            }
        })
    }

    /// Reports that the program is ready, with `words` as its status.
    pub(crate) fn ready(&self, words: &str) {
        self.send(&format!("READY=1\nSTATUS={}", line(words)));
    }

    /// Reports that the program is ready, and then its status periodically until the returned value is dropped. Returns `None`
    /// without a service manager.
    pub(crate) fn while_ready(
        &self,
        words: impl Fn() -> String + Send + 'static,
    ) -> Option<Progress> {
        self.0.as_ref()?;
        self.ready(&words());
        let theirs = self.clone();
        Some(Progress::aside(move || Some(words()), move |words| theirs.status(words)))
    }

    /// Reports the program's current status.
    pub(crate) fn status(&self, words: &str) {
        self.send(&format!("STATUS={}", line(words)));
    }

    /// Reports a long operation, and extends the manager's timeout.
    pub(crate) fn working(&self, words: &str) {
        let patience = TIMEOUT.as_micros();
        self.send(&format!("STATUS={}\nEXTEND_TIMEOUT_USEC={patience}", line(words)));
    }

    /// Reports a long operation periodically, and extends the timeout each time, until the returned value is dropped. Returns `None`
    /// without a service manager.
    pub(crate) fn while_working(
        &self,
        words: impl Fn() -> String + Send + 'static,
    ) -> Option<Progress> {
        self.0.as_ref()?;
        self.working(&words());
        let theirs = self.clone();
        Some(Progress::aside(move || Some(words()), move |words| theirs.working(words)))
    }

    /// Reports that the program is stopping, and extends the timeout until the returned value is dropped, since a last snapshot may
    /// take long.
    pub(crate) fn stopping(&self) -> Option<Progress> {
        self.send("STOPPING=1");
        self.while_working(|| "stopping: writing acknowledged changes to disk".to_owned())
    }

    /// Sends watchdog notices if the manager expects them, each only after all actors have answered a request for their status. Never
    /// completes.
    pub(crate) async fn watch(&self, handle: &Handle) -> Infallible {
        let Some(period) = self.0.as_ref().and_then(|manager| manager.watchdog) else {
            return std::future::pending().await;
        };
        let mut ticks = tokio::time::interval(period / 2);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // For a node that hangs or has halted, no notice is sent, so the manager considers it dead and may restart it.
            if handle.status().await.is_ok_and(|status| status.halted.is_none()) {
                self.send("WATCHDOG=1");
            }
        }
    }

    fn send(&self, notice: &str) {
        if let Some(manager) = &self.0
            && let Err(error) = manager.socket.send_to_addr(notice.as_bytes(), &manager.manager)
        {
            warn_unsent(&error);
        }
    }
}

fn warn_unsent(error: &std::io::Error) {
    tracing::warn!(%error, "failed to notify the service manager");
}

/// Joins the lines of `words` with blanks, since a line break would begin another variable of the notice.
fn line(words: &str) -> String {
    words.replace(['\n', '\r'], " ")
}

/// Returns the watchdog period, or `None` if the manager does not watch this process.
fn watchdog() -> Option<Duration> {
    let number = |name| std::env::var_os(name)?.to_str()?.parse::<u64>().ok();
    let watched = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let period = number("WATCHDOG_USEC").filter(|usec| watched && *usec > 0)?;
    Some(Duration::from_micros(period))
}
