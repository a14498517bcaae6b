//! What the commands of the beanstalkd and LockServer protocols, which have neither tokens nor users, do to a job and a lock on which a process
//! depends: each command of the codecs, sent about both. `verbs.txt` records the answers; record it again with `UPDATE=1`.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::opened::Opened;
use crate::rights::{Bound, compare};
use serde_json::Value;
use sexton::config::Address;
use sexton::config::BeanstalkConfig;
use sexton_wire::{beanstalk, lockserver};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

fn node() -> Opened {
    Opened::configured(|config| {
        config.beanstalk = Some(BeanstalkConfig {
            address: Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))),
            ..BeanstalkConfig::default()
        });
    })
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    let patience = Some(Duration::from_secs(30));
    stream.set_read_timeout(patience).expect("the option can be set");
    stream
}

/// Returns the job and the lock on which the process depends, without what changes with time.
fn depended_on(node: &Opened, bound: &Bound) -> (Value, Value) {
    let mut job = node.get_over_socket(&format!("/v1/queues/job?id={}", bound.job)).json();
    let lock = node.get_over_socket("/v1/locks/owner?key=bound").json();
    let job_fields = ["id", "queue", "phase", "token", "process", "priority", "claims"];
    job.as_object_mut().expect("an object").retain(|name, _| job_fields.contains(&name.as_str()));
    assert_eq!(job.as_object().map(serde_json::Map::len), Some(job_fields.len()), "{job}");
    let lock = ["owner", "token", "process"].map(|name| lock[name].clone());
    (job, lock.into())
}

/// Returns the requests of a verb about a job and its tube, without line ends.
fn about_job(verb: &str, id: u64) -> Vec<String> {
    match verb {
        "put" => vec!["put 0 0 60 1\r\nx".to_owned(), "put 0 0 60 1 idp:k\r\nx".to_owned()],
        "delete" | "reserve-job" | "touch" | "peek" | "kick-job" | "stats-job" | "delete-batch" => {
            vec![format!("{verb} {id}")]
        }
        "release" => vec![format!("release {id} 0 0")],
        "bury" => vec![format!("bury {id} 0")],
        "reserve-with-timeout" => vec!["reserve-with-timeout 0".to_owned()],
        "reserve-mode" => vec!["reserve-mode weighted".to_owned()],
        "reserve-batch" => vec!["reserve-batch 1000".to_owned()],
        "kick" => vec!["kick 1000".to_owned()],
        "pause-tube" => vec!["pause-tube bound 3600".to_owned(), "pause-tube bound 0".to_owned()],
        "use" | "watch" | "ignore" | "stats-tube" | "flush-tube" => vec![format!("{verb} bound")],
        "reserve" | "peek-ready" | "peek-delayed" | "peek-buried" | "stats" | "quit"
        | "list-tubes" | "list-tubes-watched" | "list-tube-used" => vec![verb.to_owned()],
        _ => panic!("there is no request for the verb {verb}"),
    }
}

/// Sends a request on a connection of its own that uses and watches the tube. Returns the line of the reply.
fn said(node: &Opened, request: &str) -> String {
    let Some(Address::Tcp(address)) = node.handle().listeners().beanstalk else {
        panic!("the listener is open");
    };
    let mut stream = connect(address);
    let begin = "watch bound\r\nuse bound\r\n";
    stream.write_all(format!("{begin}{request}\r\n").as_bytes()).expect("connected");
    let mut lines = BufReader::new(stream).lines();
    let mut next = || lines.next().map(|line| line.expect("a line of text"));
    assert_eq!(next().as_deref(), Some("WATCHING 2"));
    assert_eq!(next().as_deref(), Some("USING bound"));
    let Some(line) = next() else {
        return "the connection is closed".to_owned();
    };
    // The text has not always the same length.
    if line.starts_with("OK ") { "OK, and text".to_owned() } else { line }
}

fn name(name: &str) -> Vec<u8> {
    let length = u8::try_from(name.len()).expect("a short name");
    [&[length][..], name.as_bytes()].concat()
}

/// Returns the arguments of a LockServer command about the lock, for each way to name it, with what they say.
fn about_lock(code: u8) -> Vec<(&'static str, Vec<u8>)> {
    let lock = [name("bound"), name("")].concat();
    let every = [name("bound"), name("*")].concat();
    let of = |owner: &str| [lock.clone(), name(owner)].concat();
    let request = |owner: &str| [of(owner), vec![0, 1, 0, 1, 0]].concat();
    match code {
        1 => vec![("the lock", lock)],
        2 => vec![("as its owner", request("owner")), ("as another owner", request("other"))],
        3 => vec![("its owner", of("owner"))],
        4 => vec![("as its owner", of("owner"))],
        5 => vec![
            ("as its owner", of("owner")),
            ("every index, as its owner", [every, name("owner")].concat()),
        ],
        6 => vec![("as its owner", name("owner"))],
        7 => vec![("its key", name("bound"))],
        8 => vec![("", Vec::new())],
        _ => panic!("there is no request for the command {code:02}"),
    }
}

/// Sends a LockServer command on a connection of its own. Returns the answer, or only that there is one if it contains more than a number.
fn answered(node: &Opened, code: u8, arguments: &[u8]) -> String {
    let mut stream = connect(node.handle().listeners().lockserver.expect("the listener is open"));
    stream.write_all(&[&[code], arguments].concat()).expect("connected");
    let mut read = |bytes: usize| {
        let mut read = vec![0; bytes];
        stream.read_exact(&mut read).expect("an answer");
        read
    };
    assert_eq!(read(1), [1], "the greeting");
    let number = |bytes: Vec<u8>| bytes.iter().fold(0, |sum, byte| sum * 256 + u32::from(*byte));
    match code {
        1 => {
            let length = read(1)[0];
            format!("the owner is {:?}", String::from_utf8(read(length.into())).expect("text"))
        }
        4 => number(read(1)).to_string(),
        7 => format!("{} listed", number(read(2))),
        8 => {
            read(1);
            "the statistics".to_owned()
        }
        _ => number(read(2)).to_string(),
    }
}

fn record() -> String {
    let mut text = String::from(
        "What the commands of the beanstalkd and LockServer protocols are answered about a job whose claim, and a lock, are bound to a\n\
         process. After each of them, job, claim and lock are as they were. Made by tests/http/verbs.rs, with UPDATE=1.\n\n",
    );
    let mut row = |of: &str, verb: &str, request: &str, answer: &str| {
        let line = format!("{of:11} {verb:21} {request:28} {answer}");
        writeln!(text, "{}", line.trim_end()).expect("a string");
    };
    row("protocol", "command", "request", "answer");
    for verb in beanstalk::verbs() {
        for nth in 0..about_job(verb, 0).len() {
            let node = node();
            let bound = Bound::to(&node);
            // Another job of the tube, on which no process depends.
            said(&node, "put 9 0 60 1\r\nx");
            let before = depended_on(&node, &bound);
            let request = about_job(verb, bound.job).swap_remove(nth);
            let answer = said(&node, &request);
            assert_eq!(depended_on(&node, &bound), before, "{request}");
            let shown = about_job(verb, 1).swap_remove(nth).replace("\r\n", " ");
            row("beanstalkd", verb, &shown, &answer);
        }
    }
    for (code, verb) in (1..).zip(lockserver::codec::COMMANDS) {
        for (about, arguments) in about_lock(code) {
            let node = node();
            let bound = Bound::to(&node);
            let before = depended_on(&node, &bound);
            let answer = answered(&node, code, &arguments);
            assert_eq!(depended_on(&node, &bound), before, "{code:02} {about}");
            row("LockServer", &format!("{code:02} {verb}"), about, &answer);
        }
    }
    text
}

#[test]
fn what_each_command_without_a_token_does_to_what_a_process_depends_on_is_recorded() {
    let recorded = record();
    compare("tests/http/verbs.txt", |_| recorded);
}
