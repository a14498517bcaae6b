//! Formats a status as metrics, in the `OpenMetrics` text format that Prometheus reads. All numbers in an answer come from a single status
//! and are consistent, except those of individual queues and of problems. The values of labels come from fixed sets, except for the names of queues, of
//! which at most `QUEUES` are shown, so clients cannot create an unlimited number of series.

use crate::queue_look::PHASES;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use sexton::actors::process::{Phase, ProcessMachine, Status};
use sexton::actors::queue::{Counts, QueueSelection, QueueView, Totals};
use sexton::handle::{QueueError, Queues};
use sexton::ids::Slot;
use sexton::persist::retention::History;
use sexton::persist::snapshots::SlotId;
use sexton::spine::checkpoint::SnapshotStatus;
use sexton::spine::machine::{self, Machine as _};
use sexton::status::{
    ActorReport, BeanstalkStats, HostStatus, HttpStats, JournalStatus, LockserverStats, NodeStatus,
    ProcessStatus,
};
use sexton::trouble::{Kind, Trouble};
use std::sync::atomic::AtomicU64;

pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The maximum number of queues with metrics of their own: those with the most jobs.
const QUEUES: usize = 100;

/// The number of queues requested from the actor at a time.
const ASKED: u32 = 1000;

type Label = [(&'static str, &'static str); 1];
type Whole = Gauge<u64, AtomicU64>;
type Fraction = Gauge<f64, AtomicU64>;

/// Returns the [`QUEUES`] queues with the most jobs, in descending order, or fewer if fewer have any. Examines [`ASKED`] queues at a time,
/// so that other requests are not delayed.
pub(crate) async fn largest(queues: &Queues) -> Result<Vec<QueueView>, QueueError> {
    let mut largest: Vec<QueueView> = Vec::new();
    let mut from = Some(Slot(0));
    while let Some(place) = from {
        let selection = QueueSelection { tenant: None, kind: None, from: place, most: ASKED };
        let (some, next) = queues.select_queues(selection).await?;
        largest.extend(some.into_iter().filter(|queue| queue.jobs.all() > 0));
        largest.sort_by(|one, other| {
            let (jobs, of_other) = (one.jobs.all(), other.jobs.all());
            of_other.cmp(&jobs).then_with(|| one.name.cmp(&other.name))
        });
        largest.truncate(QUEUES);
        from = next;
    }
    Ok(largest)
}

/// Formats the metrics of a status, and the number of problems if they are known. Only the queues in `queues` get metrics of their own.
pub(crate) fn page(
    status: &NodeStatus,
    queues: &[QueueView],
    troubles: Option<&[Trouble]>,
) -> String {
    let mut page = Page(Registry::with_prefix("sexton"));
    page.node(status);
    if let Some(troubles) = troubles {
        page.troubles(troubles);
    }
    page.jobs(&status.queues, queues);
    page.actors(&status.actors);
    let process = status.actors.iter().find(|it| it.status.name == PROCESS);
    page.processes(process.map_or(&[], |it| it.status.gauges.as_slice()));
    page.gauge(
        "processes_unknown",
        "Processes for which it is unknown whether they are alive",
        status.following.unknown.into(),
    );
    page.host(&status.host);
    page.process(&status.process);
    if let Some(journal) = &status.journal {
        page.journal(journal);
    }
    if let Some(snapshots) = &status.snapshots {
        page.snapshots(snapshots);
        page.history(&snapshots.history, status.wall_offset_ms);
    }
    if let Some(stats) = &status.lockserver {
        page.lockserver(stats);
    }
    if let Some(stats) = &status.beanstalk {
        page.beanstalk(stats);
    }
    if let Some(stats) = &status.http {
        page.http(stats);
    }
    let mut text = String::new();
    encode(&mut text, &page.0).expect("writing to memory should not fail");
    text
}

/// The name of the process actor.
const PROCESS: &str = ProcessMachine::NAME;

struct Page(Registry);

impl Page {
    fn node(&mut self, status: &NodeStatus) {
        let build = Info::new([("version", status.version)]);
        self.0.register("build", "Version of the program", build);
        let wall_ms = i128::from(status.now.0) + i128::from(status.wall_offset_ms);
        let start_ms = wall_ms - i128::from(status.uptime_ms);
        let start = seconds(i64::try_from(start_ms).unwrap_or(0));
        self.seconds("start_time", "Start of the process, in seconds since 1970", start);
        let offset = seconds(status.wall_offset_ms);
        self.seconds("wall_clock_offset", "Wall clock minus node time", offset);
        let recovery = seconds(i64::try_from(status.recovered.ms).unwrap_or(i64::MAX));
        self.seconds("recovery_duration", "How long recovery took at startup", recovery);
        self.gauge("recovery_records", "Records replayed at startup", status.recovered.records);
        self.gauge(
            "recovery_after_clean_stop",
            "Whether the previous run of the coordinator stopped cleanly",
            status.recovered.clean.into(),
        );
        self.gauge(
            "open_commands",
            "Commands delivered to actors but not yet answered",
            status.open_commands,
        );
        self.gauge("lock_owners", "Owners of locks", status.lock_owners.into());
        self.gauge("lock_contenders", "Contenders for locks", status.lock_contenders.into());
    }

    /// Writes the number of problems of each kind, including kinds without any, so that an alert on a kind has a series from the start.
    fn troubles(&mut self, troubles: &[Trouble]) {
        let family = Family::<[(&'static str, &'static str); 2], Whole>::default();
        for kind in Kind::ALL {
            let labels = [("kind", kind.name()), ("level", kind.level().name())];
            let number = troubles.iter().filter(|it| it.kind == *kind).count();
            family.get_or_create(&labels).set(number as u64);
        }
        let help = "Problems, by kind and level, as listed by GET /v1/trouble";
        self.0.register("troubles", help, family);
    }

    fn jobs(&mut self, totals: &Totals, queues: &[QueueView]) {
        let phases = by_phase(totals.jobs);
        self.gauges("jobs", "Jobs in all queues, by phase", "phase", &phases);
        let help = "Total size of the bodies, errors and progress reports of all jobs";
        self.bytes("job_bodies", help, Some(totals.bytes));
        let added = "Jobs added since startup, including jobs recovered at startup";
        self.counter("jobs_added", added, totals.added);
        let timeouts = "Claims that expired since startup";
        self.counter("job_timeouts", timeouts, totals.timeouts);
        let deleted = "Jobs that ended since startup, for any reason";
        self.counter("jobs_deleted", deleted, totals.deletes);
        let recycled = "Jobs that became ready again since startup because their claims expired";
        self.counter("jobs_recycled", recycled, totals.recycled);
        let abandoned =
            "Jobs abandoned since startup, because their last try failed or they were cancelled";
        self.counter("jobs_abandoned", abandoned, totals.abandoned);
        let pruned = "Jobs removed since startup at the end of the retention time: abandoned jobs, and jobs claimed without a time limit";
        self.counter("jobs_pruned", pruned, totals.pruned);
        let duplicates =
            "Jobs not added since startup because their deduplication keys were already known";
        self.counter("jobs_duplicate", duplicates, totals.duplicates);
        self.gauge("queues", "Queues that exist", totals.queues.into());
        let waiting = "Requests that are waiting for a job";
        self.gauge("job_waiters", waiting, totals.waiting.into());
        let family = Family::<[(&'static str, String); 2], Whole>::default();
        for queue in queues {
            for (phase, count) in by_phase(queue.jobs) {
                let labels = [("queue", queue.name.to_string()), ("phase", phase.to_owned())];
                family.get_or_create(&labels).set(count);
            }
        }
        let help = "Jobs in the 100 queues with the most jobs, by queue and phase";
        self.0.register("queue_jobs", help, family);
    }

    /// Writes the metrics of processes and services.
    fn processes(&mut self, gauges: &[machine::Gauge]) {
        let of = |name: &str| gauges.iter().find(|it| it.name == name).map_or(0, |it| it.value);
        let phases = Phase::ALL.map(|phase| (phase.name(), of(phase.name())));
        self.gauges("processes", "Process records, by status", "status", &phases);
        let of_services = |status: Status| of(&format!("services_{}", status.name()));
        let statuses = Status::ALL.map(|status| (status.name(), of_services(status)));
        self.gauges("services", "Services, by status", "status", &statuses);
        let since = "since startup, including those replayed from the journal";
        let launches = format!("Process launches {since}");
        self.counter("processes_launched", &launches, of("launches"));
        let failures = format!("Failed process launches {since}");
        self.counter("processes_failed", &failures, of("launch_failures"));
        let restarts = format!("Restarts of service processes {since}");
        self.counter("service_restarts", &restarts, of("service_restarts"));
    }

    fn actors(&mut self, actors: &[ActorReport]) {
        let each = |value: fn(&ActorReport) -> u64| {
            let values = actors.iter().map(move |actor| (actor.status.name, value(actor)));
            values.collect::<Vec<_>>()
        };
        self.counters(
            "actor_restarts",
            "Panics after which an actor continued with its state intact",
            "actor",
            &each(|actor| actor.panics.restarts),
        );
        self.counters(
            "actor_rebuilds",
            "Panics after which an actor was rebuilt from the journal",
            "actor",
            &each(|actor| actor.panics.rebuilds),
        );
        self.gauges(
            "actor_quarantined_items",
            "Items whose timers are disabled because one of them caused a panic",
            "actor",
            &each(|actor| actor.status.quarantined.len() as u64),
        );
        self.gauges(
            "actor_last_seq",
            "Sequence number of an actor's last journal entry",
            "actor",
            &each(|actor| actor.status.last.0),
        );
        let family = Family::<[(&'static str, &'static str); 2], Whole>::default();
        for ActorReport { status, .. } in actors {
            for gauge in &status.gauges {
                let labels = [("actor", status.name), ("what", gauge.name)];
                family.get_or_create(&labels).set(gauge.value);
            }
        }
        let help = "Items in the state of an actor, by kind";
        self.0.register("actor_items", help, family);
    }

    fn host(&mut self, host: &HostStatus) {
        let HostStatus { load, processors, memory_bytes, memory_available_bytes, uptime_ms } =
            *host;
        if let Some(load) = load {
            let family = Family::<Label, Fraction>::default();
            for (minutes, load) in ["1", "5", "15"].into_iter().zip(load) {
                family.get_or_create(&[("minutes", minutes)]).set(load);
            }
            let help = "Load average of the machine";
            self.0.register("host_load", help, family);
        }
        if let Some(processors) = processors {
            let help = "Processors that the process may use";
            self.gauge("host_processors", help, processors as u64);
        }
        self.bytes("host_memory", "Total memory of the machine", memory_bytes);
        let help = "Memory that is available on the machine without swapping";
        self.bytes("host_memory_available", help, memory_available_bytes);
        if let Some(uptime) = uptime_ms.and_then(|ms| i64::try_from(ms).ok()) {
            let help = "Time since the machine started";
            self.seconds("host_uptime", help, seconds(uptime));
        }
    }

    fn process(&mut self, process: &ProcessStatus) {
        let ProcessStatus { memory_bytes, memory_peak_bytes, descriptors, descriptors_max } =
            *process;
        self.bytes("process_memory", "Memory used by the process", memory_bytes);
        let help = "Peak memory usage of the process";
        self.bytes("process_memory_peak", help, memory_peak_bytes);
        if let Some(descriptors) = descriptors {
            let help = "Open descriptors of the process";
            self.gauge("process_descriptors", help, descriptors);
        }
        if let Some(descriptors) = descriptors_max {
            let help = "Descriptors that the process may open";
            self.gauge("process_descriptors_max", help, descriptors);
        }
    }

    fn journal(&mut self, journal: &JournalStatus) {
        let bytes: Counter = Counter::default();
        bytes.inc_by(journal.counts.bytes);
        let help = "Bytes written to the journal";
        self.0.register_with_unit("journal_written", help, Unit::Bytes, bytes);
        self.counter("journal_writes", "Writes to the journal", journal.counts.writes);
        self.counter("journal_syncs", "Syncs of the journal", journal.counts.syncs);
        let help = "Sequence number of the last journal entry whose answer may be sent";
        self.gauge("journal_released_seq", help, journal.released.0);
        let room = ["ample", "low", "scant"].map(|room| (room, u64::from(room == journal.room)));
        self.gauges(
            "journal_room",
            "Level of the disk space left for the journal: 1 for the current level, 0 for the others",
            "room",
            &room,
        );
    }

    fn snapshots(&mut self, snapshots: &SnapshotStatus) {
        let taken = "Checkpoints taken";
        self.counter("checkpoints_taken", taken, snapshots.taken);
        let failed = "Checkpoints that failed";
        self.counter("checkpoints_failed", failed, snapshots.failed);
        let running = "Whether a checkpoint is being taken";
        self.gauge("checkpoint_running", running, snapshots.running.into());
        if let Some(last) = &snapshots.last {
            let took = seconds(i64::try_from(last.ms).unwrap_or(i64::MAX));
            let help = "How long the last checkpoint took";
            self.seconds("checkpoint_duration", help, took);
            let help = "Total size of the files of the last snapshot";
            self.bytes("snapshot_size", help, Some(last.file_bytes));
        }
        let upto = [("a", SlotId::A), ("b", SlotId::B)]
            .map(|(name, slot)| (name, snapshots.slots[slot].map_or(0, |upto| upto.0)));
        let help = "Last sequence number covered by the snapshot in each slot; 0 if the slot has no complete snapshot";
        self.gauges("snapshot_seq", help, "slot", &upto);
    }

    fn history(&mut self, history: &History, wall_offset_ms: i64) {
        let help = "Total size of the journal segments that no snapshot needs, kept as history";
        self.bytes("journal_history", help, Some(history.bytes));
        if let Some(since) = history.since {
            let ms = i128::from(since.0) + i128::from(wall_offset_ms);
            let began = seconds(i64::try_from(ms).unwrap_or(0));
            let help = "Time of the oldest entry in the journal, in seconds since 1970";
            self.seconds("journal_begin_time", help, began);
        }
    }

    fn lockserver(&mut self, stats: &LockserverStats) {
        let commands = [
            ("find_owner", stats.owner_lookups),
            ("request", stats.requests),
            ("find_contender", stats.contender_lookups),
            ("renew", stats.renewals),
            ("release", stats.releases),
            ("release_all", stats.release_alls),
            ("list", stats.dumps),
            ("statistics", stats.statistics),
        ]
        .map(|(command, count)| (command, count.into()));
        let help = "LockServer commands received; counted modulo 2^32, as in the protocol";
        self.counters("lockserver_commands", help, "command", &commands);
        let connections = [
            ("accepted", stats.accepted),
            ("rejected_host", stats.rejected_hosts),
            ("rejected_busy", stats.rejected_busy),
        ];
        let help = "LockServer connections, by outcome";
        self.counters("lockserver_connections", help, "result", &connections);
        let help = "Open LockServer connections";
        self.gauge("lockserver_active_connections", help, stats.active.into());
    }

    fn beanstalk(&mut self, stats: &BeanstalkStats) {
        let BeanstalkStats { accepted, rejected_hosts, rejected_busy, active, ref commands } =
            *stats;
        let commands: Vec<_> = commands.iter().map(|(name, count)| (*name, *count)).collect();
        let help = "beanstalkd commands";
        self.counters("beanstalk_commands", help, "command", &commands);
        let connections = [
            ("accepted", accepted),
            ("rejected_host", rejected_hosts),
            ("rejected_busy", rejected_busy),
        ];
        let help = "beanstalkd connections, by outcome";
        self.counters("beanstalk_connections", help, "result", &connections);
        let help = "Open beanstalkd connections";
        self.gauge("beanstalk_active_connections", help, active.into());
    }

    fn http(&mut self, stats: &HttpStats) {
        let requests =
            [("answered", stats.answered), ("refused", stats.refused), ("failed", stats.failed)];
        let help = "HTTP requests, by outcome";
        self.counters("http_requests", help, "result", &requests);
        let connections = [("accepted", stats.accepted), ("rejected_busy", stats.rejected_busy)];
        let help = "HTTP connections, by outcome";
        self.counters("http_connections", help, "result", &connections);
        let help = "Open HTTP connections";
        self.gauge("http_active_connections", help, stats.active.into());
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        let gauge = Whole::default();
        gauge.set(value);
        self.0.register(name, help, gauge);
    }

    fn bytes(&mut self, name: &str, help: &str, value: Option<u64>) {
        if let Some(value) = value {
            let gauge = Whole::default();
            gauge.set(value);
            self.0.register_with_unit(name, help, Unit::Bytes, gauge);
        }
    }

    fn seconds(&mut self, name: &str, help: &str, value: f64) {
        let gauge = Fraction::default();
        gauge.set(value);
        self.0.register_with_unit(name, help, Unit::Seconds, gauge);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        let counter: Counter = Counter::default();
        counter.inc_by(value);
        self.0.register(name, help, counter);
    }

    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        values: &[(&'static str, u64)],
    ) {
        let family = Family::<Label, Whole>::default();
        for (value, number) in values {
            family.get_or_create(&[(label, *value)]).set(*number);
        }
        self.0.register(name, help, family);
    }

    fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        values: &[(&'static str, u64)],
    ) {
        let family = Family::<Label, Counter>::default();
        for (value, number) in values {
            family.get_or_create(&[(label, *value)]).inc_by(*number);
        }
        self.0.register(name, help, family);
    }
}

fn by_phase(jobs: Counts) -> [(&'static str, u64); 7] {
    PHASES.map(|(word, phase)| (word, jobs.of(phase).into()))
}

#[expect(clippy::cast_precision_loss, reason = "2^53 ms are 285,000 years")]
fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}
