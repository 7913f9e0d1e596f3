//! The programs and servers that the tests need.

mod packages;
mod shared;

pub(crate) use packages::{install, install_for_packages};
pub(crate) use shared::Shared;

use crate::shell::Shell;

/// `cargo xtask services`, with what to do.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<(), String> {
    match args {
        [] => install(shell),
        [word] => match word.as_str() {
            "install" => install(shell),
            "up" => shared::up(shell),
            "down" => shared::down(shell),
            "status" => shared::status(shell),
            shared::HOLD => shared::hold(shell),
            _ => Err(format!("`services` knows install, up, down and status, not `{word}`")),
        },
        _ => Err("`services` takes one word: install, up, down or status".to_string()),
    }
}
