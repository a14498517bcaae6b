//! The output of hooks, which lists processes that the hook ran, and checks of the records made from it.

use crate::violation::{Promise, Violation, ensure};
use sexton::actors::process::{
    Child, End, HookOutput, Message, Outcome, Phase, RecordView, View, Warning,
};
use sexton::bytes::Bytes;
use sexton::clock::Date;
use sexton::ids::ProcessId;
use std::collections::BTreeMap;

/// The maximum number of processes that a hook ran.
const CHILDREN: u128 = 3;

/// Returns the output of a hook, which is the same each time it is read.
fn printed(hook: ProcessId) -> (Vec<Child>, HookOutput) {
    let count = u32::try_from(hook.0 % (CHILDREN + 1)).expect("they are few");
    let children = (1..=count).map(|nth| Child {
        nth,
        // In the output, each process follows a record of another type.
        line: 2 * nth,
        argv: vec![Bytes::new(format!("fetch{nth}").into_bytes())],
        dir: None,
        pid: (nth > 1).then_some(4000 + nth),
        end: (nth < 3).then_some(End::Code(7)),
        started: None,
        ended: (nth == 1).then_some(Date(5)),
        exact: true,
    });
    let found = HookOutput {
        children: count,
        records: count,
        kept: (0..count).map(|_| Bytes::new(*b"{}")).collect(),
        broken: u32::from(count == 2),
        warnings: (0..u32::from(count == 2)).map(|_| Warning::default()).collect(),
    };
    (children.collect(), found)
}

/// Returns the port's messages about a hook's output. Each process is listed `times` times: once, unless a fault is
/// planted.
pub(super) fn read(hook: ProcessId, times: u32) -> impl Iterator<Item = Message> {
    let (children, found) = printed(hook);
    let count = found.children;
    let times = (0..times).flat_map(move |time| {
        let nth = move |child: Child| Child { nth: child.nth + time * count, ..child };
        children.clone().into_iter().map(nth)
    });
    let children = times.map(move |child| Message::Child { of: hook, child: Box::new(child) });
    let found = Box::new(found);
    children.chain([Message::Found { id: hook, found }])
}

/// The number of processes of each hook that were recorded, or that the rules refused to record, while its output is
/// being read.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorded(BTreeMap<ProcessId, u32>);

impl Recorded {
    /// Checks one entry. Each process in the output is recorded once, in order, and all are recorded before the output
    /// counts as read.
    pub(super) fn follow(&mut self, message: &Message, outcome: &Outcome) -> Result<(), Violation> {
        match (message, outcome) {
            (Message::Child { of, child }, Outcome::Child(_) | Outcome::Declined(_)) => {
                let so_far = self.0.entry(*of).or_default();
                *so_far += 1;
                ensure(child.nth == *so_far, Promise::ChildOnce, || {
                    format!("{so_far} processes of {of} are recorded, the last as {child:?}")
                })?;
                let below = if let Outcome::Child(insertion) = outcome {
                    insertion.parent
                } else {
                    Some(*of)
                };
                ensure(below == Some(*of), Promise::ChildOnce, || {
                    format!("{child:?} of {of} is recorded below {below:?}")
                })
            }
            (Message::Found { id, found }, Outcome::Found { .. }) => {
                let count = self.0.remove(id).unwrap_or(0);
                ensure(count == found.children, Promise::ChildOnce, || {
                    format!("{count} processes of {id} are recorded, of {found:?}")
                })
            }
            _ => Ok(()),
        }
    }
}

/// Checks that no line of a hook's output has two records, and that each record matches its line.
pub(super) fn check_below(records: &View) -> Result<(), Violation> {
    let mut seen = BTreeMap::new();
    for record in records.values().filter(|it| it.kind == "binary") {
        let line = record.labels.iter().find(|(name, _)| name == "line");
        let (Some(hook), Some((_, line))) = (record.parent, line) else {
            continue;
        };
        let (children, _) = printed(hook);
        let mut printed = children.iter();
        let child = printed.find(|it| it.line.to_string() == *line);
        let right = record.phase == Phase::Exited && child.is_some_and(|it| it.argv == record.argv);
        let before = seen.insert((hook, line.clone()), record.id);
        ensure(right && before.is_none(), Promise::ChildOnce, || {
            format!("{child:?} was printed, and there is {before:?} beside {record:?}")
        })?;
    }
    Ok(())
}

/// Checks that the output of a hook that has ended was read. This holds once everything has settled after a startup.
pub(super) fn check_read(record: &RecordView) -> Result<(), Violation> {
    let has_run = record.phase == Phase::Exited && record.end.is_some();
    if !record.is_hook || !has_run {
        return Ok(());
    }
    let (_, found) = printed(record.id);
    // Processes that the rules refused to record are not counted, and cause a warning.
    let right = record.found.as_deref().is_some_and(|it| {
        let is_less = it.children < found.children && it.broken == found.broken + 1;
        *it == found || is_less && (it.records, &it.kept) == (found.records, &found.kept)
    });
    ensure(right, Promise::ChildOnce, || format!("it printed {found:?}: {record:?}"))
}
