//! Records and states as they are shown: the arguments of commands that look like secrets are masked, as in every other view.
//!
//! The journal has them unchanged, since they are needed to launch the commands again.

use crate::actors::process;
use crate::bytes::Bytes;
use crate::text;
use serde_json::Value;

/// The name of the fields that contain the arguments of a command.
const ARGV: &str = "argv";

/// Masks the arguments of all commands in a value.
pub fn mask(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::Object(members) => {
            for (name, member) in members {
                if let (ARGV, Value::Array(words)) = (name.as_str(), &mut *member) {
                    mask_arguments(words);
                } else {
                    mask(member);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Masks arguments, each of which is text with `\xNN` for bytes that are not text.
fn mask_arguments(words: &mut [Value]) {
    let argv = words.iter().map(|word| {
        let bytes = word.as_str().and_then(text::unescaped);
        Bytes::new(bytes.unwrap_or_default())
    });
    let shown = process::masked(&argv.collect::<Vec<_>>());
    for (word, shown) in words.iter_mut().zip(shown) {
        if word.is_string() {
            *word = text::escaped(shown.as_bytes()).into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::mask;
    use serde_json::json;

    #[test]
    fn the_arguments_of_commands_are_masked_wherever_they_are() {
        let mut value = json!({"set": [{"spec": {"argv": ["x\\xff", "--password=p"]}}], "argv": 1, "about": "--password=p"});
        mask(&mut value);
        let expected = json!({"set": [{"spec": {"argv": ["x\\xff", "--password=***"]}}], "argv": 1, "about": "--password=p"});
        assert_eq!(value, expected);
    }
}
