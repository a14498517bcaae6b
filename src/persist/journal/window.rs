//! A view of a file that keeps one piece at a time in memory. A segment is mostly read from beginning to end, so there is no need to load
//! all of it at once.

use crate::persist::disk::DiskFile;
use crate::persist::format::FRAME_BYTES_MAX;
use std::io;
use std::ops::Range;

/// The size of the piece in memory, in bytes: large enough for any frame, but small enough for a processor's cache.
const WINDOW_BYTES: usize = 2 * FRAME_BYTES_MAX;

/// A piece of a file, which slides over the file as it is read.
pub struct Window {
    file: Box<dyn DiskFile>,
    len: usize,
    /// The offset at which the piece begins.
    start: usize,
    bytes: Vec<u8>,
}

impl Window {
    /// Creates a window over the first `len` bytes of a file.
    pub fn new(file: Box<dyn DiskFile>, len: usize) -> Self {
        Self { file, len, start: 0, bytes: Vec::new() }
    }

    /// Returns the number of bytes of the file that the window can show.
    #[expect(
        clippy::len_without_is_empty,
        reason = "no caller needs to know whether a segment is empty"
    )]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes from `offset` on: enough for a frame of any length, unless the file ends earlier.
    pub fn from(&mut self, offset: usize) -> io::Result<&[u8]> {
        let end = self.start + self.bytes.len();
        let is_here = self.start <= offset && end.min(self.len) >= self.wanted(offset);
        if !is_here {
            self.slide(offset)?;
        }
        Ok(self.bytes.get(offset - self.start..).unwrap_or(&[]))
    }

    /// Returns the bytes at these offsets of the file, which must be part of what `from` returned last.
    pub fn get(&self, range: Range<usize>) -> &[u8] {
        let range = range.start - self.start..range.end - self.start;
        self.bytes.get(range).unwrap_or(&[])
    }

    /// Discards the bytes in memory, because the file may have been written to since they were read.
    pub fn forget(&mut self) {
        self.bytes.clear();
    }

    /// Returns the offset from which on the file contains only zeros, or `from` if that is greater.
    pub fn used(&self, from: usize) -> io::Result<usize> {
        let (mut used, mut seen) = (from, from);
        let part = from as u64..self.len as u64;
        each_piece(self.file.as_ref(), part, |_, piece| {
            used = last_used(piece).map_or(used, |last| seen + last + 1);
            seen += piece.len();
            Ok(())
        })?;
        Ok(used)
    }

    /// Returns the latest offset at which a frame at `offset` can end.
    fn wanted(&self, offset: usize) -> usize {
        self.len.min(offset + FRAME_BYTES_MAX)
    }

    fn slide(&mut self, offset: usize) -> io::Result<()> {
        let end = self.start + self.bytes.len();
        let kept = if (self.start..end).contains(&offset) {
            self.bytes.drain(..offset - self.start);
            self.bytes.len()
        } else {
            self.bytes.clear();
            0
        };
        self.start = offset;
        let size = WINDOW_BYTES.min(self.len.saturating_sub(offset));
        self.bytes.resize(size, 0);
        let rest = self.bytes.get_mut(kept..).unwrap_or_default();
        let read = self.file.read_at(rest, (offset + kept) as u64)?;
        self.bytes.truncate(kept + read);
        Ok(())
    }
}

/// Calls `visit` with each piece of a part of a file, and the offset of the piece. Stops early where the file ends, or after an error.
pub fn each_piece(
    file: &dyn DiskFile,
    part: Range<u64>,
    mut visit: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffer = Vec::new();
    let mut offset = part.start;
    while offset < part.end {
        let left = usize::try_from(part.end - offset).unwrap_or(usize::MAX);
        buffer.resize(WINDOW_BYTES.min(left), 0);
        let read = file.read_at(&mut buffer, offset)?;
        visit(offset, buffer.get(..read).unwrap_or(&[]))?;
        if read < buffer.len() {
            break;
        }
        offset += read as u64;
    }
    Ok(())
}

/// Returns the index of the last byte that is not zero; `None` if all are zero. Checks many bytes at a time, since most are usually zero.
pub fn last_used(bytes: &[u8]) -> Option<usize> {
    let is_zero = |block: &[u8]| block.iter().fold(0, |any, byte| any | byte) == 0;
    let zeros = bytes.rchunks(256).take_while(|block| is_zero(block));
    let zeros: usize = zeros.map(<[u8]>::len).sum();
    let rest = bytes.get(..bytes.len() - zeros).unwrap_or(&[]);
    rest.iter().rposition(|byte| *byte != 0)
}

#[cfg(test)]
mod tests {
    use super::{FRAME_BYTES_MAX, WINDOW_BYTES, Window, each_piece, last_used};
    use crate::persist::disk::{Disk as _, RealDisk};

    #[test]
    fn a_window_shows_what_the_file_has_wherever_it_stands() {
        let folder = tempfile::tempdir().unwrap();
        let disk = RealDisk::new(folder.path());
        let file = disk.create("file").unwrap();
        let len = 3 * WINDOW_BYTES + 17;
        let mut bytes: Vec<u8> = (1..=251).cycle().take(len).collect();
        bytes[len - 5..].fill(0);
        file.write_at(&bytes, 0).unwrap();
        let mut window = Window::new(file, len);
        let steps = [0, 1, FRAME_BYTES_MAX, WINDOW_BYTES - 1, WINDOW_BYTES + 3];
        for offset in steps.into_iter().chain([len - 9, 5, len - 1, len]) {
            let shown = window.from(offset).unwrap();
            assert!(shown.len() >= FRAME_BYTES_MAX.min(len - offset));
            assert!(bytes[offset..].starts_with(shown), "at {offset}");
        }
        for from in [0, 5, len - 6] {
            assert_eq!(window.used(from).unwrap(), len - 5);
        }
        assert_eq!(window.used(len - 3).unwrap(), len - 3);

        disk.open("file", true).unwrap().write_at(b"new", 0).unwrap();
        assert_eq!(window.from(0).unwrap()[..3], *b"new");
        disk.open("file", true).unwrap().write_at(b"old", 0).unwrap();
        assert_eq!(window.from(0).unwrap()[..3], *b"new");
        window.forget();
        assert_eq!(window.from(0).unwrap()[..3], *b"old");
    }

    #[test]
    fn a_file_is_gone_through_once_and_whole() {
        let folder = tempfile::tempdir().unwrap();
        let disk = RealDisk::new(folder.path());
        let file = disk.create("file").unwrap();
        let bytes: Vec<u8> = (0..=255).cycle().take(2 * WINDOW_BYTES + 9).collect();
        file.write_at(&bytes, 0).unwrap();
        for (from, to) in [(0, 0), (3, 5), (0, WINDOW_BYTES), (7, bytes.len())] {
            for (end, to) in [(to as u64, to), (u64::MAX, bytes.len())] {
                let mut seen = Vec::new();
                let visit = |offset: u64, piece: &[u8]| {
                    assert_eq!(offset, (from + seen.len()) as u64);
                    seen.extend_from_slice(piece);
                    Ok(())
                };
                each_piece(file.as_ref(), from as u64..end, visit).unwrap();
                assert_eq!(seen, bytes[from..to]);
            }
        }
    }

    #[test]
    fn the_last_that_is_used_is_found_in_any_block() {
        for len in [0, 1, 255, 256, 257, 700] {
            assert_eq!(last_used(&vec![0; len]), None);
            for at in 0..len {
                let mut bytes = vec![0; len];
                bytes[at] = 1;
                bytes[0] = 1;
                assert_eq!(last_used(&bytes), Some(at));
            }
        }
    }
}
