//! What a checkpoint asks of an actor: its pages, slice by slice, among the actor's other messages.

use crate::ids::{ActorId, Seq};
use crate::persist::mark::Watermark;
use crate::persist::snapshots::Page;
use tokio::sync::oneshot;

/// An actor whose pages can be requested. The actor answers a request between two of its messages; if the channel closes without an answer,
/// the actor has stopped.
pub trait PageSource {
    /// Returns the actor's id.
    fn actor(&self) -> ActorId;
    /// Begins a checkpoint of the pages that changed after `since`. The answer is the actor's watermark, or `None` if its state is spent.
    fn begin(&self, since: Seq) -> oneshot::Receiver<Option<Watermark>>;
    /// Requests the next slice of pages. The answer is the pages and whether this slice is the last, or `None` if the checkpoint was
    /// interrupted.
    fn next(&self) -> oneshot::Receiver<Option<(Vec<Page>, bool)>>;
    /// Abandons the checkpoint.
    fn abort(&self);
}
