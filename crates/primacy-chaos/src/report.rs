//! What came out of a run, for people and for scripts.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::judge::Verdict;

/// How many broken promises are shown; where there are more, they say the same.
const SHOWN: usize = 5;

/// What came out of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) store: String,
    pub(crate) seed: u64,
    pub(crate) seconds: f64,
    pub(crate) lease_ms: u128,
    pub(crate) faults: usize,
    pub(crate) fault_kinds: BTreeMap<&'static str, usize>,
    #[serde(flatten)]
    pub(crate) figures: Figures,
    pub(crate) broken: Vec<Verdict>,
    /// When the first of them was seen.
    pub(crate) broken_after_seconds: Option<f64>,
    #[serde(skip)]
    pub(crate) last_lines: Vec<String>,
}

/// Figures of what took part.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Figures {
    Candidates(CandidateFigures),
    Nodes(NodeFigures),
}

/// Of candidates and their programs.
#[derive(Debug, Serialize)]
pub(crate) struct CandidateFigures {
    pub(crate) candidates: usize,
    pub(crate) leaderships: usize,
    pub(crate) fenced_rows: usize,
    pub(crate) leaders_with_rows: usize,
    pub(crate) stale_rows: usize,
    pub(crate) refused_writes: usize,
    /// Lines of programs that woke up after their whole candidate had been stopped, and how late the latest was.
    pub(crate) late_lines: usize,
    pub(crate) latest_late_line_ms: f64,
    /// Lines of what a program had started whose runner and warden were killed together, without isolation.
    pub(crate) orphan_lines: usize,
    /// Lines of leaders whom a failover had made the store forget.
    pub(crate) forgotten_lines: usize,
    /// All times without a leader.
    pub(crate) gaps: Spread,
    /// What of them was calm.
    pub(crate) calm: Spread,
    pub(crate) settle_bound_ms: f64,
    /// Those after one fault alone, in calm.
    pub(crate) single: Spread,
    pub(crate) published_bound_ms: f64,
}

/// Of nodes of the key-value store and their clients.
#[derive(Debug, Serialize)]
pub(crate) struct NodeFigures {
    pub(crate) nodes: usize,
    pub(crate) clients: usize,
    /// Operations in checked histories.
    pub(crate) operations: usize,
    pub(crate) operations_per_second: f64,
    /// Of these, writes that may have been done.
    pub(crate) unknown_writes: usize,
    /// Searches for an order.
    pub(crate) histories: usize,
    /// How often a key that no client used any more was read again.
    pub(crate) former_keys_read_again: usize,
    pub(crate) longest_search_ms: f64,
    pub(crate) searching_seconds: f64,
    /// What clients of nodes that were struck saw.
    pub(crate) trouble_at_struck_nodes: BTreeMap<&'static str, u64>,
    /// What clients of other nodes saw.
    pub(crate) trouble_elsewhere: BTreeMap<&'static str, u64>,
    /// For each kind of fault at a leader, how long no write to its groups was answered at other nodes.
    pub(crate) no_write: BTreeMap<&'static str, Spread>,
}

/// Some durations at a glance, in milliseconds.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Spread {
    count: usize,
    p50: f64,
    p90: f64,
    p99: f64,
    max: f64,
}

impl Spread {
    pub(crate) fn of(gaps: impl Iterator<Item = Duration>) -> Self {
        let mut all: Vec<f64> = gaps.map(|gap| gap.as_secs_f64() * 1e3).collect();
        all.sort_by(f64::total_cmp);
        let at = |percent: usize| all.get(all.len().saturating_sub(1) * percent / 100).copied().unwrap_or_default();
        Self { count: all.len(), p50: at(50), p90: at(90), p99: at(99), max: at(100) }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "p50 {:.0} ms, p90 {:.0} ms, p99 {:.0} ms, max {:.0} ms (n = {})",
            self.p50, self.p90, self.p99, self.max, self.count
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, seed, seconds, lease_ms, .. } = self;
        let taking_part = match &self.figures {
            Figures::Candidates(figures) => format!("{} candidates", figures.candidates),
            Figures::Nodes(figures) => format!("{} nodes, {} clients", figures.nodes, figures.clients),
        };
        writeln!(f, "{store}: seed {seed}, {seconds:.0} s, {taking_part}, lease {lease_ms} ms")?;
        let kinds: Vec<String> = self.fault_kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        writeln!(f, "  faults        {} of {} kinds: {}", self.faults, kinds.len(), kinds.join(", "))?;
        match &self.figures {
            Figures::Candidates(figures) => figures.fmt(f)?,
            Figures::Nodes(figures) => figures.fmt(f)?,
        }
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

impl fmt::Display for CandidateFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        writeln!(f, "    one fault   {}; bound {:.0} ms", self.single, self.published_bound_ms)
    }
}

impl fmt::Display for NodeFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (operations, rate) = (self.operations, self.operations_per_second);
        writeln!(
            f,
            "  operations    {operations} checked, {rate:.0} a second; {} may have been done",
            self.unknown_writes
        )?;
        let (histories, again) = (self.histories, self.former_keys_read_again);
        writeln!(
            f,
            "  searches      {histories}, {again} of keys left before; {:.1} s, the longest {:.0} ms",
            self.searching_seconds, self.longest_search_ms
        )?;
        let told = |troubles: &BTreeMap<&str, u64>| {
            let all: Vec<String> = troubles.iter().map(|(trouble, count)| format!("{trouble} {count}")).collect();
            if all.is_empty() { "none".to_owned() } else { all.join(", ") }
        };
        writeln!(f, "  trouble       {} at clients of nodes that were struck", told(&self.trouble_at_struck_nodes))?;
        writeln!(f, "    elsewhere   {}", told(&self.trouble_elsewhere))?;
        writeln!(f, "  no write      answered at other nodes, when a leader was struck:")?;
        for (kind, spread) in &self.no_write {
            writeln!(f, "    {kind:<12}{spread}")?;
        }
        Ok(())
    }
}
