//! The `Idempotency-Key` header, which lets a client repeat a request whose answer was lost.
//!
//! The actors remember the result for each key as part of their state (see `spine/receipts.rs`); this module only computes
//! keys. The actors see only digests, so no client's key appears in the journal.

use crate::access::Peer;
use crate::problem::Problem;
use crate::scope::Scopes;
use actix_web::http::header::HeaderMap;
use sexton::ids::RequestKey;
use sha1::{Digest as _, Sha1};
use xxhash_rust::xxh3::xxh3_128;

/// The name of the header.
pub(crate) const HEADER: &str = "idempotency-key";
const KEY_BYTES_MAX: usize = 128;

/// Returns the key of a request, or `None` if it does not have the header. The key's `id` is a digest of the client's key and the caller,
/// and its `fingerprint` has a digest of the path and the body, and the caller. Refuses a malformed or repeated header.
pub(crate) fn key_of(
    headers: &HeaderMap,
    (peer, scopes): (Peer, Scopes),
    (path, body): (&str, &[u8]),
) -> Result<Option<RequestKey>, Problem> {
    let mut given = headers.get_all(HEADER);
    let Some(key) = given.next() else {
        return Ok(None);
    };
    let text = key.to_str().unwrap_or("");
    let is_good = (1..=KEY_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic())
        && given.next().is_none();
    if !is_good {
        let words = format!("must be given once, as 1 to {KEY_BYTES_MAX} visible ASCII characters");
        return Err(Problem::field("Idempotency-Key", words));
    }
    let key = RequestKey {
        id: id_of(peer, text),
        fingerprint: xxh3_128(&[path.as_bytes(), b"\0", body].concat()),
    };
    Ok(Some(key.of_caller(caller(peer, scopes))))
}

/// Returns the number of a caller, each of which has a share of the keys: one for all that have every scope, 0 for all other TCP clients, and
/// one for each other user on the Unix socket. It has no part in recognizing a repetition.
fn caller(peer: Peer, scopes: Scopes) -> u32 {
    match peer {
        _ if scopes == Scopes::All => RequestKey::TRUSTED,
        Peer::Tcp { .. } => 0,
        // No user has the highest id, which stands for an unknown one.
        Peer::Socket { uid, .. } => uid.saturating_add(1),
    }
}

/// Returns the id of a client's key. All TCP clients count as one caller, and each user on the Unix socket as another. SHA-1 is used so
/// that a caller cannot construct a key with the same id as another caller's key.
fn id_of(peer: Peer, key: &str) -> u128 {
    let mut hash = Sha1::new();
    match peer {
        Peer::Tcp { .. } => hash.update([0]),
        Peer::Socket { uid, .. } => {
            hash.update([1]);
            hash.update(uid.to_le_bytes());
        }
    }
    hash.update(key);
    let bytes: [u8; 20] = hash.finalize().into();
    let (id, _) = bytes.split_first_chunk().expect("20 bytes should be at least 16");
    u128::from_le_bytes(*id)
}

#[cfg(test)]
mod tests {
    use super::{Peer, caller, id_of};
    use crate::scope::Scopes;
    use sexton::ids::RequestKey;

    #[test]
    fn a_key_is_that_of_its_caller() {
        let ann = Peer::Socket { uid: 1000, process: None };
        let bob = Peer::Socket { uid: 1001, process: None };
        assert_eq!(id_of(ann, "k"), id_of(ann, "k"));
        assert_ne!(id_of(ann, "k"), id_of(bob, "k"));
        assert_ne!(id_of(ann, "k"), id_of(ann, "l"));
        let tcp = |host| Peer::Tcp {
            local: [127, 0, 0, host].into(),
            remote: [127, 0, 0, host].into(),
            user: None,
        };
        assert_eq!(id_of(tcp(1), "k"), id_of(tcp(2), "k"));
        assert_ne!(id_of(tcp(1), "k"), id_of(ann, "k"));
    }

    #[test]
    fn those_who_may_do_everything_share_no_room_with_others() {
        let tcp =
            Peer::Tcp { local: [127, 0, 0, 1].into(), remote: [127, 0, 0, 1].into(), user: None };
        let ann = Peer::Socket { uid: 1000, process: None };
        let nobody = Peer::Socket { uid: u32::MAX, process: None };
        for peer in [tcp, ann, nobody] {
            assert_eq!(caller(peer, Scopes::All), RequestKey::TRUSTED);
            for scopes in [Scopes::None, Scopes::Read, Scopes::Plain, Scopes::Exposed] {
                assert_ne!(caller(peer, scopes), RequestKey::TRUSTED, "{peer:?} {scopes:?}");
            }
        }
        assert_ne!(caller(tcp, Scopes::Plain), caller(ann, Scopes::Plain));
    }
}
