//! What is measured before it is judged whether a timing suits a store and this machine.

mod clocks;

use std::time::Duration;

use primacy::{Timing, TimingSettings};

use crate::failure::Failure;
use crate::output::advice::Diagnosis;
use crate::reach::Reach;
use clocks::Reading;

/// Measures, and judges this timing. `grace` is what the work needs to stop, if that is known. Databases are written to as candidates
/// do, and no election is changed.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn diagnose(reach: &mut Reach, timing: Timing, grace: Option<Duration>) -> Result<Diagnosis, Failure> {
    let from = Reading::take();
    // Time for the clocks to show their rate, whatever the store takes.
    let (probed, ()) = tokio::join!(reach.probe(), tokio::time::sleep(clocks::SPAN_LEAST));
    let clocks = clocks::findings(from, Reading::take(), timing.drift_ppm());
    let grace = |lease: Duration| grace.unwrap_or(TimingSettings::for_program(lease).grace);
    let probe = probed?.value;
    let opening = reach.opening().await;
    Ok(Diagnosis::new(reach.location(), (probe, opening), clocks, timing, grace))
}
