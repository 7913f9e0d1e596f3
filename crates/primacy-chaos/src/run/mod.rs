//! One run: candidates in their places, faults as they are dealt, and judges that watch.

mod inject;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;
use primacy::{Timing, TimingSettings};
use tempfile::TempDir;

use crate::auditor::{Auditor, History, Read};
use crate::canary::Canary;
use crate::candidate::{CandidateSlot, Recipe, witness};
use crate::clock::Moment;
use crate::fault::{Dealer, Kind};
use crate::judge::{Gap, Promise, Rows, Termination, Verdict, WitnessLog};
use crate::process;
use crate::report::{CandidateFigures, Figures, Report, Spread};
use crate::rng::Rng;
use crate::setup::Setup;
use crate::site::Site;
use crate::timeline::Timeline;
use crate::witness::{Line, Reader, Word};
use crate::work::Row;
use crate::world;
use inject::InForce;

/// The longest call to a store that nothing befalls.
const LATENCY: Duration = Duration::from_millis(10);

/// How often a run looks around.
const TICK: Duration = Duration::from_millis(5);
/// How long after its start a candidate counts as one that could be elected.
const WARM_UP: Duration = Duration::from_millis(300);
/// What a machine that is busy with other things may add to any bound: programs start, the scheduler has its turns.
const SLACK: Duration = Duration::from_millis(700);
/// How long after its guards went on a program that was stopped together with them may live. The manual says 100 ms; a busy
/// machine may take longer to let the guards run.
const LATE_PROGRAM: Duration = Duration::from_millis(500);

/// How often a leader may be lost for no reason in the end, before that is one.
const TRIES: usize = 3;

/// A run under way.
pub(crate) struct Run {
    setup: Setup,
    recipe: Recipe,
    site: Site,
    places: Vec<CandidateSlot>,
    in_force: Vec<InForce>,
    timeline: Timeline,
    witnessed: WitnessLog,
    termination: Termination,
    injected: BTreeMap<&'static str, usize>,
    orders: Vec<std::process::Child>,
    verdicts: Vec<Verdict>,
    /// How long the first of them took.
    broken_after: Option<Duration>,
    rows: Rows,
    auditor: Auditor,
    reader: Reader,
    dealer: Dealer,
    start: Moment,
    timing: Timing,
    /// Last, so that nothing is in it any more when it is removed.
    folder: TempDir,
}

impl Run {
    /// Runs, and judges.
    pub(crate) fn execute(setup: Setup) -> Result<Report> {
        if setup.canary.is_some_and(Canary::is_of_nodes) {
            bail!("this canary is one of the key-value store's");
        }
        let mut run = Self::prepare(setup)?;
        let outcome = run.course();
        run.stop_everything();
        outcome?;
        run.finish()
    }

    fn prepare(setup: Setup) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("primacy-chaos-").tempdir()?;
        let site = Site::start(&setup.store, folder.path(), &setup.primacy)?;
        let mut rng = Rng::new(setup.seed);
        let timing = TimingSettings { grace: setup.lease / 5, ..TimingSettings::new(setup.lease) };
        let timing = Timing::new(timing)?;
        let recipe = Recipe {
            primacy: setup.primacy.canonicalize().with_context(|| format!("no {}", setup.primacy.display()))?,
            program: std::env::current_exe()?,
            folder: folder.path().to_owned(),
            lease: setup.lease,
            grace: timing.grace(),
            protocol: setup.protocol,
            can_isolate: world::can_isolate(),
            canary: setup.canary,
        };
        let kinds: Vec<Kind> = setup.faults.iter().copied().filter(|kind| site.has(*kind)).collect();
        if kinds.is_empty() {
            bail!("none of the chosen faults can be injected on {}", setup.store);
        }
        let dealer = Dealer::new(rng.fork(), kinds, setup.lease);
        let mut places = Vec::new();
        for number in 1..=setup.candidates {
            places.push(recipe.place(format!("c{number}"), &site, rng.fork())?);
        }
        let mut timeline = Timeline::new(setup.prefix.clone(), setup.quiet);
        if let Some(why) = setup.no_wires.as_ref().filter(|_| site.server.is_some() || site.peers.is_some()) {
            timeline.tell(why);
        }
        let witnessed = WitnessLog::new(LATE_PROGRAM);
        let (witnessed, history) = match site.forgets() {
            true => (witnessed.forgetting(setup.lease), History::Changes),
            false => (witnessed, History::Grows),
        };
        let start = Moment::now();
        let settled = settle_bound(&timing, setup.candidates)
            + setup.protocol.settles(setup.lease)
            + SLACK
            + site.fence_holds_up();
        Ok(Self {
            timeline,
            witnessed,
            termination: Termination::new(start, setup.lease, settled),
            reader: Reader::create(&witness(folder.path()))?,
            rows: Rows::default(),
            auditor: Auditor::start(site.table.clone(), history),
            in_force: Vec::new(),
            injected: BTreeMap::new(),
            orders: Vec::new(),
            verdicts: Vec::new(),
            broken_after: None,
            start,
            setup,
            recipe,
            site,
            places,
            dealer,
            timing,
            folder,
        })
    }

    /// Faults for the given time, then none, and a leader that stays.
    fn course(&mut self) -> Result<()> {
        let end = self.start + self.setup.span;
        let (wait, mut next) = self.dealer.deal();
        let mut due = self.start + self.setup.lease * 2 + wait;
        while Moment::now() < end {
            self.tick()?;
            if !self.verdicts.is_empty() {
                return Ok(());
            }
            if Moment::now() < due {
                continue;
            }
            let is_done = self.inject(&next);
            if !is_done && Moment::now() > due + self.setup.lease * next.kind.patience() {
                self.timeline.tell(format!("{} suits nobody", next.kind.name()));
            } else if !is_done {
                continue;
            }
            let (wait, strike) = self.dealer.deal();
            next = strike;
            due = Moment::now() + wait;
        }
        self.calm_down()
    }

    /// No more faults: somebody leads within the bound, and goes on to lead.
    fn calm_down(&mut self) -> Result<()> {
        self.timeline.tell("all faults end");
        self.expire_all();
        // What ends by itself may take its time, in which nobody can be elected.
        while !self.in_force.is_empty() && self.verdicts.is_empty() {
            self.tick()?;
        }
        let from = Moment::now();
        let settled = |run: &Self| {
            let full = run
                .places
                .iter()
                .all(|place| place.runner.as_ref().is_some_and(|runner| Moment::now() > runner.since + WARM_UP));
            full && run.orders.is_empty() && run.leads_now() && Moment::now() > from + run.setup.lease * 2
        };
        // A machine that is busy with other things may cost a leadership now and then, but not one after the other.
        for tries_left in (0..TRIES).rev() {
            while !settled(self) && self.verdicts.is_empty() {
                self.tick()?;
            }
            let token = self.witnessed.latest_leadership().map(|leadership| leadership.token);
            let until = Moment::now() + self.setup.lease * 2;
            while Moment::now() < until && self.verdicts.is_empty() {
                self.tick()?;
            }
            let latest = self.witnessed.latest_leadership().map(|leadership| leadership.token);
            if token == latest || !self.verdicts.is_empty() {
                break;
            }
            if tries_left == 0 {
                let what =
                    format!("{TRIES} times in a row a leader did not last two leases although nothing was wrong");
                self.break_promise(Verdict::new(Promise::Stability, what));
            }
        }
        Ok(())
    }

    /// Looks around, and does what is due.
    fn tick(&mut self) -> Result<()> {
        thread::park_timeout(TICK);
        for line in self.reader.read()? {
            self.see(&line);
        }
        let now = Moment::now();
        self.heal(now);
        self.mind_places(now)?;
        self.orders.retain_mut(|order| !matches!(order.try_wait(), Ok(Some(_))));
        self.see_read();
        if self.is_blocked(now) {
            self.termination.interrupt(now);
        }
        if let Some(verdict) = self.termination.judge(now) {
            self.break_promise(verdict);
        }
        Ok(())
    }

    fn see_read(&mut self) {
        for read in self.auditor.read() {
            match read {
                Read::Anew => self.rows = Rows::default(),
                Read::Rows(rows) => self.see_rows(rows),
            }
        }
    }

    fn see_rows(&mut self, rows: Vec<Row>) {
        for row in rows {
            if let Some(verdict) = self.rows.see(row) {
                self.break_promise(verdict);
            }
        }
    }

    fn see(&mut self, line: &Line) {
        let before = self.witnessed.latest_leadership().map_or(0, |leadership| leadership.token);
        if let Some(verdict) = self.witnessed.see(line) {
            self.break_promise(verdict);
        }
        if line.word == Word::Start && line.token > before {
            let lasting = self.in_force.len();
            self.termination.start(line.at, lasting);
            let gap = self.termination.gaps.last().map_or(Duration::ZERO, |gap| gap.length);
            let what = format!("  {} leads, token {} (nobody for {:.3} s)", line.name, line.token, gap.as_secs_f64());
            self.timeline.tell_at(line.at, what);
            self.judge_gap();
        } else if line.word.is_work() && line.token >= before && !self.witnessed.is_orphaned(line) {
            self.termination.work(line.at);
        }
    }

    /// After one fault alone, the published bound holds.
    fn judge_gap(&mut self) {
        let bound = self.published_bound();
        let Some(gap) = self.termination.gaps.last().filter(|gap| gap.faults <= 1 && gap.calm > bound) else { return };
        let what = format!(
            "nobody led for {:.3} s after a single fault, {:.3} s of it in calm; {:.3} s are published",
            gap.length.as_secs_f64(),
            gap.calm.as_secs_f64(),
            bound.as_secs_f64()
        );
        self.break_promise(Verdict::new(Promise::Termination, what));
    }

    /// How long after the loss of a leader another leads, on this machine.
    fn published_bound(&self) -> Duration {
        let ahead = u32::try_from(self.setup.candidates).unwrap_or(u32::MAX);
        // A candidate that has just come back learns with its first round that it stands in line.
        let round = self.setup.protocol.round(self.setup.lease);
        self.timing.failover_bound(ahead, LATENCY) + round + SLACK + self.site.fence_holds_up()
    }

    /// Fills places that have been empty for long enough.
    fn mind_places(&mut self, now: Moment) -> Result<()> {
        let pause = self.setup.lease;
        for index in 0..self.places.len() {
            let Some(place) = self.places.get_mut(index) else { continue };
            if let Some(status) = place.ended(pause)? {
                let name = place.name.clone();
                self.judge_end(&name, status);
            } else if place.runner.is_none() && now >= place.back_at {
                place.fill(&self.recipe)?;
            }
        }
        Ok(())
    }

    /// Runners end when their programs do, by the signals of this run, and where the store cannot be used.
    fn judge_end(&mut self, name: &str, status: std::process::ExitStatus) {
        use std::os::unix::process::ExitStatusExt as _;
        let blocked = self.in_force.iter().any(|fault| fault.kind.blocks());
        let expected = match (status.code(), status.signal()) {
            (Some(0 | 137 | 143), _) | (_, Some(9 | 15)) => true,
            (Some(69), _) => blocked,
            _ => false,
        };
        if !expected {
            self.break_promise(Verdict::new(Promise::Endurance, format!("the runner of {name} ended with {status}")));
        }
    }

    /// Whether nobody could be elected now, so that the time counts for nothing.
    fn is_blocked(&self, now: Moment) -> bool {
        let holder = self.witnessed.latest_leadership().map(|leadership| leadership.name.as_str());
        let stuck = self.in_force.iter().any(|fault| {
            // A leader whose program alone stands still goes on to lead.
            let leads = fault.place.is_some_and(|place| Some(self.places[place].name.as_str()) == holder);
            fault.blocks() || (fault.kind == Kind::StopProgram && leads)
        });
        let healthy = self.places.iter().enumerate().any(|(index, place)| {
            let up = place.runner.as_ref().is_some_and(|runner| now > runner.since + WARM_UP);
            up && !self.in_force.iter().any(|fault| fault.place == Some(index))
        });
        stuck || !healthy
    }

    /// Whether a leader has worked just now.
    fn leads_now(&self) -> bool {
        self.witnessed.latest_leadership().is_some_and(|leader| Moment::now().since(leader.last) < self.setup.lease / 5)
    }

    fn break_promise(&mut self, verdict: Verdict) {
        self.timeline.tell(format!("BROKEN  {verdict}"));
        self.broken_after.get_or_insert(Moment::now().since(self.start));
        self.verdicts.push(verdict);
    }

    /// Ends all processes of this run, whatever they do.
    fn stop_everything(&mut self) {
        self.heal_all();
        for place in &self.places {
            if let Some(runner) = &place.runner {
                runner.process.send(Signal::SIGTERM);
            }
        }
        let patience = Moment::now() + self.setup.lease * 2 + SLACK;
        while self.places.iter().any(|place| place.runner.is_some()) && Moment::now() < patience {
            thread::park_timeout(TICK);
            for place in &mut self.places {
                let _ = place.ended(Duration::ZERO);
            }
        }
        loop {
            let left = process::marked(self.folder.path());
            if left.is_empty() {
                break;
            }
            left.iter().for_each(|process| process.send(Signal::SIGKILL));
            thread::park_timeout(TICK);
            for place in &mut self.places {
                let _ = place.ended(Duration::ZERO);
            }
            self.orders.retain_mut(|order| !matches!(order.try_wait(), Ok(Some(_))));
        }
    }

    /// The last judgements.
    fn finish(mut self) -> Result<Report> {
        let lines = self.reader.read()?;
        for line in &lines {
            if let Some(verdict) = self.witnessed.see(line) {
                self.break_promise(verdict);
            }
        }
        self.see_read();
        if self.site.forgets() {
            self.rows = Rows::default();
        }
        let rest = self.auditor.rest(self.rows.last).context("the fenced table cannot be read")?;
        self.see_rows(rest);
        let rows = self.rows;
        let seconds = self.setup.span.as_secs_f64();
        let leaders = self.witnessed.leaderships.len();
        // A leader every twenty leases, and ten rows a second: far less than is usual, and far more than nothing.
        let least_leaders = 2 + (seconds / self.setup.lease.as_secs_f64() / 20.0) as usize;
        let own = self.setup.canary.is_some_and(Canary::has_own_candidates);
        let least_rows = if own { 0 } else { (seconds * 10.0) as usize };
        if self.verdicts.is_empty() && (leaders < least_leaders || rows.count < least_rows) {
            let what = format!(
                "the run is void: {leaders} leaderships and {} fenced rows, at least {least_leaders} and {least_rows} were due",
                rows.count
            );
            self.break_promise(Verdict::new(Promise::Load, what));
        }
        let report = self.report();
        if let Some(keep) = &self.setup.keep {
            self.keep(keep)?;
        }
        Ok(report)
    }

    /// What came out of it.
    fn report(&self) -> Report {
        let rows = self.rows;
        let (published, settled) = self.bounds();
        let gaps: &[Gap] = &self.termination.gaps;
        let millis = |span: Duration| span.as_secs_f64() * 1e3;
        let figures = CandidateFigures {
            candidates: self.setup.candidates,
            leaderships: self.witnessed.leaderships.len(),
            fenced_rows: rows.count,
            leaders_with_rows: rows.leaders,
            stale_rows: rows.stale,
            refused_writes: self.witnessed.refused,
            late_lines: self.witnessed.excused,
            orphan_lines: self.witnessed.orphaned,
            forgotten_lines: self.witnessed.undone,
            latest_late_line_ms: millis(self.witnessed.latest),
            gaps: Spread::of(gaps.iter().map(|gap| gap.length)),
            calm: Spread::of(gaps.iter().map(|gap| gap.calm)),
            settle_bound_ms: millis(settled),
            single: Spread::of(gaps.iter().filter(|gap| gap.faults <= 1).map(|gap| gap.calm)),
            published_bound_ms: millis(published),
        };
        Report {
            store: self.setup.store.clone(),
            seed: self.setup.seed,
            seconds: self.setup.span.as_secs_f64(),
            lease_ms: self.setup.lease.as_millis(),
            faults: self.injected.values().sum(),
            fault_kinds: self.injected.clone(),
            figures: Figures::Candidates(figures),
            broken: self.verdicts.clone(),
            broken_after_seconds: self.broken_after.map(|after| after.as_secs_f64()),
            last_lines: self.timeline.for_report(),
        }
    }

    /// Leaves logs and witnesses in a folder.
    fn keep(&self, keep: &Path) -> Result<()> {
        fs::create_dir_all(keep)?;
        for entry in fs::read_dir(self.folder.path())?.flatten() {
            if entry.file_type()?.is_file() {
                fs::copy(entry.path(), keep.join(entry.file_name()))?;
            }
        }
        let logs = self.site.server.as_ref().map(|server| server.logs()).unwrap_or_default();
        for (node, log) in logs.iter().enumerate() {
            fs::write(keep.join(format!("server-{node}.log")), log)?;
        }
        Ok(())
    }

    fn bounds(&self) -> (Duration, Duration) {
        let settled = settle_bound(&self.timing, self.setup.candidates)
            + self.setup.protocol.settles(self.setup.lease)
            + SLACK
            + self.site.fence_holds_up();
        (self.published_bound(), settled)
    }
}

/// From the end of faults to a leader: the longest back-off, the published bound, the windows that a successor or a
/// cooling leader is granted, and one handing over that was ordered before (as the simulator derives it).
fn settle_bound(timing: &Timing, candidates: usize) -> Duration {
    let count = u32::try_from(candidates).unwrap_or(u32::MAX);
    timing.failover_bound(count, LATENCY)
        + timing.renew_every() * 3
        + timing.call_timeout() * 2
        + timing.look_lag() * 4
        + timing.window() * 3
        + timing.grace()
        + timing.kill()
        + timing.slot().max(LATENCY) * count * 3
        + timing.lease() / 8
}
