//! Names of locks on the command line and in JSON. On the command line, bytes that are not UTF-8 are escaped as in the output.

use crate::client::Reply;
use crate::report::Failure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sexton_api::name::Name;
use sexton_api::refusal::Reason;

/// Names a lock.
#[derive(Args)]
pub(super) struct LockSelector {
    /// The key of the lock; non-UTF-8 bytes as \xNN, a backslash as \\
    #[arg(value_parser = name)]
    pub(super) key: Name,

    /// The index below the key; most locks have none
    #[arg(value_parser = name)]
    pub(super) index: Option<Name>,
}

/// Names an owner.
#[derive(Args)]
pub(super) struct OwnerSelector {
    /// The owner that holds or waits for the lock
    #[arg(long, value_name = "NAME", value_parser = name, env = "SEXTON_OWNER")]
    pub(super) owner: Name,
}

/// Names the holder or a waiter of a lock, by token or by owner.
#[derive(Args)]
pub(super) struct EntrySelector {
    /// Act only if the lock is held with this token; no owner is needed then
    #[arg(long, value_parser = crate::numbers::token)]
    pub(super) token: Option<u64>,

    /// The owner that holds or waits for the lock; not needed with --token
    #[arg(long, value_name = "NAME", value_parser = name, env = "SEXTON_OWNER")]
    pub(super) owner: Option<Name>,
}

impl LockSelector {
    /// Returns the key and the index.
    pub(super) fn names(&self) -> (Name, Name) {
        (self.key.clone(), self.index.clone().unwrap_or_default())
    }
}

impl EntrySelector {
    /// Fails if neither a token nor an owner is given.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.token.is_none() && self.owner.is_none() {
            return Err(Failure::usage("give --token or --owner")
                .help("`sexton lock acquire` prints the token; `sexton lock list` shows owners"));
        }
        Ok(())
    }

    /// If the reply is a refusal because the owner has no entry for the lock, makes it name the owner: another owner may hold the lock.
    pub(super) fn named_in<A: DeserializeOwned>(
        &self,
        reply: Reply<A>,
        which: &LockSelector,
    ) -> Reply<A> {
        match (&self.owner, self.token) {
            (Some(owner), None) if reply.is_refused_as(Reason::Absent) => {
                let (key, owner) = (which.key.to_text(), owner.to_text());
                reply.with_detail(format!(
                    "{key}: {owner} neither holds this lock nor waits for it: the entry was released, it expired, or it never existed"
                ))
            }
            _ => reply,
        }
    }
}

/// Returns the user's name from the environment or `/etc/passwd`. If neither has it, returns the user id, as in `uid0`.
fn user() -> String {
    let set = |name| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        value.map(|value| value.to_string_lossy().into_owned())
    };
    let uid = rustix::process::getuid().as_raw();
    let listed = || {
        let users = std::fs::read("/etc/passwd").ok()?;
        listed(&String::from_utf8_lossy(&users), uid)
    };
    let named = set("USER").or_else(|| set("LOGNAME")).or_else(listed);
    named.unwrap_or_else(|| format!("uid{uid}"))
}

/// Finds the name of the user with this UID in `users`, the text of `/etc/passwd`.
fn listed(users: &str, uid: u32) -> Option<String> {
    let uid = uid.to_string();
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (!name.is_empty() && fields.nth(1)? == uid).then(|| name.to_owned())
    })
}

/// Returns a unique owner name: `USER@HOST:PID`, with the PID of the shell, so that people recognize it in lists, and 16 random
/// hexadecimal digits.
pub(super) fn own_name() -> Result<Name, Failure> {
    let user = user();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let shell = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let chance = getrandom::u64().map_err(|error| {
        Failure::unreachable(format!("failed to create a random name: {error}"))
    })?;
    let mut text = format!("{user}@{}:{shell}", host.trim_end()).into_bytes();
    text.truncate(Name::BYTES_MAX - 17);
    text.extend(format!(":{chance:016x}").bytes());
    Ok(Name::new(text).expect("it should have been cut to the maximum length of a name"))
}

/// Parses a name from the command line.
pub(crate) fn name(text: &str) -> Result<Name, String> {
    Name::from_text(text).ok_or_else(|| {
        format!(
            "expected at most {} bytes, with \\xNN for a non-UTF-8 byte and \\\\ for a backslash",
            Name::BYTES_MAX
        )
    })
}

/// Adds a name to the fields of a request.
pub(crate) fn put(fields: &mut Map<String, Value>, field: &str, name: &Name) {
    sexton_api::fields::put(fields, field, name.as_bytes());
}

/// Formats the name in a field of an answer. Returns `-` if the name is missing or invalid.
pub(crate) fn shown(object: &Value, field: &str) -> String {
    let text = object.get(field).and_then(Value::as_str);
    let encoded = object.get(format!("{field}_b64")).and_then(Value::as_str);
    let decoded = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
    let bytes = text.map(|text| text.as_bytes().to_vec()).or(decoded);
    bytes.and_then(Name::new).map_or_else(|| "-".to_owned(), |name| name.to_text())
}

#[cfg(test)]
mod tests {
    use super::{listed, name, put, shown};
    use serde_json::{Map, Value};

    #[test]
    fn a_user_is_found_by_its_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nhalf:x\nwww:x:33:33::/:/bin/false\n";
        assert_eq!(listed(users, 33).as_deref(), Some("www"));
        assert_eq!(listed(users, 3), None);
    }

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
