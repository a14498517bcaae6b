//! The queues of all runs, and the changes to each that a crash of the process may lose: decision 0011.

use sexton::actors::queue::{
    Claim, Claimant, Class, Message, Order, QueueName, Reply, Rules, TypeRules,
};

/// The maximum number of jobs. More are refused.
pub(crate) const JOBS_MAX: u32 = 24;

/// Returns the rules of a queue.
pub(crate) fn rules_of(queue: &QueueName) -> TypeRules {
    let default = TypeRules {
        order: Order::Priority,
        claim_ttl_ms: 3000,
        max_tries: 0,
        backoff: None,
        ..TypeRules::default()
    };
    match queue.as_bytes() {
        b"b" => TypeRules { crash_tries: 1, ..default },
        b"few" => TypeRules { max_tries: 2, tube_max_tries: 2, prune_ms: 9000, ..default },
        b"once" => TypeRules { retries: false, ..default },
        b"memory" => TypeRules { class: Class::Memory, ..default },
        b"same" => TypeRules { dedup: true, ..default },
        // One item in two seconds, because the model only has throttles with an interval of whole milliseconds.
        b"slow" => TypeRules { throttle_milli: 500, ..default },
        _ => default,
    }
}

/// Returns the names of all queues.
pub(crate) fn names() -> [QueueName; 7] {
    ["a", "b", "few", "once", "memory", "same", "slow"]
        .map(|name| QueueName::parse(name.as_bytes()).expect("a valid name"))
}

/// Returns whether the queue has a throttle, a limit on the items claimed per second.
pub(super) fn is_throttled(queue: &QueueName) -> bool {
    rules_of(queue).throttle_milli > 0
}

/// Returns the same rules without throttles.
pub(crate) fn without_throttles(mut rules: Rules) -> Rules {
    for of_type in rules.types.values_mut() {
        of_type.throttle_milli = 0;
    }
    rules
}

pub(super) fn is_in_memory(queue: &QueueName) -> bool {
    rules_of(queue).class == Class::Memory
}

/// Returns whether a crash of the process may lose the claim: it is by a connection and its tries are not counted, or its
/// queue is in memory.
pub(super) fn claim_passes(by: Claimant, claim: &Claim) -> bool {
    let counted = rules_of(&claim.queue).max_tries > 0 || !claim.retries;
    is_in_memory(&claim.queue) || matches!(by, Claimant::Worker(_)) && !counted
}

/// Returns the ids of the jobs in a reply that are kept in memory.
pub(super) fn in_memory((message, reply): (&Message, &Reply)) -> Vec<u64> {
    match (message, reply) {
        (Message::Put(put), Reply::Put { id, .. }) if is_in_memory(&put.queue) => vec![*id],
        (Message::Batch(puts), Reply::Batch(told)) => {
            let told = puts.iter().zip(told);
            let told = told.filter(|(put, _)| is_in_memory(&put.queue));
            told.map(|(_, (id, _))| *id).collect()
        }
        (_, Reply::Claim(claim)) if is_in_memory(&claim.queue) => vec![claim.id],
        _ => Vec::new(),
    }
}
