//! Tests that each kind of disagreement is found in a [`Picture`] that contains it, and that none is found in a consistent one.

use super::compare::{Picture, Recorded};
use super::{AttemptId, Disagreement};
use crate::actors::binding::Until;
use crate::actors::dispatch::{
    Attempt, Cleaning, EXECUTE, GroupView, Pause, RunStatus, ServerView, Stage, Trace, UPDATE,
    UnderWay, WorkInProgress,
};
use crate::actors::lock::{EntryView, Name};
use crate::clock::Timestamp;
use crate::ids::{ActorId, ProcessId, Slot, Token};

const PROCESS: ProcessId = ProcessId(7);
const CLEANUP: ProcessId = ProcessId(8);
const BOUND: ProcessId = ProcessId(9);

const WHICH: AttemptId = AttemptId { task: 4, attempt: Token(40), process: PROCESS };

const CLEANS: AttemptId = AttemptId { task: 5, attempt: Token(50), process: CLEANUP };

fn name(text: &str) -> Name {
    Name::try_from(text).expect("the name is short")
}

fn lock(key: &str, index: &str, owner: &str, place: u32) -> EntryView {
    EntryView {
        key: name(key),
        index: name(index),
        owner: name(owner),
        place,
        ttl: 0,
        ttw: 0,
        priority: 0,
        since: Timestamp(0),
        deadline: None,
        token: None,
        bound: None,
        fencing: false,
        away: false,
    }
}

/// An attempt with a running command.
fn running() -> Attempt {
    Attempt {
        token: Token(40),
        server: Slot(0),
        process: PROCESS,
        stage: Stage::Launched,
        claimed: Timestamp(1),
        launched: Some(Timestamp(2)),
        revision: 0,
        updates: true,
        beat: None,
        said: None,
        stopping: None,
        last: false,
        reach: None,
        trace: Trace::default(),
    }
}

/// A picture in which everything agrees: a running task, a waiting one with a cleanup, and a right bound to a process.
fn whole() -> Picture {
    let runs = UnderWay {
        id: 4,
        work: name("w"),
        group: name("g"),
        status: RunStatus::Processing,
        counts: true,
        attempt: Some(running()),
        server: Some(name("local")),
        ..UnderWay::default()
    };
    let waits = UnderWay {
        id: 5,
        work: name("v"),
        group: name("g"),
        status: RunStatus::Waiting,
        counts: true,
        cleaning: Some(Cleaning { process: CLEANUP, token: Token(50), taken: true }),
        ..UnderWay::default()
    };
    let server = ServerView {
        name: name("local"),
        threads: 4,
        used: 1,
        enabled: true,
        leaves: false,
        remote: None,
        outage: None,
    };
    let group = GroupView { name: name("g"), max: 3, used: 2, pause: Pause::Off, ready: 0 };
    let live = [PROCESS, CLEANUP, BOUND].map(|it| (it, Recorded::default()));
    Picture {
        work: WorkInProgress {
            tasks: vec![runs, waits],
            servers: vec![server],
            groups: vec![group],
            whole: true,
        },
        locks: vec![lock(EXECUTE, "4", "attempt-40", 1), lock(UPDATE, "4", "attempt-40", 1)],
        records: live.into(),
        launched: vec![PROCESS, CLEANUP],
        bindings: [(ActorId::LOCK, BOUND, Until::Tree)].into(),
        ..Picture::default()
    }
}

/// Returns the disagreements in the picture from `whole` after `spoil` has changed it.
fn after(spoil: impl FnOnce(&mut Picture)) -> Vec<Disagreement> {
    let mut picture = whole();
    spoil(&mut picture);
    picture.disagreements().into_iter().collect()
}

fn attempt(picture: &mut Picture) -> &mut Attempt {
    picture.work.tasks[0].attempt.as_mut().expect("the task has an attempt")
}

#[test]
fn where_all_agrees_there_is_nothing() {
    assert_eq!(after(|_| {}), []);
    // A blocked task is second in line for its execute lock, because an owner that is not a task holds the lock.
    let blocked = |picture: &mut Picture| {
        picture.work.tasks[1].blocked = Some(Token(51));
        picture.locks.push(lock(EXECUTE, "5", "attempt-51", 2));
    };
    assert_eq!(after(blocked), []);
    // The process has ended, but the attempt still waits for its process tree.
    let left = |picture: &mut Picture| {
        picture.records.entry(PROCESS).or_default().has_ended = true;
        picture.records.entry(BOUND).or_default().has_ended = true;
    };
    assert_eq!(after(left), []);
}

#[test]
fn a_task_and_its_attempt_that_do_not_go_together_are_found() {
    let lost = after(|it| {
        it.work.tasks[0].attempt = None;
        it.work.tasks[0].server = None;
        it.locks.clear();
        it.launched = vec![CLEANUP];
        it.work.servers[0].used = 0;
    });
    let (task, status) = (4, "processing");
    assert_eq!(lost, [Disagreement::Status { task, status }]);
    let waits = after(|it| it.work.tasks[0].status = RunStatus::Waiting);
    let status = "waiting";
    assert_eq!(waits, [Disagreement::Status { task, status }]);
    let attempt = Token(40);
    let late = after(|it| it.work.tasks[0].late = true);
    assert_eq!(late, [Disagreement::Late { task, attempt }]);
    let (task, attempt) = (5, Token(0));
    let sleeps = after(|it| it.work.tasks[1].late = true);
    assert_eq!(sleeps, [Disagreement::Late { task, attempt }]);
}

#[test]
fn a_step_of_an_attempt_that_is_not_followed_by_the_next_is_found() {
    let claimed = after(|it| {
        attempt(it).stage = Stage::Claimed;
        attempt(it).updates = false;
    });
    assert_eq!(claimed, [Disagreement::Unlocked(WHICH)]);
    let locked = after(|it| attempt(it).stage = Stage::Locked);
    assert_eq!(locked, [Disagreement::Unlaunched(WHICH)]);
    let untaken = after(|it| {
        let cleaning = it.work.tasks[1].cleaning.as_mut();
        cleaning.expect("the task has a cleanup").taken = false;
    });
    assert_eq!(untaken, [Disagreement::Unlaunched(CLEANS)]);
    for gone in [true, false] {
        let untold = after(|it| {
            for process in [PROCESS, CLEANUP] {
                if gone {
                    it.records.remove(&process);
                } else {
                    it.records.entry(process).or_default().is_over = true;
                }
            }
        });
        let expected = [Disagreement::Unended(WHICH), Disagreement::Unended(CLEANS)];
        assert_eq!(untold, expected);
    }
}

/// The next step is refused for lack of space, and is requested again when there is space.
#[test]
fn a_step_that_is_held_up_by_a_full_disk_is_no_disagreement() {
    for stage in [Stage::Claimed, Stage::Locked] {
        let held = after(|it| {
            it.is_low = true;
            attempt(it).stage = stage;
            attempt(it).updates = false;
            let cleaning = it.work.tasks[1].cleaning.as_mut();
            cleaning.expect("the task has a cleanup").taken = false;
            it.locks.retain(|_| stage == Stage::Locked);
        });
        assert_eq!(held, []);
    }
}

#[test]
fn locks_that_are_missing_or_left_are_found() {
    let which = WHICH;
    let key = EXECUTE;
    let missing = after(|it| drop(it.locks.remove(0)));
    assert_eq!(missing, [Disagreement::LockMissing { which, key }]);
    let key = UPDATE;
    let in_line = after(|it| it.locks[1].place = 2);
    assert_eq!(in_line, [Disagreement::LockMissing { which, key }]);
    for (index, owner) in
        [("4", "attempt-39"), ("77", "attempt-1"), ("5", "attempt-50"), ("x", "y")]
    {
        let left = after(|it| it.locks.push(lock(EXECUTE, index, owner, 2)));
        let (key, index, owner) = (name(EXECUTE), name(index), name(owner));
        assert_eq!(left, [Disagreement::LockLeft { key, index, owner }]);
    }
    // A task that only waits for the execute lock must not have the update lock.
    let left = after(|it| {
        it.work.tasks[1].blocked = Some(Token(51));
        it.locks.push(lock(UPDATE, "5", "attempt-51", 1));
    });
    let (key, index, owner) = (name(UPDATE), name("5"), name("attempt-51"));
    assert_eq!(left, [Disagreement::LockLeft { key, index, owner }]);
}

#[test]
fn counts_that_are_not_those_of_what_is_counted_are_found() {
    let server = name("local");
    let (used, attempts) = (2, 1);
    let more = after(|it| it.work.servers[0].used = 2);
    assert_eq!(more, [Disagreement::Threads { server: server.clone(), used, attempts }]);
    let (used, attempts) = (0, 1);
    let none = after(|it| it.work.servers[0].used = 0);
    assert_eq!(none, [Disagreement::Threads { server, used, attempts }]);
    let astray = after(|it| {
        it.work.tasks[0].server = None;
        it.work.servers[0].used = 0;
    });
    assert_eq!(astray, [Disagreement::NoServer(WHICH)]);
    let group = name("g");
    let (used, tasks) = (3, 2);
    let more = after(|it| it.work.groups[0].used = 3);
    assert_eq!(more, [Disagreement::Group { group: group.clone(), used, tasks }]);
    let (used, tasks) = (0, 2);
    let forgotten = after(|it| it.work.groups.clear());
    assert_eq!(forgotten, [Disagreement::Group { group, used, tasks }]);
    let work = name("w");
    let tasks = (4, 5);
    let twice = after(|it| it.work.tasks[1].work = name("w"));
    assert_eq!(twice, [Disagreement::WorkTwice { work, tasks }]);
    // If some tasks are not listed, counts cannot be compared.
    let many = after(|it| {
        it.work.whole = false;
        it.work.servers[0].used = 9;
        it.work.groups[0].used = 9;
        it.launched.push(BOUND);
        it.locks.push(lock(EXECUTE, "77", "attempt-1", 1));
    });
    assert_eq!(many, []);
}

#[test]
fn processes_that_records_and_the_machine_see_otherwise_are_found() {
    let process = BOUND;
    let left = after(|it| it.launched.push(BOUND));
    assert_eq!(left, [Disagreement::Unattended { process }]);
    let gone = after(|it| it.gone.push(BOUND));
    assert_eq!(gone, [Disagreement::Gone { process }]);
    let pid = 4711;
    let stranger = after(|it| it.strangers.push((BOUND, pid)));
    assert_eq!(stranger, [Disagreement::Stranger { process, pid }]);
    let actor = ActorId::LOCK;
    let bound = after(|it| it.records.retain(|id, _| *id != BOUND));
    assert_eq!(bound, [Disagreement::Bound { actor, process }]);
    let ended = after(|it| {
        it.bindings = [(actor, BOUND, Until::Process)].into();
        it.records.entry(BOUND).or_default().has_ended = true;
    });
    assert_eq!(ended, [Disagreement::Bound { actor, process }]);
}
