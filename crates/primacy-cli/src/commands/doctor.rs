//! `primacy doctor`: what the store guarantees, how fast it is, what the clocks do, and which timing suits.

use std::time::Duration;

use primacy::TimingSettings;
use primacy::store::Severity;

use super::clocks::{self, Reading};
use crate::cli::DoctorArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::output::advice::Diagnosis;
use crate::reach::Reach;

pub(super) async fn run(args: &DoctorArgs, reach: &mut Reach, output: &mut Output) -> Result<u8, Failure> {
    let timing = args.timing()?;
    output.draw("measuring …");
    let from = Reading::take();
    // Time for the clocks to show their rate, whatever the store takes.
    let (probed, ()) = tokio::join!(reach.probe(), tokio::time::sleep(clocks::SPAN_LEAST));
    let clocks = clocks::findings(from, Reading::take(), timing.drift_ppm());
    let grace = |lease: Duration| args.grace.unwrap_or(TimingSettings::for_program(lease).grace);
    let probe = probed?.value;
    let opening = reach.opening().await;
    let diagnosis = Diagnosis::new(reach.location(), (probe, opening), clocks, timing, grace);
    output.text(&diagnosis.text(output.palette))?;
    output.json(&diagnosis.json())?;
    Ok(match diagnosis.verdict() {
        Severity::Fine => 0,
        Severity::Warning => 1,
        Severity::Danger => 3,
    })
}
