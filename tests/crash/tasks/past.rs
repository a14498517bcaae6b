//! What the journal contains about tasks: how many of a group, and of a work id, were in progress at the same time.

use serde_json::Value;
use std::collections::BTreeMap;

/// The parts of a task that matter here.
#[derive(Clone, Debug, Default)]
struct TrackedTask {
    group: String,
    work: String,
    under_way: bool,
    has_attempt: bool,
}

/// The entries read so far.
#[derive(Default)]
pub(super) struct Past {
    /// By slot.
    tasks: BTreeMap<u64, TrackedTask>,
    /// The maximum number of tasks that were in progress at the same time.
    pub(super) most: usize,
    /// The violations.
    pub(super) wrong: Vec<String>,
    group_max: usize,
}

impl Past {
    /// Reads the lines of `sexton replay --json`.
    pub(super) fn of(log: &str, group_max: usize) -> Self {
        let mut past = Self { group_max, ..Self::default() };
        for line in log.lines() {
            let record: Value = serde_json::from_str(line).expect("valid JSON");
            if record.pointer("/actor") == Some(&"dispatch".into()) {
                past.take(&record, line);
            }
        }
        past
    }

    fn take(&mut self, record: &Value, line: &str) {
        let steps = record.pointer("/outcome/changed/steps");
        for step in steps.and_then(Value::as_array).into_iter().flatten() {
            let slot = step.pointer("/task/0").and_then(Value::as_u64);
            let (Some(slot), Some(step)) = (slot, step.pointer("/task/1")) else {
                continue;
            };
            let is = |word: &str| step.get(word).is_some() || step.as_str() == Some(word);
            if is("added") {
                let name = |path| record.pointer(path).and_then(Value::as_str).unwrap_or("");
                let known = TrackedTask {
                    group: name("/message/add/group").to_owned(),
                    work: name("/message/add/work").to_owned(),
                    ..TrackedTask::default()
                };
                self.tasks.insert(slot, known);
            } else if is("forgotten") {
                self.tasks.remove(&slot);
            } else if is("claimed") {
                self.begin(slot, line);
            } else if is("ended") || is("blocked") || is("over") {
                let verdict = step.pointer("/ended/verdict");
                let goes_on = is("blocked")
                    || verdict.is_some_and(|it| *it == "waits" || it.get("reset").is_some());
                if let Some(task) = self.tasks.get_mut(&slot) {
                    (task.has_attempt, task.under_way) = (false, goes_on);
                }
            }
        }
    }

    fn begin(&mut self, slot: u64, line: &str) {
        let Some(task) = self.tasks.get_mut(&slot) else {
            self.wrong.push(format!("of no task: {line}"));
            return;
        };
        if std::mem::replace(&mut task.has_attempt, true) {
            self.wrong.push(format!("a second attempt: {line}"));
        }
        task.under_way = true;
        let task = task.clone();
        let under_way = || self.tasks.values().filter(|it| it.under_way);
        let of_group = under_way().filter(|it| it.group == task.group).count();
        let of_work = under_way().filter(|it| it.work == task.work).count();
        self.most = self.most.max(under_way().count());
        if of_group > self.group_max {
            self.wrong.push(format!("{of_group} of a group: {line}"));
        }
        if !task.work.is_empty() && of_work > 1 {
            self.wrong.push(format!("{of_work} of a work id: {line}"));
        }
    }
}

#[test]
fn too_many_of_a_group_or_a_work_id_are_found() {
    let add = |slot: u64, work: &str| {
        format!(
            r#"{{"actor":"dispatch","message":{{"add":{{"group":"g","work":"{work}"}}}},"outcome":{{"changed":{{"steps":[{{"task":[{slot},{{"added":{{}}}}]}}]}}}}}}"#
        )
    };
    let step = |slot: u64, step: &str| {
        format!(
            r#"{{"actor":"dispatch","message":"dispatch","outcome":{{"changed":{{"steps":[{{"task":[{slot},{step}]}}]}}}}}}"#
        )
    };
    let claimed = r#"{"claimed":{"server":0}}"#;
    let ended = r#"{"ended":{"verdict":{"ended":"completed"}}}"#;
    let waits = r#"{"ended":{"verdict":"waits"}}"#;
    let wrong = |lines: &[String]| Past::of(&lines.join("\n"), 1).wrong.len();
    let both = [add(0, "a"), add(1, "b")];
    let all = |more: &[String]| wrong(&[&both[..], more].concat());
    assert_eq!(all(&[step(0, claimed), step(0, ended), step(1, claimed)]), 0);
    assert_eq!(all(&[step(0, claimed), step(0, waits), step(1, claimed)]), 1);
    assert_eq!(all(&[step(0, claimed), step(1, claimed)]), 1);
    assert_eq!(all(&[step(0, claimed), step(0, claimed)]), 1);
    assert_eq!(wrong(&[step(0, claimed)]), 1);
    let same = [add(0, "a"), add(1, "a"), step(0, claimed), step(1, claimed)];
    assert_eq!(Past::of(&same.join("\n"), 2).wrong.len(), 1);
}
