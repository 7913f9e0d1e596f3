//! What membership costs: primacy's registers protocol and the published one, on one server, one after the other.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use primacy::Election;
use primacy::registers::Vars;
use serde::{Deserialize, Serialize};

use super::published::{self, Process, ROUND, Tally};
use primacy_bench::Spread;
use primacy_bench::{BenchStore, Kind};
use primacy_bench::{Event, gaps};
use primacy_bench::{Manner, Runners};

/// By which protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Form {
    Published,
    Primacy,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Published => "published",
            Self::Primacy => "primacy",
        })
    }
}

/// What a number of members cost in one way of doing it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Cost {
    pub(super) store: Kind,
    pub(super) form: Form,
    pub(super) candidates: usize,
    /// Each has a connection of its own.
    pub(super) processes: usize,
    seconds: f64,
    /// The round time at the end, after the losses.
    pub(super) round_ms: u64,
    /// Live processes that were evicted, from when all had settled to the end.
    pub(super) evictions: u64,
    statements_per_second: Option<f64>,
    pub(super) rows_per_second: Option<f64>,
    /// Of one core.
    pub(super) server_cpu: f64,
    /// In bytes, before the losses.
    server_memory: u64,
    /// Where the processes are processes of their own.
    fleet: Option<Upkeep>,
    /// How long nobody led after each silent loss of the leader.
    pub(super) gaps_ms: Vec<u64>,
}

/// What all processes together use.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Upkeep {
    /// Of one core.
    cpu: f64,
    /// In bytes.
    memory: u64,
    threads: usize,
}

/// How it is measured.
pub(super) struct Plan {
    pub(super) candidates: usize,
    pub(super) losses: u32,
    pub(super) settle: Duration,
    pub(super) watch: Duration,
}

impl Plan {
    /// For how long the leader that has just begun is left alone before it is lost. Spread over a round, since it counts how
    /// long ago its last sign of life was.
    fn pause(&self, nth: u32) -> Duration {
        ROUND * nth / self.losses.max(1)
    }
}

impl Cost {
    /// How many candidates one process has.
    pub(super) fn each(&self) -> usize {
        self.candidates / self.processes.max(1)
    }

    /// How long nobody led.
    pub(super) fn gaps(&self) -> Option<Spread> {
        let gaps = || self.gaps_ms.iter().copied().map(Duration::from_millis).collect();
        (!self.gaps_ms.is_empty()).then(|| Spread::of(gaps()))
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, form, processes, candidates, round_ms, evictions, .. } = self;
        let rate = |rate: Option<f64>| rate.map_or("?".to_owned(), |rate| format!("{rate:.0}"));
        write!(
            f,
            "{store:<10} {form:<10} {processes:>5} processes, {candidates:>6} candidates: round {round_ms} ms, {evictions} \
             evictions, {} statements/s, {} rows/s, server {:.2} % of a core over {:.0} s, {} MB",
            rate(self.statements_per_second),
            rate(self.rows_per_second),
            self.server_cpu * 100.0,
            self.seconds,
            self.server_memory >> 20,
        )?;
        if let Some(Upkeep { cpu, memory, threads }) = self.fleet {
            write!(f, "; all processes {:.1} % of a core, {} MB, {threads} threads", cpu * 100.0, memory >> 20)?;
        }
        if let Some(spread) = self.gaps() {
            write!(f, "\n  nobody led for {spread}")?;
        }
        Ok(())
    }
}

struct Meter<'a> {
    place: &'a BenchStore,
    began: Instant,
    statements: Option<u64>,
    rows: Option<u64>,
    cpu: Duration,
}

/// As exact as it is measured, and no longer in a file.
fn rounded(value: f64) -> f64 {
    (value * 1e5).round() / 1e5
}

impl<'a> Meter<'a> {
    fn start(place: &'a BenchStore) -> Result<Self> {
        Ok(Self {
            place,
            statements: place.statements()?,
            rows: place.rows_read()?,
            cpu: place.cpu(),
            began: Instant::now(),
        })
    }

    fn stop(&self, form: Form, candidates: usize, processes: usize) -> Result<Cost> {
        let seconds = self.began.elapsed().as_secs_f64();
        let cpu = self.place.cpu().saturating_sub(self.cpu);
        let rate = |before: Option<u64>, after: Option<u64>| {
            before.zip(after).map(|(before, after)| rounded(after.saturating_sub(before) as f64 / seconds))
        };
        Ok(Cost {
            store: self.place.kind,
            form,
            candidates,
            processes,
            seconds: rounded(seconds),
            round_ms: 0,
            evictions: 0,
            statements_per_second: rate(self.statements, self.place.statements()?),
            rows_per_second: rate(self.rows, self.place.rows_read()?),
            server_cpu: rounded(cpu.as_secs_f64() / seconds),
            server_memory: self.place.memory(),
            fleet: None,
            gaps_ms: Vec::new(),
        })
    }
}

/// This many real processes that use the library, each with a connection of its own and `each` candidates.
///
/// # Errors
/// When they do not start or nobody leads.
pub(super) fn primacy(primacy: &Path, place: &BenchStore, each: usize, plan: &Plan) -> Result<Cost> {
    let processes = plan.candidates / each;
    let manner = Manner::Crew { round: u64::try_from(ROUND.as_millis())?, each };
    let mut runners = Runners::launch(primacy, place.site(), processes, manner)?;
    let leader = runners.await_start(0)?;
    runners.await_waiting(processes)?;
    std::thread::sleep(plan.settle);
    let election = Election::open(&runners.site.url, &runners.site.election)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let vars = || -> Result<Vars> { Ok(runtime.block_on(election.members())?.context("there are no members")?.vars) };
    let before = vars()?;
    let (meter, own) = (Meter::start(place)?, runners.cpu());
    std::thread::sleep(plan.watch);
    let own = runners.cpu().saturating_sub(own);
    let mut cost = meter.stop(Form::Primacy, plan.candidates, processes)?;
    let (memory, threads) = runners.memory_and_threads();
    cost.fleet = Some(Upkeep { cpu: rounded(own.as_secs_f64() / cost.seconds), memory, threads });
    let gaps = gaps(&mut runners, leader, Event::SilentLoss, processes, plan.losses, |nth| plan.pause(nth))?;
    cost.gaps_ms = gaps.gaps_nanos.into_iter().map(|nanos| nanos / 1_000_000).collect();
    let after = vars()?;
    // Who was evicted although it lived has come back.
    cost.evictions = after.comebacks - before.comebacks;
    cost.round_ms = u64::try_from(after.round.as_millis())?;
    Ok(cost)
}

/// This many processes of the published form, each with a connection of its own, all in this program.
///
/// # Errors
/// When not all of them join, or nobody leads.
pub(super) fn published(place: &BenchStore, plan: &Plan) -> Result<Cost> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        published::prepare(place.kind, &place.url()).await?;
        let mut crowd = Crowd { place, members: Vec::new(), gone: Vec::new() };
        for number in 1..=plan.candidates {
            crowd.members.push(crowd.newcomer()?);
            if number.is_multiple_of(TOGETHER) || number == plan.candidates {
                crowd.await_joined().await?;
            }
        }
        tokio::time::sleep(plan.settle).await;
        let before = crowd.evictions();
        let meter = Meter::start(place)?;
        tokio::time::sleep(plan.watch).await;
        let mut cost = meter.stop(Form::Published, plan.candidates, plan.candidates)?;
        for nth in 0..plan.losses {
            tokio::time::sleep(plan.pause(nth)).await;
            cost.gaps_ms.push(u64::try_from(crowd.lose_leader().await?.as_millis())?);
        }
        cost.evictions = crowd.evictions() - before;
        cost.round_ms = crowd.tallies().map(|tally| tally.round_ms.load(Relaxed)).max().unwrap_or(0);
        crowd.members.iter().for_each(|(process, _)| process.kill());
        Ok(cost)
    })
}

/// This many of the published form start together: each takes the exclusive lock, and one that fails begins again at once.
const TOGETHER: usize = 25;

/// Processes of the published form, and what they have told.
struct Crowd<'a> {
    place: &'a BenchStore,
    members: Vec<(Process, Arc<Tally>)>,
    gone: Vec<Arc<Tally>>,
}

impl Crowd<'_> {
    fn newcomer(&self) -> Result<(Process, Arc<Tally>)> {
        let tally = Arc::new(Tally::default());
        Ok((published::start(self.place.kind, self.place.url(), Arc::clone(&tally))?, tally))
    }

    async fn await_joined(&self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(120);
        while self.members.iter().any(|(_, tally)| tally.joined.load(Relaxed) == 0) {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if Instant::now() > end {
                bail!("not all have joined");
            }
        }
        Ok(())
    }

    fn tallies(&self) -> impl Iterator<Item = &Arc<Tally>> {
        self.members.iter().map(|(_, tally)| tally).chain(&self.gone)
    }

    fn evictions(&self) -> u64 {
        self.tallies().map(|tally| tally.evicted.load(Relaxed)).sum()
    }

    /// Who leads: the last that has said so, if it is not gone.
    fn leader(&self) -> Option<usize> {
        self.members.iter().position(|(_, tally)| tally.leader.load(Relaxed) != 0)
    }

    /// How long nobody leads when the leader is gone. Then another process takes its place.
    async fn lose_leader(&mut self) -> Result<Duration> {
        const LONGEST: Duration = Duration::from_secs(120);
        let leader = self.leader().context("nobody leads")?;
        let (process, tally) = self.members.swap_remove(leader);
        self.gone.push(tally);
        process.kill();
        let lost = Instant::now();
        while self.leader().is_none() {
            if lost.elapsed() > LONGEST {
                bail!("nobody leads any more");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let gap = lost.elapsed();
        self.members.push(self.newcomer()?);
        Ok(gap)
    }
}
