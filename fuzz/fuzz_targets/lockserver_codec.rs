//! Any bytes as LockServer commands: decoding never panics, takes whole commands only, and does not depend on where a
//! socket read ends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sexton::protocols::lockserver::codec::{COMMAND_BYTES_MAX, decode};

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Ok(Some((command, len))) = decode(rest) {
        assert!((1..=COMMAND_BYTES_MAX).contains(&len) && len <= rest.len());
        let (whole, after) = rest.split_at(len);
        assert_eq!(
            decode(whole),
            Ok(Some((command, len))),
            "what follows does not matter"
        );
        for part in 0..len {
            assert_eq!(decode(&whole[..part]), Ok(None), "a part is no command");
        }
        rest = after;
    }
    // A frame that is lost stays lost; one that is not whole yet is shorter than the longest command.
    if decode(rest) == Ok(None) {
        assert!(rest.len() < COMMAND_BYTES_MAX);
    }
});
