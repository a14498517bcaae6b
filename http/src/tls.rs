//! TLS: loads the certificate and its key from two files, and performs the handshake within a time limit.
//!
//! No part of the key ever appears in an error or in the log.

use sexton::protocols::file;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

/// The maximum number of bytes read from a file. A certificate chain has a few thousand bytes.
const BYTES_MAX: u64 = 1 << 20;

/// The maximum duration of a handshake. A request may take the same time to arrive.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The certificate sent to clients, with its key. Clones share the configuration.
#[derive(Clone)]
pub(crate) struct Identity {
    config: Arc<ServerConfig>,
    /// The certificates that were read, by which a reload determines whether they have changed.
    certificates: Arc<[CertificateDer<'static>]>,
}

/// Why a certificate or key cannot be used. Each text is meant to follow "failed to", and contains the path of the file, never its
/// content.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file cannot be read.
    #[error("read the {what} {}: {source}", .file.display())]
    Unreadable {
        /// What the file should contain: the certificate or the key.
        what: &'static str,
        /// The path of the file.
        file: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The key file can be accessed by users other than its owner and its group.
    #[error("use the TLS key {}: its mode is {mode:04o}, so other users can access it", .file.display())]
    Exposed {
        /// The path of the file.
        file: PathBuf,
        /// The file's permissions.
        mode: u32,
    },
    /// The content is not usable.
    #[error("use the {what} {}: {found}", .file.display())]
    Unusable {
        /// What the file should contain: the certificate or the key.
        what: &'static str,
        /// The path of the file.
        file: PathBuf,
        /// What is wrong with the content.
        found: String,
    },
}

const CERTIFICATE: &str = "TLS certificate";
const KEY: &str = "TLS key";

impl Identity {
    /// Reads a certificate chain, the server's own certificate first, and the matching key, both in PEM.
    pub(crate) fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let unusable = |what, file: &Path, found: &dyn fmt::Display| TlsError::Unusable {
            what,
            file: file.to_owned(),
            found: found.to_string(),
        };
        let (chain, _) = read(CERTIFICATE, certificate)?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
        let chain =
            chain.map_err(|_| unusable(CERTIFICATE, certificate, &"it is not valid PEM"))?;
        if chain.is_empty() {
            return Err(unusable(CERTIFICATE, certificate, &"it holds no certificate in PEM"));
        }
        let (secret, mode) = read(KEY, key)?;
        if mode & 0o007 != 0 {
            let file = key.to_owned();
            return Err(TlsError::Exposed { file, mode });
        }
        let secret = PrivateKeyDer::from_pem_slice(&secret)
            .map_err(|_| unusable(KEY, key, &"it holds no private key in PEM"))?;
        let certificates: Arc<[_]> = chain.clone().into();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(CERTIFICATE, certificate, &error))?
            .with_no_client_auth()
            .with_single_cert(chain, secret)
            .map_err(|error| {
                let with = format!("with {}: {error}", certificate.display());
                unusable(KEY, key, &with)
            })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), certificates })
    }

    /// Returns whether both have the same certificates.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.certificates == other.certificates
    }

    /// Performs the handshake, and returns the encrypted stream; `None` if the handshake fails or takes longer than
    /// `HANDSHAKE_TIMEOUT`.
    pub(crate) async fn handshake(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.config));
        match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => Some(stream),
            Ok(Err(error)) => {
                tracing::debug!(%error, "a TLS handshake failed");
                None
            }
            Err(_) => {
                tracing::debug!("a TLS handshake took too long");
                None
            }
        }
    }
}

/// Returns the first [`BYTES_MAX`] bytes of a file, or all if it has fewer, and its mode.
fn read(what: &'static str, path: &Path) -> Result<(Vec<u8>, u32), TlsError> {
    let read = if what == KEY { file::read_own } else { file::read };
    read(path, BYTES_MAX).map_err(|source| TlsError::Unreadable {
        what,
        file: path.to_owned(),
        source,
    })
}
