//! Tests that tenants get their turns, regardless of how many jobs each has, and even if jobs are added or rules change in between.

use crate::actors::queue::{
    AnyType, Body, Claimant, Message, Outcome, Pop, Put, QueueMachine, QueueName, Reply, Right,
    Rules, SharedRules, TenantRules, TypeRules,
};
use crate::clock::{Now, Timestamp};
use crate::ids::Seq;
use crate::spine::machine::{Effects, Machine as _, Moment, Stamp};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

struct Bench {
    machine: QueueMachine,
    seq: u64,
}

impl Bench {
    fn new(tenants: &[(&str, u32)], types: &[(&str, TypeRules)]) -> Self {
        let weight = |(name, weight): &(&str, u32)| {
            let rules = TenantRules { weight: *weight };
            ((*name).to_owned(), rules)
        };
        let types = types.iter().map(|(name, of)| ((*name).to_owned(), of.clone()));
        Self {
            machine: QueueMachine::new(Rules {
                across: SharedRules {
                    tenants: tenants.iter().map(weight).collect(),
                    ..SharedRules::default()
                },
                types: types.collect(),
                ..Rules::default()
            }),
            seq: 0,
        }
    }

    fn send(&mut self, message: &Message) -> Reply {
        let seq = Seq(self.seq + 1);
        let at = Timestamp(1_000_000);
        let moment = Moment { seq, now: Now { at, ..Now::default() }, ..Moment::default() };
        let outcome = self.machine.decide(&moment, message);
        if outcome != Outcome::Absent {
            self.seq += QueueMachine::numbers(&outcome);
            let mut effects = Effects::<QueueMachine>::default();
            let stamp = Stamp { seq, at };
            self.machine.commit(stamp, message, &outcome, &mut effects);
        }
        self.machine.reply(seq, message, &outcome)
    }

    fn put(&mut self, queue: &str, jobs: usize) {
        let name = QueueName::parse(queue.as_bytes()).expect("the name should be valid");
        let body = Body::new(*b"x");
        let put = Put::new(name, body);
        let mut left = jobs;
        while left > 0 {
            let some = left.min(10_000);
            self.send(&Message::Batch(vec![put.clone(); some]));
            left -= some;
        }
    }

    /// Claims a job of the tenant whose turn it is, and deletes it. Returns the name of the job's queue, or `None` if there is no job.
    fn take(&mut self, of: &AnyType) -> Option<String> {
        let pop = Message::Pop(Pop {
            queues: [].into(),
            by: Claimant::Bearer,
            waits: false,
            ticket: None,
            weights: [].into(),
            ttr_ms: 0,
            any: Some(Arc::new(of.clone())),
        });
        let Reply::Claim(claim) = self.send(&pop) else {
            return None;
        };
        let by = Right::Token(claim.token);
        self.send(&Message::Delete { id: claim.id, by });
        Some(claim.queue.as_str().to_owned())
    }

    fn takes(&mut self, of: &AnyType, count: usize) -> Vec<String> {
        let takes = (0..count).map(|_| self.take(of).expect("there should be a job"));
        takes.collect()
    }
}

fn types(types: &[&str]) -> AnyType {
    AnyType { types: types.iter().map(|it| (*it).to_owned()).collect(), ..AnyType::default() }
}

/// Checks that a tenant with few jobs has its k-th job claimed within 2k claims, even though another tenant has `many` jobs.
fn few_beside(many: usize) {
    for of in [AnyType::default(), types(&["mails"])] {
        let mut bench = Bench::new(&[], &[]);
        bench.put("big:mails", many);
        // At first, only the tenant `big` has jobs.
        bench.takes(&of, 100);
        bench.put("small:mails", 10);
        let taken = bench.takes(&of, 20);
        let of_small = (1..).zip(&taken).filter(|(_, it)| *it == "small:mails");
        for (k, (place, _)) in (1..).zip(of_small.clone()) {
            assert!(place <= 2 * k, "small job {k} was claimed at position {place}: {taken:?}");
        }
        assert_eq!(of_small.count(), 10);
    }
}

#[test]
fn ten_jobs_beside_ten_thousand_have_every_other_turn() {
    few_beside(10_000);
}

#[test]
#[ignore = "needs a gigabyte of memory"]
fn ten_jobs_beside_a_million_have_every_other_turn() {
    few_beside(1_000_000);
}

#[test]
fn tenants_have_turns_as_their_weights_say() {
    let mut bench = Bench::new(&[("a", 3), ("", 2)], &[]);
    for queue in ["a:x", "b:x", "x"] {
        bench.put(queue, 1000);
    }
    let mut counts = BTreeMap::new();
    for queue in bench.takes(&AnyType::default(), 600) {
        *counts.entry(queue).or_insert(0) += 1;
    }
    let right = [("a:x", 300), ("b:x", 100), ("x", 200)];
    for (queue, right) in right {
        assert!((right - 3..=right + 3).contains(&counts[queue]), "{counts:?}");
    }
}

#[test]
fn one_that_comes_back_job_by_job_takes_no_more_than_its_turns() {
    let mut bench = Bench::new(&[], &[]);
    bench.put("many:x", 1000);
    let mut taken = Vec::new();
    for _ in 0..20 {
        bench.put("now_and_then:x", 1);
        taken.extend(bench.takes(&AnyType::default(), 2));
    }
    let of_many = taken.iter().filter(|it| *it == "many:x").count();
    assert!((19..=21).contains(&of_many), "{taken:?}");
    // A steady stream of new tenants must not starve the tenant `many`, either.
    let mut waited = 0;
    for number in 0..50 {
        bench.put(&format!("new{number}:x"), 1);
        bench.put(&format!("other{number}:x"), 1);
        waited = match bench.take(&AnyType::default()) {
            Some(queue) if queue == "many:x" => 0,
            _ => waited + 1,
        };
        // Two tenants are added for each tenant that is served: waiting times grow, but no tenant is skipped.
        assert!(waited <= 2 * (number + 1), "{waited} after {number}");
    }
}

#[test]
fn in_a_turn_the_rank_of_types_decides_and_then_who_waited_longer() {
    let first = TypeRules { rank: 1, ..TypeRules::default() };
    let named = TypeRules { in_any: false, ..TypeRules::default() };
    let mut bench = Bench::new(&[], &[("first", first), ("named", named)]);
    for queue in ["a:x", "a:y", "a:first", "b:x", "a:named"] {
        bench.put(queue, 2);
    }
    let taken = bench.takes(&AnyType::default(), 8);
    let of = |tenant: &str| -> Vec<String> {
        let of = taken.iter().filter(|it| it.starts_with(tenant));
        of.cloned().collect()
    };
    assert_eq!(of("a"), ["a:first", "a:first", "a:x", "a:y", "a:x", "a:y"]);
    assert_eq!(taken[..4], ["a:first", "b:x", "a:first", "b:x"]);
    assert_eq!(
        bench.take(&AnyType::default()),
        None,
        "the remaining type must be requested by name"
    );
    assert_eq!(bench.take(&types(&["named"])).as_deref(), Some("a:named"));
}

#[test]
fn other_rules_are_gone_by_at_once() {
    let mut bench = Bench::new(&[], &[]);
    for queue in ["a:x", "b:x"] {
        bench.put(queue, 100);
    }
    let weights = [("a".to_owned(), TenantRules { weight: 9 })];
    bench.machine.set_rules(Rules {
        across: SharedRules { tenants: weights.into(), ..SharedRules::default() },
        ..Rules::default()
    });
    bench.machine.assert_whole();
    let taken = bench.takes(&AnyType::default(), 50);
    let of_b = taken.iter().filter(|it| *it == "b:x").count();
    assert!((4..=6).contains(&of_b), "{taken:?}");
    let closed = TypeRules { read_only: Some("it moves".to_owned()), ..TypeRules::default() };
    bench.machine.set_rules(Rules { default: closed, ..Rules::default() });
    bench.machine.assert_whole();
    // A read-only queue accepts no jobs, but those that it has are given out.
    assert!(bench.take(&AnyType::default()).is_some());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// Between two turns of a tenant with claimable jobs, another tenant gets at most as many turns as the ratio of their
    /// weights, rounded down, plus one. If all weights are equal, it gets at most one.
    #[test]
    fn no_tenant_that_is_ready_waits_for_longer_than_the_weights_of_others_say(
        weights in prop::collection::vec(1u32..6, 2..7),
        is_even in any::<bool>(),
        comes in prop::collection::vec((0usize..7, 1usize..5, 0usize..2), 1..120),
    ) {
        let names: Vec<String> = (0..weights.len()).map(|it| format!("t{it}")).collect();
        let weight = |tenant: usize| if is_even { 1 } else { weights[tenant] };
        let weighed: Vec<(&str, u32)> = names.iter().map(String::as_str).zip((0..).map(weight)).collect();
        let mut bench = Bench::new(&weighed, &[]);
        let mut there = vec![0usize; weights.len()];
        // `served[a][b]`: how often tenant `b` was served since tenant `a` was last served or became ready.
        let mut served = vec![vec![0u32; weights.len()]; weights.len()];
        for (tenant, jobs, kind) in comes {
            let tenant = tenant % weights.len();
            bench.put(&format!("{}:{}", names[tenant], ["x", "y"][kind]), jobs);
            if there[tenant] == 0 {
                served[tenant].fill(0);
            }
            there[tenant] += jobs;
            for _ in 0..2 {
                let Some(queue) = bench.take(&types(&["x", "y"])) else { continue };
                let taken = names.iter().position(|it| queue.starts_with(it.as_str())).expect("the queue should belong to a tenant");
                for waiting in (0..weights.len()).filter(|it| *it != taken && there[*it] > 0) {
                    served[waiting][taken] += 1;
                    let most = if is_even { 1 } else { weight(taken) / weight(waiting) + 1 };
                    prop_assert!(served[waiting][taken] <= most, "{taken} was served too often while {waiting} waited: {weighed:?}");
                }
                there[taken] -= 1;
                served[taken].fill(0);
            }
            bench.machine.assert_whole();
        }
    }
}
