//! Encodes the requests of a lock client as JSON over HTTP, for sexton's `/v1` and for etcd's gateway, and decodes the answers. Does no
//! I/O.
//!
//! etcd holds a lock for as long as its lease lasts, so each client has its own lease, which is granted before anything is measured.
//! [`lease`] derives the id of the lease from the client's owner name.

use crate::codec::{Answer, Name, Unexpected, Verb};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

/// The server, and the requests with which its locks are acquired and released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gateway {
    /// sexton's `/v1/locks`.
    Sexton,
    /// etcd's lock service, which keeps waiters in line: each has a key below the lock's name, and an unlock deletes that key.
    EtcdLock,
    /// etcd's transactions, without a line: a key is put if it does not exist, and later deleted.
    EtcdTxn,
}

/// The time to live of an etcd lease, in seconds: longer than any measurement.
pub(crate) const LEASE_SECONDS: u32 = 3600;

/// Appends a request to `output`: a GET without a body, a POST with one.
pub(crate) fn put_request(path: &str, body: Option<&Value>, output: &mut Vec<u8>) {
    let request = match body {
        None => format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        Some(body) => {
            let body = body.to_string();
            let len = body.len();
            format!(
                "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len}\r\n\r\n{body}"
            )
        }
    };
    output.extend_from_slice(request.as_bytes());
}

/// Parses the response at the start of `input`, and returns its status, its body, and the length of both head and body; `None` if more
/// bytes are needed or the head is invalid.
pub(crate) fn response(input: &[u8]) -> Option<(u16, &[u8], usize)> {
    let head_len = input.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(input.get(..head_len)?).ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body_len = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, len)| len.trim().parse().ok())
        .unwrap_or(0);
    let body = input.get(head_len..)?.get(..body_len)?;
    Some((status, body, head_len + body_len))
}

impl Gateway {
    /// Appends a request to `output`.
    pub(crate) fn ask(self, asked: Verb, key: &Name, owner: &Name, output: &mut Vec<u8>) {
        match self {
            Self::Sexton => ask_sexton(asked, key, owner, output),
            Self::EtcdLock | Self::EtcdTxn => {
                let (path, body) = self.to_etcd(asked, key, owner);
                put_request(path, Some(&body), output);
            }
        }
    }

    fn to_etcd(self, asked: Verb, key: &Name, owner: &Name) -> (&'static str, Value) {
        let lease = lease(owner);
        let place = [key.as_slice(), format!("/{lease:x}").as_bytes()].concat();
        match (self, asked) {
            (Self::EtcdLock, Verb::Acquire) => {
                let body = json!({"name": coded(key), "lease": lease});
                ("/v3/lock/lock", body)
            }
            (Self::EtcdLock, Verb::Release) => ("/v3/lock/unlock", json!({"key": coded(&place)})),
            (Self::EtcdLock, Verb::Place) => {
                // The range of all keys below `key/`: one for each client that holds the lock or waits for it.
                let [first, behind] = [b"/", b"0"].map(|end| [key.as_slice(), end].concat());
                let range =
                    json!({"key": coded(&first), "range_end": coded(&behind), "count_only": true});
                ("/v3/kv/range", range)
            }
            (_, Verb::Acquire) => {
                let none = json!({"key": coded(key), "target": "CREATE", "create_revision": 0});
                let put = json!({"key": coded(key), "value": coded(owner), "lease": lease});
                let body = json!({"compare": [none], "success": [{"request_put": put}]});
                ("/v3/kv/txn", body)
            }
            (_, Verb::Release) => ("/v3/kv/deleterange", json!({"key": coded(key)})),
            (_, asked) => unreachable!("no measurement of etcd sends {asked:?}"),
        }
    }

    /// Parses the answer to the request `asked` at the start of `input`, and returns it with its length; `None` if more bytes are needed.
    /// A refusal, or an answer that does not fit the request, is an error.
    pub(crate) fn receive(
        self,
        asked: Verb,
        input: &[u8],
    ) -> Result<Option<(Answer, usize)>, Unexpected> {
        let Some((status, body, len)) = response(input) else {
            return Ok(None);
        };
        let body_json: Value = serde_json::from_slice(body).unwrap_or_default();
        let number = |name: &str| -> Option<u32> {
            let number = body_json.get(name)?;
            // etcd writes 64-bit numbers as text.
            let text = number.as_str().map_or_else(|| number.to_string(), str::to_owned);
            text.parse().ok()
        };
        let place = |place: Option<u32>| match place {
            None | Some(0) => Answer::Taken,
            Some(1) => Answer::Granted,
            Some(place) => Answer::InLine(place),
        };
        let answer = match (self, asked, status) {
            (Self::Sexton, Verb::Acquire, 200) => number("token").map(|_| Answer::Granted),
            (Self::Sexton, Verb::Release, 200) => {
                number("ended").map(|ended| Answer::Released(ended.into()))
            }
            (Self::Sexton, Verb::Place, 200 | 404) => Some(place(number("place"))),
            (Self::EtcdLock, Verb::Acquire, 200) => body_json.get("key").map(|_| Answer::Granted),
            (Self::EtcdLock, Verb::Release, 200) => Some(Answer::Released(1)),
            (Self::EtcdLock, Verb::Place, 200) => Some(place(number("count"))),
            (Self::EtcdTxn, Verb::Acquire, 200) => {
                Some(body_json.get("succeeded").map_or(Answer::Taken, |_| Answer::Granted))
            }
            (Self::EtcdTxn, Verb::Release, 200) => {
                Some(Answer::Released(number("deleted").unwrap_or(0).into()))
            }
            _ => None,
        };
        match answer {
            Some(answer) => Ok(Some((answer, len))),
            None => Err(Unexpected {
                asked,
                heard: format!("{status} {}", String::from_utf8_lossy(body)),
            }),
        }
    }
}

fn ask_sexton(asked: Verb, key: &Name, owner: &Name, output: &mut Vec<u8>) {
    let [key, owner] = [key, owner].map(|name| String::from_utf8_lossy(name));
    match asked {
        Verb::Acquire => {
            let body = json!({"key": key, "owner": owner, "ttl": 30, "wait": 60});
            put_request("/v1/locks/acquire", Some(&body), output);
        }
        Verb::Release => {
            let body = json!({"key": key, "owner": owner});
            put_request("/v1/locks/release", Some(&body), output);
        }
        Verb::Place => {
            let path = format!("/v1/locks/place?key={key}&owner={owner}");
            put_request(&path, None, output);
        }
        Verb::Hold | Verb::Renew => unreachable!("no measurement over HTTP sends {asked:?}"),
    }
}

/// Returns the id of an owner's lease: the number at the start of its name, plus one, since etcd would replace an id of 0.
pub(crate) fn lease(owner: &Name) -> u64 {
    let digits = owner.get(..8).and_then(|digits| std::str::from_utf8(digits).ok());
    let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    number.expect("names begin with eight digits") + 1
}

fn coded(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::name;

    fn received(gateway: Gateway, asked: Verb, status: u16, body: &str) -> Option<Answer> {
        let len = body.len();
        let input = format!("HTTP/1.1 {status} x\r\ncontent-length: {len}\r\n\r\n{body}HTTP/1.1");
        let heard = gateway.receive(asked, input.as_bytes()).ok()?;
        let (answer, taken) = heard.expect("the response is complete");
        assert_eq!(taken, input.len() - "HTTP/1.1".len());
        Some(answer)
    }

    #[test]
    fn answers_are_heard_and_refusals_are_none() {
        use Answer::{Granted, InLine, Released, Taken};
        let (sexton, lock, txn) = (Gateway::Sexton, Gateway::EtcdLock, Gateway::EtcdTxn);
        let cases = [
            (sexton, Verb::Acquire, 200, r#"{"place":1,"token":17}"#, Some(Granted)),
            (sexton, Verb::Acquire, 409, r#"{"code":"held"}"#, None),
            (sexton, Verb::Release, 200, r#"{"ended":1}"#, Some(Released(1))),
            (sexton, Verb::Place, 200, r#"{"place":2,"token":null}"#, Some(InLine(2))),
            (sexton, Verb::Place, 404, r#"{"code":"absent"}"#, Some(Taken)),
            (lock, Verb::Acquire, 200, r#"{"key":"ay8x"}"#, Some(Granted)),
            (lock, Verb::Acquire, 400, r#"{"error":"no lease"}"#, None),
            (lock, Verb::Place, 200, r#"{"count":"2"}"#, Some(InLine(2))),
            (txn, Verb::Acquire, 200, r#"{"succeeded":true}"#, Some(Granted)),
            (txn, Verb::Acquire, 200, "{}", Some(Taken)),
            (txn, Verb::Release, 200, r#"{"deleted":"1"}"#, Some(Released(1))),
            (txn, Verb::Release, 200, "{}", Some(Released(0))),
        ];
        for (gateway, asked, status, body, answer) in cases {
            assert_eq!(received(gateway, asked, status, body), answer, "{gateway:?} {body}");
        }
    }

    #[test]
    fn half_an_answer_is_none_yet() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{\"ended\":1}";
        for len in 0..whole.len() {
            let heard = Gateway::Sexton.receive(Verb::Release, &whole[..len]);
            assert_eq!(heard, Ok(None), "{len}");
        }
    }

    #[test]
    fn an_owner_has_a_lease() {
        assert_eq!(lease(&name(9, u32::MAX)), 10);
    }
}
