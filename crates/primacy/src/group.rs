//! The two threads of one process in the `registers` protocol, for all of its candidates in one election: one joins, beats and
//! surveys, the other runs the candidates, however many they are.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use primacy_core::lease::CallId;
use primacy_core::registers::{
    self, Eviction, FromGroup, Process, ProcessContext, ProcessEffect, ProcessEvent, ProcessId, Reply, Request, Rounds,
    ToGroup,
};
use primacy_core::select::FailBack;
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use crate::clock::{self, Stride, SuspendWatch};
use crate::driver_thread::DriverThread;
use crate::opener::{CallTime, Opener};
use crate::store::{BoxFuture, Registry, Store, StoreError};
use crate::{CandidateId, ElectionName, Instant, Timing};

/// What a candidate tells its group.
#[derive(Debug)]
pub(crate) struct CandidateMessage {
    pub(crate) what: ToGroup,
    /// With [`ToGroup::Enter`]: where it is told what concerns it.
    pub(crate) outbox: Option<mpsc::UnboundedSender<GroupMessage>>,
}

/// What a group tells a candidate.
#[derive(Clone, Debug)]
pub(crate) struct GroupMessage {
    pub(crate) what: FromGroup,
    /// With [`FromGroup::NotSeen`]: what the store has said instead of an answer.
    pub(crate) trouble: Option<StoreError>,
}

/// How a group takes part. The same for all candidates of one process in one election: the first one's counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) rounds: Rounds,
    pub(crate) fail_back: FailBack,
}

/// The group of an election in this process, if one is running.
#[derive(Debug, Default)]
pub(crate) struct GroupSlot(Mutex<Weak<Handle>>);

/// A running group, for as long as one of its candidates holds it.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) commands: mpsc::UnboundedSender<CandidateMessage>,
    drivers: DriverThread,
    group_status: watch::Receiver<GroupStatus>,
}

/// How the process of a candidate takes part in the `registers` protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupStatus {
    /// What it knows of itself and the rounds.
    pub view: registers::GroupView,
    /// How often it was evicted although it lived.
    pub evictions: u64,
    /// Why it was evicted the last time, if that is known.
    pub last_eviction: Option<Eviction>,
}

impl Handle {
    /// What the group knows.
    pub(crate) fn status(&self) -> watch::Receiver<GroupStatus> {
        self.group_status.clone()
    }

    /// The thread of its candidates.
    pub(crate) const fn drivers(&self) -> &DriverThread {
        &self.drivers
    }

    /// Tells it. A group whose thread has gone tells its candidates by closing their channels.
    pub(crate) fn tell(&self, command: CandidateMessage) {
        let _ = self.commands.send(command);
    }
}

impl GroupSlot {
    /// The running group, or a new one.
    ///
    /// # Errors
    /// When the system gives no thread or no runtime.
    pub(crate) fn join(
        &self,
        store: &Arc<dyn Store>,
        election: &ElectionName,
        settings: Settings,
    ) -> Result<Arc<Handle>, std::io::Error> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = slot.upgrade().filter(|running| !running.commands.is_closed()) {
            return Ok(running);
        }
        let handle = Arc::new(start(Arc::clone(store), election.clone(), settings)?);
        *slot = Arc::downgrade(&handle);
        Ok(handle)
    }
}

fn start(store: Arc<dyn Store>, election: ElectionName, settings: Settings) -> Result<Handle, std::io::Error> {
    let (commands, inbox) = mpsc::unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let drivers = DriverThread::start()?;
    let config = registers::Config {
        // R5: random, and new for every group.
        process: ProcessId::from_bits(rand::random()),
        rounds: settings.rounds,
        fail_back: settings.fail_back,
    };
    let core = Process::new(config);
    let first = GroupStatus { view: core.group().view(), evictions: 0, last_eviction: None };
    let (status_outbox, group_status) = watch::channel(first);
    let driver = GroupDriver {
        core,
        rounds: settings.rounds,
        store,
        election,
        wire: Arc::default(),
        call: None,
        outboxes: BTreeMap::new(),
        round: None,
        trouble: None,
        group_status: status_outbox,
    };
    std::thread::Builder::new().name("primacy-group".into()).spawn(move || {
        let mut driver = driver;
        runtime.block_on(driver.run(inbox));
    })?;
    Ok(Handle { commands, drivers, group_status })
}

struct GroupDriver {
    core: Process,
    rounds: Rounds,
    store: Arc<dyn Store>,
    election: ElectionName,
    /// Locked by the call under way, of which there is one at most.
    wire: Arc<tokio::sync::Mutex<Wire>>,
    call: Option<Call>,
    /// Of each candidate until nothing of it is left.
    outboxes: BTreeMap<CandidateId, mpsc::UnboundedSender<GroupMessage>>,
    /// How long rounds last, as was last said to people.
    round: Option<Duration>,
    /// What the store last said instead of an answer.
    trouble: Option<StoreError>,
    group_status: watch::Sender<GroupStatus>,
}

struct Call {
    id: CallId,
    answer: BoxFuture<'static, Result<Reply, StoreError>>,
}

/// The connection to the store.
#[derive(Default)]
struct Wire {
    /// Open, and without a call under way.
    registry: Option<Box<dyn Registry>>,
    opener: Opener<Box<dyn Registry>>,
}

impl Wire {
    /// The open connection, which is the caller's from now on.
    async fn take(
        &mut self,
        store: &Arc<dyn Store>,
        election: &ElectionName,
        time: CallTime,
    ) -> Result<Box<dyn Registry>, StoreError> {
        if let Some(registry) = self.registry.take() {
            return Ok(registry);
        }
        let (store, election) = (Arc::clone(store), election.clone());
        let place = store.location();
        self.opener.connection(time, &place, || async move { store.registry(&election).await }).await
    }
}

impl GroupDriver {
    async fn run(&mut self, mut inbox: mpsc::UnboundedReceiver<CandidateMessage>) {
        let mut suspend = SuspendWatch::start();
        let mut events = VecDeque::new();
        let mut open = true;
        loop {
            match suspend.check() {
                Stride::Steady => {}
                Stride::Slept(_) => events.push_front(ProcessEvent::Suspended),
                // Nothing that a group says is needed for safety; its candidates stop by themselves.
                Stride::Backwards => return,
            }
            while let Some(event) = events.pop_front() {
                self.handle(event);
            }
            self.publish();
            if !open && self.core.is_done() && self.call.is_none() {
                return;
            }
            let wake = self.core.deadline();
            tokio::select! {
                biased;
                command = inbox.recv(), if open => match command {
                    Some(command) => events.push_back(self.note(command)),
                    None => {
                        open = false;
                        events.push_back(ProcessEvent::Abandoned);
                    }
                },
                (call, result) = answered(&mut self.call) => {
                    events.push_back(self.note_answer(call, result));
                }
                () = clock::sleep_until(wake, false) => events.push_back(ProcessEvent::Wake),
            }
        }
    }

    fn note(&mut self, command: CandidateMessage) -> ProcessEvent {
        if let (ToGroup::Enter(candidacy), Some(outbox)) = (&command.what, command.outbox) {
            self.outboxes.insert(candidacy.id, outbox);
        }
        ProcessEvent::FromCandidate(command.what)
    }

    fn handle(&mut self, event: ProcessEvent) {
        let mut effects = Vec::new();
        let mut entropy = || rand::random::<u64>();
        // R1: taken once, before anything is sent.
        let now = clock::now();
        self.core.handle(event, &mut ProcessContext { now, entropy: &mut entropy, effects: &mut effects });
        for effect in effects {
            debug!(?effect, "effect");
            self.carry_out(effect, now);
        }
    }

    fn carry_out(&mut self, effect: ProcessEffect, now: Instant) {
        match effect {
            ProcessEffect::Call { call, request, deadline } => {
                let lease = self.rounds.lease(self.rounds.round());
                let opening = Timing::opening_timeout_of(lease);
                self.send(call, request, CallTime { asked_at: now, deadline, opening });
            }
            // R8: dropping the call drops its connection with it, unless that is still being opened.
            ProcessEffect::Abandon { .. } => {
                self.call = None;
                self.trouble = Some(StoreError::Unknown(format!("{}: no answer in time", self.store.location())));
            }
            ProcessEffect::Tell { to, what } => self.tell(to, what),
            ProcessEffect::Evicted { eviction } => {
                let reason = eviction.as_ref().map_or("its register was removed".to_owned(), ToString::to_string);
                warn!(election = %self.election, %reason, "this process was evicted, and joins again");
                self.group_status.send_modify(|group_status| {
                    group_status.evictions += 1;
                    group_status.last_eviction = eviction;
                });
            }
        }
    }

    fn tell(&mut self, to: CandidateId, what: FromGroup) {
        let has_left = what == FromGroup::Left;
        let trouble = match &what {
            FromGroup::NotSeen { error, .. } => Some(self.trouble.clone().unwrap_or_else(|| match error {
                registers::CallError::NotDone => StoreError::Unreachable(self.store.location()),
                registers::CallError::Unknown => StoreError::Unknown(self.store.location()),
            })),
            _ => None,
        };
        if let Some(outbox) = self.outboxes.get(&to) {
            // A candidate that has gone will leave.
            let _ = outbox.send(GroupMessage { what, trouble });
        }
        if has_left {
            self.outboxes.remove(&to);
        }
    }

    fn send(&mut self, id: CallId, request: Request, time: CallTime) {
        let (store, election) = (Arc::clone(&self.store), self.election.clone());
        let wire = Arc::clone(&self.wire);
        let answer = Box::pin(async move {
            let mut wire = wire.lock().await;
            let mut registry = wire.take(&store, &election, time).await?;
            let reply = registry.round(request).await?;
            wire.opener.answered();
            // Only here: a connection that has failed once, or whose call was given up, is not used again (R8).
            wire.registry = Some(registry);
            Ok(reply)
        });
        self.call = Some(Call { id, answer });
    }

    fn note_answer(&mut self, call: CallId, result: Result<Reply, StoreError>) -> ProcessEvent {
        let result = match result {
            Ok(reply) => {
                if self.trouble.take().is_some() {
                    let store = self.store.location();
                    warn!(name: crate::status::TRANSITION, %store, "the store answers again");
                }
                Ok(reply)
            }
            Err(error) => {
                let outcome = error.outcome();
                if self.trouble.is_none() {
                    let store = self.store.location();
                    warn!(name: crate::status::TRANSITION, %error, %store, "a round failed; trying again");
                }
                self.trouble = Some(error);
                Err(outcome)
            }
        };
        ProcessEvent::Done { call, result }
    }

    fn publish(&mut self) {
        let view = self.core.group().view();
        let round = view.vars.map(|vars| vars.round);
        if let Some(round) = round.filter(|round| self.round.replace(*round) != Some(*round)) {
            info!(election = %self.election, ?round, "rounds last this long");
        }
        self.group_status.send_if_modified(|group_status| {
            let changed = group_status.view != view;
            group_status.view = view;
            changed
        });
    }
}

/// Waits for the answer to the call under way, and takes the call.
async fn answered(slot: &mut Option<Call>) -> (CallId, Result<Reply, StoreError>) {
    let Some(call) = slot else { return std::future::pending().await };
    let (id, result) = (call.id, call.answer.as_mut().await);
    *slot = None;
    (id, result)
}
