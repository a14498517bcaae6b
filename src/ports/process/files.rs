//! The files of a process: its directory, a script that runs it again, and its output.

use crate::actors::process::{Failure, Output, Spec, Step};
use crate::bytes::Bytes;
use crate::ids::ProcessId;
use crate::kernel::{file, lease, path};
use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The directory in the data directory that contains one directory for each process.
pub(crate) const RUN: &str = "run";

/// The script that runs the process again.
const COMMAND: &str = "cmd.sh";

/// The file for standard output.
pub(crate) const STDOUT: &str = "stdout.log";

/// The file for standard error.
pub(crate) const STDERR: &str = "stderr.log";

/// The maximum size of an environment file, in bytes.
const ENV_FILE_MAX: u64 = 1 << 20;

/// Converts bytes to a path.
pub(crate) fn path_of(bytes: &Bytes) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes.as_bytes()))
}

/// Converts a path to bytes.
pub(crate) fn bytes_of(path: &Path) -> Bytes {
    Bytes::new(path.as_os_str().as_bytes())
}

/// Returns the path of a process's directory: `own`, relative to the data directory, or, if that is `None`, the directory in [`RUN`] that
/// is named after `id`.
pub(crate) fn run_dir(data: &Path, id: ProcessId, own: Option<&Bytes>) -> PathBuf {
    own.map_or_else(|| data.join(RUN).join(id.to_string()), |own| data.join(path_of(own)))
}

/// Returns the ids of the processes that have a directory in `run`, the path of the directory named [`RUN`].
pub(crate) fn dirs(run: &Path) -> Vec<ProcessId> {
    // If no process was ever started, the directory does not exist.
    let entries = std::fs::read_dir(run).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}

/// Removes the directory of a process with all its files.
pub(crate) fn remove_dir(dir: &Path) {
    if let Err(error) = std::fs::remove_dir_all(dir)
        && error.kind() != io::ErrorKind::NotFound
    {
        let dir = dir.display();
        tracing::warn!("{dir}: failed to remove the files of a forgotten process: {error}");
    }
}

/// Builds the failure of a step that concerns a path. An error that is not one of the kernel's is added as text.
pub(super) fn failure(step: Step, error: &io::Error, about: &Path) -> Failure {
    let path = about.display();
    let about = match error.raw_os_error() {
        Some(_) => path.to_string(),
        None => format!("{path}: {error}"),
    };
    Failure { step, errno: error.raw_os_error().unwrap_or(0), about: Some(about) }
}

/// Opens an output file for reading from its beginning.
///
/// # Errors
/// Returns an error if it cannot be opened, or is not a regular file.
#[cfg(feature = "replay")]
pub(super) fn reader(path: &Path) -> io::Result<impl io::BufRead> {
    Ok(io::BufReader::with_capacity(64 << 10, opened(path)?))
}

/// Opens a file of ours for reading: another user who may write to its directory may have put anything in its place.
///
/// # Errors
/// Returns an error if it cannot be opened, or [`file::Unfit`].
pub(crate) fn opened(path: &Path) -> io::Result<File> {
    file::own(path, OFlags::RDONLY, Mode::empty())
}

/// Explains why the kernel did not execute the program at `path`, if the error `errno` alone would mislead: the program exists, but its
/// interpreter does not, or it is a script without the line that names an interpreter. The path may be unknown.
pub(super) fn not_executed(path: Option<&PathBuf>, errno: i32) -> Option<String> {
    const NO_SUCH_FILE: i32 = 2;
    const NO_FORMAT: i32 = 8;
    match errno {
        NO_SUCH_FILE => missing_interpreter(path?),
        NO_FORMAT => Some(
            "it is neither a program for this machine nor a script whose first line names its interpreter, as `#!/bin/sh` does"
                .to_owned(),
        ),
        _ => None,
    }
}

/// Describes the missing interpreter of an existing program: the one that its first line names, or the loader of a binary. Returns `None`
/// if the program cannot be read.
fn missing_interpreter(path: &Path) -> Option<String> {
    let mut begin = Vec::new();
    // The user as whom the program was to run may have put anything there.
    let file = file::regular(path, OFlags::RDONLY).ok()?;
    file.take(256).read_to_end(&mut begin).ok()?;
    let first = begin.split(|byte| *byte == b'\n').next()?;
    if first.starts_with(b"#!") && first.ends_with(b"\r") {
        return Some("its lines end with CR LF, so the name of its interpreter ends with a CR; `sed -i 's/\\r$//' FILE` converts it".to_owned());
    }
    let name = first.strip_prefix(b"#!").map(String::from_utf8_lossy);
    let name = name.as_deref().map_or("of the program", str::trim);
    Some(format!("the interpreter {name} does not exist"))
}

/// Creates the working directory of a process. Another user may keep the caller waiting.
pub(super) fn make_directory(path: &Path) -> Result<(), Failure> {
    let made = path::directory(path, Mode::RWXU | Mode::RWXG | Mode::RWXO);
    made.map_err(|error| failure(Step::Directory, &error, path))
}

/// Creates the directory of a process, with `cmd.sh` in it. Nobody but root and our user can write to that directory or put another in its
/// place, other than by replacing `data`, the data directory.
pub(super) fn prepare(data: &Path, dir: &Path, spec: &Spec) -> Result<(), Failure> {
    let made = path::own_directory(data, dir, Mode::RWXU);
    made.map_err(|error| failure(Step::Files, &error, dir))?;
    let path = dir.join(COMMAND);
    let script = script(spec);
    // All launches of a service use the same directory, so its script may already exist.
    if holds(&path, &script) {
        return Ok(());
    }
    let written = replace(&path, 0o700, &script);
    written.map_err(|error| failure(Step::Files, &error, &path))
}

/// Returns whether a file of ours has this content; `false` if it cannot be read.
fn holds(path: &Path, content: &[u8]) -> bool {
    let read = opened(path).and_then(|mut file| {
        let length = u64::try_from(content.len()).unwrap_or(u64::MAX);
        if file.metadata()?.size() != length {
            return Ok(false);
        }
        Ok(read_some(&mut file, length)? == content)
    });
    read.unwrap_or(false)
}

/// Removes a file, if it exists, and creates it again with this content, never writing through a link.
pub(super) fn replace(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(content)
}

/// Builds a script that runs the process again. It contains the names of secrets, not their values.
fn script(spec: &Spec) -> Vec<u8> {
    let mut script = b"#!/bin/sh\n".to_vec();
    for name in &spec.secrets {
        let needs = format!(
            ": \"${{{name}:?is a secret that is not stored here; set it first}}\"\nexport {name}\n"
        );
        script.extend_from_slice(needs.as_bytes());
    }
    if !spec.dir.as_bytes().is_empty() {
        script.extend_from_slice(b"cd ");
        quote(spec.dir.as_bytes(), &mut script);
        script.extend_from_slice(b" || exit\n");
    }
    script.extend_from_slice(b"exec ");
    if !spec.env.is_empty() {
        script.extend_from_slice(b"env ");
        for (name, value) in &spec.env {
            let mut both = name.as_bytes().to_vec();
            both.push(b'=');
            both.extend_from_slice(value.as_bytes());
            quote(&both, &mut script);
            script.push(b' ');
        }
    }
    for (place, argument) in spec.argv.iter().enumerate() {
        if place > 0 {
            script.push(b' ');
        }
        quote(argument.as_bytes(), &mut script);
    }
    script.push(b'\n');
    script
}

/// Appends a word in shell syntax, quoted only if necessary.
fn quote(word: &[u8], script: &mut Vec<u8>) {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"%+,-./:=@_".contains(byte);
    if !word.is_empty() && word.iter().all(plain) {
        return script.extend_from_slice(word);
    }
    script.push(b'\'');
    for byte in word {
        match byte {
            b'\'' => script.extend_from_slice(b"'\\''"),
            other => script.push(*other),
        }
    }
    script.push(b'\'');
}

/// Returns the stored key from which the secrets of processes are derived. If no valid key is stored, stores and returns `fresh`. A key
/// that another user may have written or read is not valid.
///
/// # Errors
/// Returns an error if the key can be neither read nor written.
pub(crate) fn report_key(data: &Path, fresh: [u8; 32]) -> io::Result<[u8; 32]> {
    let path = data.join(super::reporting::KEY_FILE);
    let read = || -> io::Result<Option<[u8; 32]>> {
        let mut file = match opened(&path) {
            Err(error) if file::unfit(&error).is_some() => return Ok(None),
            other => other?,
        };
        if file.metadata()?.mode().trailing_zeros() < 6 {
            return Ok(None);
        }
        // One byte more than a key has, so that a longer file is not taken for one.
        let key: Option<[u8; 32]> = read_some(&mut file, 33)?.try_into().ok();
        Ok(key)
    };
    match read() {
        Ok(Some(key)) => return Ok(key),
        Ok(None) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    replace(&path, 0o600, &fresh)?;
    Ok(fresh)
}

/// Returns the beginning and the end of an output file, and whether a process has it open for writing. An output file that cannot be read
/// counts as empty; the flag is `false` if writers cannot be detected.
pub(super) fn output(path: &Path) -> (Output, bool) {
    read_output(path).unwrap_or_default()
}

fn read_output(path: &Path) -> io::Result<(Output, bool)> {
    let mut file = opened(path)?;
    let bytes = file.metadata()?.size();
    let (all, tail) = (Output::SHOWN_BYTES as u64, Output::TAIL_BYTES as u64);
    // A short output is shown as a whole. Of a long one, the end shows how the process ended, so most of what is shown is from there.
    let is_long = bytes > all;
    let head = match bytes {
        0 => Vec::new(),
        _ if is_long => read_some(&mut file, all - tail)?,
        _ => read_some(&mut file, all)?,
    };
    let tail = if is_long {
        file.seek(SeekFrom::Start(bytes - tail))?;
        read_some(&mut file, tail)?
    } else {
        Vec::new()
    };
    let is_written = lease::is_written(file.as_fd()).unwrap_or(false);
    Ok((Output::new(bytes, &head, &tail), is_written))
}

fn read_some(file: &mut File, most: u64) -> io::Result<Vec<u8>> {
    let mut some = Vec::new();
    file.take(most).read_to_end(&mut some)?;
    Ok(some)
}

/// Reads an environment file of `NAME=VALUE` lines. Blank lines and lines starting with `#` are ignored. An `export` before a name and a
/// pair of quotes around a value are removed. A line that a shell would read differently is refused rather than guessed at. `user` is the user
/// that will have the variables ([`file::of_user`]). Another user may keep the caller waiting.
pub(super) fn variables(path: &Path, user: u32) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let wrong = |error: &io::Error| failure(Step::Environment, error, path);
    let refused = |words: String| Failure { step: Step::Environment, errno: 0, about: Some(words) };
    let opened = file::of_user(path, user);
    let mut file = opened.map_err(|error| wrong(&error))?;
    let content = read_some(&mut file, ENV_FILE_MAX + 1).map_err(|error| wrong(&error))?;
    if content.len() as u64 > ENV_FILE_MAX {
        let path = path.display();
        return Err(refused(format!("{path}: it has more than {ENV_FILE_MAX} bytes")));
    }
    let mut variables = Vec::new();
    for (place, line) in content.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let variable = split(line).map_err(|words| {
            let (path, line) = (path.display(), place + 1);
            refused(format!("{path}, line {line}: {words}"))
        })?;
        variables.push(variable);
    }
    Ok(variables)
}

/// Splits a line of an environment file, without blanks around it, into name and value; or describes what is wrong with it.
fn split(line: &[u8]) -> Result<(String, Vec<u8>), &'static str> {
    let line = match line.strip_prefix(b"export") {
        Some(rest) if rest.first().is_some_and(u8::is_ascii_whitespace) => rest.trim_ascii_start(),
        Some(_) | None => line,
    };
    let place = line.iter().position(|byte| *byte == b'=');
    let (name, value) = line.split_at(place.ok_or("expected NAME=VALUE")?);
    let value = value.get(1..).unwrap_or_default();
    let is_blank = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_whitespace);
    if is_blank(name.last()) || is_blank(value.first()) {
        return Err("remove the blanks around `=`, or quote a value that begins with a blank");
    }
    let name = std::str::from_utf8(name).map_err(|_| "the name is not UTF-8")?;
    let is_strange =
        |it: char| it.is_whitespace() || it.is_control() || "\"'`$\\#\u{feff}".contains(it);
    if name.is_empty() || name.contains(is_strange) {
        return Err(
            "expected NAME=VALUE, with a name without blanks, quotes and control characters",
        );
    }
    Ok((name.to_owned(), unquoted(value)?.to_vec()))
}

/// Removes the quotes around a value.
fn unquoted(value: &[u8]) -> Result<&[u8], &'static str> {
    match value {
        [quote @ (b'"' | b'\''), rest @ ..] => match rest.split_last() {
            Some((last, inner)) if last == quote && !inner.contains(quote) => Ok(inner),
            Some(_) | None => Err(
                "the value begins with a quote, so it must end with the same quote, with none in between and nothing after it",
            ),
        },
        bare if bare.windows(2).any(|two| matches!(two, [b' ' | b'\t', b'#'])) => {
            Err("put the remark on a line of its own, or quote the value if the # belongs to it")
        }
        bare => Ok(bare),
    }
}

#[cfg(test)]
mod tests {
    use super::{output, prepare, quote, script, variables};
    use crate::actors::process::{Output, Spec, Step};
    use crate::bytes::Bytes;
    use std::os::unix::fs::MetadataExt as _;

    /// Any user of ours.
    const OWN: u32 = 0;

    fn quoted(word: &[u8]) -> String {
        let mut script = Vec::new();
        quote(word, &mut script);
        String::from_utf8(script).expect("the script is UTF-8")
    }

    #[test]
    fn variables_are_read_of_files_alone() {
        let files = tempfile::tempdir().expect("a directory can be created");
        let pipe = files.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).expect("the file can be created");
        for path in [pipe.as_path(), files.path(), std::path::Path::new("/dev/zero")] {
            let failure = variables(path, OWN).expect_err("the path is not a regular file");
            assert_eq!(failure.step, Step::Environment);
            let about = failure.about.unwrap_or_default();
            assert!(about.ends_with("not a regular file"), "{about}");
        }
    }

    /// A user may have put anything in the place of the program that is launched as that user.
    #[test]
    fn a_pipe_in_place_of_a_program_is_not_waited_for() {
        let files = tempfile::tempdir().expect("a directory can be created");
        let (pipe, link) = (files.path().join("pipe"), files.path().join("link"));
        let mode = rustix::fs::Mode::from_raw_mode(0o700);
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).expect("the file can be created");
        std::os::unix::fs::symlink(&pipe, &link).expect("the file can be linked");
        for path in [pipe, link, "/dev/zero".into()] {
            assert_eq!(super::not_executed(Some(&path), 2), None, "{path:?}");
        }
        let script = files.path().join("script");
        std::fs::write(&script, "#!/no/such -x\n").expect("the file can be written");
        let why = super::not_executed(Some(&script), 2).expect("it is read");
        assert!(why.contains("/no/such"), "{why}");
    }

    #[test]
    fn words_are_quoted_so_that_a_shell_gives_them_back() {
        assert_eq!(quoted(b"plain/path.py"), "plain/path.py");
        assert_eq!(quoted(b""), "''");
        assert_eq!(quoted(b"a b"), "'a b'");
        assert_eq!(quoted(b"it's $HOME"), "'it'\\''s $HOME'");
    }

    #[test]
    fn a_script_names_secrets_and_has_none() {
        let spec = Spec {
            argv: vec![Bytes::new(*b"echo"), Bytes::new(*b"a b")],
            env: vec![("COLOUR".to_owned(), Bytes::new(*b"red one"))],
            secrets: vec!["API_TOKEN".to_owned()],
            dir: Bytes::new(*b"/srv/x y"),
            ..Spec::default()
        };
        let script = String::from_utf8(script(&spec)).expect("the script is UTF-8");
        let expected = "#!/bin/sh\n: \"${API_TOKEN:?is a secret that is not stored here; set it first}\"\nexport API_TOKEN\ncd '/srv/x y' || exit\nexec env 'COLOUR=red one' echo 'a b'\n";
        assert_eq!(script, expected);
    }

    #[test]
    fn a_script_that_is_there_stays_and_another_or_a_link_is_replaced() {
        let folder = tempfile::tempdir().expect("a directory can be created");
        let path = folder.path().join("cmd.sh");
        let inode = || std::fs::symlink_metadata(&path).expect("the file exists").ino();
        let spec = |word: &[u8]| Spec {
            argv: vec![Bytes::new(*b"echo"), Bytes::new(word)],
            ..Spec::default()
        };
        let written = || std::fs::read_to_string(&path).expect("the file can be read");
        prepare(folder.path(), folder.path(), &spec(b"one")).expect("the file can be written");
        let first = inode();
        prepare(folder.path(), folder.path(), &spec(b"one")).expect("the file exists");
        assert_eq!(inode(), first, "the file is not replaced");
        prepare(folder.path(), folder.path(), &spec(b"two")).expect("the file can be written");
        assert_eq!(written(), "#!/bin/sh\nexec echo two\n");
        // A link to a file with the same content is not accepted.
        let other = folder.path().join("other");
        std::fs::rename(&path, &other).expect("the file can be moved");
        std::os::unix::fs::symlink(&other, &path).expect("the file can be linked");
        prepare(folder.path(), folder.path(), &spec(b"two")).expect("the file can be written");
        let found = std::fs::symlink_metadata(&path).expect("the file exists");
        assert!(found.is_file(), "{found:?}");
    }

    #[test]
    fn a_long_output_shows_its_beginning_and_its_end() {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let path = dir.path().join("stdout.log");
        assert_eq!(output(&path), (Output::default(), false));
        let mut content = vec![b'a'; 1000];
        content.extend_from_slice(&[b'z'; Output::TAIL_BYTES]);
        std::fs::write(&path, &content).expect("the file can be written");
        let (shown, _) = output(&path);
        assert_eq!(shown.bytes, 1000 + Output::TAIL_BYTES as u64);
        assert_eq!(shown.head(), [b'a'; Output::SHOWN_BYTES - Output::TAIL_BYTES]);
        assert_eq!(shown.tail(), [b'z'; Output::TAIL_BYTES]);
        // An output that is not longer than what is shown is shown as a whole.
        std::fs::write(&path, &content[..Output::SHOWN_BYTES]).expect("the file can be written");
        let (shown, _) = output(&path);
        assert_eq!((shown.head().len(), shown.tail().len()), (Output::SHOWN_BYTES, 0));
    }

    #[test]
    fn files_of_variables_are_read_and_a_broken_line_is_named() {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let path = dir.path().join("env");
        std::fs::write(
            &path,
            "# what it needs\n\nexport A=1\nB=\"two words\"\nC=a=b\r\nexport \t D=it's#1\nE=' # '\nF=\n",
        )
        .expect("the file can be written");
        let read = variables(&path, OWN).expect("the file is valid");
        let expected = [
            ("A", "1"),
            ("B", "two words"),
            ("C", "a=b"),
            ("D", "it's#1"),
            ("E", " # "),
            ("F", ""),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
        assert_eq!(read, expected);
        for (line, words) in [
            ("nothing", "expected NAME=VALUE"),
            ("=x", "expected NAME=VALUE, with"),
            ("V = x", "remove the blanks around `=`"),
            ("V= x", "remove the blanks around `=`"),
            ("export V =x", "remove the blanks around `=`"),
            ("export A B=x", "expected NAME=VALUE, with"),
            ("'V'=x", "expected NAME=VALUE, with"),
            ("\u{feff}V=x", "expected NAME=VALUE, with"),
            ("V=\"x\" # remark", "the value begins with a quote"),
            ("V='x", "the value begins with a quote"),
            ("V='", "the value begins with a quote"),
            ("V=\"a \\\" b\"", "the value begins with a quote"),
            ("V=x # remark", "put the remark on a line of its own"),
        ] {
            std::fs::write(&path, format!("A=1\n{line}\n")).expect("the file can be written");
            let wrong = variables(&path, OWN).expect_err(line);
            assert_eq!(wrong.step, Step::Environment);
            let about = wrong.about.expect("the failure names the line");
            assert!(about.contains(&format!("env, line 2: {words}")), "{line}: {about}");
        }
        let long = format!("A={}\n", "x".repeat(1 << 20));
        std::fs::write(&path, long).expect("the file can be written");
        let wrong = variables(&path, OWN).expect_err("the file is too long");
        let about = wrong.about.unwrap_or_default();
        assert!(about.ends_with("it has more than 1048576 bytes"), "{about}");
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let file = dir.path().join("file");
        std::fs::write(&file, "").expect("the file can be written");
        let wrong = prepare(dir.path(), &file.join("run"), &Spec::default())
            .expect_err("a file is in the way");
        assert_eq!((wrong.step, wrong.errno), (Step::Files, 20));
    }
}
