//! The typed tasks of an embedded node.

use sexton::actors::dispatch::{Act, ExitStatus, NewTask, RunStatus};
use sexton::actors::process::{Launching, Spec};
use sexton::bytes::Bytes;
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
