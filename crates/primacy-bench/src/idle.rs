//! What a fleet costs while nothing happens.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::fleet::Fleet;

/// The share of one core that all runners and wardens use together, and whether the leader kept its lead.
pub(crate) fn measure(primacy: &Path, candidates: usize, lease: u64, seconds: u64) -> Result<String> {
    let fleet = Fleet::launch(primacy, candidates, lease)?;
    let leader = fleet.await_start(0)?;
    fleet.await_waiting(candidates - 1)?;
    // What starting up has left to do is not idling.
    thread::sleep(Duration::from_secs(lease));
    let (begin, before) = (Instant::now(), fleet.cpu());
    thread::sleep(Duration::from_secs(seconds));
    let (elapsed, used) = (begin.elapsed(), fleet.cpu().saturating_sub(before));
    let output = fleet.primacy().args(["status", "--json"]).output()?;
    let status: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    if status["token"].as_u64() != Some(leader.token) {
        bail!("the leadership changed while the fleet was idle: {status}");
    }
    let share = used.as_secs_f64() / elapsed.as_secs_f64() * 100.0;
    Ok(format!("{candidates:>4} idle candidates use {share:.2} % of one core together, over {elapsed:.0?}"))
}
