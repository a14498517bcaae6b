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
mod import;
mod inspect;
mod isolated;
mod job;
mod keeper;
mod lazily;
mod lease;
mod lock;
mod log;
mod manual;
mod notify;
mod process;
mod progress;
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
mod words;
mod work;
mod worker;
mod wrapper;

use crate::lazily::Lazily;
use crate::report::Failure;
use clap::{CommandFactory as _, Parser, Subcommand};

/// Locks, job queues, services and scheduled work for one machine, kept through any crash.
///
/// sexton is a server for the programs of one Linux machine that need to take locks, hand each other jobs, or keep processes
/// running: it does the work of lock files, a job queue, a process supervisor and a crontab. What it acknowledges is on disk
/// first. It is not a cluster: nothing is replicated, and it runs on Linux only.
///
/// Start with `sexton serve`. It runs the server, which the help calls the coordinator; most other commands ask a running one.
/// `sexton COMMAND --help` shows examples and exit statuses.
#[derive(Parser)]
#[command(name = "sexton", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Audit(Lazily<audit::Audit>),
    Backup(Lazily<backup::Backup>),
    Beanstalkd(Lazily<beanstalkd::Beanstalkd>),
    Checkpoint(Lazily<checkpoint::Checkpoint>),
    Completions(Lazily<manual::Completions>),
    Config(Lazily<Box<settings::ShowConfig>>),
    ConfirmClock(Lazily<clock::ConfirmClock>),
    Drain(Lazily<drain::Drain>),
    Events(Lazily<events::Events>),
    Import(Lazily<import::Import>),
    Inspect(Lazily<inspect::Inspect>),
    Keeper(Lazily<keeper::Keeper>),
    Job(Lazily<job::Job>),
    KeepScratch(Lazily<scratch::KeepScratch>),
    Kill(Lazily<process::Kill>),
    Lease(Lazily<Box<lease::Lease>>),
    Lock(Lazily<Box<lock::Lock>>),
    Logs(Lazily<process::Logs>),
    Man(Lazily<manual::Manual>),
    Ps(Lazily<Box<process::Ps>>),
    Queue(Lazily<Box<queue::Queue>>),
    ReadStore(Lazily<isolated::ReadStore>),
    Recover(Lazily<recover::Recover>),
    Register(Lazily<process::Register>),
    Replay(Lazily<replay::Replaying>),
    Run(Lazily<Box<process::Run>>),
    Serve(Lazily<Box<serve::Serve>>),
    Server(Lazily<task::Server>),
    Service(Lazily<process::Service>),
    Status(Lazily<status::Status>),
    Task(Lazily<Box<task::Task>>),
    Top(Lazily<top::Top>),
    Wait(Lazily<process::WaitFor>),
    Work(Lazily<Box<work::Work>>),
    Worker(Lazily<worker::Worker>),
    Wrapper(Lazily<wrapper::Wrapper>),
}

fn main() -> std::process::ExitCode {
    allocator::configure();
    if let Some(words) = beanstalkd::called_so() {
        return report::end(beanstalkd::run(words));
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return report::end(report::command_line(&error)),
    };
    report::end(match arguments.command {
        Command::Serve(Lazily(serve)) => serve.run(),
        Command::Status(Lazily(status)) => status.run(),
        Command::Audit(Lazily(audit)) => audit.run(),
        Command::Backup(Lazily(backup)) => backup.run(),
        Command::Beanstalkd(Lazily(beanstalkd)) => beanstalkd.run(),
        Command::Checkpoint(Lazily(checkpoint)) => checkpoint.run(),
        Command::Completions(Lazily(completions)) => completions.run(Arguments::command()),
        Command::Config(Lazily(config)) => config.run(),
        Command::ConfirmClock(Lazily(confirm)) => confirm.run(),
        Command::Drain(Lazily(drain)) => drain.run(),
        Command::Events(Lazily(events)) => events.run(),
        Command::Import(Lazily(import)) => import.run(),
        Command::Job(Lazily(job)) => job.run(),
        Command::Keeper(Lazily(keeper)) => keeper.run(),
        Command::Kill(Lazily(kill)) => kill.run(),
        Command::Lease(Lazily(lease)) => lease.run(),
        Command::Lock(Lazily(lock)) => lock.run(),
        Command::Logs(Lazily(logs)) => logs.run(),
        Command::Man(Lazily(manual)) => manual.run(Arguments::command()),
        Command::Ps(Lazily(ps)) => ps.run(),
        Command::Queue(Lazily(queue)) => queue.run(),
        Command::Register(Lazily(register)) => register.run(),
        Command::Run(Lazily(run)) => run.run(),
        Command::Server(Lazily(server)) => server.run(),
        Command::Service(Lazily(service)) => service.run(),
        Command::Inspect(Lazily(inspect)) => Failure::of_panics(|| inspect.run()),
        Command::ReadStore(Lazily(read)) => read.run(),
        Command::Recover(Lazily(recover)) => Failure::of_panics(|| recover.run()),
        Command::KeepScratch(Lazily(keep)) => keep.run(),
        Command::Replay(Lazily(replay)) => Failure::of_panics(|| replay.run()),
        Command::Task(Lazily(task)) => task.run(),
        Command::Top(Lazily(top)) => top.run(),
        Command::Wait(Lazily(wait)) => wait.run(),
        Command::Work(Lazily(work)) => work.run(),
        Command::Worker(Lazily(worker)) => worker.run(),
        Command::Wrapper(Lazily(wrapper)) => wrapper.run(),
    })
}
