//! Standard error and standard output that nobody reads: a pipe that is full, as that of a log collector that hangs.

use crate::daemon::{serve, text};
use crate::lockserver::{Client, find_owner};
use crate::patience::{PATIENCE, until};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter, Read as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus, Stdio};

/// What fills the pipe before the server starts.
const FILLING: u8 = b'.';

/// The number of requests that are logged while nobody reads: more than are kept for a reader.
const REQUESTS: usize = 20_000;

/// A server, of whose standard error the pipe is full.
struct Unread {
    child: Child,
    errors: BufReader<PipeReader>,
}

/// Returns both ends of a full pipe. The end for writing blocks, as that of every shell does.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (from, to) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&to, true).expect("a pipe");
    let mut piece = &[FILLING; 4096][..];
    while let Some(least) = piece.get(..1) {
        match rustix::io::write(&to, piece) {
            Ok(_) => {}
            Err(Errno::AGAIN) if piece.len() == 1 => break,
            Err(Errno::AGAIN) => piece = least,
            Err(error) => panic!("failed to fill a pipe: {error}"),
        }
    }
    rustix::io::ioctl_fionbio(&to, false).expect("a pipe");
    (from, to)
}

impl Unread {
    fn start(flags: &[&str]) -> (Self, SocketAddr) {
        let (from, to) = full_pipe();
        let mut command = serve(flags);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(to);
        let mut child = command.spawn().expect("the program runs");
        let mut ready = String::new();
        let out = child.stdout.take().expect("standard output is piped");
        let mut is_ready = [PollFd::new(&out, PollFlags::IN)];
        let limit = PATIENCE.try_into().expect("a minute");
        poll(&mut is_ready, Some(&limit)).expect("a pipe can be waited for");
        let unread = Self { child, errors: BufReader::new(from) };
        let [is_ready] = is_ready;
        assert!(!is_ready.revents().is_empty(), "the server waits for a reader of its log");
        BufReader::new(out).read_line(&mut ready).expect("a line");
        let address = ready.split_whitespace().find_map(|word| word.strip_prefix("lockserver="));
        let address = address.expect(&ready).parse().expect("an address");
        (unread, address)
    }

    fn stop(&mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("a live process");
        until("the server ends", || self.child.try_wait().expect("our child"))
    }

    /// Reads the log up to and including the first line that contains `words`.
    fn read_to(&mut self, words: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.errors.read_line(&mut line).expect("text"), 0, "no {words} in the log");
            let is_last = line.contains(words);
            lines.push(line.trim_start_matches(char::from(FILLING)).to_owned());
            if is_last {
                return lines;
            }
        }
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        // The process may already have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns which request a line of the log is about.
fn request_in(line: &str) -> Option<usize> {
    let (_, rest) = line.split_once("request-")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[test]
fn requests_are_answered_while_nobody_reads_the_log() {
    for format in ["text", "json"] {
        let (mut server, address) = Unread::start(&["--memory", "-d", "--log-format", format]);
        let mut client = Client::connect(address).expect("it accepts connections");
        for some in (0..REQUESTS).collect::<Vec<_>>().chunks(500) {
            let asked = some.iter().flat_map(|nth| find_owner(&format!("request-{nth}"), "i"));
            client.send(&asked.collect::<Vec<_>>()).expect("connected");
            let answers = client.receive(some.len()).expect("answers");
            assert!(answers.iter().all(|answer| *answer == 0), "no lock has an owner");
        }
        let lines = server.read_to("not logged: standard error was not read");
        let logged: Vec<usize> = lines.iter().filter_map(|line| request_in(line)).collect();
        assert!(logged.iter().copied().eq(0..logged.len()), "in order: {logged:?}");
        assert!(logged.len() > 1000, "{} lines were kept for a reader", logged.len());
        let last = lines.last().expect("the line with the count");
        let lost = format!("{} lines were not logged", REQUESTS - logged.len());
        assert!(last.contains(&lost), "{lost}: {last}");
        client.ask(&find_owner("request-1", "again"), 1).expect("an answer");
        let lines = server.read_to("again");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(server.stop().code(), Some(0));
        let mut rest = String::new();
        server.errors.read_to_string(&mut rest).expect("text");
        assert!(rest.contains("stopping"), "what was logged last is there: {rest}");
    }
}

#[test]
fn a_stop_does_not_wait_for_a_reader_of_the_log() {
    let (mut server, _) = Unread::start(&["--memory"]);
    assert_eq!(server.stop().code(), Some(0));
    // A failure is reported where the log is.
    let (_from, to) = full_pipe();
    let mut command = serve(&["--memory", "--lockserver", "192.0.2.1:1"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(to);
    let mut child = command.spawn().expect("the program runs");
    let status = until("the server ends", || child.try_wait().expect("our child"));
    assert_eq!(status.code(), Some(3));
}

/// Starts a server with these standard streams, connects to it, and stops it. Fails the test if it does not end cleanly.
fn serve_with(output: impl Into<Stdio>, errors: impl Into<Stdio>) {
    let data = tempfile::tempdir().expect("a temporary directory");
    let mut command = serve(&["--data", text(data.path()), "-d"]);
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    let mut child = command.spawn().expect("the program runs");
    let socket = data.path().join("sexton.sock");
    until("it listens", || UnixStream::connect(&socket).ok());
    kill_process(Pid::from_child(&child), Signal::TERM).expect("a live process");
    let status = until("the server ends", || child.try_wait().expect("our child"));
    assert_eq!(status.code(), Some(0));
}

#[test]
fn standard_output_need_not_be_read_nor_be_open() {
    let (_from, to) = full_pipe();
    serve_with(to, Stdio::null());
    let (from, to) = full_pipe();
    drop(from);
    serve_with(to, Stdio::null());
}

#[test]
fn a_log_whose_reader_has_gone_ends_nothing() {
    let (from, to) = full_pipe();
    drop(from);
    serve_with(Stdio::null(), to);
}
