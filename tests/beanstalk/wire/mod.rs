//! Dialogues over the beanstalkd listener, which `dialogues.txt` contains. Where beanstalkd is installed, all except
//! those about extensions are also run against it, to prove that they are right.

use crate::beanstalkd::{Client, Server};
use crate::left_out::left_out;
use crate::patience::{PATIENCE, until};
use std::collections::BTreeMap;
use std::time::Duration;

/// The timeout for a reply of beanstalkd. `PEER_TRIES` is the maximum number of attempts at a dialogue.
const PEER_PATIENCE: Duration = Duration::from_secs(8);
const PEER_TRIES: u32 = 8;

struct Dialogue {
    name: &'static str,
    /// Whether it uses an extension that beanstalkd does not have.
    is_extension: bool,
    /// Each line's number in the file, connection, action and text.
    lines: Vec<(usize, &'static str, char, &'static str)>,
}

fn dialogues() -> Vec<Dialogue> {
    let mut dialogues: Vec<Dialogue> = Vec::new();
    for (number, line) in include_str!("dialogues.txt").lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix("== ") {
            dialogues.push(Dialogue {
                name,
                is_extension: name.starts_with("extension: "),
                lines: Vec::new(),
            });
            continue;
        }
        let (who, rest) = line.split_once(' ').expect("a line names its client");
        let (what, words) = rest.split_at(1);
        let dialogue = dialogues.last_mut().expect("a dialogue has a name");
        let what = what.chars().next().expect("the line is not empty");
        let words = words.strip_prefix(' ').unwrap_or(words);
        dialogue.lines.push((number + 1, who, what, words));
    }
    dialogues
}

/// Converts `|` to `\r\n`, and `\0` to a zero byte.
fn bytes(words: &str) -> Vec<u8> {
    words.replace('|', "\r\n").replace("\\0", "\0").into_bytes()
}

/// Returns whether a reply is as written, up to a final `...`. Quotes are ignored.
fn is_so(reply: &[u8], words: &str) -> bool {
    let reply = String::from_utf8_lossy(reply).replace('"', "");
    let reply = reply.trim_end_matches("\r\n").replace("\r\n", "|");
    let reply = reply.replace('\n', "\\n");
    match words.strip_suffix("...") {
        Some(begin) => reply.starts_with(begin),
        None => reply == words,
    }
}

/// Runs a dialogue. Returns whether every reply arrived in time.
fn hold(dialogue: &Dialogue, server: &Server, patience: Duration) -> bool {
    let mut clients: BTreeMap<&str, Client> = BTreeMap::new();
    let mut observer = server.connect();
    let mut last: Vec<u8> = Vec::new();
    for (number, who, what, words) in &dialogue.lines {
        let place = format!("dialogues.txt:{number}: {}", dialogue.name);
        let connect = || server.connect_for(patience);
        let client = clients.entry(who).or_insert_with(connect);
        match what {
            '>' => client.send(&[bytes(words), b"\r\n".to_vec()].concat()),
            // Sends without a line end.
            '/' => client.send(&bytes(words)),
            '<' => {
                let Ok(reply) = client.try_reply() else {
                    return false;
                };
                last = reply.unwrap_or_default();
                let found = last.escape_ascii();
                assert!(is_so(&last, words), "{place}: {found}");
            }
            // Checks that the last reply contains a line.
            '~' => {
                let text = String::from_utf8_lossy(&last).replace('"', "");
                assert!(text.lines().any(|line| line == *words), "{place}: {text}");
            }
            // Waits until this number of connections wait, including this one, or until the statistics contain a line.
            '?' => until(&place, || {
                let found = observer.ask("stats");
                let waiting = if words.contains(':') {
                    (*words).to_owned()
                } else {
                    format!("current-waiting: {words}")
                };
                found.lines().any(|line| line == waiting).then_some(())
            }),
            '.' => client.end(),
            'x' => assert_eq!(client.rest(), b"", "{place}"),
            '-' => drop(clients.remove(who)),
            other => panic!("{place}: {other} is not an action"),
        }
    }
    true
}

#[test]
fn dialogues_are_held_as_written() {
    for dialogue in dialogues() {
        let is_held = hold(&dialogue, &Server::sexton(&[]), PATIENCE);
        assert!(is_held, "{}: no answer", dialogue.name);
    }
}

/// beanstalkd 1.12 misses about one in four expiring claims of connections that send nothing while another connection
/// waits. So a dialogue is repeated if a reply is missing.
#[test]
fn beanstalkd_holds_them_too() {
    for dialogue in dialogues().iter().filter(|it| !it.is_extension) {
        let mut is_held = false;
        for _ in 0..PEER_TRIES {
            let (server, _) = match Server::beanstalkd() {
                Ok(server) => server,
                Err(words) => {
                    left_out(format!("the same dialogues with beanstalkd, {words}"));
                    return;
                }
            };
            is_held = hold(dialogue, &server, PEER_PATIENCE);
            if is_held {
                break;
            }
        }
        assert!(is_held, "{}: no answer of beanstalkd", dialogue.name);
    }
}
