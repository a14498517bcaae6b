//! The failure modes of Wip (the task engine that docs/tasks.md describes), how each is provoked here, and the table of recovery times.

use crate::failing::CommandEnd;
use crate::figures::{Spread, grouped};
use serde_json::{Map, Value, json};

/// The tests that show that no client can hold the locks of tasks.
const RESERVED: [&str; 2] = ["tests/scripts/lock/reserved.txt", "tests/http/lock_refused.rs"];

/// A failure mode.
pub(crate) struct Mode {
    pub(crate) row: u32,
    pub(crate) words: &'static str,
    /// How long recovery takes in Wip, according to Wip's documentation.
    wip: &'static str,
    /// The fault that is provoked here.
    fault: &'static str,
    /// The limit on the recovery time, in milliseconds.
    limit: f64,
    pub(crate) making: Making,
}

/// How a fault is provoked.
pub(crate) enum Making {
    /// By a task: how its command ends, and the task's other settings.
    Task(CommandEnd, Value),
    /// Like `Task`, but with a pause before each fault and with fewer faults, because the coordinator gives up on what fails too often.
    Apart(CommandEnd, Value),
    /// By a task whose command cannot be launched because of these settings.
    Unlaunched(Value),
    /// By a task that exceeds its time limit.
    Overdue,
    /// By killing the coordinator.
    Coordinator,
    /// By killing the keeper.
    Keeper,
    /// Impossible here; names the tests that show this.
    Never(&'static [&'static str]),
}

#[expect(clippy::too_many_lines, reason = "the function is one long table")]
pub(crate) fn modes() -> Vec<Mode> {
    use Making::{Apart, Coordinator, Keeper, Never, Overdue, Task, Unlaunched};
    let mode =
        |row, words, (wip, limit), fault, making| Mode { row, words, wip, fault, limit, making };
    let none = || json!({});
    vec![
        mode(
            1,
            "wrapper fails to launch",
            ("170 s", 50.0),
            "its directory does not exist",
            Unlaunched(json!({"dir": "/no/such/directory"})),
        ),
        mode(
            2,
            "parent fails to launch",
            ("10 s", 50.0),
            "its program cannot be executed",
            Unlaunched(json!({"command": ["/"]})),
        ),
        mode(3, "parent fails to get the execute lock", ("10 s", 20.0), "", Never(&RESERVED)),
        mode(
            4,
            "child fails to launch",
            ("10 s", 50.0),
            "its program does not exist",
            Unlaunched(json!({"command": ["/no/such/program"]})),
        ),
        mode(5, "child fails to get the update lock", ("10 s", 20.0), "", Never(&RESERVED)),
        mode(
            6,
            "fatal error before the save",
            ("10 s", 50.0),
            "SIGKILL",
            Task(CommandEnd::Dies, none()),
        ),
        mode(
            7,
            "fatal error after the save",
            ("10 s", 50.0),
            "SIGKILL after a save",
            Task(CommandEnd::Saves, none()),
        ),
        mode(8, "infinite loop", ("350 s", 500.0), "loops (timed from its deadline)", Overdue),
        mode(
            9,
            "child fails to update the run status",
            ("10 s", 50.0),
            "ends without a report",
            Task(CommandEnd::Ends, json!({"report_required": true})),
        ),
        mode(
            10,
            "cleanup fails to launch",
            ("10 s", 20.0),
            "its program does not exist",
            Task(
                CommandEnd::Ends,
                json!({"cleanup": {"command": ["/no/such/program"], "dir": "/"}}),
            ),
        ),
        mode(
            11,
            "parent fails to release the thread",
            ("10 s", 50.0),
            "the actor panics",
            Apart(CommandEnd::Ends, json!({"inject": "before-thread-cleanup"})),
        ),
        mode(
            12,
            "signal never received",
            ("170 s", 50.0),
            "the exit is not reported",
            Task(CommandEnd::Ends, json!({"inject": "drop-signal"})),
        ),
        mode(
            13,
            "coordinator killed while tasks run",
            ("-", 1000.0),
            "SIGKILL (timed from restart)",
            Coordinator,
        ),
        mode(14, "keeper killed", ("-", 50.0), "SIGKILL to keeper and command", Keeper),
    ]
}

impl Mode {
    pub(crate) fn document(&self, took: &[f64]) -> Value {
        let mut line = Map::new();
        line.insert("row".to_owned(), json!(self.row));
        line.insert("words".to_owned(), json!(self.words));
        line.insert("wip".to_owned(), json!(self.wip));
        line.insert("fault".to_owned(), json!(self.fault));
        line.insert("below_ms".to_owned(), json!(self.limit));
        line.insert("runs".to_owned(), json!(took.len()));
        let spread = (!took.is_empty()).then(|| Spread::of(took.iter().copied()));
        line.insert("ms".to_owned(), json!(spread));
        if let Making::Never(tests) = self.making {
            line.insert("never".to_owned(), json!(tests));
        }
        Value::Object(line)
    }
}

/// Formats the recovery times of each mode as a table. Times are in milliseconds.
pub(crate) fn table(recovered: &[(Mode, Vec<f64>)]) -> String {
    let figure = |number: f64| {
        if number < 100.0 { format!("{number:.1}") } else { grouped(number) }
    };
    let mut lines = format!(
        "{:>2}  {:<37} {:>6}  {:<31} {:>9} {:>9}  {:<8}\n",
        "", "failure mode", "Wip", "here", "p50 ms", "max ms", "limit"
    );
    for (mode, took) in recovered {
        let Mode { row, words, wip, fault, .. } = mode;
        let start = format!("{row:>2}  {words:<37} {wip:>6}");
        let line = if let Making::Never(tests) = mode.making {
            format!("{start}  cannot happen: {}", tests.join(", "))
        } else {
            let Spread { median, max, .. } = Spread::of(took.iter().copied());
            let missed = if max < mode.limit { "" } else { " missed" };
            let limit = format!("< {}{missed}", figure(mode.limit));
            let (median, max) = (figure(median), figure(max));
            format!("{start}  {fault:<31} {median:>9} {max:>9}  {limit}")
        };
        lines.push_str(line.trim_end());
        lines.push('\n');
    }
    lines.push('\n');
    lines
}
