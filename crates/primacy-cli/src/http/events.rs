//! The changes of an election as server-sent events. A client that comes back is told what it has missed.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use jiff::Timestamp;
use primacy::store::Snapshot;
use primacy::{ElectionName, Instant, Token, clock};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::debug;

use super::answers::refused;
use super::crowd::Visitor;
use super::questions::Questions;
use crate::observed::{Change, ElectionChanges, Manner, News, NotFollowed, Observations};
use crate::output::change::{self, beginning, changes};
use crate::output::lead::Lead;
use crate::output::schema::{self, ChangeText, PastTerm, State};
use crate::standing::Candidates;

/// How many streams there are at once, and so how many elections are looked at for them, at most; and at most which part of the
/// connections they take.
const STREAMS_MAX: usize = 32;
const SHARE_OF_CONNECTIONS: usize = 4;
/// How many changes of one look are told one by one. Of more candidates that come and go at once it is told how the election stands
/// then.
const CHANGES_MAX: usize = 64;
/// How long a stream lasts: one whose client reads nothing ends, too.
pub(super) const STREAM_LASTS: Duration = Duration::from_secs(60);
/// How often a stream says that it lives.
const ALIVE: Duration = Duration::from_secs(5);
/// After what time a client comes back.
const RETRY: Duration = Duration::from_secs(1);

/// What is followed, and by how many.
#[derive(Clone)]
pub(super) struct Streams {
    places: Arc<Semaphore>,
    observations: Arc<Observations>,
}

impl Streams {
    pub(super) fn new(candidates: &Candidates, connections_max: usize) -> Self {
        let observations = Arc::new(Observations::new(candidates.store()));
        let places = STREAMS_MAX.min(connections_max / SHARE_OF_CONNECTIONS).max(1);
        Self { places: Arc::new(Semaphore::new(places)), observations }
    }

    /// Follows this election for a client, from the event on that it was told last.
    pub(super) fn answer(
        &self,
        election: ElectionName,
        questions: Questions,
        headers: &HeaderMap,
        visitor: &Visitor,
    ) -> Response {
        let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
        let resumed = match last.map(|id| id.parse().ok().and_then(Token::new).ok_or(id)).transpose() {
            Ok(resumed) => resumed,
            Err(id) => {
                return refused(StatusCode::BAD_REQUEST, &format!("Last-Event-ID: {id} is no token, as events have"));
            }
        };
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return refused(StatusCode::SERVICE_UNAVAILABLE, "as many follow elections as may: ask again later");
        };
        let followed = match self.observations.follow(&election, Manner::Answered, STREAMS_MAX) {
            Ok(changes) => changes,
            Err(NotFollowed::TooMany) => {
                return refused(StatusCode::SERVICE_UNAVAILABLE, "too many elections are followed: ask again later");
            }
            Err(NotFollowed::Setup(error)) => return refused(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
        };
        visitor.follow();
        let stream = EventStream {
            election,
            followed,
            questions,
            untold: resumed,
            told: VecDeque::from([Told::Beginning]),
            end: clock::now() + STREAM_LASTS,
            _place: place,
        };
        let events =
            stream::unfold(stream, async |mut stream| Some((Ok::<_, Infallible>(stream.next().await?), stream)));
        Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE)).into_response()
    }
}

/// What one client is told.
struct EventStream {
    election: ElectionName,
    followed: ElectionChanges,
    questions: Questions,
    /// The first leadership whose end was not told: as the client said when it came back, or as it was at its first look.
    untold: Option<Token>,
    told: VecDeque<Told>,
    end: Instant,
    _place: OwnedSemaphorePermit,
}

/// What is to be told next. It is written when its turn comes: a client that reads slowly costs no memory.
enum Told {
    Beginning,
    Term(PastTerm),
    Change { at_unix_ms: i64, change: ChangeText, now: Option<Arc<State>>, id: Option<u64> },
}

impl EventStream {
    /// The next event, or `None` at the end.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(told) = self.told.pop_front() {
                return told.event();
            }
            let left = self.end.since(clock::now());
            match tokio::time::timeout(left, self.followed.next()).await.ok()?? {
                News::Lost(error) => self.tell(None, None, [change::lost(&error.to_string())]),
                // The change that it has not told yet may be larger than its number.
                News::Found(now) => self.tell((*now).as_ref(), None, [change::found()]),
                News::Changed(news) => {
                    let Change { before, now, .. } = *news;
                    let (seen, token) = (now.as_ref(), now.as_ref().map(|now| now.record.version.token));
                    self.tell_ended(seen).await;
                    let id = Some(token.unwrap_or_default().get());
                    let begins = || beginning(&self.election, seen);
                    let changes = before.as_ref().map(|before| changes(before.as_ref(), seen));
                    match changes {
                        None => self.tell(seen, id, [begins()]),
                        Some(changes) if changes.len() <= CHANGES_MAX => self.tell(seen, id, changes),
                        Some(changes) => {
                            let begins = begins();
                            let of_all = changes.into_iter().filter(|change| change.candidate.is_none());
                            self.tell(seen, id, of_all.chain([begins]));
                        }
                    }
                }
            }
        }
    }

    /// Tells of the leaderships that have ended and were not told, if there may be some by what was seen of the election.
    async fn tell_ended(&mut self, seen: Option<&Snapshot>) {
        let Some(token) = seen.map(|seen| seen.record.version.token) else { return };
        let is_led = matches!(Lead::of(seen), Lead::Led(..));
        // Of those before its first look a client hears only what it has missed.
        let first = *self.untold.get_or_insert(if is_led { token } else { token.next(0).max(token) });
        if token < first || (token == first && is_led) {
            return;
        }
        // Those whose end nobody has written yet are told with the next change.
        let Ok(ended) = self.questions.ended_since(self.election.clone(), first).await else { return };
        for term in ended {
            self.untold = self.untold.max(Token::new(term.token().saturating_add(1)));
            self.told.push_back(Told::Term(term));
        }
    }

    fn tell<'a>(
        &mut self,
        now: Option<&Snapshot>,
        id: Option<u64>,
        changes: impl IntoIterator<Item = change::Change<'a>>,
    ) {
        let at_unix_ms = Timestamp::now().as_millisecond();
        let state = Arc::new(State::of(&self.election, now));
        for change in changes {
            let now = change.is_known().then(|| Arc::clone(&state));
            self.told.push_back(Told::Change { at_unix_ms, change: change.into(), now, id });
        }
    }
}

impl Told {
    fn event(self) -> Option<Event> {
        match self {
            Self::Beginning => Some(Event::default().retry(RETRY)),
            Self::Term(term) => event("term", Some(term.token()), &term),
            Self::Change { at_unix_ms, change, now, id } => {
                event("change", id, &schema::Change::new(at_unix_ms, &change, now.as_deref()))
            }
        }
    }
}

/// An event with this token as its number: who comes back says the last one.
fn event(name: &str, token: Option<u64>, said: &impl Serialize) -> Option<Event> {
    let said = serde_json::to_string(said).inspect_err(|error| debug!(%error, "an event cannot be written")).ok()?;
    let event = Event::default().event(name).data(said);
    Some(token.into_iter().fold(event, |event, token| event.id(token.to_string())))
}
