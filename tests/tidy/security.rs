//! Every statement of `docs/security.md` names the test that shows it, and the test exists.

use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the files in which a module may be: the module's own, and that of its parent, for a module within its parent's file.
fn files(program: &str, modules: &[&str]) -> Vec<String> {
    let folder = match program {
        "lib" => "src".to_owned(),
        "http-lib" => "http/src".to_owned(),
        "wire-lib" => "wire/src".to_owned(),
        "sexton" => "tools".to_owned(),
        program => format!("tests/{program}"),
    };
    let of = |modules: &[&str]| {
        let path = [&[folder.as_str()], modules].concat().join("/");
        [format!("{path}.rs"), format!("{path}/mod.rs"), format!("{path}/main.rs")]
    };
    let parent = modules.split_last().map_or(&[][..], |(_, parent)| parent);
    [of(modules), of(parent)].concat()
}

/// Returns whether there is a test of this name, as `program path::of::the::test`.
fn exists(name: &str) -> bool {
    let Some((program, path)) = name.split_once(' ') else {
        return false;
    };
    let parts: Vec<&str> = path.split("::").collect();
    let Some((function, modules)) = parts.split_last() else {
        return false;
    };
    let sought = format!("fn {function}(");
    let mut texts = files(program, modules)
        .into_iter()
        .filter_map(|file| std::fs::read_to_string(root().join(file)).ok());
    texts.any(|text| text.contains(&sought))
}

#[test]
fn every_statement_about_security_names_a_test_that_exists() {
    let page = std::fs::read_to_string(root().join("docs/security.md")).expect("the page exists");
    let is_row = |line: &&str| line.starts_with("| ") && !line.ends_with("| test |");
    let mut count = 0;
    for row in page.lines().filter(is_row) {
        let last = row.trim_end_matches('|').trim_end().rsplit("| ").next();
        let cell = last.expect("a row has cells");
        let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test is named: {row}");
        for name in names {
            assert!(exists(name), "there is no test `{name}`: {row}");
        }
        count += 1;
    }
    assert!(count > 20, "the tables were read");
    assert!(!exists("http rights::nobody_wrote_this"));
}
