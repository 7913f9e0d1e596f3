//! Runs a search to its end and says what it found.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;

use stateright::Model;

use super::prints::print_of;

/// What became of one property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds in every state.
    Holds,
    /// It occurs, first after this many steps among those found.
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
    fn describe(state: &Self::State) -> String {
        format!("\n             {state:?}")
    }

    /// Whether states with one fingerprint are taken for one.
    fn is_merged(&self) -> bool {
        false
    }

    /// Equal for states of which it makes no difference which one is gone on from: all that can be found from one can be found
    /// from the other.
    fn fingerprint(&self, state: &Self::State) -> u128 {
        print_of(state)
    }
}
