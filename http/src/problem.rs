//! Refusals as problem documents (RFC 9457). The detail may name a field of the request, but never quotes its headers or its
//! body, because these must not end up in logs.

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::{HttpResponse, ResponseError};
use schemars::JsonSchema;
use serde::Serialize;
use sexton::actors::lock::{self, Name};
use sexton::actors::{dispatch, lease};
use sexton::handle::{LeaseError, LockError, QueueError, TaskError};
use sexton::refusal::{Reason, Retry};
use sexton::spine::checkpoint::CheckpointError;
use sexton_api::name::OwnerName;
use std::fmt;

pub(crate) const CONTENT_TYPE: &str = "application/problem+json";

/// The content type of pages.
pub(crate) const HTML: &str = "text/html; charset=utf-8";

/// The number of seconds after which a retry may succeed.
const RETRY_AFTER: &str = "1";

/// The same after too many wrong tokens.
const RETRY_TOKEN_AFTER: &str = "60";

/// The maximum number of characters of a field name that are shown.
const SHOWN_CHARS_MAX: usize = 40;

/// Why a request was refused.
#[derive(Debug, Clone)]
pub(crate) struct Problem(Box<Parts>);

#[derive(Debug, Clone)]
struct Parts {
    reason: Reason,
    detail: String,
    header: Option<(HeaderName, HeaderValue)>,
    field: Option<String>,
    place: Option<u32>,
    owner: Option<Name>,
}

/// The serialized form of a problem.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(crate) struct Document<'a> {
    #[schemars(extend("const" = "about:blank"))]
    r#type: &'static str,
    /// The reason phrase of the status.
    title: &'static str,
    #[schemars(range(min = 400, max = 599))]
    status: u16,
    /// A description for users.
    detail: &'a str,
    /// The machine-readable reason.
    reason: Reason,
    /// The field of the request that is invalid or, if the reason is `absent`, that names what does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
    /// If another owner holds the lock: the position at which the entry joined the line.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<u32>,
    /// If another owner holds the lock: that owner.
    #[serde(flatten)]
    owner: Option<OwnerName>,
}

impl Problem {
    pub(crate) fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self(Box::new(Parts {
            reason,
            detail: detail.into(),
            header: None,
            field: None,
            place: None,
            owner: None,
        }))
    }

    /// Creates a problem about an invalid field. `what` completes the detail, which begins with "the field NAME".
    pub(crate) fn field(field: &str, what: impl fmt::Display) -> Self {
        let shown: String = field.chars().take(SHOWN_CHARS_MAX).collect();
        let shown = shown.escape_debug().to_string();
        let mut problem = Self::new(Reason::Field, format!("the field {shown} {what}"));
        problem.0.field = Some(shown);
        problem
    }

    /// Creates a problem about something that does not exist, which this field of the request names.
    pub(crate) fn absent(field: &str, detail: impl Into<String>) -> Self {
        Self::new(Reason::Absent, detail).naming(field)
    }

    /// Adds the field of the request that is invalid or, if the reason is `absent`, that names what does not exist. Has no effect on a
    /// refusal for another reason.
    pub(crate) fn naming(mut self, field: &str) -> Self {
        if [Reason::Absent, Reason::Field].contains(&self.0.reason) {
            self.0.field = Some(field.to_owned());
        }
        self
    }

    /// Adds the entry's position in line, and the owner that holds the lock, if any.
    pub(crate) fn held(mut self, place: u32, owner: Option<Name>) -> Self {
        (self.0.place, self.0.owner) = (Some(place), owner);
        self
    }

    /// Adds a header to the answer, such as `Allow`.
    pub(crate) fn with(mut self, name: HeaderName, value: &'static str) -> Self {
        self.0.header = Some((name, HeaderValue::from_static(value)));
        self
    }

    /// Replaces the reason `stopped` with `halted`, and the detail with the reason for the halt, if the node stopped because it halted.
    pub(crate) fn or_halt(mut self, halt: Option<String>) -> Self {
        if let (Reason::Stopped, Some(halt)) = (self.0.reason, halt) {
            (self.0.reason, self.0.detail) = (Reason::Halted, halt);
        }
        self
    }

    /// Returns the reason for the refusal.
    pub(crate) const fn reason(&self) -> Reason {
        self.0.reason
    }

    /// Returns the value of the `Retry-After` header, if the same request may succeed later.
    pub(crate) fn retry_after(&self) -> Option<HeaderValue> {
        let after =
            if self.0.reason == Reason::Throttled { RETRY_TOKEN_AFTER } else { RETRY_AFTER };
        let is_later = self.0.reason.retry() == Retry::Later;
        is_later.then_some(HeaderValue::from_static(after))
    }

    /// Returns the problem that replaces an error response of the web framework. Its reason is the first one with the same status; if there
    /// is none, `malformed` for a client error, and `failed` otherwise.
    pub(crate) fn instead_of(status: StatusCode) -> Self {
        let mut all = Reason::ALL.iter().copied();
        let alike = all.find(|reason| reason.status() == status.as_u16());
        let other = if status.is_client_error() { Reason::Malformed } else { Reason::Failed };
        Self::new(alike.unwrap_or(other), "the request cannot be answered")
    }
}

impl From<LockError> for Problem {
    fn from(error: LockError) -> Self {
        if error == LockError::Refused(lock::Refused::NoOwner) {
            return Self::field("owner", "must not be empty");
        }
        Self::new(error.reason(), error.to_string()).naming("key")
    }
}

impl From<QueueError> for Problem {
    fn from(error: QueueError) -> Self {
        Self::new(error.reason(), error.to_string()).naming("id")
    }
}

impl From<LeaseError> for Problem {
    fn from(error: LeaseError) -> Self {
        use lease::Refused;
        let problem = Self::new(error.reason(), error.to_string());
        match error {
            LeaseError::Absent | LeaseError::Refused(Refused::NoName) => problem.naming("name"),
            LeaseError::Refused(Refused::Command(_) | Refused::NoCommand) => {
                problem.naming("launch")
            }
            LeaseError::Refused(Refused::Log) => problem.naming("logfile"),
            LeaseError::Refused(Refused::NoDate) => problem.naming("schedule"),
            LeaseError::Refused(_) | LeaseError::Failed(_) | LeaseError::Stopped(_) => problem,
        }
    }
}

impl From<TaskError> for Problem {
    fn from(error: TaskError) -> Self {
        let problem = Self::new(error.reason(), error.to_string());
        match error {
            TaskError::Absent => problem.naming("id"),
            TaskError::Refused(dispatch::Refused::Command(_)) => problem.naming("launch"),
            TaskError::Refused(_)
            | TaskError::NoFaults
            | TaskError::Failed(_)
            | TaskError::Rules(_)
            | TaskError::Stopped(_) => problem,
        }
    }
}

impl From<CheckpointError> for Problem {
    fn from(error: CheckpointError) -> Self {
        let reason = match error {
            CheckpointError::Memory => Reason::NoFiles,
            CheckpointError::Persist(_) => Reason::Failed,
            CheckpointError::Interrupted => Reason::Busy,
            CheckpointError::Stopped => Reason::Stopped,
        };
        Self::new(reason, format!("cannot {error}"))
    }
}

/// Returns whether an answer is a refusal that was rendered neither as a problem document nor as a page.
pub(crate) fn is_bare(status: StatusCode, content_type: Option<&HeaderValue>) -> bool {
    (status.is_client_error() || status.is_server_error())
        && content_type.is_none_or(|found| found != CONTENT_TYPE && found != HTML)
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.detail)
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        let status = StatusCode::from_u16(self.0.reason.status());
        status.expect("each reason should have an HTTP status")
    }

    fn error_response(&self) -> HttpResponse {
        let status = self.status_code();
        let Parts { reason, detail, header, field, place, owner } = self.0.as_ref();
        let document = Document {
            r#type: "about:blank",
            title: status.canonical_reason().unwrap_or("Problem"),
            status: status.as_u16(),
            detail,
            reason: *reason,
            field: field.as_deref(),
            place: *place,
            owner: owner.clone().map(|owner| OwnerName { owner }),
        };
        let mut body = serde_json::to_vec(&document).expect("strings and numbers should be JSON");
        body.push(b'\n');
        let mut response = HttpResponse::build(status);
        response.insert_header((header::CONTENT_TYPE, CONTENT_TYPE));
        if let Some(after) = self.retry_after() {
            response.insert_header((header::RETRY_AFTER, after));
        }
        if let Some(header) = header {
            response.insert_header(header.clone());
        }
        response.body(body)
    }
}
