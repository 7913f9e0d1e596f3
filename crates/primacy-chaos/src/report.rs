//! What came out of a run, for people and for scripts.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::judge::{Gap, Verdict};
use crate::run::Run;

/// How many broken promises are shown; where there are more, they say the same.
const SHOWN: usize = 5;

/// What came out of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) store: String,
    pub(crate) seed: u64,
    seconds: f64,
    candidates: usize,
    lease_ms: u128,
    faults: usize,
    fault_kinds: BTreeMap<&'static str, usize>,
    leaderships: usize,
    fenced_rows: usize,
    leaders_with_rows: usize,
    stale_rows: usize,
    refused_writes: usize,
    /// Lines of programs that woke up after their whole candidate had been stopped, and how late the latest was.
    late_lines: usize,
    latest_late_line_ms: f64,
    /// Lines of what a program had started whose runner and warden were killed together, without isolation.
    orphan_lines: usize,
    /// Lines of leaders whom a failover had made the store forget.
    forgotten_lines: usize,
    /// All times without a leader.
    gaps: Spread,
    /// What of them was calm.
    calm: Spread,
    settle_bound_ms: f64,
    /// Those after one fault alone, in calm.
    single: Spread,
    published_bound_ms: f64,
    pub(crate) broken: Vec<Verdict>,
    /// When the first of them was seen.
    pub(crate) broken_after_seconds: Option<f64>,
    #[serde(skip)]
    pub(crate) last_lines: Vec<String>,
}

/// Some durations at a glance, in milliseconds.
#[derive(Debug, Default, Serialize)]
struct Spread {
    count: usize,
    p50: f64,
    p90: f64,
    max: f64,
}

impl Spread {
    fn of(gaps: impl Iterator<Item = Duration>) -> Self {
        let mut all: Vec<f64> = gaps.map(|gap| gap.as_secs_f64() * 1e3).collect();
        all.sort_by(f64::total_cmp);
        let at = |percent: usize| all.get(all.len().saturating_sub(1) * percent / 100).copied().unwrap_or_default();
        Self { count: all.len(), p50: at(50), p90: at(90), max: at(100) }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p50 {:.0} ms, p90 {:.0} ms, max {:.0} ms (n = {})", self.p50, self.p90, self.max, self.count)
    }
}

impl Report {
    pub(crate) fn of(run: &Run) -> Self {
        let rows = run.rows;
        let (published, settled) = run.bounds();
        let gaps: &[Gap] = &run.termination.gaps;
        let millis = |span: Duration| span.as_secs_f64() * 1e3;
        Self {
            store: run.setup.store.clone(),
            seed: run.setup.seed,
            seconds: run.setup.span.as_secs_f64(),
            candidates: run.setup.candidates,
            lease_ms: run.setup.lease.as_millis(),
            faults: run.injected.values().sum(),
            fault_kinds: run.injected.clone(),
            leaderships: run.witnessed.leaderships.len(),
            fenced_rows: rows.count,
            leaders_with_rows: rows.leaders,
            stale_rows: rows.stale,
            refused_writes: run.witnessed.refused,
            late_lines: run.witnessed.excused,
            orphan_lines: run.witnessed.orphaned,
            forgotten_lines: run.witnessed.undone,
            latest_late_line_ms: millis(run.witnessed.latest),
            gaps: Spread::of(gaps.iter().map(|gap| gap.length)),
            calm: Spread::of(gaps.iter().map(|gap| gap.calm)),
            settle_bound_ms: millis(settled),
            single: Spread::of(gaps.iter().filter(|gap| gap.faults <= 1).map(|gap| gap.calm)),
            published_bound_ms: millis(published),
            broken: run.verdicts.clone(),
            broken_after_seconds: run.broken_after.map(|after| after.as_secs_f64()),
            last_lines: if run.timeline.is_quiet() { run.timeline.last(60).to_vec() } else { Vec::new() },
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, seed, seconds, candidates, lease_ms, .. } = self;
        writeln!(f, "{store}: seed {seed}, {seconds:.0} s, {candidates} candidates, lease {lease_ms} ms")?;
        let kinds: Vec<String> = self.fault_kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        writeln!(f, "  faults        {} of {} kinds: {}", self.faults, kinds.len(), kinds.join(", "))?;
        writeln!(f, "  leaderships   {}", self.leaderships)?;
        let (rows, leaders, stale) = (self.fenced_rows, self.leaders_with_rows, self.stale_rows);
        writeln!(f, "  fenced rows   {rows} by {leaders} leaders, {stale} stale; {} refused", self.refused_writes)?;
        let (late, latest) = (self.late_lines, self.latest_late_line_ms);
        writeln!(
            f,
            "  late lines    {late} of candidates that were stopped as a whole, up to {latest:.0} ms after waking"
        )?;
        if self.orphan_lines > 0 {
            writeln!(f, "  orphan lines  {} of children whom nobody was left to kill", self.orphan_lines)?;
        }
        if self.forgotten_lines > 0 {
            writeln!(f, "  forgotten     {} lines of leaders whom a failover had undone", self.forgotten_lines)?;
        }
        writeln!(f, "  no leader     {}", self.gaps)?;
        writeln!(f, "    in calm     {}; bound {:.0} ms", self.calm, self.settle_bound_ms)?;
        writeln!(f, "    one fault   {}; bound {:.0} ms", self.single, self.published_bound_ms)?;
        for verdict in self.broken.iter().take(SHOWN) {
            writeln!(f, "  BROKEN        {verdict}")?;
        }
        if self.broken.len() > SHOWN {
            writeln!(f, "                and {} more", self.broken.len() - SHOWN)?;
        }
        if self.broken.is_empty() {
            writeln!(f, "  every promise held")?;
        }
        Ok(())
    }
}
