//! HTTP over TLS, which behaves in the same way as HTTP without TLS.

use crate::opened::{Answer, Opened, TOKEN, answers, read_all, write_private};
use sexton::config::{Config, HttpConfig};
use sexton::node::NodeError;
use sexton_http::OpenError;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A self-signed certificate and its key, in files.
struct Identity {
    certificate: PathBuf,
    key: PathBuf,
    der: CertificateDer<'static>,
    secret: String,
}

impl Identity {
    fn in_directory(directory: &Path, name: &str) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
        let made = made.expect("a certificate");
        let identity = Self {
            certificate: directory.join(format!("{name}.crt")),
            key: directory.join(format!("{name}.key")),
            der: made.cert.der().clone(),
            secret: made.signing_key.serialize_pem(),
        };
        write_private(&identity.certificate, &made.cert.pem());
        write_private(&identity.key, &identity.secret);
        identity
    }
}

fn opened() -> (Opened, Identity) {
    opened_with(|_, _| {})
}

fn opened_with(change: impl FnOnce(&mut HttpConfig, &Path)) -> (Opened, Identity) {
    let mut made = None;
    let opened = Opened::with(|http| {
        let socket = http.socket.clone().expect("a socket");
        let directory =
            socket.parent().and_then(Path::parent).expect("the socket is in a directory");
        change(http, directory);
        let identity = Identity::in_directory(directory, "own");
        http.tls_certificate = Some(identity.certificate.clone());
        http.tls_key = Some(identity.key.clone());
        made = Some(identity);
    });
    (opened, made.expect("it was just created"))
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Connects with a client that trusts only this certificate.
fn connect(opened: &Opened, trusted: &CertificateDer<'static>) -> Tls {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).expect("it is a certificate");
    let provider = tokio_rustls::rustls::crypto::ring::default_provider();
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .expect("there are versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let name = ServerName::try_from("localhost").expect("a valid name");
    let client = ClientConnection::new(Arc::new(config), name).expect("connected");
    StreamOwned::new(client, opened.connect())
}

fn ask(mut stream: Tls, request: &str) -> Answer {
    stream.write_all(request.as_bytes()).expect("connected");
    answers(&read_all(&mut stream)).pop().expect("an answer")
}

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

#[test]
fn a_login_over_tls_is_sent_back_over_tls_alone() {
    let (opened, identity) = opened_with(|http, directory| {
        let file = directory.join("token");
        write_private(&file, TOKEN);
        http.token_file = Some(file);
    });
    let body = format!("token={TOKEN}");
    let length = body.len();
    let head = "POST /page/enter HTTP/1.1\r\nHost: localhost:443\r\nConnection: close\r\nOrigin: https://localhost:443\r\n";
    let kind = "Content-Type: application/x-www-form-urlencoded\r\n";
    let request = format!("{head}{kind}Content-Length: {length}\r\n\r\n{body}");
    let entered = ask(connect(&opened, &identity.der), &request);
    assert_eq!(entered.status, 303, "{entered:?}");
    let cookie = entered.header("set-cookie").expect("the answer sets the header");
    assert!(cookie.starts_with("sexton-443="), "{cookie}");
    let attributes = "; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure";
    assert!(cookie.ends_with(attributes), "{cookie}");
}

#[test]
fn a_lock_is_taken_over_tls() {
    let (opened, identity) = opened();
    let body = r#"{"key":"a","owner":"o"}"#;
    let length = body.len();
    let head = "POST /v1/locks/acquire HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
    let granted = ask(connect(&opened, &identity.der), &request).json();
    assert_eq!(granted["place"], 1);
    let description =
        "GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let described = ask(connect(&opened, &identity.der), description).json();
    assert_eq!(described["openapi"], "3.1.0");
    // A body of unknown length arrives in parts, as the node sends it.
    let mut events = connect(&opened, &identity.der);
    events.write_all(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("connected");
    let mut begin = String::new();
    while !begin.ends_with(":\n\n\r\n") {
        let mut byte = [0];
        events.read_exact(&mut byte).expect("the stream stays open");
        begin.push(byte[0].into());
    }
    assert_eq!(events.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert_eq!(opened.get_over_socket("/healthz").status, 200, "the socket does not use TLS");
}

#[test]
fn who_speaks_no_tls_or_says_nothing_gets_no_answer_and_holds_up_nobody() {
    let (opened, identity) = opened();
    let silent: Vec<TcpStream> = (0..50).map(|_| opened.connect()).collect();
    let plain = {
        let mut stream = opened.connect();
        stream.write_all(HEALTH.as_bytes()).expect("connected");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("the end");
        bytes
    };
    assert!(!plain.starts_with(b"HTTP"), "{plain:?}");
    assert_eq!(ask(connect(&opened, &identity.der), HEALTH).status, 200);
    // A client that does not complete its handshake in time is disconnected.
    for mut stream in silent {
        assert_eq!(stream.read(&mut [0; 8]).expect("a clean end"), 0);
    }
    let stats = || opened.listener().stats();
    crate::lock::until(|| stats().active == 0);
}

/// Returns the niceness of this process's threads of that name.
fn niceness(name: &str) -> Vec<i32> {
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux has it");
    let of = |entry: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
        let (before, after) = stat.rsplit_once(") ")?;
        let is_it = before.ends_with(&format!("({name}"));
        is_it.then(|| after.split(' ').nth(16)?.parse().ok())?
    };
    threads.filter_map(of).collect()
}

/// Anybody who can connect may begin handshakes, each of which costs a signature.
#[test]
fn handshakes_have_a_thread_of_lower_priority_than_requests() {
    let (opened, identity) = opened();
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(ask(connect(&opened, &identity.der), request).status, 200);
    let found = niceness("sexton-tls");
    assert!(!found.is_empty() && found.iter().all(|nice| *nice > 0), "{found:?}");
    assert!(niceness("sexton-http").iter().any(|nice| *nice < 1), "requests are not slowed down");
}

#[test]
fn a_certificate_is_read_again() {
    let (opened, identity) = opened();
    let listener = opened.listener();
    assert_eq!(listener.reload_identity().expect("it still exists"), Some(false));
    let next = Identity::in_directory(opened.directory.path(), "next");
    std::fs::copy(&next.certificate, &identity.certificate).expect("a writable file");
    let wrong = listener.reload_identity().expect_err("the key is another's").to_string();
    assert!(wrong.contains("own.key") && !wrong.contains("PRIVATE"), "{wrong}");
    assert_eq!(
        ask(connect(&opened, &identity.der), HEALTH).status,
        200,
        "the old certificate stays"
    );
    std::fs::copy(&next.key, &identity.key).expect("a writable file");
    assert_eq!(listener.reload_identity().expect("they belong together"), Some(true));
    assert_eq!(ask(connect(&opened, &next.der), HEALTH).status, 200);
    let mut old = connect(&opened, &identity.der);
    assert!(old.write_all(HEALTH.as_bytes()).is_err(), "it gets another certificate");
}

#[test]
fn files_that_cannot_be_used_stop_the_start() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let identity = Identity::in_directory(directory.path(), "own");
    let other = Identity::in_directory(directory.path(), "other");
    let at = |name: &str| directory.path().join(name);
    write_private(&at("text"), "no PEM at all\n");
    let torn = identity.secret.get(..80).expect("it is longer");
    write_private(&at("torn"), torn);
    let open = at("open");
    write_private(&open, &identity.secret);
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).expect("our own file");
    let start = |certificate: Option<PathBuf>, key: Option<PathBuf>| {
        let http = HttpConfig {
            tcp: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            tls_certificate: certificate,
            tls_key: key,
            ..HttpConfig::default()
        };
        let config = Config { http: Some(http), ..Config::in_memory() };
        sexton_http::open(config).map(drop)
    };
    let (certificate, key) = (identity.certificate.clone(), identity.key.clone());
    for (certificate, key, words) in [
        (at("absent"), key.clone(), "read the TLS certificate"),
        (at("text"), key.clone(), "no certificate in PEM"),
        (key.clone(), key.clone(), "no certificate in PEM"),
        (certificate.clone(), at("absent"), "read the TLS key"),
        (certificate.clone(), at("text"), "no private key in PEM"),
        (certificate.clone(), at("torn"), "no private key in PEM"),
        (certificate.clone(), other.key, "use the TLS key"),
        (certificate.clone(), open, "0644"),
    ] {
        let error = start(Some(certificate), Some(key)).expect_err(words);
        let shown = error.to_string();
        assert!(matches!(&error, NodeError::Protocol(error) if error.is::<OpenError>()), "{shown}");
        assert!(shown.contains(words), "{words}: {shown}");
        assert!(!shown.contains("PRIVATE"), "{shown}");
    }
    for (certificate, key, words) in
        [(Some(certificate), None, "tls-key is missing"), (None, Some(key), "tls-cert is missing")]
    {
        let error = start(certificate, key).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
}
