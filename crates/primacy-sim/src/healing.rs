//! How far the healed phase has come.

use primacy_core::{Label, Token};

/// How far the healed phase has come.
#[derive(Debug, Default)]
pub(crate) struct Healing {
    pub(crate) part: Part,
    /// Who leads, with which token, as far as this phase has established it.
    pub(crate) leader: Option<(usize, Token)>,
    /// Counts the plans that were given up.
    pub(crate) round: u64,
    /// Since when nothing fails.
    pub(crate) since: u64,
    /// How long the present part takes.
    pub(crate) span: u64,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) enum Part {
    /// Faults still strike.
    #[default]
    Faults,
    /// A leader must come by then, if it was not there a lease ago.
    Settling {
        by: u64,
        seen: Option<(usize, Token)>,
        next: Next,
    },
    /// The leader must stay, and rounds come down by then.
    Descending {
        from: u64,
        by: u64,
    },
    /// The leader must stay.
    Stable {
        next: Next,
    },
    /// The leader must stay, and is lost as soon as it has renewed.
    Fated,
    /// The leader was lost without a word; another must come.
    Silent {
        lost_at: u64,
        bound: u64,
        /// It still says something, and hears nothing.
        deaf: bool,
    },
    /// The leader was asked to go; another must come.
    HandOver {
        from: Token,
        to: Option<Label>,
    },
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Next {
    Silence,
    Doom,
    HandOver,
    End,
}

impl Healing {
    pub(crate) fn has_begun(&self) -> bool {
        self.part != Part::Faults
    }

    /// For how long nothing has failed.
    pub(crate) fn calm_until(&self, now: u64) -> u64 {
        if self.has_begun() { now - self.since } else { 0 }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.part == Part::Over
    }
}
