//! The program and user of a new process, and the steps at which starting it can fail.

use crate::bytes::Bytes;
use crate::kernel::inheritance::Priorities;
use std::ffi::CString;
use std::io;

/// The search path if the environment has no `PATH`.
const PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// A program to run, prepared so that the child need not allocate.
pub struct Plan {
    /// Paths of the program, in the order in which they are tried.
    pub(in crate::kernel) programs: Vec<CString>,
    pub(in crate::kernel) argv: Vec<CString>,
    pub(in crate::kernel) env: Vec<CString>,
    pub(in crate::kernel) dir: CString,
    pub(in crate::kernel) umask: Option<u32>,
    pub(in crate::kernel) limits: Vec<(u32, u64, u64)>,
    pub(in crate::kernel) user: Option<User>,
    pub(in crate::kernel) priorities: Priorities,
    pub(in crate::kernel) terminal: bool,
}

/// The user and groups that the child runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user id.
    pub user: u32,
    /// The group id.
    pub group: u32,
    /// The ids of the supplementary groups.
    pub groups: Vec<u32>,
}

/// The step of a launch at which a child failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// Moving the streams to their descriptors.
    Streams = 1,
    /// Switching to its user.
    User = 2,
    /// Setting its limits.
    Limits = 3,
    /// Changing to its working directory.
    Directory = 4,
    /// Executing the program.
    Exec = 5,
}

impl Step {
    pub(in crate::kernel) const ALL: [Self; 5] =
        [Self::Streams, Self::User, Self::Limits, Self::Directory, Self::Exec];
}

impl Plan {
    /// Creates a plan to run `argv` with the environment `env` (`NAME=VALUE`) in the directory `dir`. If `dir` is empty,
    /// the child stays in the current directory.
    ///
    /// The program is looked up as in a shell: a name without a slash is searched for in the `PATH` of the plan's own environment.
    ///
    /// # Errors
    /// Returns `InvalidInput` if `argv` is empty or a string contains a NUL byte.
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
            priorities: Priorities::default(),
            terminal: false,
        })
    }

    /// Sets the umask.
    #[must_use]
    pub fn umask(mut self, umask: Option<u32>) -> Self {
        self.umask = umask;
        self
    }

    /// Adds resource limits, each as resource, soft limit and hard limit; `u64::MAX` means unlimited.
    #[must_use]
    pub fn limits(mut self, limits: &[(u32, u64, u64)]) -> Self {
        self.limits.extend_from_slice(limits);
        self
    }

    /// Sets the priorities.
    #[must_use]
    pub fn priorities(mut self, priorities: Priorities) -> Self {
        self.priorities = priorities;
        self
    }

    /// Sets whether the child becomes the leader of a session whose controlling terminal is its standard input.
    #[must_use]
    pub fn terminal(mut self, terminal: bool) -> Self {
        self.terminal = terminal;
        self
    }

    /// Sets the user to run as; `None` keeps the current one.
    #[must_use]
    pub fn user(mut self, user: Option<User>) -> Self {
        self.user = user;
        self
    }
}

/// Lists the paths at which a program may be. An empty part of `PATH` means the child's working directory.
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
        assert_eq!(texts(&candidates(b"ls", b"/a::")), ["/a/ls", "./ls", "./ls"]);
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
