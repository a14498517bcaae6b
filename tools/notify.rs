//! Tells a service manager how the program is, by the `sd_notify` protocol: ready, stopping, what it does meanwhile,
//! and, if asked for, that it still answers.
//!
//! Says nothing where nobody asked (`NOTIFY_SOCKET`). Never waits for the manager, and goes on if it cannot be told.

use crate::progress::Progress;
use sexton::node::Handle;
use std::convert::Infallible;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// How long the manager is asked to be patient from each notice on. Notices come every few seconds.
const PATIENCE: Duration = Duration::from_mins(1);

/// The way to the service manager, if there is one. Cloning gives another handle.
#[derive(Clone)]
pub(crate) struct Notify(Option<Arc<Way>>);

struct Way {
    socket: UnixDatagram,
    manager: SocketAddr,
    watchdog: Option<Duration>,
}

impl Notify {
    /// As the environment says.
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
            // A manager that does not read holds nothing up.
            socket.set_nonblocking(true)?;
            std::io::Result::Ok(Way {
                socket,
                manager,
                watchdog: watchdog(),
            })
        };
        Self(match open() {
            Ok(way) => Some(Arc::new(way)),
            Err(error) => {
                untold(&error);
                None
            }
        })
    }

    /// The program is ready, and does this.
    pub(crate) fn ready(&self, words: &str) {
        self.say(&format!("READY=1\nSTATUS={}", line(words)));
    }

    /// Says now and then what the program does, until what is given is dropped.
    pub(crate) fn while_ready(
        &self,
        words: impl Fn() -> String + Send + 'static,
    ) -> Option<Progress> {
        self.0.as_ref()?;
        self.ready(&words());
        let theirs = self.clone();
        Some(Progress::aside(
            move || Some(words()),
            move |words| theirs.status(words),
        ))
    }

    /// What the program does now.
    pub(crate) fn status(&self, words: &str) {
        self.say(&format!("STATUS={}", line(words)));
    }

    /// What takes long now, and that it is worth waiting for.
    pub(crate) fn working(&self, words: &str) {
        let patience = PATIENCE.as_micros();
        self.say(&format!(
            "STATUS={}\nEXTEND_TIMEOUT_USEC={patience}",
            line(words)
        ));
    }

    /// Asks for patience, now and until what is given is dropped.
    pub(crate) fn while_working(
        &self,
        words: impl Fn() -> String + Send + 'static,
    ) -> Option<Progress> {
        self.0.as_ref()?;
        self.working(&words());
        let theirs = self.clone();
        Some(Progress::aside(
            move || Some(words()),
            move |words| theirs.working(words),
        ))
    }

    /// The end begins: it may take as long as a last snapshot does.
    pub(crate) fn stopping(&self) -> Option<Progress> {
        self.say("STOPPING=1");
        self.while_working(|| "stopping: what was acknowledged goes to disk".to_owned())
    }

    /// Says again and again that the program is alive, whenever the actors have answered.
    pub(crate) async fn watch(&self, handle: &Handle) -> Infallible {
        let Some(period) = self.0.as_ref().and_then(|way| way.watchdog) else {
            return std::future::pending().await;
        };
        let mut ticks = tokio::time::interval(period / 2);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // A node that has halted does not answer, nor does one that hangs: then nothing is said.
            if handle
                .status()
                .await
                .is_ok_and(|status| status.halted.is_none())
            {
                self.say("WATCHDOG=1");
            }
        }
    }

    fn say(&self, notice: &str) {
        if let Some(way) = &self.0
            && let Err(error) = way.socket.send_to_addr(notice.as_bytes(), &way.manager)
        {
            untold(&error);
        }
    }
}

fn untold(error: &std::io::Error) {
    tracing::warn!(%error, "the service manager could not be told");
}

/// One line: another would be another variable.
fn line(words: &str) -> String {
    words.replace(['\n', '\r'], " ")
}

/// How long the manager waits for a sign of life, if it watches this process.
fn watchdog() -> Option<Duration> {
    let number = |name| std::env::var_os(name)?.to_str()?.parse::<u64>().ok();
    let watched = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let period = number("WATCHDOG_USEC").filter(|usec| watched && *usec > 0)?;
    Some(Duration::from_micros(period))
}
