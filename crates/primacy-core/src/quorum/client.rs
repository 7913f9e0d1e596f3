//! Carries out the calls of the `lease` protocol against voters.

mod flaws;
mod operator;
mod renewal;
#[cfg(feature = "flaws")]
mod search;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use self::renewal::RecordChange;
use super::port::{Answer, Ask, OrderNumbers, Orders, VoterView};
use super::views::{Views, VoterAnswers};
use super::voter_set::{VoterId, VoterSet};
use crate::lease::{CallError, Expectation, Floor, Holder, Record, Reply, Request, Version};
use crate::{CandidateId, Token};

/// Names one question to all voters. An answer counts for the question that it answers, and for no other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Round(pub u64);

/// What a round is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RoundKind {
    /// None of these.
    #[default]
    Other,
    /// A claim.
    Claim,
    /// A renewal.
    Renewal,
    /// The withdrawal of a renewal.
    Withdrawal,
}

/// What a client wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this to that voter. Its answer goes to [`QuorumClient::answered`]; if there can be none,
    /// [`QuorumClient::unheard`] is told.
    Send {
        /// Whom.
        to: VoterId,
        /// Which question it belongs to.
        round: Round,
        /// What to ask.
        ask: Ask,
    },
    /// The call is done.
    Done(Result<Reply, CallError>),
}

/// One candidate's or observer's way to all voters of an election: one call at a time, each of one round trip to a majority,
/// or two for a lease that is asked for.
///
/// One candidate has one client for its whole life, for two things that it keeps are needed for safety: terms that it
/// has asked for are never asked for again, or a late message about the earlier attempt would speak of the later one;
/// and rounds are never counted anew, or a late answer would.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QuorumClient {
    voter_set: VoterSet,
    round: Round,
    /// What it asks in this round.
    asks: Ask,
    step: Step,
    heard: VoterAnswers,
    pub(super) accepted: BTreeSet<VoterId>,
    /// Those of whom no answer will come.
    unheard: BTreeSet<VoterId>,
    /// The last record that it showed, so that it never shows an older one while nothing went back.
    shown: Option<Record>,
    /// The latest orders among the answers to the last question that a majority answered. One that only a minority has is not
    /// remembered: a candidate that remembers the pause of a lost voter would wait for ever, and no operator could see why.
    orders: Orders,
    /// The hand-overs up to this count are completed.
    completed_order: u64,
    /// The last term in which the election was forgotten, as far as it has heard.
    forgotten: Token,
    /// The orders that it had seen when it claimed its last term.
    claimed_with: OrderNumbers,
    /// The renewal or release that was asked for last, until the next call begins.
    change: Option<RecordChange>,
    /// The last renewal that it has ever asked for, of its last term.
    renewal: Version,
    /// A claim that failed, and whose taking back may never have left: the caller of a client drops the connections of
    /// a failed call.
    owed: Option<(Token, CandidateId)>,
    /// The highest term that it has ever claimed.
    pub(super) asked: Token,
    /// The highest term that it knew when it was last asked for one so far above that voters do not take it.
    leap: Option<Token>,
    #[cfg(feature = "flaws")]
    pub(super) flaw: Option<super::Flaw>,
    /// Who was asked, beside renewing, to support the term after all.
    caught_up: BTreeSet<VoterId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Idle,
    Looking {
        /// What was asked cannot be done, and this is why.
        refuses: bool,
    },
    /// Before a claim: whether it can be granted at all, so that a claim in vain disturbs nobody.
    Reading(Claim),
    Claiming {
        term: Token,
        claim: Claim,
    },
    Changing,
    /// A renewal was not answered in time. It is not counted any more, and another is asked for when a majority can be heard.
    Withdrawing,
    /// An operator's word.
    Telling,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Claim {
    expect: Option<Expectation>,
    floor: Floor,
    holder: Holder,
    lease: Duration,
}

impl QuorumClient {
    /// A client that has asked nothing yet.
    pub fn new(voter_set: VoterSet) -> Self {
        Self {
            voter_set,
            round: Round::default(),
            asks: Ask::Read,
            step: Step::Idle,
            heard: VoterAnswers::default(),
            accepted: BTreeSet::new(),
            unheard: BTreeSet::new(),
            shown: None,
            orders: Orders::default(),
            completed_order: 0,
            forgotten: Token::NONE,
            claimed_with: OrderNumbers::default(),
            change: None,
            renewal: Version::default(),
            owed: None,
            asked: Token::NONE,
            leap: None,
            #[cfg(feature = "flaws")]
            flaw: None,
            caught_up: BTreeSet::new(),
        }
    }

    /// A client that has asked nothing yet, for another election over the same connections: late answers to the other's
    /// questions count for nothing.
    #[must_use]
    pub fn after(other: &Self) -> Self {
        Self { round: other.round, ..Self::new(other.voter_set.clone()) }
    }

    /// The question that it asks now, or has asked last: answers to others count for nothing.
    pub const fn round(&self) -> Round {
        self.round
    }

    /// Begins a call. One that was under way is given up: its answers count for nothing any more (rule R8).
    pub fn begin(&mut self, request: Request, out: &mut Vec<Output>) {
        self.give_up(out);
        self.leap = None;
        match request {
            Request::Look { .. } => {
                self.step = Step::Looking { refuses: false };
                self.ask_all(&Ask::Read, out);
            }
            Request::Acquire { expect, floor, holder, lease } => {
                self.step = Step::Reading(Claim { expect, floor, holder, lease });
                self.ask_all(&Ask::Read, out);
            }
            Request::Renew { id, version, lease, completed_order } => {
                let known = self.shown.as_ref().filter(|shown| shown.version.token == version.token);
                let Some(holder) = known.and_then(|shown| shown.holder.clone()).filter(|holder| holder.id == id) else {
                    // It renews only what it was granted, which it has shown.
                    self.step = Step::Looking { refuses: true };
                    return self.ask_all(&Ask::Read, out);
                };
                let completed_order = self.handover_of(completed_order);
                self.begin_renewal(RecordChange { version, holder: Some(holder), lease, completed_order }, out);
            }
            Request::Release { version, .. } if self.has_released(version.token) => {
                self.step = Step::Looking { refuses: true };
                self.ask_all(&Ask::Read, out);
            }
            Request::Release { id, version, .. } => {
                // A new election has happened by this; whom an operator has named is still to come.
                let is_deposed = |shown: &&Record| shown.handover == Some(crate::lease::HandoverRequest::NewElection);
                let completed_order =
                    self.handover_of(self.shown.as_ref().filter(is_deposed).map(|shown| shown.order_number));
                let lease = self.shown.as_ref().map(|shown| shown.lease).unwrap_or_default();
                self.step = Step::Changing;
                let version = if self.renewal.token == version.token { version.max(self.renewal) } else { version };
                let beat = version.beat.saturating_add(1);
                self.ask_all(&Ask::Release { term: version.token, id, beat, completed_order }, out);
                self.change = Some(RecordChange { version, holder: None, lease, completed_order });
            }
            // What waits is known to those who ask, and to no voter.
            Request::Leave => self.finish(Ok(Reply::Left), out),
        }
    }

    /// A voter has answered.
    pub fn answered(&mut self, from: VoterId, round: Round, answer: Answer, out: &mut Vec<Output>) {
        let is_old = round != self.round && !self.flawed_counts_old_answers();
        if is_old || (!answer.accepted && self.catch_up(from, &answer.view, out)) {
            return;
        }
        if self.step != Step::Idle {
            if answer.accepted {
                self.accepted.insert(from);
            }
            self.heard.insert(from, answer.view);
            self.proceed(out);
        }
    }

    /// No answer to this round will come from that voter, which may have done what it was asked.
    pub fn unheard(&mut self, from: VoterId, round: Round, out: &mut Vec<Output>) {
        if round == self.round && self.step != Step::Idle && !self.heard.has(from) {
            self.unheard.insert(from);
            self.proceed(out);
        }
    }

    /// Whether a majority has answered, and it waits for others' answers only to know better: of a look, whether there was a
    /// later grant; of a claim, whether enough others accept it. The others may be gone: [`Pace`](super::Pace) says when
    /// nobody waits for them any longer.
    pub fn is_curious(&self) -> bool {
        (matches!(self.step, Step::Looking { .. }) || self.is_claiming()) && self.is_heard()
    }

    /// What its present round is for.
    pub(super) fn round_kind(&self) -> RoundKind {
        match self.step {
            Step::Withdrawing => RoundKind::Withdrawal,
            _ if self.is_claiming() => RoundKind::Claim,
            _ if self.is_renewing() => RoundKind::Renewal,
            _ => RoundKind::Other,
        }
    }

    /// Whether the answers that it waits for decide whether a claim can be granted.
    fn is_claiming(&self) -> bool {
        matches!(self.step, Step::Reading(_) | Step::Claiming { .. })
    }

    /// The lease that is at stake: the one that is asked for, or that was shown last; or, if none was, the longest that the voters
    /// who have answered tell of.
    pub(super) fn lease(&self) -> Option<Duration> {
        let shown = || self.shown.as_ref().map(|shown| shown.lease).filter(|lease| !lease.is_zero());
        let told = || self.heard.values().map(|view| view.lease).max().filter(|lease| !lease.is_zero());
        match &self.step {
            Step::Reading(claim) | Step::Claiming { claim, .. } => Some(claim.lease),
            _ => shown().or_else(told),
        }
    }

    /// Nobody waits any longer for answers that have not come yet.
    pub fn conclude(&mut self, out: &mut Vec<Output>) {
        let (round, pending) = (self.round, self.pending().collect::<Vec<_>>());
        pending.into_iter().for_each(|voter| self.unheard(voter, round, out));
    }

    /// Those whose answers it still waits for, or would.
    pub(super) fn pending(&self) -> impl Iterator<Item = VoterId> {
        self.voter_set.voters().filter(|voter| self.is_open(*voter))
    }

    /// Asks those again who have not answered, in the same round: a packet may be lost, and the network sees that soonest when
    /// something follows it; and who could not be reached may be there again. No voter does anything twice by it. A renewal is
    /// withdrawn instead, of all.
    pub fn ask_again(&mut self, out: &mut Vec<Output>) {
        let is_overdue = self.step == Step::Changing && self.is_renewing();
        match self.change.take_if(|_| is_overdue) {
            _ if self.step == Step::Idle => {}
            Some(change) => self.withdraw(change, out),
            None => {
                self.unheard.clear();
                out.extend(self.pending().map(|to| Output::Send { to, round: self.round, ask: self.asks.clone() }));
            }
        }
    }

    /// The voters have been exchanged, as one of them has told: from now on these are asked. What was under way is asked of them
    /// anew, but for a claim, which is taken back: nobody counts answers of different voters together.
    pub fn moved(&mut self, voter_set: VoterSet, out: &mut Vec<Output>) {
        if voter_set.number() <= self.voter_set.number() {
            return;
        }
        self.voter_set = voter_set;
        self.give_up(out);
        match &self.step {
            Step::Idle => {}
            Step::Claiming { term, claim } => {
                self.owed = Some((*term, claim.holder.id));
                self.finish(Err(CallError::NotDone), out);
            }
            _ => match self.change.clone() {
                Some(change) if change.holder.is_some() => self.withdraw(change, out),
                change => {
                    let ask = self.asks.clone();
                    self.ask_all(&ask, out);
                    self.change = change;
                }
            },
        }
    }

    /// The voters that it asks.
    pub fn voter_set(&self) -> &VoterSet {
        &self.voter_set
    }

    /// The last record that it has shown.
    pub fn shown(&self) -> Option<&Record> {
        self.shown.as_ref()
    }

    /// The highest term that it knows, if the last call needed one further above it than voters take.
    pub const fn leap(&self) -> Option<Token> {
        self.leap
    }

    // ---- steps ----

    fn give_up(&mut self, out: &mut Vec<Output>) {
        let claimed = match &self.step {
            Step::Claiming { term, claim } => Some((*term, claim.holder.id)),
            _ => self.owed.take(),
        };
        if let Some((term, id)) = claimed {
            // A voter that supports it need not be bound for a lease that nobody will use.
            self.take_back(term, id, out);
        }
    }

    fn ask_all(&mut self, ask: &Ask, out: &mut Vec<Output>) {
        self.round.0 += 1;
        self.asks = ask.clone();
        self.change = None;
        self.caught_up.clear();
        self.heard.clear();
        self.accepted.clear();
        self.unheard.clear();
        let round = self.round;
        out.extend(self.voter_set.voters().map(|to| Output::Send { to, round, ask: ask.clone() }));
    }

    fn finish(&mut self, result: Result<Reply, CallError>, out: &mut Vec<Output>) {
        self.step = Step::Idle;
        out.push(Output::Done(result));
    }

    fn proceed(&mut self, out: &mut Vec<Output>) {
        match &self.step {
            Step::Idle => {}
            Step::Looking { refuses } => self.look(*refuses, out),
            Step::Reading(claim) => {
                let claim = claim.clone();
                self.weigh(claim, out);
            }
            Step::Claiming { term, claim } => {
                let (term, claim) = (*term, claim.clone());
                self.claim(term, claim, out);
            }
            Step::Telling if self.is_accepted() => {
                let seen = self.seen();
                self.finish(Ok(Reply::Seen(seen)), out);
            }
            Step::Telling => self.conclude_failure(out),
            Step::Withdrawing => match self.change.clone() {
                Some(change) if self.is_heard() => self.renew(change, out),
                _ if !self.may_be_heard() => self.finish(Err(CallError::Unknown), out),
                _ => {}
            },
            Step::Changing => match self.change.clone() {
                Some(change) if self.is_accepted() => {
                    let record = self.record_of(change);
                    self.applied(record, out);
                }
                _ => self.conclude_failure(out),
            },
        }
    }

    fn look(&mut self, refuses: bool, out: &mut Vec<Output>) {
        if self.is_heard() {
            let record = self.present();
            let token = record.as_ref().map_or(self.hidden(), |record| record.version.token);
            let holder = record.as_ref().and_then(|record| record.holder.as_ref()).map(|holder| holder.id);
            let has_missed =
                |view: &VoterView| view.term != token || holder.is_some_and(|holder| !view.supports(holder));
            if self.heard.values().any(has_missed) && self.pending().next().is_some() {
                // Somebody has asked for a later term, or has not heard of this one. Whether the later was granted, and how
                // often this one was renewed, may be known with the next answer.
                return;
            }
            let seen = self.seen();
            self.finish(Ok(if refuses { Reply::Conflict(seen) } else { Reply::Seen(seen) }), out);
        } else if !self.may_be_heard() {
            self.finish(Err(CallError::NotDone), out);
        }
    }

    /// Asks for the lease if it can be had: the record is as expected, and a majority is free.
    fn weigh(&mut self, claim: Claim, out: &mut Vec<Output>) {
        if !self.is_heard() {
            if !self.may_be_heard() {
                self.finish(Err(CallError::NotDone), out);
            }
            return;
        }
        let record = self.present();
        let views = self.views();
        // What was forgotten since the candidate looked is not the absence that it saw.
        let has_seen = record.is_some() || self.hidden() <= claim.floor.seen;
        let is_expected = record.as_ref().map(Record::expectation) == claim.expect && has_seen;
        let is_open = |view: &VoterView| view.is_open_to(claim.holder.id);
        let can_still =
            self.voter_set.is_quorum(|voter| self.heard.get(voter).map_or(!self.unheard.contains(&voter), is_open));
        if is_expected && views.agree(is_open) {
            let seen = self.orders.counts();
            // Above all that these voters and this candidate know of: `Token::next` in the peers' only epoch.
            let known = views.highest();
            let highest = known.max(claim.floor.highest());
            let term = highest.max(self.flawed_asked()).next(0);
            self.leap = (!views.may_take(term)).then_some(known);
            // There is none above, or none that voters take.
            if term <= highest || self.leap.is_some() {
                return self.finish(Err(CallError::NotDone), out);
            }
            (self.asked, self.claimed_with) = (term, seen);
            let ask = Ask::Claim { term, holder: claim.holder.clone(), lease: claim.lease, seen, granted: None };
            self.step = Step::Claiming { term, claim };
            self.ask_all(&ask, out);
        } else if !is_expected {
            let seen = self.seen();
            self.finish(Ok(Reply::Conflict(seen)), out);
        } else if !can_still {
            // Nothing has changed, and asking again at once would not help.
            let seen = self.seen();
            self.finish(Ok(Reply::Seen(seen)), out);
        }
    }

    fn claim(&mut self, term: Token, claim: Claim, out: &mut Vec<Output>) {
        if self.is_accepted() {
            let completed_order = self.claimed_with.handover;
            let version = Version { token: term, beat: 0 };
            let (holder, lease) = (Some(claim.holder), claim.lease);
            let record = self.record_of(RecordChange { version, holder, lease, completed_order });
            self.applied(record, out);
        } else if !self.may_be_accepted() {
            // Others need not wait for a promise that nobody uses.
            self.take_back(term, claim.holder.id, out);
            if self.heard.len() < self.voter_set.voters().count() {
                // Once more before the next call: this may not reach all, or one before the claim does.
                self.owed = Some((term, claim.holder.id));
            }
            if self.is_heard() {
                let seen = self.seen();
                self.finish(Ok(Reply::Conflict(seen)), out);
            } else if self.may_be_heard() {
                // It asks what there is instead. Whatever is answered to this claim from now on counts for nothing.
                self.step = Step::Looking { refuses: true };
                self.ask_all(&Ask::Read, out);
            } else {
                self.finish(Err(CallError::NotDone), out);
            }
        }
    }

    fn take_back(&self, term: Token, id: CandidateId, out: &mut Vec<Output>) {
        let (ask, round) = (Ask::Release { term, id, beat: 0, completed_order: 0 }, self.round);
        out.extend(self.voter_set.voters().map(|to| Output::Send { to, round, ask: ask.clone() }));
    }

    /// A renewal, release or order that a majority has not accepted and never will.
    fn conclude_failure(&mut self, out: &mut Vec<Output>) {
        // What a majority has says more than that it was refused.
        if self.may_be_accepted() || (!self.is_heard() && self.may_be_heard()) {
            return;
        }
        if !self.is_heard() {
            return self.finish(Err(CallError::Unknown), out);
        }
        self.note_holds_nothing();
        let seen = self.seen();
        let result = match (&self.change, &seen.record) {
            // Nobody else was granted a term: this one ends by time and not sooner (R7).
            (Some(RecordChange { version, holder: Some(holder), .. }), Some(record))
                if record.version.token == version.token && record.is_held_by(holder.id) =>
            {
                Err(CallError::Unknown)
            }
            _ => Ok(Reply::Conflict(seen)),
        };
        self.finish(result, out);
    }

    /// What a majority refuses to let go because none of those who have answered supports the holder is held by nobody: voters that
    /// were taken in since know the term, and not always who has led in it.
    fn note_holds_nothing(&mut self) {
        let Ask::Release { term, id, .. } = self.asks else { return };
        let is_supported = self.heard.values().any(|view| view.term == term && view.supports(id));
        let shown = self.shown.as_mut().filter(|shown| shown.version.token == term && shown.is_held_by(id));
        if let Some(shown) = shown.filter(|_| !is_supported) {
            shown.holder = None;
        }
    }

    fn applied(&mut self, record: Record, out: &mut Vec<Output>) {
        self.shown = Some(record.clone());
        self.finish(Ok(Reply::Applied(record)), out);
    }

    // ---- what was heard ----

    fn views(&self) -> Views<'_> {
        Views { voter_set: &self.voter_set, heard: &self.heard }
    }

    fn is_accepted(&self) -> bool {
        self.voter_set.is_quorum(|voter| self.accepted.contains(&voter)) || self.flawed_is_enough()
    }

    fn may_be_accepted(&self) -> bool {
        self.voter_set.is_quorum(|voter| self.accepted.contains(&voter) || self.is_open(voter))
    }

    /// Whether an answer of it may still come.
    fn is_open(&self, voter: VoterId) -> bool {
        !self.heard.has(voter) && !self.unheard.contains(&voter)
    }

    fn is_heard(&self) -> bool {
        self.voter_set.is_quorum(|voter| self.heard.has(voter))
    }

    fn may_be_heard(&self) -> bool {
        self.voter_set.is_quorum(|voter| !self.unheard.contains(&voter))
    }

    /// The record after a change of one's own, one beat further.
    fn record_of(&mut self, RecordChange { version, holder, lease, completed_order }: RecordChange) -> Record {
        self.note_orders(completed_order);
        let orders = &self.orders;
        Record {
            version: Version { beat: version.beat.saturating_add(1), ..version },
            holder,
            lease,
            order_number: orders.order_number(),
            handover: orders.handover_after(self.completed_order, version.token),
            paused: orders.is_paused(version.token),
        }
    }

    fn has_released(&self, token: Token) -> bool {
        self.shown.as_ref().is_some_and(|shown| shown.version.token == token && shown.holder.is_none())
    }

    /// The count of the hand-over among the orders to which a record gave this number, if there are no later ones.
    fn handover_of(&self, order_number: Option<u64>) -> u64 {
        if order_number == Some(self.orders.order_number()) { self.orders.handover.count } else { 0 }
    }

    fn seen(&mut self) -> crate::lease::Sighting {
        let record = self.present();
        self.shown.clone_from(&record);
        self.views().sighting(record, self.hidden())
    }

    /// The record that is true now. A majority that missed the last grant or renewal, because others saw it, shows an older
    /// one; but one that was shown has been granted, and goes back only with the disks of a majority.
    fn present(&mut self) -> Option<Record> {
        self.note_orders(0);
        let (views, orders, completed_order, hidden) =
            (self.views(), &self.orders, self.completed_order, self.hidden());
        let record = views.record(orders, completed_order, hidden);
        let version = record.as_ref().map(|record| record.version).unwrap_or_default();
        match self.shown.as_ref().filter(|shown| shown.version.token > hidden) {
            Some(shown) if version < shown.version && views.highest() >= shown.version.token => {
                let token = shown.version.token;
                let (handover, paused) = (orders.handover_after(completed_order, token), orders.is_paused(token));
                Some(Record { order_number: orders.order_number(), handover, paused, ..shown.clone() })
            }
            _ => record,
        }
    }
}
