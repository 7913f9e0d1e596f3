//! Measures primacy on this machine and prints what came out, good or bad: `cargo xtask bench`.

#![expect(clippy::print_stdout, reason = "a benchmark's output is its purpose")]
#![expect(clippy::disallowed_methods, reason = "elapsed time is measured, and nothing suspends the machine meanwhile")]

mod contests;
mod crew;
mod failover;
mod fenced;
mod fleet;
mod idle;
mod micro;
mod peers;
mod place;
mod plot;
mod proc;
mod published;
mod registers;
mod spread;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

use crate::failover::{Event, Failover};
use crate::fleet::Manner;
use crate::place::{Kind, Place};
use crate::registers::Cost;

/// What primacy costs and how fast it fails over, on real processes and real stores.
#[derive(Parser)]
struct Options {
    /// The primacy binary to measure.
    #[arg(long, default_value = "target/release/primacy")]
    primacy: PathBuf,
    /// Where plots and raw figures go.
    #[arg(long, default_value = "bench/out")]
    out: PathBuf,
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
    /// Instead of by a lease, the candidates take part by the registers protocol, with rounds of so many milliseconds.
    #[arg(long)]
    round: Option<u64>,
    /// Only these parts: is-current, renewal, capacity, fence, failover, idle, registers.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// For how many seconds an idle fleet is watched.
    #[arg(long, default_value_t = 30)]
    idle_seconds: u64,
    /// Numbers of processes that take part by the registers protocol, and by the published form of it.
    #[arg(long, value_delimiter = ',', default_value = "5,50,100,200,400,800")]
    processes: Vec<usize>,
    /// Candidates in each of these processes. The published form knows one.
    #[arg(long, default_value_t = 1)]
    each: usize,
    /// For how many seconds their cost is measured.
    #[arg(long, default_value_t = 60)]
    watch_seconds: u64,
    /// How often the leader of the published form is killed.
    #[arg(long, default_value_t = 5)]
    published_deaths: usize,
    /// The program that the measured runners run. Not for people.
    #[arg(long, hide = true)]
    sentry: bool,
    /// Be a process with so many candidates. Not for people.
    #[arg(long, hide = true)]
    crew: Option<usize>,
    #[command(subcommand)]
    instead: Option<Instead>,
}

/// What is measured instead of stores.
#[derive(Subcommand)]
enum Instead {
    /// Contests among peers: who of them should lead, found out over real sockets
    Peers(contests::Options),
}

impl Options {
    fn manner(&self) -> Manner {
        self.round.map_or(Manner::Lease(self.lease), Manner::Registers)
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    if options.sentry {
        return fleet::sentry();
    }
    if let Some(each) = options.crew {
        return crew::campaign(each, options.round.map_or(published::ROUND, Duration::from_millis));
    }
    fs::create_dir_all(&options.out).with_context(|| format!("cannot create {}", options.out.display()))?;
    let wanted = |part: &str| options.only.is_empty() || options.only.iter().any(|only| only == part);
    if let Some(Instead::Peers(peers)) = &options.instead {
        return contests::run(peers, &machine(), &options.out);
    }
    println!("{}", machine());
    if wanted("is-current") {
        println!("{}", micro::is_current()?);
    }
    let (mut failovers, mut costs) = (Vec::new(), Vec::new());
    for &kind in &options.store {
        let place = Place::start(kind, &options.primacy)?;
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
                let idle = idle::measure(&options.primacy, &place, candidates, options.manner(), options.idle_seconds)?;
                println!("{idle}");
            }
        }
        // Peers keep no registers.
        if wanted("registers") && kind != Kind::Peers {
            registers(&options, &place, &mut costs, &mut failovers)?;
        }
    }
    if !costs.is_empty() {
        fs::write(options.out.join("registers.json"), serde_json::to_vec_pretty(&costs)?)?;
        plot::registers(&options.out, &costs)?;
    }
    if !failovers.is_empty() {
        fs::write(options.out.join("failover.json"), serde_json::to_vec_pretty(&failovers)?)?;
        plot::failover(&options.out, &failovers)?;
        println!("plots and raw figures are in {}", options.out.display());
    }
    Ok(())
}

fn failover(options: &Options, place: &Place, results: &mut Vec<Failover>) -> Result<()> {
    for &candidates in &options.candidates {
        for event in Event::ALL {
            let repeats = if event == Event::SilentLoss { options.silent_repeats } else { options.repeats };
            if repeats > 0 {
                let failover =
                    Failover::measure(&options.primacy, place, event, candidates, repeats, options.manner())?;
                println!("{failover}");
                results.push(failover);
            }
        }
    }
    Ok(())
}

fn registers(options: &Options, place: &Place, costs: &mut Vec<Cost>, failovers: &mut Vec<Failover>) -> Result<()> {
    let watch = Duration::from_secs(options.watch_seconds);
    let millis = u64::try_from(published::ROUND.as_millis())?;
    for &processes in &options.processes {
        let crew = Manner::Crew { round: millis, each: options.each };
        let mut cost = registers::primacy(&options.primacy, place, processes, crew, watch)?;
        let repeats = if processes > 1 { options.silent_repeats } else { 0 };
        if repeats > 0 && options.each == 1 {
            let (event, manner) = (Event::SilentLoss, Manner::Registers(millis));
            let lost = Failover::measure(&options.primacy, place, event, processes, repeats, manner)?;
            cost.gaps_nanos = lost.gaps_nanos;
        }
        println!("{cost}");
        costs.push(cost);
        if repeats > 0 && options.each > 1 {
            for event in [Event::RunnerDeath, Event::SilentLoss] {
                let lost = Failover::measure(&options.primacy, place, event, processes, repeats, crew)?;
                println!("{lost}");
                failovers.push(lost);
            }
        }
        if options.each == 1 && place.kind != Kind::Sqlite {
            let cost = registers::published(place, processes, watch, options.published_deaths)?;
            println!("{cost}");
            costs.push(cost);
        }
    }
    Ok(())
}

/// The setup, without which a figure means nothing.
fn machine() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown");
    let model = model.trim_start_matches(|c: char| c.is_whitespace() || c == ':');
    format!("machine: {cores} cores, {model}, Linux {}", read("/proc/sys/kernel/osrelease").trim())
}
