//! Frames: a length of four bytes, little-endian, followed by a message as rmp-serde encodes it.

use crate::decode;
use crate::keeper::protocol::{FRAME_BYTES_MAX, Request};
use serde::Serialize;
use std::io;

/// The result of parsing the beginning of received bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Front {
    /// A whole request, and its length in bytes.
    Whole(Request, usize),
    /// An incomplete request, and the number of bytes needed to continue: 4 until the length has arrived, then the length of the whole
    /// frame.
    Part(usize),
    /// An invalid request, with a description of the problem.
    Broken(String),
}

/// Parses the beginning of the received bytes.
pub(crate) fn front(bytes: &[u8]) -> Front {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
        return Front::Part(4);
    };
    let length = u32::from_le_bytes(*length) as usize;
    if length > FRAME_BYTES_MAX {
        let words =
            format!("the frame has {length} bytes, and at most {FRAME_BYTES_MAX} are allowed");
        return Front::Broken(words);
    }
    let Some(payload) = rest.get(..length) else {
        return Front::Part(4 + length);
    };
    match decode::from_slice(payload) {
        Ok(request) => Front::Whole(request, 4 + length),
        Err(error) => Front::Broken(format!("not a request: {error}")),
    }
}

/// Appends a message as a frame. Its length is not checked: reports are always short, and [`framed`] checks requests.
pub(crate) fn put(message: &impl Serialize, out: &mut Vec<u8>) {
    let at = out.len();
    out.extend([0; 4]);
    rmp_serde::encode::write(out, message).expect("writing to memory should not fail");
    let length = u32::try_from(out.len() - at - 4).expect("messages should be shorter than 4 GiB");
    if let Some(place) = out.get_mut(at..at + 4) {
        place.copy_from_slice(&length.to_le_bytes());
    }
}

/// Encodes a request to a keeper as a frame.
///
/// # Errors
/// Returns an error if the frame is longer than [`FRAME_BYTES_MAX`].
pub fn framed(request: &Request) -> io::Result<Vec<u8>> {
    let mut frame = Vec::new();
    put(request, &mut frame);
    if frame.len() - 4 > FRAME_BYTES_MAX {
        let words = "the frame is too long";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, words));
    }
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::{Front, front, put};
    use crate::ids::ProcessId;
    use crate::keeper::protocol::{FRAME_BYTES_MAX, Report, Request};

    #[test]
    fn requests_are_taken_off_the_front_and_nothing_else_is() {
        let hello = Request::Hello { version: 7 };
        let payload = rmp_serde::to_vec(&hello).expect("the request encodes");
        let length = u32::try_from(payload.len()).expect("the request is short");
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(&payload);
        for end in 0..bytes.len() {
            assert!(matches!(front(&bytes[..end]), Front::Part(_)), "{end}");
        }
        bytes.extend(b"more");
        assert_eq!(front(&bytes), Front::Whole(hello, payload.len() + 4));
        let long = u32::try_from(FRAME_BYTES_MAX + 1).expect("the length fits");
        assert!(matches!(front(&long.to_le_bytes()), Front::Broken(_)));
        assert!(matches!(front(&[1, 0, 0, 0, 0xc1]), Front::Broken(_)));
        assert!(matches!(front(&[0, 0, 0, 0]), Front::Broken(_)));
    }

    #[test]
    fn reports_carry_their_length() {
        let mut out = b"before".to_vec();
        let attempt = ProcessId(5);
        put(&Report::Absent { attempt }, &mut out);
        let frame = &out[6..];
        let length = u32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]);
        assert_eq!(length as usize, frame.len() - 4);
        let read: Report = rmp_serde::from_slice(&frame[4..]).expect("the frame is complete");
        assert_eq!(read, Report::Absent { attempt });
    }
}
