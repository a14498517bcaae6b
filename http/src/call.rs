//! A request as seen by its route, including whether its caller is still connected.
//!
//! A wait ends when the client disconnects, its token is removed, or the listener closes, so that nothing waits for a client that is gone.

use crate::access::Peer;
use crate::capacity::Capacity;
use crate::idempotency::{self, key_of};
use crate::input;
use crate::origin;
use crate::problem::Problem;
use crate::revocation::Revocation;
use crate::scope::{Scope, Scopes};
use crate::shared::Shared;
use actix_http::RequestHead;
use actix_web::dev::Payload;
use actix_web::http::Method;
use actix_web::http::header::HeaderValue;
use actix_web::web::{Bytes, Data, ReqData};
use actix_web::{FromRequest, HttpRequest};
use serde::de::DeserializeOwned;
use sexton::handle::{Handle, Leases, Locks, Processes, Queues, Requester, Tasks};
use sexton::ids::RequestKey;
use sexton::protocols::listener::Place;
use sexton::refusal::Reason;
use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use tokio::sync::{Notify, watch};

/// The sender of a request, what it may do, and whether it is still connected.
#[derive(Clone)]
pub(crate) struct Caller {
    gone: Rc<Notify>,
    closing: watch::Receiver<bool>,
    peer: Peer,
    scopes: Scopes,
    revocation: Revocation,
}

impl Caller {
    pub(crate) fn new(
        gone: Rc<Notify>,
        closing: watch::Receiver<bool>,
        (peer, scopes, revocation): (Peer, Scopes, Revocation),
    ) -> Self {
        Self { gone, closing, peer, scopes, revocation }
    }
}

/// An action to take if the answer is not delivered. It runs when this value is dropped, unless [`Rollback::delivered`] was called.
pub(crate) struct Rollback(Option<Box<dyn FnOnce()>>);

impl Rollback {
    pub(crate) fn new(undo: impl FnOnce() + 'static) -> Self {
        Self(Some(Box::new(undo)))
    }

    /// Cancels the action. Called when the answer has been written to the socket; whether the client received it is unknown.
    pub(crate) fn delivered(mut self) {
        self.0 = None;
    }
}

impl Drop for Rollback {
    fn drop(&mut self) {
        if let Some(undo) = self.0.take() {
            undo();
        }
    }
}

/// A request, with everything needed to answer it.
pub(crate) struct Call {
    /// The node. For a caller without the scope `run`, the actors refuse what would start or end a process.
    pub(crate) node: Handle,
    /// The idempotency key; `None` before [`Call::take_key`] or without the header.
    pub(crate) key: Cell<Option<RequestKey>>,
    /// The action to take if the answer is not delivered.
    pub(crate) rollback: Cell<Option<Rollback>>,
    pub(crate) shared: Data<Shared>,
    caller: ReqData<Caller>,
    request: HttpRequest,
    body: Bytes,
}

impl Call {
    /// Parses the query string.
    pub(crate) fn query<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        input::of_query(self.request.query_string())
    }

    /// Parses the body.
    pub(crate) fn body<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        input::of_body(self.request.headers(), &self.body)
    }

    /// Parses the query string as a form: an empty field counts as missing.
    pub(crate) fn query_form<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        input::of_form(self.request.query_string())
    }

    /// Parses the body as a form, and refuses a body whose content type is not that of a form. An empty field counts as missing.
    pub(crate) fn form<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let words = "expected a form of Content-Type: application/x-www-form-urlencoded";
        let is_form = self.header("content-type").is_some_and(|found| {
            let kind = found.split(|byte| *byte == b';').next().unwrap_or_default();
            kind.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
        });
        match std::str::from_utf8(&self.body) {
            Ok(fields) if is_form => input::of_form(fields),
            Ok(_) | Err(_) => Err(Problem::new(Reason::Malformed, words)),
        }
    }

    /// Refuses a form that was not sent from a page of this coordinator.
    pub(crate) fn check_form(&self) -> Result<(), Problem> {
        origin::check_form(self.request.headers())
    }

    /// Returns the head of the request.
    pub(crate) fn head(&self) -> &RequestHead {
        self.request.head()
    }

    /// Returns the sender of the request.
    pub(crate) fn peer(&self) -> Peer {
        self.caller.peer
    }

    /// Returns whether the caller may start processes, and see their output.
    pub(crate) fn may_run(&self) -> bool {
        self.caller.scopes.has(Scope::Run)
    }

    /// Returns the caller's scopes, for `route.rs`, which checks them.
    pub(super) fn scopes(&self) -> Scopes {
        self.caller.scopes
    }

    /// Reads the idempotency key from the headers, if there is one. Messages sent to the actors from then on carry the key. Refuses an
    /// invalid key.
    pub(crate) fn take_key(&self) -> Result<(), Problem> {
        let (headers, path) = (self.request.headers(), self.request.path());
        self.key.set(key_of(headers, (self.caller.peer, self.caller.scopes), (path, &self.body))?);
        Ok(())
    }

    /// Refuses a request with an idempotency key. For routes that would carry it out again when it is repeated, although a client that sends a
    /// key relies on the opposite.
    pub(crate) fn refuse_key(&self) -> Result<(), Problem> {
        if self.request.headers().contains_key(idempotency::HEADER) {
            let words = "is not accepted here: a repetition would be carried out again, so send the request without a key";
            return Err(Problem::field("Idempotency-Key", words));
        }
        Ok(())
    }

    /// Returns a handle to the locks that sends this request's idempotency key, if there is one.
    pub(crate) fn locks(&self) -> Locks {
        let locks = self.node.locks();
        match self.key.get() {
            None => locks,
            Some(key) => locks.once(key),
        }
    }

    /// Returns a handle to the queues that sends this request's idempotency key, if there is one.
    pub(crate) fn queues(&self) -> Queues {
        let queues = self.node.queues();
        match self.key.get() {
            None => queues,
            Some(key) => queues.once(key),
        }
    }

    /// Returns a handle to the processes that sends this request's idempotency key, if there is one.
    pub(crate) fn processes(&self) -> Processes {
        let processes = self.node.processes();
        match self.key.get() {
            None => processes,
            Some(key) => processes.once(key),
        }
    }

    /// Returns a handle to the tasks that sends this request's idempotency key, if there is one.
    pub(crate) fn tasks(&self) -> Tasks {
        let tasks = self.node.tasks();
        match self.key.get() {
            None => tasks,
            Some(key) => tasks.once(key),
        }
    }

    /// Returns a handle to the leases that sends this request's idempotency key, if there is one.
    pub(crate) fn leases(&self) -> Leases {
        let leases = self.node.leases();
        match self.key.get() {
            None => leases,
            Some(key) => leases.once(key),
        }
    }

    /// Returns the process that sent the request, if the kernel reports it.
    pub(crate) fn requester(&self) -> Option<Requester> {
        match self.caller.peer {
            Peer::Socket { process, .. } => process,
            Peer::Tcp { .. } => None,
        }
    }

    /// Returns the method of the request.
    pub(crate) fn method(&self) -> &Method {
        self.request.method()
    }

    /// Returns the value of a header, or the first value if there are several.
    pub(crate) fn header(&self, name: &str) -> Option<&[u8]> {
        let value = self.request.headers().get(name);
        value.map(HeaderValue::as_bytes)
    }

    /// Returns a receiver whose value becomes true when the listener closes.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.caller.closing.clone()
    }

    /// Returns the capacity limits of the listener that the request arrived on.
    pub(crate) fn room(&self) -> &Capacity {
        self.shared.room(self.caller.peer)
    }

    /// Takes one of the slots for waiting requests, and refuses the request if none is free.
    pub(crate) fn place(&self) -> Result<Place, Problem> {
        self.room().wait()
    }

    /// Like [`Self::place`], for a request that waits for this number of seconds; `None` if it does not wait.
    pub(crate) fn place_for(&self, seconds: u64) -> Result<Option<Place>, Problem> {
        (seconds > 0).then(|| self.place()).transpose()
    }

    /// Waits for `work` in one of the slots for waiting requests, as [`Self::wait_in`] does. Returns a problem without waiting if no slot is
    /// free. For work that begins only when it is waited for: a request that has changed something must have taken its slot before.
    pub(crate) async fn wait<T>(&self, work: impl Future<Output = T>) -> Result<T, Problem> {
        self.wait_in(Some(self.place()?), work).await
    }

    /// Waits for `work` in this slot; without one, `work` must not take long. Drops `work` and returns a problem if the caller disconnects, its
    /// token is removed, or the listener closes.
    pub(crate) async fn wait_in<T>(
        &self,
        place: Option<Place>,
        work: impl Future<Output = T>,
    ) -> Result<T, Problem> {
        let mut closing = self.caller.closing.clone();
        let done = tokio::select! {
            biased;
            () = self.caller.gone.notified() => {
                let words = "the wait ended because the client closed the connection or sent too much data while waiting";
                Err(Problem::new(Reason::Gone, words))
            }
            problem = self.caller.revocation.revoked() => Err(problem),
            done = work => Ok(done),
            _ = closing.wait_for(|closing| *closing) => {
                Err(Problem::new(Reason::Stopped, "the coordinator is stopping"))
            }
        };
        drop(place);
        done
    }

    /// Converts an error to a problem. If the node stopped because it halted, the problem gives the reason for the halt.
    pub(crate) fn problem(&self, problem: impl Into<Problem>) -> Problem {
        problem.into().or_halt(self.node.halt_reason())
    }
}

impl FromRequest for Call {
    type Error = actix_web::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Self::Error>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let request = request.clone();
        let body = Bytes::from_request(&request, payload);
        Box::pin(async move {
            let mut none = Payload::None;
            let caller: ReqData<Caller> = ReqData::from_request(&request, &mut none).await?;
            let node: Data<Handle> = Data::from_request(&request, &mut none).await?;
            let node =
                if caller.scopes.has(Scope::Run) { node.as_ref().clone() } else { node.limited() };
            Ok(Self {
                node,
                key: Cell::new(None),
                rollback: Cell::new(None),
                shared: Data::from_request(&request, &mut none).await?,
                caller,
                body: body.await?,
                request,
            })
        })
    }
}
