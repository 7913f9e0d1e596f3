//! How the candidate stands of which the server tells.

use std::sync::Arc;
use std::time::Duration;

use primacy::store::{Store, StoreError, Why};
use primacy::{Election, ElectionName, Label, Phase, Status, Token, clock};
use serde::Serialize;
use tokio::sync::watch;

use crate::failure::Failure;
use crate::output::schema::{Millis, SCHEMA};

/// The candidate of this process.
#[derive(Debug)]
pub(crate) struct CandidateSource {
    election: ElectionName,
    store: Arc<dyn Store>,
    label: Label,
    status: watch::Receiver<Status>,
    led: watch::Receiver<Option<CurrentLeadership>>,
}

/// A leadership that this process has, or had until a moment ago.
#[derive(Clone, Debug)]
pub(crate) struct CurrentLeadership {
    /// Its token.
    pub(crate) token: Token,
    /// Where it is in its life.
    pub(crate) phases: watch::Receiver<Phase>,
}

/// How a candidate stands at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It leads. Its program is told to stop after `remaining`, unless the lease is renewed or something ends it earlier.
    Leads { token: Token, remaining: Duration },
    /// It leads no more, or its program has been told to stop.
    Stops { token: Option<Token>, why: String },
    /// It waits.
    Waits { why: String },
    /// It takes no part any more.
    Gone { why: String },
}

/// What `/leader` and `/candidate` say beside their status.
#[derive(Debug, Serialize)]
pub(super) struct StandingReply {
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
        election: &Election,
        label: &Label,
        status: watch::Receiver<Status>,
        led: watch::Receiver<Option<CurrentLeadership>>,
    ) -> Self {
        let (name, store) = (election.name().clone(), Arc::clone(election.store()));
        Self { election: name, store, label: label.clone(), status, led }
    }

    pub(super) const fn election(&self) -> &ElectionName {
        &self.election
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// How it stands now. Its warden tells the program to stop by the clock, whatever was heard last, and it leads until then.
    pub(super) fn standing(&self) -> Standing {
        if let Some(CurrentLeadership { token, phases }) = &*self.led.borrow() {
            let phase = phases.borrow();
            let remaining = match &*phase {
                Phase::Leading { until, timing, .. } => (*until - timing.kill() - timing.grace()).since(clock::now()),
                _ => Duration::ZERO,
            };
            if !remaining.is_zero() {
                return Standing::Leads { token: *token, remaining };
            }
            let why = phase.stop_reason().map_or_else(|| "the lease runs out".to_owned(), ToString::to_string);
            return Standing::Stops { token: Some(*token), why };
        }
        match &*self.status.borrow() {
            Status::Waiting { why, .. } => Standing::Waits { why: format!("this candidate {why}") },
            Status::Leading { token, .. } => Standing::Stops {
                token: Some(*token),
                why: "it has the lease, and its program does not run".to_owned(),
            },
            Status::Draining { token, reason } => Standing::Stops { token: Some(*token), why: reason.to_string() },
            Status::Ending { reason } => Standing::Stops { token: None, why: reason.to_string() },
            Status::Stopped { reason } => Standing::Gone { why: reason.to_string() },
            _ => Standing::Gone { why: "its state is not known".to_owned() },
        }
    }

    /// The same, as it is told.
    pub(super) fn reply(&self, standing: &Standing) -> StandingReply {
        let (word, token, remaining, why) = match standing {
            Standing::Leads { token, remaining } => ("leads", Some(*token), Some(*remaining), None),
            Standing::Stops { token, why } => ("stops", *token, None, Some(why)),
            Standing::Waits { why } => ("waits", None, None, Some(why)),
            Standing::Gone { why } => ("gone", None, None, Some(why)),
        };
        StandingReply {
            schema: SCHEMA,
            election: self.election.as_str().to_owned(),
            label: self.label.as_str().to_owned(),
            standing: word,
            token: token.map(Token::get),
            remaining_ms: remaining.map(Millis),
            why: why.cloned(),
        }
    }

    /// Why it does not reach its store, if it does not.
    pub(super) fn trouble(&self) -> Option<String> {
        let told = |error: &StoreError| Failure::unavailable(error.to_string()).to_string();
        match &*self.status.borrow() {
            Status::Waiting { trouble: Some(trouble), .. } | Status::Leading { trouble: Some(trouble), .. } => {
                Some(told(&trouble.error))
            }
            Status::Waiting { why: Why::NotLooked | Why::Unreachable, .. } => {
                Some("the store has not answered yet".to_owned())
            }
            Status::Stopped { reason } => Some(reason.to_string()),
            _ => None,
        }
    }
}
