//! The sockets on which processes send notices: one for each process that sends them, so that a notice belongs to a process even if its
//! sender, often a short-lived program, has exited before the notice is read.
//!
//! A socket is a file that only the user of the process can write to: in the data directory or, for a process of another user, who has no
//! access to that, in a directory of root in `/run`. Its name is the id of the process, so it is found again after a restart of the
//! coordinator, and nobody else can create it meanwhile. Where no file can be created, because its path would be too long or `/run` cannot be written,
//! the socket has an unguessable name in the abstract namespace, and notices of other users are ignored.

use crate::ids::ProcessId;
use crate::kernel::credentials::{Datagram, Receiver};
use crate::kernel::file;
use crate::ports::process::reporting::Reporting;
use rustix::event::epoll;
use rustix::fs::{FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The directory of the sockets in the data directory.
const DIR: &str = "notify";

/// The lowest epoll token of these sockets.
pub(super) const INBOXES: u64 = 1 << 63;

/// The socket of one process.
#[derive(Debug)]
struct Inbox {
    id: ProcessId,
    receiver: Receiver,
    /// The user of the process, if the socket is one to which anyone can send.
    only: Option<u32>,
}

/// The sockets of all processes that send notices.
#[derive(Debug, Default)]
pub(super) struct Inboxes {
    data: Option<PathBuf>,
    /// The key from which unguessable names are derived.
    reporting: Option<Reporting>,
    epoll: Option<OwnedFd>,
    open: BTreeMap<u64, Inbox>,
    tokens: BTreeMap<ProcessId, u64>,
    next: u64,
    /// Whether there may be files of sockets.
    has_files: bool,
}

impl Inboxes {
    /// Creates the set of sockets of a data directory, which are registered with `epoll`.
    pub(super) fn new(data: Option<&Path>, reporting: Option<Reporting>, epoll: &OwnedFd) -> Self {
        let has_files = data.is_some_and(|data| rustix::fs::lstat(data.join(DIR)).is_ok());
        Self {
            data: data.map(Path::to_owned),
            reporting,
            epoll: epoll.try_clone().ok(),
            next: INBOXES,
            has_files,
            ..Self::default()
        }
    }

    /// Creates the socket of a process that is about to be launched as this user and group; `None` for our own. Returns its address, as in
    /// `NOTIFY_SOCKET`.
    ///
    /// # Errors
    /// Returns an error if there is no data directory or no socket can be created.
    pub(super) fn create(
        &mut self,
        id: ProcessId,
        user: Option<(u32, u32)>,
    ) -> io::Result<Vec<u8>> {
        let data = self.data.clone().ok_or(io::ErrorKind::NotFound)?;
        let own = rustix::process::geteuid().as_raw();
        let other = user.filter(|(user, _)| *user != own);
        let dir = data.join(DIR);
        make_dir(&dir, Mode::RWXU)?;
        self.has_files = true;
        let shared = || -> io::Result<PathBuf> {
            let dir = shared(&data);
            make_dir(&dir, Mode::RWXU | Mode::XGRP | Mode::XOTH)?;
            Ok(dir)
        };
        let by_path = match other {
            None => Ok(dir.join(name(id))),
            Some(_) => shared().map(|shared| shared.join(name(id))),
        };
        let bound = by_path.and_then(|path| -> io::Result<PathBuf> {
            self.add((id, None), at_path(&path, other)?)?;
            Ok(path)
        });
        let error = match bound {
            Ok(path) => return Ok(path.into_os_string().into_encoded_bytes()),
            Err(error) => error,
        };
        tracing::debug!(process = %id, %error, "its notices arrive on an abstract socket");
        let user = other.map_or(own, |(user, _)| user);
        // The file shows, after a restart, that the socket has no file, and which user sends to it.
        write(&dir.join(name(id)), user)?;
        let name = self.abstract_name(id).ok_or(error)?;
        self.add((id, Some(user)), at_name(&name)?)?;
        Ok(format!("@{name}").into_bytes())
    }

    /// Opens the socket of a process that was launched before a restart of the coordinator. Does nothing if the process has none: it was
    /// launched by a version whose processes shared a socket.
    pub(super) fn reopen(&mut self, id: ProcessId) {
        if self.tokens.contains_key(&id) {
            return;
        }
        if let Err(error) = self.try_reopen(id) {
            tracing::warn!(process = %id, %error, "failed to open the socket for its notices");
        }
    }

    fn try_reopen(&mut self, id: ProcessId) -> io::Result<()> {
        let Some(data) = self.data.clone() else {
            return Ok(());
        };
        for dir in [data.join(DIR), shared(&data)] {
            let path = dir.join(name(id));
            let found = match rustix::fs::lstat(&path) {
                Err(Errno::NOENT) => continue,
                found => found?,
            };
            if FileType::from_raw_mode(found.st_mode) == FileType::Socket {
                let own = rustix::process::geteuid().as_raw();
                let owner = Some((found.st_uid, found.st_gid)).filter(|(user, _)| *user != own);
                return self.add((id, None), at_path(&path, owner)?);
            }
            let user = read(&path)?;
            let name = self.abstract_name(id).ok_or(io::ErrorKind::NotFound)?;
            return self.add((id, Some(user)), at_name(&name)?);
        }
        Ok(())
    }

    /// Returns whether a process has a socket of its own.
    pub(super) fn has(&self, id: ProcessId) -> bool {
        self.tokens.contains_key(&id)
    }

    /// Receives the next datagram from the socket with this token, with the process that the socket belongs to. Datagrams of users that may
    /// not send to it are skipped.
    pub(super) fn receive(
        &self,
        token: u64,
        buffer: &mut [u8],
    ) -> io::Result<Option<(ProcessId, Datagram)>> {
        let Some(inbox) = self.open.get(&token) else {
            return Ok(None);
        };
        let own = rustix::process::geteuid().as_raw();
        while let Some(datagram) = inbox.receiver.receive(buffer)? {
            let may_send = inbox.only.is_none_or(|user| {
                let sender = datagram.sender.map(|sender| sender.user);
                sender.is_some_and(|sender| [0, own, user].contains(&sender))
            });
            if may_send {
                return Ok(Some((inbox.id, datagram)));
            }
        }
        Ok(None)
    }

    /// Closes and removes the socket of a process, if it has one.
    pub(super) fn remove(&mut self, id: ProcessId) {
        if let Some(token) = self.tokens.remove(&id) {
            self.open.remove(&token);
        }
        if let Some(data) = self.data.as_ref().filter(|_| self.has_files) {
            for dir in [data.join(DIR), shared(data)] {
                // Most processes have no such file.
                let _none = rustix::fs::unlink(dir.join(name(id)));
            }
        }
    }

    fn add(&mut self, (id, only): (ProcessId, Option<u32>), receiver: Receiver) -> io::Result<()> {
        let token = self.next;
        if let Some(epoll) = &self.epoll {
            let (data, flags) = (epoll::EventData::new_u64(token), epoll::EventFlags::IN);
            epoll::add(epoll, &receiver, data, flags)?;
        }
        self.next += 1;
        if let Some(before) = self.tokens.insert(id, token) {
            self.open.remove(&before);
        }
        let inbox = Inbox { id, receiver, only };
        self.open.insert(token, inbox);
        Ok(())
    }

    fn abstract_name(&self, id: ProcessId) -> Option<String> {
        let name = self.reporting.as_ref()?.name(id);
        Some(format!("sexton-notify/{name}"))
    }
}

/// Returns the name of the file of a process's socket.
fn name(id: ProcessId) -> String {
    format!("{:032x}", id.0)
}

/// Returns the directory of the sockets of other users' processes, which only root creates.
fn shared(data: &Path) -> PathBuf {
    let digest = xxhash_rust::xxh3::xxh3_64(data.as_os_str().as_encoded_bytes());
    PathBuf::from(format!("/run/sexton-{digest:016x}"))
}

/// Creates a directory, unless it exists. Fails if it is not ours alone to write to.
fn make_dir(dir: &Path, mode: Mode) -> io::Result<()> {
    match rustix::fs::mkdir(dir, mode) {
        Ok(()) => rustix::fs::chmod(dir, mode)?,
        Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let found = rustix::fs::lstat(dir)?;
    let is_dir = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
    let is_own = found.st_uid == rustix::process::geteuid().as_raw();
    if is_dir && is_own && found.st_mode & 0o022 == 0 {
        return Ok(());
    }
    let words = format!("{} is not a directory of our own", dir.display());
    Err(io::Error::other(words))
}

fn at_path(path: &Path, owner: Option<(u32, u32)>) -> io::Result<Receiver> {
    let address = SocketAddrUnix::new(path)?;
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let receiver = Receiver::bind(&address)?;
    rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR)?;
    if let Some((user, group)) = owner {
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        rustix::fs::chown(path, Some(user), Some(group))?;
    }
    Ok(receiver)
}

fn at_name(name: &str) -> io::Result<Receiver> {
    Receiver::bind(&SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// Writes the id of a user to a file.
fn write(path: &Path, user: u32) -> io::Result<()> {
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
    rustix::io::write(&file, user.to_string().as_bytes())?;
    Ok(())
}

/// Reads the id of a user from a file.
fn read(path: &Path) -> io::Result<u32> {
    let file = file::own(path, OFlags::RDONLY, Mode::empty())?;
    let mut text = [0; 16];
    let length = rustix::io::read(&file, &mut text)?;
    let text = text.get(..length).and_then(|it| std::str::from_utf8(it).ok());
    let user = text.and_then(|it| it.parse().ok());
    user.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::{INBOXES, Inboxes, name};
    use crate::ids::ProcessId;
    use crate::ports::process::reporting::Reporting;
    use rustix::event::epoll;
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    use std::path::Path;

    const ID: ProcessId = ProcessId(7);

    fn inboxes(data: &Path) -> Inboxes {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let reporting = Reporting::new([1; 32], data);
        Inboxes::new(Some(data), Some(reporting), &epoll)
    }

    fn received(inboxes: &Inboxes) -> Option<ProcessId> {
        let token = *inboxes.tokens.get(&ID)?;
        assert!(token >= INBOXES);
        let received = inboxes.receive(token, &mut [0; 64]).unwrap();
        received.map(|(id, _)| id)
    }

    #[test]
    fn a_notice_belongs_to_the_process_of_its_socket_also_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = inboxes(dir.path());
        let address = first.create(ID, None).unwrap();
        let path = String::from_utf8(address).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let sender = UnixDatagram::unbound().unwrap();
        sender.send_to(b"READY=1", &path).unwrap();
        assert_eq!((received(&first), received(&first)), (Some(ID), None));
        drop(first);
        let mut second = inboxes(dir.path());
        assert!(!second.has(ID));
        second.reopen(ID);
        sender.send_to(b"READY=1", &path).unwrap();
        assert_eq!(received(&second), Some(ID));
        second.remove(ID);
        assert!(!Path::new(&path).exists() && !second.has(ID));
        // A process that never had one gets none.
        second.reopen(ProcessId(8));
        assert!(!second.has(ProcessId(8)));
    }

    #[test]
    fn where_the_path_is_too_long_the_name_cannot_be_guessed() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("a".repeat(80));
        std::fs::create_dir(&data).unwrap();
        let mut first = inboxes(&data);
        let address = String::from_utf8(first.create(ID, None).unwrap()).unwrap();
        let abstract_name = address.strip_prefix('@').unwrap();
        assert!(!abstract_name.contains(&name(ID)));
        drop(first);
        let mut second = inboxes(&data);
        second.reopen(ID);
        let sender = UnixDatagram::unbound().unwrap();
        let to = SocketAddr::from_abstract_name(abstract_name).unwrap();
        sender.send_to_addr(b"READY=1", &to).unwrap();
        assert_eq!(received(&second), Some(ID));
    }
}
