//! The checkers: what was promised, asked of every moment that could break it.

use crate::tally::kinds;

kinds! {
    /// A promise that is checked (`docs/design/simulation.md`).
    Oracle {
        Integrity = "Integrity",
        Order = "Order",
        Fencing = "Fencing",
        Binding = "Binding",
        Room = "Room",
        OneWork = "OneWork",
        Work = "Work",
        Notice = "Notice",
        Loss = "Loss",
        Exact = "Exact",
        Calls = "Calls",
        Answers = "Answers",
        Recent = "Recent",
        Memory = "Memory",
        Voters = "Voters",
        Numbers = "Numbers",
        Silence = "Silence",
        Spared = "Spared",
        Members = "Members",
        Rounds = "Rounds",
        Orders = "Orders",
        Termination = "Termination",
        Stability = "Stability",
        Obedience = "Obedience",
        Calm = "Calm",
        Repeat = "Repeat",
        Panic = "Panic",
    }
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub oracle: Oracle,
    /// When, in real time.
    pub at: u64,
    /// What happened.
    pub text: String,
}
