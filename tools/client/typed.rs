//! Requests by their types: see `sexton_api`.

use crate::client::answer::{Fields, with_query};
use crate::client::ask;
use crate::client::target::Target;
use crate::report::Failure;
use serde_json::Value;
use sexton_api::refusal::Reason;
use sexton_api::request::{Input, Method, Request};
use std::time::Duration;

/// The answer to a request.
pub(crate) struct Answered<A> {
    /// What it says.
    pub(crate) value: A,
    /// The answer as it arrived, for `--json`: a newer coordinator may say more than this program knows of.
    pub(crate) body: String,
}

/// Sends a request once, and waits at most `patience` for the answer. If the request is refused, fails with the advice for its reason in
/// `helps`, if there is any.
pub(crate) fn request<R: Request>(
    target: &Target,
    asked: &R,
    patience: Duration,
    helps: &[(Reason, &'static str)],
) -> Result<Answered<R::Answer>, Failure> {
    let fields = fields_of(asked);
    let (path, body) = match R::ROUTE.input {
        Input::Nothing => (R::ROUTE.path.to_owned(), String::new()),
        Input::Query => (with_query(R::ROUTE.path, &fields), String::new()),
        Input::Body => (R::ROUTE.path.to_owned(), Value::Object(fields).to_string()),
    };
    let method = match R::ROUTE.method {
        Method::Get => "GET",
        Method::Post => "POST",
    };
    let answer = ask::once(target, (method, &path, &body), patience)?;
    if answer.status != 200 {
        return Err(Failure::refused(&answer.json()?, helps));
    }
    Ok(Answered { value: answer.read()?, body: answer.body })
}

/// Returns the fields of a request as they are sent, without those that it leaves out.
fn fields_of(asked: &impl Request) -> Fields {
    let fields = serde_json::to_value(asked).expect("a request should be written as JSON");
    let Value::Object(mut fields) = fields else {
        unreachable!("a request has fields");
    };
    fields.retain(|_, value| !value.is_null());
    fields
}
