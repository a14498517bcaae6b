//! `sexton completions` and `sexton man`: shell completions and man pages, generated from the command line's own description.

use crate::report::{Failure, written};
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use rustix::fs::Mode;
use sexton::kernel::file::Place;
use sexton::kernel::path;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

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
        written(io::stdout().lock().write_all(&script))
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
        let mut command = command.disable_help_subcommand(true);
        let Some(directory) = self.directory else {
            let mut page = Vec::new();
            let rendered = Man::new(command).render(&mut page);
            return written(rendered.and_then(|()| io::stdout().lock().write_all(&page)));
        };
        command.build();
        path::directory(&directory, Mode::from_raw_mode(0o777))
            .and_then(|()| write_pages(command, &directory))
            .map_err(|error| {
                let shown = directory.display();
                Failure::unreachable(format!("failed to write man pages into {shown}: {error}"))
            })
    }
}

/// Writes the page of a command, and those of its subcommands. Another user who may write to the directory may have put links in the place of
/// pages: they are replaced, not followed.
fn write_pages(command: Command, directory: &Path) -> io::Result<()> {
    for command in command.get_subcommands().filter(|it| !it.is_hide_set()).cloned() {
        write_pages(command, directory)?;
    }
    let page = Man::new(command);
    let mut text = Vec::new();
    page.render(&mut text)?;
    let place = Place::of(&directory.join(page.get_filename()))?;
    place.replace(Mode::from_raw_mode(0o666))?.write_all(&text)
}
