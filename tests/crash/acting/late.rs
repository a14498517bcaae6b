//! A disk that reports records as written and synced before they are, so that a kill loses the last ones.

use sexton::persist::disk::{Disk, DiskFile, RealDisk};
use std::io;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How late each record is written.
const LATE: Duration = Duration::from_millis(30);

/// The maximum size of a write that counts as a record. A longer write prepares a segment.
const RECORD_BYTES_MAX: usize = 4096;

/// The real disk, except that records are written late.
pub(super) struct Late(RealDisk);

impl Late {
    pub(super) fn new(files: &Path) -> Self {
        Self(RealDisk::new(files))
    }
}

impl Disk for Late {
    fn list(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        self.0.list(folder)
    }

    fn create_folder(&self, folder: &str) -> io::Result<()> {
        self.0.create_folder(folder)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        remembers(name)?;
        self.0.create(name).map(LateFile::over)
    }

    fn open(&self, name: &str, write: bool) -> io::Result<Box<dyn DiskFile>> {
        remembers(name)?;
        let file = self.0.open(name, write)?;
        Ok(if write { LateFile::over(file) } else { file })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        self.0.sync_folder(folder)
    }
}

/// Refuses the file that notes how far the log was synced. With that note, the next start would detect the missing records before their
/// loss had any other effect.
fn remembers(name: &str) -> io::Result<()> {
    let is_note = name.ends_with("/synced");
    (!is_note).then_some(()).ok_or_else(|| io::ErrorKind::Unsupported.into())
}

type File = Arc<Mutex<Box<dyn DiskFile>>>;

struct LateFile {
    file: File,
    records: Sender<(Vec<u8>, u64)>,
}

impl LateFile {
    fn over(file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        let file = Arc::new(Mutex::new(file));
        let (records, given) = mpsc::channel();
        let theirs = Arc::clone(&file);
        let thread = std::thread::Builder::new().name("late".to_owned());
        let writing = thread.spawn(move || write_in_time(&theirs, &given));
        writing.expect("a new thread");
        Box::new(Self { file, records })
    }

    fn file(&self) -> MutexGuard<'_, Box<dyn DiskFile>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(clippy::disallowed_methods, reason = "this disk is slow")]
fn write_in_time(file: &File, given: &Receiver<(Vec<u8>, u64)>) {
    for (bytes, offset) in given {
        std::thread::sleep(LATE);
        let file = file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_at(&bytes, offset).expect("a writable file");
    }
}

impl DiskFile for LateFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file().read_at(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if offset == 0 || bytes.len() > RECORD_BYTES_MAX {
            return self.file().write_at(bytes, offset);
        }
        // Sending cannot fail: the thread receives for as long as this file exists.
        drop(self.records.send((bytes.to_vec(), offset)));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.file().len()
    }
}
