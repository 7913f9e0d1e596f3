//! Work within its deadline: polled as long as its leadership allows, and dropped after that.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::leadership::{Leadership, Phase};
use crate::shared;
use crate::{Instant, clock};

/// Work was dropped before it had returned.
#[derive(Debug)]
pub(super) struct Dropped;

/// Keeps the deadline of one candidate's work, on a thread that nothing blocks.
///
/// The candidate's own thread says each end of a leadership first ([`Phase`]). It runs the code of a store, though, which
/// may hold it up. The last renewal that it told of has an end, which stays true without it.
#[derive(Debug)]
pub(super) struct Deadline {
    timers: Handle,
}

impl Deadline {
    /// The timers of a runtime stop in suspend, and the boot clock does not: the deadline is compared with it this often.
    const LOOK: Duration = Duration::from_secs(1);

    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { timers: shared::DEADLINES.handle()? })
    }

    /// Polls the work until it has returned or its time is over. It is gone when this returns.
    ///
    /// # Errors
    /// [`Dropped`] if its time was over first.
    pub(super) async fn bound(&self, leadership: &Leadership, work: impl Future<Output = ()>) -> Result<(), Dropped> {
        let mut phases = leadership.phases();
        let told = phases.wait_for(|phase| matches!(phase, Phase::Overdue { .. } | Phase::Ended { .. }));
        let (mut work, mut told, mut passed) = (pin!(work), pin!(told), pin!(self.passed(leadership)));
        poll_fn(|cx| {
            // Before the work: what is late gets no further step. The clock is asked each time, and not only by the timer.
            let is_over = told.as_mut().poll(cx).is_ready() || passed.as_mut().poll(cx).is_ready();
            if is_over || clock::now() >= end(leadership) {
                return Poll::Ready(Err(Dropped));
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Returns when the deadline has passed that was told last.
    async fn passed(&self, leadership: &Leadership) {
        loop {
            let left = end(leadership).since(clock::now());
            if left.is_zero() {
                return;
            }
            let timer = {
                let _entered = self.timers.enter();
                tokio::time::sleep(left.min(Self::LOOK))
            };
            timer.await;
        }
    }
}

/// When the work must be gone: early enough for others to see it gone before the lease ends.
fn end(leadership: &Leadership) -> Instant {
    match &*leadership.phases().borrow() {
        Phase::Leading { until, timing, .. } => timing.kill_at(*until),
        Phase::Draining { by, .. } => *by,
        Phase::Overdue { .. } | Phase::Ended { .. } => Instant::ZERO,
    }
}
