//! What `completions` and `man` are asked for.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// `primacy completions`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// `primacy man`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ManArgs {
    /// Write one page per command into this folder instead; it is made if it is not there
    #[arg(long, value_name = "FOLDER")]
    pub(crate) dir: Option<PathBuf>,
}
