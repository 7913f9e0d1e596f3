//! `primacy simulate`: seeded worlds around the state machine that `primacy run` uses, with the timing and the topology
//! of the user: what failover costs, and whether any promise can be broken.

use std::num::NonZero;
use std::ops::Range;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use primacy::Timing;
use primacy_sim::{Failure as Broken, Profile, Report, Setup};

use crate::cli::SimulateArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::output::schema::{self, Millis, SCHEMA};
use crate::output::span::{bound, span};
use crate::output::style::Tone;
use crate::output::table::{Cell, table};

/// A call must fit this many times into its time-out, or the simulated candidates would have no peace.
const HEADROOM: u32 = 4;

/// A promise was broken in a simulated world.
const BROKEN: u8 = 3;

pub(super) fn run(args: &SimulateArgs, output: &mut Output) -> Result<u8, Failure> {
    let timing = args.timing()?;
    if args.round_trip * HEADROOM > timing.call_timeout() {
        return Err(Failure::usage(format!(
            "--round-trip: calls of {} are too slow for a lease of {} and a grace of {}, which leave {} to a call; choose a \
             longer lease",
            span(args.round_trip),
            span(timing.lease()),
            span(timing.grace()),
            span(timing.call_timeout())
        )));
    }
    let setup = Setup {
        timing: Some(timing),
        candidates: Some(args.candidates),
        latency: Some(args.round_trip),
        ..Setup::new(Profile::Faults)
    };
    match args.replay {
        Some(seed) => replay(seed, &setup, output),
        None => many(args, &timing, &setup, output),
    }
}

fn many(args: &SimulateArgs, timing: &Timing, setup: &Setup, output: &mut Output) -> Result<u8, Failure> {
    let seeds = args.from..args.from.saturating_add(args.seeds);
    let report = in_background(seeds, setup, |done| output.draw(&format!("{done} of {} worlds …", args.seeds)));
    output.erase();
    let result = SimulationResult::new(args, timing, &report);
    output.text(&result.text(output))?;
    output.json(&result.json())?;
    Ok(if report.is_clean() { 0 } else { BROKEN })
}

/// Runs the seeds on all cores and tells this thread how many are done.
fn in_background(seeds: Range<u64>, setup: &Setup, mut told: impl FnMut(u64)) -> Report {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let worker = scope.spawn(move || {
            primacy_sim::run(seeds, threads, setup, &|tally| {
                let _ = sender.send(tally.seeds); // the receiver stays until the sender is dropped
            })
        });
        receiver.into_iter().for_each(&mut told);
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn replay(seed: u64, setup: &Setup, output: &mut Output) -> Result<u8, Failure> {
    let outcome = primacy_sim::run_seed(seed, setup, true);
    let mut page: String = outcome.lines.iter().map(|line| format!("{line}\n")).collect();
    page += &match &outcome.violation {
        Some(violation) => format!("{} is broken: {}\n", violation.oracle, violation.text),
        None => format!("no promise is broken in world {seed}\n"),
    };
    output.page(page.as_bytes())?;
    Ok(if outcome.violation.is_none() { 0 } else { BROKEN })
}

/// What came of the simulated worlds.
struct SimulationResult<'a> {
    args: &'a SimulateArgs,
    timing: &'a Timing,
    report: &'a Report,
    /// From the silent loss of a leader to the next, the shortest first.
    losses: Vec<Duration>,
}

impl<'a> SimulationResult<'a> {
    fn new(args: &'a SimulateArgs, timing: &'a Timing, report: &'a Report) -> Self {
        let mut losses: Vec<_> = report.tally.failovers.iter().map(|(took, _)| Duration::from_nanos(*took)).collect();
        losses.sort_unstable();
        Self { args, timing, report, losses }
    }

    /// The nearest rank: the smallest that at least this share of all does not exceed.
    fn loss(&self, percent: usize) -> Option<Duration> {
        let rank = (self.losses.len() * percent).div_ceil(100).saturating_sub(1);
        self.losses.get(rank).copied()
    }

    fn published(&self) -> Duration {
        self.timing.failover_bound(0, self.args.round_trip)
    }

    fn text(&self, output: &Output) -> String {
        let (tally, palette) = (&self.report.tally, output.palette);
        let key = |text: &str| Cell::new(text, Tone::Faint);
        let topology = format!(
            "{} candidates, lease {}, grace {}, calls of up to {}, clocks wrong by up to {} %",
            self.args.candidates,
            span(self.timing.lease()),
            span(self.timing.grace()),
            span(self.args.round_trip),
            f64::from(self.timing.drift_ppm()) / 1e4
        );
        let worlds = format!(
            "{} seeds from {}: {:.1} simulated hours, {} faults, {} leaderships",
            tally.seeds,
            self.args.from,
            tally.hours(),
            tally.faults(),
            tally.elections
        );
        let safety = match self.report.failures.len() {
            0 => Cell::new("no promise was broken", Tone::Good),
            count => Cell::new(format!("{count} worlds broke a promise"), Tone::Bad),
        };
        let failover = match (self.loss(50), self.loss(99), self.losses.last()) {
            (Some(p50), Some(p99), Some(max)) => format!(
                "p50 {}, p99 {}, longest {} of {} leaders lost without a word; {} is published for calls this slow",
                bound(p50),
                bound(p99),
                bound(*max),
                self.losses.len(),
                bound(self.published())
            ),
            _ => "no leader was lost without a word; run more seeds".to_owned(),
        };
        let rows = vec![
            vec![key("topology"), Cell::plain(topology)],
            vec![key("worlds"), Cell::plain(worlds)],
            vec![key("safety"), safety],
            vec![key("failover"), Cell::plain(failover)],
        ];
        let broken: String = self.report.failures.iter().map(|failure| self.broken(failure)).collect();
        format!("{}{broken}", table(&rows, 0, palette))
    }

    fn broken(&self, Broken { seed, violation }: &Broken) -> String {
        format!("\nworld {seed}: {} is broken: {}\n  {}\n", violation.oracle, violation.text, self.replay(*seed))
    }

    /// The command that shows one world again.
    fn replay(&self, seed: u64) -> String {
        let millis = |span: Duration| format!("{}ms", span.as_millis());
        format!(
            "primacy simulate --lease {} --grace {} --candidates {} --round-trip {} --replay {seed}",
            millis(self.timing.lease()),
            millis(self.timing.grace()),
            self.args.candidates,
            millis(self.args.round_trip)
        )
    }

    fn json(&self) -> schema::Simulation {
        let tally = &self.report.tally;
        schema::Simulation {
            schema: SCHEMA,
            candidates: self.args.candidates,
            timing: schema::Timing::of(self.timing, self.args.round_trip),
            round_trip_ms: Millis(self.args.round_trip),
            first_seed: self.args.from,
            seeds: tally.seeds,
            simulated_hours: tally.hours(),
            faults: tally.faults(),
            leaderships: tally.elections,
            silent_losses: schema::Latency {
                count: self.losses.len(),
                p50_ms: self.loss(50).map(Millis),
                p99_ms: self.loss(99).map(Millis),
                max_ms: self.losses.last().copied().map(Millis),
            },
            broken: self
                .report
                .failures
                .iter()
                .map(|Broken { seed, violation }| schema::BrokenPromise {
                    seed: *seed,
                    promise: violation.oracle.to_string(),
                    message: violation.text.clone(),
                    replay: self.replay(*seed),
                })
                .collect(),
        }
    }
}
