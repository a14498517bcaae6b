//! Callers that request one lock again and again, and the commands that they run while they have it.

use crate::chance::Chance;
use sexton::kernel::pidfd::Pidfd;
use sexton::kernel::proc;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The command that callers run: it writes lines while it is running, leaves a process that also does so, and ends. `$1` is the file,
/// `$2` the command's id, `$3` the kind of process that it leaves. Each line is one write at the end of the file.
const COMMAND: &str = r#"
there='for turn in 1 2 3 4; do echo "$0 $2 $$" >> "$1"; sleep 0.005; done'
echo "b $2 $$" >> "$1"
sh -c "$there" h "$1" "$2"
case $3 in
session) setsid sh -c "$there" l "$1" "$2" < /dev/null > /dev/null 2>&1 & ;;
closed) setsid sh -c "$there" l "$1" "$2" < /dev/null > /dev/null 2>&1 3>&- & ;;
orphan) ( setsid sh -c "($there) &" l "$1" "$2" < /dev/null > /dev/null 2>&1 & ) ;;
bare) ( env -i "PATH=$PATH" setsid sh -c "$there" l "$1" "$2" < /dev/null > /dev/null 2>&1 & ) ;;
esac
echo "e $2 $$" >> "$1"
"#;

/// The processes that commands leave, mostly none: one in a session of its own, one that closes its inherited descriptors, one
/// that was forked twice, and one without sexton's environment variables.
const LEAVES: [&str; 8] =
    ["nothing", "nothing", "nothing", "nothing", "session", "closed", "orphan", "bare"];

/// Callers of one lock that all use the same program, `sexton lock run` or flock(1).
pub(crate) struct Callers {
    /// The file to which all commands write.
    pub(crate) file: PathBuf,
    /// Returns the call up to the command that it runs.
    call: fn(&Path) -> Command,
    place: PathBuf,
    /// The current callers, by the id of the command.
    calling: Mutex<BTreeMap<String, Pidfd>>,
    next: AtomicU64,
    is_over: AtomicBool,
}

impl Callers {
    /// Creates callers whose calls begin with `call(place)`, for commands that write to `file`.
    pub(crate) fn new(file: PathBuf, place: PathBuf, call: fn(&Path) -> Command) -> Self {
        Self {
            file,
            call,
            place,
            calling: Mutex::default(),
            next: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    /// Calls again and again, until the test ends.
    #[expect(
        clippy::disallowed_methods,
        reason = "the start of another coordinator is not an event in this process"
    )]
    pub(crate) fn call(&self, seed: u64) {
        while !self.is_over.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let mut chance = Chance::new(seed ^ number << 20);
            let chosen = usize::try_from(chance.below(LEAVES.len() as u64));
            let leaves = LEAVES.get(chosen.expect("a small number"));
            let leaves = leaves.expect("it is below their number");
            let id = number.to_string();
            let mut command = (self.call)(&self.place);
            command.args(["sh", "-c", COMMAND, "exclusion"]);
            command.arg(&self.file).args([id.as_str(), leaves]);
            command.stdin(Stdio::null()).stdout(Stdio::null());
            let mut child = command.stderr(Stdio::null()).spawn().expect("the command starts");
            // Opened before the child can be reaped, so the descriptor refers to the caller and to no other process.
            let pidfd = Pidfd::open(child.id()).expect("descriptors are left");
            let calling = || self.calling.lock().expect("not poisoned");
            calling().insert(id.clone(), pidfd.expect("it is not reaped"));
            let status = child.wait().expect("our child");
            calling().remove(&id);
            if !status.success() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Returns a guard that ends all calls when dropped, so that no caller is left waiting for the lock after a failed test.
    pub(crate) const fn until_dropped(&self) -> UntilDropped<'_> {
        UntilDropped(self)
    }

    /// Kills the caller of this command with SIGKILL, or the first caller if that one has already ended. Returns whether one was killed.
    pub(crate) fn kill_caller(&self, id: &str) -> bool {
        let calling = self.calling.lock().expect("not poisoned");
        let caller = calling.get(id).or_else(|| calling.values().next());
        caller.is_some_and(|caller| caller.signal(9).is_ok())
    }

    /// Sends SIGKILL to a process that wrote to the file, and returns whether it was still running.
    pub(crate) fn kill_writer(&self, pid: u32) -> bool {
        let Ok(Some(pidfd)) = Pidfd::open(pid) else {
            return false;
        };
        let argv = proc::cmdline(pid).ok().flatten().unwrap_or_default();
        let file = self.file.as_os_str().as_encoded_bytes();
        argv.iter().any(|word| word.as_bytes() == file) && pidfd.signal(9).is_ok()
    }
}

/// See [`Callers::until_dropped`].
pub(crate) struct UntilDropped<'a>(&'a Callers);

impl Drop for UntilDropped<'_> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a process that was just started is not known yet"
    )]
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
        for _ in 0..if std::thread::panicking() { 100 } else { 0 } {
            let calling = self.0.calling.lock();
            for caller in calling.unwrap_or_else(PoisonError::into_inner).values() {
                // This fails if the caller has ended.
                drop(caller.signal(9));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
