//! The flags for the `sexton` program to measure, the directory for temporary data, and the output format.

use crate::failure::Failure;
use crate::fdatasync;
use crate::peer::sexton_version;
use clap::Args;
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file system type that `statfs` reports for tmpfs.
const TMPFS: u64 = 0x0102_1994;

/// The flags shared by all measurements that start servers.
#[derive(Args)]
pub(crate) struct Site {
    /// The program to measure [default: `sexton` next to this program, rebuilt first if cargo runs this program]
    #[arg(long, value_name = "PATH")]
    sexton: Option<PathBuf>,

    /// Where temporary data directories are created [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// The path of the program to measure, cached once it has been found.
    #[arg(skip)]
    found: OnceCell<PathBuf>,
}

impl Site {
    /// Returns the directory in which data directories are created.
    pub(crate) fn root(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// Returns the path of the program to measure. The first call may build it.
    pub(crate) fn program(&self) -> Result<&Path, Failure> {
        if let Some(program) = self.found.get() {
            return Ok(program);
        }
        let program = match &self.sexton {
            Some(program) => program.clone(),
            None => beside_this()?,
        };
        Ok(self.found.get_or_init(|| program))
    }

    /// Returns the version of the program to measure.
    pub(crate) fn version(&self) -> Result<String, Failure> {
        sexton_version(self.program()?)
    }

    /// Returns remarks for the output: the reason for each peer that is left out (the errors in `versions`), and the cost of a sync.
    pub(crate) fn remarks<'a>(
        &self,
        versions: impl IntoIterator<Item = &'a Result<String, String>>,
    ) -> Result<Vec<String>, Failure> {
        let reasons = versions.into_iter().filter_map(|version| version.as_ref().err());
        let left_out = reasons.map(|why| format!("left out: {why}"));
        Ok(left_out.chain([fdatasync::remark(&self.root())?]).collect())
    }

    /// Returns a remark that ends with `advice` if the data directories are on tmpfs. Returns `None` if they are not, or if that cannot be
    /// determined.
    pub(crate) fn in_memory(&self, advice: &str) -> Option<String> {
        let root = self.root();
        let stat = rustix::fs::statfs(&root).ok()?;
        let root = root.display();
        (u64::try_from(stat.f_type) == Ok(TMPFS)).then(|| {
            format!("{root} is on a file system in memory, where a sync costs nothing: {advice}")
        })
    }
}

/// Returns the path of the `sexton` program next to this one. If cargo runs this program, `sexton` is built first in the same profile, so
/// that no outdated build is measured.
fn beside_this() -> Result<PathBuf, Failure> {
    let cannot = "find the program to measure";
    let own = std::env::current_exe().map_err(Failure::to(cannot))?;
    let program = own.with_file_name("sexton");
    let folder = own.parent().and_then(Path::file_name).unwrap_or_default();
    if let Some(cargo) = std::env::var_os("CARGO") {
        let profile = if folder == "debug" { "dev".as_ref() } else { folder };
        let built = Command::new(cargo)
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .args(["build", "--quiet", "--bin", "sexton", "--profile"])
            .arg(profile)
            .status();
        if !built.map_err(Failure::to(cannot))?.success() {
            return Err(Failure::new("failed to build the program to measure"));
        }
    }
    if program.exists() {
        Ok(program)
    } else {
        let words = format!(
            "failed to {cannot}: {} does not exist; build it with `cargo build --release`, or name another with --sexton",
            program.display()
        );
        Err(Failure::new(words))
    }
}
