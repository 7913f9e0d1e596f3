//! Elections among real peers on hosts of their own, each with the kernel's TCP between it and the others: `cargo xtask bench hosts`.
//!
//! How soon another leads when the leader's host is lost, is deaf, is not heard; and whether anybody else leads while frames are
//! lost by chance.

mod net;
mod report;
mod site;
#[cfg(test)]
mod tests;
mod trial;

use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum as _};
use primacy_core::{Timing, TimingSettings};

use net::Net;
use report::Figures;
use site::{Site, Through};
use trial::Part;

/// What is measured, and how.
#[derive(Args)]
pub(crate) struct Options {
    /// How many hosts, each with a voter and a candidate.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=9))]
    hosts: u8,
    /// Timings: the lease in milliseconds, and after `/` how often it is renewed and the grace, where they are not to be as
    /// `primacy run` chooses them.
    #[arg(long, value_delimiter = ',', value_name = "LEASE[/RENEW[/GRACE]]", default_value = "100/20/10,1000")]
    timing: Vec<Spec>,
    /// Only these parts.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// How often each loss of a leader is measured [default: 100, with leases of a second and more 30]
    #[arg(long)]
    repeats: Option<usize>,
    /// How many of a thousand frames are lost, in each direction, in the part `loss`.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(..=1_000))]
    per_mille: u64,
    /// For how many seconds they are.
    #[arg(long, default_value_t = 600)]
    loss_seconds: u64,
    /// Candidates reach the voters through the socket of the voter on their host, instead of each by itself.
    #[arg(long)]
    socket: bool,
    /// What is drawn follows from it: which frames are lost, and when leaders are. What processes do does not.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the figures as JSON instead of tables.
    #[arg(long)]
    json: bool,
}

/// A timing as it is written on the command line.
#[derive(Clone, Debug)]
struct Spec(Timing);

impl FromStr for Spec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let millis = |word: &str| word.parse().map(Duration::from_millis).map_err(|_| format!("{word} is no number"));
        let mut words = text.split('/').map(millis);
        let lease = words.next().ok_or("it is empty")??;
        let (renew_every, grace) = (words.next().transpose()?, words.next().transpose()?);
        if words.next().is_some() {
            return Err("it has more than three parts".to_owned());
        }
        // As `primacy run` has it.
        let usual = TimingSettings::for_program(lease);
        let settings = TimingSettings { renew_every, grace: grace.unwrap_or(usual.grace), ..usual };
        Timing::new(settings).map(Self).map_err(|error| error.to_string())
    }
}

/// Measures them on this `machine` with the binary `primacy`, prints what came out, and writes figures to `out`.
///
/// # Errors
/// When there can be no hosts here, a process does not do what it should, or a file cannot be written. What was measured before is kept.
pub(crate) fn run(options: &Options, machine: &str, primacy: &Path, out: &Path) -> Result<()> {
    net::enter().context("hosts need networks of their own")?;
    let parts = if options.only.is_empty() { Part::value_variants() } else { &options.only };
    let through = if options.socket { Through::Socket } else { Through::Network };
    if !options.json {
        println!("{machine}, TCP {}", net::congestion_control());
    }
    let mut figures = Vec::new();
    for Spec(timing) in &options.timing {
        for &part in parts {
            // Of its own: what one part leaves is nothing to the next.
            let net = Net::lay(options.hosts, options.seed)?;
            let logs = format!("hosts-logs/{part:?}-{}ms", timing.lease().as_millis()).to_lowercase();
            let site = Site::begin(net, primacy, timing, through, &out.join(logs))?;
            let usual = if timing.lease() < Duration::from_secs(1) { 100 } else { 30 };
            let plan = trial::Plan {
                part,
                repeats: options.repeats.unwrap_or(usual),
                per_mille: options.per_mille,
                span: Duration::from_secs(options.loss_seconds),
                seed: options.seed,
            };
            let trial = trial::measure(&site, timing, &plan)
                .with_context(|| format!("{part:?}, with a lease of {:?}", timing.lease()))?;
            let one = Figures::of(options.hosts, timing, part, trial);
            if !options.json {
                println!("{one}");
            }
            figures.push(one);
            fs::write(out.join("hosts.json"), serde_json::to_string(&figures)?)?;
        }
    }
    if options.json {
        println!("{}", serde_json::to_string(&figures)?);
    }
    Ok(())
}
