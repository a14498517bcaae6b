//! The list of admitted hosts: one address or prefix per line, with comments after `#`. An empty list denies everyone;
//! without a list only loopback is admitted.

use sexton::address::Network;
use sexton::protocols::file::read as read_file;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The maximum size of a list, in bytes, in case the configured path is wrong and names a large file.
const LIST_BYTES_MAX: u64 = 16 << 20;

/// The hosts that are admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// This machine only.
    Loopback,
    /// The hosts in the list.
    Listed(Vec<Network>),
}

/// Why a hosts list cannot be used. Each text is meant to follow "failed to".
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// The file cannot be read.
    #[error("read hosts {file}: {source}")]
    Unreadable {
        file: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A line is neither an address nor a prefix.
    #[error(
        "read hosts {file}: line {line}: {found:?} is neither an address nor a prefix like 10.0.0.0/8"
    )]
    BadLine {
        file: PathBuf,
        /// The line number, from 1.
        line: usize,
        /// The text of the line, without a comment.
        found: String,
    },
}

impl Hosts {
    /// Reads a hosts list.
    pub fn read(file: &Path) -> Result<Self, HostsError> {
        let read = || {
            let (text, _) = read_file(file, LIST_BYTES_MAX + 1)?;
            if text.len() as u64 > LIST_BYTES_MAX {
                return Err(std::io::Error::other("it is larger than 16 MiB"));
            }
            String::from_utf8(text).map_err(std::io::Error::other)
        };
        let text =
            read().map_err(|source| HostsError::Unreadable { file: file.to_owned(), source })?;
        Self::parse(&text).map_err(|(line, found)| HostsError::BadLine {
            file: file.to_owned(),
            line,
            found,
        })
    }

    fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut listed = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let host = line.split('#').next().unwrap_or("").trim();
            if host.is_empty() {
                continue;
            }
            let network = host.parse().map_err(|_| (number, host.to_owned()));
            listed.push(network?);
        }
        Ok(Self::Listed(listed))
    }

    /// Returns whether a peer is admitted. An IPv4 address mapped into IPv6 counts as IPv4.
    pub fn allow(&self, peer: IpAddr) -> bool {
        match self {
            Self::Loopback => peer.to_canonical().is_loopback(),
            Self::Listed(networks) => networks.iter().any(|network| network.contains(peer)),
        }
    }

    /// Returns the number of entries; `None` without a list.
    pub fn len(&self) -> Option<usize> {
        match self {
            Self::Loopback => None,
            Self::Listed(networks) => Some(networks.len()),
        }
    }

    /// Returns whether no host is admitted.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::Hosts;

    #[test]
    fn a_list_lets_in_addresses_and_prefixes_and_nobody_else() {
        let hosts = Hosts::parse("# ours\n127.0.0.1\n 10.1.0.0/16 # the lab\n\n::1\n").unwrap();
        let allowed = |peer: &str| hosts.allow(peer.parse().unwrap());
        assert!(allowed("127.0.0.1") && allowed("::ffff:127.0.0.1"));
        assert!(allowed("10.1.255.3") && allowed("::1"));
        assert!(!allowed("127.0.0.2") && !allowed("10.2.0.1"));
    }

    #[test]
    fn an_address_is_the_same_however_it_is_written() {
        let hosts = Hosts::parse("::ffff:10.0.0.7\n::ffff:10.1.0.0/112\n::ffff:0:0/95\n").unwrap();
        let allowed = |peer: &str| hosts.allow(peer.parse().unwrap());
        assert!(allowed("10.0.0.7") && allowed("::ffff:10.0.0.7") && allowed("10.1.2.3"));
        assert!(!allowed("10.0.0.8") && !allowed("10.2.0.1"));
        assert!(
            allowed("::fffe:0:1"),
            "a prefix wider than the IPv4-mapped range is an IPv6 prefix"
        );
        for wrong in ["10.0.0.0/33", "::1/129", "10.0.0.0/-1", "10.0.0.0/", "/8", "10.0.0.0/8/8"] {
            assert_eq!(Hosts::parse(wrong), Err((1, wrong.to_owned())));
        }
    }

    #[test]
    fn an_empty_list_denies_everyone() {
        let hosts = Hosts::parse("# nobody\n").unwrap();
        assert!(hosts.is_empty());
        assert!(!hosts.allow("127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn a_bad_line_is_named() {
        assert_eq!(Hosts::parse("127.0.0.1\nlocalhost\n"), Err((2, "localhost".to_owned())));
        assert_eq!(Hosts::parse("10.0.0.0/33"), Err((1, "10.0.0.0/33".to_owned())));
    }
}
