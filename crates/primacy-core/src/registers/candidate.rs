//! A candidate in the group of its process: the lease's own, whose looks the group's heartbeats answer.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::candidacy::Candidacy;
#[cfg(feature = "flaws")]
use super::group::Flaw;
use super::messages::{FromGroup, LinePosition, ToGroup};
use super::rounds::Rounds;
use crate::lease::{self, CallError, CallId, CandidatePhase, Effect, Event, Reply, Request, Sighting};
use crate::time::spread;
use crate::{Instant, TimingError, Token};

/// After how many looks without an answer from the group a candidate looks by itself: its own way to the store may be open.
/// Not sooner: hundreds that start at once wait longer than usual for their groups to get in, and a second connection for each
/// would keep them out.
const UNANSWERED_MOST: u32 = 8;

/// What a step of the state machine gets from outside.
pub struct CandidateContext<'a> {
    /// Now, on this process's clock.
    pub now: Instant,
    /// Random bits, for spreading load only: no promise depends on them.
    pub entropy: &'a mut dyn FnMut() -> u64,
    /// Where effects go, in order.
    pub effects: &'a mut Vec<CandidateEffect>,
}

/// Something to do. The order of a list of effects is binding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CandidateEffect {
    /// What the lease's candidate wants done; a call is for the store.
    Lease(Effect),
    /// Tell the group.
    Tell(ToGroup),
}

/// A candidate, alone or in the group of its process.
///
/// Around the lease's own [`Candidate`](lease::Candidate), which it hands every event and whose effects it passes on. Of those it
/// keeps two back from the store: a *look*, which the group's next heartbeat answers, and the *leaving*, which is the group's. In
/// reserve it holds a request for the lease until its turn has come. Alone, it passes on everything.
///
/// No safety depends on it. It may delay a look, or answer it with any record that the store has shown before; it makes no
/// record up, and of calls that can change the record it makes and changes none. It may delay one, whose time counts on, and
/// drops only what the lease has given up (see the design page on registers).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupCandidate {
    lease: lease::Candidate,
    group: Option<GroupState>,
}

/// What it knows of its group, and awaits from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GroupState {
    rounds: Rounds,
    candidacy: Candidacy,
    position: Option<LinePosition>,
    /// The call under way, to the store or to the group, and whether it is a look.
    call: Option<(CallId, bool)>,
    /// A look that the group is to answer, and since when.
    look: Option<(CallId, Instant)>,
    /// The request for the lease that waits for its turn.
    queued: Option<Effect>,
    /// The call that takes it out of the group.
    leave: Option<CallId>,
    /// Looks in a row that the group has not answered.
    unanswered: u32,
    /// A record asked for by then may be older than what the candidate knows already.
    settled_at: Instant,
    /// Heartbeats show it the record until then at the latest, so that it need not look.
    shown_until: Option<Instant>,
    withdrawn: bool,
    #[cfg(feature = "flaws")]
    flaw: Option<Flaw>,
}

impl GroupCandidate {
    /// A candidate that looks by itself.
    pub fn alone(config: lease::Config) -> Self {
        Self { lease: lease::Candidate::new(config), group: None }
    }

    /// A candidate of a process whose group knows it by this candidacy; it has yet to [enter](ToGroup::Enter).
    pub fn new(config: lease::Config, rounds: Rounds, candidacy: Candidacy) -> Self {
        // The others see the record once a round, and so may a successor.
        let config = lease::Config { others_hear_late: true, ..config };
        let group = GroupState {
            rounds,
            candidacy,
            position: None,
            call: None,
            look: None,
            queued: None,
            leave: None,
            unanswered: 0,
            settled_at: Instant::ZERO,
            shown_until: None,
            withdrawn: false,
            #[cfg(feature = "flaws")]
            flaw: None,
        };
        Self { lease: lease::Candidate::new(config), group: Some(group) }
    }

    /// The same, with this bug.
    #[cfg(feature = "flaws")]
    #[must_use]
    pub fn with_flaw(mut self, flaw: Option<Flaw>) -> Self {
        if let Some(group) = &mut self.group {
            group.flaw = flaw;
        }
        self
    }

    /// The lease's candidate.
    pub fn lease(&self) -> &lease::Candidate {
        &self.lease
    }

    /// When [`Event::Wake`] is due, if nothing else happens before.
    pub fn deadline(&self) -> Option<Instant> {
        self.lease.deadline()
    }

    /// Whether it is in reserve: it does not go to the store by itself but to ask for the lease, and one at a time of each
    /// process does.
    pub fn is_in_reserve(&self) -> bool {
        self.group.as_ref().is_some_and(|group| !group.is_in_line())
    }

    /// Whether it is to be told of changes. Who is in reserve is not, so that a release wakes a few and not all (HAZARDS 55),
    /// unless it leads or is about to give the lease back.
    pub fn listens(&self) -> bool {
        !self.is_in_reserve() || !matches!(self.lease.view().phase, CandidatePhase::Idle | CandidatePhase::Waiting)
    }

    /// Whether to resign from this leadership for a better candidate: while nobody may take it, or an operator says who
    /// shall, it is not given away.
    pub fn may_make_way(&self, token: Token) -> bool {
        let view = self.lease.view();
        #[cfg(feature = "flaws")]
        if self.has(Flaw::GivesAwayPaused) {
            return view.token.is_some();
        }
        view.token == Some(token) && !view.paused && view.handover.is_none()
    }

    /// Handles one event of the lease's candidate at the time of the context, and everything that is due by then.
    pub fn handle(&mut self, mut event: Event, cx: &mut CandidateContext<'_>) {
        let Some(group) = &mut self.group else { return self.pass(event, cx) };
        let withdraws = event == Event::Withdraw;
        match &mut event {
            Event::Prefer(rank) => {
                group.candidacy.rank = *rank;
                cx.effects.push(CandidateEffect::Tell(ToGroup::Publish(group.candidacy.clone())));
            }
            Event::Campaign => group.withdrawn = false,
            Event::Withdraw => (group.withdrawn, group.shown_until) = (true, None),
            Event::Done { call, result } => {
                group.ended(*call, result.is_ok(), cx.now);
                if let Ok(Reply::Seen(sighting) | Reply::Conflict(sighting)) = result {
                    group.place(sighting);
                }
            }
            _ => {}
        }
        self.step(event, None, cx);
        if withdraws && self.lease.may_look() {
            // What it may have left in the record is to be found now.
            self.step(Event::LookAt(cx.now), None, cx);
        }
    }

    /// Hears what the group says.
    ///
    /// # Errors
    /// When rounds are too long or too short for a lease to follow them: the lease stays as it is.
    pub fn hear(&mut self, said: FromGroup, cx: &mut CandidateContext<'_>) -> Result<(), TimingError> {
        let Some(group) = &mut self.group else { return Ok(()) };
        match said {
            FromGroup::Seen { sighting, asked_at } => self.shown(sighting, asked_at, cx),
            FromGroup::NotSeen { error, asked_at } => {
                if let Some(call) = group.take_look(asked_at) {
                    self.end_call(call, Err(error), cx);
                }
            }
            FromGroup::PositionChanged(position) => {
                let is_new_in_line = position.in_line && !group.is_in_line();
                group.position = Some(position);
                if position.in_line {
                    cx.effects.extend(group.queued.take().map(CandidateEffect::Lease));
                }
                // It is heard with a look: until then hints and a free lease find it at its old place. A look that the group is
                // to answer is about to be.
                if is_new_in_line && group.look.is_none() && self.lease.may_look() {
                    self.step(Event::LookAt(cx.now), None, cx);
                }
            }
            FromGroup::Round(round) => {
                let lease = group.rounds.lease(round);
                let timing = self.lease.config().timing.with_other_lease(lease)?;
                let until = cx.now + lease + timing.look_lag();
                group.shown_until = group.shown_until.map(|shown_until| shown_until.min(until));
                self.step(Event::SetTiming(timing), None, cx);
            }
            FromGroup::MakeWay { token } => {
                if self.may_make_way(token) {
                    self.step(Event::Resign, None, cx);
                }
            }
            FromGroup::Turn { call } => {
                // Not for one whose time is over.
                self.step(Event::Wake, None, cx);
                let queued = self.group.as_mut().and_then(|group| group.queued.take_if(|queued| is_call(queued, call)));
                cx.effects.extend(queued.map(CandidateEffect::Lease));
            }
            FromGroup::Left => {
                if let Some(call) = group.leave.take() {
                    self.end_call(call, Ok(Reply::Left), cx);
                }
            }
        }
        Ok(())
    }

    /// The group has ended, and says nothing any more: the candidate goes on by itself.
    pub fn leave_to_itself(&mut self, cx: &mut CandidateContext<'_>) {
        let Some(group) = self.group.take() else { return };
        cx.effects.extend(group.queued.map(CandidateEffect::Lease));
        if let Some((call, _)) = group.look {
            self.pass(Event::Done { call, result: Err(CallError::NotDone) }, cx);
        }
        if let Some(call) = group.leave {
            self.pass(Event::Done { call, result: Ok(Reply::Left) }, cx);
        }
        if let Some(until) = group.shown_until.filter(|_| self.lease.may_look()) {
            // Not all of a process at once.
            let soon = cx.now + spread(self.lease.config().timing.renew_every(), cx.entropy);
            self.pass(Event::LookAt(until.min(soon)), cx);
        }
    }

    /// The record, unasked or not. In line, a candidate looks by itself when it means to; in reserve, what is shown is
    /// a look that it need not make. One that may be from before its own last call is worth nothing: it would look like a
    /// store that went back in time.
    fn shown(&mut self, sighting: Sighting, asked_at: Instant, cx: &mut CandidateContext<'_>) {
        let Some(group) = &mut self.group else { return };
        group.unanswered = 0;
        if let Some(call) = group.take_look(asked_at) {
            return self.answer(call, sighting, asked_at, cx);
        }
        let is_newer = asked_at > group.settled_at || group.answers_with_old_looks();
        let is_of_use = !group.is_in_line() || group.shown_until.is_some();
        if is_newer && is_of_use && self.lease.may_look() {
            self.step(Event::LookAt(cx.now), Some((sighting, asked_at)), cx);
        }
    }

    /// Answers a look with what a heartbeat has read, and plans the next.
    fn answer(&mut self, call: CallId, mut sighting: Sighting, asked_at: Instant, cx: &mut CandidateContext<'_>) {
        let Some(group) = &mut self.group else { return };
        group.place(&mut sighting);
        group.settled_at = group.settled_at.max(asked_at);
        group.shown_until = None;
        self.end_call(call, Ok(Reply::Seen(sighting)), cx);
        let hurries = self.is_chosen();
        let Some(group) = &mut self.group else { return };
        if group.is_in_line() || group.withdrawn || hurries || self.lease.view().phase != CandidatePhase::Waiting {
            return; // it looks when it has planned to
        }
        let timing = self.lease.config().timing;
        let lag = timing.look_lag();
        let until = cx.now + timing.lease() + lag + spread(lag, cx.entropy);
        group.shown_until = Some(until);
        self.step(Event::LookAt(until), None, cx);
    }

    fn end_call(&mut self, call: CallId, result: Result<Reply, CallError>, cx: &mut CandidateContext<'_>) {
        if let Some(group) = &mut self.group {
            group.call.take_if(|(under_way, _)| *under_way == call);
        }
        self.step(Event::Done { call, result }, None, cx);
    }

    /// One step of the lease's candidate, and what follows from it. `shown`: what its look is answered with at once.
    fn step(&mut self, event: Event, shown: Option<(Sighting, Instant)>, cx: &mut CandidateContext<'_>) {
        let chosen = self.is_chosen();
        let mut effects = Vec::new();
        self.lease.handle(event, &mut lease::Context { now: cx.now, entropy: cx.entropy, effects: &mut effects });
        let mut shown = shown;
        let mut effects = VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Call { call, request: Request::Look { .. }, deadline } => {
                    self.look(call, deadline, shown.take(), cx);
                }
                effect => self.pass_on(effect, chosen, cx),
            }
        }
    }

    /// Where a look goes: to what has just been read, to the store, to the group, or nowhere for now.
    fn look(
        &mut self,
        call: CallId,
        deadline: Instant,
        shown: Option<(Sighting, Instant)>,
        cx: &mut CandidateContext<'_>,
    ) {
        let hurries = self.is_chosen();
        let Some(group) = &mut self.group else { return };
        if let Some((sighting, asked_at)) = shown {
            return self.answer(call, sighting, asked_at, cx);
        }
        if group.is_in_line() || group.unanswered >= UNANSWERED_MOST {
            group.call = Some((call, true));
            // What the members know of each other stands in their registers.
            let request = Request::Look { announce: None };
            cx.effects.push(CandidateEffect::Lease(Effect::Call { call, request, deadline }));
        } else if let Some(until) = group.shown_until.filter(|until| cx.now < *until && !hurries) {
            // Also after it has asked for the lease in vain: hundreds in reserve ask where nobody leads, and would each look
            // after each attempt.
            self.step(Event::LookAt(until), None, cx);
        } else {
            group.call = Some((call, true));
            group.unanswered += 1;
            group.look = Some((call, cx.now));
            cx.effects.push(CandidateEffect::Tell(ToGroup::Look));
        }
    }

    fn pass_on(&mut self, effect: Effect, chosen: bool, cx: &mut CandidateContext<'_>) {
        let Some(group) = &mut self.group else { return cx.effects.push(CandidateEffect::Lease(effect)) };
        let id = group.candidacy.id;
        let mut tell = None;
        match &effect {
            Effect::Call { call, request: Request::Leave, .. } => {
                (group.call, group.leave) = (Some((*call, false)), Some(*call));
                return cx.effects.push(CandidateEffect::Tell(ToGroup::Leave { id }));
            }
            Effect::Call { call, request: Request::Acquire { .. }, .. } if !group.is_in_line() => {
                // Waiting is part of the call, whose time the lease counts from before it (R1).
                group.call = Some((*call, false));
                cx.effects.push(CandidateEffect::Tell(ToGroup::AwaitTurn { id, call: *call }));
                group.queued = Some(effect);
                return;
            }
            Effect::Call { call, .. } => group.call = Some((*call, false)),
            Effect::Abandon { call } => match group.call.take_if(|(under_way, _)| under_way == call) {
                None => return, // it was put off, and nobody else knows of it
                Some(_) if group.queued.take().is_some() => {
                    let call = *call;
                    return cx.effects.push(CandidateEffect::Tell(ToGroup::EndTurn { id, call }));
                }
                Some((_, is_look)) => {
                    (group.look, group.leave) = (None, None);
                    group.settled_at = if is_look { group.settled_at } else { cx.now };
                }
            },
            Effect::Lead { token, .. } => {
                group.shown_until = None;
                tell = Some(ToGroup::Leads { id, token: *token, chosen });
            }
            Effect::End { .. } => tell = Some(ToGroup::LeadEnded { id }),
            Effect::Stopped => cx.effects.push(CandidateEffect::Tell(ToGroup::Leave { id })),
            Effect::Extend { .. } | Effect::Drain { .. } => {}
        }
        cx.effects.push(CandidateEffect::Lease(effect));
        // Afterwards: the end of a leadership waits for nobody.
        cx.effects.extend(tell.map(CandidateEffect::Tell));
    }

    /// One step of a candidate without a group.
    fn pass(&mut self, event: Event, cx: &mut CandidateContext<'_>) {
        let mut effects = Vec::new();
        self.lease.handle(event, &mut lease::Context { now: cx.now, entropy: cx.entropy, effects: &mut effects });
        cx.effects.extend(effects.into_iter().map(CandidateEffect::Lease));
    }

    /// Whether an operator wants just this candidate to lead.
    pub fn is_chosen(&self) -> bool {
        let config = self.lease.config();
        self.lease.view().handover.is_some_and(|handover| handover.names(config.id, &config.label))
    }

    #[cfg(feature = "flaws")]
    fn has(&self, flaw: Flaw) -> bool {
        self.group.as_ref().is_some_and(|group| group.flaw == Some(flaw))
    }
}

fn is_call(effect: &Effect, call: CallId) -> bool {
    matches!(effect, Effect::Call { call: its, .. } if *its == call)
}

impl GroupState {
    fn is_in_line(&self) -> bool {
        self.position.is_some_and(|position| position.in_line)
    }

    /// Where it stands is what the registers say, whatever a look tells of it.
    fn place(&self, sighting: &mut Sighting) {
        if let Some(position) = self.position {
            sighting.standing = position.standing;
        }
    }

    /// The look that a record asked for at this time answers.
    fn take_look(&mut self, asked_at: Instant) -> Option<CallId> {
        self.look.take_if(|(_, since)| asked_at >= *since).map(|(call, _)| call)
    }

    /// A call to the store has ended, which may have changed the record, or has shown it.
    fn ended(&mut self, call: CallId, is_answered: bool, now: Instant) {
        if let Some((_, is_look)) = self.call.take_if(|(under_way, _)| *under_way == call)
            && (is_answered || !is_look)
        {
            self.settled_at = now;
        }
    }

    fn answers_with_old_looks(&self) -> bool {
        #[cfg(feature = "flaws")]
        return self.flaw == Some(Flaw::AnswersWithOldLooks);
        #[cfg(not(feature = "flaws"))]
        false
    }
}
