//! A connection that shares tubes with others. It sends one command at a time: it puts jobs, reserves jobs and ends them, disconnects
//! and reconnects. Replies about jobs that it holds must be exact; all others are compared with the book.

use crate::beanstalk::{Client, Reply};
use crate::chance::Chance;
use crate::queues::book::{Book, TUBES};
use crate::queues::owner::expect;
use crate::queues::tubes::{FOR_EVER_S, is_kept};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// The maximum number of jobs that it holds.
const HELD_MAX: usize = 4;

/// A client.
pub(crate) struct Sharer {
    number: u64,
    chance: Chance,
    /// The jobs that it holds.
    held: Vec<u64>,
    /// Its reservations since the last reply that implies a sync.
    passing: Vec<u64>,
    bodies: u64,
}

impl Sharer {
    pub(crate) fn new(number: u64, seed: u64) -> Self {
        Self {
            number,
            chance: Chance::new(seed ^ (number << 40)),
            held: Vec::new(),
            passing: Vec::new(),
            bodies: 0,
        }
    }

    /// Works until the server is killed, over connections that close and reopen, counting answers.
    pub(crate) fn work(&mut self, address: SocketAddr, answered: &AtomicU64, book: &Book) {
        while let Ok(client) = Client::connect(address) {
            if self.connected(client, answered, book).is_err() {
                break;
            }
            self.part_with_all(book);
        }
        self.held.clear();
        self.passing.clear();
    }

    /// Works for a random number of steps on one connection.
    fn connected(
        &mut self,
        mut client: Client,
        answered: &AtomicU64,
        book: &Book,
    ) -> io::Result<()> {
        for (name, count) in TUBES.iter().zip(2..) {
            expect(&mut client, &format!("watch {name}"), &format!("WATCHING {count}"))?;
        }
        expect(&mut client, "ignore default", "WATCHING 2")?;
        for _ in 0..20 + self.chance.below(200) {
            self.step(&mut client, book)?;
            answered.fetch_add(1, Ordering::Relaxed);
        }
        // The connection is about to close, after which other connections can reserve its jobs.
        self.part_with_all(book);
        Ok(())
    }

    fn part_with_all(&mut self, book: &Book) {
        let mut pages = book.open();
        for id in self.held.drain(..) {
            pages.parting(id);
        }
    }

    fn step(&mut self, client: &mut Client, book: &Book) -> io::Result<()> {
        match self.chance.below(10) {
            0..=2 => self.put(client, book),
            3..=5 if self.held.len() < HELD_MAX => self.reserve(client, book),
            6 => self.see_to_one_aside(client, book),
            _ => self.finish(client, book),
        }
    }

    fn put(&mut self, client: &mut Client, book: &Book) -> io::Result<()> {
        self.bodies += 1;
        let body = format!("shared {} {}", self.number, self.bodies);
        let tube = if self.chance.below(2) == 0 { TUBES[0] } else { TUBES[1] };
        expect(client, &format!("use {tube}"), &format!("USING {tube}"))?;
        book.open().put(body.as_bytes());
        let (priority, bytes) = (self.chance.below(3), body.len());
        let reply = client.ask(&format!("put {priority} 0 {FOR_EVER_S} {bytes}\r\n{body}"))?;
        let id = reply.number("INSERTED");
        let id = id.unwrap_or_else(|| panic!("it is taken, not {reply:?}"));
        let mut pages = book.open();
        pages.inserted(id);
        pages.known_or_gone(id, body.as_bytes());
        drop(pages);
        self.kept(&reply, book);
        Ok(())
    }

    /// Reserves a job, waiting for at most a second.
    fn reserve(&mut self, client: &mut Client, book: &Book) -> io::Result<()> {
        book.open().reserving += 1;
        let seconds = self.chance.below(2);
        let reply = client.ask(&format!("reserve-with-timeout {seconds}"))?;
        let mut pages = book.open();
        pages.reserving -= 1;
        if let Some(id) = reply.number("RESERVED") {
            pages.reserved(id, &reply.body, self.number);
            self.held.push(id);
            self.passing.push(id);
        } else {
            assert_eq!(reply, Reply::line("TIMED_OUT"));
        }
        Ok(())
    }

    /// Touches, deletes, buries or releases a job that it holds.
    fn finish(&mut self, client: &mut Client, book: &Book) -> io::Result<()> {
        let Some(id) = self.held.first().copied() else {
            return self.reserve(client, book);
        };
        let what = self.chance.below(8);
        if what == 0 {
            return expect(client, &format!("touch {id}"), "TOUCHED");
        }
        self.held.remove(0);
        let mut delay = 0;
        let (command, word) = match what {
            1..=4 => {
                book.open().ending(id);
                (format!("delete {id}"), "DELETED")
            }
            5 => {
                book.open().parting(id).buries.most += 1;
                (format!("bury {id} 1"), "BURIED")
            }
            _ => {
                book.open().parting(id).releases.most += 1;
                delay = self.chance.below(2) * FOR_EVER_S;
                (format!("release {id} 1 {delay}"), "RELEASED")
            }
        };
        let reply = client.ask(&command)?;
        assert_eq!(reply, Reply::line(word), "{command}");
        let mut pages = book.open();
        match word {
            "DELETED" => pages.deleted(id),
            "BURIED" => {
                pages.known(id).buries.least += 1;
                pages.aside.push(id);
            }
            _ if delay > 0 => {
                pages.known(id).releases.least += 1;
                pages.aside.push(id);
            }
            // Another connection may already have reserved and deleted the job.
            _ => pages.released(id),
        }
        drop(pages);
        self.kept(&reply, book);
        Ok(())
    }

    /// Kicks or deletes a job that is buried or delayed. No other connection works on it meanwhile.
    fn see_to_one_aside(&mut self, client: &mut Client, book: &Book) -> io::Result<()> {
        let mut pages = book.open();
        let Some(id) = pages.aside.pop() else {
            return Ok(());
        };
        let kicks = self.chance.below(3) > 0;
        let (command, word) = if kicks {
            pages.known(id).kicks.most += 1;
            (format!("kick-job {id}"), "KICKED")
        } else {
            pages.ending(id);
            (format!("delete {id}"), "DELETED")
        };
        drop(pages);
        let reply = client.ask(&command)?;
        assert_eq!(reply, Reply::line(word), "{command}");
        let mut pages = book.open();
        if kicks {
            pages.kicked(id);
        } else {
            pages.deleted(id);
        }
        drop(pages);
        self.kept(&reply, book);
        Ok(())
    }

    /// Records that the change in this reply, and everything before it, is on disk.
    fn kept(&mut self, reply: &Reply, book: &Book) {
        assert!(is_kept(reply), "{reply:?}");
        book.open().reserves_kept(self.passing.drain(..));
    }
}
