//! Which bug is planted in a state machine, if any.

#[cfg(not(feature = "flaws"))]
use core::marker::PhantomData;

/// The planted bug, of those that `F` lists. Without the feature `flaws` there is none, and it takes no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Planted<F> {
    #[cfg(feature = "flaws")]
    pub(crate) flaw: Option<F>,
    #[cfg(not(feature = "flaws"))]
    none: PhantomData<F>,
}

impl<F> Planted<F> {
    /// None.
    pub const NONE: Self = Self {
        #[cfg(feature = "flaws")]
        flaw: None,
        #[cfg(not(feature = "flaws"))]
        none: PhantomData,
    };
}

#[cfg(feature = "flaws")]
impl<F: Copy> Planted<F> {
    /// This one, if any.
    pub const fn of(flaw: Option<F>) -> Self {
        Self { flaw }
    }
}

impl<F> Default for Planted<F> {
    fn default() -> Self {
        Self::NONE
    }
}

impl<F: PartialEq> Planted<F> {
    /// Whether it is this one.
    #[cfg(feature = "flaws")]
    pub fn is(&self, flaw: F) -> bool {
        self.flaw == Some(flaw)
    }

    /// Whether it is this one.
    #[cfg(not(feature = "flaws"))]
    pub fn is(&self, _: F) -> bool {
        false
    }
}
