//! Parses values in the tables of the configuration file.

use std::str::FromStr;
use toml::de::DeValue;

/// Parses a boolean. The error is a message.
pub(super) fn switch(value: &DeValue<'_>) -> Result<bool, String> {
    let found = || format!("expected true or false, found {}", value.type_str());
    value.as_bool().ok_or_else(found)
}

/// Parses a whole number of at least 0, in decimal digits, that fits into the unsigned type `T`. The error is a message.
pub(super) fn number<T: FromStr>(value: &DeValue<'_>) -> Result<T, String> {
    let whole = value.as_integer().filter(|number| number.radix() == 10);
    let whole = whole.and_then(|number| number.as_str().parse().ok());
    whole.ok_or_else(|| "expected a whole number of at least 0 that is not too large".to_owned())
}
