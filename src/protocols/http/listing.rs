//! Lists as answers: each bounded in bytes, and all of them in how many are gathered or lie unread at a time.
//!
//! Never here: what is listed, and how it is told.

use crate::ids::Slot;
use crate::protocols::http::caller::Asked;
use crate::protocols::http::problem::Problem;
use actix_web::HttpResponse;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::web::Bytes;
use serde_json::Value;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::OwnedSemaphorePermit;

/// A list ends early, and says where it goes on, behind the step that takes it beyond this.
const LIST_BYTES: usize = 128 * 1024;

/// What is asked of an actor at a time: a list is longer than that by one step at most.
const STEP: u32 = 32;

/// A list that is being gathered.
pub(crate) struct Listing<T> {
    place: OwnedSemaphorePermit,
    told: Vec<(T, String)>,
    bytes: usize,
    next: Option<Slot>,
}

impl<T> Listing<T> {
    /// Gathers at most so many from a slot on. `page` asks for some from a slot on, and where that ended; `tell`
    /// says one in words for programs.
    pub(crate) async fn gather(
        asked: &Asked,
        (mut from, most): (Slot, u32),
        page: impl AsyncFn(Slot, u32) -> Result<(Vec<T>, Option<Slot>), Problem>,
        tell: impl Fn(&T) -> Value,
    ) -> Result<Self, Problem> {
        let mut listing = Self {
            place: asked.room().large().await?,
            told: Vec::new(),
            bytes: 0,
            next: None,
        };
        let mut left = most;
        loop {
            let (found, next) = page(from, left.min(STEP)).await?;
            left = left.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
            for one in found {
                let told = tell(&one).to_string();
                listing.bytes += told.len() + 1;
                listing.told.push((one, told));
            }
            match next {
                Some(slot) if left > 0 && listing.bytes < LIST_BYTES => from = slot,
                next => {
                    listing.next = next;
                    return Ok(listing);
                }
            }
        }
    }

    /// In this order.
    pub(crate) fn sort_by_key<K: Ord>(mut self, key: impl Fn(&T) -> K) -> Self {
        self.told.sort_by_cached_key(|(one, _)| key(one));
        self
    }

    /// The answer: the list under its name, and in `next` where it goes on. Keeps its place until it is written.
    pub(crate) fn answer(self, name: &str) -> HttpResponse {
        let Self {
            place,
            told,
            bytes,
            next,
        } = self;
        let mut json = String::with_capacity(bytes + name.len() + 64);
        json += "{\"";
        json += name;
        json += "\":[";
        for (at, (_, told)) in told.iter().enumerate() {
            if at > 0 {
                json.push(',');
            }
            json += told;
        }
        let next = Value::from(next.map(|slot| slot.0.to_string()));
        json += "],\"next\":";
        json += &next.to_string();
        json += "}\n";
        held(json, place)
    }
}

/// An answer in JSON that keeps its place among the large ones until it is written.
pub(crate) fn held(json: String, place: OwnedSemaphorePermit) -> HttpResponse {
    let bytes = json.into();
    let body = BoxBody::new(Held { bytes, place });
    HttpResponse::Ok()
        .content_type("application/json")
        .body(body)
}

/// A body that keeps a place for as long as it is not written.
struct Held {
    bytes: Bytes,
    #[expect(dead_code, reason = "held for as long as the answer is")]
    place: OwnedSemaphorePermit,
}

impl MessageBody for Held {
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
