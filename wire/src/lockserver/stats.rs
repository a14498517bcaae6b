//! LockServer's fifteen statistics, in the order and with the widths in which they are sent.

pub use sexton::status::LockserverStats as Stats;
use std::fmt::Write as _;

/// Returns the nine statistics that are always sent as four bytes, in the order in which they are sent.
pub(crate) fn ints(stats: &Stats) -> [u32; 9] {
    [
        stats.uptime,
        stats.requests,
        stats.owner_lookups,
        stats.contender_lookups,
        stats.renewals,
        stats.releases,
        stats.release_alls,
        stats.dumps,
        stats.statistics,
    ]
}

/// Returns the five statistics whose type in C is `long`, in the order in which they are sent.
pub(crate) fn longs(stats: &Stats) -> [u64; 5] {
    [stats.accepted, stats.rejected_hosts, stats.rejected_busy, stats.owners, stats.contenders]
}

/// Formats the statistics as fifteen lines of `name value`, as written to `lockserver.stats` on SIGUSR1.
pub fn lines(stats: &Stats) -> String {
    let names = [
        "uptime",
        "requests",
        "owner_lookups",
        "contender_lookups",
        "renewals",
        "releases",
        "release_alls",
        "dumps",
        "statistics",
        "accepted",
        "rejected_hosts",
        "rejected_busy",
        "owners",
        "contenders",
        "active",
    ];
    let ints = ints(stats).into_iter().map(u64::from);
    let numbers = ints.chain(longs(stats)).chain([stats.active.into()]);
    let mut lines = String::new();
    for (name, number) in names.iter().zip(numbers) {
        writeln!(lines, "{name} {number}").expect("writing to memory should not fail");
    }
    lines
}
