//! What the answers of many voters tell together.

use alloc::vec::Vec;
use core::time::Duration;

use super::port::{Orders, VoterView};
use super::voter::is_leap;
use super::voter_set::{VoterId, VoterSet};
use crate::Token;
use crate::lease::{Holder, Record, Sighting, Standing, Version};

/// Answers of a majority or more.
pub(super) struct Views<'a> {
    pub(super) voter_set: &'a VoterSet,
    pub(super) heard: &'a VoterAnswers,
}

/// What each of a few voters has answered, ordered by their identities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct VoterAnswers(Vec<(VoterId, VoterView)>);

impl VoterAnswers {
    pub(super) fn insert(&mut self, voter: VoterId, view: VoterView) {
        match self.place(voter) {
            Ok(place) => self.0[place].1 = view,
            Err(place) => self.0.insert(place, (voter, view)),
        }
    }

    fn place(&self, voter: VoterId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&voter, |(own, _)| *own)
    }

    pub(super) fn get(&self, voter: VoterId) -> Option<&VoterView> {
        self.place(voter).ok().map(|place| &self.0[place].1)
    }

    pub(super) fn has(&self, voter: VoterId) -> bool {
        self.place(voter).is_ok()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &VoterView> {
        self.0.iter().map(|(_, view)| view)
    }

    #[cfg(feature = "flaws")]
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut VoterView> {
        self.0.iter_mut().map(|(_, view)| view)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Views<'_> {
    /// Whether enough voters have answered something of which this is true.
    pub(super) fn agree(&self, is: impl Fn(&VoterView) -> bool) -> bool {
        self.voter_set.is_quorum(|voter| self.heard.get(voter).is_some_and(&is))
    }

    /// Whether there may be enough voters for which this term is no leap.
    pub(super) fn may_take(&self, term: Token) -> bool {
        self.voter_set.is_quorum(|voter| self.heard.get(voter).is_none_or(|view| !is_leap(term, view.highest)))
    }

    /// The highest term that any of them has supported a candidate in: the next one is above it.
    pub(super) fn highest(&self) -> Token {
        self.heard.values().map(|view| view.highest).max().unwrap_or_default()
    }

    /// Up to which count hand-overs are completed: by what holders have told, and by the last grant itself.
    pub(super) fn completed_order(&self, forgotten: Token) -> u64 {
        let told = self.heard.values().map(|view| view.completed_order).max().unwrap_or_default();
        told.max(self.granted(forgotten).map_or(0, |(token, holder)| self.seen_by(token, holder)))
    }

    /// The hand-over that the holder of a term had seen when it claimed it. Others who claimed the same term count for
    /// nothing.
    fn seen_by(&self, term: Token, holder: &Holder) -> u64 {
        let of_it = self.heard.values().filter(|view| view.term == term && view.supports(holder.id));
        of_it.map(|view| view.seen).max().unwrap_or_default()
    }

    /// The term in which the election was forgotten, as far as any of these knows; `Token::NONE` if it was not.
    pub(super) fn forgotten(&self) -> Token {
        self.heard.values().filter(|view| view.is_forgotten()).map(|view| view.term).max().unwrap_or_default()
    }

    /// Whether somebody is still bound to a holder of a term up to this one: then fewer than a majority have forgotten it.
    pub(super) fn is_bound_up_to(&self, term: Token) -> bool {
        self.heard.values().any(|view| view.term <= term && view.bound.is_some())
    }

    /// The highest term that was granted, and to whom, as far as these answers prove it: a majority has supported it, or its
    /// holder has renewed it, which nobody does without a majority. Who has missed that an election was forgotten proves nothing
    /// of what was before.
    fn granted(&self, forgotten: Token) -> Option<(Token, &Holder)> {
        let claims = self.heard.values().filter(|view| view.term > forgotten);
        let claims = claims.filter_map(|view| Some((view.term, view.holder.as_ref()?, view.beat)));
        let proven = claims.filter(|(term, holder, beat)| {
            *beat > 1 || self.agree(|view| view.term == *term && view.supports(holder.id))
        });
        proven.max_by_key(|(term, ..)| *term).map(|(term, holder, _)| (term, holder))
    }

    /// The election's record as the last grant and the latest orders make it, or `None` if nothing was ever granted or ordered.
    /// The hand-overs up to `completed_order` are completed. `forgotten`: the election was forgotten in this term.
    pub(super) fn record(&self, orders: &Orders, completed_order: u64, forgotten: Token) -> Option<Record> {
        let (order_number, granted) = (orders.order_number(), self.granted(forgotten));
        if granted.is_none() && order_number == 0 {
            return None;
        }
        let token = granted.map_or(forgotten, |(token, _)| token);
        let (handover, paused) = (orders.handover_after(completed_order, token), orders.is_paused(token));
        let Some((_, holder)) = granted else {
            if forgotten > Token::NONE && handover.is_none() && !paused {
                return None;
            }
            let (version, lease) = (Version { token, beat: 0 }, Duration::ZERO);
            return Some(Record { version, holder: None, lease, order_number, handover, paused });
        };
        // A voter may support somebody else in this term, whose claim was taken back: that is no release.
        let is_of_it = |view: &VoterView| view.term == token && view.supports(holder.id);
        let of_it = |view: &&VoterView| is_of_it(view);
        // A renewal counts once a majority has seen it, as a change of a row counts once it is committed. A release counts at
        // once: its sender leads no more.
        let released = self.heard.values().filter(of_it).filter(|view| view.released).map(|view| view.beat).max();
        let beats = self.heard.values().filter(of_it).map(|view| view.beat);
        let seen = beats.filter(|beat| self.agree(|view| is_of_it(view) && view.beat >= *beat)).max();
        Some(Record {
            version: Version { token, beat: released.or(seen).unwrap_or(1).max(1) },
            holder: released.is_none().then(|| holder.clone()),
            lease: self.heard.values().filter(of_it).map(|view| view.lease).max().unwrap_or_default(),
            order_number,
            handover,
            paused,
        })
    }

    /// Whether a majority is bound to nobody: the last holder has lost the lease.
    pub(super) fn is_vacant(&self) -> bool {
        self.agree(|view| view.bound.is_none())
    }

    /// What a look tells, with this record.
    pub(super) fn sighting(&self, record: Option<Record>, forgotten: Token) -> Sighting {
        let token = record.as_ref().map(|record| record.version.token);
        let promised = self.heard.values().filter(|view| Some(view.term) == token).filter(|view| view.bound.is_some());
        Sighting {
            // Claims that were never granted count for no one.
            remembered: token.unwrap_or(forgotten),
            age: promised.map(|view| view.age).min(),
            holder_gone: record.as_ref().is_some_and(|record| record.holder.is_some()) && self.is_vacant(),
            standing: Standing::default(),
            record,
        }
    }
}
