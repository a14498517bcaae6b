//! Data directories that were made once and must stay readable forever: `snapshots/README.md` describes them.

mod maker;
mod record;

use crate::directory::{self, copy, everything, settings};
use crate::node;
use record::Record;
use sexton::Node;
use sexton::persist::format::FORMAT_VERSION;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("snapshots/golden")
}

/// Returns the golden directories, by name.
fn all(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root).expect("snapshots/golden exists");
    let paths = entries.map(|entry| entry.expect("the directory is readable").path());
    let mut found: Vec<PathBuf> = paths.filter(|path| path.is_dir()).collect();
    found.sort();
    found
}

/// Reads a golden directory with both snapshots and with either of them. Returns the differences from its record as an
/// error.
fn check(golden: &Path) -> Result<(), String> {
    let recorded = Record::load(golden)?;
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    for without in [None, Some("a"), Some("b")] {
        let data = scratch.path().join(without.unwrap_or("both"));
        copy(&golden.join("data"), &data);
        let mut expected = recorded.clone();
        if let Some(slot) = without {
            let snapshots = data.join("snapshots");
            std::fs::remove_dir_all(snapshots.join(slot)).map_err(|error| error.to_string())?;
            std::fs::remove_file(snapshots.join(format!("{slot}.seal")))
                .map_err(|error| error.to_string())?;
            expected.snapshots.remove(slot);
        }
        let mut found = Record::of(&data)?;
        // An actor that was added after this format must be empty.
        let is_new = |name: &String| !recorded.actors.contains_key(name);
        found.actors.retain(|name, it| !is_new(name) || it.entries > 0);
        // Reading does not depend on these fields: format, program, and whether the format is frozen.
        (expected.frozen, expected.program) = (found.frozen, found.program.clone());
        expected.format = found.format;
        if found != expected {
            return Err(format!(
                "snapshot slot removed: {without:?}; found {found:#?}, recorded {expected:#?}"
            ));
        }
    }
    Ok(())
}

#[test]
fn every_golden_directory_is_read_with_the_recorded_digests() {
    let root = root();
    let before = everything(&root);
    let golden = all(&root);
    let versions: Vec<u32> =
        golden.iter().map(|path| Record::load(path).expect("it has a record").format).collect();
    assert!(versions.contains(&FORMAT_VERSION), "the current format has one: {versions:?}");
    for path in golden {
        check(&path).unwrap_or_else(|wrong| panic!("{}: {wrong}", path.display()));
    }
    assert_eq!(everything(&root), before, "reading changes nothing");
}

#[test]
fn the_program_finds_them_whole_and_starts_on_them() {
    for golden in all(&root()) {
        let recorded = Record::load(&golden).expect("it has a record");
        let output = Command::new(env!("CARGO_BIN_EXE_sexton"))
            .args(["inspect", "--json"])
            .arg(golden.join("data"))
            .output()
            .expect("the command runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{}: {said}", golden.display());
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
        for actor in found["actors"].as_array().expect("`actors` is a list") {
            let name = actor["name"].as_str().expect("an actor has a name");
            if let Some(recorded) = recorded.actors.get(name) {
                assert_eq!(actor["digest"], recorded.digest, "{}", golden.display());
            }
        }

        let scratch = tempfile::tempdir().expect("a temporary directory");
        copy(&golden.join("data"), scratch.path());
        let node = Node::open(settings(scratch.path())).expect("the directory opens");
        let entries = node::entries(&node.handle()).len() as u64;
        assert_eq!(entries, recorded.actors["lock"].entries, "{}", golden.display());
        let jobs = sexton::block_on(node.handle().queues().totals()).expect("the node answers");
        // Jobs of class `memory` are lost in a restart, and so are claimed jobs that are not retried.
        let all = recorded.actors["queue"].entries;
        let kept = u64::from(jobs.jobs.all());
        assert!(kept > 100 && kept < all, "{kept} of {all}");
        node.stop().expect("the node stops");
    }
}

#[test]
fn what_differs_or_is_not_there_is_noticed() {
    let golden = all(&root()).pop().expect("a golden directory exists");
    let planted = |name: &str, plant: &dyn Fn(&Path)| {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        copy(&golden, scratch.path());
        plant(scratch.path());
        check(scratch.path()).expect_err(name)
    };
    let rewrite = |path: &Path, from: &str, to: &str| {
        let record = path.join("record.json");
        let text = std::fs::read_to_string(&record).expect("the file exists");
        assert!(text.contains(from), "{from} in {text}");
        std::fs::write(record, text.replace(from, to)).expect("a writable file");
    };
    let digest = Record::load(&golden).expect("it has a record").actors["lock"].digest.clone();
    let other = "0".repeat(32);
    planted("another digest", &|path| rewrite(path, &digest, &other));
    planted("no record", &|path| {
        std::fs::remove_file(path.join("record.json")).expect("the file exists");
    });
    planted("no journal", &|path| {
        std::fs::remove_dir_all(path.join("data/journal")).expect("the directory exists");
    });
    planted("a damaged snapshot", &|path| {
        std::fs::write(path.join("data/snapshots/a/conf"), "").expect("a writable file");
    });
    let empty = tempfile::tempdir().expect("a temporary directory");
    assert_eq!(all(empty.path()), Vec::<PathBuf>::new(), "an empty directory has none");
}

/// Checks that the program still makes the stored directory of the current format. Until a format is frozen, its
/// directory is made again after a change; afterwards a change requires a new format.
#[test]
fn what_is_made_now_is_what_was_made_then() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let made = ["first", "second"].map(|name| {
        let data = scratch.path().join(name);
        maker::make(&data);
        (Record::of(&data).expect("the record is readable"), everything(&data.join("journal")))
    });
    let [(first, journal), (second, journal_again)] = made;
    assert_eq!(first, second);
    let contents = |journal: std::collections::BTreeMap<String, directory::Kept>| {
        let is_noted = |(name, _): &(String, directory::Kept)| name == "/synced";
        let files = journal
            .into_iter()
            .filter(|file| !is_noted(file))
            .map(|(name, (_, _, content))| (name, content));
        files.collect::<Vec<_>>()
    };
    let (journal, journal_again) = (contents(journal), contents(journal_again));
    assert!(journal == journal_again, "the journals are the same to the bit");
    for golden in all(&root()) {
        let recorded = Record::load(&golden).expect("it has a record");
        if recorded.format != FORMAT_VERSION {
            continue;
        }
        let remedy = if recorded.frozen {
            "the format is frozen: raise FORMAT_VERSION"
        } else {
            "`just golden` regenerates it"
        };
        let now =
            Record { frozen: recorded.frozen, program: recorded.program.clone(), ..first.clone() };
        assert_eq!(recorded, now, "the format has changed: {remedy}");
        // Startup records the version of the program in the journal, so journals of other versions differ.
        if recorded.program == first.program {
            let kept = contents(everything(&golden.join("data/journal")));
            assert!(kept == journal, "the journal has changed: {remedy}");
        }
    }
}

#[test]
#[ignore = "makes the golden directory of this format, unless it is frozen"]
fn make() {
    let golden = root().join(format!("v{FORMAT_VERSION}"));
    if golden.exists() {
        let recorded = Record::load(&golden).expect("it has a record");
        assert!(
            !recorded.frozen,
            "format {FORMAT_VERSION} is frozen: its golden directory is never regenerated"
        );
        std::fs::remove_dir_all(&golden).expect("it can be removed");
    }
    let data = golden.join("data");
    maker::make(&data);
    Record::of(&data).expect("the record is readable").save(&golden);
    check(&golden).expect("it reads as it was made");
}
