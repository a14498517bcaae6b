//! The `sexton` program: reads flags and environment, and calls the library. Each subcommand has a file or a folder.

mod allocator;
mod audit;
mod backup;
mod beanstalkd;
mod checkpoint;
mod client;
mod clock;
mod directory;
mod drain;
mod events;
#[cfg(test)]
mod examples;
mod figure;
mod import;
mod inspect;
mod isolated;
mod job;
mod keeper;
mod lazy_args;
mod lease;
mod lock;
mod log;
mod manual;
mod notify;
mod numbers;
mod process;
mod progress;
mod protocols;
mod queue;
mod recover;
mod replay;
mod report;
mod scratch;
mod serve;
mod settings;
mod signals;
mod size;
mod sockets;
mod span;
mod status;
mod system;
mod table;
mod task;
mod text;
mod top;
mod within;
mod words;
mod work;
mod worker;
mod wrapper;

use crate::lazy_args::LazyArgs;
use crate::report::Failure;
use clap::{CommandFactory as _, Parser, Subcommand};

/// Locks, job queues, services and scheduled work for one machine, kept through any crash.
///
/// sexton is a server for the programs of one Linux machine that need to take locks, hand each other jobs, or keep processes
/// running: it does the work of lock files, a job queue, a process supervisor and a crontab. What it acknowledges is on disk
/// before the answer is sent. It is not a cluster: nothing is replicated, and it runs on Linux only.
///
/// Start with `sexton serve`. It runs the server, which the help calls the coordinator; most other commands send it requests.
/// `sexton COMMAND --help` shows examples and exit statuses.
#[derive(Parser)]
#[command(name = "sexton", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Audit(LazyArgs<audit::Audit>),
    Backup(LazyArgs<backup::Backup>),
    Beanstalkd(LazyArgs<beanstalkd::Beanstalkd>),
    Checkpoint(LazyArgs<checkpoint::Checkpoint>),
    Completions(LazyArgs<manual::Completions>),
    Config(LazyArgs<Box<settings::ShowConfig>>),
    ConfirmClock(LazyArgs<clock::Confirm>),
    Drain(LazyArgs<drain::Drain>),
    Events(LazyArgs<events::Events>),
    Import(LazyArgs<import::Import>),
    Inspect(LazyArgs<inspect::Inspect>),
    Keeper(LazyArgs<keeper::Keeper>),
    Job(LazyArgs<job::Job>),
    KeepScratch(LazyArgs<scratch::KeepScratch>),
    Kill(LazyArgs<process::Kill>),
    Lease(LazyArgs<Box<lease::Lease>>),
    Lock(LazyArgs<Box<lock::Lock>>),
    Logs(LazyArgs<process::Logs>),
    Man(LazyArgs<manual::Manual>),
    Ps(LazyArgs<Box<process::Ps>>),
    Queue(LazyArgs<Box<queue::Queue>>),
    ReadStore(LazyArgs<isolated::ReadStore>),
    Recover(LazyArgs<recover::Recover>),
    Register(LazyArgs<process::Register>),
    Replay(LazyArgs<replay::Replaying>),
    Run(LazyArgs<Box<process::Run>>),
    Serve(LazyArgs<Box<serve::Serve>>),
    Server(LazyArgs<task::Server>),
    Service(LazyArgs<process::Service>),
    Start(LazyArgs<process::Start>),
    Status(LazyArgs<status::Status>),
    Task(LazyArgs<Box<task::Task>>),
    Top(LazyArgs<top::Top>),
    Wait(LazyArgs<process::WaitFor>),
    Work(LazyArgs<Box<work::Work>>),
    Worker(LazyArgs<worker::Worker>),
    Wrapper(LazyArgs<wrapper::Wrapper>),
}

fn main() -> std::process::ExitCode {
    // It is dropped last, also if this thread panics.
    let _flush = log::FlushAtEnd;
    allocator::configure();
    #[cfg(target_os = "linux")]
    sexton::kernel::signals::obey_sent_faults();
    if let Some(words) = beanstalkd::invoked_as_beanstalkd() {
        return report::end(beanstalkd::run(words));
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return report::end(report::command_line(&error)),
    };
    report::end(match arguments.command {
        Command::Serve(LazyArgs(serve)) => serve.run(),
        Command::Status(LazyArgs(status)) => status.run(),
        Command::Audit(LazyArgs(audit)) => audit.run(),
        Command::Backup(LazyArgs(backup)) => backup.run(),
        Command::Beanstalkd(LazyArgs(beanstalkd)) => beanstalkd.run(),
        Command::Checkpoint(LazyArgs(checkpoint)) => checkpoint.run(),
        Command::Completions(LazyArgs(completions)) => completions.run(Arguments::command()),
        Command::Config(LazyArgs(config)) => config.run(),
        Command::ConfirmClock(LazyArgs(confirm)) => confirm.run(),
        Command::Drain(LazyArgs(drain)) => drain.run(),
        Command::Events(LazyArgs(events)) => events.run(),
        Command::Import(LazyArgs(import)) => import.run(),
        Command::Job(LazyArgs(job)) => job.run(),
        Command::Keeper(LazyArgs(keeper)) => keeper.run(),
        Command::Kill(LazyArgs(kill)) => kill.run(),
        Command::Lease(LazyArgs(lease)) => lease.run(),
        Command::Lock(LazyArgs(lock)) => lock.run(),
        Command::Logs(LazyArgs(logs)) => logs.run(),
        Command::Man(LazyArgs(manual)) => manual.run(Arguments::command()),
        Command::Ps(LazyArgs(ps)) => ps.run(),
        Command::Queue(LazyArgs(queue)) => queue.run(),
        Command::Register(LazyArgs(register)) => register.run(),
        Command::Run(LazyArgs(run)) => run.run(),
        Command::Server(LazyArgs(server)) => server.run(),
        Command::Service(LazyArgs(service)) => service.run(),
        Command::Start(LazyArgs(start)) => start.run(),
        Command::Inspect(LazyArgs(inspect)) => Failure::of_panics(|| inspect.run()),
        Command::ReadStore(LazyArgs(read)) => read.run(),
        Command::Recover(LazyArgs(recover)) => Failure::of_panics(|| recover.run()),
        Command::KeepScratch(LazyArgs(keep)) => keep.run(),
        Command::Replay(LazyArgs(replay)) => Failure::of_panics(|| replay.run()),
        Command::Task(LazyArgs(task)) => task.run(),
        Command::Top(LazyArgs(top)) => top.run(),
        Command::Wait(LazyArgs(wait)) => wait.run(),
        Command::Work(LazyArgs(work)) => work.run(),
        Command::Worker(LazyArgs(worker)) => worker.run(),
        Command::Wrapper(LazyArgs(wrapper)) => wrapper.run(),
    })
}
