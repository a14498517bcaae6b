//! The model of the turns of tenants, implemented with plain lists.

use super::Model;
use sexton::actors::queue::{AnyType, Phase, QueueName};

/// Tenants and queues with claimable jobs, in order of their position in line.
#[derive(Clone, Default)]
pub(crate) struct Turns {
    /// The virtual time at which the last turn ended; a turn of a tenant of weight 1 takes 2^20 units.
    pub(crate) clock: u64,
    /// Tenants in line, each with the virtual time at which its next turn begins.
    pub(crate) tenants: Vec<(Vec<u8>, u64)>,
    queues: Vec<QueueName>,
}

impl Model {
    /// Adds tenants and queues that now have claimable jobs (regardless of throttles) to the end of their lines, in order
    /// of their names, and removes tenants and queues that have none left.
    pub(super) fn update_line(&mut self) {
        let can = |queue: &QueueName| {
            let is_paused = self.pauses.iter().any(|pause| pause.queue == *queue);
            !is_paused && !self.line(queue, Phase::Ready).is_empty()
        };
        let queues: Vec<QueueName> = self.queues().into_iter().filter(can).collect();
        let turns = &mut self.turns;
        turns.queues.retain(|queue| queues.contains(queue));
        turns.tenants.retain(|(tenant, _)| {
            let mut of = queues.iter().map(QueueName::tenant);
            of.any(|it| it == tenant)
        });
        for queue in queues {
            let tenant = queue.tenant().to_vec();
            if !turns.tenants.iter().any(|(it, _)| *it == tenant) {
                turns.tenants.push((tenant, turns.clock));
            }
            if !turns.queues.contains(&queue) {
                turns.queues.push(queue);
            }
        }
    }

    /// Returns the selected queue that provides the next job; `None` if no selected queue has a claimable job.
    pub(super) fn turn(&self, of: &AnyType) -> Option<QueueName> {
        let kind = |queue: &QueueName| String::from_utf8_lossy(queue.kind()).into_owned();
        let is_asked = |queue: &&QueueName| {
            let rules = self.rules_of(queue);
            let is_kind = if of.types.is_empty() {
                rules.in_any && !of.except.contains(&kind(queue))
            } else {
                of.types.contains(&kind(queue))
            };
            let tenant = of.tenant.as_ref();
            let is_tenant = tenant.is_none_or(|it| it.as_bytes() == queue.tenant());
            let is_open = !self.is_shut(queue);
            is_kind && is_tenant && is_open
        };
        let asked: Vec<&QueueName> = self.turns.queues.iter().filter(is_asked).collect();
        let tenants = self.turns.tenants.iter();
        let mut tenants = tenants.filter(|(it, _)| asked.iter().any(|queue| queue.tenant() == *it));
        let first = tenants.next()?;
        let tenant = tenants.fold(first, |first, other| {
            let is_sooner = self.end_of(&other.0) < self.end_of(&first.0);
            if is_sooner { other } else { first }
        });
        let mut queues = asked.into_iter().filter(|queue| queue.tenant() == tenant.0);
        let first = queues.next()?;
        let queue = queues.fold(first, |first, other| {
            let is_urgent = self.rules_of(other).rank < self.rules_of(first).rank;
            if is_urgent { other } else { first }
        });
        Some(queue.clone())
    }

    fn end_of(&self, tenant: &[u8]) -> u64 {
        let found = self.turns.tenants.iter().find(|(it, _)| it == tenant);
        let name = String::from_utf8_lossy(tenant).into_owned();
        let weight = self.rules.across.tenants.get(&name).map_or(1, |it| it.weight);
        found.map_or(0, |(_, from)| from + (1 << 20) / u64::from(weight))
    }

    /// Records that a queue has provided a job: the queue and its tenant move to the end of their lines.
    pub(super) fn take_turn(&mut self, queue: &QueueName) {
        let end = self.end_of(queue.tenant());
        let turns = &mut self.turns;
        turns.clock = turns.clock.max(end);
        turns.tenants.retain(|(it, _)| it != queue.tenant());
        let tenant = (queue.tenant().to_vec(), turns.clock);
        turns.tenants.push(tenant);
        turns.queues.retain(|it| it != queue);
        turns.queues.push(queue.clone());
    }
}
