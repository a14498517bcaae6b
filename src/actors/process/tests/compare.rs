//! Compares machine and model: actions, notifications, answers to waiting clients and answers to queries must be the same.

use super::pair::Pair;
use crate::actors::binding::ToHolder;
use crate::actors::process::model::Actions;
use crate::actors::process::{Phase, ProcessMachine, Query, RecordView, Reply, Selection, View};
use crate::ids::{ActorId, ProcessId};
use crate::spine::effect::Effect;
use crate::spine::machine::{Effects, Machine as _, Observable as _, Paged as _};
use std::collections::BTreeMap;

impl Pair {
    pub(super) fn compare_effects(
        &mut self,
        mut effects: Effects<ProcessMachine>,
        actions: &Actions,
        mut tells: Vec<(ActorId, ToHolder)>,
    ) {
        let (mut acts, mut woken) = (Actions::new(), BTreeMap::new());
        let mut told = Vec::new();
        for effect in effects.take() {
            match effect {
                Effect::Act(action) => acts.push((action.id, action.attempt, action.what)),
                Effect::Wake(ticket, reply) => {
                    assert!(woken.insert(ticket, reply).is_none(), "a wait is answered only once");
                }
                Effect::Tell(to, message) => {
                    let message = rmp_serde::from_slice(&message);
                    told.push((to, message.expect("only holders are notified")));
                    self.note("told");
                }
            }
        }
        let order = |it: &(ActorId, ToHolder)| format!("{it:?}");
        told.sort_by_key(order);
        tells.sort_by_key(order);
        assert_eq!(told, tells, "the watching actors are notified");
        assert_eq!(acts, *actions);
        let waits = self.waits.iter();
        let right = waits.filter_map(|(ticket, watch)| Some((*ticket, self.model.wakes(watch)?)));
        let right: BTreeMap<_, _> = right.collect();
        assert_eq!(woken, right, "waiting clients are answered when their condition is met");
        for ticket in woken.keys() {
            self.waits.remove(ticket);
            self.note("woken");
        }
    }

    /// Compares the view and the answers to queries with the model, and checks all invariants.
    pub(super) fn compare(&mut self) {
        self.machine.assert_whole();
        assert_eq!(self.machine.digest(), self.replica.digest());
        let records = self.model.records.iter();
        let right: View = records.map(|it| (it.view.id, it.view.clone())).collect();
        assert_eq!(self.machine.view(), right);
        for view in right.values().filter(|it| it.phase == Phase::Exited) {
            let was = self.ended.entry(view.id).or_insert_with(|| view.clone());
            // The record of an ended process stays the same, except for what depends on its parent and children, and on its output as a
            // hook.
            let is = RecordView {
                parent: was.parent,
                live_children: was.live_children,
                found: was.found.clone(),
                ..view.clone()
            };
            assert_eq!(*was, is);
        }
        self.compare_totals();
        self.compare_services();
        for by in 0..10 {
            let (by, after) = (ActorId(by), None);
            let told = Query::Watched { by, after };
            assert_eq!(self.look(&told), self.model.answer(&told));
        }
        for view in right.values() {
            self.compare_relatives(view);
        }
        for selection in selections(right.keys().next().copied()) {
            self.compare_list(&selection);
        }
    }

    fn compare_services(&self) {
        let right = Reply::Services(self.model.services_as_shown(self.now));
        assert_eq!(self.look(&Query::Services(None)), right);
    }

    fn compare_totals(&self) {
        let Reply::Totals(totals) = self.look(&Query::Totals) else {
            panic!("a query for totals was not answered with totals");
        };
        let bytes: u64 = self.model.records.iter().map(|it| it.bytes).sum();
        assert_eq!((totals.bytes, totals.contradictions), (bytes, self.model.contradictions));
        let counts = Phase::ALL.map(|phase| totals.of(phase) as usize);
        assert_eq!(counts, self.model.counts());
    }

    fn compare_relatives(&self, view: &RecordView) {
        let of = view.id;
        let one = Reply::Record(Box::new(view.clone()));
        assert_eq!(self.look(&Query::One(of)), one);
        assert_eq!(self.look(&Query::Prefix(of.to_string())), one);
        let above = Reply::Page { records: self.model.ancestors(of), next: None };
        assert_eq!(self.look(&Query::Ancestors(of)), above);
        let found = self.pages(|after| Query::Descendants { of, after, most: 2 });
        assert_eq!(found, self.model.descendants(of));
    }

    fn compare_list(&self, selection: &Selection) {
        let right = self.model.select(selection);
        let found = self.pages(|after| Query::List(Selection { after, ..selection.clone() }));
        assert_eq!(found, right, "{selection:?}");
        let count = Query::Count(selection.clone());
        let counted = self.look(&count);
        assert_eq!(counted, self.model.answer(&count), "{selection:?}");
    }

    fn look(&self, query: &Query) -> Reply {
        self.machine.query(self.now, query)
    }

    /// Returns the records on all pages of the answer to a query.
    fn pages(&self, query: impl Fn(Option<ProcessId>) -> Query) -> Vec<RecordView> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let Reply::Page { records, next } = self.look(&query(after)) else {
                panic!("a query for a list was not answered with a page");
            };
            assert!(records.len() <= 2);
            found.extend(records);
            after = next;
            if next.is_none() {
                return found;
            }
        }
    }
}

/// Returns selections that together use every criterion.
fn selections(of: Option<ProcessId>) -> [Selection; 11] {
    let selection = |newest_first| Selection { newest_first, most: 2, ..Selection::default() };
    [
        selection(false),
        selection(true),
        Selection { parent: of, ..selection(true) },
        Selection { root: of, ..selection(false) },
        Selection { kind: Some("worker".to_owned()), ..selection(false) },
        Selection { phases: vec![Phase::Running, Phase::Stopping], ..selection(true) },
        Selection { phases: vec![Phase::Exited], machine: Some(7), ..selection(false) },
        Selection { text: Some("EXAMPLE".to_owned()), ..selection(false) },
        Selection { text: Some("OO".to_owned()), ..selection(false) },
        Selection { pid: Some(1), ..selection(true) },
        Selection { label: Some(("of".to_owned(), Some("hook".to_owned()))), ..selection(true) },
    ]
}
