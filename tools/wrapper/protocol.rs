//! What the two ends of an attempt on another machine say to each other: JSON, an object a line, over the standard streams of
//! ssh. `docs/protocols/wrapper.md` describes it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

/// The version of the protocol. The far end says its own first.
pub(super) const VERSION: u32 = 1;

/// The longest line: what a task saves comes in base64, and so does a command.
pub(super) const LINE_BYTES_MAX: usize = 4 << 20;

/// How much output goes into one line, in bytes.
pub(super) const OUTPUT_BYTES_MAX: usize = 48 << 10;

/// Text, or bytes that are none.
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
            None => Self::Encoded {
                b64: STANDARD.encode(text.as_bytes()),
            },
        }
    }

    /// As the system has it; `None` if it cannot be one of its strings.
    pub(super) fn to_os(&self) -> Option<OsString> {
        let bytes = match self {
            Self::Plain(text) => text.clone().into_bytes(),
            Self::Encoded { b64 } => STANDARD.decode(b64).ok()?,
        };
        (!bytes.contains(&0)).then(|| OsString::from_vec(bytes))
    }
}

/// An attempt that is to be begun.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Start {
    /// What it is known by. It is begun once.
    pub(super) attempt: String,
    pub(super) command: Vec<Text>,
    /// Above the environment that ssh gives.
    pub(super) env: Vec<(String, Text)>,
    /// The directory that it runs in.
    pub(super) dir: Text,
    /// Milliseconds between SIGTERM and SIGKILL.
    pub(super) grace_ms: u64,
    /// Milliseconds without a word after which it is stopped.
    pub(super) lost_after_ms: u64,
}

/// What the near end says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do", deny_unknown_fields)]
pub(super) enum Order {
    Start(Start),
    /// What became of an attempt? It is not begun if it was not.
    Attach {
        attempt: String,
        /// How many bytes of each stream of its output have come.
        from: [u64; 2],
    },
    /// Here is somebody.
    Ping,
    /// It is to end, with all that it started.
    Stop,
    /// The answer to a report.
    Answer {
        nth: u64,
        line: String,
    },
    /// Its end is known: it may be forgotten there.
    Acknowledge,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Exit {
    Code(u8),
    Signal(u8),
    /// Nobody knows how; nothing of it lives.
    Lost,
    /// It never ran.
    Failed,
}

impl Exit {
    /// The exit status that a shell has for it.
    pub(super) const fn status(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128_u8.saturating_add(signal),
            Self::Lost => 1,
            Self::Failed => 127,
        }
    }
}

/// What the far end says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is", deny_unknown_fields)]
pub(super) enum Word {
    Hello {
        version: u32,
    },
    Started {
        pid: u32,
    },
    Pong,
    /// What the command wrote.
    Output {
        /// 1 or 2.
        stream: u8,
        b64: String,
    },
    /// What the command reports. It is said again until it is answered.
    Report {
        nth: u64,
        report: Value,
    },
    /// It has ended; nothing of it lives. Said again until that is acknowledged.
    Ended {
        exit: Exit,
        /// What there is to say of it.
        words: String,
    },
}

/// A line of it.
pub(super) fn line(said: &impl Serialize) -> String {
    let mut line = serde_json::to_string(said).expect("it has names for keys");
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::{Exit, Order, Text, Word};
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
        let ended = Word::Ended {
            exit: Exit::Code(3),
            words: String::new(),
        };
        assert_eq!(
            super::line(&ended),
            "{\"is\":\"ended\",\"exit\":{\"code\":3},\"words\":\"\"}\n"
        );
        let lost = serde_json::to_string(&Exit::Lost).expect("it is JSON");
        assert_eq!(lost, "\"lost\"");
        for (text, is_one) in [
            (r#"{"do":"ping"}"#, true),
            (r#"{"do":"attach","attempt":"a","from":[0,1]}"#, true),
            (
                r#"{"do":"attach","attempt":"a","from":[0,1],"more":1}"#,
                false,
            ),
            (r#"{"do":"dance"}"#, false),
            ("", false),
        ] {
            assert_eq!(
                serde_json::from_str::<Order>(text).is_ok(),
                is_one,
                "{text}"
            );
        }
    }
}
