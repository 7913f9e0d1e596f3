//! What Algorithm 1 leaves to its implementer, as switches.

use std::fmt;

/// Makes an enum whose variants have a word on the command line and a meaning.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal: $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $(#[doc = $text] $variant,)+ }

        impl $name {
            /// Every variant's word and meaning.
            pub(super) const WORDS: &[(&str, &str, Self)] = &[$(($word, $text, Self::$variant),)+];

            /// What it is called on the command line.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            fn named(word: &str) -> Option<Self> {
                Self::WORDS.iter().find(|(is, ..)| *is == word).map(|(.., choice)| *choice)
            }
        }
    };
}

choice! {
    /// When a counter that stands still means death (lines 14 and 35).
    History {
        PerRead = "per-read": "after Max_mhb further reads, however soon they follow each other",
        Timed = "timed": "after Max_mhb further reads and as many round times on the reader's own clock (R3)",
    }
}

choice! {
    /// What an aborted round leaves in the local variables (section 4.5).
    Aborted {
        Kept = "kept": "everything that the round had assigned",
        RolledBack = "rolled-back": "what was there before the round, once the abort is known",
        Swapped = "swapped": "what was there before the round; nobody saw its variables before its commit",
    }
}

choice! {
    /// When the leader's lease begins (line 20).
    LeaseFrom {
        RoundStart = "round-start": "when the round begins",
        BeforeCommit = "before-commit": "before the commit is asked for",
        AfterCommit = "after-commit": "when the commit is answered",
    }
}

choice! {
    /// The round after one that asked for the exclusive lock (line 22).
    Forced {
        AtOnce = "forced-at-once": "follows at once",
        Sleeps = "forced-sleeps": "follows after a round time",
    }
}

choice! {
    /// The round after an aborted one, of which the paper says nothing.
    AfterAbort {
        AtOnce = "abort-at-once": "follows at once",
        Sleeps = "abort-sleeps": "follows after a round time",
    }
}

choice! {
    /// The round after one that took longer than a round time.
    AfterSlow {
        AtOnce = "slow-at-once": "follows at once (HopsFS)",
        Sleeps = "slow-sleeps": "follows after a round time (line 22)",
    }
}

choice! {
    /// Which clock a process asks (`currentTime`), and how wrong it is.
    Clocks {
        WithinMu = "clocks-within": "boot clocks whose rates differ by no more than mu allows for",
        BeyondMu = "clocks-beyond": "boot clocks whose rates differ by up to four times that",
        Wall = "clocks-wall": "wall clocks, which are stepped",
    }
}

choice! {
    /// What operators do.
    Orders {
        Absent = "no-orders": "nothing",
        ForceLead = "force-lead": "delete the rows of all smaller ids, without waiting for any lease (HopsFS)",
    }
}

/// One way to implement Algorithm 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choices {
    /// When a counter that stands still means death.
    pub history: History,
    /// What an aborted round leaves behind.
    pub aborted: Aborted,
    /// When the leader's lease begins.
    pub lease_from: LeaseFrom,
    /// The round after one that asked for the exclusive lock.
    pub forced: Forced,
    /// The round after an aborted one.
    pub after_abort: AfterAbort,
    /// The round after a slow one.
    pub after_slow: AfterSlow,
    /// Which clocks processes have.
    pub clocks: Clocks,
    /// What operators do.
    pub orders: Orders,
}

impl Choices {
    /// The paper to the letter: variables are assigned in place and rolled back when an abort is known.
    pub const PUBLISHED: Self = Self {
        history: History::PerRead,
        aborted: Aborted::RolledBack,
        lease_from: LeaseFrom::BeforeCommit,
        forced: Forced::AtOnce,
        after_abort: AfterAbort::AtOnce,
        after_slow: AfterSlow::Sleeps,
        clocks: Clocks::WithinMu,
        orders: Orders::Absent,
    };

    /// All three repairs: time instead of reads, nothing believed before its commit, the lease from the round's start.
    pub const REPAIRED: Self = Self {
        history: History::Timed,
        aborted: Aborted::Swapped,
        lease_from: LeaseFrom::RoundStart,
        after_slow: AfterSlow::AtOnce,
        ..Self::PUBLISHED
    };

    /// Makes the choice with this name, if there is one.
    pub(super) fn take(&mut self, word: &str) -> Option<()> {
        if let Some(choice) = History::named(word) {
            self.history = choice;
        } else if let Some(choice) = Aborted::named(word) {
            self.aborted = choice;
        } else if let Some(choice) = LeaseFrom::named(word) {
            self.lease_from = choice;
        } else if let Some(choice) = Forced::named(word) {
            self.forced = choice;
        } else if let Some(choice) = AfterAbort::named(word) {
            self.after_abort = choice;
        } else if let Some(choice) = AfterSlow::named(word) {
            self.after_slow = choice;
        } else if let Some(choice) = Clocks::named(word) {
            self.clocks = choice;
        } else {
            self.orders = Orders::named(word)?;
        }
        Some(())
    }
}

impl fmt::Display for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { history, aborted, lease_from, forced, after_abort, after_slow, clocks, orders } = self;
        let words = [
            history.word(),
            aborted.word(),
            lease_from.word(),
            forced.word(),
            after_abort.word(),
            after_slow.word(),
            clocks.word(),
            orders.word(),
        ];
        f.write_str(&words.join(","))
    }
}
