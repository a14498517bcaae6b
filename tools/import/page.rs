//! Formats services as TOML. Text from the imported configuration is always quoted, so nothing in it is interpreted as TOML.

use crate::import::program::Service;
use crate::text::plain;
use std::fmt::Write as _;

/// Formats a configuration with these services, which were imported from the file `from`.
pub(super) fn page(from: &str, services: &[Service]) -> String {
    let mut page = String::new();
    let words = format!("Services from {from}, converted by `sexton import supervisord`");
    comment(&mut page, &words);
    for service in services {
        page.push('\n');
        table(&mut page, service);
    }
    page
}

fn table(page: &mut String, service: &Service) {
    let secrets = (!service.secrets.is_empty()).then(|| format!("{}.env", service.name));
    for words in &service.remarks {
        comment(page, words);
    }
    if let Some(file) = &secrets {
        let lines = service.secrets.join("=..., ");
        let words = format!(
            "Write {file} with {lines}=..., one per line, and make it readable only by its owner."
        );
        comment(page, &words);
    }
    let mut entries = vec![("command", list(&service.command))];
    let mut add = |key, value: Option<String>| entries.extend(value.map(|it| (key, it)));
    add("dir", service.dir.as_deref().map(string));
    let env = service.env.iter();
    let env = env.map(|(name, value)| format!("{} = {}", key(name), string(value)));
    let env = env.collect::<Vec<_>>().join(", ");
    add("env", (!env.is_empty()).then(|| format!("{{ {env} }}")));
    add("env_file", secrets.as_deref().map(string));
    add("secrets", secrets.is_some().then(|| list(&service.secrets)));
    add("autostart", service.is_disabled.then(|| "false".to_owned()));
    add("restart", Some(string(service.restart)));
    let codes: Vec<String> = service.success.iter().map(u8::to_string).collect();
    let codes = codes.join(", ");
    add("success", (!codes.is_empty()).then(|| format!("[{codes}]")));
    add("intensity", service.is_never_given_up.then(|| "false".to_owned()));
    add("stop_signal", service.stop_signal.as_deref().map(signal));
    add("grace", service.grace_s.map(|it| format!("\"{it}s\"")));
    add("user", service.user.as_deref().map(string));
    add("output", service.output.table());
    let several = (service.instances != 1).then(|| service.instances.to_string());
    add("instances", several);
    write(page, format_args!("[services.{}]", key(&service.name)));
    for (key, value) in entries {
        write(page, format_args!("{key} = {value}"));
    }
}

fn comment(page: &mut String, words: &str) {
    write(page, format_args!("# {}", plain(words)));
}

fn write(page: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(page, "{line}").expect("writing to memory should not fail");
}

fn list(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|it| string(it)).collect();
    format!("[{}]", words.join(", "))
}

/// Formats a signal: a number without quotes, a name with quotes.
fn signal(name: &str) -> String {
    if name.bytes().all(|it| it.is_ascii_digit()) { name.to_owned() } else { string(name) }
}

/// Formats a key, in quotes if necessary.
fn key(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if !name.is_empty() && name.bytes().all(is_bare) { name.to_owned() } else { string(name) }
}

/// Formats a basic TOML string.
fn string(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            _ if sexton::text::steers(letter) => {
                let unit = u32::from(letter);
                write!(quoted, "\\U{unit:08x}").expect("writing to memory should not fail");
            }
            _ => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::{key, string};

    #[test]
    fn values_are_read_back_as_they_were() {
        let hostile = "a\"]\n[x]\n\\ \t\r\u{1b}[2J\u{7f}\u{202e}é";
        let text = format!("{} = {}", key("a.b \"c"), string(hostile));
        let table: toml::Table = toml::from_str(&text).expect("the output is valid TOML");
        assert_eq!(table.len(), 1);
        let value = table.get("a.b \"c").and_then(toml::Value::as_str);
        assert_eq!(value, Some(hostile));
        assert!(!text.contains('\n') && !text.contains('\u{1b}'), "{text}");
    }
}
