//! Which group takes the next snapshot of a node: one is taken at a time.

use std::collections::BTreeSet;

/// The groups that are to take one.
#[derive(Debug, Default)]
pub(super) struct SnapshotQueue {
    /// Of which one is wanted although none is due: before all others.
    asked: BTreeSet<u16>,
    due: BTreeSet<u16>,
    /// The last one that was taken out.
    last: u16,
}

impl SnapshotQueue {
    pub(super) fn ask(&mut self, group: u16) {
        self.asked.insert(group);
    }

    pub(super) fn is_due(&mut self, group: u16) {
        self.due.insert(group);
    }

    /// Takes out the next one that can, and says whether it was asked. They take turns: a group in which much is written has the next one
    /// due when the last one is done.
    pub(super) fn next(&mut self, can: impl Fn(u16) -> bool) -> Option<(u16, bool)> {
        let Self { asked, due, last } = self;
        let behind = |groups: &BTreeSet<u16>| {
            let mut in_turn = groups.range(*last..).skip_while(|group| *group == last).chain(groups);
            in_turn.find(|group| can(**group)).copied()
        };
        let (group, is_asked) = match behind(asked) {
            Some(group) => (group, true),
            None => (behind(due)?, false),
        };
        asked.remove(&group);
        due.remove(&group);
        *last = group;
        Some((group, is_asked))
    }
}

#[cfg(test)]
mod tests {
    use super::SnapshotQueue;

    #[test]
    fn groups_take_turns_and_those_that_were_asked_come_first() {
        let mut queue = SnapshotQueue::default();
        [0, 3, 7].into_iter().for_each(|group| queue.is_due(group));
        let mut order = Vec::new();
        while let Some((group, is_asked)) = queue.next(|_| true) {
            order.push((group, is_asked));
            // It has another one due at once.
            if order.len() < 6 {
                queue.is_due(group);
            }
            if order.len() == 2 {
                queue.ask(5);
            }
        }
        let (due, asked) = (false, true);
        assert_eq!(order[..4], [(3, due), (7, due), (5, asked), (7, due)]);
        assert_eq!(order[4..6], [(0, due), (3, due)]);
    }

    #[test]
    fn one_that_cannot_holds_nobody_up_and_stays() {
        let mut queue = SnapshotQueue::default();
        queue.ask(1);
        queue.is_due(2);
        assert_eq!(queue.next(|group| group != 1), Some((2, false)));
        assert_eq!(queue.next(|group| group != 1), None);
        assert_eq!(queue.next(|_| true), Some((1, true)));
        assert_eq!(queue.next(|_| true), None);
    }
}
