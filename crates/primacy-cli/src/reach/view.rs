//! What was seen of an election, and how it is told: the same for commands and over HTTP.

use std::time::Duration;

use primacy::Token;
use primacy::store::{LeaderSupport, Members, Snapshot, Term};

use super::ask::{Answer, Reach};
use crate::failure::Failure;
use crate::output::lead::Lead;
use crate::output::schema::{self, Millis, PastTerm, SCHEMA, State};
use crate::output::{explain, members};

/// How many leaderships an explanation looks back on: the present one and the one before it.
const LOOK_BACK: u32 = 2;

/// What was seen of an election at one moment. What it tells has grown older by the time that has passed since.
#[derive(Debug)]
pub(crate) struct ElectionView {
    answer: Answer<Option<Snapshot>>,
    support: Option<LeaderSupport>,
    /// What an explanation needs beside that.
    background: Option<(Vec<Term>, Option<Members>)>,
}

impl ElectionView {
    /// Looks at the election, also for what an explanation needs if there is to be one.
    ///
    /// # Errors
    /// If the store does not answer.
    pub(crate) async fn ask(reach: &mut Reach, explain: bool) -> Result<Self, Failure> {
        let terms = if explain { reach.history(LOOK_BACK).await?.value } else { Vec::new() };
        let answer = reach.snapshot().await?;
        let support = match answer.value.as_ref().and_then(Snapshot::leader) {
            Some(_) => reach.support_if_told().await,
            None => None,
        };
        // Another may lead by now, and what is said of it is not said of the one that is shown.
        let token = answer.value.as_ref().map(|snapshot| snapshot.record.version.token);
        let support = support.filter(|support| Some(support.token) == token);
        let background = if explain { Some((terms, reach.members_if_told().await)) } else { None };
        Ok(Self { answer, support, background })
    }

    /// Which voters support its leader, if that is known.
    pub(crate) const fn support(&self) -> Option<&LeaderSupport> {
        self.support.as_ref()
    }

    /// The election as it would look now.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        self.answer.now()
    }

    /// How old the answer is.
    pub(crate) fn age(&self) -> Duration {
        self.answer.age()
    }

    /// The election, without who supports its leader.
    pub(crate) fn state(&self, reach: &Reach) -> State {
        State::of(reach.election(), self.snapshot().as_ref())
    }

    /// What `primacy status --json` prints.
    pub(crate) fn status(&self, reach: &Reach) -> schema::Status {
        let age = self.age();
        let (snapshot, election) = (self.snapshot(), reach.election());
        let snapshot = snapshot.as_ref();
        let explanation = self.background.as_ref().map(|(terms, members)| {
            let able = snapshot.map(|snapshot| members::able(snapshot.clone(), members.as_ref()));
            let mut sentences = explain::explain(election, able.as_ref(), terms);
            sentences.extend(members.iter().flat_map(|members| members::explain(members, snapshot)));
            sentences
        });
        schema::Status {
            schema: SCHEMA,
            store: reach.location(),
            answer_age_ms: Millis(age),
            state: State::of(election, snapshot),
            support: self.support.as_ref().map(Into::into),
            explanation,
        }
    }
}

/// The last leaderships of an election.
#[derive(Debug)]
pub(crate) struct PastLeaderships {
    /// The newest first.
    pub(crate) terms: Vec<Term>,
    /// The one that lasts.
    pub(crate) current: Option<Token>,
    /// The last token that was granted.
    last: Token,
    /// Whether anybody has ever campaigned.
    pub(crate) has_begun: bool,
}

impl PastLeaderships {
    /// Looks at this many of them at most.
    ///
    /// # Errors
    /// If the store does not answer.
    pub(crate) async fn ask(reach: &mut Reach, limit: u32) -> Result<Self, Failure> {
        let terms = reach.history(limit).await?.value;
        let snapshot = reach.snapshot().await?.now();
        let current = match Lead::of(snapshot.as_ref()) {
            Lead::Led(..) => snapshot.as_ref().map(|snapshot| snapshot.record.version.token),
            Lead::Vacant | Lead::Unknown(_) | Lead::Lost | Lead::Forgotten | Lead::Never => None,
        };
        let last = snapshot.as_ref().map(|snapshot| snapshot.record.version.token).unwrap_or_default();
        let has_begun = !terms.is_empty() || snapshot.is_some();
        Ok(Self { terms, current, last, has_begun })
    }

    /// The first token that is known, if there were others before it, and this many would show them.
    pub(crate) fn known_from(&self, limit: u32) -> Option<u64> {
        let is_all = self.terms.len() < limit as usize;
        let oldest = self.terms.last().map_or(self.last.next(0), |term| term.token);
        Some(oldest).filter(|token| is_all && token.counter() > 1).map(|token| token.get())
    }

    /// What `primacy history --json` prints of this many, which are no more than were asked for.
    pub(crate) fn history(&self, reach: &Reach, limit: u32) -> schema::History {
        let shown = self.terms.iter().take(limit as usize);
        schema::History {
            schema: SCHEMA,
            store: reach.location(),
            election: reach.election().as_str().to_owned(),
            known_from: self.known_from(limit),
            terms: shown.map(|term| PastTerm::new(term, self.current == Some(term.token))).collect(),
        }
    }
}
