//! A voter's process, without its sockets and its disk: all elections that it votes in, who votes, and which answers may leave.

mod elections;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem;
use core::ops::Bound;

#[cfg(feature = "flaws")]
use super::Flaw;
use super::config_acceptor::{Ballot, ConfigAcceptor, ConfigEvidence, ConfigReply, ConfigRequest, Configuration};
use super::port::Ask;
use super::state::{Outcome, VoterState};
use super::voter::Durable;
use super::voter_set::VoterId;
use crate::select::Rank;
use crate::{CandidateId, ElectionName, Instant};
use elections::{Begin, VoterElections};

/// How many elections a voter keeps on disk: a claim of one more, or an order in it, is refused. Each write of the voter's
/// file is of all of them.
pub const ELECTIONS_MAX: usize = 20_000;

/// How many elections that nobody has claimed, and in which somebody waits, a voter keeps in memory: in more of them nobody
/// is noted as waiting.
pub const UNCLAIMED_MAX: usize = 10_000;

/// How many candidates a voter counts as waiting in all elections together.
pub const WAITING_MAX: usize = 20_000;

/// How many of the configurations before the present one a voter keeps, for voters that were away meanwhile: two for each
/// exchange. One that was away for more is brought up to date by an operator.
const PAST_MAX: usize = 32;

/// What a voter keeps on disk, beside who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurableState<C> {
    /// Who votes, for all that it knows. `None` until it has joined others.
    pub configuration: Option<C>,
    /// The last attempt at the next configuration that it has promised itself to.
    pub promised: Ballot,
    /// What it has taken for the next configuration.
    pub taken: Option<(Ballot, C)>,
    /// The configurations before the present one, the latest last.
    pub past: Vec<C>,
    /// Its promise in each election that anybody has claimed, or ordered something in.
    pub elections: BTreeMap<ElectionName, Durable>,
}

impl<C> Default for DurableState<C> {
    fn default() -> Self {
        Self {
            configuration: None,
            promised: Ballot::default(),
            taken: None,
            past: Vec::new(),
            elections: BTreeMap::new(),
        }
    }
}

impl<C: Configuration> DurableState<C> {
    /// That of one of these voters, which has promised nothing.
    pub fn of(configuration: C) -> Self {
        Self { configuration: Some(configuration), ..Self::default() }
    }

    /// What it proves of the configurations after this number.
    pub fn evidence(&self, after: u64) -> ConfigEvidence<C> {
        let Some(own) = &self.configuration else { return ConfigEvidence::default() };
        let is_later = |configuration: &&C| configuration.voter_set().number() > after;
        let adopted = self.past.iter().chain([own]).filter(is_later).cloned().collect();
        let taken = self.taken.clone().filter(|_| own.voter_set().number() == after);
        ConfigEvidence { adopted, taken }
    }
}

/// What is asked about an election, and by whom. `T` is what a candidate tells of itself beside its rank.
#[derive(Clone, Debug)]
pub struct Query<T> {
    /// The number of the voters that the asker counts with.
    pub number: u64,
    /// Which election.
    pub election: ElectionName,
    /// What it asks.
    pub ask: Ask,
    /// Who asks.
    pub asker: CandidateId,
    /// What it says of itself, if it waits and has not said so lately.
    pub announce: Option<(CandidateId, Rank, T)>,
}

/// Why a query is not answered. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The asker counts with other voters.
    OtherVoters,
    /// The election would be one more than a voter [keeps](ELECTIONS_MAX).
    Full,
}

/// One voter's process. `T` is what candidates tell of themselves, `A` an answer with where it goes.
///
/// What it says may rest on all that it has changed, so answers are [held](Self::hold) until everything is on disk (rule R11). While
/// a write is under way nothing is asked of it: what arrives meanwhile waits and is answered after one further write.
#[derive(Debug)]
pub struct VoterHost<C, T, A> {
    voter: VoterId,
    disk: DurableState<C>,
    acceptor: ConfigAcceptor<C>,
    elections: VoterElections<T>,
    held: Vec<A>,
    news: BTreeSet<ElectionName>,
    /// What was changed is on its way to no disk.
    must_write: bool,
    is_writing: bool,
    #[cfg(feature = "flaws")]
    flaw: Option<Flaw>,
}

impl<C: Configuration, T, A> VoterHost<C, T, A> {
    /// The voter with what its disk has kept, as its process starts: bound as after a restart
    /// ([`Voter::restarted`](super::Voter::restarted)). `drift_ppm`: by how much the rate of its clock may be wrong, in millionths.
    pub fn restarted(voter: VoterId, disk: DurableState<C>, drift_ppm: u32, now: Instant) -> Self {
        let begin = Begin {
            drift_ppm,
            #[cfg(feature = "flaws")]
            flaw: None,
        };
        Self::begin(voter, disk, begin, now)
    }

    /// As [`restarted`](Self::restarted), with a flaw.
    #[cfg(feature = "flaws")]
    pub fn flawed(voter: VoterId, disk: DurableState<C>, drift_ppm: u32, now: Instant, flaw: Option<Flaw>) -> Self {
        Self { flaw, ..Self::begin(voter, disk, Begin { drift_ppm, flaw }, now) }
    }

    fn begin(voter: VoterId, disk: DurableState<C>, begin: Begin, now: Instant) -> Self {
        let elections = VoterElections::restarted(begin, &disk.elections, now);
        let DurableState { configuration, promised, taken, .. } = disk.clone();
        let acceptor = ConfigAcceptor::restarted(configuration, promised, taken, &elections, now);
        Self {
            voter,
            disk,
            acceptor,
            elections,
            held: Vec::new(),
            news: BTreeSet::new(),
            must_write: false,
            is_writing: false,
            #[cfg(feature = "flaws")]
            flaw: None,
        }
    }

    /// The time that has passed is not known: all promises are bound anew, as after a restart (rule R4).
    pub fn bind_anew(&mut self, now: Instant) {
        self.elections.bind_anew(now);
        self.acceptor.bound_anew(&self.elections, now);
    }

    // ---- what it is asked ----

    /// Answers a query, if it can be.
    ///
    /// # Errors
    /// If the asker counts with other voters, or no more elections are kept. Nothing was done.
    pub fn answer(&mut self, query: Query<T>, now: Instant) -> Result<Outcome, Refusal> {
        let Query { number, election, ask, asker, announce } = query;
        if !self.acceptor.admits(number) && !self.flawed_admits(number) {
            return Err(Refusal::OtherVoters);
        }
        let creates = matches!(ask, Ask::Claim { .. } | Ask::Order { .. } | Ask::Forget { .. });
        let is_full = self.disk.elections.len() >= ELECTIONS_MAX;
        if creates && is_full && !self.disk.elections.contains_key(&election) {
            return Err(Refusal::Full);
        }
        let outcome = self.elections.answer(&election, &ask, asker, announce, now);
        if outcome.must_flush {
            self.keep(&election);
        }
        if outcome.is_news {
            self.news.insert(election);
        }
        Ok(outcome)
    }

    /// A candidate waits no more.
    pub fn leave(&mut self, election: &ElectionName, id: CandidateId) {
        self.elections.leave(election, id);
    }

    /// Answers something about who votes.
    pub fn answer_config(&mut self, ask: ConfigRequest<C>, now: Instant) -> ConfigReply<C> {
        let given = match &ask {
            ConfigRequest::Inherit { elections, .. } => elections.keys().cloned().collect(),
            _ => Vec::new(),
        };
        let before = self.acceptor.clone();
        let answer = self.acceptor.handle(ask, &mut self.elections, now);
        for election in given {
            let durable = self.elections.get(&election).map(|state| state.voter.durable());
            if durable.is_some() && durable != self.disk.elections.get(&election) {
                self.keep(&election);
                self.news.insert(election);
            }
        }
        self.keep_acceptor(&before);
        answer
    }

    /// Goes on to the next voters, if what others have adopted and taken, and what it has itself, proves which those
    /// are. Whether it has.
    pub fn catch_up(&mut self, mut evidence: BTreeMap<VoterId, ConfigEvidence<C>>, now: Instant) -> bool {
        let Some(own) = self.configuration().map(|own| own.voter_set().number()) else { return false };
        evidence.insert(self.voter, self.disk.evidence(own));
        let before = self.acceptor.clone();
        let has_gone_on = self.acceptor.catch_up(&evidence, &self.elections, now);
        self.keep_acceptor(&before);
        has_gone_on
    }

    /// What it can say of the configurations after this number. It may leave as an [answer](Self::hold).
    pub fn evidence(&self, after: u64) -> ConfigEvidence<C> {
        self.disk.evidence(after)
    }

    /// Takes note of promises that have ended by now: who waits or watches is to look.
    pub fn expire(&mut self, now: Instant) {
        while let Some(election) = self.elections.expire(now) {
            self.news.insert(election);
        }
    }

    // ---- what it knows ----

    /// The voters that it has adopted last.
    pub const fn configuration(&self) -> Option<&C> {
        self.acceptor.configuration()
    }

    /// Its part in who votes.
    pub const fn acceptor(&self) -> &ConfigAcceptor<C> {
        &self.acceptor
    }

    /// What it knows of an election, if that is anything: of one that was only looked at nothing is left.
    pub fn election(&self, name: &ElectionName) -> Option<&VoterState<T>> {
        self.elections.get(name)
    }

    /// All elections that it knows anything of, in the order of their names.
    pub fn elections(&self) -> impl Iterator<Item = (&ElectionName, &VoterState<T>)> {
        self.elections.iter()
    }

    /// All elections that anybody has led or ordered in, from the one behind this name on.
    pub fn names(&self, after: Option<&ElectionName>) -> impl Iterator<Item = &ElectionName> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.disk.elections.range::<ElectionName, _>((from, Bound::Unbounded)).map(|(name, _)| name)
    }

    /// When the next promise ends of which nobody was told that it did.
    pub fn next_end(&self) -> Option<Instant> {
        self.elections.next_end()
    }

    /// How many elections it knows anything of, how many candidates wait in them, and how many promises will end.
    pub fn counts(&self) -> (usize, usize, usize) {
        self.elections.counts()
    }

    // ---- what leaves it ----

    /// This answer leaves when all that it may rest on is on disk.
    pub fn hold(&mut self, answer: A) {
        self.held.push(answer);
    }

    /// What is to be written now, if anything has changed since the last write began: the whole state. Nothing leaves until it is
    /// [written](Self::written).
    pub fn begin_write(&mut self) -> Option<DurableState<C>> {
        mem::take(&mut self.must_write).then(|| self.rewrite())
    }

    /// The same, whether or not anything has changed: so a voter that starts finds out whether its disk works.
    pub fn rewrite(&mut self) -> DurableState<C> {
        (self.must_write, self.is_writing) = (false, true);
        self.disk.clone()
    }

    /// Whether a write is under way: it is asked nothing meanwhile.
    pub const fn is_writing(&self) -> bool {
        self.is_writing
    }

    /// What was to be written is on disk. A voter whose write has failed ends, since nobody knows what its disk has.
    pub const fn written(&mut self) {
        self.is_writing = false;
    }

    /// The answers that may leave, and the elections of which those who wait or watch should hear. None of either while something is not
    /// on disk that they may rest on (rule R11).
    pub fn release(&mut self) -> (Vec<A>, BTreeSet<ElectionName>) {
        if self.must_write || self.is_writing {
            return Default::default();
        }
        (mem::take(&mut self.held), mem::take(&mut self.news))
    }

    /// The same, also before it is on disk.
    #[cfg(feature = "flaws")]
    pub fn release_early(&mut self) -> (Vec<A>, BTreeSet<ElectionName>) {
        (mem::take(&mut self.held), mem::take(&mut self.news))
    }

    /// The disk is to have what is promised in this election.
    fn keep(&mut self, election: &ElectionName) {
        match self.elections.get(election) {
            Some(state) => drop(self.disk.elections.insert(election.clone(), state.voter.durable().clone())),
            None => drop(self.disk.elections.remove(election)),
        }
        self.must_write = true;
    }

    /// The disk is to have what has changed in who votes.
    fn keep_acceptor(&mut self, before: &ConfigAcceptor<C>) {
        if self.acceptor == *before {
            return;
        }
        let configuration = self.acceptor.configuration().cloned();
        if let Some(old) = before.configuration().filter(|old| Some(*old) != configuration.as_ref()) {
            self.disk.past.push(old.clone());
            let surplus = self.disk.past.len().saturating_sub(PAST_MAX);
            self.disk.past.drain(..surplus);
        }
        let (promised, taken) = self.acceptor.next();
        (self.disk.promised, self.disk.taken) = (promised, taken.cloned());
        self.disk.configuration = configuration;
        self.must_write = true;
    }

    #[cfg(feature = "flaws")]
    fn flawed_admits(&self, number: u64) -> bool {
        let is_late = self.configuration().is_some_and(|own| own.voter_set().number() > number);
        self.flaw == Some(Flaw::AdmitsOld) && is_late
    }

    #[cfg(not(feature = "flaws"))]
    #[expect(clippy::unused_self, reason = "there is no planted bug to ask for")]
    const fn flawed_admits(&self, _: u64) -> bool {
        false
    }
}
