//! Visits the states of a model: all of them, or breadth first until something is broken.

use std::collections::BTreeMap;
use std::time::Duration;

use stateright::{Checker, Expectation, HasDiscoveries};

use super::merged;
use super::outcome::{Outcome, Searched, Verdict};

/// Visits every state, on this many threads.
pub fn search(model: impl Searched, threads: usize) -> Outcome {
    if model.is_merged() {
        return merged::search(model, threads);
    }
    outcome(&model.checker().threads(threads).spawn_dfs().join())
}

/// Looks for the shortest history, breadth first, that breaks this property, for this long at most. A hunt among merged states
/// ends by itself.
pub fn hunt(model: impl Searched, breaks: &'static str, patience: Duration) -> Outcome {
    let mut outcome = if model.is_merged() {
        merged::hunt(model, breaks)
    } else {
        let wanted = HasDiscoveries::AllOf([breaks].into());
        outcome(&model.checker().finish_when(wanted).timeout(patience).spawn_bfs().join())
    };
    outcome.verdicts.retain(|name, _| *name == breaks);
    outcome
}

fn outcome<M: Searched>(checker: &impl Checker<M>) -> Outcome {
    let mut found: BTreeMap<_, _> = checker.discoveries().into_iter().collect();
    let verdicts = checker.model().properties().into_iter().map(|property| {
        let verdict = match (property.expectation, found.remove(property.name)) {
            (Expectation::Sometimes, Some(path)) => Verdict::Occurs(path.into_actions().len()),
            (Expectation::Sometimes, None) => Verdict::Missing,
            (_, None) => Verdict::Holds,
            (_, Some(path)) => {
                let end = M::describe(path.last_state());
                let mut history: Vec<_> = path.into_actions().iter().map(|step| format!("{step:?}")).collect();
                if let Some(last) = history.last_mut() {
                    last.push_str(&end);
                }
                Verdict::Broken { history }
            }
        };
        (property.name, verdict)
    });
    Outcome {
        name: checker.model().name(),
        states: checker.unique_state_count(),
        generated: checker.state_count(),
        depth: checker.max_depth(),
        verdicts: verdicts.collect(),
    }
}
