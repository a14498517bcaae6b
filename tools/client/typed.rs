//! Requests by their types: see `sexton_api`.

use crate::client::answer::{Answer, Fields, read, with_query};
use crate::client::ask::{again, look, new_key, once, send, send_once};
use crate::client::target::Target;
use crate::report::Failure;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sexton_api::fields;
use sexton_api::refusal::Reason;
use sexton_api::request::{Input, Method, Repeat, Request};
use std::marker::PhantomData;
use std::time::Duration;

/// The answer to a request that was carried out.
pub(crate) struct Answered<A> {
    /// What it says.
    pub(crate) value: A,
    /// The answer as it arrived, for `--json`: a newer coordinator may say more than this program knows of.
    pub(crate) body: String,
}

/// The answer to a request, or its refusal.
pub(crate) struct Reply<A> {
    answer: Answer,
    of: PhantomData<fn() -> A>,
}

impl<A: DeserializeOwned> Reply<A> {
    const fn new(answer: Answer) -> Self {
        Self { answer, of: PhantomData }
    }

    /// Returns the same reply, to be read as another type, such as one that keeps items as they arrived.
    pub(crate) fn read_as<T: DeserializeOwned>(self) -> Reply<T> {
        Reply::new(self.answer)
    }

    /// Returns whether the request was carried out.
    pub(crate) const fn is_success(&self) -> bool {
        self.answer.status == 200
    }

    /// Returns whether this is a refusal for `reason`.
    pub(crate) fn is_refused_as(&self, reason: Reason) -> bool {
        self.answer.is_refused_as(reason)
    }

    /// Returns the reason for the refusal, if this is one, and its reason is known.
    pub(crate) fn refusal(&self) -> Option<Reason> {
        self.answer.refusal()
    }

    /// Replaces the detail of a refusal.
    pub(crate) fn with_detail(self, detail: String) -> Self {
        Self::new(self.answer.with_detail(detail))
    }

    /// Returns the answer as it arrived.
    pub(crate) fn body(&self) -> &str {
        &self.answer.body
    }

    /// Returns the answer to a request that was carried out.
    pub(crate) fn value(&self) -> Result<A, Failure> {
        read(&self.answer.body)
    }

    /// Returns the answer. If the request was refused, fails as `refused` says.
    pub(crate) fn success(
        self,
        refused: impl FnOnce(&Value) -> Failure,
    ) -> Result<Answered<A>, Failure> {
        if !self.is_success() {
            return Err(refused(&self.answer.json()?));
        }
        Ok(Answered { value: self.value()?, body: self.answer.body })
    }
}

/// Sends a request, and repeats it while the coordinator restarts or too many requests are waiting. One that a repetition would carry out
/// twice has a new idempotency key.
pub(crate) fn ask<R: Request>(target: &Target, asked: &R) -> Result<Reply<R::Answer>, Failure> {
    let (path, fields) = (R::ROUTE.path, fields::of(asked));
    let answer = match (R::ROUTE.method, R::ROUTE.repeat) {
        (Method::Get, _) => look(target, path, &fields),
        (Method::Post, Repeat::Freely) => again(target, path, fields),
        (Method::Post, Repeat::WithKey) => send_once(target, path, fields, &new_key()?),
    };
    answer.map(Reply::new)
}

/// Posts fields to a path whose request has no type yet.
pub(crate) fn post(target: &Target, path: &str, fields: Fields) -> Result<Reply<Value>, Failure> {
    send(target, path, fields, 0).map(Reply::new)
}

/// Sends a request that may take `wait` seconds, in its field `wait`. It is repeated for that long while the coordinator restarts or too many
/// requests are waiting.
pub(crate) fn wait<R: Request>(
    target: &Target,
    asked: &R,
    wait: u64,
) -> Result<Reply<R::Answer>, Failure> {
    send(target, R::ROUTE.path, fields::of(asked), wait).map(Reply::new)
}

/// Sends a request once, and waits at most `patience` for the answer. If the request is refused, fails with the advice for its reason in
/// `helps`, if there is any.
pub(crate) fn request<R: Request>(
    target: &Target,
    asked: &R,
    patience: Duration,
    helps: &[(Reason, &'static str)],
) -> Result<Answered<R::Answer>, Failure> {
    let fields: Fields = fields::of(asked);
    let (path, body) = match R::ROUTE.input {
        Input::Nothing => (R::ROUTE.path.to_owned(), String::new()),
        Input::Query => (with_query(R::ROUTE.path, &fields), String::new()),
        Input::Body => (R::ROUTE.path.to_owned(), Value::Object(fields).to_string()),
    };
    let method = match R::ROUTE.method {
        Method::Get => "GET",
        Method::Post => "POST",
    };
    let reply = Reply::new(once(target, (method, &path, &body), patience)?);
    reply.success(|said| Failure::refused(said, helps))
}
