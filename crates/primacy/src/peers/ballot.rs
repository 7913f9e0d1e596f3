//! What one voter knows of all elections: its promises, who waits, who has led; and how it answers a question.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::path::Path;

use primacy_core::quorum::{Ask, Durable, Elections, Roll, RollAnswer, RollAsk, Voter};
use prost::Message as _;

use super::annals::Annals;
use super::cluster::Cluster;
use super::kept::Kept;
use super::wire::{self, Malformed, NextKept, Told};
use crate::store::lineup::{Lineup, Past, Said};
use crate::store::row::TAKEN_OVER;
use crate::store::{Holder, Term};
use crate::{CandidateId, ElectionName, Instant};

/// So many who wait are told of at once, whatever they publish: more do not fit into a frame.
const LISTED_MOST: usize = 300;

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
    pub(super) announce: Option<(Holder, Said)>,
    /// Whether all who wait are to be told of.
    pub(super) lists: bool,
    /// Why a leadership ends.
    pub(super) reason: String,
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
    elections: BTreeMap<ElectionName, Ballot>,
}

impl Elections for Promises {
    fn bound_until(&self, now: Instant) -> Option<Instant> {
        self.elections.values().filter_map(|ballot| ballot.voter.bound_until(now)).max()
    }

    fn kept(&self) -> BTreeMap<ElectionName, Durable> {
        let kept = self.elections.iter().map(|(name, ballot)| (name.clone(), ballot.voter.durable().clone()));
        // Who only looked has left nothing behind.
        kept.filter(|(_, durable)| *durable != Durable::default()).collect()
    }

    fn inherit(&mut self, election: &ElectionName, given: &Durable, now: Instant) -> bool {
        let taken = self.of(election, now).voter.inherit(given, now);
        let ballot = self.of(election, now);
        ballot.bound_until = ballot.voter.bound_until(now);
        taken
    }
}

impl Promises {
    fn of(&mut self, election: &ElectionName, now: Instant) -> &mut Ballot {
        let drift_ppm = self.drift_ppm;
        let new = || Ballot::new(Durable::default(), drift_ppm, now);
        self.elections.entry(election.clone()).or_insert_with(new)
    }
}

/// One of them.
struct Ballot {
    voter: Voter,
    lineup: Lineup,
    past: Past,
    /// When it came to support the present term.
    since: Option<Instant>,
    /// Until when it was bound when that was last told of.
    bound_until: Option<Instant>,
}

impl Ballot {
    fn new(durable: Durable, drift_ppm: u32, now: Instant) -> Self {
        let voter = Voter::restarted(durable, drift_ppm, now);
        let bound_until = voter.bound_until(now);
        Self { voter, lineup: Lineup::default(), past: Past::default(), since: None, bound_until }
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
        let promises = Promises { drift_ppm, elections: kept.elections.iter().map(ballot).collect() };
        let roll = Roll::restarted(cluster, promised, taken, &promises, now);
        Ok(Self { kept, roll, promises, annals, stirred: BTreeSet::new(), must_flush: false })
    }

    /// The time that has passed is not known: all promises are bound anew, as after a restart.
    pub(super) fn bind_anew(&mut self, now: Instant) {
        for ballot in self.promises.elections.values_mut() {
            ballot.voter.bind_anew(now);
            ballot.bound_until = ballot.voter.bound_until(now);
        }
        self.roll.bound_anew(&self.promises, now);
    }

    pub(super) const fn kept(&self) -> &Kept {
        &self.kept
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
                && self.kept.elections.get(&name) != Some(ballot.voter.durable())
            {
                self.kept.elections.insert(name.clone(), ballot.voter.durable().clone());
                self.stirred.insert(name);
                self.must_flush = true;
            }
        }
        if self.roll != before {
            self.kept.cluster = self.roll.configuration().map(|cluster| wire::Cluster::from(cluster).encode_to_vec());
            self.kept.next = Some(NextKept::of(self.roll.next()).encode_to_vec());
            self.must_flush = true;
        }
        answer
    }

    /// What must be on disk before any answer leaves that was made since, if that is not so already.
    pub(super) fn unflushed(&mut self) -> Option<Kept> {
        mem::take(&mut self.must_flush).then(|| self.kept.clone())
    }

    /// Writes down who leads, for people.
    pub(super) fn write_history(&mut self) {
        self.annals.write();
    }

    /// Elections of which something has become known since, other than renewals.
    pub(super) fn stirred(&mut self) -> BTreeSet<ElectionName> {
        mem::take(&mut self.stirred)
    }

    /// `None` if whoever asks counts with other voters: then nothing is done.
    pub(super) fn answer(&mut self, question: Question, now: Instant) -> Option<Told> {
        let Question { voters, election, ask, asker, announce, lists, reason } = question;
        if !self.roll.admits(voters) {
            return None;
        }
        let ballot = self.promises.of(&election, now);
        if let Some((who, said)) = announce {
            let lease = ballot.voter.durable().lease;
            ballot.lineup.announce(&who, said, (!lease.is_zero()).then_some(lease), now);
        }
        let was_bound = ballot.voter.bound_until(now).is_some();
        let before = ballot.voter.durable().support();
        let verdict = ballot.voter.handle(&ask, now);
        let accepted = verdict.answer.accepted;
        if let Ask::Renew { id, .. } | Ask::Release { id, beat: 1.., .. } = &ask {
            // It leads, or has led, though this voter may have missed that.
            ballot.lineup.leave(*id);
        }
        let is_news = match &ask {
            Ask::Claim { term, holder, .. } if accepted => {
                let is_new = ballot.voter.durable().support() != before;
                if is_new && *term == before.0 {
                    // Whom it supported first was not granted it.
                    ballot.past.strike(*term);
                    self.annals.strike(&election, *term);
                }
                if is_new {
                    ballot.past.open(*term, holder, if was_bound { "removed" } else { TAKEN_OVER });
                    ballot.since = Some(now);
                    // The one that has ended, and the one that begins.
                    ballot.past.newest(2).for_each(|term| self.annals.note(&election, term));
                }
                ballot.lineup.leave(holder.id);
                is_new
            }
            Ask::Release { term, beat, .. } if accepted => {
                // What was taken back has never led.
                if *beat == 0 {
                    ballot.past.strike(*term);
                    self.annals.strike(&election, *term);
                } else {
                    ballot.past.close(*term, &reason);
                    ballot.past.newest(1).for_each(|term| self.annals.note(&election, term));
                }
                was_bound
            }
            Ask::Withdraw { .. } => was_bound && ballot.voter.bound_until(now).is_none(),
            Ask::Order { .. } => verdict.must_flush,
            _ => false,
        };
        ballot.bound_until = ballot.voter.bound_until(now);
        let holder = ballot.bound_until.and(ballot.voter.durable().holder.as_ref()).map(|holder| holder.id);
        let told = Told {
            answer: verdict.answer,
            standing: ballot.lineup.drawn_standing(asker, holder, now),
            waiting: if lists { ballot.lineup.list(holder, now).take(LISTED_MOST).collect() } else { Vec::new() },
            held_for: ballot.since.map(|since| now.since(since)),
        };
        if verdict.must_flush {
            self.kept.elections.insert(election.clone(), ballot.voter.durable().clone());
            self.must_flush = true;
        }
        if is_news {
            self.stirred.insert(election);
        }
        Some(told)
    }

    pub(super) fn leave(&mut self, election: &ElectionName, id: CandidateId) {
        if let Some(ballot) = self.promises.elections.get_mut(election) {
            ballot.lineup.leave(id);
        }
    }

    /// When the next promise ends of which nobody has been told that it did.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.promises.elections.values().filter_map(|ballot| ballot.bound_until).min()
    }

    /// Takes note of promises that have ended.
    pub(super) fn expire(&mut self, now: Instant) {
        for (name, ballot) in &mut self.promises.elections {
            if ballot.bound_until.is_some_and(|until| until <= now) {
                ballot.bound_until = None;
                self.stirred.insert(name.clone());
            }
        }
    }

    /// All elections that anybody has led or ordered in.
    pub(super) fn names(&self) -> impl Iterator<Item = &ElectionName> {
        self.kept.elections.keys()
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
