//! Parses numbers given on the command line: ids of tasks and jobs, tokens, sequence numbers, PIDs, and numbers within bounds.

use std::fmt::Display;
use std::str::FromStr;

fn number<T: FromStr>(text: &str, what: &str, help: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not a {what}: {help}"))
}

/// Parses the id of a task.
pub(crate) fn task(text: &str) -> Result<u64, String> {
    number(text, "task number", "`sexton task list` shows them")
}

/// Parses the id of a job.
pub(crate) fn job(text: &str) -> Result<u64, String> {
    number(text, "job number", "`sexton queue show --list` shows them")
}

/// Parses a fencing token.
pub(crate) fn token(text: &str) -> Result<u64, String> {
    let help = "it is the number printed with the lock or the claim";
    number(text, "token", help)
}

/// Parses a sequence number of the journal.
pub(crate) fn sequence(text: &str) -> Result<u64, String> {
    number(text, "sequence number", "it is the first column of `sexton replay`")
}

/// Parses a PID.
pub(crate) fn pid(text: &str) -> Result<u32, String> {
    number(text, "process number", "`ps -e` shows them")
}

/// Returns a parser of numbers from `least` to `most`, both included.
pub(crate) fn between<T>(least: T, most: T) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Copy,
{
    move |text| {
        let found = text.parse().ok();
        let within = found.filter(|number| (least..=most).contains(number));
        within.ok_or_else(|| format!("expected a number from {least} to {most}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{between, job, pid, sequence, task, token};

    #[test]
    fn a_number_with_bounds_is_refused_with_them() {
        let priority = between(0, u8::MAX);
        assert_eq!(priority("7"), Ok(7));
        for wrong in ["high", "256", "-1", ""] {
            let words = "expected a number from 0 to 255";
            assert_eq!(priority(wrong), Err(words.to_owned()), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_number_is_named_with_what_was_expected() {
        let task_error = "`abc` is not a task number: `sexton task list` shows them";
        assert_eq!(task("abc"), Err(task_error.to_owned()));
        assert_eq!(task("17"), Ok(17));
        let all =
            [job("").err(), token("-1").err(), sequence("1.2").err(), pid("99999999999").err()];
        let nouns = [
            "`` is not a job number: ",
            "`-1` is not a token: ",
            "`1.2` is not a sequence number: ",
            "`99999999999` is not a process number: ",
        ];
        for (error, noun) in all.into_iter().zip(nouns) {
            assert!(error.is_some_and(|it| it.starts_with(noun)), "{noun}");
        }
    }
}
