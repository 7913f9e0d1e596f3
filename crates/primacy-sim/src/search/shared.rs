//! A part of a state that is copied when it changes, and shared with the state before until then.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shared<T>(Arc<T>);

impl<T: Clone> Shared<T> {
    pub(crate) fn new(part: T) -> Self {
        Self(Arc::new(part))
    }

    pub(crate) fn take(self) -> T {
        Arc::unwrap_or_clone(self.0)
    }

    /// If it has changed since the state before, which is still there.
    pub(crate) fn changed(&mut self) -> Option<&mut T> {
        Arc::get_mut(&mut self.0)
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}
