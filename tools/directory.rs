//! Checks whether a path is a readable data directory, and if it is not, explains why; and whether other users can put another directory in
//! its place.

use crate::report::Failure;
use sexton::kernel::path;
use sexton::kernel::socket::is_own;
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

/// Returns why somebody can put another directory in the place of `data`, other than root, the user of this process and `trusted`: a
/// directory above it is not theirs alone, or a symbolic link in its path is somebody else's. Returns `None` if nobody can.
pub(crate) fn replaceable(data: &Path, trusted: Option<u32>) -> Option<String> {
    path::exposure(data, &|user| is_own(user) || trusted == Some(user))
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
    use super::{refused, replaceable};
    use std::fs::{Permissions, create_dir, set_permissions};
    use std::io;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    #[test]
    fn a_directory_below_one_that_others_may_write_to_can_be_replaced() {
        let scratch = tempfile::tempdir().expect("a directory can be created");
        let above = scratch.path().canonicalize().expect("it exists");
        let data = above.join("parent/between/data");
        for path in [above.join("parent"), above.join("parent/between")] {
            create_dir(path).expect("it can be created");
        }
        let parent = above.join("parent");
        let set =
            |mode| set_permissions(&parent, Permissions::from_mode(mode)).expect("it is ours");
        for is_there in [false, true] {
            if is_there {
                create_dir(&data).expect("it can be created");
            }
            for mode in [0o700, 0o755, 0o1777] {
                set(mode);
                assert_eq!(replaceable(&data, None), None, "{mode:o}");
            }
            for mode in [0o777, 0o775, 0o757] {
                set(mode);
                let why = replaceable(&data, None).expect("others may write to the parent");
                assert!(
                    why.contains(&format!("{} has mode {mode:04o}", parent.display())),
                    "{why}"
                );
            }
            set(0o755);
        }
        // The directory itself is checked by the store.
        set_permissions(&data, Permissions::from_mode(0o777)).expect("it is ours");
        assert_eq!(replaceable(&data, None), None);
        let link = above.join("link");
        symlink(&parent, &link).expect("it can be created");
        let through = link.join("between/data");
        assert_eq!(replaceable(&through, None), None, "a link of our own");
        set(0o777);
        assert!(replaceable(&through, None).is_some());
        set(0o755);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(&link, Some(65_534), None).expect("root may do so");
            let why = replaceable(&through, None).expect("another user made the link");
            assert!(why.contains("link of user 65534"), "{why}");
            chown(&parent, Some(65_534), None).expect("root may do so");
            let why = replaceable(&data, None).expect("the parent is another user's");
            assert!(why.contains("belongs to user 65534"), "{why}");
            assert_eq!(replaceable(&data, Some(65_534)), None, "that user is trusted");
        }
    }

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
