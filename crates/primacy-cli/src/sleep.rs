//! Waiting for a point on the boot clock.

use std::time::Duration;

use primacy::{Instant, clock};

/// Between two looks at the boot clock: the runtime's timers stand still while the machine sleeps.
const LOOK: Duration = Duration::from_secs(1);

/// Returns when the point has passed, or earlier: the caller looks at the clock again. Never without a point.
pub(crate) async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep(at.since(clock::now()).min(LOOK)).await,
        None => std::future::pending().await,
    }
}
