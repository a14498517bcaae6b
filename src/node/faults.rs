//! Injects the panics that tasks request, if the configuration allows faults: panics of actors between the end of an attempt and the
//! release of its locks. Tests inject panics through the same hooks.

use crate::actors::dispatch;
use crate::actors::lock;
use crate::handle::Handle;
use crate::ids::ActorId;
use crate::ports::process::{Fault, Faults};
use crate::spine::delivery::Stage;

/// Installs the faults in the dispatch and lock actors.
pub(super) fn inject(handle: &Handle, faults: &Faults) {
    let at_ends = faults.clone();
    let dispatch = move |stage, message: Option<&dispatch::Message>| {
        let Some(dispatch::Message::Gone(gone)) = message else {
            return;
        };
        let fault = match stage {
            Stage::Decide => Fault::BeforeThreadCleanup,
            Stage::Commit => Fault::WithinThreadCleanup,
            Stage::Keeping
            | Stage::Query
            | Stage::Tick
            | Stage::Due
            | Stage::Watch
            | Stage::Resume => return,
        };
        panic_if(at_ends.should_inject(gone.process, fault), fault);
    };
    handle.actors().dispatch.inject_panics(Box::new(dispatch));
    let at_releases = faults.clone();
    let lock = move |stage, message: Option<&lock::Message>| {
        let Some(lock::Message::Yield(hold)) = message else {
            return;
        };
        if stage == Stage::Decide && hold.by == ActorId::DISPATCH {
            let fault = Fault::AfterThreadCleanup;
            panic_if(at_releases.should_inject_for_owner(hold.owner.as_bytes(), fault), fault);
        }
    };
    handle.actors().lock.inject_panics(Box::new(lock));
}

/// Panics with the fault's name in the message if `comes` is true.
fn panic_if(comes: bool, fault: Fault) {
    assert!(!comes, "injected: {}", fault.name());
}
