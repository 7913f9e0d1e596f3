//! What a fleet costs while nothing happens, and whether its leader renews in time meanwhile.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use primacy::ElectionName;
use primacy::store::{Version, from_url};

use crate::fleet::Fleet;

/// How often the row is looked at. What is measured is exact to this.
const GLANCE: Duration = Duration::from_millis(100);

/// The share of one core that all runners and wardens use together, and the longest time between two renewals.
///
/// A leader renews at equal intervals: where twice the mean passes between two renewals, one was missed.
pub(crate) fn measure(primacy: &Path, candidates: usize, lease: u64, seconds: u64) -> Result<String> {
    let fleet = Fleet::launch(primacy, candidates, lease)?;
    let leader = fleet.await_start(0)?;
    fleet.await_waiting(candidates - 1)?;
    // What starting up has left to do is not idling.
    thread::sleep(Duration::from_secs(lease));
    let (begin, before) = (Instant::now(), fleet.cpu());
    let renewals = watch_renewals(&fleet.store(), leader.token, Duration::from_secs(seconds))?;
    let (elapsed, used) = (begin.elapsed(), fleet.cpu().saturating_sub(before));
    let share = used.as_secs_f64() / elapsed.as_secs_f64() * 100.0;
    let Renewals { seen, longest } = renewals;
    let mean = elapsed.checked_div(u32::try_from(seen)?).context("no renewal was seen")?;
    if longest >= mean * 2 {
        bail!("the leader of {candidates} candidates missed a renewal: {longest:.1?} between two, {mean:.1?} in the mean");
    }
    Ok(format!(
        "{candidates:>4} idle candidates use {share:.2} % of one core together, over {elapsed:.0?}; \
         {seen} renewals by one leader, {mean:.2?} apart in the mean and {longest:.2?} at most"
    ))
}

/// The renewals that were seen.
struct Renewals {
    seen: u64,
    longest: Duration,
}

fn watch_renewals(url: &str, token: u64, span: Duration) -> Result<Renewals> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (store, election) = (from_url(url)?, ElectionName::new("default")?);
    let mut desk = runtime.block_on(store.desk())?;
    let mut version = || -> Result<Version> {
        let snapshot = runtime.block_on(desk.snapshot(&election))?.context("the election is gone")?;
        let version = snapshot.record.version;
        if version.token.get() != token {
            bail!("the leadership changed while the fleet was idle: {snapshot:?}");
        }
        Ok(version)
    };
    let (begin, mut last) = (Instant::now(), version()?);
    let (mut since, mut renewals) = (begin, Renewals { seen: 0, longest: Duration::ZERO });
    while begin.elapsed() < span {
        thread::sleep(GLANCE);
        let now = version()?;
        renewals.longest = renewals.longest.max(since.elapsed());
        if now != last {
            renewals.seen += now.beat.saturating_sub(last.beat);
            (last, since) = (now, Instant::now());
        }
    }
    Ok(renewals)
}
