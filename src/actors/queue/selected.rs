//! Compares paged and random queries with the model.

use crate::actors::queue::model::Model;
use crate::actors::queue::{
    Choice, JobSelection, JobView, Phase, Query, QueueMachine, QueueName, QueueSelection, Reply,
};
use crate::ids::{ProcessId, Slot};
use crate::spine::machine::{Machine as _, Now};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Checks that the pages of a selection together contain exactly the matching items, and that a randomly chosen queue is
/// one that the model allows.
pub(super) fn compare(machine: &QueueMachine, model: &Model) {
    let queues = model.queues();
    let any = std::iter::once(None);
    for queue in any.chain(queues.iter().take(2).cloned().map(Some)) {
        let failed = [Phase::Retrying, Phase::Abandoned];
        for phases in [&[][..], &failed[..1], &failed] {
            for (kind, error) in [(None, None), (Some("few"), None), (None, Some("broken"))] {
                compare_jobs(machine, model, (queue.as_ref(), kind, phases), (error, None));
            }
        }
    }
    let bound = model.jobs.iter().filter_map(|job| job.view.bound);
    let processes: BTreeSet<ProcessId> = bound.map(|it| it.process).collect();
    for process in processes.into_iter().chain([ProcessId(99)]) {
        compare_jobs(machine, model, (None, None, &[]), (None, Some(process)));
    }
    compare_queues(machine, &queues);
    for kinds in [&[][..], &["few"], &["a", "closed"], &["none"]] {
        compare_choice(machine, model, kinds);
    }
}

fn ask(machine: &QueueMachine, query: &Query) -> Reply {
    machine.query(Now::default(), query)
}

fn compare_jobs(
    machine: &QueueMachine,
    model: &Model,
    (queue, kind, phases): (Option<&QueueName>, Option<&str>, &[Phase]),
    (error, process): (Option<&str>, Option<ProcessId>),
) {
    let lets_through = |view: &JobView| {
        queue.is_none_or(|it| *it == view.queue)
            && kind.is_none_or(|it| it.as_bytes() == view.queue.kind())
            && (phases.is_empty() || phases.contains(&view.phase))
            && process.is_none_or(|it| view.bound.is_some_and(|bound| bound.process == it))
            && error
                .is_none_or(|it| view.error.as_ref().is_some_and(|said| said.as_str().contains(it)))
    };
    let mut expected: Vec<(Slot, JobView)> = model
        .jobs
        .iter()
        .filter(|job| lets_through(&job.view))
        .map(|job| (job.slot, job.view.clone()))
        .collect();
    expected.sort_by_key(|(slot, _)| *slot);
    let expected: Vec<JobView> = expected.into_iter().map(|(_, view)| view).collect();
    let mut found = Vec::new();
    let mut next = Some(Slot(0));
    while let Some(from) = next {
        let selection = JobSelection {
            queue: queue.cloned(),
            kind: kind.map(str::to_owned),
            phases: phases.to_vec(),
            error: error.map(str::to_owned),
            process,
            from,
            most: 2,
        };
        let Reply::JobPage { jobs, next: after } = ask(machine, &Query::SelectJobs(selection))
        else {
            panic!("a selection is answered with a page");
        };
        assert!(jobs.len() <= 2 && after.is_none_or(|after| after > from));
        found.extend(jobs);
        next = after;
    }
    assert_eq!(found, expected, "{queue:?} {phases:?}");
}

fn compare_queues(machine: &QueueMachine, queues: &[QueueName]) {
    for (tenant, kind) in
        [(None, None), (Some("t"), None), (Some(""), Some("few")), (None, Some("few"))]
    {
        let lets_through = |name: &&QueueName| {
            tenant.is_none_or(|it| it.as_bytes() == name.tenant())
                && kind.is_none_or(|it| it.as_bytes() == name.kind())
        };
        let expected: Vec<QueueName> = queues.iter().filter(lets_through).cloned().collect();
        let mut found = Vec::new();
        let mut next = Some(Slot(0));
        while let Some(from) = next {
            let selection = QueueSelection {
                tenant: tenant.map(str::to_owned),
                kind: kind.map(str::to_owned),
                from,
                most: 2,
            };
            let asked = ask(machine, &Query::SelectQueues(selection));
            let Reply::QueuePage { queues, next: after } = asked else {
                panic!("a selection is answered with a page");
            };
            assert!(queues.len() <= 2 && after.is_none_or(|after| after > from));
            for view in &queues {
                let queue = view.name.clone();
                let known = ask(machine, &Query::Queue { queue });
                assert_eq!(known, Reply::Queue(Box::new(view.clone())));
            }
            found.extend(queues.into_iter().map(|view| view.name));
            next = after;
        }
        found.sort();
        assert_eq!(found, expected, "{tenant:?} {kind:?}");
    }
}

fn compare_choice(machine: &QueueMachine, model: &Model, kinds: &[&str]) {
    let is_ready = |queue: &&QueueName| {
        let kind = std::str::from_utf8(queue.kind()).expect("a queue name should be ASCII");
        let of_types = kinds.is_empty() || kinds.contains(&kind);
        let has_job = !model.line(queue, Phase::Ready).is_empty();
        of_types && has_job && !model.is_shut(queue) && kind != "closed"
    };
    let ready: Vec<QueueName> = model.queues().iter().filter(is_ready).cloned().collect();
    let kinds = kinds.iter().map(|kind| kind.as_bytes().to_vec());
    let kinds = Arc::new(kinds.collect());
    let choice = Choice { chance: model.next_id, kinds, from: 0, among: 0 };
    let Reply::Chosen { queue, among, next } = ask(machine, &Query::Next(choice)) else {
        panic!("`Query::Next` is answered with `Reply::Chosen`");
    };
    assert_eq!(next, None, "few queues need only one query");
    assert_eq!((queue.is_some(), among > 0), (!ready.is_empty(), !ready.is_empty()));
    if let Some(queue) = queue {
        assert!(ready.contains(&queue), "{queue} of {ready:?}");
    }
}
