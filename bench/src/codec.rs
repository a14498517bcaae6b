//! Encodes the requests of a lock client to each server, and decodes the answers. Does no I/O.
//!
//! Keys and owners have 16 bytes in every protocol, so that every server processes names of the same length.

use crate::gateway::Gateway;
use std::fmt::Write as _;

/// A key or an owner.
pub(crate) type Name = [u8; 16];

/// The script that deletes the key if it is still the owner's, as every Redis lock client does.
const COMPARE_AND_DELETE: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

/// The script that resets the key's time to live if the key is still the owner's, as every Redis lock client does.
const COMPARE_AND_RENEW: &str = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";

/// The time to live of a lock that is not renewed, in seconds: longer than any measurement holds a lock.
const TTL_SECONDS: u16 = 30;

/// The time to live of a lock that stays held during the whole measurement, in seconds: the maximum that LockServer allows.
const HELD_TTL_SECONDS: u16 = u16::MAX;

/// [`HELD_TTL_SECONDS`] in milliseconds, for Redis.
const HELD_TTL_MS: &[u8] = b"65535000";

/// The time to wait: how long a client stays in line without renewing its request, in seconds.
const TTW_SECONDS: u16 = 60;

/// The protocol of a server.
#[derive(Clone, Debug)]
pub(crate) enum Protocol {
    /// LockServer's protocol.
    Lockserver,
    /// Redis' protocol, with the digests that name the scripts loaded into the server.
    Redis {
        /// SHA-1 of the release script, in hexadecimal.
        release: String,
        /// SHA-1 of the renewal script, in hexadecimal.
        renew: String,
    },
    /// JSON over HTTP.
    Http(Gateway),
}

/// A client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Acquire the lock. If it is held, servers that keep a line add the client to it.
    Acquire,
    /// Acquire the lock with a time to live of hours, so that it needs no renewal.
    Hold,
    /// Query the client's position in line.
    Place,
    /// Reset the lock's time to live.
    Renew,
    /// Release the lock, or leave the line.
    Release,
}

/// A server's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The lock was granted.
    Granted,
    /// The client's position in line; never less than 2.
    InLine(u32),
    /// The client has neither the lock nor a position in line.
    Taken,
    /// The number of locks released.
    Released(u64),
    /// Whether the lock was the client's and was renewed.
    Renewed(bool),
}

/// An answer that a correct lock server would not give.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unexpected answer to {asked:?}: {heard}")]
pub(crate) struct Unexpected {
    pub(crate) asked: Verb,
    pub(crate) heard: String,
}

impl Protocol {
    /// Returns the bytes that the server sends on each new connection before any request.
    pub(crate) fn greeting(&self) -> &'static [u8] {
        match self {
            Self::Lockserver => &[1],
            Self::Redis { .. } | Self::Http(_) => &[],
        }
    }

    /// Appends a request to `output`.
    pub(crate) fn ask(&self, asked: Verb, key: &Name, owner: &Name, output: &mut Vec<u8>) {
        match self {
            Self::Lockserver => ask_lockserver(asked, key, owner, output),
            Self::Redis { release, renew } => {
                let script = if asked == Verb::Renew { renew } else { release };
                ask_redis(asked, script, key, owner, output);
            }
            Self::Http(gateway) => gateway.ask(asked, key, owner, output),
        }
    }

    /// Parses the answer to the request `asked` at the start of `input`, and returns it with its length; `None` if more bytes are needed.
    /// An answer that does not fit the request is an error.
    pub(crate) fn receive(
        &self,
        asked: Verb,
        input: &[u8],
    ) -> Result<Option<(Answer, usize)>, Unexpected> {
        match self {
            Self::Lockserver => decode_lockserver(asked, input),
            Self::Redis { .. } => decode_redis(asked, input),
            Self::Http(gateway) => gateway.receive(asked, input),
        }
    }
}

/// Returns the commands that load the release and renewal scripts into Redis; each is answered with a bulk string of 40 bytes.
pub(crate) fn load_scripts() -> [Vec<u8>; 2] {
    [COMPARE_AND_DELETE, COMPARE_AND_RENEW].map(|script| {
        let mut output = Vec::new();
        put_array(&[b"SCRIPT", b"LOAD", script.as_bytes()], &mut output);
        output
    })
}

fn ask_lockserver(asked: Verb, key: &Name, owner: &Name, output: &mut Vec<u8>) {
    const LEN: u8 = 16;
    let code = match asked {
        Verb::Acquire | Verb::Hold => 2,
        Verb::Place => 3,
        Verb::Renew => 4,
        Verb::Release => 5,
    };
    output.extend_from_slice(&[code, LEN]);
    output.extend_from_slice(key);
    // An index of length 0, then the owner.
    output.extend_from_slice(&[0, LEN]);
    output.extend_from_slice(owner);
    let ttl = match asked {
        Verb::Acquire => TTL_SECONDS,
        Verb::Hold => HELD_TTL_SECONDS,
        Verb::Place | Verb::Renew | Verb::Release => return,
    };
    output.extend_from_slice(&ttl.to_be_bytes());
    output.extend_from_slice(&TTW_SECONDS.to_be_bytes());
    output.push(0);
}

fn decode_lockserver(asked: Verb, input: &[u8]) -> Result<Option<(Answer, usize)>, Unexpected> {
    if asked == Verb::Renew {
        return Ok(input.first().map(|own| (Answer::Renewed(*own == 1), 1)));
    }
    let Some((number, _)) = input.split_first_chunk() else {
        return Ok(None);
    };
    let number = u16::from_be_bytes(*number);
    let answer = match (asked, number) {
        (Verb::Release, count) => Answer::Released(count.into()),
        (_, 1) => Answer::Granted,
        (_, 0) => {
            let heard = "no position in line".to_owned();
            return Err(Unexpected { asked, heard });
        }
        (_, place) => Answer::InLine(place.into()),
    };
    Ok(Some((answer, 2)))
}

fn ask_redis(asked: Verb, script: &str, key: &Name, owner: &Name, output: &mut Vec<u8>) {
    match asked {
        Verb::Acquire => put_array(&[b"SET", key, owner, b"NX", b"PX", b"30000"], output),
        Verb::Hold => put_array(&[b"SET", key, owner, b"NX", b"PX", HELD_TTL_MS], output),
        Verb::Renew => {
            put_array(&[b"EVALSHA", script.as_bytes(), b"1", key, owner, HELD_TTL_MS], output);
        }
        Verb::Release => put_array(&[b"EVALSHA", script.as_bytes(), b"1", key, owner], output),
        Verb::Place => unreachable!("Redis has no line, so its clients never query a position"),
    }
}

fn put_array(parts: &[&[u8]], output: &mut Vec<u8>) {
    put_len(b'*', parts.len(), output);
    for part in parts {
        put_len(b'$', part.len(), output);
        output.extend_from_slice(part);
        output.extend_from_slice(b"\r\n");
    }
}

fn put_len(kind: u8, len: usize, output: &mut Vec<u8>) {
    let mut digits = String::new();
    write!(digits, "{len}").expect("writing to memory does not fail");
    output.push(kind);
    output.extend_from_slice(digits.as_bytes());
    output.extend_from_slice(b"\r\n");
}

fn decode_redis(asked: Verb, input: &[u8]) -> Result<Option<(Answer, usize)>, Unexpected> {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
        return Ok(None);
    };
    let line = input.get(..end).unwrap_or(input).trim_ascii_end();
    let answer = match (asked, line) {
        (Verb::Acquire | Verb::Hold, b"+OK") => Answer::Granted,
        (Verb::Acquire | Verb::Hold, b"$-1") => Answer::Taken,
        (Verb::Release, b":1") => Answer::Released(1),
        (Verb::Release, b":0") => Answer::Released(0),
        (Verb::Renew, b":1") => Answer::Renewed(true),
        (Verb::Renew, b":0") => Answer::Renewed(false),
        (_, other) => {
            let heard = String::from_utf8_lossy(other).into_owned();
            return Err(Unexpected { asked, heard });
        }
    };
    Ok(Some((answer, end + 1)))
}

/// Returns a name of 16 bytes made from two numbers, in hexadecimal.
pub(crate) fn name(first: u32, second: u32) -> Name {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let number = u64::from(first) << 32 | u64::from(second);
    let mut name = [0; 16];
    for (at, byte) in (0..16).rev().zip(&mut name) {
        let digit = usize::try_from(number >> (4 * at) & 0xf).expect("four bits fit");
        *byte = *DIGITS.get(digit).expect("a number of four bits is less than 16");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_different_numbers_differ() {
        assert_eq!(&name(0x1234, 0xab), b"00001234000000ab");
    }

    #[test]
    fn a_redis_error_is_not_taken_for_an_answer() {
        let redis = Protocol::Redis { release: "0".repeat(40), renew: "1".repeat(40) };
        assert_eq!(redis.receive(Verb::Acquire, b"+OK\r\n"), Ok(Some((Answer::Granted, 5))));
        assert_eq!(redis.receive(Verb::Acquire, b"$-1"), Ok(None));
        let error = redis.receive(Verb::Release, b"-NOSCRIPT No matching script.\r\n").unwrap_err();
        assert_eq!(error.heard, "-NOSCRIPT No matching script.");
    }

    #[test]
    fn place_zero_is_not_a_place() {
        let lockserver = Protocol::Lockserver;
        assert_eq!(lockserver.receive(Verb::Place, &[0, 2]), Ok(Some((Answer::InLine(2), 2))));
        assert_eq!(lockserver.receive(Verb::Place, &[0]), Ok(None));
        lockserver.receive(Verb::Place, &[0, 0]).unwrap_err();
    }

    #[test]
    fn a_renewal_is_heard_in_each_protocol() {
        let lockserver = Protocol::Lockserver;
        assert_eq!(lockserver.receive(Verb::Renew, &[]), Ok(None));
        for (byte, own) in [(1, true), (0, false)] {
            assert_eq!(
                lockserver.receive(Verb::Renew, &[byte, 9]),
                Ok(Some((Answer::Renewed(own), 1)))
            );
        }
        let redis = Protocol::Redis { release: "0".repeat(40), renew: "1".repeat(40) };
        assert_eq!(redis.receive(Verb::Renew, b":0\r\n"), Ok(Some((Answer::Renewed(false), 4))));
        let mut asked = Vec::new();
        redis.ask(Verb::Renew, &name(0, 1), &name(0, 2), &mut asked);
        assert!(asked.starts_with(b"*6\r\n$7\r\nEVALSHA\r\n$40\r\n1111"));
    }
}
