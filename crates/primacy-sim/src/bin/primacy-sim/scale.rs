//! `primacy-sim scale`: how many processes the registers protocol carries on one server.

use std::io::{self, Write};
use std::time::Duration;

use primacy_core::registers::{Rounds, RoundsSettings};
use primacy_sim::scale::{self, Costs, Trial};

/// The costs by default are those of the page on measurements.
#[derive(clap::Args)]
pub(crate) struct Scale {
    /// Numbers of processes
    #[arg(long, value_delimiter = ',', default_value = "100,800,3000,5000,10000,20000,50000,100000")]
    processes: Vec<usize>,
    /// Candidates in each process
    #[arg(long, default_value_t = 1)]
    each: usize,
    /// The round time to begin with, in milliseconds
    #[arg(long, default_value_t = 2_000)]
    round: u64,
    /// Cores of the server
    #[arg(long, default_value_t = 2)]
    cores: usize,
    /// CPU time of a beat on the server, in microseconds
    #[arg(long, default_value_t = 400)]
    beat: u64,
    /// What the head adds to it, in microseconds
    #[arg(long, default_value_t = 200)]
    head: u64,
    /// What each process adds to the leader's survey, in nanoseconds
    #[arg(long, default_value_t = 2_000)]
    row: u64,
    /// CPU time of a join, in microseconds
    #[arg(long, default_value_t = 2_000)]
    join: u64,
    /// What each candidate adds to a join, in microseconds
    #[arg(long, default_value_t = 30)]
    member: u64,
    /// CPU time of a new connection, in microseconds
    #[arg(long, default_value_t = 5_000)]
    connect: u64,
    /// Memory of a connection, in kilobytes
    #[arg(long, default_value_t = 3_000)]
    connection: u64,
    /// From a process to the server and back, in microseconds
    #[arg(long, default_value_t = 500)]
    network: u64,
    /// For how many seconds each number is watched
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// Prints what each number of processes comes to.
pub(crate) fn show(args: &Scale) -> io::Result<bool> {
    let costs = Costs {
        cores: args.cores,
        beat: Duration::from_micros(args.beat),
        head: Duration::from_micros(args.head),
        row: Duration::from_nanos(args.row),
        join: Duration::from_micros(args.join),
        member: Duration::from_micros(args.member),
        connect: Duration::from_micros(args.connect),
        connection: args.connection * 1_000,
        network: Duration::from_micros(args.network),
    };
    let rounds = match Rounds::new(RoundsSettings::new(Duration::from_millis(args.round))) {
        Ok(rounds) => rounds,
        Err(error) => return writeln!(io::stderr(), "{error}").map(|()| false),
    };
    let mut out = io::stdout().lock();
    writeln!(out, "{costs:?}, {} candidates in each process", args.each)?;
    writeln!(
        out,
        "{:>9} {:>8} {:>9} {:>8} {:>6} {:>7} {:>10} {:>9} {:>8} {:>9}",
        "processes", "members", "joined in", "round", "load", "calls/s", "99 % in", "evictions", "memory", "failover"
    )?;
    for &processes in &args.processes {
        let watch = Duration::from_secs(args.seconds);
        let reach = scale::reach(&costs, &Trial { processes, each: args.each, rounds, settle: watch, watch }, 0);
        let span = |span: Option<Duration>| span.map_or_else(|| "-".to_owned(), |span| format!("{span:.2?}"));
        writeln!(
            out,
            "{processes:>9} {:>8} {:>9} {:>8} {:>5.1}% {:>7.0} {:>10} {:>9} {:>5} MB {:>9}",
            reach.members,
            span(reach.joined_in),
            span(Some(reach.round)),
            reach.load * 100.0,
            reach.rate,
            span(reach.answer),
            reach.evictions,
            reach.memory / 1_000_000,
            span(reach.failover),
        )?;
    }
    Ok(true)
}
