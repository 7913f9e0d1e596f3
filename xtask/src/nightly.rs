//! What is long and rarely finds something new: `cargo xtask ci --nightly`. Each step prints its own figures.

use std::time::Duration;

use crate::chaos;
use crate::ci::{SHIPPED, Step, draws, simulator};
use crate::shell::{Shell, say};
use crate::{package, servers, services};

/// For all steps together.
pub(crate) const LIMIT: Duration = Duration::from_secs(8 * 60 * 60);

/// What a night does, in order of how soon it fails.
pub(crate) const STEPS: &[Step] = &[
    Step { name: "services", about: "the programs that the tests need are there", run: services::install },
    Step {
        name: "clippy",
        about: "no warnings in tests of what users build, without planted bugs, and in each store alone",
        run: clippy,
    },
    Step {
        name: "packages",
        about: "the Debian package and the archive, in a clean system",
        run: package::check_packages,
    },
    Step {
        name: "containers",
        about: "the image, and what the manifests for Kubernetes and compose say, as far as podman goes",
        run: package::check_containers,
    },
    Step { name: "young", about: "the process tests on a machine that was started a moment ago", run: young },
    Step { name: "draws", about: "random tests with other draws than those of every change", run: other_draws },
    Step {
        name: "servers",
        about: "conformance, rights and fences on servers of other versions",
        run: |shell| servers::run(shell, &[]),
    },
    Step { name: "model", about: "complete searches, the largest too", run: model },
    Step { name: "simulation", about: "ten times the seeds of every change, others for every commit", run: simulation },
    Step {
        name: "chaos",
        about: "twenty minutes on each store, 1,000 kills of the key-value store's leaders, and the command as users build it",
        run: chaos,
    },
];

fn clippy(shell: &Shell) -> Result<(), String> {
    let clippy =
        |select: &[&str]| shell.cargo(&[&["clippy", "--locked"], select, &["--", "--deny", "warnings"]].concat());
    clippy(&[SHIPPED, &["--all-targets"]].concat())?;
    // As programs build it.
    clippy(&["--package", "primacy"])?;
    STORES.iter().try_for_each(|store| clippy(&["--package", "primacy", "--features", store]))
}

/// The stores that each change does not build alone.
const STORES: &[&str] = &["sqlite", "postgres", "mysql", "peers"];

/// Tests whose processes set timers on the boot clock, in a time namespace in which that clock has just begun.
fn young(shell: &Shell) -> Result<(), String> {
    let select = ["--locked", "--workspace", "--test", "processes", "--test", "cli_commands", "--test", "store_sqlite"];
    shell.cargo(&[&["nextest", "run", "--no-run"], &select[..]].concat())?;
    let uptime = shell.read("cat", &["/proc/uptime"])?;
    let seconds = uptime.split('.').next().and_then(|seconds| seconds.parse::<u64>().ok()).ok_or("no uptime")?;
    // A clock below zero is refused.
    let [boot, monotonic] =
        ["--boottime=-", "--monotonic=-"].map(|option| format!("{option}{}", seconds.saturating_sub(2)));
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let enter = ["--time", &boot, &monotonic, &cargo, "nextest", "run"];
    shell.run("unshare", &[&enter[..], &select].concat(), &[])
}

/// From the commit on, so that nights do not repeat each other.
fn other_draws(shell: &Shell) -> Result<(), String> {
    const RUNS: u64 = 20;
    let first = u64::from(chaos::seed(shell)?) * RUNS;
    let packages = ["--package", "primacy-core", "--package", "primacy-kv", "--features", "primacy-kv/server"];
    for seed in first..first + RUNS {
        let select = ["nextest", "run", "--locked", "--status-level", "fail"];
        shell.with(draws(seed)).cargo(&[&select[..], &packages].concat())?;
    }
    Ok(())
}

fn model(shell: &Shell) -> Result<(), String> {
    shell.run(&simulator(shell, "primacy-model")?, &[], &[])
}

/// Seeds from the commit on, so that nights do not repeat each other.
fn simulation(shell: &Shell) -> Result<(), String> {
    let program = simulator(shell, "primacy-sim")?;
    let from = (u64::from(chaos::seed(shell)?) * 1_000_000).to_string();
    let run = |args: &[&str]| shell.run(&program, &[&["run", "--from", &from], args].concat(), &[]);
    run(&["--seeds", "400000"])?;
    run(&["--protocol", "peers", "--seeds", "10000"])?;
    run(&["--protocol", "kv", "--seeds", "50000"])?;
    for selector in SELECTORS {
        run(&["--protocol", "peers", "--selector", selector, "--seeds", "100000"])?;
    }
    Ok(())
}

const SELECTORS: &[&str] = &["lowest-id", "named", "pole", "roulette", "ring", "sticky"];

/// All faults, on every store, with a build that knows no planted bug.
fn chaos(shell: &Shell) -> Result<(), String> {
    let seed = chaos::seed(shell)?.to_string();
    for stores in ["sqlite,postgres,postgres-standby,mariadb", "galera", "peers"] {
        say(&format!("  {stores}"));
        let protocol = if stores == "peers" { "lease" } else { "mixed" };
        let args = ["--store", stores, "--protocol", protocol, "--seconds", "1200", "--seed", &seed, "--quiet"];
        chaos::run(shell, &args.map(str::to_owned))?;
    }
    say("  kv");
    let args = ["--store", "kv", "--kills", "1000", "--operations", "5000000", "--seed", &seed, "--quiet"];
    chaos::run(shell, &args.map(str::to_owned))
}
