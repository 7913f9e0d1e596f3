//! One voter's part in who votes: the configuration that it has, and what it has promised about the next one.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::time::Duration;

use super::voter::{Durable, Voter};
use super::voter_set::{VoterId, VoterSet, is_majority};
use crate::{ElectionName, Instant};

/// Who votes, with whatever else is known of them, such as where they are. Two that have one number are equal.
pub trait Configuration: Clone + Debug + Eq {
    /// Their majorities, and the number.
    fn voter_set(&self) -> VoterSet;

    /// How the change ends, if it changes: the new voters alone.
    #[must_use]
    fn settled(&self) -> Option<Self>;

    /// Whether `next` can be the step after this one: the joint phase of these voters with new ones, or its end.
    fn leads_to(&self, next: &Self) -> bool {
        if let Some(settled) = self.settled() {
            return settled == *next;
        }
        let (own, next) = (self.voter_set(), next.voter_set());
        own.number().checked_add(1) == Some(next.number()) && next.incoming().is_some() && own.old() == next.old()
    }
}

impl Configuration for VoterSet {
    fn voter_set(&self) -> VoterSet {
        self.clone()
    }

    fn settled(&self) -> Option<Self> {
        Self::settled(self)
    }
}

/// One attempt to begin a change. Of two attempts the larger one counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    /// Above those that were heard of.
    pub count: u64,
    /// Random bits of the process that attempts it: no two attempts are alike.
    pub by: u128,
}

/// Something about who votes that a voter is asked. Asking again does nothing twice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ConfigRequest<C> {
    /// That it take nothing for the change after this number of any attempt before this one, and tell what it has taken.
    Prepare {
        /// The number of what changes.
        number: u64,
        /// The attempt.
        ballot: Ballot,
    },
    /// That it take this for the change after this number. A change that a majority has taken in one attempt is the one.
    Take {
        /// The number of what changes.
        number: u64,
        /// The attempt.
        ballot: Ballot,
        /// The same voters and those that are to come.
        proposal: C,
    },
    /// That these are the voters by now: from then on it answers nobody who counts with those before them. Only an
    /// operator is believed, who sends what was chosen, or what one voter has told: that is not proven.
    Adopt(C),
    /// What it has promised, now that it answers by this number.
    Report {
        /// Of a change.
        number: u64,
    },
    /// That it take over what the old voters may have granted.
    Inherit {
        /// Of a change.
        number: u64,
        /// By election.
        elections: BTreeMap<ElectionName, Durable>,
    },
}

/// What a voter answers to that.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ConfigReply<C> {
    /// It is done, and on disk.
    Done,
    /// It has inherited, but not that an election was forgotten: it is still bound to somebody from before, and nobody renews that. The
    /// rest is done, and on disk.
    Partly {
        /// For how long it is bound.
        bound: Duration,
    },
    /// Nothing of earlier attempts will be taken. This was, by the last of them that reached it.
    Prepared(Option<(Ballot, C)>),
    /// It has heard of this later attempt, and does nothing for earlier ones.
    Outbid(Ballot),
    /// It has other voters than were meant, or none yet, and did nothing.
    Elsewhere(Option<C>),
    /// What it has promised.
    Reported(VoterReport),
}

/// What a voter has promised, told after it began to answer by the number of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VoterReport {
    /// Until all that it has promised before has ended, or zero. What was promised since is promised by the new voters too.
    pub settles_in: Duration,
    /// By election.
    pub elections: BTreeMap<ElectionName, Durable>,
}

/// All that a voter has promised, as its acceptor needs it.
pub trait VoterPromises {
    /// Until when it is bound by any of its promises, if it is.
    fn bound_until(&self, now: Instant) -> Option<Instant>;

    /// What its disk has of them.
    fn kept(&self) -> BTreeMap<ElectionName, Durable>;

    /// Does [`Voter::inherit`](super::Voter::inherit) in one election.
    fn inherit(&mut self, election: &ElectionName, given: &Durable, now: Instant) -> Option<Duration>;
}

/// A voter that knows of one election only.
impl VoterPromises for (&ElectionName, &mut Voter) {
    fn bound_until(&self, now: Instant) -> Option<Instant> {
        self.1.bound_until(now)
    }

    fn kept(&self) -> BTreeMap<ElectionName, Durable> {
        [(self.0.clone(), self.1.durable().clone())].into()
    }

    fn inherit(&mut self, _: &ElectionName, given: &Durable, now: Instant) -> Option<Duration> {
        self.1.inherit(given, now)
    }
}

/// What a voter says to one that may have been away: its own disk, and nothing that it was only told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConfigEvidence<C> {
    /// The configurations after the one that was asked about that it has adopted, as far as it still knows them.
    pub adopted: Vec<C>,
    /// What it has taken for the change after the one that was asked about, if that is its own.
    pub taken: Option<(Ballot, C)>,
}

impl<C> Default for ConfigEvidence<C> {
    fn default() -> Self {
        Self { adopted: Vec::new(), taken: None }
    }
}

/// By how many numbers an operator's configuration may be beyond a voter's own. One that nobody makes by mistake or on purpose
/// uses the numbers up.
pub const LEAP_MOST: u64 = 1_000;

/// One voter's part in who votes. All but a point in time is kept on disk, flushed before any answer leaves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConfigAcceptor<C> {
    configuration: Option<C>,
    promised: Ballot,
    taken: Option<(Ballot, C)>,
    /// Until when promises last that it made before it had this configuration, or before it was restarted.
    settles_at: Instant,
}

impl<C: Configuration> ConfigAcceptor<C> {
    /// That of a voter which has never been one.
    pub const fn new() -> Self {
        let promised = Ballot { count: 0, by: 0 };
        Self { configuration: None, promised, taken: None, settles_at: Instant::ZERO }
    }

    /// What the disk of a voter has kept, as its process starts.
    pub fn restarted(
        configuration: Option<C>,
        promised: Ballot,
        taken: Option<(Ballot, C)>,
        elections: &impl VoterPromises,
        now: Instant,
    ) -> Self {
        let settles_at = elections.bound_until(now).unwrap_or(Instant::ZERO);
        Self { configuration, promised, taken, settles_at }
    }

    /// The voter's promises have been bound anew ([`Voter::bind_anew`]): those that were made before this configuration too.
    pub fn bound_anew(&mut self, elections: &impl VoterPromises, now: Instant) {
        self.settles_at = elections.bound_until(now).unwrap_or(Instant::ZERO);
    }

    /// The planted bug [`ForgetsSettling`](super::Flaw::ForgetsSettling).
    #[cfg(feature = "flaws")]
    pub const fn forget_settling(&mut self) {
        self.settles_at = Instant::ZERO;
    }

    /// The voters that it has adopted last.
    pub const fn configuration(&self) -> Option<&C> {
        self.configuration.as_ref()
    }

    /// The last attempt at the next change that it has promised itself to, and what it has taken for it.
    pub const fn next(&self) -> (Ballot, Option<&(Ballot, C)>) {
        (self.promised, self.taken.as_ref())
    }

    /// Whether a question that counts with the voters of this number is answered.
    pub fn admits(&self, number: u64) -> bool {
        self.configuration.as_ref().is_some_and(|own| own.voter_set().number() == number)
    }

    /// Answers what it is asked at that time. Whatever of it has changed must be flushed before the answer leaves.
    pub fn handle(
        &mut self,
        ask: ConfigRequest<C>,
        elections: &mut impl VoterPromises,
        now: Instant,
    ) -> ConfigReply<C> {
        match ask {
            ConfigRequest::Adopt(configuration) => self.adopt(configuration, elections, now),
            ConfigRequest::Prepare { number, ballot } => {
                self.bid(number, ballot, |own| ConfigReply::Prepared(own.taken.clone()))
            }
            ConfigRequest::Take { number, ballot, proposal } => {
                if !self.configuration.as_ref().is_some_and(|own| own.leads_to(&proposal)) {
                    return self.elsewhere();
                }
                self.bid(number, ballot, |own| {
                    own.taken = Some((ballot, proposal));
                    ConfigReply::Done
                })
            }
            ConfigRequest::Report { number } | ConfigRequest::Inherit { number, .. } if !self.admits(number) => {
                self.elsewhere()
            }
            ConfigRequest::Report { .. } => {
                let settles_in = self.settles_at.since(now);
                ConfigReply::Reported(VoterReport { settles_in, elections: elections.kept() })
            }
            ConfigRequest::Inherit { elections: given, .. } => {
                let bound = given.iter().filter_map(|(name, given)| elections.inherit(name, given, now)).max();
                bound.map_or(ConfigReply::Done, |bound| ConfigReply::Partly { bound })
            }
        }
    }

    /// The configuration after its own, if this evidence proves which one that is. It is that of voters that have
    /// proven who they are, and of this one itself: its own disk counts as that of any other.
    ///
    /// A joint phase is proven by more than half of the voters before it that have adopted it or have taken it in one attempt,
    /// once somebody has adopted it: one that was only taken is for an operator to begin, who also ends it. The end of a joint
    /// phase is proven by more than half of the voters after it that have adopted that, or later ones.
    pub fn proven(&self, evidence: &BTreeMap<VoterId, ConfigEvidence<C>>) -> Option<C> {
        let own = self.configuration.as_ref()?;
        let voter_set = own.voter_set();
        if let (Some(settled), Some(incoming)) = (own.settled(), voter_set.incoming()) {
            let end = settled.voter_set().number();
            let has = |voter: VoterId| {
                let mut adopted = evidence.get(&voter).into_iter().flat_map(|told| &told.adopted);
                adopted.any(|adopted| *adopted == settled || adopted.voter_set().number() > end)
            };
            return is_majority(incoming, has).then_some(settled);
        }
        let adopted = evidence.values().flat_map(|told| &told.adopted);
        let taken = evidence.values().filter_map(|told| told.taken.as_ref());
        let attempts: Vec<Option<Ballot>> = taken.map(|(ballot, _)| Some(*ballot)).chain([None]).collect();
        let mut begun = adopted.filter(|next| own.leads_to(next));
        let is_proven = |next: &&C| {
            attempts.iter().any(|attempt| {
                let says = |voter: VoterId| {
                    evidence.get(&voter).is_some_and(|told| {
                        let took = |(ballot, taken): &(Ballot, C)| Some(*ballot) == *attempt && taken == *next;
                        told.adopted.contains(next) || told.taken.as_ref().is_some_and(took)
                    })
                };
                is_majority(voter_set.old(), says)
            })
        };
        begun.find(is_proven).cloned()
    }

    /// Takes what [`proven`](Self::proven) gives.
    pub fn catch_up(
        &mut self,
        evidence: &BTreeMap<VoterId, ConfigEvidence<C>>,
        elections: &impl VoterPromises,
        now: Instant,
    ) -> bool {
        let Some(next) = self.proven(evidence) else { return false };
        *self = Self::restarted(Some(next), Ballot::default(), None, elections, now);
        true
    }

    /// Whether an operator may have it take these: the next step if they are one number on, or later ones that it was away for.
    fn may_adopt(&self, configuration: &C) -> bool {
        let number = configuration.voter_set().number();
        let Some(own) = &self.configuration else { return true };
        match number.checked_sub(own.voter_set().number()) {
            Some(1) => own.leads_to(configuration),
            Some(leap) => leap <= LEAP_MOST,
            None => false,
        }
    }

    /// Takes these in the place of its own if they are later. What was taken for the change before them means nothing any more.
    fn adopt(&mut self, configuration: C, elections: &impl VoterPromises, now: Instant) -> ConfigReply<C> {
        let number = configuration.voter_set().number();
        match self.configuration.as_ref().map(|own| own.voter_set().number()) {
            Some(own) if own == number => ConfigReply::Done,
            _ if !self.may_adopt(&configuration) => self.elsewhere(),
            _ => {
                *self = Self::restarted(Some(configuration), Ballot::default(), None, elections, now);
                ConfigReply::Done
            }
        }
    }

    /// A ballot of one decision, as an acceptor of Lamport, "Paxos made simple", 2001.
    fn bid(&mut self, number: u64, ballot: Ballot, then: impl FnOnce(&mut Self) -> ConfigReply<C>) -> ConfigReply<C> {
        let is_meant = |own: &C| own.voter_set().number() == number && own.settled().is_none();
        if !self.configuration.as_ref().is_some_and(is_meant) {
            return self.elsewhere();
        }
        if ballot < self.promised {
            return ConfigReply::Outbid(self.promised);
        }
        self.promised = ballot;
        then(self)
    }

    fn elsewhere(&self) -> ConfigReply<C> {
        ConfigReply::Elsewhere(self.configuration.clone())
    }
}

impl<C: Configuration> Default for ConfigAcceptor<C> {
    fn default() -> Self {
        Self::new()
    }
}
