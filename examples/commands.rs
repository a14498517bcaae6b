//! A program that runs commands and is its own keeper. The keeper is a second process, which starts the commands and waits for them, so
//! that they keep running while the program is restarted, and no exit status is lost.
//!
//! Run it with `cargo run --example commands`.

use sexton::actors::process::{End, Launching, Spec};
use sexton::bytes::Bytes;
use sexton::config::{Config, KeeperProgram};
use sexton::{Node, block_on};
use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

type Failure = Box<dyn Error>;

fn open(data: &Path, keeper: &KeeperProgram) -> Result<Node, Failure> {
    let mut config = Config::at(data);
    config.keeper = keeper.clone();
    Ok(Node::open(config)?)
}

/// Returns the launch of a backup: a script that runs until `directory` contains a file `done`, and exits with status 3.
fn backup(directory: &Path) -> Launching {
    let script = "while [ -d data ] && ! [ -e done ]; do sleep 0.01; done; exit 3";
    let argv = ["sh", "-c", script].map(|word| Bytes::new(word.as_bytes()));
    Launching {
        spec: Spec {
            argv: argv.to_vec(),
            dir: Bytes::new(directory.as_os_str().as_encoded_bytes()),
            ..Spec::default()
        },
        ..Launching::default()
    }
}

/// Runs a backup across a restart of the node. `directory` must exist and be empty.
pub(crate) fn run(
    keeper: &KeeperProgram,
    directory: &Path,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let data = directory.join("data");
    let node = open(&data, keeper)?;
    let processes = node.handle().processes();
    let id = block_on(processes.launch(backup(directory)))?.id;
    let record = block_on(processes.started(id))?;
    writeln!(out, "it is {}", record.phase.name())?;
    node.stop()?; // the program is restarted here, or crashes; the backup keeps running

    fs::write(directory.join("done"), "")?; // the backup may end while no node is open
    let node = open(&data, keeper)?;
    let record = block_on(node.handle().processes().ended(id))?;
    if let Some(End::Code(code)) = record.end {
        writeln!(out, "it ended with exit code {code}")?;
    }
    node.stop()?;
    Ok(())
}

fn main() -> Result<ExitCode, Failure> {
    // With `KeeperProgram::Own`, the node starts this executable a second time, with arguments that the next line recognises, and the
    // second process runs as the keeper. That line must come first: before arguments are parsed, output is printed or a thread is started.
    if let Some(code) = sexton::keeper::run_if_asked() {
        return Ok(code);
    }
    let directory = std::env::temp_dir().join(format!("commands-{}", std::process::id()));
    fs::create_dir(&directory)?;
    let done = run(&KeeperProgram::Own, &directory, &mut std::io::stdout());
    fs::remove_dir_all(&directory)?;
    done.map(|()| ExitCode::SUCCESS)
}
