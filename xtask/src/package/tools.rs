//! The tools that only packages and images need: `cargo deb` by cargo, a target of Rust by rustup, the rest from Debian.

use std::path::PathBuf;

use super::{static_target, text};
use crate::services;
use crate::shell::Shell;

/// The version that packages are made with. Its build takes three quarters of a minute.
const CARGO_DEB: &str = "3.8.0";

/// Installs what is missing. Nothing of it is on the path of anything else.
pub(super) fn install(shell: &Shell) -> Result<(), String> {
    services::install_for_packages(shell)?;
    if !cargo_deb(shell).is_file() {
        let root = text(&tools(shell));
        shell.cargo(&["install", "cargo-deb", "--locked", "--version", CARGO_DEB, "--root", &root])?;
    }
    let installed = shell.read("rustup", &["target", "list", "--installed"])?;
    let target = static_target(shell)?;
    if !installed.lines().any(|line| line == target) {
        shell.run("rustup", &["target", "add", &target], &[])?;
    }
    Ok(())
}

fn tools(shell: &Shell) -> PathBuf {
    shell.root().join("target").join("tools").join(format!("cargo-deb-{CARGO_DEB}"))
}

pub(super) fn cargo_deb(shell: &Shell) -> PathBuf {
    tools(shell).join("bin").join("cargo-deb")
}
