//! What one question and one renewal cost, and how many renewals a store carries.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use primacy::store::{Holder, Record, Reply, Request, Session, Store};
use primacy::{CandidateId, Election, ElectionName, Label, Token};

use crate::place::BenchStore;
use crate::spread::Spread;

/// Asks a real leadership whether it is current: the mean of a batch, over many batches.
pub(crate) fn is_current() -> Result<String> {
    let folder = tempfile::tempdir()?;
    let election = Election::open(&format!("sqlite:{}", folder.path().join("bench.db").display()), "bench")?;
    let mut candidate = election.campaign("bench")?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let leadership = runtime.block_on(candidate.elected())?;
    const BATCH: u32 = 100_000;
    let mut batches = Vec::new();
    for _ in 0..200 {
        let begin = Instant::now();
        for _ in 0..BATCH {
            if !black_box(&leadership).is_current() {
                bail!("the leadership was lost while it was measured");
            }
        }
        batches.push(begin.elapsed() / BATCH);
    }
    Ok(format!("is_current()          {}", Spread::of(batches)))
}

/// A lease, held through a connection of its own.
struct Lease {
    session: Box<dyn Session>,
    record: Record,
    id: CandidateId,
}

impl Lease {
    async fn take(store: Arc<dyn Store>, election: String) -> Result<Self> {
        let id = CandidateId::from_bits(1);
        let holder = Holder { id, label: Label::new("bench")?, data: String::new() };
        let mut session = store.session(&ElectionName::new(election)?, &holder).await?;
        let lease = Duration::from_secs(10);
        let acquire = Request::Acquire { expect: None, floor: Token::NONE.into(), holder, lease };
        let Reply::Applied(record) = session.step(acquire).await? else { bail!("the election is not new") };
        Ok(Self { session, record, id })
    }

    async fn renew(&mut self) -> Result<Duration> {
        let renew = Request::Renew {
            id: self.id,
            version: self.record.version,
            lease: self.record.lease,
            completed_order: None,
        };
        let begin = Instant::now();
        let Reply::Applied(renewed) = self.session.step(renew).await? else { bail!("the lease was lost") };
        self.record = renewed;
        Ok(begin.elapsed())
    }
}

/// Renews through the store, one durable step after another.
pub(crate) fn renewal(place: &BenchStore) -> Result<String> {
    const RENEWALS: usize = 5_000;
    let store = primacy::store::from_url(&place.url())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (times, statements) = runtime.block_on(async {
        let mut lease = Lease::take(store, place.site().election).await?;
        let before = place.statements()?;
        let mut times = Vec::with_capacity(RENEWALS);
        for _ in 0..RENEWALS {
            times.push(lease.renew().await?);
        }
        anyhow::Ok((times, place.statements()?.zip(before).map(|(after, before)| after.saturating_sub(before))))
    })?;
    let each = statements.map_or(String::new(), |count| {
        format!("; {:.3} statements each, as the server counts", count as f64 / RENEWALS as f64)
    });
    Ok(format!("{:<10} one durable renewal   {}{each}", place.kind, Spread::of(times)))
}

/// How many renewals a second the store carries when this many leaders renew as fast as they can, each of its own election.
pub(crate) fn capacity(place: &BenchStore, leaders: usize) -> Result<String> {
    const SPAN: Duration = Duration::from_secs(5);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (times, elapsed) = runtime.block_on(async {
        let store = primacy::store::from_url(&place.url())?;
        let mut leases = Vec::new();
        for _ in 0..leaders {
            leases.push(Lease::take(Arc::clone(&store), place.site().election).await?);
        }
        let begin = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for mut lease in leases {
            tasks.spawn(async move {
                let mut times = Vec::new();
                while begin.elapsed() < SPAN {
                    times.push(lease.renew().await?);
                }
                anyhow::Ok(times)
            });
        }
        let mut times = Vec::new();
        while let Some(own) = tasks.join_next().await {
            times.extend(own??);
        }
        anyhow::Ok((times, begin.elapsed()))
    })?;
    let rate = times.len() as f64 / elapsed.as_secs_f64();
    let spread = Spread::of(times);
    Ok(format!("{:<10} {leaders:>4} leaders renew {rate:>7.0} times a second together; one takes {spread}", place.kind))
}
