//! Runs the benchmarks, which live in a package of their own and measure the command as users build it.

use crate::shell::Shell;

const PACKAGE: &str = "primacy-bench";
/// The benchmarks' option that names the binary to measure.
const BINARY: &str = "--primacy";

/// `cargo xtask bench ARGS`.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<(), String> {
    if !shell.root().join("crates").join(PACKAGE).join("Cargo.toml").is_file() {
        return Err(format!("there are no benchmarks: no package {PACKAGE} in crates/"));
    }
    shell.cargo(&["build", "--release", "--locked", "--package", "primacy-cli", "--package", PACKAGE])?;
    let built = shell.target().join("release/primacy");
    let built = built.to_str().ok_or("the target folder is not UTF-8")?;
    let mut command = vec!["run", "--quiet", "--release", "--locked", "--package", PACKAGE, "--"];
    if !args.iter().any(|arg| arg.split('=').next() == Some(BINARY)) {
        command.extend([BINARY, built]);
    }
    command.extend(args.iter().map(String::as_str));
    shell.cargo(&command)
}
