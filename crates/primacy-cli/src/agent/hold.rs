//! One hold: a program that waits for a leadership, has it, and gives it back. What is decided is decided by
//! [`hold::Hold`](primacy_core::hold); here are the candidate, the connection and the clock.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use primacy::store::{EndReason, Holder, Why};
use primacy::{
    Candidate, CandidateConfig, ElectionName, Instant, Label, Leadership, Phase, Status, StopReason, Timing, Token,
    clock,
};
use primacy_core::hold::{Cause, Context, Effect, Event, Hold, HoldStage, News, Span};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::proof::Proof;
use super::rights::Caller;
use super::{Agent, Refusal, election};
use crate::agent_wire::{
    Channel, ElectedFrame, Frame, HoldFrame, HoldRequest, LeaderFrame, ProofKind, RefusalCode, Said, TokenText,
    WaitState, WaitingFrame,
};
use crate::sleep::sleep_until;
use crate::standing::{CandidateSource, CandidateState, CurrentLeadership};

/// A program that waits and does not read is hung up on after two leases, and not before this.
const PATIENCE_LEAST: Duration = Duration::from_secs(10);

/// Which part of a lease the program's clock may be behind, as far as the agent knows.
const SLACK_SHARE: u32 = 10;

/// How many more frames a program may send than two for each that it was told.
const SURPLUS: u64 = 64;

/// How many frames that have come are heard before something is done because of the time.
const HEARD_FIRST: usize = 64;

/// Serves a program that wants to hold a leadership, until nothing is left of it.
///
/// # Errors
/// Why it may not, or cannot. Then there never was a candidate, or it has withdrawn.
pub(super) async fn serve(
    agent: &Rc<Agent>,
    request: HoldRequest,
    slack: Duration,
    caller: Caller,
    channel: Channel,
) -> Result<(), (Channel, Refusal)> {
    let prepared = prepare(agent, &request, slack, &caller, &channel);
    let Prepared { candidate, election, label, proof, timing } = match prepared {
        Ok(prepared) => prepared,
        Err(refusal) => return Err((channel, refusal)),
    };
    let number = agent.enter(HoldFrame {
        election: request.election.clone(),
        name: label.as_str().to_owned(),
        pid: caller.pid,
        uid: caller.uid,
        standing: "waits".into(),
        token: None,
        deadline_ns: None,
        proof: request.proof,
    });
    let (led, leads) = watch::channel(None);
    let told = CandidateSource::new(&election, &label, CandidateState::of(&candidate), leads);
    agent.candidates.enter(number, Arc::new(told));
    let patience = PATIENCE_LEAST.max(timing.lease() * 2);
    let mut served = Served {
        agent: Rc::clone(agent),
        number,
        core: Hold::new(patience, clock::now()),
        who: format!("{label} (process {})", caller.pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string())),
        election: request.election,
        status: candidate.status(),
        candidate,
        channel: Some(channel),
        proof,
        is_proven: request.proof == ProofKind::None,
        guard: None,
        led,
        told: watch::Sender::new(Instant::ZERO),
        waiting: None,
        slack,
        timing,
        is_writable: true,
        frames: (0, 0),
        now: clock::now(),
    };
    served.run().await;
    Ok(())
}

/// What must be so before there is a candidate.
fn prepare(
    agent: &Agent,
    request: &HoldRequest,
    slack: Duration,
    caller: &Caller,
    channel: &Channel,
) -> Result<Prepared, Refusal> {
    let election = election(&request.election)?;
    let rule = agent.rule(&election)?;
    if !rule.may_hold(caller) {
        return Err(Refusal::not_allowed(caller, "hold", &election));
    }
    if slack > rule.timing.lease() / SLACK_SHARE {
        let why = "the program took too long to say what its clock says, or that is behind: try again";
        return Err(Refusal::new(RefusalCode::Busy, why));
    }
    let label = request.name.clone().map(Label::new).transpose();
    let label = label.map_err(|error| Refusal::malformed(format!("name: {error}")))?;
    let label = label.unwrap_or_else(|| agent.name.clone());
    let proof =
        Proof::of(request.proof, channel.stream(), caller).map_err(|why| Refusal::new(RefusalCode::Proof, why))?;
    let mut config = CandidateConfig::new(label.clone());
    config.timing = rule.timing;
    config.data = request.data.clone().unwrap_or_default();
    if config.data.len() > crate::cli::DATA_BYTES_MAX {
        return Err(Refusal::malformed(format!("data has more than {} bytes", crate::cli::DATA_BYTES_MAX)));
    }
    let of_fleet = agent.fleet.election(election.as_str()).map_err(|error| Refusal::malformed(error.to_string()))?;
    let candidate =
        of_fleet.campaign_with(config).map_err(|error| Refusal::new(RefusalCode::Unavailable, error.to_string()))?;
    Ok(Prepared { candidate, election, label, proof, timing: rule.timing })
}

/// A hold that may begin.
struct Prepared {
    candidate: Candidate,
    election: ElectionName,
    label: Label,
    proof: Proof,
    timing: Timing,
}

struct Served {
    agent: Rc<Agent>,
    number: u64,
    core: Hold,
    /// For the log.
    who: String,
    election: String,
    candidate: Candidate,
    status: watch::Receiver<Status>,
    /// `None`: the connection has ended.
    channel: Option<Channel>,
    proof: Proof,
    /// Nothing more is awaited of the proof.
    is_proven: bool,
    guard: Option<Guard>,
    /// The leadership, for those who ask over HTTP.
    led: watch::Sender<Option<CurrentLeadership>>,
    /// When the program stops by what it was told.
    told: watch::Sender<Instant>,
    /// What it was told last while it waited.
    waiting: Option<Waiting>,
    /// How far the program's clock may be behind. What it is told is so much earlier.
    slack: Duration,
    timing: Timing,
    /// Whether it can still be told something. What it has said before is heard to its end.
    is_writable: bool,
    /// How many frames it was told, and how many it has sent.
    frames: (u64, u64),
    /// The last good reading of the clock.
    now: Instant,
}

/// A leadership that the program has, or may believe in.
struct Guard {
    phases: watch::Receiver<Phase>,
    deadline: Instant,
    leadership: Leadership,
}

/// How a candidate waits, as it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Waiting {
    position: Option<u32>,
    leader: Option<(Holder, Token)>,
    why: String,
    state: Option<WaitState>,
    successor: Option<String>,
    trouble: Option<String>,
}

impl Waiting {
    fn of(status: &Status) -> Option<Self> {
        let Status::Waiting { why, leader, standing, trouble, .. } = status else { return None };
        let position = standing.map(|standing| standing.ahead.saturating_add(1));
        let trouble = trouble.as_ref().map(|trouble| crate::secret::without(&trouble.error.to_string()));
        let (state, successor) = match why {
            Why::Reserved { successor } => (WaitState::of(why), Some(successor.as_str().to_owned())),
            _ => (WaitState::of(why), None),
        };
        let mut why = format!("this candidate {why}");
        if let Some(trouble) = &trouble {
            why = format!("{why}: {trouble}");
        }
        Some(Self { position, leader: leader.clone(), why, state, successor, trouble })
    }
}

/// What woke the task of a hold.
enum Woken {
    Event(Event),
    Phase(bool),
    Elected(Leadership),
    Stopped(StopReason),
    Status,
    Ending,
    Due,
}

impl Served {
    async fn run(&mut self) {
        let mut is_ending = self.agent.ending.clone();
        let mut ends = false;
        self.waiting = Waiting::of(&self.status.borrow_and_update());
        self.step(Event::Moved);
        loop {
            let due = self.core.deadline();
            let is_connected = self.channel.is_some();
            let woken = tokio::select! {
                biased;
                () = self.proof.proven(), if !self.is_proven => {
                    self.is_proven = true;
                    Woken::Event(Event::Proven)
                }
                goes_on = changed(&mut self.guard), if self.core.stage() != Some(HoldStage::Ended) => Woken::Phase(goes_on),
                elected = self.candidate.elected(), if self.guard.is_none() => match elected {
                    Ok(leadership) => Woken::Elected(leadership),
                    Err(reason) => Woken::Stopped(reason),
                },
                // One whose sender has gone is told by the end of the candidate.
                Ok(()) = self.status.changed(), if self.guard.is_none() => Woken::Status,
                ending = is_ending.wait_for(|ends| *ends), if !ends => {
                    drop(ending);
                    Woken::Ending
                }
                () = sleep_until(due) => Woken::Due,
                event = said(&mut self.channel), if is_connected => Woken::Event(event),
            };
            if matches!(woken, Woken::Due | Woken::Phase(_)) {
                // After this process stood still, answers lie here that have come in time.
                self.hear_what_has_come().await;
            }
            match woken {
                Woken::Event(event) => self.step(event),
                Woken::Phase(goes_on) => self.hear_phase(goes_on),
                Woken::Elected(leadership) => self.elected(leadership),
                Woken::Stopped(reason) => {
                    self.stopped(&reason, ends);
                    break;
                }
                Woken::Status => self.hear_status(),
                Woken::Ending => {
                    ends = true;
                    // A leader's work is told to stop, and one that waits withdraws.
                    self.candidate.handle().shutdown();
                }
                Woken::Due => self.step(Event::Wake),
            }
        }
    }

    /// Handles what the program has said by now.
    async fn hear_what_has_come(&mut self) {
        tokio::task::yield_now().await;
        for _ in 0..HEARD_FIRST {
            if self.channel.is_none() {
                return;
            }
            let event = tokio::select! {
                biased;
                event = said(&mut self.channel) => event,
                () = std::future::ready(()) => return,
            };
            self.step(event);
        }
    }

    fn step(&mut self, event: Event) {
        // A clock that cannot be read proves that no deadline has passed.
        self.now = Some(clock::now()).filter(|now| *now < Instant::FAR).unwrap_or(self.now);
        if matches!(event, Event::Read(_) | Event::Stopped(_)) {
            self.frames.1 += 1;
            if self.frames.1 > self.frames.0 * 2 + SURPLUS {
                warn!(election = %self.election, "{} says more than it was asked: its connection ends", self.who);
                self.channel = None;
            }
        }
        let mut effects = Vec::new();
        self.core.handle(event, &mut Context { now: self.now, effects: &mut effects });
        for effect in effects {
            match effect {
                Effect::Tell(number, news) => self.tell(number, &news),
                Effect::HangUp => {
                    warn!(election = %self.election, "{} does not read: its connection ends", self.who);
                    self.channel = None;
                }
                Effect::Withdraw => {
                    self.channel = None;
                    // It cannot be told to stop: nobody is to be sent to it.
                    self.led.send_replace(None);
                    self.candidate.handle().shutdown();
                }
                Effect::Release(cause) => self.give_back(cause),
            }
        }
        if self.channel.is_none() && self.core.is_connected() {
            return self.step(Event::Disconnected);
        }
        self.publish();
    }

    /// Nothing is worked by the leadership any more.
    fn give_back(&mut self, cause: Cause) {
        self.waiting = None;
        self.led.send_replace(None);
        let Some(Guard { leadership, .. }) = self.guard.take() else { return };
        let (election, token) = (&self.election, leadership.token());
        match cause {
            Cause::Stopped => info!(%election, %token, "{} has stopped: the leadership is given back", self.who),
            Cause::Dead => info!(%election, %token, "{} is dead: the leadership is given back", self.who),
            Cause::Passed => info!(%election, %token, "the deadline of {} has passed", self.who),
            Cause::NeverTold => debug!(%election, %token, "{} had gone before it was elected", self.who),
        }
        if cause == Cause::Dead {
            leadership.died();
        }
    }

    fn elected(&mut self, leadership: Leadership) {
        let mut phases = leadership.phases();
        let phase = phases.borrow_and_update().clone();
        let Phase::Leading { until, timing, .. } = phase else {
            // It is over before the program has heard of it: nobody works.
            return drop(leadership);
        };
        let span = Span { stop_at: timing.stop_at(until), deadline: until };
        if clock::now() >= span.stop_at - self.slack {
            // It would have to stop at once: nobody was told, and nobody works.
            return drop(leadership);
        }
        let token = leadership.token();
        self.told.send_replace(span.stop_at - self.slack);
        let (phases_told, told) = (leadership.phases(), self.told.subscribe());
        self.led.send_replace(Some(CurrentLeadership { token, phases: phases_told, told: Some(told) }));
        self.guard = Some(Guard { phases, deadline: until, leadership });
        info!(election = %self.election, %token, "{} leads", self.who);
        self.step(Event::Elected { token, span });
    }

    /// The leadership has another phase, or there will be none any more.
    fn hear_phase(&mut self, goes_on: bool) {
        let Some(guard) = &mut self.guard else { return };
        let phase = guard.phases.borrow_and_update().clone();
        let event = match phase {
            Phase::Ended { reason } => Event::Ended(reason),
            _ if !goes_on => Event::Ended(EndReason::Expired),
            Phase::Leading { until, timing, .. } => {
                guard.deadline = until;
                Event::Extended(Span { stop_at: timing.stop_at(until), deadline: until })
            }
            Phase::Draining { reason, by } => Event::Draining { reason, by },
            // Of phases that follow each other closely only the last is seen.
            Phase::Overdue { reason } if self.core.stage() == Some(HoldStage::Leading) => {
                Event::Draining { reason, by: clock::now() }
            }
            _ => return,
        };
        self.step(event);
    }

    fn hear_status(&mut self) {
        let waiting = Waiting::of(&self.status.borrow_and_update());
        if waiting.is_some() && waiting != self.waiting {
            self.waiting = waiting;
            self.step(Event::Moved);
        }
    }

    /// The candidate takes no part any more.
    fn stopped(&mut self, reason: &StopReason, ends: bool) {
        if let Some(channel) = self.channel.take() {
            let refusal = match reason {
                StopReason::Withdrawn if ends => Refusal::new(RefusalCode::Ending, "the agent ends"),
                reason => Refusal::new(RefusalCode::Unavailable, reason.to_string()),
            };
            if !matches!(reason, StopReason::Withdrawn) {
                warn!(election = %self.election, %reason, "{} is no candidate any more", self.who);
            }
            refusal.tell(&channel);
        }
    }

    fn tell(&mut self, number: u64, news: &News) {
        let frame = self.frame(number, news);
        self.frames.0 += 1;
        let Some(channel) = self.channel.as_ref().filter(|_| self.is_writable) else { return };
        match channel.tell(&frame) {
            Ok(()) => {}
            // It leaves everything unread.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => self.channel = None,
            Err(_) => self.is_writable = false,
        }
    }

    fn frame(&mut self, n: u64, news: &News) -> Frame {
        match news {
            News::Waiting => {
                let waiting = Waiting::of(&self.status.borrow_and_update());
                self.waiting.clone_from(&waiting);
                let told = waiting.unwrap_or(Waiting {
                    position: None,
                    leader: None,
                    why: "this candidate asks anew".to_owned(),
                    state: Some(WaitState::Asking),
                    successor: None,
                    trouble: None,
                });
                let leader = told
                    .leader
                    .as_ref()
                    .map(|(who, token)| LeaderFrame { name: who.label.as_str().to_owned(), token: TokenText(*token) });
                let Waiting { position, why, state, successor, trouble, .. } = told;
                Frame::Waiting(WaitingFrame { n, position, leader, why, state, successor, trouble })
            }
            News::Elected { token, span } => {
                let (stop_ns, deadline_ns) = (self.point(span.stop_at), self.point(span.deadline));
                let lease_ms = self.timing.lease().as_nanos().div_ceil(1_000_000);
                let lease_ms = u64::try_from(lease_ms).unwrap_or(u64::MAX);
                let grace_ms = u64::try_from(self.timing.grace().as_millis()).unwrap_or(u64::MAX);
                let token = TokenText(*token);
                Frame::Elected(ElectedFrame { n, token, stop_ns, deadline_ns, lease_ms, grace_ms })
            }
            News::Extended { token, span } => {
                self.told.send_replace(span.stop_at - self.slack);
                let (stop_ns, deadline_ns) = (self.point(span.stop_at), self.point(span.deadline));
                Frame::Extended { n, token: TokenText(*token), stop_ns, deadline_ns }
            }
            News::Draining { token, reason, by } => {
                info!(election = %self.election, %token, %reason, "{} must stop", self.who);
                let by_ns = self.point(*by);
                Frame::Draining { n, token: TokenText(*token), end: reason.into(), by_ns }
            }
            News::Lost { token, reason } => {
                info!(election = %self.election, %token, %reason, "{} leads no more", self.who);
                Frame::Lost { n, token: TokenText(*token), end: reason.into() }
            }
        }
    }

    /// A point as the program is told it: by the program's clock it comes no later.
    fn point(&self, at: Instant) -> u64 {
        clock::to_boot_nanos(at - self.slack)
    }

    /// How it stands, for those who ask the agent.
    fn publish(&self) {
        let token = self.core.token();
        let standing = match (&self.guard, token, self.core.is_connected()) {
            (_, None, _) => "waits",
            (_, Some(_), false) => "ends",
            (Some(guard), Some(_), true) if guard.phases.borrow().stop_reason().is_none() => "leads",
            _ => "draining",
        };
        let deadline = self.guard.as_ref().map(|guard| clock::to_boot_nanos(guard.deadline));
        self.agent.note(self.number, standing, token, deadline);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.agent.leave(self.number);
    }
}

/// What the program says next, or that it has gone. What it says and must not say ends the connection.
async fn said(channel: &mut Option<Channel>) -> Event {
    let Some(open) = channel else { return std::future::pending().await };
    let line = open.next().await;
    match line.ok().flatten().and_then(|line| serde_json::from_slice::<Said>(&line).ok()) {
        Some(Said::Read { n }) => Event::Read(n),
        Some(Said::Stopped { token }) => Event::Stopped(token.0),
        None => {
            *channel = None;
            Event::Disconnected
        }
    }
}

/// Returns at the next phase of the leadership; `false` if there will be none.
async fn changed(guard: &mut Option<Guard>) -> bool {
    match guard {
        Some(guard) => guard.phases.changed().await.is_ok(),
        None => std::future::pending().await,
    }
}
