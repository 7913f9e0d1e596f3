//! Identical warnings at most once a minute: what goes on going wrong does not fill a disk.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use primacy::{Instant, clock};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

/// How long a warning is not repeated.
const SPAN: Duration = Duration::from_secs(60);
/// How long one of a change of state is not repeated, unless there was another one since.
const AT_ONCE: Duration = Duration::from_secs(1);
/// How many different warnings are remembered; then all are forgotten.
const MOST: usize = 1_000;

/// Drops warnings that were told within the last minute, word for word. One that tells of a change of state is kept, since the last
/// one holds; only if many elections of a process tell the same at once, it is told once.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    told: Mutex<BTreeMap<String, Instant>>,
    last_change: Mutex<Option<(String, Instant)>>,
}

impl Throttle {
    fn admits(&self, line: String, now: Instant) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.get(&line).is_some_and(|last| now.since(*last) < SPAN) {
            return false;
        }
        if told.len() >= MOST {
            told.clear();
        }
        told.insert(line, now);
        true
    }

    fn admits_change(&self, line: String, now: Instant) -> bool {
        let mut last = self.last_change.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_some_and(|(last, at)| *last == line && now.since(*at) < AT_ONCE) {
            return false;
        }
        *last = Some((line, now));
        true
    }
}

impl<S: Subscriber> Filter<S> for Throttle {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() != Level::WARN {
            return true;
        }
        let mut line = Line(metadata.target().to_owned());
        event.record(&mut line);
        match metadata.name() {
            primacy::TRANSITION => self.admits_change(line.0, clock::now()),
            _ => self.admits(line.0, clock::now()),
        }
    }
}

/// The words of an event.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string does not fail.
        let _ = write!(self.0, " {field}={value:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_told_again_after_a_minute_and_others_are_told_at_once() {
        let throttle = Throttle::default();
        let start = Instant::ZERO + Duration::from_secs(5);
        assert!(throttle.admits("a".to_owned(), start));
        assert!(throttle.admits("b".to_owned(), start));
        assert!(!throttle.admits("a".to_owned(), start + SPAN / 2));
        assert!(throttle.admits("a".to_owned(), start + SPAN));
        assert!(!throttle.admits("a".to_owned(), start + SPAN + SPAN / 2), "told again, and counted from then");
    }

    #[test]
    fn a_change_that_many_tell_at_once_is_told_once_and_each_other_one_is_told() {
        let (throttle, now) = (Throttle::default(), Instant::ZERO + Duration::from_secs(5));
        let told =
            ["gone", "gone", "back", "gone", "back", "back"].map(|line| throttle.admits_change(line.to_owned(), now));
        assert_eq!(told, [true, false, true, true, true, false]);
        assert!(throttle.admits_change("back".to_owned(), now + AT_ONCE));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let throttle = Throttle::default();
        for n in 0..3 * MOST {
            assert!(throttle.admits(n.to_string(), Instant::ZERO + Duration::from_secs(1)));
        }
        assert!(throttle.told.lock().expect("nobody panicked").len() <= MOST);
    }
}
