//! Tests of pidfds against real processes.

use super::{ExitStatus, Pidfd};
use crate::kernel::host::{Tier, abilities};
use crate::kernel::identity::{Lookup, find, identify};
use std::process::{Child, Command, Stdio};

struct Cat(Child);

impl Cat {
    fn start() -> Self {
        let mut command = Command::new("cat");
        let quiet = command.stdin(Stdio::piped()).stdout(Stdio::null());
        Self(quiet.spawn().expect("cat starts"))
    }
}

impl Drop for Cat {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn a_process_is_found_until_it_ends_and_its_status_after() {
    let mut cat = Cat::start();
    let (pidfd, identity) =
        identify(cat.0.id()).expect("the process can be identified").expect("the process is alive");
    assert!(matches!(find(&identity), Lookup::Alive(_)));
    assert!(!pidfd.has_ended().expect("the poll works"));
    let living = match abilities().tier() {
        Tier::A => ExitStatus::Alive,
        Tier::B | Tier::C => ExitStatus::Unavailable,
    };
    assert_eq!(pidfd.exit_status().expect("the query works"), living);
    assert!(pidfd.signal(9).expect("the signal may be sent"));
    rustix::process::waitid(
        rustix::process::WaitId::PidFd(rustix::fd::AsFd::as_fd(&pidfd)),
        rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT,
    )
    .expect("the process is our child");
    assert!(
        matches!(find(&identity), Lookup::Ended(_)),
        "a process that has not been reaped can be found"
    );
    assert!(pidfd.is_held().expect("the query works"));
    let known = match abilities().tier() {
        Tier::A => ExitStatus::Known(9),
        Tier::B | Tier::C => ExitStatus::Unavailable,
    };
    assert_eq!(
        pidfd.exit_status().expect("the query works"),
        known,
        "a zombie has the same status as after it is reaped"
    );
    cat.0.wait().expect("the process is our child");
    assert!(matches!(find(&identity), Lookup::Gone));
    assert!(!pidfd.is_held().expect("the query works"));
    assert!(!pidfd.signal(0).expect("the query works"));
    assert_eq!(pidfd.exit_status().expect("the query works"), known);
}

#[test]
fn what_is_of_another_boot_is_gone_and_another_start_is_another_process() {
    let cat = Cat::start();
    let (_, identity) =
        identify(cat.0.id()).expect("the process can be identified").expect("the process is alive");
    let mut rebooted = identity;
    rebooted.boot ^= 1;
    assert!(matches!(find(&rebooted), Lookup::Gone));
    let mut reused = identity;
    (reused.inode, reused.ticks) = (0, identity.ticks ^ 1);
    assert!(matches!(find(&reused), Lookup::Gone));
    let mut elsewhere = reused;
    (elsewhere.namespace, elsewhere.ticks) = (identity.namespace ^ 1, identity.ticks);
    assert!(matches!(find(&elsewhere), Lookup::Unknown(_)));
    let by_ticks = crate::actors::process::Identity { inode: 0, ..identity };
    assert!(matches!(find(&by_ticks), Lookup::Alive(_)));
}

#[test]
fn numbers_that_no_process_has_are_none() {
    assert!(Pidfd::open(0).expect("the query works").is_none());
    assert!(Pidfd::open(u32::MAX).expect("the query works").is_none());
    assert!(Pidfd::open(0x3fff_ffff).expect("the query works").is_none());
    if abilities().handles.is_some() {
        assert!(Pidfd::open_inode(u64::MAX - 5).expect("the query works").is_none());
    }
}
