//! What one voter knows of all elections: its promises, who waits, who has led; and how it answers a question.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::Bound;
use std::path::Path;
use std::time::Duration;

use primacy_core::quorum::{
    Ask, Durable, Elections, Outcome as Answered, Roll, RollAnswer, RollAsk, Testimony, Voter, VoterId, VoterState,
};
use prost::Message as _;

use super::annals::Annals;
use super::cluster::Cluster;
use super::kept::Kept;
use super::wire::{self, Malformed, NextKept, Told};
use crate::select::Rank;
use crate::store::history::{FORGOTTEN, TAKEN_OVER, TermHistory};
use crate::store::waiting::{self, Notice};
use crate::store::{Holder, Term, nobody};
use crate::{CandidateId, ElectionName, Instant};

/// So many who wait are told of at once, whatever they publish: more do not fit into a frame.
const LISTED_MOST: usize = 300;

/// The elections that a voter keeps: a claim of one more, or an order in it, is refused. Each write of the voter's file is of all
/// of them.
pub(super) const ELECTIONS_MOST: usize = 20_000;

/// The elections that nobody has claimed, and in which somebody waits: in others nobody is noted as waiting.
pub(super) const UNCLAIMED_MOST: usize = 10_000;

/// Those who wait in all elections together: others are not counted.
pub(super) const WAITING_MOST: usize = 20_000;

/// The least time between two searches for candidates that have said nothing for long.
const SWEEP: Duration = Duration::from_secs(1);
/// As many of the configurations before the present one are kept, for voters that were away meanwhile: twice as many as
/// exchanges. One that was away for more is brought up to date by an operator.
const PAST_MOST: usize = 32;

/// What is asked about an election, and by whom.
#[derive(Clone, Debug)]
pub(super) struct Question {
    /// The number of the voters that whoever asks counts with.
    pub(super) voters: u64,
    pub(super) election: ElectionName,
    pub(super) ask: Ask,
    /// Who asks.
    pub(super) asker: CandidateId,
    /// What it says of itself, if it waits and has not said so lately.
    pub(super) announce: Option<(Notice, Rank)>,
    /// Whether all who wait are to be told of.
    pub(super) lists: bool,
    /// Why a leadership ends.
    pub(super) reason: String,
}

/// What becomes of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is answered.
    Told(Box<Told>),
    /// The asker counts with other voters: nothing is done.
    OtherVoters,
    /// It would be an election too many: nothing is done.
    Full,
}

/// All elections of one voter.
pub(super) struct Ballots {
    kept: Kept,
    roll: Roll<Cluster>,
    promises: Promises,
    annals: Annals,
    /// Elections of which others should hear.
    stirred: BTreeSet<ElectionName>,
    must_flush: bool,
}

struct Promises {
    drift_ppm: u32,
    /// Those that somebody has claimed, or ordered in, or waits in. Nothing is kept of others.
    elections: BTreeMap<ElectionName, Ballot>,
    ends: Ends,
    /// How many wait in all of them.
    waiting: usize,
    /// How many nobody has claimed.
    unclaimed: usize,
    /// When those were looked for last who wait no more.
    swept: Instant,
}

/// The ends of promises of which nobody has been told that they ended, the next one first.
#[derive(Default)]
struct Ends(BTreeSet<(Instant, ElectionName)>);

impl Ends {
    /// The promise in an election ends then, if it is bound.
    fn note(&mut self, election: &ElectionName, ballot: &mut Ballot, until: Option<Instant>) {
        let before = mem::replace(&mut ballot.bound_until, until);
        if before != until {
            if let Some(before) = before {
                self.0.remove(&(before, election.clone()));
            }
            self.0.extend(until.map(|until| (until, election.clone())));
        }
    }

    fn next(&self) -> Option<Instant> {
        self.0.first().map(|(until, _)| *until)
    }

    /// The next one, if it has ended.
    fn pop(&mut self, now: Instant) -> Option<ElectionName> {
        self.next().filter(|until| *until <= now)?;
        self.0.pop_first().map(|(_, election)| election)
    }
}

impl Elections for Promises {
    fn bound_until(&self, now: Instant) -> Option<Instant> {
        self.elections.values().filter_map(|ballot| ballot.state.voter.bound_until(now)).max()
    }

    fn kept(&self) -> BTreeMap<ElectionName, Durable> {
        let kept = self.elections.iter().map(|(name, ballot)| (name.clone(), ballot.state.voter.durable().clone()));
        // Who only looked has left nothing behind.
        kept.filter(|(_, durable)| *durable != Durable::default()).collect()
    }

    fn inherit(&mut self, election: &ElectionName, given: &Durable, now: Instant) -> bool {
        if *given == Durable::default() {
            return true;
        }
        let drift_ppm = self.drift_ppm;
        let new = || Ballot::new(Durable::default(), drift_ppm, now);
        let ballot = self.elections.entry(election.clone()).or_insert_with(new);
        let was_unclaimed = ballot.state.is_unclaimed() && !ballot.state.waiting.is_empty();
        let taken = ballot.state.voter.inherit(given, now);
        let until = ballot.state.voter.bound_until(now);
        self.unclaimed -= usize::from(was_unclaimed && !ballot.state.is_unclaimed());
        self.ends.note(election, ballot, until);
        if ballot.is_blank() {
            self.elections.remove(election);
        }
        taken
    }
}

impl Promises {
    fn restarted(elections: BTreeMap<ElectionName, Ballot>, drift_ppm: u32, now: Instant) -> Self {
        let bound = |(name, ballot): (&ElectionName, &Ballot)| ballot.bound_until.map(|until| (until, name.clone()));
        let ends = Ends(elections.iter().filter_map(bound).collect());
        Self { drift_ppm, elections, ends, waiting: 0, unclaimed: 0, swept: now }
    }

    /// One election has changed: how many wait in it, and whether it is one that nobody has claimed.
    fn recount(&mut self, waited: usize, waits: usize, was_unclaimed: bool, is_unclaimed: bool) {
        self.waiting = self.waiting + waits - waited;
        self.unclaimed = self.unclaimed + usize::from(is_unclaimed) - usize::from(was_unclaimed);
    }

    /// Whether one more candidate may be noted as waiting. Those who have said nothing for long make room for it.
    /// `is_new`: in an election that nobody has claimed, and in which nobody waits yet.
    fn has_room(&mut self, is_new: bool, now: Instant) -> bool {
        let is_full = |own: &Self| own.waiting >= WAITING_MOST || (is_new && own.unclaimed >= UNCLAIMED_MOST);
        if is_full(self) && now.since(self.swept) >= SWEEP {
            self.swept = now;
            self.elections.values_mut().for_each(|ballot| ballot.state.waiting.remove_old(now));
            self.elections.retain(|_, ballot| !ballot.is_blank());
            self.waiting = self.elections.values().map(|ballot| ballot.state.waiting.len()).sum();
            self.unclaimed = self.elections.values().filter(|ballot| ballot.state.is_unclaimed()).count();
        }
        !is_full(self)
    }
}

/// One of them.
struct Ballot {
    state: VoterState<Notice>,
    past: TermHistory,
    /// When it came to support the present term.
    since: Option<Instant>,
    /// Until when it was bound when that was last told of.
    bound_until: Option<Instant>,
}

impl Ballot {
    fn new(durable: Durable, drift_ppm: u32, now: Instant) -> Self {
        let voter = Voter::restarted(durable, drift_ppm, now);
        let bound_until = voter.bound_until(now);
        Self { state: VoterState::new(voter), past: TermHistory::default(), since: None, bound_until }
    }

    /// Nothing is known of it.
    fn is_blank(&self) -> bool {
        self.state.is_unclaimed() && self.state.waiting.is_empty()
    }

    /// Writes down who leads, for people.
    fn note_history(
        &mut self,
        ask: &Ask,
        answered: &Answered,
        reason: &str,
        now: Instant,
        election: &ElectionName,
        annals: &mut Annals,
    ) {
        match ask {
            Ask::Claim { term, holder, .. } if answered.supported.is_some() => {
                if answered.supported.is_some_and(|(before, _)| *term == before) {
                    // The candidate that it supported first was not granted the term.
                    self.past.strike(*term);
                    annals.strike(election, *term);
                }
                self.past.open(*term, holder, if answered.was_bound { "removed" } else { TAKEN_OVER });
                self.since = Some(now);
                // The one that has ended, and the one that begins.
                self.past.newest(2).for_each(|term| annals.note(election, term));
            }
            // What was taken back has never led.
            Ask::Release { term, beat: 0, .. } if answered.answer.accepted => {
                self.past.strike(*term);
                annals.strike(election, *term);
            }
            Ask::Release { term, .. } if answered.answer.accepted => {
                self.past.close(*term, reason);
                self.past.newest(1).for_each(|term| annals.note(election, term));
            }
            Ask::Forget { term } if answered.must_flush => {
                let nobody = Holder { id: CandidateId::from_bits(0), label: nobody(), data: String::new() };
                (self.past, self.since) = (TermHistory::default(), None);
                self.past.open(*term, &nobody, FORGOTTEN);
                self.past.close(*term, FORGOTTEN);
                annals.forget(election);
                self.past.newest(1).for_each(|term| annals.note(election, term));
            }
            _ => {}
        }
        if let Some(term) = answered.granted.filter(|term| self.past.prove(*term)) {
            annals.prove(election, term);
        }
    }
}

impl Ballots {
    /// Those that a voter has kept, as its process starts.
    ///
    /// # Errors
    /// If what it has kept of the voters cannot be read.
    pub(super) fn restarted(kept: Kept, folder: &Path, drift_ppm: u32, now: Instant) -> Result<Self, Malformed> {
        let decoded = |_| Malformed("what a voter has kept of the voters");
        let cluster = kept.cluster.as_deref().map(wire::Cluster::decode).transpose().map_err(decoded)?;
        let next = kept.next.as_deref().map(NextKept::decode).transpose().map_err(decoded)?;
        let cluster = cluster.map(Cluster::try_from).transpose()?;
        let (promised, taken) = next.map(NextKept::checked).transpose()?.unwrap_or_default();
        let (annals, mut past) = Annals::open(folder);
        let ballot = |(name, durable): (&ElectionName, &Durable)| {
            let ballot = Ballot::new(durable.clone(), drift_ppm, now);
            (name.clone(), Ballot { past: past.remove(name).unwrap_or_default(), ..ballot })
        };
        let promises = Promises::restarted(kept.elections.iter().map(ballot).collect(), drift_ppm, now);
        let roll = Roll::restarted(cluster, promised, taken, &promises, now);
        Ok(Self { kept, roll, promises, annals, stirred: BTreeSet::new(), must_flush: false })
    }

    /// The time that has passed is not known: all promises are bound anew, as after a restart.
    pub(super) fn bind_anew(&mut self, now: Instant) {
        for (name, ballot) in &mut self.promises.elections {
            ballot.state.voter.bind_anew(now);
            let until = ballot.state.voter.bound_until(now);
            self.promises.ends.note(name, ballot, until);
        }
        self.roll.bound_anew(&self.promises, now);
    }

    /// The voters that it has adopted last.
    pub(super) const fn cluster(&self) -> Option<&Cluster> {
        self.roll.configuration()
    }

    /// Answers something about who votes.
    pub(super) fn roll(&mut self, ask: RollAsk<Cluster>, now: Instant) -> RollAnswer<Cluster> {
        let before = self.roll.clone();
        let given = match &ask {
            RollAsk::Inherit { elections, .. } => elections.keys().cloned().collect(),
            _ => Vec::new(),
        };
        let answer = self.roll.handle(ask, &mut self.promises, now);
        for name in given {
            if let Some(ballot) = self.promises.elections.get(&name)
                && self.kept.elections.get(&name) != Some(ballot.state.voter.durable())
            {
                self.kept.elections.insert(name.clone(), ballot.state.voter.durable().clone());
                self.stirred.insert(name);
                self.must_flush = true;
            }
        }
        self.keep_roll(&before);
        answer
    }

    /// What must be on disk of who votes, where that is not what it was.
    fn keep_roll(&mut self, before: &Roll<Cluster>) {
        if self.roll == *before {
            return;
        }
        let encoded = |cluster: &Cluster| wire::Cluster::from(cluster).encode_to_vec();
        if let Some(old) = before.configuration().filter(|old| Some(*old) != self.roll.configuration()) {
            self.kept.past.push(encoded(old));
            let surplus = self.kept.past.len().saturating_sub(PAST_MOST);
            self.kept.past.drain(..surplus);
        }
        self.kept.cluster = self.roll.configuration().map(encoded);
        self.kept.next = Some(NextKept::of(self.roll.next()).encode_to_vec());
        self.must_flush = true;
    }

    /// What it can say of the steps after this number.
    pub(super) fn testimony(&self, after: u64) -> Testimony<Cluster> {
        let Some(own) = self.roll.configuration() else { return Testimony::default() };
        let past = self.kept.past.iter().filter_map(|past| wire::Cluster::decode(&**past).ok()?.try_into().ok());
        let adopted = past.chain([own.clone()]).filter(|cluster: &Cluster| cluster.number() > after).collect();
        let taken = self.roll.next().1.filter(|_| own.number() == after).cloned();
        Testimony { adopted, taken }
    }

    /// Goes on to the next voters, if these testimonies of others and its own prove which those are.
    pub(super) fn catch_up(&mut self, mut said: BTreeMap<VoterId, Testimony<Cluster>>, now: Instant) -> bool {
        let Some(own) = self.roll.configuration().map(Cluster::number) else { return false };
        said.insert(self.kept.voter(), self.testimony(own));
        let before = self.roll.clone();
        let has_gone_on = self.roll.catch_up(&said, &self.promises, now);
        self.keep_roll(&before);
        has_gone_on
    }

    /// What must be on disk before any answer leaves that was made since, if that is not so already.
    pub(super) fn unflushed(&mut self) -> Option<Kept> {
        mem::take(&mut self.must_flush).then(|| self.written_anew())
    }

    /// All that must be on disk, to be written once more.
    pub(super) fn written_anew(&mut self) -> Kept {
        self.kept.generation += 1;
        self.kept.clone()
    }

    /// Writes down who leads, for people.
    pub(super) fn write_history(&mut self) {
        self.annals.write();
    }

    /// Elections of which something has become known since, other than renewals.
    pub(super) fn stirred(&mut self) -> BTreeSet<ElectionName> {
        mem::take(&mut self.stirred)
    }

    /// Answers a question, if it can be.
    pub(super) fn answer(&mut self, question: Question, now: Instant) -> Outcome {
        let Question { voters, election, ask, asker, announce, lists, reason } = question;
        if !self.roll.admits(voters) {
            return Outcome::OtherVoters;
        }
        let creates = matches!(ask, Ask::Claim { .. } | Ask::Order { .. } | Ask::Forget { .. });
        if creates && self.kept.elections.len() >= ELECTIONS_MOST && !self.kept.elections.contains_key(&election) {
            return Outcome::Full;
        }
        let is_unclaimed = !self.kept.elections.contains_key(&election);
        let announce = announce.filter(|(notice, _)| {
            let ballot = self.promises.elections.get(&election);
            let is_new = is_unclaimed && ballot.is_none();
            ballot.is_some_and(|ballot| ballot.state.waiting.has(notice.who.id)) || self.promises.has_room(is_new, now)
        });
        // A look leaves nothing behind.
        let mut unknown = Ballot::new(Durable::default(), self.promises.drift_ppm, now);
        let (ballot, is_known) = match self.promises.elections.get_mut(&election) {
            Some(ballot) => (ballot, true),
            None => (&mut unknown, false),
        };
        let waited = ballot.state.waiting.len();
        let announce = announce.map(|(notice, rank)| (notice.who.id, rank, notice));
        let answered = ballot.state.answer(&ask, asker, announce, now);
        ballot.note_history(&ask, &answered, &reason, now, &election, &mut self.annals);
        self.promises.ends.note(&election, ballot, answered.bound_until);
        let holder = answered.bound_until.and(ballot.state.voter.durable().holder.as_ref()).map(|holder| holder.id);
        let told = Told {
            answer: answered.answer,
            standing: answered.standing,
            waiting: if lists {
                waiting::list(&ballot.state.waiting, holder, now).take(LISTED_MOST).collect()
            } else {
                Vec::new()
            },
            held_for: ballot.since.map(|since| now.since(since)),
            proven: ballot.past.proven().filter(|_| lists).cloned(),
            claimed: ballot.past.claimed().filter(|_| lists).cloned(),
        };
        if answered.must_flush {
            self.kept.elections.insert(election.clone(), ballot.state.voter.durable().clone());
            self.must_flush = true;
        }
        let (waits, was_unclaimed) = (ballot.state.waiting.len(), is_known && is_unclaimed);
        let (is_unclaimed, is_blank) = (ballot.state.is_unclaimed(), ballot.is_blank());
        if is_blank && is_known {
            self.promises.elections.remove(&election);
        } else if !is_blank && !is_known {
            self.promises.elections.insert(election.clone(), unknown);
        }
        self.promises.recount(waited, waits, was_unclaimed, is_unclaimed && !is_blank);
        if answered.is_news {
            self.stirred.insert(election);
        }
        Outcome::Told(Box::new(told))
    }

    pub(super) fn leave(&mut self, election: &ElectionName, id: CandidateId) {
        let Some(ballot) = self.promises.elections.get_mut(election) else { return };
        let (waited, was_unclaimed) = (ballot.state.waiting.len(), !self.kept.elections.contains_key(election));
        ballot.state.waiting.leave(id);
        let (waits, is_blank) = (ballot.state.waiting.len(), ballot.is_blank());
        if is_blank {
            self.promises.elections.remove(election);
        }
        self.promises.recount(waited, waits, was_unclaimed, was_unclaimed && !is_blank);
    }

    /// How many elections it knows of, and how many wait in them.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        (self.promises.elections.len(), self.promises.waiting, self.promises.ends.0.len())
    }

    /// When the next promise ends of which nobody has been told that it did.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.promises.ends.next()
    }

    /// Takes note of promises that have ended.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(name) = self.promises.ends.pop(now) {
            if let Some(ballot) = self.promises.elections.get_mut(&name) {
                ballot.bound_until = None;
            }
            self.stirred.insert(name);
        }
    }

    /// All elections that anybody has led or ordered in, from the one behind this name on.
    pub(super) fn names(&self, after: Option<&ElectionName>) -> impl Iterator<Item = &ElectionName> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.kept.elections.range::<ElectionName, _>((from, Bound::Unbounded)).map(|(name, _)| name)
    }

    pub(super) fn past(&self, election: &ElectionName, limit: u32) -> Vec<Term> {
        self.promises
            .elections
            .get(election)
            .into_iter()
            .flat_map(|ballot| ballot.past.newest(limit))
            .cloned()
            .collect()
    }
}
