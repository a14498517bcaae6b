//! The thread of the port: waits for actions, for the keeper and for ends of processes, all at once.

use crate::actors::process::{Action, Failure, Message, ProcessMachine};
use crate::bytes::Bytes;
use crate::ids::{ProcessId, Seq};
use crate::ports::process::follower::Follower;
use crate::ports::process::real::{KEEPER, Place, Real};
use crate::ports::process::world::World as _;
use crate::ports::process::{files, link};
use crate::spine::effect;
use crate::spine::port::Port;
use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

/// What epoll says of what is asked of the thread.
const ASKED: u64 = 0;

/// The most that is taken from epoll at once.
const EVENTS: usize = 64;

/// What the thread is asked.
enum Asked {
    Perform(Seq, Box<Action>),
    Join(Box<dyn FnOnce(Result<(), Failure>) + Send>),
    End,
}

/// Tells the actor; another one for each who tells it.
type Reporter = dyn Fn() -> Box<dyn FnMut(Message) + Send> + Send + Sync;

/// The thread, from when there is something to do.
struct Started {
    asks: Sender<Asked>,
    wake: OwnedFd,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    place: Place,
    /// From when there is an actor to tell.
    reporter: OnceLock<Box<Reporter>>,
    started: OnceLock<Option<Arc<Started>>>,
}

/// Asks the thread of the port. Cloning gives another handle.
#[derive(Clone)]
pub struct Keeping(Arc<Shared>);

impl Keeping {
    /// A port at this place, whose thread begins with the first thing to do.
    pub fn new(place: Place) -> Self {
        Self(Arc::new(Shared {
            place,
            reporter: OnceLock::new(),
            started: OnceLock::new(),
        }))
    }

    /// Has a keeper run, and says whether one does.
    pub fn join(&self, answer: impl FnOnce(Result<(), Failure>) + Send + 'static) {
        self.ask(Asked::Join(Box::new(answer)));
    }

    /// Where the keeper listens, if there can be one.
    pub fn socket(&self) -> Option<PathBuf> {
        let data = self.0.place.data.as_ref()?;
        Some(data.join(crate::keeper::SOCKET))
    }

    /// The directory of a process that is launched.
    pub fn run_dir(&self, id: ProcessId, own: Option<&Bytes>) -> Option<PathBuf> {
        Some(files::run_dir(self.0.place.data.as_ref()?, id, own))
    }

    fn ask(&self, asked: Asked) {
        let Some(reporter) = self.0.reporter.get() else {
            return asked.refuse(&mut |_| {});
        };
        let started = self.0.started.get_or_init(|| {
            let started = start(self.0.place.clone(), reporter());
            let failed = |error: &io::Error| {
                tracing::error!("there is no thread for processes: {error}");
            };
            started.inspect_err(failed).ok()
        });
        match started {
            Some(started) => started.ask(asked),
            None => asked.refuse(&mut reporter()),
        }
    }
}

impl Started {
    fn ask(&self, asked: Asked) {
        if self.asks.send(asked).is_ok() {
            // A counter at its bound wakes the thread, too.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }
}

impl Asked {
    fn refuse(self, report: &mut dyn FnMut(Message)) {
        match self {
            Self::Perform(_, action) => {
                if let Action::Launch { id, .. } = *action {
                    let failure = link::none();
                    report(Message::Failed { id, failure });
                }
            }
            Self::Join(answer) => answer(Err(link::none())),
            Self::End => {}
        }
    }
}

/// The port of the `ProcessActor`.
pub struct ProcessPort(Keeping);

impl ProcessPort {
    /// The port that is asked so, and tells the actor by what `reporter` makes.
    pub fn new<R: FnMut(Message) + Send + 'static>(
        keeping: Keeping,
        reporter: impl Fn() -> R + Send + Sync + 'static,
    ) -> Self {
        let reporter: Box<Reporter> = Box::new(move || Box::new(reporter()));
        // Each node has one port.
        drop(keeping.0.reporter.set(reporter));
        Self(keeping)
    }
}

impl Port<ProcessMachine> for ProcessPort {
    fn perform(&mut self, action: effect::Action<Action>) {
        let effect::Action { attempt, what, .. } = action;
        // Who has nothing to state has nothing to be followed.
        let nothing = what == Action::Census && self.0.0.started.get().is_none();
        if !nothing || self.0.0.place.may_have_keeper() {
            self.0.ask(Asked::Perform(attempt, Box::new(what)));
        }
    }
}

impl Drop for ProcessPort {
    fn drop(&mut self) {
        let Some(Some(started)) = self.0.0.started.get() else {
            return;
        };
        started.ask(Asked::End);
        let thread = started.thread.lock();
        if let Some(thread) = thread.unwrap_or_else(PoisonError::into_inner).take() {
            // A panic there was logged by whoever set the hook; there is nobody left to tell.
            drop(thread.join());
        }
    }
}

fn start(place: Place, report: Box<dyn FnMut(Message) + Send>) -> io::Result<Arc<Started>> {
    let (asks, asked) = unbounded();
    let real = Real::new(place, report)?;
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let flags = epoll::EventFlags::IN;
    epoll::add(&real.epoll, &wake, epoll::EventData::new_u64(ASKED), flags)?;
    let woken = wake.try_clone()?;
    let thread = std::thread::Builder::new().name("processes".to_owned());
    let thread = thread.spawn(move || run(Follower::new(real), &asked, &woken))?;
    Ok(Arc::new(Started {
        asks,
        wake,
        thread: Mutex::new(Some(thread)),
    }))
}

fn run<R: FnMut(Message)>(
    mut follower: Follower<Real<R>>,
    asked: &Receiver<Asked>,
    wake: &OwnedFd,
) {
    let mut buffer = [MaybeUninit::<epoll::Event>::uninit(); EVENTS];
    loop {
        let now = follower.world().clock();
        let due = follower
            .deadline()
            .map(|at| timespec(at.saturating_sub(now)));
        let tokens: Vec<u64> = match epoll::wait(&follower.world().epoll, &mut buffer, due.as_ref())
        {
            Ok((events, _)) => events.iter().map(|event| event.data.u64()).collect(),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => {
                tracing::error!("the thread of processes cannot wait: {error}");
                return;
            }
        };
        for token in tokens {
            match token {
                ASKED => {
                    let mut count = [0; 8];
                    // Read so that it is not heard of again.
                    let _ = rustix::io::read(wake, &mut count);
                    if !perform(&mut follower, asked) {
                        return;
                    }
                }
                KEEPER => hear(&mut follower),
                token => {
                    if let Some(id) = follower.world().watched(token) {
                        follower.ended(id);
                    }
                }
            }
        }
        follower.time_has_come();
        while follower.world().is_unheard() {
            hear(&mut follower);
        }
    }
}

/// Does what is asked; whether to go on.
fn perform<R: FnMut(Message)>(follower: &mut Follower<Real<R>>, asked: &Receiver<Asked>) -> bool {
    while let Ok(asked) = asked.try_recv() {
        match asked {
            Asked::Perform(seq, action) => follower.perform(seq, *action),
            Asked::Join(answer) => answer(follower.join()),
            Asked::End => return false,
        }
    }
    true
}

fn hear<R: FnMut(Message)>(follower: &mut Follower<Real<R>>) {
    let mut reports = Vec::new();
    let lives = follower.world().hear(&mut reports);
    for report in reports {
        follower.heard(report);
    }
    if !lives {
        follower.keeper_gone();
    }
}

fn timespec(ms: u64) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(ms / 1000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(ms % 1000 * 1_000_000).unwrap_or(0),
    }
}
