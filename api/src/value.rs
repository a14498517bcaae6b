//! Values with bounds. A value out of bounds is refused where it arrives, with the bounds in the message.

use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};
use serde::ser::{Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// A whole number from `MIN` to `MAX`; `DEFAULT` where a request leaves it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number<N, const MIN: u64, const MAX: u64, const DEFAULT: u64 = 0>(pub N);

impl<N: TryFrom<u64>, const MIN: u64, const MAX: u64, const DEFAULT: u64> Default
    for Number<N, MIN, MAX, DEFAULT>
{
    fn default() -> Self {
        let default = N::try_from(DEFAULT).ok();
        Self(default.expect("the default should fit the type"))
    }
}

impl<'de, N: TryFrom<u64>, const MIN: u64, const MAX: u64, const DEFAULT: u64> Deserialize<'de>
    for Number<N, MIN, MAX, DEFAULT>
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(Within::<N, MIN, MAX>(PhantomData)).map(Self)
    }
}

/// A visitor that accepts whole numbers within bounds.
struct Within<N, const MIN: u64, const MAX: u64>(PhantomData<N>);

impl<N: TryFrom<u64>, const MIN: u64, const MAX: u64> Visitor<'_> for Within<N, MIN, MAX> {
    type Value = N;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {MIN} to {MAX}")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<N, E> {
        let within = Some(number).filter(|number| (MIN..=MAX).contains(number));
        let within = within.and_then(|number| N::try_from(number).ok());
        within.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }
}

impl<N: Copy + Into<u64>, const MIN: u64, const MAX: u64, const DEFAULT: u64> Serialize
    for Number<N, MIN, MAX, DEFAULT>
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0.into())
    }
}

/// A span in milliseconds, of less than 2^32 seconds.
pub type Span = Number<u64, 0, { u32::MAX as u64 * 1000 }>;

/// A non-empty list of bounded length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List<T, const MAX: usize>(pub Vec<T>);

impl<T: Serialize, const MAX: usize> Serialize for List<T, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for List<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let items = Vec::deserialize(deserializer)?;
        if (1..=MAX).contains(&items.len()) {
            Ok(Self(items))
        } else {
            let words = format_args!("must be a list of 1 to {MAX} items");
            Err(de::Error::custom(words))
        }
    }
}

#[cfg(feature = "schemas")]
mod schemas {
    use super::{List, Number};
    use crate::ids::{Seq, Timestamp, Token};
    use crate::refusal::Reason;
    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
    use std::borrow::Cow;

    impl<N, const MIN: u64, const MAX: u64, const DEFAULT: u64> JsonSchema
        for Number<N, MIN, MAX, DEFAULT>
    {
        fn inline_schema() -> bool {
            true
        }

        fn schema_name() -> Cow<'static, str> {
            format!("From{MIN}To{MAX}").into()
        }

        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
        }
    }

    impl<T: JsonSchema, const MAX: usize> JsonSchema for List<T, MAX> {
        fn inline_schema() -> bool {
            true
        }

        fn schema_name() -> Cow<'static, str> {
            format!("ListOf{}", T::schema_name()).into()
        }

        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            let items = generator.subschema_for::<T>();
            json_schema!({ "type": "array", "items": items, "minItems": 1, "maxItems": MAX })
        }
    }

    macro_rules! integers {
        ($($type:ident),*) => {
            $(impl JsonSchema for $type {
                fn inline_schema() -> bool {
                    true
                }

                fn schema_name() -> Cow<'static, str> {
                    stringify!($type).into()
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    json_schema!({ "type": "integer", "minimum": 0 })
                }
            })*
        };
    }

    integers!(Seq, Token, Timestamp);

    impl JsonSchema for Reason {
        fn schema_name() -> Cow<'static, str> {
            "Reason".into()
        }

        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            let words: Vec<&str> = Self::ALL.iter().map(|reason| reason.word()).collect();
            json_schema!({ "type": "string", "enum": words })
        }
    }
}
