//! One process of the model: the real candidate, what its driver knows, its work, and its calls.

use primacy_core::lease::{CallError, CallId, Candidate, Config, Context, Effect, Event, Reply, Request, Version};
use primacy_core::{CandidateId, Instant, Label, Token};

use super::setup::Setup;

/// What a step did that no step may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wrong {
    /// It leads with a token that is not above all that led before.
    OldToken,
    /// It leads without an acquire that was answered, or with a longer belief than that gives.
    Unfounded,
    /// It leads, or gives the lease back, while its work still runs.
    WorkRuns,
    /// It has two calls under way.
    TwoCalls,
    /// It wants to be woken in the past although it has just been.
    HotLoop,
}

/// A call under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub(super) id: CallId,
    pub(super) request: Request,
    pub(super) sent_at: Instant,
    deadline: Instant,
    /// It may take until any later tick.
    pub(super) slow: bool,
    /// The store's answer, under way.
    pub(super) reply: Option<Reply>,
}

/// A leadership as the driver publishes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Belief {
    pub(super) token: Token,
    pub(super) until: Instant,
}

/// The work of a leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Work {
    Running,
    Told,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    /// `None`: killed.
    pub(super) candidate: Option<Candidate>,
    pub(super) index: u8,
    /// Its clock's rate, and the tick at which it stood at zero.
    rate: u64,
    born: u8,
    incarnation: u8,
    /// It was told of the shorter lease.
    pub(super) retimed: bool,
    pub(super) stopped: bool,
    pub(super) belief: Option<Belief>,
    pub(super) work: Option<Work>,
    pub(super) call: Option<Call>,
    /// Requests that nobody waits for and that may still be carried out.
    pub(super) limbo: Vec<Request>,
    /// A call of this process ended with an unknown outcome.
    pub(super) doubted: bool,
    /// The highest version that an answer told it of in time.
    pub(super) known: Version,
    pub(super) wrong: Option<Wrong>,
}

pub(super) fn label(index: u8) -> Label {
    Label::new(["a", "b", "c", "d"][usize::from(index)]).expect("a letter is a valid label")
}

impl Node {
    pub(super) fn new(setup: &Setup, index: u8, rate: u64) -> Self {
        Self {
            candidate: Some(newcomer(setup, index, 0)),
            index,
            rate,
            born: 0,
            incarnation: 0,
            retimed: false,
            stopped: false,
            belief: None,
            work: None,
            call: None,
            limbo: Vec::new(),
            doubted: false,
            known: Version::default(),
            wrong: None,
        }
    }

    pub(super) fn now(&self, tick: u8) -> Instant {
        Instant::from_nanos(u64::from(tick - self.born) * self.rate * 1_000_000)
    }

    pub(super) fn believes(&self, tick: u8) -> bool {
        self.belief.is_some_and(|belief| self.now(tick) < belief.until)
    }

    /// The candidate, if it lives and is not stopped.
    pub(super) fn awake(&self) -> Option<&Candidate> {
        self.candidate.as_ref().filter(|_| !self.stopped)
    }

    pub(super) fn is_due(&self, tick: u8) -> bool {
        self.awake().and_then(Candidate::deadline).is_some_and(|deadline| deadline <= self.now(tick))
    }

    /// Hands an event to the candidate and does what it says. The highest token that ever led is kept in `led`.
    pub(super) fn handle(&mut self, event: Event, tick: u8, led: &mut Token) {
        let now = self.now(tick);
        let granted = match &event {
            Event::Done { result: Ok(Reply::Applied(record)), .. } => Some((record.version.token, record.lease)),
            _ => None,
        };
        let answered = self.call.take_if(|_| matches!(event, Event::Done { .. }));
        let Some(candidate) = &mut self.candidate else { return };
        let mut effects = Vec::new();
        candidate.handle(event, &mut Context { now, entropy: &mut || 0, effects: &mut effects });
        if candidate.deadline().is_some_and(|deadline| deadline <= now) {
            self.wrong = Some(Wrong::HotLoop);
        }
        let timing = candidate.config().timing;
        for effect in effects {
            match effect {
                Effect::Call { call, request, deadline } => self.send(call, request, now, deadline),
                Effect::Abandon { .. } => self.abandon(),
                Effect::Lead { token, until, .. } => {
                    let founded = answered.as_ref().is_some_and(|call| {
                        matches!(call.request, Request::Acquire { .. })
                            && granted.is_some_and(|(granted, lease)| {
                                granted == token && until <= call.sent_at + timing.believed_of(lease)
                            })
                    });
                    self.wrong = self.wrong.or(match () {
                        () if self.work.is_some() => Some(Wrong::WorkRuns),
                        () if token <= *led => Some(Wrong::OldToken),
                        () if !founded => Some(Wrong::Unfounded),
                        () => None,
                    });
                    *led = token.max(*led);
                    self.belief = Some(Belief { token, until });
                    self.work = Some(Work::Running);
                }
                Effect::Extend { until, .. } => {
                    if let Some(belief) = &mut self.belief {
                        belief.until = until;
                    }
                }
                Effect::Drain { .. } => self.work = self.work.map(|_| Work::Told),
                Effect::End { .. } => {
                    self.belief = None;
                    self.work = self.work.map(|_| Work::Told);
                }
                Effect::Stopped => {}
            }
        }
    }

    fn send(&mut self, id: CallId, request: Request, sent_at: Instant, deadline: Instant) {
        if self.call.is_some() {
            self.wrong = Some(Wrong::TwoCalls);
        }
        if matches!(request, Request::Release { .. }) && self.work.is_some() {
            self.wrong = Some(Wrong::WorkRuns);
        }
        self.call = Some(Call { id, request, sent_at, deadline, slow: false, reply: None });
    }

    /// Nobody waits for the call any more; if the store has not carried it out, it may still do so.
    fn abandon(&mut self) {
        self.limbo.extend(self.call.take().filter(|call| call.reply.is_none()).map(|call| call.request));
    }

    pub(super) fn answer(&mut self, tick: u8, led: &mut Token) {
        let now = self.now(tick);
        let Some(call) = &mut self.call else { return };
        let Some(reply) = call.reply.take() else { return };
        let (id, in_time) = (call.id, now < call.deadline);
        let seen = match &reply {
            Reply::Applied(record) => Some(record.version),
            Reply::Seen(sighting) | Reply::Conflict(sighting) => sighting.record.as_ref().map(|record| record.version),
            Reply::Left => None,
        };
        self.known = self.known.max(seen.filter(|_| in_time).unwrap_or_default());
        self.handle(Event::Done { call: id, result: Ok(reply) }, tick, led);
    }

    pub(super) fn fail(&mut self, error: CallError, tick: u8, led: &mut Token) {
        let Some(id) = self.call.as_ref().map(|call| call.id) else { return };
        if error == CallError::Unknown {
            self.doubted = true;
            if let Some(call) = self.call.as_ref().filter(|call| call.reply.is_none()) {
                self.limbo.push(call.request.clone());
            }
        }
        self.handle(Event::Done { call: id, result: Err(error) }, tick, led);
    }

    /// The process and all its work are dead.
    pub(super) fn crash(&mut self) {
        self.abandon();
        self.candidate = None;
        self.belief = None;
        self.work = None;
        self.stopped = false;
        self.doubted = false;
        self.known = Version::default();
    }

    /// Another process with the same label and an identity of its own.
    pub(super) fn restart(&mut self, setup: &Setup, tick: u8, led: &mut Token) {
        self.incarnation += 1;
        self.born = tick;
        self.retimed = false;
        self.candidate = Some(newcomer(setup, self.index, self.incarnation));
        self.handle(Event::Campaign, tick, led);
    }
}

fn newcomer(setup: &Setup, index: u8, incarnation: u8) -> Candidate {
    let id = CandidateId::from_bits(u128::from(incarnation) << 8 | u128::from(index + 1));
    let mut config = Config::new(id, label(index), setup.timing(usize::from(index), false));
    config.flaw = setup.flaw;
    // Slots are far below a tick, and states that differ in how long looks took would be many.
    config.measures_slot = false;
    Candidate::new(config)
}
