//! How the candidate of this process stands, for those who are told: over HTTP, and in a file.

mod programs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use primacy::metrics::CandidateMetrics;
use primacy::store::{Store, StoreError, Why};
use primacy::{Candidate, ElectionName, GroupStatus, Instant, Label, Phase, Status, Token, clock};
use serde::Serialize;
use tokio::sync::watch;

use crate::failure::Failure;
use crate::output::schema::{Millis, SCHEMA};
use crate::secret;
use crate::sleep::sleep_until;
pub(crate) use programs::{ProgramPhase, ProgramState, ProgramStates};

/// The candidate of this process.
#[derive(Debug)]
pub(crate) struct CandidateSource {
    election: ElectionName,
    label: Label,
    state: CandidateState,
    led: watch::Receiver<Option<CurrentLeadership>>,
}

/// How this process takes part in elections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessKind {
    /// As one candidate, for as long as it lives: then nobody needs to name its election.
    Candidate,
    /// As an agent: with candidates that come and go.
    Agent,
    /// As a voter of all elections, and with no candidate.
    Voter,
}

/// The candidates of this process, for those who are told of them.
#[derive(Debug)]
pub(crate) struct Candidates {
    store: Arc<dyn Store>,
    started: SystemTime,
    kind: ProcessKind,
    /// By numbers that their owner gives.
    all: Mutex<BTreeMap<u64, Arc<CandidateSource>>>,
    /// What an agent has started itself.
    programs: ProgramStates,
}

impl Candidates {
    /// None yet.
    #[expect(clippy::disallowed_methods, reason = "when the process began is for people")]
    pub(crate) fn new(store: Arc<dyn Store>, kind: ProcessKind) -> Self {
        Self { store, started: SystemTime::now(), kind, all: Mutex::default(), programs: ProgramStates::default() }
    }

    /// This one alone.
    pub(crate) fn one(candidate: Arc<CandidateSource>, store: Arc<dyn Store>) -> Self {
        let candidates = Self::new(store, ProcessKind::Candidate);
        candidates.enter(0, candidate);
        candidates
    }

    /// One more.
    pub(crate) fn enter(&self, number: u64, candidate: Arc<CandidateSource>) {
        self.lock().insert(number, candidate);
    }

    /// This one has gone.
    pub(crate) fn leave(&self, number: u64) {
        self.lock().remove(&number);
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<CandidateSource>> {
        self.lock().values().cloned().collect()
    }

    /// What an agent has started itself.
    pub(crate) const fn programs(&self) -> &ProgramStates {
        &self.programs
    }

    /// How the process takes part.
    pub(crate) const fn kind(&self) -> ProcessKind {
        self.kind
    }

    /// The elections in which they take part.
    pub(crate) fn elections(&self) -> BTreeSet<ElectionName> {
        self.lock().values().map(|candidate| candidate.election.clone()).collect()
    }

    /// Where they take part.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// When the process began to tell of them.
    pub(crate) const fn started(&self) -> SystemTime {
        self.started
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<CandidateSource>>> {
        // A thread that panicked has left it whole: each change is one step.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a candidate tells of itself.
#[derive(Clone, Debug)]
pub(crate) struct CandidateState {
    /// How it stands.
    pub(crate) status: watch::Receiver<Status>,
    /// How its process takes part by the `registers` protocol, if it does.
    pub(crate) group: Option<watch::Receiver<GroupStatus>>,
    /// What it has counted.
    pub(crate) counted: Arc<CandidateMetrics>,
}

impl CandidateState {
    pub(crate) fn of(candidate: &Candidate) -> Self {
        Self { status: candidate.status(), group: candidate.group_status(), counted: candidate.metrics() }
    }
}

/// A leadership that this process has, or had until a moment ago.
#[derive(Clone, Debug)]
pub(crate) struct CurrentLeadership {
    /// Its token.
    pub(crate) token: Token,
    /// Where it is in its life.
    pub(crate) phases: watch::Receiver<Phase>,
    /// When its program stops by what it was told, if that may be earlier.
    pub(crate) told: Option<watch::Receiver<Instant>>,
}

/// How a candidate stands at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It leads. Its program is told to stop at this point, unless the lease is renewed or something ends it earlier.
    Leads { token: Token, stop_at: Instant },
    /// It leads no more, or its program has been told to stop.
    Stops { token: Option<Token>, why: String },
    /// It waits.
    Waits { why: String },
    /// It takes no part any more.
    Gone { why: String },
}

/// What is told of a standing, wherever it is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandingParts<'a> {
    pub(crate) word: &'static str,
    pub(crate) token: Option<Token>,
    /// When its program is told to stop, if it leads.
    pub(crate) stop_at: Option<Instant>,
    pub(crate) why: Option<&'a str>,
}

impl Standing {
    pub(crate) fn parts(&self) -> StandingParts<'_> {
        let (word, token, stop_at, why) = match self {
            Self::Leads { token, stop_at } => ("leads", Some(*token), Some(*stop_at), None),
            Self::Stops { token, why } => ("stops", *token, None, Some(why)),
            Self::Waits { why } => ("waits", None, None, Some(why)),
            Self::Gone { why } => ("gone", None, None, Some(why)),
        };
        StandingParts { word, token, stop_at, why: why.map(String::as_str) }
    }
}

/// What `/leader` and `/candidate` say beside their status.
#[derive(Debug, Serialize)]
pub(crate) struct StandingReply {
    schema: u32,
    election: String,
    label: String,
    standing: &'static str,
    token: Option<u64>,
    remaining_ms: Option<Millis>,
    why: Option<String>,
}

impl CandidateSource {
    pub(crate) fn new(
        election: &ElectionName,
        label: &Label,
        state: CandidateState,
        led: watch::Receiver<Option<CurrentLeadership>>,
    ) -> Self {
        Self { election: election.clone(), label: label.clone(), state, led }
    }

    pub(crate) const fn election(&self) -> &ElectionName {
        &self.election
    }

    pub(crate) const fn label(&self) -> &Label {
        &self.label
    }

    /// What it has counted.
    pub(crate) fn counted(&self) -> Arc<CandidateMetrics> {
        Arc::clone(&self.state.counted)
    }

    /// How its process takes part by the `registers` protocol, if it does.
    pub(crate) fn group(&self) -> Option<GroupStatus> {
        self.state.group.as_ref().map(|status| status.borrow().clone())
    }

    /// How it stands now. Its warden tells the program to stop by the clock, whatever was heard last, and it leads until then.
    pub(crate) fn standing(&self) -> Standing {
        if let Some(CurrentLeadership { token, phases, told }) = &*self.led.borrow() {
            let phase = phases.borrow();
            if let Phase::Leading { until, timing, .. } = &*phase {
                let stop_at = timing.stop_at(*until);
                let stop_at = told.as_ref().map_or(stop_at, |told| stop_at.min(*told.borrow()));
                if clock::now() < stop_at {
                    return Standing::Leads { token: *token, stop_at };
                }
            }
            let why = phase.stop_reason().map_or_else(|| "the lease runs out".to_owned(), ToString::to_string);
            return Standing::Stops { token: Some(*token), why };
        }
        match &*self.state.status.borrow() {
            Status::Waiting { why, .. } => Standing::Waits { why: format!("this candidate {why}") },
            Status::Leading { token, .. } => Standing::Stops {
                token: Some(*token),
                why: "it has the lease, and its program does not work".to_owned(),
            },
            Status::Draining { token, reason } => Standing::Stops { token: Some(*token), why: reason.to_string() },
            Status::Ending { reason } => Standing::Stops { token: None, why: reason.to_string() },
            Status::Stopped { reason } => Standing::Gone { why: secret::without(&reason.to_string()) },
            _ => Standing::Gone { why: "its state is not known".to_owned() },
        }
    }

    /// The same, as it is told.
    pub(crate) fn reply(&self, standing: &Standing) -> StandingReply {
        let StandingParts { word, token, stop_at, why } = standing.parts();
        StandingReply {
            schema: SCHEMA,
            election: self.election.as_str().to_owned(),
            label: self.label.as_str().to_owned(),
            standing: word,
            token: token.map(Token::get),
            remaining_ms: stop_at.map(|at| Millis(at.since(clock::now()))),
            why: why.map(str::to_owned),
        }
    }

    /// Whether it has not looked yet.
    pub(crate) fn is_new(&self) -> bool {
        matches!(&*self.state.status.borrow(), Status::Waiting { why: Why::NotLooked, trouble: None, .. })
    }

    /// Why it does not reach its store, if it does not.
    pub(crate) fn trouble(&self) -> Option<String> {
        let told = |error: &StoreError| Failure::unavailable(error.to_string()).to_string();
        match &*self.state.status.borrow() {
            Status::Waiting { trouble: Some(trouble), .. } | Status::Leading { trouble: Some(trouble), .. } => {
                Some(told(&trouble.error))
            }
            Status::Waiting { why: Why::NotLooked | Why::Unreachable, .. } => {
                Some("the store has not answered yet".to_owned())
            }
            Status::Stopped { reason } => Some(secret::without(&reason.to_string())),
            _ => None,
        }
    }

    /// Returns when it may stand otherwise than just now. Cancel-safe.
    pub(crate) async fn changed(&self, standing: &Standing) {
        let (mut status, mut led) = (self.state.status.clone(), self.led.clone());
        status.mark_unchanged();
        led.mark_unchanged();
        let phases = led.borrow().as_ref().map(|current| current.phases.clone());
        let phase = async {
            match phases {
                Some(mut phases) => {
                    phases.mark_unchanged();
                    // One that will not change any more is followed by another leadership, or none.
                    if phases.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
                None => std::future::pending().await,
            }
        };
        let stop = sleep_until(standing.parts().stop_at);
        if self.standing() != *standing {
            return;
        }
        // One whose end nobody tells any more changes no more.
        tokio::select! {
            Ok(()) = status.changed() => {}
            Ok(()) = led.changed() => {}
            () = phase => {}
            () = stop => {}
            else => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests;
