//! The processes view: services, and the tree of current and past processes, with their resource usage.

use crate::call::Call;
use crate::page::frame::{Page, View};
use crate::page::render::{self, Link, PageClock};
use crate::page::routing;
use crate::page::walk::walk;
use crate::problem::Problem;
use crate::process_look;
use crate::route::Route;
use crate::scope::Scope;
use maud::{Markup, html};
use serde::Deserialize;
use sexton::actors::process::{
    InstanceView, Phase, RecordView, Selection, ServiceView, Status, Tags,
};
use sexton::handle::Usage;
use sexton::ids::ProcessId;
use sexton::text;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of services shown.
const SERVICES: usize = 200;
/// The maximum number of instances that are shown for each service.
const INSTANCES: usize = 20;

/// The types that the filter offers; any other may be entered.
const KINDS: [&str; 6] = ["cli", "supervisord", "orchestrator", "worker", "hook", "binary"];

pub(crate) fn routes() -> Vec<Route> {
    vec![routing::view("/page/processes", Scope::Run, list)]
}

/// The filter of the view.
#[derive(Deserialize)]
struct Filter {
    /// The name of a phase, or `all`; if left out, live processes are selected, that is, those queued, running or stopping.
    status: Option<String>,
    /// The type.
    kind: Option<String>,
    /// The machine: `this`, or the id of one.
    machine: Option<String>,
    search: Option<String>,
    after: Option<String>,
}

impl Filter {
    fn selection(&self, call: &Call) -> Result<Selection, Problem> {
        let phases = match self.status.as_deref() {
            None | Some("") => vec![Phase::Queued, Phase::Running, Phase::Stopping],
            Some("all") => Vec::new(),
            Some(word) => {
                let phase = Phase::ALL.into_iter().find(|phase| phase.name() == word);
                let words = "must be one of queued, running, stopping, exited, all";
                vec![phase.ok_or_else(|| Problem::field("status", words))?]
            }
        };
        Ok(Selection {
            phases,
            kind: self.kind.clone().filter(|kind| !kind.is_empty()),
            machine: process_look::machine(call, self.machine.as_deref())?,
            text: self.search.clone(),
            after: process_look::id(self.after.as_deref(), "after")?,
            newest_first: self.status.as_deref() == Some(Phase::Exited.name()),
            ..Selection::default()
        })
    }

    fn link(&self) -> Link {
        let link = Link::to("/page/processes");
        let link = link.with_some("status", self.status.as_deref().map(str::as_bytes));
        let link = link.with_some("kind", self.kind.as_deref().map(str::as_bytes));
        let link = link.with_some("machine", self.machine.as_deref().map(str::as_bytes));
        link.with_some("search", self.search.as_deref().map(str::as_bytes))
    }
}

async fn list(call: &Call) -> Result<Page, Problem> {
    let filter: Filter = call.query_form()?;
    let selection = filter.selection(call)?;
    let processes = call.node.processes();
    let share = async |after, most| {
        let selection = Selection { after, most, ..selection.clone() };
        let (records, next) = processes.list(selection).await?;
        Ok((records, next.map(Some)))
    };
    let (records, next) = walk(selection.after, share).await?;
    let usage = processes.usage(&records).await?;
    let services = call.node.services().list(None).await?;
    let here = PageClock::of(&call.node);
    let next = next.flatten().map(|id| filter.link().with("after", id.to_string().as_bytes()));
    let main = html! {
        @if !services.is_empty() {
            section #services data-live { h2 { "Services" } (served(&services, here)) }
        }
        h2 { "Processes" }
        (asked(&filter))
        section #processes data-live {
            (tree(&records, &usage, here))
            (render::more(next))
        }
    };
    Ok(Page { view: View::Processes, title: String::new(), main })
}

fn asked(filter: &Filter) -> Markup {
    let is = |word: &str| filter.status.as_deref() == Some(word);
    html! {
        form.filter role="search" {
            label { "State "
                select name="status" {
                    option value="" { "live" }
                    @for phase in Phase::ALL { option value=(phase.name()) selected[is(phase.name())] { (phase.name()) } }
                    option value="all" selected[is("all")] { "all" }
                }
            }
            label { "Type " input name="kind" value=(filter.kind.as_deref().unwrap_or_default()) list="kinds" maxlength=(Tags::NAME_BYTES_MAX); }
            datalist id="kinds" { @for kind in KINDS { option value=(kind) {} } }
            label { "Machine " input name="machine" value=(filter.machine.as_deref().unwrap_or_default()) placeholder="this, or an id"; }
            label { "Search " input name="search" value=(filter.search.as_deref().unwrap_or_default()) dir="auto" placeholder="in arguments, labels, type"; }
            button { "Show" }
        }
    }
}

fn served(services: &[ServiceView], here: PageClock) -> Markup {
    html! {
        div.wide tabindex="0" { table {
            thead { tr { th { "Service" } th { "State" } th { "Process" } th.n { "For" } th.n { "Restarts" } th { "Status text" } th { "Last exit" } } }
            tbody {
                @for service in services.iter().take(SERVICES) {
                    @for instance in service.instances.iter().take(INSTANCES) {
                        tr {
                            td { (render::name(service.name.as_bytes())) @if service.instances.len() > 1 { span.faint { " " (instance.number) } } }
                            (instanced(service, instance, here))
                        }
                    }
                }
            }
        } }
        @if services.len() > SERVICES { p.faint { "The first " (SERVICES) " of " (services.len()) " services." } }
    }
}

fn instanced(service: &ServiceView, instance: &InstanceView, here: PageClock) -> Markup {
    let level = match instance.status {
        Status::Failed | Status::Backoff => "bad",
        Status::Waiting | Status::Starting | Status::Stopping => "warn",
        Status::Running => "good",
        Status::Stopped | Status::Finished => "",
    };
    html! {
        td {
            (render::tag(instance.status.name(), level))
            @if instance.status == Status::Waiting { span.faint { " for " (render::words(&service.waits_for.join(", "))) } }
        }
        td { @if let Some(process) = instance.process { (render::process(process)) } }
        td.n { @if let Some(started) = instance.started { (here.since_date(started)) } }
        td.n .bad[instance.restarts > 0] { (instance.restarts) }
        td { @if let Some(said) = &instance.said { (render::words(said)) } }
        td.words {
            @if let Some(last) = &instance.last {
                (here.shown(last.at)) " " (render::process(last.process)) " "
                @match (&last.failure, last.end) {
                    (Some(failure), _) => { "not started: " (render::words(&sexton::handle::failure_words(failure))) },
                    (None, Some(end)) => (render::end(end)),
                    (None, None) => "",
                }
            }
        }
    }
}

/// Renders records, each below its parent if the parent is among them.
fn tree(records: &[RecordView], usage: &[Option<Usage>], here: PageClock) -> Markup {
    if records.is_empty() {
        return html! { p.faint { "No processes." } };
    }
    html! {
        div.wide tabindex="0" { table {
            thead { tr { th { "Process" } th { "State" } th { "Command" } th.n { "PID" } th.n { "For" } th.n { "CPU" } th.n { "Memory" } } }
            tbody {
                @for (deep, place) in in_order(records) {
                    @if let Some(record) = records.get(place) {
                        tr {
                            td { span.deep aria-hidden="true" { (branch(deep)) } (render::process(record.id)) " " span.faint { (render::words(&record.kind)) } }
                            td { (phase(record)) }
                            td.words { (command(record)) }
                            td.n { @if let Some(identity) = record.identity { (identity.pid) } }
                            td.n { @if let Some(started) = record.started { (lasted(record, started, here)) } }
                            (uses(record, usage.get(place).copied().flatten()))
                        }
                    }
                }
            }
        } }
    }
}

fn branch(deep: usize) -> String {
    // Levels deeper than 12 are not indented further.
    match deep.min(12) {
        0 => String::new(),
        deep => format!("{}└ ", "  ".repeat(deep - 1)),
    }
}

fn lasted(record: &RecordView, started: sexton::clock::Date, here: PageClock) -> String {
    match record.ended {
        Some(ended) => text::span(ended.0.saturating_sub(started.0)),
        None => here.since_date(started),
    }
}

fn uses(record: &RecordView, usage: Option<Usage>) -> Markup {
    let remains = record.remains.as_ref();
    let cpu = usage.map(|it| it.cpu_ms).or(remains.map(|it| it.cpu_ms));
    let memory = usage.map(|it| it.memory_bytes).or(remains.map(|it| it.memory_max));
    html! {
        td.n { @if let Some(ms) = cpu {
            span data-grows={ (record.id.to_string()) " cpu" } data-count=(ms) { (ms / 1000) "." (ms % 1000 / 100) " s" }
        } }
        td.n { @if let Some(bytes) = memory { (text::bytes(bytes)) } }
    }
}

/// Renders the state of a record.
pub(crate) fn phase(record: &RecordView) -> Markup {
    let stuck = record.stuck.is_some_and(|it| it.unkillable > 0);
    html! {
        @match record.phase {
            _ if stuck => (render::tag("does not exit", "bad")),
            Phase::Queued if record.deferred.is_some() => (render::tag("deferred", "")),
            Phase::Queued => (render::tag("queued", "warn")),
            Phase::Running => (render::tag("running", "good")),
            Phase::Stopping => (render::tag("stopping", "warn")),
            Phase::Exited => @match (&record.failure, record.end) {
                (Some(failure), _) if failure.is_cancellation() => (render::tag("cancelled", "")),
                (Some(_), _) => (render::tag("not started", "bad")),
                (None, Some(end)) => (render::end(end)),
                (None, None) => "ended",
            },
        }
    }
}

/// Renders the program and its arguments, in which secrets are masked already.
pub(crate) fn command(record: &RecordView) -> Markup {
    html! {
        code {
            @for (place, argument) in record.argv.iter().enumerate() {
                @if place > 0 { " " }
                (render::name(argument.as_bytes()))
            }
        }
    }
}

/// Returns the depth and the index of each record, in an order in which every record follows its parent. Not recursive, since a tree may be
/// a thousand levels deep.
fn in_order(records: &[RecordView]) -> Vec<(usize, usize)> {
    let there: BTreeSet<ProcessId> = records.iter().map(|it| it.id).collect();
    let mut below: BTreeMap<Option<ProcessId>, Vec<usize>> = BTreeMap::new();
    for (place, record) in records.iter().enumerate().rev() {
        let parent = record.parent.filter(|it| there.contains(it) && *it != record.id);
        below.entry(parent).or_default().push(place);
    }
    let roots = below.remove(&None).unwrap_or_default();
    let mut open: Vec<(usize, usize)> = roots.into_iter().map(|place| (0, place)).collect();
    let mut order = Vec::with_capacity(records.len());
    while let Some((deep, place)) = open.pop() {
        order.push((deep, place));
        let id = records.get(place).map(|it| it.id);
        let children = below.remove(&id).unwrap_or_default();
        open.extend(children.into_iter().map(|place| (deep + 1, place)));
    }
    order
}
