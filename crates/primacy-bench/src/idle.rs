//! What runners cost while nothing happens, and whether its leader renews in time meanwhile.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use primacy::ElectionName;
use primacy::store::{Admin, Version, from_url};
use tokio::runtime::Runtime;

use crate::place::{BenchStore, Site};
use crate::runners::{Manner, Runners};

/// How often the row is looked at. What is measured is exact to this.
const GLANCE: Duration = Duration::from_millis(100);

/// The share of one core that all runners and wardens use together, and the longest time between two renewals.
///
/// A leader renews at equal intervals: where twice the mean passes between two renewals, one was missed.
pub(crate) fn measure(
    primacy: &Path,
    place: &BenchStore,
    candidates: usize,
    manner: Manner,
    seconds: u64,
) -> Result<String> {
    let runners = Runners::launch(primacy, place.site(), candidates, manner)?;
    runners.await_start(0)?;
    runners.await_waiting(candidates)?;
    // What starting up has left to do is not idling. While hundreds start on a few cores, the lead may change.
    thread::sleep(manner.lease());
    let cost = || -> Result<_> { Ok((runners.cpu(), place.cpu(), place.statements()?)) };
    let (begin, before) = (Instant::now(), cost()?);
    let Renewals { seen, longest, glances } = watch(&runners.site, Duration::from_secs(seconds))?;
    let (elapsed, after) = (begin.elapsed(), cost()?);
    let mean = elapsed.checked_div(u32::try_from(seen)?).context("no renewal was seen")?;
    if longest >= mean * 2 {
        bail!(
            "the leader of {candidates} candidates missed a renewal: {longest:.1?} between two, {mean:.1?} in the mean"
        );
    }
    let share = |used: Duration| used.as_secs_f64() / elapsed.as_secs_f64() * 100.0;
    let site = runners.site.clone();
    drop(runners);
    let at_rest = server_at_rest(&site, place, Duration::from_secs(seconds))?;
    let statements = match after.2.zip(before.2) {
        Some((after, before)) => {
            let own = after.saturating_sub(before) as f64 - watching(&site, place, glances)?;
            let leases = elapsed.as_secs_f64() / manner.lease().as_secs_f64();
            format!("; {:.2} statements per candidate and lease", own / candidates as f64 / leases)
        }
        None => String::new(),
    };
    Ok(format!(
        "{:<10} {candidates:>4} idle candidates use {:.2} % of one core together, the server {:.2} %, and {:.2} % while none is there, \
         over {elapsed:.0?}; {seen} \
         renewals by one leader, {mean:.2?} apart in the mean and {longest:.2?} at most{statements}",
        place.kind,
        share(after.0.saturating_sub(before.0)),
        share(after.1.saturating_sub(before.1)),
        at_rest * 100.0,
    ))
}

/// The share of one core that the server uses while nobody but this process, which glances as often as before, asks it.
fn server_at_rest(site: &Site, place: &BenchStore, span: Duration) -> Result<f64> {
    let mut watcher = Watcher::open(site)?;
    let (begin, before) = (Instant::now(), place.cpu());
    while begin.elapsed() < span {
        thread::sleep(GLANCE);
        watcher.glance()?;
    }
    Ok(place.cpu().saturating_sub(before).as_secs_f64() / begin.elapsed().as_secs_f64())
}

/// The renewals that were seen.
struct Renewals {
    seen: u64,
    longest: Duration,
    /// Looks at the row.
    glances: u64,
}

/// Looks at the row of an election.
struct Watcher {
    admin: Box<dyn Admin>,
    election: ElectionName,
    runtime: Runtime,
}

impl Watcher {
    fn open(site: &Site) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (store, election) = (from_url(&site.url)?, ElectionName::new(&*site.election)?);
        Ok(Self { admin: runtime.block_on(store.admin())?, election, runtime })
    }

    fn glance(&mut self) -> Result<Version> {
        let seen = self.runtime.block_on(self.admin.snapshot(&self.election))?;
        Ok(seen.context("the election is gone")?.record.version)
    }
}

fn watch(site: &Site, span: Duration) -> Result<Renewals> {
    let mut watcher = Watcher::open(site)?;
    let (begin, mut last) = (Instant::now(), watcher.glance()?);
    let (mut since, mut renewals) = (begin, Renewals { seen: 0, longest: Duration::ZERO, glances: 1 });
    while begin.elapsed() < span {
        thread::sleep(GLANCE);
        let now = watcher.glance()?;
        if now.token != last.token {
            bail!("the leadership changed while the runners were idle: {last}, then {now}");
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

/// How many statements the watching takes by itself, with this many glances: counted when nobody else asks the server.
fn watching(site: &Site, place: &BenchStore, glances: u64) -> Result<f64> {
    /// A server may count what a connection did only when that has gone.
    const SETTLED: Duration = Duration::from_secs(1);
    const MANY: u64 = 100;
    let count = || place.statements()?.context("the server counts no statements");
    thread::sleep(SETTLED);
    let alone = |glances| -> Result<f64> {
        let before = count()?;
        let mut watcher = Watcher::open(site)?;
        for _ in 0..glances {
            watcher.glance()?;
        }
        drop(watcher);
        thread::sleep(SETTLED);
        Ok(count()?.saturating_sub(before) as f64)
    };
    // What opening and counting take is in both.
    let once = alone(1)?;
    let each = (alone(1 + MANY)? - once) / MANY as f64;
    Ok(once + each * glances.saturating_sub(1) as f64)
}
