//! Rules for the documentation: links have targets, every page is in the table of contents, every error has its row, and
//! quoted figures are the measured ones.

use crate::source::files;
use sexton::refusal::Reason;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// Files whose error texts are never shown, each with the reason.
const UNSEEN: &[(&str, &str)] = &[(
    "wire/src/lockserver/codec.rs",
    "LockServer's clients get a byte instead: docs/protocols/lockserver.md",
)];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).expect("UTF-8")
}

fn pages() -> Vec<String> {
    let is_page = |path: &String| path.rsplit('.').next() == Some("md");
    files(root(), "").into_iter().filter(is_page).collect()
}

/// Returns the lines of a page without its code blocks.
fn prose(page: &str) -> Vec<&str> {
    let mut within = false;
    let mut lines = Vec::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            within = !within;
        } else if !within {
            lines.push(line);
        }
    }
    lines
}

/// Returns a line without the text between backquotes.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("")
}

/// Returns the targets of a page's links.
fn links(page: &str) -> Vec<String> {
    let mut links = Vec::new();
    for line in prose(page) {
        let line = without_code(line);
        let targets = line.split("](").skip(1);
        links.extend(targets.filter_map(|it| it.split(')').next()).map(str::to_owned));
    }
    links
}

/// Returns the anchors of a page: headings, as GitHub and mdBook name them, and explicit names.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in prose(page) {
        for part in line.split("<a id=\"").skip(1) {
            anchors.extend(part.split('"').next().map(str::to_owned));
        }
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let slug: String = heading
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || ['-', '_', ' '].contains(c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let names = std::iter::once(slug.clone()).chain((1..).map(|nth| format!("{slug}-{nth}")));
        let free = names.into_iter().find(|name| !anchors.contains(name));
        anchors.extend(free);
    }
    anchors
}

/// Returns a path without `.` and `..`, or `None` if it leads out of the repository.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                if !plain.pop() {
                    return None;
                }
            }
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => plain.push(part),
        }
    }
    Some(plain)
}

/// Returns the problem with a link on a page, or `None`.
fn broken(from: &str, link: &str) -> Option<String> {
    let wrong = |what: &str| Some(format!("{from}: ({link}) {what}"));
    if link.starts_with("https://") {
        return None;
    }
    if link.contains("://") {
        return wrong("is no https");
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let folder = Path::new(from).parent().unwrap_or(Path::new(""));
    let target =
        if file.is_empty() { Some(PathBuf::from(from)) } else { plain(&folder.join(file)) };
    let Some(target) = target.filter(|target| root().join(target).exists()) else {
        return wrong("leads nowhere");
    };
    // The site consists of the files in `docs/`.
    if from.starts_with("docs/") && !target.starts_with("docs") {
        return wrong("leads out of the site");
    }
    let is_there = anchor.is_empty() || anchors(&read(&target.to_string_lossy())).contains(anchor);
    if is_there { None } else { wrong("names no heading") }
}

#[test]
fn every_link_leads_somewhere() {
    let mut found = Vec::new();
    let mut count = 0;
    for page in pages() {
        let links = links(&read(&page));
        count += links.len();
        found.extend(links.iter().filter_map(|link| broken(&page, link)));
    }
    assert!(count > 100, "{count} links were found");
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
    // Check that each kind of broken link is found.
    for (from, link) in [
        ("README.md", "docs/nothing.md"),
        ("README.md", "docs/operations.md#nothing"),
        ("README.md", "../README.md"),
        ("README.md", "#nothing"),
        ("docs/operations.md", "../README.md"),
        ("docs/operations.md", "http://example.org"),
    ] {
        assert!(broken(from, link).is_some(), "{from} {link}");
    }
    for (from, link) in [
        ("README.md", "docs/operations.md#limits"),
        ("docs/protocols/http.md", "../operations.md#limits"),
        ("docs/operations.md", "#tenants"),
        ("README.md", "https://example.org/x#y"),
    ] {
        assert_eq!(broken(from, link), None);
    }
}

#[test]
fn headings_have_the_names_of_github() {
    let anchors = anchors("# A b\n## `x --y` (z)\n# A b\n<a id=\"own\"></a>\n```\n# none\n```\n");
    let expected = ["a-b", "a-b-1", "own", "x---y-z"].map(str::to_owned);
    assert_eq!(anchors, BTreeSet::from(expected));
    assert_eq!(links("a [b](c) `[d](e)`\n```\n[f](g)\n```\n[h](i#j)"), ["c", "i#j"]);
}

#[test]
fn the_site_has_every_page() {
    let summary = links(&read("docs/SUMMARY.md"));
    let listed: BTreeSet<String> = summary.iter().map(|it| format!("docs/{it}")).collect();
    assert_eq!(listed.len(), summary.len(), "a page is listed twice");
    let there = pages().into_iter();
    let there: BTreeSet<String> =
        there.filter(|page| page.starts_with("docs/") && page != "docs/SUMMARY.md").collect();
    let missing: Vec<_> = there.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&there).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "docs/SUMMARY.md lacks {missing:?}, and lists {gone:?}, which do not exist"
    );
}

#[test]
fn every_reason_has_a_row_among_the_errors() {
    let page = read("docs/errors.md");
    for reason in Reason::ALL {
        let row =
            format!("| `{}` | {} | {} |", reason.word(), reason.status(), reason.exit() as u8);
        assert_eq!(page.matches(&row).count(), 1, "{row}");
    }
}

/// Returns the constant parts of a text between its values. Backquotes are removed, because they are also removed from
/// the page.
fn parts(text: &str) -> Vec<String> {
    let lines = text.split("\\\n").map(str::trim_start);
    let text = lines.collect::<String>();
    let text = text.replace("\\\"", "\"").replace('`', "");
    let pieces = text.split('{');
    let after = |piece: &str| piece.split_once('}').map_or(piece, |(_, it)| it).to_owned();
    pieces.map(after).collect()
}

/// Returns the quoted text at the beginning of `source`, or `None`.
fn quoted(source: &str) -> Option<&str> {
    let text = source.trim_start().strip_prefix('"')?;
    let mut ends = text.match_indices('"').map(|(at, _)| at);
    let end = ends.find(|at| !text.get(..*at).is_some_and(|it| it.ends_with('\\')))?;
    text.get(..end)
}

/// Returns the error texts of a file: those of `#[error("…")]`, and those of `fn words`, which returns the texts of
/// another type.
fn texts(source: &str) -> Vec<&str> {
    let attributes = source.split("#[error(").skip(1);
    let words = source.split("const fn words(refused").skip(1);
    let words = words.filter_map(|it| it.split("\n}\n").next());
    let arms = words.flat_map(|body| body.split("=>").skip(1));
    let arms = arms.map(|arm| arm.trim_start_matches([' ', '{', '\n']));
    attributes.chain(arms).filter_map(quoted).collect()
}

/// Returns the error texts of commands without a help line. Errors of the operating system have one row on the page,
/// `failed to ACTION: WHY`, and are left out.
fn helpless(source: &str) -> Vec<&str> {
    let kinds = ["found", "usage", "unreachable", "halted", "of_command"];
    let begins = kinds.map(|kind| format!("Failure::{kind}("));
    let calls = begins.iter().flat_map(|it| source.split(it.as_str()).skip(1));
    let texts = calls.filter_map(|call| {
        let mut depth = 1_usize;
        let end = call.find(|character| {
            match character {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            depth == 0
        })?;
        let (inside, after) = call.split_at_checked(end)?;
        let after = after.trim_start_matches([')', ' ', '\n']);
        if after.starts_with(".help(") || after.starts_with(".listing(") {
            return None;
        }
        quoted(inside.get(inside.find('"')?..)?)
    });
    let of_the_system = [": {error}", ": {found}"];
    let is_one_row = |text: &&str| {
        text.starts_with("failed to ") && of_the_system.iter().any(|it| text.ends_with(it))
    };
    texts.filter(|text| !is_one_row(text)).collect()
}

/// Returns whether a message on a page has all these parts, in this order. Texts that are shown after `failed to` have
/// these words on the page.
fn shows(message: &str, parts: &[String]) -> bool {
    let after = message.strip_prefix("failed to ").unwrap_or(message);
    has(message, parts) || has(after, parts)
}

fn has(text: &str, parts: &[String]) -> bool {
    let mut rest = text;
    for part in parts {
        match rest.find(part.as_str()) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    true
}

/// Returns the first column of the tables of a page, with backquotes removed.
fn messages(page: &str) -> Vec<String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    cells.map(|cell| cell.replace('`', "")).collect()
}

#[test]
fn every_error_is_among_the_errors() {
    let messages = messages(&read("docs/errors.md"));
    let all = ["src", "wire/src", "http/src", "tools"].into_iter();
    let all = all.flat_map(|folder| files(root(), folder));
    let mut count = 0;
    let mut missing = Vec::new();
    for file in all.filter(|file| file.rsplit('.').next() == Some("rs")) {
        if UNSEEN.iter().any(|(unseen, _)| *unseen == file) {
            continue;
        }
        let source = read(&file);
        let source = source.split("#[cfg(test)]").next().unwrap_or_default();
        for text in [texts(source), helpless(source)].concat() {
            let parts = parts(text);
            // A text without words consists of a value, which is the text of another error.
            let has_words = |part: &String| part.chars().any(char::is_alphabetic);
            if !parts.iter().any(has_words) {
                continue;
            }
            count += 1;
            if !messages.iter().any(|message| shows(message, &parts)) {
                missing.push(format!("{file}: {text}"));
            }
        }
    }
    assert!(missing.is_empty(), "docs/errors.md has no row for\n{}\n", missing.join("\n"));
    assert!(count > 180, "{count} errors were found");
    for (file, reason) in UNSEEN {
        assert!(!reason.is_empty() && !texts(&read(file)).is_empty(), "{file}");
    }
}

#[test]
fn texts_of_errors_are_found_and_compared() {
    let source = "#[error(\"read {file}: damaged\")]\n#[error(\n    \"a = \\\"b\\\" `c`\", X\n)]\n#[error(transparent)]\n\
                  const fn words(refused: X) -> &'static str {\n    X::A => \"d\",\n    X::B => {\n        \"e\"\n    }\n}\n\"f\"";
    assert_eq!(texts(source), ["read {file}: damaged", "a = \\\"b\\\" `c`", "d", "e"]);
    assert_eq!(parts("a = \\\"b\\\" `{}`"), ["a = \"b\" ", ""]);
    let parts = ["read ", ": damaged"].map(str::to_owned);
    assert!(shows("failed to read FILE: damaged at N", &parts));
    assert!(!shows("failed to read FILE: it is missing", &parts));
    let calls = "Failure::found(\"a\")\n.help(\"b\")\nFailure::usage(format!(\"c (d)\"))\nFailure::found(e)";
    assert_eq!(helpless(calls), ["c (d)"]);
    assert_eq!(messages("| `a` | b |\n|---|---|\n| ``c `d` `` | e |\nf"), ["a", "c d "]);
}

#[test]
fn figures_that_the_readme_quotes_were_measured() {
    let measured = read("docs/benchmarks.md");
    let readme = read("README.md");
    let quoting = readme.split("\n\n").filter(|it| it.contains("](docs/benchmarks.md#processes"));
    let mut quoted = Vec::new();
    for paragraph in quoting {
        let words: Vec<&str> = paragraph.split_whitespace().collect();
        for pair in words.windows(2) {
            if let [figure, unit] = pair
                && unit.starts_with("ms")
            {
                quoted.push((*figure).to_owned());
            }
        }
    }
    assert!(quoted.len() >= 3, "{quoted:?}");
    for figure in quoted {
        let there = measured.contains(&format!("{figure} ms"));
        assert!(there, "{figure} ms is not in docs/benchmarks.md");
    }
}
