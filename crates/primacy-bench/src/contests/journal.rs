//! What happened in a group of peers, in the order in which they noted it.

use std::sync::{Condvar, Mutex, PoisonError};

use primacy_core::Instant;
use primacy_core::contest::PeerId;

use super::links::Clock;
use super::seat::Kind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// It was told to stop, and did.
    Stopped,
    /// How many others it reaches now.
    Reaches(usize),
    /// It knows of no leader any more.
    Vacant,
    /// It has begun a round.
    Launched,
    /// It nominates itself.
    Stands,
    Leads,
    Follows(PeerId),
    /// It leads no more.
    Lost,
    /// It has told the others that it still leads.
    Renewed,
    Sent(Kind),
}

impl What {
    /// Whether somebody may wait for it.
    const fn is_news(self) -> bool {
        !matches!(self, Self::Sent(_) | Self::Renewed | Self::Launched | Self::Stands)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) at: Instant,
    pub(super) by: PeerId,
    pub(super) what: What,
}

#[derive(Default)]
pub(super) struct Journal {
    entries: Mutex<Vec<Entry>>,
    news: Condvar,
}

impl Journal {
    pub(super) fn note(&self, at: Instant, by: PeerId, what: What) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).push(Entry { at, by, what });
        if what.is_news() {
            self.news.notify_one();
        }
    }

    /// What was noted since this was asked last; waits for news until then.
    pub(super) fn take(&self, until: Instant, clock: Clock) -> Vec<Entry> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let nothing_new = |entries: &mut Vec<Entry>| !entries.iter().any(|entry| entry.what.is_news());
        let waited = self.news.wait_timeout_while(entries, until.since(clock.now()), nothing_new);
        std::mem::take(&mut *waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}
