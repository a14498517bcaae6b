//! The environment of launched processes.

use crate::actors::process::{Failure, Spec, Step};
use crate::bytes::Bytes;
use crate::ids::ProcessId;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

/// The environment variable that holds the id of the process's record. Its descendants inherit it.
pub(crate) const ID: &str = "SEXTON_PROCESS_ID";

/// The environment variable that holds the path of the coordinator's data directory.
const DATA: &str = "SEXTON_DATA";

/// Variables that a service manager sets for a single process. Launched processes do not inherit them from the coordinator.
const NOT_INHERITED: [&str; 7] = [
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
];

/// Builds the environment as `NAME=VALUE` strings. Later sources override earlier ones: the coordinator's environment unless there is a
/// parcel, then `own` (variables for the account and for notices), then `file`, those of the environment file, then the spec, then [`ID`] and
/// [`DATA`].
///
/// # Errors
/// Returns an error if there is no parcel and a secret that the spec names is in none of the sources.
pub(super) fn of(
    id: ProcessId,
    spec: &Spec,
    (data, own): (&Path, Vec<(&'static str, Vec<u8>)>),
    file: Vec<(String, Vec<u8>)>,
) -> Result<Vec<Bytes>, Failure> {
    let mut all: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    if spec.parcel.is_none() {
        let own = std::env::vars_os().map(|(name, value)| (name.into_vec(), value.into_vec()));
        all.extend(own.filter(|(name, _)| !NOT_INHERITED.iter().any(|it| it.as_bytes() == name)));
    }
    let own = own.into_iter();
    all.extend(own.map(|(name, value)| (name.as_bytes().to_vec(), value)));
    all.extend(file.into_iter().map(|(name, value)| (name.into_bytes(), value)));
    for (name, value) in &spec.env {
        all.insert(name.clone().into_bytes(), value.as_bytes().to_vec());
    }
    // Only the keeper has the contents of a parcel, so if there is one, secrets are not checked.
    let missing = spec.secrets.iter().find(|name| !all.contains_key(name.as_bytes()));
    if let Some(name) = missing.filter(|_| spec.parcel.is_none()) {
        return Err(Failure {
            step: Step::Environment,
            errno: 0,
            about: Some(format!(
                "the secret {name} is set neither in the environment file nor in the coordinator's environment"
            )),
        });
    }
    let data: OsString = data.as_os_str().to_owned();
    let first = [(ID, id.to_string().into_bytes()), (DATA, data.into_vec())];
    let first = first.map(|(name, value)| (name.as_bytes().to_vec(), value));
    // The id is looked for at the beginning only, if there is much.
    all.retain(|name, _| !first.iter().any(|(own, _)| own == name));
    let variables = first.into_iter().chain(all).map(|(mut variable, value)| {
        variable.push(b'=');
        variable.extend(value);
        Bytes::new(variable)
    });
    Ok(variables.collect())
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::actors::process::{Spec, Step};
    use crate::bytes::Bytes;
    use crate::ids::ProcessId;
    use std::path::Path;

    /// Whoever the process runs as: what only some processes may know belongs into their environment files.
    #[test]
    fn the_environment_of_the_coordinator_is_passed_on() {
        let of_ours = std::env::vars().find(|(name, _)| name == "PATH");
        let (name, value) = of_ours.expect("it is set");
        for user in [None, Some("nobody".to_owned())] {
            let spec = Spec { user, ..Spec::default() };
            let made = of(ProcessId(5), &spec, (Path::new("/data"), Vec::new()), Vec::new());
            let all = made.expect("nothing is missing");
            let expected = format!("{name}={value}");
            assert!(all.iter().any(|it| it.as_bytes() == expected.as_bytes()));
        }
    }

    #[test]
    fn each_source_is_above_the_one_before_and_a_secret_must_be_in_one() {
        let file = [("PATH", "/file"), ("API_TOKEN", "hush"), ("A", "file")];
        let file = file.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
        let mut spec = Spec {
            env: vec![("A".to_owned(), Bytes::new(*b"spec"))],
            secrets: vec!["API_TOKEN".to_owned()],
            ..Spec::default()
        };
        let place = || (Path::new("/data"), Vec::new());
        let made = |spec: &Spec| of(ProcessId(5), spec, place(), file.to_vec());
        let all = made(&spec).expect("all secrets are set");
        let has = |text: &str| all.iter().any(|it| it.as_bytes() == text.as_bytes());
        for variable in ["PATH=/file", "API_TOKEN=hush", "A=spec", "SEXTON_DATA=/data"] {
            assert!(has(variable), "{variable}");
        }
        assert!(has("SEXTON_PROCESS_ID=00000000-0000-0000-0000-000000000005"));
        let first = all.first().expect("it has variables");
        assert!(first.as_bytes().starts_with(b"SEXTON_PROCESS_ID="), "{first:?}");
        spec.secrets.push("NO_SUCH_SECRET".to_owned());
        let wrong = made(&spec).expect_err("one secret is not set");
        assert_eq!(wrong.step, Step::Environment);
        assert!(wrong.about.is_some_and(|it| it.contains("NO_SUCH_SECRET")));
    }
}
