//! Many children at once.

use crate::may_look::may_look;
use crate::wire::{Kept, attempt};
use sexton::bytes::Bytes;
use sexton::keeper::protocol::{Report, Request};
use sexton::kernel::proc;
use std::collections::BTreeMap;

const CHILDREN: u64 = 1000;

#[test]
fn a_thousand_children_have_true_statuses() {
    let kept = Kept::new();
    let (mut peer, _) = kept.hello();
    let mut script = kept.shell("exit $0");
    script.argv.push(Bytes::default());
    for number in 0..CHILDREN {
        let mut launch = script.clone();
        let code = (number % 256).to_string();
        if let Some(last) = launch.argv.last_mut() {
            *last = crate::wire::bytes(code);
        }
        peer.launch(attempt(number), launch);
    }
    let mut statuses = BTreeMap::new();
    while (statuses.len() as u64) < CHILDREN {
        match peer.next() {
            Report::Exited(exited) => {
                statuses.insert(exited.started.attempt, exited.status);
            }
            Report::Failed { step, errno, .. } => panic!("failed at {step}: {errno}"),
            _ => {}
        }
    }
    for number in 0..CHILDREN {
        let wanted = u32::try_from(number % 256).expect("a small number") << 8;
        assert_eq!(statuses[&attempt(number)], wanted);
    }
    drop(peer);
    let (mut peer, told) = kept.hello();
    assert_eq!(told.len(), statuses.len() + 1);
    let attempts = statuses.into_keys().collect();
    peer.send(&Request::Forget { attempts });
    let absent = Report::Absent { attempt: attempt(0) };
    assert_eq!(peer.ask(attempt(0)), absent);
    if may_look("the descriptors of the keeper") {
        let fds = format!("/proc/{}/fd", kept.pid());
        let fds = std::fs::read_dir(fds).expect("a live process").count();
        assert!(fds < 16, "{fds} descriptors are open");
    }
    let stat = proc::stat(kept.pid()).expect("a live process").expect("a live process");
    assert!(stat.memory_bytes() < 64 << 20, "{} bytes", stat.memory_bytes());
}
