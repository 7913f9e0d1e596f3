//! Everything that must hold before a change lands, in order of how soon it fails; the same here and everywhere.
//!
//! Two things keep it short. All that is built for tests and for chaos has the same features, so that it is built once.
//! And the searches and simulations, which need nothing but processors, run at idle priority beside the tests and chaos,
//! which mostly wait: for leases to end, for servers, for disks.

use std::time::Duration;

use crate::aside::Aside;
use crate::shell::{Shell, Stopwatch, say};
use crate::{boundary, chaos, nightly, services, tidy};

/// A run that takes longer has failed. On two cores it takes 20 to 32 minutes, by how fast they are.
const LIMIT: Duration = Duration::from_secs(45 * 60);

/// What a complete run writes, in MiB.
const ROOM_MIB: u64 = 8 * 1024;

pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: fn(&Shell) -> Result<(), String>,
}

const STEPS: &[Step] = &[
    Step { name: "fmt", about: "the code is formatted", run: fmt },
    Step { name: "tidy", about: "the project's own rules about its text", run: tidy::run },
    Step { name: "clippy", about: "no warnings, with all features, as shipped, and without I/O", run: clippy },
    Step { name: "boundary", about: "the core needs no operating system, the simulator no tokio", run: boundary::run },
    Step { name: "docs", about: "the documentation builds without warnings", run: docs },
    Step {
        name: "store",
        about: "a store outside of this workspace, on the exported API alone, keeps the port's promises",
        run: example_store,
    },
    Step { name: "services", about: "the programs that the tests need are there", run: services::install },
    Step { name: "test", about: "unit, process and documentation tests", run: test },
    Step {
        name: "chaos",
        about: "real candidates on real stores under faults, and planted bugs found in them",
        run: chaos::check,
    },
    Step {
        name: "model",
        about: "complete searches of the lease's states, and planted bugs found by them",
        run: model,
    },
    Step { name: "simulation", about: "seeded worlds with faults, and planted bugs found in them", run: simulation },
    Step { name: "papers", about: "published forms break as they are known to, and repaired ones do not", run: papers },
];

/// `cargo xtask ci`, with the names of steps to run only those; `--nightly` for what is too long for every change.
pub(crate) fn run(shell: &Shell, words: &[String]) -> Result<(), String> {
    let (nightly, names): (Vec<&String>, Vec<&String>) = words.iter().partition(|word| *word == "--nightly");
    let (steps, limit) = if nightly.is_empty() { (STEPS, LIMIT) } else { (nightly::STEPS, nightly::LIMIT) };
    if names == ["--list"] {
        steps.iter().for_each(|step| say(&format!("{:<11} {}", step.name, step.about)));
        return Ok(());
    }
    let chosen = chosen(steps, &names)?;
    let mut variables = Vec::new();
    if std::env::var_os("CI").is_some() {
        // What helps the next build, and who debugs, only takes room and time in a checkout that is built once.
        let off = ["CARGO_INCREMENTAL", "CARGO_PROFILE_DEV_DEBUG", "CARGO_PROFILE_SIM_DEBUG"];
        variables.extend(off.map(|name| (name.to_owned(), "0".to_owned())));
    }
    let shell = &shell.limited(limit).with(variables);
    room(shell)?;
    let watch = Stopwatch::start();
    // Nobody else writes to a checkout that was made for this run.
    let before = std::env::var_os("CI").map(|_| changes(shell)).transpose()?;
    let mut asides: Vec<(&str, Aside)> = Vec::new();
    for (number, step) in chosen.iter().enumerate() {
        say(&format!("ci: [{}/{}] {}: {}", number + 1, chosen.len(), step.name, step.about));
        let own = Stopwatch::start();
        let failed = |problem: String, own: Stopwatch| {
            let (name, option) = (step.name, if nightly.is_empty() { "" } else { "--nightly " });
            let seconds = own.elapsed().as_secs_f64();
            format!("{problem}\nci: FAILED in step `{name}` after {seconds:.1} s; alone: cargo xtask ci {option}{name}")
        };
        // From here on there is something to do beside.
        if step.name == "test" && names.is_empty() {
            asides = searches(shell).map_err(|problem| failed(problem, own))?;
        }
        let result = match asides.iter().position(|(name, _)| *name == step.name) {
            Some(at) => asides.remove(at).1.end(shell),
            None => (step.run)(shell),
        };
        result.map_err(|problem| failed(problem, own))?;
        say(&format!("ci: {} passed in {:.1} s", step.name, own.elapsed().as_secs_f64()));
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

fn chosen(steps: &'static [Step], names: &[&String]) -> Result<Vec<&'static Step>, String> {
    if names.is_empty() {
        return Ok(steps.iter().collect());
    }
    let find = |name: &&String| {
        let known = || steps.iter().map(|step| step.name).collect::<Vec<_>>().join(", ");
        steps.iter().find(|step| step.name == *name).ok_or_else(|| format!("no step `{name}`; there are {}", known()))
    };
    names.iter().map(find).collect()
}

fn changes(shell: &Shell) -> Result<String, String> {
    shell.read("git", &["-c", "safe.directory=*", "status", "--porcelain"])
}

fn fmt(shell: &Shell) -> Result<(), String> {
    shell.cargo(&["fmt", "--all", "--check"])?;
    shell.cargo(&["fmt", "--manifest-path", EXAMPLE_STORE, "--check"])
}

/// The manifest of a workspace of its own, as a program of a user has.
pub(crate) const EXAMPLE_STORE: &str = "examples/store/Cargo.toml";

/// Its dependencies have the versions of this workspace, and what is built of both is built once.
fn example_store(shell: &Shell) -> Result<(), String> {
    let target = shell.target().to_string_lossy().into_owned();
    let place = ["--locked", "--manifest-path", EXAMPLE_STORE, "--target-dir", &target];
    shell.cargo(&[&["clippy", "--all-targets"], &place[..], &["--", "--deny", "warnings"]].concat())?;
    shell.cargo(&[&["test"], &place[..]].concat())
}

/// What users build.
pub(crate) const SHIPPED: &[&str] = &["--package", "primacy-core", "--package", "primacy", "--package", "primacy-cli"];

fn clippy(shell: &Shell) -> Result<(), String> {
    let variants: [&[&str]; 3] = [
        &["--workspace", "--all-targets", "--all-features"],
        // A workspace build turns on the planted bugs of the simulator for everybody; users build without. Tests so are a
        // step of the night.
        SHIPPED,
        // Without I/O. Single stores are a step of the night.
        &["--package", "primacy-kv"],
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

/// Fences for drivers that nothing of the workspace uses, the planted bugs of chaos, which do nothing until they are
/// asked for, the benchmarks of the papers, and the files of the key-value store. Whatever runs tests or chaos is built with these and the whole workspace, and so only once.
pub(crate) const FEATURES: &str = "primacy/sqlx-postgres,primacy/sqlx-mysql,primacy/sqlx-sqlite,\
     primacy-kv/server,primacy-chaos/canary,primacy-papers/bench";

/// The draws of random tests follow from this number. Those of every change are the same, so that a change that fails is one that breaks
/// something; each night has others.
pub(crate) fn draws(seed: u64) -> Vec<(String, String)> {
    vec![("PROPTEST_RNG_SEED".to_owned(), seed.to_string())]
}

/// Tests that need just any server share one of each kind; those that kill servers start their own.
fn test(shell: &Shell) -> Result<(), String> {
    let servers = services::Shared::start()?;
    let shell = &shell.with([servers.variables(), draws(1)].concat());
    let nextest = shell.output("cargo", &["nextest", "--version"])?.status.success();
    if !nextest {
        return shell.cargo(&["test", "--workspace", "--locked", "--features", FEATURES]);
    }
    // It runs everything but the examples in the documentation.
    shell.cargo(&["test", "--workspace", "--locked", "--doc", "--features", FEATURES])?;
    // Searches and hunts that the steps after this do with optimization, and larger.
    let twice =
        "not ((package(primacy-sim) | package(primacy-papers)) & (test(small_searches) | test(every_planted_bug)))";
    // Most tests wait for something, so that twice as many as there are processors leave none idle.
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get) * 2;
    let threads = format!("--test-threads={threads}");
    let select = ["--workspace", "--locked", "--features", FEATURES, &threads, "--filterset", twice];
    shell.cargo(&[&["nextest", "run"], &select[..]].concat())
}

/// A profile that is fast and yet checks overflow and debug assertions.
const PROFILE: &str = "sim";

/// Builds the simulator and the search, and gives the place of one of them.
pub(crate) fn simulator(shell: &Shell, binary: &str) -> Result<String, String> {
    shell.cargo(&["build", "--profile", PROFILE, "--locked", "--package", "primacy-sim", "--bins"])?;
    Ok(shell.target().join(PROFILE).join(binary).to_string_lossy().into_owned())
}

/// Builds the searches of the published forms, without their benchmark, and gives their place.
fn papers_program(shell: &Shell) -> Result<String, String> {
    shell.cargo(&["build", "--profile", PROFILE, "--locked", "--package", PAPERS, "--bin", PAPERS])?;
    Ok(shell.target().join(PROFILE).join(PAPERS).to_string_lossy().into_owned())
}

const PAPERS: &str = "primacy-papers";
const MODEL: &str = "primacy-model";
const SIMULATOR: &str = "primacy-sim";

/// The steps `model`, `simulation` and `papers`, begun.
fn searches(shell: &Shell) -> Result<Vec<(&'static str, Aside)>, String> {
    let [model, simulation] = [simulator(shell, MODEL)?, simulator(shell, SIMULATOR)?];
    let papers = papers_program(shell)?;
    Ok(vec![
        ("model", Aside::begin(shell, "model", &model, LARGEST)?),
        ("simulation", Aside::begin(shell, "simulation", &simulation, &["run", "--ci"])?),
        ("papers", Aside::begin(shell, "papers", &papers, &["check"])?),
    ])
}

/// Searches that take longest; smaller ones like them are done here or in the tests. `primacy-model` without options does all.
const LARGEST: &[&str] = &[
    "--except=quorum: all",
    "--except=quorum: all, and a release, in short",
    "--except=quorum: a renewal is withdrawn",
    "--except=quorum: two of two, a short lease in a gap",
    "--except=quorum: two renewals",
    "--except=merged: three, two ask, a restart",
    "--except=merged: three, two ask, a renewal",
    "--except=merged: three, one renews",
    "--except=merged: two of two, a renewal",
    "--except=merged: one, asked twice",
    "--except=merged: deposed before voters go",
    "--except=voters: another, two ask",
    "--except=registers: the lease moves",
    "--except=registers: stopped, and it moves",
    "--except=hold: stopped, drained, ended",
    "--except=hold: a process is left",
    "--except=hold: closed, and works on",
    "--except=hold: agent and program stopped",
    "--except=two, looks that show what is past",
    "--except=two, orders",
    "--except=two, a lease that changes, a call lost",
    "--except=two, a lease that changes",
    "--except=three, stopped, a call lost",
    "--except=two, the row deleted",
    "--except=two, other leases",
    "--except=three, killed, a call lost",
    "--except=three, resign and withdraw",
    "--except=log: three ballots, a write only",
    "--except=log: three ballots, a write and a restart",
    "--except=log: four ballots",
    "--except=log: a source goes silent",
    "--except=log: reads by leases",
    "--except=log: writes and reads by leases",
    "--except=log: another for one of two",
    "--except=log: another for one of three",
    "--except=log: a restart after a change",
    "--except=log: a hand-over, three ballots",
    "--except=log: CountsOlder",
    "--except=log: SettlesEarly",
    "--except=log: TellsItsEnd",
    "--except=log: ForgetsPromise, and cuts",
    "--except=merged: reads by quorums",
];

fn model(shell: &Shell) -> Result<(), String> {
    shell.run(&simulator(shell, MODEL)?, LARGEST, &[])
}

fn simulation(shell: &Shell) -> Result<(), String> {
    shell.run(&simulator(shell, SIMULATOR)?, &["run", "--ci"], &[])
}

fn papers(shell: &Shell) -> Result<(), String> {
    shell.run(&papers_program(shell)?, &["check"], &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_found_by_name() {
        assert_eq!(chosen(STEPS, &[]).map(|steps| steps.len()), Ok(STEPS.len()));
        let [tidy, fmt, wrong] = ["tidy", "fmt", "tidi"].map(str::to_owned);
        let named = chosen(STEPS, &[&tidy, &fmt]).expect("both exist");
        assert_eq!(named.iter().map(|step| step.name).collect::<Vec<_>>(), ["tidy", "fmt"]);
        assert!(chosen(STEPS, &[&wrong]).is_err_and(|problem| problem.contains("no step `tidi`")));
    }
}
