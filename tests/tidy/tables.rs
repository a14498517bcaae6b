//! Tables of what each part of the library may import. What a package may import stands in its `Cargo.toml`.

/// The parts of the library that a part may import. The row with the longest prefix of a file's path applies. An entry
/// that does not end with `::` also allows everything below it. [`ITS_OWN`] stands for the folder of the actor to which
/// the file belongs.
pub(crate) const IMPORTS: &[(&str, &[&str])] = &[
    ("src/ids.rs", &[]),
    ("src/clock.rs", &["ids"]),
    ("src/schedule/", &["clock", "schedule"]),
    // The content of records does not depend on their encoding.
    ("src/decode.rs", &[]),
    // The kernel layer does not depend on its uses.
    ("src/kernel/", &["actors::process::Identity", "bytes", "ids", "kernel", "thread"]),
    ("src/keeper/", &["actors::process::Identity", "bytes", "decode", "ids", "keeper", "kernel"]),
    // A port performs the actions of one actor, so it depends on that actor and on the outside world.
    (
        "src/ports/",
        &[
            "actors", "bytes", "clock", "ids", "keeper", "kernel", "ports", "schedule", "spine",
            "thread",
        ],
    ),
    ("src/thread.rs", &["spine::guard"]),
    ("src/persist/", &["clock", "decode", "ids", "persist", "thread"]),
    // This file lists all actors.
    ("src/actors/mod.rs", &["actors", "actors_of_a_node", "ids", "list_of_actors", "spine"]),
    ("src/spine/", &["clock", "decode", "ids", "lookup::pages", "persist", "spine", "thread"]),
    ("src/spine/items.rs", &["clock", "ids", "lookup", "spine::machine"]),
    ("src/spine/runtime/", &["block_on", "clock", "decode", "ids", "persist", "spine", "thread"]),
    // Look-up structures depend only on slots, time and pages.
    ("src/lookup/mod.rs", &[]),
    ("src/lookup/deadlines.rs", &["clock", "ids", "lookup::wheel"]),
    (
        "src/lookup/durable.rs",
        &["clock", "decode", "ids", "lookup::pages", "lookup::slab", "lookup::deadlines"],
    ),
    ("src/lookup/pages.rs", &["ids"]),
    ("src/lookup/slab.rs", &["ids"]),
    ("src/lookup/table.rs", &["ids"]),
    ("src/lookup/wheel.rs", &["clock", "ids"]),
    ("src/spine/pages.rs", &["ids", "lookup::pages", "spine::machine", "spine::receipts"]),
    ("src/spine/event.rs", &["clock", "ids"]),
    (
        "src/spine/machine.rs",
        &["spine::effect", "spine::event", "lookup::pages", "persist::mark", "clock", "ids"],
    ),
    // Stored effects must not depend on anything that may change independently of the format.
    ("src/spine/effect.rs", &["ids"]),
    // A machine depends on its own messages and on the contract. One that needs more has its own row.
    (
        "src/actors/",
        &[
            ITS_OWN,
            "actors::binding",
            "bytes",
            "clock",
            "ids",
            "lookup",
            "spine::effect",
            "spine::event",
            "spine::items",
            "spine::machine",
            "spine::Host",
        ],
    ),
    (
        "src/actors/lock/",
        &[
            "spine::event",
            "actors::binding",
            "actors::lock",
            "spine::effect",
            "spine::machine",
            "spine::parallel",
            "spine::shelf",
            "lookup",
            "spine::Host",
            "clock",
            "ids",
        ],
    ),
    (
        "src/actors/queue/",
        &[
            "actors::binding",
            "actors::queue",
            "bytes",
            "clock",
            "ids",
            "lookup",
            "spine::effect",
            "spine::event",
            "spine::machine",
            "spine::parallel",
            "spine::shelf",
            "spine::Host",
            "text",
        ],
    ),
    // The process actor launches processes for leases. Leases have the same names as locks.
    //
    // Tasks request locks and processes with messages of those actors.
    (
        "src/actors/dispatch/",
        &[
            ITS_OWN,
            "actors::binding",
            "actors::lock",
            "actors::process",
            "bytes",
            "clock",
            "ids",
            "lookup",
            "spine::effect",
            "spine::event",
            "spine::machine",
            "spine::shelf",
            "text",
        ],
    ),
    (
        "src/actors/lease/",
        &[
            ITS_OWN,
            "actors::binding",
            "actors::lock::Name",
            "actors::process",
            "bytes",
            "clock",
            "ids",
            "lookup",
            "schedule",
            "spine::effect",
            "spine::event",
            "spine::machine",
            "spine::shelf",
            "spine::Host",
        ],
    ),
    (
        "src/actors/process/",
        &[
            ITS_OWN,
            "actors::binding",
            "bytes",
            "clock",
            "ids",
            "lookup",
            "spine::effect",
            "spine::event",
            "spine::machine",
            "spine::shelf",
            "spine::supervision",
            "spine::Host",
        ],
    ),
    (
        "src/actors/supervisor/",
        &[
            "actors::supervisor",
            "clock",
            "ids",
            "lookup::durable",
            "spine::delivery",
            "spine::effect",
            "spine::event",
            "spine::items",
            "spine::machine",
            "spine::supervision",
            "spine::Host",
        ],
    ),
    ("src/actors/lock/machine.rs", LOCK_RULES),
    // The content of the journal must not depend on anything that may change independently of the format.
    (
        "src/actors/lock/message.rs",
        &[
            "actors::binding",
            "actors::lock::part",
            "spine::effect",
            "spine::machine::Refusal",
            "clock",
            "ids",
        ],
    ),
    ("src/actors/lock/part.rs", &["ids"]),
    ("src/protocols/", &["actors::queue::QueueName", "kernel::file", "kernel::socket"]),
    // The requests that a node accepts do not depend on protocols, nor does the code that opens a node.
    (
        "src/handle/",
        &[
            "actors",
            "bytes",
            "clock",
            "handle",
            "ids",
            "persist",
            "ports::process",
            "refusal",
            "replay",
            "spine",
            "status",
            "text",
            "thread",
            "trouble",
        ],
    ),
    ("src/status.rs", &["actors", "address", "clock", "ids", "persist", "spine"]),
    ("src/trouble.rs", &["actors::lock", "text"]),
    ("src/address.rs", &["kernel::socket"]),
    (
        "src/replay/",
        &["actors", "bytes", "clock", "decode", "ids", "persist", "replay", "spine", "text"],
    ),
    (
        "src/config.rs",
        &["actors", "address", "clock", "ids", "persist", "ports::process::KeeperProgram", "spine"],
    ),
    ("src/block_on.rs", &[]),
    ("src/text.rs", &[]),
    ("src/lib.rs", &[]),
    (
        "src/node/",
        &[
            "actors",
            "clock",
            "config",
            "handle",
            "ids",
            "node",
            "persist",
            "ports::lease",
            "ports::process",
            "spine",
            "status",
            "thread",
        ],
    ),
];

/// Stands for `actors::lock` in a file of `src/actors/lock/`, and likewise for any other actor.
pub(crate) const ITS_OWN: &str = "its own";

const LOCK_RULES: &[&str] = &[
    "actors::binding",
    "spine::event",
    "actors::lock::entry",
    "actors::lock::event",
    "actors::lock::message",
    "actors::lock::pages",
    "actors::lock::state",
    "actors::lock::waiting",
    "lookup::pages",
    "spine::machine",
    "clock",
    "ids",
];

/// Files in which `unsafe` is allowed.
pub(crate) const UNSAFE: &[&str] = &[
    "src/kernel/child.rs",
    "src/kernel/credentials.rs",
    "src/kernel/inheritance.rs",
    "src/kernel/lease.rs",
    "src/kernel/peer.rs",
    "src/kernel/pidfd.rs",
    "src/kernel/pidfs.rs",
    "src/kernel/proc.rs",
    "src/kernel/signals.rs",
    "src/kernel/spawn.rs",
    "src/kernel/wait.rs",
    "tools/allocator.rs",
];

/// Words without meaning, in names of files and types.
pub(crate) const EMPTY_WORDS: &[&str] = &[
    "common",
    "context",
    "engine",
    "handler",
    "helper",
    "helpers",
    "imp",
    "impl",
    "manager",
    "misc",
    "processor",
    "util",
    "utils",
];
