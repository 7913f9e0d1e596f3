//! The key-value store beside Redis, etcd and ZooKeeper on this machine: `cargo xtask bench kv`.
//!
//! All stores run as private instances of this run, and one loader asks all of them. Needs Debian's `redis-server`, `etcd-server`,
//! `libzookeeper-java` with a JRE, `util-linux`, `iproute2`, and `strace` for slower disks.

mod bare_copy;
mod cluster;
mod codec;
mod connection;
mod etcd;
mod figure;
mod goals;
mod hand_overs;
mod load;
mod losses;
mod nodes;
mod probe;
mod process;
mod redis;
mod rest;
mod results;
mod start;
mod tables;
mod throughput;
mod trace;
mod zookeeper;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};

use cluster::{Setup, System};
use results::{Blow, Results};
use throughput::Plan;

/// What is measured, and how often.
#[derive(Args)]
pub(crate) struct Options {
    /// The stores
    #[arg(long, value_enum, value_delimiter = ',', default_value = "primacy,redis,redis-wait,etcd,zoo-keeper")]
    system: Vec<System>,
    /// The parts
    #[arg(long, value_enum, value_delimiter = ',', default_value = "load,kill,freeze,hand-over,trace,rest,restart")]
    part: Vec<Part>,
    /// How often each store is started and loaded; the tables have medians
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// For how many seconds each piece of work is counted
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// For how many milliseconds each piece of work runs before it is counted
    #[arg(long, default_value_t = 1_500)]
    warm_ms: u64,
    /// The length of values
    #[arg(long, default_value_t = 1024)]
    bytes: usize,
    /// How many keys are written and read
    #[arg(long, default_value_t = 10_000)]
    keys: usize,
    /// How much longer than the disk each flush takes, in microseconds: one after the other
    #[arg(long, value_delimiter = ',', default_value = "0,2000")]
    flush_delay_us: Vec<u64>,
    /// Of primacy: how often the leader is killed, and how often its node is frozen with each lease
    #[arg(long, default_value_t = 200)]
    losses: usize,
    /// Of etcd and ZooKeeper, which are slower to come back
    #[arg(long, default_value_t = 30)]
    rival_losses: usize,
    /// The lease of primacy's groups, in milliseconds
    #[arg(long, default_value_t = 1_000)]
    lease_ms: u64,
    /// The leases with which its node is frozen
    #[arg(long, value_delimiter = ',', default_value = "1000,100")]
    freeze_lease_ms: Vec<u64>,
    /// How many groups primacy has
    #[arg(long, default_value_t = 16)]
    groups: u16,
    /// How often a group's leader is moved by an order
    #[arg(long, default_value_t = 100)]
    hand_overs: u32,
    /// How many write meanwhile
    #[arg(long, default_value_t = 50)]
    writers: usize,
    /// For how long nodes at rest are watched
    #[arg(long, default_value_t = 30)]
    rest_seconds: u64,
    /// How much data nodes have that start again
    #[arg(long, default_value_t = 1024)]
    restart_mib: u64,
    /// How often they do
    #[arg(long, default_value_t = 5)]
    restarts: usize,
    /// Where the figures are kept; tables and plots are written beside it. What is there of other parts stays: a long series can be
    /// measured in pieces
    #[arg(long, default_value = "bench/out/kv.json")]
    json: PathBuf,
    /// Measure nothing: write the tables and plots of what is there
    #[arg(long)]
    draw: bool,
}

/// What can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Requests a second, and how long they take.
    Load,
    /// `kill -9` of the leader.
    Kill,
    /// The leader's node is frozen.
    Freeze,
    /// An operator moves a leader while many write.
    HandOver,
    /// Where the time of a write goes.
    Trace,
    /// Nodes to which nobody speaks.
    Rest,
    /// Nodes that start again over much data.
    Restart,
}

/// Measures on this `machine` with the binary `primacy`; after each figure, the file has it.
///
/// # Errors
/// When a store or a program is missing or does not do what is asked. What was measured before is kept.
pub(crate) fn run(options: &Options, machine: &str, primacy: &Path) -> Result<()> {
    let mut results = Results::load(&options.json, machine)?;
    let folder = options.json.parent().unwrap_or(Path::new("."));
    // What was measured is not to be lost for want of it.
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    println!("{machine}");
    if !options.draw {
        for part in &options.part {
            measure(options, *part, primacy, &mut results)?;
        }
    }
    results.save()?;
    fs::write(folder.join("kv-tables.md"), tables::all(&results))?;
    figure::draw(folder, &results)?;
    println!("\n{}\nfigures, tables and plots are in {}", goals::table(&results), folder.display());
    Ok(())
}

fn measure(options: &Options, part: Part, primacy: &Path, results: &mut Results) -> Result<()> {
    let lease = Duration::from_millis(options.lease_ms);
    let setup = Setup { system: System::Primacy, primacy, flush_delay: Duration::ZERO, lease, groups: options.groups };
    let has_primacy = options.system.contains(&System::Primacy);
    match part {
        Part::Load => throughput::measure(&plan(options), &setup, results),
        Part::Kill => losses(options, Blow::Kill, &setup, results),
        Part::Freeze => losses(options, Blow::Freeze, &setup, results),
        _ if !has_primacy => Ok(()),
        Part::HandOver => hand_overs::measure(&setup, options.hand_overs, options.writers, options.bytes, results),
        Part::Trace => [1, 50].into_iter().try_for_each(|clients| {
            trace::measure(&setup, clients, options.bytes, Duration::from_secs(options.seconds), results)
        }),
        Part::Rest => {
            [(options.groups, 1), (options.groups, 3), (1, 1)].into_iter().try_for_each(|(groups, leaders)| {
                rest::measure(&Setup { groups, ..setup.clone() }, leaders, options.rest_seconds, results)
            })
        }
        Part::Restart => rest::restarts(&setup, options.restart_mib, options.restarts, options.bytes, results),
    }
}

fn plan(options: &Options) -> Plan {
    Plan {
        systems: options.system.clone(),
        runs: options.runs,
        bytes: options.bytes,
        warm: Duration::from_millis(options.warm_ms),
        counted: Duration::from_secs(options.seconds),
        flush_delays: options.flush_delay_us.iter().map(|micros| Duration::from_micros(*micros)).collect(),
        keys: options.keys,
    }
}

fn losses(options: &Options, blow: Blow, setup: &Setup<'_>, results: &mut Results) -> Result<()> {
    let leases = if blow == Blow::Freeze { options.freeze_lease_ms.clone() } else { vec![options.lease_ms] };
    for &system in &options.system {
        match system {
            System::Primacy => {
                for &millis in &leases {
                    let setup = Setup { lease: Duration::from_millis(millis), ..setup.clone() };
                    losses::measure(&setup, blow, options.losses, options.bytes, results)?;
                }
            }
            System::Etcd => {
                for system in [System::Etcd, System::EtcdFast] {
                    let setup = Setup { system, ..setup.clone() };
                    losses::measure(&setup, blow, options.rival_losses, options.bytes, results)?;
                }
            }
            System::EtcdFast | System::ZooKeeper => {
                losses::measure(
                    &Setup { system, ..setup.clone() },
                    blow,
                    options.rival_losses,
                    options.bytes,
                    results,
                )?;
            }
            // Nobody takes the place of its master.
            System::Redis | System::RedisWait => {}
        }
    }
    Ok(())
}

/// How many tasks wanted a core in the last minute.
fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}
