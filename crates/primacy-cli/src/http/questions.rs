//! What is asked of the store for clients of HTTP: one question at a time, over one connection, and none twice within a moment.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use primacy::store::Snapshot;
use primacy::{ElectionName, Instant, Token, clock};
use tokio::sync::{mpsc, oneshot};

use super::answers::{json, refused};
use super::metrics::{self, Said};
use super::orders;
use crate::failure::Failure;
use crate::order::RemoteOrder;
use crate::output::schema::{List, Millis, PastTerm, SCHEMA, State};
use crate::reach::{Answer, ElectionView, PastLeaderships, Reach, aged};
use crate::standing::{Candidates, ProcessKind};

/// How old an answer of the store may be that is told once more. What is told says how old it is.
const FRESH: Duration = Duration::from_millis(250);
/// The same for all elections of the voters: the list costs each of them a question for each.
const FRESH_OF_VOTERS: Duration = Duration::from_secs(2);
/// For how long a store that has not answered is not asked again.
const SPARED: Duration = Duration::from_secs(1);
/// How long the store may take for all of an answer.
const WITHIN: Duration = Duration::from_secs(3);
/// How long a client waits, behind others too.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many clients wait at once, those with questions and those with orders.
const WAITING_MAX: usize = 64;
const ORDERS_MAX: usize = 8;

/// Of how many elections it is remembered for a moment what was told.
const KNOWN_MAX: usize = 256;

/// How many leaderships are told at most.
pub(super) const HISTORY_MAX: u32 = 200;

/// What a client wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// The elections of this process.
    Elections,
    /// This election.
    Election(ElectionName),
    /// Its last leaderships, this many at most.
    History(ElectionName, u32),
    /// What can be counted and measured of all this.
    Metrics,
    /// Whether the store answers at all.
    Reached,
}

/// Why there is no answer: it took too long, or too many wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unanswered;

/// What waits for its turn.
pub(super) struct Asked<T, A = Response> {
    pub(super) what: T,
    pub(super) tell: oneshot::Sender<A>,
    /// Its client waits until then.
    until: Instant,
}

/// Which leaderships a client of an election's events has missed: from this token on. The oldest first.
type Missed = Asked<MissedSince, Result<Vec<PastTerm>, Failure>>;

/// What its client has missed of an election, and since when it asks.
struct MissedSince {
    election: ElectionName,
    token: Token,
    asked_at: Instant,
}

/// Brings questions and orders to the task that asks the store.
#[derive(Clone)]
pub(super) struct Questions {
    questions: mpsc::Sender<Asked<Question>>,
    /// Who only asks takes no place from who orders.
    orders: mpsc::Sender<Asked<(ElectionName, RemoteOrder)>>,
    missed: mpsc::Sender<Missed>,
}

/// What has come to that task.
struct Inbox {
    questions: mpsc::Receiver<Asked<Question>>,
    orders: mpsc::Receiver<Asked<(ElectionName, RemoteOrder)>>,
    missed: mpsc::Receiver<Missed>,
}

impl Questions {
    /// With the task, which never ends before all of these are gone.
    pub(super) fn new(candidates: Arc<Candidates>) -> (Self, impl Future<Output = ()> + use<>) {
        let ((questions, asked), (orders, ordered)) = (mpsc::channel(WAITING_MAX), mpsc::channel(ORDERS_MAX));
        let (missed, unheard) = mpsc::channel(WAITING_MAX);
        let inbox = Inbox { questions: asked, orders: ordered, missed: unheard };
        (Self { questions, orders, missed }, answer(candidates, inbox))
    }

    /// The answer.
    ///
    /// # Errors
    /// If there is none in time.
    pub(super) async fn ask(&self, question: Question) -> Result<Response, Unanswered> {
        let patience = if question == Question::Metrics { WITHIN } else { PATIENCE };
        wait(&self.questions, question, patience).await
    }

    /// The leaderships of an election that have ended, from the one with this token on, the oldest first.
    ///
    /// # Errors
    /// If there is no answer in time.
    pub(super) async fn ended_since(&self, election: ElectionName, since: Token) -> Result<Vec<PastTerm>, Unanswered> {
        let missed = MissedSince { election, token: since, asked_at: clock::now() };
        wait(&self.missed, missed, PATIENCE).await?.map_err(|_| Unanswered)
    }

    /// The answer to an order.
    pub(super) async fn order(&self, election: ElectionName, order: RemoteOrder) -> Response {
        let answer = wait(&self.orders, (election, order), PATIENCE).await;
        answer.unwrap_or_else(|Unanswered| refused(StatusCode::SERVICE_UNAVAILABLE, BUSY))
    }
}

/// An order's turn comes early enough for it to end before its client gives up, or nothing is done.
const BUSY: &str = "too many order at once, and nothing was changed: order again";

/// The answer to what is put into this queue.
///
/// # Errors
/// If there is none in time.
pub(super) async fn wait<T, A>(
    queue: &mpsc::Sender<Asked<T, A>>,
    what: T,
    patience: Duration,
) -> Result<A, Unanswered> {
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

    /// What was asked for then: it is no older.
    const fn since(at: Instant, what: T) -> Self {
        Self { at, what }
    }

    fn is_younger_than(&self, age: Duration) -> bool {
        clock::now().since(self.at) < age
    }
}

/// What the store has said lately of one election.
#[derive(Default)]
struct Known {
    view: Option<Dated<ElectionView>>,
    past: Option<Dated<PastLeaderships>>,
}

/// All that the store has said lately, and how it is asked.
struct Asker {
    candidates: Arc<Candidates>,
    /// Turned to the election that was asked about last; `None` before anything was asked.
    reach: Option<Reach>,
    known: BTreeMap<ElectionName, Known>,
    list: Option<Dated<Answer<Vec<Snapshot>>>>,
    reached: Option<Dated<()>>,
    failure: Option<Dated<Failure>>,
    /// That of a list is about all elections of the store, and not about one.
    list_failure: Option<Dated<Failure>>,
    /// Nothing is asked after this.
    end: Instant,
}

/// What is known and fresh, or else what is learnt by asking: unless the store has not answered a moment ago, since the clients that
/// wait behind would wait as long again.
async fn fresh<'a, T>(
    known: &'a mut Option<Dated<T>>,
    age: Duration,
    failure: &mut Option<Dated<Failure>>,
    asking: impl Future<Output = Result<T, Failure>>,
) -> Result<&'a T, Failure> {
    let fresh = match known.take().filter(|known| known.is_younger_than(age)) {
        Some(fresh) => fresh,
        None => {
            if let Some(failure) = failure.as_ref().filter(|failure| failure.is_younger_than(SPARED)) {
                return Err(failure.what.clone());
            }
            let begun = clock::now();
            let asked = asking.await;
            *failure = asked.as_ref().err().cloned().map(Dated::of);
            Dated::since(begun, asked?)
        }
    };
    Ok(&known.insert(fresh).what)
}

impl Asker {
    /// Turns to this election, and what is known of it.
    fn about(&mut self, election: &ElectionName) -> (&mut Known, &mut Option<Dated<Failure>>, &mut Reach) {
        if self.known.len() > KNOWN_MAX {
            self.known.clear();
        }
        let known = self.known.entry(election.clone()).or_default();
        let store = self.candidates.store();
        let reach = self.reach.get_or_insert_with(|| Reach::new(store, election.clone(), None).within(WITHIN));
        reach.turn_to(election);
        reach.end_at(self.end);
        (known, &mut self.failure, reach)
    }

    async fn view(&mut self, election: &ElectionName) -> Result<(&ElectionView, &Reach), Failure> {
        let (known, failure, reach) = self.about(election);
        let view = fresh(&mut known.view, FRESH, failure, ElectionView::ask(reach, true)).await?;
        Ok((view, reach))
    }

    async fn past(&mut self, election: &ElectionName) -> Result<(&PastLeaderships, &Reach), Failure> {
        let (known, failure, reach) = self.about(election);
        let past = fresh(&mut known.past, FRESH, failure, PastLeaderships::ask(reach, HISTORY_MAX)).await?;
        Ok((past, reach))
    }

    /// Whether the store answers one question.
    async fn reached(&mut self) -> Result<(), Failure> {
        self.about(&ElectionName::default());
        let Self { reach: Some(reach), reached, failure, .. } = self else { return Ok(()) };
        fresh(reached, FRESH, failure, async { reach.snapshot().await.map(drop) }).await.copied()
    }

    /// All elections of the store, with how old that is.
    async fn list(&mut self, any: &ElectionName) -> Result<(Vec<Snapshot>, Duration), Failure> {
        self.about(any);
        let age = if self.candidates.kind() == ProcessKind::Voter { FRESH_OF_VOTERS } else { FRESH };
        let Self { reach: Some(reach), list, list_failure, .. } = self else { return Ok(Default::default()) };
        let seen = fresh(list, age, list_failure, reach.elections()).await?.clone();
        let age = seen.age();
        Ok((seen.value.into_iter().map(|snapshot| aged(snapshot, age)).collect(), age))
    }

    /// What the store says of the elections of this process.
    async fn said(&mut self) -> Option<BTreeMap<ElectionName, Said>> {
        let elections = self.candidates.elections();
        if self.candidates.kind() == ProcessKind::Voter {
            let (list, _) = self.list(&ElectionName::default()).await.ok()?;
            return Some(list.into_iter().map(|seen| (seen.election.clone(), (Some(seen), None))).collect());
        }
        let first = elections.first()?;
        if elections.len() == 1 {
            let (view, _) = self.view(first).await.ok()?;
            return Some(BTreeMap::from([(first.clone(), (view.snapshot(), view.support().cloned()))]));
        }
        // Of many, one question for all; and not which voters support each.
        let (list, _) = self.list(first).await.ok()?;
        let mut said: BTreeMap<_, Said> = elections.into_iter().map(|election| (election, (None, None))).collect();
        for snapshot in list {
            if let Some(known) = said.get_mut(&snapshot.election) {
                known.0 = Some(snapshot);
            }
        }
        Some(said)
    }

    async fn elections(&mut self) -> Result<Response, Failure> {
        let elections = self.candidates.elections();
        let location = self.candidates.store().location();
        let (states, age) = match (elections.first(), elections.len()) {
            (None, _) if self.candidates.kind() == ProcessKind::Voter => {
                let (list, age) = self.list(&ElectionName::default()).await?;
                (list.iter().map(|snapshot| State::of(&snapshot.election, Some(snapshot))).collect(), age)
            }
            (None, _) => (Vec::new(), Duration::ZERO),
            (Some(only), 1) => {
                let (seen, reach) = self.view(only).await?;
                (vec![seen.state(reach)], seen.age())
            }
            (Some(first), _) => {
                let (list, age) = self.list(first).await?;
                let known: BTreeMap<_, _> = list.iter().map(|snapshot| (&snapshot.election, snapshot)).collect();
                (elections.iter().map(|name| State::of(name, known.get(name).copied())).collect(), age)
            }
        };
        Ok(json(&List { schema: SCHEMA, store: location, answer_age_ms: Millis(age), elections: states }))
    }

    async fn ended_since(&mut self, missed: &MissedSince) -> Result<Vec<PastTerm>, Failure> {
        let (known, ..) = self.about(&missed.election);
        // What was known may be older than what the client knows.
        known.past.take_if(|past| past.at < missed.asked_at);
        let (past, reach) = self.past(&missed.election).await?;
        let terms = past.history(reach, HISTORY_MAX).terms;
        let is_missed = |term: &PastTerm| term.has_ended() && term.token() >= missed.token.get();
        Ok(terms.into_iter().rev().filter(is_missed).collect())
    }

    async fn tell_of(&mut self, question: Question) -> Response {
        let told = match question {
            Question::Metrics => {
                let said = self.said().await;
                return metrics::answer(&self.candidates, said.as_ref());
            }
            Question::Reached => self.reached().await.map(|()| StatusCode::OK.into_response()),
            Question::Election(name) => self.view(&name).await.map(|(seen, reach)| json(&seen.status(reach))),
            Question::Elections => self.elections().await,
            Question::History(name, limit) => {
                self.past(&name).await.map(|(past, reach)| json(&past.history(reach, limit)))
            }
        };
        told.unwrap_or_else(|failure| refused(StatusCode::SERVICE_UNAVAILABLE, &failure.to_string()))
    }
}

async fn answer(candidates: Arc<Candidates>, mut inbox: Inbox) {
    let mut asker = Asker {
        candidates,
        reach: None,
        known: BTreeMap::new(),
        list: None,
        reached: None,
        failure: None,
        list_failure: None,
        end: clock::now(),
    };
    loop {
        // Who asked may have gone, before an answer is looked for or after.
        tokio::select! {
            biased;
            Some(Asked { what: (election, order), tell, until }) = inbox.orders.recv() => {
                if tell.is_closed() {
                    continue;
                }
                asker.end = clock::now() + WITHIN;
                let told = if asker.end < until {
                    // What was known is no longer so.
                    (asker.known, asker.list) = (BTreeMap::new(), None);
                    (asker.failure, asker.list_failure) = (None, None);
                    let (_, _, reach) = asker.about(&election);
                    orders::give(order, reach).await
                } else {
                    refused(StatusCode::SERVICE_UNAVAILABLE, BUSY)
                };
                drop(tell.send(told));
            }
            // Neither of these goes before the other.
            Some(next) = next(&mut inbox.questions, &mut inbox.missed) => {
                asker.end = clock::now() + WITHIN;
                match next {
                    Next::Question(Asked { what, tell, .. }) if !tell.is_closed() => {
                        drop(tell.send(asker.tell_of(what).await));
                    }
                    Next::Missed(Asked { what, tell, .. }) if !tell.is_closed() => {
                        drop(tell.send(asker.ended_since(&what).await));
                    }
                    Next::Question(_) | Next::Missed(_) => {}
                }
            }
            else => return,
        }
    }
}

/// What is answered next, if nothing was ordered.
enum Next {
    Question(Asked<Question>),
    Missed(Missed),
}

async fn next(questions: &mut mpsc::Receiver<Asked<Question>>, missed: &mut mpsc::Receiver<Missed>) -> Option<Next> {
    tokio::select! {
        Some(question) = questions.recv() => Some(Next::Question(question)),
        Some(asked) = missed.recv() => Some(Next::Missed(asked)),
        else => None,
    }
}
