//! Which bug is planted in a state machine, if any.

#[cfg(not(feature = "flaws"))]
use core::marker::PhantomData;

/// The planted bug, of those that `F` lists. Without the feature `flaws` there is none, and it takes no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Planted<F> {
    #[cfg(feature = "flaws")]
    pub(crate) flaw: Option<F>,
    #[cfg(not(feature = "flaws"))]
    none: PhantomData<F>,
}

impl<F> Default for Planted<F> {
    fn default() -> Self {
        Self {
            #[cfg(feature = "flaws")]
            flaw: None,
            #[cfg(not(feature = "flaws"))]
            none: PhantomData,
        }
    }
}

impl<F: PartialEq> Planted<F> {
    /// Whether it is this one.
    #[cfg(feature = "flaws")]
    pub(crate) fn is(&self, flaw: F) -> bool {
        self.flaw == Some(flaw)
    }

    /// Whether it is this one.
    #[cfg(not(feature = "flaws"))]
    #[expect(clippy::unused_self, reason = "with the feature it looks at itself")]
    pub(crate) fn is(&self, _: F) -> bool {
        false
    }
}
