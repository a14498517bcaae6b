//! What `sexton replay` shows about the shop: each order's mail, export and lock, each pass of the lease, and how every process ended.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A successful order.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) name: String,
    /// The job that sends its mail.
    pub(super) mail: u64,
    /// The task that exports it.
    pub(super) export: u64,
}

/// What the log contains about the shop.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// Jobs that were added and are not done, with their bodies.
    jobs: BTreeMap<u64, (u64, String)>,
    /// Jobs that were done, with their bodies.
    mails: BTreeMap<u64, String>,
    /// Tasks that are not over, by slot: number and name.
    tasks: BTreeMap<u64, (u64, String)>,
    /// Tasks that are over, with their names and results.
    exports: BTreeMap<u64, (String, String)>,
    /// Locks that are held or waited for, by slot: key, and owner.
    locks: BTreeMap<u64, (String, String)>,
    /// Every owner that has held the lock on the stock.
    had_stock: BTreeSet<String>,
    /// The number of passes that have begun, and the number that have ended.
    passes: (u64, u64),
    /// Processes whose launch was requested, and that have no record yet.
    unseen: BTreeSet<String>,
    /// The number of processes whose launch was requested.
    launched: usize,
    /// The number of processes for each way of ending.
    ends: BTreeMap<String, u64>,
    /// The violations found so far.
    wrong: Vec<String>,
}

fn number(record: &Value, place: &str) -> Option<u64> {
    record.pointer(place)?.as_u64()
}

fn word(record: &Value, place: &str) -> String {
    let found = record.pointer(place).and_then(Value::as_str);
    found.unwrap_or_default().to_owned()
}

impl fmt::Display for Past {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mails, exports, had_stock, passes: (begun, _), launched, ends, .. } = self;
        write!(
            f,
            "in the log: {} mails, {} exports, {} had the stock, {begun} passes, {} launches; processes that ended: {ends:?}",
            mails.len(),
            exports.len(),
            had_stock.len(),
            launched,
        )
    }
}

impl Past {
    /// Reads the lines of `sexton replay --json`, and the state after them.
    pub(super) fn of(log: &str, state: &Value) -> Self {
        let mut past = Self::default();
        for line in log.lines() {
            let record: Value = serde_json::from_str(line).expect("valid JSON");
            match word(&record, "/actor").as_str() {
                "queue" => past.take_queue(&record, line),
                "dispatch" => past.take_dispatch(&record, line),
                "lock" => past.take_lock(&record),
                "lease" => past.take_lease(&record),
                "process" => past.take_process(&record),
                _ => {}
            }
        }
        past.take_state(state);
        past
    }

    fn take_queue(&mut self, record: &Value, line: &str) {
        if let Some(slot) = number(record, "/outcome/put/slot") {
            let id = number(record, "/outcome/put/job/id").expect("a job has an id");
            let job = (id, word(record, "/message/put/body"));
            self.jobs.insert(slot, job);
        }
        if let Some(slot) = number(record, "/outcome/deleted/slot") {
            self.end_job(slot, line);
        }
        // A claim whose worker is gone ends with its command, whose exit status 0 completes the job.
        let ends = record.pointer("/outcome/claims_ended/ends");
        for end in ends.and_then(Value::as_array).into_iter().flatten() {
            if end.pointer("/1") == Some(&"done".into()) {
                self.end_job(number(end, "/0").expect("a slot"), line);
            }
        }
    }

    fn end_job(&mut self, slot: u64, line: &str) {
        match self.jobs.remove(&slot) {
            Some((id, body)) => drop(self.mails.insert(id, body)),
            None => self.wrong.push(format!("a job was done twice: {line}")),
        }
    }

    fn take_dispatch(&mut self, record: &Value, line: &str) {
        let steps = record.pointer("/outcome/changed/steps");
        for step in steps.and_then(Value::as_array).into_iter().flatten() {
            let (Some(slot), Some(step)) = (number(step, "/task/0"), step.pointer("/task/1"))
            else {
                continue;
            };
            if step.get("added").is_some() {
                let id = number(record, "/seq").expect("an entry has one");
                let task = (id, word(record, "/message/add/name"));
                self.tasks.insert(slot, task);
            }
            let verdict = step.pointer("/ended/verdict");
            let Some(over) = verdict.and_then(|it| it.get("ended").or(it.get("failed_out"))) else {
                continue;
            };
            match self.tasks.remove(&slot) {
                Some((id, name)) => {
                    let over = over.as_str().unwrap_or_default().to_owned();
                    self.exports.insert(id, (name, over));
                }
                None => self.wrong.push(format!("a task is over twice: {line}")),
            }
        }
    }

    fn take_lock(&mut self, record: &Value) {
        let mut asked = ["acquire", "hold"].iter();
        let asked = asked.find_map(|it| record.pointer(&format!("/message/{it}")));
        for outcome in ["granted", "queued"] {
            if let (Some(slot), Some(asked)) =
                (number(record, &format!("/outcome/{outcome}/slot")), asked)
            {
                let lock = (word(asked, "/key"), word(asked, "/owner"));
                if outcome == "granted" {
                    self.note_holder(&lock);
                }
                self.locks.insert(slot, lock);
            }
        }
        let gone = record.pointer("/outcome/ended/gone");
        for gone in gone.and_then(Value::as_array).into_iter().flatten() {
            if let Some(slot) = number(gone, "/slot") {
                self.locks.remove(&slot);
            }
            if let Some(heir) = number(gone, "/heir").and_then(|slot| self.locks.get(&slot)) {
                self.note_holder(&heir.clone());
            }
        }
    }

    fn note_holder(&mut self, (key, owner): &(String, String)) {
        if key == "stock" {
            self.had_stock.insert(owner.clone());
        }
    }

    fn take_lease(&mut self, record: &Value) {
        let steps = record.pointer("/outcome/changed/steps");
        for step in steps.and_then(Value::as_array).into_iter().flatten() {
            self.passes.0 += u64::from(step.pointer("/1/began").is_some());
            self.passes.1 += u64::from(step.pointer("/1/ended").is_some());
        }
    }

    /// Notes the launches in an outcome. Outcomes of several kinds have launches, each with the id of its record.
    fn take_process(&mut self, record: &Value) {
        fn launches(within: &Value, found: &mut BTreeSet<String>) {
            match within {
                Value::Array(items) => items.iter().for_each(|it| launches(it, found)),
                Value::Object(members) => {
                    let launched = members.get("launched");
                    let ids = ["/id", "/insertion/id"].iter();
                    let ids = ids.filter_map(|path| launched?.pointer(path)?.as_str());
                    found.extend(ids.map(str::to_owned));
                    members.values().for_each(|it| launches(it, found));
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        if let Some(outcome) = record.get("outcome") {
            launches(outcome, &mut self.unseen);
        }
    }

    /// Notes how each record ended, from the state after the log.
    fn take_state(&mut self, state: &Value) {
        let records = state.pointer("/actors/process/state");
        let records = records.and_then(Value::as_object).expect("there are some");
        self.launched = self.unseen.len();
        for (id, record) in records {
            self.unseen.remove(id);
            // The records of the server and of who started it stay.
            if ["supervisord", "cli"].contains(&word(record, "/kind").as_str()) {
                continue;
            }
            // A process that could not be started has a failure in place of an end.
            let mut ends = ["/end", "/failure"].iter();
            let end = ends.find_map(|it| record.pointer(it).filter(|end| !end.is_null()));
            match (word(record, "/phase").as_str(), end) {
                ("exited", Some(end)) => {
                    *self.ends.entry(end.to_string()).or_default() += 1;
                }
                (phase, _) => {
                    let argv = record.pointer("/argv");
                    self.wrong.push(format!("{id} is {phase}: {argv:?}"));
                }
            }
        }
        for id in &self.unseen {
            self.wrong.push(format!("{id} was launched and has no record"));
        }
    }

    /// Returns the violations: everything that contradicts the orders, happened twice, or has not ended.
    pub(super) fn wrong(&self, orders: &[Order]) -> Vec<String> {
        let mut wrong = self.wrong.clone();
        for order in orders {
            let Order { name, mail, export } = order;
            if self.mails.get(mail) != Some(name) {
                wrong.push(format!("the mail of {order:?} was not sent"));
            }
            let done = (name.clone(), "completed".to_owned());
            if self.exports.get(export) != Some(&done) {
                let came = self.exports.get(export);
                wrong.push(format!("{order:?} was not exported: {came:?}"));
            }
            if !self.had_stock.contains(name) {
                wrong.push(format!("{order:?} was taken without the stock"));
            }
        }
        // No order has two mails or two exports, whether it succeeded or not.
        let bodies: BTreeSet<&String> = self.mails.values().collect();
        if bodies.len() != self.mails.len() {
            wrong.push("an order has two mails".to_owned());
        }
        let names: BTreeSet<&String> = self.exports.values().map(|(name, _)| name).collect();
        if names.len() != self.exports.len() {
            wrong.push("an order has two exports".to_owned());
        }
        let open =
            [format!("{:?}", self.jobs), format!("{:?}", self.tasks), format!("{:?}", self.locks)];
        wrong.extend(open.into_iter().filter(|it| it != "{}"));
        if self.passes.0 != self.passes.1 || self.passes.0 == 0 {
            wrong.push(format!("of passes began and ended: {:?}", self.passes));
        }
        wrong
    }
}
