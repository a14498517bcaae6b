//! Services in the configuration, and requests of clients about them.

use super::judge::Processes;
use crate::actor::Ask;
use crate::chance::Chance;
use sexton::actors::process::{
    Definition, InstanceView, Message, Policy, Query, Ready, Reply, ServiceMessage, ServiceView,
    Spec, Status, Watch,
};
use sexton::bytes::Bytes;
use sexton::spine::supervision::{Backoff, Intensity};

/// Names of services, and one that no service has.
const NAMES: &[&str] = &["db", "web", "once", "flaky", "none"];

/// The configuration of a node. Some reloads change it.
pub(super) struct Configuration {
    /// The options that differ between versions, one bit each.
    bits: u64,
}

impl Default for Configuration {
    fn default() -> Self {
        Self { bits: 0b1_0110 }
    }
}

impl Configuration {
    /// Returns the message by which the node configures its services, at startup or at a reload. Sometimes changes the
    /// configuration first.
    pub(super) fn ask(&mut self, chance: &mut Chance) -> Ask<Processes> {
        if chance.per_mille(300) {
            self.bits ^= 1 << chance.below(8);
        }
        let all = self.definitions();
        Ask::Message(Message::Service(ServiceMessage::Configure(all)))
    }

    fn has(&self, bit: u8) -> bool {
        self.bits & (1 << bit) != 0
    }

    /// Returns the definitions: a service that reports when it is ready, one that starts after it, one that runs once,
    /// and one that soon gives up.
    fn definitions(&self) -> Vec<Definition> {
        let mut db = defined("db", &[]);
        if self.has(1) {
            (db.spec.ready, db.spec.ready_timeout_ms) = (Ready::Notify, 15_000);
        }
        db.intensity = None;
        let mut web = defined("web", &["db"]);
        web.instances = if self.has(0) { 2 } else { 1 };
        web.spec.grace_ms = if self.has(5) { 300 } else { 2000 };
        web.restart = if self.has(6) { Policy::OnFailure } else { Policy::Always };
        let mut all = vec![web, db];
        if self.has(2) {
            let once = defined("once", if self.has(3) { &["db"] } else { &[] });
            all.push(Definition { restart: Policy::Never, success: vec![3, 143], ..once });
        }
        if self.has(4) {
            all.push(Definition {
                intensity: Some(Intensity { restarts_max: 1, period_ms: 60_000 }),
                autostart: !self.has(7),
                ..defined("flaky", &[])
            });
        }
        all
    }
}

fn defined(name: &str, after: &[&str]) -> Definition {
    Definition {
        name: name.to_owned(),
        spec: Spec { argv: vec![Bytes::new(name.as_bytes())], grace_ms: 1200, ..Spec::default() },
        backoff: Backoff { first_ms: 3000, max_ms: 40_000 },
        intensity: Some(Intensity { restarts_max: 4, period_ms: 60_000 }),
        after: after.iter().map(|name| (*name).to_owned()).collect(),
        ..Definition::default()
    }
}

fn name(chance: &mut Chance) -> Option<String> {
    let one = chance.per_mille(850);
    one.then(|| (*chance.pick(NAMES)).to_owned())
}

/// Returns a request of an operator.
pub(super) fn request(chance: &mut Chance) -> Message {
    let name = name(chance);
    Message::Service(match chance.weighted(&[(8, 0), (5, 1), (5, 2), (1, 3)]) {
        0 => ServiceMessage::Start(name),
        1 => ServiceMessage::Stop(name),
        2 => ServiceMessage::Restart(name),
        _ => ServiceMessage::Hold,
    })
}

pub(super) fn query() -> Query {
    Query::Services(None)
}

pub(super) fn watch(chance: &mut Chance) -> Watch {
    Watch::Services(name(chance))
}

/// Returns whether two answers show the same services, apart from values that change with time alone, since a query may
/// be answered later than it was sent.
pub(super) fn are_alike(shown: &Reply, right: &[ServiceView]) -> bool {
    let Reply::Services(shown) = shown else {
        return false;
    };
    timeless(shown) == timeless(right)
}

fn timeless(views: &[ServiceView]) -> Vec<ServiceView> {
    let instance = |it: &InstanceView| {
        let waits = it.process.is_none()
            && matches!(it.status, Status::Backoff | Status::Waiting | Status::Starting);
        InstanceView {
            restarts: 0,
            next: None,
            status: if waits { Status::Waiting } else { it.status },
            ..it.clone()
        }
    };
    let views = views.iter().map(|it| {
        let instances: Vec<_> = it.instances.iter().map(instance).collect();
        let status = instances.iter().map(|it| it.status).max();
        ServiceView { status: status.unwrap_or_default(), instances, ..it.clone() }
    });
    views.collect()
}
