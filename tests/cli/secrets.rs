//! Secrets: sexton neither writes nor shows the value of a secret in the environment. It masks a secret in the arguments,
//! which must be allowed, wherever the arguments are shown.

use crate::coordinator::done;
use crate::daemon::text;
use crate::patience::until;
use crate::tree::Tree;
use serde_json::Value;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Stdio};

const SECRET: &str = "hunter2-planted-and-looked-for";

/// A running `sexton events`, and the file to which it writes.
struct Events(Child, tempfile::NamedTempFile);

impl Events {
    fn start(tree: &Tree) -> Self {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let mut command = tree.command(&["events", "--json", "--after", "0"]);
        let out = File::create(file.path()).expect("a writable file");
        command.stdout(out).stderr(Stdio::null());
        Self(command.spawn().expect("the command starts"), file)
    }

    /// Waits for the event of the end of this process. Returns all events.
    fn until_ended(&self, id: &str) -> String {
        until("its end is shown", || {
            let shown = std::fs::read_to_string(self.1.path()).ok()?;
            let is_end = |line: &&str| line.contains("exited") && line.contains(id);
            shown.lines().any(|line| is_end(&line)).then_some(shown)
        })
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // It may have ended together with the coordinator.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Returns the files in a directory, at any depth, that contain a secret. Fails the test if there are no files.
pub(crate) fn files_with(secret: &str, directory: &Path) -> Vec<String> {
    let (mut found, mut looked_at) = (Vec::new(), 0);
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the directory exists").flatten() {
            let kind = entry.file_type().expect("it exists");
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                let bytes = std::fs::read(entry.path()).expect("the file is readable");
                looked_at += 1;
                let mut all = bytes.windows(secret.len());
                if all.any(|it| it == secret.as_bytes()) {
                    found.push(entry.path().display().to_string());
                }
            }
        }
    }
    assert!(looked_at > 5, "files were looked at");
    found
}

#[test]
fn the_value_of_a_variable_is_in_nothing_that_is_written_or_shown() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), format!("API_TOKEN={SECRET}\n")).expect("a writable file");
    let path = text(file.path());
    let compares = format!("test \"$(printenv API_TOKEN)\" = \"$(cut -d= -f2 {path})\"");
    let mut tree = Tree::configured(&format!(
        "[services.web]\ncommand = [\"sh\", \"-c\", '{compares} && echo right; exec sleep 1000']\n\
         secrets = [\"API_TOKEN\"]\nenv_file = \"{path}\"\n"
    ));
    let events = Events::start(&tree);
    let wrote = until("the service has it", || {
        Some(tree.run(&["service", "logs", "web"]).out).filter(|it| !it.is_empty())
    });
    assert_eq!(wrote, "right\n");
    let mut command = tree.command(&["run", "--", "sh", "-c", &compares]);
    let foreground = done(command.env("API_TOKEN", SECRET).output().expect("the command runs"));
    assert_eq!(foreground.status, 0, "{foreground:?}");
    let words = ["run", "--detach", "--env-file", path, "--", "sh", "-c"];
    let id = tree.well(&[&words[..], &[&compares]].concat());
    let id = id.trim_end();
    assert_eq!(tree.run(&["wait", id]).status, 0);
    let mut shown = vec![
        events.until_ended(id),
        tree.well(&["ps", "--all"]),
        tree.well(&["ps", "--all", "--json"]),
        tree.well(&["service", "status", "--json"]),
        tree.well(&["checkpoint"]),
        tree.daemon.as_ref().expect("a server").log(),
    ];
    for record in tree.all() {
        let id = record["id"].as_str().expect("a string");
        shown.push(tree.well(&["ps", id]));
    }
    assert!(shown.len() > 8, "all records are shown");
    let data = text(&tree.data).to_owned();
    tree.again(|| {
        let replayed = done(
            crate::daemon::sexton().args(["replay", &data]).output().expect("the command runs"),
        );
        assert_eq!(replayed.status, 0, "{replayed:?}");
        assert!(replayed.out.contains("API_TOKEN"), "the name is kept");
        shown.push(replayed.out);
    });
    for page in shown {
        assert!(!page.contains(SECRET), "{page}");
    }
    assert_eq!(files_with(SECRET, &tree.data), Vec::<String>::new());
}

#[test]
fn one_in_the_arguments_is_refused_or_masked_wherever_it_is_shown() {
    let tree = Tree::start();
    let events = Events::start(&tree);
    let argument = format!("--password={SECRET}");
    let command = ["--", "sh", "-c", "exit 3", "tool", &argument];
    let refused = tree.run(&[&["run", "--detach"], &command[..]].concat());
    assert_eq!(refused.status, 2, "{refused:?}");
    assert!(refused.err.contains("--allow-secrets"), "{refused:?}");
    assert_eq!(tree.all(), Vec::<Value>::new());
    let allowed = [&["run", "--detach", "--allow-secrets"], &command[..]].concat();
    let id = tree.well(&allowed);
    let id = id.trim_end();
    assert_eq!(tree.run(&["wait", id]).status, 3);
    let record = tree.record(id);
    assert_eq!(record["command"][4], "--password=***", "{record}");
    for shown in [
        refused.err,
        events.until_ended(id),
        tree.well(&["ps", id]),
        tree.well(&["ps", "--all"]),
        tree.well(&["ps", "--all", "--json"]),
        tree.daemon.as_ref().expect("a server").log(),
    ] {
        assert!(!shown.contains(SECRET), "{shown}");
    }
    // A search for the secret does not reveal it either.
    let found = |text: &str| tree.well(&["ps", "--all", "--count", &format!("--search={text}")]);
    assert_eq!(found(SECRET), "0\n");
    assert_eq!(found("hunter2"), "0\n");
    assert_eq!(found("--password="), "1\n");
}

#[test]
fn over_http_the_same_is_refused_unless_allowed() {
    let tree = Tree::start();
    let argument = format!("API_TOKEN={SECRET}");
    let asked = |more: &str| {
        let body = format!(
            "{{\"command\":[\"sh\",\"-c\",\"exit 0\",\"{argument}\"],\"dir\":\"/\"{more}}}"
        );
        tree.post("/v1/processes/launch", &body)
    };
    let refused = asked("");
    assert_eq!(refused["field"], "command", "{refused}");
    let words = refused.to_string();
    assert!(words.contains("allow_secrets"), "{refused}");
    assert!(!words.contains(SECRET), "{refused}");
    let launched = asked(",\"allow_secrets\":true");
    assert_eq!(launched["command"][3], "API_TOKEN=***", "{launched}");
    // The command of a lease is checked when the lease is set.
    let body = format!(
        "{{\"name\":\"sync\",\"launch\":{{\"command\":[\"sync\",\"{argument}\"],\"dir\":\"/\"}}}}"
    );
    let refused = tree.post("/v1/leases/set", &body);
    assert!(refused.to_string().contains("allow_secrets"), "{refused}");
}

#[test]
fn the_command_of_a_lease_is_masked_in_a_replay_and_in_the_history() {
    let tree = Tree::start();
    let command = ["--allow-secrets", "--", "true", &format!("--password={SECRET}")];
    tree.well(&[&["lease", "run", "nightly"][..], &command].concat());
    tree.well(&[&["run"][..], &command].concat());
    tree.well(&["task", "add", "--allow-secrets", "--", "true", &format!("https://u:{SECRET}@h/")]);
    tree.well(&["checkpoint"]);
    let data = text(&tree.data);
    let log = tree.data.join("log.jsonl");
    let exported = tree.run(&["replay", data, "--export", text(&log)]);
    assert_eq!(exported.status, 0, "{exported:?}");
    let shown = [
        tree.well(&["replay", data]),
        tree.well(&["replay", data, "--json"]),
        tree.well(&["replay", data, "--state"]),
        tree.well(&["replay", data, "--state", "--json"]),
        std::fs::read_to_string(&log).expect("it was written"),
    ];
    let page = until("the journal has been read", || {
        let page = tree.page("/page/then");
        (!page.contains("data-again")).then_some(page)
    });
    assert!(page.contains("nightly") && !page.contains(SECRET), "{page}");
    for (number, shown) in shown.iter().enumerate() {
        assert!(!shown.contains(SECRET), "{number}: {shown}");
        let mask = ["--password=***", "https://u:***@h/"];
        assert!(mask.iter().all(|mask| shown.contains(mask)), "{number}: {shown}");
    }
}

#[test]
fn a_url_in_an_error_has_no_credentials() {
    let tree = Tree::start();
    for url in
        ["http://u:hunter2@localhost:1", "https://hunter2@h", "hunter2@h", "ftp://u:hunter2@h/x"]
    {
        let refused = tree.run(&["status", "--url", url]);
        assert_eq!(refused.status, 2, "{refused:?}");
        assert!(!refused.err.contains("hunter2"), "{refused:?}");
    }
}
