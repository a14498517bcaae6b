//! Names of locks on the command line and in JSON. On the command line, what is no text is escaped as it is shown.

use crate::report::Failure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::{Map, Value};
use sexton::actors::lock::Name;

/// Which lock.
#[derive(Args)]
pub(super) struct Which {
    /// The key of the lock; bytes that are no text as \xNN, a backslash as \\
    #[arg(value_parser = name)]
    pub(super) key: Name,

    /// The index below the key; most locks have none
    #[arg(value_parser = name)]
    pub(super) index: Option<Name>,
}

/// Whose entry.
#[derive(Args)]
pub(super) struct Whose {
    /// Who holds or wants the lock
    #[arg(long, value_name = "NAME", value_parser = name, env = "SEXTON_OWNER")]
    pub(super) owner: Name,
}

/// Whose entry, by name or by token.
#[derive(Args)]
pub(super) struct Shown {
    /// Only if the lock is held with this token; no owner is needed then
    #[arg(long)]
    pub(super) token: Option<u64>,

    /// Who holds or wants the lock; not needed with --token
    #[arg(long, value_name = "NAME", value_parser = name, env = "SEXTON_OWNER")]
    pub(super) owner: Option<Name>,
}

impl Shown {
    /// Adds to the names of a lock whose entry is meant.
    pub(super) fn put(&self, fields: &mut Map<String, Value>) -> Result<(), Failure> {
        if self.token.is_none() && self.owner.is_none() {
            return Err(Failure::usage("neither --token nor --owner says who holds the lock")
                .help("`sexton lock acquire` prints the token, which says enough; `sexton lock list` shows owners"));
        }
        if let Some(owner) = &self.owner {
            put(fields, "owner", owner);
        }
        fields.extend(self.token.map(|token| ("token".to_owned(), token.into())));
        Ok(())
    }
}

/// An owner that nobody else is: USER@HOST:PID of the shell, for people who read a list, and 16 digits of chance.
pub(super) fn own_name() -> Result<Name, Failure> {
    let user = std::env::var_os("USER").map(|user| user.to_string_lossy().into_owned());
    let user = user.unwrap_or_else(|| rustix::process::getuid().as_raw().to_string());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let shell = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let chance = getrandom::u64()
        .map_err(|error| Failure::unreachable(format!("failed to draw a name: {error}")))?;
    let mut text = format!("{user}@{}:{shell}", host.trim_end()).into_bytes();
    text.truncate(Name::BYTES_MAX - 17);
    text.extend(format!(":{chance:016x}").bytes());
    Ok(Name::new(text).expect("it was cut to what a name may have"))
}

/// Reads a name as a person writes it.
pub(crate) fn name(text: &str) -> Result<Name, String> {
    Name::from_text(text).ok_or_else(|| {
        format!(
            "expected at most {} bytes, with \\xNN for what is no text and \\\\ for a backslash",
            Name::BYTES_MAX
        )
    })
}

/// Puts a name into the fields of a request: as text, or in base64 if it is none.
pub(crate) fn put(fields: &mut Map<String, Value>, field: &str, name: &Name) {
    match std::str::from_utf8(name.as_bytes()) {
        Ok(text) => fields.insert(field.to_owned(), text.into()),
        Err(_) => fields.insert(
            format!("{field}_b64"),
            STANDARD.encode(name.as_bytes()).into(),
        ),
    };
}

/// A name in an answer, as it is shown; `-` if there is none.
pub(crate) fn shown(object: &Value, field: &str) -> String {
    let text = object.get(field).and_then(Value::as_str);
    let encoded = object.get(format!("{field}_b64")).and_then(Value::as_str);
    let decoded = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
    let bytes = text.map(|text| text.as_bytes().to_vec()).or(decoded);
    bytes
        .and_then(Name::new)
        .map_or_else(|| "-".to_owned(), |name| name.to_text())
}

#[cfg(test)]
mod tests {
    use super::{name, put, shown};
    use serde_json::{Map, Value};

    #[test]
    fn a_name_is_shown_as_it_can_be_given() {
        for text in ["orders", "caf\u{e9} au lait", "\\xff\\x00", "a\\\\b", ""] {
            let mut fields = Map::new();
            put(&mut fields, "key", &name(text).unwrap());
            assert_eq!(shown(&Value::Object(fields), "key"), text);
        }
        assert!(name("\\q").is_err() && name(&"x".repeat(256)).is_err());
    }
}
