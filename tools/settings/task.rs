//! The table `[tasks]` of the configuration file.

use crate::settings::layer::{Problem, Source};
use crate::settings::value::switch;
use toml::de::DeValue;

/// What the table says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tasks {
    /// Whether tasks may ask for faults of the coordinator itself.
    pub(crate) allow_fault_injection: bool,
}

/// Reads the table; `source` names the place of a byte.
pub(crate) fn table(
    value: &DeValue<'_>,
    source: impl Fn(usize) -> Source,
) -> (Tasks, Vec<Problem>) {
    let (mut tasks, mut problems) = (Tasks::default(), Vec::new());
    let DeValue::Table(table) = value else {
        let words = "expected a table: [tasks]";
        return (tasks, vec![Problem::new(source(0), "tasks", words)]);
    };
    for (key, value) in table {
        let mut wrong = |words: String| {
            problems.push(Problem::new(source(key.span().start), "tasks", words));
        };
        match key.get_ref().as_ref() {
            "allow_fault_injection" => match switch(value.get_ref()) {
                Ok(is) => tasks.allow_fault_injection = is,
                Err(words) => wrong(format!("allow_fault_injection: {words}")),
            },
            other => wrong(format!(
                "{other}: there is no such key; expected allow_fault_injection"
            )),
        }
    }
    (tasks, problems)
}
