//! The configuration as an operator uses it: flags, environment, file and defaults, their precedence, and all errors at
//! once, each with its position.

use crate::daemon::{self, Daemon, sexton, text};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

fn config(flags: &[&str]) -> Command {
    let mut command = sexton();
    command.env("HOME", "/nowhere").env_remove("XDG_STATE_HOME");
    command.arg("config").args(flags);
    command
}

/// Returns a configuration file with these lines, and its directory.
fn file(lines: &str) -> (TempDir, PathBuf) {
    let files = tempfile::tempdir().expect("a temporary directory");
    let path = files.path().join("sexton.toml");
    std::fs::write(&path, lines).expect("a writable file");
    (files, path)
}

fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

fn write_private(file: &Path, text: &str) {
    std::fs::write(file, text).expect("a writable file");
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(file, private).expect("our own file");
}

fn settings(command: &mut Command) -> Value {
    let (status, said, errors) = output(command.arg("--json"));
    assert_eq!(status, Some(0), "{errors}");
    let mut document: Value = serde_json::from_str(&said).expect("valid JSON");
    let settings = document.get_mut("settings");
    settings.expect("it has settings").take()
}

#[test]
fn what_stands_first_prevails() {
    let (_files, path) = file(
        "# a comment\nlock-entries = 1_000\nlockserver-idle = 60\nlockserver-connections = 7\n\
         memory = true\nhttp-host = [\"a.example\", \"b.example\"]\nlockserver-long = 8\n",
    );
    let mut command = config(&["--lockserver-connections", "9", "--config", text(&path)]);
    command.env("SEXTON_LOCKSERVER_IDLE", "30");
    command.env("SEXTON_LOCKSERVER_CONNECTIONS", "8");
    command.env("SEXTON_HTTP_HOST", "");
    let found = settings(&mut command);
    let shown = |key: &str| {
        let at = |field: &str| found[key][field].clone();
        (at("value"), at("from"), at("place"))
    };
    let said = |value: Value, from: &str, place: &str| (value, Value::from(from), place.into());
    let line = |number: u32| format!("{}:{number}", path.display());
    let expected = [
        ("lock-entries", said(1000.into(), "file", &line(2))),
        ("lockserver-idle", said(30.into(), "environment", "SEXTON_LOCKSERVER_IDLE")),
        ("lockserver-connections", said(9.into(), "flag", "--lockserver-connections")),
        ("memory", said(true.into(), "file", &line(5))),
        ("data", said(Value::Null, "default", "default")),
        ("lockserver-long", said(8.into(), "file", &line(7))),
        ("fsync", said("always".into(), "default", "default")),
        ("log-format", said("text".into(), "default", "default")),
        ("debug", said(false.into(), "default", "default")),
    ];
    for (key, expected) in expected {
        assert_eq!(shown(key), expected, "{key}");
    }
    let names = serde_json::json!(["a.example", "b.example"]);
    assert_eq!(shown("http-host").0, names);
}

#[test]
fn what_contradicts_a_higher_rank_is_set_aside() {
    let (_files, path) = file("data = \"/srv/sexton\"\nfsync = \"never\"\n");
    let found = settings(&mut config(&["--config", text(&path), "--memory"]));
    assert_eq!(found["memory"]["value"], true);
    assert_eq!(found["data"]["value"], Value::Null);
    assert_eq!(found["fsync"]["from"], "default");

    let found = settings(config(&["--config", text(&path)]).env("SEXTON_MEMORY", "false"));
    assert_eq!(found["data"]["value"], "/srv/sexton");
    assert_eq!(found["memory"]["from"], "environment");

    let (_files, path) = file("memory = true\ndata = \"/srv/sexton\"\n");
    let found = settings(config(&["--data", "/flag"]).env("SEXTON_CONFIG", &path));
    assert_eq!(found["data"]["value"], "/flag");
    assert_eq!(found["memory"]["value"], false);
    let (status, _, errors) = output(&mut config(&["--config", text(&path)]));
    assert_eq!(status, Some(2), "{errors}");
    let words = format!("{}:2: data: cannot be used with memory", path.display());
    assert!(errors.contains(&words), "{errors}");
}

/// A configuration file with an error in each line but the last, which belongs to the table in error before it.
const WRONG: &str = "lock_entries = 5\n\
    fsync = \"sometimes\"\n\
    lockserver-connections = 0\n\
    http = \"0.0.0.0:0\"\n\
    memory = \"yes\"\n\
    lockserver-long = 5\n\
    hosts = [\"a\", \"b\"]\n\
    lock-entries = 1.5\n\
    config = \"other.toml\"\n\
    zzz = 1\n\
    log = \"inof\"\n\
    lockserver-idle =\n\
    [http-limits]\n\
    x = 1\n";

#[test]
fn everything_wrong_is_told_at_once_with_its_place() {
    let (_files, path) = file(WRONG);
    let mut command = config(&["--checkpoint-every", "0", "--config", text(&path)]);
    command.env("SEXTON_LOCKSERVER_PRIORITY", "most");
    let (status, said, errors) = output(&mut command);
    assert_eq!((status, said.as_str()), (Some(2), ""), "{errors}");
    let at = |line: u32, words: &str| format!("{}:{line}: {words}", path.display());
    let expected = [
        at(1, "lock_entries: unknown setting; did you mean lock-entries?"),
        at(2, "fsync: \"sometimes\": expected always, interval:MS or never"),
        at(3, "lockserver-connections: 0 is out of range: expected 1 to 1048576"),
        at(4, "http: 0.0.0.0:0 is not a loopback address, so it needs a token file"),
        at(5, "memory: expected true or false"),
        at(6, "lockserver-long: \"5\": expected 4 or 8"),
        at(7, "hosts: expected one value, found several"),
        at(8, "lock-entries: expected a string or a whole number, found float"),
        at(9, "config: a configuration file cannot name another one"),
        at(10, "zzz: unknown setting; `sexton config` shows all settings"),
        at(11, "log: \"inof\": \"inof\" is not a level"),
        at(12, ""),
        at(
            13,
            "http-limits: unknown table; expected one of queues, services, tasks, tenants, workers",
        ),
        "SEXTON_LOCKSERVER_PRIORITY: \"most\": expected high or low".to_owned(),
        "--checkpoint-every: 0 entries is out of range: expected 1 to 1099511627776".to_owned(),
    ];
    for line in &expected {
        assert!(errors.contains(line.as_str()), "{line} in {errors}");
    }
    let told = errors.lines().skip(1).count();
    assert_eq!(told, expected.len(), "no error twice: {errors}");

    let of_the_file = errors.lines().filter_map(|line| {
        let (_, at) = line.split_once("sexton.toml:")?;
        at.split(':').next()?.parse::<u32>().ok()
    });
    assert!(of_the_file.is_sorted(), "in the order of lines: {errors}");

    // `serve` reports the same errors, before it opens anything.
    let mut command = sexton();
    command.args(["serve", "--checkpoint-every", "0", "--config", text(&path)]);
    command.env("SEXTON_LOCKSERVER_PRIORITY", "most");
    assert_eq!(output(&mut command), (Some(2), String::new(), errors));
}

#[test]
fn a_table_that_is_not_known_is_told_with_what_was_meant() {
    let (_files, path) = file(
        "[service.web]\ncommand = [\"./web\"]\n\
         [queue.mails]\nmax_tries = 1\n\
         [leases.x]\nperiod = \"5m\"\n\
         [http]\nx = 1\n",
    );
    let (status, _, errors) = output(&mut config(&["--config", text(&path)]));
    assert_eq!(status, Some(2), "{errors}");
    for line in [
        "service: unknown table; did you mean services?",
        "queue: unknown table; did you mean queues?",
        "leases: unknown table; `sexton lease set` defines leases",
        "http: expected a value, found a table",
    ] {
        assert!(errors.contains(line), "{line} in {errors}");
    }
}

#[test]
fn numbers_words_and_names_are_told_apart() {
    let (_files, path) = file(
        "data = 5\n\
         http-host = [\"a\", 5]\n\
         job-bytes = 0x10\n\
         lock-entries = -5\n\
         token-file = \"\"\n\
         beanstalk-connections = \"7\"\n\
         lockserver-idle = 60\n\
         lockserver-long = 8\n",
    );
    let (status, _, errors) = output(&mut config(&["--config", text(&path)]));
    assert_eq!(status, Some(2), "{errors}");
    let at = |line: u32, words: &str| format!("{}:{line}: {words}", path.display());
    let expected = [
        at(1, "data: expected a string, found a number"),
        at(2, "http-host: expected a string, found a number"),
        at(3, "job-bytes: expected a number in decimal digits"),
        at(4, "lock-entries: \"-5\": expected a whole number above 0"),
        at(5, "token-file: expected a value, found nothing"),
    ];
    for line in &expected {
        assert!(errors.contains(line.as_str()), "{line} in {errors}");
    }
    let told = errors.lines().skip(1).count();
    assert_eq!(told, expected.len(), "every problem is listed once: {errors}");
    for name in ["http://x", "a b", "", "x:80", "x/y"] {
        let flag = format!("--http-host={name}");
        let (status, _, errors) = output(&mut config(&[&flag]));
        assert_eq!(status, Some(2), "{errors}");
        assert!(errors.contains("http-host: "), "{name}: {errors}");
    }
    for name in ["locks.example.org", "under_score", "192.0.2.1", "2001:db8::1"] {
        let (status, _, errors) = output(&mut config(&["--http-host", name]));
        assert_eq!(status, Some(0), "{name}: {errors}");
    }
}

#[test]
fn what_a_stranger_would_not_guess_is_warned_of() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    std::fs::create_dir(&data).expect("a new directory");
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&data, open).expect("our own file");
    let mut command = daemon::serve(&["--data", text(&data)]);
    command.env("SEXTON_LOCK_ENTRYS", "5").env("SEXTON_LOCK_ENTRIES", "5000");
    let daemon = Daemon::start(command);
    daemon.signal(rustix::process::Signal::HUP);
    daemon.until_logged("settings reloaded");
    let log = daemon.log();
    assert!(log.contains("SEXTON_LOCK_ENTRYS in the environment is not a setting"), "{log}");
    assert!(!log.contains("SEXTON_LOCK_ENTRIES"), "{log}");
    assert!(log.contains("has mode 0777") && log.contains("chmod 700"), "{log}");
    assert!(!log.contains("hosts list"), "there is none: {log}");
}

#[test]
fn a_file_that_is_none_is_told() {
    let (files, path) = file("");
    let absent = files.path().join("absent.toml");
    for command in ["config", "serve"] {
        let mut asked = sexton();
        let (status, _, errors) = output(asked.args([command, "--config", text(&absent)]));
        assert_eq!(status, Some(3), "{errors}");
        assert!(errors.contains(text(&absent)), "{errors}");
        assert!(errors.contains("help: --config FILE or"), "{errors}");
    }
    std::fs::write(&path, b"# fine\nlog = \"\xff\"\n").expect("a writable file");
    let (status, _, errors) = output(&mut config(&["--config", text(&path)]));
    assert_eq!(status, Some(2), "{errors}");
    let words = format!("{}:2: this line is not valid UTF-8", path.display());
    assert!(errors.contains(&words), "{errors}");
    std::fs::write(&path, "log = \"info\"\nlog = \"warn\"\n").expect("a writable file");
    let (status, _, errors) = output(&mut config(&["--config", text(&path)]));
    assert_eq!(status, Some(2), "{errors}");
    assert!(errors.contains(&format!("{}:2: ", path.display())), "{errors}");
    std::fs::write(&path, vec![b'#'; (1 << 20) + 1]).expect("a writable file");
    let (status, _, errors) = output(&mut config(&["--config", text(&path)]));
    assert_eq!(status, Some(3), "{errors}");
}

#[test]
fn serve_runs_on_a_file() {
    let (files, path) = file("");
    let data = files.path().join("data");
    let lines = format!(
        "data = {data:?}\nlockserver = \"127.0.0.1:0\"\nhttp = \"off\"\nbeanstalk = \"off\"\n"
    );
    std::fs::write(&path, lines).expect("a writable file");
    let mut command = sexton();
    command.arg("serve").env("SEXTON_CONFIG", &path);
    let daemon = Daemon::start(command);
    let socket = data.join("sexton.sock");
    let end = format!("beanstalk=off http=off socket={}\n", socket.display());
    assert!(daemon.ready().ends_with(&end), "{}", daemon.ready());
}

#[test]
fn people_get_a_table_and_never_a_secret() {
    let (files, path) = file("");
    let token = files.path().join("token");
    write_private(&token, "a-secret-nobody-may-see\n");
    let lines = format!("token-file = {token:?}\nhttp = \"0.0.0.0:80\"\n");
    std::fs::write(&path, lines).expect("a writable file");
    for flags in [&["--config", text(&path)][..], &["--config", text(&path), "--json"]] {
        let (status, said, errors) = output(&mut config(flags));
        assert_eq!(status, Some(0), "{errors}");
        assert!(said.contains(text(&token)), "{said}");
        assert!(!said.contains("a-secret"), "{said}");
    }
    let (_, said, _) = output(&mut config(&["--config", text(&path)]));
    let row = |key: &str| {
        let mut rows = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        rows.find(|row| row.first() == Some(&key)).unwrap_or_default()
    };
    assert_eq!(row("SETTING"), ["SETTING", "VALUE", "FROM"]);
    let place = format!("{}:2", path.display());
    assert_eq!(row("http"), ["http", "0.0.0.0:80", place.as_str()]);
    assert_eq!(row("data"), ["data", "/nowhere/.local/state/sexton", "default"]);
    assert_eq!(row("hosts"), ["hosts", "-", "default"]);
}

/// The files that the settings name are checked as a start checks them, with help that names the file.
#[test]
fn the_files_that_settings_name_are_checked() {
    let (files, path) = file("http = \"127.0.0.1:0\"\n");
    let token = files.path().join("token");
    let check = |words: &[&str], said: &[&str]| {
        let (status, out, errors) =
            output(&mut config(&[&["--config", text(&path)], words].concat()));
        assert_eq!((status, out.as_str()), (Some(3), ""), "{errors}");
        for part in said {
            assert!(errors.contains(part), "{part} in {errors}");
        }
    };
    let shown = token.display();
    let flags: &[&str] = &["--token-file", text(&token)];
    let make = format!("base64 > {shown})` creates the file");
    check(flags, &["failed to read the token file", &make]);
    write_private(&token, "\n");
    let empty = format!("failed to use the token file {shown}: it is empty");
    check(flags, &[&empty, &make]);
    write_private(&token, "short\n");
    // A new file would overwrite other tokens.
    let add = format!("base64 >> {shown})` adds a new token");
    check(flags, &["line 1 has 5 characters", &add]);
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&token, open).expect("our own file");
    let help = format!("help: `chmod 600 {shown}` makes it private\n");
    check(flags, &["its mode is 0644", &help]);
    let absent = files.path().join("absent.pem");
    let tls: &[&str] = &["--tls-cert", text(&absent), "--tls-key", text(&absent)];
    check(tls, &["absent.pem"]);
    check(&["--hosts", text(&absent)], &["failed to read hosts"]);
}

#[test]
fn every_setting_is_a_flag_and_is_documented() {
    let found = settings(&mut config(&[]));
    let found = found.as_object().expect("an object");
    assert!(found.len() >= 18, "{found:?}");
    let (_, help, _) = output(sexton().args(["serve", "--help"]));
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let manual =
        std::fs::read_to_string(root.join("docs/operations.md")).expect("the file is readable");
    for key in found.keys() {
        assert!(help.contains(&format!("--{key}")), "--{key} in {help}");
        let row = format!("| `--{key}");
        let short = format!(", `--{key}`");
        assert!(
            manual.contains(&row) || manual.contains(&short),
            "docs/operations.md has no {key}"
        );
    }
}

#[test]
fn tables_say_what_holds_for_the_jobs_of_a_type() {
    let (_files, path) = file(
        "jobs = 5\n[queues.default]\nmax_tries = 3\nclaim_ttl = \"90s\"\nbackoff.first = 5\n\
         [queues.cache]\nclass = \"memory\"\norder = \"any\"\nthrottle = 10\nbackoff = false\n\
         [queues.mails]\norder = \"fifo\"\nretries = false\ndedup = true\nthrottle = 0.5\nbackoff = { jitter = 0.125, max = \"2m\" }\nread_only_reason = \"it moves\"\nprune = 60\n",
    );
    let (status, said, errors) = output(&mut config(&["--json", "--config", text(&path)]));
    assert_eq!(status, Some(0), "{errors}");
    let document: Value = serde_json::from_str(&said).expect("valid JSON");
    let of = |kind: &str| document["queues"][kind].clone();
    let default = serde_json::json!({
        "class": "durable", "order": "priority", "claim_ttl_ms": 90_000, "max_tries": 3, "retries": true,
        "dedup": false, "prune_ms": 604_800_000, "throttle": 0.0, "read_only_reason": null, "tube_max_tries": 3, "dedup_ignore": [], "in_any": true, "rank": 100,
        "crash_tries": 3, "tube_crash_tries": 0,
        "backoff": {"first_ms": 5000, "factor": 2, "max_ms": 3_600_000, "jitter": 0.1},
    });
    assert_eq!(of("default"), default);
    let with = |changes: &[(&str, Value)]| {
        let mut of = default.clone();
        for (key, value) in changes {
            of[*key] = value.clone();
        }
        of
    };
    let cache = [("class", "memory".into()), ("throttle", 10.0.into()), ("backoff", Value::Null)];
    assert_eq!(of("cache"), with(&cache));
    let mails = [
        ("order", "fifo".into()),
        ("retries", false.into()),
        ("dedup", true.into()),
        ("throttle", 0.5.into()),
        (
            "backoff",
            serde_json::json!({"first_ms": 5000, "factor": 2, "max_ms": 120_000, "jitter": 0.125}),
        ),
        ("read_only_reason", "it moves".into()),
        ("prune_ms", 60_000.into()),
    ];
    assert_eq!(of("mails"), with(&mails));
    let (_, said, _) = output(&mut config(&["--config", text(&path)]));
    let line = "mails    durable  fifo      90s        3          no       yes    1m     0.5/s     5s x2 to 2m, +-0.125  it moves          3               -             yes     100   3            -\n";
    assert!(said.ends_with(line), "{said}");
}

#[test]
fn tables_say_how_often_tenants_have_their_turns() {
    let (_files, path) = file(
        "[tenants.acme]\nweight = 3\n[tenants.\"\"]\nweight = 1000\n[queues.mails]\nrank = 7\n",
    );
    let (status, said, errors) = output(&mut config(&["--json", "--config", text(&path)]));
    assert_eq!(status, Some(0), "{errors}");
    let document: Value = serde_json::from_str(&said).expect("valid JSON");
    let tenants = serde_json::json!({"": {"weight": 1000}, "acme": {"weight": 3}});
    assert_eq!(document["tenants"], tenants);
    assert_eq!(document["queues"]["mails"]["rank"], 7);
    let (_files, path) = file(
        "[tenants.a]\nweight = 0\n[tenants.b]\nweight = 1001\n[tenants.\"c d\"]\n[tenants]\ne = 5\n[tenants.f]\nshare = 1\n",
    );
    let (status, _, errors) = output(&mut config(&["--config", text(&path)]));
    assert_eq!(status, Some(2), "{errors}");
    for line in [
        "2: tenants.a: weight: expected a whole number from 1 to 1000",
        "4: tenants.b: weight: expected a whole number from 1 to 1000",
        "5: tenants.c d: not a valid name for a tenant",
        "7: tenants.e: expected a table with the key weight",
        "9: tenants.f: share: unknown key; expected weight",
    ] {
        let line = format!("{}:{line}", path.display());
        assert!(errors.contains(&line), "{line}\n{errors}");
    }
}

#[test]
fn what_is_wrong_with_a_queue_is_told_with_its_line() {
    let (_files, path) = file(
        "[queues.a]\nclass = \"redis\"\n[queues.b]\norder = \"best\"\nmax_tries = -1\n\
         [queues.\"c d\"]\n[queues]\ne = 5\n[queues.f]\nmax-tries = 3\nclaim_ttl = \"soon\"\nretries = 1\n\
         throttle = 1000.1\n[queues.g]\nthrottle = -1\n[queues.h]\nthrottle = 0.0001\n[queues.i]\nthrottle = nan\n\
         [queues.j]\nthrottle = \"2/s\"\n[queues.k]\nthrottle = 0x10\n\
         [queues.l]\nbackoff = { first = -1, factor = 0, jitter = 1.5, least = 1 }\n[queues.m]\nbackoff = \"1s\"\n\
         [queues.n]\nbackoff.first = \"2h\"\n",
    );
    let (status, _, errors) = output(&mut config(&["--config", text(&path)]));
    assert_eq!(status, Some(2), "{errors}");
    let keys = "class, order, claim_ttl, max_tries, retries, dedup, prune, throttle, backoff, retry, read_only_reason, tube_max_tries, dedup_ignore, in_any, rank";
    let rate = "throttle: expected a rate in items per second, from 0.001 to 1000 with at most three decimals, or 0 for no limit";
    let expected = [
        "2: queues.a: class: the class redis is not available in this version: expected durable or memory".to_owned(),
        "4: queues.b: order: \"best\": expected priority, fifo, timestamp, random or any".to_owned(),
        "5: queues.b: max_tries: expected a whole number of at least 0 that is not too large".to_owned(),
        "6: queues.c d: not a valid name for a job type".to_owned(),
        format!("8: queues.e: expected a table with {keys}"),
        "10: queues.f: max-tries: unknown key; did you mean max_tries?".to_owned(),
        "11: queues.f: claim_ttl: expected a number of seconds, or a span such as \"500ms\", \"90s\", \"2h\", \"7d\"".to_owned(),
        "12: queues.f: retries: expected true or false, found integer".to_owned(),
        format!("13: queues.f: {rate}"),
        format!("15: queues.g: {rate}"),
        format!("17: queues.h: {rate}"),
        format!("19: queues.i: {rate}"),
        format!("21: queues.j: {rate}"),
        format!("23: queues.k: {rate}"),
        "25: queues.l: backoff.first: expected a number of seconds, or a span such as \"500ms\", \"90s\", \"2h\", \"7d\"".to_owned(),
        "25: queues.l: backoff.factor: expected a whole number of at least 1".to_owned(),
        "25: queues.l: backoff.jitter: expected a number from 0 to 1 with at most three decimals".to_owned(),
        "25: queues.l: backoff.least: unknown key; expected one of first, factor, max, jitter".to_owned(),
        "27: queues.m: backoff: expected false, or a table with first, factor, max, jitter".to_owned(),
        "29: queues.n: backoff: first (2h) is longer than max (1h)".to_owned(),
    ];
    for line in expected {
        let line = format!("{}:{line}", path.display());
        assert!(errors.contains(&line), "{line}\n{errors}");
    }
}

#[test]
fn the_table_of_tasks_is_shown_and_what_is_wrong_with_it_is_told() {
    let (_files, path) = file("[tasks]\nabort_on_failure = false\nkeep = \"2d\"\nkeep_max = 7\n");
    let mut command = config(&["--config", text(&path), "--json"]);
    let (status, said, errors) = output(&mut command);
    assert_eq!(status, Some(0), "{errors}");
    let document: Value = serde_json::from_str(&said).expect("valid JSON");
    let expected = serde_json::json!({
        "abort_on_failure": false, "burst_ms": 30_000, "fail_after_ms": 300_000, "progress_ms": 1000,
        "group_limit": 3, "keep_ms": 172_800_000_u64, "keep_max": 7,
        "server_lost_after_ms": 120_000, "allow_fault_injection": false,
    });
    assert_eq!(document["tasks"], expected);
    let (_, said, _) = output(&mut config(&["--config", text(&path)]));
    let line = "tasks: abort_on_failure = false, burst = 30s, fail_after = 5m, progress = 1s, group_limit = 3, keep = 2d, keep_max = 7";
    assert!(said.contains(line), "{said}");

    let (_files, path) = file(
        "[tasks]\nabort_on_failure = 1\nburst = 0\nfail_after = \"367d\"\nprogress = \"soon\"\n\
         group_limit = -1\nkeep = \"4000d\"\nkeep_max = 0\nretries = 3\n",
    );
    let (status, _, errors) = output(&mut config(&["--config", text(&path)]));
    assert_eq!(status, Some(2), "{errors}");
    let at = |line: u32, words: &str| format!("{}:{line}: tasks: {words}", path.display());
    let expected = [
        at(2, "abort_on_failure: expected true or false"),
        at(3, "burst: expected 1ms to 366d"),
        at(4, "fail_after: expected 1ms to 366d"),
        at(5, "progress: expected a number of seconds, or a span"),
        at(6, "group_limit: expected a whole number"),
        at(7, "keep: expected 1ms to 3653d"),
        at(8, "keep_max: expected a whole number from 1 to 1000000"),
        at(9, "retries: unknown key; expected one of abort_on_failure"),
    ];
    for line in &expected {
        assert!(errors.contains(line.as_str()), "{line} in {errors}");
    }
    let told = errors.lines().skip(1).count();
    assert_eq!(told, expected.len(), "no error twice: {errors}");
    let (_files, path) = file("tasks = 3\n");
    let (status, _, errors) = output(&mut config(&["--config", text(&path)]));
    assert_eq!(status, Some(2), "{errors}");
    assert!(errors.contains("tasks: expected a table with"), "{errors}");
}
