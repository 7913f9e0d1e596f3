//! What one question and one renewal cost.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use primacy::store::{Holder, Reply, Request};
use primacy::{CandidateId, Election, ElectionName, Label, Token};

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

/// Renews through the store, one durable step after another.
pub(crate) fn renewal() -> Result<String> {
    let folder = tempfile::tempdir()?;
    let store = primacy::store::from_url(&format!("sqlite:{}", folder.path().join("bench.db").display()))?;
    let election = ElectionName::new("bench")?;
    let id = CandidateId::from_bits(1);
    let holder = Holder { id, label: Label::new("bench")?, data: String::new() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let times = runtime.block_on(async {
        let mut session = store.session(&election, &holder).await?;
        let lease = Duration::from_secs(10);
        let acquire = Request::Acquire { expect: None, floor: Token::NONE, holder: holder.clone(), lease };
        let Reply::Applied(mut record) = session.step(acquire).await? else { bail!("the file is not new") };
        let mut times = Vec::new();
        for _ in 0..5_000 {
            let begin = Instant::now();
            let renew = Request::Renew { id, version: record.version, fulfilled: None };
            let Reply::Applied(renewed) = session.step(renew).await? else { bail!("the lease was lost") };
            times.push(begin.elapsed());
            record = renewed;
        }
        Ok(times)
    })?;
    Ok(format!("one durable renewal   {}", Spread::of(times)))
}
