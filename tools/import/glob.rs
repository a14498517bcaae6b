//! Finds the files that a pattern of `[include]` matches, as Python's `glob` does: `*`, `?`, `[a-z]` and `[!a-z]` within a
//! component of the path; a leading dot must be matched explicitly.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

/// The maximum number of directory entries that are read for one pattern.
const ENTRIES_MAX: usize = 10_000;

/// Returns the paths that match a pattern, sorted.
pub(super) fn paths(pattern: &Path) -> io::Result<Vec<PathBuf>> {
    let mut seen = 0;
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let Component::Normal(name) = part else {
            for path in &mut found {
                path.push(part);
            }
            continue;
        };
        let bytes = name.as_bytes();
        if !bytes.iter().any(|byte| b"*?[".contains(byte)) {
            for path in &mut found {
                path.push(name);
            }
            found.retain(|path| path.symlink_metadata().is_ok());
            continue;
        }
        let mut next = Vec::new();
        for path in &found {
            for entry in entries(path, &mut seen)? {
                if matches(bytes, entry.as_bytes()) && fits_dot(bytes, entry.as_bytes()) {
                    next.push(path.join(entry));
                }
            }
        }
        found = next;
    }
    found.sort();
    Ok(found)
}

/// Returns the names in a directory, or none if `path` is not a directory that can be read. Adds their number to `seen`, and fails if
/// that becomes more than [`ENTRIES_MAX`].
fn entries(path: &Path, seen: &mut usize) -> io::Result<Vec<OsString>> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let mut names = Vec::new();
    for entry in path.read_dir().into_iter().flatten() {
        *seen += 1;
        if *seen > ENTRIES_MAX {
            return Err(io::Error::other(format!(
                "its directories have more than {ENTRIES_MAX} entries"
            )));
        }
        names.push(entry?.file_name());
    }
    Ok(names)
}

fn fits_dot(pattern: &[u8], name: &[u8]) -> bool {
    pattern.starts_with(b".") || !name.starts_with(b".")
}

/// Returns whether a name matches a pattern. Takes at most quadratic time for any pattern.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut of) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while of < name.len() {
        let rest = pattern.get(at..).unwrap_or_default();
        if rest.first() == Some(&b'*') {
            star = Some((at + 1, of));
            at += 1;
        } else if let Some(taken) = one(rest, name.get(of).copied().unwrap_or(0)) {
            at += taken;
            of += 1;
        } else if let Some((after, from)) = star {
            star = Some((after, from + 1));
            (at, of) = (after, from + 1);
        } else {
            return false;
        }
    }
    let rest = pattern.get(at..).unwrap_or_default();
    rest.iter().all(|byte| *byte == b'*')
}

/// Returns the length of the pattern's first element, or `None` if it does not match this byte.
fn one(pattern: &[u8], letter: u8) -> Option<usize> {
    match pattern.split_first()? {
        (b'?', _) => Some(1),
        (b'[', rest) => match set(rest) {
            Some((set, is_not)) => {
                let taken = 2 + set.len() + usize::from(is_not);
                (has(set, letter) != is_not).then_some(taken)
            }
            // An unclosed bracket matches only a bracket.
            None => (letter == b'[').then_some(1),
        },
        (byte, _) => (*byte == letter).then_some(1),
    }
}

/// Parses a bracketed set of characters; `pattern` begins after the opening bracket. Returns the members of the set
/// and whether it is negated, or `None` if it is not closed.
fn set(pattern: &[u8]) -> Option<(&[u8], bool)> {
    let is_not = pattern.first() == Some(&b'!');
    let inner = pattern.get(usize::from(is_not)..)?;
    // A closing bracket that comes first is a member of the set.
    let end = inner.iter().skip(1).position(|byte| *byte == b']')? + 1;
    Some((inner.get(..end)?, is_not))
}

fn has(set: &[u8], letter: u8) -> bool {
    let mut rest = set;
    while let Some((first, after)) = rest.split_first() {
        if let [b'-', last, after @ ..] = after {
            if (*first..=*last).contains(&letter) {
                return true;
            }
            rest = after;
        } else {
            if *first == letter {
                return true;
            }
            rest = after;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{matches, paths};

    #[test]
    fn names_are_matched_by_letter() {
        for (pattern, name, is) in [
            ("*.conf", "a.conf", true),
            ("*.conf", "a.conf.bak", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]x]", "]", true),
            ("[", "[", true),
            ("a*b*c", "aXbXbYc", true),
            ("a*b*c", "aXbXbY", false),
            ("", "a", false),
            ("**", "", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), is, "{pattern} {name}");
        }
        // Neither of these may take exponential time.
        assert!(!matches("a*".repeat(60).as_bytes(), "b".repeat(250).as_bytes()));
        let all = "a".repeat(250);
        assert!(!matches(format!("{}b", "a*".repeat(60)).as_bytes(), all.as_bytes()));
    }

    #[test]
    fn directories_may_be_patterns_too() {
        let files = tempfile::tempdir().expect("a temporary directory");
        for path in ["b/x.conf", "a/y.conf", "a/.hidden.conf", "c.conf"] {
            let path = files.path().join(path);
            let folder = path.parent().expect("the path has a parent");
            std::fs::create_dir_all(folder).expect("the directory is writable");
            std::fs::write(path, "").expect("the directory is writable");
        }
        let found = |pattern: &str| -> Vec<String> {
            let found = paths(&files.path().join(pattern)).expect("the directories can be listed");
            let below = found.iter().map(|it| it.strip_prefix(files.path()));
            below.map(|it| it.expect("the path is in `files`").display().to_string()).collect()
        };
        assert_eq!(found("*/*.conf"), ["a/y.conf", "b/x.conf"]);
        assert_eq!(found("a/.h*"), ["a/.hidden.conf"]);
        assert_eq!(found("c.conf"), ["c.conf"]);
        assert_eq!(found("d.conf"), Vec::<String>::new());
        assert_eq!(found("c.conf/*"), Vec::<String>::new());
    }
}
