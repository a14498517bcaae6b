//! Recognises secrets: variables whose values are not stored, and arguments that are shown masked.
//!
//! They are recognised by their names, as in `ArchiveBox`: `*TOKEN*`, `*SECRET*`, `*PASSWORD*`, `*KEY*`; in arguments also by their forms: the
//! password in `https://user:password@host`, what follows `Authorization:`, `curl -u user:password`, and others (`secret/forms.rs`). Other
//! secrets are missed, and many values that are not secret are masked.

mod first;
mod forms;
mod words;

use self::words::names_secret;
use crate::bytes::Bytes;
use std::ops::Range;

pub(super) use first::masked as masked_in_records;
pub use words::MASK;

/// Returns whether the value of a variable with this name must not be stored.
pub fn is_secret_name(name: &str) -> bool {
    names_secret(name.as_bytes())
}

/// Returns whether one of these arguments would be masked.
pub fn has_secret(argv: &[Bytes]) -> bool {
    first::has_secret(argv) || forms::hidden(argv).iter().any(|ranges| !ranges.is_empty())
}

/// Returns the arguments as they are shown: `--password=x`, `API_TOKEN=x` and `--token x` appear without their values, and so do the other
/// forms of secrets.
pub fn masked(argv: &[Bytes]) -> Vec<Bytes> {
    let argv = first::masked(argv);
    let hidden = forms::hidden(&argv);
    let shown = argv.into_iter().zip(hidden).map(|(argument, ranges)| match ranges.as_slice() {
        [] => argument,
        ranges => without(argument.as_bytes(), ranges),
    });
    shown.collect()
}

/// Replaces these ranges, which are in order and do not overlap.
fn without(text: &[u8], ranges: &[Range<usize>]) -> Bytes {
    let (mut shown, mut from) = (Vec::with_capacity(text.len()), 0);
    for range in ranges {
        shown.extend_from_slice(text.get(from..range.start).unwrap_or_default());
        shown.extend_from_slice(MASK.as_bytes());
        from = range.end;
    }
    shown.extend_from_slice(text.get(from..).unwrap_or_default());
    Bytes::new(shown)
}

/// Returns a URL as messages show it: without the password or, if it has only a user, which may be a token, without that.
pub fn masked_url(url: &str) -> String {
    let authority = url.split_once("://").map_or(0, |(scheme, _)| scheme.len() + 3);
    let (before, rest) = url.split_at(authority);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest.get(..end).and_then(|it| it.rfind('@')) {
        Some(at) => format!("{before}{MASK}{}", rest.get(at..).unwrap_or_default()),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{has_secret, masked, masked_url};
    use crate::bytes::Bytes;

    fn split(words: &str) -> Vec<Bytes> {
        words.split('|').map(|word| Bytes::new(word.as_bytes())).collect()
    }

    fn shown(words: &str) -> String {
        let shown = masked(&split(words)).into_iter();
        let shown = shown.map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned());
        shown.collect::<Vec<_>>().join("|")
    }

    fn is_masked(words: &str, expected: &str) {
        assert_eq!(shown(words), expected);
        assert_eq!(has_secret(&split(words)), words != expected, "{words}");
        // What is shown can be shown again.
        assert_eq!(shown(expected), expected);
    }

    fn is_plain(words: &str) {
        assert_eq!(shown(words), words);
        assert!(!has_secret(&split(words)), "{words}");
    }

    #[test]
    fn secrets_are_known_by_name_and_by_form() {
        for (words, expected) in [
            ("x|--password=a b", "x|--password=***"),
            ("x|--token|-a|b", "x|--token|***|b"),
            ("x|--token|--other", "x|--token|--other"),
            ("env|API_KEY=a|x", "env|API_KEY=***|x"),
            ("curl|-u|a:b|http://h", "curl|-u|a:***|http://h"),
            ("/usr/bin/curl|-ua:b", "/usr/bin/curl|-ua:***"),
            ("curl|--user|a:b", "curl|--user|a:***"),
            ("curl|https://u:p@h/x?y", "curl|https://u:***@h/x?y"),
            ("git|clone|ssh://h/a|https://u:p:q@h", "git|clone|ssh://h/a|https://u:***@h"),
            ("DB=postgres://u:p@h/d|x", "DB=postgres://u:***@h/d|x"),
            ("sh|-c|wget http://a/ http://u:p@h/ ; x", "sh|-c|wget http://a/ http://u:***@h/ ; x"),
            ("curl|-H|Authorization: Bearer a", "curl|-H|Authorization:***"),
            ("sh|-c|curl -H 'authorization: b' h", "sh|-c|curl -H 'authorization:***"),
            ("curl|-H|X-Api-Key: a", "curl|-H|X-Api-Key:***"),
            ("curl|-H|Cookie: a=b", "curl|-H|Cookie:***"),
        ] {
            is_masked(words, expected);
        }
        for plain in [
            "docker|run|-u|1000:1000|x",
            "curl|-u|name|https://h:8080/a@b",
            "curl|-H|Accept: text/html",
            "ssh|git@host|ssh://git@host/x",
            "grep|key: x|https://h/?a=b",
            "date|+%H:%M",
        ] {
            is_plain(plain);
        }
    }

    #[test]
    fn further_forms_are_known() {
        for (words, expected) in [
            ("curl|-su|a:b|http://h", "curl|-su|a:***|http://h"),
            ("curl|-sua:b|http://h", "curl|-sua:***|http://h"),
            ("curl|--user=a:b|h", "curl|--user=a:***|h"),
            ("sh|-c|curl -u a:b http://h", "sh|-c|curl -u a:*** http://h"),
            ("sh|-c|x; curl -su 'a:b c' h | d", "sh|-c|x; curl -su 'a:***' h | d"),
            ("ssh|h|curl -u a:b h", "ssh|h|curl -u a:*** h"),
            ("bash|-ec|sh -c 'curl -u a:b h'", "bash|-ec|sh -c 'curl -u a:*** h'"),
            ("bash|-lc|x --token a; y", "bash|-lc|x --token ***; y"),
            ("curl|-HX-Api-Key: a|h", "curl|-HX-Api-Key:***|***"),
            ("wget|--header=X-Api-Key: a|h", "wget|--header=X-Api-Key:***|h"),
            ("sh|-c|curl -H 'X-Api-Key: a' h", "sh|-c|curl -H 'X-Api-Key:***' h"),
            ("sh|-c|curl -H'X-Api-Key: a' h", "sh|-c|curl -H'X-Api-Key:***' h"),
            ("curl|-d|{\"password\":\"a b\",\"c\":1}", "curl|-d|{\"password\":***,\"c\":1}"),
            ("x|{'apiKey' : 'a'}|{\"pass\": 1}", "x|{'apiKey' : ***}|{\"pass\": 1}"),
            ("sh|-c|x \"{\\\"token\\\":\\\"a\\\"}\"", "sh|-c|x \"{\\\"token\\\":***}\""),
            ("x|{\"password\": 12, \"x\": 3}", "x|{\"password\": ***, \"x\": 3}"),
            ("x|--api-key:a|b", "x|--api-key:***|***"),
            ("x|MY_SECRET_THING = a", "x|MY_SECRET_THING = ***"),
            ("x| password = 'a b' ", "x| password = *** "),
            ("curl|--oauth2-bearer|a|h", "curl|--oauth2-bearer|***|h"),
            ("curl|-x|u:p@proxy:1|h", "curl|-x|u:***@proxy:1|h"),
            ("curl|--proxy=http://u:p@proxy:1|h", "curl|--proxy=http://u:***@proxy:1|h"),
            ("git|clone|https://ghp_0123456789abcdefghij@h/x", "git|clone|https://***@h/x"),
            ("x|http://u:p@h http://u:q@h", "x|http://u:***@h http://u:***@h"),
            ("x|passwd=a b|c", "x|passwd=***|c"),
            ("sh|-c|A=1 API_TOKEN=x y", "sh|-c|A=1 API_TOKEN=*** y"),
            ("http|h|Cookie: session=a", "http|h|Cookie: ***"),
            ("sh|-c|x 'Cookie: a=b; c=d' h", "sh|-c|x 'Cookie: ***' h"),
        ] {
            is_masked(words, expected);
        }
    }

    #[test]
    fn ordinary_commands_have_no_secrets() {
        for plain in [
            "echo|user: name|passwd: files|cookie: none|a: b=c",
            "psql|--user=postgres|-c|select * from t where a_key = 5",
            "mysql|-u|root|-h|db:3306",
            "chown|-R|user:group|/x",
            "sh|-c|chown user:group x && docker run -u 1000:1000 --user=1:2 y",
            "git|clone|git@github.com:x/y|ssh://git@host/|https://user@host/",
            "git|clone|https://first.last%40example.com@host-of-a-team-0123456789/",
            "git|commit|-m|add --token and --api-key to the options",
            "curl|-sSfLo|out|-x|proxy:3128|--proxy=http://proxy:1|-T|a:b|http://h",
            "sh|-c|curl -u \"$USER:$PW\" -H 'X-Api-Key: $KEY' http://h | jq .token",
            "sh|-c|curl -d '{\"password\":\"'\"$PW\"'\"}' --oauth2-bearer \"$(cat f)\" h",
            "curl|-d|{\"key\": \"lang\", \"max_tokens\": 100, \"token\": null, \"monkey\": \"a\"}",
            "jq|{\"token\": .x}",
            "awk|{ key = $1; print key }",
            "python3|-c|key = sys.argv[1]",
            "sh|-c|docker login --password-stdin -u x; y --token-file /run/z; sort --key 2",
            "x|--passwd-file=/etc/x|--passwd-file:/etc/x",
            "rsync|-au|a:b|c",
            "getent|passwd|root",
        ] {
            is_plain(plain);
        }
    }

    #[test]
    fn a_url_is_shown_without_its_credentials() {
        assert_eq!(masked_url("http://u:p@h:1/a@b"), "http://***@h:1/a@b");
        assert_eq!(masked_url("https://token@h"), "https://***@h");
        assert_eq!(masked_url("u:p@h"), "***@h");
        assert_eq!(masked_url("http://h/x"), "http://h/x");
    }
}
