//! A minimal LockServer client, which sends bytes and reads a given number of bytes. It does not use the crate's own
//! codec, so that a mistake in that codec cannot hide in the tests.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// How long a test waits for an answer before it fails.
const PATIENCE: Duration = Duration::from_mins(1);

/// The command for statistics.
pub(crate) const STATS: &[u8] = &[8];

/// A connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
}

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListedEntry {
    /// Its priority among contenders.
    pub(crate) priority: u8,
    /// The remaining time to live as the owner, in seconds.
    pub(crate) ttl: u16,
    /// The remaining time to wait as a contender, in seconds.
    pub(crate) ttw: u16,
    pub(crate) index: Vec<u8>,
    pub(crate) owner: Vec<u8>,
    /// Whether it owns the lock.
    pub(crate) owns: bool,
}

impl Client {
    /// Connects, and does not read the greeting.
    pub(crate) fn dial(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream })
    }

    /// Connects, and reads the greeting. Returns an error if the server did not accept the connection.
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let mut client = Self::dial(address)?;
        match client.receive(1)?.as_slice() {
            [1] => Ok(client),
            greeting => Err(io::Error::other(format!("greeted with {greeting:02x?}"))),
        }
    }

    /// Returns the socket.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends these bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Closes the sending side.
    pub(crate) fn end(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// Receives exactly this number of bytes.
    pub(crate) fn receive(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Receives everything until the server closes the connection.
    pub(crate) fn receive_all(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.stream.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Sends a command and reads an answer of `count` bytes.
    pub(crate) fn ask(&mut self, command: &[u8], count: usize) -> io::Result<Vec<u8>> {
        self.send(command)?;
        self.receive(count)
    }

    /// Sends a command whose reply is a number of two bytes. Returns the number.
    pub(crate) fn number(&mut self, command: &[u8]) -> io::Result<u16> {
        self.send(command)?;
        self.receive_number()
    }

    /// Receives a number of two bytes.
    pub(crate) fn receive_number(&mut self) -> io::Result<u16> {
        let bytes = self.receive(2)?;
        Ok(bytes.iter().fold(0, |sum, byte| sum << 8 | u16::from(*byte)))
    }

    /// Renews an entry. Returns whether it existed.
    pub(crate) fn renew(&mut self, key: &str, index: &str, owner: &str) -> io::Result<bool> {
        Ok(self.ask(&renew(key, index, owner), 1)? == [1])
    }

    /// Returns the owner of a lock. The name is empty if there is none.
    pub(crate) fn owner(&mut self, key: &str, index: &str) -> io::Result<Vec<u8>> {
        self.send(&find_owner(key, index))?;
        self.receive_name()
    }

    /// Returns every entry of a key.
    pub(crate) fn list(&mut self, key: &str) -> io::Result<Vec<ListedEntry>> {
        let count = self.number(&list(key))?;
        (0..count)
            .map(|_| {
                let priority = self.receive_byte()?;
                let ttl = self.receive_number()?;
                let ttw = self.receive_number()?;
                let index = self.receive_name()?;
                let owner = self.receive_name()?;
                let owns = self.receive_byte()? == 1;
                Ok(ListedEntry { priority, ttl, ttw, index, owner, owns })
            })
            .collect()
    }

    fn receive_byte(&mut self) -> io::Result<u8> {
        let bytes = self.receive(1)?;
        Ok(bytes.first().copied().expect("one byte was read"))
    }

    fn receive_name(&mut self) -> io::Result<Vec<u8>> {
        let len = self.receive_byte()?;
        self.receive(len.into())
    }
}

/// Encodes command 01, which finds the owner of a lock.
pub(crate) fn find_owner(key: &str, index: &str) -> Vec<u8> {
    command(1, &[key, index])
}

/// Encodes command 02, which requests a lock. The terms are seconds to live, seconds to wait, and priority.
pub(crate) fn request(key: &str, index: &str, owner: &str, terms: (u16, u16, u8)) -> Vec<u8> {
    let (ttl, ttw, priority) = terms;
    let mut bytes = command(2, &[key, index, owner]);
    bytes.extend_from_slice(&ttl.to_be_bytes());
    bytes.extend_from_slice(&ttw.to_be_bytes());
    bytes.push(priority);
    bytes
}

/// Encodes command 03, which finds a contender's position.
pub(crate) fn find_contender(key: &str, index: &str, owner: &str) -> Vec<u8> {
    command(3, &[key, index, owner])
}

/// Encodes command 04, which renews an entry.
pub(crate) fn renew(key: &str, index: &str, owner: &str) -> Vec<u8> {
    command(4, &[key, index, owner])
}

/// Encodes command 05, which releases a lock.
pub(crate) fn release(key: &str, index: &str, owner: &str) -> Vec<u8> {
    command(5, &[key, index, owner])
}

/// Encodes command 06, which releases all locks of an owner.
pub(crate) fn release_all(owner: &str) -> Vec<u8> {
    command(6, &[owner])
}

/// Encodes command 07, which lists the entries of a key.
pub(crate) fn list(key: &str) -> Vec<u8> {
    command(7, &[key])
}

fn command(code: u8, names: &[&str]) -> Vec<u8> {
    let mut bytes = vec![code];
    for name in names {
        bytes.push(u8::try_from(name.len()).expect("names have at most 255 bytes"));
        bytes.extend_from_slice(name.as_bytes());
    }
    bytes
}
