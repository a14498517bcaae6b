//! Runs `sexton-bench` as users do: it must measure, report what it left out, and remove its directories. Speed does not
//! matter here. The program `sexton` must be built, as `cargo test --workspace` does.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn bench(arguments: &[&str], path: Option<&Path>) -> Value {
    let root = tempfile::tempdir().expect("a temporary directory can be made");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sexton-bench"));
    // With this variable set, `sexton-bench` would build `sexton` for each of these tests.
    command.env_remove("CARGO");
    command.args(arguments).arg("--json");
    command.arg("--dir").arg(root.path());
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let output = command.output().expect("the program starts");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    let left: Vec<_> =
        std::fs::read_dir(root.path()).expect("the directory is still there").collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    serde_json::from_slice(&output.stdout).expect("the figures are JSON")
}

fn is_redis_installed() -> bool {
    Command::new("redis-server")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

fn positive(figure: &Value) -> f64 {
    let number = figure.as_f64().expect("a figure is a number");
    assert!(number > 0.0, "{number}");
    number
}

#[test]
fn sexton_alone_is_measured_and_the_missing_peer_is_named() {
    let nothing = tempfile::tempdir().expect("a temporary directory can be made");
    let rows = "memory:1x1,fsync:2x3,contended:3";
    let arguments = ["locks", "--rounds", "1", "--seconds", "0.2", "--rows", rows];
    let figures = bench(&arguments, Some(nothing.path()));
    assert!(figures["redis"].is_null());
    let note = figures["notes"][0].as_str().expect("there is a note");
    assert!(note.contains("redis-server is not installed"), "{note}");
    let rows = figures["rows"].as_array().expect("rows are a list");
    let names: Vec<_> = rows.iter().map(|row| &row["row"]).collect();
    assert_eq!(names, ["memory:1x1", "fsync:2x3", "contended:3"]);
    for row in rows {
        assert!(row["ratio"].is_null());
        for standing in row["standings"].as_array().expect("standings are a list") {
            assert_eq!(standing["peer"], false);
            positive(&standing["per_second"]["median"]);
            positive(&standing["p99_us"]);
        }
    }
}

#[test]
fn redis_is_measured_where_it_is_installed() {
    if !is_redis_installed() {
        println!("skipped: redis-server is not installed");
        return;
    }
    let arguments = ["locks", "--rounds", "1", "--seconds", "0.2", "--rows", "memory:1x1"];
    let figures = bench(&arguments, None);
    let row = &figures["rows"][0];
    let own = positive(&row["standings"][0]["per_second"]["median"]);
    let peer = positive(&row["standings"][1]["per_second"]["median"]);
    let ratio = positive(&row["ratio"]["median"]);
    assert!((ratio - own / peer).abs() < 1e-9, "{ratio} of {own} and {peer}");
}

#[test]
fn locks_over_http_are_measured_beside_etcd_where_it_is_installed() {
    let arguments = ["http", "--rounds", "1", "--seconds", "0.2", "--connections", "3"];
    let nothing = tempfile::tempdir().expect("a temporary directory can be made");
    let alone = bench(&arguments, Some(nothing.path()));
    let note = alone["notes"][0].as_str().expect("there is a note");
    assert!(note.contains("etcd is not installed"), "{note}");
    assert!(alone["rows"][0]["ratio"].is_null());
    positive(&alone["rows"][0]["standings"][0]["per_second"]["median"]);
    positive(&alone["told"][0]["p50_us"]["median"]);
    let etcd = Command::new("etcd").arg("--version").output();
    if !etcd.is_ok_and(|output| output.status.success()) {
        let is_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
        assert!(!is_ci, "nothing is left out in CI: etcd is not installed");
        println!("skipped: etcd is not installed");
        return;
    }
    let beside = bench(&arguments, None);
    let names: Vec<_> = (0..3).map(|at| &beside["rows"][0]["standings"][at]["name"]).collect();
    assert_eq!(names, ["sexton", "etcd, lock", "etcd, txn"]);
    positive(&beside["rows"][0]["ratio"]["median"]);
    positive(&beside["told"][1]["p50_us"]["median"]);
}

#[test]
fn a_node_inside_the_program_is_measured() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sexton-bench"));
    command.args(["embed", "--rounds", "1", "--seconds", "0.05", "--json"]);
    let output = command.output().expect("the program starts");
    assert!(output.status.success());
    let figures: Value = serde_json::from_slice(&output.stdout).expect("the figures are JSON");
    let rates = ["batch_cycles_per_second", "future_cycles_per_second"];
    let spans = ["acquire_p50_us", "acquire_p99_us", "told_p50_us", "told_p99_us"];
    for figure in rates.iter().chain(&spans) {
        positive(&figures[figure]["median"]);
    }
}

#[test]
fn what_changes_leave_behind_is_measured() {
    let nothing = tempfile::tempdir().expect("a temporary directory can be made");
    let figures = bench(&["churn", "--changes", "20000", "--locks", "100"], Some(nothing.path()));
    assert_eq!(figures["changes"], 20_000);
    let sexton = &figures["servers"][0];
    assert_eq!(sexton["server"], "sexton");
    assert!(figures["servers"][1].is_null(), "redis is not on the path");
    positive(&sexton["changes_per_second"]);
    for held in ["disk", "resident"] {
        let largest = positive(&sexton[held]["largest"]);
        assert!(largest >= positive(&sexton[held]["last"]));
    }
}

#[test]
fn a_written_log_is_replayed() {
    let figures = bench(&["replay", "--entries", "3000", "--held", "7", "--rounds", "2"], None);
    assert_eq!(figures["entries"], 3000);
    positive(&figures["entries_per_second"]["median"]);
    positive(&figures["replay_seconds"]["min"]);
}

/// The arguments of a short `bench processes`.
const PROCESSES: [&str; 15] = [
    "processes",
    "--rounds",
    "1",
    "--kills",
    "10",
    "--launches",
    "20",
    "--ends",
    "10",
    "--children",
    "20",
    "--records",
    "30",
    "--output",
    "1",
];

/// Creates a directory, to be used as PATH, with the commands that are launched but without any supervisor.
fn without_supervisors() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary directory can be made");
    let path = std::env::var_os("PATH").expect("there is a PATH");
    for name in ["sh", "sleep", "head"] {
        let mut places = std::env::split_paths(&path).map(|place| place.join(name));
        let program = places.find(|program| program.exists());
        let program = program.expect("every system has these programs");
        std::os::unix::fs::symlink(program, folder.path().join(name)).expect("a link can be made");
    }
    folder
}

#[test]
fn processes_are_measured_and_missing_supervisors_are_named() {
    let path = without_supervisors();
    let figures = bench(&PROCESSES, Some(path.path()));
    let notes = figures["notes"].to_string();
    for missing in ["supervisord is not installed", "runsv is not installed"] {
        assert!(notes.contains(missing), "{notes}");
    }
    let rows = figures["rows"].as_array().expect("rows are a list");
    assert_eq!(rows.len(), 17);
    for row in rows {
        // A few children or records may add no memory, and an idle coordinator may use no processor time.
        let weighed = ["memory_child", "memory_record", "output_cpu"];
        if !weighed.contains(&row["row"].as_str().expect("a name")) {
            positive(&row["sexton"]["median"]);
        }
        assert!(row["runit"].is_null() && row["supervisord"].is_null());
    }
}

#[test]
fn restarts_are_measured_beside_supervisors_where_they_are_installed() {
    let arguments = ["processes", "--parts", "restart", "--rounds", "1", "--kills", "10"];
    let figures = bench(&arguments, None);
    let notes = figures["notes"].to_string();
    let rows = figures["rows"].as_array().expect("rows are a list");
    assert_eq!(rows.len(), 2);
    for (name, program) in [("supervisord", "supervisord"), ("runit", "runsv")] {
        for row in rows {
            positive(&row["sexton"]["median"]);
            if notes.contains(&format!("{program} is not installed")) {
                assert!(row[name].is_null());
            } else {
                positive(&row[name]["median"]);
            }
        }
    }
}

#[test]
fn recoveries_of_tasks_are_measured_and_what_cannot_happen_is_named() {
    let arguments = [
        "dispatch",
        "--runs",
        "1",
        "--running",
        "20",
        "--rounds",
        "1",
        "--tasks",
        "20",
        "--waiting",
        "100",
        "--servers",
        "10",
    ];
    let figures = bench(&arguments, None);
    let modes = figures["recovery"].as_array().expect("modes are a list");
    let rows: Vec<u64> = modes.iter().filter_map(|mode| mode["row"].as_u64()).collect();
    assert_eq!(rows, (1..=14).collect::<Vec<u64>>());
    for mode in modes {
        if let Some(tests) = mode["never"].as_array() {
            for test in tests.iter().filter_map(|it| it.as_str()) {
                assert!(Path::new("..").join(test).exists(), "{test}");
            }
            assert_eq!(mode["runs"], 0);
        } else {
            assert_eq!(mode["runs"], 1, "{mode}");
            // A time counted from a deadline may be too short to measure.
            assert!(mode["ms"]["median"].as_f64().is_some_and(|ms| ms >= 0.0), "{mode}");
        }
    }
    for row in figures["rows"].as_array().expect("rows are a list") {
        if row["row"] != "memory" {
            positive(&row["sexton"]["median"]);
        }
    }
}

#[test]
fn rights_that_end_with_processes_are_measured() {
    let arguments = [
        "bindings",
        "--rounds",
        "1",
        "--kills",
        "10",
        "--runs",
        "3",
        "--entries",
        "200",
        "--leases",
        "200",
        "--triggers",
        "100",
    ];
    let figures = bench(&arguments, None);
    let rows = figures["rows"].as_array().expect("rows are a list");
    assert_eq!(rows.len(), 19);
    let has_flock = !figures["notes"].to_string().contains("flock is not");
    for row in rows {
        let name = row["row"].as_str().expect("a name");
        if has_flock || !["flock", "run_share"].contains(&name) {
            positive(&row["sexton"]["median"]);
        }
    }
}

fn recovery_row<'a>(figures: &'a Value, name: &str) -> &'a Value {
    let rows = figures["rows"].as_array().expect("rows are a list");
    rows.iter().find(|row| row["row"] == name).unwrap_or_else(|| panic!("there is no row {name}"))
}

const RECOVERY: [&str; 7] = ["recovery", "--locks", "2500", "--rounds", "1", "--seconds", "0.1"];

#[test]
fn held_locks_come_back_and_the_missing_peer_is_named() {
    let nothing = tempfile::tempdir().expect("a temporary directory can be made");
    let figures = bench(&RECOVERY, Some(nothing.path()));
    assert_eq!(figures["locks"], 2500);
    assert!(figures["redis"].is_null());
    let note = figures["notes"][0].as_str().expect("there is a note");
    assert!(note.contains("redis-server is not installed"), "{note}");
    for name in [
        "load",
        "restart_loaded",
        "touch_few",
        "touch_all",
        "touch_slower",
        "cycle_p50",
        "cycle_max",
    ] {
        let row = recovery_row(&figures, name);
        positive(&row["sexton"]["median"]);
        assert!(row["redis"].is_null() && row["ratio"].is_null(), "{row}");
    }
}

#[test]
fn held_locks_of_redis_come_back_where_it_is_installed() {
    if !is_redis_installed() {
        println!("skipped: redis-server is not installed");
        return;
    }
    let figures = bench(&RECOVERY, None);
    for name in ["load", "restart_loaded", "touch_all", "cycle_p999"] {
        let row = recovery_row(&figures, name);
        let own = positive(&row["sexton"]["median"]);
        let peer = positive(&row["redis"]["median"]);
        let ratio = positive(&row["ratio"]["median"]);
        assert!((ratio - own / peer).abs() < 1e-9, "{ratio} of {own} and {peer}");
    }
    for name in ["checkpoint", "restart_checkpointed"] {
        positive(&recovery_row(&figures, name)["redis"]["median"]);
    }
    assert!(recovery_row(&figures, "checkpoint_cycle_p999_more")["ratio"].is_null());
}

#[test]
fn a_row_that_is_none_is_a_usage_error() {
    let output = Command::new(env!("CARGO_BIN_EXE_sexton-bench"))
        .args(["locks", "--rows", "memory:0x1"])
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(2));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("expected memory:CxD"), "{words}");
}

#[test]
fn work_is_measured_and_a_tenant_with_few_jobs_waits_for_no_more_than_every_other_slot() {
    let small = ["--commands", "3", "--lines", "20", "--starts", "2"];
    let parts = ["--parts", "command,lines,start,fair", "--fair", "2000"];
    let peerless = ["--python", "python3", "--rounds", "1", "--procs", "2"];
    let all = [&["work"][..], &small, &parts, &peerless].concat();
    let figures = bench(&all, None);
    let rows = figures["rows"].as_array().expect("rows are a list");
    let named = |name: &str| {
        let row = rows.iter().find(|row| row["row"] == name);
        row.unwrap_or_else(|| panic!("no row {name}: {rows:?}"))
    };
    for name in ["command", "lines", "start_p50", "start_p99"] {
        positive(&named(name)["sexton"]["median"]);
    }
    let waited = positive(&named("fair")["sexton"]["median"]);
    assert!(waited <= 2.0, "{waited}");
}
