//! The lease in one row as its text prints it, on a real MariaDB, and primacy's with the same time-out on the same server.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use primacy_bench::{BenchStore, Event, Kind, Manner, Runners, Spread, gaps};
use tokio::task::JoinHandle;

/// What is measured. The defaults are the text's, but for the time-out of 20 seconds.
#[derive(Args)]
pub(crate) struct Options {
    /// Numbers of candidates.
    #[arg(long, value_delimiter = ',', default_value = "2,20,200", value_parser = at_least_two)]
    candidates: Vec<usize>,
    /// Seconds without a poll, after which another may lead; primacy's lease.
    #[arg(long, default_value_t = 10)]
    timeout: u64,
    /// How often a service polls, in milliseconds.
    #[arg(long, default_value_t = 1_000)]
    poll: u64,
    /// How often the leader is lost without a word.
    #[arg(long, default_value_t = 30)]
    losses: u32,
    /// How often the row is deleted, which is the text's way to a new election.
    #[arg(long, default_value_t = 30)]
    deletions: u32,
    /// For how many seconds the cost is watched.
    #[arg(long, default_value_t = 16)]
    watch_seconds: u64,
    /// Leave primacy out.
    #[arg(long)]
    without_primacy: bool,
}

fn at_least_two(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count >= 2).ok_or_else(|| "somebody must follow: two at least".to_owned())
}

/// Measures it on this `machine`, and primacy's lease with the binary `primacy` beside it.
///
/// # Errors
/// When the server or a process does not do what is asked.
pub(crate) fn run(options: &Options, machine: &str, primacy: &Path) -> Result<()> {
    println!("{machine}");
    let place = BenchStore::start(Kind::Mariadb, primacy)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    for &candidates in &options.candidates {
        runtime.block_on(published(&place, options, candidates))?;
        if !options.without_primacy {
            beside(primacy, &place, options, candidates)?;
        }
    }
    Ok(())
}

async fn published(place: &BenchStore, options: &Options, candidates: usize) -> Result<()> {
    let mut crowd = Crowd::start(place, options, candidates).await?;
    let seconds = Duration::from_secs(options.watch_seconds);
    let (cpu, statements) = (place.cpu(), place.statements()?);
    tokio::time::sleep(seconds).await;
    let cpu = place.cpu().saturating_sub(cpu).as_secs_f64() / seconds.as_secs_f64() * 100.0;
    let statements = place.statements()?.zip(statements).map_or(0, |(after, before)| after.saturating_sub(before));
    let what = |event| format!("published  {event:<13} {candidates:>5} candidates, time-out {} s", options.timeout);
    println!("{}  server {cpu:.2} % of a core, {} statements/s", what("at rest"), statements / options.watch_seconds);
    let mut losses = Vec::new();
    for nth in 0..options.losses {
        // Spread over the time between two polls, since it counts how long ago the last one was.
        tokio::time::sleep(Duration::from_millis(options.poll) * nth / options.losses).await;
        losses.push(crowd.lose_leader().await?);
    }
    let (mut deletions, mut doubles) = (Vec::new(), Vec::new());
    for nth in 0..options.deletions {
        // At another point between two polls each time, or the same service would always be the next to poll.
        tokio::time::sleep(Duration::from_millis(options.poll) * (nth * 61 % 100) / 100).await;
        let (gap, double) = crowd.delete_row().await?;
        deletions.push(gap);
        doubles.push(double);
    }
    for (event, spans) in [("silent loss", losses), ("row deleted", deletions), ("two leaders", doubles)] {
        if !spans.is_empty() {
            println!("{}  {}", what(event), Spread::of(spans));
        }
    }
    Ok(())
}

/// Runners of primacy's command whose leader is lost without a word.
fn beside(primacy: &Path, place: &BenchStore, options: &Options, candidates: usize) -> Result<()> {
    let manner = Manner::Lease(options.timeout * 1_000);
    let mut runners = Runners::launch(primacy, place.site(), candidates, manner)?;
    let leader = runners.await_start(0)?;
    let gaps = gaps(&mut runners, leader, Event::SilentLoss, candidates, options.losses, |nth| {
        Duration::from_secs(options.timeout) * nth / options.losses.max(1) / 5
    })?;
    let grants = gaps.grants_nanos.into_iter().map(Duration::from_nanos).collect();
    println!("primacy    silent loss   {candidates:>5} candidates, {manner}  {}", Spread::of(grants));
    Ok(())
}

const TABLE: &str = "CREATE TABLE service_election (anchor tinyint(3) unsigned NOT NULL, service_id varchar(128) NOT NULL, \
     last_seen_active timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (anchor))";

/// One service, which is gone with this.
struct Service {
    task: JoinHandle<Result<()>>,
    leads: Arc<AtomicBool>,
    polls: Arc<AtomicU64>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Service {
    fn start(url: String, number: usize, options: &Options) -> Self {
        let (leads, polls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (flag, count) = (Arc::clone(&leads), Arc::clone(&polls));
        let (timeout, poll) = (options.timeout, Duration::from_millis(options.poll));
        let task = tokio::spawn(async move {
            let mut conn = Conn::from_url(&url).await?;
            let attempt = format!(
                "insert ignore into service_election (anchor, service_id, last_seen_active) values (1, 's{number}', now()) \
                 on duplicate key update service_id = if(last_seen_active < now() - interval {timeout} second, \
                 values(service_id), service_id), last_seen_active = if(service_id = values(service_id), \
                 values(last_seen_active), last_seen_active)"
            );
            let ask =
                format!("select count(*) as is_leader from service_election where anchor=1 and service_id='s{number}'");
            // Those that are started together poll at times of their own.
            tokio::time::sleep(poll * u32::try_from(number * 61 % 97)? / 97).await;
            loop {
                conn.query_drop(&attempt).await?;
                let is_leader: Option<u64> = conn.query_first(&ask).await?;
                flag.store(is_leader == Some(1), SeqCst);
                count.fetch_add(1, SeqCst);
                tokio::time::sleep(poll).await;
            }
        });
        Self { task, leads, polls }
    }
}

/// Services that run the published statements.
struct Crowd<'a> {
    place: &'a BenchStore,
    options: &'a Options,
    operator: Conn,
    services: VecDeque<Service>,
    started: usize,
}

impl<'a> Crowd<'a> {
    async fn start(place: &'a BenchStore, options: &'a Options, count: usize) -> Result<Self> {
        let mut operator = Conn::from_url(&place.url()).await?;
        operator.query_drop("DROP TABLE IF EXISTS service_election").await?;
        operator.query_drop(TABLE).await?;
        let mut crowd = Self { place, options, operator, services: VecDeque::new(), started: 0 };
        for _ in 0..count {
            crowd.add();
        }
        crowd.await_polls().await?;
        crowd.await_leader().await?;
        Ok(crowd)
    }

    fn add(&mut self) {
        self.started += 1;
        self.services.push_back(Service::start(self.place.url(), self.started, self.options));
    }

    /// Waits until everybody has polled.
    async fn await_polls(&self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(120);
        while self.services.iter().any(|service| service.polls.load(SeqCst) == 0) {
            if Instant::now() > end || self.services.iter().any(|service| service.task.is_finished()) {
                bail!("not all services poll");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    fn leaders(&self) -> impl Iterator<Item = usize> {
        self.services.iter().enumerate().filter(|(_, service)| service.leads.load(SeqCst)).map(|(at, _)| at)
    }

    /// Waits until somebody leads.
    async fn await_leader(&self) -> Result<usize> {
        let end = Instant::now() + Duration::from_secs(self.options.timeout + 120);
        loop {
            if let Some(leader) = self.leaders().next() {
                return Ok(leader);
            }
            if Instant::now() > end {
                bail!("nobody leads");
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// How long nobody leads when the leader is gone. Then another service takes its place.
    async fn lose_leader(&mut self) -> Result<Duration> {
        let leader = self.await_leader().await?;
        drop(self.services.remove(leader).context("it was there")?);
        let lost = Instant::now();
        self.await_leader().await?;
        let gap = lost.elapsed();
        self.add();
        self.await_polls().await?;
        Ok(gap)
    }

    /// How long it takes until somebody leads by the row after it was deleted; and for how long the last leader goes on beside
    /// that one, until its next poll.
    async fn delete_row(&mut self) -> Result<(Duration, Duration)> {
        let old = self.await_leader().await?;
        self.operator.query_drop("delete from service_election").await?;
        let deleted = Instant::now();
        let polls = self.services[old].polls.load(SeqCst);
        let (mut gap, mut double, mut last) = (None, Duration::ZERO, deleted);
        // Everybody has polled by then.
        while deleted.elapsed() < Duration::from_millis(self.options.poll) * 2 {
            let again = self.services[old].polls.load(SeqCst) > polls;
            let leaders: Vec<usize> = self.leaders().collect();
            if leaders.iter().any(|leader| *leader != old || again) {
                gap.get_or_insert_with(|| deleted.elapsed());
            }
            if leaders.len() > 1 {
                double += last.elapsed();
            }
            last = Instant::now();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok((gap.context("nobody leads after the row was deleted")?, double))
    }
}
