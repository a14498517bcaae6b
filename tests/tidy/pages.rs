//! The documentation: links lead somewhere, every page is part of the site, every error has its row, and figures that are quoted
//! are those that were measured.

use crate::source::files;
use sexton::refusal::Reason;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// Where the errors are that a start, a checkpoint or a halt ends with.
const ERRORS: &[&str] = &[
    "src/clock.rs",
    "src/node/mod.rs",
    "src/persist/error.rs",
    "src/protocols/http/door.rs",
    "src/protocols/http/tls.rs",
    "src/protocols/http/token.rs",
    "src/protocols/lockserver/hosts.rs",
    "src/spine/checkpoint.rs",
    "src/spine/record.rs",
    "src/spine/shared.rs",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).expect("a page is text")
}

fn pages() -> Vec<String> {
    let is_page = |path: &String| path.rsplit('.').next() == Some("md");
    files(root(), "").into_iter().filter(is_page).collect()
}

/// The lines of a page without its blocks of code.
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

/// A line without what stands between backquotes.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("")
}

/// Where the links of a page lead.
fn links(page: &str) -> Vec<String> {
    let mut links = Vec::new();
    for line in prose(page) {
        let line = without_code(line);
        let targets = line.split("](").skip(1);
        links.extend(
            targets
                .filter_map(|it| it.split(')').next())
                .map(str::to_owned),
        );
    }
    links
}

/// What can be linked to on a page: headings, as GitHub and mdBook name them, and names that it gives itself.
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

/// A path without `.` and `..`; `None` if it leads out of the repository.
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

/// What is wrong with a link of a page.
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
    let target = if file.is_empty() {
        Some(PathBuf::from(from))
    } else {
        plain(&folder.join(file))
    };
    let Some(target) = target.filter(|target| root().join(target).exists()) else {
        return wrong("leads nowhere");
    };
    // The site has what is below `docs/`.
    if from.starts_with("docs/") && !target.starts_with("docs") {
        return wrong("leads out of the site");
    }
    let is_there = anchor.is_empty() || anchors(&read(&target.to_string_lossy())).contains(anchor);
    if is_there {
        None
    } else {
        wrong("names no heading")
    }
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
    // Each kind of broken link is one that would be found.
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
    assert_eq!(
        links("a [b](c) `[d](e)`\n```\n[f](g)\n```\n[h](i#j)"),
        ["c", "i#j"]
    );
}

#[test]
fn the_site_has_every_page() {
    let summary = links(&read("docs/SUMMARY.md"));
    let listed: BTreeSet<String> = summary.iter().map(|it| format!("docs/{it}")).collect();
    assert_eq!(listed.len(), summary.len(), "a page is listed twice");
    let there = pages().into_iter();
    let there: BTreeSet<String> = there
        .filter(|page| page.starts_with("docs/") && page != "docs/SUMMARY.md")
        .collect();
    let missing: Vec<_> = there.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&there).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "docs/SUMMARY.md lacks {missing:?}, and lists {gone:?}, which are not there"
    );
}

#[test]
fn every_reason_has_a_row_among_the_errors() {
    let page = read("docs/errors.md");
    for reason in Reason::ALL {
        let row = format!(
            "| `{}` | {} | {} |",
            reason.word(),
            reason.status(),
            reason.exit() as u8
        );
        assert_eq!(page.matches(&row).count(), 1, "{row}");
    }
}

/// The parts between the values of each text of an error in a file.
fn texts(source: &str) -> Vec<Vec<String>> {
    let begun = source.split("#[error(").skip(1);
    let texts = begun.filter_map(|it| it.trim_start().strip_prefix('"')?.split('"').next());
    let parts = |text: &str| {
        let pieces = text.split('{');
        let after = |piece: &str| piece.split_once('}').map_or(piece, |(_, it)| it).to_owned();
        pieces.map(after).collect()
    };
    texts.map(parts).collect()
}

/// Whether a message that a page shows has all these parts, in this order.
fn shows(message: &str, parts: &[String]) -> bool {
    let Some(mut rest) = message.strip_prefix("failed to ").or(Some(message)) else {
        return false;
    };
    for part in parts {
        match rest.find(part.as_str()) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    true
}

#[test]
fn every_error_of_a_start_is_among_the_errors() {
    let page = read("docs/errors.md");
    let messages: Vec<&str> = page.split('`').skip(1).step_by(2).collect();
    let mut count = 0;
    for file in ERRORS {
        for mut parts in texts(&read(file)) {
            count += 1;
            // Between backquotes there are none.
            for part in &mut parts {
                *part = part.replace("` run`", "RUN");
            }
            assert!(
                messages.iter().any(|message| shows(message, &parts)),
                "{file}: {parts:?} is not in docs/errors.md"
            );
        }
    }
    assert!(count > 20, "{count} errors were found");
    let parts = ["read ", ": damaged"].map(str::to_owned);
    assert!(shows("failed to read FILE: damaged at N", &parts));
    assert!(!shows("failed to read FILE: it is missing", &parts));
}

#[test]
fn figures_that_the_readme_quotes_were_measured() {
    let measured = read("docs/benchmarks.md");
    let readme = read("README.md");
    let quoting = readme
        .split("\n\n")
        .filter(|it| it.contains("](docs/benchmarks.md#processes"));
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
