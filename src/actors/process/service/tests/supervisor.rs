//! The record of the server, below which its services stand.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test matches only the cases it needs")]

use super::bench::{Bench, after, defined};
use crate::actors::binding::{Until, Watch};
use crate::actors::process::{
    End, Identity, Lost, Message, Parentage, Query, RecordView, Refused, Registering, Remains,
    Reply, Tags,
};
use crate::bytes::Bytes;
use crate::clock::Date;
use crate::ids::{ActorId, ProcessId};
use crate::spine::machine::Machine as _;

fn identity(pid: u32) -> Identity {
    Identity { pid, ticks: pid.into(), boot: 1, ..Identity::default() }
}

fn process(pid: u32, kind: &str, above: &[u32]) -> Box<Registering> {
    Box::new(Registering {
        identity: identity(pid),
        argv: vec![Bytes::new(format!("program {pid}").as_bytes())],
        started: Date(pid.into()),
        tags: Tags { kind: kind.to_owned(), ..Tags::default() },
        parentage: Parentage {
            line: above.iter().copied().map(identity).collect(),
            ..Parentage::default()
        },
        ..Registering::default()
    })
}

fn registered(bench: &mut Bench, message: &Message) -> RecordView {
    match bench.send(message) {
        Reply::Registered { record, .. } => *record,
        other => panic!("{other:?}"),
    }
}

/// Starts a server as process 50, from process 40.
fn served(bench: &mut Bench) -> (RecordView, RecordView) {
    let starter = registered(bench, &Message::Register(process(40, "cli", &[])));
    let server = Message::Serve(process(50, "supervisord", &[40]));
    (starter, registered(bench, &server))
}

fn get(bench: &Bench, id: ProcessId) -> RecordView {
    match bench.machine.query(bench.now, &Query::One(id)) {
        Reply::Record(record) => *record,
        other => panic!("{other:?}"),
    }
}

fn stop(id: ProcessId, tree: bool) -> Message {
    Message::Stop { id, signal: None, grace_ms: None, tree }
}

#[test]
fn services_stand_below_the_server_and_the_server_below_who_started_it() {
    let mut bench = Bench::new();
    let (starter, server) = served(&mut bench);
    bench.configure(&[defined("web"), after("late", &["web"])]);
    for name in ["web", "late"] {
        let service = get(&bench, bench.process(name).expect("it runs"));
        assert_eq!((service.parent, service.depth), (Some(server.id), 2));
        assert_eq!(service.root, starter.id);
    }
    assert_eq!(server.parent, Some(starter.id));
    let server = get(&bench, server.id);
    assert_eq!((server.kind.as_str(), server.live_children), ("supervisord", 2));
    bench.ends("web", End::Code(1));
    let again = get(&bench, bench.process("web").expect("it runs again"));
    assert_eq!(again.parent, Some(server.id));
}

#[test]
fn the_record_stands_for_each_process_that_takes_the_place_of_the_earlier_one() {
    let mut bench = Bench::new();
    let (starter, server) = served(&mut bench);
    bench.configure(&[defined("web")]);
    let web = bench.process("web").expect("it runs");
    bench.followed.clear();
    bench.start_again();
    assert!(bench.followed.contains(&web) && !bench.followed.contains(&server.id));
    // A report about the process that the record stood for before.
    bench.send(&Message::Ended {
        id: server.id,
        end: End::Lost(Lost::NotOurs),
        at: Date(1),
        left: Box::new(Remains::default()),
    });
    let renewed = registered(&mut bench, &Message::Serve(process(60, "other", &[41])));
    bench.go_on();
    assert_eq!((renewed.id, renewed.parent), (server.id, Some(starter.id)));
    assert_eq!(renewed.identity, Some(identity(60)));
    assert_eq!((renewed.started, renewed.ended), (Some(Date(60)), None));
    assert_eq!(renewed.argv, [Bytes::new(*b"program 60")]);
    assert_eq!(renewed.kind, "supervisord");
    assert_eq!(renewed.live_children, 1);
    assert_eq!(get(&bench, web).parent, Some(server.id));
    let same = registered(&mut bench, &Message::Serve(process(60, "", &[])));
    assert_eq!(same, renewed);
    let found = bench.machine.query(bench.now, &Query::Process(identity(50)));
    assert_eq!(found, Reply::Refused(Refused::Unknown));
}

#[test]
fn the_server_is_not_stopped_through_its_record_or_a_tree_that_contains_it() {
    let mut bench = Bench::new();
    let (starter, server) = served(&mut bench);
    bench.configure(&[defined("web")]);
    let id = server.id;
    let refused = [
        stop(id, false),
        stop(id, true),
        stop(starter.id, true),
        Message::Signal { id, signal: 1, group: false },
        Message::Finish { id, code: 0, error: None },
    ];
    for message in &refused {
        assert_eq!(bench.send(message), Reply::Refused(Refused::Server), "{message:?}");
    }
    // The end of a right of either does not stop the services.
    for id in [server.id, starter.id] {
        bench.send(&Message::Fence(id));
    }
    bench.go_on();
    let web = get(&bench, bench.process("web").expect("it runs"));
    assert_eq!(web.stop, None);
    // A service itself is stopped as before.
    assert!(matches!(bench.send(&stop(web.id, true)), Reply::Stopping(_)));
}

#[test]
fn who_started_the_server_is_removed_like_any_other() {
    let mut bench = Bench::new();
    let (starter, server) = served(&mut bench);
    bench.configure(&[defined("web")]);
    assert_eq!(get(&bench, starter.id).live_children, 0);
    bench.send(&Message::Finish { id: starter.id, code: 0, error: None });
    let prune = Message::Prune { before: None, keep: 0, limit: 10 };
    let (count, more) = (1, false);
    assert_eq!(bench.send(&prune), Reply::Pruned { count, more });
    bench.go_on();
    let server = get(&bench, server.id);
    assert_eq!((server.parent, server.depth), (None, 1));
    assert_eq!(bench.send(&prune), Reply::Pruned { count: 0, more });
    let web = get(&bench, bench.process("web").expect("it runs"));
    assert_eq!(web.parent, Some(server.id));
}

#[test]
fn rights_of_the_server_end_when_another_process_takes_its_place() {
    let mut bench = Bench::new();
    let (_, server) = served(&mut bench);
    for until in [Until::Process, Until::Tree] {
        bench.send(&Message::Watch(Watch { by: ActorId::LOCK, process: server.id, until }));
    }
    bench.notified.clear();
    bench.send(&Message::Serve(process(60, "", &[])));
    assert_eq!(bench.notified.len(), 2);
    assert!(bench.machine.state.record_of(server.id).watchers.is_empty());
}
