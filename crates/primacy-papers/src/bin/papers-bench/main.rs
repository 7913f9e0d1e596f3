//! Measures the published forms beside primacy's on this machine: `cargo xtask bench papers`.

#![expect(clippy::print_stdout, reason = "a benchmark's output is its purpose")]
#![expect(clippy::disallowed_methods, reason = "elapsed time is measured, and nothing suspends the machine meanwhile")]

mod contests;
mod mysql_lease;
mod registers;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use primacy_bench::CommonOptions;

/// What the elections of the papers cost and how fast they fail over, beside primacy's.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    common: CommonOptions,
    /// The rounds of a process with candidates, in milliseconds. Not for people.
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
    let common = &options.common;
    if common.run_part(options.round)? {
        return Ok(());
    }
    let machine = primacy_bench::machine();
    match options.what.context("say what is to be measured: mysql-lease, peers or registers")? {
        What::MysqlLease(lease) => mysql_lease::run(&lease, &machine, &common.primacy),
        What::Peers(peers) => contests::run(&peers, &machine, &common.out),
        What::Registers(series) => registers::run(&series, &machine, &common.primacy),
    }
}
