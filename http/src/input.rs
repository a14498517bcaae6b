//! Parses a request's query or JSON body into the type that its route takes. The deserializer is strict: every member must be
//! known and may occur only once, and errors name the member. A member that holds bytes is given as text, or as base64
//! under its name with `_b64` appended.
//!
//! What the members mean is decided by the routes.

use crate::problem::Problem;
use actix_web::http::header::{self, HeaderMap};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use serde::de::value::StrDeserializer;
use serde::de::{
    self, Deserialize, DeserializeOwned, Deserializer, IntoDeserializer as _, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};
use sexton::refusal::Reason;
use std::borrow::Cow;
use std::fmt;

/// The error for a repeated member, which would be ambiguous.
const TWICE: &str = "is given more than once";

/// Parses the fields of an HTML form. Browsers send all fields of a form, so an empty field counts as missing.
pub(crate) fn of_form<T: DeserializeOwned>(fields: &str) -> Result<T, Problem> {
    let is_filled = |pair: &&str| pair.split_once('=').is_some_and(|(_, value)| !value.is_empty());
    let filled = fields.split('&').filter(is_filled);
    of_query(&filled.collect::<Vec<_>>().join("&"))
}

/// Parses a query: `name=value` pairs joined by `&`, percent-encoded, with `+` for a space.
pub(crate) fn of_query<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        let text = percent_decode_str(&text).decode_utf8();
        text.map(Cow::into_owned).map_err(|_| {
            let words = "the query is not UTF-8: give a value that is not UTF-8 as base64, in a field with _b64 appended to its name, such as key_b64";
            Problem::new(Reason::Malformed, words)
        })
    };
    let mut members = Map::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decode(name)?, decode(value)?);
        if members.contains_key(&name) {
            return Err(Problem::field(&name, TWICE));
        }
        members.insert(name, Value::String(value));
    }
    read(members, Form::Text)
}

/// Makes a request that has no fields. A query string is ignored.
pub(crate) fn of_nothing<T: DeserializeOwned>() -> Result<T, Problem> {
    read(Map::new(), Form::Text)
}

/// Parses a body, which must be a JSON object. A `Content-Type` header, if there is one, must be that of JSON.
pub(crate) fn of_body<T: DeserializeOwned>(headers: &HeaderMap, body: &[u8]) -> Result<T, Problem> {
    if let Some(found) = headers.get(header::CONTENT_TYPE) {
        let found = found.to_str().unwrap_or("");
        let kind = found.split(';').next().unwrap_or("").trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            let words = "expected a body with Content-Type: application/json";
            return Err(Problem::new(Reason::NotJson, words));
        }
    }
    let Tree { value, twice } = serde_json::from_slice(body).map_err(|error| {
        let words = format!("the body is not JSON: {error}");
        Problem::new(Reason::Malformed, words)
    })?;
    match (value, twice) {
        (_, Some(field)) => Err(Problem::field(&field, TWICE)),
        (Value::Object(members), None) => read(members, Form::Json),
        (_, None) => {
            let words = "expected a JSON object as the body";
            Err(Problem::new(Reason::Malformed, words))
        }
    }
}

fn read<T: DeserializeOwned>(members: Map<String, Value>, form: Form) -> Result<T, Problem> {
    let value = Value::Object(members);
    T::deserialize(Input { value, form })
        .map_err(|Wrong { place, what }| Problem::field(&place, what))
}

/// An error in a member of a request.
#[derive(Debug)]
struct Wrong {
    /// The path of the member, such as `jobs[3].body`.
    place: String,
    what: String,
}

impl Wrong {
    fn at(place: &str, what: &str) -> Self {
        let (place, what) = (place.to_owned(), what.to_owned());
        Self { place, what }
    }

    /// Prefixes the path with the path of the enclosing member.
    fn within(mut self, outer: &str) -> Self {
        self.place = below(outer, &self.place);
        self
    }
}

/// Joins the path of a member and the name of a nested member.
fn below(place: &str, field: &str) -> String {
    let is_apart = place.is_empty() || field.is_empty() || field.starts_with('[');
    let dot = if is_apart { "" } else { "." };
    format!("{place}{dot}{field}")
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.place, self.what)
    }
}

impl std::error::Error for Wrong {}

/// Messages never show the value found, only what is expected.
impl de::Error for Wrong {
    fn custom<T: fmt::Display>(what: T) -> Self {
        Self::at("", &what.to_string())
    }

    fn invalid_type(_: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::at("", &format!("must be {expected}"))
    }

    fn invalid_value(_: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::at("", &format!("must be {expected}"))
    }

    fn invalid_length(_: usize, expected: &dyn de::Expected) -> Self {
        Self::at("", &format!("must be {expected}"))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::at(field, "is missing")
    }
}

/// The form in which a request gives a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// As a JSON value.
    Json,
    /// In a query, where every value is text, including numbers.
    Text,
    /// In a member whose name ends in `_b64`.
    Base64,
}

/// A value being deserialized.
struct Input {
    value: Value,
    form: Form,
}

impl Input {
    fn number<'de, V: Visitor<'de>>(self, most: u64, visitor: V) -> Result<V::Value, Wrong> {
        let number = match (&self.value, self.form) {
            (Value::String(text), Form::Text) => text.parse().ok(),
            (value, _) => value.as_u64(),
        };
        match number.filter(|number| *number <= most) {
            Some(number) => visitor.visit_u64(number),
            None => {
                let expected = (&visitor as &dyn de::Expected).to_string();
                // For primitive types, serde passes the type's name as the expectation.
                let is_derived = expected.starts_with('u');
                let any = || format!("a whole number from 0 to {most}");
                let expected = if is_derived { any() } else { expected };
                Err(wrong(format_args!("must be {expected}")))
            }
        }
    }

    fn text(self) -> Result<String, Wrong> {
        match (self.value, self.form) {
            (_, Form::Base64) => Err(wrong("is unknown")),
            (Value::String(text), _) => Ok(text),
            (_, _) => Err(wrong("must be a string")),
        }
    }
}

fn wrong(what: impl fmt::Display) -> Wrong {
    de::Error::custom(what)
}

impl<'de> Deserializer<'de> for Input {
    type Error = Wrong;

    /// Returns false, so that types that hold bytes are deserialized from bytes, not from escaped text.
    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        self.deserialize_str(visitor)
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        self.number(u8::MAX.into(), visitor)
    }

    fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        self.number(u16::MAX.into(), visitor)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        self.number(u32::MAX.into(), visitor)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        self.number(u64::MAX, visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let Value::Bool(flag) = self.value else {
            return Err(wrong("must be true or false"));
        };
        visitor.visit_bool(flag)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_string(self.text()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_string(self.text()?)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match (self.value, self.form) {
            (Value::String(text), Form::Base64) => match STANDARD.decode(text) {
                Ok(bytes) => visitor.visit_byte_buf(bytes),
                Err(_) => Err(wrong("must be base64, padded with =")),
            },
            (Value::String(text), _) => visitor.visit_byte_buf(text.into_bytes()),
            (_, _) => Err(wrong("must be a string")),
        }
    }

    /// An optional member may be left out, but may not be null.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let Value::Array(values) = self.value else {
            return Err(wrong("must be a list"));
        };
        visitor.visit_seq(Items(values.into_iter().enumerate()))
    }

    /// Deserializes an object whose member names are chosen by the client.
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let Value::Object(members) = self.value else {
            return Err(wrong("must be an object"));
        };
        let form = self.form;
        let named = members.into_iter().map(|(name, value)| Member {
            field: name.clone().into(),
            name,
            input: Input { value, form },
        });
        let named: Vec<Member> = named.collect();
        visitor.visit_map(Members(named.into_iter(), None))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let text = self.text()?;
        match words.iter().find(|word| **word == text) {
            Some(word) => {
                let word: StrDeserializer<'_, Wrong> = word.into_deserializer();
                visitor.visit_enum(word)
            }
            None => Err(wrong(format_args!("must be one of {}", words.join(", ")))),
        }
    }

    /// Missing and invalid members are reported before unknown ones.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let Value::Object(members) = self.value else {
            return Err(wrong("must be an object"));
        };
        let (mut known, mut unknown): (Vec<Member>, Option<String>) = (Vec::new(), None);
        for (name, value) in members {
            let of = |name: &str| fields.iter().find(|field| **field == name).copied();
            let (field, form) = match (of(&name), name.strip_suffix("_b64").and_then(of)) {
                (Some(field), _) => (field, self.form),
                (None, Some(field)) => (field, Form::Base64),
                (None, None) => {
                    unknown.get_or_insert(name);
                    continue;
                }
            };
            if known.iter().any(|member| member.field == field) {
                let what = format!("and {field}_b64 exclude each other");
                return Err(Wrong::at(field, &what));
            }
            let input = Input { value, form };
            let field = field.into();
            known.push(Member { field, name, input });
        }
        let read = visitor.visit_map(Members(known.into_iter(), None))?;
        unknown.map_or(Ok(read), |name| Err(Wrong::at(&name, "is unknown")))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u128 f32 f64 char byte_buf unit unit_struct tuple tuple_struct
        identifier ignored_any
    }
}

struct Items(std::iter::Enumerate<std::vec::IntoIter<Value>>);

impl<'de> de::SeqAccess<'de> for Items {
    type Error = Wrong;

    fn next_element_seed<T: de::DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Wrong> {
        let Some((place, value)) = self.0.next() else {
            return Ok(None);
        };
        let form = Form::Json;
        let item = seed.deserialize(Input { value, form });
        item.map(Some).map_err(|wrong| wrong.within(&format!("[{place}]")))
    }
}

/// A member of an object.
struct Member {
    /// The field that the member is for; in a map, the member's name.
    field: Cow<'static, str>,
    /// The name used in the request.
    name: String,
    input: Input,
}

/// The remaining members, and the one whose value is read next.
struct Members(std::vec::IntoIter<Member>, Option<Member>);

impl<'de> de::MapAccess<'de> for Members {
    type Error = Wrong;

    fn next_key_seed<K: de::DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Wrong> {
        self.1 = self.0.next();
        let key = self.1.as_ref().map(|member| {
            let field: StrDeserializer<'_, Wrong> = member.field.as_ref().into_deserializer();
            seed.deserialize(field)
        });
        key.transpose()
    }

    fn next_value_seed<V: de::DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Wrong> {
        let Member { name, input, .. } = self.1.take().expect("a value should follow its key");
        seed.deserialize(input).map_err(|wrong| wrong.within(&name))
    }
}

/// A JSON value, and the path of the first repeated member in it, if there is one.
struct Tree {
    value: Value,
    twice: Option<String>,
}

impl<V: Into<Value>> From<V> for Tree {
    fn from(value: V) -> Self {
        let (value, twice) = (value.into(), None);
        Self { value, twice }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Anything)
    }
}

struct Anything;

impl<'de> Visitor<'de> for Anything {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Value::Null.into())
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(value.into())
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let (mut values, mut twice) = (Vec::new(), None);
        while let Some(Tree { value, twice: within }) = items.next_element()? {
            let place = values.len();
            twice = twice.or_else(|| within.map(|field| below(&format!("[{place}]"), &field)));
            values.push(value);
        }
        let value = values.into();
        Ok(Tree { value, twice })
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let (mut members, mut twice) = (Map::new(), None);
        while let Some((name, given)) = items.next_entry::<String, Tree>()? {
            let within = given.twice.map(|field| below(&name, &field));
            let again = members.contains_key(&name).then(|| name.clone());
            twice = twice.or(again).or(within);
            members.insert(name, given.value);
        }
        let value = members.into();
        Ok(Tree { value, twice })
    }
}

#[cfg(test)]
mod tests {
    use super::{of_body, of_form, of_query};
    use actix_web::http::header::HeaderMap;
    use sexton::actors::lock::Name;
    use sexton_api::name::EntryNames;
    use sexton_api::value::Number;

    #[derive(Debug, serde::Deserialize)]
    struct Request {
        key: Name,
        #[serde(default)]
        owner: Name,
        #[serde(default)]
        ttl: Number<u16, 1, 65_535, 60>,
    }

    fn body(text: &str) -> Result<Request, String> {
        of_body(&HeaderMap::new(), text.as_bytes()).map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_name_is_text_or_base64_and_comes_back_as_it_was() {
        for bytes in
            [&b""[..], b"plain", b"not \\x41", "snowman \u{2603}\n".as_bytes(), b"\xff\x00\xfe"]
        {
            let [key, index, owner] = [bytes, b"", bytes].map(|name| Name::new(name).unwrap());
            let names = EntryNames { key, index, owner };
            let text = serde_json::to_string(&names).unwrap();
            let read = body(&text.replace("\"index\":\"\",", "")).unwrap();
            assert_eq!((read.key, read.owner), (names.key, names.owner), "{text}");
            assert_eq!(read.ttl.0, 60);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(body(r#"{"key":"a","ttl":5}"#).unwrap().ttl.0, 5);
        let long = format!(r#"{{"key":"{}"}}"#, "x".repeat(256));
        for (text, words) in [
            ("{}", "key is missing"),
            (r#"{"tll":1}"#, "key is missing"),
            (r#"{"key":1}"#, "key must be a string"),
            (r#"{"key":null}"#, "key must be a string"),
            (r#"{"key_b64":"a"}"#, "key_b64 must be base64"),
            (r#"{"key":"a","key_b64":"YQ=="}"#, "exclude each other"),
            (&long, "key must be a name of at most 255 bytes"),
            (r#"{"key":"a","ttl":0}"#, "ttl must be a whole number from 1 to 65535"),
            (r#"{"key":"a","ttl":"5"}"#, "ttl must be"),
            (r#"{"key":"a","ttl":1.5}"#, "ttl must be"),
            (r#"{"key":"a","tll":5}"#, "tll is unknown"),
            (r#"{"key":"a","key":"b"}"#, "key is given more than once"),
            (
                r#"{"key":"a","in":{"b":[1,{"c":1,"c":"secret"}]}}"#,
                "in.b[1].c is given more than once",
            ),
            (r#"{"a":{"b":[[{"c":1,"c":2}]],"b":1},"a":1}"#, "a.b[0][0].c is given"),
            (r#"["secret"]"#, "expected a JSON object"),
            (r#""secret""#, "expected a JSON object"),
            (r#"{"key":"#, "not JSON"),
            ("", "not JSON"),
        ] {
            let problem = body(text).unwrap_err();
            assert!(problem.contains(words), "{text}: {problem}");
            assert!(!problem.contains("secret"), "the error must not show any of the body");
        }
    }

    #[test]
    fn an_empty_field_of_a_form_is_left_out() {
        let read: Request = of_form("key=a&owner=&ttl=").unwrap();
        assert_eq!((read.key.as_bytes(), read.ttl.0), (&b"a"[..], 60));
        assert!(of_form::<Request>("key=&ttl=7").is_err());
        let read: Request = of_form("key=%3D&owner=a%3d").unwrap();
        assert_eq!(read.owner.as_bytes(), b"a=");
    }

    #[test]
    fn a_query_is_decoded_or_refused() {
        let read: Request = of_query("key=a%20b+c%2B&owner=&ttl=7").unwrap();
        assert_eq!(read.key.as_bytes(), b"a b c+");
        assert_eq!((read.owner.as_bytes(), read.ttl.0), (&b""[..], 7));
        for wrong in ["key=%ff", "key=a&key=b", "key=a&ttl=x", "key=a&tll=1"] {
            assert!(of_query::<Request>(wrong).is_err(), "{wrong}");
        }
    }
}
