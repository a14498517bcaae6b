//! A client of event streams, which reads the events one by one, and the end of the stream.

#![expect(clippy::indexing_slicing, reason = "an incomplete event fails the test")]

use crate::opened::{Opened, TOKEN};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

/// A stream of events.
pub(crate) struct Listener {
    reader: BufReader<TcpStream>,
    /// Text that was received but not parsed yet.
    rest: String,
}

/// A parsed event.
#[derive(Debug)]
pub(crate) struct ReceivedEvent {
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) data: Value,
}

impl Listener {
    /// Opens a stream at this target. Returns once the client is sure to receive all further events.
    pub(crate) fn new(opened: &Opened, target: &str, headers: &str) -> Self {
        let mut stream = opened.connect();
        let head = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n");
        let token = format!("Authorization: Bearer {TOKEN}\r\n");
        let request = format!("{head}{token}{headers}\r\n");
        stream.write_all(request.as_bytes()).expect("connected");
        let mut listener = Self { reader: BufReader::new(stream), rest: String::new() };
        assert_eq!(listener.line(), "HTTP/1.1 200 OK");
        let mut head = Vec::new();
        loop {
            let line = listener.line().to_lowercase();
            if line.is_empty() {
                break;
            }
            head.push(line);
        }
        for expected in ["content-type: text/event-stream", "cache-control: no-store"] {
            assert!(head.iter().any(|line| line == expected), "{head:?}");
        }
        assert_eq!(listener.block().as_deref(), Some(":"));
        listener
    }

    /// Reads the next event. Returns `None` at the end of the stream.
    pub(crate) fn next(&mut self) -> Option<ReceivedEvent> {
        loop {
            let block = self.block()?;
            if block == ":" {
                continue;
            }
            let mut lines = block.lines();
            let mut field = |name: &str| {
                let line = lines.next().and_then(|line| line.strip_prefix(name));
                line.unwrap_or_else(|| panic!("no {name} in {block:?}"))
            };
            let told = ReceivedEvent {
                id: field("id: ").to_owned(),
                kind: field("event: ").to_owned(),
                data: serde_json::from_str(field("data: ")).expect("valid JSON"),
            };
            assert_eq!(lines.next(), None);
            assert_eq!(told.data["kind"], told.kind.as_str());
            if !["lost", "ahead"].contains(&told.kind.as_str()) {
                assert_eq!(told.data["position"], told.id.as_str());
            }
            return Some(told);
        }
    }

    /// Reads the next events, which must be of these kinds, in this order.
    pub(crate) fn receive(&mut self, kinds: &[&str]) -> Vec<ReceivedEvent> {
        let told: Vec<ReceivedEvent> = kinds.iter().map_while(|_| self.next()).collect();
        let found: Vec<&str> = told.iter().map(|told| told.kind.as_str()).collect();
        assert_eq!(found, kinds, "{told:?}");
        told
    }

    /// Reads the text up to the next empty line. Returns `None` at the end of the stream.
    fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.rest.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.rest = rest;
                return Some(block);
            }
            let size = usize::from_str_radix(&self.line(), 16).expect("a chunk says its size");
            let mut chunk = vec![0; size];
            self.reader.read_exact(&mut chunk).expect("it is complete");
            assert_eq!(self.line(), "");
            if size == 0 {
                assert_eq!(self.rest, "", "an event is whole");
                return None;
            }
            self.rest.push_str(std::str::from_utf8(&chunk).expect("a part is text"));
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line).expect("UTF-8");
        assert!(read > 0, "the stream was cut off");
        line.truncate(line.trim_end().len());
        line
    }
}
