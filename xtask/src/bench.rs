//! Runs the benchmarks, which live in a package of their own.

use crate::shell::Shell;

const PACKAGE: &str = "primacy-bench";

/// `cargo xtask bench ARGS`.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<(), String> {
    if !shell.root().join("crates").join(PACKAGE).join("Cargo.toml").is_file() {
        return Err(format!("there are no benchmarks yet: no package {PACKAGE} in crates/"));
    }
    let mut command = vec!["run", "--release", "--locked", "--package", PACKAGE, "--"];
    command.extend(args.iter().map(String::as_str));
    shell.cargo(&command)
}
