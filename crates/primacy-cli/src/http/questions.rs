//! What is asked of the store for clients of HTTP: one question at a time, over one connection, and none twice within a moment.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use primacy::{Instant, clock};
use tokio::sync::{mpsc, oneshot};

use super::answers::{json, refused};
use super::metrics;
use super::orders::HttpOrder;
use super::source::CandidateSource;
use crate::failure::Failure;
use crate::output::schema::{List, Millis, SCHEMA};
use crate::output::span::span;
use crate::reach::{ElectionView, PastLeaderships, Reach};

/// How old an answer of the store may be that is told once more. What is told says how old it is.
const FRESH: Duration = Duration::from_millis(250);
/// How long the store may take.
const WITHIN: Duration = Duration::from_secs(3);
/// How long a client waits, behind others too.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many clients wait at once.
const WAITING_MAX: usize = 64;

/// How many leaderships are told at most.
pub(super) const HISTORY_MAX: u32 = 200;

/// What a client wants to know, or to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// The elections of this process.
    Elections,
    /// The election.
    Election,
    /// Its last leaderships, this many at most.
    History(u32),
    /// What can be counted and measured of all this.
    Metrics,
    /// That something be done.
    Order(HttpOrder),
}

/// Brings questions to the task that asks them.
#[derive(Clone, Debug)]
pub(super) struct Questions(mpsc::Sender<(Question, oneshot::Sender<Response>)>);

impl Questions {
    /// With the task, which never ends before all of these are gone.
    pub(super) fn new(candidate: Arc<CandidateSource>) -> (Self, impl Future<Output = ()> + use<>) {
        let (ask, asked) = mpsc::channel(WAITING_MAX);
        let reach = Reach::new(candidate.store(), candidate.election().clone(), None).within(WITHIN);
        (Self(ask), answer(candidate, reach, asked))
    }

    /// The answer, or why there is none.
    pub(super) async fn ask(&self, question: Question) -> Response {
        let late = match &question {
            Question::Order(_) => {
                "the store has not answered in time, and it is unknown whether the order was written: look, and order again"
            }
            _ => "the store has not answered in time",
        };
        let (tell, told) = oneshot::channel();
        if self.0.try_send((question, tell)).is_err() {
            return refused(StatusCode::SERVICE_UNAVAILABLE, "too many ask at once: ask again");
        }
        match tokio::time::timeout(PATIENCE, told).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => refused(StatusCode::SERVICE_UNAVAILABLE, late),
        }
    }
}

/// What was learnt, and when.
struct CachedAnswer<T> {
    at: Instant,
    what: Result<T, Failure>,
}

impl<T> CachedAnswer<T> {
    fn of(what: Result<T, Failure>) -> Self {
        Self { at: clock::now(), what }
    }

    fn is_fresh(&self) -> bool {
        clock::now().since(self.at) < FRESH
    }
}

async fn answer(
    candidate: Arc<CandidateSource>,
    mut reach: Reach,
    mut asked: mpsc::Receiver<(Question, oneshot::Sender<Response>)>,
) {
    let mut seen: Option<CachedAnswer<ElectionView>> = None;
    let mut past: Option<CachedAnswer<PastLeaderships>> = None;
    while let Some((question, tell)) = asked.recv().await {
        if tell.is_closed() {
            continue;
        }
        let told = match question {
            Question::Elections | Question::Election | Question::Metrics => {
                let known = match seen.take().filter(CachedAnswer::is_fresh) {
                    Some(known) => known,
                    None => CachedAnswer::of(within(ElectionView::ask(&mut reach, true)).await),
                };
                let told = match (&known.what, question) {
                    (seen, Question::Metrics) => metrics::answer(&candidate, seen.as_ref().ok()),
                    (Err(failure), _) => failed(failure),
                    (Ok(seen), Question::Election) => json(&seen.status(&reach)),
                    (Ok(seen), _) => json(&List {
                        schema: SCHEMA,
                        store: reach.location(),
                        answer_age_ms: Millis(seen.age()),
                        elections: vec![seen.state(&reach)],
                    }),
                };
                seen = Some(known);
                told
            }
            Question::Order(order) => {
                // What was known is no longer so.
                (seen, past) = (None, None);
                order.give(&mut reach).await
            }
            Question::History(limit) => {
                let known = match past.take().filter(CachedAnswer::is_fresh) {
                    Some(known) => known,
                    None => CachedAnswer::of(within(PastLeaderships::ask(&mut reach, HISTORY_MAX)).await),
                };
                let told = known.what.as_ref().map_or_else(failed, |past| json(&past.history(&reach, limit)));
                past = Some(known);
                told
            }
        };
        // Who asked may have gone.
        let _: Result<(), Response> = tell.send(told);
    }
}

/// Whatever it is made of. What it leaves behind when it is late is a connection that is closed.
async fn within<T>(asking: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let late = |_| Failure::unavailable(format!("the store has not answered within {}", span(WITHIN)));
    tokio::time::timeout(WITHIN, asking).await.map_err(late)?
}

fn failed(failure: &Failure) -> Response {
    refused(StatusCode::SERVICE_UNAVAILABLE, &failure.to_string())
}
