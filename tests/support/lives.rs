//! One data directory over many lives of the real program. Most lives end with a kill at a random moment, and each takes
//! checkpoints every few hundred entries. Each test chooses an actor, and sends requests to it.
//!
//! The coordinator removes journal segments that the snapshots do not need any more; the test keeps them. After each
//! kill, the library reads all of them and checks: sequence numbers only increase, a snapshot and the remaining journal
//! give the same state as the whole journal, the next life of the program reports that state, and the directory does not
//! grow.

use crate::chance::Chance;
use crate::daemon::{self, Daemon};
use crate::kept::Kept;
use crate::node;
use crate::past::{self, Past};
use crate::patience::until;
use crate::space::Space;
use rustix::process::Signal;
use sexton::ids::Seq;
use sexton::persist::disk::RealDisk;
use sexton::persist::journal::segment;
use sexton::spine::machine::Actor;
use sexton::{Config, Node};
use std::fmt;
use std::io::Write as _;
use std::ops::AddAssign;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

/// The number of kills after which a new directory is used, because the whole journal is read after each kill.
pub(crate) const KILLS_PER_DIRECTORY: u64 = 25;

/// The number of entries between two checkpoints.
const CHECKPOINT_EVERY: &str = "300";

/// The maximum number of answers before a kill.
const ANSWERS_MAX: u64 = 1500;

/// How the directories of one actor are made and checked.
pub(crate) struct About<M> {
    /// The additional flags of the program.
    pub(crate) flags: &'static [&'static str],
    /// Returns the part of a machine's view that must outlive the process.
    pub(crate) shown: fn(&M) -> String,
    /// The maximum size of both snapshots together, in bytes: their content, and sled's overhead, which grows in steps of
    /// half a mebibyte.
    pub(crate) snapshot_bytes_max: u64,
}

/// One directory, and what is known about it.
pub(crate) struct Lives<M: Actor> {
    files: TempDir,
    kept: Kept,
    about: About<M>,
    fsync: &'static str,
    pub(crate) chance: Chance,
    /// Everything that has been read so far.
    pub(crate) past: Past<M>,
    /// Sequence numbers below this one may have been issued before the last kill.
    bound: Seq,
    pub(crate) counts: Counts,
}

impl<M: Actor> Lives<M> {
    /// Creates a new directory, for a program with this sync policy.
    pub(crate) fn new(about: About<M>, fsync: &'static str, seed: u64) -> Self {
        let files = tempfile::tempdir().expect("a temporary directory");
        Self {
            kept: Kept::beside(&files.path().join("data")),
            files,
            about,
            fsync,
            chance: Chance::new(seed),
            past: Past::default(),
            bound: Seq(0),
            counts: Counts::default(),
        }
    }

    fn data(&self) -> String {
        let data = self.files.path().join("data");
        let data = data.to_str().expect("UTF-8");
        data.to_owned()
    }

    /// Starts the next life. Sometimes another life comes first, which is killed during or soon after its startup.
    pub(crate) fn begin(&mut self) -> Daemon {
        let data = self.data();
        // Without history, the size of the journal does not depend on how many checkpoints there were.
        let ours = ["--data", &data, "--fsync", self.fsync, "--journal-kept-max", "0"];
        let flags = [&ours[..], self.about.flags].concat();
        if self.chance.below(4) == 0 {
            let daemon = Daemon::begin(daemon::serve(&flags));
            let mut looks = self.chance.below(120);
            until("a moment passes", || {
                looks = looks.saturating_sub(1);
                (looks == 0).then_some(())
            });
            daemon.kill();
            self.reckon();
        }
        let flags = [&flags[..], &["--checkpoint-every", CHECKPOINT_EVERY]].concat();
        let daemon = Daemon::serve(&flags);
        self.compare_live();
        let space = Space::of(Path::new(&data));
        space.check(self.about.snapshot_bytes_max);
        let bytes = space.snapshot_bytes();
        self.counts.snapshot_bytes_max = self.counts.snapshot_bytes_max.max(bytes);
        daemon
    }

    /// Lets these clients work until they have enough answers, kills the program (or sometimes stops it), and reads the directory.
    pub(crate) fn end<W: Send>(
        &mut self,
        daemon: Daemon,
        workers: impl IntoIterator<Item = W>,
        work: impl Fn(W, &AtomicU64) + Sync,
    ) {
        let ask_nicely = self.chance.below(8) == 0;
        let enough = 1 + self.chance.below(ANSWERS_MAX);
        let checkpoint_first = self.chance.below(2) == 0;
        let answered = AtomicU64::new(0);
        std::thread::scope(|threads| {
            for worker in workers {
                threads.spawn(|| work(worker, &answered));
            }
            until("enough is answered", || {
                self.kept.keep();
                let answered = answered.load(Ordering::Relaxed);
                let taken = !checkpoint_first || daemon.log().contains("took a snapshot");
                (answered >= enough && taken).then_some(())
            });
            if ask_nicely {
                daemon.signal(Signal::TERM);
                let (status, log) = daemon.end();
                assert_eq!(status.code(), Some(0), "{log}");
            } else {
                daemon.kill();
            }
        });
        self.counts.answered += answered.into_inner();
        self.counts.kills += u64::from(!ask_nicely);
        self.reckon();
        let clean = self.past.tail.clean;
        assert_eq!(clean, ask_nicely, "stopped cleanly, or not");
    }

    /// Reads the directory while no process uses it, and compares it with everything that is known.
    pub(crate) fn reckon(&mut self) {
        self.past.read_on(self.kept.keep());
        let tail = &self.past.tail;
        let in_order = self.past.numbers.is_sorted_by(|a, b| a < b);
        assert!(in_order, "numbers only increase");
        self.bound = if tail.clean { Seq(tail.last.0 + 1) } else { tail.reserved };
        self.compare_recovered();
    }

    /// Checks the state that the next startup will recover: the latest snapshot and the remaining journal give the same
    /// state as the whole journal.
    fn compare_recovered(&mut self) {
        let data = self.data();
        let (machine, found) = past::recovered::<M>(Path::new(&data));
        assert_eq!(machine.digest(), self.past.machine().digest(), "{found:?}");
        let shown = self.about.shown;
        assert_eq!(shown(&machine), shown(self.past.machine()), "{found:?}");
        if self.past.tail.clean {
            assert_eq!(found.mended, Vec::<String>::new(), "a clean stop leaves nothing to repair");
        }
        let amid = |wrong: &String| wrong.contains("was being written");
        assert!(found.mended.iter().all(amid), "{:?}", found.mended);
        self.counts.kills_amid += u64::from(!found.mended.is_empty());
        self.counts.starts_from += u64::from(found.snapshot.is_some());
        self.counts.checkpoints = self.past.checkpoints;
        let disk = RealDisk::new(&data);
        let first = segment::ordinals(&disk).expect("the directory is readable");
        self.counts.trimmed = first.first().map_or(0, |first| first - 1);
    }

    /// Checks that the running program has the state that follows from the journal.
    fn compare_live(&mut self) {
        let before = self.past.numbers.len();
        self.past.read_on(self.kept.keep());
        let first = self.past.numbers.get(before);
        let first = first.expect("a start writes marks");
        assert!(*first >= self.bound, "{first} may have been issued before");
        assert_eq!(
            live_digest(Path::new(&self.data()), M::NAME),
            self.past.machine().digest().to_string(),
            "it has the state that a replay gives"
        );
    }

    /// Checks that records that were read before have not changed, and that a node on a copy of the directory has the
    /// same digest as a replay of its journal.
    pub(crate) fn compare_again(&self) {
        let whole = past::read::<M>(self.kept.keep());
        assert!(whole.numbers == self.past.numbers, "records stay in the journal");
        assert_eq!(whole.machine().digest(), self.past.machine().digest());
        let copy = tempfile::tempdir().expect("a temporary directory");
        copy_folder(Path::new(&self.data()), copy.path());
        let node = Node::open(Config::at(copy.path())).expect("the copy opens");
        let status = node::wait(node.handle().status()).expect("the node runs");
        let ours = |it: &&sexton::status::ActorReport| it.status.name == M::NAME;
        let digest = status.actors.iter().find(ours);
        let digest = digest.and_then(|actor| actor.status.digest);
        node.stop().expect("a clean stop");
        let (machine, _) = past::recovered::<M>(copy.path());
        assert_eq!(digest, Some(machine.digest()), "the node and a replay agree");
    }
}

/// Copies files and folders. Sockets are left out.
fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a new directory");
    for entry in std::fs::read_dir(from).expect("the directory exists") {
        let entry = entry.expect("the directory is readable");
        let kind = entry.file_type().expect("it has a type");
        let place = to.join(entry.file_name());
        if kind.is_dir() {
            copy_folder(&entry.path(), &place);
        } else if kind.is_file() {
            std::fs::copy(entry.path(), place).expect("the file can be copied");
        }
    }
}

/// Returns the digest of an actor, from the status of the running program.
fn live_digest(data: &Path, actor: &str) -> String {
    let socket = data.join("sexton.sock");
    let mut stream = UnixStream::connect(socket).expect("the socket is open");
    stream
        .write_all(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .expect("connected");
    let answer = std::io::read_to_string(stream).expect("an answer");
    let its = answer.split(&format!("{{\"name\":\"{actor}\"")).nth(1);
    let digest = its.and_then(|its| its.split("\"digest\":\"").nth(1));
    let digest = digest.and_then(|rest| rest.split('"').next());
    digest.unwrap_or_else(|| panic!("no digest in {answer}")).to_owned()
}

/// Counts of a campaign, each with a minimum, because a campaign proves nothing about a case that never occurred.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Kills of the program when it was ready.
    pub(crate) kills: u64,
    /// Commands that were answered.
    pub(crate) answered: u64,
    /// Checkpoints whose mark is in the journal.
    checkpoints: u64,
    /// Kills that left an incomplete snapshot.
    kills_amid: u64,
    /// Startups of the program, or of its recovery alone, that began from a snapshot.
    starts_from: u64,
    /// Segments of the journal that were removed.
    trimmed: u64,
    /// The maximum size of the snapshots, in bytes.
    snapshot_bytes_max: u64,
}

impl Counts {
    /// Returns the counts that are too small after this number of kills, as text, or `None` if all are large enough.
    fn missing(&self, kills: u64) -> Option<String> {
        let floors = [
            ("kills", self.kills, kills),
            ("checkpoints", self.checkpoints, kills / 2),
            ("kills during a checkpoint", self.kills_amid, kills / 5),
            ("starts from a snapshot", self.starts_from, kills / 2),
            ("segments removed", self.trimmed, kills / 50),
        ];
        let missing = floors.iter().find(|(_, count, floor)| count < floor);
        missing.map(|(what, count, floor)| format!("{what}: {count} of {floor}"))
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        let Self {
            kills,
            answered,
            checkpoints,
            kills_amid,
            starts_from,
            trimmed,
            snapshot_bytes_max,
        } = other;
        self.kills += kills;
        self.answered += answered;
        self.checkpoints += checkpoints;
        self.kills_amid += kills_amid;
        self.starts_from += starts_from;
        self.trimmed += trimmed;
        self.snapshot_bytes_max = self.snapshot_bytes_max.max(snapshot_bytes_max);
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} kills, {} commands answered, {} checkpoints, {} kills during one, {} starts from a snapshot, \
             {} segments let go, at most {} KiB of snapshots",
            self.kills,
            self.answered,
            self.checkpoints,
            self.kills_amid,
            self.starts_from,
            self.trimmed,
            self.snapshot_bytes_max >> 10,
        )
    }
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var_os(name)?.into_string().ok()?;
    Some(text.parse().expect("the setting is a number"))
}

/// Returns the number of kills: `usual`, or the same share of `SEXTON_CRASH_KILLS` as `usual` is of `all`.
pub(crate) fn kills(usual: u64, all: u64) -> u64 {
    setting("SEXTON_CRASH_KILLS").map_or(usual, |kills| kills * usual / all)
}

/// Returns the time that a campaign runs that does not count kills, in seconds.
pub(crate) fn seconds(usual: u64) -> u64 {
    setting("SEXTON_CRASH_SECONDS").unwrap_or(usual)
}

/// Returns the first seed.
pub(crate) fn seed() -> u64 {
    setting("SEXTON_CRASH_SEED").unwrap_or(1)
}

/// Uses one directory after another, each with the next seed, until all counts have reached their minimum, since the
/// moment of each kill depends on the machine. `live` takes the seed and the number of kills after which it may stop.
pub(crate) fn campaign(kills: u64, mut live: impl FnMut(u64, u64) -> Counts) -> Counts {
    let mut seed = seed();
    let mut counts = Counts::default();
    while let Some(missing) = counts.missing(kills) {
        assert!(counts.kills < kills * 10, "{missing}: {counts}");
        let more = kills.saturating_sub(counts.kills).max(1);
        counts += live(seed, KILLS_PER_DIRECTORY.min(more));
        seed += 1;
    }
    counts
}
