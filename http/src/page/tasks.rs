//! The view of all tasks, with the reason why each one is not running, and of servers and groups; and the page of one task, with its
//! history, attempt by attempt.

use crate::call::Call;
use crate::page::event_rows;
use crate::page::frame::{Page, View};
use crate::page::render::{self, Link, PageClock};
use crate::page::routing;
use crate::page::walk::walk;
use crate::problem::Problem;
use crate::process_shown::Stream;
use crate::route::Route;
use crate::scope::Scope;
use crate::task_transcript::{self, AttemptHistory};
use maud::{Markup, html};
use serde::Deserialize;
use sexton::actors::dispatch::{
    Act, GroupView, Obstacle, RunStatus, ServerView, TaskFilter, TaskView,
};
use sexton::actors::lock::Name;
use sexton::clock::Date;
use sexton::replay::FollowedItem;
use sexton::spine::event::{Event, Field};
use sexton::text;

/// The maximum number of rows in the table of servers, and in the table of groups.
const MOST: usize = 100;

const STATUSES: [RunStatus; 6] = [
    RunStatus::NotReady,
    RunStatus::NotStarted,
    RunStatus::Waiting,
    RunStatus::Processing,
    RunStatus::Complete,
    RunStatus::Restarted,
];

pub(crate) fn routes() -> Vec<Route> {
    vec![
        routing::view("/page/tasks", Scope::Read, list),
        routing::view("/page/task", Scope::Read, one),
        routing::form("/page/task/act", Scope::Run, act),
    ]
}

/// The query parameters of the view: the filter, and the position after which the list continues.
#[derive(Deserialize)]
struct Filter {
    status: Option<String>,
    group: Option<Name>,
    work: Option<Name>,
    after: Option<u64>,
}

impl Filter {
    fn status(&self) -> Result<Option<RunStatus>, Problem> {
        let Some(word) = self.status.as_deref() else {
            return Ok(None);
        };
        let found = STATUSES.into_iter().find(|status| status.name() == word);
        let words =
            "must be one of not-ready, not-started, waiting, processing, complete, restarted";
        found.map(Some).ok_or_else(|| Problem::field("status", words))
    }

    fn link(&self) -> Link {
        let link = Link::to("/page/tasks");
        let link = link.with_some("status", self.status.as_deref().map(str::as_bytes));
        let link = link.with_some("group", self.group.as_ref().map(Name::as_bytes));
        link.with_some("work", self.work.as_ref().map(Name::as_bytes))
    }
}

async fn list(call: &Call) -> Result<Page, Problem> {
    let filter: Filter = call.query_form()?;
    let wanted = TaskFilter {
        status: filter.status()?,
        group: filter.group.clone(),
        work: filter.work.clone(),
    };
    let tasks = call.node.tasks();
    let share = async |after, most| {
        let found = tasks.list(wanted.clone(), after, most).await?;
        Ok((found.tasks, found.next.map(Some)))
    };
    let (found, next) = walk(filter.after, share).await?;
    let (servers, groups) = (tasks.servers().await?, tasks.groups().await?);
    let here = PageClock::of(&call.node);
    let next = next.flatten().map(|id| filter.link().with("after", id.to_string().as_bytes()));
    let main = html! {
        (asked(&filter))
        section #tasks data-live {
            (table(&found, here))
            (render::more(next))
        }
        div.columns {
            section #servers data-live { h2 { "Servers" } (served(&servers)) }
            section #groups data-live { h2 { "Groups" } (grouped(&groups)) }
        }
    };
    Ok(Page { view: View::Tasks, title: String::new(), main })
}

fn asked(filter: &Filter) -> Markup {
    let text = |name: &Option<Name>| name.as_ref().map(Name::to_text).unwrap_or_default();
    html! {
        form.filter role="search" {
            label { "State "
                select name="status" {
                    option value="" { "any" }
                    @for status in STATUSES { option value=(status.name()) selected[filter.status.as_deref() == Some(status.name())] { (status.name()) } }
                }
            }
            label { "Group " input name="group" value=(text(&filter.group)) dir="auto"; }
            label { "Work id " input name="work" value=(text(&filter.work)) dir="auto"; }
            button { "Show" }
        }
    }
}

/// Renders a table of tasks.
pub(crate) fn table(tasks: &[TaskView], here: PageClock) -> Markup {
    if tasks.is_empty() {
        return html! { p.faint { "No tasks." } };
    }
    html! {
        div.wide tabindex="0" { table {
            thead { tr { th.n { "Task" } th { "Name" } th { "Group" } th { "Work id" } th { "State" } th { "Why it is not running" } th { "Server" } th.n { "Attempts" } th.n { "Age" } } }
            tbody {
                @for view in tasks {
                    @let task = &view.task;
                    tr {
                        td.n { (render::task(task.id)) }
                        td { (render::name_or(task.name.as_bytes(), "")) }
                        td { (render::name(task.group.as_bytes())) }
                        td { (render::name_or(task.work.as_bytes(), "")) }
                        td { (status(view)) }
                        td.words { (why(view, here)) }
                        td { @if let Some(server) = &view.server { (render::name(server.as_bytes())) } }
                        td.n { (render::count(task.attempts)) @if task.setbacks > 0 { " " (render::tag(&format!("{} without progress", task.setbacks), "warn")) } }
                        td.n { (here.since(task.created)) }
                    }
                }
            }
        } }
    }
}

/// Renders the state of a task or, if it is over, how it ended; and whether it is paused or being terminated.
fn status(view: &TaskView) -> Markup {
    let task = &view.task;
    let level = match task.status {
        RunStatus::Complete if task.exit.is_failure() => "bad",
        RunStatus::Processing => "good",
        RunStatus::NotReady
        | RunStatus::NotStarted
        | RunStatus::Waiting
        | RunStatus::Complete
        | RunStatus::Restarted => "",
    };
    let word =
        if task.status == RunStatus::Complete { task.exit.name() } else { task.status.name() };
    html! {
        (render::tag(word, level))
        @if task.paused { " " (render::tag("paused", "warn")) }
        @if task.terminating { " " (render::tag("terminating", "warn")) }
    }
}

fn why(view: &TaskView, here: PageClock) -> Markup {
    html! {
        @match &view.obstacle {
            Some(Obstacle::Waits(date)) => { "waits until " (here.shown(*date)) },
            Some(obstacle) => (render::words(&obstacle.to_string())),
            None if !view.task.words.is_empty() => (render::words(&view.task.words)),
            None => "",
        }
    }
}

fn served(servers: &[ServerView]) -> Markup {
    if servers.is_empty() {
        return html! { p.faint { "No servers. This machine is added as a server when the first task is added." } };
    }
    html! {
        div.wide tabindex="0" { table {
            thead { tr { th { "Server" } th.n { "Threads in use" } th.n { "of" } th { "State" } th { "Connection" } } }
            tbody {
                @for server in servers.iter().take(MOST) {
                    tr {
                        td { (render::name(server.name.as_bytes())) }
                        (render::number(server.used))
                        (render::number(server.threads))
                        td {
                            @if server.leaves { (render::tag("leaving", "warn")) }
                            @else if server.enabled { (render::tag("enabled", "good")) }
                            @else { (render::tag("disabled", "warn")) }
                        }
                        td { @if server.remote.is_some() { "ssh" } @else { "local" } }
                    }
                }
            }
        } }
        @if servers.len() > MOST { p.faint { "The first " (MOST) " of " (servers.len()) "." } }
    }
}

fn grouped(groups: &[GroupView]) -> Markup {
    if groups.is_empty() {
        return html! { p.faint { "No group has settings of its own, or tasks that are in progress or ready." } };
    }
    html! {
        div.wide tabindex="0" { table {
            thead { tr { th { "Group" } th.n { "Under way" } th.n { "of" } th.n { "Ready" } th { "State" } } }
            tbody {
                @for group in groups.iter().take(MOST) {
                    tr {
                        td { a href=(Link::to("/page/tasks").with("group", group.name.as_bytes())) { (render::name(group.name.as_bytes())) } }
                        (render::number(group.used))
                        (render::number(group.max))
                        (render::number(group.ready))
                        td { @if group.pause.name() != "off" { (render::tag(&format!("paused ({})", group.pause.name()), "warn")) } @else if group.max == 0 { (render::tag("disabled", "warn")) } }
                    }
                }
            }
        } }
        @if groups.len() > MOST { p.faint { "The first " (MOST) " of " (groups.len()) "." } }
    }
}

#[derive(Deserialize)]
struct Parameters {
    id: u64,
}

async fn one(call: &Call) -> Result<Page, Problem> {
    let Parameters { id } = call.query_form()?;
    let view = call.node.tasks().get(id).await?;
    let transcript = task_transcript::of(call, &view).await?;
    let here = PageClock::of(&call.node);
    let is_of_it = |event: &Event| {
        event.actor == "dispatch" && event.what.fields.contains(&("task", Field::Number(id)))
    };
    let history = event_rows::history(call, FollowedItem::Task(id), is_of_it).await?;
    let main = html! {
        section #task data-live {
            p.subject { "Task " (id) " " (render::name_or(view.task.name.as_bytes(), "")) " " (status(&view)) }
            (state_cell(&view, here))
            (facts(&view, here))
        }
        @if call.may_run() { (acts(&view)) }
        section #attempts data-live {
            h2 { "Attempts" }
            @if transcript.stories.is_empty() { p.faint { "No attempts." } }
            @if transcript.attempts > transcript.stories.len() as u64 {
                p.faint { "The newest " (transcript.stories.len()) " of " (render::count(transcript.attempts)) "." }
            }
            @for history in transcript.stories.iter().rev() { (attempt(call, history, here)) }
        }
        section #story data-live { h2 { "What happened" } (history) }
    };
    Ok(Page { view: View::Tasks, title: "Task".to_owned(), main })
}

/// Renders where a task is running, why it is not running, or how it ended; and the message of its latest attempt.
fn state_cell(view: &TaskView, here: PageClock) -> Markup {
    let task = &view.task;
    html! {
        p {
            @match task.status {
                RunStatus::Processing if view.obstacle.is_some() => {
                    strong { "Why it has not been launched: " } (why(view, here)) "."
                },
                RunStatus::Processing => { "Running" @if let Some(server) = &view.server { " on " (render::name(server.as_bytes())) } "." },
                RunStatus::Complete => { "Ended: " (task.exit.name()) "." },
                RunStatus::NotReady | RunStatus::NotStarted | RunStatus::Waiting | RunStatus::Restarted => {
                    strong { "Why it is not running: " }
                    @if view.obstacle.is_some() { (why(view, here)) } @else { "it is about to start" } "."
                },
            }
        }
        @if !task.words.is_empty() { p { (render::words(&task.words)) } }
    }
}

fn facts(view: &TaskView, here: PageClock) -> Markup {
    let task = &view.task;
    html! {
        dl.facts {
            div { dt { "Group" } dd { (render::name(task.group.as_bytes())) } }
            @if !task.work.as_bytes().is_empty() { div { dt { "Work id" } dd { (render::name(task.work.as_bytes())) } } }
            div { dt { "Priority" } dd { (task.priority.name()) } }
            div { dt { "Added" } dd { (here.date(task.created)) } }
            @if let Some(at) = task.started { div { dt { "Started" } dd { (here.date(at)) } } }
            @if let Some(at) = task.ended { div { dt { "Ended" } dd { (here.date(at)) } } }
            div { dt { "Saved" } dd { (text::count(task.revision, "time")) } }
            div { dt { "Fails after" } dd { (text::span(task.terms.fail_after_ms)) } }
        }
    }
}

fn attempt(call: &Call, history: &AttemptHistory, here: PageClock) -> Markup {
    let outcome = history.outcome.unwrap_or("under way");
    let level = match outcome {
        "reset" | "failed" => "bad",
        "under way" => "good",
        _ => "",
    };
    html! {
        article {
            h3 {
                "Token " (history.token.0) " on " (render::words(&history.server)) " " (render::tag(outcome, level))
                @if let Some(cause) = history.cause { " " (cause) }
                @if let Some(code) = history.code { ", exit " (code) }
                @if let Some(signal) = history.signal { ", signal " (signal) }
            }
            @if let Some(failure) = &history.failure { p.problem { (render::words(failure)) } }
            p {
                @for phase in &history.phases { span.field { span.faint { (phase.phase) " " } (here.shown(Date(phase.at.0))) } " " }
                @if let Some(id) = history.process.as_deref().and_then(|id| id.parse().ok()) { span.field { span.faint { "process " } (render::process(id)) } }
            }
            // The output of processes is shown only to callers that may start processes.
            @if call.may_run() {
                (output("Standard output", history.stdout.as_ref()))
                (output("Standard error", history.stderr.as_ref()))
            }
        }
    }
}

fn output(title: &str, stream: Option<&Stream>) -> Markup {
    html! {
        @if let Some(stream) = stream.filter(|it| it.bytes > 0) {
            p.faint { (title) ", " (text::bytes(stream.bytes)) }
            @let whole = if stream.tail.is_empty() { stream.head.clone() } else { format!("{}\n…\n{}", stream.head, stream.tail) };
            (render::lines(whole.as_bytes()))
        }
    }
}

/// Renders a button for each action that is possible in the current state of the task.
fn acts(view: &TaskView) -> Markup {
    let task = &view.task;
    let act = |word: &str, title: &str| html! { button name="act" value=(word) { (title) } " " };
    let is_over = task.status == RunStatus::Complete;
    html! {
        form.act method="post" action="/page/task/act" {
            input type="hidden" name="id" value=(task.id);
            @if is_over { (act("restart", "Run again")) } @else {
                @if task.status == RunStatus::NotReady { (act("ready", "Mark as ready")) }
                @if task.paused { (act("resume", "Resume")) } @else { (act("pause", "Pause")) }
                @if task.status == RunStatus::Waiting { (act("wake", "Wake")) }
                button.danger name="act" value="terminate" { "Terminate" }
            }
        }
    }
}

#[derive(Deserialize)]
struct Acting {
    id: u64,
    act: String,
}

async fn act(call: &Call) -> Result<Link, Problem> {
    let Acting { id, act } = call.form()?;
    let act = match act.as_str() {
        "ready" => Act::Ready,
        "pause" => Act::Pause,
        "resume" => Act::Resume,
        "wake" => Act::Wake,
        "terminate" => Act::Terminate { now: false },
        "restart" => Act::Restart,
        _ => {
            let words = "must be one of ready, pause, resume, wake, terminate, restart";
            return Err(Problem::field("act", words));
        }
    };
    call.tasks().act(id, act).await?;
    Ok(Link::to("/page/task").with("id", id.to_string().as_bytes()))
}
