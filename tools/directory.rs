//! Checks whether a path is a readable data directory, and if it is not, explains why.

use crate::report::Failure;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Fails unless `data` is a directory that contains at least one of `names`. The message says that the program failed to `action`.
pub(crate) fn check(action: &str, data: &Path, names: &[&str]) -> Result<(), Failure> {
    refusal(data, names).map_or(Ok(()), |(why, help)| {
        let shown = data.display();
        Err(Failure::unreachable(format!("failed to {action} {shown}: {why}")).help(help))
    })
}

fn refusal(data: &Path, names: &[&str]) -> Option<(String, &'static str)> {
    let which = "name the directory that `sexton serve --data` uses";
    match std::fs::read_dir(data).map(|mut entries| entries.next().is_none()) {
        Err(error) => Some(refused(&error)),
        Ok(true) => Some(("it is empty".to_owned(), which)),
        Ok(false) if names.iter().any(|name| data.join(name).exists()) => None,
        Ok(false) => {
            let names = names.join(" or ");
            let why = format!("it is not a data directory: it contains no {names}");
            Some((why, which))
        }
    }
}

/// Returns a description of an error about a path, and advice on what to do.
pub(crate) fn refused(error: &io::Error) -> (String, &'static str) {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "there are many kinds of errors, and more may be added"
    )]
    match error.kind() {
        ErrorKind::PermissionDenied => (
            "permission denied".to_owned(),
            "other users cannot read its files: run this as the user that the coordinator runs as",
        ),
        ErrorKind::NotFound => (
            "there is no such file or directory".to_owned(),
            "name the directory that `sexton serve --data` uses",
        ),
        ErrorKind::NotADirectory => (
            "it is a file, not a directory".to_owned(),
            "name the directory that `sexton serve --data` uses",
        ),
        _ => (error.to_string(), "check the disk"),
    }
}

#[cfg(test)]
mod tests {
    use super::refused;
    use std::io;

    #[test]
    fn what_may_not_be_read_is_not_said_to_be_missing() {
        let (why, help) = refused(&io::ErrorKind::PermissionDenied.into());
        assert_eq!(why, "permission denied");
        assert!(help.contains("as the user"), "{help}");
        let (why, help) = refused(&io::ErrorKind::NotFound.into());
        assert!(why.contains("no such"), "{why}");
        assert!(help.contains("--data"), "{help}");
    }
}
