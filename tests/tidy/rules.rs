//! The rules, each with examples that keep and break it.

use crate::paths;
use crate::source::{Source, names};
use crate::{EMPTY_WORDS, IMPORTS, ITS_OWN, UNSAFE, WORLD};
use std::path::Path;

type Example = (&'static str, &'static str);

/// A rule of the project.
pub(crate) struct Rule {
    /// The rule in words, as a failure shows it.
    pub(crate) says: &'static str,
    /// Finds violations in a file.
    pub(crate) check: fn(&Source) -> Vec<String>,
    pub(crate) bad: &'static [Example],
    pub(crate) good: &'static [Example],
}

pub(crate) const RULES: &[Rule] = &[
    Rule {
        says: "only the files of the table WORLD use the outside world",
        check: world,
        bad: &[
            ("src/actors/lock/machine.rs", "use tokio::net::TcpStream;"),
            ("src/spine/host.rs", "let now = std::time::Instant::now();"),
            ("src/persist/journal/writer.rs", "std::fs::remove_file(path);"),
            ("src/protocols/listener.rs", "use actix::prelude::*;"),
            ("src/spine/ledger.rs", "std :: thread :: spawn(f)"),
            ("src/node/mod.rs", "println!(\"stopped\");"),
            ("src/node/mod.rs", "tokio::signal::ctrl_c()"),
            ("src/block_on.rs", "std :: process :: exit(1)"),
        ],
        good: &[
            ("src/spine/runtime/mod.rs", "use actix::Actor;"),
            ("src/persist/disk.rs", "use std::fs::File;"),
            ("src/spine/host.rs", "// tokio and actix are elsewhere\nlet instant = 1;"),
            ("tests/wire.rs", "use std::net::TcpStream;"),
        ],
    },
    Rule {
        says: "imports point one way: the table IMPORTS",
        check: imports,
        bad: &[
            ("src/persist/format.rs", "use crate::actors::lock::Message;"),
            ("src/spine/host.rs", "use crate::protocols::listener::Places;"),
            ("src/actors/lock/machine.rs", "use crate::persist::disk::Disk;"),
            ("src/actors/lock/state.rs", "use crate::spine::host::Host;"),
            ("src/handle/locks.rs", "use crate::actors::lock::state::State;"),
            ("src/protocols/listener.rs", "use crate::node::Node;"),
            ("src/spine/host.rs", "fn f(x: &crate::node::Node) {}"),
            ("src/actors/queue/decide.rs", "use crate::persist::disk::Disk;"),
            ("src/actors/queue/state.rs", "use crate::actors::lock::Name;"),
            ("src/actors/process/state.rs", "use crate::persist::disk::Disk;"),
            ("src/actors/process/state.rs", "use crate::actors::lock::Name;"),
            ("src/handle/queues.rs", "use crate::actors::queue::state::State;"),
            ("src/billing/mod.rs", "fn f() {}"),
            ("src/node/core.rs", "use crate::protocols::listener;"),
            ("src/handle/mod.rs", "use crate::protocols::listener;"),
            ("src/node/locks.rs", "use crate::replay::Line;"),
            ("src/spine/host.rs", "use crate::{clock::Timestamp, ids::Seq};"),
        ],
        good: &[
            ("src/persist/format.rs", "use crate::ids::{ActorId, Seq};"),
            ("src/actors/process/state.rs", "use crate::actors::process::message::Message;"),
            ("src/handle/locks.rs", "use crate::actors::lock::{Message, Name};"),
            ("src/protocols/bounds.rs", "use crate::actors::queue::QueueName;"),
        ],
    },
    Rule {
        says: "every file begins with what it owns: `//!`",
        check: |source| {
            found(source.is_rust() && !source.text.starts_with("//! "), "no `//!` at the top")
        },
        bad: &[("src/x.rs", "use std::io;\n"), ("tests/x.rs", "// a comment\n")],
        good: &[("src/x.rs", "//! Owns x.\n"), ("notes.md", "text")],
    },
    Rule {
        says: "a lint is expected with a reason, never allowed",
        check: |source| {
            found(
                source.is_rust()
                    && (source.code.contains("#[allow") || source.code.contains("#![allow")),
                "`allow`",
            )
        },
        bad: &[("src/x.rs", "#[allow(dead_code)]\nfn f() {}"), ("tests/x.rs", "#![allow(unused)]")],
        good: &[("src/x.rs", "#[expect(dead_code, reason = \"x\")]\n// not #[allow(y)]")],
    },
    Rule {
        says: "unfinished code is not merged",
        check: |source| {
            let words = [["to", "do!"], ["db", "g!"], ["unimplement", "ed!"], ["FIX", "ME"]]
                .map(|it| it.concat());
            let open = |word: &&String| source.is_rust() && source.text.contains(*word);
            words.iter().filter(open).map(|word| format!("`{word}`")).collect()
        },
        bad: &[
            ("src/x.rs", concat!("fn f() { to", "do!() }")),
            ("tests/x.rs", concat!("// FIX", "ME later")),
        ],
        good: &[("src/x.rs", "//! Done.\n")],
    },
    Rule {
        says: "outside tests, an `expect` states why it holds: no `unwrap()`",
        check: |source| {
            found(source.is_product() && source.code.contains(".unwrap()"), "`unwrap()`")
        },
        bad: &[("src/x.rs", "let y = x.unwrap();"), ("tools/x.rs", "x\n    .unwrap()\n")],
        good: &[
            (
                "src/x.rs",
                "x.expect(\"it was just put there\");\n#[cfg(test)]\nmod tests {\n fn t() { x.unwrap() } }\n",
            ),
            ("tests/x.rs", "x.unwrap();"),
            ("src/x.rs", "// never .unwrap()\nx.unwrap_or(1);"),
        ],
    },
    Rule {
        says: "a name tells what a thing is, not that it is one",
        check: empty_names,
        bad: &[
            ("src/protocols/utils.rs", "//! X.\n"),
            ("src/x.rs", "pub struct LockManager {}"),
            ("src/x.rs", "enum RequestContext {}"),
            ("src/x.rs", "mod helpers;"),
            ("src/common/mod.rs", "//! X.\n"),
        ],
        good: &[
            ("src/x.rs", "impl Host {}\nstruct Implied;\nlet context = 1;"),
            ("src/spine/machine.rs", "pub trait Machine {}"),
        ],
    },
    Rule {
        says: "no field of an event has the name of a member that every event has: COMMON_FIELDS in `spine/event.rs`",
        check: common_fields,
        bad: &[
            ("src/actors/lease/event.rs", "EventBody::new(\"scheduled\").number(\"at\", due.0)"),
            ("src/spine/shared.rs", "EventBody::new(\"x\")\n    .text(\n        \"kind\", kind)"),
            ("src/actors/lock/event.rs", "fn f(it: EventBody) { it.name(\"actor\", name) }"),
        ],
        good: &[
            ("src/actors/lease/event.rs", "EventBody::new(\"scheduled\").number(\"due\", due.0)"),
            ("tools/events.rs", "number(told, \"/at\")"),
            ("src/spine/event.rs", "pub const COMMON: [&str; 1] = [\"at\"];"),
        ],
    },
    Rule {
        says: "`unsafe` is only in the files of the table UNSAFE",
        check: |source| {
            let allowed = UNSAFE.contains(&source.path.as_str());
            found(source.is_rust() && !allowed && names(&source.code, "unsafe"), "`unsafe`")
        },
        bad: &[("src/x.rs", "let x = unsafe { y() };")],
        good: &[("src/x.rs", "// unsafe\nlet unsafe_looking = 1;")],
    },
    Rule {
        says: "nothing refers to one machine: no path of a personal disk",
        check: machine_paths,
        bad: &[
            ("docs/x.md", concat!("see /wo", "rk/x")),
            ("src/x.rs", concat!("\"/ho", "me/me/x\"")),
            ("src/x.rs", concat!("\"/t", "mp/x\"")),
        ],
        good: &[
            ("README.md", concat!("--data /t", "mp/sexton-demo")),
            ("src/x.rs", "\"/network\""),
        ],
    },
    Rule {
        says: "packages come from the public index, and no file configures another",
        check: registries,
        bad: &[
            ("Cargo.lock", concat!("source = \"regis", "try+https://packages.example.org/index\"")),
            (".cargo/config.toml", "[net]"),
            ("docs/x.md", concat!("https://example.org/artif", "actory/x")),
        ],
        good: &[(
            "Cargo.lock",
            concat!("source = \"regis", "try+https://github.com/rust-lang/crates.io-index\""),
        )],
    },
];

fn found(broken: bool, what: &str) -> Vec<String> {
    if broken { vec![what.to_owned()] } else { Vec::new() }
}

fn below(path: &str, places: &[&str]) -> bool {
    places.iter().any(|place| path == *place || (place.ends_with('/') && path.starts_with(place)))
}

fn world(source: &Source) -> Vec<String> {
    if !source.is_product() {
        return Vec::new();
    }
    let code = source.code.replace(" :: ", "::");
    let named =
        WORLD.iter().filter(|(word, files)| !below(&source.path, files) && names(&code, word));
    named.map(|(word, _)| format!("names `{word}`")).collect()
}

fn imports(source: &Source) -> Vec<String> {
    if !source.is_product() || !source.path.starts_with("src/") {
        return Vec::new();
    }
    let rows = IMPORTS.iter().filter(|(path, _)| below(&source.path, &[path]));
    let Some((_, allowed)) = rows.max_by_key(|(path, _)| path.len()) else {
        return vec!["no row says what it may import".to_owned()];
    };
    let module = paths::module(&source.path);
    let its_own = module.split("::").take(2).collect::<Vec<_>>().join("::");
    // Other code may only use the names that an actor's `mod.rs` exports.
    let inner = |import: &str| {
        let mut parts = import.split("::");
        let (Some("actors"), Some(actor), Some(file)) = (parts.next(), parts.next(), parts.next())
        else {
            return false;
        };
        let place =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/actors/{actor}/{file}"));
        let is_module = place.is_dir() || place.with_extension("rs").exists();
        its_own != format!("actors::{actor}") && is_module
    };
    let fits = |import: &str, allowed: &str| {
        let allowed = if allowed == ITS_OWN { &its_own } else { allowed };
        let rest = import.strip_prefix(allowed);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    let mut broken: Vec<String> = paths::imports(source)
        .into_iter()
        .filter(|import| !allowed.iter().any(|it| fits(import, it)) || inner(import))
        .map(|import| format!("imports `crate::{import}`"))
        .collect();
    if source.code.contains("crate::{") {
        broken.push("imports from everywhere at once: say `crate::…` for each".to_owned());
    }
    if source.code.contains("use super::super") {
        broken.push("imports over two levels: say `crate::…`".to_owned());
    }
    broken
}

fn empty_names(source: &Source) -> Vec<String> {
    if !source.is_rust() {
        return Vec::new();
    }
    let stem = source.path.trim_end_matches(".rs");
    let mut broken: Vec<String> = stem
        .split('/')
        .flat_map(words)
        .filter(|word| EMPTY_WORDS.contains(&word.as_str()))
        .map(|word| format!("`{word}` in its path"))
        .collect();
    let tokens: Vec<&str> = source.code.split_whitespace().collect();
    for pair in tokens.windows(2) {
        if let [keyword @ ("struct" | "enum" | "trait" | "mod"), name] = pair {
            let name: String =
                name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if words(&name).iter().any(|word| EMPTY_WORDS.contains(&word.as_str())) {
                broken.push(format!("{keyword} `{name}`"));
            }
        }
    }
    broken
}

fn common_fields(source: &Source) -> Vec<String> {
    if !source.is_product() || !names(&source.code, "EventBody") {
        return Vec::new();
    }
    let text: String = source.text.split_whitespace().collect();
    let adders = ["name", "number", "text"];
    let calls = adders.into_iter().flat_map(|adder| {
        let fields = ["position", "at", "actor", "kind"];
        fields.map(|field| format!(".{adder}(\"{field}\","))
    });
    calls.filter(|call| text.contains(call)).collect()
}

/// Returns the words of a name, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in name.chars() {
        if c.is_uppercase() || c == '_' || c == '-' || c == '.' {
            words.push(String::new());
        }
        if let (true, Some(word)) = (c.is_alphanumeric(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn machine_paths(source: &Source) -> Vec<String> {
    let mut paths = vec![["/wo", "rk/"], ["/ho", "me/"], ["/ro", "ot/"]];
    // Pages of the documentation may name a temporary folder in an example.
    if source.is_rust() {
        paths.push(["/t", "mp/"]);
    }
    let paths = paths.into_iter().map(|parts| parts.concat());
    paths.filter(|path| source.text.contains(path)).map(|path| format!("`{path}`")).collect()
}

fn registries(source: &Source) -> Vec<String> {
    let mut broken = found(source.path.starts_with(".cargo/"), "a configuration of cargo");
    let marker = ["regis", "try+"].concat();
    let public = ["regis", "try+https://github.com/rust-lang/crates.io-index"].concat();
    let hosts =
        [["artif", "actory"], ["index.cra", "tes.io"], ["static.cra", "tes.io"], ["pypi", ".org"]];
    let mut lines = source.text.lines();
    broken.extend(
        lines.find(|line| line.contains(&marker) && !line.contains(&public)).map(str::to_owned),
    );
    let named =
        hosts.into_iter().map(|parts| parts.concat()).filter(|host| source.text.contains(host));
    broken.extend(named.map(|host| format!("`{host}`")));
    broken
}
