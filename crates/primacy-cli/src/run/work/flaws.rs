//! Bugs that the tests plant in the machine, each of which the search must find.

#[cfg(not(test))]
use std::marker::PhantomData;

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Flaw {
    /// `--on-lost` is started while `--on-elected` still runs.
    RunsBoth,
    /// The work counts as stopped as soon as `--on-lost` was started.
    StoppedWhileLostRuns,
    /// A failure of `--on-lost` counts as its success.
    StoppedByFailure,
    /// An `--on-elected` that succeeds after its leadership begins to work.
    WorksOn,
    /// `--on-lost` is never killed.
    WaitsForEver,
    /// `--on-lost` waits until what is left of `--on-elected` is gone.
    WaitsForTheDying,
    /// A success of `--on-lost` beside what is left of `--on-elected` counts.
    CountsBeside,
    /// A running `--on-lost` is killed when the lease is over before its time.
    KillsWithTheLease,
    /// The process that takes over believes that the work has stopped.
    TrustsTheDead,
}

/// The planted bug, of which there is none outside of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Planted {
    #[cfg(test)]
    pub(super) flaw: Option<Flaw>,
    #[cfg(not(test))]
    none: PhantomData<Flaw>,
}

impl Planted {
    /// Whether it is this one.
    #[cfg(test)]
    pub(super) fn is(self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Whether it is this one.
    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "in tests it looks at itself")]
    pub(super) const fn is(self, _: Flaw) -> bool {
        false
    }
}
