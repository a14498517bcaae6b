//! Checks the invariants of all records and indexes. This is slow, so only tests do it.

use crate::actors::process::index::Index;
use crate::actors::process::machine::ProcessMachine;
use crate::actors::process::pages::write;
use crate::actors::process::record::{Phase, Record};
use crate::actors::process::state::State;
use crate::ids::Digest;

impl ProcessMachine {
    /// Asserts that every record is consistent, that its parent, root and depth are correct, that indexes and running sums match a fresh
    /// computation, and that no client waits for a condition that is already met.
    pub(in crate::actors::process) fn assert_whole(&self) {
        self.state.assert_tree();
        self.state.assert_indexes();
        for (_, record) in self.state.records.iter() {
            assert_record(record);
        }
        self.state.records.assert_whole();
        for watch in self.waiting.all() {
            assert_eq!(self.answer(watch), None, "a client waits only for an unmet condition");
        }
    }
}

impl State {
    fn assert_tree(&self) {
        for (slot, record) in self.records.iter() {
            assert_eq!(self.find(record.id).map(|(slot, _)| slot), Some(slot));
            assert!(record.depth <= Record::DEPTH_MAX);
            let Some(parent) = record.parent else {
                assert_eq!((record.root, record.depth), (record.id, 0));
                continue;
            };
            assert_ne!(record.root, record.id);
            if let Some((_, parent)) = self.find(parent) {
                // A parent is older than its children, so there are no cycles.
                assert!(parent.made < record.made, "a parent is older than its children");
                assert_eq!((record.root, record.depth), (parent.root, parent.depth + 1));
            } else {
                assert!(
                    !record.is_live() || self.is_server(record.id),
                    "the parent of a live record is not removed"
                );
            }
        }
    }

    fn assert_indexes(&self) {
        let (mut fresh, mut profiles) = (Index::default(), Digest::default());
        for (slot, record) in self.records.iter() {
            fresh.add(slot, record);
            let mut bytes = b"profile".to_vec();
            bytes.extend_from_slice(&slot.0.to_le_bytes());
            write(&*record.profile, &mut bytes);
            profiles.add(&bytes);
            let children = self.records.iter().map(|(_, it)| it);
            let children = children.filter(|it| it.parent == Some(record.id));
            let children = children.filter(|it| !self.is_server(it.id));
            let held = children.filter(|it| it.is_kept()).count();
            assert_eq!(record.held as usize, held, "the count of live children is correct");
        }
        assert_eq!(self.index, fresh, "the indexes match a fresh computation");
        let mut digest = self.records.digest();
        digest.merge(profiles);
        digest.merge(self.head.digest());
        digest.merge(self.services.kept.digest());
        assert_eq!(self.digest(), digest, "the running digest matches a fresh computation");
    }
}

fn assert_record(record: &Record) {
    let has_ended = record.end.is_some();
    assert!(
        !record.is_deferred() || record.phase == Phase::Queued,
        "only the launch of a queued process is deferred"
    );
    match record.phase {
        Phase::Queued => assert!(record.identity.is_none() && !has_ended && record.launched),
        Phase::Running => {
            assert!(record.identity.is_some() && !has_ended && record.rare.stop.is_none());
        }
        Phase::Stopping => {
            assert!(
                record.rare.stop.is_some() || has_ended,
                "the process is being stopped, or its tree is awaited"
            );
            assert!(record.identity.is_some() && (!has_ended || !record.empty));
            let stop = record.rare.stop.filter(|stop| stop.killed);
            assert!(stop.is_none_or(|stop| stop.asked.0 > 0));
        }
        Phase::Exited => {
            assert_ne!(
                has_ended,
                record.rare.failure.is_some(),
                "the process either ended or failed to start"
            );
            assert!(record.rare.signals.is_empty() && record.rare.stuck.is_none());
        }
    }
    assert_eq!(record.ended.is_some(), has_ended || record.rare.failure.is_some());
    assert!(record.rare.failure.is_none() || record.phase == Phase::Exited);
    assert!(record.rare.signals.len() <= Record::SIGNALS_MAX);
    assert!(record.expires.is_none() || record.launched && record.started.is_some());
}
