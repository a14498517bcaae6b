//! The fields of a request, from its query or from its JSON body, taken out one by one: what is left over was not
//! asked for, and is refused. Every refusal names the field. And names and bytes in JSON, both ways.
//!
//! Never here: what a field is for.

use crate::actors::lock::Name;
use crate::actors::queue::QueueName;
use crate::protocols::http::problem::Problem;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;
use std::ops::RangeInclusive;

/// How much of an unknown field's name is shown.
const SHOWN_CHARS_MAX: usize = 40;

/// What is wrong with a field of which nobody could say which one is meant.
const TWICE: &str = "is there more than once";

/// Fields that nobody has taken yet.
#[derive(Debug)]
pub(crate) struct Fields {
    /// Each once.
    left: Vec<(String, Value)>,
    /// A query has numbers as text.
    are_text: bool,
    /// Where they stand, to say what is wrong.
    place: String,
}

impl Fields {
    /// Reads a query: `name=value`, joined by `&`, percent-encoded.
    pub(crate) fn of_query(query: &str) -> Result<Self, Problem> {
        let decode = |text: &str| {
            let text = text.replace('+', " ");
            percent_decode_str(&text)
                .decode_utf8()
                .map(std::borrow::Cow::into_owned)
        };
        let mut left = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Ok(name), Ok(value)) = (decode(name), decode(value)) else {
                return Err(malformed(
                    "the query is not UTF-8: give names that are no text as base64, in key_b64, index_b64, owner_b64",
                ));
            };
            left.push((name, Value::String(value)));
        }
        Self {
            left,
            are_text: true,
            place: String::new(),
        }
        .each_once()
    }

    /// Reads a body: a JSON object.
    pub(crate) fn of_body(headers: &HeaderMap, body: &[u8]) -> Result<Self, Problem> {
        if let Some(found) = headers.get(header::CONTENT_TYPE) {
            let found = found.to_str().unwrap_or("");
            let kind = found.split(';').next().unwrap_or("").trim();
            if !kind.eq_ignore_ascii_case("application/json") {
                return Err(Problem::new(
                    StatusCode::UNSUPPORTED_MEDIA_TYPE,
                    "expected a body of Content-Type: application/json",
                ));
            }
        }
        let Given { value, twice } = serde_json::from_slice(body)
            .map_err(|error| malformed(format!("the body is not JSON: {error}")))?;
        let Value::Object(members) = value else {
            return Err(malformed("expected a JSON object as the body"));
        };
        match twice {
            Some(field) => Err(wrong(&field, TWICE)),
            None => Ok(Self {
                left: members.into_iter().collect(),
                are_text: false,
                place: String::new(),
            }),
        }
    }

    fn each_once(self) -> Result<Self, Problem> {
        let mut names: Vec<&str> = self.left.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        let twice = names.windows(2).find_map(|pair| match pair {
            [one, other] if one == other => Some(self.wrong(one, TWICE)),
            _ => None,
        });
        twice.map_or(Ok(self), Err)
    }

    fn take(&mut self, field: &str) -> Option<Value> {
        let at = self.left.iter().position(|(name, _)| name == field)?;
        Some(self.left.swap_remove(at).1)
    }

    /// Bytes: text in the field itself, or base64 in the field with `_b64` behind it; and which field it was.
    fn encoded(&mut self, field: &str) -> Result<Option<(String, Vec<u8>)>, Problem> {
        let encoded_field = format!("{field}_b64");
        match (self.take(field), self.take(&encoded_field)) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => {
                Err(self.wrong(field, format!("and {encoded_field} exclude each other")))
            }
            (Some(Value::String(text)), None) => Ok(Some((field.to_owned(), text.into_bytes()))),
            (Some(_), None) => Err(self.wrong(field, "must be a string")),
            (None, Some(Value::String(text))) => match STANDARD.decode(text) {
                Ok(bytes) => Ok(Some((encoded_field, bytes))),
                Err(_) => Err(self.wrong(&encoded_field, "must be base64, padded with =")),
            },
            (None, Some(_)) => Err(self.wrong(&encoded_field, "must be a string")),
        }
    }

    /// Bytes that must be there, as text or as base64.
    pub(crate) fn needed_bytes(&mut self, field: &str) -> Result<Vec<u8>, Problem> {
        let encoded = self.encoded(field)?;
        let (_, bytes) = encoded.ok_or_else(|| self.wrong(field, "is missing"))?;
        Ok(bytes)
    }

    /// A name of a lock, as text or as base64.
    pub(crate) fn name(&mut self, field: &str) -> Result<Option<Name>, Problem> {
        let Some((field, bytes)) = self.encoded(field)? else {
            return Ok(None);
        };
        let most = Name::BYTES_MAX;
        let name = Name::new(bytes);
        name.map(Some)
            .ok_or_else(|| self.wrong(&field, format!("must have at most {most} bytes")))
    }

    /// A name of a queue.
    pub(crate) fn queue(&mut self, field: &str) -> Result<Option<QueueName>, Problem> {
        let text = self.text(field)?;
        text.map(|text| self.queue_named(field, &text)).transpose()
    }

    /// A name of a queue that must be there.
    pub(crate) fn needed_queue(&mut self, field: &str) -> Result<QueueName, Problem> {
        let queue = self.queue(field)?;
        queue.ok_or_else(|| self.wrong(field, "is missing"))
    }

    /// Names of queues: a list, of one at least, and so many at most.
    pub(crate) fn needed_queues(
        &mut self,
        field: &str,
        most: usize,
    ) -> Result<Vec<QueueName>, Problem> {
        let names = match self.take(field) {
            None => return Err(self.wrong(field, "is missing")),
            Some(Value::Array(names)) if (1..=most).contains(&names.len()) => names,
            Some(_) => {
                return Err(self.wrong(field, format!("must be a list of 1 to {most} names")));
            }
        };
        let name = |name: &Value| self.queue_named(field, name.as_str().unwrap_or(""));
        names.iter().map(name).collect()
    }

    /// One of a few words.
    pub(crate) fn one_of<T: Copy>(
        &mut self,
        field: &str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.text(field)? else {
            return Ok(None);
        };
        let found = words.iter().find(|(word, _)| *word == text);
        found.map(|(_, meant)| Some(*meant)).ok_or_else(|| {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.wrong(field, format!("must be one of {}", words.join(", ")))
        })
    }

    /// A text.
    pub(crate) fn text(&mut self, field: &str) -> Result<Option<String>, Problem> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(field, "must be a string")),
        }
    }

    /// A name that must be there.
    pub(crate) fn needed_name(&mut self, field: &str) -> Result<Name, Problem> {
        let name = self.name(field)?;
        name.ok_or_else(|| self.wrong(field, "is missing"))
    }

    /// A whole number within bounds.
    pub(crate) fn number<N: TryFrom<u64>>(
        &mut self,
        field: &str,
        bounds: RangeInclusive<u64>,
    ) -> Result<Option<N>, Problem> {
        let number = match self.take(field) {
            None => return Ok(None),
            Some(Value::String(text)) if self.are_text => text.parse().ok(),
            Some(value) => value.as_u64(),
        };
        let number = number.filter(|number| bounds.contains(number));
        let number = number.and_then(|number| N::try_from(number).ok());
        let (least, most) = (bounds.start(), bounds.end());
        number.map(Some).ok_or_else(|| {
            self.wrong(
                field,
                format!("must be a whole number from {least} to {most}"),
            )
        })
    }

    /// Yes or no.
    pub(crate) fn flag(&mut self, field: &str) -> Result<Option<bool>, Problem> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(_) => Err(self.wrong(field, "must be true or false")),
        }
    }

    /// An object, as fields of their own.
    pub(crate) fn object(&mut self, field: &str) -> Result<Option<Self>, Problem> {
        let value = self.take(field);
        let place = format!("{}{field}", self.place);
        value.map(|value| Self::within(place, value)).transpose()
    }

    /// A list of objects that must be there, of one at least, and so many at most.
    pub(crate) fn needed_objects(
        &mut self,
        field: &str,
        most: usize,
    ) -> Result<Vec<Self>, Problem> {
        let values = match self.take(field) {
            None => return Err(self.wrong(field, "is missing")),
            Some(Value::Array(values)) if (1..=most).contains(&values.len()) => values,
            Some(_) => {
                return Err(self.wrong(field, format!("must be a list of 1 to {most} objects")));
            }
        };
        let place = |number: usize| format!("{}{field}[{number}]", self.place);
        let within = |(number, value)| Self::within(place(number), value);
        let objects = values.into_iter().enumerate().map(within);
        objects.collect()
    }

    fn within(place: String, value: Value) -> Result<Self, Problem> {
        let Value::Object(members) = value else {
            return Err(wrong(&place, "must be an object"));
        };
        Ok(Self {
            left: members.into_iter().collect(),
            are_text: false,
            place: place + ".",
        })
    }

    /// What is wrong with one of them.
    pub(crate) fn wrong(&self, field: &str, what: impl fmt::Display) -> Problem {
        wrong(&format!("{}{field}", self.place), what)
    }

    fn queue_named(&self, field: &str, text: &str) -> Result<QueueName, Problem> {
        QueueName::parse(text.as_bytes()).ok_or_else(|| {
            let most = QueueName::PART_BYTES_MAX;
            let parts =
                format!("each 1 to {most} of letters, digits and -+/;.$_(), the first no -");
            self.wrong(field, format!("must be TYPE or TENANT:TYPE, {parts}"))
        })
    }

    /// A whole number within bounds that must be there.
    pub(crate) fn needed_number<N: TryFrom<u64>>(
        &mut self,
        field: &str,
        bounds: RangeInclusive<u64>,
    ) -> Result<N, Problem> {
        let number = self.number(field, bounds)?;
        number.ok_or_else(|| self.wrong(field, "is missing"))
    }

    /// A list of so many whole numbers within bounds.
    pub(crate) fn numbers(
        &mut self,
        field: &str,
        count: usize,
        bounds: RangeInclusive<u32>,
    ) -> Result<Option<Vec<u32>>, Problem> {
        let Some(value) = self.take(field) else {
            return Ok(None);
        };
        let number = |value: &Value| {
            let number = value.as_u64().and_then(|number| number.try_into().ok());
            number.filter(|number| bounds.contains(number))
        };
        let numbers = value.as_array().filter(|list| list.len() == count);
        let numbers = numbers.and_then(|list| list.iter().map(number).collect());
        let (least, most) = bounds.clone().into_inner();
        let wanted = || format!("must be a list of {count} numbers from {least} to {most}");
        numbers.map(Some).ok_or_else(|| self.wrong(field, wanted()))
    }

    /// Refuses what nobody took.
    pub(crate) fn end(self) -> Result<(), Problem> {
        match self.left.first() {
            None => Ok(()),
            Some((name, _)) => Err(self.wrong(name, "is not known here")),
        }
    }
}

fn malformed(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail).because("malformed")
}

/// What is wrong with a field.
pub(crate) fn wrong(field: &str, what: impl fmt::Display) -> Problem {
    let shown: String = field.chars().take(SHOWN_CHARS_MAX).collect();
    let shown = shown.escape_debug();
    let problem = Problem::new(StatusCode::BAD_REQUEST, format!("the field {shown} {what}"));
    problem
        .because("field")
        .tell([("field".to_owned(), shown.to_string().into())])
}

/// A name of a lock as a member of a JSON object.
pub(crate) fn member(field: &str, name: &Name) -> (String, Value) {
    bytes_member(field, name.as_bytes())
}

/// Bytes as a member of a JSON object: themselves if they are text, else as base64, which their field then says.
pub(crate) fn bytes_member(field: &str, bytes: &[u8]) -> (String, Value) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (field.to_owned(), text.into()),
        Err(_) => (format!("{field}_b64"), STANDARD.encode(bytes).into()),
    }
}

/// A JSON value, and the first member of an object in it that is there more than once.
struct Given {
    value: Value,
    twice: Option<String>,
}

impl<V: Into<Value>> From<V> for Given {
    fn from(value: V) -> Self {
        let (value, twice) = (value.into(), None);
        Self { value, twice }
    }
}

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Anything)
    }
}

/// The name of a field with its place before it.
fn below(place: &str, field: &str) -> String {
    let dot = if field.starts_with('[') { "" } else { "." };
    format!("{place}{dot}{field}")
}

struct Anything;

impl<'de> Visitor<'de> for Anything {
    type Value = Given;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Given, E> {
        Ok(Value::Null.into())
    }

    fn visit_bool<E>(self, value: bool) -> Result<Given, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Given, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Given, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Given, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Given, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Given, A::Error> {
        let (mut values, mut twice) = (Vec::new(), None);
        while let Some(Given {
            value,
            twice: within,
        }) = all.next_element()?
        {
            let place = values.len();
            twice = twice.or_else(|| within.map(|field| below(&format!("[{place}]"), &field)));
            values.push(value);
        }
        let value = values.into();
        Ok(Given { value, twice })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Given, A::Error> {
        let (mut members, mut twice) = (Map::new(), None);
        while let Some((name, given)) = all.next_entry::<String, Given>()? {
            let within = given.twice.map(|field| below(&name, &field));
            let again = members.contains_key(&name).then(|| name.clone());
            twice = twice.or(again).or(within);
            members.insert(name, given.value);
        }
        let value = members.into();
        Ok(Given { value, twice })
    }
}

#[cfg(test)]
mod tests {
    use super::{Fields, member};
    use crate::actors::lock::Name;
    use actix_web::http::header::HeaderMap;

    fn body(text: &str) -> Result<Fields, String> {
        Fields::of_body(&HeaderMap::new(), text.as_bytes()).map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_name_is_text_or_base64_and_comes_back_as_it_was() {
        for bytes in [
            &b""[..],
            b"plain",
            "snowman \u{2603}\n".as_bytes(),
            b"\xff\x00\xfe",
        ] {
            let name = Name::new(bytes).unwrap();
            let object: serde_json::Value = [member("key", &name)].into_iter().collect();
            let mut fields = body(&object.to_string()).unwrap();
            assert_eq!(fields.needed_name("key").unwrap(), name, "{object}");
            fields.end().unwrap();
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let take = |text: &str| {
            let mut fields = body(text)?;
            let taken = (|| {
                fields.needed_name("key")?;
                fields.number::<u16>("ttl", 1..=65_535)?;
                fields.end()
            })();
            taken.map_err(|problem| problem.to_string())
        };
        assert_eq!(take(r#"{"key":"a","ttl":5}"#), Ok(()));
        let long = format!(r#"{{"key":"{}"}}"#, "x".repeat(256));
        for (text, words) in [
            ("{}", "key is missing"),
            (r#"{"key":1}"#, "key must be a string"),
            (r#"{"key_b64":"a"}"#, "key_b64 must be base64"),
            (r#"{"key":"a","key_b64":"YQ=="}"#, "exclude each other"),
            (&long, "key must have at most 255 bytes"),
            (
                r#"{"key":"a","ttl":0}"#,
                "ttl must be a whole number from 1 to 65535",
            ),
            (r#"{"key":"a","ttl":"5"}"#, "ttl must be"),
            (r#"{"key":"a","ttl":1.5}"#, "ttl must be"),
            (r#"{"key":"a","tll":5}"#, "tll is not known here"),
            (r#"{"key":"a","key":"b"}"#, "key is there more than once"),
            (
                r#"{"key":"a","in":{"b":[1,{"c":1,"c":"secret"}]}}"#,
                "in.b[1].c is there more than once",
            ),
            (
                r#"{"a":{"b":[[{"c":1,"c":2}]],"b":1},"a":1}"#,
                "a.b[0][0].c is there",
            ),
            (r#"["secret"]"#, "expected a JSON object"),
            (r#""secret""#, "expected a JSON object"),
            (r#"{"key":"#, "not JSON"),
            ("", "not JSON"),
        ] {
            let problem = take(text).unwrap_err();
            assert!(problem.contains(words), "{text}: {problem}");
            assert!(!problem.contains("secret"), "nothing of the body is shown");
        }
    }

    #[test]
    fn a_query_is_decoded_or_refused() {
        let mut fields = Fields::of_query("key=a%20b+c%2B&owner=&ttl=7").unwrap();
        assert_eq!(fields.needed_name("key").unwrap().as_bytes(), b"a b c+");
        assert_eq!(fields.needed_name("owner").unwrap().as_bytes(), b"");
        assert_eq!(fields.number::<u8>("ttl", 0..=9).unwrap(), Some(7));
        fields.end().unwrap();
        assert!(Fields::of_query("key=%ff").is_err());
        assert!(Fields::of_query("key=a&key=b").is_err());
    }
}
