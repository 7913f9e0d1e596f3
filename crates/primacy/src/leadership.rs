//! The guard of a leadership: proof, token, deadline, and the way to give it up.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::command::Command;
use crate::{ElectionName, Instant, Timing, Token, clock};
use primacy_core::lease::{EndReason, Version};

/// The leadership of one election, held by this process until its lease ends.
///
/// It is a guard with a deadline, not a flag: ask [`is_current`](Self::is_current) right before each thing that only a
/// leader may do, pass [`token`](Self::token) along with every write, and stop when [`lost`](Self::lost) returns.
/// Functions that only a leader may run take `&Leadership`.
///
/// **Dropping it says that the work has stopped**, and gives the leadership back at once, by a note to the candidate's
/// thread; so drop it last. A work that was told to stop and still holds the guard when the lease ends is not released
/// for: the lease runs out instead.
#[must_use = "dropping a leadership gives it back"]
pub struct Leadership {
    election: ElectionName,
    token: Token,
    belief: Arc<Belief>,
    phase: watch::Receiver<Phase>,
    commands: mpsc::UnboundedSender<Command>,
    /// What dropping it says.
    end: WorkEnd,
}

/// How the work of a leadership has ended when its guard is dropped.
#[derive(Clone, Copy, Debug)]
enum WorkEnd {
    /// It has stopped.
    Stopped,
    /// All that worked is dead.
    Died,
    /// It was dropped unfinished.
    Unfinished,
}

/// Until when a leadership is believed. Shared with the driver, without a lock.
#[derive(Debug)]
pub(crate) struct Belief(AtomicU64);

impl Belief {
    pub(crate) fn new(until: Instant) -> Self {
        Self(AtomicU64::new(until.as_nanos()))
    }

    /// Publishes a new end. Release, so that its readers also see what was done before.
    pub(crate) fn set(&self, until: Instant) {
        self.0.store(until.as_nanos(), Ordering::Release);
    }

    fn until(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Acquire))
    }
}

/// Where a leadership is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// It lasts, at least until then unless something ends it earlier.
    Leading {
        /// When belief ends unless the lease is renewed.
        until: Instant,
        /// The version of the store's record, for a process that must release the lease in this one's place.
        version: Version,
        /// By which timing: how long before that the work is told to stop, and killed. In the `registers` protocol it
        /// follows the rounds.
        timing: Timing,
    },
    /// The work has been told to stop.
    Draining {
        /// Why.
        reason: EndReason,
        /// When the work must be killed if it has not stopped.
        by: Instant,
    },
    /// The work should have stopped by now and must be killed.
    Overdue {
        /// Why it was told to stop.
        reason: EndReason,
    },
    /// It is over.
    Ended {
        /// Why.
        reason: EndReason,
    },
}

impl Phase {
    /// Why the work must stop, if it must.
    pub fn stop_reason(&self) -> Option<&EndReason> {
        match self {
            Self::Leading { .. } => None,
            Self::Draining { reason, .. } | Self::Overdue { reason } | Self::Ended { reason } => Some(reason),
        }
    }
}

impl Leadership {
    pub(crate) fn new(
        election: ElectionName,
        token: Token,
        belief: Arc<Belief>,
        phase: watch::Receiver<Phase>,
        commands: mpsc::UnboundedSender<Command>,
    ) -> Self {
        Self { election, token, belief, phase, commands, end: WorkEnd::Stopped }
    }

    /// Of which election.
    pub fn election(&self) -> &ElectionName {
        &self.election
    }

    /// The fencing token: larger than that of every leadership before. Hand it to whatever you write to, and let it
    /// refuse smaller ones ([`fence`](Self::fence) in a database, [`Fence`](crate::Fence) in a resource of your own).
    pub fn token(&self) -> Token {
        self.token
    }

    /// Whether this process leads at this moment. Reads one atomic number and the clock: no lock, no I/O.
    ///
    /// `true` promises that nobody else leads *now*. It promises nothing about a write that arrives later: a process
    /// can be paused between the check and the write, and only a fence at the resource stops that one.
    pub fn is_current(&self) -> bool {
        clock::now() < self.belief.until()
    }

    /// How long the leadership lasts unless it is renewed: zero when it is over.
    pub fn remaining(&self) -> Duration {
        self.belief.until().since(clock::now())
    }

    /// Waits until the work must stop, and says why. There is then still time to stop in order, as configured by
    /// [`TimingSettings::grace`](crate::TimingSettings::grace), unless the end came from outside. Needs no particular
    /// async runtime.
    pub async fn lost(&self) -> EndReason {
        stop_reason(self.phase.clone()).await
    }

    /// Every step of this leadership's life, for supervisors that enforce its end.
    pub fn phases(&self) -> watch::Receiver<Phase> {
        self.phase.clone()
    }

    /// Gives the leadership up and waits until the store knows. The work must have stopped. The candidate stays a
    /// candidate, behind the others.
    pub async fn resign(self) {
        let mut phase = self.phase.clone();
        let (released, done) = tokio::sync::oneshot::channel();
        // A driver that has gone holds nothing any more.
        let _ = self.commands.send(Command::Resign { token: Some(self.token), released });
        drop(self);
        let _ = phase.wait_for(|phase| matches!(phase, Phase::Ended { .. })).await;
        let _ = done.await;
    }

    /// Ends the leadership of work that was dropped unfinished. What it has begun may go on: nothing is given back before the
    /// lease is over.
    pub(crate) fn run_out(mut self) {
        self.end = WorkEnd::Unfinished;
    }

    /// Gives back the leadership of work that is dead, as the history will say.
    ///
    /// **The caller has proof**: for a process of its own, or one that it was given, a pidfd; for several an empty control group.
    pub fn died(mut self) {
        self.end = WorkEnd::Died;
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.belief.set(Instant::ZERO);
        let token = self.token;
        // A driver that has gone holds nothing any more.
        let _ = self.commands.send(match self.end {
            WorkEnd::Stopped => Command::Drained { token },
            WorkEnd::Died => Command::Died { token },
            WorkEnd::Unfinished => Command::RunOut { token },
        });
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("election", &self.election)
            .field("token", &self.token)
            .field("remaining", &self.remaining())
            .finish()
    }
}

/// Waits until a leadership must stop. One whose driver is gone has ended.
pub(crate) async fn stop_reason(mut phase: watch::Receiver<Phase>) -> EndReason {
    match phase.wait_for(|phase| phase.stop_reason().is_some()).await {
        Ok(phase) => phase.stop_reason().cloned().unwrap_or(EndReason::Expired),
        Err(_) => EndReason::Expired,
    }
}
