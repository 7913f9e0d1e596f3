//! A candidate as its program holds it: the one owner that is elected, and handles that can be cloned.

mod work;

use std::sync::Arc;

use primacy_core::select::Rank;
use tokio::sync::{mpsc, oneshot, watch};

use crate::command::Command;
use crate::group::GroupStatus;
use crate::leadership::Leadership;
use crate::metrics::CandidateMetrics;
use crate::status::{Status, StopReason};
use crate::{CandidateId, Token};
use work::Deadline;

/// One candidate, which campaigns from its creation until it is shut down or dropped.
///
/// Hand your work to [`run`](Self::run), or await [`elected`](Self::elected). A candidate that is elected while nobody
/// awaits it leads without working, so keep awaiting or withdraw. Other tasks get a [`handle`](Self::handle).
#[derive(Debug)]
pub struct Candidate {
    handle: CandidateHandle,
    leaderships: mpsc::UnboundedReceiver<Leadership>,
    deadline: Deadline,
}

/// What any task may ask a [`Candidate`] for: its status, a resignation, a shutdown.
///
/// All clones mean the same candidate. None of them keeps it campaigning: it withdraws when the [`Candidate`] is dropped.
/// After its end the methods do nothing, and those that wait return at once.
#[derive(Clone, Debug)]
pub struct CandidateHandle {
    id: CandidateId,
    commands: mpsc::UnboundedSender<Command>,
    status: watch::Receiver<Status>,
    group_status: Option<watch::Receiver<GroupStatus>>,
    metrics: Arc<CandidateMetrics>,
}

impl CandidateHandle {
    pub(crate) fn new(
        id: CandidateId,
        commands: mpsc::UnboundedSender<Command>,
        status: watch::Receiver<Status>,
        group_status: Option<watch::Receiver<GroupStatus>>,
        metrics: Arc<CandidateMetrics>,
    ) -> Self {
        Self { id, commands, status, group_status, metrics }
    }

    /// The candidate's identity: random, and new for every candidate.
    pub fn id(&self) -> CandidateId {
        self.id
    }

    /// The candidate's state, for people and metrics.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// How the candidate's process takes part in the `registers` protocol; `None` in the `lease` protocol.
    pub fn group_status(&self) -> Option<watch::Receiver<GroupStatus>> {
        self.group_status.clone()
    }

    /// What the candidate has counted so far: calls to its store, how long renewals took, and its leaderships. It counts on, and
    /// what it has counted can be read after its end.
    pub fn metrics(&self) -> Arc<CandidateMetrics> {
        Arc::clone(&self.metrics)
    }

    /// Sets the candidate's preference rank from now on; `None`: it never leads. A leader that is no longer the best makes
    /// way when and if its fail-back says so.
    pub fn prefer(&self, rank: Option<Rank>) {
        self.send(Command::Prefer { rank });
    }

    /// Whether the candidate keeps out of the election from now on, however it stands by preference. What it is told of its rank
    /// meanwhile, or [measures](crate::MeasuredPreference), counts when it takes part again. A leadership that there is stays.
    pub fn abstain(&self, abstains: bool) {
        self.send(Command::Abstain { abstains });
    }

    /// Has the candidate ask only for tokens above this one from its next attempt on, whatever its store has granted: the
    /// highest that the [fenced resource](crate::Fence) has taken. So a store that was made anew, or restored from a backup,
    /// grants tokens that the resource takes.
    ///
    /// It never falls, and it is known to this candidate alone: tell each that it may need to know. A leadership that there is
    /// stays, also with a smaller token. Voters refuse to leap by more than four thousand million tokens; that is told as
    /// [trouble](Status) with the store.
    pub fn raise_floor(&self, floor: Token) {
        self.send(Command::RaiseFloor { floor });
    }

    /// Gives the leadership up, if the candidate has one: its work is told to stop ([`Leadership::lost`]) and has its
    /// [grace](crate::TimingSettings::grace). The candidate stays a candidate, behind the others.
    ///
    /// Returns when the store knows, or when the lease has run out because the work did not stop or the store did not
    /// answer. Returns at once if the candidate does not lead. Dropping the future does not take the resignation back.
    pub async fn resign(&self) {
        let (released, done) = oneshot::channel();
        self.send(Command::Resign { token: None, released });
        // A driver that has gone holds nothing any more.
        let _ = done.await;
    }

    /// Ends the candidacy in order, and returns at once. The work of a leader is told to stop ([`Leadership::lost`]) and
    /// has its [grace](crate::TimingSettings::grace); the leadership is given back when the work has stopped.
    /// [`stopped`](Self::stopped) and [`Candidate::run`] return when that is done.
    pub fn shutdown(&self) {
        self.send(Command::Withdraw);
    }

    /// Waits until the candidate takes no part any more, and returns why. Cancel-safe.
    pub async fn stopped(&self) -> StopReason {
        let mut status = self.status.clone();
        match status.wait_for(|status| matches!(status, Status::Stopped { .. })).await.as_deref() {
            Ok(Status::Stopped { reason }) => reason.clone(),
            _ => StopReason::DriverFailed,
        }
    }

    fn send(&self, command: Command) {
        // A driver that has gone does nothing any more, and holds nothing.
        let _ = self.commands.send(command);
    }
}

impl Candidate {
    /// # Errors
    /// When the system gives no thread to keep the deadlines of work.
    pub(crate) fn new(
        handle: CandidateHandle,
        leaderships: mpsc::UnboundedReceiver<Leadership>,
    ) -> Result<Self, std::io::Error> {
        Ok(Self { handle, leaderships, deadline: Deadline::new()? })
    }

    /// A handle for other tasks.
    pub fn handle(&self) -> CandidateHandle {
        self.handle.clone()
    }

    /// As [`CandidateHandle::id`].
    pub fn id(&self) -> CandidateId {
        self.handle.id()
    }

    /// As [`CandidateHandle::status`].
    pub fn status(&self) -> watch::Receiver<Status> {
        self.handle.status()
    }

    /// As [`CandidateHandle::group_status`].
    pub fn group_status(&self) -> Option<watch::Receiver<GroupStatus>> {
        self.handle.group_status()
    }

    /// As [`CandidateHandle::metrics`].
    pub fn metrics(&self) -> Arc<CandidateMetrics> {
        self.handle.metrics()
    }

    /// As [`CandidateHandle::prefer`].
    pub fn prefer(&self, rank: Option<Rank>) {
        self.handle.prefer(rank);
    }

    /// As [`CandidateHandle::abstain`].
    pub fn abstain(&self, abstains: bool) {
        self.handle.abstain(abstains);
    }

    /// As [`CandidateHandle::raise_floor`].
    pub fn raise_floor(&self, floor: Token) {
        self.handle.raise_floor(floor);
    }

    /// Runs `work` each time this candidate is elected, until a [`handle`](Self::handle) shuts it down. Needs no particular
    /// async runtime.
    ///
    /// ```
    /// # use primacy::{Candidate, StopReason};
    /// # async fn one_step(_token: primacy::Token) {}
    /// # async fn sigterm() {}
    /// # async fn example(candidate: Candidate) -> Result<(), StopReason> {
    /// let handle = candidate.handle();
    /// tokio::spawn(async move {
    ///     sigterm().await;
    ///     handle.shutdown();
    /// });
    /// candidate.run(async |leadership| {
    ///     tokio::select! {
    ///         _reason = leadership.lost() => {} // stop in order: there is a grace
    ///         () = async { loop { one_step(leadership.token()).await } } => {}
    ///     }
    /// }).await
    /// # }
    /// ```
    ///
    /// **Work that is told to stop.** [`Leadership::lost`] returns because of a shutdown, a resignation, an operator's
    /// order, or a store that does not answer. The work then has [its grace](crate::TimingSettings::grace). The leadership
    /// is given back as soon as the work has returned, and never before: nobody else leads beside work that is still
    /// stopping.
    ///
    /// **Work that does not stop** is dropped at its present `await` when its grace is over, which is before its lease
    /// ends. What it has sent or spawned may go on without it, so the lease is not given back early: it runs out. A thread
    /// of the library's own keeps this deadline, also while the candidate's thread is held up by its store. Work that
    /// *blocks* cannot be dropped; it gets no further step after its lease, and no next leadership of this candidate
    /// begins while it blocks. Let it ask [`Leadership::is_current`], and pass the token on: only a
    /// [fence](Leadership::fence) stops what arrives late.
    ///
    /// **Work that returns by itself** gives the leadership back, and the candidate campaigns again, behind the others.
    /// Work that is done for good calls [`CandidateHandle::shutdown`] before it returns; a result goes into a variable
    /// outside. Work that panics is unwound, the leadership is given back, the candidate withdraws, and the panic goes on
    /// to the caller.
    ///
    /// **Dropping the future** of `run` drops the work, gives the leadership back at once and withdraws: the program
    /// says by that that nothing of the work goes on.
    ///
    /// For `tokio::spawn(candidate.run(…))` the closure owns what it uses: `async move |leadership| …`.
    ///
    /// # Errors
    /// As for [`elected`](Self::elected), except that the end by a shutdown is `Ok`. It comes when nothing of the candidate
    /// is left in the store, or what is left runs out by itself.
    pub async fn run<F>(mut self, mut work: F) -> Result<(), StopReason>
    where
        F: AsyncFnMut(&Leadership),
    {
        loop {
            match self.elected().await {
                Ok(leadership) => {
                    // The guard outlives the work, also when this future is dropped or the work panics.
                    if self.deadline.bound(&leadership, work(&leadership)).await.is_err() {
                        leadership.run_out();
                    }
                }
                Err(StopReason::Withdrawn) => return Ok(()),
                Err(other) => return Err(other),
            }
        }
    }

    /// Waits until it leads. Cancel-safe; needs no particular async runtime.
    ///
    /// # Errors
    /// When the candidate takes no part any more, also because the store has refused it from the start: a wrong password, a
    /// missing right, tables of another version ([`StopReason::StoreUnusable`]). A store that cannot be reached, or refuses
    /// after it has served, is no error here: the candidate goes on trying, and [`status`](Self::status) tells.
    pub async fn elected(&mut self) -> Result<Leadership, StopReason> {
        while let Some(leadership) = self.leaderships.recv().await {
            // One that ended before anyone took it is of no use; dropping it says that no work runs.
            if leadership.is_current() && leadership.phases().borrow().stop_reason().is_none() {
                return Ok(leadership);
            }
        }
        Err(self.handle.stopped().await)
    }

    /// Stops campaigning and waits until nothing of this candidate is left in the store, or what is left runs out by
    /// itself. A leadership that is still held is told to stop first, and given back once it is dropped.
    pub async fn withdraw(mut self) -> StopReason {
        self.handle.shutdown();
        while let Some(unused) = self.leaderships.recv().await {
            drop(unused);
        }
        self.handle.stopped().await
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}
