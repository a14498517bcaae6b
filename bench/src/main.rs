//! `sexton-bench`: measures sexton, beside what people use today where that is installed. It prints figures and asserts
//! none; it starts its own servers in directories of its own, and never touches a running coordinator.
//!
//! `locks` measures locks over TCP beside Redis, `queue` jobs beside beanstalkd and Redis, `backlog` very many jobs that
//! wait, `http` locks over HTTP beside etcd, `embed` inside the program, `recovery` a large table of them and how it
//! comes back, `bindings` locks that end with processes (`passing`), `work` jobs and who works on them (`workers`), `dispatch` tasks and how they recover (`modes`, `bed`, `failing`), `churn` what many changes leave on disk and in memory,
//! `page` the page (`pages`: who looks at it), `replay` how fast a start reads the log. `row` and
//! `table` name what is measured, `site` finds the program and the place for data, `course` has how often and how long,
//! `codec` and `gateway` speak to each server, `load` drives connections, `cycle`, `contend`, `held` and `job` are what
//! a client does, `peer` starts servers, `fdatasync` says what a sync costs, `question` asks them beside the load,
//! `figures` turns measurements into what `output` prints, `interrupt` ends it all in good order.

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

/// That of the program `sexton`, for the nodes that are measured inside this one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure how fast sexton is on this machine, beside Redis, beanstalkd and etcd where they are installed.
///
/// Each measurement starts servers of its own on loopback, with data directories that are removed afterwards. Figures
/// of different runs differ with the machine's other work: compare the ratios within one run.
#[derive(Parser)]
#[command(name = "sexton-bench", version, max_term_width = 100)]
#[command(after_help = "Examples:
  cargo run --release -p sexton-bench -- locks   every row, five rounds, about four minutes
  sexton-bench locks --rows memory:1x1,fsync:50x1 --rounds 9
  sexton-bench locks --dir /var/tmp --json       data on that file system; figures for programs
  sexton-bench locks --sexton target/dist/sexton another build of the program
  sexton-bench recovery                          a million locks: memory, restarts, checkpoints
  sexton-bench churn                             ten million changes: disk and memory
  sexton-bench embed                             a node inside the program
  sexton-bench http                              locks over HTTP, beside etcd
  sexton-bench queue                             jobs over TCP, beside beanstalkd and Redis
  sexton-bench backlog                           a million waiting jobs: memory, cycles, restarts
  sexton-bench processes                         services, launches, ends, beside supervisord and runit
  sexton-bench bindings                          locks that end with processes, and `lock run`
  sexton-bench dispatch                          tasks: recovery from each failure mode of Wip, and what they cost
  sexton-bench work                              jobs under `sexton work`, beside RQ and greenstalk
  sexton-bench page                              moments of a long journal, open pages, views beside locks
  sexton-bench replay --entries 1000000          how fast a start reads the log

docs/benchmarks.md says what each row does and how to read it.")]
enum Measure {
    Backlog(backlog::Backlog),
    Bindings(bindings::Bindings),
    Churn(churn::Churn),
    Dispatch(dispatch::Dispatch),
    Embed(embed::Embed),
    /// What `processes` launches.
    #[command(hide = true)]
    Ending(ending::Ending),
    /// What `dispatch` has tasks run.
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

/// A connection is a descriptor, and a measurement has thousands.
fn raise_descriptor_limit() -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).map_err(Failure::to("raise the limit of descriptors"))
}
