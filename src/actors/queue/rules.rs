//! Configuration of the `QueueActor`: for all queues, and for each type of job.

use serde::{Deserialize, Serialize, Serializer};
use sexton_api::queue::QueueName;
use std::collections::BTreeMap;

/// Configuration of the `QueueActor`. Stored in the journal: see the change rule in `persist/format.rs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// The maximum total number of jobs in all queues.
    pub jobs_max: u32,
    /// The maximum total size of bodies, errors and progress reports in all queues, in bytes. When it is reached, no job is added.
    pub bytes_max: u64,
    /// The maximum number of queues that have jobs or are paused.
    pub queues_max: u32,
    /// The maximum length of a body, in bytes.
    pub body_bytes_max: u32,
    /// The maximum number of root jobs that are remembered.
    pub roots_max: u32,
    /// The rules for types without rules of their own.
    pub default: TypeRules,
    /// The rules for types that have their own, by type name.
    pub types: BTreeMap<String, TypeRules>,
    /// Rules that are not specific to a type. Not stored while all have the values that earlier versions had by default.
    #[serde(default = "SharedRules::earlier", skip_serializing_if = "SharedRules::are_earlier")]
    pub across: SharedRules,
}

/// Rules that are not specific to a type of job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SharedRules {
    /// The rules for tenants that have their own, by tenant name; the name of the default tenant is empty.
    pub tenants: BTreeMap<String, TenantRules>,
    /// The limits on stored results.
    pub results: ResultRules,
    /// The maximum number of deduplication keys that are remembered. When it is reached, a job that needs another key is refused.
    pub keys_max: u32,
    /// The maximum number of jobs that one part of a request changes. Earlier versions had no parts, and their logs do not have this
    /// field.
    #[serde(default = "whole")]
    pub part: u32,
}

const fn whole() -> u32 {
    u32::MAX
}

impl Default for SharedRules {
    fn default() -> Self {
        Self {
            tenants: BTreeMap::new(),
            results: ResultRules::default(),
            keys_max: 1_000_000,
            part: 512,
        }
    }
}

impl SharedRules {
    fn earlier() -> Self {
        Self { part: whole(), ..Self::default() }
    }

    fn are_earlier(&self) -> bool {
        *self == Self::earlier()
    }
}

/// The rules for one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantRules {
    /// The tenant's share of turns relative to others, from 1 to [`TenantRules::WEIGHT_MAX`].
    pub weight: u32,
}

impl TenantRules {
    /// The maximum weight.
    pub const WEIGHT_MAX: u32 = 1000;

    /// Returns whether `weight` is between 1 and [`TenantRules::WEIGHT_MAX`].
    pub const fn is_weight(weight: &u32) -> bool {
        0 < *weight && *weight <= Self::WEIGHT_MAX
    }
}

impl Default for TenantRules {
    fn default() -> Self {
        Self { weight: 1 }
    }
}

/// Limits on the results of finished jobs. When they are exceeded, the oldest results are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResultRules {
    /// The maximum number of results.
    pub count_max: u32,
    /// The maximum total size of results, in bytes.
    pub bytes_max: u64,
}

impl Default for ResultRules {
    fn default() -> Self {
        Self { count_max: 100_000, bytes_max: 64 << 20 }
    }
}

/// The rules for one type of job. The HTTP API returns every field to clients that request the current rules.
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TypeRules {
    /// Where jobs are stored.
    pub class: Class,
    /// The order in which jobs are claimed.
    pub order: Order,
    /// Length of a claim in milliseconds, unless the claim or the job specifies one. If 0, a job is claimed once, and is removed `prune_ms`
    /// after its claim unless it has ended by then.
    pub claim_ttl_ms: u64,
    /// Number of tries after which a job is abandoned; 0 for no limit. For jobs added by the beanstalk protocol, see `tube_max_tries`.
    pub max_tries: u32,
    /// Whether a job is tried again if its claim ends without a result. If not, it is run at most once.
    pub retries: bool,
    /// Whether jobs without a deduplication key are deduplicated by their body.
    pub dedup: bool,
    /// Milliseconds after which an abandoned job, or a job claimed without a time limit, is removed.
    pub prune_ms: u64,
    /// The maximum number of work items that may be claimed from one queue per second; 0 for no limit. Stored in thousandths, but shown
    /// in JSON as a decimal number.
    #[serde(rename(serialize = "throttle"), serialize_with = "in_ones")]
    #[cfg_attr(feature = "schemas", schemars(with = "f64"))]
    pub throttle_milli: u32,
    /// The delay before a failed job is retried, unless its worker specifies one. If `None`, the job is retried when
    /// its claim would have ended.
    pub backoff: Option<Backoff>,
    /// The reason why no jobs may be added; `None` if they may.
    #[serde(rename = "read_only_reason")]
    pub read_only: Option<String>,
    /// Number of tries after which a job that was added by a command of the beanstalk protocol is abandoned; 0 for no limit.
    pub tube_max_tries: u32,
    /// Members of a JSON body that are ignored when bodies are compared for deduplication.
    pub dedup_ignore: Vec<String>,
    /// Whether its jobs can be claimed by a request that names no type.
    pub in_any: bool,
    /// In a tenant's turn, types with a lower rank come first.
    pub rank: u32,
    /// Number of crashes in a row after which a job is quarantined; 0 for no limit. A crash is the end of the process that a claim is bound
    /// to, or one that the worker reports. For claims of the beanstalk protocol, see `tube_crash_tries`.
    pub crash_tries: u32,
    /// Number of times in a row that the connection of its claim may close before a job is quarantined; 0 for no limit, as in beanstalkd,
    /// where the job is ready again immediately.
    pub tube_crash_tries: u32,
}

impl TypeRules {
    /// The default rank of a type.
    pub const RANK: u32 = 100;

    /// Returns the maximum number of tries of a job, or 0 for no limit. `tube` is whether a command of the beanstalk protocol added it.
    pub(super) fn tries(&self, tube: bool) -> u32 {
        if tube { self.tube_max_tries } else { self.max_tries }
    }
}

/// How long a failed job waits before its retry. The delay grows with each try.
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Backoff {
    /// The delay after the first try, in milliseconds.
    pub first_ms: u64,
    /// The factor by which the delay grows with each further try; at least 1.
    pub factor: u32,
    /// The maximum delay in milliseconds, before jitter.
    pub max_ms: u64,
    /// The maximum random change to the delay, up or down, as a fraction of the delay. Stored in thousandths, but shown in JSON as a
    /// decimal number.
    #[serde(rename(serialize = "jitter"), serialize_with = "in_ones")]
    #[cfg_attr(feature = "schemas", schemars(with = "f64"))]
    pub jitter_milli: u32,
}

/// Serializes thousandths as a decimal number, as in the configuration, or unchanged if the format is not human-readable.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn in_ones<S: Serializer>(milli: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    if !serializer.is_human_readable() {
        return serializer.serialize_u32(*milli);
    }
    serializer.serialize_f64(f64::from(*milli) / 1000.0)
}

/// Where jobs are stored.
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// On disk: an acknowledged job survives a crash.
    #[default]
    Durable,
    /// In memory: requests that add or change a job do not wait for the disk, and the job is lost when the server restarts.
    Memory,
}

/// The order in which jobs are claimed.
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The most urgent first; among equals, the oldest.
    #[default]
    Priority,
    /// The oldest first, regardless of priority.
    Fifo,
    /// By the time at which they were added.
    Timestamp,
    /// In random order.
    Random,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            jobs_max: 10_000_000,
            bytes_max: 8 << 30,
            queues_max: 1_000_000,
            body_bytes_max: 65_535,
            roots_max: 1_000_000,
            default: TypeRules::default(),
            types: BTreeMap::new(),
            across: SharedRules::default(),
        }
    }
}

impl Default for TypeRules {
    /// Returns the rules for types without settings: jobs are claimed by priority and tried at most 25 times, so that in
    /// practice only a job that never succeeds is abandoned. Jobs added by commands of the beanstalk protocol are tried
    /// without limit, as in beanstalkd.
    fn default() -> Self {
        Self {
            class: Class::Durable,
            order: Order::Priority,
            claim_ttl_ms: 60_000,
            max_tries: 25,
            retries: true,
            dedup: false,
            prune_ms: 604_800_000,
            throttle_milli: 0,
            backoff: Some(Backoff::default()),
            read_only: None,
            tube_max_tries: 0,
            dedup_ignore: Vec::new(),
            in_any: true,
            rank: Self::RANK,
            crash_tries: 3,
            tube_crash_tries: 0,
        }
    }
}

impl Default for Backoff {
    /// Returns a delay of one second that doubles with each try, up to an hour, and varies randomly by up to a tenth, so
    /// that jobs that fail together are not all retried together.
    fn default() -> Self {
        Self { first_ms: 1000, factor: 2, max_ms: 3_600_000, jitter_milli: 100 }
    }
}

impl Rules {
    /// The name of the rules for types without rules of their own.
    pub const DEFAULT: &str = "default";

    /// Returns all type rules with their names, the default ones first.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &TypeRules)> {
        let types = self.types.iter().map(|(kind, of)| (kind.as_str(), of));
        std::iter::once((Self::DEFAULT, &self.default)).chain(types)
    }

    /// Returns the name of the type rules that apply to a queue.
    pub fn entry(&self, queue: &QueueName) -> &str {
        let kind = std::str::from_utf8(queue.kind()).unwrap_or_default();
        let own = self.types.get_key_value(kind);
        own.map_or(Self::DEFAULT, |(name, _)| name)
    }

    /// Returns the weight of a queue's tenant.
    pub(super) fn weight_of(&self, queue: &QueueName) -> u32 {
        let name = std::str::from_utf8(queue.tenant()).unwrap_or_default();
        let own = self.across.tenants.get(name).copied();
        own.unwrap_or_default().weight
    }

    /// Returns the type rules that apply to a queue.
    pub fn of(&self, queue: &QueueName) -> &TypeRules {
        if self.types.is_empty() {
            return &self.default;
        }
        let kind = std::str::from_utf8(queue.kind()).unwrap_or_default();
        self.types.get(kind).unwrap_or(&self.default)
    }
}
