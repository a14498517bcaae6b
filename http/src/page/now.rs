//! The start page: problems, activity, the longest waits, and totals.

use crate::call::Call;
use crate::operate;
use crate::page::frame::{Page, View};
use crate::page::leases;
use crate::page::login;
use crate::page::plot::{self, plot};
use crate::page::render::{self, Link, PageClock, count};
use crate::page::routing;
use crate::page::tasks;
use crate::page::walk::walk;
use crate::problem::Problem;
use crate::rates::{Counted, Rates};
use crate::route::Route;
use crate::scope::Scope;
use crate::trouble;
use maud::{Markup, html};
use sexton::actors::dispatch::{self, RunStatus, TaskFilter, TaskView};
use sexton::actors::lease::LeaseView;
use sexton::actors::lock::{Contended, Ranking};
use sexton::actors::process;
use sexton::actors::queue::QueueView;
use sexton::clock::Timestamp;
use sexton::ids::Slot;
use sexton::status::NodeStatus;
use sexton::text;
use sexton::trouble::{Part, Subject, Trouble};

/// The maximum number of rows in each list.
const MOST: u32 = 8;

/// The number of busiest queues that are examined for the longest-waiting jobs.
const LOOKED_AT: u32 = 100;

pub(crate) fn routes() -> Vec<Route> {
    vec![routing::view("/", Scope::Read, now)]
}

async fn now(call: &Call) -> Result<Page, Problem> {
    let status = operate::ask(&call.node).await?;
    if let Some(words) = &status.halted {
        return Err(Problem::new(sexton::refusal::Reason::Halted, words.clone()));
    }
    let active = call.node.leases().active(MOST).await?;
    let processes = if call.may_run() { Some(call.node.processes().totals().await?) } else { None };
    let troubles = trouble::all(call, &status).await?;
    let (contended, contended_all) = call.locks().contended(MOST, Ranking::Longest).await?;
    let (mut queues, _) = call.node.queues().busiest(Slot(0), LOOKED_AT).await?;
    queues.retain(|queue| queue.oldest.is_some());
    queues.sort_by_key(|queue| queue.oldest);
    queues.truncate(MOST as usize);
    let waiting = waiting_tasks(call).await?;
    let here = PageClock::of(&call.node);
    let leases: Vec<LeaseView> = active.leases;
    let main = html! {
        section #trouble data-live { (troubled(&troubles, hidden(call))) }
        section #rates data-live { h2 { "Rates" } (rates(&call.shared.rates)) }
        div.columns {
            section #waited data-live {
                h2 { "Locks with the longest waits" }
                (locks(&contended, contended_all, here))
            }
            section #oldest data-live { h2 { "Jobs that have waited longest" } (oldest(&queues, here)) }
        }
        @if !waiting.is_empty() {
            section #tasks data-live { h2 { "Tasks that have waited longest" } (tasks::table(&waiting, here)) }
        }
        @if !leases.is_empty() {
            section #passes data-live { h2 { "Leases" } (leases::table(&leases, here)) }
        }
        section #counts data-live { h2 { "Totals" } (counts(&status)) (others(&status.tasks, processes.as_ref())) }
        section #node data-live { h2 { "Coordinator" } (node(&status, here)) }
    };
    Ok(Page { view: View::Now, title: "Now".to_owned(), main })
}

/// Returns a note for callers that may not see processes, which states that problems of processes and services are not shown either.
/// Returns `None` for other callers.
fn hidden(call: &Call) -> Option<Markup> {
    let can_log_in = login::is_login(call);
    (!call.may_run()).then(|| {
        html! {
            @if can_log_in {
                "Processes and services, and their problems, are not shown: " a href="/page/login" { "log in" } " with a token that has the scope run."
            } @else {
                "Processes and services, and their problems, are not shown, because they require a login with a token (" a href="/page/processes" { "how" } "). On the machine of the coordinator, " code { "sexton service" } " and " code { "sexton ps" } " show them."
            }
        }
    })
}

fn troubled(troubles: &[Trouble], hidden: Option<Markup>) -> Markup {
    html! {
        h2 .visually-hidden { "Problems" }
        @if troubles.is_empty() && hidden.is_none() {
            p.well { "Nothing is stuck, failing, restarting or filling up." }
        } @else if troubles.is_empty() {
            p.well { "No problems with locks, leases, queues or tasks." }
        } @else {
            ul.troubles {
                @for Trouble { kind, parts } in troubles {
                    li class=(kind.level().name()) {
                        strong { (kind.title()) } " " span { @for part in parts { (shown(part)) } }
                    }
                }
            }
        }
        @if let Some(hidden) = hidden { p { (hidden) } }
    }
}

/// Renders a part of the description of a problem.
fn shown(part: &Part) -> Markup {
    match part {
        Part::Text(text) => html! { (text) },
        Part::Quoted(text) => render::words(text),
        Part::Command(command) => html! { code { (render::words(command)) } },
        Part::Subject(subject) => {
            html! { a href=(link(subject)) { (render::words(&subject.to_string())) } }
        }
    }
}

/// Returns the page that shows what a problem is about.
fn link(subject: &Subject) -> Link {
    match subject {
        Subject::Jobs(_, phase) => Link::to("/page/jobs").with("phase", phase.as_bytes()),
        Subject::Tasks(_) => Link::to("/page/tasks").with("status", b"complete"),
        Subject::Processes(_) => Link::to("/page/processes").with("status", b"stopping"),
        Subject::Process(id) => Link::to("/page/process").with("id", id.as_bytes()),
        Subject::Lease(name) => Link::to("/page/lease").with("name", name.as_bytes()),
        Subject::Service(_) => Link::to("/page/processes"),
    }
}

fn rates(rates: &Rates) -> Markup {
    let series = Counted::ALL.into_iter().filter_map(|it| Some((it, rates.of(it)?)));
    html! {
        ul.rates {
            @for (counted, rates) in series {
                @let (title, unit) = words(counted);
                @let last = rates.last().copied().unwrap_or_default();
                @let most = rates.iter().copied().fold(0.0, f64::max);
                @let spoken = format!("{title}: {} {unit} per second now, at most {} in the last ten minutes", plot::shown(last), plot::shown(most));
                li {
                    span.rate-title { (title) }
                    span.rate-now { (plot::shown(last)) span.faint { " " (unit) "/s" } }
                    (plot(&rates, &spoken))
                    span.faint { "at most " (plot::shown(most)) }
                }
            }
        }
    }
}

const fn words(counted: Counted) -> (&'static str, &'static str) {
    match counted {
        Counted::Lockserver => ("LockServer", "commands"),
        Counted::Beanstalk => ("beanstalkd", "commands"),
        Counted::Http => ("HTTP", "requests"),
        Counted::Locks => ("Locks", "changes"),
        Counted::Jobs => ("Jobs", "changes"),
        Counted::Tasks => ("Tasks", "changes"),
        Counted::Entries => ("Journal", "entries"),
        Counted::Syncs => ("Disk", "syncs"),
    }
}

fn locks(contended: &[Contended], all: u32, here: PageClock) -> Markup {
    html! {
        @if contended.is_empty() { p.faint { "None." } } @else {
            div.wide tabindex="0" { table {
                thead { tr { th { "Lock" } th { "Held by" } th.n { "Waiting" } th.n { "Longest" } th.n { "Expires in" } } }
                tbody {
                    @for lock in contended {
                        tr {
                            td { (render::lock(&lock.key, &lock.index)) }
                            td { (render::name(lock.owner.as_bytes())) }
                            (render::number(lock.waiting))
                            td.n { (here.since(lock.since)) }
                            td.n { (ends(lock.deadline, here)) }
                        }
                    }
                }
            } }
            @if all as usize > contended.len() { p { a href="/page/locks" { "All " (count(all)) } } }
        }
    }
}

/// Formats the time until `deadline`, or states that the item ends only with its process.
pub(crate) fn ends(deadline: Option<Timestamp>, here: PageClock) -> String {
    let span = |at| here.until(at).unwrap_or_else(|| "now".to_owned());
    deadline.map_or_else(|| "with its process".to_owned(), span)
}

fn oldest(queues: &[QueueView], here: PageClock) -> Markup {
    html! {
        @if queues.is_empty() { p.faint { "No jobs are ready." } } @else {
            div.wide tabindex="0" { table {
                thead { tr { th { "Queue" } th.n { "Oldest" } th.n { "Ready" } th.n { "Claimed" } th.n { "Workers waiting" } } }
                tbody {
                    @for view in queues {
                        @let jobs = &view.jobs;
                        tr {
                            td { (render::queue(&view.name)) }
                            td.n { @if let Some(oldest) = view.oldest { (here.since(oldest)) } }
                            (render::number(jobs.ready))
                            (render::number(jobs.claimed))
                            (render::number(view.waiting))
                        }
                    }
                }
            } }
        }
    }
}

/// Returns at most `MOST` tasks that have not started or wait for their next burst (one run of the command), oldest first.
async fn waiting_tasks(call: &Call) -> Result<Vec<TaskView>, Problem> {
    let tasks = call.node.tasks();
    let mut waiting = Vec::new();
    for status in [RunStatus::NotStarted, RunStatus::Waiting] {
        let filter = TaskFilter { status: Some(status), group: None, work: None };
        let share = async |after, most| {
            let found = tasks.list(filter.clone(), after, most).await?;
            Ok((found.tasks, found.next.map(Some)))
        };
        let (found, _) = walk(None, share).await?;
        waiting.extend(found);
    }
    waiting.sort_by_key(|it| it.task.created);
    waiting.truncate(MOST as usize);
    Ok(waiting)
}

fn counts(status: &NodeStatus) -> Markup {
    let jobs = &status.queues.jobs;
    html! {
        dl.counts {
            div { dt { "Locks held" } dd { (count(status.lock_owners)) } }
            div { dt { "waiting for locks" } dd { (count(status.lock_contenders)) } }
            div { dt { "Passes running" } dd { (count(status.leases.running)) } }
            div { dt { "Queues" } dd { (count(status.queues.queues)) } }
            div { dt { "Jobs ready" } dd { (count(jobs.ready)) } }
            div { dt { "delayed" } dd { (count(jobs.delayed)) } }
            div { dt { "claimed" } dd { (count(jobs.claimed)) } }
            div { dt { "retrying" } dd { (count(jobs.retrying)) } }
            div { dt { "buried" } dd { (count(jobs.buried)) } }
            div { dt { "abandoned" } dd { (count(jobs.abandoned)) } }
            div { dt { "quarantined" } dd { (count(jobs.quarantined)) } }
            div { dt { "Workers waiting" } dd { (count(status.queues.waiting)) } }
        }
    }
}

fn others(tasks: &dispatch::Totals, processes: Option<&process::Totals>) -> Markup {
    html! {
        dl.counts {
            div { dt { "Tasks under way" } dd { (count(tasks.processing)) } }
            div { dt { "waiting" } dd { (count(tasks.waiting)) } }
            div { dt { "not started" } dd { (count(tasks.fresh)) } }
            div { dt { "failed" } dd { (count(tasks.failed)) } }
            @if let Some(processes) = processes {
                div { dt { "Processes running" } dd { (count(processes.running)) } }
                div { dt { "stopping" } dd { (count(processes.stopping)) } }
                div { dt { "ended" } dd { (count(processes.exited)) } }
            }
        }
    }
}

fn node(status: &NodeStatus, here: PageClock) -> Markup {
    let snapshot = status.snapshots.as_ref().and_then(|it| it.last.as_ref());
    html! {
        dl.facts {
            div { dt { "Version" } dd { (status.version) } }
            div { dt { "PID" } dd { (status.pid) } }
            div { dt { "Uptime" } dd { (text::span(status.uptime_ms)) } }
            div { dt { "Data" } dd { @match &status.data { Some(data) => (render::words(&data.display().to_string())), None => "in memory only" } } }
            div { dt { "fsync" } dd { (status.fsync) } }
            div { dt { "Last snapshot" } dd { @match snapshot { Some(taken) => { (here.since(taken.at)) " ago" }, None => "none since startup" } } }
            @if let Some(bytes) = status.process.memory_bytes { div { dt { "Memory" } dd { (text::bytes(bytes)) } } }
            @if let Some([load, ..]) = status.host.load { div { dt { "Load" } dd { (format!("{load:.2}")) } } }
        }
    }
}
