//! Real candidates on real stores under seeded faults, judged by witnesses of their own: `cargo xtask chaos`.

mod auditor;
mod canary;
mod candidate;
mod clock;
mod fault;
#[cfg(feature = "canary")]
mod flawed;
mod judge;
mod kv;
mod process;
mod report;
mod rng;
mod run;
mod setup;
mod site;
mod timeline;
mod witness;
mod work;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};

use crate::canary::Canary;
use crate::clock::Moment;
use crate::fault::Kind;
use crate::report::Report;
use crate::run::Run;
use crate::setup::{NodeOptions, Protocol, Setup};
use crate::timeline::say;

/// Starts real `primacy run` candidates on real stores, strikes them with faults that follow from a seed, and judges what
/// independent witnesses saw.
#[derive(Parser)]
#[command(name = "primacy-chaos")]
struct Options {
    /// Which stores, one run each, all at once
    #[arg(long, value_delimiter = ',', default_value = "sqlite")]
    store: Vec<String>,
    /// For how long faults are injected
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The same in minutes
    #[arg(long, conflicts_with = "seconds")]
    minutes: Option<u64>,
    /// What all faults follow from; drawn and told if not given
    #[arg(long)]
    seed: Option<u64>,
    /// How many candidates
    #[arg(long, default_value_t = 5)]
    candidates: usize,
    /// The candidates' lease, in milliseconds
    #[arg(long, default_value_t = 1_000)]
    lease: u64,
    /// By which protocol candidates take part
    #[arg(long, value_enum, default_value_t = Protocol::Lease)]
    protocol: Protocol,
    /// Only these kinds of faults
    #[arg(long, value_delimiter = ',', value_parser = Kind::parse)]
    faults: Vec<Kind>,
    /// Plant a known bug: the run succeeds when the bug is found in that time
    #[arg(long)]
    canary: Option<Canary>,
    /// The primacy binary under test [default: beside this program]
    #[arg(long)]
    primacy: Option<PathBuf>,
    /// Leave logs and witnesses in this folder
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Print a JSON object for each run instead of its story
    #[arg(long)]
    json: bool,
    /// Print the summary only, and on failure the end of the story
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    nodes: NodeOptions,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Subcommand)]
enum Role {
    /// The program that candidates run. Not for people
    #[command(hide = true)]
    Work(work::Job),
    /// A candidate with a planted bug. Not for people
    #[cfg(feature = "canary")]
    #[command(hide = true)]
    Flawed(flawed::Candidacy),
    /// A node of the key-value store with a planted bug. Not for people
    #[cfg(feature = "canary")]
    #[command(hide = true)]
    FlawedNode(kv::flawed::FlawedNode),
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match &options.role {
        Some(Role::Work(job)) => work::main(job).map(|()| true),
        #[cfg(feature = "canary")]
        Some(Role::Flawed(candidacy)) => flawed::main(candidacy).map(|()| true),
        #[cfg(feature = "canary")]
        Some(Role::FlawedNode(node)) => kv::flawed::main(node).map(|()| true),
        None => chaos(&options),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("primacy-chaos: {error:#}"));
            ExitCode::from(2)
        }
    }
}

impl Options {
    fn seconds(&self) -> u64 {
        self.minutes.map_or(self.seconds, |minutes| minutes.saturating_mul(60))
    }
}

/// Runs all; `true` if all went as it should.
fn chaos(options: &Options) -> Result<bool> {
    let network = if options.store.iter().any(|store| store != "sqlite") { world::enter().err() } else { None };
    let no_wires = network.map(|why| format!("no hosts of their own for candidates or nodes: {why:#}"));
    if std::env::var_os("CI").is_some_and(|value| !value.is_empty()) {
        all_faults_can_be_dealt(no_wires.as_deref())?;
    }
    let seed = options.seed.unwrap_or_else(|| Moment::now().nanos() % 1_000_000);
    let runs: Vec<_> = options
        .store
        .iter()
        .map(|store| {
            let setup = Setup { no_wires: no_wires.clone(), ..setup(options, store, seed)? };
            Ok(thread::spawn(move || execute(setup)))
        })
        .collect::<Result<_>>()?;
    let mut all_well = true;
    for run in runs {
        let Ok(report) = run.join() else { bail!("a run has panicked") };
        all_well &= told(options, &report?)?;
    }
    Ok(all_well)
}

fn execute(setup: Setup) -> Result<Report> {
    if setup.store == kv::STORE { kv::execute(&setup) } else { Run::execute(setup) }
}

/// What is not tried under CI is tried nowhere.
fn all_faults_can_be_dealt(no_wires: Option<&str>) -> Result<()> {
    if let Some(why) = no_wires {
        bail!("{why}; under CI that is a failure");
    }
    if primacy_servers::faketime().is_none() {
        bail!("no clock can be stepped without libfaketime; under CI that is a failure");
    }
    if !world::can_isolate() {
        bail!("no program can have a PID namespace here; under CI that is a failure");
    }
    if !primacy_servers::Disk::is_possible() {
        bail!("no disk can be filled, since no file system can be mounted here; under CI that is a failure");
    }
    Ok(())
}

fn setup(options: &Options, store: &str, seed: u64) -> Result<Setup> {
    let beside = std::env::current_exe()?.with_file_name("primacy");
    let all = options.canary.map_or(Kind::ALL, Canary::faults);
    let faults = if options.faults.is_empty() { all.to_vec() } else { options.faults.clone() };
    Ok(Setup {
        store: store.to_owned(),
        seed,
        span: Duration::from_secs(options.seconds()),
        candidates: options.candidates,
        lease: Duration::from_millis(options.lease),
        protocol: options.protocol,
        faults,
        primacy: options.primacy.clone().unwrap_or(beside),
        canary: options.canary,
        keep: options.keep.as_ref().map(|folder| folder.join(store)),
        quiet: options.quiet || options.json,
        no_wires: None,
        nodes: options.nodes,
        prefix: if options.store.len() > 1 { format!("{store:<16}") } else { String::new() },
    })
}

/// Tells what came out; `true` if it is as it should be.
fn told(options: &Options, report: &Report) -> Result<bool> {
    let breaks = options.canary.and_then(Canary::breaks);
    let well = match breaks {
        Some(promise) => report.broken.iter().any(|verdict| verdict.promise == promise),
        None => report.broken.is_empty(),
    };
    if options.json {
        say(&serde_json::to_string_pretty(report)?);
        return Ok(well);
    }
    if !well {
        report.last_lines.iter().for_each(|line| say(line));
    }
    say(&format!("\n{report}"));
    match options.canary {
        Some(_) if breaks.is_none() => {}
        Some(canary) if well => {
            let after = report.broken_after_seconds.unwrap_or_default();
            say(&format!("canary {canary:?}: found after {after:.1} s"));
        }
        Some(canary) => say(&format!("canary {canary:?}: NOT found; the judges do not bite")),
        None => {}
    }
    if !well {
        say(&format!("again: {}", replay(options, report)));
    }
    Ok(well)
}

/// The command that deals the same faults again.
fn replay(options: &Options, report: &Report) -> String {
    let mut command = format!(
        "cargo xtask chaos --store {} --seed {} --seconds {} --lease {}",
        report.store,
        report.seed,
        options.seconds(),
        options.lease
    );
    if report.store == kv::STORE {
        command += &options.nodes.words();
    } else {
        command += &format!(" --candidates {}", options.candidates);
    }
    if options.protocol != Protocol::Lease {
        command += &format!(" --protocol {}", options.protocol.name());
    }
    if !options.faults.is_empty() {
        let names: Vec<&str> = options.faults.iter().map(|kind| kind.name()).collect();
        command += &format!(" --faults {}", names.join(","));
    }
    command
}
