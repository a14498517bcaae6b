//! Answers that contain lists. Each list is bounded in bytes, and only a limited number of lists are built or sent at a time.
//!
//! The items of a list and their JSON form are defined by its route.

use crate::call::Call;
use crate::problem::Problem;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::web::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::value::RawValue;
use sexton::ids::Slot;
use sexton::refusal::Reason;
use sexton_api::list::After;
use std::borrow::Cow;
use std::convert::Infallible;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::OwnedSemaphorePermit;

/// Once a list has reached this size in bytes, no more items are added to it, and the answer includes where to continue.
const LIST_BYTES: usize = 128 * 1024;

/// The maximum number of items requested from an actor at a time. A list exceeds [`LIST_BYTES`] by at most that many items.
const STEP: u32 = 32;

/// Returns the slot to continue from: the first slot if `after` is `None`.
pub(crate) fn slot(after: Option<After>) -> Slot {
    Slot(after.map_or(0, |after| after.0))
}

/// Formats a slot as the `next` of an answer.
pub(crate) fn shown(next: Option<Slot>) -> Option<After> {
    next.map(|slot| After(slot.0))
}

/// An item of a list, serialized to JSON when it was collected.
#[derive(Serialize)]
#[serde(transparent)]
pub(crate) struct Written<T>(Box<RawValue>, PhantomData<T>);

impl<T: JsonSchema> JsonSchema for Written<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// A list being collected.
pub(crate) struct Listing<V, T, C> {
    place: OwnedSemaphorePermit,
    written: Vec<(V, Written<T>)>,
    next: Option<C>,
}

impl<V, T: Serialize, C: Clone> Listing<V, T, C> {
    /// Collects at most `left` items, beginning at `from`; fewer if they reach [`LIST_BYTES`]. `page` returns up to the given number of
    /// items, and the position at which the list continues, or `None` at its end. `show` converts an item to its form in the answer.
    pub(crate) async fn gather(
        call: &Call,
        (mut from, mut left): (C, u32),
        page: impl AsyncFn(C, u32) -> Result<(Vec<V>, Option<C>), Problem>,
        show: impl Fn(&V) -> T,
    ) -> Result<Self, Problem> {
        let mut listing =
            Self { place: call.room().large().await?, written: Vec::new(), next: None };
        let mut bytes = 0;
        loop {
            let (found, next) = page(from.clone(), left.min(STEP)).await?;
            left = left.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
            for one in found {
                let written = serde_json::value::to_raw_value(&show(&one));
                let written =
                    written.map_err(|error| Problem::new(Reason::Failed, error.to_string()))?;
                bytes += written.get().len() + 1;
                listing.written.push((one, Written(written, PhantomData)));
            }
            match next {
                Some(next) if left > 0 && bytes < LIST_BYTES => from = next,
                next => {
                    listing.next = next;
                    return Ok(listing);
                }
            }
        }
    }

    /// Returns the items, sorted by `key`; the position at which the list continues, if it does; and the permit to hold until the answer is
    /// written.
    pub(crate) fn sorted_by_key<K: Ord>(
        mut self,
        key: impl Fn(&V) -> K,
    ) -> (Vec<Written<T>>, Option<C>, OwnedSemaphorePermit) {
        self.written.sort_by_cached_key(|(one, _)| key(one));
        self.in_order()
    }

    /// Returns the items, in the order in which they were collected; the position at which the list continues, if it does; and the permit
    /// to hold until the answer is written.
    pub(crate) fn in_order(self) -> (Vec<Written<T>>, Option<C>, OwnedSemaphorePermit) {
        let written = self.written.into_iter().map(|(_, written)| written);
        (written.collect(), self.next, self.place)
    }
}

/// Wraps a body so that the permit for a large answer is held until the body is written. A body that is a stream is returned unchanged, and
/// the permit is released immediately.
pub(crate) fn held(body: BoxBody, place: OwnedSemaphorePermit) -> BoxBody {
    match body.try_into_bytes() {
        Ok(bytes) => BoxBody::new(PermittedBody { bytes, place }),
        Err(body) => body,
    }
}

/// A body that holds a permit until it is written.
struct PermittedBody {
    bytes: Bytes,
    #[expect(dead_code, reason = "held until the answer is written")]
    place: OwnedSemaphorePermit,
}

impl MessageBody for PermittedBody {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        self.bytes.size()
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Infallible>>> {
        let bytes = std::mem::take(&mut self.bytes);
        Poll::Ready((!bytes.is_empty()).then_some(Ok(bytes)))
    }
}
