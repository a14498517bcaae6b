//! Rebuilds a spent machine from the journal on a separate thread, while the other actors continue.

use crate::ids::Seq;
use crate::persist::disk::Disk;
use crate::persist::snapshots::Slots;
use crate::spine::machine::Actor;
use crate::spine::parallel::both;
use crate::spine::recovery::{self, Recovered, Recovering, RecoveryError, Replica, Scope};
use crate::spine::shared::{Halt, Spine};
use crate::thread;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Rebuilds the machine as it was after the entry `until`, and drops the spent one.
///
/// # Errors
/// Returns the reason why the node must halt: the journal cannot be read or replayed, or the thread could not be started or panicked.
pub(super) async fn rebuild<M: Actor>(
    spine: Rc<Spine>,
    spent: M,
    rules: M::Rules,
    until: Seq,
) -> Result<Recovered<M>, Halt> {
    let disk = spine.disk().expect("without a journal, the node should halt instead of rebuilding");
    let slots = spine.slots();
    spine.write();
    spine.until_durable_or_halted(until).await;
    let rebuilding = spine.rebuilding();
    let again = rules.clone();
    let build =
        Arc::new(move |rules| rebuild_until::<M>(disk.as_ref(), slots.as_ref(), rules, until));
    let first = Arc::clone(&build);
    let mut rebuilt = on_thread(M::NAME, move || {
        // Dropping the old state takes about as long as finding the snapshot, so it is gone before much of the new state is built.
        let (rebuilt, ()) = both(|| first(rules), || drop(spent));
        rebuilt
    })
    .await;
    if !matches!(rebuilt, Ok(Ok(_))) {
        // The cause may be a checkpoint that was writing the slot or removing old segments, so try again while no checkpoint can do so.
        let held = spine.hold_slots().await;
        rebuilt = on_thread(M::NAME, move || build(again)).await;
        drop(held);
    }
    drop(rebuilding);
    match rebuilt {
        Ok(Ok(rebuilt)) => {
            tracing::info!(actor = M::NAME, until = until.0, "rebuilt from the journal");
            Ok(rebuilt)
        }
        Ok(Err(error)) => Err(Halt::Rebuild(Arc::new(error))),
        Err(_) => Err(Halt::CoreThread(
            "the thread that rebuilds an actor could not be started, or panicked".to_owned(),
        )),
    }
}

/// Runs long work for an actor on a separate thread. Returns the channel for the result, which closes without a result if the thread
/// cannot be started or the work panics.
fn on_thread<T: Send + 'static>(
    actor: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> oneshot::Receiver<T> {
    let (done, worked) = oneshot::channel();
    let name = format!("sexton-rebuild-{actor}");
    let spawned = thread::start(&name, work, |worked| {
        // After a panic, the channel closes without a result.
        if let Ok(worked) = worked {
            drop(done.send(worked));
        }
    });
    if let Err(error) = spawned {
        tracing::error!(%error, "failed to start a thread to rebuild an actor");
    }
    worked
}

fn rebuild_until<M: Actor>(
    disk: &dyn Disk,
    slots: Option<&Slots>,
    rules: M::Rules,
    until: Seq,
) -> Result<Recovered<M>, RecoveryError> {
    let mut replica = Replica::<M>::new(rules);
    let replicas: &mut [&mut dyn Recovering] = &mut [&mut replica];
    recovery::recover(disk, slots, replicas, Scope { until: Some(until), partial: true })?;
    Ok(replica.into_parts())
}
