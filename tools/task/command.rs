//! The subcommands of `sexton task`.

use crate::client::{Where, fields};
use crate::lock::{name, put};
use crate::numbers;
use crate::report::Failure;
use crate::span::{SPAN, delay, seconds};
use crate::task::add::Add;
use crate::task::held::Held;
use crate::task::inject::Inject;
use crate::task::request::{ClientOptions, WAIT_MAX};
use crate::task::{page, report, transcript};
use crate::text::{number, words};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use sexton::actors::lock::Name;

/// The maximum number of tasks to request at a time.
const PAGE: u64 = 1000;

/// Run tasks on servers in bursts, and recover tasks that die
///
/// A task is a command that the coordinator runs as soon as its turn comes and a thread of a server is free. It may take as many
/// bursts as it needs, and continues from what it saved. If its command is killed, cannot be launched or hangs, or if the
/// coordinator is killed, the task continues, or fails with the reason; no one has to watch it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton task add -- ./import customers.csv      prints the id of the task
  sexton task list --status processing
  sexton task show 4711                          its state, why it does not run, and its attempts
  sexton task pause --group mails                no task of the group is started
  sexton task limit mails 10                     at most ten of the group at a time

In the command of a task:
  sexton task saved > state || init > state      read what the previous burst saved
  sexton task save < state                       save the state for the next burst
  sexton task wait 10m; exit                     another burst, in ten minutes

A report that is not delivered, because no coordinator has answered for 30 s (status 3), has no effect: the exit status of the command \
then decides, so end it with one other than 0.

Exit status: 0 success; 1 refused; 2 usage; 3 no coordinator runs there; 4 it has halted.")]
pub(crate) struct Task {
    #[command(subcommand)]
    action: Action,

    #[command(flatten)]
    at: Where,

    /// Print the answer as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Action {
    #[command(visible_alias = "run")]
    Add(Box<Add>),
    /// List tasks
    #[command(after_help = "\
Examples:
  sexton task list
  sexton task list --status waiting --group mails
  sexton task list --status user-error           tasks whose command failed
  sexton task list --json | jq '.tasks[].why'")]
    List {
        /// Only tasks in this state, as in the column STATE; `complete` for all that have ended
        #[arg(long, value_enum)]
        status: Option<Status>,
        /// Only tasks of this group
        #[arg(long, value_parser = name)]
        group: Option<Name>,
        /// Only tasks with this work id
        #[arg(long, value_name = "ID", value_parser = name)]
        work: Option<Name>,
        /// The maximum number of tasks to show
        #[arg(long, value_name = "NUMBER", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
        limit: u64,
    },
    /// Show a task: its state, why it does not run, and its newest attempts
    Show {
        #[command(flatten)]
        which: TaskSelector,
    },
    /// Show the history of a task: its attempts, with their phases and times, how each ended, and its output
    #[command(after_help = "\
Examples:
  sexton task transcript 4711
  sexton task transcript 4711 --dispatch         also why each server was chosen, and what was waited for
  sexton task transcript 4711 --json | jq '.stories[].phases'

A task keeps its newest eight attempts. For older ones see the journal: `sexton replay DATA`.")]
    Transcript {
        #[command(flatten)]
        which: TaskSelector,
        /// Also show how long each attempt waited, why its server was chosen, and the locks, thread and processes of a running attempt
        #[arg(long)]
        dispatch: bool,
    },
    /// Wait until a task has ended
    ///
    /// Exit status: 0 it completed; 1 it failed, was terminated, or has not ended.
    Await {
        #[command(flatten)]
        which: TaskSelector,
        /// How long to wait: whole seconds, or a form such as 90s or 5m
        #[arg(long, value_name = SPAN, default_value = "1h", value_parser = seconds(1, WAIT_MAX))]
        wait: u64,
    },
    /// Show groups of tasks: their limits, and how many tasks are in progress
    Groups,
    /// Set how many tasks of a group may be in progress at a time; with 0, none is started
    Limit {
        /// The group
        #[arg(value_parser = name)]
        group: Name,
        /// The maximum number of tasks; each counts from its first burst to its last, including waits
        max: u32,
    },
    /// Pause a task, a group, or all tasks; a running burst is finished
    #[command(after_help = "\
Examples:
  sexton task pause 4711              no burst of this task begins
  sexton task pause --group mails     no task of the group is started; started ones continue
  sexton task pause --all --hard      no burst begins at all")]
    Pause {
        #[command(flatten)]
        what: Paused,
        /// Also begin no further bursts of tasks that have started
        #[arg(long, conflicts_with = "id")]
        hard: bool,
    },
    /// Resume a task, a group, or all tasks
    Resume {
        #[command(flatten)]
        what: Paused,
    },
    /// Allow a task that was added with --not-ready to start
    Ready {
        #[command(flatten)]
        which: TaskSelector,
    },
    /// End the wait of a task for its next burst
    Wake {
        #[command(flatten)]
        which: TaskSelector,
    },
    /// End a task: immediately if it has not started, otherwise after one more burst for cleaning up
    #[command(after_help = "That burst finds SEXTON_TASK_TERMINATING=1 in its environment.")]
    Terminate {
        #[command(flatten)]
        which: TaskSelector,
        /// Skip that burst; a running attempt is stopped with everything it started
        #[arg(long)]
        now: bool,
    },
    /// Run an ended task again, continuing from what it saved
    Restart {
        #[command(flatten)]
        which: TaskSelector,
    },
    /// Forget tasks that have ended
    ///
    /// Tasks that are not pruned are kept as long as configured.
    Prune {
        /// Only tasks that ended at least this long ago
        #[arg(long, value_name = SPAN, value_parser = delay)]
        older_than: Option<u64>,
        /// Number of the newest tasks to keep, regardless of age
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        keep: u32,
    },
    #[command(hide = true)]
    Inject(Inject),
    /// From within a task: save its state for the next burst
    Save {
        /// The state to save [default: standard input]
        text: Option<String>,
    },
    /// From within a task: print what was saved last; exits with 1 if nothing was saved
    Saved,
    /// From within a task: report that it is still making progress
    ///
    /// After the first heartbeat, a task is stopped and fails if the next one does not arrive within the time set with --progress.
    Heartbeat,
    /// From within a task: report that it is done; takes effect when its command has ended
    Done {
        /// Report that it is done, with a warning
        #[arg(long)]
        warning: bool,
        /// A message; its first 1,024 bytes are kept
        #[arg(allow_hyphen_values = true)]
        message: Option<String>,
    },
    /// From within a task: run another burst after this time
    Wait {
        /// How long to wait before the next burst
        #[arg(value_name = SPAN, value_parser = delay)]
        after: u64,
    },
    /// From within a task: report that it has failed; takes effect when its command has ended
    Fail {
        /// The reason; its first 1,024 bytes are kept
        #[arg(allow_hyphen_values = true)]
        message: String,
    },
}

/// Selects a task.
#[derive(Args)]
struct TaskSelector {
    /// The task's id
    #[arg(value_parser = numbers::task)]
    id: u64,
}

/// Selects the tasks to pause or resume.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Paused {
    /// The id of a task
    #[arg(value_parser = numbers::task)]
    id: Option<u64>,
    /// A group
    #[arg(long, value_parser = name)]
    group: Option<Name>,
    /// All tasks
    #[arg(long)]
    all: bool,
}

/// The state of a task: its run status, or how it ended.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Status {
    NotReady,
    NotStarted,
    Waiting,
    Processing,
    Complete,
    Restarted,
    Completed,
    Warning,
    UserError,
    SystemError,
    Terminated,
}

impl Status {
    fn word(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |it| it.get_name().to_owned())
    }

    /// Returns the run status to request, and, for a state that says how a task ended, the exit status by which to filter the answer.
    fn asked(self) -> (String, Option<String>) {
        match self {
            Self::NotReady
            | Self::NotStarted
            | Self::Waiting
            | Self::Processing
            | Self::Complete
            | Self::Restarted => (self.word(), None),
            Self::Completed
            | Self::Warning
            | Self::UserError
            | Self::SystemError
            | Self::Terminated => (Self::Complete.word(), Some(self.word())),
        }
    }
}

impl Task {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if let Some(body) = self.action.run_within_task() {
            return body;
        }
        let options = ClientOptions { target: self.at.target()?, json: self.json };
        let act = |which: &TaskSelector, act: &str| {
            let asked = fields([("id", which.id.into()), ("act", act.into())]);
            options.tell(&options.act("tasks/act", asked)?, page::acted)
        };
        match self.action {
            Action::Add(add) => add.run(&options),
            Action::List { status, group, work, limit } => {
                options.list(status, (group, work), limit)
            }
            Action::Show { which } => {
                let asked = fields([("id", which.id.to_string().into())]);
                let task = options.look("tasks/task", &asked)?;
                let held = Held::of(&options, &task, task.pointer("/attempt"));
                options.tell(&task, |task| page::whole(task, &held))
            }
            Action::Transcript { which, dispatch } => {
                let asked = fields([("id", which.id.to_string().into())]);
                let story = options.look("tasks/transcript", &asked)?;
                let live = page::items(&story, "/stories").last();
                let is_live = |it: &&Value| it.pointer("/outcome").is_none_or(Value::is_null);
                let held = Held::of(&options, &story, live.filter(|it| dispatch && is_live(it)));
                options.tell(&story, |story| transcript::page(story, dispatch, &held))
            }
            Action::Await { which, wait } => options.ended(&options.over(which.id, wait)?),
            Action::Groups => {
                let groups = options.look("tasks/groups", &fields([]))?;
                options.tell(&groups, page::groups)
            }
            Action::Limit { group, max } => {
                let mut asked = fields([("max", max.into())]);
                put(&mut asked, "group", &group);
                let body = options.act("tasks/limit", asked)?;
                options.tell(&body, |_| page::limited(&group.to_text(), max.into()))
            }
            Action::Pause { what, hard } => {
                options.pause(&what, if hard { "hard" } else { "soft" }, "pause")
            }
            Action::Resume { what } => options.pause(&what, "off", "resume"),
            Action::Ready { which } => act(&which, "ready"),
            Action::Wake { which } => act(&which, "wake"),
            Action::Restart { which } => act(&which, "restart"),
            Action::Terminate { which, now } => {
                let act = ("act", "terminate".into());
                let asked = fields([("id", which.id.into()), act, ("now", now.into())]);
                options.tell(&options.act("tasks/act", asked)?, page::acted)
            }
            Action::Prune { older_than, keep } => options.prune(older_than, keep),
            Action::Inject(_)
            | Action::Save { .. }
            | Action::Saved
            | Action::Heartbeat
            | Action::Done { .. }
            | Action::Wait { .. }
            | Action::Fail { .. } => unreachable!("actions within a task are performed above"),
        }
    }
}

impl Action {
    /// If this action is meant for use within a task, performs it and returns its result. Returns `None` for all other actions.
    fn run_within_task(&self) -> Option<Result<(), Failure>> {
        let report = match self {
            Self::Inject(inject) => return Some(inject.run()),
            Self::Save { text } => return Some(report::save(text.clone())),
            Self::Saved => return Some(report::saved()),
            Self::Heartbeat => json!({ "do": "heartbeat" }),
            Self::Done { warning, message } => {
                let message = message.clone().unwrap_or_default();
                json!({ "do": "done", "warning": warning, "message": message })
            }
            Self::Wait { after } => json!({ "do": "wait", "ms": after }),
            Self::Fail { message } => json!({ "do": "fail", "message": message }),
            Self::Add(_)
            | Self::List { .. }
            | Self::Show { .. }
            | Self::Transcript { .. }
            | Self::Await { .. }
            | Self::Groups
            | Self::Limit { .. }
            | Self::Pause { .. }
            | Self::Resume { .. }
            | Self::Ready { .. }
            | Self::Wake { .. }
            | Self::Terminate { .. }
            | Self::Restart { .. }
            | Self::Prune { .. } => return None,
        };
        Some(report::say(&report).map(drop))
    }
}

impl ClientOptions {
    fn list(
        &self,
        status: Option<Status>,
        (group, work): (Option<Name>, Option<Name>),
        limit: u64,
    ) -> Result<(), Failure> {
        let (status, exit) = status.map(Status::asked).unzip();
        let exit = exit.flatten();
        let mut asked = fields([("status", status.into())]);
        for (field, name) in [("group", group), ("work", work)] {
            if let Some(name) = name {
                put(&mut asked, field, &name);
            }
        }
        let (mut tasks, mut next) = (Vec::new(), None::<u64>);
        loop {
            let left = limit - tasks.len() as u64;
            // If the answer is filtered below, its size is unrelated to the number of tasks left to find.
            let page = if exit.is_some() { PAGE } else { left.min(PAGE) };
            asked.insert("limit".to_owned(), page.to_string().into());
            if let Some(next) = next {
                asked.insert("after".to_owned(), next.to_string().into());
            }
            let body = self.look("tasks", &asked)?;
            let found = body.pointer("/tasks").and_then(Value::as_array);
            let found = found.into_iter().flatten();
            let has_exit =
                |task: &&Value| exit.as_ref().is_none_or(|it| words(task, "/exit") == *it);
            tasks.extend(found.filter(has_exit).cloned());
            tasks.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
            next = body.pointer("/next").and_then(Value::as_u64);
            if next.is_none() || tasks.len() as u64 >= limit {
                break;
            }
        }
        let all = json!({ "tasks": tasks });
        self.tell(&all, |_| page::list(&tasks))
    }

    fn pause(&self, what: &Paused, pause: &str, act: &str) -> Result<(), Failure> {
        if let Some(id) = what.id {
            let asked = fields([("id", id.into()), ("act", act.into())]);
            return self.tell(&self.act("tasks/act", asked)?, page::acted);
        }
        let mut asked = fields([("pause", pause.into())]);
        if let Some(group) = &what.group {
            put(&mut asked, "group", group);
        }
        let body = self.act("tasks/pause", asked)?;
        let group = what.group.as_ref().map(Name::to_text);
        self.tell(&body, |_| page::paused(group.as_deref(), pause))
    }

    fn prune(&self, older_than: Option<u64>, keep: u32) -> Result<(), Failure> {
        let asked = fields([("keep", keep.into()), ("older_than_ms", older_than.into())]);
        let body = self.act("tasks/prune", asked)?;
        self.tell(&body, |body| format!("{}\n", number(body, "/pruned")))
    }
}
