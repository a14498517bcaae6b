//! `sexton-bench`: measures sexton, compared with other servers where they are installed. It prints figures and does
//! not judge them. It starts its own servers in its own directories, and never touches a running coordinator.
//!
//! `locks` measures locks over TCP beside Redis, `queue` jobs beside beanstalkd and Redis, `backlog` very many waiting jobs,
//! `http` locks over HTTP beside etcd, `embed` an embedded node, `recovery` a large table of locks and its recovery,
//! `bindings` locks that end with processes (`passing`), `work` jobs and their workers (`workers`), `dispatch` tasks and their recovery
//! (`modes`, `bed`, `failing`), `churn` the disk space and memory used after many changes, `page` the web page (`pages` has its viewers),
//! and `replay` how fast a start reads the log.
//! `row` and `table` define what is measured, `site` finds the program and the directory for data, `course` has rounds and durations,
//! `codec` and `gateway` implement each server's protocol, `load` drives connections, `cycle`, `contend`, `held` and `job` are
//! clients, `peer` starts servers, `fdatasync` measures a sync, `question` polls servers during the load,
//! `figures` turns measurements into what `output` prints, and `interrupt` handles Ctrl-C.

mod backlog;
mod bed;
mod bindings;
mod chance;
mod churn;
mod codec;
mod contend;
mod coordinator;
mod course;
mod cycle;
mod dispatch;
mod embed;
mod embed_jobs;
mod ending;
mod failing;
mod failure;
mod fair;
mod fdatasync;
mod figures;
mod gateway;
mod happening;
mod held;
mod http;
mod interrupt;
mod job;
mod limits;
mod load;
mod locks;
mod modes;
mod output;
mod page;
mod pages;
mod passing;
mod peer;
mod processes;
mod pulse;
mod question;
mod queue;
mod rebuild;
mod recovery;
mod replay;
mod restarts;
mod row;
mod site;
mod table;
mod work;
mod workers;

use clap::Parser;
use failure::Failure;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The same allocator as in the program `sexton`, for the nodes that this program embeds and measures.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure how fast sexton is on this machine, compared with Redis, beanstalkd and etcd where they are installed.
///
/// Each measurement starts its own servers on loopback, with data directories that are removed afterwards. Figures vary between runs with
/// other work on the machine, so compare the ratios within one run.
#[derive(Parser)]
#[command(name = "sexton-bench", version, max_term_width = 100)]
#[command(after_help = "Examples:
  cargo run --release -p sexton-bench -- locks   every row, five rounds, about four minutes
  sexton-bench locks --rows memory:1x1,fsync:50x1 --rounds 9
  sexton-bench locks --dir /var/tmp --json       data on that file system; figures as JSON
  sexton-bench locks --sexton target/dist/sexton another build of the program
  sexton-bench recovery                          a million locks: memory, restarts, checkpoints
  sexton-bench churn                             ten million changes: disk and memory
  sexton-bench embed                             a node inside the program
  sexton-bench http                              locks over HTTP, beside etcd
  sexton-bench queue                             jobs over TCP, beside beanstalkd and Redis
  sexton-bench backlog                           a million waiting jobs: memory, cycles, restarts
  sexton-bench processes                         services, launches, ends, beside supervisord and runit
  sexton-bench bindings                          locks that end with processes, and `lock run`
  sexton-bench dispatch                          tasks: recovery from each failure mode of Wip, and their cost
  sexton-bench work                              jobs under `sexton work`, beside RQ and greenstalk
  sexton-bench page                              past moments of a long journal, open pages, views beside locks
  sexton-bench replay --entries 1000000          how fast a start reads the log

See docs/benchmarks.md for what each row does and how to read the results.")]
enum Measure {
    Backlog(backlog::Backlog),
    Bindings(bindings::Bindings),
    Churn(churn::Churn),
    Dispatch(dispatch::Dispatch),
    Embed(embed::Embed),
    /// The process that `processes` launches.
    #[command(hide = true)]
    Ending(ending::Ending),
    /// The command that the tasks of `dispatch` run.
    #[command(hide = true)]
    Failing(failing::Failing),
    Http(http::Http),
    Locks(locks::Locks),
    Page(page::Page),
    Processes(processes::Processes),
    Queue(queue::Queue),
    Recovery(recovery::Recovery),
    Replay(replay::Replay),
    Work(work::Work),
}

fn main() -> Result<(), Failure> {
    let measure = Measure::parse();
    if let Measure::Ending(ending) = measure {
        return ending.run();
    }
    if let Measure::Failing(failing) = measure {
        return failing.run();
    }
    raise_descriptor_limit()?;
    interrupt::watched(move |stop| match measure {
        Measure::Backlog(backlog) => backlog.run(stop),
        Measure::Bindings(bindings) => bindings.run(stop),
        Measure::Churn(churn) => churn.run(stop),
        Measure::Embed(embed) => embed.run(stop),
        Measure::Dispatch(dispatch) => dispatch.run(stop),
        Measure::Ending(ending) => ending.run(),
        Measure::Failing(failing) => failing.run(),
        Measure::Http(http) => http.run(stop),
        Measure::Locks(locks) => locks.run(stop),
        Measure::Page(page) => page.run(stop),
        Measure::Processes(processes) => processes.run(stop),
        Measure::Queue(queue) => queue.run(stop),
        Measure::Recovery(recovery) => recovery.run(stop),
        Measure::Replay(replay) => replay.run(stop),
        Measure::Work(work) => work.run(stop),
    })
}

/// Raises the limit on file descriptors: a measurement opens thousands of connections.
fn raise_descriptor_limit() -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).map_err(Failure::to("raise the limit of descriptors"))
}
