//! `sexton completions` and `sexton man`: shell completions and man pages, generated from the command line's own description.

use crate::report::{Failure, written};
use clap::{Args, Command};
use clap_complete::Shell;
use std::io::Write as _;
use std::path::PathBuf;

/// Print completions for a shell.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton completions bash > ~/.local/share/bash-completion/completions/sexton
  sexton completions zsh > ~/.zfunc/_sexton             with fpath+=~/.zfunc before compinit
  sexton completions fish > ~/.config/fish/completions/sexton.fish")]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, mut command: Command) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "sexton", &mut script);
        written(std::io::stdout().lock().write_all(&script))
    }
}

/// Print the man page of sexton, or write all man pages into a directory.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton man | man -l -
  sexton man /usr/local/share/man/man1       sexton.1 and one page per command")]
pub(crate) struct Manual {
    /// Write sexton.1 and a page for each command into this directory; it is created if missing
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl Manual {
    pub(crate) fn run(self, command: Command) -> Result<(), Failure> {
        // The pages already cover what `help` prints.
        let command = command.disable_help_subcommand(true);
        let Some(directory) = self.directory else {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(command).render(&mut page);
            return written(rendered.and_then(|()| std::io::stdout().lock().write_all(&page)));
        };
        std::fs::create_dir_all(&directory)
            .and_then(|()| clap_mangen::generate_to(command, &directory))
            .map_err(|error| {
                let shown = directory.display();
                Failure::unreachable(format!("failed to write man pages into {shown}: {error}"))
            })
    }
}
