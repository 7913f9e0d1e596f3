//! One voter: whom it supports, and until when.

mod flaws;
#[cfg(feature = "flaws")]
mod search;

use core::time::Duration;

#[cfg(feature = "flaws")]
use super::Flaw;
use super::port::{Answer, Ask, GrantProgress, Orders, VoterView};
use crate::lease::Holder;
use crate::time::stretched;
use crate::{CandidateId, Instant, Token};

/// What a voter keeps on disk about one election.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Durable {
    /// The highest term that it has ever supported anybody in, or has heard of from the voters before it. It accepts new claims
    /// above it only. It only grows.
    pub highest: Token,
    /// The term that it supports somebody in, or did last: the highest one, or an earlier one to whose holder it came back.
    pub term: Token,
    /// Whom it supports in that term: the first who asked, or the one to whom a majority has granted it.
    pub holder: Option<Holder>,
    /// The count of the hand-over that it had seen when it claimed the term.
    pub seen: u64,
    /// The longest lease that it has promised to that candidate: for this time it is bound after a restart.
    pub lease: Duration,
    /// What operators want.
    pub orders: Orders,
    /// The hand-overs up to this count are completed.
    pub completed_order: u64,
    /// If the holder has set it free in that term: the beat of its release, or 0 if the claim was taken back. Without a holder:
    /// the election was forgotten in that term.
    pub released: Option<u64>,
    /// It comes back to no term below this: the election was forgotten there, or a holder that has led gave its term back.
    pub floor: Token,
}

impl Durable {
    /// Whether the election was forgotten, and nobody has claimed it since.
    pub const fn is_forgotten(&self) -> bool {
        self.holder.is_none() && self.released.is_some()
    }

    /// The term is over: the election was forgotten in it, or the holder has led and set this voter free.
    fn close_term(&mut self) {
        self.floor = self.floor.max(self.term.next(0));
    }

    /// In which term it supports somebody, or did last, and whom.
    pub fn support(&self) -> (Token, Option<CandidateId>) {
        (self.term, self.holder.as_ref().map(|holder| holder.id))
    }
}

/// What follows from an ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoterReply {
    /// The answer.
    pub answer: Answer,
    /// What is kept on disk has changed: it must be flushed before this answer, or any later one, leaves.
    pub must_flush: bool,
}

/// One voter's part in one election.
///
/// A promise is on disk before it is answered; one holder for each term; bound to one holder, a voter refuses all others until
/// its promise ends; after a restart it takes it that it has promised just now. The
/// design page on the quorum says why each of these is needed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Voter {
    durable: Durable,
    /// Until when it is bound to the holder, on its own clock.
    bound_until: Instant,
    /// The same without the last renewal.
    bound_before: Instant,
    beat: u64,
    /// The highest term that it knows was granted, since it started: it comes back to no term below that either.
    granted: Token,
    drift_ppm: u32,
    #[cfg(feature = "flaws")]
    pub(super) flaw: Option<Flaw>,
}

/// How far above the highest term that it has supported anybody in a voter supports one: some four thousand million.
pub const TERM_LEAP_MOST: u64 = 1 << 32;

/// Whether a voter whose highest term is this one refuses the other as too far above it.
pub(super) fn is_leap(term: Token, highest: Token) -> bool {
    term.get() > highest.get().saturating_add(TERM_LEAP_MOST)
}

impl Voter {
    /// The voter with what its disk has kept, as its process starts. It may have promised a lease the moment before it ended,
    /// so it is bound for as long as from now, unless the holder had set it free. `drift_ppm`: by how much the rate of its clock may be wrong, in millionths.
    pub fn restarted(durable: Durable, drift_ppm: u32, now: Instant) -> Self {
        let beat = durable.released.unwrap_or_default();
        let mut voter = Self {
            durable,
            bound_until: Instant::ZERO,
            bound_before: Instant::ZERO,
            beat,
            granted: Token::NONE,
            drift_ppm,
            #[cfg(feature = "flaws")]
            flaw: None,
        };
        voter.bind_anew(now);
        voter
    }

    /// Until when it is bound cannot be known any more: the process has started, the machine was suspended, or the clock has
    /// failed. The last promise may have been made the moment before, so it is bound for as long as from now, unless the holder
    /// had set it free (rule R4).
    pub fn bind_anew(&mut self, now: Instant) {
        let longest = stretched(self.durable.lease, self.drift_ppm);
        self.bound_until = if self.durable.holder.is_some() { now + longest } else { Instant::ZERO };
        self.bound_before = self.bound_until;
    }

    /// What must be on disk.
    pub fn durable(&self) -> &Durable {
        &self.durable
    }

    /// When it will be free, if it is bound: then others may ask.
    pub fn bound_until(&self, now: Instant) -> Option<Instant> {
        (!self.is_free(now)).then_some(self.bound_until)
    }

    /// Answers what it is asked at that time.
    pub fn handle(&mut self, ask: &Ask, now: Instant) -> VoterReply {
        let before = (*ask != Ask::Read).then(|| self.durable.clone());
        let accepted = match ask {
            Ask::Read => true,
            ask if !self.is_sane(ask) => false,
            // Nothing is promised in a term that is over.
            Ask::Claim { term, .. } | Ask::Renew { term, .. }
                if *term < self.durable.floor && !self.flawed_ignores_floor(ask) =>
            {
                false
            }
            Ask::Claim { term, holder, lease, seen, granted } => {
                let is_repeat = granted.is_some_and(|granted| self.has_renewed(*term, holder.id, granted.beat));
                let may = granted.is_some() || self.durable.orders.counts().is_within(*seen);
                // What nobody was granted yet is asked for above all that there is, or is over.
                let is_over = granted.is_none() && *term < self.durable.highest;
                let is_open = *term > self.durable.highest || (granted.is_some() && self.may_join(*term, now));
                let accepted = !is_repeat
                    && !is_over
                    && self.claimed(*term, holder, *lease, may.then_some(seen.handover), is_open, now);
                match granted {
                    Some(GrantProgress { beat, completed_order }) if accepted => {
                        self.note(*term, *beat, *completed_order)
                    }
                    // What is no renewal cannot be withdrawn as one.
                    None if accepted => self.bound_before = self.bound_until,
                    _ => {}
                }
                accepted
            }
            Ask::Renew { term, id, beat, lease, completed_order } => {
                let is_meant = self.supports(*term, *id) || (self.durable.term == *term && self.flawed_renews_anyone());
                let accepted = is_meant && self.durable.released.is_none() && *beat > self.beat;
                if accepted {
                    self.promise(*lease, now);
                    self.note(*term, *beat, *completed_order);
                }
                accepted
            }
            Ask::Withdraw { term, id, beat } => {
                let supports = self.supports(*term, *id);
                if supports && self.durable.released.is_none() && *beat >= self.beat {
                    self.withdraw(*beat);
                }
                supports
            }
            Ask::Release { term, id, beat, completed_order } => {
                let supports = self.supports(*term, *id);
                if supports {
                    self.durable.released = self.durable.released.max(Some(*beat));
                    if *beat > 0 {
                        self.durable.close_term();
                    }
                    self.note(Token::NONE, *beat, *completed_order);
                }
                supports
            }
            Ask::Order { orders, token } => {
                let may = token.is_none_or(|token| self.durable.term <= token);
                if may {
                    self.durable.orders.merge(orders);
                }
                may
            }
            Ask::Forget { term } if *term == self.durable.term => self.durable.is_forgotten(),
            Ask::Forget { term } => {
                let may = *term > self.durable.highest && self.is_free(now);
                if may {
                    self.forget(*term);
                }
                may
            }
        };
        let must_flush = before.is_some_and(|before| self.durable != before);
        VoterReply { answer: Answer { accepted, view: self.view(now) }, must_flush }
    }

    /// As if nobody had claimed this term and given it back: of all that was before only the term is left, and the counts of the
    /// orders, or those that this voter has missed would come back.
    fn forget(&mut self, term: Token) {
        let orders = self.durable.orders.clone();
        let completed_order = self.durable.completed_order.max(orders.handover.count);
        self.durable = Durable {
            highest: term,
            term,
            orders,
            completed_order,
            released: Some(1),
            floor: term,
            ..Durable::default()
        };
        if self.flawed_forgets_term() {
            self.durable = Durable::default();
        }
        if self.flawed_closes_forgotten() {
            self.durable.close_term();
        }
        (self.beat, self.bound_until, self.bound_before) = (1, Instant::ZERO, Instant::ZERO);
    }

    /// Takes over what the voters before it may have granted, so that nothing is granted again: their highest term, and who has led
    /// if that is known and this voter is bound to nobody else, without being bound itself, since nobody believes in what they have
    /// promised any more when this voter votes without them.
    ///
    /// For how long it is bound, if that keeps it from taking over that the election was forgotten.
    pub fn inherit(&mut self, given: &Durable, now: Instant) -> Option<Duration> {
        self.durable.orders.merge(&given.orders);
        self.durable.completed_order = self.durable.completed_order.max(given.completed_order);
        self.durable.highest = self.durable.highest.max(given.highest).max(given.term);
        self.durable.floor = self.durable.floor.max(given.floor);
        let same = given.holder.as_ref().is_some_and(|holder| self.has_supported(holder.id));
        if given.term <= self.durable.term {
            return None;
        }
        if !same && !self.is_free(now) {
            return given.is_forgotten().then(|| self.bound_until.since(now));
        }
        if !same {
            self.durable.lease = Duration::ZERO;
            self.bound_until = Instant::ZERO;
        }
        self.bound_before = self.bound_until;
        let lease = self.durable.lease.max(given.lease);
        (self.durable.term, self.durable.holder, self.durable.seen) = (given.term, given.holder.clone(), given.seen);
        (self.durable.lease, self.durable.released) = (lease, given.released);
        self.beat = given.released.unwrap_or_default();
        None
    }

    /// Whether it may support the holder to whom a majority has granted this term, which it has supported somebody else in, or
    /// somebody beyond it.
    ///
    /// Nobody else whom it has supported in that term was granted it. Whom it has supported in a later one was not granted that by the
    /// time at which the holder said so, or the holder would not have believed any more: so the voter comes back when it is bound to
    /// nobody. It does not if it knows that a later term was granted since, for then the holder's word is late.
    fn may_join(&self, term: Token, now: Instant) -> bool {
        term >= self.durable.term || self.flawed_comes_back() || (self.is_free(now) && term >= self.granted)
    }

    /// `seen`: the count of the hand-over that the candidate has seen, if there are no later orders in its way.
    /// `is_open`: it may support somebody in this term whom it did not support in it before.
    fn claimed(
        &mut self,
        term: Token,
        holder: &Holder,
        lease: Duration,
        seen: Option<u64>,
        is_open: bool,
        now: Instant,
    ) -> bool {
        let same = self.has_supported(holder.id);
        if term == self.durable.term && (same || self.flawed_shares_terms()) {
            // Asked again, since the answer was lost; but what was taken back is not given again.
            let may = self.durable.released.is_none() && seen.is_none_or(|seen| seen == self.durable.seen);
            if may {
                self.promise(lease, now);
            }
            return may;
        }
        let may = is_open && (same || self.is_free(now) || self.flawed_breaks_promise());
        let Some(seen) = seen.filter(|_| may) else { return false };
        if !same {
            // Longer promises to others have ended, or it would not be free.
            self.durable.lease = Duration::ZERO;
            self.bound_until = Instant::ZERO;
        }
        self.durable.highest = self.flawed_highest(term);
        (self.durable.term, self.durable.holder, self.durable.seen) = (term, Some(holder.clone()), seen);
        (self.beat, self.durable.released) = (1, None);
        self.promise(lease, now);
        true
    }

    /// Bound for that long from now, and never shorter than before: the holder may believe what it was promised first. Longer
    /// by what this clock may be fast, as a challenger of a row waits longer (rule R2).
    fn promise(&mut self, lease: Duration, now: Instant) {
        self.durable.lease = self.durable.lease.max(lease);
        self.bound_before = self.bound_until;
        self.bound_until = self.bound_until.max(now + stretched(lease, self.drift_ppm));
    }

    /// Bound by no more than it was before this renewal, whether that has arrived or is still to come.
    fn withdraw(&mut self, beat: u64) {
        if beat == self.beat {
            self.bound_until = self.bound_before;
        }
        (self.beat, self.bound_before) = (beat, self.bound_until);
    }

    /// No numbers are used up by one mistaken or hostile ask, or nobody could ever be granted a later term, or be heard with a
    /// later order.
    fn is_sane(&self, ask: &Ask) -> bool {
        /// Some four million orders.
        const COUNTS: u64 = 1 << 42;
        let Durable { highest: own, seen, orders, completed_order, .. } = &self.durable;
        let known =
            orders.handover.count.max(orders.paused.count).max(*seen).max(*completed_order).saturating_add(COUNTS);
        let (term, count) = match ask {
            Ask::Read => return true,
            Ask::Claim { term, seen, granted, .. } => {
                (*term, seen.handover.max(seen.paused).max(granted.map_or(0, |granted| granted.completed_order)))
            }
            Ask::Renew { term, completed_order, .. } | Ask::Release { term, completed_order, .. } => {
                (*term, *completed_order)
            }
            Ask::Withdraw { term, .. } | Ask::Forget { term } => (*term, 0),
            Ask::Order { orders, .. } => (Token::NONE, orders.handover.count.max(orders.paused.count)),
        };
        !is_leap(term, *own) && count <= known
    }

    /// A holder has told of this, and that it was granted this term.
    fn note(&mut self, granted: Token, beat: u64, completed_order: u64) {
        self.granted = self.granted.max(granted);
        self.beat = self.beat.max(beat);
        self.durable.completed_order = self.durable.completed_order.max(completed_order);
    }

    /// Whether this renewal has come before. It is promised once, and not at all if it was withdrawn.
    fn has_renewed(&self, term: Token, id: CandidateId, beat: u64) -> bool {
        self.supports(term, id) && beat <= self.beat
    }

    fn supports(&self, term: Token, id: CandidateId) -> bool {
        self.durable.term == term && self.has_supported(id)
    }

    fn has_supported(&self, id: CandidateId) -> bool {
        self.durable.holder.as_ref().is_some_and(|holder| holder.id == id)
    }

    fn is_free(&self, now: Instant) -> bool {
        self.durable.holder.is_none() || self.durable.released.is_some() || now >= self.bound_until
    }

    fn view(&self, now: Instant) -> VoterView {
        let Durable { highest, term, holder, seen, lease, orders, completed_order, released, floor: _ } =
            self.durable.clone();
        let released = released.is_some();
        let bound = (!self.is_free(now)).then(|| self.bound_until.since(now));
        let age = bound.map_or(Duration::ZERO, |left| stretched(lease, self.drift_ppm).saturating_sub(left));
        VoterView { highest, term, holder, beat: self.beat, seen, lease, bound, age, released, orders, completed_order }
    }
}
