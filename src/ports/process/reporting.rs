//! The socket on which a process that works on a task reports, and the secret that it uses.
//!
//! The secret of a process is its id followed by a message authentication code of the id (HMAC-SHA-256, RFC 2104), under a key that is
//! stored only in the data directory. So no secret appears in the journal or in a record, and a restarted coordinator accepts the secrets
//! issued by its predecessor.

use crate::ids::ProcessId;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::fmt;
use std::path::{Path, PathBuf};

/// The name of the key file in the data directory.
pub(crate) const KEY_FILE: &str = "report.key";
/// The name of the socket for reports in the data directory.
pub(crate) const SOCKET: &str = "report.sock";
/// The environment variable that holds the path of the socket.
pub(crate) const ADDRESS: &str = "SEXTON_TASK_REPORT";

/// The socket for reports on tasks, and the key from which the secrets of processes are derived.
#[derive(Clone)]
pub struct Reporting {
    key: [u8; 32],
    socket: PathBuf,
}

/// Omits the key, so that logs do not reveal it.
impl fmt::Debug for Reporting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporting").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl Reporting {
    /// Creates a `Reporting` that uses this key and a socket in this data directory.
    pub fn new(key: [u8; 32], data: &Path) -> Self {
        let socket = data.join(SOCKET);
        Self { key, socket }
    }

    /// Returns the path of the socket for reports.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the secret of a process.
    pub(super) fn secret(&self, process: ProcessId) -> String {
        let code = self.code(process).finalize().into_bytes();
        let digits = code.iter().map(|byte| format!("{byte:02x}"));
        format!("{process}.{}", digits.collect::<String>())
    }

    /// Returns the process that a secret belongs to; `None` if the secret is invalid.
    pub fn process_of(&self, secret: &str) -> Option<ProcessId> {
        let (process, digits) = secret.split_once('.')?;
        let process: ProcessId = process.parse().ok()?;
        if digits.len() != 64 || !digits.bytes().all(|it| it.is_ascii_hexdigit()) {
            return None;
        }
        let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        let code: Option<Vec<u8>> = (0..64).step_by(2).map(byte).collect();
        // The comparison takes constant time, so that its duration does not reveal how much of a guessed code is right.
        let is_right = self.code(process).verify_slice(&code?).is_ok();
        is_right.then_some(process)
    }

    /// Returns a name for a process that cannot be guessed without the key, and that reveals nothing about its secret.
    pub(super) fn name(&self, process: ProcessId) -> String {
        let mut code = Hmac::<Sha256>::new_from_slice(&self.key)
            .expect("a key of any length should be accepted");
        code.update(b"name of ");
        code.update(process.to_string().as_bytes());
        let code = code.finalize().into_bytes();
        let digits = code.iter().take(16).map(|byte| format!("{byte:02x}"));
        digits.collect()
    }

    fn code(&self, process: ProcessId) -> Hmac<Sha256> {
        let keyed = Hmac::<Sha256>::new_from_slice(&self.key);
        let mut code = keyed.expect("a key of any length should be accepted");
        code.update(process.to_string().as_bytes());
        code
    }
}

#[cfg(test)]
mod tests {
    use super::Reporting;
    use crate::ids::ProcessId;
    use std::path::Path;

    #[test]
    fn a_secret_is_of_one_process_and_of_one_key() {
        let reporting = Reporting::new([7; 32], Path::new("/data"));
        let (one, other) = (ProcessId::new(1, 1), ProcessId::new(1, 2));
        let secret = reporting.secret(one);
        assert_eq!(reporting.process_of(&secret), Some(one));
        let code = secret.split_once('.').expect("a secret has a code").1;
        assert_eq!(reporting.process_of(&format!("{other}.{code}")), None);
        let another = Reporting::new([8; 32], Path::new("/data"));
        assert_eq!(another.process_of(&secret), None);
        for wrong in ["", ".", "x.y", &secret[..secret.len() - 1], &format!("{secret}0")] {
            assert_eq!(reporting.process_of(wrong), None, "{wrong}");
        }
        assert!(!format!("{reporting:?}").contains('7'));
    }
}
