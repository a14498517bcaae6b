//! Compares the machine with its model: every query must give the same answer, and every invariant must hold.

use crate::actors::queue::selected;
use crate::actors::queue::tests::Pair;
use crate::actors::queue::{Order, Phase, Query, QueueName, Reply};
use crate::ids::Slot;
use crate::spine::machine::{Machine as _, Observable as _, Paged as _, Timed as _};

impl Pair {
    /// Compares the answers to all queries, and checks all invariants.
    pub(super) fn compare(&mut self) {
        let told = std::mem::take(&mut self.told);
        assert_eq!(
            told,
            std::mem::take(&mut self.model.told),
            "the machine sends the `ProcessActor` the same messages as the model"
        );
        self.machine.assert_whole();
        assert_eq!(self.replica.digest(), self.machine.digest(), "a replica has the same state");
        let ask = |query| self.machine.query(self.both(), &query);
        for job in &self.model.jobs {
            let id = job.view.id;
            assert_eq!(ask(Query::Job { id }), Reply::Job(Box::new(self.model.shown(job))));
        }
        let queues = self.model.queues();
        let Reply::Queues { mut names, .. } = ask(Query::Queues { from: Slot(0) }) else {
            panic!("`Query::Queues` is answered with `Reply::Queues`");
        };
        names.sort();
        assert_eq!(names, queues);
        for id in 1..self.model.next_id {
            assert_eq!(ask(Query::Result { id }), self.model.result(id));
        }
        for queue in &queues {
            self.compare_queue(queue);
        }
        selected::compare(&self.machine, &self.model);
        let (clock, line) = self.machine.state.turns.in_line();
        let tenants = self.model.turns.tenants.iter();
        let right: Vec<(&[u8], u64)> =
            tenants.map(|(name, from)| (name.as_slice(), *from)).collect();
        assert_eq!(
            (clock, line),
            (self.model.turns.clock, right),
            "tenants are in the same order as in the model"
        );
        let Reply::Totals(totals) = ask(Query::Totals) else {
            panic!("`Query::Totals` is answered with `Reply::Totals`");
        };
        assert_eq!(totals.jobs, self.model.counts(None));
        assert_eq!(totals.bytes, self.model.bytes());
        assert_eq!(totals.waiting as usize, self.model.waiters.len());
        assert_eq!(totals.draining, self.model.draining);
        assert_eq!(self.machine.view().next_id, self.model.next_id);
        let jobs = self.model.jobs.iter().filter_map(|job| self.model.ends(job));
        let pauses = self.model.pauses.iter();
        let pauses = pauses.map(|pause| self.model.time(pause.until));
        let closings = self.model.closings.iter().map(|(_, opens)| *opens);
        if let Some(first) = jobs.chain(pauses).chain(closings).min() {
            let said = self.machine.deadline(self.model.offset);
            assert!(
                said.is_some_and(|said| said <= first),
                "no item is due before the reported deadline"
            );
        }
    }

    fn compare_queue(&self, name: &QueueName) {
        let ask = |query| self.machine.query(self.both(), &query);
        let Reply::Queue(view) = ask(Query::Queue { queue: name.clone() }) else {
            panic!("{name} does not exist");
        };
        assert_eq!((&view.name, view.jobs), (name, self.model.counts(Some(name))));
        let pause = self.model.pauses.iter().find(|pause| pause.queue == *name);
        assert_eq!(view.pause_ms, pause.map_or(0, |pause| pause.ms));
        let ends = pause.map(|pause| self.model.time(pause.until));
        assert_eq!(view.paused_until, ends);
        let closings = self.model.closings.iter();
        let closings = closings.filter(|(queue, _)| queue == name);
        assert_eq!(view.throttled_until, closings.map(|(_, at)| *at).max());
        let waiting = self.model.waiters.iter();
        let waiting = waiting.filter(|(_, pop)| pop.queues.contains(name)).count();
        let using = self.model.present.iter();
        let using = using.filter(|(_, using, _)| using == name).count();
        let watching = self.model.present.iter();
        let watching = watching.filter(|(.., watching)| watching.contains(name)).count();
        let people = [view.waiting, view.using, view.watching].map(|count| count as usize);
        assert_eq!(people, [waiting, using, watching]);
        for phase in [Phase::Ready, Phase::Delayed, Phase::Buried] {
            let line = self.model.kickable(name, phase);
            let queue = name.clone();
            let found = ask(Query::PeekNext { queue, phase });
            let found = if let Reply::Found(id, _) = found { Some(id) } else { None };
            let chance = self.model.rules.default.order == Order::Random && phase == Phase::Ready;
            if chance {
                assert_eq!(found.is_some(), !line.is_empty());
            } else {
                assert_eq!(found, line.first().copied(), "the next {phase:?} job");
            }
        }
    }
}
