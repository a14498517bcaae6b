//! Workers to compare `sexton work` with: RQ workers on Redis, and a greenstalk loop on beanstalkd.

use crate::failure::Failure;
use crate::load::now;
use crate::peer::{Peer, beanstalkd_version, directory, redis_version};
use crate::site::Site;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The default of `--python`.
pub(crate) const PYTHON: &str = "python3";

/// A kind of worker to compare `sexton work` with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loop {
    /// RQ's worker, which forks for each job, on a Redis that syncs each write.
    Rq,
    /// A loop in Python that reserves and deletes each job, on a beanstalkd that syncs each write.
    Greenstalk,
}

/// A Python script that pushes jobs to RQ. Its arguments are the host, the port and the number of jobs.
const RQ_PUSH: &str = "
import sys, redis, rq
queue = rq.Queue('bench', connection=redis.Redis(sys.argv[1], int(sys.argv[2])))
for _ in range(int(sys.argv[3])):
    queue.enqueue('os.getpid', result_ttl=0)
";

/// A Python script that runs an RQ worker until no job is left. Its arguments are the host and the port.
const RQ_WORK: &str = "
import sys, logging, redis, rq
connection = redis.Redis(sys.argv[1], int(sys.argv[2]))
rq.Worker(['bench'], connection=connection).work(burst=True, logging_level=logging.ERROR)
";

const GREENSTALK_PUSH: &str = "
import sys, greenstalk
with greenstalk.Client((sys.argv[1], int(sys.argv[2])), use='bench') as queue:
    for _ in range(int(sys.argv[3])):
        queue.put('x')
";

const GREENSTALK_WORK: &str = "
import sys, greenstalk
with greenstalk.Client((sys.argv[1], int(sys.argv[2])), watch='bench') as queue:
    try:
        while True:
            queue.delete(queue.reserve(timeout=0))
    except greenstalk.TimedOutError:
        pass
";

/// Checks that the server and the Python modules for a loop are installed; if not, returns the reason.
pub(crate) fn installed(which: Loop, python: &str) -> Result<(), String> {
    let (version, modules) = match which {
        Loop::Rq => (redis_version(), "import rq, redis"),
        Loop::Greenstalk => (beanstalkd_version(), "import greenstalk"),
    };
    version?;
    let mut command = Command::new(python);
    command.args(["-c", modules]).stderr(Stdio::null());
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(format!("`{python} -c '{modules}'` failed")),
    }
}

impl Loop {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rq => "rq",
            Self::Greenstalk => "greenstalk",
        }
    }

    /// Pushes jobs, runs workers until all workers have exited, and returns how long the workers ran.
    pub(crate) fn measure(
        self,
        python: &str,
        (workers, jobs): (u32, u32),
        site: &Site,
    ) -> Result<Duration, Failure> {
        // The server runs until `peer` is dropped at the end of this function.
        let (peer, [push, work]) = match self {
            Self::Rq => (Peer::redis_lists(true, site)?, [RQ_PUSH, RQ_WORK]),
            Self::Greenstalk => (Peer::beanstalkd(true, site)?, [GREENSTALK_PUSH, GREENSTALK_WORK]),
        };
        let folder = directory(&site.root())?;
        let run = |script: &str, more: Option<u32>| {
            let mut command = Command::new(python);
            command.args(["-c", script]).args(place(peer.address));
            command.args(more.map(|more| more.to_string()));
            command.current_dir(folder.path()).stdin(Stdio::null());
            let command = command.stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().map_err(Failure::to("run Python"))
        };
        let ended = |mut child: std::process::Child| {
            let status = child.wait().map_err(Failure::to("wait for Python"))?;
            let words = || Failure::new(format!("{}: Python ended with {status}", self.name()));
            status.success().then_some(()).ok_or_else(words)
        };
        ended(run(push, Some(jobs))?)?;
        let began = now();
        let running = (0..workers).map(|_| run(work, None));
        let running = running.collect::<Result<Vec<_>, _>>()?;
        running.into_iter().try_for_each(ended)?;
        Ok(now() - began)
    }
}

fn place(address: SocketAddr) -> [String; 2] {
    [address.ip().to_string(), address.port().to_string()]
}
