//! Checks the Containerfile, and runs the program as in a container of its image: as process 1, as the image's user,
//! without capabilities. The image is not built, since that requires a registry.

use crate::daemon::{Daemon, PROGRAM, forget_environment, text};
use crate::left_out::left_out;
use crate::patience::until;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::collections::BTreeSet;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the instructions of the Containerfile, each as its name and arguments.
fn instructions() -> Vec<(String, String)> {
    let file = root().join("packaging/Containerfile");
    let text = std::fs::read_to_string(file).expect("UTF-8");
    let text = text.replace("\\\n", " ");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parted = |line: &str| {
        let (word, rest) = line.split_once(' ').expect("an instruction has arguments");
        (word.to_owned(), rest.trim().to_owned())
    };
    lines.map(parted).collect()
}

/// Returns the arguments of the last instruction with this name, or `None`.
fn given(word: &str) -> Option<String> {
    let instructions = instructions().into_iter();
    let mut found = instructions.filter(|(name, _)| name == word);
    found.next_back().map(|(_, rest)| rest)
}

/// Returns the words of a command in its exec form.
fn words(text: &str) -> Vec<String> {
    serde_json::from_str(text).expect("a JSON list, so no shell runs it")
}

#[test]
fn the_image_is_of_one_user_with_a_volume_and_no_port() {
    assert_eq!(given("USER").as_deref(), Some("sexton"));
    assert_eq!(given("VOLUME").as_deref(), Some("/data"));
    assert_eq!(given("ENV").as_deref(), Some("SEXTON_DATA=/data"));
    assert_eq!(words(&given("ENTRYPOINT").expect("the file has this instruction")), ["sexton"]);
    assert_eq!(
        words(&given("CMD").expect("the file has this instruction")),
        ["serve"],
        "it listens on loopback only"
    );
    assert_eq!(given("EXPOSE"), None);
    assert_eq!(given("STOPSIGNAL").as_deref(), Some("SIGTERM"));
}

#[test]
fn the_image_uses_files_and_stages_that_exist() {
    let known = [
        "CMD",
        "COPY",
        "ENTRYPOINT",
        "ENV",
        "FROM",
        "HEALTHCHECK",
        "RUN",
        "STOPSIGNAL",
        "USER",
        "VOLUME",
        "WORKDIR",
    ];
    let mut stages = BTreeSet::new();
    let mut folder = PathBuf::new();
    for (word, rest) in instructions() {
        assert!(known.contains(&word.as_str()), "{word} is not an instruction");
        let words: Vec<&str> = rest.split_whitespace().collect();
        match word.as_str() {
            "FROM" => {
                assert!(words[0].contains(':'), "{rest} names no version");
                if let [_, "AS", stage] = words[..] {
                    stages.insert(stage.to_owned());
                }
            }
            "WORKDIR" => folder = PathBuf::from(&rest),
            "COPY" => {
                let Some(stage) = words[0].strip_prefix("--from=") else {
                    continue;
                };
                assert!(stages.contains(stage), "there is no stage {stage}");
                // The path to which `packaging/program` writes the program.
                let copied = Path::new(words[1]);
                assert_eq!(copied, folder.join("target/dist/dynamic/sexton"));
            }
            "RUN" if words[0].starts_with("packaging/") => {
                assert!(root().join(words[0]).is_file(), "{rest}");
            }
            _ => {}
        }
    }
    let version = env!("CARGO_PKG_RUST_VERSION");
    let builder = format!("docker.io/library/rust:{version}-bookworm");
    assert!(
        instructions().iter().any(|(_, rest)| rest.starts_with(&builder)),
        "it is built with another version than {version}"
    );
}

/// Returns the user id of the image's user.
fn user() -> u32 {
    let made = instructions().into_iter().find(|(_, rest)| rest.contains("useradd "));
    let (_, made) = made.expect("it makes a user");
    let mut words = made.split_whitespace().skip_while(|word| *word != "--uid");
    words.nth(1).and_then(|it| it.parse().ok()).expect("a number")
}

/// Runs a command as the image's user, without capabilities.
fn as_user(starter: &mut Command, data: &Path) {
    let user = user().to_string();
    forget_environment(starter);
    starter.env("SEXTON_DATA", data).env_remove("HOME");
    starter.args(["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"]);
    starter.args(["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]);
    starter.arg(PROGRAM);
}

fn child_of(pid: Pid) -> Option<Pid> {
    let pid = pid.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
}

#[test]
fn the_image_starts_is_healthy_and_stops() {
    if !geteuid().is_root() {
        return left_out("the life of a container: only root can create namespaces");
    }
    let files = tempfile::tempdir().expect("a temporary directory");
    // Give the image's user access to the directory.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(files.path(), open).expect("our own file");
    let data = files.path().join("data");
    std::fs::create_dir(&data).expect("a new directory");
    chown(&data, Some(user()), Some(user())).expect("root may do this");

    let mut container = Command::new("unshare");
    container.args(["--pid", "--fork", "--mount-proc", "--net", "--kill-child=KILL", "--"]);
    as_user(&mut container, &data);
    let entry = words(&given("ENTRYPOINT").expect("the file has this instruction"));
    assert_eq!(entry, ["sexton"], "the entry point is the program");
    container.args(words(&given("CMD").expect("the file has this instruction")));
    // The namespace has no network interface that is up, not even loopback.
    container.env("SEXTON_LOCKSERVER", "off").env("SEXTON_BEANSTALK", "off");
    container.env("SEXTON_HTTP", "off");
    let daemon = Daemon::start(container);
    let init = until("process 1", || child_of(daemon.pid()));

    let check = given("HEALTHCHECK").expect("the file has this instruction");
    let check = words(check.strip_prefix("CMD ").expect("a command"));
    let health = || {
        let mut health = Command::new("env");
        as_user(&mut health, &data);
        let output = health.args(&check[1..]).output().expect("the command runs");
        output.status.code()
    };
    assert_eq!(health(), Some(0), "{}", text(&data));
    kill_process(init, Signal::TERM).expect("a live process");
    assert!(daemon.end().0.success(), "it stops cleanly");
    assert_eq!(health(), Some(3), "it is no longer healthy");
}
