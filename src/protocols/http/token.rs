//! The bearer token and its file. A token is compared and never shown: it has no `Display`, and `Debug` hides it.

use crate::protocols::file;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A shorter token could be guessed.
const BYTES_MIN: usize = 16;
/// A longer one would not fit into a request's head.
const BYTES_MAX: usize = 4096;

/// What requests over TCP must carry.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(Box<[u8]>);

/// A token file that cannot be used. Names the file, never what is in it.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("read the token file {}: {source}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// Others than its owner may use the file.
    #[error("use the token file {}: its mode is {mode:04o}, so others than its owner may use it", .file.display())]
    Exposed {
        /// The file.
        file: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The token is too short, too long, or cannot stand in a header.
    #[error(
        "use the token file {}: expected one line of {BYTES_MIN} to {BYTES_MAX} visible ASCII characters, found {found}",
        .file.display()
    )]
    Unusable {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        found: String,
    },
}

impl Token {
    /// Reads a token: the file without the newline at its end.
    pub(crate) fn read(path: &Path) -> Result<Self, TokenError> {
        let file = path.to_owned();
        let unreadable = |source| TokenError::Unreadable {
            file: path.to_owned(),
            source,
        };
        // One more than fits, and the newline, so that too much is seen as such.
        let most = BYTES_MAX as u64 + 3;
        let (bytes, mode) = file::read(path, most).map_err(unreadable)?;
        if mode & 0o077 != 0 {
            return Err(TokenError::Exposed { file, mode });
        }
        Self::parse(&bytes).map_err(|found| TokenError::Unusable { file, found })
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line.len() {
            length if length > BYTES_MAX => Err("more".to_owned()),
            length if length < BYTES_MIN => Err(format!("{length}")),
            _ if !line.iter().all(u8::is_ascii_graphic) => Err("others among them".to_owned()),
            _ => Ok(Self(line.into())),
        }
    }

    /// Whether this is the token, in a time that does not tell where they differ.
    pub(crate) fn is(&self, offered: &[u8]) -> bool {
        let differences = self.0.iter().zip(offered).fold(0, |found, (ours, theirs)| {
            std::hint::black_box(found | (ours ^ theirs))
        });
        self.0.len() == offered.len() && differences == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::Token;

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = Token::parse(b"0123456789abcdef\n").unwrap();
        assert!(token.is(b"0123456789abcdef"));
        for wrong in [
            &b"0123456789abcdeF"[..],
            b"0123456789abcde",
            b"0123456789abcdef0",
            b"",
        ] {
            assert!(!token.is(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn a_token_is_one_line_that_can_stand_in_a_header() {
        assert!(Token::parse(&[b'x'; 16]).is_ok() && Token::parse(&[b'x'; 4096]).is_ok());
        assert!(
            Token::parse(b"0123456789abcdef\r\n")
                .unwrap()
                .is(b"0123456789abcdef")
        );
        for wrong in [
            &[b'x'; 15][..],
            &[b'x'; 4097],
            b"",
            b"0123456789 abcdef",
            b"0123456789abcdef\nmore\n",
        ] {
            assert!(Token::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_token_is_never_shown() {
        let token = Token::parse(b"0123456789abcdef").unwrap();
        assert_eq!(
            format!("{token:?} {:#?}", Some(&token))
                .matches("0123")
                .count(),
            0
        );
    }
}
