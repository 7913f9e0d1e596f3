//! Writes what can be written by rule: formatting, clippy's offers, golden files, ratchets.

use crate::shell::{Shell, say};
use crate::tidy;

/// `cargo xtask fix`.
pub(crate) fn run(shell: &Shell) -> Result<(), String> {
    shell.cargo(&[
        "clippy",
        "--fix",
        "--allow-dirty",
        "--allow-staged",
        "--workspace",
        "--all-targets",
        "--all-features",
    ])?;
    shell.cargo(&["fmt", "--all"])?;
    // Tests that compare with golden files have `golden` in their name, and rewrite them when `BLESS` is set.
    shell.run("cargo", &["test", "--quiet", "--workspace", "golden"], &[("BLESS", "1")])?;
    tidy::lower_ratchets(shell)?;
    say("fix: done; read the difference before you commit it");
    Ok(())
}
