//! Decodes arbitrary bytes as LockServer commands. Decoding never panics, takes whole commands only, and does not depend on where a
//! socket read ends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sexton_wire::lockserver::codec::{COMMAND_BYTES_MAX, decode};

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Ok(Some((command, len))) = decode(rest) {
        assert!((1..=COMMAND_BYTES_MAX).contains(&len) && len <= rest.len());
        let (whole, after) = rest.split_at(len);
        assert_eq!(
            decode(whole),
            Ok(Some((command, len))),
            "the bytes after a command do not matter"
        );
        for part in 0..len {
            assert_eq!(decode(&whole[..part]), Ok(None), "a part is incomplete");
        }
        rest = after;
    }
    // The rest is either invalid or an incomplete command, which is shorter than the longest command.
    if decode(rest) == Ok(None) {
        assert!(rest.len() < COMMAND_BYTES_MAX);
    }
});
