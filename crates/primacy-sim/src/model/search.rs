//! Runs a search to its end and says what it found.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::hash::Hash;
use std::time::Duration;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use super::setup::{Canary, Setup};
use super::world::Lease;
use crate::company::Company;
use crate::quorum::Grant;

/// What became of one property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds in every state.
    Holds,
    /// It occurs, first after so many steps among those found.
    Occurs(usize),
    /// It must occur, and does not.
    Missing,
    /// It is broken by this history, with the state at its end.
    Broken {
        /// What happened, a step a line.
        history: Vec<String>,
    },
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The search.
    pub name: &'static str,
    /// Different states.
    pub states: usize,
    /// States including those that were met again.
    pub generated: usize,
    /// The longest history.
    pub depth: usize,
    /// Every property and what became of it.
    pub verdicts: BTreeMap<&'static str, Verdict>,
}

impl Outcome {
    /// Whether everything that must hold holds and everything that must occur occurs.
    pub fn is_good(&self) -> bool {
        self.verdicts.values().all(|verdict| matches!(verdict, Verdict::Holds | Verdict::Occurs(_)))
    }

    /// The property that is broken by the shortest history, and how many steps that has.
    pub fn counterexample(&self) -> Option<(&'static str, usize)> {
        let broken = self.verdicts.iter().filter_map(|(name, verdict)| match verdict {
            Verdict::Broken { history } => Some((*name, history.len())),
            _ => None,
        });
        broken.min_by_key(|(_, length)| *length)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, verdict) in &self.verdicts {
            match verdict {
                Verdict::Holds => writeln!(f, "    holds    {name}")?,
                Verdict::Occurs(steps) => writeln!(f, "    occurs   {name} ({steps} steps)")?,
                Verdict::Missing => writeln!(f, "    MISSING  {name}")?,
                Verdict::Broken { history } => {
                    writeln!(f, "    BROKEN   {name}, by {} steps:", history.len())?;
                    history.iter().try_for_each(|step| writeln!(f, "             {step}"))?;
                }
            }
        }
        Ok(())
    }
}

/// Something that can be searched.
pub trait Searched:
    Model<
        State: fmt::Debug + Clone + PartialEq + Hash + Send + Sync,
        Action: fmt::Debug + Clone + PartialEq + Send + Sync,
    > + Sized
    + Send
    + Sync
    + 'static
{
    /// For the table.
    fn name(&self) -> &'static str;

    /// The state at the end of a history that breaks something, for people.
    fn describe(state: &Self::State) -> String;
}

impl Searched for Lease {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn describe(state: &Self::State) -> String {
        describe(state)
    }
}

impl Searched for Grant {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn describe(state: &Self::State) -> String {
        format!("\n             {state:?}")
    }
}

impl Searched for Company {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn describe(state: &Self::State) -> String {
        format!("\n             {state:?}")
    }
}

/// Visits every state of the setup, on so many threads.
pub fn check(setup: Setup, threads: usize) -> Outcome {
    search(Lease(setup), threads)
}

/// Visits every state, on so many threads.
pub fn search(model: impl Searched, threads: usize) -> Outcome {
    outcome(&model.checker().threads(threads).spawn_dfs().join())
}

/// Looks for the shortest history, breadth first, that breaks what the canary must break.
pub fn hunt(canary: &Canary, patience: Duration) -> Outcome {
    hunt_in(Lease(canary.setup.clone()), canary.breaks, patience)
}

/// Looks for the shortest history, breadth first, that breaks this property.
pub fn hunt_in(model: impl Searched, breaks: &'static str, patience: Duration) -> Outcome {
    let wanted = HasDiscoveries::AllOf([breaks].into());
    let checker = model.checker().finish_when(wanted).timeout(patience).spawn_bfs().join();
    let mut outcome = outcome(&checker);
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

fn describe(world: &super::World) -> String {
    let mut text = format!("\n             at tick {}: row {:?}", world.tick, world.row.record);
    for node in &world.nodes {
        let now = node.now(world.tick);
        let view = node.candidate.as_ref().map(|candidate| candidate.view());
        // A `String` takes every write.
        let _ = write!(text, "\n             {} at {now}: {:?} {:?} {view:?}", node.index, node.belief, node.work);
    }
    text
}
