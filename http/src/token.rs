//! Bearer tokens and their file, and logins. A login is what a browser stores and sends in place of a token. A token is compared but
//! never shown: it has no `Display`, and `Debug` hides it.

use crate::scope::Scopes;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sexton::clock::Date;
use sexton::protocols::file;
use sha2::Sha256;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The minimum length of a token, in bytes: a shorter token could be guessed.
const BYTES_MIN: usize = 16;
/// The maximum length of a token, in bytes: a quarter of the maximum size of a request's head.
const BYTES_MAX: usize = 4096;

/// The maximum number of tokens in a file.
const TOKENS_MAX: usize = 16;
/// The suffix of a line whose token has all scopes.
const RUN: &[u8] = b" run";
/// The suffix of a line whose token has only the scope `read`.
const READ: &[u8] = b" read";

/// The accepted tokens. Over TCP, every request must carry one of them or, if it is for a page, a login made from one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tokens(Vec<Arc<Token>>);

/// The token that a request was sent with, or that its login was made from.
#[derive(Clone, Debug)]
pub(crate) struct Credential {
    token: Arc<Token>,
    /// When the login expires; `None` for the token itself.
    until: Option<Date>,
}

impl Credential {
    /// Returns the scopes of the token.
    pub(crate) fn scopes(&self) -> Scopes {
        self.token.scopes
    }

    /// Returns when the login expires; `None` if the request was sent with the token itself.
    pub(crate) const fn until(&self) -> Option<Date> {
        self.until
    }
}

#[derive(Clone, PartialEq, Eq)]
struct Token {
    bytes: Box<[u8]>,
    scopes: Scopes,
}

/// Why a token file cannot be used. Each text is meant to follow "failed to", and contains the path of the file, never its content.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("read the token file {}: {source}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Users other than the owner may access the file.
    #[error("use the token file {}: its mode is {mode:04o}, so other users can access it", .file.display())]
    Exposed {
        /// The file.
        file: PathBuf,
        /// The file's permissions.
        mode: u32,
    },
    /// The file has no token.
    #[error("use the token file {}: it is empty", .file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// The content is not a list of valid tokens.
    #[error(
        "use the token file {}: expected 1 to {TOKENS_MAX} lines, each a token of {BYTES_MIN} to {BYTES_MAX} visible ASCII characters, with ` run` after it if it may start processes, or ` read` if it may change nothing; {found}",
        .file.display()
    )]
    Unusable {
        /// The file.
        file: PathBuf,
        /// What is wrong with the content.
        found: String,
    },
}

impl Tokens {
    /// Reads the tokens, one per line.
    pub(crate) fn read(path: &Path) -> Result<Self, TokenError> {
        let file = path.to_owned();
        let unreadable = |source| TokenError::Unreadable { file: path.to_owned(), source };
        // Enough for one line more than allowed, so that a file with too many lines is detected.
        let most = (TOKENS_MAX + 1) * (BYTES_MAX + READ.len() + 2);
        let (bytes, mode) = file::read_own(path, most as u64).map_err(unreadable)?;
        if mode & 0o077 != 0 {
            return Err(TokenError::Exposed { file, mode });
        }
        if bytes.trim_ascii().is_empty() {
            return Err(TokenError::Empty { file });
        }
        Self::parse(&bytes).map_err(|found| TokenError::Unusable { file, found })
    }

    /// Parses the content of a token file. The error describes what is wrong, without the token.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let lines = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let mut tokens: Vec<Arc<Token>> = Vec::new();
        for (number, line) in (1..).zip(lines.split(|byte| *byte == b'\n')) {
            if number > TOKENS_MAX {
                return Err("there are more lines".to_owned());
            }
            let token = Token::parse(line).map_err(|found| format!("line {number} has {found}"))?;
            if tokens.iter().any(|other| other.bytes == token.bytes) {
                return Err(format!("line {number} repeats an earlier token"));
            }
            tokens.push(Arc::new(token));
        }
        Ok(Self(tokens))
    }

    /// Returns the token `offered`, or `None` if it is not one of the tokens. Runs in constant time.
    pub(crate) fn find(&self, offered: &[u8]) -> Option<Credential> {
        let found = self.0.iter().fold(None, |found, token| {
            let is_it = std::hint::black_box(token.is(offered));
            if is_it { Some(token) } else { found }
        });
        found.map(|token| Credential { token: Arc::clone(token), until: None })
    }

    /// Returns whether the token of a request is still one of the tokens, with the scopes that it had or more.
    pub(crate) fn accept(&self, credential: &Credential) -> bool {
        let had = &credential.token;
        self.0.iter().any(|token| token.bytes == had.bytes && token.scopes.include(had.scopes))
    }

    /// Returns a login that is valid in place of the token `offered` until a date, or `None` if `offered` is not one of the tokens.
    /// The login becomes invalid when the token is removed from the file, and reveals nothing about the token. It is valid only for
    /// connections of the same user of this machine, or, if it was made for none, only for connections from elsewhere: a browser sends the
    /// cookie to every port of the host, where another user of the machine may listen, and may use it.
    pub(crate) fn login(
        &self,
        offered: &[u8],
        (until, user): (Date, Option<u32>),
    ) -> Option<String> {
        let token = self.0.iter().find(|token| token.is(offered))?;
        let code = token.code(until, user).finalize().into_bytes();
        Some(format!("{}.{}", until.0, URL_SAFE_NO_PAD.encode(code)))
    }

    /// Returns the token of `login`, or `None` if the login is not valid at `now` for a connection of this user.
    pub(crate) fn find_login(
        &self,
        login: &str,
        (now, user): (Date, Option<u32>),
    ) -> Option<Credential> {
        let (until, code) = login.split_once('.')?;
        let until = Date(until.parse().ok()?);
        let code = URL_SAFE_NO_PAD.decode(code).ok()?;
        // `verify_slice` compares in constant time.
        let token = self.0.iter().find(|token| token.code(until, user).verify_slice(&code).is_ok());
        let token = token.filter(|_| now < until)?;
        Some(Credential { token: Arc::clone(token), until: Some(until) })
    }
}

impl Token {
    fn parse(line: &[u8]) -> Result<Self, String> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let with = |suffix, scopes| Some((line.strip_suffix(suffix)?, scopes));
        let (bytes, scopes) = with(RUN, Scopes::All)
            .or_else(|| with(READ, Scopes::Read))
            .unwrap_or((line, Scopes::Plain));
        match bytes.len() {
            length if length > BYTES_MAX => Err("more characters".to_owned()),
            length if length < BYTES_MIN => Err(format!("{length} characters")),
            _ if !bytes.iter().all(u8::is_ascii_graphic) => Err("other characters".to_owned()),
            // A # before a token is meant to make it a comment, and so invalid.
            _ if bytes.first() == Some(&b'#') => {
                Err("a # before a token, which does not make it a comment: remove the line"
                    .to_owned())
            }
            _ => Ok(Self { bytes: bytes.into(), scopes }),
        }
    }

    fn is(&self, offered: &[u8]) -> bool {
        let both = self.bytes.iter().zip(offered);
        let differences =
            both.fold(0, |found, (ours, theirs)| std::hint::black_box(found | (ours ^ theirs)));
        self.bytes.len() == offered.len() && differences == 0
    }

    /// Returns the message authentication code of a login that is valid until a date for a user. It cannot be computed without the token.
    fn code(&self, until: Date, user: Option<u32>) -> Hmac<Sha256> {
        let keyed = Hmac::<Sha256>::new_from_slice(&self.bytes);
        let mut code = keyed.expect("a key of any length should be accepted");
        let user = user.map_or_else(|| "nobody here".to_owned(), |user| user.to_string());
        code.update(format!("sexton login until {} of {user}", until.0).as_bytes());
        code
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::Tokens;
    use crate::scope::Scopes;
    use sexton::clock::Date;

    const TOKEN: &[u8] = b"0123456789abcdef";

    #[test]
    fn only_a_whole_token_is_a_token() {
        let tokens =
            Tokens::parse(b"0123456789abcdef\nanother-token-of-it run\na-token-that-reads read")
                .unwrap();
        let find = |offered| tokens.find(offered).map(|found| found.scopes());
        assert_eq!(find(TOKEN), Some(Scopes::Plain));
        assert_eq!(find(b"another-token-of-it"), Some(Scopes::All));
        assert_eq!(find(b"a-token-that-reads"), Some(Scopes::Read));
        for wrong in [
            &b"0123456789abcdeF"[..],
            b"0123456789abcde",
            b"0123456789abcdef0",
            b"another-token-of-it run",
            b"",
        ] {
            assert_eq!(find(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_token_is_a_line_that_can_stand_in_a_header() {
        for right in [
            &[b'x'; 16][..],
            &[b'x'; 4096],
            b"0123456789abcdef\r\n",
            b"0123456789abcdef run\r\n",
            b"0123456789abcdef\n0123456789abcdeF",
        ] {
            Tokens::parse(right).expect("every line is a valid token");
        }
        let lines = |count: usize| -> Vec<u8> {
            let each = (0..count).map(|it| format!("token-of-somebody-{it}\n"));
            each.collect::<String>().into_bytes()
        };
        Tokens::parse(&lines(16)).expect("16 tokens are allowed");
        for wrong in [
            &[b'x'; 15][..],
            &[b'x'; 4097],
            b"",
            b"\n",
            b"0123456789 abcdef",
            b"0123456789abcdef use",
            b"0123456789abcdef  run",
            b"0123456789abcdef run run",
            b"0123456789abcdef run read",
            b"0123456789abcdef\nmore\n",
            b"0123456789abcdef\n#another-token-of-it\n",
            b"0123456789abcdef\n\n",
            b"0123456789abcdef\n0123456789abcdef run\n",
            &lines(17),
        ] {
            Tokens::parse(wrong).expect_err("the file is invalid");
        }
    }

    #[test]
    fn a_login_stands_for_its_token_until_its_date() {
        let lines = b"0123456789abcdef\nanother-token-of-it run\na-token-that-reads read\n";
        let tokens = Tokens::parse(lines).unwrap();
        let until = Date(1000);
        let own = Some(1000);
        assert_eq!(tokens.login(b"0123456789abcdeF", (until, own)), None);
        for (token, scopes) in [
            (TOKEN, Scopes::Plain),
            (b"another-token-of-it", Scopes::All),
            (b"a-token-that-reads", Scopes::Read),
        ] {
            let login = tokens.login(token, (until, own)).unwrap();
            assert!(!login.contains("0123") && !login.contains("another"), "{login}");
            let before = (Date(999), own);
            let find_login = |tokens: &Tokens, login: &str, by| {
                let found = tokens.find_login(login, by);
                assert!(found.iter().all(|found| found.until() == Some(until)));
                found.map(|found| found.scopes())
            };
            assert_eq!(find_login(&tokens, &login, before), Some(scopes));
            for other in [None, Some(0), Some(1001)] {
                let found = find_login(&tokens, &login, (Date(999), other));
                assert_eq!(found, None, "somebody else has it: {other:?}");
            }
            let from_elsewhere = tokens.login(token, (until, None)).unwrap();
            assert_eq!(find_login(&tokens, &from_elsewhere, before), None);
            assert_eq!(
                find_login(&tokens, &login, (Date(1000), own)),
                None,
                "the login has expired"
            );
            let longer = login.replacen("1000", "2000", 1);
            assert_eq!(find_login(&tokens, &longer, before), None, "the date was changed");
            let cut = login.get(..login.len() - 1).unwrap();
            for wrong in [cut, "", ".", "1000", "1000.", "x.y"] {
                assert_eq!(find_login(&tokens, wrong, before), None, "{wrong}");
            }
            let others = Tokens::parse(b"a-token-of-other-days").unwrap();
            assert_eq!(find_login(&others, &login, before), None, "the token was removed");
        }
    }

    #[test]
    fn a_token_is_accepted_until_it_is_removed_or_loses_a_scope() {
        let tokens = Tokens::parse(b"0123456789abcdef").unwrap();
        let found = tokens.find(TOKEN).unwrap();
        for (lines, expected) in [
            (&b"another-token-of-it\n0123456789abcdef"[..], true),
            (b"0123456789abcdef run", true),
            (b"0123456789abcdef read", false),
            (b"another-token-of-it", false),
        ] {
            assert_eq!(Tokens::parse(lines).unwrap().accept(&found), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_token_is_never_shown() {
        let tokens = Tokens::parse(TOKEN).unwrap();
        let shown = format!("{tokens:?} {:#?}", Some(&tokens));
        assert_eq!(shown.matches("0123").count(), 0);
        let twice = [TOKEN, b"\n", TOKEN].concat();
        let words = Tokens::parse(&twice).expect_err("the token is repeated");
        assert!(!words.contains("0123"), "{words}");
    }
}
