//! Configuration of the `QueueActor`: what holds for all queues, and for each type of job.

use crate::actors::queue::name::QueueName;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;

/// Configuration of the `QueueActor`. Noted in the journal: see the change rule in `persist/format.rs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// The most jobs, in all queues together.
    pub jobs_max: u32,
    /// The most bytes of bodies, and of what was said of failures, in all queues together. Beyond it nothing is added.
    pub bytes_max: u64,
    /// The most queues.
    pub queues_max: u32,
    /// The longest body.
    pub body_bytes_max: u32,
    /// The most root jobs that are remembered.
    pub roots_max: u32,
    /// What holds for a type that has no entry of its own.
    pub default: TypeRules,
    /// What holds for a type.
    pub types: BTreeMap<String, TypeRules>,
    /// What holds across types. Left out of what is stored while nothing of it is set.
    #[serde(skip_serializing_if = "Across::is_default")]
    pub across: Across,
}

/// What holds across types of jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Across {
    /// What holds for a tenant, by its name; that of the default one is empty.
    pub tenants: BTreeMap<String, TenantRules>,
    /// What holds for results of jobs that are over.
    pub results: ResultRules,
    /// The most deduplication keys that are remembered. Beyond it a push that needs one more is refused.
    pub keys_max: u32,
}

impl Default for Across {
    fn default() -> Self {
        Self {
            tenants: BTreeMap::new(),
            results: ResultRules::default(),
            keys_max: 1_000_000,
        }
    }
}

impl Across {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What holds for the jobs of one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantRules {
    /// How often it has its turn, in proportion to others: from 1 to [`TenantRules::WEIGHT_MAX`].
    pub weight: u32,
}

impl TenantRules {
    /// The largest weight.
    pub const WEIGHT_MAX: u32 = 1000;

    /// Whether a tenant may weigh so much.
    pub const fn is_weight(weight: &u32) -> bool {
        0 < *weight && *weight <= Self::WEIGHT_MAX
    }
}

impl Default for TenantRules {
    fn default() -> Self {
        Self { weight: 1 }
    }
}

/// How much is kept of jobs that are over. Beyond it the oldest results are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResultRules {
    /// The most results.
    pub count_max: u32,
    /// The most bytes of them.
    pub bytes_max: u64,
}

impl Default for ResultRules {
    fn default() -> Self {
        Self {
            count_max: 100_000,
            bytes_max: 64 << 20,
        }
    }
}

/// What holds for the jobs of one type. Whoever asks what is in force is told every field.
#[cfg_attr(feature = "http", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TypeRules {
    /// Where jobs are kept.
    pub class: Class,
    /// In which order jobs are claimed.
    pub order: Order,
    /// Milliseconds that whoever claims a job has, unless the claim or the job says so itself; 0 for ever.
    pub claim_ttl_ms: u64,
    /// Tries after which a job is abandoned; 0 for no limit.
    pub max_tries: u32,
    /// Whether a job whose claim ended without a word is tried again. If not, it is run at most once.
    pub retries: bool,
    /// Whether a job without a key of its own is one with another that says the same.
    pub dedup: bool,
    /// Milliseconds after which an abandoned job is pruned, and one that is claimed for ever.
    pub prune_ms: u64,
    /// Thousandths of an item that may be claimed a second; 0 for no limit.
    #[serde(rename(serialize = "throttle"), serialize_with = "in_ones")]
    #[cfg_attr(feature = "http", schemars(with = "f64"))]
    pub throttle_milli: u32,
    /// When a job is tried again that failed without a word of when; at the end of its claim if `None`.
    pub backoff: Option<Backoff>,
    /// Why nothing is added, if nothing is.
    #[serde(rename = "read_only_reason")]
    pub read_only: Option<String>,
    /// Tries of a job that a tube command added; 0 for no limit.
    pub tube_max_tries: u32,
    /// Members of a body in JSON that do not count when it is compared with others.
    pub dedup_ignore: Vec<String>,
    /// Whether its jobs are among those of any type.
    pub in_any: bool,
    /// In a tenant's turn, types of a lower rank come first.
    pub rank: u32,
}

impl TypeRules {
    /// The rank of types that say nothing of it.
    pub const RANK: u32 = 100;

    /// Tries of a job, by whether a tube command added it.
    pub(super) fn tries(&self, tube: bool) -> u32 {
        if tube {
            self.tube_max_tries
        } else {
            self.max_tries
        }
    }
}

/// For how long a job belongs to nobody that failed: the longer, the oftener it was tried.
#[cfg_attr(feature = "http", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Backoff {
    /// Milliseconds after the first try.
    pub first_ms: u64,
    /// How many times as long it is after each further try, at least 1.
    pub factor: u32,
    /// The most milliseconds, but for chance.
    pub max_ms: u64,
    /// Thousandths by which chance makes it longer or shorter, at most.
    #[serde(rename(serialize = "jitter"), serialize_with = "in_ones")]
    #[cfg_attr(feature = "http", schemars(with = "f64"))]
    pub jitter_milli: u32,
}

/// Thousandths as whoever set them wrote them.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn in_ones<S: Serializer>(milli: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    if !serializer.is_human_readable() {
        return serializer.serialize_u32(*milli);
    }
    serializer.serialize_f64(f64::from(*milli) / 1000.0)
}

/// Where jobs are kept.
#[cfg_attr(feature = "http", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// On disk: what is acknowledged outlives a crash.
    #[default]
    Durable,
    /// In memory: nothing about a job waits for the disk, and every start of the coordinator begins without any.
    Memory,
}

/// In which order jobs are claimed.
#[cfg_attr(feature = "http", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The most urgent first; among equals the oldest.
    #[default]
    Priority,
    /// The oldest first, however urgent.
    Fifo,
    /// By the time they were added.
    Timestamp,
    /// Any, by chance.
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
            across: Across::default(),
        }
    }
}

impl Default for TypeRules {
    /// By priority, and tried so often that only what never succeeds is given up. What tube commands add is tried without
    /// end, as beanstalkd does.
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
        }
    }
}

impl Default for Backoff {
    /// A second, then twice as long each time, up to an hour; a tenth longer or shorter, so that what failed together is
    /// not tried together.
    fn default() -> Self {
        Self {
            first_ms: 1000,
            factor: 2,
            max_ms: 3_600_000,
            jitter_milli: 100,
        }
    }
}

impl Rules {
    /// What the entry is called that holds for types without one of their own.
    pub const DEFAULT: &str = "default";

    /// Every entry with its name, that of the types without one first.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &TypeRules)> {
        let types = self.types.iter().map(|(kind, of)| (kind.as_str(), of));
        std::iter::once((Self::DEFAULT, &self.default)).chain(types)
    }

    /// What the entry is called that holds for a queue.
    pub fn entry(&self, queue: &QueueName) -> &str {
        let kind = std::str::from_utf8(queue.kind()).unwrap_or_default();
        let own = self.types.get_key_value(kind);
        own.map_or(Self::DEFAULT, |(name, _)| name)
    }

    /// The weight of a queue's tenant.
    pub(super) fn weight_of(&self, queue: &QueueName) -> u32 {
        let name = std::str::from_utf8(queue.tenant()).unwrap_or_default();
        let own = self.across.tenants.get(name).copied();
        own.unwrap_or_default().weight
    }

    /// What holds for a queue.
    pub fn of(&self, queue: &QueueName) -> &TypeRules {
        if self.types.is_empty() {
            return &self.default;
        }
        let kind = std::str::from_utf8(queue.kind()).unwrap_or_default();
        self.types.get(kind).unwrap_or(&self.default)
    }
}
