//! The reasons why keys and sections of supervisord are not carried over.

/// The reason for keys about output files.
const OUTPUT: &str = "output is appended to stdout.log and stderr.log in DATA/services/NAME";
/// The reason for keys about events.
const EVENTS: &str = "there are no event listeners; `sexton events` shows what happens to services";
const SYSLOG: &str = "output goes to files only";

/// Keys of a program.
const PROGRAM: &[(&str, &str)] = &[
    (
        "priority",
        "supervisord launches in this order without waiting; `after` makes a service wait until others run",
    ),
    (
        "startsecs",
        "a service counts as running as soon as it is launched; each restart is delayed for twice as long as the previous one (`backoff`)",
    ),
    (
        "startretries",
        "a service fails after more than 10 restarts in a minute (`intensity`, `period`)",
    ),
    ("stdout_logfile", OUTPUT),
    ("stderr_logfile", OUTPUT),
    ("stdout_capture_maxbytes", EVENTS),
    ("stderr_capture_maxbytes", EVENTS),
    ("stdout_events_enabled", EVENTS),
    ("stderr_events_enabled", EVENTS),
    ("stdout_syslog", SYSLOG),
    ("stderr_syslog", SYSLOG),
    ("serverurl", "no supervisord runs; use `sexton service`"),
];

/// Keys of `[supervisord]`.
const SUPERVISORD: &[(&str, &str)] = &[
    ("logfile", "`sexton serve` logs to standard error"),
    ("logfile_maxbytes", "`sexton serve` logs to standard error"),
    ("logfile_backups", "`sexton serve` logs to standard error"),
    ("loglevel", "give `sexton serve` the flag --log"),
    ("pidfile", "a lock in the data directory identifies the server"),
    ("umask", "services inherit that of `sexton serve`"),
    ("nodaemon", "`sexton serve` stays in the foreground"),
    ("silent", "`sexton serve` logs to standard error"),
    ("minfds", "limits are those of `sexton serve`"),
    ("minprocs", "limits are those of `sexton serve`"),
    ("nocleanup", OUTPUT),
    ("childlogdir", OUTPUT),
    ("strip_ansi", "output is kept as it is written"),
    ("user", "run `sexton serve` as that user"),
    ("identifier", "a coordinator is identified by its data directory"),
];

/// Sections that are not carried over.
const SECTIONS: &[(&str, &str)] = &[
    ("unix_http_server", "the coordinator always listens on DATA/sexton.sock"),
    ("inet_http_server", "give `sexton serve` the flags --http and --token-file"),
    ("supervisorctl", "`sexton service` takes its place"),
    ("rpcinterface", "see docs/protocols/http.md"),
    (
        "eventlistener",
        "it waits for events of supervisord, which never arrive; `sexton events` shows those of sexton",
    ),
    ("fcgi-program", "a service cannot inherit a socket; let it open its own, as a [program:x]"),
    ("ctlplugin", "`sexton service` has no plug-ins"),
];

pub(super) fn of_program(key: &str) -> &'static str {
    find(PROGRAM, key).unwrap_or("supervisord has no such key for programs")
}

pub(super) fn of_supervisord(key: &str) -> &'static str {
    find(SUPERVISORD, key).unwrap_or("supervisord has no such key")
}

/// Returns the reason for a section, by the part of its name before the colon.
pub(super) fn of_section(name: &str) -> &'static str {
    let kind = name.split(':').next().unwrap_or(name);
    find(SECTIONS, kind).unwrap_or("supervisord has no such section")
}

fn find(table: &[(&str, &'static str)], key: &str) -> Option<&'static str> {
    let found = table.iter().find(|(known, _)| *known == key);
    found.map(|(_, why)| *why)
}
