//! The byte vectors of `vectors.txt`.

/// A command, and the answer that it must have.
#[derive(Clone, Debug)]
pub(crate) struct Vector {
    /// What the vector shows.
    pub(crate) name: String,
    /// The bytes that the client sends.
    pub(crate) command: Vec<u8>,
    /// The bytes that the server must send.
    pub(crate) answer: Vec<u8>,
}

/// Returns the vectors of a section, in order.
pub(crate) fn section(wanted: &str) -> Vec<Vector> {
    let mut vectors = Vec::new();
    let mut within = false;
    for line in include_str!("vectors.txt").lines() {
        if let Some(section) = line.strip_prefix("== ") {
            within = section == wanted;
        } else if within && !line.is_empty() && !line.starts_with('#') {
            vectors.push(vector(line).unwrap_or_else(|| panic!("cannot read {line:?}")));
        }
    }
    assert!(!vectors.is_empty(), "there is no section {wanted}");
    vectors
}

/// Returns the bytes of all commands, one command after another.
pub(crate) fn commands(vectors: &[Vector]) -> Vec<u8> {
    vectors.iter().flat_map(|v| v.command.clone()).collect()
}

/// Returns the bytes of all answers, one answer after another.
pub(crate) fn answers(vectors: &[Vector]) -> Vec<u8> {
    vectors.iter().flat_map(|v| v.answer.clone()).collect()
}

fn vector(line: &str) -> Option<Vector> {
    let mut parts = line.split('|').map(str::trim);
    let name = parts.next()?.to_owned();
    let command = bytes(parts.next()?)?;
    let answer = bytes(parts.next()?)?;
    parts.next().is_none().then_some(Vector { name, command, answer })
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for word in text.split_whitespace() {
        let (digits, times) = match word.split_once('*') {
            Some((digits, times)) => (digits, times.parse().ok()?),
            None => (word, 1),
        };
        let byte = u8::from_str_radix(digits, 16).ok()?;
        bytes.extend(std::iter::repeat_n(byte, times));
    }
    Some(bytes)
}
