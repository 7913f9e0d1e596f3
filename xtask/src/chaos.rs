//! Runs the chaos program, which strikes real candidates on real stores, and sees that its judges bite.

use crate::ci::FEATURES;
use crate::shell::{Shell, say};

const PACKAGE: &str = "primacy-chaos";
/// The program's option that names the binary to strike.
const BINARY: &str = "--primacy";

/// Planted bugs, and the stores on which each must be found within [`HUNT`] seconds.
const CANARIES: &[(&str, &str)] = &[
    ("no-fence", "sqlite,postgres,mariadb,peers"),
    ("lease-from-reply", "postgres,mariadb"),
    ("now", "sqlite"),
    ("no-isolation", "sqlite"),
    ("stale-read", "kv"),
    ("follower-answers-reads", "kv"),
    ("answers-before-applied", "kv"),
    ("repeats-forwarded", "kv"),
];
const HUNT: &str = "90";

/// `cargo xtask chaos ARGS`.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<(), String> {
    build(shell, "release")?;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    strike(shell, "release", &args)
}

/// How many operations of the key-value store are checked in each run of the step.
const OPERATIONS: &str = "200000";

/// The step `chaos` of `cargo xtask ci`: three quarters of a minute and more on each store, first all but the key-value store at once,
/// then that one, then the planted bugs.
pub(crate) fn check(shell: &Shell) -> Result<(), String> {
    // The tests have built all of this but a link or two, and so do its libraries: the same packages, features and kinds of
    // targets. It checks overflows and debug assertions. The command here knows the planted bugs and is asked for none; the
    // night strikes the one that users build.
    let same = ["build", "--locked", "--workspace", "--features", FEATURES, "--test", "cli_commands"];
    shell.cargo(&[&same[..], &["--bin", "primacy", "--bin", PACKAGE]].concat())?;
    let seed = seed(shell)?.to_string();
    // With the story: the reader of a failure has nothing else.
    let stores = "sqlite,postgres,postgres-standby,mariadb";
    let args = ["--store", stores, "--protocol", "mixed", "--seconds", "45", "--seed", &seed];
    // Voters keep no registers. Beside the others, since all of them mostly wait.
    let peers = ["--store", "peers", "--seconds", "45", "--seed", &seed];
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| strike(shell, "dev", &peers));
        let struck = strike(shell, "dev", &args);
        struck.and(beside.join().unwrap_or_else(|_| Err("chaos among peers has panicked".to_owned())))
    })?;
    strike(shell, "dev", &["--store", "kv", "--seconds", "45", "--operations", OPERATIONS, "--seed", &seed])?;
    for (canary, stores) in CANARIES {
        say(&format!("  planted bug: {canary}"));
        let args = ["--canary", canary, "--store", stores, "--seconds", HUNT, "--seed", "5", "--quiet"];
        strike(shell, "dev", &args)?;
    }
    Ok(())
}

/// Other faults for every commit, the same wherever it is checked.
pub(crate) fn seed(shell: &Shell) -> Result<u32, String> {
    let commit = shell.read("git", &["-c", "safe.directory=*", "rev-parse", "--short=8", "HEAD"])?;
    Ok(u32::from_str_radix(commit.trim().get(..8).unwrap_or_default(), 16).unwrap_or(1))
}

/// The command; and the program, by a build of its own, since only that knows planted bugs.
fn build(shell: &Shell, profile: &str) -> Result<(), String> {
    shell.cargo(&["build", "--profile", profile, "--locked", "--package", "primacy-cli"])?;
    shell.cargo(&["build", "--profile", profile, "--locked", "--package", PACKAGE, "--features", "canary"])
}

fn strike(shell: &Shell, profile: &str, args: &[&str]) -> Result<(), String> {
    let folder = shell.target().join(if profile == "dev" { "debug" } else { profile });
    let [program, primacy] = [PACKAGE, "primacy"].map(|name| folder.join(name).to_string_lossy().into_owned());
    let mut command = args.to_vec();
    if !args.iter().any(|arg| arg.split('=').next() == Some(BINARY)) {
        command.extend([BINARY, &primacy]);
    }
    shell.run(&program, &command, &[])
}
