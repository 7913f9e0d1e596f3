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
use super::orders;
use crate::failure::Failure;
use crate::order::RemoteOrder;
use crate::output::schema::{List, Millis, SCHEMA};
use crate::reach::{ElectionView, PastLeaderships, Reach};
use crate::standing::CandidateSource;

/// How old an answer of the store may be that is told once more. What is told says how old it is.
const FRESH: Duration = Duration::from_millis(250);
/// For how long a store that has not answered is not asked again.
const SPARED: Duration = Duration::from_secs(1);
/// How long the store may take for all of an answer.
const WITHIN: Duration = Duration::from_secs(3);
/// How long a client waits, behind others too.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many clients wait at once, those with questions and those with orders.
const WAITING_MAX: usize = 64;
const ORDERS_MAX: usize = 8;

/// How many leaderships are told at most.
pub(super) const HISTORY_MAX: u32 = 200;

/// What a client wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// The elections of this process.
    Elections,
    /// The election.
    Election,
    /// Its last leaderships, this many at most.
    History(u32),
    /// What can be counted and measured of all this.
    Metrics,
}

/// Why there is no answer: it took too long, or too many wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unanswered;

/// What waits for its turn.
struct Asked<T> {
    what: T,
    tell: oneshot::Sender<Response>,
    /// Its client waits until then.
    until: Instant,
}

/// Brings questions and orders to the task that asks the store.
#[derive(Clone)]
pub(super) struct Questions {
    questions: mpsc::Sender<Asked<Question>>,
    /// Who only asks takes no place from who orders.
    orders: mpsc::Sender<Asked<RemoteOrder>>,
}

impl Questions {
    /// With the task, which never ends before all of these are gone.
    pub(super) fn new(candidate: Arc<CandidateSource>) -> (Self, impl Future<Output = ()> + use<>) {
        let ((questions, asked), (orders, ordered)) = (mpsc::channel(WAITING_MAX), mpsc::channel(ORDERS_MAX));
        let reach = Reach::new(candidate.store(), candidate.election().clone(), None).within(WITHIN);
        (Self { questions, orders }, answer(candidate, reach, asked, ordered))
    }

    /// The answer.
    ///
    /// # Errors
    /// If there is none in time.
    pub(super) async fn ask(&self, question: Question) -> Result<Response, Unanswered> {
        let patience = if question == Question::Metrics { WITHIN } else { PATIENCE };
        wait(&self.questions, question, patience).await
    }

    /// The answer to an order.
    pub(super) async fn order(&self, order: RemoteOrder) -> Response {
        let answer = wait(&self.orders, order, PATIENCE).await;
        answer.unwrap_or_else(|Unanswered| refused(StatusCode::SERVICE_UNAVAILABLE, BUSY))
    }
}

/// An order's turn comes early enough for it to end before its client gives up, or nothing is done.
const BUSY: &str = "too many order at once, and nothing was changed: order again";

async fn wait<T>(queue: &mpsc::Sender<Asked<T>>, what: T, patience: Duration) -> Result<Response, Unanswered> {
    let (tell, told) = oneshot::channel();
    let asked = Asked { what, tell, until: clock::now() + patience };
    queue.try_send(asked).map_err(|_| Unanswered)?;
    tokio::time::timeout(patience, told).await.ok().and_then(Result::ok).ok_or(Unanswered)
}

/// What was learnt, and when.
struct Dated<T> {
    at: Instant,
    what: T,
}

impl<T> Dated<T> {
    fn of(what: T) -> Self {
        Self { at: clock::now(), what }
    }

    fn is_younger_than(&self, age: Duration) -> bool {
        clock::now().since(self.at) < age
    }
}

/// What the store has said lately.
#[derive(Default)]
struct Known {
    view: Option<Dated<ElectionView>>,
    past: Option<Dated<PastLeaderships>>,
    failure: Option<Dated<Failure>>,
}

/// What is known and fresh, or else what is learnt by asking: unless the store has not answered a moment ago, since the clients that
/// wait behind would wait as long again.
async fn fresh<'a, T>(
    known: &'a mut Option<Dated<T>>,
    failure: &mut Option<Dated<Failure>>,
    asking: impl Future<Output = Result<T, Failure>>,
) -> Result<&'a T, Failure> {
    let fresh = match known.take().filter(|known| known.is_younger_than(FRESH)) {
        Some(fresh) => fresh,
        None => {
            if let Some(failure) = failure.as_ref().filter(|failure| failure.is_younger_than(SPARED)) {
                return Err(failure.what.clone());
            }
            let asked = asking.await;
            *failure = asked.as_ref().err().cloned().map(Dated::of);
            Dated::of(asked?)
        }
    };
    Ok(&known.insert(fresh).what)
}

impl Known {
    async fn view(&mut self, reach: &mut Reach) -> Result<&ElectionView, Failure> {
        fresh(&mut self.view, &mut self.failure, ElectionView::ask(reach, true)).await
    }

    async fn past(&mut self, reach: &mut Reach) -> Result<&PastLeaderships, Failure> {
        fresh(&mut self.past, &mut self.failure, PastLeaderships::ask(reach, HISTORY_MAX)).await
    }
}

async fn answer(
    candidate: Arc<CandidateSource>,
    mut reach: Reach,
    mut asked: mpsc::Receiver<Asked<Question>>,
    mut ordered: mpsc::Receiver<Asked<RemoteOrder>>,
) {
    let mut known = Known::default();
    loop {
        // Who asked may have gone, before an answer is looked for or after.
        tokio::select! {
            biased;
            Some(Asked { what, tell, until }) = ordered.recv() => {
                if tell.is_closed() {
                    continue;
                }
                let end = clock::now() + WITHIN;
                let told = if end < until {
                    // What was known is no longer so.
                    known = Known::default();
                    reach.end_at(end);
                    orders::give(what, &mut reach).await
                } else {
                    refused(StatusCode::SERVICE_UNAVAILABLE, BUSY)
                };
                drop(tell.send(told));
            }
            Some(Asked { what, tell, .. }) = asked.recv() => {
                if tell.is_closed() {
                    continue;
                }
                reach.end_at(clock::now() + WITHIN);
                drop(tell.send(tell_of(what, &candidate, &mut known, &mut reach).await));
            }
            else => return,
        }
    }
}

async fn tell_of(question: Question, candidate: &CandidateSource, known: &mut Known, reach: &mut Reach) -> Response {
    let told = match question {
        Question::Metrics => return metrics::answer(candidate, known.view(reach).await.ok()),
        Question::Election => known.view(reach).await.map(|seen| json(&seen.status(reach))),
        Question::Elections => known.view(reach).await.map(|seen| {
            json(&List {
                schema: SCHEMA,
                store: reach.location(),
                answer_age_ms: Millis(seen.age()),
                elections: vec![seen.state(reach)],
            })
        }),
        Question::History(limit) => known.past(reach).await.map(|past| json(&past.history(reach, limit))),
    };
    told.unwrap_or_else(|failure| refused(StatusCode::SERVICE_UNAVAILABLE, &failure.to_string()))
}
