//! A request as the routes see it, and whoever sent it: for how long there is somebody to wait for.
//!
//! A wait ends with its connection, and with the door: nobody is left in a line who does not stand there any more.

use crate::handle::Handle;
use crate::protocols::http::access::Peer;
use crate::protocols::http::door::Shared;
use crate::protocols::http::field::Fields;
use crate::protocols::http::problem::Problem;
use crate::protocols::http::repetition::{self, Said};
use crate::protocols::http::room::Room;
use crate::protocols::listener::Place;
use actix_web::dev::Payload;
use actix_web::http::header::HeaderValue;
use actix_web::http::{Method, StatusCode};
use actix_web::web::{Bytes, Data, ReqData};
use actix_web::{FromRequest, HttpRequest};
use std::pin::Pin;
use std::rc::Rc;
use tokio::sync::{Notify, watch};

/// Whoever sent a request.
#[derive(Clone)]
pub(crate) struct Caller {
    gone: Rc<Notify>,
    closing: watch::Receiver<bool>,
    peer: Peer,
}

/// What is undone if the answer that it stands beside is not delivered: dropped before it is known to be written.
pub(crate) struct Undoing(Option<Box<dyn FnOnce()>>);

impl Undoing {
    pub(crate) fn new(undo: impl FnOnce() + 'static) -> Self {
        Self(Some(Box::new(undo)))
    }

    /// The answer is written, as far as can be known.
    pub(crate) fn delivered(mut self) {
        self.0 = None;
    }
}

impl Drop for Undoing {
    fn drop(&mut self) {
        if let Some(undo) = self.0.take() {
            undo();
        }
    }
}

/// A request with everything that answering it needs.
pub(crate) struct Asked {
    pub(crate) node: Data<Handle>,
    shared: Data<Shared>,
    caller: ReqData<Caller>,
    request: HttpRequest,
    body: Bytes,
}

impl Caller {
    pub(crate) const fn new(gone: Rc<Notify>, closing: watch::Receiver<bool>, peer: Peer) -> Self {
        Self {
            gone,
            closing,
            peer,
        }
    }
}

impl Asked {
    /// The fields of its query.
    pub(crate) fn query(&self) -> Result<Fields, Problem> {
        Fields::of_query(self.request.query_string())
    }

    /// The fields of its body.
    pub(crate) fn body(&self) -> Result<Fields, Problem> {
        Fields::of_body(self.request.headers(), &self.body)
    }

    /// Whether its answer is remembered, for when it comes again.
    pub(crate) fn is_remembered(&self) -> bool {
        repetition::key(self.request.headers()).is_ok_and(|key| key.is_some())
    }

    /// Carries the request out, unless it is the repetition of one that was.
    pub(crate) async fn once(&self, act: impl AsyncFnOnce(&Self) -> Said) -> Said {
        let Some(key) = repetition::key(self.request.headers())? else {
            return act(self).await;
        };
        let asked = (self.request.path(), self.body.as_ref());
        match self.shared.repetitions.begin(key, asked, self.node.now()) {
            repetition::Request::Again(said) => said,
            repetition::Request::First(claim) => {
                let said = act(self).await;
                claim.said(&said, self.node.now());
                said
            }
        }
    }

    /// How it was asked.
    pub(crate) fn method(&self) -> &Method {
        self.request.method()
    }

    /// A header's value, the first if there are several.
    pub(crate) fn header(&self, name: &str) -> Option<&[u8]> {
        let value = self.request.headers().get(name);
        value.map(HeaderValue::as_bytes)
    }

    /// Turns true when the door closes.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.caller.closing.clone()
    }

    /// What there is to give where it came in.
    pub(crate) fn room(&self) -> &Room {
        self.shared.room(self.caller.peer)
    }

    /// A place among the requests that wait.
    pub(crate) fn place(&self) -> Result<Place, Problem> {
        self.room().wait()
    }

    /// Waits for something, as long as the caller does. Whatever is waited for is dropped when the caller goes away.
    pub(crate) async fn wait<T>(&self, work: impl Future<Output = T>) -> Result<T, Problem> {
        let place = self.place()?;
        let mut closing = self.caller.closing.clone();
        let done = tokio::select! {
            biased;
            () = self.caller.gone.notified() => Err(Problem::new(
                StatusCode::BAD_REQUEST,
                "a wait lasts as long as its connection, and this one was closed from your side, or had too much sent behind it",
            )),
            done = work => Ok(done),
            _ = closing.wait_for(|closing| *closing) => {
                let words = "the coordinator stops";
                Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, words).because("stopped"))
            }
        };
        drop(place);
        done
    }
}

impl FromRequest for Asked {
    type Error = actix_web::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Self::Error>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let request = request.clone();
        let body = Bytes::from_request(&request, payload);
        Box::pin(async move {
            let mut none = Payload::None;
            Ok(Self {
                node: Data::from_request(&request, &mut none).await?,
                shared: Data::from_request(&request, &mut none).await?,
                caller: ReqData::from_request(&request, &mut none).await?,
                body: body.await?,
                request,
            })
        })
    }
}
