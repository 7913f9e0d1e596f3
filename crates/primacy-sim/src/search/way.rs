//! Whether there is a way on from a state: what "no leader, for ever" means in a search.

use std::collections::BTreeSet;
use std::hash::Hash;

use stateright::Model;

use super::prints::print_of;

/// Where everything leads that may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// There, by some steps.
    There,
    /// Nowhere else: these are all states that can be reached, and none is there.
    Nowhere {
        /// How many.
        states: usize,
    },
    /// There may be a way beyond this many states.
    Unknown,
}

/// Looks for a way of at least one step from this state to one that `is_there`, breadth first, among at most this many states.
pub fn way<M: Model<State: Hash + Clone>>(
    model: &M,
    from: &M::State,
    most: usize,
    is_there: impl Fn(&M::State) -> bool,
) -> Way {
    let mut seen = BTreeSet::new();
    let mut last = vec![from.clone()];
    while !last.is_empty() {
        let mut next = Vec::new();
        for state in last {
            let mut actions = Vec::new();
            model.actions(&state, &mut actions);
            for after in actions.into_iter().filter_map(|action| model.next_state(&state, action)) {
                if is_there(&after) {
                    return Way::There;
                }
                if seen.insert(print_of(&after)) {
                    next.push(after);
                }
            }
            if seen.len() > most {
                return Way::Unknown;
            }
        }
        last = next;
    }
    Way::Nowhere { states: seen.len() }
}

/// Whether that history of at most this many steps gets there in which of all that can happen always the first comes by this
/// order, and of several in turn: it shows that there is a way, and misses most.
pub fn gets_there<M: Model<State: Clone>>(
    model: &M,
    from: &M::State,
    most: usize,
    is_there: impl Fn(&M::State) -> bool,
    order: impl Fn(&M::State, &M::Action) -> u64,
) -> bool {
    let mut state = from.clone();
    for step in 0..most {
        if is_there(&state) {
            return true;
        }
        let mut actions = Vec::new();
        model.actions(&state, &mut actions);
        let turn = step % actions.len().max(1);
        actions.rotate_left(turn);
        actions.sort_by_key(|action| order(&state, action));
        let Some(after) = actions.into_iter().find_map(|action| model.next_state(&state, action)) else { return false };
        state = after;
    }
    is_there(&state)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts up to 5, and then for ever from 3 on.
    struct Counter;

    impl Model for Counter {
        type State = u8;
        type Action = u8;

        fn init_states(&self) -> Vec<u8> {
            vec![0]
        }

        fn actions(&self, _: &u8, actions: &mut Vec<u8>) {
            actions.push(1);
        }

        fn next_state(&self, before: &u8, by: u8) -> Option<u8> {
            Some(if *before == 5 { 3 } else { before + by })
        }
    }

    #[test]
    fn a_way_is_found_or_is_not_there_or_is_too_long() {
        assert_eq!(way(&Counter, &0, 9, |state| *state == 5), Way::There);
        assert_eq!(way(&Counter, &4, 9, |state| *state == 4), Way::There, "round and back");
        assert_eq!(way(&Counter, &2, 9, |state| *state == 2), Way::Nowhere { states: 3 });
        assert_eq!(way(&Counter, &0, 3, |state| *state == 5), Way::Unknown);
        assert!(gets_there(&Counter, &0, 5, |state| *state == 5, |_, _| 0));
        assert!(!gets_there(&Counter, &0, 4, |state| *state == 5, |_, _| 0));
    }
}
