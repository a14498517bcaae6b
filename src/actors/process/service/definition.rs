//! The definition of a service in the configuration. Stored with the service: see the change rule in `persist/format.rs`.

use crate::actors::process::spec::{Flaw, Spec, Tags};
use crate::bytes::Bytes;
use crate::spine::supervision::{Backoff, Intensity};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// When a process of a service is launched again after it ended without a request to stop it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Always, however it ended.
    #[default]
    Always,
    /// Unless it exited with a success code. Being stopped for missing its readiness, watchdog or timeout deadline is a failure, whatever
    /// the code.
    OnFailure,
    Never,
}

impl Policy {
    /// Returns its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::OnFailure => "on-failure",
            Self::Never => "never",
        }
    }
}

/// The definition of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Definition {
    /// Its name: 1 to 200 letters, digits and `-+;.$_()`, not starting with `-` or `.`.
    pub name: String,
    /// What is run, and how. The run directory is always that of the service; a value set here is ignored.
    pub spec: Spec,
    /// Whether it is started when it is first configured, rather than only on request.
    pub autostart: bool,
    /// When a process is launched again after its end.
    pub restart: Policy,
    /// The delay before a restart. The first restart of a series is not delayed.
    pub backoff: Backoff,
    /// The limit on restarts, beyond which a process counts as failed; `None` for no limit.
    pub intensity: Option<Intensity>,
    /// The services that must be ready, or have finished, before this one is started. Those that should be down are not waited for.
    pub after: Vec<String>,
    /// Exit codes that count as success in addition to 0. 128 plus the number of a signal stands for that signal.
    pub success: Vec<u8>,
    /// The number of processes that run at the same time.
    pub instances: u8,
}

impl Default for Definition {
    fn default() -> Self {
        Self {
            name: String::new(),
            spec: Spec {
                grace_ms: 10_000,
                ready_timeout_ms: 60_000,
                output_bytes_max: 64 << 20,
                output_kept: 5,
                ..Spec::default()
            },
            autostart: true,
            restart: Policy::default(),
            backoff: Backoff { first_ms: 100, max_ms: 30_000 },
            intensity: Some(Intensity { restarts_max: 10, period_ms: 60_000 }),
            after: Vec::new(),
            success: Vec::new(),
            instances: 1,
        }
    }
}

/// A fault in the definition of a service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The name is invalid.
    #[error(
        "a service name must have 1 to {} letters, digits and -+;.$_(), and must not begin with - or .",
        Definition::NAME_BYTES_MAX
    )]
    Name,
    /// Two services have the same name.
    #[error("another service has this name")]
    Twice,
    /// The spec is invalid.
    #[error("{0}")]
    Spec(Flaw),
    /// It depends on itself, directly or indirectly.
    #[error("after: the service depends on itself: {0}")]
    Cycle(String),
    /// A name in `after` is not the name of a service.
    #[error("after: there is no service {0}")]
    Unknown(String),
    /// There are too many names in `after`.
    #[error("after: expected at most {} services", Definition::AFTER_MAX)]
    After,
    /// The number of processes is out of bounds.
    #[error("instances: expected 1 to {}", Definition::INSTANCES_MAX)]
    Instances,
    /// The delays are out of bounds.
    #[error(
        "backoff: the maximum delay must not exceed {} ms or be shorter than the first delay",
        Definition::SPAN_MS_MAX
    )]
    Backoff,
    /// The intensity is out of bounds.
    #[error(
        "intensity: expected at most {} restarts in a period of 1 to {} ms",
        Definition::RESTARTS_MAX,
        Definition::SPAN_MS_MAX
    )]
    Intensity,
    /// There are too many services.
    #[error("expected at most {} services", Definition::SERVICES_MAX)]
    TooMany,
}

impl Definition {
    /// The maximum number of services.
    pub const SERVICES_MAX: usize = 256;
    /// The maximum length of a name, in bytes.
    pub const NAME_BYTES_MAX: usize = 200;
    /// The maximum number of processes of one service.
    pub const INSTANCES_MAX: u8 = 100;
    /// The maximum number of names in `after`.
    pub const AFTER_MAX: usize = 64;
    /// The maximum value of [`Intensity::restarts_max`].
    pub const RESTARTS_MAX: u32 = 1000;
    /// The maximum delay of a restart, and the maximum period of the intensity, in milliseconds: one day.
    pub const SPAN_MS_MAX: u64 = 24 * 3_600_000;

    /// Returns the faults of these definitions, each with the index of its service: the first fault of each definition on its own, and
    /// every duplicate name, unknown name in `after` and cycle. If there are more than [`Self::SERVICES_MAX`], returns only
    /// [`Fault::TooMany`].
    pub fn check_all(definitions: &[Self]) -> Vec<(usize, Fault)> {
        let mut faults = Vec::new();
        if definitions.len() > Self::SERVICES_MAX {
            faults.push((Self::SERVICES_MAX, Fault::TooMany));
            return faults;
        }
        let mut names = BTreeMap::new();
        for (place, definition) in definitions.iter().enumerate() {
            if let Err(fault) = definition.check() {
                faults.push((place, fault));
            }
            if names.insert(definition.name.as_str(), definition).is_some() {
                faults.push((place, Fault::Twice));
            }
        }
        for (place, definition) in definitions.iter().enumerate() {
            for name in &definition.after {
                if !names.contains_key(name.as_str()) {
                    faults.push((place, Fault::Unknown(name.clone())));
                }
            }
            if let Some(way) = find_cycle(definition, &names) {
                faults.push((place, Fault::Cycle(way)));
            }
        }
        faults
    }

    /// Checks this definition alone.
    ///
    /// # Errors
    /// Returns the first fault found.
    pub fn check(&self) -> Result<(), Fault> {
        if !is_name(&self.name) {
            return Err(Fault::Name);
        }
        // The spec is checked with everything that a launch adds.
        let tags = || self.tags_of(0).check();
        let checked = self.spec_of(0).check().and_then(|()| tags());
        checked.map_err(Fault::Spec)?;
        if self.after.len() > Self::AFTER_MAX {
            return Err(Fault::After);
        }
        if !(1..=Self::INSTANCES_MAX).contains(&self.instances) {
            return Err(Fault::Instances);
        }
        let Backoff { first_ms, max_ms } = self.backoff;
        if first_ms > max_ms || max_ms > Self::SPAN_MS_MAX {
            return Err(Fault::Backoff);
        }
        let fits = |it: &Intensity| {
            it.restarts_max <= Self::RESTARTS_MAX && (1..=Self::SPAN_MS_MAX).contains(&it.period_ms)
        };
        if !self.intensity.iter().all(fits) {
            return Err(Fault::Intensity);
        }
        Ok(())
    }

    /// Returns whether processes launched under the definition `before` must be replaced.
    pub(super) fn replaces(&self, before: &Self) -> bool {
        self.spec != before.spec
    }

    /// Returns whether an exit code counts as success.
    pub(super) fn is_success(&self, code: u8) -> bool {
        code == 0 || self.success.contains(&code)
    }

    /// Returns the directory of an instance's files, relative to the data directory. The first instance uses the directory of the service
    /// itself, so that changing the number of instances moves no files.
    pub fn run_dir(&self, nth: usize) -> String {
        match nth {
            0 => format!("services/{}", self.name),
            _ => format!("services/{}/{}", self.name, nth + 1),
        }
    }

    /// Returns the spec of an instance, with the variables that identify it and the directory of its files.
    pub(super) fn spec_of(&self, nth: usize) -> Spec {
        let mut spec = self.spec.clone();
        spec.run_dir = Some(Bytes::new(self.run_dir(nth).into_bytes()));
        spec.appends = true;
        let own = [("SEXTON_SERVICE", self.name.clone()), ("SEXTON_INSTANCE", number(nth))];
        let own = own.map(|(name, value)| (name.to_owned(), Bytes::new(value.into_bytes())));
        spec.env.extend(own);
        spec
    }

    /// Returns the tags of an instance's process.
    pub(super) fn tags_of(&self, nth: usize) -> Tags {
        Tags {
            kind: "service".to_owned(),
            url: None,
            labels: vec![
                ("service".to_owned(), self.name.clone()),
                ("instance".to_owned(), number(nth)),
            ],
        }
    }
}

/// Returns the number of an instance as shown to users, counted from 1.
fn number(nth: usize) -> String {
    (nth + 1).to_string()
}

/// Returns whether a service may have this name, which is also used for a directory.
fn is_name(name: &str) -> bool {
    let may_hold = |byte: u8| byte.is_ascii_alphanumeric() || b"-+;.$_()".contains(&byte);
    !name.starts_with(['-', '.'])
        && (1..=Definition::NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(may_hold)
}

/// Returns a cycle that leads from a service through `after` back to itself, such as `a after b after a`; `None` if there is none.
fn find_cycle(from: &Definition, names: &BTreeMap<&str, &Definition>) -> Option<String> {
    let mut seen = BTreeSet::new();
    let mut ways = vec![vec![from.name.as_str()]];
    while let Some(way) = ways.pop() {
        let last = way.last().and_then(|name| names.get(name));
        for next in last.into_iter().flat_map(|it| &it.after) {
            let longer = [way.as_slice(), &[next.as_str()]].concat();
            if *next == from.name {
                return Some(longer.join(" after "));
            }
            if seen.insert(next.as_str()) {
                ways.push(longer);
            }
        }
    }
    None
}
