//! The stream that keeps a page live. It signals at most once a second that something has happened, and the page then reloads.
//! The signal does not include the events: a busy node has more than a page could show.

use crate::call::Call;
use crate::operate::stopped;
use crate::page::frame;
use crate::problem::Problem;
use crate::route::Route;
use crate::scope::Scope;
use crate::stream::{ALIVE, HEARTBEAT, Parts, Stream};
use actix_web::HttpResponse;
use actix_web::body::BoxBody;
use actix_web::http::{Method, StatusCode, header};
use actix_web::web::Bytes;
use sexton::handle::{Events, Handle};
use sexton::protocols::listener::Place;
use sexton::refusal::Reason;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// The minimum time between two signals.
const PAUSE: Duration = Duration::from_secs(1);

/// The signal that something has happened.
const CHANGED: &str = "event: changed\ndata: \n\n";

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::page(("/page/changes", Method::GET), Scope::Read, changes, frame::refused)]
}

async fn changes(call: &Call) -> Result<HttpResponse, Problem> {
    let mut response = frame::answer(StatusCode::OK);
    response.insert_header((header::CONTENT_TYPE, "text/event-stream"));
    if call.method() == Method::HEAD {
        return Ok(response.body(BoxBody::new(Stream::<Changes>::empty())));
    }
    let place = call.place()?;
    let events = call.node.events(None).await.map_err(stopped)?;
    if let Some(words) = call.node.halt_reason() {
        return Err(Problem::new(Reason::Halted, words));
    }
    let changes =
        Changes { node: call.node.clone(), events, closing: call.closing(), is_new: true, place };
    Ok(response.body(BoxBody::new(Stream::new(changes))))
}

/// The source of a live page's signals.
struct Changes {
    node: Handle,
    events: Events,
    closing: watch::Receiver<bool>,
    is_new: bool,
    #[expect(dead_code, reason = "held for as long as the stream is open")]
    place: Place,
}

impl Parts for Changes {
    async fn part(&mut self) -> Option<Bytes> {
        if std::mem::take(&mut self.is_new) {
            return Some(ALIVE.into());
        }
        let mut beat = interval(HEARTBEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        beat.reset();
        tokio::select! {
            biased;
            _ = self.closing.wait_for(|closing| *closing) => return None,
            _ = beat.tick() => return Some(ALIVE.into()),
            heard = self.events.next() => heard?,
        };
        let closed = timeout(PAUSE, self.closing.wait_for(|closing| *closing));
        if closed.await.is_ok() {
            return None;
        }
        // The reload shows the effect of events before this point. Events after it lead to the next signal.
        self.events = self.node.events(None).await.ok()?;
        Some(CHANGED.into())
    }
}
