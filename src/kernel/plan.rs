//! What a new process is to run, and as whom; what it could not do.

use crate::bytes::Bytes;
use std::ffi::CString;
use std::io;

/// Where programs are looked for if the environment does not say.
const PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// What is to be run, with all that the child needs in place: it allocates nothing.
pub struct Plan {
    /// Where the program may be, in the order in which it is looked for.
    pub(in crate::kernel) programs: Vec<CString>,
    pub(in crate::kernel) argv: Vec<CString>,
    pub(in crate::kernel) env: Vec<CString>,
    pub(in crate::kernel) dir: CString,
    pub(in crate::kernel) umask: Option<u32>,
    pub(in crate::kernel) limits: Vec<(u32, u64, u64)>,
    pub(in crate::kernel) user: Option<User>,
}

/// Who the child is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user.
    pub user: u32,
    /// The group.
    pub group: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

/// What a child could not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// Put its streams in their places.
    Streams = 1,
    /// Become its user.
    User = 2,
    /// Set its limits.
    Limits = 3,
    /// Enter its directory.
    Directory = 4,
    /// Execute the program.
    Exec = 5,
}

impl Step {
    pub(in crate::kernel) const ALL: [Self; 5] = [
        Self::Streams,
        Self::User,
        Self::Limits,
        Self::Directory,
        Self::Exec,
    ];
}

impl Plan {
    /// To run this, with this environment (`NAME=VALUE`), in this directory.
    ///
    /// The program is looked for as a shell does: a name without a slash along the `PATH` of its own environment.
    ///
    /// # Errors
    /// `InvalidInput` if there is no program, or a byte 0 where a string would end.
    pub fn new(argv: &[Bytes], env: &[Bytes], dir: &Bytes) -> io::Result<Self> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let strings = |parts: &[Bytes]| -> io::Result<Vec<CString>> {
            let strings = parts.iter().map(|part| CString::new(part.as_bytes()));
            strings.collect::<Result<_, _>>().map_err(|_| invalid())
        };
        let program = argv.first().ok_or_else(invalid)?.as_bytes();
        let mut paths = env.iter().rev();
        let path = paths.find_map(|variable| variable.as_bytes().strip_prefix(b"PATH="));
        let programs = candidates(program, path.unwrap_or(PATH));
        Ok(Self {
            programs: strings(&programs)?,
            argv: strings(argv)?,
            env: strings(env)?,
            dir: CString::new(dir.as_bytes()).map_err(|_| invalid())?,
            umask: None,
            limits: Vec::new(),
            user: None,
        })
    }

    /// The same with this umask.
    #[must_use]
    pub fn umask(mut self, umask: Option<u32>) -> Self {
        self.umask = umask;
        self
    }

    /// The same with further limits: which, soft, hard; `u64::MAX` is none.
    #[must_use]
    pub fn limits(mut self, limits: &[(u32, u64, u64)]) -> Self {
        self.limits.extend_from_slice(limits);
        self
    }

    /// The same as this user, if it is another.
    #[must_use]
    pub fn user(mut self, user: Option<User>) -> Self {
        self.user = user;
        self
    }
}

/// Where a program may be. An empty part of `PATH` is the directory that the child is in.
fn candidates(program: &[u8], path: &[u8]) -> Vec<Bytes> {
    if program.is_empty() || program.contains(&b'/') {
        return vec![Bytes::new(program)];
    }
    let places = path.split(|byte| *byte == b':');
    places
        .map(|place| {
            let place = if place.is_empty() { b"." } else { place };
            Bytes::new([place, b"/", program].concat())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Plan, candidates};
    use crate::bytes::Bytes;

    fn texts(found: &[Bytes]) -> Vec<String> {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes.as_bytes()).into_owned();
        found.iter().map(text).collect()
    }

    #[test]
    fn a_program_is_looked_for_as_a_shell_does() {
        assert_eq!(texts(&candidates(b"ls", b"/a:/b")), ["/a/ls", "/b/ls"]);
        assert_eq!(
            texts(&candidates(b"ls", b"/a::")),
            ["/a/ls", "./ls", "./ls"]
        );
        assert_eq!(texts(&candidates(b"./ls", b"/a")), ["./ls"]);
        assert_eq!(texts(&candidates(b"", b"/a")), [""]);
    }

    #[test]
    fn what_cannot_be_a_string_is_refused() {
        let of = |argv: &[&[u8]], env: &[&[u8]]| {
            let list = |parts: &[&[u8]]| -> Vec<Bytes> {
                parts.iter().map(|part| Bytes::new(*part)).collect()
            };
            Plan::new(&list(argv), &list(env), &Bytes::default()).is_ok()
        };
        assert!(of(&[b"ls"], &[b"A=b"]));
        assert!(!of(&[], &[]));
        assert!(!of(&[b"ls", b"a\0b"], &[]));
        assert!(!of(&[b"ls"], &[b"A=\0"]));
    }
}
