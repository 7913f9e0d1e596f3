//! `primacy status`: who leads, how fresh the answer is, and who waits.

use primacy::store::Snapshot;

use crate::cli::StatusArgs;
use crate::failure::{Failure, code};
use crate::output::lead::Lead;
use crate::output::{Output, report};
use crate::reach::{ElectionView, Reach};

pub(super) async fn run(args: &StatusArgs, reach: &mut Reach, output: &mut Output) -> Result<u8, Failure> {
    let seen = ElectionView::ask(reach, args.explain).await?;
    let snapshot = seen.snapshot();
    let (election, store) = (reach.election(), reach.location());
    let shown = (snapshot.as_ref(), seen.support());
    output.text(&report::status(election, shown, &store, seen.age(), output.palette))?;
    let status = seen.status(reach);
    if let Some(sentences) = &status.explanation {
        output.text(&format!("\n{}\n", sentences.join("\n")))?;
    }
    output.json(&status)?;
    Ok(verdict(snapshot.as_ref()))
}

/// The exit code that tells whether somebody leads.
pub(super) fn verdict(snapshot: Option<&Snapshot>) -> u8 {
    match Lead::of(snapshot) {
        Lead::Led(..) => 0,
        Lead::Vacant | Lead::Unknown(_) | Lead::Lost | Lead::Forgotten | Lead::Never => code::REFUSED,
    }
}
