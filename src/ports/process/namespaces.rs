//! PID namespaces that have ended. A process in another PID namespace cannot be looked up, so its state is usually unknown. The exception
//! is a namespace whose PID 1 was a coordinator: it ended when that coordinator exited, along with all processes in it. Only one
//! coordinator at a time uses a data directory, so all predecessors of the current one have exited.

use crate::kernel::host;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

/// The file in the data directory that lists the namespaces of this boot whose PID 1 was a coordinator: one per line, as boot id and inode
/// number.
const FILE: &str = "namespaces";

/// The maximum number of namespaces that are remembered; the newest are kept.
const NAMESPACES_MAX: usize = 1024;

/// The namespaces that have ended.
#[derive(Debug, Default)]
pub(super) struct EndedNamespaces(BTreeSet<u64>);

impl EndedNamespaces {
    /// Reads the namespaces of earlier coordinators. If this process is PID 1, its namespace is added to the file for later coordinators.
    pub(super) fn before(data: &Path, is_init: bool) -> Self {
        let own = host::namespace();
        let mut all = match read(data) {
            Ok(all) => all,
            Err(error) => {
                tracing::warn!("{}: {error}", data.join(FILE).display());
                Vec::new()
            }
        };
        all.retain(|namespace| *namespace != own);
        let ended = Self(all.iter().copied().collect());
        if is_init {
            all.push(own);
            if let Err(error) = write(data, &all) {
                tracing::warn!("{}: {error}", data.join(FILE).display());
            }
        }
        ended
    }

    /// Returns whether this namespace has ended, so that no process is running in it.
    pub(super) fn has(&self, namespace: u64) -> bool {
        self.0.contains(&namespace)
    }
}

fn read(data: &Path) -> io::Result<Vec<u64>> {
    let text = match fs::read_to_string(data.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let boot = format!("{:032x}", host::boot());
    let of_this_boot =
        text.lines().filter_map(|line| line.strip_prefix(&boot)?.trim().parse().ok());
    Ok(of_this_boot.collect())
}

fn write(data: &Path, all: &[u64]) -> io::Result<()> {
    let newest = all.get(all.len().saturating_sub(NAMESPACES_MAX)..);
    let line = |namespace: &u64| format!("{:032x} {namespace}\n", host::boot());
    let text: String = newest.unwrap_or(all).iter().map(line).collect();
    let (path, next) = (data.join(FILE), data.join(format!("{FILE}.new")));
    let mut file = fs::File::create(&next)?;
    file.write_all(text.as_bytes())?;
    fs::rename(next, path)
}

#[cfg(test)]
mod tests {
    use super::{EndedNamespaces, FILE, host, read};

    #[test]
    fn those_of_coordinators_before_have_ended_and_the_own_has_not() {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let own = host::namespace();
        assert!(!EndedNamespaces::before(dir.path(), true).has(own));
        assert_eq!(read(dir.path()).expect("the file can be read"), [own]);
        let another_boot = format!("{:032x} 77\n", !host::boot());
        let this_boot = format!("{:032x} 78\n", host::boot());
        std::fs::write(dir.path().join(FILE), another_boot + &this_boot)
            .expect("the file can be written");
        let ended = EndedNamespaces::before(dir.path(), false);
        assert!(ended.has(78) && !ended.has(77) && !ended.has(own));
        EndedNamespaces::before(dir.path(), true);
        assert_eq!(read(dir.path()).expect("the file can be read"), [78, own]);
    }
}
