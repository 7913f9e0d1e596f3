//! Exchanges the voters while they vote: into a joint phase, and out of it when the new voters know all that they must.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

#[cfg(feature = "flaws")]
use super::Flaw;
use super::membership::{Membership, VoterId, is_majority};
use super::roll::{Ballot, Configuration, Report, RollAnswer, RollAsk};
use super::voter::Durable;
use crate::{ElectionName, Token};

/// What a change wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeOutput<C> {
    /// Send this to that voter. Its answer goes to [`Change::answered`]; if there can be none, [`Change::unheard`] is told.
    Send {
        /// Whom.
        to: VoterId,
        /// Which question it belongs to.
        round: u64,
        /// What to ask.
        ask: RollAsk<C>,
    },
    /// Call [`Change::resume`] after this time: promises have to end first. Zero: after a short random time, since
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
/// The steps, and why each of them comes before the next: `docs/design/quorum.md`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Change<C> {
    /// The last that are known to vote.
    current: C,
    /// What they are to become, with the next number.
    wanted: Option<C>,
    ballot: Ballot,
    step: Step<C>,
    round: u64,
    heard: BTreeMap<VoterId, RollAnswer<C>>,
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
    /// How long promises last that the old voters made alone.
    Inheriting(Duration),
    /// The new voters shall vote alone.
    Settling(C),
    /// They do, and those that go are told.
    Parting(C),
    Waiting,
    Over,
}

impl<C: Configuration> Change<C> {
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

    /// Begins, or goes on after it has waited.
    pub fn resume(&mut self, out: &mut Vec<ChangeOutput<C>>) {
        if self.step != Step::Waiting {
            return;
        }
        let membership = self.current.membership();
        if membership.incoming().is_none() && self.has_next() {
            return self.prepare(&membership, out);
        }
        self.step = Step::Adopting;
        self.ask(membership.voters().collect(), &RollAsk::Adopt(self.current.clone()), out);
    }

    /// Those that are known to vote.
    pub const fn current(&self) -> &C {
        &self.current
    }

    /// A voter has answered.
    pub fn answered(&mut self, from: VoterId, round: u64, answer: RollAnswer<C>, out: &mut Vec<ChangeOutput<C>>) {
        if round != self.round || self.is_idle() {
            return;
        }
        match answer {
            RollAnswer::Elsewhere(Some(newer)) if self.number_of(&newer) > self.number_of(&self.current) => {
                self.learn(newer, out);
            }
            RollAnswer::Outbid(ballot) => {
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
    pub fn unheard(&mut self, from: VoterId, round: u64, out: &mut Vec<ChangeOutput<C>>) {
        if round == self.round && !self.is_idle() && !self.heard.contains_key(&from) {
            self.unheard.insert(from);
            self.proceed(out);
        }
    }

    // ---- steps ----

    fn is_idle(&self) -> bool {
        matches!(self.step, Step::Waiting | Step::Over)
    }

    fn ask(&mut self, whom: Vec<VoterId>, ask: &RollAsk<C>, out: &mut Vec<ChangeOutput<C>>) {
        self.round += 1;
        self.heard.clear();
        self.unheard.clear();
        let round = self.round;
        out.extend(whom.into_iter().map(|to| ChangeOutput::Send { to, round, ask: ask.clone() }));
    }

    fn wait(&mut self, span: Duration, out: &mut Vec<ChangeOutput<C>>) {
        self.step = Step::Waiting;
        out.push(ChangeOutput::Wait(span));
    }

    fn end(&mut self, output: ChangeOutput<C>, out: &mut Vec<ChangeOutput<C>>) {
        self.step = Step::Over;
        out.push(output);
    }

    /// Others have gone on: from there.
    fn learn(&mut self, newer: C, out: &mut Vec<ChangeOutput<C>>) {
        self.current = newer;
        self.step = Step::Waiting;
        self.resume(out);
    }

    fn proceed(&mut self, out: &mut Vec<ChangeOutput<C>>) {
        let membership = self.current.membership();
        match &self.step {
            Step::Waiting | Step::Over => {}
            Step::Adopting => self.adopted(&membership, out),
            Step::Preparing => self.prepared(&membership, out),
            Step::Taking(proposal) => {
                let is_done = |voter| self.heard.get(&voter) == Some(&RollAnswer::Done);
                if is_majority(membership.old(), is_done) {
                    // A majority has taken it in one attempt: it can be no other.
                    let chosen = self.flawed_successor(proposal.clone());
                    self.learn(chosen, out);
                } else {
                    self.give_up_if(|own| own.may_hear(membership.old()), out);
                }
            }
            Step::Surveying => self.surveyed(&membership, out),
            Step::Inheriting(settles_in) => {
                let (settles_in, incoming) = (*settles_in, membership.incoming().cloned().unwrap_or_default());
                self.inherited(settles_in, &incoming, out);
            }
            Step::Settling(settled) => {
                let settled = settled.clone();
                self.settled(settled, &membership, out);
            }
            Step::Parting(settled) if !self.is_open(parting(&membership)) => {
                let settled = settled.clone();
                self.over(settled, out);
            }
            Step::Parting(_) => {}
        }
    }

    /// All who can be are told before it goes on: whoever is left out has to be told by somebody else.
    fn adopted(&mut self, membership: &Membership, out: &mut Vec<ChangeOutput<C>>) {
        if self.is_open(membership.voters()) {
            return;
        }
        if !membership.is_quorum(|voter| self.heard.get(&voter) == Some(&RollAnswer::Done)) {
            return self.stuck(out);
        }
        if membership.incoming().is_some() {
            out.push(ChangeOutput::Begun(self.current.clone()));
            self.step = Step::Surveying;
            let old = membership.old().iter().copied().collect();
            return self.ask(old, &RollAsk::Report { number: membership.number() }, out);
        }
        if self.has_next() {
            return self.prepare(membership, out);
        }
        self.end(ChangeOutput::Done(self.current.clone()), out);
    }

    /// Whether what is wanted comes next.
    fn has_next(&self) -> bool {
        let next = self.number_of(&self.current).saturating_add(1);
        self.wanted.as_ref().is_some_and(|wanted| self.number_of(wanted) == next)
    }

    fn prepare(&mut self, membership: &Membership, out: &mut Vec<ChangeOutput<C>>) {
        // No attempt proposes two things.
        self.ballot.count = self.ballot.count.saturating_add(1);
        self.step = Step::Preparing;
        let ask = RollAsk::Prepare { number: membership.number(), ballot: self.ballot };
        self.ask(membership.old().iter().copied().collect(), &ask, out);
    }

    /// What may have been taken by a majority already is proposed again, and nothing else (Lamport, "Paxos made simple", 2001).
    fn prepared(&mut self, membership: &Membership, out: &mut Vec<ChangeOutput<C>>) {
        let is_prepared = |voter| matches!(self.heard.get(&voter), Some(RollAnswer::Prepared(_)));
        if !is_majority(membership.old(), is_prepared) {
            return self.give_up_if(|own| own.may_hear(membership.old()), out);
        }
        let taken = self.heard.values().filter_map(|answer| match answer {
            RollAnswer::Prepared(taken) => taken.clone(),
            _ => None,
        });
        let taken = taken.max_by_key(|(ballot, _)| *ballot).map(|(_, proposal)| proposal);
        let taken = taken.filter(|_| !self.flawed_ignores_taken());
        let Some(proposal) = taken.or_else(|| self.wanted.clone()) else { return };
        let ask = RollAsk::Take { number: membership.number(), ballot: self.ballot, proposal: proposal.clone() };
        self.step = Step::Taking(proposal);
        self.ask(membership.old().iter().copied().collect(), &ask, out);
    }

    /// The more voters report, the less has to be taken for granted that was not: it waits for all that answer.
    fn surveyed(&mut self, membership: &Membership, out: &mut Vec<ChangeOutput<C>>) {
        if self.is_open(membership.old().iter().copied()) {
            return;
        }
        let reports: BTreeMap<VoterId, Report> = (self.heard.iter())
            .filter_map(|(voter, answer)| match answer {
                RollAnswer::Reported(report) => Some((*voter, report.clone())),
                _ => None,
            })
            .collect();
        if !is_majority(membership.old(), |voter| reports.contains_key(&voter)) {
            return self.stuck(out);
        }
        // When a majority has settled: those that do soonest.
        let mut settles: Vec<Duration> = reports.values().map(|report| report.settles_in).collect();
        settles.sort_unstable();
        let settles_in = settles.get(membership.old().len() / 2).copied().unwrap_or_default();
        self.step = Step::Inheriting(self.flawed_wait(settles_in));
        let elections = self.flawed_heritage(heritage(&reports, membership.old().len()));
        let new = membership.incoming().into_iter().flatten().copied().collect();
        self.ask(new, &RollAsk::Inherit { number: membership.number(), elections }, out);
    }

    fn inherited(&mut self, settles_in: Duration, new: &BTreeSet<VoterId>, out: &mut Vec<ChangeOutput<C>>) {
        if self.is_open(new.iter().copied()) {
            return;
        }
        let is_done = |voter| self.heard.get(&voter) == Some(&RollAnswer::Done);
        let is_there = |voter| is_done(voter) || self.heard.get(&voter) == Some(&RollAnswer::NotYet);
        match self.current.settled() {
            _ if !is_majority(new, is_there) => self.stuck(out),
            Some(settled) if settles_in.is_zero() && is_majority(new, is_done) => {
                let ask = RollAsk::Adopt(settled.clone());
                self.step = Step::Settling(settled);
                let membership = self.current.membership();
                let with = |voter: &VoterId| new.contains(voter) || self.flawed_parts_at_once();
                self.ask(membership.voters().filter(with).collect(), &ask, out);
            }
            _ => self.wait(settles_in, out),
        }
    }

    /// Those that go vote no more once they know that, and may end: without them nobody could leave the joint phase who has not
    /// heard of its end. So a majority of those that stay has it before.
    fn settled(&mut self, settled: C, membership: &Membership, out: &mut Vec<ChangeOutput<C>>) {
        let voters = settled.membership();
        if self.is_open(voters.voters()) {
            return;
        }
        if !voters.is_quorum(|voter| self.heard.get(&voter) == Some(&RollAnswer::Done)) {
            return self.stuck(out);
        }
        let parting: Vec<VoterId> = parting(membership).collect();
        if parting.is_empty() {
            return self.over(settled, out);
        }
        let ask = RollAsk::Adopt(settled.clone());
        self.step = Step::Parting(settled);
        self.ask(parting, &ask, out);
    }

    fn over(&mut self, settled: C, out: &mut Vec<ChangeOutput<C>>) {
        self.current = settled.clone();
        self.end(ChangeOutput::Done(settled), out);
    }

    // ---- what was heard ----

    fn number_of(&self, configuration: &C) -> u64 {
        configuration.membership().number()
    }

    /// Whether any of these may still answer.
    fn is_open(&self, mut voters: impl Iterator<Item = VoterId>) -> bool {
        voters.any(|voter| !self.heard.contains_key(&voter) && !self.unheard.contains(&voter))
    }

    fn may_hear(&self, voters: &BTreeSet<VoterId>) -> bool {
        let is_useless = |voter: &VoterId| matches!(self.heard.get(voter), Some(RollAnswer::Elsewhere(_)));
        is_majority(voters, |voter| !self.unheard.contains(&voter) && !is_useless(&voter))
    }

    fn give_up_if(&mut self, may_go_on: impl Fn(&Self) -> bool, out: &mut Vec<ChangeOutput<C>>) {
        if !may_go_on(self) {
            self.stuck(out);
        }
    }

    fn stuck(&mut self, out: &mut Vec<ChangeOutput<C>>) {
        let silent = self.unheard.iter().copied().collect();
        self.end(ChangeOutput::Stuck(silent), out);
    }
}

/// Those that vote no more when this change is over.
fn parting(membership: &Membership) -> impl Iterator<Item = VoterId> {
    let stays = |voter: &VoterId| membership.incoming().is_none_or(|new| new.contains(voter));
    membership.old().iter().copied().filter(move |voter| !stays(voter))
}

/// What the new voters have to know of what the old ones may have granted, by these reports of a majority of so many old voters.
///
/// For each election: the highest term that a majority may have supported somebody in, if those who have not reported are counted
/// with it. Whoever has a higher term has supported that one before, for all that is known.
fn heritage(reports: &BTreeMap<VoterId, Report>, voters: usize) -> BTreeMap<ElectionName, Durable> {
    let names: BTreeSet<&ElectionName> = reports.values().flat_map(|report| report.elections.keys()).collect();
    let of = |name: &ElectionName| {
        let kept: Vec<&Durable> = reports.values().filter_map(|report| report.elections.get(name)).collect();
        let mut terms: Vec<Token> = kept.iter().map(|kept| kept.term).collect();
        terms.resize(reports.len(), Token::NONE);
        terms.sort_unstable_by(|one, other| other.cmp(one));
        let unreported = voters - reports.len();
        let term = terms.get(voters / 2 - unreported).copied().unwrap_or_default();
        // It may have been granted to nobody, and what nobody is known to have been granted must not look as if it had been: whom a
        // majority supports has led, or who has given the lease back. Another leader's renewals bring the new voters over.
        let of_it: Vec<&Durable> = kept.iter().copied().filter(|kept| kept.term == term).collect();
        let has_led = |one: &&&Durable| {
            let support = of_it.iter().filter(|other| other.support() == one.support());
            support.clone().count() * 2 > voters || support.clone().any(|kept| kept.released > Some(0))
        };
        let first = of_it.iter().find(has_led);
        let of_holder = || of_it.iter().filter(|kept| first.is_some_and(|first| first.support() == kept.support()));
        let mut given = Durable { term, ..Durable::default() };
        kept.iter().for_each(|kept| given.orders.merge(&kept.orders));
        given.holder = first.and_then(|first| first.holder.clone());
        given.seen = of_holder().map(|kept| kept.seen).max().unwrap_or_default();
        given.lease = of_holder().map(|kept| kept.lease).max().unwrap_or_default();
        given.released = of_holder().filter_map(|kept| kept.released).max();
        given.fulfilled = kept.iter().map(|kept| kept.fulfilled).max().unwrap_or_default();
        given
    };
    names.into_iter().map(|name| (name.clone(), of(name))).collect()
}
