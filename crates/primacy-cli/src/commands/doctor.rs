//! `primacy doctor`: what the store guarantees, how fast it is, what the clocks do, and which timing suits.

use primacy::store::Severity;

use crate::cli::DoctorArgs;
use crate::diagnosis::diagnose;
use crate::failure::Failure;
use crate::output::Output;
use crate::reach::Reach;

pub(super) async fn run(args: &DoctorArgs, reach: &mut Reach, output: &mut Output) -> Result<u8, Failure> {
    let timing = args.timing()?;
    output.draw("measuring …");
    let diagnosis = diagnose(reach, timing, args.grace).await?;
    output.text(&diagnosis.text(output.palette))?;
    output.json(&diagnosis.json())?;
    Ok(match diagnosis.verdict() {
        Severity::Fine => 0,
        Severity::Warning => 1,
        Severity::Danger => 3,
    })
}
