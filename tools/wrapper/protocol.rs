//! The messages between the two ends of an attempt on another machine: JSON objects, one per line, over the standard streams of
//! ssh. See `docs/protocols/wrapper.md`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

/// The version of the protocol. The far end begins by sending its own.
pub(super) const VERSION: u32 = 1;

/// The maximum length of a line, in bytes. The saved state of a task and its command must fit into one, in base64.
pub(super) const LINE_BYTES_MAX: usize = 4 << 20;

/// The maximum number of bytes of output in one line.
pub(super) const OUTPUT_BYTES_MAX: usize = 48 << 10;

/// Text, or bytes that are not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Text {
    Plain(String),
    Encoded { b64: String },
}

impl Text {
    pub(super) fn of(text: &OsString) -> Self {
        match text.to_str() {
            Some(text) => Self::Plain(text.to_owned()),
            None => Self::Encoded { b64: STANDARD.encode(text.as_bytes()) },
        }
    }

    /// Converts the text to an OS string; `None` if it is not valid base64 or contains a zero byte.
    pub(super) fn to_os(&self) -> Option<OsString> {
        let bytes = match self {
            Self::Plain(text) => text.clone().into_bytes(),
            Self::Encoded { b64 } => STANDARD.decode(b64).ok()?,
        };
        (!bytes.contains(&0)).then(|| OsString::from_vec(bytes))
    }
}

/// A request to begin an attempt.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Start {
    /// The name of the attempt. An attempt is begun only once.
    pub(super) attempt: String,
    pub(super) command: Vec<Text>,
    /// Variables to add to the environment that ssh provides.
    pub(super) env: Vec<(String, Text)>,
    /// The working directory.
    pub(super) dir: Text,
    /// Milliseconds between SIGTERM and SIGKILL.
    pub(super) grace_ms: u64,
    /// Milliseconds without contact after which the attempt is stopped.
    pub(super) lost_after_ms: u64,
}

/// A message of the near end.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do", deny_unknown_fields)]
pub(super) enum Order {
    Start(Start),
    /// Requests the state of an attempt. If the attempt has not begun, it can no longer begin.
    Attach {
        attempt: String,
        /// The number of bytes received of each output stream.
        from: [u64; 2],
    },
    /// Shows that the near end is still connected; answered by `Pong`.
    Ping,
    /// The attempt must stop, with everything it started.
    Stop,
    /// The coordinator's answer to the report with the number `nth`.
    Answer {
        nth: u64,
        line: String,
    },
    /// The coordinator has received the end of the attempt, so the far end may forget the attempt.
    Acknowledge,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Exit {
    Code(u8),
    Signal(u8),
    /// It is unknown how it ended; none of its processes is left.
    Lost,
    /// It never ran.
    Failed,
}

impl Exit {
    /// Returns the exit status that a shell would report.
    pub(super) const fn status(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128_u8.saturating_add(signal),
            Self::Lost => 1,
            Self::Failed => 127,
        }
    }
}

/// A message of the far end.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is", deny_unknown_fields)]
pub(super) enum FarMessage {
    Hello {
        version: u32,
    },
    Started {
        pid: u32,
    },
    Pong,
    /// Output of the command.
    Output {
        /// 1 for standard output, 2 for standard error.
        stream: u8,
        b64: String,
    },
    /// A report of the command. Sent again until it is answered.
    Report {
        nth: u64,
        report: Value,
    },
    /// The attempt has ended and no process of it is left. Sent again until acknowledged.
    Ended {
        exit: Exit,
        /// An explanation, possibly empty.
        words: String,
    },
}

/// Encodes a message as a line.
pub(super) fn line(said: &impl Serialize) -> String {
    let mut line = serde_json::to_string(said).expect("messages should have only string keys");
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::{Exit, FarMessage, Order, Text};
    use std::os::unix::ffi::OsStringExt as _;

    #[test]
    fn text_stays_text_and_bytes_come_through() {
        for bytes in [b"plain".to_vec(), vec![0xff, 0xfe, b'x'], Vec::new()] {
            let text = std::ffi::OsString::from_vec(bytes);
            let json = serde_json::to_string(&Text::of(&text)).expect("it is JSON");
            let read: Text = serde_json::from_str(&json).expect("it is read");
            assert_eq!(read.to_os(), Some(text), "{json}");
        }
        let nul = Text::Plain("a\0b".to_owned());
        assert_eq!(nul.to_os(), None);
    }

    #[test]
    fn lines_are_as_the_page_of_the_protocol_has_them() {
        let ended = FarMessage::Ended { exit: Exit::Code(3), words: String::new() };
        assert_eq!(
            super::line(&ended),
            "{\"is\":\"ended\",\"exit\":{\"code\":3},\"words\":\"\"}\n"
        );
        let lost = serde_json::to_string(&Exit::Lost).expect("it is JSON");
        assert_eq!(lost, "\"lost\"");
        for (text, is_one) in [
            (r#"{"do":"ping"}"#, true),
            (r#"{"do":"attach","attempt":"a","from":[0,1]}"#, true),
            (r#"{"do":"attach","attempt":"a","from":[0,1],"more":1}"#, false),
            (r#"{"do":"dance"}"#, false),
            ("", false),
        ] {
            assert_eq!(serde_json::from_str::<Order>(text).is_ok(), is_one, "{text}");
        }
    }
}
