//! The `sexton` program: reads flags and environment, and calls the library. One file a subcommand.

mod allocator;
mod backup;
mod beanstalkd;
mod checkpoint;
mod client;
mod clock;
mod directory;
mod drain;
mod events;
mod import;
mod inspect;
mod isolated;
mod job;
mod keeper;
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
mod text;
mod top;
mod words;
mod work;
mod worker;

use crate::report::Failure;
use clap::{CommandFactory as _, Parser, Subcommand};

/// Keeps an application's background work in order: locks, job queues and processes that survive any crash, in
/// one small process.
#[derive(Parser)]
#[command(name = "sexton", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Backup(backup::Backup),
    Beanstalkd(beanstalkd::Beanstalkd),
    Checkpoint(checkpoint::Checkpoint),
    Completions(manual::Completions),
    Config(Box<settings::ShowConfig>),
    ConfirmClock(clock::ConfirmClock),
    Drain(drain::Drain),
    Events(events::Events),
    Import(import::Import),
    Inspect(inspect::Inspect),
    Keeper(keeper::Keeper),
    Job(job::Job),
    KeepScratch(scratch::KeepScratch),
    Kill(process::Kill),
    Lease(Box<lease::Lease>),
    Lock(Box<lock::Lock>),
    Logs(process::Logs),
    Man(manual::Manual),
    Ps(Box<process::Ps>),
    Queue(Box<queue::Queue>),
    ReadStore(isolated::ReadStore),
    Recover(recover::Recover),
    Register(process::Register),
    Replay(replay::Replaying),
    Run(Box<process::Run>),
    Serve(Box<serve::Serve>),
    Service(process::Service),
    Status(status::Status),
    Top(top::Top),
    Wait(process::WaitFor),
    Work(Box<work::Work>),
    Worker(worker::Worker),
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
        Command::Serve(serve) => serve.run(),
        Command::Status(status) => status.run(),
        Command::Backup(backup) => backup.run(),
        Command::Beanstalkd(beanstalkd) => beanstalkd.run(),
        Command::Checkpoint(checkpoint) => checkpoint.run(),
        Command::Completions(completions) => completions.run(Arguments::command()),
        Command::Config(config) => config.run(),
        Command::ConfirmClock(confirm) => confirm.run(),
        Command::Drain(drain) => drain.run(),
        Command::Events(events) => events.run(),
        Command::Import(import) => import.run(),
        Command::Job(job) => job.run(),
        Command::Keeper(keeper) => keeper.run(),
        Command::Kill(kill) => kill.run(),
        Command::Lease(lease) => lease.run(),
        Command::Lock(lock) => lock.run(),
        Command::Logs(logs) => logs.run(),
        Command::Man(manual) => manual.run(Arguments::command()),
        Command::Ps(ps) => ps.run(),
        Command::Queue(queue) => queue.run(),
        Command::Register(register) => register.run(),
        Command::Run(run) => run.run(),
        Command::Service(service) => service.run(),
        Command::Inspect(inspect) => Failure::of_panics(|| inspect.run()),
        Command::ReadStore(read) => read.run(),
        Command::Recover(recover) => Failure::of_panics(|| recover.run()),
        Command::KeepScratch(keep) => keep.run(),
        Command::Replay(replay) => Failure::of_panics(|| replay.run()),
        Command::Top(top) => top.run(),
        Command::Wait(wait) => wait.run(),
        Command::Work(work) => work.run(),
        Command::Worker(worker) => worker.run(),
    })
}
