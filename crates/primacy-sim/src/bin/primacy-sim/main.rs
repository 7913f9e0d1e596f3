//! The command `primacy-sim`: run seeds, replay one, hunt planted bugs.

use std::io::{self, BufRead, Write};
use std::iter;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum as _};
use primacy_core::{Timing, TimingSettings};
use primacy_sim::{
    BatchArgs, CANARIES, Canary, Chooser, Fault, Line, Oracle, Profile, Protocol, Report, Setup, Skipped, Sometimes,
    Steady, Tally,
};
use scale::Scale;

mod kv;
mod scale;

#[derive(Parser)]
#[command(about = "A deterministic world around primacy's lease protocol", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run many seeds and judge them
    Run(Run),
    /// Run one seed again and print what happened
    Replay(Replay),
    /// Hunt every planted bug, or one
    Canaries {
        /// Only this one
        name: Option<String>,
        #[command(flatten)]
        batch: BatchArgs,
        /// Go on this long instead of the stated number of seeds
        #[arg(long)]
        within: Option<u64>,
        /// Do not ask these oracles, to see what the others find
        #[arg(long, value_delimiter = ',', value_parser = oracle)]
        mute: Vec<Oracle>,
        /// Also count in how many of this many seeds each is found
        #[arg(long, default_value_t = 0)]
        share: u64,
        /// Those of the key-value store, if that is the protocol
        #[arg(long, value_enum)]
        protocol: Option<Protocol>,
    },
    /// Keep one leader among three voters for a long time, while packets are lost and nothing else fails
    Steady(StayArgs),
    /// Show how many processes the registers protocol carries on one server, from what its statements cost
    Scale(Scale),
}

/// Which worlds.
#[derive(clap::Args)]
struct Worlds {
    /// Which promises are put to the test
    #[arg(long, value_enum, default_value_t = Profile::All)]
    profile: Profile,
    /// Which protocol is followed; drawn if absent
    #[arg(long, value_enum)]
    protocol: Option<Protocol>,
    /// In which order candidates ask; drawn for each if absent
    #[arg(long, value_enum)]
    selector: Option<Chooser>,
    /// How many candidates; drawn if absent
    #[arg(long)]
    candidates: Option<u32>,
    /// The lease of all candidates, in milliseconds; drawn for each if absent
    #[arg(long, value_parser = timing)]
    lease: Option<Timing>,
    /// The longest round trip in a healthy network, in milliseconds
    #[arg(long)]
    round_trip: Option<u64>,
    /// Do all drills of the calm, whether or not the leader can do without the voter that is struck, and count the leaderships
    /// that are lost
    #[arg(long)]
    unspared: bool,
}

fn timing(lease: &str) -> Result<Timing, String> {
    let lease = Duration::from_millis(lease.parse().map_err(|error| format!("{error}"))?);
    Timing::new(TimingSettings::new(lease)).map_err(|error| error.to_string())
}

impl Worlds {
    fn setup(&self) -> Setup {
        let latency = self.round_trip.map(Duration::from_millis);
        Setup {
            protocol: self.protocol,
            chooser: self.selector,
            candidates: self.candidates,
            timing: self.lease,
            latency,
            unspared: self.unspared,
            // The bound rests on what such a drill takes away.
            muted: if self.unspared { vec![Oracle::Termination] } else { Vec::new() },
            ..Setup::new(self.profile)
        }
    }
}

#[derive(clap::Args)]
struct Run {
    /// How many seeds
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    #[command(flatten)]
    batch: BatchArgs,
    #[command(flatten)]
    worlds: Worlds,
    /// What continuous integration runs: at least 20,000 seeds, 2,000 simulated hours, three million faults, 80,000
    /// elections, and every planted bug
    #[arg(long, conflicts_with_all = ["seeds", "profile", "protocol", "selector", "candidates", "lease", "round_trip", "unspared"])]
    ci: bool,
}

#[derive(clap::Args)]
struct Replay {
    /// Which seed
    seed: u64,
    #[command(flatten)]
    worlds: Worlds,
    /// With this planted bug
    #[arg(long)]
    flaw: Option<String>,
    /// Print only this many events, the last ones
    #[arg(long)]
    last: Option<usize>,
    /// Wait for Enter after every event
    #[arg(long)]
    step: bool,
}

#[derive(clap::Args)]
struct StayArgs {
    /// How many worlds
    #[arg(long, default_value_t = 4)]
    worlds: u64,
    #[command(flatten)]
    batch: BatchArgs,
    /// How long each lasts, in simulated hours
    #[arg(long, default_value_t = 24)]
    hours: u64,
    /// The lease, in milliseconds
    #[arg(long, default_value_t = 10_000)]
    lease: u64,
    /// How often it is renewed, in milliseconds; what suits the lease if absent
    #[arg(long)]
    renew: Option<u64>,
    /// Packets lost between two hosts, in parts per million
    #[arg(long, default_value_t = 10_000)]
    loss: u32,
}

/// How long a batch takes, for people. No simulated world sees this clock.
struct Stopwatch(std::time::Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "tells people how long they waited; nothing is decided by it")]
    fn start() -> Self {
        Self(std::time::Instant::now())
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Run(run) => run_seeds(&run),
        Command::Replay(replay) => replay_seed(&replay),
        Command::Canaries { name, batch, within, protocol: Some(Protocol::Kv), .. } => {
            kv::hunt(name.as_deref(), &batch, within)
        }
        Command::Canaries { name, batch, within, mute, share, .. } => {
            hunt(name.as_deref(), &batch, within, &mute, share)
        }
        Command::Steady(args) => stay(&args),
        Command::Scale(scale) => scale::show(&scale),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // The reader of the output has gone.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(2),
    }
}

fn run_seeds(run: &Run) -> io::Result<bool> {
    if run.worlds.protocol == Some(Protocol::Kv) {
        return kv::run(&run.batch, run.seeds, &primacy_sim::kv::Setup::default());
    }
    if !run.ci {
        return Ok(run_batch(&run.batch, run.seeds, &run.worlds.setup())?.0);
    }
    let (mut good, tally) = run_batch(&run.batch, CI_SEEDS, &Setup::new(Profile::All))?;
    good &= is_enough(&mut io::stdout(), &tally)?;
    let mut batch = run.batch.clone();
    for chooser in iter::once(None).chain(Chooser::value_variants().iter().copied().map(Some)) {
        let peers = Setup { protocol: Some(Protocol::Peers), chooser, ..Setup::new(Profile::All) };
        let seeds = if chooser.is_none() { CI_PEERS_SEEDS } else { CI_SELECTOR_SEEDS };
        good &= run_batch(&batch, seeds, &peers)?.0;
        // No two of them see the same faults.
        batch.from += seeds;
    }
    let batch = BatchArgs { from: 0, ..run.batch };
    good &= kv::run(&batch, kv::CI_SEEDS, &primacy_sim::kv::Setup::default())?;
    good &= kv::hunt(None, &batch, None)?;
    good &= hunt(None, &batch, None, &[], 0)?;
    Ok(good)
}

/// Runs this many seeds. Whether they kept all promises and were worth it, and what happened.
fn run_batch(batch: &BatchArgs, seeds: u64, setup: &Setup) -> io::Result<(bool, Tally)> {
    let watch = Stopwatch::start();
    let shown = Mutex::new(0);
    let progress = |tally: &Tally| show_progress(tally, seeds, &watch, &shown);
    let report = primacy_sim::run(batch.seeds(seeds), batch.threads, setup, &progress);
    let mut out = io::stdout().lock();
    print_report(&mut out, &report, watch.elapsed())?;
    print_failures(&mut out, &report, setup)?;
    let mut good = report.is_clean();
    if !report.missing.is_empty() && seeds >= WORTHY_SEEDS {
        good = false;
        writeln!(out, "VOID: this never happened, so the batch has proven nothing about it:")?;
        for what in &report.missing {
            writeln!(out, "  {what}")?;
        }
    }
    Ok((good, report.tally))
}

/// How many seeds continuous integration runs. A night runs 400,000 others.
const CI_SEEDS: u64 = 25_000;

/// How many it runs among peers, beside those. Ten times as many are a step of the night.
const CI_PEERS_SEEDS: u64 = 1_000;

/// How many it runs for each selector. A night runs 100,000.
const CI_SELECTOR_SEEDS: u64 = 200;

/// From how many seeds on everything that should happen sometimes must have happened.
const WORTHY_SEEDS: u64 = 1_000;

fn is_enough(out: &mut impl Write, tally: &Tally) -> io::Result<bool> {
    let mut enough = true;
    for (what, is, least) in [
        ("seeds", tally.seeds, 20_000),
        ("simulated hours", tally.hours() as u64, 2_000),
        ("faults", tally.faults(), 3_000_000),
        ("elections", tally.elections, 80_000),
        ("worlds with registers", tally.registers, 3_000),
        ("evictions", tally.evictions, 30_000),
        ("changes of the round time", tally.round_changes, 3_000),
    ] {
        if is < least {
            enough = false;
            writeln!(out, "VOID: {is} {what}, at least {least} are required")?;
        }
    }
    Ok(enough)
}

fn show_progress(tally: &Tally, seeds: u64, watch: &Stopwatch, shown: &Mutex<u64>) {
    let Ok(mut shown) = shown.try_lock() else { return };
    let seconds = watch.elapsed().as_secs();
    if seconds < *shown + 5 {
        return;
    }
    *shown = seconds;
    // Progress is a courtesy: nothing depends on whether it can be written.
    drop(writeln!(
        io::stderr(),
        "{seconds:>5} s  {:>9} of {seeds} seeds  {:>9.1} simulated hours  {:>11} faults",
        tally.seeds,
        tally.hours(),
        tally.faults()
    ));
}

fn print_report(out: &mut impl Write, report: &Report, took: Duration) -> io::Result<()> {
    let tally = &report.tally;
    writeln!(out, "{:>12}  seeds, {} of them run twice with the same trace", tally.seeds, tally.repeated)?;
    writeln!(out, "{:016x}  is what all their traces add up to", tally.fingerprint)?;
    writeln!(out, "{:>12.1}  simulated hours in {:.1} s", tally.hours(), took.as_secs_f64())?;
    writeln!(out, "{:>12}  events", tally.events)?;
    writeln!(out, "{:>12}  elections", tally.elections)?;
    writeln!(
        out,
        "{:>12}  hand-overs, and {} terms between them in which nobody led",
        tally.hand_overs, tally.void_terms
    )?;
    writeln!(out, "{:>12}  worlds with registers", tally.registers)?;
    writeln!(out, "{:>12}  evictions", tally.evictions)?;
    writeln!(out, "{:>12}  changes of the round time", tally.round_changes)?;
    writeln!(out, "{:>12}  writes to the fenced resource", tally.writes)?;
    writeln!(out, "{:>12}  faults", tally.faults())?;
    for fault in Fault::ALL {
        writeln!(out, "{:>14}  {fault}", tally.faults_of(*fault))?;
    }
    writeln!(out, "sometimes")?;
    for what in Sometimes::ALL {
        writeln!(out, "{:>14}  {what}", tally.seen(*what))?;
    }
    writeln!(out, "drills left out")?;
    for drill in Skipped::ALL {
        writeln!(out, "{:>14}  {drill}", tally.skipped(*drill))?;
    }
    let calm = tally.calm_nanos as f64 / 3.6e12;
    writeln!(out, "{:>12}  leaderships lost in {calm:.1} simulated hours of calm", tally.lost)?;
    print_spans(out, "silent losses: {} replaced", &tally.failovers)?;
    print_spans(out, "silent losses with registers: {} replaced", &tally.successions)?;
    print_spans(out, "rounds that were too long: {} came down", &tally.descents)
}

fn print_spans(out: &mut impl Write, what: &str, spans: &[(u64, u64)]) -> io::Result<()> {
    let (Some(median), Some(most)) = (spans.get(spans.len() / 2), spans.last()) else { return Ok(()) };
    let percent = |(took, bound): &(u64, u64)| *took as f64 * 100.0 / (*bound).max(1) as f64;
    let what = what.replace("{}", &spans.len().to_string());
    writeln!(out, "{what}; median {:.1} %, longest {:.1} % of the bound", percent(median), percent(most))
}

fn print_failures(out: &mut impl Write, report: &Report, setup: &Setup) -> io::Result<()> {
    for failure in &report.failures {
        let violation = &failure.violation;
        writeln!(out, "\nseed {}: {} is broken: {}", failure.seed, violation.oracle, violation.text)?;
        writeln!(out, "  replay: cargo run --profile sim -p primacy-sim -- replay {}{}", failure.seed, options(setup))?;
    }
    if let Some(first) = report.failures.first() {
        let outcome = primacy_sim::run_seed(first.seed, setup, true);
        let from = outcome.lines.len().saturating_sub(60);
        writeln!(out, "\nthe last events of seed {} (real time, node, its own time):", first.seed)?;
        for line in &outcome.lines[from..] {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

fn options(setup: &Setup) -> String {
    use clap::ValueEnum;
    let named = |name: &str, value: Option<clap::builder::PossibleValue>| {
        value.map_or_else(String::new, |value| format!(" --{name} {}", value.get_name()))
    };
    let profile = Some(setup.profile).filter(|profile| *profile != Profile::All);
    named("profile", profile.and_then(|profile| profile.to_possible_value()))
        + &named("protocol", setup.protocol.and_then(|protocol| protocol.to_possible_value()))
        + if setup.unspared { " --unspared" } else { "" }
        + &named("selector", setup.chooser.and_then(|chooser| chooser.to_possible_value()))
        + &setup.candidates.map_or_else(String::new, |count| format!(" --candidates {count}"))
        + &setup.timing.map_or_else(String::new, |timing| format!(" --lease {}", timing.lease().as_millis()))
        + &setup.latency.map_or_else(String::new, |latency| format!(" --round-trip {}", latency.as_millis()))
}

fn replay_seed(replay: &Replay) -> io::Result<bool> {
    if replay.worlds.protocol == Some(Protocol::Kv) {
        return kv::replay(replay.seed, replay.flaw.as_deref(), replay.last);
    }
    let mut setup = replay.worlds.setup();
    let mut out = io::stdout();
    if let Some(name) = &replay.flaw {
        let Some(canary) = Canary::named(name) else {
            writeln!(io::stderr(), "no such planted bug: {name}; see `primacy-sim canaries`")?;
            return Ok(false);
        };
        setup = canary.setup();
    }
    let outcome = primacy_sim::run_seed(replay.seed, &setup, true);
    let from = replay.last.map_or(0, |last| outcome.lines.len().saturating_sub(last));
    if replay.step {
        step(&mut out, &outcome.lines)?;
    } else {
        for line in &outcome.lines[from..] {
            writeln!(out, "{line}")?;
        }
    }
    match &outcome.violation {
        Some(violation) => writeln!(out, "{} is broken: {}", violation.oracle, violation.text)?,
        None => writeln!(out, "no promise is broken; fingerprint {:016x}", outcome.fingerprint)?,
    }
    Ok(outcome.violation.is_none())
}

/// Shows one line per Enter. A number goes there, `/text` to the next line with that text, `q` ends.
fn step(out: &mut impl Write, lines: &[Line]) -> io::Result<()> {
    writeln!(out, "Enter: next event · number: this many · /text: next event with this text · q: end")?;
    let mut shown = 0;
    let mut input = String::new();
    while shown < lines.len() {
        write!(out, "{:>6}/{} ", shown + 1, lines.len())?;
        writeln!(out, "{}", lines[shown])?;
        shown += 1;
        input.clear();
        if io::stdin().lock().read_line(&mut input)? == 0 {
            return Ok(());
        }
        let command = input.trim();
        if command == "q" {
            return Ok(());
        } else if let Some(text) = command.strip_prefix('/') {
            shown += lines[shown..].iter().position(|line| line.to_string().contains(text)).unwrap_or_default();
        } else if let Ok(count) = command.parse::<usize>() {
            let until = (shown + count).min(lines.len());
            for line in &lines[shown..until] {
                writeln!(out, "{line}")?;
            }
            shown = until;
        }
    }
    Ok(())
}

fn oracle(name: &str) -> Result<Oracle, String> {
    let names = || Oracle::ALL.iter().map(|oracle| oracle.text()).collect::<Vec<_>>().join(", ");
    let found = Oracle::ALL.iter().find(|oracle| oracle.text() == name).copied();
    found.ok_or_else(|| format!("the oracles are {}", names()))
}

fn hunt(name: Option<&str>, batch: &BatchArgs, within: Option<u64>, mute: &[Oracle], share: u64) -> io::Result<bool> {
    let BatchArgs { from, threads } = *batch;
    let mut out = io::stdout().lock();
    let mut all = true;
    writeln!(out, "{:<26} {:>6} of {:<6} {:<12} bug", "planted", "seeds", "at most", "found by")?;
    for canary in CANARIES.iter().filter(|canary| name.is_none_or(|name| name == canary.name)) {
        let canary = Canary { within: within.unwrap_or(canary.within), ..*canary };
        let hunt = canary.hunt(from, mute, threads);
        let by = hunt.found.map_or_else(|| "NOT FOUND".to_owned(), |(_, oracle)| oracle.to_string());
        all &= hunt.found.is_some();
        write!(out, "{:<26} {:>6} of {:<7} {by:<12} {}", canary.name, hunt.seeds, canary.within, canary.planted)?;
        if share > 0 {
            let once = Canary { within: 1, ..canary };
            let found = (from..from + share).filter(|seed| once.hunt(*seed, mute, 1).found.is_some()).count();
            write!(out, " (in {found} of {share} seeds)")?;
        }
        writeln!(out)?;
    }
    Ok(all)
}

/// In how many worlds the leader stayed.
fn stay(args: &StayArgs) -> io::Result<bool> {
    let lease = Duration::from_millis(args.lease);
    let renew_every = args.renew.map(Duration::from_millis);
    let timing = match Timing::new(TimingSettings { renew_every, ..TimingSettings::new(lease) }) {
        Ok(timing) => timing,
        Err(error) => return writeln!(io::stderr(), "{error}").map(|()| false),
    };
    let span = Duration::from_secs(args.hours * 3_600);
    let setup = Setup {
        protocol: Some(Protocol::Peers),
        timing: Some(timing),
        candidates: Some(3),
        latency: Some(Duration::from_millis(2)),
        steady: Some(Steady { span, loss_ppm: args.loss }),
        ..Setup::new(Profile::Calm)
    };
    let watch = Stopwatch::start();
    let report = primacy_sim::run(args.batch.seeds(args.worlds), args.batch.threads, &setup, &|_| {});
    let mut out = io::stdout().lock();
    let (tally, seconds) = (&report.tally, watch.elapsed().as_secs_f64());
    writeln!(out, "{:>12.1}  simulated hours in {} worlds, in {seconds:.1} s", tally.hours(), tally.seeds)?;
    writeln!(out, "{:>12}  renewals", tally.seen(Sometimes::Renewal))?;
    writeln!(out, "{:>12}  packets lost", tally.faults_of(Fault::PacketLost))?;
    writeln!(out, "{:>12}  worlds in which the leader did not stay", report.failures.len())?;
    print_failures(&mut out, &report, &setup)?;
    Ok(report.is_clean())
}
