//! The state machine of one process: when it joins, beats, scans, suspects, evicts and comes back.

mod duties;
#[cfg(feature = "flaws")]
mod flaws;
mod place;

use alloc::vec::Vec;
use core::time::Duration;

use super::candidacy::Candidacy;
use super::history::History;
use super::messages::{FromGroup, LinePosition};
use super::pace::Pace;
use super::port::{Descriptor, Effect, Event, ProcessId, Reply, Request, Vars};
use super::rounds::Rounds;
use crate::lease::{CallError, CallId, Sighting};
use crate::select::{FailBack, FailBackWatch};
use crate::time::back_off;
use crate::{CandidateId, Instant, Token};

#[cfg(feature = "flaws")]
pub use flaws::Flaw;

/// How many processes stand in line: they are told of changes at once, see every renewal, and ask one slot after another.
/// All others look once a round.
pub const HEIRS: u32 = 8;

/// A process in reserve reads the head once in several beats, and whenever VARS have changed: those before it are the
/// leader's to watch, and it asks for a vacant lease without knowing them.
const HEAD_EVERY: u8 = 4;

/// What a group is, for its whole life.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The process: random, and new for every start.
    pub process: ProcessId,
    /// How long rounds last.
    pub rounds: Rounds,
    /// When a leader makes way for a better one.
    pub fail_back: FailBack,
}

/// What a step of the state machine gets from outside.
pub struct Context<'a> {
    /// Now, on this process's clock.
    pub now: Instant,
    /// Random bits, for spreading load only: no promise depends on them.
    pub entropy: &'a mut dyn FnMut() -> u64,
    /// Where effects go, in order.
    pub effects: &'a mut Vec<Effect>,
}

/// All that one process does in one election beside asking for its lease.
///
/// Feed it every [`Event`] with the time at which it is handled, carry out the effects in order, and wake it at
/// [`deadline`](Self::deadline). Nothing that it says is needed for safety: a group that is late, wrong or gone costs time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    config: Config,
    candidates: Vec<Candidacy>,
    state: State,
    in_flight: Option<InFlight>,
    calls: u64,
    vars: Option<Vars>,
    /// When the round time last came down, and what it was before: others may not know it yet.
    slower: Option<(Duration, Instant)>,
    history: History,
    /// The head of the table as last seen, the leader's process left out.
    head: Vec<Descriptor>,
    /// Beats since the head was read, but [`HEAD_EVERY`] if it may have changed.
    beats_without: u8,
    next_beat: Instant,
    /// A candidate asked at this time to see the record.
    wanted: Option<Instant>,
    /// What has changed about the candidates has not been published yet.
    unpublished: bool,
    lead: Option<Lead>,
    watch: FailBackWatch<ProcessId>,
    beats: BeatLog,
    /// Drawn once: when it asks if it is not among the first.
    lot: u32,
    placed: Vec<(CandidateId, LinePosition)>,
    failures: u32,
    evicted_at: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    /// Without candidates.
    Idle,
    /// Awaits its number; `came_back` if it had one and was evicted.
    Joining { came_back: Option<Duration> },
    /// Takes part.
    Member { id: u64 },
    /// Awaits the store's word that nothing of it is left, until this time at most.
    Leaving { until: Instant },
}

/// What it does while one of its candidates leads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lead {
    holder: CandidateId,
    token: Token,
    /// An operator wanted it to lead.
    chosen: bool,
    pace: Pace,
    /// For the next scan.
    evict: Vec<(ProcessId, u64, Duration)>,
    round: Option<(Duration, u64)>,
}

/// Its own beats, for knowing how late it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct BeatLog {
    /// When the last one was sent that was answered.
    last: Option<Instant>,
    /// By how much the latest came after their time.
    late: [Duration; 8],
    next: usize,
}

impl BeatLog {
    fn answered(&mut self, sent_at: Instant, round: Duration) {
        if let Some(last) = self.last.replace(sent_at) {
            self.late[self.next % self.late.len()] = sent_at.since(last).saturating_sub(round);
            self.next += 1;
        }
    }

    /// The third largest of the latest: what one stall or two have done is over, what goes on is not.
    fn late(&self) -> Duration {
        let mut late = self.late;
        late.sort_unstable();
        late[late.len() - 3]
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct InFlight {
    call: CallId,
    kind: Kind,
    /// What a scan was asked for with.
    token: Option<Token>,
    sent_at: Instant,
    deadline: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Join,
    Beat { with_head: bool },
    Scan,
    Leave,
}

/// What a group can say about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupView {
    /// Its number, if it takes part.
    pub id: Option<u64>,
    /// VARS as last seen.
    pub vars: Option<Vars>,
    /// How many processes stand before it, if it is among the first in line.
    pub ahead: Option<u32>,
    /// By how much its latest beats came after their time, but for one or two.
    pub late: Duration,
    /// Calls in a row that failed.
    pub failures: u32,
}

impl Group {
    /// A group that takes no part until it is given [`Event::Candidates`].
    pub fn new(config: Config) -> Self {
        Self {
            candidates: Vec::new(),
            state: State::Idle,
            in_flight: None,
            calls: 0,
            vars: None,
            slower: None,
            history: History::default(),
            head: Vec::new(),
            beats_without: HEAD_EVERY,
            next_beat: Instant::ZERO,
            wanted: None,
            unpublished: false,
            lead: None,
            watch: FailBackWatch::new(config.fail_back),
            beats: BeatLog::default(),
            lot: 0,
            placed: Vec::new(),
            failures: 0,
            evicted_at: None,
            config,
        }
    }

    /// What it is configured to be.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Handles one event at the time of the context, and everything that is due by then.
    pub fn handle(&mut self, event: Event, cx: &mut Context<'_>) {
        match event {
            Event::Candidates(candidates) => self.candidates(candidates, cx),
            Event::Look => self.wanted = Some(cx.now),
            Event::Leads { holder, token, chosen } => self.leads(holder, token, chosen, cx),
            Event::LeadEnded { holder } => self.lead = self.lead.take().filter(|lead| lead.holder != holder),
            Event::Wake => {}
            Event::Done { call, result } => self.done(call, result, cx),
            Event::Suspended => self.history.restart(cx.now),
        }
        self.expire(cx);
        self.act(cx);
    }

    /// When [`Event::Wake`] is due, if nothing else happens before.
    pub fn deadline(&self) -> Option<Instant> {
        let call = self.in_flight.as_ref().map(|in_flight| in_flight.deadline);
        let own = match &self.state {
            State::Idle => None,
            State::Joining { .. } | State::Member { .. } if call.is_some() => None,
            State::Joining { .. } | State::Member { .. } => Some(self.due()),
            State::Leaving { until } => Some(*until),
        };
        Instant::earliest(call, own)
    }

    /// Whether a call is under way.
    pub fn awaits_answer(&self) -> bool {
        self.in_flight.is_some()
    }

    /// What it can say about itself.
    pub fn view(&self) -> GroupView {
        GroupView {
            id: if let State::Member { id } = self.state { Some(id) } else { None },
            vars: self.vars,
            ahead: self.placed.first().filter(|(_, first)| first.in_line).map(|(_, first)| first.standing.ahead),
            late: self.beats.late(),
            failures: self.failures,
        }
    }

    // ---- events ----

    fn candidates(&mut self, candidates: Vec<Candidacy>, cx: &mut Context<'_>) {
        if self.candidates == candidates {
            return;
        }
        self.lead = self.lead.take().filter(|lead| candidates.iter().any(|candidate| candidate.id == lead.holder));
        self.candidates = candidates;
        self.unpublished = true;
        match self.state {
            _ if self.candidates.is_empty() => self.leave(cx),
            State::Idle | State::Leaving { .. } => {
                self.state = State::Joining { came_back: None };
                self.next_beat = cx.now;
                let lots = u64::from(HEIRS) * 8;
                self.lot = HEIRS + u32::try_from((cx.entropy)() % lots).unwrap_or(HEIRS);
            }
            State::Joining { .. } | State::Member { .. } => self.next_beat = self.next_beat.min(cx.now),
        }
        self.tell_places(cx);
    }

    fn leads(&mut self, holder: CandidateId, token: Token, chosen: bool, cx: &mut Context<'_>) {
        self.lead = Some(Lead { holder, token, chosen, pace: Pace::default(), evict: Vec::new(), round: None });
        self.watch.lead_begins();
        // Its number stands in VARS from now on, and the next in line move up.
        self.next_beat = cx.now;
    }

    fn leave(&mut self, cx: &mut Context<'_>) {
        let takes_part = match self.state {
            State::Idle | State::Leaving { .. } => return,
            // A call under way may still make it a member.
            State::Joining { came_back } => came_back.is_some() || self.in_flight.is_some(),
            State::Member { .. } => true,
        };
        self.lead = None;
        if takes_part {
            self.state = State::Leaving { until: cx.now + self.call_timeout() * 2 };
        } else {
            self.stopped(cx);
        }
    }

    fn stopped(&mut self, cx: &mut Context<'_>) {
        self.abandon(cx);
        self.state = State::Idle;
        cx.effects.push(Effect::Stopped);
    }

    fn done(&mut self, call: CallId, result: Result<Reply, CallError>, cx: &mut Context<'_>) {
        if self.in_flight.as_ref().is_none_or(|in_flight| in_flight.call != call) {
            return; // abandoned
        }
        let Some(in_flight) = self.in_flight.take() else { return };
        match result {
            Ok(reply) => {
                self.failures = 0;
                self.answered(&in_flight, reply, cx);
            }
            Err(error) => self.failed(&in_flight, error, cx),
        }
    }

    fn answered(&mut self, in_flight: &InFlight, reply: Reply, cx: &mut Context<'_>) {
        let asked_at = in_flight.sent_at;
        match (in_flight.kind, reply) {
            (Kind::Join, Reply::Joined { id, vars }) => {
                self.learn(vars, cx);
                if matches!(self.state, State::Leaving { .. }) {
                    return;
                }
                self.state = State::Member { id };
                self.beats.last = Some(asked_at);
                // The first beat reads the head; the others are spread over the round from there.
                self.beats_without = HEAD_EVERY;
                self.next_beat = cx.now;
            }
            (Kind::Beat { with_head }, Reply::Beaten { vars, head, sighting }) => {
                let is_news = self.vars != Some(vars);
                self.learn(vars, cx);
                self.beaten(asked_at, cx);
                self.history.observe(&head, self.round(), cx.now);
                self.history.forget_before(cx.now - self.patience(cx.now) * 4);
                if with_head {
                    self.head = head;
                    self.beats_without = 0;
                } else {
                    let beats = if is_news { HEAD_EVERY } else { self.beats_without.saturating_add(1) };
                    self.beats_without = beats.min(HEAD_EVERY);
                }
                self.tell_places(cx);
                self.seen(sighting, asked_at, cx);
            }
            (Kind::Beat { .. }, Reply::Evicted { eviction, sighting }) => {
                self.evicted(eviction, cx);
                self.seen(sighting, asked_at, cx);
            }
            (Kind::Scan, Reply::Scanned { vars, descriptors }) => {
                self.learn(vars, cx);
                self.beaten(asked_at, cx);
                self.scanned(&descriptors, cx);
            }
            (Kind::Scan, Reply::NotLeading) => {
                // The lease is another state machine's affair: this one merely stops acting for it. Not for one that has
                // begun since the question was sent.
                self.lead = self.lead.take().filter(|lead| Some(lead.token) != in_flight.token);
                self.next_beat = cx.now;
            }
            (Kind::Scan, Reply::Evicted { eviction, .. }) => self.evicted(eviction, cx),
            (Kind::Leave, Reply::Left) => match self.state {
                State::Leaving { .. } => self.stopped(cx),
                _ => self.rejoin(cx),
            },
            // A store that answers another question than was asked is not believed.
            (_, _) => self.failed(in_flight, CallError::Unknown, cx),
        }
    }

    fn beaten(&mut self, sent_at: Instant, cx: &mut Context<'_>) {
        let round = self.round();
        self.beats.answered(sent_at, round);
        if self.lead.is_some() && self.next_beat > cx.now {
            return; // a scan is due then, whatever beats there are between
        }
        // On a grid, so that lateness does not add up; but never two for one that was missed.
        let next = self.next_beat + round;
        self.next_beat = if next > cx.now { next.min(sent_at + round) } else { sent_at + round };
    }

    fn seen(&mut self, sighting: Sighting, asked_at: Instant, cx: &mut Context<'_>) {
        self.wanted = self.wanted.filter(|wanted| *wanted > asked_at);
        cx.effects.push(Effect::TellAll(FromGroup::Seen { sighting, asked_at }));
    }

    fn evicted(&mut self, eviction: Option<super::port::Eviction>, cx: &mut Context<'_>) {
        if matches!(self.state, State::Leaving { .. }) {
            self.stopped(cx);
            return;
        }
        let silent = self.beats.last.map_or(Duration::ZERO, |last| cx.now.since(last));
        self.state = State::Joining { came_back: Some(silent) };
        // At once, but not again and again where a store forgets it as often.
        let last = self.evicted_at.replace(cx.now);
        let soonest = last.map_or(cx.now, |last| last + self.round() / 4);
        self.next_beat = soonest.max(cx.now);
        cx.effects.push(Effect::Evicted { eviction });
    }

    fn rejoin(&mut self, cx: &mut Context<'_>) {
        self.state = State::Joining { came_back: None };
        self.next_beat = cx.now;
    }

    /// What VARS say now. A round time that came down is not yet known to everybody: they are given the time to hear of it.
    fn learn(&mut self, vars: Vars, cx: &mut Context<'_>) {
        let former = self.vars.replace(vars).map(|vars| vars.round);
        if former != Some(vars.round) {
            if let Some(former) = former.filter(|former| *former > vars.round) {
                let until = cx.now + self.config.rounds.patience(former);
                // It may have come down before, and not everybody have heard of that yet.
                let (round, longer) = self.slower.filter(|(_, until)| cx.now < *until).unwrap_or((former, until));
                self.slower = Some((round.max(former), longer.max(until)));
            }
            self.next_beat = self.next_beat.min(cx.now + vars.round);
            cx.effects.push(Effect::TellAll(FromGroup::Round(vars.round)));
        }
    }

    fn failed(&mut self, in_flight: &InFlight, error: CallError, cx: &mut Context<'_>) {
        // What was to be published has not been, as far as anybody knows.
        self.unpublished |= in_flight.kind == Kind::Join;
        self.failures = self.failures.saturating_add(1);
        self.next_beat = cx.now + back_off(self.failures, self.round() / 4, cx.entropy);
        let asked_at = in_flight.sent_at;
        self.wanted = self.wanted.filter(|wanted| *wanted > asked_at);
        cx.effects.push(Effect::TellAll(FromGroup::NotSeen { error, asked_at }));
        if let State::Leaving { .. } = self.state {
            self.stopped(cx);
        }
    }

    // ---- time ----

    fn expire(&mut self, cx: &mut Context<'_>) {
        if let Some(in_flight) = self.in_flight.take_if(|in_flight| cx.now >= in_flight.deadline) {
            cx.effects.push(Effect::Abandon { call: in_flight.call });
            self.failed(&in_flight, CallError::Unknown, cx);
        }
        if matches!(self.state, State::Leaving { until } if cx.now >= until) {
            self.stopped(cx);
        }
    }

    fn due(&self) -> Instant {
        let wanted = self.wanted.filter(|_| self.failures == 0);
        wanted.map_or(self.next_beat, |wanted| wanted.min(self.next_beat))
    }

    fn round(&self) -> Duration {
        self.vars.map_or(self.config.rounds.round(), |vars| vars.round)
    }

    /// How long others may be silent: while the round time comes down, as long as before.
    fn patience(&self, now: Instant) -> Duration {
        let slower = self.slower.filter(|(_, until)| now < *until).map_or(Duration::ZERO, |(round, _)| round);
        self.config.rounds.patience(self.round().max(slower))
    }

    fn call_timeout(&self) -> Duration {
        (self.round() / 4).max(Duration::from_millis(50))
    }

    /// How long this call may take. Hundreds that join at once wait for each other, since numbers are given one after another:
    /// who gave up as soon as a member does, again and again, would only get in line anew each time.
    fn patience_with(&self, kind: Kind) -> Duration {
        let usual = self.call_timeout();
        match (kind, &self.state) {
            (Kind::Join, State::Joining { .. }) => {
                usual.saturating_mul(1 << self.failures.min(8)).min(usual.max(self.round() * 2))
            }
            _ => usual,
        }
    }

    fn act(&mut self, cx: &mut Context<'_>) {
        if self.in_flight.is_some() || matches!(self.state, State::Idle) {
            return;
        }
        let process = self.config.process;
        let (kind, request) = match &self.state {
            State::Leaving { .. } => (Kind::Leave, Request::Leave { process }),
            State::Idle => return,
            _ if cx.now < self.due() => return,
            State::Joining { came_back } => (Kind::Join, self.join(*came_back)),
            State::Member { .. } if self.unpublished => (Kind::Join, self.join(None)),
            State::Member { .. } => match &mut self.lead {
                // Before its time only because a sibling of the leader wants to see the record.
                Some(lead) if cx.now >= self.next_beat => {
                    let evict = core::mem::take(&mut lead.evict);
                    let Lead { holder, token, round, .. } = *lead;
                    lead.round = None;
                    (Kind::Scan, Request::MembershipScan { process, holder, token, evict, round })
                }
                _ => {
                    let late = self.beats.late();
                    let with_head = self.beats_without + 1 >= HEAD_EVERY || self.place(cx.now).is_some();
                    // One more, since the leader's own process is shown too.
                    let head = if with_head { HEIRS + 1 } else { 0 };
                    let without = if with_head { self.silent(cx.now) } else { Vec::new() };
                    (Kind::Beat { with_head }, Request::Beat { process, late, without, head })
                }
            },
        };
        if kind == Kind::Join {
            self.unpublished = false;
        }
        self.call(kind, request, cx);
    }

    fn join(&self, came_back: Option<Duration>) -> Request {
        let rank = self.candidates.iter().filter_map(|candidate| candidate.rank).min();
        Request::Join {
            process: self.config.process,
            candidates: self.candidates.clone(),
            rank,
            came_back,
            round: self.config.rounds.round(),
        }
    }

    fn call(&mut self, kind: Kind, request: Request, cx: &mut Context<'_>) {
        self.calls += 1;
        let call = CallId(self.calls);
        let deadline = cx.now + self.patience_with(kind);
        let token = match &request {
            Request::MembershipScan { token, .. } => Some(*token),
            _ => None,
        };
        self.in_flight = Some(InFlight { call, kind, token, sent_at: cx.now, deadline });
        cx.effects.push(Effect::Call { call, request, deadline });
    }

    fn abandon(&mut self, cx: &mut Context<'_>) {
        if let Some(in_flight) = self.in_flight.take() {
            cx.effects.push(Effect::Abandon { call: in_flight.call });
        }
    }
}
