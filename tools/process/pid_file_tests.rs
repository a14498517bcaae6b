//! Numbered test vectors for reused PIDs: a file with PID 50 is compared with the process that has that PID now. Times are in seconds.

use super::{Claim, Facts, Verdict, program_of};

const WRITTEN: f64 = 99_000.0;

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the times in these tests are positive and small"
)]
fn ms(seconds: f64) -> u64 {
    (seconds * 1000.0).round() as u64
}

fn claim(program: &str) -> Claim {
    Claim {
        pid: 50,
        written_ms: ms(WRITTEN),
        owners: vec![1000, 0, 1000],
        program: Some(program.to_owned()),
    }
}

fn facts(started: f64, argv: &[&str]) -> Facts {
    Facts {
        started_ms: ms(started),
        has_ended: false,
        owner: 1000,
        argv: argv.iter().map(|it| it.as_bytes().to_vec()).collect(),
    }
}

fn at(started: f64) -> Verdict {
    Verdict::of(&claim("/x/hook.py"), Some(&facts(started, &["/x/hook.py"])))
}

#[test]
fn one_that_began_when_the_file_was_written_is_meant_and_no_other() {
    // Vectors 1 to 4: the process may have started before or after the file was written, by less than five seconds.
    assert_eq!(at(99_000.3), Verdict::Lives);
    assert_eq!(at(99_004.9), Verdict::Lives);
    assert_eq!(at(99_004.999), Verdict::Lives);
    assert_eq!(at(99_005.0), Verdict::Reused);
    assert_eq!(at(98_995.001), Verdict::Lives);
    assert_eq!(at(98_995.0), Verdict::Reused);
    assert_eq!(at(99_050.0), Verdict::Reused);
    // Vector 5.
    assert_eq!(Verdict::of(&claim("x"), None), Verdict::Gone);
    // Vector 6: a zombie has no arguments, and does not count as running.
    let mut zombie = facts(99_000.0, &[]);
    zombie.has_ended = true;
    assert_eq!(Verdict::of(&claim("x"), Some(&zombie)), Verdict::Ended);
}

#[test]
fn age_does_not_count_but_the_boot_does() {
    // Vector 7: the file is old, and the process is still the same one.
    let old = Claim { written_ms: ms(13_599.0), ..claim("x") };
    let same = facts(13_599.0, &["x"]);
    assert_eq!(Verdict::of(&old, Some(&same)), Verdict::Lives);
    // Vector 12: the same PID and the same time since boot, but after a reboot, so at another wall-clock time.
    let again = facts(13_599.0 + 86_400.0, &["x"]);
    assert_eq!(Verdict::of(&old, Some(&again)), Verdict::Reused);
}

#[test]
fn one_that_runs_something_else_is_not_meant() {
    // Vector 9.
    let python = facts(99_000.0, &["/usr/bin/python3", "x"]);
    assert_eq!(Verdict::of(&claim("wget"), Some(&python)), Verdict::OtherProgram);
    // Vector 10: an interpreter comes first.
    let hook = facts(99_000.0, &["python3", "/x/hook.py"]);
    assert_eq!(Verdict::of(&claim("/x/hook.py"), Some(&hook)), Verdict::Lives);
    // The program matches by its file name, but not by a part of it.
    let by_name = facts(99_000.0, &["hook.py"]);
    assert_eq!(Verdict::of(&claim("/x/hook.py"), Some(&by_name)), Verdict::Lives);
    let longer = facts(99_000.0, &["/y/x/hook.py"]);
    assert_eq!(Verdict::of(&claim("/x/hook.py"), Some(&longer)), Verdict::OtherProgram);
    // Without `cmd.sh`, the program is unknown.
    let silent = Claim { program: None, ..claim("") };
    assert_eq!(Verdict::of(&silent, Some(&hook)), Verdict::NoProgram);
    assert_eq!(Verdict::of(&claim("/"), Some(&facts(99_000.0, &[""]))), Verdict::OtherProgram);
}

#[test]
fn of_two_files_with_one_pid_the_one_that_fits_is_meant() {
    // Vector 11.
    let now = facts(99_900.0, &["x"]);
    let newer = Claim { written_ms: ms(99_900.0), ..claim("x") };
    assert_eq!(Verdict::of(&claim("x"), Some(&now)), Verdict::Reused);
    assert_eq!(Verdict::of(&newer, Some(&now)), Verdict::Lives);
}

#[test]
fn whose_file_it_is_counts() {
    let process = facts(99_000.0, &["x"]);
    for (owner, verdict) in
        [(0, Verdict::Lives), (1000, Verdict::Lives), (1001, Verdict::OtherUser)]
    {
        let claim = Claim { owners: vec![0, owner], ..claim("x") };
        assert_eq!(Verdict::of(&claim, Some(&process)), verdict, "{owner}");
    }
}

#[test]
fn the_program_of_a_script_is_found_behind_what_sets_the_scene() {
    for (script, program) in [
        ("#!/bin/bash\nwget \"a b\" -q\n", Some("wget")),
        ("#!/bin/sh\ncd '/a b' || exit\nexec sleep 1000\n", Some("sleep")),
        (
            "#!/bin/sh\n: \"${A_KEY:?is a secret}\"\nexport A_KEY\nexec env A=1 'B=x y' '/o p/run' -v\n",
            Some("/o p/run"),
        ),
        ("#!/bin/sh\nexec env A=1 x=y run\n", Some("run")),
        ("#!/bin/sh\nexec sh -c 'a\nb'\n", Some("sh")),
        ("#!/bin/sh\n", None),
        ("", None),
        ("#!/bin/sh\nexec 'never closed\n", None),
    ] {
        assert_eq!(program_of(script).as_deref(), program, "{script}");
    }
}
