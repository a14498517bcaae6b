//! The text files of the tree, and their code with comments and quoted text removed.

use std::path::Path;

/// A text file of the repository.
pub(crate) struct Source {
    /// Its path from the root of the repository, with `/` as separator.
    pub(crate) path: String,
    pub(crate) text: String,
    /// The text with comments and quoted text replaced by spaces, and without the tests at its end.
    pub(crate) code: String,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned(), code: without_tests(&blanked(text)) }
    }

    /// Reads every text file below the root.
    pub(crate) fn all(root: &Path) -> Vec<Self> {
        let texts =
            ["rs", "md", "toml", "txt", "run", "lock", "yml", "json", "justfile", "gitignore"];
        let is_text = |path: &String| {
            let name = path.rsplit('/').next().unwrap_or(path);
            texts.contains(&name.rsplit('.').next().unwrap_or(name))
        };
        let read = |path: String| {
            let text = std::fs::read_to_string(root.join(&path)).expect("a text file is text");
            Self::new(&path, &text)
        };
        files(root, "").into_iter().filter(is_text).map(read).collect()
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.rsplit('.').next() == Some("rs")
    }

    /// Returns whether the file is part of the product and not of its tests.
    pub(crate) fn is_product(&self) -> bool {
        let tests = [
            "src/actors/lock/tests.rs",
            "src/actors/lock/model.rs",
            "src/actors/lock/invariants.rs",
        ];
        self.is_rust()
            && ["src/", "api/src/", "wire/src/", "http/src/", "tools/"]
                .iter()
                .any(|folder| self.path.starts_with(folder))
            && !tests.contains(&self.path.as_str())
    }
}

/// Returns the files in a folder, at any depth, as paths from the root. Build output and version control are left out.
pub(crate) fn files(root: &Path, folder: &str) -> Vec<String> {
    walk(root, folder).into_iter().filter(|path| !path.ends_with('/')).collect()
}

/// Returns the folders in a folder, at any depth, each with a `/` at its end.
pub(crate) fn folders(root: &Path, folder: &str) -> Vec<String> {
    walk(root, folder).into_iter().filter(|path| path.ends_with('/')).collect()
}

fn walk(root: &Path, folder: &str) -> Vec<String> {
    let skipped = [".git", "target", "corpus", "artifacts", "proptest-regressions"];
    let mut found = Vec::new();
    let entries = std::fs::read_dir(root.join(folder)).expect("the directory is readable");
    for entry in entries {
        let entry = entry.expect("the directory is readable");
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if !entry.path().is_dir() {
            found.push(path);
        } else if !skipped.contains(&name.as_str()) {
            found.extend(walk(root, &path));
            found.push(format!("{path}/"));
        }
    }
    found.sort();
    found
}

/// Returns Rust source with every comment and every quoted text replaced by spaces. Line numbers stay the same.
fn blanked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skip = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |at| at + 2),
            'r' if rest.starts_with("r\"") || rest.starts_with("r#\"") => raw_len(rest),
            '"' => quoted_len(rest),
            '\'' => character_len(rest),
            _ => 0,
        };
        let (gone, kept) = if skip > 0 { (skip, false) } else { (first.len_utf8(), true) };
        let (piece, after) = rest.split_at(gone);
        out.extend(piece.chars().map(|c| if kept || c == '\n' { c } else { ' ' }));
        rest = after;
    }
    out
}

fn raw_len(rest: &str) -> usize {
    let hashes = rest.chars().skip(1).take_while(|c| *c == '#').count();
    let end = format!("\"{}", "#".repeat(hashes));
    let begin = hashes + 2;
    rest.get(begin..)
        .and_then(|body| body.find(&end))
        .map_or(rest.len(), |at| begin + at + end.len())
}

fn quoted_len(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Returns the length of a character literal, or zero for a lifetime.
fn character_len(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, _))) => {
            let from = at + 1;
            rest.get(from..).and_then(|rest| rest.find('\'')).map_or(0, |end| from + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

/// Returns the code up to the module of tests at its end.
fn without_tests(code: &str) -> String {
    match code.split_once("#[cfg(test)]\nmod tests {") {
        Some((before, _)) => before.to_owned(),
        None => code.to_owned(),
    }
}

/// Returns whether the code contains this path or word, and not only as part of a longer word.
pub(crate) fn names(code: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code.get(..at).and_then(|before| before.chars().next_back());
        let after = code.get(at + word.len()..).and_then(|after| after.chars().next());
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

#[test]
fn comments_and_quotes_are_no_code() {
    let text = "let a = \"tokio \\\" x\"; // actix\n/* sled */ let b = 'x'; fn f<'a>(c: &'a str) {} r#\"libc\"# '\\''";
    let code = blanked(text);
    for gone in ["tokio", "actix", "sled", "libc", "x"] {
        assert!(!names(&code, gone), "{gone} in {code}");
    }
    for kept in ["a", "b", "f", "str"] {
        assert!(names(&code, kept), "{kept} in {code}");
    }
    assert_eq!(code.lines().count(), text.lines().count());
    assert!(!names("tokio_like and nottokio", "tokio"));
    assert!(names("use tokio::net;", "tokio"));
    let tested = "fn a() {}\n#[cfg(test)]\nmod tests {\n x.unwrap() }\n";
    assert!(!without_tests(tested).contains("unwrap"));
}
