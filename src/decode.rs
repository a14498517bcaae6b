//! Decodes the part of [MessagePack](https://github.com/msgpack/msgpack/blob/master/spec.md) that rmp-serde writes to journals, snapshots
//! and messages between actors. They contain no floats and no extensions.
//!
//! rmp-serde has a decoder, too, and the tests below compare the two. But rmp-serde's decoder is compiled again for each type, kind of
//! reader and configuration, and made up a quarter of this crate's code and compile time. This decoder reads only from slices, and parses
//! every token in a single function that is compiled once.

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, Visitor};
use std::fmt::Display;

/// The maximum depth to which arrays and maps may be nested.
const DEPTH_MAX: u32 = 128;

/// Why bytes could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Error(String);

impl de::Error for Error {
    fn custom<T: Display>(cause: T) -> Self {
        Self(cause.to_string())
    }
}

/// Decodes one value from the start of `bytes`. Anything after it is ignored.
pub(crate) fn from_slice<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, Error> {
    T::deserialize(&mut Decoder { rest: bytes, depth: 0 })
}

/// A scalar, or the length of an array or a map.
enum Token<'de> {
    Nil,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Text(&'de str),
    Bytes(&'de [u8]),
    Array(u32),
    Map(u32),
}

/// The bytes yet to be decoded, and the number of arrays and maps that the next value is nested in.
struct Decoder<'de> {
    rest: &'de [u8],
    depth: u32,
}

impl<'de> Decoder<'de> {
    fn take(&mut self, count: usize) -> Result<&'de [u8], Error> {
        let short =
            || Error(format!("expected {count} bytes, but only {} are left", self.rest.len()));
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn number<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], Error> {
        let taken = self.take(BYTES)?;
        Ok(taken.try_into().expect("`BYTES` bytes should have been taken"))
    }

    fn wide(&mut self) -> Result<u32, Error> {
        self.number().map(u32::from_be_bytes)
    }

    fn short(&mut self) -> Result<u32, Error> {
        self.number().map(|bytes| u16::from_be_bytes(bytes).into())
    }

    fn byte(&mut self) -> Result<u8, Error> {
        self.number().map(u8::from_be_bytes)
    }

    /// Reads a string of `count` bytes. A string that is not UTF-8 is returned as bytes, which some types accept as well.
    fn text(&mut self, count: u32) -> Result<Token<'de>, Error> {
        let bytes = self.take(count as usize)?;
        Ok(std::str::from_utf8(bytes).map_or(Token::Bytes(bytes), Token::Text))
    }

    fn bytes(&mut self, count: u32) -> Result<Token<'de>, Error> {
        self.take(count as usize).map(Token::Bytes)
    }

    fn token(&mut self) -> Result<Token<'de>, Error> {
        Ok(match self.byte()? {
            marker @ 0x00..=0x7f => Token::Unsigned(marker.into()),
            marker @ 0x80..=0x8f => Token::Map((marker & 0x0f).into()),
            marker @ 0x90..=0x9f => Token::Array((marker & 0x0f).into()),
            marker @ 0xa0..=0xbf => self.text((marker & 0x1f).into())?,
            0xc0 => Token::Nil,
            marker @ 0xc2..=0xc3 => Token::Bool(marker == 0xc3),
            0xc4 => self.byte().and_then(|count| self.bytes(count.into()))?,
            0xc5 => self.short().and_then(|count| self.bytes(count))?,
            0xc6 => self.wide().and_then(|count| self.bytes(count))?,
            0xcc => Token::Unsigned(self.byte()?.into()),
            0xcd => Token::Unsigned(self.short()?.into()),
            0xce => Token::Unsigned(self.wide()?.into()),
            0xcf => Token::Unsigned(self.number().map(u64::from_be_bytes)?),
            0xd0 => Token::Signed(self.number().map(i8::from_be_bytes)?.into()),
            0xd1 => Token::Signed(self.number().map(i16::from_be_bytes)?.into()),
            0xd2 => Token::Signed(self.number().map(i32::from_be_bytes)?.into()),
            0xd3 => Token::Signed(self.number().map(i64::from_be_bytes)?),
            0xd9 => self.byte().and_then(|count| self.text(count.into()))?,
            0xda => self.short().and_then(|count| self.text(count))?,
            0xdb => self.wide().and_then(|count| self.text(count))?,
            0xdc => Token::Array(self.short()?),
            0xdd => Token::Array(self.wide()?),
            0xde => Token::Map(self.short()?),
            0xdf => Token::Map(self.wide()?),
            marker @ 0xe0..=0xff => Token::Signed(marker.cast_signed().into()),
            marker => return Err(Error(format!("no value begins with {marker:#04x}"))),
        })
    }

    fn long(&mut self) -> Result<i128, Error> {
        let wanted = || Error("expected a 16-byte integer".to_owned());
        let Token::Bytes(bytes) = self.token()? else {
            return Err(wanted());
        };
        let bytes = bytes.try_into().map_err(|_| wanted())?;
        Ok(i128::from_be_bytes(bytes))
    }

    /// Runs `visit` on an array or a map of `left` items. Returns an error if the array or map is nested deeper than [`DEPTH_MAX`], or if
    /// `visit` does not read every item.
    fn within<T>(
        &mut self,
        left: u32,
        visit: impl FnOnce(&mut Items<'_, 'de>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.depth == DEPTH_MAX {
            return Err(Error(format!("nested more than {DEPTH_MAX} levels deep")));
        }
        self.depth += 1;
        let mut items = Items { decoder: &mut *self, left };
        let visited = visit(&mut items)?;
        let left = items.left;
        self.depth -= 1;
        if left > 0 {
            return Err(Error(format!("an array or a map has {left} items too many")));
        }
        Ok(visited)
    }
}

impl<'de> Deserializer<'de> for &mut Decoder<'de> {
    type Error = Error;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.token()? {
            Token::Nil => visitor.visit_unit(),
            Token::Bool(value) => visitor.visit_bool(value),
            Token::Unsigned(number) => visitor.visit_u64(number),
            Token::Signed(number) => visitor.visit_i64(number),
            Token::Text(text) => visitor.visit_borrowed_str(text),
            Token::Bytes(bytes) => visitor.visit_borrowed_bytes(bytes),
            Token::Array(count) => self.within(count, |items| visitor.visit_seq(items)),
            Token::Map(count) => self.within(count, |items| visitor.visit_map(items)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.rest.split_first() {
            Some((0xc0, rest)) => {
                self.rest = rest;
                visitor.visit_none()
            }
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    /// Reads a variant: its name alone, or a map from the name to its content.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let before = self.rest;
        let token = self.token()?;
        let holds = matches!(token, Token::Map(1));
        if !holds {
            self.rest = before;
        }
        visitor.visit_enum(Variant { decoder: self, holds })
    }

    fn deserialize_i128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i128(self.long()?)
    }

    fn deserialize_u128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u128(self.long()?.cast_unsigned())
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// The items left in an array or a map.
struct Items<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    left: u32,
}

impl<'de> Items<'_, 'de> {
    fn next<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(&mut *self.decoder).map(Some)
    }

    /// Returns the number of items left, limited to the number of bytes left, because damaged data may claim any length.
    fn count(&self) -> usize {
        (self.left as usize).min(self.decoder.rest.len())
    }
}

impl<'de> de::SeqAccess<'de> for &mut Items<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.next(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.count())
    }
}

impl<'de> de::MapAccess<'de> for &mut Items<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        self.next(seed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(&mut *self.decoder)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.count())
    }
}

/// A variant of an enum.
struct Variant<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    /// Whether content follows the variant's name.
    holds: bool,
}

impl<'a, 'de> Variant<'a, 'de> {
    fn content(self) -> Result<&'a mut Decoder<'de>, Error> {
        let empty = || Error("a variant has no content, but its type requires some".to_owned());
        self.holds.then_some(self.decoder).ok_or_else(empty)
    }
}

impl<'de> de::EnumAccess<'de> for Variant<'_, 'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        Ok((seed.deserialize(&mut *self.decoder)?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        if self.holds {
            <()>::deserialize(self.decoder)?;
        }
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.content()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.content()?.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.content()?.deserialize_any(visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::from_slice;
    use proptest::prelude::*;
    use serde::{Deserialize, Serialize};
    use std::collections::BTreeMap;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Name(String);

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    enum Any {
        Nothing,
        One(i64),
        Two(u8, i8),
        Many(Vec<Any>),
        All {
            flag: bool,
            name: Name,
            wide: u128,
            long: i128,
            place: Option<u32>,
            short: (i16, u16),
            unit: (),
            fixed: [u8; 4],
            map: BTreeMap<String, i32>,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            key: Option<u64>,
        },
    }

    fn any() -> impl Strategy<Value = Any> {
        let all = (
            any_of::<(bool, String, u128, i128, Option<u32>)>(),
            any_of::<((i16, u16), [u8; 4], Option<u64>)>(),
            prop::collection::btree_map(".{0,40}", any_of::<i32>(), 0..20),
        );
        let leaf = prop_oneof![
            Just(Any::Nothing),
            any_of::<i64>().prop_map(Any::One),
            any_of::<(u8, i8)>().prop_map(|(one, two)| Any::Two(one, two)),
            all.prop_map(|((flag, name, wide, long, place), (short, fixed, key), map)| {
                Any::All {
                    flag,
                    name: Name(name),
                    wide,
                    long,
                    place,
                    short,
                    unit: (),
                    fixed,
                    map,
                    key,
                }
            }),
        ];
        leaf.prop_recursive(4, 64, 20, |any| prop::collection::vec(any, 0..20).prop_map(Any::Many))
    }

    fn any_of<T: Arbitrary>() -> T::Strategy {
        prop::arbitrary::any::<T>()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_was_written_is_read(value in any()) {
            let bytes = rmp_serde::to_vec(&value).expect("the value encodes");
            prop_assert_eq!(from_slice(&bytes), Ok(value.clone()));
            for end in 0..bytes.len() {
                prop_assert!(from_slice::<Any>(&bytes[..end]).is_err(), "cut at {}", end);
            }
        }

        #[test]
        fn what_is_read_of_damage_is_what_rmp_serde_reads(
            value in any(),
            damage in prop::collection::vec((any_of::<prop::sample::Index>(), any_of::<u8>()), 1..4),
        ) {
            let mut bytes = rmp_serde::to_vec(&value).expect("the value encodes");
            for (place, byte) in damage {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            if let Ok(found) = from_slice::<Any>(&bytes) {
                let theirs: Any = rmp_serde::from_slice(&bytes).expect("rmp-serde decodes it, too");
                prop_assert_eq!(found, theirs);
            }
        }

        #[test]
        fn bytes_at_random_do_no_harm(bytes in prop::collection::vec(any_of::<u8>(), 0..200)) {
            drop(from_slice::<Any>(&bytes));
            drop(from_slice::<serde::de::IgnoredAny>(&bytes));
        }
    }

    #[test]
    fn what_claims_to_be_long_or_deep_is_refused() {
        assert!(from_slice::<Vec<u8>>(&[0xdd, 0xff, 0xff, 0xff, 0xff]).is_err());
        assert!(from_slice::<Any>(&vec![0x91; 1 << 20]).is_err());
        let deep = [vec![0x91; 129], vec![0xc0]].concat();
        assert!(from_slice::<serde::de::IgnoredAny>(&deep).is_err());
        assert!(from_slice::<serde::de::IgnoredAny>(&deep[1..]).is_ok());
    }
}
