//! Planted bugs of holds: each drops one of their rules, and each is found.

/// A rule that is dropped.
#[cfg_attr(not(feature = "flaws"), expect(unreachable_pub, reason = "nobody outside can set one"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// A connection that has ended counts as proof that the work has stopped.
    ReleasesWhenDisconnected,
    /// A leadership that has ended early is given back at once, although the program may believe in it.
    ReleasesWhenEnded,
    /// An extension that was to be told is told after its leadership was given back.
    KeepsNews,
    /// The deadline of the first frame counts, not the latest that was told.
    ForgetsTold,
    /// A program's word that its work has stopped counts for a leadership that came later.
    StopsWhateverToken,
}
