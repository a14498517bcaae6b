//! Tests of the port over a simulated kernel.

#[expect(dead_code, reason = "only the simulation uses all of this module")]
#[path = "../../../tests/support/kernel.rs"]
mod kernel;

use crate::actors::process::{Action, End, Failure, Identity, Lost, Message, Reach, Spec};
use crate::ids::{ProcessId, Seq};
use crate::kernel::identity::identify;
use crate::ports::process::output::Outputs;
use crate::ports::process::real::Real;
use crate::ports::process::world::World as _;
use crate::ports::process::{Follower, KeeperProgram, Observed, Place, Tree};
use kernel::{Event, Kernel};

const ID: ProcessId = ProcessId(1);

/// Handles all pending events, and those of the next `ms` milliseconds.
fn settle(follower: &mut Follower<Kernel>, ms: u64) {
    let until = follower.world().now + ms;
    loop {
        while let Some(event) = follower.world().events.pop_front() {
            match event {
                Event::Heard(report) => follower.receive(report),
                Event::Ended(id) => follower.ended(id),
                Event::Emptied(id) => follower.emptied(id),
                Event::KeeperGone => follower.keeper_gone(),
            }
        }
        let next = follower.deadline().filter(|at| *at <= until);
        let Some(next) = next else {
            follower.world().now = until;
            return;
        };
        let now = follower.world().now;
        follower.world().now = now.max(next);
        follower.handle_due();
    }
}

fn reports(follower: &mut Follower<Kernel>) -> Vec<Message> {
    std::mem::take(&mut follower.world().reports)
}

fn launch() -> Action {
    Action::Launch { id: ID, spec: Spec::default() }
}

/// Returns a follower that has been told of all processes, so that it treats any later launch as a new one.
fn begun(kernel: Kernel) -> Follower<Kernel> {
    let mut follower = Follower::new(kernel);
    follower.perform(Seq(1), Action::ForgetOthers);
    follower
}

fn launched(kernel: Kernel) -> (Follower<Kernel>, Identity) {
    let mut follower = begun(kernel);
    follower.perform(Seq(1), launch());
    settle(&mut follower, 0);
    match reports(&mut follower).as_slice() {
        [Message::Started { id: ID, identity, .. }] => (follower, *identity),
        other => panic!("{other:?}"),
    }
}

fn follow(identity: Identity, launched: bool) -> Action {
    Action::Follow {
        id: ID,
        identity,
        launched,
        contained: true,
        run_dir: None,
        user: None,
        expects: None,
    }
}

fn ends(follower: &mut Follower<Kernel>) -> Vec<End> {
    let mut ends = Vec::new();
    for message in reports(follower) {
        if let Message::Ended { end, .. } = message {
            ends.push(end);
        }
    }
    ends
}

fn restarted(mut follower: Follower<Kernel>) -> Follower<Kernel> {
    let mut kernel = std::mem::take(follower.world());
    kernel.lose_coordinator();
    Follower::new(kernel)
}

/// Only the keeper knows the control groups, and which orphans it has inherited.
#[test]
fn no_tree_is_empty_before_a_running_keeper_has_told_what_it_knows() {
    let (mut follower, identity) = launched(Kernel::default());
    follower.world().end(identity.pid, 0);
    settle(&mut follower, 0);
    assert_eq!(ends(&mut follower), [End::Code(0)]);
    let mut follower = restarted(follower);
    follower.perform(Seq(3), Action::Await { id: ID, identity });
    assert_eq!(reports(&mut follower), []);
    settle(&mut follower, 1000);
    let told = reports(&mut follower);
    assert!(told.contains(&Message::Empty { id: ID }), "{told:?}");
}

#[test]
fn no_launched_tree_is_empty_while_no_keeper_can_be_started() {
    let (mut follower, identity) = launched(Kernel::default());
    follower.world().end(identity.pid, 0);
    follower.world().kill_keeper();
    follower.world().no_keeper = true;
    let mut follower = restarted(follower);
    follower.perform(Seq(2), follow(identity, true));
    settle(&mut follower, 60_000);
    let told = reports(&mut follower);
    let is_doubted =
        |it: &Message| matches!(it, Message::Ended { left, .. } if !left.empty && left.alive == 0);
    assert!(told.iter().any(is_doubted), "{told:?}");
    follower.perform(Seq(3), Action::Await { id: ID, identity });
    settle(&mut follower, 60_000);
    let stuck = Message::Stuck { id: ID, unkillable: 0, unknown: 1 };
    assert_eq!(reports(&mut follower), [stuck]);
    follower.world().no_keeper = false;
    settle(&mut follower, 20_000);
    assert_eq!(reports(&mut follower), [Message::Empty { id: ID }]);
}

#[test]
fn an_exit_is_the_one_that_the_keeper_saw() {
    let (mut follower, identity) = launched(Kernel::default());
    follower.world().end(identity.pid, 3 << 8);
    settle(&mut follower, 0);
    assert_eq!(ends(&mut follower), [End::Code(3)]);
    follower.perform(Seq(2), Action::Forget { id: ID });
    assert_eq!(follower.world().keeper_holds(), 0);
}

#[test]
fn an_attempt_is_launched_once_and_its_answer_comes_again() {
    let (mut follower, identity) = launched(Kernel::default());
    follower.perform(Seq(1), launch());
    settle(&mut follower, 0);
    assert_eq!(reports(&mut follower).len(), 1);
    follower.world().end(identity.pid, 9);
    let mut follower = restarted(follower);
    follower.perform(Seq(1), launch());
    settle(&mut follower, 0);
    let signal = End::Signal { signal: 9, dumped: false };
    assert_eq!(ends(&mut follower), [signal]);
    assert_eq!(follower.world().launched[&ID].len(), 1);
    // The PID file is not written again: the process has ended, and its PID may be reused.
    assert_eq!(follower.world().noted, [identity.pid]);
}

#[test]
fn what_ended_while_nobody_listened_is_told_with_its_true_status() {
    let (follower, identity) = launched(Kernel::default());
    let mut follower = restarted(follower);
    follower.world().end(identity.pid, 7 << 8);
    follower.perform(Seq(3), follow(identity, true));
    follower.perform(Seq(3), Action::ForgetOthers);
    settle(&mut follower, 0);
    assert_eq!(ends(&mut follower), [End::Code(7)]);
    // The end of the process is durable, but the request to forget it was lost.
    let mut follower = restarted(follower);
    follower.perform(Seq(4), Action::ForgetOthers);
    settle(&mut follower, 0);
    assert_eq!(follower.world().keeper_holds(), 0);
}

#[test]
fn without_its_keeper_a_process_is_followed_and_its_end_told_as_far_as_it_is_known() {
    let lost = End::Lost(Lost::KeeperGone);
    // Whether the kernel withholds the status, how many times the descriptor becomes ready too early, and the expected end.
    for (secretive, early, expected) in
        [(false, 0, End::Code(5)), (false, 3, End::Code(5)), (true, 0, lost)]
    {
        let (mut follower, identity) = launched(Kernel::default());
        follower.world().secretive = secretive;
        follower.world().early_wakes = early;
        follower.world().kill_keeper();
        settle(&mut follower, 5000);
        assert_eq!(reports(&mut follower), []);
        follower.world().end(identity.pid, 5 << 8);
        settle(&mut follower, 5000);
        assert_eq!(ends(&mut follower), [expected]);
    }
}

/// The process ends before the next keeper has reported all its attempts, and that keeper does not know the process.
#[test]
fn what_ended_with_its_keeper_is_told_as_soon_as_the_next_one_has_told_all() {
    let (mut follower, identity) = launched(Kernel::default());
    follower.world().kill_keeper();
    follower.world().end(identity.pid, 5 << 8);
    settle(&mut follower, 100);
    assert_eq!(ends(&mut follower), [End::Code(5)]);
}

#[test]
fn a_keeper_that_dies_before_it_answers_is_followed_by_one_that_is_asked_again() {
    let mut follower = begun(Kernel::default());
    follower.join().expect("a keeper can be joined");
    settle(&mut follower, 0);
    follower.perform(Seq(1), launch());
    follower.world().kill_keeper();
    settle(&mut follower, 0);
    assert!(matches!(reports(&mut follower).as_slice(), [Message::Started { .. }]));
    assert_eq!(follower.world().launched[&ID].len(), 1, "the process was launched once");
}

/// Returns the ids of the processes that have started.
fn started(follower: &mut Follower<Kernel>) -> Vec<u128> {
    settle(follower, 0);
    let told = reports(follower);
    let ids = told.iter().filter_map(|it| {
        let Message::Started { id, .. } = it else {
            return None;
        };
        Some(id.0)
    });
    ids.collect()
}

#[test]
fn a_launch_whose_files_do_not_answer_holds_up_no_other() {
    let mut follower = begun(Kernel::default());
    follower.world().unfetched.insert(ID);
    follower.perform(Seq(1), launch());
    assert_eq!(started(&mut follower), []);
    let other = Action::Launch { id: ProcessId(2), spec: Spec::default() };
    follower.perform(Seq(2), other);
    assert_eq!(started(&mut follower), [2]);
    // The keeper ends, and the files answer before the next one has.
    follower.world().kill_keeper();
    follower.keeper_gone();
    follower.world().unfetched.clear();
    follower.fetched(ID);
    assert_eq!(follower.world().launched.get(&ID), None);
    assert_eq!(started(&mut follower), [ID.0]);
    // One that is asked for again is launched once.
    let again = Action::Launch { id: ProcessId(3), spec: Spec::default() };
    follower.world().unfetched.insert(ProcessId(3));
    follower.perform(Seq(3), again.clone());
    follower.perform(Seq(3), again);
    assert_eq!(started(&mut follower), []);
    follower.world().unfetched.clear();
    follower.fetched(ProcessId(3));
    follower.fetched(ProcessId(3));
    assert_eq!(started(&mut follower), [3]);
    assert_eq!(follower.world().launched[&ProcessId(3)].len(), 1);
}

#[test]
fn after_another_boot_all_is_lost_and_no_stranger_is_touched() {
    let (mut follower, identity) = launched(Kernel::default());
    follower.world().reboot();
    let mut follower = restarted(follower);
    // Create processes until an unrelated one has the PID.
    while follower.world().identity(identity.pid).is_none() {
        follower.world().spawn(None);
    }
    follower.perform(Seq(5), follow(identity, true));
    for reach in [Reach::Leader, Reach::Group, Reach::Tree] {
        let signal = Action::Signal { id: ID, identity, signal: 15, reach, stops: true };
        follower.perform(Seq(6), signal);
    }
    for tree in [false, true] {
        let (id, seq) = (ID, Seq(7));
        follower.perform(seq, Action::Kill { id, identity, tree });
    }
    follower.perform(Seq(8), Action::Await { id: ID, identity });
    settle(&mut follower, 5000);
    let told = reports(&mut follower);
    let lost = |it: &Message| matches!(it, Message::Ended { end, .. } if *end == End::Lost(Lost::Rebooted));
    assert_eq!(told.iter().filter(|it| lost(it)).count(), 1, "{told:?}");
    assert!(told.contains(&Message::Empty { id: ID }), "{told:?}");
    assert_eq!(follower.world().signalled, []);
}

#[test]
fn a_process_of_another_machine_is_left_as_it_is() {
    let (mut follower, mut identity) = launched(Kernel::default());
    identity.machine += 1;
    let mut follower = {
        follower.world().lose_coordinator();
        restarted(follower)
    };
    follower.perform(Seq(2), follow(identity, true));
    let (id, tree) = (ID, true);
    follower.perform(Seq(3), Action::Kill { id, identity, tree });
    follower.perform(Seq(3), Action::ForgetOthers);
    settle(&mut follower, 60_000);
    assert_eq!(reports(&mut follower), []);
    assert_eq!(follower.world().signalled, []);
}

#[test]
fn what_may_have_been_launched_is_not_said_to_have_failed() {
    // After the launch, the keeper is killed. The coordinator restarts before it has received the report, and cannot start another keeper.
    let mut follower = begun(Kernel::default());
    follower.join().expect("a keeper can be joined");
    settle(&mut follower, 0);
    follower.perform(Seq(1), launch());
    follower.world().kill_keeper();
    follower.world().no_keeper = true;
    let mut follower = restarted(follower);
    follower.perform(Seq(1), launch());
    follower.perform(Seq(2), Action::ForgetOthers);
    settle(&mut follower, 60_000);
    assert_eq!(reports(&mut follower), []);
    follower.world().no_keeper = false;
    settle(&mut follower, 20_000);
    let told = reports(&mut follower);
    assert!(matches!(told.as_slice(), [Message::Started { .. }]), "{told:?}");
}

#[test]
fn what_the_log_of_a_keeper_has_is_not_said_to_be_lost() {
    for (without_keeper_ms, expected) in
        [(5_000, End::Code(7)), (60_000, End::Lost(Lost::KeeperGone))]
    {
        let (mut follower, identity) = launched(Kernel::default());
        follower.world().end(identity.pid, 7 << 8);
        follower.world().kill_keeper();
        follower.world().no_keeper = true;
        let mut follower = restarted(follower);
        follower.perform(Seq(2), follow(identity, true));
        follower.perform(Seq(3), Action::ForgetOthers);
        settle(&mut follower, without_keeper_ms);
        follower.world().no_keeper = false;
        settle(&mut follower, 20_000);
        assert_eq!(ends(&mut follower), [expected]);
    }
}

#[test]
fn a_reused_pid_is_a_stranger() {
    let (mut follower, identity) = launched(Kernel::default());
    follower.world().end(identity.pid, 0);
    let mut follower = restarted(follower);
    while follower.world().identity(identity.pid).is_none() {
        follower.world().spawn(None);
    }
    follower.perform(Seq(7), follow(identity, false));
    let kill = Action::Kill { id: ID, identity, tree: false };
    follower.perform(Seq(8), kill);
    settle(&mut follower, 5000);
    let told = reports(&mut follower);
    assert!(
        told.iter().any(|it| matches!(it, Message::Ended { end: End::Lost(Lost::NotOurs), .. })),
        "{told:?}"
    );
    assert_eq!(follower.world().signalled, []);
}

#[test]
fn without_descriptors_nobody_is_thought_gone() {
    let mut kernel = Kernel::default();
    let pid = kernel.spawn(None).expect("there is room for another process");
    let identity = kernel.identity(pid).expect("the process is alive");
    kernel.exhausted = true;
    let mut follower = Follower::new(kernel);
    follower.perform(Seq(1), follow(identity, false));
    settle(&mut follower, 60_000);
    assert_eq!(reports(&mut follower), []);
    assert_eq!(follower.doubted(), 1);
    follower.world().exhausted = false;
    follower.world().end(pid, 0);
    settle(&mut follower, 10_000);
    assert_eq!(ends(&mut follower), [End::Lost(Lost::NotOurs)]);
    assert_eq!(follower.doubted(), 0);
}

#[test]
fn a_tree_is_empty_when_its_last_member_is_gone() {
    let (mut follower, identity) = launched(Kernel::default());
    let child = follower.world().spawn(Some(ID)).expect("there is room for another process");
    let process = follower.world().processes.get_mut(&child).expect("the process is alive");
    process.unkillable = true;
    let kill = Action::Kill { id: ID, identity, tree: true };
    follower.perform(Seq(9), kill);
    settle(&mut follower, 1900);
    let told = reports(&mut follower);
    assert!(matches!(told.as_slice(), [Message::Ended { .. }]), "{told:?}");
    settle(&mut follower, 3000);
    let stuck = Message::Stuck { id: ID, unkillable: 1, unknown: 0 };
    assert_eq!(reports(&mut follower), [stuck]);
    // The kernel reports that the tree may be empty, so the follower does not wait for the next check.
    follower.world().end(child, 9);
    settle(&mut follower, 0);
    assert_eq!(reports(&mut follower), [Message::Empty { id: ID }]);
}

#[test]
fn one_that_cannot_be_attributed_makes_a_tree_unknown() {
    let mut kernel = Kernel::default();
    kernel.contains = false;
    let (mut follower, identity) = launched(kernel);
    let child = follower.world().spawn(Some(ID)).expect("there is room for another process");
    let process = follower.world().processes.get_mut(&child).expect("the process is alive");
    process.hidden = true;
    // Its parent has ended, so it is a child of the keeper.
    process.parent = 1;
    follower.perform(Seq(9), Action::Kill { id: ID, identity, tree: true });
    settle(&mut follower, 10_000);
    let told = reports(&mut follower);
    assert!(told.contains(&Message::Stuck { id: ID, unkillable: 0, unknown: 1 }), "{told:?}");
    assert!(!told.contains(&Message::Empty { id: ID }), "{told:?}");
}

#[test]
fn what_cannot_be_started_is_told_with_its_errno() {
    for (refuses, no_keeper) in [(Some(13), false), (None, true)] {
        let mut kernel = Kernel::default();
        (kernel.refuses, kernel.no_keeper) = (refuses, no_keeper);
        let mut follower = begun(kernel);
        follower.perform(Seq(1), launch());
        settle(&mut follower, 0);
        let errno = refuses.unwrap_or(2);
        let told = reports(&mut follower);
        let right = |message: &Message| matches!(message, Message::Failed { failure: Failure { errno: its, .. }, .. } if *its == errno);
        assert!(matches!(told.as_slice(), [message] if right(message)), "{told:?}");
    }
}

/// Returns the tree of the launched process.
fn tree_of(identity: Identity) -> Tree {
    Tree { id: ID, leader: identity, contained: true, launched: true, kept: false }
}

#[test]
fn an_end_that_nobody_heard_of_is_found_when_somebody_asks() {
    let (mut follower, identity) = launched(Kernel::default());
    let tree = tree_of(identity);
    assert!(!follower.reconcile(&tree, None), "the process is alive");
    settle(&mut follower, 60_000);
    assert_eq!(ends(&mut follower), []);
    // The descriptor and the keeper have reported the end, but both events were lost.
    follower.world().end(identity.pid, 3 << 8);
    follower.world().events.clear();
    settle(&mut follower, 60_000);
    assert_eq!(ends(&mut follower), []);
    assert!(follower.reconcile(&tree, None), "the process has ended");
    settle(&mut follower, 10_000);
    assert_eq!(ends(&mut follower), [End::Code(3)]);
    // A repeated request is answered with the same report.
    assert!(follower.reconcile(&tree, None));
    assert_eq!(ends(&mut follower), [End::Code(3)]);
}

#[test]
fn one_that_is_not_known_here_is_looked_for_by_its_identity() {
    let (mut follower, identity) = launched(Kernel::default());
    let tree = tree_of(identity);
    follower.world().exhausted = true;
    assert!(!follower.reconcile(&tree, None), "the lookup is inconclusive");
    follower.world().exhausted = false;
    let mut follower = restarted(follower);
    assert!(!follower.reconcile(&tree, None), "the process is alive");
    follower.world().end(identity.pid, 9);
    settle(&mut follower, 10_000);
    assert_eq!(ends(&mut follower).len(), 1, "the process is followed from then on");

    let (mut follower, identity) = launched(Kernel::default());
    follower.world().reboot();
    let mut follower = restarted(follower);
    assert!(follower.reconcile(&tree_of(identity), None));
    assert_eq!(ends(&mut follower), [End::Lost(Lost::Rebooted)]);
}

#[test]
fn a_process_of_another_machine_is_lost_and_its_tree_is_empty() {
    let (follower, mut identity) = launched(Kernel::default());
    // The id of the machine has changed: the process may be alive, although it cannot be seen from here.
    identity.machine ^= 1;
    let mut follower = restarted(follower);
    follower.perform(Seq(1), follow(identity, true));
    assert!(!follower.reconcile(&tree_of(identity), None));
    settle(&mut follower, 60_000);
    assert_eq!(reports(&mut follower), []);
    // The data directory was moved to another machine.
    let mut follower = restarted(follower);
    identity.boot ^= 8;
    follower.perform(Seq(2), follow(identity, true));
    assert_eq!(ends(&mut follower), [End::Lost(Lost::AnotherMachine)]);
    follower.perform(Seq(3), Action::Await { id: ID, identity });
    assert_eq!(reports(&mut follower), [Message::Empty { id: ID }]);
}

/// After a reboot there may be many records, and each search looks at all processes of the machine.
#[test]
fn what_is_left_of_another_boot_is_not_searched_for() {
    let data = tempfile::tempdir().expect("a directory can be created");
    let place = Place {
        data: Some(data.path().to_owned()),
        keeper: KeeperProgram::None,
        is_init: false,
        observed: Observed::default(),
        unread: crate::ports::process::Unread::default(),
        reporting: None,
        faults: None,
    };
    let outputs = Outputs::new(Box::new(|_| {}), crate::spine::halt::Sentry::default());
    let mut real = Real::new(place, |_: Message| {}, outputs).expect("it can be made");
    let (_, leader) = identify(std::process::id())
        .expect("the process can be identified")
        .expect("the process is alive");
    let mut remains = |boot: u128, id: u128| {
        let tree = Tree {
            id: ProcessId(id),
            leader: Identity { boot: leader.boot ^ boot, ..leader },
            contained: true,
            launched: true,
            kept: false,
        };
        let left = real.remains(&tree, None);
        (left.alive, left.empty, real.passes())
    };
    for id in 0..400 {
        assert_eq!(remains(1, id), (0, true, 0));
    }
    let (alive, _, passes) = remains(0, 400);
    assert!(alive > 0 && passes == 1, "this process is alive: {alive}");
}
