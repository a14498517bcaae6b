//! One client: handles its requests one after another until either side ends the connection.
//!
//! Everything is bounded: the size of heads and bodies, the time they take to arrive, and the time that an answer may go
//! unread. A violation is answered with a problem document if possible, and ends the connection.

use crate::access::{self, Admission, Gate, Peer, Rules};
use crate::call::{Caller, Rollback};
use crate::idempotency;
use crate::page::frame;
use crate::problem::{self, Problem};
use crate::revocation::Revocation;
use crate::shared::Shared;
use actix_http::body::{BodySize, BoxBody, MessageBody as _};
use actix_http::error::ParseError;
use actix_http::h1::{Codec, Message, MessageType};
use actix_http::{ConnectionType, HttpMessage as _, Request, RequestHead, Response, ServiceConfig};
use actix_web::dev::{Service, ServiceResponse};
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::http::{Method, Version};
use actix_web::web::{Bytes, BytesMut};
use actix_web::{HttpResponse, ResponseError as _};
use sexton::refusal::Reason;
use sexton::spine::budget::Reservation;
use std::future::{pending, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Notify, watch};
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_util::codec::{Decoder as _, Encoder as _};

/// The maximum size of a request's head, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// How long a connection may be idle between requests.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// The maximum time from the first byte of a request to its last.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum time for which a part of an answer may go unread.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum size of an answer, in bytes, that does not count as unread: the number of connections bounds these.
const SMALL_BYTES: u64 = 16 * 1024;

/// The size of the output buffer, in bytes, at which it is written to the socket.
const WRITE_BYTES: usize = 64 * 1024;

/// The maximum size of the output buffer that a connection keeps between answers, in bytes.
const KEPT_BYTES: usize = 8 * 1024;

/// The maximum time for which further input is read and discarded when a connection ends.
const LINGER: Duration = Duration::from_secs(1);
/// The maximum amount of input that is read and discarded when a connection ends, in bytes.
const LINGER_BYTES: usize = 1 << 20;
/// The size of the buffer for discarded input, in bytes.
const UNREAD_BYTES: usize = 4096;

/// The application that answers requests.
pub(crate) trait App:
    Service<Request, Response = ServiceResponse<BoxBody>, Error = actix_web::Error> + 'static
{
}

impl<S> App for S where
    S: Service<Request, Response = ServiceResponse<BoxBody>, Error = actix_web::Error> + 'static
{
}

/// A connection over any kind of socket.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// One client's protocol state.
pub(crate) struct Session<IO> {
    stream: IO,
    peer: Peer,
    codec: Codec,
    input: BytesMut,
    output: BytesMut,
    /// The memory reserved for a request's body, until the request is answered.
    unfinished: Reservation,
    shared: Arc<Shared>,
}

/// How the server ends a connection.
enum End {
    /// Without a last answer.
    Quietly,
    /// With a problem document as the last answer.
    With(Problem),
    /// With this last answer.
    Answered(HttpResponse),
}

impl End {
    /// Ends the connection with a refusal of this request.
    fn of(problem: &Problem, request: &Request) -> Self {
        Self::Answered(refusal(problem, request.path(), request.head()))
    }
}

/// Returns a refusal in the form that the path requires: a page for what browsers load, and otherwise a problem document.
fn refusal(problem: &Problem, path: &str, head: &RequestHead) -> HttpResponse {
    match Gate::of(path) {
        Gate::Token => problem.error_response(),
        Gate::Page | Gate::Open => frame::refused(problem, head),
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        tracing::debug!(%error, "a connection failed");
        Self::Quietly
    }
}

impl<IO: Stream> Session<IO> {
    pub(crate) fn new(stream: IO, peer: Peer, config: ServiceConfig, shared: Arc<Shared>) -> Self {
        Self {
            stream,
            peer,
            codec: Codec::new(config),
            input: BytesMut::new(),
            output: BytesMut::new(),
            unfinished: Reservation::new(&shared.room(peer).unfinished),
            shared,
        }
    }

    /// Serves the connection until either side closes it, no request arrives for `IDLE_MAX`, or the listener closes and no request is
    /// pending.
    pub(crate) async fn serve<A: App>(mut self, app: Rc<A>, mut closing: watch::Receiver<bool>) {
        let end = loop {
            let asked = tokio::select! {
                biased;
                begun = timeout(IDLE_MAX, self.begin()) => begun.unwrap_or(Ok(false)),
                _ = closing.wait_for(|closing| *closing) => Ok(false),
            };
            match asked {
                Ok(true) => {}
                Ok(false) => break End::Quietly,
                Err(error) => break error.into(),
            }
            let exchanged = self.exchange(app.as_ref(), &closing).await;
            self.unfinished.release();
            match exchanged {
                // A client that has already sent its next request must not keep other clients waiting.
                Ok(()) if self.codec.keep_alive() => yield_now().await,
                Ok(()) => break End::Quietly,
                Err(end) => break end,
            }
        };
        match end {
            End::Quietly => {}
            End::With(problem) => self.refuse(problem.error_response()).await,
            End::Answered(answer) => self.refuse(answer).await,
        }
        self.finish().await;
    }

    /// Answers with a problem before any request is read, and ends the connection.
    pub(crate) async fn reject(mut self, problem: &Problem) {
        self.refuse(problem.error_response()).await;
        self.finish().await;
    }

    /// Waits for the first byte of a request. Returns whether there is one; `false` means that the client has closed its side.
    async fn begin(&mut self) -> io::Result<bool> {
        Ok(!self.input.is_empty() || self.read().await? > 0)
    }

    /// Reads one request and answers it. An error ends the connection.
    async fn exchange<A: App>(
        &mut self,
        app: &A,
        closing: &watch::Receiver<bool>,
    ) -> Result<(), End> {
        let (request, Admission { scopes, credential }) =
            timeout(REQUEST_TIMEOUT, self.request()).await.map_err(|_| {
                End::With(Problem::new(Reason::TooSlow, "the request took too long to arrive"))
            })??;
        let knows_chunks = request.version() > Version::HTTP_10;
        let gone = Rc::new(Notify::new());
        let revocation = Revocation::new(Arc::clone(&self.shared), credential);
        // The token may have been removed while the body arrived.
        revocation.check().map_err(|problem| End::of(&problem, &request))?;
        let sender = (self.peer, scopes, revocation.clone());
        let caller = Caller::new(Rc::clone(&gone), closing.clone(), sender);
        request.extensions_mut().insert(caller);
        let mut answering = pin!(app.call(request));
        let answer = tokio::select! {
            biased;
            answer = &mut answering => answer,
            () = self.gone() => {
                // The client may have closed only its sending side, and still be reading.
                gone.notify_one();
                answering.await
            }
        };
        let mut unread = Reservation::new(&self.shared.room(self.peer).unread);
        let response: Response<BoxBody> = match answer {
            Ok(response) => bounded(response, &mut unread).into(),
            Err(error) => {
                Problem::instead_of(error.as_response_error().status_code()).error_response().into()
            }
        };
        let content_type = response.headers().get(header::CONTENT_TYPE);
        let mut response = if problem::is_bare(response.status(), content_type) {
            Problem::instead_of(response.status()).error_response().into()
        } else {
            response
        };
        if response.body().size() == BodySize::Stream && !knows_chunks {
            // Without chunks, the end of the connection marks the end of the answer.
            let head = response.head_mut();
            head.no_chunking(true);
            head.set_connection_type(ConnectionType::Close);
        }
        Ok(self.answer(response, Some(&revocation)).await?)
    }

    /// Resolves when the client closes its sending side, a read fails, or [`HEAD_BYTES_MAX`] bytes are buffered. Beyond that, a close would
    /// go unnoticed, and a request must not wait for a client that may be gone. The bytes read stay in `input`.
    async fn gone(&mut self) {
        while self.input.len() < HEAD_BYTES_MAX {
            if matches!(self.read().await, Ok(0) | Err(_)) {
                return;
            }
        }
    }

    /// Reads a request with its complete body. Returns the request, and what its sender may do. The error says how the
    /// connection ends if the request is not accepted.
    async fn request(&mut self) -> Result<(Request, Admission), End> {
        let mut request = match self.next(HEAD_BYTES_MAX).await? {
            Some(Message::Item(request)) => request,
            Some(Message::Chunk(_)) => unreachable!("a body is read with its request"),
            None => return Err(self.too_long_a_head()),
        };
        let tokens = self.shared.tokens();
        let rules = Rules {
            names: &self.shared.names,
            lets_others_in: self.shared.lets_others_in,
            tokens: tokens.as_deref(),
            guesses: &self.shared.guesses,
            is_private: self.shared.is_private(),
            now: self.shared.date(),
        };
        let admission = access::check(request.head(), self.peer, &rules);
        let admission = admission.map_err(|problem| End::of(&problem, &request))?;
        match self.codec.message_type() {
            MessageType::None => Ok((request, admission)),
            MessageType::Payload => {
                let body = self.body(&request).await?;
                *request.payload() = body.into();
                Ok((request, admission))
            }
            MessageType::Stream => Err(End::With(Problem::new(
                Reason::NotUpgraded,
                "this connection uses HTTP/1.1 and cannot be upgraded",
            ))),
        }
    }

    /// Refuses a request whose head is too large to be read. A browser, which sends the cookies of all ports of a host to each of them, is
    /// shown a page.
    fn too_long_a_head(&self) -> End {
        let mut words = format!(
            "the head of a request may have at most {HEAD_BYTES_MAX} bytes, and 96 headers"
        );
        let mut line = self.input[..].split(|byte| *byte == b' ').skip(1);
        let path = line.next().and_then(|target| std::str::from_utf8(target).ok());
        let path = path.and_then(|target| target.split('?').next()).unwrap_or_default();
        if Gate::of(path) != Gate::Token {
            words.push_str(". Browsers send the cookies of all ports of a host: delete those of this host in the browser, or load the page under another name of the machine, such as 127.0.0.1 in place of localhost");
        }
        let problem = Problem::new(Reason::HeadTooLarge, words);
        End::Answered(refusal(&problem, path, &RequestHead::default()))
    }

    async fn body(&mut self, request: &Request) -> Result<Bytes, End> {
        let bytes_max = self.shared.body_bytes_max(request.path());
        let too_large = || {
            End::With(Problem::new(
                Reason::TooLarge,
                format!("the body of a request to this path may have at most {bytes_max} bytes"),
            ))
        };
        let announced = request.headers().get(header::CONTENT_LENGTH);
        let announced = announced.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        if announced.is_some_and(|length| length > bytes_max) {
            return Err(too_large());
        }
        if request.head().expect() {
            self.output.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            self.flush().await?;
        }
        let mut body = BytesMut::new();
        loop {
            match self.next(bytes_max).await? {
                Some(Message::Chunk(None)) => return Ok(body.freeze()),
                Some(Message::Chunk(Some(chunk))) => {
                    if body.len() + chunk.len() > bytes_max {
                        return Err(too_large());
                    }
                    body.extend_from_slice(&chunk);
                    if !self.unfinished.set(body.capacity()) {
                        return Err(End::With(Problem::new(
                            Reason::Crowded,
                            "unfinished requests hold too many bytes: try again later",
                        )));
                    }
                }
                Some(Message::Item(_)) => unreachable!("a body ends before the next request"),
                None => return Err(too_large()),
            }
        }
    }

    /// Returns the next part of a request: its head, or a chunk of its body. Returns `None` if the part is longer than `bytes_max`.
    async fn next(&mut self, bytes_max: usize) -> Result<Option<Message<Request>>, End> {
        loop {
            match self.codec.decode(&mut self.input) {
                Ok(Some(message)) => return Ok(Some(message)),
                Ok(None) if self.input.len() >= bytes_max => return Ok(None),
                Ok(None) if self.read().await? == 0 => return Err(End::Quietly),
                Ok(None) => {}
                Err(ParseError::TooLarge) => return Ok(None),
                Err(error) => {
                    return Err(End::With(Problem::new(
                        Reason::NotHttp,
                        format!("this is not HTTP/1.1: {error}"),
                    )));
                }
            }
        }
    }

    /// Reads once, and returns the number of bytes read, or 0 if the client has closed its side. Fills the buffer only up to the maximum
    /// size of a head, so that a longer head is not accepted.
    async fn read(&mut self) -> io::Result<usize> {
        let room = HEAD_BYTES_MAX.saturating_sub(self.input.len()).max(1);
        self.input.reserve(room.min(4096));
        (&mut self.stream).take(room as u64).read_buf(&mut self.input).await
    }

    /// Writes an answer. If that fails, runs the answer's rollback, if there is one.
    async fn answer(
        &mut self,
        mut response: Response<BoxBody>,
        revocation: Option<&Revocation>,
    ) -> io::Result<()> {
        let rollback = response.extensions_mut().remove::<Rollback>();
        self.write(response, revocation).await?;
        if let Some(rollback) = rollback {
            rollback.delivered();
        }
        Ok(())
    }

    async fn write(
        &mut self,
        mut response: Response<BoxBody>,
        revocation: Option<&Revocation>,
    ) -> io::Result<()> {
        self.shared.counters.answer(response.status());
        let nosniff = HeaderValue::from_static("nosniff");
        let no_store = HeaderValue::from_static("no-store");
        let headers = response.headers_mut();
        headers.insert(HeaderName::from_static("x-content-type-options"), nosniff);
        headers.insert(header::CACHE_CONTROL, no_store);
        let (response, body) = response.into_parts();
        let size = body.size();
        // The body of a large answer holds its permit, so it must live until the answer is written.
        let mut body = pin!(body);
        let head = Message::Item((response, size));
        self.codec.encode(head, &mut self.output)?;
        if !matches!(size, BodySize::None | BodySize::Sized(0)) {
            // An answer that is complete when it begins is sent to its end.
            let revocation = revocation.filter(|_| size == BodySize::Stream);
            while let Some(mut part) = self.part(body.as_mut(), revocation).await? {
                while !part.is_empty() {
                    let chunk = part.split_to(part.len().min(WRITE_BYTES));
                    self.codec.encode(Message::Chunk(Some(chunk)), &mut self.output)?;
                    // A stream does its own buffering, and its next part may not be available for a long time.
                    if size == BodySize::Stream || self.output.len() >= WRITE_BYTES {
                        self.flush().await?;
                    }
                }
            }
            self.codec.encode(Message::Chunk(None), &mut self.output)?;
        }
        self.flush().await
    }

    /// Returns the next part of an answer, or `None` at its end, when the client has closed its side of the connection, or when its token does
    /// not count any more. Writes buffered output before waiting for the part.
    async fn part(
        &mut self,
        mut body: Pin<&mut BoxBody>,
        revocation: Option<&Revocation>,
    ) -> io::Result<Option<Bytes>> {
        if revocation.is_some_and(|it| it.check().is_err()) {
            return Ok(None);
        }
        let revoked = async {
            match revocation {
                Some(revocation) => drop(revocation.revoked().await),
                None => pending().await,
            }
        };
        let at_once = poll_fn(|context| Poll::Ready(body.as_mut().poll_next(context)));
        let part = match at_once.await {
            Poll::Ready(part) => part,
            Poll::Pending => {
                self.flush().await?;
                // Thousands of streams may be waiting, so a stream with nothing to send keeps no buffer.
                self.output = BytesMut::new();
                tokio::select! {
                    biased;
                    () = revoked => None,
                    part = poll_fn(|context| body.as_mut().poll_next(context)) => part,
                    () = self.gone() => None,
                }
            }
        };
        let failed = |error: Box<dyn std::error::Error>| io::Error::other(error.to_string());
        part.transpose().map_err(failed)
    }

    async fn flush(&mut self) -> io::Result<()> {
        let write = async {
            self.stream.write_all(&self.output).await?;
            // Data accepted by the TLS layer is not necessarily written to the socket yet.
            self.stream.flush().await
        };
        let written = timeout(WRITE_TIMEOUT, write).await;
        self.output.clear();
        // An idle connection keeps no large output buffer.
        if self.output.capacity() > KEPT_BYTES {
            self.output = BytesMut::new();
        }
        written?
    }

    /// Answers with a refusal that ends the connection. Uses a new codec, since the old one may be in the middle of a request.
    async fn refuse(&mut self, refusal: HttpResponse) {
        let mut response: Response<BoxBody> = refusal.into();
        response.head_mut().set_connection_type(ConnectionType::Close);
        let config = self.codec.config().clone();
        self.codec = Codec::new(config);
        self.output.clear();
        if let Err(error) = self.answer(response, None).await {
            tracing::debug!(%error, "a refusal was not delivered");
        }
    }

    async fn finish(self) {
        end(self.stream).await;
    }
}

/// Reserves memory for an answer until it is written. If there is not enough, returns a refusal in its place, provided that it may be
/// refused although the request has been carried out: because the request changed nothing, or what it changed is undone, or it can be
/// repeated with its idempotency key.
fn bounded(answer: ServiceResponse<BoxBody>, unread: &mut Reservation) -> ServiceResponse<BoxBody> {
    let BodySize::Sized(bytes @ SMALL_BYTES..) = answer.response().body().size() else {
        return answer;
    };
    let has_room = unread.grow(usize::try_from(bytes).unwrap_or(usize::MAX));
    let head = answer.request().head();
    let may_be_refused = matches!(head.method, Method::GET | Method::HEAD)
        || head.headers.contains_key(idempotency::HEADER)
        || answer.response().extensions().contains::<Rollback>();
    if has_room || unread.is_alone() || !may_be_refused {
        return answer;
    }
    let words = "the answers that clients have not read hold too many bytes: try again later";
    let problem = Problem::new(Reason::Large, words);
    let refusal = refusal(&problem, head.uri.path(), head);
    answer.into_response(refusal)
}

/// Ends a connection so that the data written still arrives: closing a socket that has unread bytes would reset the connection.
async fn end(mut stream: impl Stream) {
    let unread = async {
        // With TLS, a shutdown sends a closing message. The client may fail to read even that, so the timeout includes the shutdown.
        if stream.shutdown().await.is_err() {
            return;
        }
        let mut left = LINGER_BYTES;
        let mut unread = BytesMut::with_capacity(UNREAD_BYTES);
        while left > 0 {
            unread.clear();
            match stream.read_buf(&mut unread).await {
                Ok(0) | Err(_) => return,
                Ok(read) => left = left.saturating_sub(read),
            }
        }
    };
    // Returning closes the socket, whether or not the client has closed its side.
    drop(timeout(LINGER, unread).await);
}

#[cfg(test)]
mod tests {
    use super::{Session, end};
    use crate::access::Peer;
    use crate::capacity::Capacity;
    use crate::counters::Counters;
    use crate::guesses::Guesses;
    use crate::queue_rates::QueueRates;
    use crate::rates::Rates;
    use crate::revocation::Revocation;
    use crate::shared::Shared;
    use crate::token::Tokens;
    use actix_http::{Request, ServiceConfig};
    use actix_service::fn_service;
    use actix_web::HttpResponse;
    use actix_web::dev::ServiceResponse;
    use actix_web::test::TestRequest;
    use serde_json::value::RawValue;
    use sexton::clock::ManualClock;
    use sexton::config::HttpConfig;
    use sexton::spine::budget::Budget;
    use std::cell::Cell;
    use std::io;
    use std::net::Ipv4Addr;
    use std::pin::Pin;
    use std::rc::Rc;
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Poll};
    use std::time::Duration;
    use tokio::io::{
        AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex,
    };
    use tokio::sync::watch;
    use tokio::task::{LocalSet, spawn_local, yield_now};

    /// A connection whose peer neither reads nor writes.
    struct Stuck;

    impl AsyncRead for Stuck {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Stuck {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Pending
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    #[test]
    fn a_client_that_takes_not_even_the_end_is_left() {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().expect("a runtime can be built");
        runtime.block_on(end(Stuck));
    }

    /// Returns the state of a listener with this clock, without tokens.
    fn shared(clock: Arc<ManualClock>) -> Shared {
        let room = || Capacity::new(&HttpConfig::default(), &Budget::new(0));
        Shared {
            counters: Counters::default(),
            names: Vec::new(),
            lets_others_in: false,
            token_file: None,
            tokens: watch::Sender::default(),
            tls_files: None,
            identity: Mutex::default(),
            connections_max: 1,
            request_bytes_max: 0,
            tcp: room(),
            unix: room(),
            own: room(),
            long: [""; 6],
            inventory: "",
            description: RawValue::NULL,
            clock,
            rates: Rates::default(),
            guesses: Guesses::default(),
            queue_rates: QueueRates::default(),
        }
    }

    /// Begins a session that answers every request with a body of this size. Returns the client's end of its connection, which holds few bytes.
    fn answering(
        bytes: usize,
        shared: &Arc<Shared>,
        closing: &watch::Sender<bool>,
    ) -> DuplexStream {
        let app = fn_service(move |_: Request| {
            let request = TestRequest::default().to_http_request();
            let response = HttpResponse::Ok().body("x".repeat(bytes));
            async { Ok(ServiceResponse::new(request, response)) }
        });
        let (client, ours) = duplex(1 << 10);
        let local = Ipv4Addr::LOCALHOST.into();
        let peer = Peer::Tcp { local, remote: local, user: None };
        let session = Session::new(ours, peer, ServiceConfig::default(), Arc::clone(shared));
        drop(spawn_local(session.serve(Rc::new(app), closing.subscribe())));
        client
    }

    async fn status(client: &mut DuplexStream) -> String {
        let mut head = [0; 12];
        client.read_exact(&mut head).await.expect("the connection is open");
        String::from_utf8(head.to_vec()).expect("a head is text")
    }

    #[test]
    fn answers_that_nobody_reads_are_bounded_over_all_connections() {
        const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().expect("a runtime can be built");
        LocalSet::new().block_on(&runtime, async {
            let mut shared = shared(Arc::default());
            shared.tcp.unread = Budget::new(250_000);
            let (shared, (closing, _closed)) = (Arc::new(shared), watch::channel(false));
            let mut unread = Vec::new();
            for expected in ["HTTP/1.1 200", "HTTP/1.1 200", "HTTP/1.1 503", "HTTP/1.1 503"] {
                let mut client = answering(100_000, &shared, &closing);
                client.write_all(REQUEST).await.expect("the connection is open");
                assert_eq!(status(&mut client).await, expected);
                unread.push(client);
            }
            let mut small = answering(1000, &shared, &closing);
            small.write_all(REQUEST).await.expect("the connection is open");
            assert_eq!(status(&mut small).await, "HTTP/1.1 200", "a small answer");
            let mut rest = Vec::new();
            unread.remove(0).read_to_end(&mut rest).await.expect("the connection is open");
            assert!(rest.len() > 100_000, "the first answer is complete");
            let mut client = answering(100_000, &shared, &closing);
            client.write_all(REQUEST).await.expect("the connection is open");
            assert_eq!(status(&mut client).await, "HTTP/1.1 200", "there is room again");
            drop((unread, client));
            while shared.tcp.unread.held() > 0 {
                yield_now().await;
            }
            // One answer may be larger than the bound.
            let mut client = answering(300_000, &shared, &closing);
            client.write_all(REQUEST).await.expect("the connection is open");
            assert_eq!(status(&mut client).await, "HTTP/1.1 200");
        });
    }

    #[test]
    fn a_login_counts_until_its_date() {
        let clock = Arc::new(ManualClock::default());
        let shared = Arc::new(shared(Arc::clone(&clock)));
        let tokens = Arc::new(Tokens::parse(b"0123456789abcdef").expect("a valid token"));
        shared.tokens.send_replace(Some(Arc::clone(&tokens)));
        let until = shared.date().plus_ms(60_000);
        let login =
            tokens.login(b"0123456789abcdef", (until, None)).expect("it is one of the tokens");
        let credential = tokens.find_login(&login, (shared.date(), None));
        assert!(credential.is_some());
        let revocation = Revocation::new(Arc::clone(&shared), credential);
        revocation.check().expect("the login counts");
        clock.advance(Duration::from_secs(59));
        revocation.check().expect("the login counts");
        clock.advance(Duration::from_secs(1));
        revocation.check().expect_err("the login has expired");
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().expect("a runtime can be built");
        drop(runtime.block_on(revocation.revoked()));
        let without = Revocation::new(shared, None);
        without.check().expect("it needed no token");
    }

    #[test]
    fn however_much_one_sends_ahead_others_have_their_turn_after_each_answer() {
        const SENT_AHEAD: usize = 100;
        const TURNS: usize = 10;
        let answered = Rc::new(Cell::new(0));
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().expect("a runtime can be built");
        LocalSet::new().block_on(&runtime, async {
            let (mut client, ours) = duplex(1 << 20);
            let request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
            let requests = request.repeat(SENT_AHEAD);
            client.write_all(requests.as_bytes()).await.expect("the connection is open");
            let count = Rc::clone(&answered);
            let app = fn_service(move |_: Request| {
                count.set(count.get() + 1);
                let request = TestRequest::default().to_http_request();
                let response = HttpResponse::Ok().finish();
                async { Ok(ServiceResponse::new(request, response)) }
            });
            let local = Ipv4Addr::LOCALHOST.into();
            let peer = Peer::Tcp { local, remote: local, user: None };
            let session = Session::new(
                ours,
                peer,
                ServiceConfig::default(),
                Arc::new(shared(Arc::default())),
            );
            let (closing, closed) = watch::channel(false);
            let serving = spawn_local(session.serve(Rc::new(app), closed));
            for _ in 0..TURNS {
                yield_now().await;
            }
            let before = answered.get();
            assert!((1..=TURNS + 1).contains(&before), "{before} answers");
            while answered.get() < SENT_AHEAD {
                yield_now().await;
            }
            drop(client);
            serving.await.expect("no panic");
            drop(closing);
        });
    }
}
