//! Exchanges the voters while they vote: into a joint phase, and out of it when the new voters know all that they must.

mod driver;
mod flaws;
#[cfg(feature = "flaws")]
mod search;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

#[cfg(feature = "flaws")]
use super::Flaw;
use super::config_acceptor::{Ballot, ConfigReply, ConfigRequest, Configuration, VoterReport};
use super::voter::Durable;
use super::voter_set::{VoterId, VoterSet, is_majority};
use crate::{ElectionName, Token};
pub use driver::{Planned, ReconfigurationDriver, ReconfigurationEffect};

/// What a change wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReconfigurationOutput<C> {
    /// Send this to that voter. Its answer goes to [`ReconfigurationAttempt::answered`]; if there can be none, [`ReconfigurationAttempt::unheard`] is told.
    Send {
        /// Whom.
        to: VoterId,
        /// Which question it belongs to.
        round: u64,
        /// What to ask.
        ask: ConfigRequest<C>,
    },
    /// Call [`ReconfigurationAttempt::resume`] after this time: promises have to end first. Zero: after a short random time, since
    /// somebody else attempts a change too, or a voter is busy.
    Wait(Duration),
    /// A majority of the old voters and one of the new ones have begun this change: it can be finished and not undone.
    Begun(C),
    /// It is over, and these vote now, a majority of them by their own disks. Whether they are those that were wanted is for the caller to see:
    /// a change that was under way is finished first, and another's may have been sooner.
    Done(C),
    /// It cannot go on, since these have not answered; what was begun stays begun, and can be finished later.
    Stuck(Vec<VoterId>),
}

/// One attempt to exchange voters, or to finish an exchange that somebody else has begun. It may be given up at any point:
/// nothing that it has done is wrong then, and another one goes on from there.
///
/// An attempt that only finishes also asks what was taken: new voters may have adopted a change, and told others of it, of which the
/// old ones know no more than that. What a minority has taken it leaves alone.
///
/// The design page on the quorum lists the steps, and says why each of them comes before the next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReconfigurationAttempt<C> {
    /// The last that are known to vote.
    current: C,
    /// What they are to become, with the next number.
    wanted: Option<C>,
    ballot: Ballot,
    step: Step<C>,
    round: u64,
    heard: BTreeMap<VoterId, ConfigReply<C>>,
    unheard: BTreeSet<VoterId>,
    #[cfg(feature = "flaws")]
    pub(super) flaw: Option<Flaw>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step<C> {
    /// The voters of the current configuration shall have it.
    Adopting,
    Preparing,
    Taking(C),
    Surveying,
    Inheriting {
        /// How long promises last that the old voters made alone.
        settles_in: Duration,
    },
    /// The new voters shall vote alone.
    Settling(C),
    /// They do, and those that go are told.
    Parting(C),
    Waiting,
    Over,
}

impl<C: Configuration> ReconfigurationAttempt<C> {
    /// From these voters to those, which have the next number and are in the joint phase; or only to the end of
    /// a change that is under way. `by`: random bits that nobody else has.
    pub fn new(current: C, wanted: Option<C>, by: u128) -> Self {
        Self {
            current,
            wanted,
            ballot: Ballot { count: 0, by },
            step: Step::Waiting,
            round: 0,
            heard: BTreeMap::new(),
            unheard: BTreeSet::new(),
            #[cfg(feature = "flaws")]
            flaw: None,
        }
    }

    /// The same after another attempt of the same process: no two of them use one ballot.
    #[must_use]
    pub(super) const fn after(mut self, other: &Self) -> Self {
        self.ballot.count = other.ballot.count;
        self
    }

    /// Begins, or goes on after it has waited.
    pub fn resume(&mut self, out: &mut Vec<ReconfigurationOutput<C>>) {
        if self.step != Step::Waiting {
            return;
        }
        let voter_set = self.current.voter_set();
        if voter_set.incoming().is_none() && self.has_next() {
            return self.prepare(&voter_set, out);
        }
        self.step = Step::Adopting;
        self.ask(voter_set.voters().collect(), &ConfigRequest::Adopt(self.current.clone()), out);
    }

    /// Those that are known to vote.
    pub const fn current(&self) -> &C {
        &self.current
    }

    /// A voter has answered.
    pub fn answered(
        &mut self,
        from: VoterId,
        round: u64,
        answer: ConfigReply<C>,
        out: &mut Vec<ReconfigurationOutput<C>>,
    ) {
        if round != self.round || self.is_idle() {
            return;
        }
        match answer {
            ConfigReply::Elsewhere(Some(newer)) if self.number_of(&newer) > self.number_of(&self.current) => {
                self.learn(newer, out);
            }
            ConfigReply::Outbid(ballot) => {
                self.ballot.count = self.ballot.count.max(ballot.count);
                self.wait(Duration::ZERO, out);
            }
            answer => {
                self.heard.insert(from, answer);
                self.proceed(out);
            }
        }
    }

    /// No answer to this round will come from that voter, which may have done what it was asked.
    pub fn unheard(&mut self, from: VoterId, round: u64, out: &mut Vec<ReconfigurationOutput<C>>) {
        if round == self.round && !self.is_idle() && !self.heard.contains_key(&from) {
            self.unheard.insert(from);
            self.proceed(out);
        }
    }

    // ---- steps ----

    fn is_idle(&self) -> bool {
        matches!(self.step, Step::Waiting | Step::Over)
    }

    fn ask(&mut self, whom: Vec<VoterId>, ask: &ConfigRequest<C>, out: &mut Vec<ReconfigurationOutput<C>>) {
        self.round += 1;
        self.heard.clear();
        self.unheard.clear();
        let round = self.round;
        out.extend(whom.into_iter().map(|to| ReconfigurationOutput::Send { to, round, ask: ask.clone() }));
    }

    fn wait(&mut self, span: Duration, out: &mut Vec<ReconfigurationOutput<C>>) {
        self.step = Step::Waiting;
        out.push(ReconfigurationOutput::Wait(span));
    }

    fn end(&mut self, output: ReconfigurationOutput<C>, out: &mut Vec<ReconfigurationOutput<C>>) {
        self.step = Step::Over;
        out.push(output);
    }

    /// Others have gone on: from there.
    fn learn(&mut self, newer: C, out: &mut Vec<ReconfigurationOutput<C>>) {
        self.current = newer;
        self.step = Step::Waiting;
        self.resume(out);
    }

    fn proceed(&mut self, out: &mut Vec<ReconfigurationOutput<C>>) {
        let voter_set = self.current.voter_set();
        match &self.step {
            Step::Waiting | Step::Over => {}
            Step::Adopting => self.adopted(&voter_set, out),
            Step::Preparing => self.prepared(&voter_set, out),
            Step::Taking(proposal) => {
                let is_done = |voter| self.heard.get(&voter) == Some(&ConfigReply::Done);
                if is_majority(voter_set.old(), is_done) {
                    // A majority has taken it in one attempt: it can be no other.
                    let chosen = self.flawed_successor(proposal.clone());
                    self.learn(chosen, out);
                } else {
                    self.give_up_if(|own| own.may_hear(voter_set.old()), out);
                }
            }
            Step::Surveying => self.surveyed(&voter_set, out),
            Step::Inheriting { settles_in } => {
                let settles_in = *settles_in;
                let incoming = voter_set.incoming().cloned().unwrap_or_default();
                self.inherited(settles_in, &incoming, out);
            }
            Step::Settling(settled) => {
                let settled = settled.clone();
                self.settled(settled, &voter_set, out);
            }
            Step::Parting(settled) if !self.is_open(parting(&voter_set)) => {
                let settled = settled.clone();
                self.over(settled, out);
            }
            Step::Parting(_) => {}
        }
    }

    /// All who can be are told before it goes on: a voter that is left out has to be told by somebody else.
    fn adopted(&mut self, voter_set: &VoterSet, out: &mut Vec<ReconfigurationOutput<C>>) {
        if self.is_open(voter_set.voters()) {
            return;
        }
        if !voter_set.is_quorum(|voter| self.heard.get(&voter) == Some(&ConfigReply::Done)) {
            return self.stuck(out);
        }
        if voter_set.incoming().is_some() {
            out.push(ReconfigurationOutput::Begun(self.current.clone()));
            self.step = Step::Surveying;
            let old = voter_set.old().iter().copied().collect();
            return self.ask(old, &ConfigRequest::Report { number: voter_set.number() }, out);
        }
        if self.wanted.is_none() || self.has_next() {
            return self.prepare(voter_set, out);
        }
        self.end(ReconfigurationOutput::Done(self.current.clone()), out);
    }

    /// Whether what is wanted comes next.
    fn has_next(&self) -> bool {
        let next = self.number_of(&self.current).saturating_add(1);
        self.wanted.as_ref().is_some_and(|wanted| self.number_of(wanted) == next)
    }

    fn prepare(&mut self, voter_set: &VoterSet, out: &mut Vec<ReconfigurationOutput<C>>) {
        // No attempt proposes two things.
        self.ballot.count = self.ballot.count.saturating_add(1);
        self.step = Step::Preparing;
        let ask = ConfigRequest::Prepare { number: voter_set.number(), ballot: self.ballot };
        self.ask(voter_set.old().iter().copied().collect(), &ask, out);
    }

    /// What may have been taken by a majority already is proposed again, and nothing else (Lamport, "Paxos made simple", 2001).
    fn prepared(&mut self, voter_set: &VoterSet, out: &mut Vec<ReconfigurationOutput<C>>) {
        let is_prepared = |voter| matches!(self.heard.get(&voter), Some(ConfigReply::Prepared(_)));
        if !is_majority(voter_set.old(), is_prepared) {
            return self.give_up_if(|own| own.may_hear(voter_set.old()), out);
        }
        if self.wanted.is_none() {
            // The more answer, the less has to be taken for possible.
            if self.is_open(voter_set.old().iter().copied()) {
                return;
            }
            if !self.may_be_taken(voter_set.old()) {
                return self.end(ReconfigurationOutput::Done(self.current.clone()), out);
            }
        }
        let taken = self.heard.values().filter_map(|answer| match answer {
            ConfigReply::Prepared(taken) => taken.clone(),
            _ => None,
        });
        let taken = if self.flawed_proposes_smallest() {
            taken.min_by_key(|(ballot, _)| *ballot)
        } else {
            taken.max_by_key(|(ballot, _)| *ballot)
        };
        let taken = taken.map(|(_, proposal)| proposal);
        let taken = taken.filter(|_| !self.flawed_ignores_taken());
        let Some(proposal) = taken.or_else(|| self.wanted.clone()) else { return };
        let ask = ConfigRequest::Take { number: voter_set.number(), ballot: self.ballot, proposal: proposal.clone() };
        self.step = Step::Taking(proposal);
        self.ask(voter_set.old().iter().copied().collect(), &ask, out);
    }

    /// Whether a majority may have taken the same in one attempt, for all that was heard.
    fn may_be_taken(&self, voters: &BTreeSet<VoterId>) -> bool {
        let taken_by = |voter: VoterId| match self.heard.get(&voter) {
            Some(ConfigReply::Prepared(taken)) => Some(taken.as_ref()),
            _ => None,
        };
        let mut attempts = voters.iter().filter_map(|voter| taken_by(*voter)?).map(|(ballot, _)| *ballot);
        attempts.any(|attempt| {
            is_majority(voters, |voter| {
                taken_by(voter).is_none_or(|taken| taken.is_some_and(|(ballot, _)| *ballot == attempt))
            })
        })
    }

    /// The more voters report, the less has to be taken for granted that was not: it waits for all that answer.
    fn surveyed(&mut self, voter_set: &VoterSet, out: &mut Vec<ReconfigurationOutput<C>>) {
        if self.is_open(voter_set.old().iter().copied()) {
            return;
        }
        let reports: BTreeMap<VoterId, VoterReport> = (self.heard.iter())
            .filter_map(|(voter, answer)| match answer {
                ConfigReply::Reported(report) => Some((*voter, report.clone())),
                _ => None,
            })
            .collect();
        if !is_majority(voter_set.old(), |voter| reports.contains_key(&voter)) {
            return self.stuck(out);
        }
        // When a majority has settled: those that do soonest.
        let mut settles: Vec<Duration> = reports.values().map(|report| report.settles_in).collect();
        settles.sort_unstable();
        let settles_in = settles.get(voter_set.old().len() / 2).copied().unwrap_or_default();
        let elections = self.flawed_heritage(heritage(&reports, voter_set.old().len()));
        let new: Vec<VoterId> = voter_set.incoming().into_iter().flatten().copied().collect();
        self.step = Step::Inheriting { settles_in: self.flawed_wait(settles_in) };
        self.ask(new, &ConfigRequest::Inherit { number: voter_set.number(), elections }, out);
    }

    /// Where an election was forgotten, it waits until a majority of the new voters knows that by their own answers: one that is bound to
    /// who led before may have become so after the reports.
    fn inherited(&mut self, settles_in: Duration, new: &BTreeSet<VoterId>, out: &mut Vec<ReconfigurationOutput<C>>) {
        if self.is_open(new.iter().copied()) {
            return;
        }
        let bound = |voter: VoterId| match self.heard.get(&voter) {
            Some(ConfigReply::Done) => Some(Duration::ZERO),
            Some(ConfigReply::Partly { bound }) => Some(self.flawed_bound(*bound)),
            _ => None,
        };
        // When a majority has taken over all: those that do soonest.
        let mut ends: Vec<Duration> = new.iter().filter_map(|voter| bound(*voter)).collect();
        ends.sort_unstable();
        let Some(bound) = ends.get(new.len() / 2) else { return self.stuck(out) };
        let waits = settles_in.max(*bound);
        match self.current.settled().filter(|_| waits.is_zero()) {
            Some(settled) => {
                let ask = ConfigRequest::Adopt(settled.clone());
                self.step = Step::Settling(settled);
                let voter_set = self.current.voter_set();
                let with = |voter: &VoterId| new.contains(voter) || self.flawed_parts_at_once();
                self.ask(voter_set.voters().filter(with).collect(), &ask, out);
            }
            None => self.wait(waits, out),
        }
    }

    /// Those that go vote no more once they know that, and may end: without them nobody could leave the joint phase who has not
    /// heard of its end. So a majority of those that stay has it before.
    fn settled(&mut self, settled: C, voter_set: &VoterSet, out: &mut Vec<ReconfigurationOutput<C>>) {
        let voters = settled.voter_set();
        if self.is_open(voters.voters()) {
            return;
        }
        if !voters.is_quorum(|voter| self.heard.get(&voter) == Some(&ConfigReply::Done)) {
            return self.stuck(out);
        }
        let parting: Vec<VoterId> = parting(voter_set).collect();
        if parting.is_empty() {
            return self.over(settled, out);
        }
        let ask = ConfigRequest::Adopt(settled.clone());
        self.step = Step::Parting(settled);
        self.ask(parting, &ask, out);
    }

    fn over(&mut self, settled: C, out: &mut Vec<ReconfigurationOutput<C>>) {
        self.current = settled.clone();
        self.end(ReconfigurationOutput::Done(settled), out);
    }

    // ---- what was heard ----

    fn number_of(&self, configuration: &C) -> u64 {
        configuration.voter_set().number()
    }

    /// Whether any of these may still answer.
    fn is_open(&self, mut voters: impl Iterator<Item = VoterId>) -> bool {
        voters.any(|voter| !self.heard.contains_key(&voter) && !self.unheard.contains(&voter))
    }

    fn may_hear(&self, voters: &BTreeSet<VoterId>) -> bool {
        let is_useless = |voter: &VoterId| matches!(self.heard.get(voter), Some(ConfigReply::Elsewhere(_)));
        is_majority(voters, |voter| !self.unheard.contains(&voter) && !is_useless(&voter))
    }

    fn give_up_if(&mut self, may_go_on: impl Fn(&Self) -> bool, out: &mut Vec<ReconfigurationOutput<C>>) {
        if !may_go_on(self) {
            self.stuck(out);
        }
    }

    fn stuck(&mut self, out: &mut Vec<ReconfigurationOutput<C>>) {
        let silent = self.unheard.iter().copied().collect();
        self.end(ReconfigurationOutput::Stuck(silent), out);
    }
}

/// Those that vote no more when this change is over.
fn parting(voter_set: &VoterSet) -> impl Iterator<Item = VoterId> {
    let stays = |voter: &VoterId| voter_set.incoming().is_none_or(|new| new.contains(voter));
    voter_set.old().iter().copied().filter(move |voter| !stays(voter))
}

/// What the new voters have to know of what the old ones may have granted, by these reports of a majority of the old voters.
///
/// For each election: the highest term that a majority may have supported somebody in, if those who have not reported are counted
/// with it. A voter with a higher term has supported that one before, for all that is known.
fn heritage(reports: &BTreeMap<VoterId, VoterReport>, voters: usize) -> BTreeMap<ElectionName, Durable> {
    let names: BTreeSet<&ElectionName> = reports.values().flat_map(|report| report.elections.keys()).collect();
    let of = |name: &ElectionName| {
        let kept: Vec<&Durable> = reports.values().filter_map(|report| report.elections.get(name)).collect();
        let by_a_majority = |term: fn(&Durable) -> Token| {
            let mut terms: Vec<Token> = kept.iter().map(|kept| term(kept)).collect();
            terms.resize(reports.len(), Token::NONE);
            terms.sort_unstable_by(|one, other| other.cmp(one));
            let unreported = voters - reports.len();
            terms.get(voters / 2 - unreported).copied().unwrap_or_default()
        };
        let (highest, term) = (by_a_majority(|kept| kept.highest), by_a_majority(|kept| kept.term));
        let floor = by_a_majority(|kept| kept.floor);
        // It may have been granted to nobody, and what nobody is known to have been granted must not look as if it had been: whom a
        // majority supports has led, or who has given the lease back. Another leader's renewals bring the new voters over.
        let of_it: Vec<&Durable> = kept.iter().copied().filter(|kept| kept.term == term).collect();
        let has_led = |one: &&&Durable| {
            let support = of_it.iter().filter(|other| other.support() == one.support());
            support.clone().count() * 2 > voters
                || support.clone().any(|kept| kept.holder.is_some() && kept.released > Some(0))
        };
        let nobody_known = of_it.iter().all(|kept| kept.holder.is_none());
        let first =
            of_it.iter().find(has_led).or_else(|| of_it.iter().find(|kept| nobody_known && kept.is_forgotten()));
        let of_holder = || of_it.iter().filter(|kept| first.is_some_and(|first| first.support() == kept.support()));
        let mut given = Durable { highest, term, floor, ..Durable::default() };
        kept.iter().for_each(|kept| given.orders.merge(&kept.orders));
        given.holder = first.and_then(|first| first.holder.clone());
        given.seen = of_holder().map(|kept| kept.seen).max().unwrap_or_default();
        given.lease = of_holder().map(|kept| kept.lease).max().unwrap_or_default();
        given.released = of_holder().filter_map(|kept| kept.released).max();
        given.completed_order = kept.iter().map(|kept| kept.completed_order).max().unwrap_or_default();
        given
    };
    names.into_iter().map(|name| (name.clone(), of(name))).collect()
}
