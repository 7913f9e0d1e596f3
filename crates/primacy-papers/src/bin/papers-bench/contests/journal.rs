//! What happened in a group of peers, in the order in which they noted it.

use std::collections::BTreeMap;
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
    /// It has asked for votes, in this round.
    Launched(u64),
    /// It nominates itself.
    Stands,
    Leads,
    Follows(PeerId),
    /// It may believe until then that it leads, by its grant.
    Believes(Instant),
    /// It leads no more.
    Lost,
    /// It has told the others that it still leads.
    Renewed,
    Sent(Kind),
}

impl What {
    /// Whether somebody may wait for it.
    const fn is_news(self) -> bool {
        !matches!(self, Self::Sent(_) | Self::Believes(_) | Self::Renewed | Self::Launched(_) | Self::Stands)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) at: Instant,
    pub(super) by: PeerId,
    pub(super) what: What,
}

/// Until when each peer may believe that it leads.
#[derive(Default)]
pub(super) struct Beliefs(BTreeMap<PeerId, Instant>);

impl Beliefs {
    /// Takes note of an entry. Says whether somebody leads now while another may still believe that it does.
    pub(super) fn overlap(&mut self, Entry { at, by, what }: Entry) -> bool {
        match what {
            What::Believes(until) => drop(self.0.insert(by, until)),
            What::Lost => drop(self.0.remove(&by)),
            _ => {}
        }
        what == What::Leads && self.0.iter().any(|(peer, until)| *peer != by && at < *until)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_overlaps_with_another_that_may_still_believe() {
        let overlaps = |second: u64, lost: bool| {
            let at =
                |millis: u64, by, what| Entry { at: Instant::from_nanos(millis * 1_000_000), by: PeerId(by), what };
            let until = Instant::from_nanos(60_000_000);
            let mut log = vec![at(0, 1, What::Leads), at(0, 1, What::Believes(until)), at(5, 1, What::Stopped)];
            log.extend(lost.then(|| at(9, 1, What::Lost)));
            log.push(at(second, 2, What::Leads));
            let mut beliefs = Beliefs::default();
            log.into_iter().filter(|entry| beliefs.overlap(*entry)).count()
        };
        assert_eq!([overlaps(59, false), overlaps(60, false), overlaps(59, true)], [1, 0, 0]);
    }
}
