//! The two threads of one process in the `registers` protocol, for all of its candidates in one election: one joins, beats and
//! surveys, the other runs the candidates, however many they are.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use primacy_core::lease::{CallId, Sighting, Standing};
use primacy_core::registers::{
    self, Candidacy, Context, Effect, Event, Eviction, Group, ProcessId, Reply, Request, Rounds,
};
use primacy_core::select::FailBack;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use crate::clock::{self, Stride, SuspendWatch};
use crate::line::sleep_until;
use crate::opener::{CallTime, Opener};
use crate::store::{BoxFuture, Registry, Store, StoreError};
use crate::{CandidateId, ElectionName, Instant, Timing, Token};

/// What a candidate asks of its group.
#[derive(Debug)]
pub(crate) enum ToGroup {
    /// It takes part. Whatever concerns it is told there.
    Enter { candidacy: Candidacy, outbox: mpsc::UnboundedSender<FromGroup> },
    /// It publishes something else about itself.
    Publish { candidacy: Candidacy },
    /// It wants to see the record.
    Look,
    /// It leads; `chosen` by an operator.
    Leads { id: CandidateId, token: Token, chosen: bool },
    /// It leads no more.
    LeadEnded { id: CandidateId },
    /// It takes part no more. Answered by [`FromGroup::Left`].
    Leave { id: CandidateId },
}

/// What a group tells a candidate.
#[derive(Clone, Debug)]
pub(crate) enum FromGroup {
    /// The record, asked for at that time.
    Seen { sighting: Sighting, asked_at: Instant },
    /// The store gave no answer to what was asked for at that time.
    NotSeen { error: StoreError, asked_at: Instant },
    /// Where it stands.
    Placed(Standing),
    /// How long rounds are now.
    Round(std::time::Duration),
    /// A better candidate is there: it is to resign from the leadership with this token.
    MakeWay { token: Token },
    /// Nothing of it is left in the store, or it can be left to be evicted.
    Left,
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
    pub(crate) commands: mpsc::UnboundedSender<ToGroup>,
    drivers: mpsc::UnboundedSender<BoxFuture<'static, ()>>,
    membership: watch::Receiver<Membership>,
    /// For a candidate in reserve that asks for the lease: one at a time.
    door: Arc<Semaphore>,
}

/// How the process of a candidate takes part in the `registers` protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// What it knows of itself and the rounds.
    pub view: registers::View,
    /// How often it was evicted although it lived.
    pub evictions: u64,
    /// Why it was evicted the last time, if that is known.
    pub last_eviction: Option<Eviction>,
}

impl Handle {
    /// What the group knows.
    pub(crate) fn membership(&self) -> watch::Receiver<Membership> {
        self.membership.clone()
    }

    /// Through here whoever is in reserve goes to the store by itself. Where nobody leads and all in line are dead, a hundred
    /// candidates of one process that opened a connection each would keep the other processes out, and have nothing before
    /// them by that.
    pub(crate) fn door(&self) -> Arc<Semaphore> {
        Arc::clone(&self.door)
    }

    /// Runs a candidate until it ends. Where that thread has gone, the candidate is dropped, which says that it has ended.
    pub(crate) fn drive(&self, candidate: BoxFuture<'static, ()>) {
        let _ = self.drivers.send(candidate);
    }

    /// Tells it. A group whose thread has gone tells its candidates by closing their channels.
    pub(crate) fn tell(&self, command: ToGroup) {
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
    let (drivers, candidates) = mpsc::unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let house = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let config = registers::Config {
        // R5: random, and new for every group.
        process: ProcessId::from_bits(rand::random()),
        rounds: settings.rounds,
        fail_back: settings.fail_back,
    };
    let core = Group::new(config);
    let first = Membership { view: core.view(), evictions: 0, last_eviction: None };
    let (membership_outbox, membership) = watch::channel(first);
    let driver = GroupDriver {
        core,
        rounds: settings.rounds,
        store,
        election,
        wire: Arc::default(),
        call: None,
        candidates: Vec::new(),
        leaving: BTreeMap::new(),
        trouble: None,
        membership: membership_outbox,
    };
    std::thread::Builder::new().name("primacy-group".into()).spawn(move || {
        let mut driver = driver;
        runtime.block_on(driver.run(inbox));
    })?;
    std::thread::Builder::new().name("primacy-drivers".into()).spawn(move || house.block_on(drive(candidates)))?;
    Ok(Handle { commands, drivers, membership, door: Arc::new(Semaphore::new(1)) })
}

/// Runs all candidates that come, and ends after the last one. One that panics takes no other with it.
async fn drive(mut candidates: mpsc::UnboundedReceiver<BoxFuture<'static, ()>>) {
    let mut running = JoinSet::new();
    let mut open = true;
    while open || !running.is_empty() {
        tokio::select! {
            candidate = candidates.recv(), if open => match candidate {
                Some(candidate) => {
                    running.spawn(candidate);
                }
                None => open = false,
            },
            Some(_) = running.join_next() => {}
        }
    }
}

struct GroupDriver {
    core: Group,
    rounds: Rounds,
    store: Arc<dyn Store>,
    election: ElectionName,
    /// Locked by the call under way, of which there is one at most.
    wire: Arc<tokio::sync::Mutex<Wire>>,
    call: Option<Call>,
    /// In the order in which they came.
    candidates: Vec<Entry>,
    /// Those that wait to hear that nothing of them is left.
    leaving: BTreeMap<CandidateId, mpsc::UnboundedSender<FromGroup>>,
    /// What the store last said instead of an answer.
    trouble: Option<StoreError>,
    membership: watch::Sender<Membership>,
}

struct Entry {
    candidacy: Candidacy,
    outbox: mpsc::UnboundedSender<FromGroup>,
}

struct Call {
    id: CallId,
    /// Those whom this call leaves out: once it is answered, nothing of them is left.
    leaving: BTreeMap<CandidateId, mpsc::UnboundedSender<FromGroup>>,
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
    async fn run(&mut self, mut inbox: mpsc::UnboundedReceiver<ToGroup>) {
        let mut suspend = SuspendWatch::start();
        let mut events = VecDeque::new();
        let mut open = true;
        loop {
            match suspend.check() {
                Stride::Steady => {}
                Stride::Slept(_) => events.push_front(Event::Suspended),
                // Nothing that a group says is needed for safety; its candidates stop by themselves.
                Stride::Backwards => return,
            }
            while let Some(event) = events.pop_front() {
                self.handle(event);
            }
            self.publish();
            if !open && self.candidates.is_empty() && self.leaving.is_empty() && self.call.is_none() {
                return;
            }
            let wake = self.core.deadline();
            tokio::select! {
                biased;
                command = inbox.recv(), if open => match command {
                    Some(command) => events.extend(self.obey(command)),
                    None => {
                        open = false;
                        self.candidates.clear();
                        events.push_back(Event::Candidates(Vec::new()));
                    }
                },
                (call, result) = answered(&mut self.call) => {
                    events.push_back(self.note_answer(call, result));
                }
                () = sleep_until(wake, false) => events.push_back(Event::Wake),
            }
        }
    }

    fn obey(&mut self, command: ToGroup) -> Option<Event> {
        match command {
            ToGroup::Enter { candidacy, outbox } => {
                if let Some(vars) = self.core.view().vars {
                    // A candidate that has gone already will leave.
                    let _ = outbox.send(FromGroup::Round(vars.round));
                }
                self.candidates.push(Entry { candidacy, outbox });
                Some(self.candidacies())
            }
            ToGroup::Publish { candidacy } => {
                let entry = self.candidates.iter_mut().find(|entry| entry.candidacy.id == candidacy.id)?;
                entry.candidacy = candidacy;
                Some(self.candidacies())
            }
            ToGroup::Look => Some(Event::Look),
            ToGroup::Leads { id, token, chosen } => Some(Event::Leads { holder: id, token, chosen }),
            ToGroup::LeadEnded { id } => Some(Event::LeadEnded { holder: id }),
            ToGroup::Leave { id } => {
                let index = self.candidates.iter().position(|entry| entry.candidacy.id == id)?;
                let entry = self.candidates.remove(index);
                self.leaving.insert(id, entry.outbox);
                Some(self.candidacies())
            }
        }
    }

    fn candidacies(&self) -> Event {
        Event::Candidates(self.candidates.iter().map(|entry| entry.candidacy.clone()).collect())
    }

    fn handle(&mut self, event: Event) {
        let mut effects = Vec::new();
        let mut entropy = || rand::random::<u64>();
        // R1: taken once, before anything is sent.
        let now = clock::now();
        self.core.handle(event, &mut Context { now, entropy: &mut entropy, effects: &mut effects });
        for effect in effects {
            debug!(?effect, "effect");
            self.carry_out(effect, now);
        }
    }

    fn carry_out(&mut self, effect: Effect, now: Instant) {
        match effect {
            Effect::Call { call, request, deadline } => {
                let lease = self.rounds.lease(self.rounds.round());
                let opening = Timing::opening_timeout_of(lease);
                self.send(call, request, CallTime { asked_at: now, deadline, opening });
            }
            // R8: dropping the call drops its connection with it, unless that is still being opened.
            Effect::Abandon { .. } => {
                self.leaving.extend(self.call.take().map(|call| call.leaving).unwrap_or_default());
                self.trouble = Some(StoreError::Unknown(format!("{}: no answer in time", self.store.location())));
            }
            Effect::Seen { sighting, asked_at } => self.tell_all(&FromGroup::Seen { sighting, asked_at }),
            Effect::NotSeen { error, asked_at } => {
                let error = self.trouble.clone().unwrap_or_else(|| match error {
                    registers::CallError::NotDone => StoreError::Unreachable(self.store.location()),
                    registers::CallError::Unknown => StoreError::Unknown(self.store.location()),
                });
                self.tell_all(&FromGroup::NotSeen { error, asked_at });
            }
            Effect::Placed { standings } => {
                for (id, standing) in standings {
                    self.tell(id, FromGroup::Placed(standing));
                }
            }
            Effect::Round { round } => {
                info!(election = %self.election, ?round, "rounds last this long");
                self.tell_all(&FromGroup::Round(round));
            }
            Effect::Evicted { eviction } => {
                let reason = eviction.as_ref().map_or("its register was removed".to_owned(), ToString::to_string);
                warn!(election = %self.election, %reason, "this process was evicted, and joins again");
                self.membership.send_modify(|membership| {
                    membership.evictions += 1;
                    membership.last_eviction = eviction;
                });
            }
            Effect::HandOver { holder, token, .. } => self.tell(holder, FromGroup::MakeWay { token }),
            Effect::Stopped => self.all_have_left(),
        }
    }

    fn send(&mut self, id: CallId, request: Request, time: CallTime) {
        let (store, election) = (Arc::clone(&self.store), self.election.clone());
        let wire = Arc::clone(&self.wire);
        let leaves_out = matches!(request, Request::Join { .. } | Request::Leave { .. });
        let leaving = if leaves_out { std::mem::take(&mut self.leaving) } else { BTreeMap::new() };
        let answer = Box::pin(async move {
            let mut wire = wire.lock().await;
            let mut registry = wire.take(&store, &election, time).await?;
            let reply = registry.round(request).await?;
            wire.opener.answered();
            // Only here: a connection that has failed once, or whose call was given up, is not used again (R8).
            wire.registry = Some(registry);
            Ok(reply)
        });
        self.call = Some(Call { id, leaving, answer });
    }

    fn note_answer(&mut self, call: Call, result: Result<Reply, StoreError>) -> Event {
        let Call { id, leaving, .. } = call;
        let result = match result {
            Ok(reply) => {
                if self.trouble.take().is_some() {
                    warn!(name: crate::status::TRANSITION, "the store answers again");
                }
                for outbox in leaving.into_values() {
                    let _ = outbox.send(FromGroup::Left);
                }
                Ok(reply)
            }
            Err(error) => {
                let outcome = error.outcome();
                self.leaving.extend(leaving);
                if self.trouble.is_none() {
                    let store = self.store.location();
                    warn!(name: crate::status::TRANSITION, %error, %store, "a round failed; trying again");
                }
                self.trouble = Some(error);
                Err(outcome)
            }
        };
        Event::Done { call: id, result }
    }

    fn publish(&self) {
        let view = self.core.view();
        self.membership.send_if_modified(|membership| {
            let changed = membership.view != view;
            membership.view = view;
            changed
        });
    }

    fn all_have_left(&mut self) {
        for outbox in std::mem::take(&mut self.leaving).into_values() {
            let _ = outbox.send(FromGroup::Left);
        }
    }

    fn tell(&self, id: CandidateId, what: FromGroup) {
        if let Some(entry) = self.candidates.iter().find(|entry| entry.candidacy.id == id) {
            // A candidate that has gone will leave.
            let _ = entry.outbox.send(what);
        }
    }

    fn tell_all(&self, what: &FromGroup) {
        for entry in &self.candidates {
            let _ = entry.outbox.send(what.clone());
        }
    }
}

/// Waits for the answer to the call under way, and takes the call.
async fn answered(slot: &mut Option<Call>) -> (Call, Result<Reply, StoreError>) {
    let Some(call) = slot else { return std::future::pending().await };
    let result = call.answer.as_mut().await;
    match slot.take() {
        Some(call) => (call, result),
        None => std::future::pending().await,
    }
}
