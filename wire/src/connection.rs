//! Moves bytes from a socket to a session and back. A connection has at most one batch of unanswered commands, and the node stops
//! reading from a client that does not read its answers. This bounds the memory that a client can make the node hold.

use crate::session::{NextStep, Session};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

/// The maximum number of bytes read before commands are carried out.
const READ_BYTES: usize = 64 * 1024;

/// The number of bytes that a connection reads without waiting for its turn. Thousands of connections may be ready at once, and share a
/// thread with everything else: if each of them read all it could, tasks would wait for seconds.
const LITTLE_BYTES: usize = 2 * 1024;

/// The maximum size of the output buffer that a connection keeps between answers, in bytes.
const KEPT_BYTES: usize = 16 * 1024;

/// The maximum number of bytes buffered for a client that waits for an answer. Beyond that, nothing is read until the answer is written or
/// the client closes its side.
const AHEAD_BYTES_MAX: usize = 16 * 1024;

/// The maximum time for which a write may make no progress because the client does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum time to wait for a client to close its side after the last write.
const LINGER: Duration = Duration::from_secs(1);

/// The maximum number of bytes to read and discard while waiting for a client to close its side.
const LINGER_BYTES: usize = 1 << 20;

/// A connected TCP or Unix socket.
pub(crate) trait Stream {
    fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize>;
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;
    async fn readable(&self) -> io::Result<()>;
    async fn writable(&self) -> io::Result<()>;
    /// Resolves when the client has closed its side, even if data that it sent before is still unread.
    async fn ended(&self) -> io::Result<()>;
    /// Shuts down the writing side.
    async fn end(&mut self) -> io::Result<()>;
}

macro_rules! stream {
    ($socket:ty) => {
        impl Stream for $socket {
            fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
                let mut read = 0;
                let drained = self.try_io(Interest::READABLE, || {
                    (read, _) = recv(self, &mut *bytes, RecvFlags::empty())?;
                    // The read did not fill the buffer. Another read would only confirm that no more data is available,
                    // and costs as much as a useful one; readiness is signalled again when more arrives.
                    if (1..bytes.len()).contains(&read) {
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    Ok(())
                });
                match drained {
                    Err(error) if read == 0 => Err(error),
                    Ok(()) | Err(_) => Ok(read),
                }
            }
            fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
                self.try_io(Interest::WRITABLE, || Ok(send(self, bytes, SendFlags::NOSIGNAL)?))
            }
            async fn readable(&self) -> io::Result<()> {
                // Only one task reads, so this need not use `readable` of tokio, which maintains a list of waiting tasks.
                poll_fn(|context| self.poll_read_ready(context)).await
            }
            async fn writable(&self) -> io::Result<()> {
                <$socket>::writable(self).await
            }
            async fn ended(&self) -> io::Result<()> {
                // Connections here use no urgent data, so this interest reports only that the client has closed its side.
                self.ready(Interest::PRIORITY).await.map(drop)
            }
            async fn end(&mut self) -> io::Result<()> {
                self.shutdown().await
            }
        }
    };
}

stream!(TcpStream);
stream!(UnixStream);

thread_local! {
    // One buffer serves all connections of a thread, so idle connections need none.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// Serves a connection until either side closes it, or until nothing arrives within `idle` or within the session's timeout, whichever is
/// shorter. `None` means no limit.
pub(crate) async fn serve<S: Session>(
    stream: &impl Stream,
    session: &mut S,
    idle: Option<Duration>,
) -> io::Result<()> {
    let mut rest = Vec::new();
    let mut output = Vec::new();
    loop {
        if rest.is_empty() {
            // Frees the memory of data that the client sent ahead.
            rest = Vec::new();
        }
        match [idle, session.timeout()].into_iter().flatten().min() {
            None => stream.readable().await?,
            Some(span) => match timeout(span, stream.readable()).await {
                Ok(readable) => readable?,
                Err(_) => return Ok(()),
            },
        }
        match read(stream, session, &mut rest, LITTLE_BYTES) {
            Ok(0) => return Ok(()),
            Ok(LITTLE_BYTES) => read_more(stream, session, &mut rest).await?,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        }
        loop {
            let then = session.perform(&mut output).await;
            write(stream, &output).await?;
            session.answered();
            output.clear();
            if output.capacity() > KEPT_BYTES {
                output = Vec::new();
            }
            match then {
                NextStep::Close => return Ok(()),
                NextStep::Wait => {
                    tokio::select! {
                        () = session.wait(&mut output) => {}
                        ended = read_ahead(stream, &mut rest) => {
                            ended?;
                            session.give_up(&mut output).await;
                        }
                    }
                    continue;
                }
                NextStep::Again => {
                    session.turns().pass().await;
                    continue;
                }
                NextStep::Continue => {}
            }
            if rest.is_empty() {
                break;
            }
            // Gives other clients a turn, in case this one sends without pause.
            session.turns().pass().await;
            let taken = session.take(&rest);
            rest.drain(..taken);
            if taken == 0 {
                break;
            }
        }
    }
}

/// Reads the rest of what the client has sent, up to `READ_BYTES` in all, when it is the connection's turn.
async fn read_more<S: Session>(
    stream: &impl Stream,
    session: &mut S,
    rest: &mut Vec<u8>,
) -> io::Result<()> {
    session.turns().pass().await;
    match read(stream, session, rest, READ_BYTES - LITTLE_BYTES) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        // If the client has closed its side, the next read finds that, too.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Reads once, at most `bytes_max` bytes, and offers the available bytes to the session; `rest` keeps the bytes that the session does not
/// take.
fn read<S: Session>(
    stream: &impl Stream,
    session: &mut S,
    rest: &mut Vec<u8>,
    bytes_max: usize,
) -> io::Result<usize> {
    SCRATCH.with_borrow_mut(|scratch| {
        let read = stream.try_read(scratch.get_mut(..bytes_max).unwrap_or(&mut []))?;
        let bytes = scratch.get(..read).unwrap_or(&[]);
        if rest.is_empty() {
            let taken = session.take(bytes);
            rest.extend_from_slice(bytes.get(taken..).unwrap_or(&[]));
        } else {
            rest.extend_from_slice(bytes);
            let taken = session.take(rest);
            rest.drain(..taken);
        }
        Ok(read)
    })
}

/// Buffers at most `AHEAD_BYTES_MAX` bytes of what a client sends, and resolves when the client has closed its side.
async fn read_ahead(stream: &impl Stream, rest: &mut Vec<u8>) -> io::Result<()> {
    while rest.len() < AHEAD_BYTES_MAX {
        stream.readable().await?;
        let read = SCRATCH.with_borrow_mut(|scratch| {
            let room = scratch.len().min(AHEAD_BYTES_MAX - rest.len());
            let read = stream.try_read(scratch.get_mut(..room).unwrap_or(&mut []))?;
            rest.extend_from_slice(scratch.get(..read).unwrap_or(&[]));
            Ok::<_, io::Error>(read)
        });
        match read {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    stream.ended().await
}

/// Closes a connection so that the data written still arrives: closing a socket that has unread bytes would reset the connection.
///
/// Waits at most `LINGER` for the client to close its side, and discards at most `LINGER_BYTES` that arrive meanwhile.
pub(crate) async fn finish(mut stream: impl Stream) {
    if stream.end().await.is_err() {
        return;
    }
    let unread = async {
        let mut left = LINGER_BYTES;
        while left > 0 && stream.readable().await.is_ok() {
            let read = SCRATCH.with_borrow_mut(|scratch| stream.try_read(scratch));
            match read {
                Ok(0) => return,
                Ok(read) => left = left.saturating_sub(read),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    };
    // It makes no difference whether the client closed its side or the wait timed out.
    drop(timeout(LINGER, unread).await);
}

/// Writes all of `bytes`, or fails if the client reads nothing for `WRITE_TIMEOUT`.
pub(crate) async fn write(stream: &impl Stream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or(&[]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                timeout(WRITE_TIMEOUT, stream.writable()).await??;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{READ_BYTES, Stream, serve};
    use crate::bounds::{TURNS_MAX, Turns};
    use crate::session::{NextStep, Session};
    use std::cell::Cell;
    use std::io;
    use std::rc::Rc;
    use tokio::task::{LocalSet, spawn_local, yield_now};

    /// The number of times a task is rescheduled before it is done.
    const HOPS: usize = 10;

    /// The connection of a client that always has more to send, and reads everything.
    struct Busy;

    impl Stream for Busy {
        fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        async fn readable(&self) -> io::Result<()> {
            Ok(())
        }
        async fn writable(&self) -> io::Result<()> {
            Ok(())
        }
        async fn ended(&self) -> io::Result<()> {
            Ok(())
        }
        async fn end(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Counts the bytes that all sessions take, and writes as many.
    struct Echo {
        turns: Turns,
        taken: Rc<Cell<usize>>,
        unanswered: usize,
    }

    impl Session for Echo {
        fn take(&mut self, input: &[u8]) -> usize {
            self.taken.set(self.taken.get() + input.len());
            self.unanswered += input.len();
            input.len()
        }
        async fn perform(&mut self, output: &mut Vec<u8>) -> NextStep {
            if self.unanswered == 0 {
                return NextStep::Continue;
            }
            output.push(0);
            self.unanswered = 0;
            NextStep::Again
        }
        fn turns(&self) -> &Turns {
            &self.turns
        }
    }

    /// Returns the number of bytes that are taken from this number of clients while a task is rescheduled `HOPS` times.
    fn taken_during_a_task(clients: usize) -> usize {
        let (turns, taken) = (Turns::default(), Rc::new(Cell::new(0)));
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().expect("a runtime can be built");
        LocalSet::new().block_on(&runtime, async {
            for _ in 0..clients {
                let (turns, taken) = (turns.clone(), Rc::clone(&taken));
                let mut session = Echo { turns, taken, unanswered: 0 };
                drop(spawn_local(async move {
                    serve(&Busy, &mut session, None).await.expect("the connection never fails");
                }));
            }
            // Each has begun, and several have gone on.
            while taken.get() < 2 * clients * READ_BYTES {
                yield_now().await;
            }
            let task = spawn_local(async move {
                let before = taken.get();
                for _ in 0..HOPS {
                    yield_now().await;
                }
                taken.get() - before
            });
            task.await.expect("no panic")
        })
    }

    #[test]
    fn however_many_clients_send_without_pause_other_tasks_wait_for_few_of_them() {
        for clients in [1, 100, 2000] {
            let taken = taken_during_a_task(clients);
            assert!(taken > 0, "nothing was taken from {clients} clients");
            assert!(taken <= (HOPS + 1) * TURNS_MAX * READ_BYTES, "{taken} from {clients}");
        }
    }
}
