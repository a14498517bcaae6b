//! `sexton server`: inventories, the reasons for which servers are updated, and servers that cannot be reached.

use crate::coordinator::done;
use crate::daemon::{Daemon, sexton, text};
use crate::patience::until;
use crate::tree::Tree;
use serde_json::Value;
use sexton::handle::REFRESH;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use tempfile::tempdir;

/// The path of the program.
const SEXTON: &str = env!("CARGO_BIN_EXE_sexton");

/// Adds the server `dead`, a machine on which nobody listens.
fn add_dead(tree: &Tree, files: &Path) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let config = files.join("ssh_config");
    let host = format!("Host dead\n HostName 127.0.0.1\n Port {port}\n");
    std::fs::write(&config, host).expect("a writable file");
    let reach = ["--ssh", "dead", "--ssh-config", text(&config)];
    tree.well(&[&["server", "add", "dead", "--threads", "4"], reach.as_slice()].concat());
}

#[test]
fn a_server_that_cannot_be_reached_holds_up_no_task() {
    let (tree, files) = (Tree::start(), tempdir().expect("the disk has space"));
    add_dead(&tree, files.path());
    tree.well(&["server", "add", "live", "--threads", "2"]);
    let add = |nth: usize| {
        let work = format!("work-{}", nth % 4);
        let added = tree.well(&["task", "add", "--work", &work, "--", "true"]);
        added.trim_end().to_owned()
    };
    let tasks: Vec<String> = (0..12).map(add).collect();
    for task in &tasks {
        let over = until("the task is over", || {
            let shown = tree.well(&["task", "show", task, "--json"]);
            let shown: Value = serde_json::from_str(&shown).expect("valid JSON");
            (shown["status"] == "complete").then_some(shown)
        });
        let past = over["past"].as_array().expect("a list");
        let last = past.last().expect("the task had an attempt");
        assert_eq!(last["server"], "live", "{over}");
        assert_eq!(over["exit"], "completed", "{over}");
    }
    let listed = tree.well(&["server", "list"]);
    let dead = listed.lines().find(|line| line.starts_with("dead"));
    let dead = dead.expect("the server is listed");
    assert!(dead.contains(" dead ") && dead.contains("not reached"), "{listed}");
    assert!(listed.contains("this machine"), "{listed}");
    let listed = tree.well(&["server", "list", "--json"]);
    let listed: Value = serde_json::from_str(&listed).expect("valid JSON");
    let outage = &listed["servers"][0]["outage"];
    let reason = outage["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("ssh"), "what ssh said: {listed}");
    tree.well(&["server", "enable", "dead"]);
    let listed = tree.well(&["server", "list"]);
    assert!(!listed.contains("not reached"), "{listed}");
}

#[test]
fn a_task_that_no_server_can_run_says_why_and_does_not_hold_its_work_id() {
    let (tree, files) = (Tree::start(), tempdir().expect("the disk has space"));
    add_dead(&tree, files.path());
    let add = || {
        let added = tree.well(&["task", "add", "--work", "w", "--", "true"]);
        added.trim_end().to_owned()
    };
    let tasks = [add(), add()];
    for task in &tasks {
        until("the task shows why it does not run", || {
            let shown = tree.well(&["task", "show", task]);
            shown.contains("no enabled server can be reached").then_some(())
        });
    }
    tree.well(&["server", "add", "live", "--threads", "1"]);
    for task in &tasks {
        until("the task is over", || {
            let shown = tree.well(&["task", "show", task, "--json"]);
            shown.contains(r#""exit":"completed""#).then_some(())
        });
    }
}

#[test]
fn servers_are_looked_up_when_they_are_wanted() {
    let tree = Tree::start();
    let refused = tree.run(&["server", "announce"]);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(refused.err.contains("there is no such lease"), "{refused:?}");

    let files = tempdir().expect("the disk has space");
    let inventory = files.path().join("servers.json");
    std::fs::write(&inventory, r#"[{"host":"A"}]"#).expect("a writable file");
    let lease = |what: &[&str]| {
        let set = [&["lease", "set", REFRESH], what].concat();
        tree.well(&set);
    };
    lease(&["period", "1ms"]);
    let (data, from) = (text(&tree.data), text(&inventory));
    let update = ["server", "update", "--data", data, "--from", from];
    lease(&[&["command", "--", SEXTON], update.as_slice()].concat());

    // A server announces itself, which triggers an update.
    let said = tree.well(&["server", "announce"]);
    assert_eq!(said, "the servers are being looked up now\n");
    let has = |host: &str| {
        let listed = tree.well(&["server", "list", "--json"]);
        listed.contains(&format!(r#""server":"{host}""#)).then_some(())
    };
    until("the inventory is loaded", || has("A"));

    // A task for which no server is enabled triggers an update, and then runs.
    tree.well(&["server", "disable", "A"]);
    std::fs::write(&inventory, r#"[{"host":"B"}]"#).expect("a writable file");
    tree.well(&["task", "add", "--wait", "1m", "--", "true"]);
    has("B").expect("it ran there");

    // A task that cannot be launched also triggers an update.
    std::fs::write(&inventory, r#"[{"host":"B"},{"host":"C"}]"#).expect("a writable file");
    tree.well(&["task", "add", "--", "/nowhere/program"]);
    until("the inventory is loaded", || has("C"));
}

#[test]
fn an_inventory_is_watched() {
    let tree = Tree::start();
    let files = tempdir().expect("the disk has space");
    let inventory = files.path().join("servers.json");
    let from = text(&inventory);
    std::fs::write(&inventory, "[").expect("a writable file");
    let refused = tree.run(&["server", "update", "--from", "-", "--watch"]);
    assert_eq!(refused.status, 2, "{refused:?}");

    let mut watching = tree.command(&["server", "update", "--from", from, "--watch"]);
    watching.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut watching = watching.spawn().expect("the command runs");
    let has = |host: &str| {
        let listed = tree.well(&["server", "list", "--json"]);
        listed.contains(&format!(r#""server":"{host}""#)).then_some(())
    };
    let mut told = BufReader::new(watching.stderr.take().expect("a pipe"));
    let mut line = String::new();
    told.read_line(&mut line).expect("UTF-8");
    assert!(line.contains("failed to read the inventory"), "{line}");
    for host in ["A", "B"] {
        let text = format!(r#"[{{"host":"{host}"}}]"#);
        std::fs::write(&inventory, text).expect("a writable file");
        until("the file was seen", || has(host));
    }
    assert!(has("A").is_none(), "it is no longer in the inventory");
    watching.kill().expect("a live process");
    watching.wait().expect("the process ends");
    let mut rest = String::new();
    told.read_to_string(&mut rest).expect("UTF-8");
    // The file may have been read while it was written, which adds a line.
    assert!(rest.lines().count() <= 2, "{rest}");
}

#[test]
fn an_inventory_comes_from_a_command_or_a_url() {
    let tree = Tree::start();
    let printed = r#"echo '[{"host":"A","max_procs":2,"ssh":{"to":"deploy@a"}}]'"#;
    let update = tree.run(&["server", "update", "--from-command", printed]);
    assert_eq!(update.out, "1 added, 0 removed, 0 changed\n");
    let listed = tree.well(&["server", "list", "--json"]);
    assert!(listed.contains(r#""ssh":{"to":"deploy@a""#), "{listed}");
    for failing in ["exit 3", "echo '[]'; exit 3", "yes | head -c 5000000"] {
        let refused = tree.run(&["server", "update", "--from-command", failing]);
        assert!(refused.status >= 2, "{failing}: {refused:?}");
    }
    assert_eq!(tree.well(&["server", "list", "--json"]), listed, "nothing changed");

    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let at = listener.local_addr().expect("an address");
    let server = std::thread::Builder::new()
        .spawn(move || {
            for status in ["200 OK", "500 Oh no"] {
                let (mut stream, _) = listener.accept().expect("a client connects");
                let mut request = [0; 1024];
                let _count = stream.read(&mut request).expect("the client sends a request");
                let body = r#"[{"host":"A","max_procs":3}]"#;
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                stream.write_all((head + body).as_bytes()).expect("connected");
            }
        })
        .expect("the command runs");
    let url = format!("http://{at}/servers.json");
    let update = tree.run(&["server", "update", "--from", &url]);
    assert_eq!(update.out, "0 added, 0 removed, 1 changed\n", "{update:?}");
    let refused = tree.run(&["server", "update", "--from", &url]);
    assert!(refused.status >= 2, "{refused:?}");
    server.join().expect("it answered");
    let listed = tree.well(&["server", "list", "--json"]);
    assert!(listed.contains(r#""threads":3"#) && listed.contains("deploy@a"), "{listed}");
}

#[test]
fn an_inventory_has_room_for_thousands_of_other_machines() {
    let tree = Tree::start();
    let files = tempdir().expect("the disk has space");
    let inventory = files.path().join("servers.json");
    let update = |count: usize| {
        let host = |nth| {
            let host = format!("web-{nth}.eu-central-1.example.org");
            format!(r#"{{"host":"{host}","max_procs":4,"ssh":{{"to":"deploy@{host}"}}}}"#)
        };
        let hosts: Vec<String> = (0..count).map(host).collect();
        std::fs::write(&inventory, format!("[{}]", hosts.join(","))).expect("a writable file");
        tree.run(&["server", "update", "--from", text(&inventory)])
    };
    let added = update(1000);
    assert_eq!(
        (added.status, added.out.as_str()),
        (1, "1000 added, 0 removed, 0 changed\n"),
        "{added:?}"
    );
    assert_eq!(update(1000).status, 0, "nothing is left to change");
    let listed = tree.get("/v1/servers");
    assert_eq!(listed["servers"].as_array().map(Vec::len), Some(1000));
    let refused = update(15_000);
    assert_eq!(refused.status, 2, "{refused:?}");
    assert!(refused.err.contains("1048576 bytes"), "{refused:?}");
    assert_eq!(tree.get("/v1/servers"), listed, "nothing changed");
}

#[test]
fn a_server_announces_itself_by_url() {
    let files = tempdir().expect("the disk has space");
    let data = files.path().join("data");
    let tokens = files.path().join("tokens");
    std::fs::write(&tokens, "correct-horse-that-runs run\ncorrect-horse-battery-staple\n")
        .expect("a writable file");
    let plain = files.path().join("plain");
    std::fs::write(&plain, "correct-horse-battery-staple\n").expect("a writable file");
    for file in [&tokens, &plain] {
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(file, private).expect("our own file");
    }
    let flags = ["--data", text(&data), "--http", "127.0.0.1:0"];
    let daemon = Daemon::serve(&[&flags[..], &["--token-file", text(&tokens)]].concat());
    let url = format!("http://{}", daemon.http());
    let announce_with = |token: &Path| {
        let mut announce = sexton();
        announce.args(["server", "announce", "--url", &url]);
        announce.args(["--token-file", text(token)]);
        done(announce.output().expect("the command runs"))
    };
    let announce = || announce_with(&tokens);
    let refused = announce();
    assert_eq!(refused.status, 1, "{refused:?}");
    let refused = announce_with(&plain);
    assert!(refused.err.contains("scope run"), "{refused:?}");
    let here = |words: &[&str]| {
        let mut asking = sexton();
        asking.env("SEXTON_DATA", &data).args(words);
        let done = done(asking.output().expect("the command runs"));
        assert_eq!(done.status, 0, "{done:?}");
        done.out
    };
    here(&["lease", "set", REFRESH, "period", "1ms"]);
    here(&["lease", "set", REFRESH, "command", "--", "true"]);
    let told = announce();
    assert_eq!(
        (told.status, told.out.as_str()),
        (0, "the servers are being looked up now\n"),
        "{told:?}"
    );
}
