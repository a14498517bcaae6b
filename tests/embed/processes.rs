//! Processes through the Rust API of an embedded node.

use sexton::actors::process::{
    Identity, Launching, Parentage, Phase, RecordView, Refused, Registering, Selection, Spec, Tags,
};
use sexton::bytes::Bytes;
use sexton::handle::{ProcessError, Processes};
use sexton::ids::ProcessId;
use sexton::refusal::Reason;
use sexton::{Config, Node, block_on};

/// Returns the registration of a process on one of two other machines, whose processes this node does not follow.
/// Returns the id of this boot. A process of another machine that is recorded under it is left alone.
fn boot() -> u128 {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux has one");
    u128::from_str_radix(&id.trim().replace('-', ""), 16).expect("hexadecimal digits")
}

fn registering(number: u32, kind: &str, named: Option<ProcessId>) -> Registering {
    Registering {
        identity: Identity {
            machine: 1 + u128::from(number % 2),
            boot: boot(),
            namespace: 1,
            pid: number,
            inode: 0,
            ticks: u64::from(number),
        },
        argv: vec![Bytes::new(format!("program-{number}").into_bytes())],
        tags: Tags {
            kind: kind.to_owned(),
            url: None,
            labels: vec![("shard".to_owned(), (number % 10).to_string())],
        },
        parentage: Parentage { named, ..Parentage::default() },
        ..Registering::default()
    }
}

fn register(processes: &Processes, registering: Registering) -> Result<RecordView, ProcessError> {
    block_on(processes.register(registering)).map(|(record, _)| record)
}

#[test]
fn a_chain_is_as_deep_as_it_may_be_and_no_deeper() {
    const LONGEST: u32 = 1001;
    let node = Node::open(Config::in_memory()).expect("the directory opens");
    let processes = node.handle().processes();
    let mut chain: Vec<ProcessId> = Vec::new();
    for number in 0..LONGEST {
        // All numbers are odd, so that parents and children are on the same machine.
        let asked = registering(2 * number + 1, "worker", chain.last().copied());
        chain.push(register(&processes, asked).expect("the limit is not reached").id);
    }
    let below = registering(4001, "worker", chain.last().copied());
    let refused = register(&processes, below).expect_err("it is too deep");
    assert_eq!(refused, ProcessError::Refused(Refused::TooDeep));
    let (first, last) = (chain[0], chain[chain.len() - 1]);
    let above = block_on(processes.ancestors(last)).expect("it exists");
    let above: Vec<ProcessId> = above.iter().map(|it| it.id).collect();
    let expected: Vec<ProcessId> = chain.iter().rev().skip(1).copied().collect();
    assert_eq!(above, expected);
    let mut below = Vec::new();
    let mut after = None;
    loop {
        let page = block_on(processes.descendants(first, after, 300));
        let (records, next) = page.expect("it exists");
        below.extend(records.iter().map(|it| it.id));
        after = next;
        if after.is_none() {
            break;
        }
    }
    let mut expected = chain.split_off(1);
    expected.sort();
    assert_eq!(below, expected);
}

#[test]
fn ten_thousand_records_are_chosen_by_each_filter() {
    const ALL: u32 = 10_000;
    let node = Node::open(Config::in_memory()).expect("the directory opens");
    let processes = node.handle().processes();
    let kinds = ["cli", "worker", "hook", "binary"];
    let mut first = None;
    for number in 0..ALL {
        let kind = kinds[number as usize % kinds.len()];
        // The numbers of the children are odd like that of the first process, so that all of them are on the same machine.
        let named = first.filter(|_| number % 20 == 0);
        let record = register(&processes, registering(number + 1, kind, named));
        let id = record.expect("the limit is not reached").id;
        first.get_or_insert(id);
        if number % 5 == 0 && number > 0 {
            block_on(processes.finish(id, 0, None)).expect("a live process");
        }
    }
    let first = first.expect("a process was registered");
    let none = Selection::default;
    let count = |selection: Selection| {
        let counted = block_on(processes.count(selection.clone())).expect("it is counted");
        let mut listed = 0;
        let mut selection = Selection { most: 700, ..selection };
        loop {
            let page = block_on(processes.list(selection.clone()));
            let (records, next) = page.expect("the node answers");
            listed += records.len() as u64;
            match next {
                None => break,
                next => selection.after = next,
            }
        }
        assert_eq!(listed, counted);
        counted
    };
    assert_eq!(count(none()), 10_000);
    let kind = Some("hook".to_owned());
    assert_eq!(count(Selection { kind, ..none() }), 2500);
    let exited = vec![Phase::Exited];
    assert_eq!(count(Selection { phases: exited, ..none() }), 1999);
    let parent = Some(first);
    assert_eq!(count(Selection { parent, ..none() }), 499);
    let root = Some(first);
    assert_eq!(count(Selection { root, ..none() }), 500);
    let machine = Some(2);
    assert_eq!(count(Selection { machine, ..none() }), 5000);
    let label = Some(("shard".to_owned(), Some("3".to_owned())));
    assert_eq!(count(Selection { label, ..none() }), 1000);
    let text = Some("PROGRAM-1234".to_owned());
    assert_eq!(count(Selection { text, ..none() }), 1);
    let newest = Selection { newest_first: true, most: 3, ..none() };
    let (newest, _) = block_on(processes.list(newest)).expect("the node answers");
    assert!(newest.is_sorted_by(|one, next| one.id > next.id) && newest.len() == 3);
}

#[test]
fn without_a_keeper_nothing_is_launched_and_the_rest_goes_on() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let node = Node::open(Config::at(files.path().join("data"))).expect("the directory opens");
    let processes = node.handle().processes();
    let refused = block_on(processes.keeper()).expect_err("there is none");
    assert_eq!(refused.reason(), Reason::NoKeeper, "{refused}");
    let launching = Launching {
        spec: Spec { argv: vec![Bytes::new(*b"true")], dir: Bytes::new(*b"/"), ..Spec::default() },
        ..Launching::default()
    };
    let record = block_on(processes.launch(launching)).expect("it has a record");
    let record = block_on(processes.started(record.id)).expect("it has a record");
    let failure = record.failure.expect("it cannot be launched");
    assert_eq!(failure.step.name(), "keeper");
    let own = std::process::id();
    let registered = processes.register_pid(own, Tags::default(), None);
    let (record, known) = block_on(registered).expect("it exists");
    assert!(!known && record.phase == Phase::Running);
    let again = block_on(processes.register_pid(own, Tags::default(), None));
    assert_eq!(again.map(|(again, known)| (again.id, known)), Ok((record.id, true)));
    node.stop().expect("the node stops");
}
