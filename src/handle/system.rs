//! Facts that the operating system reports about the host and this process.
//!
//! Files below `/proc` are usually read in microseconds, but some may be on a user-space file system that hangs. They are therefore read on
//! a separate thread. At most one such thread runs at a time, and all callers that wait for it get the same reading. It is not an error if
//! a fact cannot be read: the fact is then missing from the reading.

use crate::spine::guard::guard;
use crate::status::{HostStatus, ProcessStatus};
use crate::thread;
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Facts read at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    pub(super) host: HostStatus,
    pub(super) process: ProcessStatus,
}

/// A reader of the facts, shared by all callers.
#[derive(Clone, Debug, Default)]
pub(crate) struct System(Arc<Mutex<Readers>>);

#[derive(Debug, Default)]
struct Readers {
    /// Whether a thread is reading now.
    reading: bool,
    waiting: Vec<oneshot::Sender<Reading>>,
}

impl System {
    /// Reads the current facts. Nothing is read before the first poll.
    pub(super) async fn read(&self) -> Reading {
        self.ask(read).await
    }

    async fn ask(&self, read: impl FnOnce() -> Reading + Send + 'static) -> Reading {
        let (answer, reading) = oneshot::channel();
        let is_first = {
            let mut readers = self.readers();
            readers.waiting.retain(|waiting| !waiting.is_closed());
            readers.waiting.push(answer);
            !std::mem::replace(&mut readers.reading, true)
        };
        if is_first {
            let system = self.clone();
            let started = thread::start("sexton-system", read, move |read| {
                system.answer(&read.unwrap_or_default());
            });
            if started.is_err() {
                self.answer(&Reading::default());
            }
        }
        reading.await.unwrap_or_default()
    }

    fn answer(&self, reading: &Reading) {
        let mut readers = self.readers();
        readers.reading = false;
        for waiting in readers.waiting.drain(..) {
            // The caller may no longer be waiting.
            drop(waiting.send(reading.clone()));
        }
    }

    fn readers(&self) -> MutexGuard<'_, Readers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read() -> Reading {
    Reading { host: host(), process: process() }
}

/// Returns the facts about the machine. Each psutil call has its own panic guard, because `virtual_memory` subtracts values that may be
/// inconsistent in containers.
#[cfg(target_os = "linux")]
fn host() -> HostStatus {
    let load = guard(psutil::host::loadavg).ok().and_then(Result::ok);
    let memory = guard(psutil::memory::virtual_memory).ok().and_then(Result::ok);
    let uptime = guard(psutil::host::uptime).ok().and_then(Result::ok);
    HostStatus {
        load: load.map(|load| [load.one, load.five, load.fifteen]),
        processors: std::thread::available_parallelism().ok().map(Into::into),
        memory_bytes: memory.as_ref().map(psutil::memory::VirtualMemory::total),
        memory_available_bytes: memory.map(|memory| memory.available()),
        uptime_ms: uptime.and_then(|uptime| u64::try_from(uptime.as_millis()).ok()),
    }
}

/// Returns a status without facts, because psutil reads the load average on Linux only.
#[cfg(not(target_os = "linux"))]
fn host() -> HostStatus {
    HostStatus::default()
}

fn process() -> ProcessStatus {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ProcessStatus {
        memory_bytes: kibibytes(&status, "VmRSS:"),
        memory_peak_bytes: kibibytes(&status, "VmHWM:"),
        descriptors: descriptors(),
        descriptors_max: getrlimit(Resource::Nofile).current,
    }
}

/// Returns the size with this name from `/proc/self/status`, in bytes; `None` if it is missing or not in kB.
fn kibibytes(status: &str, name: &str) -> Option<u64> {
    let size = status.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = size.trim().strip_suffix(" kB")?.parse().ok()?;
    number.checked_mul(1024)
}

/// Returns the number of open descriptors, or `None` if it cannot be read. Linux 6.2 and later report it as the size of the directory; on
/// older kernels they are counted.
fn descriptors() -> Option<u64> {
    let folder = "/proc/self/fd";
    match fs::metadata(folder).ok()?.len() {
        // The descriptor used to read the directory is not counted.
        0 => (fs::read_dir(folder).ok()?.count() as u64).checked_sub(1),
        count => Some(count),
    }
}

#[cfg(test)]
mod tests {
    use super::{Reading, System, kibibytes, read};
    use crate::block_on::block_on;
    use crate::status::{HostStatus, ProcessStatus};
    use std::sync::mpsc::channel;

    #[test]
    fn facts_are_those_of_the_kernel() {
        let Reading { host, process } = block_on(System::default().read());
        assert!(host.load.is_some_and(|load| load.iter().all(|it| *it >= 0.0)));
        assert!(host.processors > Some(0) && host.uptime_ms > Some(0));
        assert!(host.memory_bytes > host.memory_available_bytes);
        assert!(process.memory_bytes > Some(1 << 20), "{process:?}");
        assert!(process.memory_peak_bytes >= process.memory_bytes);
        assert!(process.descriptors > Some(2) && process.descriptors <= process.descriptors_max);
        let status = "VmHWM:\t    5184 kB\nVmRSS:\t  17 kB\nVmOdd:\t 3 MB\n";
        assert_eq!(kibibytes(status, "VmRSS:"), Some(17 << 10));
        assert_eq!(kibibytes(status, "VmOdd:"), None);
        assert_eq!(kibibytes(status, "VmData:"), None);
    }

    #[test]
    fn one_thread_reads_for_all_that_wait_and_none_piles_up() {
        let system = System::default();
        let (began, has_begun) = channel();
        let (let_go, go_on) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let hangs = move || {
                    began.send(()).unwrap();
                    go_on.recv().unwrap()
                };
                block_on(system.ask(hangs))
            });
            has_begun.recv().unwrap();
            let others: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| block_on(system.ask(|| panic!("a second thread reads")))))
                .collect();
            while system.readers().waiting.len() < 4 {
                std::thread::yield_now();
            }
            let descriptors = Some(77);
            let process = ProcessStatus { descriptors, ..ProcessStatus::default() };
            let host = HostStatus::default();
            let_go.send(Reading { host, process }).unwrap();
            for other in others {
                assert_eq!(other.join().unwrap().process.descriptors, descriptors);
            }
        });
        // A panic results in a reading without facts, and the next call reads again.
        let none = block_on(system.ask(|| panic!("planted")));
        assert_eq!(none.process.descriptors, None);
        assert!(block_on(system.ask(read)).process.descriptors.is_some());
    }
}
