//! Splits command lines as a shell does but without expansions, and lists of variables as supervisord does. Both match Python's
//! `shlex`.

/// Splits a command line into words. Returns an error if a closing quote is missing or nothing follows a backslash.
pub(crate) fn command(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' | '\r' | '\n' => words.extend(word.take()),
            '\'' | '"' => quoted(letter, &mut letters, word.get_or_insert_default())?,
            '\\' => {
                let escaped =
                    letters.next().ok_or("expected a character after the backslash at the end")?;
                word.get_or_insert_default().push(escaped);
            }
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Reads up to and including the closing quote, and appends the quoted text to `word`. In double quotes, a backslash escapes only a double
/// quote or a backslash.
fn quoted(quote: char, letters: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), String> {
    let open = || format!("the closing {quote} is missing");
    loop {
        let letter = letters.next().ok_or_else(open)?;
        if letter == quote {
            return Ok(());
        }
        if letter == '\\' && quote == '"' {
            let escaped = letters.next().ok_or_else(open)?;
            if !['"', '\\'].contains(&escaped) {
                word.push('\\');
            }
            word.push(escaped);
        } else {
            word.push(letter);
        }
    }
}

/// Parses variables in the form `A="x",B=y` into names and values.
pub(crate) fn variables(text: &str) -> Result<Vec<(String, String)>, String> {
    let tokens = tokens(text)?;
    let mut tokens = tokens.iter().map(String::as_str);
    let mut variables: Vec<(String, String)> = Vec::new();
    while let Some(name) = tokens.next() {
        let (Some("="), Some(value)) = (tokens.next(), tokens.next()) else {
            return Err(format!(
                "expected KEY=\"value\",KEY=\"value\" at {name:?}; a value must be quoted unless it has only letters, digits and _:/.+-()"
            ));
        };
        if tokens.next().is_some_and(|comma| comma != ",") {
            return Err(format!("expected a comma after the value of {name}"));
        }
        let value = value.trim_matches(['\'', '"']).to_owned();
        // The last assignment to a name wins.
        variables.retain(|(other, _)| other != name);
        variables.push((name.to_owned(), value));
    }
    Ok(variables)
}

/// Splits `text` into tokens: words, quoted strings including their quotes, and single other characters. White space is skipped, and so
/// are comments, which extend from a `#` to the end of the line.
fn tokens(text: &str) -> Result<Vec<String>, String> {
    let mut tokens = Vec::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let mut token = String::from(letter);
        match letter {
            '#' => {
                letters.by_ref().find(|it| *it == '\n');
                continue;
            }
            '\'' | '"' => loop {
                let open = || format!("the closing {letter} is missing");
                let next = letters.next().ok_or_else(open)?;
                token.push(next);
                if next == letter {
                    break;
                }
            },
            _ if is_of_word(letter) => {
                let goes_on = |it: &char| is_of_word(*it) || ['\'', '"', '#'].contains(it);
                while let Some(next) = letters.next_if(goes_on) {
                    if next == '#' {
                        letters.by_ref().find(|it| *it == '\n');
                    } else {
                        token.push(next);
                    }
                }
            }
            // White space separates tokens; any other character is a one-character token.
            _ => {}
        }
        if !letter.is_ascii_whitespace() {
            tokens.push(token);
        }
    }
    Ok(tokens)
}

fn is_of_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_/.+-():".contains(letter)
}

#[cfg(test)]
mod tests {
    use super::{command, variables};

    #[test]
    fn command_lines_are_split_as_by_a_shell() {
        for (text, expected) in [
            ("", &[] as &[&str]),
            ("  /bin/cat \t-n\n x ", &["/bin/cat", "-n", "x"]),
            ("sh -c 'a \"b\" $c'", &["sh", "-c", "a \"b\" $c"]),
            (r#"a"b c"'d e'f"#, &["ab cd ef"]),
            (r#"x "" '' "#, &["x", "", ""]),
            (r#""a\"b\\c\d" e\ f"#, &[r#"a"b\c\d"#, "e f"]),
            ("a # b", &["a", "#", "b"]),
        ] {
            let words = expected.iter().map(|it| (*it).to_owned()).collect();
            assert_eq!(command(text), Ok(words), "{text}");
        }
        for open in ["a 'b", "a \"b", "a \"b\\", "a \\"] {
            assert!(command(open).is_err(), "{open}");
        }
    }

    #[test]
    fn variables_are_split_as_supervisord_splits_them() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        for (text, expected) in [
            ("", vec![]),
            ("A=1", vec![pair("A", "1")]),
            (
                "A=\"x, y\",\n B='1 2' , C=/bin:/usr/bin,",
                vec![pair("A", "x, y"), pair("B", "1 2"), pair("C", "/bin:/usr/bin")],
            ),
            ("A=1,A=2", vec![pair("A", "2")]),
            ("A=\"\\n\"", vec![pair("A", "\\n")]),
            ("A=''", vec![pair("A", "")]),
        ] {
            assert_eq!(variables(text), Ok(expected), "{text}");
        }
        for wrong in ["A", "A=", "A=1 B=2", "A=\"x", "A=x@y", "A=1;B=2", "=1"] {
            assert!(variables(wrong).is_err(), "{wrong}");
        }
    }
}
