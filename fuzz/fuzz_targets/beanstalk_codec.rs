//! Decodes arbitrary bytes as beanstalkd commands. Decoding never panics, does not depend on where a socket read ends, and never holds
//! more than an incomplete line and a body within the limit.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sexton_wire::beanstalk::Decoder;
use sexton_wire::beanstalk::codec::LINE_BYTES_MAX;

/// The limit on a job's body, in bytes: small, so that short inputs reach it.
const JOB_BYTES_MAX: u32 = 40;

fuzz_target!(|data: &[u8]| {
    let Some((step, input)) = data.split_first() else {
        return;
    };
    let step = usize::from(*step).max(1);
    assert_eq!(commands(input.chunks(step)), commands(std::iter::once(input)));
});

/// Decodes bytes that arrive in these pieces, and returns each command as text.
fn commands<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let mut decoder = Decoder::new(JOB_BYTES_MAX);
    let mut rest = Vec::new();
    let mut commands = Vec::new();
    for piece in pieces {
        rest.extend_from_slice(piece);
        let mut taken = 0;
        loop {
            let (bytes, command) = decoder.take(&rest[taken..]);
            taken += bytes;
            let Some(command) = command else { break };
            assert!(bytes > 0, "a command has bytes");
            commands.push(format!("{command:?}"));
        }
        rest.drain(..taken);
        assert!(rest.len() < LINE_BYTES_MAX, "the rest is shorter than a line");
        assert!(decoder.held_bytes() <= JOB_BYTES_MAX as usize);
    }
    commands
}
