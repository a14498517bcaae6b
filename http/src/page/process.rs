//! The history of a process: its record, its place in the tree, the end of its output, and its events.

use crate::call::Call;
use crate::page::event_rows;
use crate::page::frame::{Page, View};
use crate::page::jobs;
use crate::page::processes::{command, phase};
use crate::page::render::{self, Link, PageClock};
use crate::page::routing;
use crate::problem::Problem;
use crate::process_look;
use crate::route::Route;
use crate::scope::Scope;
use maud::{Markup, html};
use serde::Deserialize;
use sexton::actors::process::{Output, Phase, RecordView, Selection};
use sexton::actors::queue::JobSelection;
use sexton::handle::{Stopping, failure_words};
use sexton::ids::{ProcessId, Slot};
use sexton::protocols::file;
use sexton::replay::FollowedItem;
use sexton::spine::event::{Event, Field};
use sexton::text;
use std::path::Path;
use tokio::task::spawn_blocking;

/// The maximum number of bytes shown from the end of each output file.
const TAIL_BYTES: u64 = 8 * 1024;

/// The maximum length of each of the lists of ancestors, children and jobs.
const MOST: u32 = 20;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        routing::view("/page/process", Scope::Run, one),
        routing::form("/page/process/stop", Scope::Run, stop),
    ]
}

#[derive(Deserialize)]
struct Parameters {
    id: String,
}

async fn one(call: &Call) -> Result<Page, Problem> {
    let Parameters { id } = call.query_form()?;
    let processes = call.node.processes();
    let record = processes.get(process_look::which(call, &id).await?).await?;
    let usage = processes.usage(std::slice::from_ref(&record)).await?.pop().flatten();
    let here = PageClock::of(&call.node);
    let id = record.id.to_string();
    let text = Field::Text(id.clone());
    // Events of the process actor have the process's id as a name, those of other actors as text.
    let name = ("process", Field::Name(id.as_bytes().into()));
    let is_of_it = |event: &Event| {
        let mut fields = event.what.fields.iter();
        fields.any(|field| *field == name || field.1 == text)
    };
    let history = event_rows::history(call, FollowedItem::Process(record.id), is_of_it).await?;
    let main = html! {
        section #process data-live {
            p.subject { (render::process(record.id)) " " (render::words(&record.kind)) " " (phase(&record)) }
            p { (command(&record)) }
            @if let Some(failure) = &record.failure { p.problem { "Not started: " (render::words(&failure_words(failure))) } }
            @if let Some(error) = &record.error { p.problem { (render::words(error)) } }
            (facts(&record, here))
            @if let Some(usage) = usage {
                dl.facts {
                    div { dt { "CPU" } dd { (text::span(usage.cpu_ms)) } }
                    div { dt { "Memory" } dd { (text::bytes(usage.memory_bytes)) @if usage.is_of_group { " including everything it started" } } }
                }
            }
        }
        @if matches!(record.phase, Phase::Queued | Phase::Running) { (stops(record.id)) }
        section #output data-live { (outputs(call, &record).await) }
        section #relatives data-live { (relatives(call, &record).await?) }
        (claims(call, record.id, here).await?)
        section #story data-live { h2 { "What happened" } (history) }
    };
    Ok(Page { view: View::Processes, title: "Process".to_owned(), main })
}

fn facts(record: &RecordView, here: PageClock) -> Markup {
    html! {
        dl.facts {
            div { dt { "Id" } dd { (record.id.to_string()) } }
            @if let Some(identity) = record.identity { div { dt { "PID" } dd { (identity.pid) } } }
            @if !record.dir.as_bytes().is_empty() { div { dt { "Directory" } dd { (render::name(record.dir.as_bytes())) } } }
            div { dt { "Requested" } dd { (here.shown(record.queued)) } }
            @if let Some(at) = record.started { div { dt { "Started" } dd { (here.shown(at)) } } }
            @if let Some(at) = record.ended { div { dt { "Ended" } dd { (here.shown(at)) } } }
            @if let Some(stop) = &record.stop { div { dt { "Stopped by" } dd { (stop.cause.name()) } } }
            @if let Some(said) = &record.said { div { dt { "Status text" } dd { (render::words(said)) } } }
            @if record.timeout_ms > 0 { div { dt { "Time limit" } dd { (text::span(record.timeout_ms)) } } }
            @if record.live_children > 0 { div { dt { "Live children" } dd { (record.live_children) } } }
            @if let Some(remains) = &record.remains {
                div { dt { "Total CPU" } dd { (text::span(remains.cpu_ms)) } }
                div { dt { "Peak memory" } dd { (text::bytes(remains.memory_max)) } }
                @if remains.alive > 0 { div { dt { "Left alive" } dd.bad { (remains.alive) } } }
            }
            @for (name, value) in &record.labels { div { dt { (render::words(name)) } dd { (render::words(value)) } } }
        }
    }
}

fn stops(id: ProcessId) -> Markup {
    html! {
        form.act method="post" action="/page/process/stop" {
            input type="hidden" name="id" value=(id.to_string());
            label { input type="checkbox" name="tree" value="yes" checked; "and everything it started, including what it launched through sexton" }
            button.danger { "Stop" }
            span.faint { "sends a signal, then SIGKILL after the grace period" }
        }
    }
}

/// Renders the end of a process's output, read from its files if they exist, otherwise from its record.
async fn outputs(call: &Call, record: &RecordView) -> Markup {
    let dir = call.node.processes().run_dir(record);
    let remains = record.remains.as_ref();
    let streams = [
        ("Standard output", "stdout.log", remains.map(|it| &it.stdout)),
        ("Standard error", "stderr.log", remains.map(|it| &it.stderr)),
    ];
    let mut shown = Vec::new();
    for (title, file, kept) in streams {
        let read = match &dir {
            Some(dir) => tail(&dir.join(file)).await,
            None => None,
        };
        let part = match (read, kept) {
            (Some((bytes, all)), _) => Some((bytes, all)),
            (None, Some(kept)) => Some((whole(kept), kept.bytes)),
            (None, None) => None,
        };
        shown.extend(part.map(|part| (title, part)));
    }
    html! {
        @for (title, (bytes, all)) in shown {
            h2 { (title) " " span.faint { (text::bytes(all)) @if all > bytes.len() as u64 { ", only the end is shown" } } }
            @if bytes.is_empty() { p.faint { "Nothing." } } @else { (render::lines(&bytes)) }
        }
    }
}

/// Returns the output stored in a record: its first and last bytes, with an ellipsis between them if some are missing.
fn whole(output: &Output) -> Vec<u8> {
    let (head, tail) = (output.head(), output.tail());
    if tail.is_empty() {
        return head.to_vec();
    }
    [head, b"\n\xe2\x80\xa6\n", tail].concat()
}

/// Returns at most the last [`TAIL_BYTES`] bytes of a file, beginning with a complete line if possible, and the file's size; or `None` if
/// the file cannot be read. Does not block the thread.
async fn tail(path: &Path) -> Option<(Vec<u8>, u64)> {
    let path = path.to_owned();
    let read = spawn_blocking(move || file::tail(&path, TAIL_BYTES)).await;
    let (mut bytes, all) = read.ok()?.ok()?;
    if all > bytes.len() as u64
        && let Some(end) = bytes.iter().position(|byte| *byte == b'\n')
        && end + 1 < bytes.len()
    {
        bytes.drain(..=end);
    }
    Some((bytes, all))
}

async fn relatives(call: &Call, record: &RecordView) -> Result<Markup, Problem> {
    let processes = call.node.processes();
    let mut above = processes.ancestors(record.id).await?;
    above.truncate(MOST as usize);
    let selection = Selection {
        parent: Some(record.id),
        newest_first: true,
        most: MOST,
        ..Selection::default()
    };
    let (below, more) = processes.list(selection).await?;
    Ok(html! {
        @if !above.is_empty() {
            h2 { "Started by" }
            ol.line { @for it in &above { li { (render::process(it.id)) " " (phase(it)) " " (command(it)) } } }
        }
        @if !below.is_empty() {
            h2 { "Started by this process" }
            ul.line { @for it in &below { li { (render::process(it.id)) " " (phase(it)) " " (command(it)) } } }
            @if more.is_some() { p.faint { "Only the newest " (MOST) " are shown." } }
        }
    })
}

/// Renders the jobs whose claims are bound to a process; nothing if there are none.
async fn claims(call: &Call, id: ProcessId, here: PageClock) -> Result<Markup, Problem> {
    let selection = JobSelection {
        queue: None,
        kind: None,
        phases: Vec::new(),
        error: None,
        process: Some(id),
        from: Slot(0),
        most: MOST,
    };
    let (found, _) = call.node.queues().select_jobs(selection).await?;
    Ok(html! {
        @if !found.is_empty() {
            section #claims data-live { h2 { "Jobs it is working on" } (jobs::table(&found, here)) }
        }
    })
}

#[derive(Deserialize)]
struct Stop {
    id: String,
    tree: Option<String>,
}

async fn stop(call: &Call) -> Result<Link, Problem> {
    let asked: Stop = call.form()?;
    let id = process_look::which(call, &asked.id).await?;
    let how = Stopping { signal: None, grace_ms: None, tree: asked.tree.is_some() };
    call.processes().stop(id, how).await?;
    Ok(Link::to("/page/process").with("id", id.to_string().as_bytes()))
}
