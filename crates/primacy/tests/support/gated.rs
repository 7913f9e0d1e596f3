//! A memory store whose connections a test sees being opened, and holds up. Tests of the library's parts have it, too.

use std::fmt::Debug;
use std::future::ready;

use crate::ElectionName;
use crate::store::memory::MemoryStore;
use crate::store::{Admin, BoxFuture, Hints, Holder, Registry, Session, Store, StoreError};

/// What happens before a connection is there.
pub(crate) trait Gate: Debug + Send + Sync + 'static {
    /// One of this candidate.
    fn session<'a>(&'a self, _candidate: &'a Holder) -> BoxFuture<'a, ()> {
        Box::pin(ready(()))
    }

    /// One for rounds.
    fn registry(&self) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }
}

#[derive(Debug, Default)]
pub(crate) struct GatedStore<G> {
    inner: MemoryStore,
    pub(crate) gate: G,
}

impl<G> GatedStore<G> {
    pub(crate) fn new(gate: G) -> Self {
        Self { inner: MemoryStore::default(), gate }
    }
}

impl<G: Gate> Store for GatedStore<G> {
    fn location(&self) -> String {
        self.inner.location()
    }

    fn session<'a>(
        &'a self,
        election: &'a ElectionName,
        candidate: &'a Holder,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, StoreError>> {
        Box::pin(async move {
            self.gate.session(candidate).await;
            self.inner.session(election, candidate).await
        })
    }

    fn registry<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Registry>, StoreError>> {
        Box::pin(async move {
            self.gate.registry().await;
            self.inner.registry(election).await
        })
    }

    fn admin(&self) -> BoxFuture<'_, Result<Box<dyn Admin>, StoreError>> {
        self.inner.admin()
    }

    fn hints<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Hints>, StoreError>> {
        self.inner.hints(election)
    }
}
