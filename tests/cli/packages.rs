//! The results of `packaging/`: a Debian package, which is installed, run, upgraded and removed in a separate root, and a
//! tarball.

use crate::daemon::{Daemon, PROGRAM, ended, forget_environment, text};
use crate::left_out::left_out;
use crate::patience::until;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The maximum size of the program in a package, in bytes.
const PROGRAM_BYTES_MAX: u64 = 20_000_000;

fn packaging(name: &str) -> PathBuf {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    root.join("packaging").join(name)
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Runs a command, which must succeed. Returns its output.
fn well(command: &mut Command) -> String {
    forget_environment(command);
    let [out, _] = ended(command.output().expect("the command runs"), 0);
    out
}

/// Builds a package of the tested program. Reports a skipped test and returns `None` if a program is missing.
fn package(files: &TempDir) -> Option<PathBuf> {
    for program in ["dpkg-deb", "dpkg", "strip"] {
        if !has(program) {
            left_out(format!("the Debian package: there is no {program}"));
            return None;
        }
    }
    let mut deb = Command::new(packaging("deb"));
    deb.args(["--compress", "none", PROGRAM]).arg(files.path());
    let printed = well(&mut deb);
    Some(PathBuf::from(printed.trim_end()))
}

fn version() -> String {
    let printed = well(Command::new(PROGRAM).arg("--version"));
    let version = printed.split_whitespace().nth(1);
    version.expect("it prints its version").to_owned()
}

#[test]
fn the_package_has_what_a_debian_machine_needs() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let Some(package) = package(&files) else {
        return;
    };
    let fields = well(Command::new("dpkg-deb").arg("--field").arg(&package));
    for field in ["Package: sexton", &format!("Version: {}", version()), "Depends: libc6 (>= 2."] {
        assert!(fields.contains(field), "{field} in {fields}");
    }
    let root = files.path().join("unpacked");
    well(Command::new("dpkg-deb").arg("-x").args([&package, &root]));
    for file in [
        "usr/bin/sexton",
        "usr/lib/systemd/system/sexton.service",
        "usr/lib/systemd/system/sexton-http.socket",
        "usr/share/man/man1/sexton.1.gz",
        "usr/share/man/man1/sexton-lock.1.gz",
        "usr/share/bash-completion/completions/sexton",
        "usr/share/zsh/vendor-completions/_sexton",
        "usr/share/fish/vendor_completions.d/sexton.fish",
        "usr/share/doc/sexton/copyright",
        "etc/sexton/sexton.toml",
    ] {
        assert!(root.join(file).is_file(), "{file} is not in the package");
    }
    let unit = root.join("usr/lib/systemd/system/sexton.service");
    let unit = std::fs::read_to_string(unit).expect("UTF-8");
    for line in [
        "ExecStart=/usr/bin/sexton serve",
        "KillMode=process",
        "Environment=SEXTON_CONFIG=/etc/sexton/sexton.toml",
    ] {
        assert!(unit.lines().any(|it| it == line), "{line} in {unit}");
    }
    // The settings in the package are valid, and the program starts with them.
    let settings = root.join("etc/sexton/sexton.toml");
    let program = root.join("usr/bin/sexton");
    well(Command::new(&program).args(["config", "--config"]).arg(settings));
}

/// Returns the size of a program in bytes: unchanged, without debug information, and without symbols, as in packages.
fn sizes(build: &Path) -> [u64; 3] {
    ["none", "debug", "all"].map(|strip| {
        let files = tempfile::tempdir().expect("a temporary directory");
        let root = files.path().join(strip);
        let mut contents = Command::new(packaging("contents"));
        contents.arg(build).args([text(&root), "/usr"]);
        well(contents.env("STRIP", strip));
        let program = root.join("bin/sexton");
        well(Command::new(&program).arg("--version"));
        std::fs::metadata(program).expect("the file exists").len()
    })
}

/// Returns the path of a program that `packaging/program` has built, or `None`.
fn built(kind: &str) -> Option<PathBuf> {
    let target = Path::new(PROGRAM).ancestors().nth(2)?;
    let build = target.join("dist").join(kind).join("sexton");
    Some(build).filter(|it| it.is_file())
}

#[test]
fn the_program_of_a_package_has_at_most_20_mb() {
    if !has("strip") {
        return left_out("the size of a stripped program: there is no strip");
    }
    let [none, debug, all] = sizes(Path::new(PROGRAM));
    assert!(all < debug && debug <= none, "{none} {debug} {all}");
    for build in ["dynamic", "static"].into_iter().filter_map(built) {
        let [_, debug, all] = sizes(&build);
        println!("{}: {all} bytes, {debug} with STRIP=debug", build.display());
        assert!(all <= PROGRAM_BYTES_MAX, "{}: {all}", build.display());
    }
}

/// The type of a program header that names the dynamic loader, `PT_INTERP`.
const INTERPRETER: usize = 3;

/// Returns whether a program is static: it has no header that names a dynamic loader.
fn is_static(program: &Path) -> bool {
    let bytes = std::fs::read(program).expect("the file is readable");
    let word = |at: usize| {
        let word = bytes.get(at..at + 2).and_then(|it| it.try_into().ok());
        u16::from_le_bytes(word.expect("it is within the file")).into()
    };
    let [headers, size, count]: [usize; 3] = [word(32), word(54), word(56)];
    let mut kinds = (0..count).map(|at| word(headers + at * size));
    !kinds.any(|kind| kind == INTERPRETER)
}

/// Only checks the static program if `packaging/program static` has built it. Otherwise only the test program is checked.
#[test]
fn the_static_program_is_static_and_serves() {
    assert!(!is_static(Path::new(PROGRAM)), "the test program is not");
    let Some(program) = built("static") else {
        return;
    };
    assert!(is_static(&program));
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    let mut serve = Command::new(&program);
    forget_environment(&mut serve);
    let flags = ["serve", "--lockserver", "off", "--beanstalk", "off"];
    serve.args(flags).args(["--http", "127.0.0.1:0", "--data"]).arg(&data);
    let daemon = Daemon::start(serve);
    // The static C library resolves the name.
    let url = format!("http://localhost:{}", daemon.http().port());
    let mut status = Command::new(&program);
    let printed = well(status.args(["lock", "list", "--url", &url]));
    println!("{printed}");
    daemon.signal(Signal::TERM);
    assert!(daemon.end().0.success());
}

/// An empty root directory, and the options that make `dpkg` use it.
struct EmptyRoot(TempDir);

impl EmptyRoot {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a temporary directory");
        for folder in ["updates", "info", "triggers"] {
            let folder = root.path().join("var/lib/dpkg").join(folder);
            std::fs::create_dir_all(folder).expect("a new directory");
        }
        for file in ["status", "available"] {
            let file = root.path().join("var/lib/dpkg").join(file);
            std::fs::write(file, "").expect("a writable file");
        }
        Self(root)
    }

    /// Runs dpkg on this root. The package's scripts run without chroot, and find the root in `DPKG_ROOT`.
    fn dpkg(&self, words: &[&str]) -> String {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={}", text(self.0.path())));
        // The package's dependencies are installed on the machine and not in the empty root.
        dpkg.args(["--force-depends", "--force-script-chrootless", "--force-bad-path"]);
        well(dpkg.args(words))
    }

    fn program(&self) -> PathBuf {
        self.0.path().join("usr/bin/sexton")
    }

    fn status(&self) -> String {
        let file = self.0.path().join("var/lib/dpkg/status");
        std::fs::read_to_string(file).expect("UTF-8")
    }
}

fn is_there(process: Pid) -> bool {
    test_kill_process(process).is_ok()
}

#[test]
fn the_package_is_installed_upgraded_and_removed() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let Some(package) = package(&files) else {
        return;
    };
    if !rustix::process::geteuid().is_root() {
        left_out(
            "the installation of the Debian package: only root installs; it is unpacked and run",
        );
        let root = files.path().join("unpacked");
        well(Command::new("dpkg-deb").arg("-x").args([&package, &root]));
        well(Command::new(root.join("usr/bin/sexton")).arg("--version"));
        return;
    }
    let root = EmptyRoot::new();
    root.dpkg(&["--install", text(&package)]);
    assert!(root.status().contains("Status: install ok installed"));
    let program = root.program();
    let data = files.path().join("data");
    let serve = || {
        let mut command = Command::new(&program);
        forget_environment(&mut command);
        command.args(["serve", "--lockserver", "off", "--beanstalk", "off", "--http", "off"]);
        command.arg("--data").arg(&data);
        Daemon::start(command)
    };
    let ask = |words: &[&str]| {
        let mut command = Command::new(&program);
        well(command.args(words).env("SEXTON_DATA", &data))
    };
    let daemon = serve();
    let id = ask(&["run", "--detach", "--", "sleep", "1000"]);
    let id = id.trim_end();
    let pid = || {
        let record = ask(&["ps", id, "--json"]);
        let record: serde_json::Value = serde_json::from_str(&record).expect("valid JSON");
        let pid = record.pointer("/pid").or(record.pointer("/identity/pid"))?;
        Pid::from_raw(i32::try_from(pid.as_i64()?).ok()?)
    };
    let child = until("the child runs", pid);

    // An upgrade stops neither the coordinator nor the processes that it has launched. The restarted coordinator finds
    // them again.
    root.dpkg(&["--install", text(&package)]);
    assert!(is_there(child), "an upgrade does not stop it");
    assert_eq!(ask(&["ps", "--count"]).trim_end(), "1");
    daemon.kill();
    let daemon = serve();
    assert_eq!(pid(), Some(child), "it is found again");
    ask(&["kill", "--now", "--wait", id]);
    daemon.signal(Signal::TERM);
    assert!(daemon.end().0.success());

    root.dpkg(&["--remove", "sexton"]);
    assert!(!program.exists(), "it is removed");
    let settings = root.0.path().join("etc/sexton/sexton.toml");
    assert!(settings.exists(), "a removal leaves settings");
    root.dpkg(&["--purge", "sexton"]);
    assert!(!settings.exists(), "a purge does not");
    assert!(data.join("journal").is_dir(), "and neither touches data");
    // The keeper has no processes any more, so it can be ended.
    if let Ok(keeper) = std::fs::read_to_string(data.join("keeper.lock"))
        && let Some(keeper) = keeper.trim().parse().ok().and_then(Pid::from_raw)
    {
        let _ = kill_process(keeper, Signal::KILL);
    }
}

#[test]
fn the_packaging_scripts_are_valid_shell() {
    for name in ["contents", "deb", "program", "tarball"] {
        well(Command::new("sh").arg("-n").arg(packaging(name)));
    }
    let mut program = Command::new(packaging("program"));
    ended(program.arg("otherwise").output().expect("the command runs"), 2);
}

#[test]
fn the_tarball_runs_where_it_is_unpacked() {
    if !has("tar") || !has("strip") {
        left_out("the tarball: there is no tar or no strip");
        return;
    }
    let files = tempfile::tempdir().expect("a temporary directory");
    let mut tarball = Command::new(packaging("tarball"));
    let printed = well(tarball.arg(PROGRAM).arg(files.path()).env("STRIP", "all"));
    let (archive, linked) = printed.split_once('\n').expect("two lines");
    assert!(linked.starts_with("linked with "), "{printed}");
    println!("{linked}");
    let mut unpack = Command::new("tar");
    well(unpack.args(["-xzf", archive, "-C"]).arg(files.path()));
    let name = Path::new(archive).file_name().expect("it has a name");
    let name = text(Path::new(name)).trim_end_matches(".tar.gz").to_owned();
    let root = files.path().join(name);
    let printed = well(Command::new(root.join("bin/sexton")).arg("--version"));
    assert_eq!(printed.trim_end(), format!("sexton {}", version()));
    let unit = root.join("lib/systemd/system/sexton.service");
    let unit = std::fs::read_to_string(unit).expect("UTF-8");
    assert!(unit.contains("ExecStart=/usr/local/bin/sexton serve"), "{unit}");
}
