//! Histories of the key-value store.

use std::io::{self, Write};
use std::sync::Mutex;

use primacy_sim::BatchArgs;
use primacy_sim::kv::{self, CANARIES, Canary, Fault, Promise, Report, Setup, Sometimes, Tally};

use super::Stopwatch;

/// How many histories continuous integration checks. Five times as many are a step of the night.
pub(super) const CI_SEEDS: u64 = 10_000;

/// From how many on everything that should happen sometimes must have happened.
const WORTHY_SEEDS: u64 = 1_000;

/// Checks this many histories. Whether all promises were kept and they were worth it.
pub(super) fn run(batch: &BatchArgs, seeds: u64, setup: &Setup) -> io::Result<bool> {
    let watch = Stopwatch::start();
    let shown = Mutex::new(0);
    let progress = |tally: &Tally| {
        let Ok(mut shown) = shown.try_lock() else { return };
        let seconds = watch.elapsed().as_secs();
        if seconds >= *shown + 5 {
            *shown = seconds;
            // Progress is a courtesy: nothing depends on whether it can be written.
            drop(writeln!(io::stderr(), "{seconds:>5} s  {:>9} of {seeds} histories", tally.seeds));
        }
    };
    let report = kv::run(batch.seeds(seeds), batch.threads, setup, &progress);
    let mut out = io::stdout().lock();
    print(&mut out, &report, watch.elapsed().as_secs_f64())?;
    for failure in &report.failures {
        writeln!(out, "\nseed {}: {} is broken: {}", failure.seed, failure.promise, failure.text)?;
        writeln!(out, "  replay: cargo run --profile sim -p primacy-sim -- replay --protocol kv {}", failure.seed)?;
    }
    let mut good = report.failures.is_empty();
    if !report.missing.is_empty() && seeds >= WORTHY_SEEDS {
        good = false;
        writeln!(out, "VOID: this never happened, so the batch has proven nothing about it:")?;
        for what in &report.missing {
            writeln!(out, "  {what}")?;
        }
    }
    Ok(good)
}

fn print(out: &mut impl Write, report: &Report, seconds: f64) -> io::Result<()> {
    let tally = &report.tally;
    writeln!(out, "{:>12}  histories, {} of them run twice with the same trace", tally.seeds, tally.repeated)?;
    writeln!(out, "{:016x}  is what all their traces add up to", tally.fingerprint)?;
    writeln!(out, "{:>12.1}  simulated hours in {seconds:.1} s", tally.nanos as f64 / 3.6e12)?;
    writeln!(out, "{:>12}  events", tally.events)?;
    writeln!(out, "{:>12}  operations of clients", tally.operations)?;
    writeln!(out, "{:>12}  committed entries", tally.entries)?;
    writeln!(out, "{:>12}  searches for an order were given up", tally.given_up)?;
    writeln!(out, "{:>12}  faults", tally.faults())?;
    for fault in Fault::ALL {
        writeln!(out, "{:>14}  {fault}", tally.faults_of(*fault))?;
    }
    writeln!(out, "sometimes")?;
    for what in Sometimes::ALL {
        writeln!(out, "{:>14}  {what}", tally.seen(*what))?;
    }
    Ok(())
}

/// Runs one seed again, and shows what happened.
pub(super) fn replay(seed: u64, flaw: Option<&str>, last: Option<usize>) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    let setup = match flaw.map(|name| (name, Canary::named(name))) {
        None => Setup::default(),
        Some((_, Some(canary))) => canary.setup(),
        Some((name, None)) => {
            writeln!(io::stderr(), "no such planted bug: {name}; see `primacy-sim canaries --protocol kv`")?;
            return Ok(false);
        }
    };
    let outcome = kv::run_seed(seed, &setup, true);
    let from = last.map_or(0, |last| outcome.lines.len().saturating_sub(last));
    for line in &outcome.lines[from..] {
        writeln!(out, "{line}")?;
    }
    match &outcome.violation {
        Some((promise, _, text)) => writeln!(out, "{promise} is broken: {text}")?,
        None => writeln!(out, "no promise is broken; fingerprint {:016x}", outcome.fingerprint)?,
    }
    Ok(outcome.violation.is_none())
}

/// Hunts planted bugs, all that are not rare or one.
pub(super) fn hunt(name: Option<&str>, batch: &BatchArgs, within: Option<u64>) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    let mut all_found = true;
    let named = name.map(|name| Canary::named(name).map_or(&[][..], std::slice::from_ref));
    for canary in named.unwrap_or(CANARIES) {
        let within = within.unwrap_or(canary.within);
        let found: Option<(u64, Promise)> = canary.hunt(batch.from, within, batch.threads);
        all_found &= found.is_some();
        match found {
            Some((seed, promise)) => {
                let seeds = seed - batch.from + 1;
                writeln!(out, "{:<28} {seeds:>6} of {within:>6}  {promise}", canary.name)?;
            }
            None => writeln!(out, "{:<28}   none of {within:>6}  NOT FOUND", canary.name)?,
        }
        out.flush()?;
    }
    Ok(all_found)
}
