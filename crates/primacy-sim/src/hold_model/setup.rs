//! What is searched: for how long, and what may happen.

use primacy_core::hold::Flaw;

/// What a program has declared as proof that nothing works for it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Proof {
    /// Nothing.
    None,
    /// That it is a single process, and dead.
    Process,
}

/// How often the adversary may do what, over a whole history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Times that the program is stopped, for as long as it likes.
    pub pauses: u8,
    /// Times that the agent is stopped.
    pub agent_pauses: u8,
    /// Whether the program may be killed, and may leave a process behind if it has not declared that there is none.
    pub kills: u8,
    /// Whether the agent may be killed.
    pub agent_kills: u8,
    /// Whether the program may close its connection, and work on.
    pub closes: u8,
    /// Times that a leader is told to stop.
    pub drains: u8,
    /// Times that a leadership ends before its lease.
    pub ends: u8,
    /// Times that the place of a waiting program changes.
    pub moves: u8,
}

/// One search.
#[derive(Clone, Debug)]
pub struct Setup {
    /// For the table.
    pub name: &'static str,
    /// How many ticks.
    pub horizon: u8,
    /// What the program declares.
    pub proof: Proof,
    /// What may happen.
    pub budget: Budget,
    /// A planted bug.
    pub flaw: Option<Flaw>,
}

impl Setup {
    pub(super) fn new(name: &'static str, horizon: u8, proof: Proof, budget: Budget) -> Self {
        Self { name, horizon, proof, budget, flaw: None }
    }
}
