//! Files and directories that other users may write to, or put others in the place of: what they hold decides nothing, and nothing is written
//! there. A directory with the mode 0777 stands for one of another user, so that no second user is needed.

use crate::coordinator::done;
use crate::daemon::{Daemon, sexton, text};
use crate::patience::until;
use crate::tree::Tree;
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{Permissions, create_dir, read_to_string, set_permissions, write};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use tempfile::{TempDir, tempdir};

fn set_mode(path: &Path, mode: u32) {
    set_permissions(path, Permissions::from_mode(mode)).expect("our own");
}

/// Returns a directory of ours and one that others may write to, in a directory for the test.
fn ours_and_shared() -> (TempDir, PathBuf, PathBuf) {
    let files = tempdir().expect("the disk has space");
    let (ours, shared) = (files.path().join("ours"), files.path().join("shared"));
    for dir in [&ours, &shared] {
        create_dir(dir).expect("a new directory");
    }
    set_mode(&shared, 0o777);
    (files, ours, shared)
}

/// The owner of a directory may have put a link to a directory of ours where a launch is to have its own.
#[test]
fn a_run_directory_that_others_may_replace_is_refused() {
    let tree = Tree::start();
    let (_files, ours, shared) = ours_and_shared();
    let output = ours.join("stdout.log");
    write(&output, "ours").expect("a writable file");
    symlink(&ours, shared.join("link")).expect("a link");
    let launch = |dir: &Path| {
        let words = ["run", "--detach", "--run-dir", text(dir), "--"];
        tree.run(&[&words[..], &["echo", "other"]].concat())
    };
    for dir in ["link", "link/below", "new", "new/below", ""] {
        let refused = launch(&shared.join(dir));
        assert_eq!(refused.status, 125, "{dir}: {refused:?}");
        let words = format!("{} has mode 0777", text(&shared));
        assert!(refused.err.contains(&words), "{dir}: {refused:?}");
    }
    assert_eq!(read_to_string(&output).expect("it is still there"), "ours");
    assert_eq!(std::fs::read_dir(&ours).expect("ours").count(), 1);
    assert_eq!(std::fs::read_dir(&shared).expect("ours").count(), 1);
    // In a directory to which nobody else may write, a link of ours leads where it says.
    set_mode(&shared, 0o755);
    let id = launch(&shared.join("link/below")).out;
    assert_eq!(tree.run(&["wait", id.trim()]).status, 0);
    let output = read_to_string(ours.join("below/stdout.log"));
    assert_eq!(output.expect("its output"), "other\n");
}

#[test]
fn a_working_directory_is_made_through_no_link_of_somebody_else() {
    let tree = Tree::start();
    let (_files, ours, shared) = ours_and_shared();
    symlink(&ours, shared.join("link")).expect("a link");
    let launch = |dir: &str| {
        let dir = shared.join(dir);
        let asked = serde_json::json!({"command": ["pwd"], "dir": text(&dir), "mkdir": true});
        let answer = tree.post("/v1/processes/launch", &asked.to_string());
        let id = answer["id"].as_str().expect("an id").to_owned();
        tree.run(&["wait", &id]);
        tree.record(&id)
    };
    let refused = launch("link/below").to_string();
    assert!(refused.contains("shared/link is a symbolic link, and "), "{refused}");
    assert!(!ours.join("below").exists());
    // A directory of somebody else may be worked in, and a new one is made in it.
    launch("new/below");
    assert!(shared.join("new/below").is_dir());
}

/// Each page is written to where the link with its name leads.
#[test]
fn man_pages_are_written_through_no_link_of_somebody_else() {
    let (files, ours, shared) = ours_and_shared();
    let man = |dir: &Path| done(sexton().arg("man").arg(dir).output().expect("the command runs"));
    let kept = ours.join("kept");
    write(&kept, "ours").expect("a writable file");
    symlink(&kept, shared.join("sexton.1")).expect("a link");
    symlink(&ours, shared.join("link")).expect("a link");
    assert_eq!(man(&shared).status, 0);
    assert_eq!(read_to_string(&kept).expect("it is still there"), "ours");
    assert!(read_to_string(shared.join("sexton.1")).expect("a page").contains(".TH sexton 1"));
    for dir in ["link", "link/new"] {
        let refused = man(&shared.join(dir));
        assert_eq!(refused.status, 3, "{dir}: {refused:?}");
        assert!(refused.err.contains("shared/link is a symbolic link, and "), "{refused:?}");
    }
    assert_eq!(std::fs::read_dir(&ours).expect("ours").count(), 1);
    // A link of ours leads where it says.
    symlink(&ours, files.path().join("link")).expect("a link");
    assert_eq!(man(&files.path().join("link")).status, 0);
    assert!(ours.join("sexton.1").exists());
}

/// Its owner may exchange what is being copied, or have it put elsewhere.
#[test]
fn a_backup_is_not_made_where_others_may_replace_it() {
    let tree = Tree::start();
    let (_files, ours, shared) = ours_and_shared();
    symlink(&ours, shared.join("link")).expect("a link");
    for dir in ["copy", "new/copy", "link/copy"] {
        let refused = tree.run(&["backup", text(&shared.join(dir))]);
        assert_eq!(refused.status, 3, "{dir}: {refused:?}");
        let words = format!("{} has mode 0777", text(&shared));
        assert!(refused.err.contains(&words), "{dir}: {refused:?}");
    }
    for dir in [&ours, &shared] {
        assert!(!dir.join("copy").exists());
    }
    set_mode(&shared, 0o755);
    tree.well(&["backup", text(&shared.join("link/copy"))]);
    assert!(ours.join("copy/journal").is_dir());
}

#[test]
fn a_service_is_not_given_variables_that_others_may_write() {
    let files = tempdir().expect("the disk has space");
    let shared = files.path().join("shared");
    create_dir(&shared).expect("a new directory");
    let named = shared.join("env");
    write(&named, "WORD=theirs\n").expect("a writable file");
    set_mode(&named, 0o666);
    let tree = Tree::configured(&format!(
        "[services.app]\ncommand = [\"sh\", \"-c\", \"echo got $WORD; exec sleep 1000\"]\nenv_file = \"{}\"\n\
         backoff = {{ first = \"20ms\", max = \"20ms\" }}\nintensity = false\n",
        text(&named)
    ));
    let fails = |words: &str| {
        until("the launch fails", || {
            let shown = tree.run(&["service", "status", "app", "--json"]);
            (shown.out + &shown.err).contains(words).then_some(())
        });
    };
    fails("it has mode 0666, so that other users may write to it");
    set_mode(&shared, 0o777);
    set_mode(&named, 0o600);
    fails("shared has mode 0777");
    let output = tree.data.join("services/app/stdout.log");
    let printed = || read_to_string(&output).unwrap_or_default();
    assert_eq!(printed(), "");
    set_mode(&shared, 0o755);
    until("it runs", || printed().contains("got theirs").then_some(()));
    tree.well(&["service", "stop", "app"]);
}

/// The owner of an inventory decides which machines there are; the configuration of ssh can run any command on this one.
#[test]
fn an_inventory_says_nothing_of_what_is_run_on_this_machine() {
    let tree = Tree::start();
    let files = tempdir().expect("the disk has space");
    let inventory = files.path().join("servers.json");
    let update = |ssh: &Value, more: &[&str]| {
        let hosts = serde_json::json!([{"host": "A", "ssh": ssh}]);
        write(&inventory, hosts.to_string()).expect("a writable file");
        tree.run(&[&["server", "update", "--from", text(&inventory)], more].concat())
    };
    let listed = || tree.get("/v1/servers");
    let before = listed();
    for (field, flag) in [("config", "--ssh-config"), ("program", "--program")] {
        let ssh = serde_json::json!({"to": "a", field: "/etc/theirs"});
        let refused = update(&ssh, &[]);
        assert!(refused.status >= 2, "{refused:?}");
        let words = format!("the server A has `ssh.{field}`");
        assert!(refused.err.contains(&words) && refused.err.contains(flag), "{refused:?}");
        let asked = serde_json::json!({"hosts": [{"host": "A", "ssh": ssh}]});
        let answer = tree.post("/v1/servers/inventory", &asked.to_string());
        assert_eq!(answer["status"], 400, "{answer}");
        assert_eq!(listed(), before);
    }
    // On the command line, they are named for all its servers.
    let given = ["--ssh-config", "/etc/ssh/ours", "--program", "/opt/sexton"];
    let updated = update(&serde_json::json!({"to": "a"}), &given);
    assert_eq!(updated.out, "1 added, 0 removed, 0 changed\n", "{updated:?}");
    let ssh = &listed()["servers"][0]["ssh"];
    let expected =
        serde_json::json!({"to": "a", "config": "/etc/ssh/ours", "program": "/opt/sexton"});
    assert_eq!(ssh, &expected);
}

#[test]
fn an_inventory_that_others_may_write_is_refused() {
    let tree = Tree::start();
    let files = tempdir().expect("the disk has space");
    let inventory = files.path().join("servers.json");
    write(&inventory, r#"[{"host":"A"}]"#).expect("a writable file");
    set_mode(&inventory, 0o666);
    let from = ["server", "update", "--from", text(&inventory)];
    let before = tree.get("/v1/servers");
    let refused = tree.run(&from);
    assert!(refused.status >= 2 && refused.err.contains("it has mode 0666"), "{refused:?}");
    set_mode(&inventory, 0o644);
    set_mode(files.path(), 0o777);
    let refused = tree.run(&from);
    assert!(refused.status >= 2 && refused.err.contains("has mode 0777"), "{refused:?}");
    assert_eq!(tree.get("/v1/servers"), before);
    set_mode(files.path(), 0o755);
    assert_eq!(tree.run(&from).out, "1 added, 0 removed, 0 changed\n");
}

#[test]
fn ssh_is_not_run_with_a_configuration_that_others_may_write() {
    let tree = Tree::start();
    let files = tempdir().expect("the disk has space");
    let (config, mark) = (files.path().join("ssh_config"), files.path().join("mark"));
    let host = format!("Host a\n ProxyCommand touch {}\n", text(&mark));
    write(&config, host).expect("a writable file");
    set_mode(&config, 0o666);
    let reach = ["--ssh", "a", "--ssh-config", text(&config)];
    tree.well(&[&["server", "add", "A", "--threads", "1"], &reach[..]].concat());
    tree.well(&["task", "add", "--", "true"]);
    until("the server was tried", || {
        let listed = tree.get("/v1/servers").to_string();
        listed.contains("it has mode 0666").then_some(())
    });
    assert!(!mark.exists(), "nothing of it was run");
    set_mode(&config, 0o600);
    tree.well(&["server", "enable", "A"]);
    until("ssh reads it", || mark.exists().then_some(()));
}

/// The program that the configuration names is run, so it is told when somebody else may write to it.
#[test]
fn a_configuration_that_others_may_write_is_warned_of() {
    let files = tempdir().expect("the disk has space");
    let config = files.path().join("sexton.toml");
    write(&config, "").expect("a writable file");
    for (mode, is_warned_of) in [(0o644, false), (0o666, true)] {
        set_mode(&config, mode);
        let daemon = Daemon::serve(&["--memory", "--config", text(&config)]);
        daemon.signal(Signal::TERM);
        let (status, log) = daemon.end();
        assert!(status.success(), "{log}");
        let words = "it has mode 0666, so that other users may write to it";
        assert_eq!(log.contains(words), is_warned_of, "{log}");
    }
}
