//! An audit of a node to which the test sends a message that no actor would send, since the node's own code causes no disagreements.

use sexton::actors::dispatch::Task;
use sexton::actors::process::{LaunchAs, Launching, Message as ToProcesses, Spec};
use sexton::block_on;
use sexton::bytes::Bytes;
use sexton::config::KeeperProgram;
use sexton::ids::{ActorId, ProcessId};
use sexton::spine::delivery::Item;
use sexton::{Config, Node};

fn launching(argv: &[&str]) -> Launching {
    let argv = argv.iter().map(|word| Bytes::new(word.as_bytes()));
    Launching {
        spec: Spec {
            argv: argv.collect(),
            dir: Bytes::new(b"/".as_slice()),
            secrets: vec![Task::SECRET.to_owned()],
            ..Spec::default()
        },
        ..Launching::default()
    }
}

/// A process that is launched for a task's attempt but of which the `DispatchActor` has no record would run forever.
#[test]
fn a_process_of_no_attempt_is_found_and_stopped() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let mut config = Config::at(files.path().join("data"));
    config.keeper = KeeperProgram::At(env!("CARGO_BIN_EXE_sexton").into());
    let node = Node::open(config).expect("the directory opens");
    let handle = node.handle();
    assert_eq!(block_on(handle.audit()).expect("the node answers").found, []);

    let id = ProcessId(0x0192_f5e0_0000_7000_8000_0000_0000_0001);
    let launch = LaunchAs { by: ActorId::DISPATCH, id, launching: launching(&["sleep", "1000"]) };
    let launch = ToProcesses::LaunchAs(Box::new(launch));
    let told = handle.actors().process.call(vec![Item::Message(launch)]);
    block_on(told).expect("the node answers");
    block_on(handle.processes().started(id)).expect("the node answers");

    let audit = block_on(handle.audit()).expect("the node answers");
    let kinds: Vec<_> = audit.found.iter().map(|(it, mended)| (it.kind(), *mended)).collect();
    assert_eq!(kinds, [("unattended", false)], "{audit:?}");
    assert_eq!(audit.left.len(), 1);
    let audit = block_on(handle.audit_and_fix()).expect("the node answers");
    let kinds: Vec<_> = audit.found.iter().map(|(it, mended)| (it.kind(), *mended)).collect();
    assert_eq!(kinds, [("unattended", true)], "{audit:?}");
    block_on(handle.processes().ended(id)).expect("it is stopped");
    assert_eq!(block_on(handle.audit()).expect("the node answers").found, []);
    node.stop().expect("the node stops");
}
