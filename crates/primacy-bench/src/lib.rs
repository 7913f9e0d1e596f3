//! Measures primacy on this machine and prints what came out, good or bad: `cargo xtask bench`.
//!
//! [`main`] is the command. The rest is what other benchmarks measure with: servers of their own, groups of runners, losses of
//! leaders, and what came of them.

#![expect(clippy::print_stdout, reason = "a benchmark's output is its purpose")]
#![expect(clippy::disallowed_methods, reason = "elapsed time is measured, and nothing suspends the machine meanwhile")]

mod agents;
mod common;
mod crew;
mod elections;
mod entropy;
mod failover;
mod fenced;
mod floods;
mod hosts;
mod http;
mod idle;
mod kv;
mod log;
mod micro;
mod peers;
mod place;
mod plot;
mod proc;
mod runners;
mod spread;
mod strokes;

use std::fs;

use anyhow::Result;
use clap::{Parser, Subcommand};

pub use crate::common::CommonOptions;
pub use crate::entropy::Entropy;
use crate::failover::Failover;
pub use crate::failover::{Event, Gaps, gaps};
pub use crate::place::{BenchStore, Kind, Site};
pub use crate::plot::steps;
pub use crate::proc::cpu;
pub use crate::runners::{Manner, Runners, Start};
pub use crate::spread::Spread;

/// What primacy costs and how fast it fails over, on real processes and real stores.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    common: CommonOptions,
    /// The stores to measure: sqlite, postgres, mariadb, peers (three); the servers are private ones of this run.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "sqlite")]
    store: Vec<Kind>,
    /// Numbers of candidates.
    #[arg(long, value_delimiter = ',', default_value = "2,20,200")]
    candidates: Vec<usize>,
    /// How often each event is measured.
    #[arg(long, default_value_t = 30)]
    repeats: usize,
    /// How often the silent loss is measured, which takes a lease each time.
    #[arg(long, default_value_t = 30)]
    silent_repeats: usize,
    /// The lease of the candidates, in milliseconds.
    #[arg(long, default_value_t = 10_000)]
    lease: u64,
    /// Instead of by a lease, the candidates take part by the registers protocol, with rounds of this many milliseconds.
    #[arg(long)]
    round: Option<u64>,
    /// Only these parts: is-current, renewal, capacity, fence, failover, idle.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// For how many seconds idle runners are watched.
    #[arg(long, default_value_t = 30)]
    idle_seconds: u64,
    /// With `--round`, and for failover: instead of runners, processes that use the library, with this many candidates in each. They
    /// can be killed, and lost without a word.
    #[arg(long, requires = "round")]
    each: Option<usize>,
    #[command(subcommand)]
    instead: Option<Instead>,
}

/// What is measured instead of stores.
#[derive(Subcommand)]
enum Instead {
    /// Elections among peers on hosts of their own: a leader's host is lost, hears nothing, is not heard; frames are lost
    Hosts(hosts::Options),
    /// A healthy leader under floods of those who may do nothing else, beside a control that burns as much CPU
    Floods(floods::Options),
    /// The key-value store beside Redis, etcd and ZooKeeper
    Kv(kv::Options),
    /// Programs that lead through agents: kills of those with proof, and many elections of one agent
    Agents(agents::Options),
    /// Answers over HTTP a second, and what clients cost a leader
    Http(http::Options),
    /// Many elections of one process, which share a thread and connections
    Elections(elections::Options),
}

impl Options {
    fn manner(&self) -> Manner {
        match (self.round, self.each) {
            (Some(round), Some(each)) => Manner::Crew { round, each },
            (Some(round), None) => Manner::Registers(round),
            (None, _) => Manner::Lease(self.lease),
        }
    }
}

/// The command.
///
/// # Errors
/// When a server or a process does not do what is asked, or a file cannot be written.
pub fn main() -> Result<()> {
    let options = Options::parse();
    let common = &options.common;
    if common.run_part(options.round)? {
        return Ok(());
    }
    let wanted = |part: &str| options.only.is_empty() || options.only.iter().any(|only| only == part);
    match &options.instead {
        Some(Instead::Hosts(hosts)) => return hosts::run(hosts, &machine(), &common.primacy, &common.out),
        Some(Instead::Agents(wanted)) => return agents::run(wanted, &machine(), &common.primacy),
        Some(Instead::Http(wanted)) => return http::run(wanted, &machine(), &common.primacy),
        Some(Instead::Elections(wanted)) => return elections::run(wanted, &machine(), &common.primacy),
        Some(Instead::Kv(wanted)) => return kv::run(wanted, &machine(), &common.primacy),
        Some(Instead::Floods(wanted)) => return floods::run(wanted, &machine(), &common.primacy),
        None => {}
    }
    println!("{}", machine());
    if wanted("is-current") {
        println!("{}", micro::is_current()?);
    }
    let mut failovers = Vec::new();
    for &kind in &options.store {
        let place = BenchStore::start(kind, &common.primacy)?;
        if wanted("renewal") {
            println!("{}", micro::renewal(&place)?);
        }
        if wanted("capacity") {
            for leaders in [1, 8, 64] {
                println!("{}", micro::capacity(&place, leaders)?);
            }
        }
        if wanted("fence")
            && let Some(told) = fenced::measure(&place)?
        {
            println!("{told}");
        }
        if wanted("failover") {
            failover(&options, &place, &mut failovers)?;
        }
        if wanted("idle") {
            for &candidates in &options.candidates {
                let idle = idle::measure(&common.primacy, &place, candidates, options.manner(), options.idle_seconds)?;
                println!("{idle}");
            }
        }
    }
    if !failovers.is_empty() {
        fs::write(common.out.join("failover.json"), serde_json::to_vec_pretty(&failovers)?)?;
        plot::failover(&common.out, &failovers)?;
        println!("plots and raw figures are in {}", common.out.display());
    }
    Ok(())
}

fn failover(options: &Options, place: &BenchStore, results: &mut Vec<Failover>) -> Result<()> {
    for &candidates in &options.candidates {
        for event in Event::ALL {
            // A process that uses the library is all that a runner, its warden and its program are.
            if options.each.is_some() && !matches!(event, Event::RunnerDeath | Event::SilentLoss) {
                continue;
            }
            let repeats = if event == Event::SilentLoss { options.silent_repeats } else { options.repeats };
            if repeats > 0 {
                let processes = candidates / options.each.unwrap_or(1);
                let failover =
                    Failover::measure(&options.common.primacy, place, event, processes, repeats, options.manner())?;
                println!("{failover}");
                results.push(failover);
            }
        }
    }
    Ok(())
}

/// The setup, without which a figure means nothing.
pub fn machine() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown");
    let model = model.trim_start_matches(|c: char| c.is_whitespace() || c == ':');
    format!("machine: {cores} cores, {model}, Linux {}", read("/proc/sys/kernel/osrelease").trim())
}
