//! Processes that an embedded node launches.

use sexton::actors::process::{End, Launching, Parentage, Phase, Selection, Spec, Tags};
use sexton::bytes::Bytes;
use sexton::config::KeeperProgram;
use sexton::handle::Stopping;
use sexton::ids::ProcessId;
use sexton::{Config, Node, block_on};

fn launching(script: &str, named: Option<ProcessId>) -> Launching {
    let argv = ["sh", "-c", script].map(|word| Bytes::new(word.as_bytes()));
    Launching {
        spec: Spec {
            argv: argv.to_vec(),
            dir: Bytes::new(*b"/"),
            grace_ms: 10_000,
            ..Spec::default()
        },
        parentage: Parentage { named, ..Parentage::default() },
        ..Launching::default()
    }
}

#[test]
fn a_tree_is_launched_listed_by_parent_and_stopped() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let mut config = Config::at(files.path().join("data"));
    config.keeper = KeeperProgram::At(env!("CARGO_BIN_EXE_sexton").into());
    let node = Node::open(config).expect("the directory opens");
    let processes = node.handle().processes();
    let launch = |script, named| {
        let record = block_on(processes.launch(launching(script, named)));
        let id = record.expect("it has a record").id;
        block_on(processes.started(id)).expect("the node answers")
    };
    let parent = launch("sleep 1000 & exec sleep 1000", None);
    assert_eq!(parent.phase, Phase::Running);
    let child = launch("exit 7", Some(parent.id));
    let ended = block_on(processes.ended(child.id)).expect("the process ends");
    assert_eq!(ended.end, Some(End::Code(7)));
    let below = Selection { parent: Some(parent.id), ..Selection::default() };
    let (below, _) = block_on(processes.list(below)).expect("the node answers");
    assert_eq!(below.iter().map(|it| it.id).collect::<Vec<_>>(), [child.id]);
    let pid = parent.identity.expect("it is running").pid;
    let found = block_on(processes.register_pid(pid, Tags::default(), None));
    let (found, known) = found.expect("it exists");
    assert_eq!((found.id, known), (parent.id, true));
    let how = Stopping { tree: true, ..Stopping::default() };
    block_on(processes.stop(parent.id, how)).expect("the node answers");
    let ended = block_on(processes.ended(parent.id)).expect("the process ends");
    let signal = End::Signal { signal: 15, dumped: false };
    assert_eq!(ended.end, Some(signal), "{ended:?}");
    node.stop().expect("the node stops");
}
