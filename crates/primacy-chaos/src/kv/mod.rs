//! A run of the key-value store: nodes as processes, many clients, faults as they are dealt, and every history checked.

mod availability;
mod checker;
mod connection;
mod faults;
#[cfg(feature = "canary")]
pub(crate) mod flawed;
mod histories;
mod nodes;
mod rot;
mod work;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};

use crate::canary::Canary;
use crate::clock::Moment;
use crate::fault::{Dealer, Kind};
use crate::judge::{Promise, Verdict};
use crate::process;
use crate::report::{Figures, NodeFigures, Report, Spread};
use crate::rng::Rng;
use crate::setup::Setup;
use crate::timeline::Timeline;
use availability::Availability;
use checker::{Checked, Checker};
use histories::Histories;
use nodes::{Nodes, Recipe};
use work::{Client, Shared};

/// The name of this store.
pub(crate) const STORE: &str = "kv";

/// How often a run looks around.
const TICK: Duration = Duration::from_millis(5);
/// What a machine that is busy with other things may add to any bound.
const SLACK: Duration = Duration::from_secs(2);
/// How many operations are due in a second, at least: far less than is usual, and far more than nothing.
const LEAST_RATE: u64 = 200;

/// A run under way.
struct Run<'a> {
    setup: &'a Setup,
    shared: &'a Shared,
    nodes: Nodes,
    timeline: Timeline,
    injected: BTreeMap<&'static str, usize>,
    /// For each kind of fault that struck a leader, how long no write was answered.
    gaps: BTreeMap<&'static str, Vec<Duration>>,
    verdicts: Vec<Verdict>,
    broken_after: Option<Duration>,
    start: Moment,
    /// What the checker has found.
    found: Receiver<String>,
}

/// Runs, and judges.
pub(crate) fn execute(setup: &Setup) -> Result<Report> {
    let folder = tempfile::Builder::new().prefix("primacy-chaos-").tempdir()?;
    let outcome = execute_in(setup, folder.path());
    // Wardens may outlive their nodes for a moment.
    let kill = |process: process::Process| process.send(nix::sys::signal::Signal::SIGKILL);
    process::marked(folder.path()).into_iter().for_each(kill);
    let is_well = outcome.as_ref().is_ok_and(|report| report.broken.is_empty() || setup.canary.is_some());
    match &setup.keep {
        Some(keep) => copy(folder.path(), keep)?,
        // What a failure rests on is never thrown away.
        None if !is_well => {
            let kept = folder.keep();
            return outcome.with_context(|| format!("logs are in {}", kept.display()));
        }
        None => {}
    }
    outcome
}

fn execute_in(setup: &Setup, folder: &Path) -> Result<Report> {
    let primacy = setup.primacy.canonicalize().with_context(|| format!("no {}", setup.primacy.display()))?;
    let (lease, canary) = (setup.lease, setup.canary);
    if canary.is_some_and(|canary| !canary.is_of_nodes()) {
        bail!("this canary is none of the key-value store's");
    }
    let recipe = Recipe { primacy, folder: folder.to_owned(), lease, canary };
    let nodes = Nodes::start(recipe, setup.nodes.nodes)?;
    let shared = Shared {
        places: nodes.places(),
        histories: Histories::new(),
        availability: Availability::new(nodes.count()),
        patience: lease * 2 + SLACK,
        is_over: AtomicBool::new(false),
        tells_the_past: canary == Some(Canary::StaleRead),
    };
    let mut rng = Rng::new(setup.seed);
    let faults = rng.fork();
    let (tell, found) = channel();
    thread::scope(|scope| {
        let shared = &shared;
        let checker = Checker::new(shared, rng.fork(), folder, tell);
        let checking = scope.spawn(|| checker.run());
        let mut clients = Vec::new();
        for number in 0..setup.nodes.connections * nodes.count() {
            let mut client = Client::new(shared, number as u64, number % nodes.count(), rng.fork());
            clients.push(scope.spawn(move || client.run()));
        }
        let mut run = Run {
            setup,
            shared,
            nodes,
            timeline: Timeline::new(setup.prefix.clone(), setup.quiet),
            injected: BTreeMap::new(),
            gaps: BTreeMap::new(),
            verdicts: Vec::new(),
            broken_after: None,
            start: Moment::now(),
            found,
        };
        if let Some(why) = &setup.no_wires {
            run.timeline.tell(why);
        }
        let outcome = run.course(faults);
        shared.is_over.store(true, Ordering::Relaxed);
        let lasted = Moment::now().since(run.start);
        let all_end = clients.into_iter().all(|client| client.join().is_ok());
        shared.histories.close();
        let checked = ended(checking);
        if outcome.is_err() {
            // What they said would be gone with the folder otherwise.
            run.timeline.tell("the run cannot go on");
        }
        outcome?;
        if !all_end {
            bail!("a client has panicked");
        }
        run.finish(checked?, lasted)
    })
}

fn ended(checking: ScopedJoinHandle<'_, Result<Checked>>) -> Result<Checked> {
    checking.join().map_err(|_| anyhow!("the checker has panicked"))?
}

impl Run<'_> {
    /// Faults for the given time and as many as were asked for, then none.
    fn course(&mut self, rng: Rng) -> Result<()> {
        let kinds: Vec<Kind> = self.setup.faults.iter().copied().filter(|kind| self.has(*kind)).collect();
        if kinds.is_empty() {
            bail!("none of the chosen faults can befall nodes of the key-value store");
        }
        let mut dealer = Dealer::new(rng, kinds, self.setup.lease);
        while self.verdicts.is_empty() && !self.is_done() {
            let (wait, strike) = dealer.deal();
            self.pass(wait);
            self.look();
            if self.verdicts.is_empty() && !self.is_done() {
                self.strike(&strike)?;
            }
            self.look();
        }
        if self.verdicts.is_empty() {
            self.calm_down();
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        let options = &self.setup.nodes;
        let kills = self.injected.get(Kind::KillLeader.name()).copied().unwrap_or_default();
        Moment::now().since(self.start) >= self.setup.span
            && kills >= options.kills
            && self.shared.availability.counts().answered >= options.operations
    }

    /// No more faults: soon a write is answered at each node.
    fn calm_down(&mut self) {
        self.timeline.tell("all faults end");
        let begin = Moment::now();
        let bound = self.setup.lease * 2 + SLACK;
        while !self.shared.availability.all_write_since(begin) {
            if Moment::now().since(begin) > bound {
                let what = format!("some node has answered no write for {:.3} s in calm", bound.as_secs_f64());
                return self.break_promise(Verdict::new(Promise::Termination, what));
            }
            self.pass(TICK);
        }
    }

    /// Lets time pass.
    fn pass(&self, span: Duration) {
        let until = Moment::now() + span;
        while Moment::now() < until {
            thread::park_timeout(until.since(Moment::now()).min(TICK));
        }
    }

    /// Hears what clients and the checker have found.
    fn look(&mut self) {
        while let Ok(what) = self.found.try_recv() {
            self.break_promise(Verdict::new(Promise::Linearizability, what));
        }
        for what in self.shared.availability.broken() {
            let what = format!("a client of a node that nothing had befallen: {what}");
            self.break_promise(Verdict::new(Promise::Availability, what));
        }
        if let Some((node, status)) = self.nodes.ended() {
            let what = format!("node {} has ended by itself with {status}", self.nodes.name(node));
            self.break_promise(Verdict::new(Promise::Endurance, what));
        }
    }

    fn break_promise(&mut self, verdict: Verdict) {
        self.timeline.tell(format!("BROKEN  {verdict}"));
        self.broken_after.get_or_insert(Moment::now().since(self.start));
        self.verdicts.push(verdict);
    }

    /// The last judgements.
    fn finish(mut self, checked: Checked, lasted: Duration) -> Result<Report> {
        self.look();
        let counts = self.shared.availability.counts();
        let least = LEAST_RATE * lasted.as_secs();
        if self.verdicts.is_empty() && counts.answered < least {
            let what = format!("the run is void: {} operations, at least {least} were due", counts.answered);
            self.break_promise(Verdict::new(Promise::Load, what));
        }
        let named = |counts: &BTreeMap<availability::Trouble, u64>| {
            counts.iter().map(|(trouble, count)| (trouble.name(), *count)).collect()
        };
        let figures = NodeFigures {
            nodes: self.nodes.count(),
            clients: self.setup.nodes.connections * self.nodes.count(),
            operations: checked.operations,
            operations_per_second: counts.answered as f64 / lasted.as_secs_f64(),
            unknown_writes: checked.unknown,
            histories: checked.histories,
            former_keys_read_again: checked.again,
            longest_search_ms: checked.longest.as_secs_f64() * 1e3,
            searching_seconds: checked.searching.as_secs_f64(),
            trouble_at_struck_nodes: named(&counts.excused),
            trouble_elsewhere: named(&counts.unexcused),
            no_write: self.gaps.iter().map(|(kind, gaps)| (*kind, Spread::of(gaps.iter().copied()))).collect(),
        };
        Ok(Report {
            store: self.setup.store.clone(),
            seed: self.setup.seed,
            seconds: lasted.as_secs_f64(),
            lease_ms: self.setup.lease.as_millis(),
            faults: self.injected.values().sum(),
            fault_kinds: self.injected.clone(),
            figures: Figures::Nodes(figures),
            broken: self.verdicts.clone(),
            broken_after_seconds: self.broken_after.map(|after| after.as_secs_f64()),
            last_lines: self.timeline.for_report(),
        })
    }
}

/// Copies the files of a folder, without those of nodes.
fn copy(folder: &Path, keep: &PathBuf) -> Result<()> {
    fs::create_dir_all(keep)?;
    for entry in fs::read_dir(folder)?.flatten() {
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), keep.join(entry.file_name()))?;
        }
    }
    Ok(())
}
