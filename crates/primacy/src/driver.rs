//! What runs one candidate: it feeds the state machine with time, answers and hints, and carries out what it says. On a
//! thread of its own, or on one that the candidates of a group or a fleet share.

use std::collections::VecDeque;
use std::sync::Arc;

use primacy_core::lease::{self, CallId, CandidatePhase, Effect, EndReason, Event, Holder, Why};
use primacy_core::registers::{CandidateContext, CandidateEffect, FromGroup, GroupCandidate};
use primacy_core::select::{FailBack, FailBackWatch, Rank};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tracing::{debug, info, trace, warn};

use crate::better::BetterWatch;
use crate::clock::{self, Stride, SuspendWatch};
use crate::command::Command;
use crate::driver_thread::DriverThread;
use crate::group::GroupMessage;
use crate::leadership::{Belief, Leadership, Phase};
use crate::measured_preference::MeasuredPreference;
use crate::metrics::{CallTimer, CandidateMetrics};
use crate::namesakes;
use crate::opener::CallTime;
use crate::status::{Status, StopReason, Trouble};
use crate::store::{LatencyProbe, Reply, Store, StoreError};
use crate::store_client::{GroupHandle, StoreClient, from_group};
use crate::{ElectionName, Instant, Token};

/// What the state machine is told.
#[derive(Debug)]
enum Input {
    Event(Event),
    Said(FromGroup),
    /// The thread of its group has gone.
    GroupEnded,
}

/// What the handles hold of a driver.
pub(crate) struct Handles {
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    pub(crate) leaderships: mpsc::UnboundedReceiver<Leadership>,
    pub(crate) status: watch::Receiver<Status>,
    pub(crate) metrics: Arc<CandidateMetrics>,
}

/// Starts a candidate on a thread of its own, with its own runtime, or on that of its group or fleet: whatever blocks in the
/// user's runtime, the lease is renewed.
///
/// # Errors
/// When the system gives no thread or no runtime.
pub(crate) fn start(
    store: Arc<dyn Store>,
    election: ElectionName,
    core: GroupCandidate,
    fail_back: FailBack,
    group: Option<GroupHandle>,
    thread: Option<&DriverThread>,
    measured: Option<(MeasuredPreference, Box<dyn LatencyProbe>)>,
) -> Result<Handles, std::io::Error> {
    let (commands, command_inbox) = mpsc::unbounded_channel();
    let (leadership_outbox, leaderships) = mpsc::unbounded_channel();
    let waiting = Status::Waiting { why: Why::NotLooked, leader: None, standing: None, trouble: None };
    let (status_outbox, status) = watch::channel(waiting);
    let config = core.lease().config();
    let me = Holder { id: config.id, label: config.label.clone(), data: config.data.clone() };
    let (label, own) = (config.label.clone(), me.clone());
    let metrics = Arc::new(CandidateMetrics::default());
    let rank = config.rank;
    let mut driver = Driver {
        core,
        rank,
        abstains: false,
        client: StoreClient::new(store, election, me, group),
        commands: commands.clone(),
        leaderships: leadership_outbox,
        status: StatusOutbox { channel: status_outbox, reason: StopReason::DriverFailed },
        tenure: None,
        fail_back,
        better: FailBackWatch::new(fail_back),
        trouble: None,
        ever_reached: false,
        chosen: false,
        on_release: Vec::new(),
        metrics: Arc::clone(&metrics),
        call_timer: CallTimer::default(),
    };
    let life = async move {
        // It ends with the driver.
        let mut beside = JoinSet::new();
        if let Some((measured, probe)) = measured {
            beside.spawn(measured.follow(label, probe, driver.commands.clone()));
        }
        let StoreClient { store, election, .. } = &driver.client;
        let (store, election) = (Arc::clone(store), election.clone());
        let lease::Config { timing, aligned, .. } = *driver.core.lease().config();
        beside.spawn(namesakes::watch(store, election, own, timing, aligned, driver.commands.clone()));
        driver.run(command_inbox).await;
    };
    match thread {
        Some(thread) => thread.run(Box::pin(life)),
        None => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            std::thread::Builder::new().name("primacy-driver".into()).spawn(move || runtime.block_on(life))?;
        }
    }
    Ok(Handles { commands, leaderships, status, metrics })
}

/// The status channel, whose last value is `Stopped` even if the driver panics.
struct StatusOutbox {
    channel: watch::Sender<Status>,
    reason: StopReason,
}

impl Drop for StatusOutbox {
    fn drop(&mut self) {
        self.channel.send_replace(Status::Stopped { reason: self.reason.clone() });
    }
}

/// The order of the fields is that of the end: belief first, then the last status, and only then does the task that
/// awaits a leadership learn that there will be none.
struct Driver {
    core: GroupCandidate,
    client: StoreClient,
    tenure: Option<Tenure>,
    status: StatusOutbox,
    commands: mpsc::UnboundedSender<Command>,
    leaderships: mpsc::UnboundedSender<Leadership>,
    /// How it stands by preference.
    rank: Option<Rank>,
    /// It keeps out of the election, however it stands.
    abstains: bool,
    /// When it makes way for a better one that waits. In the `registers` protocol its group says so.
    fail_back: FailBack,
    better: FailBackWatch,
    trouble: Option<Trouble>,
    ever_reached: bool,
    /// Whether an operator wanted this candidate to lead when the last event came.
    chosen: bool,
    on_release: Vec<oneshot::Sender<()>>,
    metrics: Arc<CandidateMetrics>,
    call_timer: CallTimer,
}

/// The driver's side of a [`Leadership`].
struct Tenure {
    token: Token,
    belief: Arc<Belief>,
    phase: watch::Sender<Phase>,
    /// When work that was told to stop must be killed.
    overdue_at: Option<Instant>,
    /// Its work was dropped unfinished.
    runs_out: bool,
    /// An operator wanted this candidate to lead.
    chosen: bool,
    /// Looks for a better one, until it is dropped.
    _watch: Option<BetterWatch>,
}

impl Drop for Tenure {
    /// Also when the driver panics: a leadership without a driver is over.
    fn drop(&mut self) {
        self.belief.set(Instant::ZERO);
        self.phase.send_if_modified(|phase| {
            let goes_on = !matches!(phase, Phase::Ended { .. });
            if goes_on {
                *phase = Phase::Ended { reason: EndReason::Expired };
            }
            goes_on
        });
    }
}

impl Driver {
    async fn run(&mut self, mut inbox: mpsc::UnboundedReceiver<Command>) {
        let mut suspend = SuspendWatch::start();
        let mut events = VecDeque::from([Input::Event(Event::Campaign)]);
        loop {
            match suspend.check() {
                Stride::Steady => {}
                Stride::Slept(span) => {
                    warn!(?span, "the machine was suspended; a leadership ends with that");
                    events.push_front(Input::Event(Event::Suspended));
                }
                Stride::Backwards => {
                    self.status.reason = StopReason::ClockWentBackwards;
                    return;
                }
            }
            while let Some(event) = events.pop_front() {
                if self.handle(event) {
                    self.client.leave_group(self.core.lease().config().timing.call_timeout()).await;
                    self.status.reason = StopReason::Withdrawn;
                    return;
                }
            }
            self.mark_overdue();
            self.publish();
            if let Some(error) = self.hopeless() {
                self.status.reason = StopReason::StoreUnusable(error);
                return;
            }
            let leads = self.tenure.as_ref().is_some_and(|tenure| tenure.phase.borrow().stop_reason().is_none());
            self.client.listen(&self.core);
            let wake =
                Instant::earliest(self.core.deadline(), self.tenure.as_ref().and_then(|tenure| tenure.overdue_at));
            let heeds_hints = self.core.lease().heeds_hints(clock::now());
            let StoreClient { connection, hints, group, .. } = &mut self.client;
            tokio::select! {
                biased;
                command = inbox.recv() => self.obey(command, &mut events),
                (call, result) = connection.answer() => events.push_back(Input::Event(self.note_answer(call, result))),
                said = from_group(group) => {
                    let input = self.note_group(said);
                    events.push_back(input);
                }
                () = clock::sleep_until(wake, leads) => events.push_back(Input::Event(Event::Wake)),
                () = hints.hint(), if heeds_hints => events.push_back(Input::Event(Event::Hint)),
            }
        }
    }

    /// Lets the state machine handle an input and carries out its effects in order. `true` when it has withdrawn.
    fn handle(&mut self, input: Input) -> bool {
        trace!(?input, "event");
        let mut effects = Vec::new();
        let mut entropy = || rand::random::<u64>();
        // R1: taken once, before anything is sent.
        let now = clock::now();
        self.chosen = self.core.is_chosen();
        let mut cx = CandidateContext { now, entropy: &mut entropy, effects: &mut effects };
        match input {
            Input::Event(event) => self.core.handle(event, &mut cx),
            Input::Said(said) => {
                if let Err(error) = self.core.hear(said, &mut cx) {
                    warn!(%error, "the lease does not follow the round time");
                }
            }
            Input::GroupEnded => self.core.leave_to_itself(&mut cx),
        }
        let mut stopped = false;
        for effect in effects {
            stopped |= effect == CandidateEffect::Lease(Effect::Stopped);
            let told = tracing::enabled!(tracing::Level::DEBUG).then(|| effect.clone());
            self.carry_out(effect, now);
            // Afterwards: a log can block, and belief must not outlast its end because of that.
            if let Some(effect) = told {
                debug!(?effect, "effect");
            }
        }
        if !matches!(
            self.core.lease().view().phase,
            CandidatePhase::Draining | CandidatePhase::Stopping | CandidatePhase::Releasing
        ) {
            for released in self.on_release.drain(..) {
                let _ = released.send(()); // the asker may have gone
            }
        }
        stopped
    }

    fn carry_out(&mut self, effect: CandidateEffect, now: Instant) {
        let effect = match effect {
            CandidateEffect::Lease(effect) => effect,
            CandidateEffect::Tell(said) => {
                if let Some(group) = &self.client.group {
                    group.tell(said);
                }
                return;
            }
        };
        match effect {
            Effect::Call { call, request, deadline } => {
                let opening = self.core.lease().config().timing.opening_timeout();
                self.call_timer.asked(call, &request, now);
                self.client.send(call, request, CallTime { asked_at: now, deadline, opening });
            }
            Effect::Abandon { .. } => {
                let is_opening = self.client.hang_up();
                self.call_timer.given_up(now, &self.metrics);
                // A store that says nothing at all is trouble too, unless nobody waits for its answer any more.
                if self.core.lease().view().phase != CandidatePhase::Idle {
                    let what = if is_opening { "the connection is still being opened" } else { "no answer in time" };
                    let silent = format!("{}: {what}", self.client.store.location());
                    self.note_trouble(StoreError::Unknown(silent));
                }
            }
            Effect::Lead { token, until, version } => self.lead(token, until, version),
            Effect::Extend { until, version } => {
                if let Some(tenure) = &self.tenure {
                    tenure.belief.set(until);
                    let timing = self.core.lease().config().timing;
                    tenure.phase.send_replace(Phase::Leading { until, version, timing });
                }
            }
            Effect::Drain { reason, by } => {
                if let Some(tenure) = &mut self.tenure {
                    tenure.overdue_at = Some(by);
                    tenure.phase.send_replace(Phase::Draining { reason: reason.clone(), by });
                    info!(token = %tenure.token, %reason, "the work must stop");
                }
            }
            Effect::End { reason } => {
                self.metrics.leads_no_more(&reason);
                if let Some(tenure) = &mut self.tenure {
                    tenure.belief.set(Instant::ZERO);
                    tenure.overdue_at = None;
                    tenure.phase.send_replace(Phase::Ended { reason: reason.clone() });
                    info!(token = %tenure.token, %reason, "the leadership is over");
                    if tenure.runs_out {
                        // Its receiver is this driver, which goes on.
                        let _ = self.commands.send(Command::Drained { token: tenure.token });
                    }
                }
            }
            Effect::Stopped => {}
        }
    }

    fn lead(&mut self, token: Token, until: Instant, version: lease::Version) {
        info!(election = %self.client.election, %token, "leading");
        self.metrics.leads();
        let belief = Arc::new(Belief::new(until));
        let timing = self.core.lease().config().timing;
        let (phase, phases) = watch::channel(Phase::Leading { until, version, timing });
        self.better.lead_begins();
        let StoreClient { store, election, .. } = &self.client;
        let rule = if self.client.group.is_none() { self.fail_back } else { FailBack::Never };
        let watch = BetterWatch::start(store, election, token, &timing, rule, &self.commands);
        self.tenure = Some(Tenure {
            token,
            belief: Arc::clone(&belief),
            phase,
            overdue_at: None,
            runs_out: false,
            chosen: self.chosen,
            _watch: watch,
        });
        let election = self.client.election.clone();
        let leadership = Leadership::new(election, token, belief, phases, self.commands.clone());
        // A candidate whose handle is gone drops the guard here, which says that its work has stopped.
        let _ = self.leaderships.send(leadership);
    }

    fn obey(&mut self, command: Option<Command>, events: &mut VecDeque<Input>) {
        let current = self.tenure.as_ref().map(|tenure| tenure.token);
        match command {
            Some(Command::Resign { token, released }) if current.is_some() && (token.is_none() || token == current) => {
                self.on_release.push(released);
                events.push_back(Input::Event(Event::Resign));
            }
            Some(Command::Drained { token }) if Some(token) == current => {
                events.push_back(Input::Event(Event::Drained));
            }
            Some(Command::Died { token }) if Some(token) == current => events.push_back(Input::Event(Event::Died)),
            Some(Command::RunOut { token }) if Some(token) == current => {
                if let Some(tenure) = &mut self.tenure {
                    tenure.runs_out = true;
                    let is_over = matches!(*tenure.phase.borrow(), Phase::Ended { .. });
                    events.push_back(Input::Event(if is_over { Event::Drained } else { Event::Resign }));
                }
            }
            Some(Command::Prefer { rank }) => {
                self.rank = rank;
                if !self.abstains {
                    events.push_back(Input::Event(Event::Prefer(rank)));
                }
            }
            Some(Command::Abstain { abstains }) => {
                self.abstains = abstains;
                events.push_back(Input::Event(Event::Prefer(self.rank.filter(|_| !abstains))));
            }
            Some(Command::RaiseFloor { floor }) => events.push_back(Input::Event(Event::RaiseFloor(floor))),
            Some(Command::SetSlot { slot }) => events.push_back(Input::Event(Event::SetSlot(slot))),
            Some(Command::SawWaiting { token, waiting }) if Some(token) == current => {
                let own = self.core.lease().config().rank.unwrap_or(Rank::LAST);
                let others = waiting.iter().map(|(id, rank)| (*id, rank));
                // An operator who wants this one to lead knows better.
                if !self.tenure.as_ref().is_some_and(|tenure| tenure.chosen)
                    && self.better.observe(clock::now(), &own, others).is_some()
                    && self.core.may_make_way(token)
                {
                    events.push_back(Input::Event(Event::Resign));
                }
            }
            Some(Command::MayLookForNamesakes { answer }) => {
                let stands_back = self.core.is_in_reserve() && current.is_none();
                // The asker may have gone.
                let _ = answer.send(self.ever_reached && !stands_back);
            }
            // About a leadership of the past, or none.
            Some(
                Command::Resign { .. }
                | Command::Drained { .. }
                | Command::Died { .. }
                | Command::RunOut { .. }
                | Command::SawWaiting { .. },
            ) => {}
            Some(Command::Withdraw) | None => events.push_back(Input::Event(Event::Withdraw)),
        }
    }

    /// What the group says. One that has ended unexpectedly leaves its candidates to themselves: they look on their own.
    fn note_group(&mut self, said: Option<GroupMessage>) -> Input {
        let Some(GroupMessage { what, trouble }) = said else {
            warn!("the thread of the registers protocol has ended; this candidate goes on by itself");
            self.client.group = None;
            return Input::GroupEnded;
        };
        if let Some(error) = trouble {
            self.note_trouble(error);
        }
        if matches!(what, FromGroup::Seen { .. }) {
            self.note_reached();
        }
        Input::Said(what)
    }

    /// Keeps who is to be told about trouble with the store, and says it once, not at every retry.
    fn note_answer(&mut self, call: CallId, result: Result<Reply, StoreError>) -> Event {
        self.call_timer.ended(call, &result, clock::now(), &self.metrics);
        let result = match result {
            Ok(reply) => {
                self.note_reached();
                Ok(reply)
            }
            Err(error) => {
                let outcome = error.outcome();
                self.note_trouble(error);
                Err(outcome)
            }
        };
        Event::Done { call, result }
    }

    /// What the store has answered, if it has never served this candidate and trying again does not help.
    fn hopeless(&self) -> Option<StoreError> {
        let trouble = self.trouble.as_ref().filter(|trouble| !trouble.ever_reached)?;
        // In the `registers` protocol its process may take part before it has looked itself.
        let takes_part =
            self.client.group.as_ref().is_some_and(|group| group.group_status().borrow().view.id.is_some());
        let is_hopeless = matches!(trouble.error, StoreError::Unusable(_)) && !takes_part;
        is_hopeless.then(|| trouble.error.clone())
    }

    fn note_reached(&mut self) {
        self.ever_reached = true;
        if self.trouble.take().is_some() {
            let store = self.client.store.location();
            warn!(name: crate::status::TRANSITION, %store, "the store answers again");
        }
    }

    fn note_trouble(&mut self, error: StoreError) {
        let since = self.trouble.as_ref().map_or_else(clock::now, |trouble| trouble.since);
        if self.trouble.is_none() {
            let store = self.client.store.location();
            warn!(name: crate::status::TRANSITION, %error, %store, "a call to the store failed; trying again");
        }
        self.trouble = Some(Trouble { error, since, ever_reached: self.ever_reached });
    }

    fn mark_overdue(&mut self) {
        let Some(tenure) = &mut self.tenure else { return };
        if tenure.overdue_at.is_some_and(|at| clock::now() >= at) {
            tenure.overdue_at = None;
            tenure.phase.send_if_modified(|phase| {
                let Phase::Draining { reason, .. } = phase else { return false };
                *phase = Phase::Overdue { reason: reason.clone() };
                true
            });
        }
    }

    fn publish(&mut self) {
        let view = self.core.lease().view();
        let phase = self.tenure.as_ref().map(|tenure| tenure.phase.borrow().clone());
        let reason = || phase.as_ref().and_then(Phase::stop_reason).cloned().unwrap_or(EndReason::Finished);
        let trouble = self.trouble.clone();
        let status = match (view.phase, view.token) {
            (CandidatePhase::Leading, Some(token)) => Status::Leading { token, trouble },
            (CandidatePhase::Draining, Some(token)) => Status::Draining { token, reason: reason() },
            (CandidatePhase::Stopping | CandidatePhase::Releasing, _) => Status::Ending { reason: reason() },
            _ => Status::Waiting {
                why: view.why.unwrap_or(Why::NotLooked),
                leader: view.holder.zip(view.version.map(|version| version.token)),
                standing: view.standing,
                trouble,
            },
        };
        self.status.channel.send_replace(status);
    }
}
