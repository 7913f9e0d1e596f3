//! Planted bugs of the log: each drops one of its rules, and each is found by a simulation alone.

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

    /// What is written of what has to be on opening: from where, and how far the log could be read.
    pub(super) fn rewritten(self, (start, mut bytes): (u32, Vec<u8>), end: u32) -> (u32, Vec<u8>) {
        if self.is(Flaw::KeepsTornTail) {
            bytes.truncate((end - start) as usize);
        }
        if self.is(Flaw::TrustsMemory) {
            bytes.drain(..(end - start) as usize);
            return (end, bytes);
        }
        (start, bytes)
    }
}
