//! The typed tasks of an embedded node.

use sexton::actors::dispatch::{Act, ExitStatus, NewTask, RunStatus};
use sexton::actors::process::{Launching, Spec};
use sexton::bytes::Bytes;
use sexton::clock::{ManualClock, Timestamp};
use sexton::config::KeeperProgram;
use sexton::{Config, Node, block_on};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A shell script as a task.
fn script(script: &str) -> NewTask {
    let argv = ["sh", "-c", script].map(|word| Bytes::new(word.as_bytes()));
    let spec = Spec { argv: argv.to_vec(), dir: Bytes::new(b"/".as_slice()), ..Spec::default() };
    NewTask { command: Arc::new(Launching { spec, ..Launching::default() }), ..NewTask::default() }
}

/// The time stands still, so that it ends in the millisecond of the request.
#[test]
fn a_task_that_ended_in_this_millisecond_is_removed_as_well() {
    let clock = ManualClock::at(Timestamp(1_000_000_000_000));
    let node = Node::open(Config::manual(&clock)).expect("the directory opens");
    let tasks = node.handle().tasks();
    let ended = || {
        let held = NewTask { paused: true, ..script("exit 0") };
        let id = block_on(tasks.add(held)).expect("the task is added").task.id;
        block_on(tasks.act(id, Act::Terminate { now: true })).expect("it exists");
    };
    ended();
    let now = node.handle().date();
    assert_eq!(block_on(tasks.prune(Some(now), 0)), Ok(0), "it did not end before now");
    assert_eq!(block_on(tasks.prune(None, 0)), Ok(1));
    for _ in 0..3 {
        ended();
    }
    assert_eq!(block_on(tasks.prune(None, 2)), Ok(1));
    node.stop().expect("the node stops");
}

#[test]
fn a_program_adds_a_task_and_awaits_its_end() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let mut config = Config::at(files.path().join("data"));
    config.keeper = KeeperProgram::At(env!("CARGO_BIN_EXE_sexton").into());
    let node = Node::open(config).expect("the directory opens");
    let tasks = node.handle().tasks();

    for (command, exit, words) in [
        ("exit 0", ExitStatus::Completed, ""),
        ("exit 3", ExitStatus::UserError, "its command ended with status 3"),
    ] {
        let added = block_on(tasks.add(script(command))).expect("the job is added");
        let over = block_on(tasks.over(added.task.id)).expect("the node answers").task;
        assert_eq!((over.status, over.exit), (RunStatus::Complete, exit));
        assert_eq!(over.words, words);
    }

    let held = NewTask { paused: true, ..script("exit 0") };
    let id = block_on(tasks.add(held)).expect("the job is added").task.id;
    let mut over = pin!(tasks.over(id));
    let polled = over.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Pending), "it is paused");
    block_on(tasks.act(id, Act::Resume)).expect("it exists");
    let ended = block_on(over).expect("the node answers").task;
    assert_eq!(ended.exit, ExitStatus::Completed);
    assert_eq!(block_on(tasks.totals()).expect("the node answers").complete, 3);
    node.stop().expect("the node stops");
}
