//! Reads a snapshot store in a separate process: sled may panic in one of its threads, abort or loop forever on a damaged file, and
//! then only that process is lost.
//!
//! The caller gets a store whose items can be read once, in order. The separate process runs the hidden subcommand `read-store`: it writes
//! a stream of items, each preceded by the lengths of its key and value, and an end marker with the error, if any.

use crate::report::Failure;
use crate::scratch::Scratch;
use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sexton::persist::PersistError;
use sexton::persist::disk::{Disk, RealDisk};
use sexton::persist::snapshots::{CopiedStores, SledStores, Slots, Store, Stores, Visit};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// How long the other process may send nothing. Opening a store of several gigabytes takes seconds.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The value that, in place of a key's length, marks the end of the stream. It is followed by the length of the error text, which is 0 on
/// success, and by the text itself.
const END: u32 = u32::MAX;
/// The maximum size of a key, value or error text, in bytes.
const BYTES_MAX: u32 = 1 << 20;

/// Stores that are opened by another process, read-only.
struct IsolatedStores {
    root: PathBuf,
}

impl IsolatedStores {
    /// Returns the stores below `root`, without opening any of them yet.
    fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }
}

impl Stores for IsolatedStores {
    fn open(&self, folder: &str) -> Result<Box<dyn Store>, PersistError> {
        let program = std::env::current_exe().map_err(PersistError::io("find", "sexton"))?;
        let mut command = Command::new(program);
        let asker = std::process::id().to_string();
        command.args(["read-store", "--asker", &asker]);
        command.arg(&self.root).arg(folder);
        Ok(Box::new(Isolated::start(command, folder, TIMEOUT)?))
    }
}

/// The snapshots of a directory that must not be modified: copied to a temporary directory, and opened by another process.
pub(crate) struct Copies {
    slots: Slots,
    /// Owns the directory of the copies and removes it when dropped.
    _scratch: Scratch,
}

impl Copies {
    /// Creates the temporary directory. Each snapshot of `data` is copied to it when it is first read.
    pub(crate) fn of(data: &Path) -> Result<Self, Failure> {
        let scratch = Scratch::make(&std::env::temp_dir(), "sexton-");
        let scratch = scratch.map_err(|error| {
            Failure::unreachable(format!("failed to create a temporary directory: {error}"))
                .help("set TMPDIR to another directory; snapshots are copied there to be read")
        })?;
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(data));
        let copies = CopiedStores::new(
            Arc::clone(&disk),
            Arc::new(RealDisk::new(scratch.path())),
            Arc::new(IsolatedStores::new(scratch.path())),
        );
        Ok(Self { slots: Slots::new(disk, Arc::new(copies)), _scratch: scratch })
    }

    /// Returns the slots of the snapshots, for inspecting them and for reading their copies.
    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }
}

/// A store read through another process.
struct Isolated {
    child: Child,
    output: BufReader<Patient>,
    folder: String,
}

/// The output of a process, with a limit on how long a read may block.
struct Patient {
    output: ChildStdout,
    patience: Duration,
}

impl Read for Patient {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let limit = Timespec {
            tv_sec: i64::try_from(self.patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: self.patience.subsec_nanos().into(),
        };
        let mut polled = [PollFd::new(&self.output, PollFlags::IN)];
        if poll(&mut polled, Some(&limit))? == 0 {
            let words = format!("the process that reads it was silent for {:?}", self.patience);
            return Err(io::Error::new(io::ErrorKind::TimedOut, words));
        }
        self.output.read(bytes)
    }
}

impl Isolated {
    fn start(mut command: Command, folder: &str, patience: Duration) -> Result<Self, PersistError> {
        let streams = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let spawned = streams.stderr(Stdio::null()).spawn();
        let mut child = spawned.map_err(PersistError::io("start a process to read", folder))?;
        let output = child.stdout.take().expect("stdout should have been piped");
        Ok(Self {
            child,
            output: BufReader::new(Patient { output, patience }),
            folder: folder.to_owned(),
        })
    }

    /// Reads exactly `bytes.len()` bytes. If the output ends before that, the error says how the process exited.
    fn receive(&mut self, bytes: &mut [u8]) -> Result<(), String> {
        let error = match self.output.read_exact(bytes) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if error.kind() != io::ErrorKind::UnexpectedEof {
            return Err(error.to_string());
        }
        match self.child.wait() {
            Ok(status) => Err(format!("the process that reads it ended early: {status}")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn length(&mut self) -> Result<u32, String> {
        let mut bytes = [0; 4];
        self.receive(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn bytes(&mut self, len: u32, into: &mut Vec<u8>) -> Result<(), String> {
        if len > BYTES_MAX {
            return Err(format!("an item of {len} bytes is too long"));
        }
        into.clear();
        into.resize(len as usize, 0);
        self.receive(into)
    }

    /// Reads the next item into `key` and `value`. Returns whether there was one: `false` at the end of the stream.
    fn next(&mut self, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool, String> {
        let (key_len, value_len) = (self.length()?, self.length()?);
        if key_len != END {
            self.bytes(key_len, key)?;
            self.bytes(value_len, value)?;
            return Ok(true);
        }
        self.bytes(value_len, value)?;
        if value.is_empty() { Ok(false) } else { Err(String::from_utf8_lossy(value).into_owned()) }
    }

    fn failed(&self, cause: String) -> PersistError {
        PersistError::Store { action: "read", folder: self.folder.clone(), cause }
    }
}

impl Store for Isolated {
    fn put(&mut self, _: &[u8], _: &[u8]) -> Result<(), PersistError> {
        Err(self.failed("it was opened read-only".to_owned()))
    }

    fn each(&mut self, visit: Visit<'_>) -> Result<(), PersistError> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        loop {
            match self.next(&mut key, &mut value) {
                Ok(true) => visit(&key, &value)?,
                Ok(false) => return Ok(()),
                Err(cause) => return Err(self.failed(cause)),
            }
        }
    }

    fn close(self: Box<Self>) -> Result<(), PersistError> {
        Ok(())
    }
}

impl Drop for Isolated {
    fn drop(&mut self) {
        // Killing a process that has already ended fails, which is harmless.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Print all items of a store, for another process
#[derive(Args)]
#[command(hide = true)]
pub(crate) struct ReadStore {
    root: PathBuf,
    folder: String,
    /// The process id of the caller
    #[arg(long)]
    asker: Option<i32>,
}

impl ReadStore {
    pub(crate) fn run(self) -> Result<(), Failure> {
        // Have the kernel kill this process when its caller ends: no other process reads its output.
        let with_parent = Some(rustix::process::Signal::KILL);
        if let Err(error) = rustix::process::set_parent_process_death_signal(with_parent) {
            return Err(Failure::unreachable(error.to_string()));
        }
        // The caller may have exited before that call. Its copy of the store may then be gone, and opening it would create an empty one.
        let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
        if self.asker.is_some() && parent != self.asker {
            return Err(Failure::unreachable("the caller has exited"));
        }
        let mut output = BufWriter::new(io::stdout().lock());
        let ended = self.send(&mut output);
        let reason = ended.err().unwrap_or_default();
        let len = u32::try_from(reason.len()).unwrap_or(0);
        let sent = output
            .write_all(&END.to_le_bytes())
            .and_then(|()| output.write_all(&len.to_le_bytes()))
            .and_then(|()| output.write_all(reason.as_bytes()))
            .and_then(|()| output.flush());
        sent.map_err(|error| Failure::unreachable(error.to_string()))
    }

    fn send(&self, output: &mut impl Write) -> Result<(), String> {
        let words = |error: PersistError| {
            if let PersistError::Store { cause, .. } = error {
                return cause;
            }
            error.to_string()
        };
        let mut store = SledStores::new(&self.root).open(&self.folder).map_err(words)?;
        let mut broken = None;
        let sent = store.each(&mut |key, value| {
            let mut send = || {
                for part in [key, value] {
                    let len = u32::try_from(part.len()).map_err(io::Error::other)?;
                    output.write_all(&len.to_le_bytes())?;
                }
                output.write_all(key)?;
                output.write_all(value)
            };
            send().map_err(|error| {
                broken = Some(error.kind());
                PersistError::io("send", &self.folder)(error)
            })
        });
        if broken.is_some() {
            return sent.map_err(words);
        }
        store.close().map_err(words)?;
        sent.map_err(words)
    }
}

#[cfg(test)]
mod tests {
    use super::Isolated;
    use sexton::persist::snapshots::Store as _;
    use std::process::Command;
    use std::time::Duration;

    type Item = (Vec<u8>, Vec<u8>);

    fn read(script: &str, patience: Duration) -> Result<Vec<Item>, String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let mut store = Isolated::start(command, "a", patience).expect("there is a shell");
        let mut items = Vec::new();
        let read = store.each(&mut |key, value| {
            items.push((key.to_vec(), value.to_vec()));
            Ok(())
        });
        read.map(|()| items).map_err(|error| error.to_string())
    }

    const ITEM: &str = r"printf '\001\000\000\000\002\000\000\000kvv';";

    #[test]
    fn items_come_through_and_an_end_is_an_end() {
        let patience = Duration::from_mins(1);
        let whole = format!(r"{ITEM} printf '\377\377\377\377\000\000\000\000'");
        let item = (b"k".to_vec(), b"vv".to_vec());
        assert_eq!(read(&whole, patience), Ok(vec![item]));
        let refused = format!(r"{ITEM} printf '\377\377\377\377\003\000\000\000bad'");
        assert!(read(&refused, patience).is_err_and(|words| words.ends_with("bad")));
    }

    #[test]
    fn whatever_becomes_of_the_process_is_told() {
        let told =
            |script: &str, patience| read(&format!("{ITEM} {script}"), patience).unwrap_err();
        let patience = Duration::from_mins(1);
        assert!(told("exit 3", patience).contains("exit status: 3"));
        assert!(told("kill -ABRT $$", patience).contains("signal: 6"));
        let endless = told("exec sleep 600", Duration::from_millis(20));
        assert!(endless.contains("silent for 20ms"), "{endless}");
        let absurd = told(r"printf '\000\000\377\377\000\000\000\000'", patience);
        assert!(absurd.contains("is too long"), "{absurd}");
    }
}
