//! The imports of a file: all paths of the library in its code, with groups such as `{a, b}` expanded.

use crate::source::Source;

/// Returns the paths of the library that a file uses, without `crate::`, such as `lookup::slab::Slab`.
pub(crate) fn imports(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    let parent = parent(&source.path);
    for (word, base) in [("crate::", ""), ("super::", parent.as_str())] {
        for (at, _) in source.code.match_indices(word) {
            let before = source.code.get(..at).and_then(|code| code.chars().next_back());
            let is_whole = !before.is_some_and(|c| c.is_alphanumeric() || "_:".contains(c));
            if let (true, Some(rest)) = (is_whole, source.code.get(at + word.len()..)) {
                found.extend(written_out(rest).map(|path| joined(base, &path)));
            }
        }
    }
    found
}

/// Returns the module path of a file within its package, without `crate`. It is empty for the root.
pub(crate) fn module(path: &str) -> String {
    let path = path.split_once("src/").map_or(path, |(_, path)| path).trim_end_matches(".rs");
    let path = path.strip_suffix("mod").unwrap_or(path);
    let path = if path == "lib" { "" } else { path };
    path.trim_end_matches('/').replace('/', "::")
}

fn parent(path: &str) -> String {
    let module = module(path);
    module.rsplit_once("::").map_or_else(String::new, |(parent, _)| parent.to_owned())
}

pub(crate) fn joined(base: &str, path: &str) -> String {
    match (base, path) {
        ("", path) => path.to_owned(),
        (base, "self") => base.to_owned(),
        (base, path) => format!("{base}::{path}"),
    }
}

/// Returns the path at the beginning of this code, or all of its paths if it is a group.
pub(crate) fn written_out(code: &str) -> impl Iterator<Item = String> {
    let code = code.trim_start();
    let mut paths = Vec::new();
    if let Some(group) = code.strip_prefix('{') {
        for part in parts(group) {
            paths.extend(written_out(part).collect::<Vec<_>>());
        }
    } else {
        let end = code.find(|c: char| !(c.is_alphanumeric() || c == '_'));
        let (name, rest) = code.split_at(end.unwrap_or(code.len()));
        match rest.strip_prefix("::") {
            Some(rest) if rest.starts_with(|c: char| c.is_alphabetic() || "_{".contains(c)) => {
                paths.extend(written_out(rest).map(|rest| joined(name, &rest)));
            }
            _ if name.is_empty() => {}
            _ => paths.push(name.to_owned()),
        }
    }
    paths.into_iter()
}

/// Returns the items of a group, which commas separate, up to the group's end.
fn parts(group: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                parts.extend(group.get(begin..at));
                begin = at + 1;
            }
            _ => {}
        }
        if c == '}' && begin == at + 1 {
            break;
        }
    }
    parts
}

#[test]
fn groups_are_written_out() {
    let text =
        "use crate::{ids::Seq, lookup::{self, slab::{Slab, Chunk}}};\nfn f() -> super::Reply {}";
    let source = Source::new("src/actors/lock/state.rs", text);
    let expected =
        ["ids::Seq", "lookup", "lookup::slab::Slab", "lookup::slab::Chunk", "actors::lock::Reply"];
    assert_eq!(imports(&source), expected);
    let source = Source::new("src/node/mod.rs", "use super::block_on;\nmycrate::x();");
    assert_eq!(imports(&source), ["block_on"]);
    let modules = ["src/lib.rs", "src/a/mod.rs", "api/src/a/b.rs", "http/src/c.rs"].map(module);
    assert_eq!(modules, ["", "a", "a::b", "c"]);
}
