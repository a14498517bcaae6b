//! Reads an output file while it is rotated. The file's beginning may be removed at any time, so a reader remembers its position in the whole
//! output: the coordinator stores the position of the file's first byte in a file beside it, and that of a rotated file in its gzip header.

use crate::client;
use crate::report::{Failure, tell};
use flate2::bufread::MultiGzDecoder;
use rustix::fs::OFlags;
use sexton::kernel::file;
use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The maximum number of bytes per read.
const CHUNK: usize = 64 << 10;

/// The maximum number of rotated files of an output.
const ROTATED_MAX: u32 = 100;

/// The highest position that is believed.
const POSITION_MAX: u64 = 1 << 62;

/// The pause before the position is read again while the file's beginning is being removed.
const REMOVAL: Duration = Duration::from_millis(10);

/// The maximum number of such pauses. If the coordinator was killed during a removal, the mark stays until the next rotation.
const REMOVALS: u32 = 200;

/// A reader of an output file.
pub(super) struct Follower {
    path: PathBuf,
    file: File,
    /// The position in the whole output up to which it has been read.
    at: u64,
    /// The position whose removal did not end, so that it is taken as it is.
    stuck: Option<u64>,
}

/// A rotated file: the position of its first byte, and its content.
struct Rotated {
    begin: u64,
    content: MultiGzDecoder<BufReader<File>>,
    /// The first part of the content, which had to be read together with the header.
    first: Vec<u8>,
}

impl Follower {
    /// Opens an output file. Reading begins at the offset that `begin` returns for the file.
    pub(super) fn open(
        path: &Path,
        begin: impl Fn(&mut File) -> io::Result<u64>,
    ) -> io::Result<Self> {
        let mut follower = Self { path: path.to_owned(), file: open(path)?, at: 0, stuck: None };
        loop {
            let base = follower.base();
            let offset = begin(&mut follower.file)?;
            if follower.is_at(base) {
                follower.at = base + offset;
                return Ok(follower);
            }
        }
    }

    /// Passes on everything that is new.
    pub(super) fn copy(
        &mut self,
        print: &mut dyn FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let unread = |path: &Path, error: &io::Error| {
            Failure::unreachable(format!("failed to read {}: {error}", path.display()))
        };
        let mut chunk = vec![0; CHUNK];
        loop {
            let base = self.base();
            if self.at < base {
                self.catch_up(base, print)?;
                continue;
            }
            let offset = self.at - base;
            let read = self.file.read_at(&mut chunk, offset);
            let count = read.map_err(|error| unread(&self.path, &error))?;
            let length = self.file.metadata().map_or(offset, |it| it.len());
            if !self.is_at(base) {
                // The beginning was removed meanwhile, so what was read may be of another position.
                continue;
            }
            if count > 0 {
                print(chunk.get(..count).unwrap_or_default())?;
                self.at += count as u64;
            } else if length < offset {
                // The file was truncated by someone else, or for another launch.
                self.at = base;
            } else if !self.is_replaced() {
                return Ok(());
            }
        }
    }

    /// If another file has taken the place of this one, continues with that one, and returns `true`.
    fn is_replaced(&mut self) -> bool {
        let Ok(there) = open(&self.path) else {
            return false;
        };
        let is_same = match (self.file.metadata(), there.metadata()) {
            (Ok(own), Ok(there)) => (own.dev(), own.ino()) == (there.dev(), there.ino()),
            (_, _) => true,
        };
        if !is_same {
            self.file = there;
            self.at = self.base();
        }
        !is_same
    }

    /// Returns the position of the file's first byte, waiting while its beginning is being removed.
    fn base(&mut self) -> u64 {
        for _ in 0..REMOVALS {
            let (base, is_certain) = self.stored();
            if is_certain || self.stuck == Some(base) {
                return base;
            }
            client::rest(REMOVAL);
        }
        let (base, _) = self.stored();
        self.stuck = Some(base);
        base
    }

    /// Returns whether the file's first byte still has this position.
    fn is_at(&self, base: u64) -> bool {
        self.stored() == (base, true) || self.stuck == Some(base)
    }

    /// Returns the stored position of the file's first byte, and whether it is certain. Without a stored position, it is 0.
    fn stored(&self) -> (u64, bool) {
        let mut text = String::new();
        let stored = open(&beside(&self.path, ".at"));
        if stored.and_then(|mut file| file.read_to_string(&mut text)).is_err() {
            return (0, true);
        }
        let text = text.trim_end();
        let digits = text.trim_end_matches('?');
        (position(digits).unwrap_or(0), digits.len() == text.len())
    }

    /// Passes on output that is no longer in the file, from the rotated files. Stops after one of them.
    fn catch_up(
        &mut self,
        base: u64,
        print: &mut dyn FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut rotated = self.rotated();
        rotated.sort_by_key(|it| it.begin);
        let before = rotated.iter().rposition(|it| it.begin <= self.at);
        let next = rotated.get(before.map_or(0, |it| it + 1));
        let next = next.map_or(base, |it| it.begin.min(base));
        if let Some(mut source) = before.map(|at| rotated.swap_remove(at)) {
            let mut skip = self.at - source.begin;
            loop {
                let part = std::mem::take(&mut source.first);
                if part.is_empty() {
                    break;
                }
                let new = part.get(usize::try_from(skip).unwrap_or(usize::MAX)..);
                skip = skip.saturating_sub(part.len() as u64);
                if let Some(new) = new.filter(|new| !new.is_empty()) {
                    print(new)?;
                    self.at += new.len() as u64;
                }
                source.read();
            }
        }
        if self.at < next {
            let missing = next - self.at;
            tell(&format!(
                "{missing} bytes of output are missing here: they were removed or discarded before they could be shown"
            ));
            self.at = next;
        }
        Ok(())
    }

    /// Opens the rotated files. They may be renamed meanwhile, so this is repeated until the newest one stays the same.
    fn rotated(&self) -> Vec<Rotated> {
        let newest = || Rotated::open(&beside(&self.path, ".1.gz")).map(|it| it.begin);
        loop {
            let before = newest();
            let all = (1..=ROTATED_MAX).map(|nth| beside(&self.path, &format!(".{nth}.gz")));
            let all: Vec<Rotated> = all.map_while(|path| Rotated::open(&path)).collect();
            if newest() == before {
                return all;
            }
        }
    }
}

impl Rotated {
    /// Opens a rotated file; `None` if there is none, or it does not have a position.
    fn open(path: &Path) -> Option<Self> {
        let file = open(path).ok()?;
        let mut rotated = Self {
            begin: 0,
            content: MultiGzDecoder::new(BufReader::new(file)),
            first: Vec::new(),
        };
        rotated.read();
        let header = rotated.content.header()?;
        let begin = std::str::from_utf8(header.comment()?).ok()?;
        rotated.begin = position(begin)?;
        Some(rotated)
    }

    /// Reads the next part of the content; it is empty at the end, or if the rest cannot be read.
    fn read(&mut self) {
        let mut part = vec![0; CHUNK];
        let count = self.content.read(&mut part).unwrap_or(0);
        part.truncate(count);
        self.first = part;
    }
}

/// Opens a regular file. A user who may write to its directory may have put anything in its place.
fn open(path: &Path) -> io::Result<File> {
    file::regular(path, OFlags::RDONLY | OFlags::NOFOLLOW)
}

/// Reads a position. `None` if it is not one, or so high that it could not be added to a length: the process may have written anything.
fn position(digits: &str) -> Option<u64> {
    let position = digits.parse().ok();
    position.filter(|it| *it <= POSITION_MAX)
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::{Follower, beside};
    use flate2::{Compression, GzBuilder};
    use std::fs::OpenOptions;
    use std::io::Write as _;
    use std::path::Path;

    fn rotated(path: &Path, nth: u32, begin: u64, content: &str) {
        let file = std::fs::File::create(beside(path, &format!(".{nth}.gz")));
        let header = GzBuilder::new().comment(begin.to_string());
        let mut made = header.write(file.expect("a file"), Compression::fast());
        made.write_all(content.as_bytes()).expect("it is written");
        made.finish().expect("it is written");
    }

    fn shown(follower: &mut Follower) -> String {
        let mut shown = Vec::new();
        let print = &mut |bytes: &[u8]| {
            shown.extend_from_slice(bytes);
            Ok(())
        };
        assert!(follower.copy(print).is_ok());
        String::from_utf8(shown).expect("text")
    }

    #[test]
    fn what_was_rotated_meanwhile_is_shown_once_and_in_order() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("stdout.log");
        let put = |name: &str, text: &str| {
            std::fs::write(beside(&path, name), text).expect("it is written");
        };
        put("", "one two ");
        let mut follower = Follower::open(&path, |_| Ok(0)).expect("it is opened");
        assert_eq!(shown(&mut follower), "one two ");
        let mut file = OpenOptions::new().append(true).open(&path).expect("a file");
        file.write_all(b"three ").expect("it is written");
        assert_eq!(shown(&mut follower), "three ");
        // Two rotations take place between two looks, and the file has another length than before.
        rotated(&path, 2, 0, "one two three four ");
        rotated(&path, 1, 19, "five ");
        put(".at", "00000000000000000024 \n");
        put("", "six seven eight nine ten eleven ");
        let rest = "four five six seven eight nine ten eleven ";
        assert_eq!(shown(&mut follower), rest);
        // What nobody has any more is left out, and nothing is shown twice.
        put(".at", "00000000000000000100 \n");
        put("", "twelve");
        assert_eq!(shown(&mut follower), "twelve");
    }

    #[test]
    fn a_file_that_is_begun_anew_or_replaced_is_shown_from_its_beginning() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("stdout.log");
        std::fs::write(&path, "much that is old\n").expect("it is written");
        let mut follower = Follower::open(&path, |_| Ok(5)).expect("it is opened");
        assert_eq!(shown(&mut follower), "that is old\n");
        std::fs::write(&path, "new\n").expect("it is written");
        assert_eq!(shown(&mut follower), "new\n");
        std::fs::rename(&path, dir.path().join("moved")).expect("it is there");
        std::fs::write(&path, "another file\n").expect("it is written");
        assert_eq!(shown(&mut follower), "another file\n");
    }

    /// The user of a process may write to what is stored beside its output, and the owner of a directory may put links there.
    #[test]
    fn what_was_planted_in_place_of_an_output_or_its_position_stops_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("stdout.log");
        std::fs::write(&path, "text\n").expect("it is written");
        let at = beside(&path, ".at");
        for planted in ["18446744073709551615", "-1", ""] {
            std::fs::write(&at, planted).expect("it is written");
            let mut follower = Follower::open(&path, |_| Ok(0)).expect("it is opened");
            assert_eq!(shown(&mut follower), "text\n", "{planted}");
        }
        std::fs::remove_file(&at).expect("it is there");
        std::fs::rename(&path, dir.path().join("secret")).expect("it is there");
        std::os::unix::fs::symlink(dir.path().join("secret"), &path).expect("a link");
        assert!(Follower::open(&path, |_| Ok(0)).is_err(), "no link is followed");
    }
}
