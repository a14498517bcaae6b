//! What a lock client says to each server, and what it hears. Sans-I/O.
//!
//! Keys and owners have the same length for both, so that neither server has more bytes to look at than it must.

use std::fmt::Write as _;

/// A key or an owner.
pub(crate) type Name = [u8; 16];

/// Deletes the key if it is still the owner's, as every Redis lock client does.
const COMPARE_AND_DELETE: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

/// Seconds that a lock lives without renewal: longer than any measurement holds one.
const TTL_SECONDS: u16 = 30;

/// Seconds that a contender waits without renewal.
const TTW_SECONDS: u16 = 60;

/// How to speak to a server.
#[derive(Clone, Debug)]
pub(crate) enum Protocol {
    /// LockServer's.
    Lockserver,
    /// Redis', with the name under which the server keeps the release script.
    Redis {
        /// SHA-1 in hexadecimal.
        script: String,
    },
}

/// What a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The lock; of sexton also a place in line.
    Acquire,
    /// Its place in line.
    Place,
    /// To give the lock back, or to leave the line.
    Release,
}

/// What it hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The lock is its own.
    Granted,
    /// This many are in line up to this client; never less than 2.
    InLine(u32),
    /// The lock is somebody else's, and nobody keeps a place for this client.
    Taken,
    /// So many locks were given back.
    Released(u64),
}

/// An answer that a lock server does not give.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("asked {asked:?}, and heard {heard}")]
pub(crate) struct Unexpected {
    pub(crate) asked: Asked,
    pub(crate) heard: String,
}

impl Protocol {
    /// What the server says first, unasked.
    pub(crate) fn greeting(&self) -> &'static [u8] {
        match self {
            Self::Lockserver => &[1],
            Self::Redis { .. } => &[],
        }
    }

    /// Puts a command behind `output`.
    pub(crate) fn ask(&self, asked: Asked, key: &Name, owner: &Name, output: &mut Vec<u8>) {
        match self {
            Self::Lockserver => ask_lockserver(asked, key, owner, output),
            Self::Redis { script } => ask_redis(asked, script, key, owner, output),
        }
    }

    /// The answer at the start of `input` and its length; `None` if more bytes are needed.
    pub(crate) fn hear(
        &self,
        asked: Asked,
        input: &[u8],
    ) -> Result<Option<(Answer, usize)>, Unexpected> {
        match self {
            Self::Lockserver => hear_lockserver(asked, input),
            Self::Redis { .. } => hear_redis(asked, input),
        }
    }
}

/// The command that makes Redis keep the release script; it answers with a bulk string of 40 bytes.
pub(crate) fn load_script() -> Vec<u8> {
    let mut output = Vec::new();
    put_array(
        &[b"SCRIPT", b"LOAD", COMPARE_AND_DELETE.as_bytes()],
        &mut output,
    );
    output
}

fn ask_lockserver(asked: Asked, key: &Name, owner: &Name, output: &mut Vec<u8>) {
    const LEN: u8 = 16;
    let code = match asked {
        Asked::Acquire => 2,
        Asked::Place => 3,
        Asked::Release => 5,
    };
    output.extend_from_slice(&[code, LEN]);
    output.extend_from_slice(key);
    // The index is empty.
    output.extend_from_slice(&[0, LEN]);
    output.extend_from_slice(owner);
    if asked == Asked::Acquire {
        output.extend_from_slice(&TTL_SECONDS.to_be_bytes());
        output.extend_from_slice(&TTW_SECONDS.to_be_bytes());
        output.push(0);
    }
}

fn hear_lockserver(asked: Asked, input: &[u8]) -> Result<Option<(Answer, usize)>, Unexpected> {
    let Some((number, _)) = input.split_first_chunk() else {
        return Ok(None);
    };
    let number = u16::from_be_bytes(*number);
    let answer = match (asked, number) {
        (Asked::Release, count) => Answer::Released(count.into()),
        (Asked::Acquire | Asked::Place, 1) => Answer::Granted,
        (Asked::Acquire | Asked::Place, 0) => {
            let heard = "that there is no such place in line".to_owned();
            return Err(Unexpected { asked, heard });
        }
        (Asked::Acquire | Asked::Place, place) => Answer::InLine(place.into()),
    };
    Ok(Some((answer, 2)))
}

fn ask_redis(asked: Asked, script: &str, key: &Name, owner: &Name, output: &mut Vec<u8>) {
    match asked {
        Asked::Acquire => put_array(&[b"SET", key, owner, b"NX", b"PX", b"30000"], output),
        Asked::Release => put_array(&[b"EVALSHA", script.as_bytes(), b"1", key, owner], output),
        Asked::Place => unreachable!("Redis keeps no line to have a place in"),
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

fn hear_redis(asked: Asked, input: &[u8]) -> Result<Option<(Answer, usize)>, Unexpected> {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
        return Ok(None);
    };
    let line = input.get(..end).unwrap_or(input).trim_ascii_end();
    let answer = match (asked, line) {
        (Asked::Acquire, b"+OK") => Answer::Granted,
        (Asked::Acquire, b"$-1") => Answer::Taken,
        (Asked::Release, b":1") => Answer::Released(1),
        (Asked::Release, b":0") => Answer::Released(0),
        (Asked::Acquire | Asked::Release | Asked::Place, other) => {
            let heard = String::from_utf8_lossy(other).into_owned();
            return Err(Unexpected { asked, heard });
        }
    };
    Ok(Some((answer, end + 1)))
}

/// A name of 16 bytes from two numbers, in hexadecimal.
pub(crate) fn name(first: u32, second: u32) -> Name {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let number = u64::from(first) << 32 | u64::from(second);
    let mut name = [0; 16];
    for (at, byte) in (0..16).rev().zip(&mut name) {
        let digit = usize::try_from(number >> (4 * at) & 0xf).expect("four bits fit");
        *byte = *DIGITS.get(digit).expect("four bits are one of sixteen");
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
        let redis = Protocol::Redis {
            script: "0".repeat(40),
        };
        assert_eq!(
            redis.hear(Asked::Acquire, b"+OK\r\n"),
            Ok(Some((Answer::Granted, 5)))
        );
        assert_eq!(redis.hear(Asked::Acquire, b"$-1"), Ok(None));
        let error = redis
            .hear(Asked::Release, b"-NOSCRIPT No matching script.\r\n")
            .unwrap_err();
        assert_eq!(error.heard, "-NOSCRIPT No matching script.");
    }

    #[test]
    fn place_zero_is_not_a_place() {
        let lockserver = Protocol::Lockserver;
        assert_eq!(
            lockserver.hear(Asked::Place, &[0, 2]),
            Ok(Some((Answer::InLine(2), 2)))
        );
        assert_eq!(lockserver.hear(Asked::Place, &[0]), Ok(None));
        lockserver.hear(Asked::Place, &[0, 0]).unwrap_err();
    }
}
