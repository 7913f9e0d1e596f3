//! A history that is not linearizable, made small enough to be read.

use std::fmt;

use crate::search::search;
use crate::{Model, Operation, OperationOf, Outcome, Verdict};

/// A part of a history that is not linearizable by itself.
pub struct Counterexample<M: Model> {
    /// The operations by the time of their call. The one that was answered last cannot have been answered as it was. All writes are
    /// among them that were called before that, and the reads that are needed, or of which that is too long to find out.
    pub operations: Vec<OperationOf<M>>,
}

/// The shortest beginning of a history that is not linearizable, without reads that are soon found not to be needed for that.
pub(crate) fn smallest<M: Model>(model: &M, history: &[OperationOf<M>], budget: usize) -> Counterexample<M> {
    let fails = |part: &[OperationOf<M>], budget| search(model, part, budget) == Verdict::Violation(());
    let mut returns: Vec<u64> = history.iter().filter_map(Operation::returned).collect();
    returns.sort_unstable();
    returns.dedup();
    // If what was seen until some moment is linearizable, so is what was seen before it.
    let first = returns.partition_point(|&until| !fails(&before::<M>(history, until), budget));
    let mut operations = returns.get(first).map_or_else(|| history.to_vec(), |&until| before::<M>(history, until));
    operations.sort_by_key(|operation| operation.called);
    // A history without some of its reads is linearizable if it is so with them.
    let mut index = operations.len();
    while index > 0 {
        index -= 1;
        if model.is_read(&operations[index]) {
            let read = operations.remove(index);
            if !fails(&operations, budget.min(READ_BUDGET)) {
                operations.insert(index, read);
            }
        }
    }
    Counterexample { operations }
}

/// How many configurations a search may visit that decides whether a read is needed. There is one for each read, and the fewer
/// reads are left, the more orders are possible.
const READ_BUDGET: usize = 5_000;

/// What was known then.
fn before<M: Model>(history: &[OperationOf<M>], until: u64) -> Vec<OperationOf<M>> {
    let known = history.iter().filter(|operation| operation.called <= until).cloned();
    known
        .map(|operation| match operation.outcome {
            Outcome::Answered(at, _) if at > until => Operation { outcome: Outcome::Unknown, ..operation },
            _ => operation,
        })
        .collect()
}

/// How many operations are shown: those at the end, where it fails.
const SHOWN: usize = 40;

/// How wide the time from the first to the last of them is.
const WIDTH: u64 = 48;

/// A line for each operation: when it took place, who asked, for what, and the answer.
impl<M: Model> fmt::Display for Counterexample<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = self.operations.len().saturating_sub(SHOWN);
        if hidden > 0 {
            writeln!(f, "{hidden} operations before these are not shown")?;
        }
        let shown = &self.operations[hidden..];
        let from = shown.iter().map(|operation| operation.called).min().unwrap_or_default();
        let last = shown.iter().filter_map(Operation::returned).max();
        let until = last.unwrap_or(from);
        let column = |at: u64| {
            let scaled = u128::from(at.clamp(from, until) - from) * u128::from(WIDTH - 1);
            usize::try_from(scaled / u128::from((until - from).max(1))).unwrap_or_default()
        };
        for Operation { client, called, request, outcome } in shown {
            let begin = column(*called);
            let (end, mark, answer) = match outcome {
                Outcome::Answered(at, answer) => (column(*at), '|', format!("{answer:?}")),
                Outcome::Unknown => (column(until), '>', "unknown".to_owned()),
            };
            let is_culprit = last.is_some() && outcome_at(outcome) == last;
            let bar = match end.saturating_sub(begin) {
                0 => "|".to_owned(),
                length => format!("|{}{mark}", "-".repeat(length - 1)),
            };
            let line = format!("{:begin$}{bar}", "");
            let remark = if is_culprit { "  <- cannot be" } else { "" };
            writeln!(f, "{line:48} client {client}: {request:?} -> {answer}{remark}")?;
        }
        Ok(())
    }
}

fn outcome_at<A>(outcome: &Outcome<A>) -> Option<u64> {
    match outcome {
        Outcome::Answered(at, _) => Some(*at),
        Outcome::Unknown => None,
    }
}

impl<M: Model> fmt::Debug for Counterexample<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<M: Model> Clone for Counterexample<M> {
    fn clone(&self) -> Self {
        Self { operations: self.operations.clone() }
    }
}
