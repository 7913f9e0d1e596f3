//! Availability: clients of nodes that nothing befalls see no error and no unknown outcome; and how long nobody was answered.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Moment;

/// How an operation of a client went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    /// It was answered that it was not done.
    Refused,
    /// It was answered that it may have been done.
    Unknown,
    /// The connection has ended, or nothing came in time.
    Lost,
    /// No connection could be opened.
    NoConnection,
}

impl Trouble {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unknown => "unknown",
            Self::Lost => "lost",
            Self::NoConnection => "no connection",
        }
    }
}

/// What clients saw.
#[derive(Debug)]
pub(super) struct Availability {
    seen: Mutex<Seen>,
}

/// Counts of what clients saw.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Operations that were answered.
    pub(super) answered: u64,
    /// Clients' trouble with nodes that were struck.
    pub(super) excused: BTreeMap<Trouble, u64>,
    /// Their trouble with others.
    pub(super) unexcused: BTreeMap<Trouble, u64>,
}

#[derive(Debug)]
struct Seen {
    counts: Counts,
    /// For each node, from when to when something was wrong with it.
    struck: Vec<Vec<(Moment, Option<Moment>)>>,
    /// When a write was answered last at each node.
    latest: Vec<Moment>,
    watch: Option<Watch>,
    /// What has to be told, the eldest first.
    broken: Vec<String>,
}

/// Watches how long no write to some groups is answered.
#[derive(Debug)]
struct Watch {
    /// Whose clients do not count.
    struck: usize,
    /// When the last one was answered, for each group that counts.
    last: BTreeMap<u16, Moment>,
    longest: Duration,
}

impl Availability {
    pub(super) fn new(nodes: usize) -> Self {
        let seen = Seen {
            counts: Counts::default(),
            struck: vec![Vec::new(); nodes],
            latest: vec![Moment::default(); nodes],
            watch: None,
            broken: Vec::new(),
        };
        Self { seen: Mutex::new(seen) }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on clients of this node may have trouble.
    pub(super) fn strike(&self, node: usize) {
        self.lock().struck[node].push((Moment::now(), None));
    }

    /// Operations that begin from now on at this node go well.
    pub(super) fn heal(&self, node: usize) {
        let now = Moment::now();
        let mut seen = self.lock();
        let open = seen.struck[node].iter_mut().filter(|(_, until)| until.is_none());
        open.for_each(|(_, until)| *until = Some(now));
    }

    /// An operation was answered. `write`: the group of what has changed.
    pub(super) fn answered(&self, node: usize, write: Option<u16>, at: Moment) {
        let mut seen = self.lock();
        seen.counts.answered += 1;
        let Some(group) = write else { return };
        seen.latest[node] = seen.latest[node].max(at);
        let watch = seen.watch.as_mut().filter(|watch| watch.struck != node);
        if let Some(watch) = watch
            && let Some(last) = watch.last.get_mut(&group)
        {
            watch.longest = watch.longest.max(at.since(*last));
            *last = at.max(*last);
        }
    }

    /// An operation went wrong that had begun at `from`.
    pub(super) fn trouble(&self, node: usize, from: Moment, trouble: Trouble, what: &str) {
        let to = Moment::now();
        let mut seen = self.lock();
        let is_excused =
            seen.struck[node].iter().rev().any(|(begin, end)| *begin <= to && end.is_none_or(|end| end >= from));
        let counts = &mut seen.counts;
        let count = if is_excused { &mut counts.excused } else { &mut counts.unexcused };
        *count.entry(trouble).or_default() += 1;
        if !is_excused {
            let took = to.since(from).as_secs_f64();
            seen.broken.push(format!("{} after {took:.3} s: {what}", trouble.name()));
        }
    }

    /// What went wrong at nodes that nothing had befallen, since the last call.
    pub(super) fn broken(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().broken)
    }

    pub(super) fn counts(&self) -> Counts {
        self.lock().counts.clone()
    }

    /// Whether a write has been answered at each node since then.
    pub(super) fn all_write_since(&self, since: Moment) -> bool {
        self.lock().latest.iter().all(|latest| *latest > since)
    }

    /// Begins to watch these groups, for clients of all nodes but one.
    pub(super) fn watch(&self, struck: usize, groups: impl Iterator<Item = u16>) {
        let now = Moment::now();
        let last = groups.map(|group| (group, now)).collect();
        self.lock().watch = Some(Watch { struck, last, longest: Duration::ZERO });
    }

    /// Ends that; the longest time in which no write to one of the groups was answered.
    pub(super) fn longest(&self) -> Option<Duration> {
        let now = Moment::now();
        let watch = self.lock().watch.take()?;
        watch.last.values().map(|last| now.since(*last)).max().map(|last| watch.longest.max(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_excused_at_nodes_that_were_struck_meanwhile() {
        let availability = Availability::new(2);
        let before = Moment::now();
        availability.strike(0);
        availability.trouble(0, Moment::now(), Trouble::Lost, "cut off");
        availability.heal(0);
        availability.trouble(0, before, Trouble::Unknown, "it may have been done");
        assert_eq!(availability.broken(), Vec::<String>::new());
        let after = Moment::now() + Duration::from_nanos(1);
        availability.trouble(0, after, Trouble::Lost, "cut off");
        availability.trouble(1, before, Trouble::Refused, "TRYAGAIN");
        assert_eq!(availability.broken().len(), 2);
        let counts = availability.counts();
        assert_eq!((counts.excused.len(), counts.unexcused.len()), (2, 2));
    }

    #[test]
    fn the_longest_time_is_that_of_the_group_that_waits_longest() {
        let availability = Availability::new(2);
        let begin = Moment::now();
        availability.watch(0, [0, 1].into_iter());
        availability.answered(1, Some(0), begin + Duration::from_secs(1));
        availability.answered(1, Some(1), begin + Duration::from_secs(3));
        availability.answered(0, Some(1), begin + Duration::from_secs(9));
        availability.answered(1, Some(2), begin + Duration::from_secs(9));
        availability.answered(1, None, begin + Duration::from_secs(9));
        let longest = availability.longest().expect("it was watched");
        assert!(longest > Duration::from_millis(2_900) && longest <= Duration::from_secs(3), "{longest:?}");
        assert_eq!(availability.longest(), None);
        // At each node a write was answered after nine seconds.
        assert!(availability.all_write_since(begin + Duration::from_secs(8)));
        assert!(!availability.all_write_since(begin + Duration::from_secs(9)));
    }
}
