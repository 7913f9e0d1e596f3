//! How the programs stand that an agent starts itself, for those who are told.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// How one of them stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProgramState {
    /// Its name in the configuration.
    pub(crate) name: String,
    /// The election that it leads.
    pub(crate) election: String,
    pub(crate) state: ProgramPhase,
    /// The process of its runner, if there is one.
    pub(crate) pid: Option<i32>,
    /// How often its runner was started again.
    pub(crate) restarts: u64,
    /// Why it does not run.
    pub(crate) why: Option<String>,
}

/// Whether it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProgramPhase {
    /// Its runner lives: it leads or waits.
    Running,
    /// Its runner is to be started.
    #[default]
    Waiting,
    /// Its runner was asked to end.
    Stopping,
    /// One that this version does not know.
    #[serde(other)]
    Other,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct ProgramStates(Mutex<BTreeMap<String, ProgramState>>);

impl ProgramStates {
    /// All of them, by name.
    pub(crate) fn all(&self) -> Vec<ProgramState> {
        self.lock().values().cloned().collect()
    }

    /// This one stands so from now on.
    pub(crate) fn note(&self, state: ProgramState) {
        self.lock().insert(state.name.clone(), state);
    }

    /// This one is not started any more.
    pub(crate) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ProgramState>> {
        // A thread that panicked has left it whole: each change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
