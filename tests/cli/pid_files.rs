//! PID files of other programs: only the process for which a file was written gets the signal.

use crate::daemon::{ended, sexton, text};
use crate::suspended::suspend;
use serde_json::Value;
use std::fs::{File, FileTimes};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// A process of another program, with its PID file. It ends with the test.
struct Other {
    child: Child,
    started: SystemTime,
    files: TempDir,
}

impl Other {
    fn start(program: &str) -> Self {
        let files = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new("sleep");
        let child = command.arg("1000").stdin(Stdio::null()).spawn();
        let other = Self { child: child.expect("the command runs"), started: now(), files };
        write(&other.pid_file(), &other.child.id().to_string());
        let script = format!("#!/bin/bash\n{program} 1000\n");
        write(&other.files.path().join("cmd.sh"), &script);
        other.shift(0.0);
        other
    }

    fn pid_file(&self) -> PathBuf {
        self.files.path().join("process.pid")
    }

    /// Makes its PID file this many seconds younger than its process.
    fn shift(&self, seconds: f64) {
        let span = Duration::from_secs_f64(seconds.abs());
        let time = if seconds < 0.0 { self.started - span } else { self.started + span };
        let file = File::options().write(true).open(self.pid_file());
        let set = file.and_then(|it| it.set_times(FileTimes::new().set_modified(time)));
        set.expect("our own file");
    }

    fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns the status of its process in `ps --pid-files`.
    fn status(&self) -> String {
        let listed = list(self.files.path());
        let status = listed.pointer("/pid_files/0/status").and_then(Value::as_str);
        status.expect("the file is listed").to_owned()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[expect(clippy::disallowed_methods, reason = "files have times of the wall clock")]
fn now() -> SystemTime {
    SystemTime::now()
}

fn write(path: &Path, content: &str) {
    std::fs::write(path, content).expect("a writable file");
}

fn list(directory: &Path) -> Value {
    let mut command = sexton();
    command.args(["ps", "--json", "--pid-files", text(directory)]);
    let [said, errors] = ended(command.output().expect("the command runs"), 0);
    assert_eq!(errors, "");
    serde_json::from_str(&said).expect("valid JSON")
}

fn kill(file: &Path, flags: &[&str], status: i32) -> [String; 2] {
    let mut command = sexton();
    command.args(["kill", "--pid-file", text(file)]).args(flags);
    ended(command.output().expect("the command runs"), status)
}

#[test]
fn the_process_of_a_pid_file_is_found_and_ended() {
    let mut other = Other::start("/usr/bin/sleep");
    assert_eq!(other.status(), "running");
    let [said, _] = kill(&other.pid_file(), &["--signal", "CONT"], 0);
    assert!(said.contains("signalled"), "{said}");
    assert!(other.lives());
    let [said, _] = kill(&other.pid_file(), &["--json"], 0);
    let said: Value = serde_json::from_str(&said).expect("valid JSON");
    assert_eq!(said.pointer("/outcome"), Some(&"ended".into()));
    // The process has ended: first its parent has not reaped it, and then it has.
    assert_eq!(other.status(), "ended");
    kill(&other.pid_file(), &[], 1);
    let status = other.child.wait().expect("it has ended");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
    assert_eq!(other.status(), "gone");
    let [_, told] = kill(&other.pid_file(), &[], 1);
    assert!(told.contains("no process has this PID"), "{told}");
}

#[test]
fn a_suspended_process_is_ended_by_sigterm() {
    let mut other = Other::start("/usr/bin/sleep");
    suspend(i32::try_from(other.child.id()).expect("a PID"));
    // The grace period is longer than any test waits.
    let [said, _] = kill(&other.pid_file(), &["--grace", "1h", "--json"], 0);
    let said: Value = serde_json::from_str(&said).expect("valid JSON");
    assert_eq!(said.pointer("/outcome"), Some(&"ended".into()));
    let status = other.child.wait().expect("it has ended");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
}

#[test]
fn a_stranger_with_the_pid_is_never_touched() {
    let mut other = Other::start("sleep");
    for (shift, is) in [(-50.0, "reused"), (-6.0, "reused"), (6.0, "reused"), (0.0, "running")] {
        other.shift(shift);
        assert_eq!(other.status(), is, "{shift} s");
        if is == "reused" {
            let [_, told] = kill(&other.pid_file(), &["--now"], 1);
            assert!(told.contains("this PID now belongs to another process"), "{told}");
        }
    }
    let script = other.files.path().join("cmd.sh");
    write(&script, "#!/bin/bash\nwget 1000\n");
    assert_eq!(other.status(), "other-program");
    kill(&other.pid_file(), &["--now"], 1);
    std::fs::remove_file(&script).expect("the file exists");
    assert_eq!(other.status(), "unknown-program");
    let [_, told] = kill(&other.pid_file(), &["--now"], 1);
    assert!(told.contains("write cmd.sh next to the file"), "{told}");
    // A user who may write a file in this directory must not be able to choose which process root kills.
    write(&script, "exec sleep 1000\n");
    if rustix::process::getuid().is_root() {
        chown(other.pid_file(), Some(12_345), None).expect("root may do this");
        assert_eq!(other.status(), "other-user");
        kill(&other.pid_file(), &["--signal", "KILL"], 1);
        chown(other.pid_file(), Some(0), None).expect("root may do this");
    }
    assert_eq!(other.status(), "running");
    assert!(other.lives(), "no signal has reached it");
    kill(&other.pid_file(), &["--now"], 0);
    assert!(!other.lives());
}

/// A user who may write somewhere must not be able to choose which process root signals.
#[test]
fn a_link_of_another_user_is_not_followed() {
    use std::os::unix::fs::{lchown, symlink};
    let mut other = Other::start("sleep");
    let planted = tempfile::tempdir().expect("a temporary directory");
    let place = |name: &str| planted.path().join(name);
    let refused = |file: &Path, words: &str| {
        let [_, told] = kill(file, &["--now"], 3);
        assert!(told.contains(words), "{}: {told}", file.display());
    };
    // Neither the file nor the script may be a link, whoever made it, nor have another name.
    symlink(other.pid_file(), place("x.pid")).expect("a link");
    refused(&place("x.pid"), "it is a symbolic link");
    std::fs::copy(other.pid_file(), place("y.pid")).expect("a copy");
    symlink(other.files.path().join("cmd.sh"), place("cmd.sh")).expect("a link");
    refused(&place("y.pid"), "it is a symbolic link");
    std::fs::hard_link(place("y.pid"), place("z.pid")).expect("another name");
    refused(&place("z.pid"), "hard link");
    let name = other.pid_file();
    let name = name.file_name().expect("it has a name");
    // Our own link to a directory is followed.
    symlink(other.files.path(), place("dir")).expect("a link");
    assert!(other.lives());
    if rustix::process::getuid().is_root() {
        lchown(place("dir"), Some(12_345), None).expect("root may do this");
        refused(&place("dir").join(name), "a symbolic link of user 12345");
        lchown(place("dir"), Some(0), None).expect("root may do this");
        // A file of root in a directory of another user may have been put there by that user.
        chown(other.files.path(), Some(12_345), None).expect("root may do this");
        assert_eq!(other.status(), "other-user");
        kill(&place("dir").join(name), &["--now"], 1);
        chown(other.files.path(), Some(0), None).expect("root may do this");
    } else {
        crate::left_out::left_out("links of another user: only root can make them");
    }
    let open = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(other.files.path(), mode).expect("our own directory");
    };
    open(0o777);
    refused(&place("dir").join(name), "every user can replace");
    open(0o700);
    kill(&place("dir").join(name), &["--now"], 0);
    assert!(!other.lives());
}

#[test]
fn what_is_no_pid_file_is_refused_with_words() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let path = files.path().join("x.pid");
    let long = "7".repeat(100);
    for content in ["", "abc", "-1", "0", "1 2", "99999999999", &long, "1\0"] {
        write(&path, content);
        let [_, told] = kill(&path, &[], 3);
        assert!(told.contains("x.pid: "), "{content:?}: {told}");
    }
    std::fs::remove_file(&path).expect("the file exists");
    std::fs::create_dir(&path).expect("a directory");
    let [_, told] = kill(&path, &[], 3);
    assert!(told.contains("it is not a regular file"), "{told}");
    assert_eq!(list(files.path()).pointer("/pid_files"), Some(&Value::Array(vec![])));
    // A file in a subdirectory, and a file without a PID in it.
    write(&path.join("y.pid"), "4194305");
    write(&files.path().join("z.pid"), "what");
    let listed = list(files.path());
    let status = |number: usize| listed.pointer(&format!("/pid_files/{number}/status"));
    assert_eq!(status(0), Some(&"gone".into()), "{listed}");
    assert_eq!(status(1), Some(&"unreadable".into()));
    kill(&files.path().join("absent.pid"), &[], 3);
    let mut command = sexton();
    command.args(["kill", "0192f5e0", "--pid-file", text(&path)]);
    ended(command.output().expect("the command runs"), 2);
}
