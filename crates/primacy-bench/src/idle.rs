//! What a fleet costs while nothing happens, and whether its leader renews in time meanwhile.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use primacy::ElectionName;
use primacy::store::{Version, from_url};

use crate::fleet::{Fleet, Manner};
use crate::place::{Place, Site};

/// How often the row is looked at. What is measured is exact to this.
const GLANCE: Duration = Duration::from_millis(100);

/// The share of one core that all runners and wardens use together, and the longest time between two renewals.
///
/// A leader renews at equal intervals: where twice the mean passes between two renewals, one was missed.
pub(crate) fn measure(
    primacy: &Path,
    place: &Place,
    candidates: usize,
    manner: Manner,
    seconds: u64,
) -> Result<String> {
    let fleet = Fleet::launch(primacy, place.site(), candidates, manner)?;
    fleet.await_start(0)?;
    fleet.await_waiting(candidates)?;
    // What starting up has left to do is not idling. While hundreds start on a few cores, the lead may change.
    thread::sleep(manner.lease());
    let cost = || -> Result<_> { Ok((fleet.cpu(), place.cpu(), place.statements()?)) };
    let (begin, before) = (Instant::now(), cost()?);
    let Renewals { seen, longest, glances } = watch(&fleet.site, Duration::from_secs(seconds))?;
    let (elapsed, after) = (begin.elapsed(), cost()?);
    let mean = elapsed.checked_div(u32::try_from(seen)?).context("no renewal was seen")?;
    if longest >= mean * 2 {
        bail!(
            "the leader of {candidates} candidates missed a renewal: {longest:.1?} between two, {mean:.1?} in the mean"
        );
    }
    let share = |used: Duration| used.as_secs_f64() / elapsed.as_secs_f64() * 100.0;
    let statements = after.2.zip(before.2).map_or(String::new(), |(after, before)| {
        let own = after.saturating_sub(before).saturating_sub(glances) as f64;
        let leases = elapsed.as_secs_f64() / manner.lease().as_secs_f64();
        format!("; {:.2} statements per candidate and lease", own / candidates as f64 / leases)
    });
    Ok(format!(
        "{:<10} {candidates:>4} idle candidates use {:.2} % of one core together, the server {:.2} %, over {elapsed:.0?}; {seen} \
         renewals by one leader, {mean:.2?} apart in the mean and {longest:.2?} at most{statements}",
        place.kind,
        share(after.0.saturating_sub(before.0)),
        share(after.1.saturating_sub(before.1)),
    ))
}

/// The renewals that were seen.
struct Renewals {
    seen: u64,
    longest: Duration,
    /// Statements of the watching itself.
    glances: u64,
}

fn watch(site: &Site, span: Duration) -> Result<Renewals> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (store, election) = (from_url(&site.url)?, ElectionName::new(&*site.election)?);
    let mut desk = runtime.block_on(store.desk())?;
    let mut version = || -> Result<Version> {
        Ok(runtime.block_on(desk.snapshot(&election))?.context("the election is gone")?.record.version)
    };
    let (begin, mut last) = (Instant::now(), version()?);
    let (mut since, mut renewals) = (begin, Renewals { seen: 0, longest: Duration::ZERO, glances: 1 });
    while begin.elapsed() < span {
        thread::sleep(GLANCE);
        let now = version()?;
        if now.token != last.token {
            bail!("the leadership changed while the fleet was idle: {last}, then {now}");
        }
        renewals.glances += 1;
        renewals.longest = renewals.longest.max(since.elapsed());
        if now != last {
            renewals.seen += now.beat.saturating_sub(last.beat);
            (last, since) = (now, Instant::now());
        }
    }
    Ok(renewals)
}
