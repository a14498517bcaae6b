//! Measures the time from the last action of a process until its end is on record. Contains both the program of these processes and the
//! code that launches them and receives the events of their ends.

use crate::coordinator::Coordinator;
use crate::event::{Event, clock, listen};
use crate::failure::Failure;
use crate::figures::Latencies;
use crate::interrupt::Stop;
use crate::load::now;
use crate::pulse::Fifo;
use crate::question::rest;
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// The pause between two successive ends: long enough for each to be on record before the next.
const APART: Duration = Duration::from_millis(4);

/// The maximum time to wait until the ends of all processes are reported.
const PATIENCE: Duration = Duration::from_secs(30);

/// The number of bytes that a process writes at a time: its id (16 bytes) and the time in nanoseconds (8 bytes), which is 0 when the
/// process reports that it is ready to end.
const FRAME: usize = 24;

/// A process that ends on request, and writes the time as its last action. Started by `processes`.
#[derive(Args)]
pub(crate) struct Ending {
    /// A pipe from which the process reads one byte before it ends
    go: PathBuf,
    /// A pipe to which the process writes
    last: PathBuf,
}

impl Ending {
    /// Reports that it is ready, waits for a byte from `go`, writes the time, and returns, so that the process exits.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let own = std::env::var_os("SEXTON_PROCESS_ID").unwrap_or_default();
        let id = parse(&own.to_string_lossy())
            .ok_or_else(|| Failure::new("this process was not launched by a coordinator"))?;
        self.live(id).map_err(Failure::to("end"))
    }

    fn live(&self, id: u128) -> io::Result<()> {
        let mut last = File::options().append(true).open(&self.last)?;
        let mut go = File::open(&self.go)?;
        let mut frame = [0; FRAME];
        frame[..16].copy_from_slice(&id.to_ne_bytes());
        last.write_all(&frame)?;
        go.read_exact(&mut [0])?;
        frame[16..].copy_from_slice(&clock().to_ne_bytes());
        last.write_all(&frame)
    }
}

fn parse(id: &str) -> Option<u128> {
    u128::from_str_radix(&id.replace('-', ""), 16).ok()
}

/// The pipes to the processes, and a subscription to a coordinator's events.
pub(crate) struct Ends<'a> {
    coordinator: &'a Coordinator,
    go: Fifo,
    last: Fifo,
    events: Receiver<Result<Event, Failure>>,
    command: Value,
}

impl<'a> Ends<'a> {
    /// Creates the pipes, and subscribes to the ends of processes from now on.
    pub(crate) fn of(coordinator: &'a Coordinator, folder: &Path) -> Result<Self, Failure> {
        let go = Fifo::create(&folder.join("go"))?;
        let last = Fifo::create(&folder.join("last"))?;
        let own = std::env::current_exe().map_err(Failure::to("find this program"))?;
        let words = [own.as_path(), Path::new("ending"), go.path(), last.path()];
        let command = words.map(|word| word.to_string_lossy().into_owned());
        let events = listen(coordinator, "actor=process&kind=exited")?;
        Ok(Self { coordinator, go, last, events, command: json!({ "command": command }) })
    }

    /// Launches `count` processes, and makes them end, all at once or one after another. Measures for each process the time from its last
    /// action, reading the clock, to the arrival of the event of its end, which is sent once the end is on disk.
    pub(crate) fn measure(
        &mut self,
        count: u32,
        at_once: bool,
        stop: &Stop,
    ) -> Result<Latencies, Failure> {
        self.coordinator.launch(count, &self.command, stop)?;
        for _ in 0..count {
            self.frame()?;
        }
        let bytes = vec![b'!'; usize::try_from(count).unwrap_or(0)];
        if at_once {
            self.go.write(&bytes)?;
        } else {
            for byte in &bytes {
                stop.check()?;
                self.go.write(std::slice::from_ref(byte))?;
                rest(APART);
            }
        }
        let mut began = BTreeMap::new();
        for _ in 0..count {
            let (id, clock) = self.frame()?;
            began.insert(id, clock);
        }
        let mut latencies = Latencies::default();
        let patience = now() + PATIENCE;
        while !began.is_empty() {
            stop.check()?;
            let left = patience.saturating_duration_since(now());
            let heard = self.events.recv_timeout(left);
            let missing = || {
                Failure::new(format!(
                    "number of processes whose end was not reported: {}",
                    began.len()
                ))
            };
            let Event { what, at } = heard.map_err(|_| missing())??;
            let id = what.get("process").and_then(Value::as_str);
            let id = id.and_then(parse);
            let id =
                id.ok_or_else(|| Failure::new(format!("an event has no process id: {what}")))?;
            if let Some(clock) = began.remove(&id) {
                latencies.note(Duration::from_nanos(at.saturating_sub(clock)));
            }
        }
        Ok(latencies)
    }

    fn frame(&mut self) -> Result<(u128, u64), Failure> {
        let mut frame = [0; FRAME];
        self.last.read(&mut frame)?;
        let (id, clock) = frame.split_at(16);
        let id = id.try_into().map(u128::from_ne_bytes);
        let clock = clock.try_into().map(u64::from_ne_bytes);
        Ok((
            id.expect("sixteen bytes were split off"),
            clock.expect("eight bytes are left of twenty-four"),
        ))
    }
}
