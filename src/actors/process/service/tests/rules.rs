//! Tests of each rule for services.

use super::bench::{Bench, after, defined};
use crate::actors::process::service::{
    Consequence, Definition, Fault, Message as Request, Policy, Status, Step, Verdict,
};
use crate::actors::process::{End, Flaw, Lost, Message, Outcome, Refused, Reply};
use crate::bytes::Bytes;
use crate::ids::Ticket;
use crate::spine::supervision::{Backoff, Intensity};

fn named(name: &str) -> String {
    name.to_owned()
}

fn killed() -> End {
    End::Signal { signal: 9, dumped: false }
}

#[test]
fn what_is_configured_runs_and_what_has_no_autostart_does_not() {
    let lazy = Definition { autostart: false, ..defined("lazy") };
    let bench = Bench::with(&[defined("web"), lazy]);
    assert_eq!(bench.status("web"), Status::Running);
    assert_eq!(bench.status("lazy"), Status::Stopped);
    assert_eq!(bench.view("none"), None);
}

#[test]
fn the_end_of_a_process_and_the_launch_that_follows_are_one_entry() {
    let mut bench = Bench::with(&[defined("web")]);
    bench.is_prompt = false;
    let first = bench.process("web").expect("it runs");
    bench.end(first, killed());
    let Some(Outcome::Service(turn)) = &bench.newest else {
        panic!("{:?}", bench.newest);
    };
    assert!(matches!(turn.process, Some(Outcome::Ended { .. })));
    let [Step::Ended { then, .. }, Step::Launched { insertion, .. }] = turn.steps.as_slice() else {
        panic!("{turn:?}");
    };
    let at = bench.now.at;
    let again = Consequence::Again { at, series: 1, counts: true };
    assert_eq!(*then, again);
    assert_eq!(bench.launched, [insertion.id]);
    assert_ne!(insertion.id, first);
    assert_eq!(bench.process("web"), Some(insertion.id));
}

#[test]
fn waits_double_and_a_long_run_begins_anew() {
    let mut bench = Bench::with(&[Definition {
        backoff: Backoff { first_ms: 100, max_ms: 350 },
        ..defined("web")
    }]);
    bench.ends("web", killed());
    assert_eq!(bench.status("web"), Status::Running, "the first restart is not delayed");
    for wait in [100, 200, 350, 350] {
        bench.ends("web", killed());
        assert_eq!(bench.status("web"), Status::Backoff);
        bench.wait_ms(wait - 1);
        assert_eq!(bench.status("web"), Status::Backoff);
        bench.wait_ms(1);
        assert_eq!(bench.status("web"), Status::Running);
    }
    bench.wait_ms(350);
    bench.ends("web", killed());
    assert_eq!(bench.status("web"), Status::Running);
}

#[test]
fn too_many_restarts_in_a_period_are_given_up_until_a_start() {
    let backoff = Backoff { first_ms: 0, max_ms: 0 };
    let intensity = Some(Intensity { restarts_max: 2, period_ms: 1000 });
    let mut bench = Bench::with(&[Definition { backoff, intensity, ..defined("web") }]);
    bench.ends("web", killed());
    bench.ends("web", killed());
    assert_eq!(bench.status("web"), Status::Running);
    bench.ends("web", killed());
    assert_eq!(bench.status("web"), Status::Failed);
    bench.wait_ms(3_600_000);
    bench.start_again();
    assert_eq!(bench.status("web"), Status::Failed, "a failed service stays failed");
    bench.ask(Request::Start(Some(named("web"))));
    assert_eq!(bench.status("web"), Status::Running);
    // Restarts that are older than the period do not count.
    for _ in 0..5 {
        bench.wait_ms(600);
        bench.ends("web", killed());
        assert_eq!(bench.status("web"), Status::Running);
    }
}

#[test]
fn an_intensity_of_none_never_gives_up() {
    let mut bench = Bench::with(&[Definition { intensity: None, ..defined("web") }]);
    for _ in 0..50 {
        bench.ends("web", killed());
        bench.wait_ms(30_000);
    }
    assert_eq!(bench.status("web"), Status::Running);
    let view = bench.view("web").expect("it exists");
    assert_eq!(view.instances[0].restarts, 0, "no restarts are remembered");
}

#[test]
fn the_policy_and_the_success_codes_decide_what_follows() {
    let ends = |restart, end| {
        let mut bench =
            Bench::with(&[Definition { restart, success: vec![3, 143], ..defined("web") }]);
        bench.ends("web", end);
        bench.status("web")
    };
    let term = End::Signal { signal: 15, dumped: false };
    let lost = End::Lost(Lost::KeeperGone);
    for end in [End::Code(0), End::Code(3), term, End::Code(1), killed(), lost] {
        assert_eq!(ends(Policy::Always, end), Status::Running, "{end:?}");
    }
    for end in [End::Code(0), End::Code(3), term] {
        assert_eq!(ends(Policy::OnFailure, end), Status::Finished, "{end:?}");
        assert_eq!(ends(Policy::Never, end), Status::Finished, "{end:?}");
    }
    for end in [End::Code(1), killed(), lost] {
        assert_eq!(ends(Policy::OnFailure, end), Status::Running, "{end:?}");
        assert_eq!(ends(Policy::Never, end), Status::Failed, "{end:?}");
    }
}

#[test]
fn a_restart_of_the_machine_counts_as_no_restart_of_the_service() {
    let intensity = Some(Intensity { restarts_max: 0, period_ms: 1000 });
    let mut bench = Bench::with(&[Definition { intensity, ..defined("web") }]);
    bench.ends("web", End::Lost(Lost::Rebooted));
    assert_eq!(bench.status("web"), Status::Running);
    bench.ends("web", killed());
    assert_eq!(bench.status("web"), Status::Failed);
}

#[test]
fn what_cannot_be_started_is_tried_again_and_given_up() {
    let mut bench = Bench::new();
    bench.is_prompt = false;
    bench.configure(&[defined("web")]);
    for _ in 0..10 {
        bench.fail(0);
        bench.wait_ms(30_000);
        assert_eq!(bench.status("web"), Status::Starting);
    }
    let intensity = Some(Intensity { restarts_max: 0, period_ms: 1000 });
    bench.configure(&[Definition { intensity, ..defined("web") }]);
    bench.fail(0);
    bench.go_on();
    assert_eq!(bench.status("web"), Status::Failed);
    let last = bench.view("web").and_then(|it| it.instances[0].last.clone());
    assert!(last.is_some_and(|last| last.failure.is_some() && last.end.is_none()));
}

#[test]
fn a_service_waits_for_those_that_it_comes_after() {
    let mut bench = Bench::new();
    bench.is_prompt = false;
    bench.configure(&[after("web", &["db"]), after("proxy", &["web"]), defined("db")]);
    assert_eq!(bench.launched.len(), 1, "only db is launched");
    assert_eq!(bench.status("web"), Status::Waiting);
    let view = bench.view("proxy").expect("it exists");
    assert_eq!(view.waits_for, ["web"]);
    bench.start(0);
    bench.go_on();
    assert_eq!(bench.status("db"), Status::Running);
    assert_eq!(bench.status("web"), Status::Starting);
    bench.start(0);
    bench.go_on();
    assert_eq!(bench.status("proxy"), Status::Starting);
    // A running service is left alone when a service that it depends on goes down.
    bench.is_prompt = true;
    bench.go_on();
    let proxy = bench.process("proxy");
    bench.ask(Request::Stop(Some(named("web"))));
    assert_eq!(bench.process("proxy"), proxy);
}

#[test]
fn what_has_failed_keeps_others_waiting_and_what_is_stopped_does_not() {
    let once = Definition { restart: Policy::Never, ..defined("migrate") };
    let mut bench = Bench::new();
    bench.is_prompt = false;
    bench.configure(&[once, after("web", &["migrate"])]);
    bench.watch(1, Some("web"));
    bench.fail(0);
    bench.go_on();
    assert_eq!(bench.status("migrate"), Status::Failed);
    assert_eq!(bench.status("web"), Status::Waiting);
    assert_eq!(bench.woken, [(Ticket(1), Reply::Done)], "waiting longer would change nothing");
    bench.is_prompt = true;
    bench.ask(Request::Stop(Some(named("migrate"))));
    assert_eq!(bench.status("web"), Status::Running);
}

#[test]
fn one_that_has_finished_is_as_good_as_one_that_runs() {
    let once = Definition { restart: Policy::Never, ..defined("migrate") };
    let mut bench = Bench::with(&[once, after("web", &["migrate"])]);
    bench.ends("migrate", End::Code(0));
    bench.ends("web", killed());
    assert_eq!(bench.status("migrate"), Status::Finished);
    assert_eq!(bench.status("web"), Status::Running);
}

#[test]
fn several_are_stopped_in_reverse_order() {
    let mut bench = Bench::with(&[after("web", &["db"]), defined("db"), after("proxy", &["web"])]);
    let [db, web, proxy] = ["db", "web", "proxy"].map(|name| bench.process(name).expect("it runs"));
    bench.is_prompt = false;
    bench.watch(1, None);
    assert_eq!(bench.woken.len(), 1, "a wait for running services is answered at once");
    bench.ask(Request::Stop(None));
    bench.watch(2, None);
    for id in [proxy, web, db] {
        assert_eq!(bench.told, [id]);
        assert_eq!(bench.woken.len(), 1);
        bench.end(id, End::Code(0));
        bench.go_on();
    }
    assert_eq!(bench.woken.last(), Some(&(Ticket(2), Reply::Done)));
    for name in ["db", "web", "proxy"] {
        assert_eq!(bench.status(name), Status::Stopped);
    }
}

#[test]
fn a_stop_by_a_person_outlives_the_server_and_the_configuration() {
    let mut bench = Bench::with(&[defined("web"), defined("db")]);
    bench.ask(Request::Stop(Some(named("web"))));
    bench.start_again();
    bench.configure(&[defined("web"), defined("db")]);
    assert_eq!(bench.status("web"), Status::Stopped);
    assert_eq!(bench.status("db"), Status::Running);
    bench.ask(Request::Start(Some(named("web"))));
    assert_eq!(bench.status("web"), Status::Running);
}

#[test]
fn a_start_of_the_server_restarts_nothing() {
    let all = [defined("web"), defined("db")];
    let mut bench = Bench::with(&all);
    let before = [bench.process("web"), bench.process("db")];
    bench.start_again();
    let digest = |bench: &Bench| crate::spine::machine::Paged::digest(&bench.machine);
    let known = digest(&bench);
    bench.configure(&all);
    assert_eq!(bench.newest, Some(Outcome::Unchanged));
    assert_eq!(digest(&bench), known);
    assert_eq!([bench.process("web"), bench.process("db")], before);
}

#[test]
fn a_stop_of_the_server_holds_services_down_until_the_next_configuration() {
    let all = [defined("web"), after("proxy", &["web"])];
    let mut bench = Bench::with(&all);
    bench.ask(Request::Stop(Some(named("web"))));
    bench.ask(Request::Start(Some(named("web"))));
    bench.ask(Request::Hold);
    assert_eq!(bench.status("web"), Status::Stopped);
    assert_eq!(bench.status("proxy"), Status::Stopped);
    bench.start_again();
    assert_eq!(bench.status("web"), Status::Stopped);
    bench.configure(&all);
    assert_eq!(bench.status("web"), Status::Running);
    assert_eq!(bench.status("proxy"), Status::Running);
}

#[test]
fn a_configuration_touches_only_what_it_changes() {
    let mut bench =
        Bench::with(&[defined("same"), defined("changed"), defined("gone"), defined("policy")]);
    let before = |name: &str, bench: &Bench| bench.process(name).expect("it runs");
    let [same, changed, policy] = ["same", "changed", "policy"].map(|name| before(name, &bench));
    let mut other = defined("changed");
    other.spec.argv.push(Bytes::new(*b"--more"));
    let lazy = Definition { restart: Policy::Never, ..defined("policy") };
    bench.configure(&[defined("same"), other, defined("new"), lazy]);
    assert_eq!(bench.process("same"), Some(same));
    assert_ne!(bench.process("changed"), Some(changed));
    assert_eq!(bench.status("changed"), Status::Running);
    assert_eq!(bench.status("new"), Status::Running);
    assert_eq!(bench.view("gone"), None);
    // A changed restart policy takes effect without a restart.
    assert_eq!(bench.process("policy"), Some(policy));
    bench.ends("policy", killed());
    assert_eq!(bench.status("policy"), Status::Failed);
}

#[test]
fn more_or_fewer_instances_leave_the_others_alone() {
    let of = |instances| [Definition { instances, ..defined("worker") }];
    let mut bench = Bench::with(&of(2));
    let ids = |bench: &Bench| {
        let view = bench.view("worker").expect("it exists");
        let all = view.instances.iter().map(|it| it.process);
        all.collect::<Vec<_>>()
    };
    let two = ids(&bench);
    bench.configure(&of(3));
    let three = ids(&bench);
    assert_eq!(three[..2], two);
    assert!(three[2].is_some());
    bench.configure(&of(1));
    assert_eq!(ids(&bench), two[..1]);
    assert_eq!(bench.running.len(), 1);
}

#[test]
fn one_that_is_gone_is_removed_when_its_process_is() {
    let mut bench = Bench::with(&[defined("web")]);
    bench.is_prompt = false;
    let id = bench.process("web").expect("it runs");
    bench.configure(&[]);
    assert_eq!(bench.told, [id]);
    assert_eq!(bench.status("web"), Status::Stopping);
    let start = bench.ask(Request::Start(Some(named("web"))));
    assert_eq!(start, Reply::Refused(Refused::NoService));
    // The service is configured again before its process ends. The process is replaced anyway, since its end was requested.
    bench.configure(&[defined("web")]);
    bench.is_prompt = true;
    bench.go_on();
    assert_eq!(bench.status("web"), Status::Running);
    assert_ne!(bench.process("web"), Some(id));
    bench.configure(&[]);
    assert_eq!(bench.view("web"), None);
}

#[test]
fn a_start_while_it_is_being_stopped_counts_as_no_restart() {
    let mut bench = Bench::with(&[Definition { restart: Policy::Never, ..defined("web") }]);
    bench.is_prompt = false;
    bench.ask(Request::Stop(Some(named("web"))));
    bench.ask(Request::Start(Some(named("web"))));
    assert_eq!(bench.status("web"), Status::Stopping);
    bench.is_prompt = true;
    bench.go_on();
    assert_eq!(bench.status("web"), Status::Running);
    let view = bench.view("web").expect("it exists");
    assert_eq!(view.instances[0].restarts, 0);
}

#[test]
fn a_restart_of_all_starts_none_that_is_stopped() {
    let mut bench = Bench::with(&[defined("web"), defined("db")]);
    let db = bench.process("db");
    bench.ask(Request::Stop(Some(named("web"))));
    bench.ask(Request::Restart(None));
    assert_eq!(bench.status("web"), Status::Stopped);
    assert_eq!(bench.status("db"), Status::Running);
    assert_ne!(bench.process("db"), db);
    bench.ask(Request::Restart(Some(named("web"))));
    assert_eq!(bench.status("web"), Status::Running);
}

#[test]
fn what_finds_no_room_is_tried_again() {
    let many = |name: &str| Definition { instances: 10, ..defined(name) };
    let mut bench = Bench::with(&[many("first"), many("second")]);
    assert_eq!(bench.running.len(), 12, "launches stop at the limit on live processes");
    assert_eq!(bench.status("second"), Status::Backoff);
    bench.ask(Request::Stop(Some(named("first"))));
    bench.wait_ms(5000);
    assert_eq!(bench.status("second"), Status::Running);
    let view = bench.view("second").expect("it exists");
    assert!(view.instances.iter().all(|it| it.restarts == 0));
}

#[test]
fn who_waits_is_answered_when_services_stand_still() {
    let mut bench = Bench::new();
    bench.is_prompt = false;
    bench.configure(&[defined("web")]);
    bench.watch(1, Some("web"));
    bench.watch(2, None);
    bench.watch(3, Some("none"));
    let no_service = Reply::Refused(Refused::NoService);
    assert_eq!(bench.woken, [(Ticket(3), no_service)]);
    bench.start(0);
    let woken = &bench.woken[1..];
    assert_eq!(woken, [(Ticket(1), Reply::Done), (Ticket(2), Reply::Done)]);
}

#[test]
fn a_verdict_is_that_of_the_worst() {
    let mut bench =
        Bench::with(&[Definition { instances: 2, restart: Policy::Never, ..defined("job") }]);
    bench.ends("job", End::Code(0));
    assert_eq!(bench.status("job"), Status::Running);
    let view = bench.view("job").expect("it exists");
    let second = view.instances[1].process.expect("it runs");
    bench.end(second, End::Code(1));
    bench.go_on();
    assert_eq!(bench.status("job"), Status::Failed);
    let services = &bench.machine.state.services;
    let (_, service) = services.named("job").expect("it exists");
    let verdicts: Vec<_> = service.instances.iter().map(|it| it.verdict).collect();
    assert_eq!(verdicts, [Some(Verdict::Finished), Some(Verdict::Failed)]);
}

#[test]
fn a_configuration_that_cannot_be_changes_nothing() {
    let mut bench = Bench::with(&[defined("web")]);
    let wrong = [after("web", &["db"])];
    let reply = bench.ask(Request::Configure(wrong.to_vec()));
    assert_eq!(reply, Reply::Refused(Refused::Invalid(Flaw::Services)));
    assert_eq!(bench.status("web"), Status::Running);
}

#[test]
fn all_that_is_wrong_with_a_configuration_is_found() {
    let of = |definitions: &[Definition]| Definition::check_all(definitions);
    assert_eq!(of(&[defined("a"), after("b", &["a"])]), []);
    let long = "x".repeat(201);
    for name in ["", "-a", ".a", "a/b", "a b", "..", long.as_str()] {
        assert_eq!(of(&[defined(name)]), [(0, Fault::Name)], "{name:?}");
    }
    assert_eq!(of(&[defined("a"), defined("a")]), [(1, Fault::Twice)]);
    let unknown = Fault::Unknown("b".to_owned());
    assert_eq!(of(&[after("a", &["b"])]), [(0, unknown)]);
    let own = Fault::Cycle("a after a".to_owned());
    assert_eq!(of(&[after("a", &["a"])]), [(0, own)]);
    let circle = [after("a", &["b"]), after("b", &["c"]), after("c", &["a"]), after("d", &["a"])];
    let ways =
        ["a after b after c after a", "b after c after a after b", "c after a after b after c"];
    let found = ways.into_iter().enumerate();
    let found: Vec<_> = found.map(|(place, way)| (place, Fault::Cycle(way.to_owned()))).collect();
    assert_eq!(of(&circle), found);
    let mut secret = defined("a");
    secret.spec.env = vec![("API_TOKEN".to_owned(), Bytes::new(*b"x"))];
    assert_eq!(of(&[secret]), [(0, Fault::Spec(Flaw::Secret))]);
    let none = Definition { instances: 0, ..defined("a") };
    assert_eq!(of(&[none]), [(0, Fault::Instances)]);
    let backwards = Definition { backoff: Backoff { first_ms: 2, max_ms: 1 }, ..defined("a") };
    assert_eq!(of(&[backwards]), [(0, Fault::Backoff)]);
    let all: Vec<_> =
        (0..=Definition::SERVICES_MAX).map(|nth| defined(&format!("s{nth}"))).collect();
    assert_eq!(of(&all), [(Definition::SERVICES_MAX, Fault::TooMany)]);
    assert_eq!(of(&all[1..]), []);
}

#[test]
fn a_stop_of_its_process_alone_is_no_stop_of_the_service() {
    let mut bench = Bench::with(&[defined("web")]);
    let id = bench.process("web").expect("it runs");
    let stop = Message::Stop { id, signal: None, grace_ms: None, tree: true };
    bench.send(&stop);
    bench.go_on();
    assert_eq!(bench.status("web"), Status::Running);
    assert_ne!(bench.process("web"), Some(id));
}
