//! The project's rules that no compiler checks, tested in one pass over the tree. The tables to edit are in `tables.rs`
//! and `world.rs`.
//!
//! Each rule has an example that breaks it and one that does not, so that a rule that finds nothing fails.

mod circles;
mod pages;
mod paths;
mod rules;
mod security;
mod source;
mod tables;
mod world;

use rules::Rule;
use source::Source;
use std::path::Path;
pub(crate) use tables::{EMPTY_WORDS, IMPORTS, ITS_OWN, UNSAFE};
pub(crate) use world::WORLD;

#[test]
fn every_file_keeps_the_rules_of_the_house() {
    let sources = Source::all(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(sources.len() > 50, "the tree was found");
    let mut broken = Vec::new();
    for rule in rules::RULES {
        for source in &sources {
            broken.extend(
                (rule.check)(source)
                    .into_iter()
                    .map(|found| format!("{}: {found}\n    {}", source.path, rule.says)),
            );
        }
    }
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}

#[test]
fn every_rule_finds_what_breaks_it_and_passes_what_does_not() {
    for Rule { says, check, bad, good } in rules::RULES {
        for (path, text) in *bad {
            assert!(!check(&Source::new(path, text)).is_empty(), "not found by `{says}`: {text}");
        }
        for (path, text) in *good {
            let found = check(&Source::new(path, text));
            assert!(found.is_empty(), "found by `{says}` without reason: {found:?}");
        }
        assert!(!bad.is_empty() && !good.is_empty(), "no examples of `{says}`");
    }
}

#[test]
fn tables_speak_of_files_that_exist_or_will() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let planned = ["src/persist/snapshots/sled.rs"];
    let allowed = WORLD.iter().flat_map(|(_, files)| files.iter());
    let rows = IMPORTS.iter().map(|(path, _)| path);
    for path in allowed.chain(rows).chain(UNSAFE) {
        assert!(root.join(path).exists() || planned.contains(path), "{path} is not there");
    }
}

#[test]
fn the_map_names_every_folder_and_document() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let map = std::fs::read_to_string(root.join("ARCHITECTURE.md")).expect("there is a map");
    let missing = |map: &str| -> Vec<String> {
        let mut places = source::folders(root, "src");
        places.extend(source::folders(root, "wire/src"));
        places.extend(source::folders(root, "http/src"));
        places.extend(source::folders(root, "docs"));
        places.extend(source::files(root, "docs").into_iter().filter(|path| {
            // The map has only the folder of the decisions, because there are many.
            !path.starts_with("docs/decisions/")
        }));
        places.retain(|place| !map.contains(place.as_str()) && !map.contains(short(place)));
        places
    };
    assert_eq!(missing(&map), Vec::<String>::new(), "ARCHITECTURE.md does not name these");
    assert!(missing("").len() > 5, "an empty map would be noticed");
}

/// Returns the last part of a folder's path, under which the map may list a folder inside another one.
fn short(place: &str) -> &str {
    let last = place.trim_end_matches('/').rfind('/').map_or(0, |at| at + 1);
    place.get(last..).unwrap_or(place)
}

#[test]
fn panics_unwind_in_every_build() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).expect("there is a manifest");
    let panics = |manifest: &str, profile: &str| -> Option<String> {
        let (_, after) = manifest.split_once(&format!("[profile.{profile}]"))?;
        let section = after.split("\n[").next()?;
        let line = section.lines().find(|line| line.starts_with("panic"))?;
        line.split('"').nth(1).map(str::to_owned)
    };
    // Restarts of actors depend on it: with `abort`, one panic ends the process.
    for profile in ["release", "dist"] {
        let panics = panics(&manifest, profile);
        assert_eq!(panics.as_deref(), Some("unwind"), "{profile}");
    }
    assert!(!manifest.contains("\"abort\""));
    let another = "[profile.release]\ndebug = 1\n[other]\npanic = \"unwind\"";
    assert_eq!(panics(another, "release"), None);
}
