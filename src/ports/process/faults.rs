//! Faults that the coordinator injects on request, to show how a task recovers: a launch that fails, a keeper that is killed, an exit that
//! is not reported, an actor that panics. A fault is injected only if the configuration allows it, only for a task that requests it, and
//! only into the first attempt (launch of its command).
//!
//! Faults of the command itself are injected by `sexton task inject` (`tools/task/inject.rs`).

use crate::actors::process::Spec;
use crate::bytes::Bytes;
use crate::ids::ProcessId;
use crate::keeper::protocol::Launch;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The variable with which a command, or its cleanup, requests a fault.
pub(crate) const VARIABLE: &str = "SEXTON_TASK_INJECT";

/// The variable that holds the number of an attempt.
const ATTEMPT: &str = "SEXTON_TASK_ATTEMPT";

/// The variable that holds the fencing token of an attempt.
const FENCE: &str = "SEXTON_FENCE";

/// A variable that is set for a cleanup but not for a command.
const ENDED: &str = "SEXTON_TASK_ENDED";

/// The maximum number of processes for which a fault is remembered; beyond that the oldest is forgotten.
const ARMED_MAX: usize = 1024;

/// A fault that the coordinator can inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The keeper cannot start the process, because the working directory of the process does not exist.
    BeforeParent,
    /// The keeper is killed just before the launch.
    KeeperKilled,
    /// The process is created but cannot execute its program, because the program's path is a directory.
    WithinParent,
    /// The command's program does not exist.
    BeforeChild,
    /// The cleanup's program does not exist.
    BeforeCleanup,
    /// The `DispatchActor` panics while it decides on the end of the attempt.
    BeforeThreadCleanup,
    /// The `DispatchActor` panics while it commits the end of the attempt.
    WithinThreadCleanup,
    /// The `LockActor` panics when the execute lock of the task is released, after the task's thread on its server has been freed.
    AfterThreadCleanup,
    /// The keeper is killed after it has reported the exit.
    AfterParent,
    /// The keeper's report of the exit is dropped.
    DropSignal,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 10] = [
        Self::BeforeParent,
        Self::KeeperKilled,
        Self::WithinParent,
        Self::BeforeChild,
        Self::BeforeCleanup,
        Self::BeforeThreadCleanup,
        Self::WithinThreadCleanup,
        Self::AfterThreadCleanup,
        Self::AfterParent,
        Self::DropSignal,
    ];

    /// Returns the fault's name: that of the corresponding injection point of Wip, the task runner that tasks are modelled on, with `:kill`
    /// appended for the death of the keeper.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BeforeParent => "before-parent",
            Self::KeeperKilled => "before-parent:kill",
            Self::WithinParent => "within-parent",
            Self::BeforeChild => "before-child",
            Self::BeforeCleanup => "before-cleanup",
            Self::BeforeThreadCleanup => "before-thread-cleanup",
            Self::WithinThreadCleanup => "within-thread-cleanup",
            Self::AfterThreadCleanup => "after-thread-cleanup",
            Self::AfterParent => "after-parent",
            Self::DropSignal => "drop-signal",
        }
    }

    /// Returns the fault with this name, if there is one.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.name() == name)
    }

    /// Returns whether the fault affects the cleanup rather than the command.
    const fn is_of_cleanup(self) -> bool {
        matches!(self, Self::BeforeCleanup)
    }
}

/// Returns the name and the value of the environment variable that requests a fault, to be set for a task's command and cleanup.
pub fn variable_for(fault: Fault) -> (String, Bytes) {
    (VARIABLE.to_owned(), Bytes::new(fault.name().as_bytes()))
}

/// The faults that launched processes requested, whether pending or already injected. Clones share the same state.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<BTreeMap<ProcessId, Armed>>>);

/// A fault that is pending or has been injected.
#[derive(Clone, Debug)]
struct Armed {
    fault: Fault,
    /// The owner name under which the attempt holds its locks.
    owner: Vec<u8>,
    /// Whether the fault has been injected, so that it is not injected again.
    is_injected: bool,
}

impl Faults {
    fn armed(&self) -> MutexGuard<'_, BTreeMap<ProcessId, Armed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prepares the fault that a process requests, if any, before its launch: remembers the fault, and modifies the launch if the fault
    /// requires it. Returns whether to kill the keeper now.
    pub(super) fn launched(&self, id: ProcessId, spec: &Spec, launch: &mut Launch) -> bool {
        let Some(armed) = wanted(spec) else {
            return false;
        };
        let mut all = self.armed();
        let is_first = !all.contains_key(&id);
        let fault = armed.fault;
        if is_first {
            while all.len() >= ARMED_MAX {
                all.pop_first();
            }
            all.insert(id, armed);
        }
        let program = |launch: &mut Launch, path: &[u8]| {
            if let Some(program) = launch.argv.first_mut() {
                *program = Bytes::new(path);
            }
        };
        match fault {
            Fault::BeforeParent => launch.dir = Bytes::new(*b"/injected: no such directory"),
            Fault::WithinParent => program(launch, b"/"),
            Fault::BeforeChild | Fault::BeforeCleanup => {
                program(launch, b"/injected: no such program");
            }
            Fault::KeeperKilled => return is_first,
            Fault::BeforeThreadCleanup
            | Fault::WithinThreadCleanup
            | Fault::AfterThreadCleanup
            | Fault::AfterParent
            | Fault::DropSignal => {}
        }
        false
    }

    /// Returns whether to inject this fault into this process now. If so, marks it as injected, since each fault is injected only once.
    pub fn should_inject(&self, id: ProcessId, fault: Fault) -> bool {
        let mut all = self.armed();
        let armed = all.get_mut(&id).filter(|it| it.fault == fault && !it.is_injected);
        armed.map(|it| it.is_injected = true).is_some()
    }

    /// Returns whether to inject this fault into the attempt with this lock owner now. If so, marks it as injected, since each fault is
    /// injected only once.
    pub fn should_inject_for_owner(&self, owner: &[u8], fault: Fault) -> bool {
        let mut all = self.armed();
        let mut those = all.values_mut();
        let armed = those.find(|it| it.owner == owner && it.fault == fault && !it.is_injected);
        armed.map(|it| it.is_injected = true).is_some()
    }
}

/// Returns the fault that a process requests, if this is the first attempt and the fault is meant for this process: the command or the
/// cleanup.
fn wanted(spec: &Spec) -> Option<Armed> {
    let variable = |name: &str| {
        let mut all = spec.env.iter().rev();
        let found = all.find(|(own, _)| own == name)?;
        std::str::from_utf8(found.1.as_bytes()).ok()
    };
    let fault = Fault::named(variable(VARIABLE)?)?;
    let is_first = variable(ATTEMPT) == Some("1");
    let is_of_cleanup = variable(ENDED).is_some();
    let owner = format!("attempt-{}", variable(FENCE)?).into_bytes();
    (is_first && fault.is_of_cleanup() == is_of_cleanup).then_some(Armed {
        fault,
        owner,
        is_injected: false,
    })
}

#[cfg(test)]
mod tests {
    use super::{ARMED_MAX, Fault, Faults, variable_for};
    use crate::actors::process::Spec;
    use crate::bytes::Bytes;
    use crate::ids::ProcessId;
    use crate::keeper::protocol::Launch;

    fn spec(fault: Fault, attempt: &str, more: &[(&str, &str)]) -> Spec {
        let own = [("SEXTON_TASK_ATTEMPT", attempt), ("SEXTON_FENCE", "7")];
        let env = own.iter().chain(more);
        let env = env.map(|(name, value)| ((*name).to_owned(), Bytes::new(value.as_bytes())));
        Spec { env: std::iter::once(variable_for(fault)).chain(env).collect(), ..Spec::default() }
    }

    fn launch() -> Launch {
        Launch { argv: vec![Bytes::new(*b"true")], dir: Bytes::new(*b"/"), ..Launch::default() }
    }

    #[test]
    fn a_fault_comes_once_and_to_a_first_attempt() {
        let (first, second) = (ProcessId::new(1, 1), ProcessId::new(1, 2));
        let faults = Faults::default();
        let mut asked = launch();
        assert!(!faults.launched(first, &spec(Fault::BeforeChild, "1", &[]), &mut asked));
        assert_ne!(asked, launch());
        let mut asked = launch();
        assert!(!faults.launched(second, &spec(Fault::BeforeChild, "2", &[]), &mut asked));
        assert_eq!(asked, launch(), "the second attempt is not modified");

        let faults = Faults::default();
        let kills = spec(Fault::KeeperKilled, "1", &[]);
        let killed = [1, 2].map(|_| faults.launched(first, &kills, &mut launch()));
        assert_eq!(
            killed,
            [true, false],
            "a repeated launch request does not kill the keeper again"
        );

        let faults = Faults::default();
        faults.launched(first, &spec(Fault::DropSignal, "1", &[]), &mut launch());
        assert!(!faults.should_inject(first, Fault::AfterParent));
        assert!(faults.should_inject(first, Fault::DropSignal));
        assert!(!faults.should_inject(first, Fault::DropSignal));
        faults.launched(second, &spec(Fault::AfterThreadCleanup, "1", &[]), &mut launch());
        assert!(!faults.should_inject_for_owner(b"attempt-8", Fault::AfterThreadCleanup));
        assert!(faults.should_inject_for_owner(b"attempt-7", Fault::AfterThreadCleanup));
    }

    #[test]
    fn a_cleanup_is_spoiled_and_its_command_is_not() {
        let faults = Faults::default();
        let mut asked = launch();
        faults.launched(ProcessId::new(1, 1), &spec(Fault::BeforeCleanup, "1", &[]), &mut asked);
        assert_eq!(asked, launch());
        let cleanup = spec(Fault::BeforeCleanup, "1", &[("SEXTON_TASK_ENDED", "died")]);
        faults.launched(ProcessId::new(1, 2), &cleanup, &mut asked);
        assert_ne!(asked, launch());
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let faults = Faults::default();
        let asks = spec(Fault::DropSignal, "1", &[]);
        for id in 0..2 * ARMED_MAX as u64 {
            faults.launched(ProcessId::new(1, u128::from(id)), &asks, &mut launch());
        }
        assert_eq!(faults.armed().len(), ARMED_MAX);
    }

    #[test]
    fn each_fault_has_a_name_of_its_own() {
        for fault in Fault::ALL {
            assert_eq!(Fault::named(fault.name()), Some(fault));
        }
        assert_eq!(Fault::named("before-lunch"), None);
    }
}
