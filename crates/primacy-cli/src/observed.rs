//! How elections change, for those who are told of changes alone: programs at an agent's socket, and clients of HTTP.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use primacy::store::{Snapshot, Store, StoreError};
use primacy::{Election, ElectionName, Instant, Observation, SetupError, clock};
use tokio::sync::watch;

use crate::output::change::changes;
use crate::output::lead::Lead;
use crate::reach::aged;

/// How old an observation may be that is looked at anew every second.
const FRESH: Duration = Duration::from_millis(1_500);
/// Between two looks at a leadership that may have run out.
const LOOK: Duration = Duration::from_secs(1);

/// The elections that somebody follows: one observation of each, however many follow it.
#[derive(Debug)]
pub(crate) struct Observations {
    store: Arc<dyn Store>,
    known: Mutex<BTreeMap<ElectionName, Weak<watch::Receiver<Observation>>>>,
}

/// What is told of an election that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// At once what others have seen a moment ago; and while the store is away what follows from the lease that was seen last.
    Known,
    /// Only what the store has answered since.
    Answered,
}

/// Why an election cannot be followed.
#[derive(Debug)]
pub(crate) enum NotFollowed {
    /// As many are followed as may be.
    TooMany,
    /// The system gives no thread.
    Setup(SetupError),
}

impl Observations {
    /// None yet.
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, known: Mutex::default() }
    }

    /// Follows this election, in this manner. Each one that is followed takes a connection to the store, and files: so they are no
    /// more than `most`.
    ///
    /// # Errors
    /// If there are that many, or the system gives no thread.
    pub(crate) fn follow(
        &self,
        election: &ElectionName,
        manner: Manner,
        most: usize,
    ) -> Result<ElectionChanges, NotFollowed> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, observed| observed.strong_count() > 0);
        let shared = match known.get(election).and_then(Weak::upgrade) {
            Some(shared) => shared,
            None if known.len() >= most => return Err(NotFollowed::TooMany),
            None => {
                let election = Election::new(Arc::clone(&self.store), election.clone());
                let shared = Arc::new(election.observe().map_err(NotFollowed::Setup)?);
                known.insert(election.name().clone(), Arc::downgrade(&shared));
                shared
            }
        };
        let begun = clock::now();
        Ok(ElectionChanges { observed: (*shared).clone(), _shared: shared, manner, begun, last: None, answers: true })
    }
}

/// What has happened in an election.
#[derive(Debug)]
pub(crate) enum News {
    /// It looks otherwise than before, or is looked at for the first time.
    Changed(Box<Change>),
    /// The store does not answer. What it says when it answers again comes after a [`Found`](Self::Found).
    Lost(StoreError),
    /// The store answers again.
    Found(Box<Option<Snapshot>>),
}

/// Two looks at an election that differ.
#[derive(Debug)]
pub(crate) struct Change {
    /// How it looked; `None` before it was looked at.
    pub(crate) before: Option<Option<Snapshot>>,
    /// How it looks.
    pub(crate) now: Option<Snapshot>,
    /// How old that is.
    pub(crate) age: Duration,
}

/// The changes of one election.
#[derive(Debug)]
pub(crate) struct ElectionChanges {
    observed: watch::Receiver<Observation>,
    /// As long as somebody follows it, others share the observation.
    _shared: Arc<watch::Receiver<Observation>>,
    manner: Manner,
    begun: Instant,
    last: Option<Option<Snapshot>>,
    /// Whether the store has answered when it was asked last, or was not asked yet.
    answers: bool,
}

impl ElectionChanges {
    /// The next news, or `None` when nobody observes any more. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<News> {
        loop {
            let observation = self.observed.borrow_and_update().clone();
            if let Some(news) = self.news(observation) {
                return Some(news);
            }
            tokio::select! {
                changed = self.observed.changed() => changed.ok()?,
                () = tokio::time::sleep(LOOK), if self.last.as_ref().is_some_and(is_led) => {}
            }
        }
    }

    /// Whether what was seen then may be told now.
    fn may_tell(&self, seen_at: Option<Instant>) -> bool {
        match self.manner {
            Manner::Known => true,
            Manner::Answered => self.answers && seen_at.is_some_and(|at| at >= self.begun),
        }
    }

    fn news(&mut self, observation: Observation) -> Option<News> {
        let (seen, seen_at) = (seen(&observation), observation.seen_at);
        let answered = std::mem::replace(&mut self.answers, observation.trouble.is_none());
        if let Some(error) = observation.trouble.filter(|_| answered) {
            return Some(News::Lost(error));
        }
        let (now, age) = seen.filter(|_| self.may_tell(seen_at))?;
        if self.answers && !answered && self.last.is_some() {
            return Some(News::Found(Box::new(now)));
        }
        let is_news = match &self.last {
            Some(last) => !changes(last.as_ref(), now.as_ref()).is_empty(),
            None => true,
        };
        is_news.then(|| News::Changed(Box::new(Change { before: self.last.replace(now.clone()), now, age })))
    }
}

#[expect(clippy::ref_option, reason = "it is what is remembered")]
fn is_led(seen: &Option<Snapshot>) -> bool {
    matches!(Lead::of(seen.as_ref()), Lead::Led(..))
}

/// The election as it would look now, and how old that is; `None` before the store has answered. A lease that has run out since it
/// was looked at last may have been renewed: so it is believed until the next look is due.
fn seen(observation: &Observation) -> Option<(Option<Snapshot>, Duration)> {
    let age = clock::now().since(observation.seen_at?);
    let grown = age.saturating_sub(FRESH);
    Some((observation.snapshot.clone().map(|snapshot| aged(snapshot, grown)), age))
}
