//! Tests against directories in place of `/proc`. A pipe in place of a file blocks whoever opens it, as a process does that keeps its memory
//! locked.

use super::{Files, Helpers, STUCK_MAX, Waits, lock};
use crate::kernel::proc::{Unanswered, Variable, variable_in};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat, open};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const AGES: Duration = Duration::from_secs(3600);

/// Returns processes that all belong to another user than the own one.
fn others(root: &Path) -> Files {
    let own = rustix::process::geteuid().as_raw() + 1;
    Files { root: root.to_owned(), own, helpers: Helpers::new(AGES) }
}

impl Files {
    fn add(&self, pid: u32) {
        let place = self.of(pid);
        fs::create_dir(&place).expect("a new directory");
        let zeroes = "0 ".repeat(15);
        let stat = format!("{pid} (sh) S 1 {zeroes} 1 0 {pid} 0 0\n");
        fs::write(place.join("stat"), stat).expect("a new file");
        fs::write(place.join("auxv"), [6; 16]).expect("a new file");
        fs::write(place.join("status"), "Uid:\t1\t1\t1\t1\n").expect("a new file");
        self.answer(pid);
    }

    fn answer(&self, pid: u32) {
        let environment = format!("A=b\0ID={pid}\0");
        fs::write(self.of(pid).join("environ"), environment).expect("it can be written");
    }

    fn block(&self, pid: u32) {
        let pipe = self.of(pid).join("environ");
        fs::remove_file(&pipe).expect("it is there");
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).expect("a new pipe");
    }

    fn id(&self, pid: u32) -> Result<Option<String>, Unanswered> {
        let text = |it: Variable| String::from_utf8_lossy(it.value.as_bytes()).into_owned();
        Ok(variable_in(self, pid, "ID")?.map(text))
    }

    /// Has the threads come back that wait for these, until so many are left.
    fn release(&self, pids: &[u32], left: usize) {
        while self.stuck() > left {
            for pid in pids {
                // Nobody may have opened the pipe yet.
                let flags = OFlags::WRONLY | OFlags::NONBLOCK;
                drop(open(self.of(*pid).join("environ"), flags, Mode::empty()));
            }
            std::thread::yield_now();
        }
    }

    fn stuck(&self) -> usize {
        lock(&self.helpers.waits).stuck.len()
    }
}

#[test]
fn one_that_does_not_answer_is_unknown_and_asked_again_when_it_has_let_go() {
    let root = tempfile::tempdir().expect("a directory can be created");
    let mut files = others(root.path());
    for pid in [1, 2, 3] {
        files.add(pid);
    }
    files.block(2);
    files.helpers.limit = Duration::ZERO;
    assert_eq!(files.id(2), Err(Unanswered));
    assert_eq!(files.stuck(), 1);
    // From now on, one that is waited for is waited for during the whole test.
    files.helpers.limit = AGES;
    let found: Vec<_> = (1..=4).map(|pid| files.id(pid)).collect();
    let id = |id: &str| Ok(Some(id.to_owned()));
    assert_eq!(found, [id("1"), Err(Unanswered), id("3"), Ok(None)]);
    // Another process with the same PID is asked.
    let stat = files.of(2).join("stat");
    let text = fs::read_to_string(&stat).expect("it is there");
    fs::write(&stat, text.replace(" 2 0 0\n", " 5 0 0\n")).expect("it is there");
    files.helpers.limit = Duration::ZERO;
    assert_eq!(files.id(2), Err(Unanswered));
    assert_eq!(files.stuck(), 2);
    fs::write(&stat, text).expect("it is there");
    files.release(&[2], 0);
    files.helpers.limit = AGES;
    fs::remove_file(files.of(2).join("environ")).expect("it is there");
    files.answer(2);
    assert_eq!(files.id(2), id("2"));
}

#[test]
fn the_threads_that_are_left_behind_are_bounded_and_own_processes_are_read_all_the_same() {
    let root = tempfile::tempdir().expect("a directory can be created");
    let mut files = others(root.path());
    files.helpers.limit = Duration::ZERO;
    for pid in 1..100 {
        files.add(pid);
        files.block(pid);
        assert_eq!(files.id(pid), Err(Unanswered));
    }
    assert_eq!(files.stuck(), STUCK_MAX);
    files.add(100);
    assert_eq!(files.id(100), Err(Unanswered));
    files.own -= 1;
    assert_eq!(files.id(100), Ok(Some("100".to_owned())));
    files.own += 1;
    // One lets go, so there is room for another.
    files.release(&[1], STUCK_MAX - 1);
    files.helpers.limit = AGES;
    assert_eq!(files.id(100), Ok(Some("100".to_owned())));
    let rest: Vec<u32> = (2..=16).collect();
    files.release(&rest, 0);
}

#[test]
fn one_thread_reads_for_all_that_answer() {
    let root = tempfile::tempdir().expect("a directory can be created");
    let files = others(root.path());
    let helper = || lock(&files.helpers.free).clone().expect("it has read");
    files.add(1);
    assert_eq!(files.id(1), Ok(Some("1".to_owned())));
    let first = helper();
    for pid in 2..600 {
        files.add(pid);
        assert_eq!(files.id(pid), Ok(Some(pid.to_string())));
    }
    assert!(Arc::ptr_eq(&first, &helper()));
}

#[test]
fn a_user_whose_process_was_waited_for_in_vain_takes_no_more_time_for_a_while() {
    let mut waits = Waits::default();
    waits.leave((1, 1), 1000, AGES);
    assert!(!waits.may_ask((2, 2), 1000));
    assert!(waits.may_ask((2, 2), 1001));
    waits.leave((3, 3), 1002, Duration::ZERO);
    assert!(waits.may_ask((4, 4), 1002), "the time is over");
    assert!(!waits.may_ask((3, 3), 1002), "it has not answered yet");
    waits.come_back((3, 3));
    assert!(waits.may_ask((3, 3), 1002));
}
