//! A configuration of supervisord: a file, and the files that its `[include]` names.
//!
//! Reads a bounded number of files of bounded size, each once. As in supervisord, an included file cannot include others.

use crate::import::expansion::{Names, expand};
use crate::import::glob;
use crate::import::ini::{Note, Parsed, Place, Section, parse};
use crate::report::Failure;
use sexton::protocols::file;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The maximum size of a file, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// The maximum number of included files.
const FILES_MAX: usize = 256;

/// The sections of all files, with the problems and remarks found while reading them.
pub(super) struct Document {
    pub(super) parsed: Parsed,
    /// Remarks on `[include]`. The remarks on repeated keys are in `parsed`.
    pub(super) notes: Vec<Note>,
}

impl Document {
    /// Reads a file and the files it includes.
    pub(super) fn read(
        path: &Path,
        host: &str,
        variables: &BTreeMap<String, String>,
    ) -> Result<Self, Failure> {
        let mut document = Self { parsed: Parsed::default(), notes: Vec::new() };
        let unreadable =
            |error| Failure::unreachable(format!("failed to read {}: {error}", path.display()));
        let bytes = content(path).map_err(unreadable)?;
        document.add(path, &bytes);
        let is_include = |section: &Section| section.name == "include";
        let sections = &mut document.parsed.sections;
        if let Some(found) = sections.iter().position(is_include) {
            let include = sections.remove(found);
            document.include(path, &include, host, variables);
        }
        document.parsed.report_duplicates();
        document.parsed.fill_in();
        Ok(document)
    }

    /// Parses the text of a file and adds its sections.
    fn add(&mut self, path: &Path, bytes: &[u8]) {
        let path: Arc<Path> = path.into();
        let line = |at: usize| {
            let before = bytes.get(..at).unwrap_or(bytes);
            Place { file: Arc::clone(&path), line: before.split(|byte| *byte == b'\n').count() }
        };
        if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
            let note = Note::new(&line(at), "this line contains a NUL byte");
            self.parsed.problems.push(note);
            return;
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => parse(&path, text, &mut self.parsed),
            Err(error) => {
                let place = line(error.valid_up_to());
                let note = Note::new(&place, "this line is not valid UTF-8");
                self.parsed.problems.push(note);
            }
        }
    }

    fn include(
        &mut self,
        main: &Path,
        include: &Section,
        host: &str,
        variables: &BTreeMap<String, String>,
    ) {
        let Some(files) = include.get("files") else {
            let words = "[include] files: missing; expected a list of file name patterns";
            self.parsed.problems.push(Note::new(&include.place, words));
            return;
        };
        let base = directory(main);
        let names = Names {
            texts: vec![("host_node_name", host)],
            numbers: Vec::new(),
            own: &[],
            variables,
        };
        let patterns = match expand(&files.text, &base.to_string_lossy(), &names) {
            Ok(patterns) => patterns,
            Err(words) => {
                let words = format!("[include] files: {words}");
                self.parsed.problems.push(Note::new(&files.place, words));
                return;
            }
        };
        let mut seen = vec![std::fs::canonicalize(main).unwrap_or_else(|_| main.to_owned())];
        for pattern in patterns.split_whitespace() {
            let found = glob::paths(&base.join(pattern));
            let found = found.unwrap_or_else(|error| {
                let words = format!("[include] files: {pattern}: {error}");
                self.parsed.problems.push(Note::new(&files.place, words));
                Vec::new()
            });
            if found.is_empty() {
                let words = format!("[include] files: {pattern}: there is no such file");
                self.notes.push(Note::new(&files.place, words));
            }
            for path in found {
                if !self.included(&path, &files.place, &mut seen) {
                    return;
                }
            }
        }
    }

    /// Adds an included file, unless it has been read. Returns `false` if [`FILES_MAX`] files were already included.
    fn included(&mut self, path: &Path, place: &Place, seen: &mut Vec<PathBuf>) -> bool {
        let shown = path.display();
        let whole = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if seen.contains(&whole) {
            let words = format!("[include] files: {shown} has already been read");
            self.notes.push(Note::new(place, words));
            return true;
        }
        if seen.len() > FILES_MAX {
            let words = format!("[include] files: there are more than {FILES_MAX} files");
            self.parsed.problems.push(Note::new(place, words));
            return false;
        }
        seen.push(whole);
        let before = self.parsed.sections.len();
        match content(path) {
            Ok(bytes) => self.add(path, &bytes),
            Err(error) => {
                let words = format!("[include] files: failed to read {shown}: {error}");
                self.parsed.problems.push(Note::new(place, words));
            }
        }
        let read = self.parsed.sections.split_off(before);
        for section in read {
            if section.name == "include" {
                let words = "[include]: an included file cannot include others, as in supervisord";
                self.notes.push(Note::new(&section.place, words));
            } else {
                self.parsed.sections.push(section);
            }
        }
        true
    }
}

/// Returns the directory of a file, which supervisord calls `here`.
pub(super) fn directory(file: &Path) -> PathBuf {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    file.parent().unwrap_or(Path::new("/")).to_owned()
}

fn content(path: &Path) -> std::io::Result<Vec<u8>> {
    let (bytes, _) = file::read(path, BYTES_MAX + 1)?;
    if bytes.len() as u64 > BYTES_MAX {
        let words = format!("it has more than {BYTES_MAX} bytes");
        return Err(std::io::Error::other(words));
    }
    Ok(bytes)
}
