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
pub(super) type Planted = primacy_core::planted::Planted<Flaw>;

/// What is done of what has to be done on opening to a segment that could be read up to there.
pub(super) fn mending(planted: Planted, mut mending: Mending, end: u32) -> Mending {
    let sound = (end - mending.start) as usize;
    if planted.is(Flaw::KeepsTornTail) {
        mending.bytes.truncate(sound);
    }
    if planted.is(Flaw::TrustsMemory) {
        mending.bytes.drain(..sound);
        mending.start = end;
    }
    mending.is_cut &= !planted.is(Flaw::ForgetsCut);
    mending
}
