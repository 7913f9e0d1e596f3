//! Runs the benchmarks, which live in a package of their own and measure the command as users build it.

use crate::shell::Shell;

const PACKAGE: &str = "primacy-bench";
/// What `cargo xtask bench papers` runs: the published forms beside primacy's.
const PAPERS: &str = "primacy-papers";
/// The benchmarks' option that names the binary to measure.
const BINARY: &str = "--primacy";

/// `cargo xtask bench ARGS`, and `cargo xtask bench papers ARGS`.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<(), String> {
    if !shell.root().join("crates").join(PACKAGE).join("Cargo.toml").is_file() {
        return Err(format!("there are no benchmarks: no package {PACKAGE} in crates/"));
    }
    let (args, of_papers) = match args.split_first() {
        Some((first, rest)) if first == "papers" => (rest, true),
        _ => (args, false),
    };
    // Without its searches, which would turn on the planted bugs of the core in what is measured.
    let chosen: &[&str] = if of_papers {
        &["--package", PAPERS, "--no-default-features", "--features", "bench", "--bin", "papers-bench"]
    } else {
        &["--package", PACKAGE]
    };
    shell.cargo(&["build", "--release", "--locked", "--package", "primacy-cli"])?;
    let built = shell.target().join("release/primacy");
    let built = built.to_str().ok_or("the target folder is not UTF-8")?;
    let mut command = [&["run", "--quiet", "--release", "--locked"], chosen, &["--"]].concat();
    if !args.iter().any(|arg| arg.split('=').next() == Some(BINARY)) {
        command.extend([BINARY, built]);
    }
    command.extend(args.iter().map(String::as_str));
    shell.cargo(&command)
}
