//! Starts actors and the tasks of the core thread.

use super::mailbox::Mailbox;
use super::paging::Pager;
use super::peer::{Address, Completions};
use super::shell::Shell;
use crate::spine::directory::Admission;
use crate::spine::guard::panic_words;
use crate::spine::host::Host;
use crate::spine::machine::Actor;
use crate::spine::port::Port;
use crate::spine::shared::{Sentry, Spine};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Starts an actor on the core thread, with the port that performs its actions. Returns its mailbox.
pub fn start<M: Actor>(
    mut host: Host<M>,
    rules: M::Rules,
    spine: &Rc<Spine>,
    admission: Admission,
    port: impl FnOnce(Completions<M>) -> Box<dyn Port<M>>,
) -> Mailbox<M> {
    host.publish_to(Arc::clone(spine.feed()));
    let outbox = host.outbox().clone();
    spine.register(outbox.clone());
    let shell = Shell::new(host, rules, Rc::clone(spine));
    let address = actix::Actor::start(shell);
    outbox.set_port(port(Completions::new(address.clone())));
    let (halted, abandoned) = (Rc::clone(spine), address.clone());
    spawn_brief(async move {
        halted.until_halted().await;
        abandoned.do_send(super::shell::Abandon);
    });
    spine.register_page_source(Rc::new(Pager::new(address.clone(), M::ID)));
    let peer = Rc::new(Address::new(address.clone()));
    spine.directory().register(M::ID, peer);
    Mailbox::new(address, admission)
}

/// Runs a node's core on the calling thread until `run` completes, and returns its result.
pub fn block_on<T>(run: impl Future<Output = T>) -> T {
    actix::System::new().block_on(async {
        let result = run.await;
        // actix polls each actor once more while dropping it. An actor that has not started by then would start at that moment, when no
        // timer can be set, so it gets the chance to start here.
        tokio::task::yield_now().await;
        result
    })
}

thread_local! {
    /// The sentry of the node whose core runs on this thread.
    static SENTRY: RefCell<Option<Sentry>> = const { RefCell::new(None) };
}

/// Sets the sentry that watches the tasks of this thread from now on. Called on the core thread, once.
pub fn watch_tasks(sentry: &Sentry) {
    SENTRY.set(Some(sentry.clone()));
}

/// Starts a task that the node depends on, on the core thread. If the task ends while the node runs, for whatever reason, the node halts.
pub fn spawn(name: &'static str, task: impl Future<Output = ()> + 'static) {
    let sentry = SENTRY.with_borrow(Option::clone);
    let running = actix::spawn(task);
    drop(actix::spawn(async move {
        let end = match running.await {
            Ok(()) => Ok(()),
            Err(error) => match error.try_into_panic() {
                Ok(payload) => Err(panic_words(payload.as_ref())),
                // The core thread exits, and drops its tasks.
                Err(_) => return,
            },
        };
        match sentry {
            Some(sentry) => sentry.ended(&format!("the task {name:?}"), end),
            None => tracing::error!(name, ?end, "a task ended"),
        }
    }));
}

/// Starts a task that may end, on the core thread, such as that of a connection. If it panics, what it owns is dropped: a connection is
/// closed, and whoever waits for an answer is notified.
pub fn spawn_brief(task: impl Future<Output = ()> + 'static) {
    drop(actix::spawn(task));
}

/// Checks the wall clock once a second, and makes every actor handle its due items if the clock has stepped. Returns once the node has
/// stopped or halted.
pub async fn watch_wall_clock(spine: Rc<Spine>) {
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    loop {
        seconds.tick().await;
        if spine.is_over() {
            return;
        }
        if spine.ledger().watch_wall_clock() {
            spine.directory().handle_due();
        }
        spine.delivered();
    }
}
