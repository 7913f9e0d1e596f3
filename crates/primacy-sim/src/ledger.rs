//! What the checkers remember of a world.

use std::collections::BTreeMap;
use std::time::Duration;

use primacy_core::registers::ProcessId;
use primacy_core::{CandidateId, Token};

/// What the checkers remember of the whole world.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The highest token with which anybody has led.
    pub(crate) led: Token,
    /// Who has begun to lead last.
    pub(crate) last_leader: Option<CandidateId>,
    /// The highest token that reached the unfenced resource.
    pub(crate) witness: Token,
    /// The last token that the fence admitted, and whose.
    pub(crate) admitted: (Token, u64),
    /// Leaderships up to this token lost their row by somebody's hand.
    pub(crate) row_lost: Token,
}

impl Ledger {
    /// The highest token with which anybody has led.
    pub(crate) fn led(&self) -> Token {
        self.led
    }
}

/// What the checkers remember of processes and rounds.
#[derive(Debug, Default)]
pub(crate) struct ProcessLedger {
    /// The largest number given.
    pub(crate) last: u64,
    /// When processes died, in real time.
    pub(crate) died: BTreeMap<ProcessId, u64>,
    /// Since when rounds last how long.
    pub(crate) rounds: Vec<(u64, Duration)>,
    /// How often this leader made rounds shorter, and when somebody last changed them.
    pub(crate) lowered: (Token, u32),
    pub(crate) changed_at: u64,
    /// When somebody last began to lead: whom the head does not show, a leader watches from then on.
    pub(crate) led_at: u64,
    /// The highest token with which anybody has led.
    pub(crate) led: Token,
}
