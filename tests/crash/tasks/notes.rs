//! The commands of tasks in the campaign, and the notes that they write: each line is one write at the end of one file.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// The script of a burst (one run of a task's command). It holds a lock for as long as it, or any process it started, is alive, and notes
/// that it begins and that it ends, with the task and its fencing token. The lock detects two bursts of one task at the same time, whatever
/// was killed. A report that fails is repeated, at most seven times.
pub(super) const SCRIPT: &str = r#"
say() { for try in 1 2 3 4 5 6 7 8; do "$sexton" task "$@" && return; sleep 0.05; done; }
sexton=$1
exec 9>"$0/lock.$SEXTON_TASK_ID"
flock -n 9 || echo "beside $SEXTON_TASK_ID $SEXTON_FENCE" >> "$0/noted"
echo "begin $SEXTON_TASK_ID $SEXTON_FENCE $$" >> "$0/noted"
case $2 in
bursts*)
    say save "$SEXTON_FENCE"
    sleep 0.01
    [ "$SEXTON_TASK_REVISION" -lt 2 ] && say wait 10ms ;;
beats*)
    say heartbeat
    sleep 0.02 ;;
*)
    sleep 0.0$((SEXTON_TASK_ID % 8)) ;;
esac
echo "end $SEXTON_TASK_ID $SEXTON_FENCE $$" >> "$0/noted"
[ "$2" = fails ] && exit 3
exit 0
"#;

/// The kind of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One burst. If it is killed, the task fails if it `aborts`, and otherwise runs again.
    Plain { aborts: bool },
    /// Several bursts, each of which saves.
    Bursts { aborts: bool },
    /// One burst that gives a heartbeat.
    Beats,
    /// One burst that fails by its exit status.
    Fails,
}

impl Kind {
    pub(super) const fn of(nth: u64) -> Self {
        match nth % 10 {
            0..=2 => Self::Plain { aborts: true },
            3..=5 => Self::Plain { aborts: false },
            6 => Self::Bursts { aborts: true },
            7 => Self::Bursts { aborts: false },
            8 => Self::Beats,
            _ => Self::Fails,
        }
    }

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Plain { .. } => "plain",
            Self::Bursts { .. } => "bursts",
            Self::Beats => "beats",
            Self::Fails => "fails",
        }
    }

    /// Returns whether a task of this kind fails if it is killed before it saved.
    pub(super) const fn aborts(self) -> bool {
        match self {
            Self::Plain { aborts } | Self::Bursts { aborts } => aborts,
            Self::Beats | Self::Fails => true,
        }
    }
}

/// A reader of the commands' notes, which continues where it stopped as they grow.
pub(super) struct NotesReader {
    file: PathBuf,
    read: u64,
    /// How many bursts began.
    pub(super) begun: u64,
    tokens: BTreeSet<u64>,
    /// Tasks that began a burst.
    tasks: BTreeSet<u64>,
    /// Tokens whose burst completed, by task.
    ended: BTreeMap<u64, BTreeSet<u64>>,
    /// The PID of the burst that began last.
    pub(super) newest: Option<u32>,
    wrong: Vec<String>,
}

impl NotesReader {
    pub(super) fn of(folder: &Path) -> Self {
        Self {
            file: folder.join("noted"),
            read: 0,
            begun: 0,
            tokens: BTreeSet::new(),
            tasks: BTreeSet::new(),
            ended: BTreeMap::new(),
            newest: None,
            wrong: Vec::new(),
        }
    }

    /// Reads the new lines.
    pub(super) fn read_on(&mut self) {
        // Before the first command, there is no file.
        let Ok(mut file) = File::open(&self.file) else {
            return;
        };
        file.seek(SeekFrom::Start(self.read)).expect("it is a file");
        let mut text = String::new();
        file.read_to_string(&mut text).expect("UTF-8");
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        self.read += whole as u64;
        self.take(text.get(..whole).unwrap_or_default());
    }

    fn take(&mut self, text: &str) {
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |nth: usize| words.get(nth).and_then(|it| it.parse::<u64>().ok());
            match (words.first(), number(1), number(2)) {
                (Some(&"begin"), Some(task), Some(token)) => {
                    self.begun += 1;
                    self.tasks.insert(task);
                    self.newest = words.get(3).and_then(|pid| pid.parse().ok());
                    if !self.tokens.insert(token) {
                        self.wrong.push(format!("{line}, for the second time"));
                    }
                }
                (Some(&"end"), Some(task), Some(token)) => {
                    self.ended.entry(task).or_default().insert(token);
                }
                _ => self.wrong.push(line.to_owned()),
            }
        }
    }

    /// Returns how many of these tasks have not begun a burst.
    pub(super) fn unbegun(&self, tasks: &BTreeMap<u64, Kind>) -> usize {
        tasks.keys().filter(|id| !self.tasks.contains(id)).count()
    }

    /// Returns how many bursts completed.
    pub(super) fn ended(&self) -> usize {
        self.ended.values().map(BTreeSet::len).sum()
    }

    /// Compares the ends of tasks with the notes and with what their settings allow. Returns the violations, and the number of tasks for
    /// each way of ending.
    pub(super) fn judge(
        &self,
        acked: &BTreeMap<u64, Kind>,
        over: &BTreeMap<u64, Value>,
    ) -> (Vec<String>, BTreeMap<String, u64>) {
        let (mut wrong, mut ends) = (self.wrong.clone(), BTreeMap::new());
        for (id, kind) in acked {
            let Some(task) = over.get(id) else {
                wrong.push(format!("task {id} is lost"));
                continue;
            };
            let word = |path| task.pointer(path).and_then(Value::as_str).unwrap_or("");
            let exit = word("/exit").to_owned();
            let newest = task.pointer("/past").and_then(Value::as_array);
            let newest = newest.and_then(|it| it.last());
            let token = newest.and_then(|it| it.pointer("/token")).and_then(Value::as_u64);
            let cause = newest.and_then(|it| it.pointer("/cause")).and_then(Value::as_str);
            let came_to_its_end = token.is_some_and(|token| {
                let ended = self.ended.get(id);
                ended.is_some_and(|tokens| tokens.contains(&token))
            });
            let has_saved = newest.and_then(|it| it.pointer("/saved")) == Some(&true.into());
            let is_right = match exit.as_str() {
                "completed" => came_to_its_end && *kind != Kind::Fails,
                "user-error" => came_to_its_end && *kind == Kind::Fails,
                // With this setting, a task whose command died before it saved fails instead of running again.
                "system-error" => kind.aborts() && cause == Some("died") && !has_saved,
                _ => false,
            };
            if !is_right {
                wrong.push(format!("task {id}, {kind:?}: {task}"));
            }
            *ends.entry(exit).or_default() += 1;
        }
        (wrong, ends)
    }
}

#[test]
fn a_task_that_is_lost_runs_twice_or_ends_as_it_may_not_is_found() {
    let noted = |text: &str| {
        let mut noted = NotesReader::of(Path::new(""));
        noted.take(text);
        noted
    };
    let task = |exit: &str, cause: &str| serde_json::json!({"exit": exit, "past": [{"token": 7, "cause": cause, "saved": false}]});
    let wrong = |text: &str, kind: Kind, task: Option<Value>| {
        let over = task.map(|task| (4, task)).into_iter().collect();
        noted(text).judge(&BTreeMap::from([(4, kind)]), &over).0.len()
    };
    let plain = Kind::Plain { aborts: false };
    let ran = "begin 4 7 99\nend 4 7 99\n";
    assert_eq!(wrong(ran, plain, Some(task("completed", "completed"))), 0);
    assert_eq!(wrong(ran, Kind::Fails, Some(task("user-error", "user-error"))), 0);
    let died = Some(task("system-error", "died"));
    assert_eq!(wrong("begin 4 7 99\n", Kind::Beats, died.clone()), 0);
    // Violations: it could have run again, but failed; it was lost; it completed although its burst did not.
    assert_eq!(wrong("begin 4 7 99\n", plain, died), 1);
    assert_eq!(wrong(ran, plain, None), 1);
    assert_eq!(wrong("begin 4 7 99\n", plain, Some(task("completed", "completed"))), 1);
    assert_eq!(noted("begin 4 7 99\nbegin 4 7 98\nbeside 4 7\n").wrong.len(), 2);
}
