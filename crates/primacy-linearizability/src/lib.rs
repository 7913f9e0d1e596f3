//! Checks histories of a store for linearizability (Herlihy and Wing, 1990): whether each operation can have happened at one moment
//! between its call and its return, one at a time, so that each answer is what a single copy of the data would have given.
//!
//! [`check`] searches for such an order (Wing and Gong, 1993, with the cache of configurations by Lowe, 2017). Linearizability is
//! compositional, so that each key is checked by itself ([`check_keys`]). An operation whose outcome is unknown may have happened at
//! any moment after its call, or never. [`totals`] are cheap checks beside it, which scale to histories of any length.

mod counterexample;
pub mod key;
mod search;
pub mod totals;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;

pub use counterexample::Counterexample;

/// What one copy of the data does.
pub trait Model {
    /// The data.
    type State: Clone + Eq + Hash + Debug;
    /// What is asked for.
    type Request: Clone + Debug;
    /// What is answered.
    type Answer: Clone + Debug;

    /// The data before the first operation.
    fn initial(&self) -> Self::State;

    /// Adds each state in which the data may be after this operation, if it was in this one and the operation may then be answered as
    /// it was. None are added if it may not. Where the outcome of the operation is unknown, any answer may have been given.
    fn step(
        &self,
        state: &Self::State,
        operation: &Operation<Self::Request, Self::Answer>,
        next: &mut Vec<Self::State>,
    );

    /// Whether the operation has changed nothing, whatever the state was: a read, or a write that was answered not to be done.
    fn is_read(&self, operation: &Operation<Self::Request, Self::Answer>) -> bool;
}

/// What a client asked for, and when. Times are of one clock, in any unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<Q, A> {
    /// Who asked. For people.
    pub client: u64,
    /// Before it was sent.
    pub called: u64,
    /// What was asked for.
    pub request: Q,
    /// What came of it.
    pub outcome: Outcome<A>,
}

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<A> {
    /// It was answered, and this had come by this time.
    Answered(u64, A),
    /// Nobody knows whether it was done, or will be.
    Unknown,
}

impl<Q, A> Operation<Q, A> {
    /// When it was answered, if it was.
    pub const fn returned(&self) -> Option<u64> {
        match self.outcome {
            Outcome::Answered(at, _) => Some(at),
            Outcome::Unknown => None,
        }
    }

    /// The answer, if there was one.
    pub const fn answer(&self) -> Option<&A> {
        match &self.outcome {
            Outcome::Answered(_, answer) => Some(answer),
            Outcome::Unknown => None,
        }
    }
}

/// What a check has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict<C> {
    /// There is an order in which all answers are right.
    Linearizable,
    /// There is none.
    Violation(C),
    /// The search was given up after as many configurations as it may visit.
    Unknown,
}

impl<C> Verdict<C> {
    /// The same with another counterexample.
    pub fn map<D>(self, change: impl FnOnce(C) -> D) -> Verdict<D> {
        match self {
            Self::Linearizable => Verdict::Linearizable,
            Self::Violation(counterexample) => Verdict::Violation(change(counterexample)),
            Self::Unknown => Verdict::Unknown,
        }
    }
}

/// An operation of a model.
pub type OperationOf<M> = Operation<<M as Model>::Request, <M as Model>::Answer>;

/// A history of a model's operations, in any order.
pub type History<M> = Vec<OperationOf<M>>;

/// Whether a history is linearizable. The search visits this many configurations at most, and again as many to make a counterexample
/// small.
pub fn check<M: Model>(model: &M, history: &History<M>, budget: usize) -> Verdict<Counterexample<M>> {
    match search::search(model, history, budget) {
        Verdict::Linearizable => Verdict::Linearizable,
        Verdict::Unknown => Verdict::Unknown,
        Verdict::Violation(()) => Verdict::Violation(counterexample::smallest(model, history, budget)),
    }
}

/// Whether the histories of all keys are linearizable. Gives the first that is not, or else the first for which the budget did not
/// suffice.
pub fn check_keys<K: Clone + Ord, M: Model>(
    model: &M,
    histories: &BTreeMap<K, History<M>>,
    budget: usize,
) -> Verdict<(K, Counterexample<M>)> {
    let mut all = Verdict::Linearizable;
    for (key, history) in histories {
        match check(model, history, budget) {
            Verdict::Linearizable => {}
            Verdict::Unknown => all = Verdict::Unknown,
            Verdict::Violation(counterexample) => return Verdict::Violation((key.clone(), counterexample)),
        }
    }
    all
}
