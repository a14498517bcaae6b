//! Subcommands whose arguments are built only when the command line names them: building the arguments of all subcommands takes longer than
//! running most of them.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use std::ffi::OsStr;

/// The arguments of a subcommand. They are built only if the command line names the subcommand or might need all subcommands.
pub(crate) struct LazyArgs<T>(pub(crate) T);

impl<T: Args> Args for LazyArgs<T> {
    fn augment_args(command: Command) -> Command {
        if is_wanted(command.get_name()) { T::augment_args(command) } else { command }
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: FromArgMatches> FromArgMatches for LazyArgs<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches(matches).map(Self)
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches_mut(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

fn is_wanted(subcommand: &str) -> bool {
    // Unit tests check all subcommands, regardless of their own command line.
    cfg!(test) || may_name(std::env::args_os().nth(1).as_deref(), subcommand)
}

/// Returns whether a command line with `first` as its first argument needs `subcommand`: `first` names it, is missing, or is a flag, `help`
/// or a command that prints the descriptions of all subcommands.
fn may_name(first: Option<&OsStr>, subcommand: &str) -> bool {
    let Some(first) = first else {
        return true;
    };
    let is_of_all = ["help", "completions", "man"].map(OsStr::new).contains(&first);
    first == subcommand || is_of_all || first.as_encoded_bytes().starts_with(b"-")
}

#[cfg(test)]
mod tests {
    use super::may_name;
    use std::ffi::OsStr;

    #[test]
    fn what_names_another_subcommand_needs_no_description() {
        for first in ["lock", "help", "--help", "-h", "completions", "man"] {
            assert!(may_name(Some(OsStr::new(first)), "lock"), "{first}");
        }
        assert!(may_name(None, "lock"), "without an argument, the help lists every subcommand");
        assert!(!may_name(Some(OsStr::new("queue")), "lock"));
    }
}
