//! What clients saw of each key, in chapters.
//!
//! A search for an order takes longer the more operations of a key have an unknown outcome, since each of them may have been done
//! at any later moment. So keys are used for a while and then left: a chapter has keys of its own, and is complete when nothing of
//! it is under way any more.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use primacy_linearizability::Operation;
use primacy_linearizability::key::{Answer, Request};

/// What one client asked of one key, and what came of it. Times are nanoseconds of the boot clock.
pub(super) type Op = Operation<Request, Answer>;

/// How many keys a chapter has.
pub(super) const KEYS: usize = 36;
/// After how many operations the next chapter begins.
const LENGTH: usize = KEYS * 120;

/// A key's name.
pub(super) fn key_name(chapter: u64, key: usize) -> String {
    format!("k{chapter}-{key}")
}

/// All that was asked of some keys.
#[derive(Debug)]
pub(super) struct Chapter {
    pub(super) number: u64,
    pub(super) keys: Vec<Vec<Op>>,
    begun: usize,
    under_way: usize,
}

impl Chapter {
    fn new(number: u64) -> Self {
        Self { number, keys: vec![Vec::new(); KEYS], begun: 0, under_way: 0 }
    }
}

/// Says of which key an operation is. It has to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) chapter: u64,
    pub(super) key: usize,
}

/// The chapters that are not complete. The last one is the one in which operations begin.
#[derive(Debug)]
pub(super) struct Histories {
    open: Mutex<Open>,
    changed: Condvar,
}

#[derive(Debug)]
struct Open {
    chapters: VecDeque<Chapter>,
    is_over: bool,
}

impl Histories {
    pub(super) fn new() -> Self {
        let open = Open { chapters: VecDeque::from([Chapter::new(0)]), is_over: false };
        Self { open: Mutex::new(open), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An operation begins. `draw` is any number, and decides of which key.
    pub(super) fn begin(&self, draw: usize) -> Ticket {
        let mut open = self.lock();
        let number = open.chapters.back().map_or(0, |last| last.number);
        if open.chapters.back().is_none_or(|last| last.begun >= LENGTH) {
            open.chapters.push_back(Chapter::new(number + 1));
            self.changed.notify_all();
        }
        let last = open.chapters.back_mut();
        let chapter = last.map_or(0, |last| {
            last.begun += 1;
            last.under_way += 1;
            last.number
        });
        Ticket { chapter, key: draw % KEYS }
    }

    /// It has ended: with this, or it certainly was not done.
    pub(super) fn end(&self, ticket: Ticket, operation: Option<Op>) {
        let mut open = self.lock();
        let found = open.chapters.iter_mut().find(|chapter| chapter.number == ticket.chapter);
        if let Some(chapter) = found {
            chapter.under_way -= 1;
            chapter.keys[ticket.key].extend(operation);
            if chapter.under_way == 0 {
                self.changed.notify_all();
            }
        }
    }

    /// No operation begins any more.
    pub(super) fn close(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// The next chapter that is complete. Waits for it; `None` when there will be none.
    pub(super) fn complete(&self) -> Option<Chapter> {
        let mut open = self.lock();
        loop {
            let is_last = open.chapters.len() == 1;
            let first = open.chapters.iter().position(|chapter| chapter.under_way == 0);
            match first {
                Some(first) if open.is_over || first + 1 < open.chapters.len() => return open.chapters.remove(first),
                None if open.is_over && open.chapters.is_empty() => return None,
                _ => {}
            }
            // With a limit only because nothing else tells of the last one.
            let limit = if is_last { Duration::from_millis(100) } else { Duration::from_secs(1) };
            open = self.changed.wait_timeout(open, limit).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use primacy_linearizability::Outcome;

    use super::*;

    #[test]
    fn a_chapter_is_complete_when_nothing_of_it_is_under_way() {
        let histories = Histories::new();
        let slow = histories.begin(3);
        for draw in 1..LENGTH {
            let ticket = histories.begin(draw);
            histories.end(ticket, None);
        }
        let next = histories.begin(KEYS);
        assert_eq!((slow.chapter, next), (0, Ticket { chapter: 1, key: 0 }));
        let operation = Op { client: 1, called: 1, request: Request::Get, outcome: Outcome::Unknown };
        histories.end(slow, Some(operation.clone()));
        let complete = histories.complete().expect("there is one");
        assert_eq!((complete.number, &complete.keys[3]), (0, &vec![operation]));
        histories.end(next, None);
        histories.close();
        assert_eq!(histories.complete().map(|chapter| chapter.number), Some(1));
        assert!(histories.complete().is_none());
    }
}
