//! The contract of a request: its type says where it is sent, what its sender needs, what it may be refused for, and how it is answered.

use crate::refusal::Reason;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A request of the API. Its fields are sent as they are serialised: see [`Input`].
pub trait Request: Serialize + DeserializeOwned {
    /// The answer of a request that was carried out: the body of a response with status 200.
    type Answer: Serialize + DeserializeOwned;

    /// Where the request is sent, and what holds for all requests of this type.
    const ROUTE: Route;

    /// Returns whether this request requires [`Scope::Run`], although others of this type do not; [`Route::run_if`] says it in words.
    fn needs_run(&self) -> bool {
        false
    }
}

/// Where a request is sent, and what holds for all requests of its type.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The method of HTTP.
    pub method: Method,
    /// The path.
    pub path: &'static str,
    /// Where the fields of the request are.
    pub input: Input,
    /// What a client does to have the request carried out once, even if it has to send it again.
    pub repeat: Repeat,
    /// The scope that every such request requires.
    pub scope: Scope,
    /// Which requests require [`Scope::Run`] in addition, in words that follow "if"; `None` if no others do.
    pub run_if: Option<&'static str>,
    /// The documentation.
    pub docs: Docs,
    /// The reasons for which the request may be refused, in addition to those that hold for every request.
    pub refusals: &'static [Reason],
}

impl Route {
    /// A request that has no fields and changes nothing.
    pub const fn get(
        path: &'static str,
        scope: Scope,
        docs: Docs,
        refusals: &'static [Reason],
    ) -> Self {
        let (method, input, repeat) = (Method::Get, Input::Nothing, Repeat::Freely);
        Self { method, path, input, repeat, scope, run_if: None, docs, refusals }
    }

    /// A request that has no fields, and of which a repetition changes nothing more.
    pub const fn post(
        path: &'static str,
        scope: Scope,
        docs: Docs,
        refusals: &'static [Reason],
    ) -> Self {
        Self { method: Method::Post, ..Self::get(path, scope, docs, refusals) }
    }

    /// The same, with fields.
    #[must_use]
    pub const fn with(self, input: Input) -> Self {
        Self { input, ..self }
    }

    /// The same, carried out once if it is sent again with its key.
    #[must_use]
    pub const fn once(self) -> Self {
        Self { repeat: Repeat::WithKey, ..self }
    }

    /// The same, requiring [`Scope::Run`] under a condition, in words that follow "if": where [`Request::needs_run`] says so, or depending on
    /// what the server finds.
    #[must_use]
    pub const fn run_if(self, condition: &'static str) -> Self {
        Self { run_if: Some(condition), ..self }
    }
}

/// A method of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `GET`, for requests that change nothing; `HEAD` is answered, too.
    Get,
    /// `POST`.
    Post,
}

/// Where the fields of a request are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// It has none.
    Nothing,
    /// In the query string.
    Query,
    /// In the body, as a JSON object.
    Body,
}

/// What a client does to have a request carried out once, even if it has to send it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Nothing: the request changes nothing, or a repetition changes nothing more. It is refused with an `Idempotency-Key`, unless its
    /// method is [`Method::Get`].
    Freely,
    /// It sends the same `Idempotency-Key` again.
    WithKey,
}

/// A permission that a request requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Nothing: for the login form and the files that it loads.
    Open,
    /// Read state.
    Read,
    /// Use locks, queues and leases.
    Use,
    /// Operate the coordinator, without starting or ending anything.
    Operate,
    /// Start, end and signal processes, directly or as a consequence, see their output, and stop the coordinator. This is equivalent to
    /// having the rights of the coordinator's user.
    Run,
}

impl Scope {
    /// Returns the scope's name, as in the published description and in the token file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "none",
            Self::Read => "read",
            Self::Use => "use",
            Self::Operate => "operate",
            Self::Run => "run",
        }
    }
}

/// The documentation of a request.
#[derive(Clone, Copy, Debug)]
pub struct Docs {
    /// The `operationId` in the `OpenAPI` description.
    pub id: &'static str,
    /// What it does, in a few words.
    pub summary: &'static str,
    /// The part of the description that follows the summary; may be empty.
    pub more: &'static str,
    /// The description of the answer.
    pub answer: &'static str,
}

/// Returns whether a field has its default. Such a field is not sent: an earlier coordinator may not know it.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
