//! Idempotency keys through the handles of the library: a request that is repeated with its key is done once, whatever the request. A method
//! without a case here fails the test.

mod requests;

use crate::patience::until;
use serde::{Deserialize, Serialize};
use sexton::actors::dispatch::{Act, NewTask};
use sexton::actors::lease::{Claim, PassRequest};
use sexton::actors::lock::Name;
use sexton::actors::process::{Launching, Phase, Selection, Spec};
use sexton::actors::queue::{Body, Claim as Claimed, Put, QueueName};
use sexton::bytes::Bytes;
use sexton::config::KeeperProgram;
use sexton::handle::{Attempt, Entry, Job, JobError, Stopping, Terms};
use sexton::ids::{ActorId, ProcessId, RequestKey, Token};
use sexton::node::Handle;
use sexton::{Config, Node, block_on};
use std::fmt::Debug;
use std::sync::Arc;

/// The handles, with the parts of their source that may have methods of theirs.
const HANDLES: [(&str, &str); 9] = [
    ("Locks", include_str!("../../../src/handle/locks.rs")),
    ("Queues", include_str!("../../../src/handle/queues.rs")),
    ("Queues", include_str!("../../../src/handle/claimed.rs")),
    ("Queues", include_str!("../../../src/handle/pop.rs")),
    ("Queues", include_str!("../../../src/handle/results.rs")),
    ("Queues", include_str!("../../../src/handle/work.rs")),
    ("Processes", include_str!("../../../src/handle/processes.rs")),
    ("Tasks", include_str!("../../../src/handle/tasks.rs")),
    ("Leases", include_str!("../../../src/handle/leases.rs")),
];

/// Methods that change nothing which is kept, so that their requests carry no key, and those that cannot be tried here.
const KEYLESS: [&str; 60] = [
    "Leases::active",
    "Leases::begun",
    "Leases::begun_from",
    "Leases::ended",
    "Leases::failed",
    "Leases::get",
    "Leases::list",
    "Leases::totals",
    "Leases::turn",
    "Leases::unwell",
    "Leases::whole",
    // The items of a batch have keys of their own.
    "Locks::batch",
    "Locks::contended",
    "Locks::list",
    "Locks::lost",
    "Locks::owner",
    "Locks::place",
    "Locks::select",
    "Processes::ancestors",
    "Processes::below",
    "Processes::count",
    "Processes::descendants",
    "Processes::each",
    "Processes::ended",
    "Processes::find",
    "Processes::get",
    "Processes::keeper",
    "Processes::leader_ended",
    "Processes::left",
    "Processes::list",
    "Processes::reconcile",
    // It takes an orphan that may belong to any tree, and so would put the trees of all nodes of the machine in doubt.
    "Processes::settle",
    "Processes::spec",
    "Processes::started",
    "Processes::totals",
    "Processes::usage",
    "Queues::batch",
    "Queues::busiest",
    "Queues::counts",
    "Queues::job",
    "Queues::job_with_body",
    "Queues::next",
    "Queues::queue",
    "Queues::result",
    "Queues::result_waiting",
    "Queues::select_jobs",
    "Queues::select_queues",
    "Queues::totals",
    "Queues::withdraw",
    "Tasks::active",
    "Tasks::get",
    "Tasks::groups",
    "Tasks::list",
    "Tasks::over",
    "Tasks::saved",
    "Tasks::servers",
    "Tasks::servers_wanted",
    "Tasks::set_rules",
    "Tasks::terms",
    "Tasks::totals",
];

/// Returns the names of the asynchronous methods of all handles.
fn methods() -> Vec<String> {
    let mut found = Vec::new();
    for (handle, source) in HANDLES {
        let mut is_of_handle = false;
        for line in source.lines() {
            if line.starts_with("impl") {
                is_of_handle = line == format!("impl {handle} {{");
            }
            if let Some(rest) = line.strip_prefix("    pub async fn ").filter(|_| is_of_handle) {
                let name = rest.split(['(', '<']).next().unwrap_or_default();
                found.push(format!("{handle}::{name}"));
            }
        }
    }
    found
}

/// A job type of the library.
#[derive(Serialize, Deserialize)]
struct Pushed;

impl Job for Pushed {
    const TYPE: &'static str = "pushed";

    async fn run(self, _: Attempt) -> Result<(), JobError> {
        Ok(())
    }
}

/// A request, which is sent with the key that it is given. It returns what its answer names.
type Request = Box<dyn Fn(RequestKey) -> String>;

/// A node, and what the requests are about.
#[derive(Clone)]
struct Fixture {
    handle: Handle,
    /// A process that runs as long as the test.
    process: ProcessId,
}

fn name(text: &str) -> Name {
    text.try_into().expect("a short name")
}

fn named(text: &str) -> QueueName {
    text.try_into().expect("a valid name")
}

fn spec(argv: &[&str]) -> Spec {
    Spec {
        argv: argv.iter().map(|word| Bytes::new(word.as_bytes())).collect(),
        dir: Bytes::new(b"/".as_slice()),
        ..Spec::default()
    }
}

fn launching(argv: &[&str]) -> Launching {
    Launching { spec: spec(argv), ..Launching::default() }
}

fn task(argv: &[&str], paused: bool) -> NewTask {
    NewTask { command: Arc::new(launching(argv)), paused, ..NewTask::default() }
}

/// Waits for the answer to a request, which must be successful.
fn done<T, E: Debug>(answer: impl Future<Output = Result<T, E>>) -> T {
    block_on(answer).expect("the request is carried out")
}

/// Returns what an answer names.
fn shown(answer: &impl Debug) -> String {
    format!("{answer:?}")
}

impl Fixture {
    /// Adds a job to a queue. Returns its id.
    fn added(&self, queue: &str) -> u64 {
        let put = Put::new(named(queue), Body::new(*b"x"));
        done(self.handle.queues().put(put)).id
    }

    fn claimed(&self, queue: &str) -> Claimed {
        self.added(queue);
        let queues = [named(queue)];
        done(self.handle.queues().pop(&queues)).expect("there is a job")
    }

    /// Adds a job that is buried. Returns its id.
    fn buried(&self, queue: &str) -> u64 {
        let claim = self.claimed(queue);
        done(self.handle.queues().bury(claim.id, claim.token, None));
        claim.id
    }

    fn held(&self, key: &str) -> (Entry, Token) {
        let entry = Entry::new(key, "me").expect("short names");
        let token = done(self.handle.locks().acquire(&entry, Terms::default()));
        (entry, token)
    }

    fn pass(lease: &str) -> PassRequest {
        PassRequest {
            name: name(lease),
            claim: Some(Claim::default()),
            no_delay: true,
            ..PassRequest::default()
        }
    }

    /// Begins a pass of a lease. Returns its token.
    fn begun(&self, lease: &str) -> Token {
        let requested = done(self.handle.leases().request(Self::pass(lease)));
        requested.lease.lease.current.expect("a pass").token
    }

    fn sleeper(&self) -> ProcessId {
        let processes = self.handle.processes();
        let launched = done(processes.launch(launching(&["sleep", "600"])));
        done(processes.started(launched.id)).id
    }

    /// Returns the process of the attempt whose command has this word, once it has started.
    fn attempt(&self, word: &str) -> ProcessId {
        let processes = self.handle.processes();
        let searched = Selection { text: Some(word.to_owned()), ..Selection::default() };
        let id = until("the attempt has a record", || {
            let (found, _) = done(processes.list(searched.clone()));
            found.first().map(|record| record.id)
        });
        done(processes.started(id)).id
    }

    /// Ends all processes that were launched.
    fn end(&self) {
        let processes = self.handle.processes();
        let alive = Selection { phases: vec![Phase::Running], ..Selection::default() };
        let (alive, _) = done(processes.list(alive));
        for record in alive.into_iter().filter(|record| record.launched) {
            let stopping = Stopping { grace_ms: Some(0), ..Stopping::default() };
            // It may just have ended.
            drop(block_on(processes.stop(record.id, stopping)));
            done(processes.ended(record.id));
        }
    }

    /// Adds a task that is over.
    fn over(&self) {
        let tasks = self.handle.tasks();
        let id = done(tasks.add(task(&["true"], true))).task.id;
        done(tasks.act(id, Act::Terminate { now: true }));
    }

    fn request(&self, method: &str) -> Request {
        let (_, name) = method.split_once("::").expect("a method");
        match method {
            _ if method.starts_with("Locks") => self.lock(name),
            _ if method.starts_with("Leases") => self.lease(name),
            _ if method.starts_with("Processes") => self.of_process(name),
            _ if method.starts_with("Tasks") => self.task(name),
            _ => self.job(name).or_else(|| self.claim(name)).unwrap_or_else(|| {
                panic!("{method} has no case here");
            }),
        }
    }
}

#[test]
fn a_request_that_is_repeated_with_its_key_is_done_once() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let mut config = Config::at(files.path().join("data"));
    config.keeper = KeeperProgram::At(env!("CARGO_BIN_EXE_sexton").into());
    config.allow_fault_injection = true;
    let node = Node::open(config).expect("the directory opens");
    let handle = node.handle();
    let launched = done(handle.processes().launch(launching(&["sleep", "602"])));
    let process = done(handle.processes().started(launched.id)).id;
    let fixture = Fixture { handle, process };
    let entries = || (0..=u8::MAX).map(|id| fixture.handle.entries_of(ActorId(id))).sum::<u64>();

    let methods = methods();
    let keyed = methods.iter().filter(|method| !KEYLESS.contains(&method.as_str()));
    for (method, number) in keyed.zip(0..) {
        let request = fixture.request(method);
        let key = RequestKey { id: u128::from(u64::MAX) * number, fingerprint: number };
        let before = entries();
        let first = request(key);
        let between = entries();
        assert!(between > before, "{method} changes something");
        let again = request(key);
        assert_eq!(again, first, "{method}");
        // What is done between the two is done again.
        let is_alone = !method.ends_with("::prune");
        assert!(!is_alone || entries() == between, "{method} changes nothing when it is repeated");
    }
    assert_eq!(
        KEYLESS.iter().find(|it| !methods.contains(&(**it).to_owned())),
        None,
        "each is a method"
    );
    fixture.end();
    node.stop().expect("the node stops");
}
