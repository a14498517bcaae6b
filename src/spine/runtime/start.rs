//! Starts actors and the tasks of the core thread.

use super::mailbox::Mailbox;
use super::paging::Pager;
use super::peer::{Address, Completions};
use super::shell::Shell;
use crate::spine::directory::Admission;
use crate::spine::host::Host;
use crate::spine::machine::Actor;
use crate::spine::port::Port;
use crate::spine::shared::Spine;
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
    spawn(async move {
        halted.until_halted().await;
        abandoned.do_send(super::shell::Abandon);
    });
    spine.register_paged(Rc::new(Pager::new(address.clone(), M::ID)));
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

/// Starts a task on the core thread.
pub fn spawn(task: impl Future<Output = ()> + 'static) {
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
