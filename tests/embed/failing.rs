//! Nodes whose disk or whose store of snapshots fails in every way: with an error, with a panic, or by not returning. Whatever happens, the
//! failure has a name, requests are answered, and a stop ends.

use crate::directory::{self, request, settings};
use crate::node::wait;
use crate::patience::until;
use sexton::actors::queue::{Body, Put, QueueName, Refused};
use sexton::config::{BeanstalkConfig, HttpConfig, LockserverConfig, Planted};
use sexton::node::{Entry, Handle, NodeError, QueueError, Terms};
use sexton::persist::PersistError;
use sexton::persist::disk::{Disk, DiskFile};
use sexton::persist::snapshots::{Store, Stores, Visit};
use sexton::spine::checkpoint::CheckpointError;
use sexton::{Config, Node};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// What a planted call does while the fault is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Error,
    Panic,
    Hang,
}

/// A fault in the calls of one name, which can be turned off.
#[derive(Default)]
struct Plant {
    fault: Mutex<Option<(&'static str, Fault)>>,
    over: Condvar,
    has_struck: AtomicBool,
}

impl Plant {
    fn set(&self, fault: Option<(&'static str, Fault)>) {
        *self.fault.lock().expect("no panic holds it") = fault;
        self.over.notify_all();
    }

    /// Fails if the fault is in this call. A call that hangs goes on once the fault is off.
    fn call(&self, name: &str) -> io::Result<()> {
        let current = self.fault.lock().expect("no panic holds it");
        let Some((_, fault)) = current.filter(|(planted, _)| *planted == name) else {
            return Ok(());
        };
        self.has_struck.store(true, Ordering::SeqCst);
        match fault {
            Fault::Error => Err(io::Error::other("planted")),
            Fault::Panic => {
                drop(current);
                panic!("planted in {name}");
            }
            Fault::Hang => {
                let on = |fault: &mut Option<_>| fault.is_some();
                drop(self.over.wait_while(current, on).expect("no panic holds it"));
                Ok(())
            }
        }
    }
}

struct FailingStores(Arc<dyn Stores>, Arc<Plant>);

impl Stores for FailingStores {
    fn open(&self, folder: &str) -> Result<Box<dyn Store>, PersistError> {
        check(&self.1, "open")?;
        let store = self.0.open(folder)?;
        Ok(Box::new(FailingStore(store, Arc::clone(&self.1))))
    }
}

struct FailingStore(Box<dyn Store>, Arc<Plant>);

impl Store for FailingStore {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), PersistError> {
        check(&self.1, "put")?;
        self.0.put(key, value)
    }

    fn each(&mut self, visit: Visit<'_>) -> Result<(), PersistError> {
        check(&self.1, "each")?;
        self.0.each(visit)
    }

    fn close(self: Box<Self>) -> Result<(), PersistError> {
        check(&self.1, "close")?;
        self.0.close()
    }
}

fn check(plant: &Plant, name: &'static str) -> Result<(), PersistError> {
    plant.call(name).map_err(PersistError::io(name, "the store"))
}

struct FailingDisk(Arc<dyn Disk>, Arc<Plant>);

impl FailingDisk {
    fn file(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(FailingFile(file, Arc::clone(&self.1)))
    }
}

impl Disk for FailingDisk {
    fn list(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        self.1.call("list")?;
        self.0.list(folder)
    }

    fn create_folder(&self, folder: &str) -> io::Result<()> {
        self.1.call("create_folder")?;
        self.0.create_folder(folder)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.1.call("create")?;
        if name.starts_with("journal/") {
            self.1.call("create_segment")?;
        }
        Ok(self.file(self.0.create(name)?))
    }

    fn open(&self, name: &str, write: bool) -> io::Result<Box<dyn DiskFile>> {
        self.1.call("open")?;
        Ok(self.file(self.0.open(name, write)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.1.call("rename")?;
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.1.call("remove")?;
        self.0.remove(name)
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        self.1.call("sync_folder")?;
        self.0.sync_folder(folder)
    }

    fn tree(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        self.1.call("tree")?;
        self.0.tree(folder)
    }

    fn remove_tree(&self, folder: &str) -> io::Result<()> {
        self.1.call("remove_tree")?;
        self.0.remove_tree(folder)
    }

    fn sync_tree(&self, folder: &str) -> io::Result<()> {
        self.1.call("sync_tree")?;
        self.0.sync_tree(folder)
    }
}

struct FailingFile(Box<dyn DiskFile>, Arc<Plant>);

impl DiskFile for FailingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.1.call("read_at")?;
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.1.call("write_at")?;
        self.0.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.1.call("sync")?;
        self.0.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.1.call("len")?;
        self.0.len()
    }
}

/// Returns the settings of a node in this directory whose stores fail as `plant` says, and whose disk does if `with_disk`.
fn planted(data: &Path, plant: &Arc<Plant>, with_disk: bool) -> Config {
    let (of_stores, of_disk) = (Arc::clone(plant), Arc::clone(plant));
    let mut config = settings(data);
    config.planted = if with_disk {
        Planted {
            disk: Some(Arc::new(move |disk| Arc::new(FailingDisk(disk, Arc::clone(&of_disk))))),
            ..Planted::default()
        }
    } else {
        Planted {
            stores: Some(Arc::new(move |stores| {
                Arc::new(FailingStores(stores, Arc::clone(&of_stores)))
            })),
            patience: Some(Duration::from_millis(200)),
            ..Planted::default()
        }
    };
    config
}

/// Takes a checkpoint, which fails, and returns why it failed.
fn failure(handle: &Handle) -> String {
    match wait(handle.checkpoint()) {
        Err(CheckpointError::Persist(error)) => error.to_string(),
        other => panic!("the checkpoint did not fail as planted: {other:?}"),
    }
}

#[test]
fn every_failure_of_a_snapshot_is_counted_and_told_and_the_next_one_succeeds() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let plant = Arc::new(Plant::default());
    let node = Node::open(planted(files.path(), &plant, false)).expect("the directory opens");
    let handle = node.handle();
    request(&handle, 0..500);
    let mut failed = 0;
    for call in ["open", "put", "each", "close"] {
        for fault in [Fault::Error, Fault::Panic, Fault::Hang] {
            plant.set(Some((call, fault)));
            let words = failure(&handle);
            failed += 1;
            let expected = match fault {
                Fault::Error => "planted".to_owned(),
                Fault::Panic => format!("panicked: planted in {call}"),
                Fault::Hang => "has not answered for too long".to_owned(),
            };
            assert!(words.contains(&expected), "{call} {fault:?}: {words}");
            if fault == Fault::Hang {
                // The thread still uses the slot, so no other may.
                let words = failure(&handle);
                assert!(words.contains("still uses its slot"), "{words}");
                failed += 1;
            }
            let shown = handle.snapshots();
            assert_eq!((shown.failed, shown.running), (failed, false));
            assert!(shown.last_failure.is_some());
            request(&handle, 0..1);
            plant.set(None);
            until("the snapshot is written", || wait(handle.checkpoint()).ok());
            failed = handle.snapshots().failed;
        }
    }
    node.stop().expect("the node stops");
}

#[test]
fn a_snapshot_that_is_due_is_tried_again_though_its_thread_panicked() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let plant = Arc::new(Plant::default());
    let mut config = planted(files.path(), &plant, false);
    config.checkpoints.records = 100;
    config.checkpoints.growth_percent = 0;
    let node = Node::open(config).expect("the directory opens");
    let handle = node.handle();
    plant.set(Some(("put", Fault::Panic)));
    request(&handle, 0..200);
    until("it fails", || (handle.snapshots().failed > 0).then_some(()));
    plant.set(None);
    until("it is tried again", || (handle.snapshots().taken > 0).then_some(()));
    node.stop().expect("the node stops");
}

#[test]
fn a_stop_ends_though_a_snapshot_never_does() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let plant = Arc::new(Plant::default());
    let config = planted(files.path(), &plant, false);
    let node = Node::open(config).expect("the directory opens");
    let handle = node.handle();
    request(&handle, 0..500);
    plant.set(Some(("close", Fault::Hang)));
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| wait(handle.checkpoint()));
        until("it hangs", || plant.has_struck.load(Ordering::SeqCst).then_some(()));
        node.stop().expect("the node stops");
        assert!(asked.join().expect("no panic").is_err());
    });
    // The directory stays locked while the thread may still write to it.
    let again = || Node::open(settings(files.path()));
    assert!(again().is_err(), "the directory is locked");
    plant.set(None);
    let node = until("the thread ends", || again().ok());
    node.stop().expect("the node stops");
}

#[test]
fn a_disk_that_panics_in_any_call_fails_a_request_or_halts_the_node_with_a_name() {
    let calls = [
        "list",
        "create_folder",
        "create",
        "open",
        "rename",
        "remove",
        "sync_folder",
        "tree",
        "remove_tree",
        "sync_tree",
        "read_at",
        "write_at",
        "sync",
        "len",
    ];
    let mut halted = Vec::new();
    for call in calls {
        let files = tempfile::tempdir().expect("a temporary directory");
        let plant = Arc::new(Plant::default());
        let node = Node::open(planted(files.path(), &plant, true)).expect("the directory opens");
        let handle = node.handle();
        // A few segments, which the later snapshots remove.
        request(&handle, 0..2000);
        plant.set(Some((call, Fault::Panic)));
        // Every request is answered, or refused because the node has halted.
        until("the planted call is made, or is never made", || {
            let locks = handle.locks();
            let entry = Entry::new("k", "o").expect("the names are short");
            let asked = wait(locks.acquire(&entry, Terms::default()));
            let taken = wait(handle.checkpoint());
            let is_over = handle.halt_reason().is_some();
            assert!(asked.is_ok() || is_over, "{call}: {asked:?}");
            let struck = plant.has_struck.load(Ordering::SeqCst);
            (is_over || (struck && taken.is_err()) || taken.is_ok()).then_some(())
        });
        if let Some(reason) = handle.halt_reason() {
            assert!(reason.contains(&format!("planted in {call}")), "{reason}");
            halted.push(call);
        }
        plant.set(None);
        drop(node);
    }
    assert!(
        halted.contains(&"write_at") && halted.contains(&"sync"),
        "the journal's calls were reached: {halted:?}"
    );
}

#[test]
fn a_node_that_is_low_on_space_frees_what_was_removed_by_itself() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let plant = Arc::new(Plant::default());
    // Checkpoints are taken on request, or because of the shortage.
    let node = Node::open(planted(files.path(), &plant, true)).expect("the directory opens");
    let handle = node.handle();
    let queues = handle.queues();
    let queue: QueueName = "q".try_into().expect("a valid name");
    plant.set(Some(("create_segment", Fault::Error)));
    until("the disk is low on space", || {
        let job = Put::new(queue.clone(), Body::new([b'x'; 500]));
        match wait(queues.put(job)) {
            Ok(_) => None,
            Err(QueueError::Refused(Refused::DiskFull)) => Some(()),
            Err(error) => panic!("the job is refused for another reason: {error}"),
        }
    });
    let before = handle.snapshots().taken;
    wait(queues.flush(&queue)).expect("a flush needs no space");
    until("both snapshots are without the jobs", || {
        (handle.snapshots().taken >= before + 2).then_some(())
    });
    let bytes = handle.snapshots().last.expect("one was taken").bytes;
    assert!(bytes < 10_000, "the jobs are gone: {bytes} bytes");
    plant.set(None);
    until("the queue accepts jobs again", || {
        let job = Put::new(queue.clone(), Body::new(*b"x"));
        wait(queues.put(job)).ok()
    });
    node.stop().expect("the node stops");
}

#[test]
fn a_checkpoint_that_a_short_run_did_not_finish_is_taken_by_the_next_start() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let plant = Arc::new(Plant::default());
    let due = |mut config: Config| {
        config.checkpoints.records = 100;
        config.checkpoints.growth_percent = 0;
        config
    };
    let node = Node::open(due(planted(files.path(), &plant, false))).expect("the directory opens");
    plant.set(Some(("open", Fault::Error)));
    request(&node.handle(), 0..200);
    // The directory as a kill leaves it, before a checkpoint was taken.
    let copied = tempfile::tempdir().expect("a temporary directory");
    directory::copy(files.path(), copied.path());
    plant.set(None);
    node.stop().expect("the node stops");
    let again = Node::open(due(settings(copied.path()))).expect("the directory opens");
    assert_eq!(again.handle().snapshots().taken, 1, "before anything is served");
    again.stop().expect("the node stops");
}

#[test]
fn a_node_whose_directory_is_removed_halts() {
    for moved in [false, true] {
        let files = tempfile::tempdir().expect("a temporary directory");
        let data = files.path().join("data");
        let node = Node::open(settings(&data)).expect("the directory opens");
        let handle = node.handle();
        request(&handle, 0..10);
        if moved {
            std::fs::rename(&data, files.path().join("other")).expect("it can be moved");
        } else {
            std::fs::remove_dir_all(&data).expect("it can be removed");
        }
        let reason = until("the node halts", || handle.halt_reason());
        assert!(reason.contains("was removed, moved or replaced"), "{reason}");
        let entry = Entry::new("k", "o").expect("the names are short");
        assert!(wait(handle.locks().acquire(&entry, Terms::default())).is_err());
        drop(node);
    }
}

#[test]
fn a_node_that_is_to_serve_a_protocol_is_opened_only_with_it() {
    let config = Config::in_memory;
    let configured = [
        ("lockserver", Config { lockserver: Some(LockserverConfig::default()), ..config() }),
        ("beanstalk", Config { beanstalk: Some(BeanstalkConfig::default()), ..config() }),
        ("http", Config { http: Some(HttpConfig::default()), ..config() }),
    ];
    for (name, config) in configured {
        for opened in [Node::open(config.clone()), Node::open_with(config, Vec::new())] {
            let refused = opened.map(drop).expect_err("nothing would serve it");
            let NodeError::Config(words) = &refused else { panic!("another error: {refused}") };
            let [words] = words.as_slice() else { panic!("one problem: {words:?}") };
            assert!(words.starts_with(&format!("{name} is configured")), "{words}");
        }
    }
}

#[test]
fn what_the_code_around_an_actor_panics_at_halts_the_node() {
    let node = Node::open(Config::in_memory()).expect("the node opens");
    let handle = node.handle();
    // The callback that receives the answer runs outside the guard around the machine.
    let mailbox = &handle.actors().lock;
    mailbox.cast_to(Box::new(|_| panic!("planted")));
    let reason = until("the node halts", || handle.halt_reason());
    assert!(reason.contains("lock"), "{reason}");
    assert!(node.stop().is_err());
}
