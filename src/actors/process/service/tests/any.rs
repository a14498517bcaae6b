//! Properties that hold after any history. Once all requested actions have been performed, a service that should be up has settled and has
//! at most the defined number of processes; one that should be down has none. The state is the same whether it is built from entries or
//! from pages.

use super::bench::{Bench, after, defined};
use crate::actors::process::End;
use crate::actors::process::service::{Definition, Message as Request, Policy, Status};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Happens {
    Configure(u8),
    Ask(u8, u8),
    Starts,
    Fails,
    Ends(u8, u8),
    Obeys,
    Passes(u16),
    Kill,
}

fn any_step() -> impl Strategy<Value = Happens> {
    prop_oneof![
        1 => any::<u8>().prop_map(Happens::Configure),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(what, who)| Happens::Ask(what, who)),
        6 => Just(Happens::Starts),
        1 => Just(Happens::Fails),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(which, code)| Happens::Ends(which, code)),
        4 => Just(Happens::Obeys),
        2 => any::<u16>().prop_map(Happens::Passes),
        1 => Just(Happens::Kill),
    ]
}

/// Returns the definitions of one to three services. Each bit of `bits` selects a service or one of its settings.
fn configuration(bits: u8) -> Vec<Definition> {
    let has = |bit: u8| bits & (1 << bit) != 0;
    let mut all = vec![Definition { instances: if has(0) { 2 } else { 1 }, ..defined("a") }];
    if has(1) {
        let restart = if has(2) { Policy::Never } else { Policy::OnFailure };
        all.push(Definition { restart, ..after("b", &["a"]) });
    }
    if has(3) {
        all.push(Definition {
            autostart: has(4),
            ..after("c", if has(1) { &["b"] } else { &["a"] })
        });
    }
    if has(5) {
        all[0].spec.grace_ms = 500;
    }
    all
}

fn ask(what: u8, who: u8) -> Request {
    let name = ["a", "b", "c"].get(usize::from(who % 4));
    let name = name.map(|name| (*name).to_owned());
    match what % 8 {
        0..3 => Request::Start(name),
        3..5 => Request::Stop(name),
        5..7 => Request::Restart(name),
        _ => Request::Hold,
    }
}

fn happen(bench: &mut Bench, step: &Happens) {
    match step {
        Happens::Configure(bits) => bench.configure(&configuration(*bits)),
        Happens::Ask(what, who) => {
            bench.ask(ask(*what, *who));
        }
        Happens::Starts if !bench.launched.is_empty() => bench.start(0),
        Happens::Fails if !bench.launched.is_empty() => bench.fail(0),
        Happens::Ends(which, code) => {
            let all: Vec<_> = bench.running.keys().copied().collect();
            if let Some(id) = all.get(usize::from(*which) % all.len().max(1)) {
                bench.end(*id, End::Code(code % 3));
            }
        }
        Happens::Obeys => {
            let running = bench.told.iter().find(|id| bench.running.contains_key(id));
            if let Some(id) = running.copied() {
                bench.end(id, End::Code(0));
            }
        }
        Happens::Passes(ms) => bench.wait_ms((*ms).into()),
        Happens::Kill => bench.start_again(),
        Happens::Starts | Happens::Fails => {}
    }
    bench.go_on();
}

fn hold_to_it(bench: &Bench, bits: u8) {
    for definition in configuration(bits) {
        let view = bench.view(&definition.name).expect("a configured service exists");
        let live = view.instances.iter().filter(|it| it.process.is_some());
        let live = live.count();
        if view.wanted {
            assert!(live <= usize::from(definition.instances));
            let rests = [Status::Running, Status::Finished, Status::Failed, Status::Waiting];
            assert!(rests.contains(&view.status), "{view:?}");
        } else {
            assert_eq!(live, 0, "{view:?}");
        }
    }
    let names = configuration(bits).len();
    assert_eq!(bench.machine.state.services.kept.len(), names, "no other service is left");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn services_come_to_rest_as_they_are_wanted(
        steps in prop::collection::vec(any_step(), 1..60),
        bits in any::<u8>(),
    ) {
        let mut bench = Bench::new();
        bench.is_prompt = false;
        for step in &steps {
            happen(&mut bench, step);
        }
        bench.is_prompt = true;
        bench.configure(&configuration(bits));
        // Long enough for every delay and every grace period to pass.
        for _ in 0..3 {
            bench.wait_ms(40_000);
        }
        hold_to_it(&bench, bits);
    }
}
