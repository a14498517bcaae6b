//! `sexton import` with hostile files: exceeded limits, cycles and invalid lines are reported with their positions.

use crate::daemon::{ended, text};
use crate::import::{files, import};
use std::path::Path;

/// Imports a file that must be refused. Returns the messages.
fn refused(main: &Path, status: i32) -> String {
    let output = import(main).output().expect("the program runs");
    let [printed, told] = ended(output, status);
    assert_eq!(printed, "", "no partial result is printed");
    told
}

#[test]
fn everything_wrong_is_told_at_once_with_its_line() {
    let config = "before=1\n[program:a]\ncommand=x 'y\nautostart=maybe\nnothing\nnumprocs=2\n\
                  [program:a]\ncommand=y\n[program:b]\nautorestart=never\n[program:c d]\ncommand=z\n\
                  [program:e]\ncommand=%(nobody)s 50%\nenvironment=A\nstopsignal=NOPE\nexitcodes=256\n\
                  [group:g]\nprograms=a,zz\n[program:f]\nnumprocs=500\ncommand=%(process_num)d\n\
                  process_name=%(process_num)d\n[include]\nfoo=bar\n";
    let files = files(&[("s.conf", config)]);
    let main = files.path().join("s.conf");
    let told = refused(&main, 2);
    let place = |line: u32| format!("{}:{line}: ", main.display());
    for (line, words) in [
        (1, "expected a [SECTION] before the first key"),
        (3, "[program:a] command: the closing ' is missing"),
        (4, "[program:a] autostart: expected true or false"),
        (5, "expected [SECTION] or KEY=VALUE"),
        (2, "[program:a] process_name: with more than one process"),
        (7, "[program:a] is already defined at "),
        (9, "[program:b] command: is missing"),
        (10, "[program:b] autorestart: expected true, false or unexpected"),
        (11, "the name of a program must not be empty"),
        (14, "[program:e] command: %(nobody)s"),
        (15, "[program:e] environment: expected KEY=\"value\""),
        (16, "[program:e] stopsignal: \"NOPE\" is not a signal"),
        (17, "[program:e] exitcodes: expected exit codes from 0 to 255"),
        (19, "[group:g] programs: there is no [program:zz]"),
        (
            21,
            "[program:f] numprocs: the process number occurs in the program's settings, so 500 services",
        ),
        (24, "[include] files: missing"),
    ] {
        let expected = place(line) + words;
        assert!(told.contains(&expected), "{expected} in {told}");
    }
}

#[test]
fn what_is_no_text_is_refused_by_line() {
    for (content, words) in [
        (&b"[program:a]\ncommand=\xff\n"[..], ":2: this line is not valid UTF-8"),
        (b"[program:a]\n\ncommand=a\0b\n", ":3: this line contains a NUL byte"),
    ] {
        let files = files(&[]);
        let main = files.path().join("s.conf");
        std::fs::write(&main, content).expect("a writable file");
        let told = refused(&main, 2);
        assert!(told.contains(words), "{words} in {told}");
    }
}

#[test]
fn everything_has_a_limit() {
    let long = "x".repeat(1 << 20);
    let programs = |number: usize| {
        (0..number).map(|it| format!("[program:p{it}]\ncommand=x\n")).collect::<Vec<_>>().concat()
    };
    let keys: Vec<String> = (0..1100).map(|it| format!("k{it}=1\n")).collect();
    let grown = format!("[program:a]\ncommand={}\n", "%(program_name)200000s".repeat(2));
    for (content, status, words) in [
        (format!("[program:a]\ncommand={long}\n"), 3, "it has more than 1048576 bytes"),
        (programs(4100), 2, "there are more than 4096 sections"),
        (programs(300), 2, "at most 256 services"),
        (format!("[program:a]\n{}", keys.concat()), 2, "this section has more than 1024 keys"),
        (grown, 2, "it expands to more than 262144 bytes"),
        (
            format!("[program:a]\ncommand={}\n", "x ".repeat(5000)),
            2,
            "a command must have 1 to 4096 words",
        ),
        (String::new(), 1, "has no [program:NAME]"),
    ] {
        let files = files(&[("s.conf", &content)]);
        let told = refused(&files.path().join("s.conf"), status);
        assert!(told.contains(words), "{words} in {told}");
    }
}

#[test]
fn files_are_included_once_and_no_deeper() {
    let files = files(&[
        ("a.conf", "[include]\nfiles=*.conf a.conf ./b.conf\n"),
        ("b.conf", "[program:b]\ncommand=b\n[include]\nfiles=deep/*.conf\n"),
        ("deep/c.conf", "[program:c]\ncommand=c\n"),
    ]);
    let output = import(&files.path().join("a.conf")).output();
    let [printed, told] = ended(output.expect("the program runs"), 0);
    assert!(printed.contains("[services.b]") && !printed.contains("[services.c]"), "{printed}");
    assert_eq!(told.matches("has already been read").count(), 3, "{told}");
    assert!(told.contains("b.conf:3: [include]: an included file cannot include others"), "{told}");

    // Too many files, one file that cannot be read, and two files with the same section.
    let main = files.path().join("main.conf");
    std::fs::write(&main, "[include]\nfiles=many/* deep\n[program:c]\ncommand=x\n")
        .expect("a writable file");
    std::fs::create_dir(files.path().join("many")).expect("a new directory");
    for number in 0..300 {
        let path = files.path().join(format!("many/{number}"));
        std::fs::write(path, format!("[program:c{number}]\ncommand=x\n")).expect("a writable file");
    }
    let told = refused(&main, 2);
    assert!(told.contains("main.conf:2: [include] files: there are more than 256 files"), "{told}");
    std::fs::write(&main, "[include]\nfiles=deep deep/*\n[program:c]\ncommand=x\n")
        .expect("a writable file");
    let told = refused(&main, 2);
    assert!(told.contains("deep: it is not a regular file"), "{told}");
    let twin = format!("c.conf:1: [program:c] is already defined at {}:3", text(&main));
    assert!(told.contains(&twin), "{told}");
}

#[test]
fn nothing_of_a_value_is_read_as_our_configuration() {
    let config = "[program:a\"]\u{1b}[2Jx]\ncommand=x \"\"\"\n ]\n [services.evil]\n command\"\n\
                  environment=A=\"\u{7f}\\\"\nuser=x\u{202e}y\n";
    let files = files(&[("s.conf", config)]);
    let output = import(&files.path().join("s.conf")).output();
    let [printed, told] = ended(output.expect("the program runs"), 0);
    assert_eq!(printed.lines().filter(|line| line.starts_with('[')).count(), 1, "{printed}");
    let steers = |text: &str| text.chars().any(|it| it != '\n' && sexton::text::steers(it));
    assert!(!steers(&printed) && !steers(&told), "{printed:?} {told:?}");
}
