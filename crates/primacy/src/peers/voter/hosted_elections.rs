//! A voter on this machine: the [`VoterHost`] with its file, and the history of its elections.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use primacy_core::quorum::{
    Ask, ConfigEvidence, ConfigReply, ConfigRequest, DurableState, Outcome, Query, Refusal, VoterHost, VoterId,
};

use super::file_data::VoterFileData;
use super::history_log::HistoryLog;
use crate::peers::config::Cluster;
use crate::peers::wire::{MalformedFrame, Piggyback};
use crate::store::history::{FORGOTTEN, TAKEN_OVER, TermHistory};
use crate::store::waiting::{self, WaiterInfo};
use crate::store::{Holder, Term, nobody};
use crate::{CandidateId, ElectionName, Instant};

/// How many waiting candidates one answer lists, whatever they publish: more do not fit into a frame.
const LISTED_MOST: usize = 300;

/// What is asked about an election, and what is to be told beside the answer.
#[derive(Clone, Debug)]
pub(super) struct ElectionQuery {
    pub(super) query: Query<WaiterInfo>,
    /// Whether all who wait are to be told of.
    pub(super) lists: bool,
    /// Why a leadership ends.
    pub(super) reason: String,
}

/// All elections of one voter. `A` is an answer with where it goes.
pub(super) struct HostedElections<A> {
    host: VoterHost<Cluster, WaiterInfo, A>,
    voter: VoterId,
    /// How often the file was written.
    generation: u64,
    histories: BTreeMap<ElectionName, History>,
    log: HistoryLog,
}

/// What is told to people of one of them.
#[derive(Default)]
struct History {
    past: TermHistory,
    /// When the voter came to support the present term.
    since: Option<Instant>,
}

impl History {
    /// Writes down who leads.
    fn note(
        &mut self,
        ask: &Ask,
        answered: &Outcome,
        reason: &str,
        now: Instant,
        election: &ElectionName,
        log: &mut HistoryLog,
    ) {
        match ask {
            Ask::Claim { term, holder, .. } if answered.supported.is_some_and(|(before, _)| *term < before) => {
                // What it has supported since was claimed in vain.
                let struck = self.past.go_back(*term, holder);
                struck.into_iter().for_each(|term| log.strike(election, term));
                self.since = Some(now);
                self.past.newest(1).for_each(|term| log.note(election, term));
            }
            Ask::Claim { term, holder, .. } if answered.supported.is_some() => {
                if answered.supported.is_some_and(|(before, _)| *term == before) {
                    // The candidate that it supported first was not granted the term.
                    self.past.strike(*term);
                    log.strike(election, *term);
                }
                self.past.open(*term, holder, if answered.was_bound { "removed" } else { TAKEN_OVER });
                self.since = Some(now);
                // The one that has ended, and the one that begins.
                self.past.newest(2).for_each(|term| log.note(election, term));
            }
            // What was taken back has never led.
            Ask::Release { term, beat: 0, .. } if answered.answer.accepted => {
                self.past.strike(*term);
                log.strike(election, *term);
            }
            Ask::Release { term, .. } if answered.answer.accepted => {
                // That word hides what was before it, and no candidate may say it.
                self.past.close(*term, if reason == FORGOTTEN { "" } else { reason });
                self.past.newest(1).for_each(|term| log.note(election, term));
            }
            Ask::Forget { term } if answered.must_flush => {
                let nobody = Holder { id: CandidateId::from_bits(0), label: nobody(), data: String::new() };
                *self = Self::default();
                self.past.open(*term, &nobody, FORGOTTEN);
                self.past.close(*term, FORGOTTEN);
                log.forget(election);
                self.past.newest(1).for_each(|term| log.note(election, term));
            }
            _ => {}
        }
        if let Some(term) = answered.granted.filter(|term| self.past.prove(*term)) {
            log.prove(election, term);
        }
    }
}

impl<A> HostedElections<A> {
    /// Those that a voter has kept, as its process starts.
    ///
    /// # Errors
    /// If what it has kept of the voters cannot be read.
    pub(super) fn restarted(
        data: VoterFileData,
        folder: &Path,
        drift_ppm: u32,
        now: Instant,
    ) -> Result<Self, MalformedFrame> {
        let (voter, generation, state) = (data.voter(), data.generation, data.into_state()?);
        let (log, past) = HistoryLog::open(folder);
        let of_it = |(name, past): (ElectionName, TermHistory)| {
            state.elections.contains_key(&name).then_some((name, History { past, since: None }))
        };
        let histories = past.into_iter().filter_map(of_it).collect();
        let host = VoterHost::restarted(voter, state, drift_ppm, now);
        Ok(Self { host, voter, generation, histories, log })
    }

    /// The time that has passed is not known: all promises are bound anew, as after a restart.
    pub(super) fn bind_anew(&mut self, now: Instant) {
        self.host.bind_anew(now);
    }

    /// The voters that it has adopted last.
    pub(super) const fn cluster(&self) -> Option<&Cluster> {
        self.host.configuration()
    }

    /// Answers something about who votes.
    pub(super) fn answer_config(&mut self, ask: ConfigRequest<Cluster>, now: Instant) -> ConfigReply<Cluster> {
        self.host.answer_config(ask, now)
    }

    /// What it can say of the steps after this number.
    pub(super) fn evidence(&self, after: u64) -> ConfigEvidence<Cluster> {
        self.host.evidence(after)
    }

    /// Goes on to the next voters, if what others have adopted and taken, and what it has itself, proves which those
    /// are.
    pub(super) fn catch_up(&mut self, said: BTreeMap<VoterId, ConfigEvidence<Cluster>>, now: Instant) -> bool {
        self.host.catch_up(said, now)
    }

    /// This answer leaves when all that it rests on is on disk.
    pub(super) fn hold(&mut self, answer: A) {
        self.host.hold(answer);
    }

    /// What must be on disk before anything leaves, if that is not so already.
    pub(super) fn begin_write(&mut self) -> Option<VoterFileData> {
        let state = self.host.begin_write()?;
        Some(self.numbered(state))
    }

    /// All that must be on disk, to be written once more.
    pub(super) fn rewrite(&mut self) -> VoterFileData {
        let state = self.host.rewrite();
        self.numbered(state)
    }

    fn numbered(&mut self, state: DurableState<Cluster>) -> VoterFileData {
        self.generation += 1;
        VoterFileData::with(self.voter, self.generation, state)
    }

    /// What was to be written is on disk.
    pub(super) const fn written(&mut self) {
        self.host.written();
    }

    /// What may leave by now: answers, and the elections of which others should hear.
    pub(super) fn release(&mut self) -> (Vec<A>, BTreeSet<ElectionName>) {
        self.host.release()
    }

    /// Writes down who leads, for people.
    pub(super) fn write_history(&mut self) {
        self.log.write(self.histories.iter().map(|(election, history)| (election, &history.past)));
    }

    /// Answers a question, if it can be.
    pub(super) fn answer(&mut self, query: ElectionQuery, now: Instant) -> Result<Piggyback, Refusal> {
        let ElectionQuery { query, lists, reason } = query;
        let (election, ask) = (query.election.clone(), query.ask.clone());
        let answered = self.host.answer(query, now)?;
        let state = self.host.election(&election);
        // Only what was claimed has a history, and of that no more is kept than of elections.
        if ask != Ask::Read && state.is_some_and(|state| !state.is_unclaimed()) {
            let history = self.histories.entry(election.clone()).or_default();
            history.note(&ask, &answered, &reason, now, &election, &mut self.log);
        }
        let history = self.histories.get(&election);
        let past = history.map(|history| &history.past).filter(|_| lists);
        let waiting = state.filter(|_| lists).into_iter().flat_map(|state| {
            waiting::list(&state.waiting, state.present_holder(now), now).take(LISTED_MOST).collect::<Vec<_>>()
        });
        Ok(Piggyback {
            answer: answered.answer,
            standing: answered.standing,
            waiting: waiting.collect(),
            held_for: history.and_then(|history| history.since).map(|since| now.since(since)),
            proven: past.and_then(|past| past.proven()).cloned(),
            claimed: past.and_then(|past| past.claimed()).cloned(),
        })
    }

    pub(super) fn leave(&mut self, election: &ElectionName, id: CandidateId) {
        self.host.leave(election, id);
    }

    /// How many elections it knows of, how many wait in them, and how many promises will end.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        self.host.counts()
    }

    /// How many elections have a history.
    #[cfg(test)]
    pub(super) fn histories(&self) -> usize {
        self.histories.len()
    }

    /// When the next promise ends of which nobody has been told that it did.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.host.next_end()
    }

    /// Takes note of promises that have ended.
    pub(super) fn expire(&mut self, now: Instant) {
        self.host.expire(now);
    }

    /// All elections that anybody has led or ordered in, from the one behind this name on.
    pub(super) fn names(&self, after: Option<&ElectionName>) -> impl Iterator<Item = &ElectionName> {
        self.host.names(after)
    }

    pub(super) fn past(&self, election: &ElectionName, limit: u32) -> Vec<Term> {
        let history = self.histories.get(election);
        history.into_iter().flat_map(|history| history.past.newest(limit)).cloned().collect()
    }
}
