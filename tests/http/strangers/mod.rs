//! Programs that others wrote, and that know of sexton only what it serves as its description: a client that
//! openapi-python-client makes of it, and schemathesis, which asks whatever the description allows and much that it
//! does not. Each is left out, and that is said, where it is not installed; `.ci/run` installs both.

use crate::daemon::{Daemon, forget_environment, text};
use crate::left_out::left_out;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// How long schemathesis asks, in seconds.
const ASKING: &str = "40";

/// A coordinator with an HTTP door on TCP.
struct Served {
    daemon: Daemon,
    files: TempDir,
}

impl Served {
    fn start() -> Self {
        let files = tempfile::tempdir().expect("a temporary directory");
        let data = files.path().join("data");
        let daemon = Daemon::serve(&["--http", "127.0.0.1:0", "--data", text(&data)]);
        Self { daemon, files }
    }

    fn description(&self) -> String {
        format!("http://{}/v1/openapi.json", self.daemon.http())
    }
}

/// Where a program of others is, if it is installed.
fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&path).map(|place| place.join(program));
    let found = places.find(|place| place.is_file());
    if found.is_none() {
        left_out(format!("{program} is not installed"));
    }
    found
}

/// Runs it in a directory of its own; fails with what it printed if it does.
fn run(served: &Served, mut command: Command) -> String {
    forget_environment(&mut command);
    command.current_dir(served.files.path());
    let done = command.output().expect("the command runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    assert!(done.status.success(), "{command:?}\n{out}\n{err}");
    out
}

/// Makes a client of the description, and what runs programs that use it; none if its generator is not installed.
fn client_of(served: &Served) -> Option<PathBuf> {
    let generator = installed("openapi-python-client")?;
    let mut generate = Command::new(&generator);
    generate.args([
        "generate",
        "--meta",
        "none",
        "--output-path",
        "sexton_client",
        "--url",
    ]);
    generate.arg(served.description());
    run(served, generate);
    // What the client needs is installed where its generator is.
    Some(generator.with_file_name("python"))
}

/// What a program says that uses the client.
fn said_by(program: &str, served: &Served, python: &Path) -> String {
    let mut command = Command::new(python);
    let programs = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http/strangers");
    command.arg(Path::new(programs).join(program));
    command
        .arg(served.files.path())
        .arg(served.daemon.http().to_string());
    run(served, command)
}

#[test]
fn a_client_made_of_the_description_takes_and_gives_back_a_lock() {
    let served = Served::start();
    if let Some(python) = client_of(&served) {
        let said = said_by("take_a_lock.py", &served, &python);
        assert_eq!(said, "taken and given back\n");
    }
}

#[test]
fn a_client_made_of_the_description_works_on_a_job() {
    let served = Served::start();
    if let Some(python) = client_of(&served) {
        let said = said_by("work_on_a_job.py", &served, &python);
        assert_eq!(said, "added, claimed and done\n");
    }
}

#[test]
fn whoever_asks_anything_is_answered_as_described() {
    let Some(schemathesis) = installed("schemathesis") else {
        return;
    };
    let served = Served::start();
    let mut ask = Command::new(schemathesis);
    ask.arg("run").arg(served.description());
    ask.args([
        "--max-time",
        ASKING,
        "--request-timeout",
        "15",
        "--no-color",
    ]);
    ask.args(["--generation-database", "none", "--continue-on-failure"]);
    // The same questions each time: what others would find is for the day on which they are asked.
    ask.args(["--seed", "68548194757170582761986592824207005556"]);
    // A stream of events has no end, and a drain is the end of the coordinator.
    ask.args(["--exclude-path-regex", "^/v1/(events|drain)$"]);
    // A schema cannot say that a name has at most 255 bytes as UTF-8, nor that a key came before with another body.
    ask.args(["--exclude-checks", "positive_data_acceptance"]);
    ask.env("SCHEMATHESIS_HOOKS", "patience");
    ask.env(
        "PYTHONPATH",
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http/strangers"),
    );
    ask.env("PYTHONDONTWRITEBYTECODE", "1");
    let said = run(&served, ask);
    let asked = said.lines().find_map(|line| {
        let (asked, _) = line.trim().split_once(" generated, ")?;
        asked.parse::<u32>().ok()
    });
    assert!(asked > Some(500), "it asked: {said}");
    println!("{said}");
}
