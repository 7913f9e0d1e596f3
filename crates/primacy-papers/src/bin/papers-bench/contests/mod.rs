//! Contests among peers over real sockets: `cargo xtask bench papers peers`.
//!
//! Each peer is a thread with sockets, timers and a file of its own. It runs one of the machines of `primacy_papers`, the
//! same code as in the searches. The nominee of a repaired form asks a majority for the grant, by the core's own quorum, over the
//! same sockets; that of a published form leads by its own belief.

mod grant;
mod group;
mod journal;
mod links;
mod lot;
mod machines;
mod network;
mod peer;
mod report;
mod seat;
#[cfg(test)]
mod tests;
mod trial;
mod wire;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum as _};

use machines::Which;
use network::Network;
use report::Figures;
use trial::Setup;

/// Which contests are measured, and how.
#[derive(Args)]
pub(crate) struct Options {
    /// The contests. All, if none is named.
    #[arg(long, value_enum, value_delimiter = ',')]
    contest: Vec<Which>,
    /// Numbers of peers.
    #[arg(long, value_delimiter = ',', default_value = "3,5,7,9", value_parser = clap::value_parser!(u16).range(2..=99))]
    peers: Vec<u16>,
    /// How many elections of each; in every other one the leader is killed, in the others it falls silent.
    #[arg(long, default_value_t = 500)]
    elections: usize,
    /// The lease in milliseconds, renewed five times in it; for the published forms the time without a heartbeat.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(10..))]
    lease: u64,
    /// The five sites of the POLE paper, one peer at each, instead of a local network.
    #[arg(long)]
    sites: bool,
    /// For how many seconds the peers are watched at rest.
    #[arg(long, default_value_t = 10)]
    rest_seconds: u64,
    /// What is drawn follows from it; what threads and sockets do does not.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Instead: the published roulette as its paper ran it, elections of a first leader among five, none of them started again; and
    /// when one peer alone launches.
    #[arg(long, conflicts_with_all = ["contest", "peers", "sites", "rest_seconds"])]
    paper: bool,
    /// Print the figures as JSON instead of tables.
    #[arg(long)]
    json: bool,
}

/// What a contest has beside the time that its network takes.
const PATIENCE: Duration = Duration::from_secs(3);

/// Measures them on this `machine`, prints what came out, and writes figures and plots to `out`.
///
/// # Errors
/// When a file cannot be written, or a contest comes to nothing.
pub(crate) fn run(options: &Options, machine: &str, out: &Path) -> Result<()> {
    let lease = Duration::from_millis(options.lease);
    if options.paper {
        return lot::run(
            &lot::Setup { elections: options.elections, lease, seed: options.seed },
            machine,
            options.json,
            out,
        );
    }
    let network = Arc::new(if options.sites { Network::sites(lease) } else { Network::loopback(lease) });
    ensure!(
        lease > network.round_trip() * 2,
        "a lease must last longer than two round trips, {:?} each",
        network.round_trip()
    );
    let contests = if options.contest.is_empty() { Which::value_variants() } else { &options.contest };
    if !options.json {
        println!("{machine}");
    }
    let mut figures = Vec::new();
    for &contest in contests {
        for &peers in if options.sites { &[5][..] } else { &options.peers } {
            let setup = Setup {
                peers,
                network: Arc::clone(&network),
                elections: options.elections,
                patience: PATIENCE,
                rest: Duration::from_secs(options.rest_seconds),
                seed: options.seed,
            };
            let trials = contest.measure(&setup).with_context(|| format!("{contest:?} among {peers}"))?;
            let one = Figures::of(contest, peers, &network, trials);
            if !options.json {
                println!("{one}");
            }
            figures.push(one);
        }
    }
    let json = serde_json::to_string(&figures)?;
    if options.json {
        println!("{json}");
    }
    fs::write(out.join("contests.json"), json)?;
    report::plots(out, &figures)
}
