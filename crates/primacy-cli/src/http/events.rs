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
use crate::observed::{Change, ElectionChanges, News, NotFollowed, Observations};
use crate::output::change::{self, beginning, changes};
use crate::output::schema;
use crate::standing::Candidates;

/// How many streams there are at once, and so how many elections are looked at for them, at most.
const STREAMS_MAX: usize = 32;
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
    pub(super) fn new(candidates: &Candidates) -> Self {
        let observations = Arc::new(Observations::new(candidates.store()));
        Self { places: Arc::new(Semaphore::new(STREAMS_MAX)), observations }
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
        let followed = match self.observations.follow(&election, STREAMS_MAX) {
            Ok(changes) => changes,
            Err(NotFollowed::TooMany) => {
                return refused(StatusCode::SERVICE_UNAVAILABLE, "too many elections are followed: ask again later");
            }
            Err(NotFollowed::Setup(error)) => return refused(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
        };
        visitor.follow();
        let end = clock::now() + STREAM_LASTS;
        let told = VecDeque::from([Event::default().retry(RETRY)]);
        let stream = EventStream { election, followed, questions, resumed, told, end, _place: place };
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
    /// The token of the last event that its client has had before it came back, until what it has missed was told.
    resumed: Option<Token>,
    told: VecDeque<Event>,
    end: Instant,
    _place: OwnedSemaphorePermit,
}

impl EventStream {
    /// The next event, or `None` at the end.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.told.pop_front() {
                return Some(event);
            }
            let left = self.end.since(clock::now());
            match tokio::time::timeout(left, self.followed.next()).await.ok()?? {
                News::Lost(error) => self.tell(None, &change::lost(&error.to_string())),
                News::Found(now) => self.tell((*now).as_ref(), &change::found()),
                News::Changed(news) => {
                    let Change { before, now, .. } = *news;
                    self.tell_missed().await?;
                    match before {
                        None => self.tell(now.as_ref(), &beginning(&self.election, now.as_ref())),
                        Some(before) => {
                            for change in changes(before.as_ref(), now.as_ref()) {
                                self.tell(now.as_ref(), &change);
                            }
                        }
                    }
                }
            }
        }
    }

    /// Tells of the leaderships that have ended since the client went. `None` if they cannot be had: it comes back.
    async fn tell_missed(&mut self) -> Option<()> {
        let Some(since) = self.resumed else { return Some(()) };
        for term in self.questions.ended_since(self.election.clone(), since).await.ok()? {
            self.told.extend(event("term", Some(term.token()), &term));
        }
        self.resumed = None;
        Some(())
    }

    fn tell(&mut self, now: Option<&Snapshot>, change: &change::Change<'_>) {
        let said = schema::Change::new(&self.election, Timestamp::now().as_millisecond(), change, now);
        let token = if change.is_known() { Some(now.map_or(0, |now| now.record.version.token.get())) } else { None };
        self.told.extend(event("change", token, &said));
    }
}

/// An event with this token as its number: who comes back says the last one.
fn event(name: &str, token: Option<u64>, said: &impl Serialize) -> Option<Event> {
    let said = serde_json::to_string(said).inspect_err(|error| debug!(%error, "an event cannot be written")).ok()?;
    let event = Event::default().event(name).data(said);
    Some(token.into_iter().fold(event, |event, token| event.id(token.to_string())))
}
