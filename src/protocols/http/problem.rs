//! Refusals as problem documents (RFC 9457). The words never repeat a header or a body of the request: neither may
//! end up in somebody's log.

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::{HttpResponse, ResponseError};
use serde::Serialize;
use serde_json::{Map, Value};

const CONTENT_TYPE: &str = "application/problem+json";

/// Why a request is not answered as asked.
#[derive(Debug, Clone)]
pub(crate) struct Problem(Box<Parts>);

#[derive(Debug, Clone)]
struct Parts {
    status: StatusCode,
    detail: String,
    header: Option<(HeaderName, HeaderValue)>,
    members: Map<String, Value>,
}

/// What is written of it.
#[derive(Serialize)]
struct Document<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
    #[serde(flatten)]
    members: &'a Map<String, Value>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self(Box::new(Parts {
            status,
            detail: detail.into(),
            header: None,
            members: Map::new(),
        }))
    }

    /// With a word for programs, where one status stands for several reasons.
    pub(crate) fn because(self, reason: &'static str) -> Self {
        self.tell([("reason".to_owned(), reason.into())])
    }

    /// With members for programs.
    pub(crate) fn tell(mut self, members: impl IntoIterator<Item = (String, Value)>) -> Self {
        self.0.members.extend(members);
        self
    }

    /// With a header that says what would be heard.
    pub(crate) fn with(mut self, name: HeaderName, value: &'static str) -> Self {
        self.0.header = Some((name, HeaderValue::from_static(value)));
        self
    }

    /// Whether the request would be refused again for the same reason: it was carried out, and this came of it.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self.0.status, StatusCode::NOT_FOUND | StatusCode::CONFLICT)
    }

    /// An answer of the web framework itself, in our words.
    pub(crate) fn instead_of(status: StatusCode) -> Self {
        Self::new(status, "the request cannot be answered")
    }
}

/// Whether an answer is a refusal that is not a problem document yet.
pub(crate) fn is_bare(status: StatusCode, content_type: Option<&HeaderValue>) -> bool {
    (status.is_client_error() || status.is_server_error())
        && content_type.is_none_or(|found| found != CONTENT_TYPE)
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.detail)
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.0.status
    }

    fn error_response(&self) -> HttpResponse {
        let document = Document {
            r#type: "about:blank",
            title: self.0.status.canonical_reason().unwrap_or("Problem"),
            status: self.0.status.as_u16(),
            detail: &self.0.detail,
            members: &self.0.members,
        };
        let mut body = serde_json::to_vec(&document).expect("strings and a number are JSON");
        body.push(b'\n');
        let mut response = HttpResponse::build(self.0.status);
        response.insert_header((header::CONTENT_TYPE, CONTENT_TYPE));
        if let Some(header) = &self.0.header {
            response.insert_header(header.clone());
        }
        response.body(body)
    }
}
