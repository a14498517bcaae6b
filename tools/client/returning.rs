//! Waiting for a coordinator that is down: until the next attempt to reach it is due, or its socket is created.
//!
//! A right may be granted to a client that waits for it as soon as the coordinator is back, and nobody else has it until that client is
//! back, too. So a client on the same machine does not wait until its pause is over.

use crate::client::target::Target;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::ffi::{CStr, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

/// The pause after the first attempt to reach a coordinator that is down. The pause doubles after each further one.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest pause before another attempt to reach a coordinator on this machine: an attempt on a socket costs next to nothing.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// The longest pause before another attempt to reach a coordinator over TCP.
const PAUSE_MAX_FAR: Duration = Duration::from_secs(1);

/// The size of the buffer for notifications. Those that do not fit are read the next time.
const NOTIFICATION_BYTES: usize = 1 << 10;

/// The pauses between attempts to reach a coordinator that is down. Each is twice as long as the one before, up to a limit, until a
/// connection stood: the coordinator was there, so it is probably soon back.
pub(super) struct Pauses<'t> {
    next: Duration,
    most: Duration,
    /// The socket; `None` over TCP.
    socket: Option<&'t Path>,
    /// Is notified of files that are created in the directory of the socket. `None` before the first pause, and if the kernel grants no
    /// watch.
    created: Option<OwnedFd>,
}

impl<'t> Pauses<'t> {
    /// Creates the pauses for this coordinator.
    pub(super) fn of(target: &'t Target) -> Self {
        Self::new(target.socket())
    }

    const fn new(socket: Option<&'t Path>) -> Self {
        let most = match socket {
            Some(_) => PAUSE_MAX,
            None => PAUSE_MAX_FAR,
        };
        Self { next: PAUSE_MIN, most, socket, created: None }
    }

    /// Waits before the next attempt, at most `left`.
    pub(super) fn rest(&mut self, left: Duration) {
        if self.created.is_none() {
            self.created = self.socket.and_then(watch);
        }
        let pause = self.next().min(left);
        let name = self.socket.and_then(Path::file_name).unwrap_or_default();
        if is_created(self.created.as_ref(), name, pause) {
            self.start_again();
        }
    }

    /// Returns how long to wait before the next attempt.
    fn next(&mut self) -> Duration {
        let next = self.next;
        self.next = (next * 2).min(self.most);
        next
    }

    /// Notes that a connection stood.
    pub(super) const fn start_again(&mut self) {
        self.next = PAUSE_MIN;
    }
}

/// Watches the directory of a socket for new files.
fn watch(socket: &Path) -> Option<OwnedFd> {
    let directory = socket.parent()?;
    let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
    let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
    inotify::add_watch(&inotify, directory, flags).ok()?;
    Some(inotify)
}

/// Waits for at most `pause`, until a file is created. Returns whether one with this name was. Without a watch, waits for the whole pause.
fn is_created(created: Option<&OwnedFd>, name: &OsStr, pause: Duration) -> bool {
    let polled = created.map(|created| PollFd::new(created, PollFlags::IN));
    let pause = Timespec::try_from(pause).ok();
    // A signal, too, ends the pause early.
    let _ = poll(&mut Vec::from_iter(polled), pause.as_ref());
    let Some(created) = created else {
        return false;
    };
    let mut bytes = [MaybeUninit::uninit(); NOTIFICATION_BYTES];
    let mut notifications = inotify::Reader::new(created, &mut bytes);
    let mut is_created = false;
    while let Ok(notification) = notifications.next() {
        let of = notification.file_name().map(CStr::to_bytes);
        is_created |= of == Some(name.as_bytes());
    }
    is_created
}

#[cfg(test)]
mod tests {
    use super::{Pauses, is_created, watch};
    use std::ffi::OsStr;
    use std::os::unix::net::UnixListener;
    use std::path::Path;
    use std::time::Duration;

    #[test]
    fn the_pause_is_short_again_once_a_connection_stood() {
        let ms = Duration::from_millis;
        let socket = Path::new("/no/such/sexton.sock");
        let mut pauses = Pauses::new(Some(socket));
        let mut first = || std::array::from_fn(|_| pauses.next());
        assert_eq!(first(), [20, 40, 80, 160, 200, 200].map(ms));
        pauses.start_again();
        assert_eq!([pauses.next(), pauses.next()], [20, 40].map(ms));
    }

    #[test]
    fn a_pause_ends_when_the_socket_is_created() {
        let files = tempfile::tempdir().unwrap();
        let socket = files.path().join("sexton.sock");
        let created = watch(&socket);
        let waits = |pause| is_created(created.as_ref(), OsStr::new("sexton.sock"), pause);
        assert!(!waits(Duration::ZERO));
        // Another file may be created meanwhile.
        std::fs::write(files.path().join("lock"), "").unwrap();
        std::thread::scope(|scope| {
            let back = scope.spawn(|| UnixListener::bind(&socket).unwrap());
            while !waits(Duration::from_mins(10)) {}
            back.join().unwrap();
        });
        assert!(!waits(Duration::ZERO), "it is told once");
        // A coordinator that was killed leaves its socket, and the next one creates it anew.
        std::fs::remove_file(&socket).unwrap();
        let _again = UnixListener::bind(&socket).unwrap();
        assert!(waits(Duration::from_mins(10)));
    }

    #[test]
    fn without_a_directory_to_watch_the_whole_pause_passes() {
        assert!(watch(Path::new("/no/such/sexton.sock")).is_none());
        assert!(!is_created(None, OsStr::new(""), Duration::from_millis(1)));
    }
}
