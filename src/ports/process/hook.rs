//! Reads records from the output of a hook, which is a command that reports what it did as JSON objects, one per line, each starting with
//! `{`. A separate thread reads the output file after the hook has ended.
//!
//! A `Process` record describes a process that the hook ran; other records are stored unchanged, up to a limit. A malformed record causes a
//! warning with its line number, never an error. All limits apply here, before anything is sent to the actor: what it receives is journaled.

use crate::actors::process::{Child, End, HookOutput, Message, Spec, Warning, masked};
use crate::bytes::Bytes;
use crate::ids::ProcessId;
use crate::ports::process::files;
use crate::ports::process::moment;
use serde_json::{Map, Value};
use std::io::{self, BufRead, Read as _};
use std::path::Path;

/// The maximum length of a record, in bytes.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The maximum number of bytes of output that are searched for records.
const READ_BYTES_MAX: u64 = 64 << 20;

/// The maximum number of records that are parsed.
const RECORDS_MAX: u32 = 100_000;

/// Reads the output of a hook: sends a message for each process, then one with everything else. Stops without the last message if `goes_on`
/// returns `false`. If `is_last` is not set, an error that may pass is returned, again without the last message, so that the output can be
/// read again; otherwise it becomes a warning.
///
/// # Errors
/// Returns an error if the file cannot be read now, although it exists.
pub(super) fn read(
    id: ProcessId,
    path: &Path,
    is_last: bool,
    report: &mut dyn FnMut(Message),
    goes_on: &dyn Fn() -> bool,
) -> io::Result<()> {
    let mut reading =
        Reading { of: id, found: HookOutput::default(), bytes: 0, is_full: false, report };
    let file = files::reader(path);
    let read = file.and_then(|file| reading.lines(&mut file.take(READ_BYTES_MAX), goes_on));
    match read {
        // The coordinator is stopping. The output will be read again after the next startup.
        Ok(false) => return Ok(()),
        Ok(true) => {}
        Err(error) if may_pass(&error) && !is_last => return Err(error),
        Err(error) => reading.warn(0, format!("its output cannot be read: {error}")),
    }
    let found = Box::new(reading.found);
    (reading.report)(Message::Found { id, found });
    Ok(())
}

/// Returns whether a file may be readable later: it exists, and is a regular file.
fn may_pass(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, NotADirectory, NotFound, PermissionDenied};
    !matches!(error.kind(), NotFound | NotADirectory | InvalidInput | PermissionDenied)
        && error.raw_os_error() != Some(rustix::io::Errno::LOOP.raw_os_error())
}

struct Reading<'a> {
    of: ProcessId,
    found: HookOutput,
    /// The total size of the processes that were reported, in bytes.
    bytes: usize,
    /// Whether a process was left out because of a limit; all later ones are then left out, too.
    is_full: bool,
    report: &'a mut dyn FnMut(Message),
}

/// A line of output, or the end of the output.
enum Line {
    End,
    /// A line that does not start with `{`, so it is not a record.
    Other,
    Record(Vec<u8>),
    TooLong,
}

impl Reading<'_> {
    /// Reads all lines, up to the limits. Returns `true` if the end or a limit was reached, `false` if `goes_on` returned `false` before
    /// that.
    fn lines(
        &mut self,
        from: &mut io::Take<impl BufRead>,
        goes_on: &dyn Fn() -> bool,
    ) -> io::Result<bool> {
        let mut records = 0;
        for number in 1.. {
            if !goes_on() {
                return Ok(false);
            }
            let line = line(from)?;
            records += u32::from(matches!(line, Line::Record(_) | Line::TooLong));
            let is_cut = from.limit() == 0 && !matches!(line, Line::End);
            if is_cut || records > RECORDS_MAX {
                let limits = format!("the first {READ_BYTES_MAX} bytes and {RECORDS_MAX} records");
                self.warn(number, format!("only {limits} of an output are read"));
                break;
            }
            match line {
                Line::End => break,
                Line::Other => {}
                Line::Record(bytes) => self.record(number, &bytes),
                Line::TooLong => {
                    self.warn(number, format!("it has more than {LINE_BYTES_MAX} bytes"));
                }
            }
        }
        Ok(true)
    }

    fn record(&mut self, number: u32, bytes: &[u8]) {
        let object = match serde_json::from_slice::<Value>(bytes) {
            Ok(Value::Object(object)) => object,
            Ok(_) => return self.warn(number, "it is not an object".to_owned()),
            Err(error) => return self.warn(number, format!("it is not JSON: {error}")),
        };
        match object.get("type").and_then(Value::as_str) {
            Some("Process") => match child(number, &object) {
                Ok((child, bytes)) => self.process(child, bytes),
                Err(words) => self.warn(number, words),
            },
            Some(_) => self.keep(bytes),
            None => self.warn(number, "it has no type".to_owned()),
        }
    }

    /// Reports a process of this size, unless a limit is reached. There is one warning for all processes that are left out.
    fn process(&mut self, child: Child, bytes: usize) {
        let (most, bytes_max) = (HookOutput::CHILDREN_MAX, HookOutput::CHILDREN_BYTES_MAX);
        let fits = self.found.children < most && self.bytes + bytes <= bytes_max;
        if self.is_full || !fits {
            if !self.is_full {
                let limits = format!("{most} processes, and at most {bytes_max} bytes of them");
                self.warn(child.line, format!("only the first {limits}, are recorded for a hook"));
            }
            self.is_full = true;
            return;
        }
        self.bytes += bytes;
        self.found.children += 1;
        let nth = self.found.children;
        let child = Box::new(Child { nth, ..child });
        (self.report)(Message::Child { of: self.of, child });
    }

    /// Stores a record of another type if it fits within [`HookOutput::KEPT_MAX`] and [`HookOutput::BYTES_MAX`].
    fn keep(&mut self, bytes: &[u8]) {
        self.found.records += 1;
        let kept = &mut self.found.kept;
        let so_far: usize = kept.iter().map(|it| it.as_bytes().len()).sum();
        // Only the first records are stored, without gaps.
        let is_next = kept.len() + 1 == self.found.records as usize;
        let fits =
            so_far + bytes.len() <= HookOutput::BYTES_MAX && kept.len() < HookOutput::KEPT_MAX;
        if is_next && fits {
            kept.push(Bytes::new(bytes));
        }
    }

    fn warn(&mut self, line: u32, mut words: String) {
        self.found.broken += 1;
        if self.found.warnings.len() < HookOutput::WARNINGS_MAX {
            while words.len() > HookOutput::WORDS_BYTES_MAX {
                words.pop();
            }
            self.found.warnings.push(Warning { line, words });
        }
    }
}

/// Reads the next line, without its newline. The contents of lines that are too long or are not records are discarded.
fn line(from: &mut dyn BufRead) -> io::Result<Line> {
    let mut bytes = Vec::new();
    let mut length = 0;
    let mut is_record = None;
    loop {
        let chunk = match from.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            chunk => chunk?,
        };
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let part = chunk.get(..end.unwrap_or(chunk.len())).unwrap_or_default();
        if chunk.is_empty() && length == 0 {
            return Ok(Line::End);
        }
        let is_over = chunk.is_empty() || end.is_some();
        if let Some(first) = part.first() {
            is_record.get_or_insert(*first == b'{');
        }
        length += part.len().max(1);
        if is_record == Some(true) && bytes.len() <= LINE_BYTES_MAX {
            bytes.extend_from_slice(part);
        }
        let read = part.len() + usize::from(end.is_some());
        from.consume(read);
        if is_over {
            break;
        }
    }
    Ok(match is_record {
        Some(true) if bytes.len() > LINE_BYTES_MAX => Line::TooLong,
        Some(true) => Line::Record(bytes),
        Some(false) | None => Line::Other,
    })
}

/// Parses a `Process` record, and checks it as the actor will, which would otherwise refuse it after it was journaled. Returns the size of
/// the record, too. The error is a message that names the invalid field.
fn child(line: u32, object: &Map<String, Value>) -> Result<(Child, usize), String> {
    let there = |name: &str| object.get(name).filter(|it| !it.is_null());
    let text = |value: &Value| value.as_str().map(|text| Bytes::new(text.as_bytes()));
    let argv = match there("cmd") {
        Some(Value::String(command)) => Some(vec![Bytes::new(command.as_bytes())]),
        Some(Value::Array(words)) => words.iter().map(text).collect(),
        _ => None,
    };
    let argv = argv.filter(|argv| !argv.is_empty());
    let argv = argv.ok_or("cmd: expected a command: a string or a list of strings")?;
    // The journal has what is reported here; the command itself is not launched again.
    let argv = masked(&argv);
    let dir = there("pwd").map(|it| text(it).ok_or("pwd: expected a path"));
    let pid = there("pid").map(|it| {
        let pid = it.as_u64().and_then(|pid| u32::try_from(pid).ok());
        pid.ok_or("pid: expected a PID")
    });
    let end = there("exit_code").map(|it| {
        let end = it.as_i64().and_then(end_of);
        end.ok_or("exit_code: expected 0 to 255, or a negative signal number")
    });
    let at = |name: &'static str| {
        let at = there(name).map(|it| moment::date(it).ok_or(name));
        let expected = |name| {
            format!("{name}: expected a time such as 2026-01-31T12:00:00Z, or seconds since 1970")
        };
        at.transpose().map_err(expected)
    };
    let child = Child {
        line,
        argv,
        dir: dir.transpose()?,
        pid: pid.transpose()?,
        end: end.transpose()?,
        started: at("started_at")?,
        ended: at("ended_at")?,
        nth: 0,
        exact: true,
    };
    let spec = Spec {
        argv: child.argv.clone(),
        dir: child.dir.clone().unwrap_or_default(),
        ..Spec::default()
    };
    spec.check().map_err(|flaw| flaw.to_string())?;
    Ok((child, spec.bytes()))
}

fn end_of(code: i64) -> Option<End> {
    if let Ok(signal) = u8::try_from(code.checked_neg()?)
        && (1..=64).contains(&signal)
    {
        let dumped = false;
        return Some(End::Signal { signal, dumped });
    }
    u8::try_from(code).ok().map(End::Code)
}

#[cfg(test)]
mod tests {
    use super::{LINE_BYTES_MAX, may_pass, read};
    use crate::actors::process::{Child, End, HookOutput, Message};
    use crate::bytes::Bytes;
    use crate::clock::Date;
    use crate::ids::ProcessId;
    use rustix::io::Errno;
    use std::fmt::Write as _;

    const ID: ProcessId = ProcessId(7);

    fn found_in(content: &[u8]) -> (Vec<Child>, HookOutput) {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let path = dir.path().join("stdout.log");
        std::fs::write(&path, content).expect("the file can be written");
        let mut children = Vec::new();
        let mut found = None;
        let mut report = |message| {
            if let Message::Child { of: ID, child } = message {
                children.push(*child);
            } else if let Message::Found { id: ID, found: it } = message {
                found = Some(*it);
            } else {
                panic!("{message:?}");
            }
        };
        read(ID, &path, false, &mut report, &|| true).expect("the file can be read");
        (children, found.expect("the file can be read"))
    }

    #[test]
    fn processes_and_other_records_are_told_apart_and_other_lines_passed_over() {
        let (children, found) = found_in(
            br#"plain words
{"type":"Process","cmd":["wget","-q","x"],"pwd":"/srv","pid":41,"exit_code":8,"started_at":"2026-01-31T12:00:00.5Z","ended_at":1769860801}
 {"type":"Indented"}
{"type":"Snapshot","url":"https://example.org"}
{"type":"Process","cmd":"true","exit_code":-9}
"#,
        );
        let first = &children[0];
        assert_eq!((first.line, first.pid, first.end), (2, Some(41), Some(End::Code(8))));
        assert_eq!(first.argv.len(), 3);
        assert_eq!(first.dir, Some(Bytes::new(*b"/srv")));
        assert_eq!(first.started, Some(Date(1_769_860_800_500)));
        assert_eq!(first.ended, Some(Date(1_769_860_801_000)));
        let signal = End::Signal { signal: 9, dumped: false };
        assert_eq!((children[1].line, children[1].end), (5, Some(signal)));
        assert_eq!((first.nth, children[1].nth), (1, 2));
        assert_eq!((found.children, found.records, found.broken), (2, 1, 0));
        let kept = br#"{"type":"Snapshot","url":"https://example.org"}"#;
        assert_eq!(found.kept, [Bytes::new(*kept)]);
    }

    #[test]
    fn a_secret_in_a_reported_command_is_not_reported_further() {
        let (children, _) = found_in(
            br#"{"type":"Process","cmd":["sh","-c","curl -u a:b h"]}
"#,
        );
        assert_eq!(children[0].argv[2], Bytes::new(*b"curl -u a:*** h"));
    }

    #[test]
    fn what_is_broken_is_named_by_its_line() {
        let long = "x".repeat(LINE_BYTES_MAX);
        let content = format!(
            "{{\"type\":\"A\"\n\n{{\"type\":7}}\n{{\"type\":\"Process\"}}\n{{\"type\":\"B\",\"x\":\"{long}\"}}\n\
             {{\"type\":\"Process\",\"cmd\":[\"a\"],\"exit_code\":256}}\n{{\"type\":\"C\"}}"
        );
        let (children, found) = found_in(content.as_bytes());
        assert_eq!((children.len(), found.records, found.broken), (0, 1, 5));
        let lines: Vec<u32> = found.warnings.iter().map(|it| it.line).collect();
        assert_eq!(lines, [1, 3, 4, 5, 6]);
        let words: Vec<&str> = found.warnings.iter().map(|it| it.words.as_str()).collect();
        assert!(words[0].starts_with("it is not JSON"), "{words:?}");
        assert_eq!(words[3], "it has more than 65536 bytes");
    }

    #[test]
    fn what_is_sent_to_the_actor_has_bounds_and_one_warning() {
        let long = "z".repeat(60_000);
        let line = format!("{{\"type\":\"Process\",\"cmd\":[\"x\",\"{long}\"]}}\n");
        let (children, found) = found_in(line.repeat(1000).as_bytes());
        let bytes: usize =
            children.iter().flat_map(|it| &it.argv).map(|it| it.as_bytes().len()).sum();
        assert!(bytes <= HookOutput::CHILDREN_BYTES_MAX, "{bytes}");
        assert_eq!(found.children as usize, children.len());
        assert_eq!((found.broken, found.warnings.len()), (1, 1));
        let line = "{\"type\":\"Process\",\"cmd\":[\"x\"]}\n";
        let (children, found) = found_in(line.repeat(1500).as_bytes());
        assert_eq!((children.len(), found.children), (1000, 1000));
        assert_eq!((found.broken, found.warnings[0].line), (1, 1001));
        // What the actor would refuse is not sent.
        let many = format!("[{}\"x\"]", "\"x\",".repeat(4096));
        let line = format!("{{\"type\":\"Process\",\"cmd\":{many}}}\n");
        let (children, found) = found_in(line.as_bytes());
        assert_eq!((children.len(), found.children, found.broken), (0, 0, 1));
        let (_, found) = found_in("{}\n".repeat(100_500).as_bytes());
        assert_eq!(found.broken, 100_001);
    }

    #[test]
    fn only_an_output_that_may_be_readable_later_is_read_again() {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let mut reports = 0;
        // What is not a file, or does not exist, stays unreadable.
        for path in [dir.path().to_owned(), dir.path().join("missing")] {
            let report = &mut |_| reports += 1;
            read(ID, &path, false, report, &|| true).expect("the error is final");
        }
        assert_eq!(reports, 2);
        let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::IO];
        assert!(shortages.into_iter().all(|it| may_pass(&it.into())));
    }

    #[test]
    fn what_is_kept_has_bounds() {
        let mut content = String::new();
        for number in 0..200 {
            let long = "y".repeat(1000);
            writeln!(content, "{{\"type\":\"T\",\"n\":{number},\"x\":\"{long}\"}}")
                .expect("writing to memory does not fail");
        }
        content.push_str(&"{\n".repeat(100));
        let (_, found) = found_in(content.as_bytes());
        assert_eq!((found.records, found.broken), (200, 100));
        assert_eq!(found.warnings.len(), HookOutput::WARNINGS_MAX);
        let kept: usize = found.kept.iter().map(|it| it.as_bytes().len()).sum();
        assert!((HookOutput::BYTES_MAX - 1100..=HookOutput::BYTES_MAX).contains(&kept), "{kept}");
    }
}
