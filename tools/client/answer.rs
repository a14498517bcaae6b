//! The fields of a request, and the coordinator's answer.

use crate::report::{Failure, reason_of};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sexton::refusal::Reason;

/// An answer from the coordinator.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// The fields of a request.
pub(crate) type Fields = Map<String, Value>;

/// Builds the fields of a request, leaving out those that are null.
pub(crate) fn fields<const COUNT: usize>(members: [(&str, Value); COUNT]) -> Fields {
    let members = members.into_iter().filter(|(_, value)| !value.is_null());
    members.map(|(field, value)| (field.to_owned(), value)).collect()
}

impl Answer {
    /// Returns the body if the status is 200. Otherwise, fails with the refusal and the advice for its reason in `helps`, if there is any.
    pub(crate) fn success(&self, helps: &[(Reason, &'static str)]) -> Result<Value, Failure> {
        let said = self.json()?;
        if self.status == 200 { Ok(said) } else { Err(Failure::refused(&said, helps)) }
    }

    /// Parses the body as JSON.
    pub(crate) fn json(&self) -> Result<Value, Failure> {
        read(&self.body)
    }

    /// Returns the reason if this is a refusal by the coordinator. Returns `None` if the status is 200, or if the reason is missing, is
    /// unknown or does not match the status.
    pub(crate) fn refusal(&self) -> Option<Reason> {
        if self.status == 200 {
            return None;
        }
        let said: Value = serde_json::from_str(&self.body).ok()?;
        let reason = reason_of(&said)?;
        (self.status == reason.status()).then_some(reason)
    }

    /// Returns the field of the request that is invalid, or that names what does not exist, if this is a refusal because of one.
    pub(super) fn field(&self) -> Option<String> {
        let said: Value = serde_json::from_str(&self.body).ok()?;
        Some(said.pointer("/field")?.as_str()?.to_owned())
    }

    /// If the coordinator refused the request because an item does not exist, prefixes the detail of the refusal with the item's name,
    /// which is taken from `asked`, the fields of the request: the refusal says which of them names the item.
    pub(crate) fn about(self, asked: &Value) -> Self {
        if !self.is_refused_as(Reason::Absent) {
            return self;
        }
        if let Ok(said) = self.json()
            && let Some(detail) = said.pointer("/detail").and_then(Value::as_str)
            && let Some(name) = self.field().and_then(|field| text_of(asked.get(&field)?))
        {
            let detail = format!("{name}: {detail}");
            return self.with_detail(detail);
        }
        self
    }

    /// Replaces the detail of a refusal.
    pub(crate) fn with_detail(mut self, detail: String) -> Self {
        if let Ok(Value::Object(mut said)) = serde_json::from_str(&self.body) {
            said.insert("detail".to_owned(), detail.into());
            self.body = format!("{}\n", Value::Object(said));
        }
        self
    }

    /// Returns whether this is a refusal for `reason`.
    pub(crate) fn is_refused_as(&self, reason: Reason) -> bool {
        self.refusal() == Some(reason)
    }
}

/// Parses a body as JSON of this type.
pub(super) fn read<T: DeserializeOwned>(body: &str) -> Result<T, Failure> {
    serde_json::from_str(body).map_err(|error| unreadable(&error))
}

/// Returns the failure if an answer, or a part of one, is not what was asked for.
pub(crate) fn unreadable(error: &serde_json::Error) -> Failure {
    Failure::unreachable(format!("failed to read the coordinator's answer: {error}"))
}

/// Returns the value of a field as text; `None` if it is neither text nor a number.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Appends the fields to the path as a query string. Values that are neither text nor numbers are sent as empty ones.
pub(crate) fn with_query(path: &str, fields: &Map<String, Value>) -> String {
    let mut path = path.to_owned();
    for (place, (field, value)) in fields.iter().enumerate() {
        path.push(if place == 0 { '?' } else { '&' });
        path.push_str(field);
        path.push('=');
        let value = text_of(value).unwrap_or_default();
        path.extend(utf8_percent_encode(&value, NON_ALPHANUMERIC));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::{Answer, fields};
    use serde_json::Value;

    #[test]
    fn a_refusal_names_what_does_not_exist() {
        let refused = |field: &str, detail: &str| Answer {
            status: 404,
            body: format!(
                "{{\"detail\":\"{detail}\",\"field\":\"{field}\",\"reason\":\"absent\"}}\n"
            ),
        };
        let asked = Value::Object(fields([("id", 17.into()), ("process", "01a2".into())]));
        // The words do not matter.
        for (field, expected) in [
            ("id", "17: not this process"),
            ("process", "01a2: not this process"),
            ("queue", "not this process"),
        ] {
            let answer = refused(field, "not this process").about(&asked);
            assert_eq!(answer, refused(field, expected));
        }
        let mut other = refused("id", "there is no such job");
        other.status = 409;
        assert_eq!(other.about(&asked).status, 409);
    }
}
