//! A warden after one that has failed.

use primacy::{CandidateId, clock};
use tracing::warn;

use super::setbacks::{Next, Setbacks};
use super::signals::{self, Signals};
use super::warden_handle::{AttachedWarden, IdleWarden};
use super::{Job, NO_WARDEN, Refusal};
use crate::output::span::span;

/// Starts a warden after one that has failed, with a pause if there were failures before. Otherwise how the runner ends:
/// a signal asked for it meanwhile, or no warden stays alive.
pub(super) async fn next_warden(
    mut how: String,
    job: &Job,
    candidate: Option<CandidateId>,
    signals: &mut Signals,
    setbacks: &mut Setbacks,
) -> Result<AttachedWarden, Result<u8, Refusal>> {
    loop {
        let pause = match setbacks.note(clock::now()) {
            Next::After(pause) => pause,
            Next::GiveUp(times) => {
                let why = format!(
                    "the warden process failed {times} times in a row, and {how}: look for what ends it, such as a limit of \
                     memory or processes. This candidate takes no part any more"
                );
                return Err(Err(Refusal::new(NO_WARDEN, why)));
            }
        };
        let when = if pause.is_zero() { "now".to_owned() } else { format!("in {}", span(pause)) };
        warn!("the warden {how}; another is started {when}");
        let slept = tokio::time::sleep(pause);
        tokio::pin!(slept);
        loop {
            tokio::select! {
                biased;
                signal = signals.next() => if signals::ends(signal) {
                    return Err(Ok(signals::exit_code(signal)));
                },
                () = &mut slept => break,
            }
        }
        let started = match IdleWarden::start() {
            Ok(warden) => warden.watch_over(job, candidate).await,
            Err(error) => Err(error),
        };
        match started {
            Ok(warden) => return Ok(warden),
            Err(error) => how = format!("could not be started: {error}"),
        }
    }
}
