//! Writes a request as JSON. Where a field holds bytes, the member is named as [`name`](crate::name) describes; a field that is `None` is left
//! out.

use crate::member::in_base64;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{self, Impossible, Serialize, Serializer};
use serde_json::{Map, Value};
use std::fmt;

/// The fields of a request.
pub type Fields = Map<String, Value>;

/// Returns the fields of a request, as they are sent.
///
/// # Panics
/// Panics if `request` is not a struct with named fields, or contains a value of a kind that no request contains, such as a float.
pub fn of(request: &impl Serialize) -> Fields {
    match request.serialize(Encoder) {
        Ok(Written::Json(Value::Object(fields))) => fields,
        Ok(_) => unreachable!("a request should have fields"),
        Err(Unwritable(what)) => unreachable!("a request should be JSON: {what}"),
    }
}

/// Adds bytes to an object: as text under `name`, or as base64 if they are not UTF-8 or base64 is shorter. A control character can take six
/// bytes as text, so that the shorter form keeps every allowed value within the size limit of a request.
pub fn put(fields: &mut Fields, name: &str, bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).ok().map(Value::from);
    let text = text.filter(|text| text.to_string().len() - 2 <= bytes.len().div_ceil(3) * 4);
    match text {
        Some(text) => fields.insert(name.to_owned(), text),
        None => fields.insert(in_base64(name), STANDARD.encode(bytes).into()),
    };
}

/// A value that was written. An object or a list around it decides about those that JSON cannot express.
enum Written {
    Json(Value),
    Bytes(Vec<u8>),
    Nothing,
}

impl Written {
    fn put(self, name: &str, fields: &mut Fields) {
        match self {
            Self::Json(value) => drop(fields.insert(name.to_owned(), value)),
            Self::Bytes(bytes) => put(fields, name, &bytes),
            Self::Nothing => {}
        }
    }
}

/// What a request cannot contain.
#[derive(Debug)]
struct Unwritable(String);

impl fmt::Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unwritable {}

impl ser::Error for Unwritable {
    fn custom<T: fmt::Display>(what: T) -> Self {
        Self(what.to_string())
    }
}

struct Encoder;

/// Implements the methods for kinds of values that no request contains.
macro_rules! unwritable {
    ($($method:ident($($type:ty),*);)*) => {
        $(fn $method(self, $(_: $type),*) -> Result<Written, Unwritable> {
            Err(Unwritable(stringify!($method).to_owned()))
        })*
    };
}

/// Implements the methods for kinds of values that JSON has, too.
macro_rules! as_json {
    ($($method:ident($type:ty);)*) => {
        $(fn $method(self, value: $type) -> Result<Written, Unwritable> {
            Ok(Written::Json(value.into()))
        })*
    };
}

impl Serializer for Encoder {
    type Ok = Written;
    type Error = Unwritable;
    type SerializeSeq = Items;
    type SerializeTuple = Impossible<Written, Unwritable>;
    type SerializeTupleStruct = Impossible<Written, Unwritable>;
    type SerializeTupleVariant = Impossible<Written, Unwritable>;
    type SerializeMap = Members;
    type SerializeStruct = Members;
    type SerializeStructVariant = Impossible<Written, Unwritable>;

    /// Returns false, so that types that hold bytes are written as bytes, not as escaped text.
    fn is_human_readable(&self) -> bool {
        false
    }

    as_json! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_str(&str);
    }

    unwritable! {
        serialize_f32(f32);
        serialize_f64(f64);
        serialize_char(char);
        serialize_unit();
        serialize_unit_struct(&'static str);
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<Written, Unwritable> {
        Ok(Written::Bytes(bytes.to_vec()))
    }

    fn serialize_none(self) -> Result<Written, Unwritable> {
        Ok(Written::Nothing)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Written, Unwritable> {
        value.serialize(self)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        word: &'static str,
    ) -> Result<Written, Unwritable> {
        Ok(Written::Json(word.into()))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Written, Unwritable> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Written, Unwritable> {
        let mut fields = Fields::new();
        value.serialize(Self)?.put(variant, &mut fields);
        Ok(Written::Json(fields.into()))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Items, Unwritable> {
        Ok(Items(Vec::new()))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Members, Unwritable> {
        Ok(Members::default())
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Members, Unwritable> {
        Ok(Members::default())
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Unwritable> {
        Err(Unwritable("a tuple".to_owned()))
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, Unwritable> {
        Err(Unwritable(name.to_owned()))
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Unwritable> {
        Err(Unwritable(name.to_owned()))
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Unwritable> {
        Err(Unwritable(name.to_owned()))
    }
}

struct Items(Vec<Value>);

impl ser::SerializeSeq for Items {
    type Ok = Written;
    type Error = Unwritable;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unwritable> {
        match value.serialize(Encoder)? {
            Written::Json(value) => self.0.push(value),
            // The items of a list have no names to which `_b64` could be appended.
            Written::Bytes(bytes) => {
                let text = String::from_utf8(bytes);
                let text = text.map_err(|_| Unwritable("a list of bytes".to_owned()))?;
                self.0.push(text.into());
            }
            Written::Nothing => {}
        }
        Ok(())
    }

    fn end(self) -> Result<Written, Unwritable> {
        Ok(Written::Json(self.0.into()))
    }
}

/// The members of an object, and the name of the next one.
#[derive(Default)]
struct Members(Fields, String);

impl ser::SerializeStruct for Members {
    type Ok = Written;
    type Error = Unwritable;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Unwritable> {
        value.serialize(Encoder)?.put(name, &mut self.0);
        Ok(())
    }

    fn end(self) -> Result<Written, Unwritable> {
        Ok(Written::Json(self.0.into()))
    }
}

impl ser::SerializeMap for Members {
    type Ok = Written;
    type Error = Unwritable;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, name: &T) -> Result<(), Unwritable> {
        self.1 = match name.serialize(Encoder)? {
            Written::Json(Value::String(name)) => name,
            Written::Json(_) | Written::Bytes(_) | Written::Nothing => {
                return Err(Unwritable("a member whose name is not text".to_owned()));
            }
        };
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unwritable> {
        let name = std::mem::take(&mut self.1);
        value.serialize(Encoder)?.put(&name, &mut self.0);
        Ok(())
    }

    fn end(self) -> Result<Written, Unwritable> {
        Ok(Written::Json(self.0.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::name::Name;
    use crate::value::Number;
    use serde::Serialize;
    use serde_json::json;

    #[derive(Serialize)]
    struct Request {
        key: Name,
        owner: Option<Name>,
        ttl: Option<Number<u16, 1, 65_535>>,
        tags: Vec<String>,
        within: Option<Within>,
    }

    #[derive(Serialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Tree,
    }

    #[derive(Serialize)]
    struct Within {
        name: Name,
        kind: Kind,
    }

    #[test]
    fn a_request_is_written_as_the_server_reads_it() {
        let name = |bytes: &[u8]| Name::new(bytes).expect("the name should not be too long");
        let request = Request {
            key: name(b"a\\b"),
            owner: Some(name(b"\xff")),
            ttl: Some(Number(7)),
            tags: vec!["x".to_owned()],
            within: Some(Within { name: name(b"\0\0\0"), kind: Kind::Tree }),
        };
        let expected = json!({
            "key": "a\\b",
            "owner_b64": "/w==",
            "ttl": 7,
            "tags": ["x"],
            "within": {"name_b64": "AAAA", "kind": "tree"},
        });
        assert_eq!(json!(of(&request)), expected);
        let request = Request { owner: None, ttl: None, within: None, ..request };
        assert_eq!(json!(of(&request)), json!({"key": "a\\b", "tags": ["x"]}));
    }
}
