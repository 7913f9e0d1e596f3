//! Planted bugs of the log: each drops one of its rules, and each is found by the simulator.

use super::recovery::Mending;

/// A rule that is dropped.
#[cfg_attr(not(feature = "flaws"), expect(unreachable_pub, reason = "nobody outside can set one"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// What was appended is answered when it is written, and not flushed.
    AnswersBeforeFlush,
    /// A torn tail is left where it is when the log is opened.
    KeepsTornTail,
    /// What was read on opening is not written once more.
    TrustsMemory,
    /// That a torn tail is being overwritten is not noted.
    ForgetsCut,
}

/// Which bug is planted, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Planted {
    #[cfg(feature = "flaws")]
    flaw: Option<Flaw>,
}

impl Planted {
    /// None.
    pub(super) const NONE: Self = Self {
        #[cfg(feature = "flaws")]
        flaw: None,
    };

    /// This one.
    #[cfg(feature = "flaws")]
    pub(super) const fn of(flaw: Flaw) -> Self {
        Self { flaw: Some(flaw) }
    }

    /// Whether it is this one.
    pub(super) fn is(self, flaw: Flaw) -> bool {
        #[cfg(feature = "flaws")]
        return self.flaw == Some(flaw);
        #[cfg(not(feature = "flaws"))]
        {
            let _ = flaw;
            false
        }
    }

    /// What is done of what has to be done on opening to a segment that could be read up to there.
    pub(super) fn mending(self, mut mending: Mending, end: u32) -> Mending {
        let sound = (end - mending.start) as usize;
        if self.is(Flaw::KeepsTornTail) {
            mending.bytes.truncate(sound);
        }
        if self.is(Flaw::TrustsMemory) {
            mending.bytes.drain(..sound);
            mending.start = end;
        }
        mending.is_cut &= !self.is(Flaw::ForgetsCut);
        mending
    }
}
