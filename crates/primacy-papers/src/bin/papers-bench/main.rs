//! Measures the published forms beside primacy's on this machine: `cargo xtask bench papers`.

#![expect(clippy::print_stdout, reason = "a benchmark's output is its purpose")]
#![expect(clippy::disallowed_methods, reason = "elapsed time is measured, and nothing suspends the machine meanwhile")]

mod contests;
mod mysql_lease;
mod registers;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

/// What the elections of the papers cost and how fast they fail over, beside primacy's.
#[derive(Parser)]
struct Options {
    /// The primacy binary to measure.
    #[arg(long, default_value = "target/release/primacy")]
    primacy: PathBuf,
    /// Where plots and raw figures go.
    #[arg(long, default_value = "bench/out")]
    out: PathBuf,
    /// The program that the measured runners run. Not for people.
    #[arg(long, hide = true)]
    sentry: bool,
    /// Be a process with so many candidates. Not for people.
    #[arg(long, hide = true, requires = "round")]
    crew: Option<usize>,
    /// The rounds of that process, in milliseconds. Not for people.
    #[arg(long, hide = true)]
    round: Option<u64>,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// The lease in one row of MariaDB as published, beside primacy's: cost and failover by the number of candidates
    MysqlLease(mysql_lease::Options),
    /// Contests among peers: who of them should lead, found out over real sockets
    Peers(contests::Options),
    /// The registers protocol beside its published form: cost, failover and round time by the number of candidates
    Registers(registers::Options),
}

fn main() -> Result<()> {
    let options = Options::parse();
    if options.sentry {
        return primacy_bench::sentry();
    }
    if let Some((each, round)) = options.crew.zip(options.round) {
        return primacy_bench::campaign(each, Duration::from_millis(round));
    }
    fs::create_dir_all(&options.out).with_context(|| format!("cannot create {}", options.out.display()))?;
    let machine = primacy_bench::machine();
    match options.what.context("say what is to be measured: mysql-lease, peers or registers")? {
        What::MysqlLease(lease) => mysql_lease::run(&lease, &machine, &options.primacy),
        What::Peers(peers) => contests::run(&peers, &machine, &options.out),
        What::Registers(series) => registers::run(&series, &machine, &options.primacy),
    }
}
