//! The files of a data directory: there are no unknown ones, and their size does not grow, however often the program was
//! killed.

use std::path::Path;

/// The maximum number of segments: one in use, one prepared, and two that the older snapshot needs.
const SEGMENTS_MAX: usize = 4;

/// The files of a directory, with their sizes, by name.
pub(crate) struct Space {
    files: Vec<(String, u64)>,
}

impl Space {
    /// Lists the files.
    pub(crate) fn of(data: &Path) -> Self {
        let mut files = Vec::new();
        list(data, "", &mut files);
        files.sort();
        Self { files }
    }

    /// Returns the total size of the snapshots, in bytes.
    pub(crate) fn snapshot_bytes(&self) -> u64 {
        let of_snapshots = |(name, _): &&(String, u64)| name.starts_with("snapshots/");
        self.files.iter().filter(of_snapshots).map(|(_, len)| len).sum()
    }

    /// Asserts that every file is a known one, and that the snapshots are not larger than this number of bytes.
    pub(crate) fn check(&self, snapshot_bytes_max: u64) {
        let strays: Vec<&str> = self
            .files
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| !is_known(name))
            .collect();
        assert!(strays.is_empty(), "unknown files: {strays:?}");
        let count = |has: &dyn Fn(&str) -> bool| {
            self.files.iter().filter(|(name, _)| has(name.as_str())).count()
        };
        let segments = count(&|name| name.starts_with("journal/") && name != "journal/synced");
        assert!(segments <= SEGMENTS_MAX, "{:?}", self.files);
        for slot in ["snapshots/a/", "snapshots/b/"] {
            let generations = count(&|name| name.starts_with(&format!("{slot}snap.")));
            assert!(generations <= 2, "{:?}", self.files);
        }
        let bytes = self.snapshot_bytes();
        assert!(bytes <= snapshot_bytes_max, "{bytes}: {:?}", self.files);
    }
}

fn list(root: &Path, folder: &str, files: &mut Vec<(String, u64)>) {
    let Ok(entries) = std::fs::read_dir(root.join(folder)) else {
        return;
    };
    for entry in entries {
        let entry = entry.expect("the directory is readable");
        let name = entry.file_name().into_string().expect("UTF-8");
        let name = format!("{folder}{name}");
        match entry.metadata() {
            Ok(found) if found.is_dir() => list(root, &format!("{name}/"), files),
            Ok(found) => files.push((name, found.len())),
            // Renamed or removed while the directory was listed.
            Err(_) => {}
        }
    }
}

/// Returns whether a data directory may have a file of this name. sled's `blobs/` must stay empty, because sled never
/// removes these files.
fn is_known(name: &str) -> bool {
    let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
    match folder {
        "" => ["lock", "lock.tmp", "report.key", "report.sock", "sexton.sock"].contains(&file),
        "journal" => {
            let ordinal = file.strip_suffix(".seg");
            let ordinal = ordinal.or_else(|| file.strip_suffix(".tmp"));
            file == "synced" || ordinal.is_some_and(|ordinal| ordinal.parse::<u64>().is_ok())
        }
        "snapshots" => ["a.seal", "b.seal", "a.seal.tmp", "b.seal.tmp"].contains(&file),
        "snapshots/a" | "snapshots/b" => {
            let snap = file.strip_prefix("snap.");
            ["conf", "db"].contains(&file)
                || snap.is_some_and(|rest| {
                    rest.chars().all(|it| it.is_ascii_hexdigit() || ".generating".contains(it))
                })
        }
        _ => false,
    }
}
