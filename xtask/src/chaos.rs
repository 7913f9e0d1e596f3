//! Runs the chaos program, which strikes real candidates on real stores, and sees that its judges bite.

use crate::shell::{Shell, say};

const PACKAGE: &str = "primacy-chaos";
/// The program's option that names the binary to strike.
const BINARY: &str = "--primacy";

/// Planted bugs, and the stores on which each must be found within [`HUNT`] seconds.
const CANARIES: &[(&str, &str)] =
    &[("no-fence", "sqlite,postgres,mariadb"), ("lease-from-reply", "postgres,mariadb"), ("now", "sqlite")];
const HUNT: &str = "90";

/// `cargo xtask chaos ARGS`.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<(), String> {
    build(shell)?;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    strike(shell, &args)
}

/// The step `chaos` of `cargo xtask ci`: three quarters of a minute on each store, all at once, then the planted bugs.
pub(crate) fn check(shell: &Shell) -> Result<(), String> {
    build(shell)?;
    // Other faults for every commit, the same wherever it is checked.
    let commit = shell.read("git", &["-c", "safe.directory=*", "rev-parse", "--short=8", "HEAD"])?;
    let seed = u32::from_str_radix(commit.trim().get(..8).unwrap_or_default(), 16).unwrap_or(1).to_string();
    // With the story: whoever reads of a failure has nothing else.
    strike(shell, &["--store", "sqlite,postgres,postgres-standby,mariadb", "--seconds", "45", "--seed", &seed])?;
    for (canary, stores) in CANARIES {
        say(&format!("  planted bug: {canary}"));
        strike(shell, &["--canary", canary, "--store", stores, "--seconds", HUNT, "--seed", "5", "--quiet"])?;
    }
    Ok(())
}

/// The command as users build it; and the program, by a build of its own, since only that knows planted bugs.
fn build(shell: &Shell) -> Result<(), String> {
    shell.cargo(&["build", "--release", "--locked", "--package", "primacy-cli"])?;
    shell.cargo(&["build", "--release", "--locked", "--package", PACKAGE, "--features", "canary"])
}

fn strike(shell: &Shell, args: &[&str]) -> Result<(), String> {
    let release = shell.target().join("release");
    let [program, primacy] = [PACKAGE, "primacy"].map(|name| release.join(name).to_string_lossy().into_owned());
    let mut command = args.to_vec();
    if !args.iter().any(|arg| arg.split('=').next() == Some(BINARY)) {
        command.extend([BINARY, &primacy]);
    }
    shell.run(&program, &command, &[])
}
