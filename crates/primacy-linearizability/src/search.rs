//! The search for an order.

use std::collections::HashSet;

use crate::{Model, OperationOf, Verdict};

/// Which operations have happened, and what the data is then. Of those that were answered, all before `low` have happened, and those
/// of `beyond`; of the others, those of `unknown`. So its size is that of the concurrency, not that of the history.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Configuration<S> {
    low: usize,
    beyond: Vec<usize>,
    unknown: Vec<usize>,
    state: S,
}

impl<S: Clone> Configuration<S> {
    fn with_answered(&self, index: usize, state: S) -> Self {
        let Self { mut low, mut beyond, unknown, .. } = self.clone();
        let at = beyond.partition_point(|&other| other < index);
        beyond.insert(at, index);
        let run = beyond.iter().zip(low..).take_while(|&(&done, next)| done == next).count();
        beyond.drain(..run);
        low += run;
        Self { low, beyond, unknown, state }
    }

    fn with_unknown(&self, index: usize, state: S) -> Self {
        let mut unknown = self.unknown.clone();
        let at = unknown.partition_point(|&other| other < index);
        unknown.insert(at, index);
        Self { low: self.low, beyond: self.beyond.clone(), unknown, state }
    }
}

/// The operations of a history by the time of their call.
struct Sorted<'a, M: Model> {
    model: &'a M,
    answered: Vec<(&'a OperationOf<M>, u64)>,
    unknown: Vec<&'a OperationOf<M>>,
}

impl<'a, M: Model> Sorted<'a, M> {
    fn new(model: &'a M, history: &'a [OperationOf<M>]) -> Self {
        let mut answered = Vec::new();
        let mut unknown = Vec::new();
        for operation in history {
            match operation.returned() {
                Some(at) => answered.push((operation, at)),
                // Whether it happened or not makes no difference to anybody.
                None if model.is_read(operation) => {}
                None => unknown.push(operation),
            }
        }
        answered.sort_by_key(|(operation, returned)| (operation.called, *returned));
        unknown.sort_by_key(|operation| operation.called);
        Self { model, answered, unknown }
    }

    /// Adds the configurations that may follow: after one more operation that no other has to precede.
    fn follow(&self, from: &Configuration<M::State>, out: &mut Vec<Configuration<M::State>>) {
        let mut states = Vec::new();
        let mut must_by = u64::MAX;
        let mut beyond = from.beyond.iter().peekable();
        for (index, (operation, returned)) in self.answered.iter().enumerate().skip(from.low) {
            if operation.called > must_by {
                break;
            }
            if beyond.next_if(|&&done| done == index).is_some() {
                continue;
            }
            must_by = must_by.min(*returned);
            states.clear();
            self.model.step(&from.state, operation, &mut states);
            // A read that fits may come first: whatever else comes, it changes nothing.
            if self.model.is_read(operation) && states.contains(&from.state) {
                out.clear();
                out.push(from.with_answered(index, from.state.clone()));
                return;
            }
            out.extend(states.drain(..).map(|state| from.with_answered(index, state)));
        }
        // Those that may never have happened come last.
        for (index, operation) in self.unknown.iter().enumerate() {
            if operation.called > must_by {
                break;
            }
            if from.unknown.binary_search(&index).is_ok() {
                continue;
            }
            states.clear();
            self.model.step(&from.state, operation, &mut states);
            let changes = states.drain(..).filter(|state| *state != from.state);
            out.extend(changes.map(|state| from.with_unknown(index, state)));
        }
    }
}

/// Whether there is an order.
pub(crate) fn search<M: Model>(model: &M, history: &[OperationOf<M>], budget: usize) -> Verdict<()> {
    let sorted = Sorted::new(model, history);
    let first = Configuration { low: 0, beyond: Vec::new(), unknown: Vec::new(), state: model.initial() };
    let mut seen = HashSet::from([first.clone()]);
    let mut open = vec![first];
    let mut next = Vec::new();
    while let Some(configuration) = open.pop() {
        if configuration.low == sorted.answered.len() {
            return Verdict::Linearizable;
        }
        sorted.follow(&configuration, &mut next);
        // The one that was called first is visited first.
        for configuration in next.drain(..).rev() {
            if !seen.contains(&configuration) {
                if seen.len() >= budget {
                    return Verdict::Unknown;
                }
                seen.insert(configuration.clone());
                open.push(configuration);
            }
        }
    }
    Verdict::Violation(())
}
