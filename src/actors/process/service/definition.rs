//! What the configuration says of a service. Stored with it: see the change rule in `persist/format.rs`.

use crate::actors::process::spec::{Flaw, Spec, Tags};
use crate::bytes::Bytes;
use crate::spine::supervision::{Backoff, Intensity};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// When a process of a service is launched again after it ended by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// However it ended.
    #[default]
    Always,
    /// Unless it ended with a success code.
    OnFailure,
    /// Never.
    Never,
}

impl Policy {
    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::OnFailure => "on-failure",
            Self::Never => "never",
        }
    }
}

/// A service as the configuration has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Definition {
    /// Its name: 1 to 200 letters, digits and `-+;.$_()`, the first no `-` and no `.`.
    pub name: String,
    /// What is run, and how. Its files are where the service has its directory, whatever stands here.
    pub spec: Spec,
    /// Whether it is started when it is first configured.
    pub autostart: bool,
    /// When it is launched again.
    pub restart: Policy,
    /// The wait before a restart. The first of a series waits for nothing.
    pub backoff: Backoff,
    /// How many restarts are too many. `None` never gives up.
    pub intensity: Option<Intensity>,
    /// Services that are to run before this one is started.
    pub after: Vec<String>,
    /// Exit codes that are a success, beside 0. 128 and the number of a signal stands for that signal.
    pub success: Vec<u8>,
    /// How many processes run at a time.
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
            backoff: Backoff {
                first_ms: 100,
                max_ms: 30_000,
            },
            intensity: Some(Intensity {
                restarts_max: 10,
                period_ms: 60_000,
            }),
            after: Vec::new(),
            success: Vec::new(),
            instances: 1,
        }
    }
}

/// What of a configuration of services cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The name cannot be one.
    #[error(
        "a service has a name of 1 to {} letters, digits and -+;.$_(), the first no - and no .",
        Definition::NAME_BYTES_MAX
    )]
    Name,
    /// Two have one name.
    #[error("another service has this name")]
    Twice,
    /// What is to be run cannot be.
    #[error("{0}")]
    Spec(Flaw),
    /// It is to run before itself.
    #[error("after: it comes after itself: {0}")]
    Cycle(String),
    /// A name that no service has.
    #[error("after: there is no service {0}")]
    Unknown(String),
    /// Too many names.
    #[error("after: at most {} services", Definition::AFTER_MAX)]
    After,
    /// Too few or too many processes.
    #[error("instances: expected 1 to {}", Definition::INSTANCES_MAX)]
    Instances,
    /// The waits are out of bounds.
    #[error(
        "backoff: the longest wait is at most {} ms, and no shorter than the first",
        Definition::SPAN_MS_MAX
    )]
    Backoff,
    /// The intensity is out of bounds.
    #[error(
        "intensity: at most {} restarts, in a period of 1 ms to {} ms",
        Definition::RESTARTS_MAX,
        Definition::SPAN_MS_MAX
    )]
    Intensity,
    /// Too many services.
    #[error("at most {} services", Definition::SERVICES_MAX)]
    TooMany,
}

impl Definition {
    /// The most services.
    pub const SERVICES_MAX: usize = 256;
    /// The longest name.
    pub const NAME_BYTES_MAX: usize = 200;
    /// The most processes of one service.
    pub const INSTANCES_MAX: u8 = 100;
    /// The most names in `after`.
    pub const AFTER_MAX: usize = 64;
    /// The most restarts in a period.
    pub const RESTARTS_MAX: u32 = 1000;
    /// The longest wait, and the longest period: a day.
    pub const SPAN_MS_MAX: u64 = 24 * 3_600_000;

    /// What of these cannot be, alone or together; each with the place of the service in the list.
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
            if let Some(way) = way_back(definition, &names) {
                faults.push((place, Fault::Cycle(way)));
            }
        }
        faults
    }

    /// What of it alone cannot be.
    ///
    /// # Errors
    /// The first that was found.
    pub fn check(&self) -> Result<(), Fault> {
        if !is_name(&self.name) {
            return Err(Fault::Name);
        }
        // With all that a launch adds.
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

    /// Whether a running process has to be replaced to be as this one says, and not as `before`.
    pub(super) fn replaces(&self, before: &Self) -> bool {
        self.spec != before.spec
    }

    /// Whether an exit code is a success.
    pub(super) fn is_success(&self, code: u8) -> bool {
        code == 0 || self.success.contains(&code)
    }

    /// The directory of the files of an instance, below the data directory. That of the first is the service's own, so
    /// that more or fewer instances move no files.
    pub fn run_dir(&self, nth: usize) -> String {
        match nth {
            0 => format!("services/{}", self.name),
            _ => format!("services/{}/{}", self.name, nth + 1),
        }
    }

    /// What is run for an instance: with what it is told of itself, and where its files are.
    pub(super) fn spec_of(&self, nth: usize) -> Spec {
        let mut spec = self.spec.clone();
        spec.run_dir = Some(Bytes::new(self.run_dir(nth).into_bytes()));
        spec.appends = true;
        let own = [
            ("SEXTON_SERVICE", self.name.clone()),
            ("SEXTON_INSTANCE", number(nth)),
        ];
        let own = own.map(|(name, value)| (name.to_owned(), Bytes::new(value.into_bytes())));
        spec.env.extend(own);
        spec
    }

    /// What is said of the process of an instance.
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

/// The number of an instance, as people count.
fn number(nth: usize) -> String {
    (nth + 1).to_string()
}

/// Whether a service may be called so. Its name is that of a directory, too.
fn is_name(name: &str) -> bool {
    let may_hold = |byte: u8| byte.is_ascii_alphanumeric() || b"-+;.$_()".contains(&byte);
    !name.starts_with(['-', '.'])
        && (1..=Definition::NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(may_hold)
}

/// A way from a service through `after` back to itself.
fn way_back(from: &Definition, names: &BTreeMap<&str, &Definition>) -> Option<String> {
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
