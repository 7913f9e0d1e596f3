//! What membership costs: primacy's registers protocol and the published one, on one server, one after the other.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use primacy::Election;
use primacy::registers::Vars;
use serde::Serialize;

use crate::fleet::{Fleet, Manner};
use crate::place::{Kind, Place};
use crate::published::{self, ROUND, Tally};
use crate::spread::Spread;

/// What a number of members cost in one way of doing it.
#[derive(Serialize)]
pub(crate) struct Cost {
    pub(crate) store: Kind,
    /// `primacy` or `published`.
    pub(crate) form: &'static str,
    pub(crate) processes: usize,
    candidates: usize,
    seconds: f64,
    /// The round time at the end.
    pub(crate) round_ms: u64,
    /// Live processes that were evicted.
    evictions: u64,
    statements_per_second: Option<f64>,
    rows_per_second: Option<f64>,
    /// Of one core.
    server_cpu: f64,
    /// In bytes, at the end.
    server_memory: u64,
    /// Where the processes are processes of their own.
    fleet: Option<Upkeep>,
    /// How long nobody led after each silent loss of the leader.
    pub(crate) gaps_nanos: Vec<u64>,
}

/// What all processes together use.
#[derive(Serialize)]
struct Upkeep {
    /// Of one core.
    cpu: f64,
    /// In bytes.
    memory: u64,
    threads: usize,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, form, processes, candidates, round_ms, evictions, .. } = self;
        let rate = |rate: Option<f64>| rate.map_or("?".to_owned(), |rate| format!("{rate:.0}"));
        write!(
            f,
            "{store:<10} {form:<10} {processes:>5} processes, {candidates:>6} candidates: round {round_ms} ms, {evictions} \
             evictions, {} statements/s, {} rows/s, server {:.1} % of a core over {:.0} s, {} MB",
            rate(self.statements_per_second),
            rate(self.rows_per_second),
            self.server_cpu * 100.0,
            self.seconds,
            self.server_memory >> 20,
        )?;
        if let Some(Upkeep { cpu, memory, threads }) = self.fleet {
            write!(f, "; all processes {:.1} % of a core, {} MB, {threads} threads", cpu * 100.0, memory >> 20)?;
        }
        if !self.gaps_nanos.is_empty() {
            let spread = Spread::of(self.gaps_nanos.iter().copied().map(Duration::from_nanos).collect());
            write!(f, "\n{store:<10} {form:<10} {processes:>5} processes: nobody led for {spread}")?;
        }
        Ok(())
    }
}

/// How long a fleet of members is left alone before it is measured.
const SETTLING: Duration = Duration::from_secs(20);

struct Meter<'a> {
    place: &'a Place,
    began: Instant,
    statements: Option<u64>,
    rows: Option<u64>,
    cpu: Duration,
}

impl<'a> Meter<'a> {
    fn start(place: &'a Place) -> Result<Self> {
        Ok(Self {
            place,
            statements: place.statements()?,
            rows: place.rows_read()?,
            cpu: place.cpu(),
            began: Instant::now(),
        })
    }

    fn stop(&self, form: &'static str, processes: usize, candidates: usize) -> Result<Cost> {
        let seconds = self.began.elapsed().as_secs_f64();
        let cpu = self.place.cpu().saturating_sub(self.cpu);
        let rate = |before: Option<u64>, after: Option<u64>| {
            before.zip(after).map(|(before, after)| after.saturating_sub(before) as f64 / seconds)
        };
        Ok(Cost {
            store: self.place.kind,
            form,
            processes,
            candidates,
            seconds,
            round_ms: 0,
            evictions: 0,
            statements_per_second: rate(self.statements, self.place.statements()?),
            rows_per_second: rate(self.rows, self.place.rows_read()?),
            server_cpu: cpu.as_secs_f64() / seconds,
            server_memory: self.place.memory(),
            fleet: None,
            gaps_nanos: Vec::new(),
        })
    }
}

/// So many real processes, each with a connection of its own; and as many candidates in each as the manner says.
pub(crate) fn primacy(
    primacy: &Path,
    place: &Place,
    processes: usize,
    manner: Manner,
    watch: Duration,
) -> Result<Cost> {
    let fleet = Fleet::launch(primacy, place.site(), processes, manner)?;
    fleet.await_start(0)?;
    fleet.await_waiting(processes)?;
    std::thread::sleep(SETTLING);
    let election = Election::open(&fleet.site.url, &fleet.site.election)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let vars = || -> Result<Vars> { Ok(runtime.block_on(election.members())?.context("there are no members")?.vars) };
    let before = vars()?;
    let (meter, own) = (Meter::start(place)?, fleet.cpu());
    std::thread::sleep(watch);
    let own = fleet.cpu().saturating_sub(own);
    let mut cost = meter.stop("primacy", processes, processes * manner.each())?;
    let (memory, threads) = fleet.memory_and_threads();
    cost.fleet = Some(Upkeep { cpu: own.as_secs_f64() / cost.seconds, memory, threads });
    let after = vars()?;
    // Who was evicted although it lived has come back.
    cost.evictions = after.comebacks - before.comebacks;
    cost.round_ms = u64::try_from(after.round.as_millis())?;
    Ok(cost)
}

/// So many processes of the published form, each with a connection of its own, all in this program; and how long nobody led
/// after each of so many deaths of the leader.
pub(crate) fn published(place: &Place, processes: usize, watch: Duration, deaths: usize) -> Result<Cost> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (kind, url) = (place.kind, place.url());
    runtime.block_on(async {
        published::prepare(kind, &url).await?;
        let mut tallies: Vec<Arc<Tally>> = Vec::new();
        let mut fleet = Vec::new();
        for _ in 0..processes {
            let tally = Arc::new(Tally::default());
            fleet.push(published::start(kind, url.clone(), Arc::clone(&tally))?);
            tallies.push(tally);
        }
        let all =
            |tallies: &[Arc<Tally>], value: fn(&Tally) -> u64| tallies.iter().map(|tally| value(tally)).sum::<u64>();
        let end = Instant::now() + Duration::from_secs(300);
        while tallies.iter().any(|tally| tally.joined.load(Relaxed) == 0) {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if Instant::now() > end {
                bail!("not all have joined");
            }
        }
        tokio::time::sleep(SETTLING).await;
        let before = all(&tallies, |tally| tally.evicted.load(Relaxed));
        let meter = Meter::start(place)?;
        tokio::time::sleep(watch).await;
        let mut cost = meter.stop("published", processes, processes)?;
        cost.evictions = all(&tallies, |tally| tally.evicted.load(Relaxed)) - before;
        cost.round_ms = tallies.iter().map(|tally| tally.round_ms.load(Relaxed)).max().unwrap_or(0);
        for _ in 0..deaths {
            let leader = leader(&tallies).context("somebody leads")?;
            fleet[leader].kill();
            tallies[leader].leader.store(0, Relaxed);
            let died = Instant::now();
            while self::leader(&tallies).is_none() {
                if died.elapsed() > Duration::from_secs(120) {
                    bail!("nobody leads any more");
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            cost.gaps_nanos.push(u64::try_from(died.elapsed().as_nanos())?);
            let tally = Arc::new(Tally::default());
            fleet[leader] = published::start(kind, url.clone(), Arc::clone(&tally))?;
            tallies[leader] = tally;
            tokio::time::sleep(ROUND * 3).await;
        }
        fleet.iter().for_each(published::Process::kill);
        Ok(cost)
    })
}

/// Who leads: whoever has said so, and is not known to have ended.
fn leader(tallies: &[Arc<Tally>]) -> Option<usize> {
    tallies.iter().position(|tally| tally.leader.load(Relaxed) != 0)
}
