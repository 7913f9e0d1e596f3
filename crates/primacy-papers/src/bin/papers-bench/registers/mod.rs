//! What membership costs and how fast it fails over, by the number of candidates: `cargo xtask bench papers registers`.
//!
//! For each number, on one server and one after the other: the published protocol with a connection for each candidate,
//! primacy with a process for each, and primacy with several candidates in each process. Settings as in the paper.

mod cost;
mod figure;
mod published;
mod series;
mod zookeeper;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;

use cost::{Cost, Plan};
use primacy_bench::{BenchStore, Kind};
use series::Series;

/// What is measured, and where the figures are kept.
#[derive(Args)]
pub(crate) struct Options {
    /// The stores: sqlite (primacy alone), postgres, mariadb; the servers are private ones of this run.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "postgres,mariadb")]
    store: Vec<Kind>,
    /// Numbers of candidates.
    #[arg(long, value_delimiter = ',', default_value = "5,50,100,200,400,800")]
    candidates: Vec<usize>,
    /// Candidates in each of primacy's processes. Left out where they do not make two equal processes or more.
    #[arg(long, value_delimiter = ',', default_value = "1,8,32", value_parser = at_least_one)]
    each: Vec<usize>,
    /// For how many seconds all are left alone before they are measured. Each connection plans a statement anew for its first five
    /// executions, and PostgreSQL gathers what it plans by once a minute: what lasts is seen after that.
    #[arg(long, default_value_t = 6)]
    settle_seconds: u64,
    /// For how many seconds the cost is measured: eight rounds, in which a process in reserve reads the head twice.
    #[arg(long, default_value_t = 16)]
    watch_seconds: u64,
    /// How often the process of primacy's leader is lost without a word, for each number.
    #[arg(long, default_value_t = 5)]
    losses: u32,
    /// How often that of the published form is.
    #[arg(long, default_value_t = 2)]
    published_losses: u32,
    /// Instead of the stores, lose the leader of Curator's latch on three ZooKeeper servers this many times, for each number: the paper's
    /// other line. Needs Java and Debian's `libzookeeper-java`, `libcurator-recipes-java` and `libslf4j-java`.
    #[arg(long, conflicts_with_all = ["store", "draw"])]
    zookeeper: Option<u32>,
    /// Leave out the published form.
    #[arg(long)]
    without_published: bool,
    /// Where the figures are kept; the plots are written beside it. What is there of other numbers stays: a long series can be
    /// measured in pieces.
    #[arg(long, default_value = "bench/out/registers.json")]
    json: PathBuf,
    /// Measure nothing: draw the plots and print the tables of what is there.
    #[arg(long)]
    draw: bool,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("a process has one candidate at least".into()),
        Ok(each) => Ok(each),
        Err(error) => Err(format!("not a number: {error}")),
    }
}

/// Measures them on this `machine` with the binary `primacy`; after each figure, the file and the plots hold it.
///
/// # Errors
/// When a server or a process does not do what is asked, or a file cannot be written. What was measured before is kept.
pub(crate) fn run(options: &Options, machine: &str, primacy: &Path) -> Result<()> {
    ensure!(!options.store.contains(&Kind::Peers), "peers keep no registers");
    let mut series = Series::load(&options.json, machine)?;
    println!("{machine}");
    if let Some(losses) = options.zookeeper {
        for &candidates in &options.candidates {
            let latched = zookeeper::measure(candidates, losses)?;
            println!("{latched}");
            series.put_zookeeper(latched);
            series.save()?;
        }
    }
    for &kind in if options.draw || options.zookeeper.is_some() { &[][..] } else { &options.store } {
        let place = BenchStore::start(kind, primacy)?;
        for &candidates in &options.candidates {
            let [settle, watch] = [options.settle_seconds, options.watch_seconds].map(Duration::from_secs);
            let plan = |losses| Plan { candidates, losses, settle, watch };
            if kind != Kind::Sqlite && !options.without_published {
                keep(&mut series, cost::published(&place, &plan(options.published_losses))?)?;
            }
            let whole = |each: &&usize| **each == 1 || (candidates.is_multiple_of(**each) && candidates / **each > 1);
            for &each in options.each.iter().filter(whole) {
                keep(&mut series, cost::primacy(primacy, &place, each, &plan(options.losses))?)?;
            }
        }
    }
    series.save()?;
    println!("\n{series}figures and plots are in {}", series.folder().display());
    Ok(())
}

fn keep(series: &mut Series, cost: Cost) -> Result<()> {
    println!("{cost}{}", series.beside_published(&cost).map_or(String::new(), |told| format!("\n  {told}")));
    series.put(cost);
    series.save()
}
