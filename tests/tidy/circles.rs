//! Files that import each other, directly or indirectly, are a circle: none of them can be read first.
//!
//! A name that a `mod.rs` re-exports counts as an import of the name's own file. The names that a `mod.rs` itself uses
//! from its folder are not counted, because it must declare and re-export them.

use crate::paths::{imports, joined, module, written_out};
use crate::source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The imports of each file.
struct Graph {
    imports: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    /// Returns the imports within a package; `folder` is that of its sources.
    fn new(sources: &[Source], folder: &str) -> Self {
        let of_package = |source: &&Source| source.is_rust() && source.path.starts_with(folder);
        let sources: Vec<&Source> = sources.iter().filter(of_package).collect();
        let files: BTreeMap<String, &str> =
            sources.iter().map(|source| (module(&source.path), source.path.as_str())).collect();
        let passed_on: BTreeMap<String, String> =
            sources.iter().flat_map(|it| reexports(it)).collect();
        let file = |path: &str| {
            let mut path = passed_on.get(path).map_or(path, String::as_str);
            loop {
                if let Some(file) = files.get(path) {
                    return Some((*file).to_owned());
                }
                path = path.rsplit_once("::")?.0;
            }
        };
        let imported = |source: &&Source| {
            let found = imports(source).into_iter().filter_map(|path| file(&path));
            let others = found.filter(|file| *file != source.path);
            (source.path.clone(), others.collect())
        };
        Self { imports: sources.iter().map(imported).collect() }
    }

    /// Returns every file that a file imports, directly or indirectly.
    fn reached(&self, from: &str) -> BTreeSet<&str> {
        let imported = |file: &str| self.imports.get(file).into_iter().flatten();
        let mut reached = BTreeSet::new();
        let mut open: Vec<&String> = imported(from).collect();
        while let Some(file) = open.pop() {
            if reached.insert(file.as_str()) {
                open.extend(imported(file));
            }
        }
        reached
    }

    /// Returns the circles, each as the list of its files.
    fn circles(&self) -> BTreeSet<Vec<&str>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.imports.keys().map(|file| (file.as_str(), self.reached(file))).collect();
        let meets = |one: &str, other: &str| reached.get(one).is_some_and(|it| it.contains(other));
        let circle = |file: &str| -> Vec<&str> {
            let files = reached.keys().copied();
            files.filter(|it| meets(file, it) && meets(it, file)).collect()
        };
        let circles = reached.keys().map(|file| circle(file));
        circles.filter(|circle| !circle.is_empty()).collect()
    }
}

/// Returns the names that a `mod.rs` re-exports, each with its file.
fn reexports(source: &Source) -> Vec<(String, String)> {
    let here = module(&source.path);
    let mut found = Vec::new();
    for line in source.code.split(';') {
        let line = line.trim_start();
        let Some((visible, path)) = line.split_once("use ") else {
            continue;
        };
        if visible.contains("pub") && !path.starts_with("crate") {
            let passed = |path: String| {
                let name = path.rsplit("::").next().unwrap_or(&path);
                (joined(&here, name), joined(&here, &path))
            };
            found.extend(written_out(path).map(passed));
        }
    }
    found
}

#[test]
fn no_files_import_each_other() {
    let sources = Source::all(Path::new(env!("CARGO_MANIFEST_DIR")));
    for folder in ["src/", "api/src/", "wire/src/", "http/src/"] {
        let graph = Graph::new(&sources, folder);
        let circles = graph.circles();
        assert!(circles.is_empty(), "these import each other: {circles:#?}");
        assert!(graph.imports.values().any(|it| it.len() > 1), "{folder} was found");
    }
}

#[test]
fn a_circle_is_found_however_long_it_is() {
    let sources = [
        Source::new(
            "src/a/mod.rs",
            "mod x;\nmod y;\npub use x::{Deep, Other};\npub(crate) use y::Y;",
        ),
        Source::new("src/a/x.rs", "use crate::b::B;\npub struct Deep;"),
        Source::new("src/a/y.rs", "use crate::a::Y;"),
        Source::new("src/b.rs", "use crate::{c::{self, C}, d::D};"),
        Source::new("src/c.rs", "fn f() -> crate::a::Deep {}\n// use crate::d::D;"),
        Source::new("src/d.rs", "use super::a::Y;"),
        Source::new("tests/b.rs", "use crate::c::C;"),
    ];
    let graph = Graph::new(&sources, "src/");
    let expected = vec!["src/a/x.rs", "src/b.rs", "src/c.rs"];
    assert_eq!(graph.circles(), BTreeSet::from([expected]));
    assert_eq!(graph.reached("src/d.rs"), BTreeSet::from(["src/a/y.rs"]));
}
