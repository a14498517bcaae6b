//! The blocks that `site.rs` runs, each with its preparation and with replacements for names and numbers that differ
//! between runs. Also the commands that are not run, each with the reason.

/// How the output of a block's commands is compared with the output that the page shows.
#[derive(Clone, Copy)]
pub(crate) enum Output {
    /// It must be equal, after these replacements in the page's output.
    AsShown(&'static [(&'static str, &'static str)]),
    /// It must be equal after these replacements, except that any number matches any other.
    ButNumbers(&'static [(&'static str, &'static str)]),
    /// It is not compared, but each command must succeed. The page shows no output, or that of a different history.
    Any,
}

/// A block of a page.
pub(crate) struct Block {
    pub(crate) page: &'static str,
    /// The beginning of the block's first command.
    pub(crate) begins: &'static str,
    /// The index of the TOML block of the page that is written to `app.toml`, if any.
    pub(crate) tables: Option<usize>,
    pub(crate) files: &'static [(&'static str, &'static str)],
    /// Programs that the block needs. It is skipped if one of them is missing.
    pub(crate) needs: &'static [&'static str],
    pub(crate) before: &'static [&'static str],
    /// Replacements in the block's commands.
    pub(crate) instead: &'static [(&'static str, &'static str)],
    /// The file to which the block is written. If it is set, the block is not run as commands.
    pub(crate) as_file: Option<&'static str>,
    pub(crate) after: &'static [&'static str],
    pub(crate) output: Output,
}

const PLAIN: Block = Block {
    page: "",
    begins: "",
    tables: None,
    files: &[],
    needs: &[],
    before: &["sexton serve &"],
    instead: &[],
    as_file: None,
    after: &[],
    output: Output::Any,
};

/// A shell expansion to the id of the task that was added last.
const TASK: &str = "$(sexton task list | awk 'END { print $1 }')";

const WELL: &str = "#!/bin/sh\nexit 0\n";
const STAYS: &str = "#!/bin/sh\nexec sleep 1000\n";

/// Pages that consist of one session, each with the test file that runs it.
pub(crate) const SESSIONS: &[(&str, &str)] = &[
    ("README.md", "readme.rs"),
    ("docs/first-hour.md", "guide.rs"),
    ("docs/coming-from-flock-cron-and-pid-files.md", "guide.rs"),
    ("docs/coming-from-redis-locks.md", "guide.rs"),
    ("docs/coming-from-beanstalkd-celery-rq-and-sidekiq.md", "guide.rs"),
];

/// Commands that are not run: the page, the beginning of the command, and the reason.
pub(crate) const NOT_RUN: &[(&str, &str, &str)] = &[
    (
        "docs/index.md",
        "cargo install",
        "it builds the program, which cargo has built for the tests",
    ),
    (
        "docs/index.md",
        "sexton serve",
        "README.md begins with the same commands, and its test runs them",
    ),
    ("CONTRIBUTING.md", "cargo test", "it runs this test"),
    ("CONTRIBUTING.md", "just check", ".ci/run runs the same commands"),
    (
        "snapshots/README.md",
        "just golden",
        "it regenerates the files that other tests compare with",
    ),
    (
        "docs/tools.md",
        "sexton serve --http",
        "it listens on every address; tests/cli/remote.rs tests TLS with a token",
    ),
    (
        "docs/tools.md",
        "sexton lock list --url",
        "there is no such machine; tests/cli/remote.rs tests it with a local one",
    ),
    (
        "docs/tools.md",
        "sexton serve --socket-group",
        "there is no such group; tests/cli/remote.rs tests it with an existing one",
    ),
    ("docs/tools.md", "sexton top     ", "it needs a terminal; tests/cli/top.rs provides one"),
    ("docs/tools.md", "while job=", "it needs a mail server; a test below checks its syntax"),
    (
        "docs/tools.md",
        "sexton recover DATA --skip",
        "nothing is damaged here; tests/cli/recover.rs damages a directory",
    ),
    (
        "docs/operations.md",
        "packaging/deb",
        "it builds the program; tests/cli/packages.rs runs it with an existing one",
    ),
    (
        "docs/operations.md",
        "dpkg -i",
        "tests/cli/packages.rs installs it in a separate root directory",
    ),
    ("docs/operations.md", "systemctl ", "it needs a running systemd"),
    (
        "docs/operations.md",
        "sexton status --data /var/lib/sexton",
        "it needs the installed package",
    ),
    ("docs/operations.md", "cargo build --profile dist", "it builds the program"),
    (
        "docs/operations.md",
        "install -m",
        "it changes the machine; tests/cli/packages.rs checks the same files",
    ),
    (
        "docs/tasks.md",
        "sexton audit --fix",
        "nothing is wrong here; tests/cli/audit.rs makes something wrong",
    ),
    (
        "docs/tasks.md",
        "sexton server add",
        "there is no such machine; tests/cli/far.rs tests it with a local one",
    ),
    ("docs/page.md", "ssh ", "there is no such machine"),
    ("docs/page.md", "mkdir -m 700 ~/forwarded", "it belongs to what follows"),
    ("docs/page.md", "sexton status --url unix:$HOME", "there is no such machine"),
    ("docs/protocols/http.md", "curl -sN", "it does not end; tests/http/ reads the same stream"),
    (
        "docs/tasks.md",
        "sexton server list",
        "its servers are other machines; tests/cli/servers.rs has one that cannot be reached",
    ),
];

pub(crate) const BLOCKS: &[Block] = &[
    Block {
        page: "docs/tools.md",
        begins: "sexton top",
        instead: &[("--every 10 ", "--every 1 | head -n 1")],
        ..PLAIN
    },
    Block {
        page: "docs/tools.md",
        begins: "sexton queue push",
        // Add a second job, so that one is ready while the other is claimed.
        before: &["sexton serve &", "sexton queue push purges x"],
        instead: &[
            ("--wait 60", "--wait 60 | tee claim"),
            ("17 4711", "$(awk 'NR == 1 { print $1, $2 }' claim)"),
        ],
        ..PLAIN
    },
    Block {
        page: "docs/tools.md",
        begins: "sexton work mails",
        files: &[("call", WELL), ("send", WELL), ("work", WELL)],
        before: &["sexton serve &", "sexton queue push mails x", "sexton queue push calls x"],
        // These commands would not end with --wait.
        instead: &[("--wait --procs", "--procs"), ("--wait --throttle", "--throttle")],
        ..PLAIN
    },
    Block {
        page: "docs/tools.md",
        begins: "sexton work sums",
        files: &[("sum", "#!/bin/sh\nread a b; echo $((a + b))\n")],
        before: &["sexton serve &", "exec 2>&1"],
        instead: &[("./sum &", "./sum > worked 2>&1 &")],
        after: &["kill $!; wait $!"],
        output: Output::ButNumbers(&[(
            "took 4 ms, kept for 59 min 59 s more",
            "took ..., kept for ... more",
        )]),
        ..PLAIN
    },
    Block {
        page: "docs/tools.md",
        begins: "sexton replay DATA --job 17   ",
        before: &[
            "sexton serve &",
            "sexton queue push mails x",
            "sexton lock acquire acct --owner alice",
        ],
        instead: &[("DATA", "sexton"), ("--job 17", "--job 1")],
        ..PLAIN
    },
    Block {
        page: "docs/tools.md",
        begins: "sexton replay DATA --job 17",
        before: &[
            "sexton serve &",
            "sexton queue push mails x",
            "sexton queue pop mails --claim 1",
            "sexton queue pop mails --wait 60 > claim",
            "sexton queue ack $(awk 'NR == 1 { print $1, $2 }' claim)",
        ],
        instead: &[("DATA", "sexton"), ("--job 17", "--job 1")],
        output: Output::ButNumbers(&[]),
        ..PLAIN
    },
    Block {
        page: "docs/tools.md",
        begins: "sexton inspect DATA",
        before: &[
            "sexton serve &",
            "sexton queue push mails x",
            "sexton lock acquire acct --owner alice",
        ],
        instead: &[("DATA", "sexton"), ("--job 17", "--job 1")],
        ..PLAIN
    },
    Block {
        page: "docs/tools.md",
        begins: "sexton recover DATA",
        before: &["sexton serve &", "kill $server; wait $server"],
        instead: &[("DATA", "sexton")],
        ..PLAIN
    },
    Block {
        page: "docs/tools.md",
        begins: "sexton backup",
        instead: &[("/backups/", "backup-"), ("/var/lib/sexton", "sexton")],
        after: &["sexton inspect backup-2026-11-21"],
        ..PLAIN
    },
    Block {
        page: "docs/tools.md",
        begins: "sexton completions",
        before: &["mkdir -p .local/share/bash-completion/completions man1"],
        instead: &[("~/", "./"), ("/usr/local/share/man/", "./")],
        ..PLAIN
    },
    Block {
        page: "docs/operations.md",
        begins: "sexton config",
        files: &[("sexton.toml", "")],
        before: &[],
        ..PLAIN
    },
    Block { page: "docs/operations.md", begins: "sexton confirm-clock", ..PLAIN },
    Block {
        page: "docs/services.md",
        begins: "sexton config --config",
        tables: Some(0),
        files: &[
            ("web", STAYS),
            ("worker", STAYS),
            ("manage", WELL),
            ("sweep.sh", WELL),
            ("web.env", "DATABASE_PASSWORD=x\n"),
        ],
        before: &["export DATABASE_PASSWORD=x"],
        instead: &[
            ("--data data", "&"),
            (
                "export SEXTON_DATA=data",
                "until sexton service | grep -q 'worker 4 *running'; do sleep 0.1; done",
            ),
            ("--follow", ""),
        ],
        output: Output::ButNumbers(&[("2 m ", "... ")]),
        ..PLAIN
    },
    Block {
        page: "docs/services.md",
        begins: "sexton worker list",
        tables: Some(1),
        files: &[("thumb.py", WELL)],
        before: &[
            "sexton serve --config app.toml &",
            "until sexton worker list 2>/dev/null | grep -q 'thumbs *running'; do sleep 0.1; done",
        ],
        output: Output::ButNumbers(&[("0199a1b2-c3d4-7000-a1b2-c3d4e5f60718", "...")]),
        ..PLAIN
    },
    Block {
        page: "docs/tasks.md",
        begins: "sexton task add --group",
        files: &[("send-newsletter", WELL)],
        instead: &[("4711", TASK)],
        ..PLAIN
    },
    Block {
        page: "docs/tasks.md",
        begins: "#!/bin/sh",
        files: &[("import", WELL)],
        as_file: Some("burst"),
        after: &["sexton task add --wait 1m -- ./burst | grep completed"],
        ..PLAIN
    },
    Block {
        page: "docs/tasks.md",
        begins: "sexton task transcript",
        files: &[("import", "#!/bin/sh\necho bad >&2; exit 3\n")],
        before: &["sexton serve &", "sexton task add --name import --wait 1m -- ./import || true"],
        instead: &[("4711", TASK)],
        output: Output::ButNumbers(&[
            ("waited 2 ms", "waited ..."),
            ("/var/lib/sexton/run/01a2053d-14ba-7e03-8bdf-5fead7ef86b2", "..."),
        ]),
        ..PLAIN
    },
    Block { page: "docs/tasks.md", begins: "sexton lease set server-refresh", ..PLAIN },
    Block {
        page: "docs/tasks.md",
        begins: "sexton audit",
        output: Output::ButNumbers(&[]),
        ..PLAIN
    },
    Block {
        page: "docs/tasks.md",
        begins: "sexton task add --wait 1m --retry",
        files: &[("report", WELL)],
        before: &[
            "printf '[tasks]\\nallow_fault_injection = true\\n' > app.toml",
            "sexton serve --config app.toml &",
        ],
        instead: &[("4711", TASK)],
        ..PLAIN
    },
    Block {
        page: "docs/leases.md",
        begins: "sexton lease run sync",
        files: &[("sync", WELL)],
        ..PLAIN
    },
    Block {
        page: "docs/leases.md",
        begins: "sexton lease set sync",
        output: Output::AsShown(&[]),
        ..PLAIN
    },
    Block {
        page: "docs/leases.md",
        begins: "sexton lease show sync",
        files: &[("sync", WELL)],
        // One pass has ended, and the next one waits for the period.
        before: &[
            "sexton serve &",
            "sexton lease run sync -- ./sync",
            "sexton lease run sync --detach -- ./sync",
        ],
        output: Output::ButNumbers(&[]),
        ..PLAIN
    },
    Block {
        page: "docs/coming-from-supervisord.md",
        begins: "sexton import supervisord",
        files: &[(
            "supervisord.conf",
            "[supervisord]\n\n\n[program:a]\ncommand=./a\n\n[program:b]\ncommand=./b\n\n[program:c]\ncommand=./c\n\n[program:d]\n\
             command=./d\n\n[program:web]\ncommand=./web\nautostart=true\npriority=10\nnumprocs=1\n",
        )],
        before: &["exec 2>&1"],
        instead: &[("/etc/supervisor/", "")],
        output: Output::ButNumbers(&[
            ("/etc/supervisor/", ""),
            (
                "7 services, 1 of them with autostart = false; 19 remarks",
                "... services, ... of them with autostart = false; ... remark...",
            ),
        ]),
        ..PLAIN
    },
    Block {
        page: "docs/protocols/lockserver.md",
        begins: "ask()",
        needs: &["bash", "od"],
        // The shell that runs the blocks has no `/dev/tcp`, so use a function instead.
        instead: &[("ask() { ", "cat > ask <<'END'\n"), ("; }", "\nEND"), ("ask '", "bash ask '")],
        output: Output::AsShown(&[]),
        ..PLAIN
    },
    Block {
        page: "docs/protocols/work.md",
        begins: "while read -r line",
        as_file: Some("worker"),
        before: &["sexton serve &", "sexton queue push sums x"],
        after: &["sexton work sums --lines --result json -- sh ./worker | grep '\"ok\"'"],
        ..PLAIN
    },
    Block {
        page: "docs/protocols/http.md",
        begins: "curl -s http://127.0.0.1:11380/healthz",
        needs: &["curl"],
        instead: &[("/var/lib/", "")],
        output: Output::ButNumbers(&[
            ("\"/var/lib/sexton\"", "..."),
            ("\"listeners\":{...", "..."),
        ]),
        ..PLAIN
    },
    Block {
        page: "docs/protocols/http.md",
        begins: "curl -s --json '{\"key\"",
        needs: &["curl"],
        output: Output::ButNumbers(&[]),
        ..PLAIN
    },
    Block {
        page: "docs/protocols/http.md",
        begins: "curl -s --json '{\"queue\"",
        needs: &["curl"],
        instead: &[
            ("/queues/pop", "/queues/pop | tee claim"),
            ("\"token\":23", "\"token\":'$(grep -o '\"token\":[0-9]*' claim | cut -d: -f2)'"),
        ],
        output: Output::ButNumbers(&[]),
        ..PLAIN
    },
    Block {
        page: "docs/protocols/http.md",
        begins: "curl -s --unix-socket data/sexton.sock --json '{\"command\"",
        needs: &["curl"],
        instead: &[
            ("data/", "sexton/"),
            ("processes/launch", "processes/launch | tee process"),
            ("01a2053d", "'$(cut -d'\"' -f4 process)'"),
        ],
        output: Output::ButNumbers(&[
            ("01a2053d-14ba-7e03-8bdf-5fead7ef86b2", "..."),
            ("...}", "..."),
        ]),
        ..PLAIN
    },
    Block {
        page: "docs/protocols/http.md",
        begins: "curl -s --unix-socket DATA/sexton.sock --json '{\"name\":\"sync\"",
        files: &[("sync", STAYS)],
        needs: &["curl"],
        instead: &[("DATA/", "sexton/"), ("/srv/shop", "'$PWD'")],
        output: Output::ButNumbers(&[("0192f5e0-...", "...")]),
        ..PLAIN
    },
    Block {
        page: "docs/protocols/http.md",
        begins: "curl -s --unix-socket DATA/sexton.sock --json '{\"name\":\"import\"",
        files: &[("import", WELL)],
        needs: &["curl"],
        instead: &[("DATA/", "sexton/"), ("/srv/shop", "'$PWD'")],
        output: Output::ButNumbers(&[]),
        ..PLAIN
    },
];
