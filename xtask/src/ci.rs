//! Everything that must hold before a change lands, in order of how soon it fails; the same here and everywhere.

use std::time::Duration;

use crate::shell::{Shell, Stopwatch, say};
use crate::{boundary, chaos, services, tidy};

/// A run that takes longer has failed: it would not be waited for.
const LIMIT: Duration = Duration::from_secs(28 * 60);

/// What a complete run writes, in MiB.
const ROOM_MIB: u64 = 8 * 1024;

struct Step {
    name: &'static str,
    about: &'static str,
    run: fn(&Shell) -> Result<(), String>,
}

const STEPS: &[Step] = &[
    Step { name: "fmt", about: "the code is formatted", run: fmt },
    Step { name: "tidy", about: "the project's own rules about its text", run: tidy::run },
    Step { name: "clippy", about: "no warnings, with all features, as shipped, and without stores", run: clippy },
    Step { name: "boundary", about: "the core needs no operating system, the simulator no tokio", run: boundary::run },
    Step { name: "docs", about: "the documentation builds without warnings", run: docs },
    Step { name: "services", about: "the programs that the tests need are there", run: services::install },
    Step { name: "test", about: "unit, process and documentation tests", run: test },
    Step {
        name: "model",
        about: "complete searches of the lease's states, and planted bugs found by them",
        run: model,
    },
    Step { name: "simulation", about: "seeded worlds with faults, and planted bugs found in them", run: simulation },
    Step {
        name: "chaos",
        about: "real candidates on real stores under faults, and planted bugs found in them",
        run: chaos::check,
    },
];

/// `cargo xtask ci`, with the names of steps to run only those.
pub(crate) fn run(shell: &Shell, names: &[String]) -> Result<(), String> {
    if names == ["--list"] {
        STEPS.iter().for_each(|step| say(&format!("{:<11} {}", step.name, step.about)));
        return Ok(());
    }
    let chosen = chosen(names)?;
    let mut variables = Vec::new();
    if std::env::var_os("CI").is_some() {
        // What helps the next build only takes room in a checkout that is built once.
        variables.push(("CARGO_INCREMENTAL".to_owned(), "0".to_owned()));
    }
    let shell = &shell.limited(LIMIT).with(variables);
    room(shell)?;
    let watch = Stopwatch::start();
    // Nobody else writes to a checkout that was made for this run.
    let before = std::env::var_os("CI").map(|_| changes(shell)).transpose()?;
    for (number, step) in chosen.iter().enumerate() {
        say(&format!("ci: [{}/{}] {}: {}", number + 1, chosen.len(), step.name, step.about));
        let own = Stopwatch::start();
        let result = (step.run)(shell);
        let seconds = own.elapsed().as_secs_f64();
        result.map_err(|problem| {
            format!("{problem}\nci: FAILED in step `{0}` after {seconds:.1} s; alone: cargo xtask ci {0}", step.name)
        })?;
        say(&format!("ci: {} passed in {seconds:.1} s", step.name));
    }
    if let Some(before) = before
        && changes(shell)? != before
    {
        return Err(format!("ci: FAILED: a step changed the checkout:\n{}", changes(shell)?));
    }
    say(&format!("ci: all {} steps passed in {:.0} s", chosen.len(), watch.elapsed().as_secs_f64()));
    Ok(())
}

/// A disk that fills up half way fails some test or other, with a line that nobody understands.
fn room(shell: &Shell) -> Result<(), String> {
    let free = shell.read("df", &["--output=avail", "--block-size=1M", "."])?;
    let free: u64 = free.lines().last().and_then(|line| line.trim().parse().ok()).unwrap_or(u64::MAX);
    if free < ROOM_MIB && !shell.target().join("debug").exists() {
        return Err(format!(
            "ci: {free} MiB are free on this disk, and a build from nothing takes {ROOM_MIB}: make room"
        ));
    }
    Ok(())
}

fn chosen(names: &[String]) -> Result<Vec<&'static Step>, String> {
    if names.is_empty() {
        return Ok(STEPS.iter().collect());
    }
    let find = |name: &String| {
        let known = || STEPS.iter().map(|step| step.name).collect::<Vec<_>>().join(", ");
        STEPS.iter().find(|step| step.name == name).ok_or_else(|| format!("no step `{name}`; there are {}", known()))
    };
    names.iter().map(find).collect()
}

fn changes(shell: &Shell) -> Result<String, String> {
    shell.read("git", &["-c", "safe.directory=*", "status", "--porcelain"])
}

fn fmt(shell: &Shell) -> Result<(), String> {
    shell.cargo(&["fmt", "--all", "--check"])
}

fn clippy(shell: &Shell) -> Result<(), String> {
    let variants: [&[&str]; 3] = [
        &["--workspace", "--all-targets", "--all-features"],
        // A workspace build turns on the planted bugs of the simulator for everybody; users build without.
        &["--package", "primacy-core", "--package", "primacy", "--package", "primacy-cli", "--all-targets"],
        &["--package", "primacy", "--no-default-features"],
    ];
    for variant in variants {
        let args = [&["clippy", "--locked"], variant, &["--", "--deny", "warnings"]].concat();
        shell.cargo(&args)?;
    }
    Ok(())
}

fn docs(shell: &Shell) -> Result<(), String> {
    // The command has the library's name, and its pages would overwrite the library's.
    let args = ["doc", "--workspace", "--exclude", "primacy-cli", "--no-deps", "--locked"];
    shell.run("cargo", &args, &[("RUSTDOCFLAGS", "--deny warnings")])
}

/// Fences for drivers that nothing of the workspace uses.
const DRIVERS: &str = "primacy/sqlx-postgres,primacy/sqlx-mysql,primacy/sqlx-sqlite";

/// Tests that need just any server share one of each kind; those that kill servers start their own.
fn test(shell: &Shell) -> Result<(), String> {
    let servers = services::Shared::start()?;
    let shell = &shell.with(servers.variables());
    let nextest = shell.output("cargo", &["nextest", "--version"])?.status.success();
    if !nextest {
        return shell.cargo(&["test", "--workspace", "--locked", "--features", DRIVERS]);
    }
    // It runs everything but the examples in the documentation.
    shell.cargo(&["test", "--workspace", "--locked", "--doc", "--features", DRIVERS])?;
    // Searches and hunts that the steps after this do with optimization, and larger.
    let twice = "not (package(primacy-sim) & (test(small_searches) | test(every_planted_bug)))";
    shell.cargo(&["nextest", "run", "--workspace", "--locked", "--features", DRIVERS, "--filterset", twice])
}

/// A profile that is fast and yet checks overflow and debug assertions.
fn simulator(shell: &Shell, binary: &str, args: &[&str]) -> Result<(), String> {
    let run = ["run", "--profile", "sim", "--locked", "--package", "primacy-sim", "--bin", binary, "--"];
    shell.cargo(&[&run, args].concat())
}

/// Searches that take longest; smaller ones like them are done here or in the tests. `primacy-model` without options does all.
const LARGEST: &[&str] = &[
    "--except=quorum: all",
    "--except=merged: three, two ask, a restart",
    "--except=merged: three, two ask, a renewal",
    "--except=merged: three, one renews",
    "--except=merged: two of two, a renewal",
    "--except=merged: one, asked twice",
    "--except=voters: another, two ask",
    "--except=registers: the lease moves",
    "--except=registers: stopped, and it moves",
    "--except=two, a lease that changes, a call lost",
    "--except=two, a lease that changes",
    "--except=three, stopped, a call lost",
    "--except=two, the row deleted",
    "--except=two, other leases",
    "--except=three, killed, a call lost",
];

fn model(shell: &Shell) -> Result<(), String> {
    simulator(shell, "primacy-model", LARGEST)
}

fn simulation(shell: &Shell) -> Result<(), String> {
    simulator(shell, "primacy-sim", &["run", "--ci"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_found_by_name() {
        assert_eq!(chosen(&[]).map(|steps| steps.len()), Ok(STEPS.len()));
        let named = chosen(&["tidy".into(), "fmt".into()]).expect("both exist");
        assert_eq!(named.iter().map(|step| step.name).collect::<Vec<_>>(), ["tidy", "fmt"]);
        assert!(chosen(&["tidi".into()]).is_err_and(|problem| problem.contains("no step `tidi`")));
    }
}
