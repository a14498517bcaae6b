//! A node with an example of everything, and the views that show it.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::patience::until;
use crate::served::{Served, run};
use percent_encoding::NON_ALPHANUMERIC;
use serde_json::{Value, json};
use sexton::actors::dispatch::Act;
use sexton::actors::process::{Definition, Phase, Policy, Selection};
use sexton::bytes::Bytes;
use sexton::config::KeeperProgram;
use sexton::handle::Stopping;

const ERROR: &str = "SMTP 451 4.7.1 greylisted, try again later";

/// Name and path of each view, and texts that it must show.
const VIEWS: [(&str, &str, &[&str]); 14] = [
    (
        "now",
        "/",
        &[
            "Jobs failed",
            "Tasks failed",
            "Service failed",
            "account:42",
            "shop:mail",
            "sync",
            "Tasks that have waited longest",
            "is under way",
            "Processes running",
        ],
    ),
    (
        "locks",
        "/page/locks",
        &["account:42", "worker-7", "waits, 1", "waits, 2", "sync", "running"],
    ),
    (
        "lock",
        "/page/lock?key=account%3A42",
        &["Held by worker-7", "worker-2", "granted", "Release by force"],
    ),
    ("lease", "/page/lease?name=sync", &["sync", "Next pass not before", "running"]),
    ("queues", "/page/queues", &["shop", "mail", "thumbnails", "billing", "invoices"]),
    ("queue", "/page/queue?queue=shop%3Amail", &["shop:mail", "Failed jobs", ERROR, "Pause"]),
    ("jobs", "/page/jobs", &["Failed jobs", ERROR, "abandoned", "buried", "Yes, delete them"]),
    ("job", "/page/job?id=JOB", &["to: ann@example.org", ERROR, "Retry", "abandoned"]),
    ("processes", "/page/processes", &["Services", "web", "mailer", "failed", "import", "└"]),
    (
        "process",
        "/page/process?id=PROCESS",
        &["import", "customers read", "Standard output", "Started by this process", "Stop"],
    ),
    (
        "tasks",
        "/page/tasks",
        &["deploy eu-1", "is under way", "user-error", "Servers", "local", "Groups", "deploys"],
    ),
    (
        "task",
        "/page/task?id=TASK",
        &["deploy us-1", "Ended: user-error", "exit 9", "no route to host", "Run again"],
    ),
    ("events", "/page/events", &["granted", "waiting", "account:42", "lock", "queue"]),
    ("then", "/page/then", &["State after entry", "Entries around it", "Digest", "account:42"]),
];

/// A view, its path, and texts that it must show.
pub(crate) struct View {
    /// The name of its screenshots.
    pub(crate) name: &'static str,
    pub(crate) path: String,
    pub(crate) words: &'static [&'static str],
}

pub(crate) struct Furnished {
    pub(crate) served: Served,
    /// Ids of abandoned jobs.
    pub(crate) abandoned: [u64; 2],
    /// The id of a claimed job.
    pub(crate) claimed: u64,
    /// The id of a failed task.
    pub(crate) failed: u64,
    /// The id of a task that waits for the running one.
    pub(crate) waiting: u64,
    running: u64,
    /// The id of a running process with a child.
    pub(crate) process: String,
}

impl Furnished {
    pub(crate) fn new() -> Self {
        let served = Served::with_tokens(|config| {
            config.keeper = KeeperProgram::At(env!("CARGO_BIN_EXE_sexton").into());
            config.services = services();
        });
        // Events are recorded from the first request for them on.
        drop(run(served.handle().events(None)).expect("the node answers"));
        locks(&served);
        let (abandoned, claimed) = jobs(&served);
        let process = processes(&served);
        let [failed, running, waiting] = tasks(&served);
        Self { served, abandoned, claimed, failed, waiting, running, process }
    }

    /// Returns every view.
    pub(crate) fn views(&self) -> Vec<View> {
        let ids = [
            ("JOB", self.abandoned[0].to_string()),
            ("PROCESS", self.process.clone()),
            ("TASK", self.failed.to_string()),
        ];
        let view = |&(name, path, words): &(&'static str, &str, &'static [&'static str])| View {
            name,
            path: ids.iter().fold(path.to_owned(), |path, (of, id)| path.replace(of, id)),
            words,
        };
        VIEWS.iter().map(view).collect()
    }

    /// Creates something of every kind with each of these names. Returns the paths of the views that show it, with the
    /// name.
    pub(crate) fn name<'n>(&self, names: [&'n str; 2]) -> Vec<(String, &'n str)> {
        let served = &self.served;
        let mut paths = Vec::new();
        for name in names {
            let link = percent_encoding::utf8_percent_encode(name, NON_ALPHANUMERIC);
            for owner in [name, "two"] {
                served.lock(name.as_bytes(), owner.as_bytes());
            }
            served.post("/v1/leases/set", &json!({"name": name, "period_ms": 3_600_000}));
            served.post("/v1/leases/claim", &json!({"name": name, "ttl_ms": 3_600_000}));
            served.push("named", &[name]);
            let job = fail(served, "named", name);
            let launch = json!({"command": ["true", name], "labels": {"for": name}});
            let process = served.post("/v1/processes/launch", &launch)["id"].clone();
            let task = json!({"launch": launch, "name": name, "group": name, "work": name});
            let task = served.post("/v1/tasks/add", &task)["id"].clone();
            let process = process.as_str().expect("a string");
            let all = [
                "/".to_owned(),
                "/page/locks".to_owned(),
                format!("/page/lock?key={link}"),
                format!("/page/lease?name={link}"),
                "/page/jobs".to_owned(),
                format!("/page/job?id={job}"),
                "/page/processes?status=all".to_owned(),
                format!("/page/process?id={process}"),
                "/page/tasks".to_owned(),
                format!("/page/task?id={task}"),
                "/page/events".to_owned(),
            ];
            paths.extend(all.map(|path| (path, name)));
        }
        paths
    }
}

impl Drop for Furnished {
    fn drop(&mut self) {
        // Stop all processes: no child process may outlive the test.
        let handle = self.served.handle();
        let kill = Stopping { signal: None, grace_ms: Some(0), tree: true };
        let end = Act::Terminate { now: true };
        drop(run(handle.tasks().act(self.running, end)));
        drop(run(handle.services().stop(None)));
        let live = Selection {
            phases: vec![Phase::Queued, Phase::Running],
            most: 100,
            ..Selection::default()
        };
        let listed = || run(handle.processes().list(live.clone())).unwrap_or_default().0;
        let records = listed();
        for record in records {
            drop(run(handle.processes().stop(record.id, kill)));
        }
        if !std::thread::panicking() {
            until("the end of what was started", || {
                // The records of the node's own process and of the one that started it stay.
                listed().iter().all(|it| !it.launched).then_some(())
            });
        }
    }
}

fn services() -> Vec<Definition> {
    let service = |name: &str, script: &str| {
        let mut service =
            Definition { name: name.to_owned(), restart: Policy::Never, ..Definition::default() };
        service.spec.argv = ["sh", "-c", script].map(|it| Bytes::new(it.as_bytes())).into();
        service
    };
    vec![
        service("web", "exec sleep 1000"),
        service("mailer", "echo 'no such host: smtp.example.org' >&2; exit 3"),
    ]
}

fn locks(served: &Served) {
    for owner in ["worker-7", "worker-2", "worker-5"] {
        served.lock(b"account:42", owner.as_bytes());
    }
    served.lock(b"report", b"alice");
    served.lock(b"backup", b"nightly");
    served.lock(b"backup", b"manual");
    served.post("/v1/leases/set", &json!({"name": "sync", "period_ms": 3_600_000}));
    served.post("/v1/leases/claim", &json!({"name": "sync", "ttl_ms": 3_600_000}));
    let schedule = json!({"name": "nightly-report", "schedule": "30 3 * * *", "launch": {"command": ["true"]}});
    served.post("/v1/leases/set", &schedule);
}

/// Claims a job, for longer than a test takes. Returns its id and token.
fn claim(served: &Served, queue: &str) -> (u64, Value) {
    let asked = json!({"queues": [queue], "claim_ms": 3_600_000});
    let popped = served.post("/v1/queues/pop", &asked);
    let job = &popped["jobs"][0];
    (job["id"].as_u64().expect("a number"), job["token"].clone())
}

/// Claims a job and makes it fail permanently. Returns its id.
fn fail(served: &Served, queue: &str, error: &str) -> u64 {
    let (id, token) = claim(served, queue);
    let fails = json!({"id": id, "token": token, "error": error, "retry_after_ms": 600_000});
    served.post("/v1/queues/fail", &fails);
    served.post("/v1/queues/cancel", &json!({"id": id, "error": error}));
    id
}

fn jobs(served: &Served) -> ([u64; 2], u64) {
    served.push("shop:mail", &["to: ann@example.org"; 14]);
    served.push("shop:thumbnails", &["photo 4711"; 3]);
    served.push("billing:invoices", &["invoice 17", "invoice 18"]);
    served.push("archive:old", &["a"]);
    served.push("cleanup", &["b"]);
    let abandoned = [(), ()].map(|()| fail(served, "shop:mail", ERROR));
    for queue in ["billing:invoices", "archive:old"] {
        let (id, token) = claim(served, queue);
        served.post("/v1/queues/bury", &json!({"id": id, "token": token}));
    }
    let (claimed, _) = claim(served, "shop:mail");
    (abandoned, claimed)
}

fn processes(served: &Served) -> String {
    let script = "echo '1,250 customers read'; echo 'one has no address' >&2; exec sleep 600";
    let launch =
        json!({"command": ["sh", "-c", script], "type": "import", "labels": {"branch": "main"}});
    let parent = served.post("/v1/processes/launch", &launch);
    let parent = parent["id"].as_str().expect("a string").to_owned();
    let below = json!({"command": ["sleep", "600"], "parent": parent});
    served.post("/v1/processes/launch", &below);
    parent
}

fn tasks(served: &Served) -> [u64; 3] {
    let add = |name: &str, work: &str, script: &str| {
        let launch = json!({"command": ["sh", "-c", script]});
        let task = json!({"launch": launch, "name": name, "group": "deploys", "work": work});
        let added = served.post("/v1/tasks/add", &task);
        added["id"].as_u64().expect("a number")
    };
    let failed = add("deploy us-1", "us-1", "echo 'ssh: us-1: no route to host' >&2; exit 9");
    let over = run(served.handle().tasks().over(failed));
    over.expect("it fails");
    let running = add("deploy eu-1", "eu-1", "exec sleep 600");
    until("it runs", || {
        let task = run(served.handle().tasks().get(running)).expect("it exists");
        (task.task.status.name() == "processing").then_some(())
    });
    let waiting = add("deploy eu-1 again", "eu-1", "true");
    [failed, running, waiting]
}
