//! What the journal contains about jobs, compared with the notes of their commands: each added job ended once, by a claim under which
//! its command completed; and none waited longer than its back-off.

use crate::work::notes::NotesReader;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A job that will be tried again.
struct Waiting {
    since: u64,
    until: u64,
}

/// The entries read so far.
#[derive(Default)]
pub(super) struct Past {
    /// Jobs that were added, and not yet done.
    open: BTreeSet<u64>,
    /// Jobs that were done, with their claims.
    pub(super) done: BTreeMap<u64, u64>,
    /// The id of the job in each slot. A new job is put into the lowest free one.
    slots: BTreeMap<u64, u64>,
    /// The token of the last claim of the job in each slot.
    claims: BTreeMap<u64, u64>,
    /// By slot.
    waiting: BTreeMap<u64, Waiting>,
    /// How often a job waited for a retry.
    pub(super) retried: u64,
    /// The violations.
    pub(super) wrong: Vec<String>,
}

fn number(record: &Value, place: &str) -> Option<u64> {
    record.pointer(place)?.as_u64()
}

impl Past {
    /// Reads the lines of `sexton replay --json`.
    pub(super) fn of(log: &str) -> Self {
        let mut past = Self::default();
        for line in log.lines() {
            let record: Value = serde_json::from_str(line).expect("valid JSON");
            if record.pointer("/mark/start").is_some() {
                past.start(number(&record, "/at").unwrap_or(0));
            } else if record.pointer("/actor") == Some(&"queue".into()) {
                past.take(&record, line);
            }
        }
        past
    }

    /// Handles a restart of the server, after which every back-off begins again in full.
    fn start(&mut self, at: u64) {
        for waiting in self.waiting.values_mut() {
            waiting.until = at + (waiting.until - waiting.since);
            waiting.since = at;
        }
    }

    fn take(&mut self, record: &Value, line: &str) {
        let at = number(record, "/at").unwrap_or(0);
        let slot = |outcome: &str| number(record, &format!("/outcome/{outcome}/slot"));
        let mut is_due = false;
        if let Some(slot) = slot("ready") {
            is_due = true;
            self.waiting.remove(&slot);
        }
        // A job that is due becomes ready before any other entry is written.
        let is_late = |waiting: &Waiting| waiting.until < at;
        if !is_due && self.waiting.values().any(is_late) {
            self.wrong.push(format!("a job is late before {line}"));
        }
        for outcome in ["failed", "deferred"] {
            if let (Some(slot), Some(until)) =
                (slot(outcome), number(record, &format!("/outcome/{outcome}/until")))
            {
                self.retried += 1;
                self.waiting.insert(slot, Waiting { since: at, until });
            }
        }
        let placed = record.pointer("/outcome/batch/placed");
        let placed = placed.and_then(Value::as_array).into_iter().flatten();
        for id in placed.filter_map(|placed| number(placed, "/new/id")) {
            let free = (0..=u64::MAX).find(|slot| !self.slots.contains_key(slot));
            self.slots.extend(free.map(|slot| (slot, id)));
            self.open.insert(id);
        }
        if let (Some(slot), Some(seq)) = (slot("claimed"), number(record, "/seq")) {
            self.claims.insert(slot, seq);
        }
        if let Some(slot) = slot("deleted") {
            self.slots.remove(&slot);
            self.end(record, line);
        }
        let ends = record.pointer("/outcome/claims_ended/ends");
        for end in ends.and_then(Value::as_array).into_iter().flatten() {
            self.end_claim(end, (at, line));
        }
    }

    /// Handles the end of a claim whose process is gone: with exit status 0 of its command, the job is done.
    fn end_claim(&mut self, end: &Value, (at, line): (u64, &str)) {
        let slot = number(end, "/0").unwrap_or(u64::MAX);
        if let Some(until) = number(end, "/1/retried/until") {
            self.retried += 1;
            self.waiting.insert(slot, Waiting { since: at, until });
        }
        if end.pointer("/1") == Some(&"done".into()) {
            let (id, claim) = (self.slots.remove(&slot), self.claims.get(&slot));
            match (id, claim) {
                (Some(id), Some(claim)) if self.open.remove(&id) => {
                    self.done.insert(id, *claim);
                }
                _ => self.wrong.push(format!("none is there to be done: {line}")),
            }
        }
    }

    fn end(&mut self, record: &Value, line: &str) {
        let id = number(record, "/message/delete/id");
        let claim = number(record, "/message/delete/by/token");
        match (id, claim) {
            (Some(id), Some(claim)) if self.open.remove(&id) => {
                self.done.insert(id, claim);
            }
            _ => self.wrong.push(format!("none is there to be done: {line}")),
        }
    }

    /// Compares with the notes of commands: no acknowledged job is lost, and each completed job has a completed command.
    pub(super) fn judge(&mut self, acked: &BTreeSet<u64>, noted: &NotesReader) {
        let lost = acked.iter().filter(|id| !self.done.contains_key(id));
        self.wrong.extend(lost.map(|id| format!("job {id} is lost")));
        let left = self.open.iter();
        self.wrong.extend(left.map(|id| format!("job {id} is left")));
        for (id, claim) in &self.done {
            let ended = noted.ended.get(id);
            if !ended.is_some_and(|claims| claims.contains(claim)) {
                self.wrong.push(format!("job {id} is done under {claim}, and was not"));
            }
        }
    }
}

#[test]
fn what_is_lost_or_late_or_done_without_an_end_is_found() {
    const ADDED: &str = r#"{"at":1,"actor":"queue","message":{},"outcome":{"batch":{"placed":[{"new":{"id":7}}]}}}"#;
    const FAILED: &str =
        r#"{"at":5,"actor":"queue","message":{},"outcome":{"failed":{"slot":0,"until":15}}}"#;
    const READY: &str = r#"{"at":16,"actor":"queue","message":{},"outcome":{"ready":{"slot":0}}}"#;
    const START: &str = r#"{"at":100,"actor":"node","mark":{"start":{}}}"#;
    const DONE: &str = r#"{"at":17,"actor":"queue","message":{"delete":{"id":7,"by":{"token":3}}},"outcome":{"deleted":{"slot":0}}}"#;
    const CLAIMED: &str =
        r#"{"at":2,"seq":3,"actor":"queue","message":{},"outcome":{"claimed":{"slot":0}}}"#;
    const GONE: &str = r#"{"at":17,"actor":"queue","message":{},"outcome":{"claims_ended":{"ends":[[0,"done"]]}}}"#;
    let noted = |text: &str| {
        let mut noted = NotesReader::of(std::path::Path::new(""));
        noted.take(text);
        noted
    };
    let wrong = |log: &[&str], text: &str| {
        let mut past = Past::of(&log.join("\n"));
        past.judge(&BTreeSet::from([7]), &noted(text));
        past.wrong
    };
    let none = Vec::<String>::new();
    assert_eq!(wrong(&[ADDED, FAILED, READY, DONE], "end 7 2 3 9\n"), none);
    assert_eq!(wrong(&[ADDED, CLAIMED, GONE], "end 7 2 3 9\n"), none);
    assert_eq!(wrong(&[ADDED, CLAIMED, GONE], "end 7 2 4 9\n").len(), 1);
    // Violations: lost; left unfinished, and so lost, too; completed under another claim; done twice; not ready when due.
    assert_eq!(wrong(&[], "end 7 2 3 9\n").len(), 1);
    assert_eq!(wrong(&[ADDED], "end 7 2 3 9\n").len(), 2);
    assert_eq!(wrong(&[ADDED, DONE], "end 7 2 4 9\n").len(), 1);
    assert_eq!(wrong(&[ADDED, DONE, DONE], "end 7 2 3 9\n").len(), 1);
    assert_eq!(wrong(&[ADDED, FAILED, DONE], "end 7 2 3 9\n").len(), 1);
    // After a restart, the job waits for its whole back-off again, but no longer.
    let late = READY.replace("16", "111");
    let before = DONE.replace("17", "110");
    assert_eq!(wrong(&[ADDED, FAILED, START, &before, &late], "end 7 2 3 9\n"), none);
    let after = DONE.replace("17", "112");
    assert_eq!(wrong(&[ADDED, FAILED, START, &after], "end 7 2 3 9\n").len(), 1);
    // A job begins only once under one claim, and `beside` lines are violations, too.
    assert_eq!(noted("begin 7 1 3 9\nbegin 7 1 4 9\n").wrong, none);
    assert_eq!(noted("begin 7 1 3 9\nbegin 7 1 3 9\nbeside 7 1\n").wrong.len(), 2);
}
