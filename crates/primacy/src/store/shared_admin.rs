//! What the candidates of a fleet ask as observers: who else waits. All ask that at the same moment, and share a connection.

use std::sync::Arc;

use super::{
    Admin, BoxFuture, ForgetOutcome, LeaderSupport, MemberEvent, Members, Order, OrderOutcome, Probe, Snapshot, Store,
    StoreError, Term,
};
use crate::ElectionName;

/// Reads elections over shared connections.
pub(super) trait Snapshots: Send {
    fn snapshot<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>>;
}

/// One connection, over which one asks after the other. It is closed with the last of its handles.
#[cfg(any(feature = "sqlite", feature = "mysql"))]
#[derive(Clone)]
pub(super) struct Turns(Arc<TurnsOfOne>);

#[cfg(any(feature = "sqlite", feature = "mysql"))]
struct TurnsOfOne {
    store: Arc<dyn Store>,
    open: tokio::sync::Mutex<Option<Box<dyn Admin>>>,
}

/// Finds the turns that somebody takes.
#[cfg(any(feature = "sqlite", feature = "mysql"))]
#[derive(Default)]
pub(super) struct WeakTurns(std::sync::Mutex<std::sync::Weak<TurnsOfOne>>);

#[cfg(any(feature = "sqlite", feature = "mysql"))]
impl std::fmt::Debug for WeakTurns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WeakTurns").finish_non_exhaustive()
    }
}

#[cfg(any(feature = "sqlite", feature = "mysql"))]
impl WeakTurns {
    /// An observer that takes turns with others at this store.
    ///
    /// # Errors
    /// When the connection cannot be opened.
    pub(super) async fn admin(&self, store: &Arc<dyn Store>) -> Result<Box<dyn Admin>, StoreError> {
        let turns = {
            let mut turns = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            turns.upgrade().unwrap_or_else(|| {
                let new = Arc::new(TurnsOfOne { store: Arc::clone(store), open: tokio::sync::Mutex::default() });
                *turns = Arc::downgrade(&new);
                new
            })
        };
        let mut open = turns.open.lock().await;
        if open.is_none() {
            *open = Some(store.admin().await?);
        }
        drop(open);
        Ok(Box::new(SharedAdmin::new(Arc::clone(store), Turns(turns))))
    }
}

#[cfg(any(feature = "sqlite", feature = "mysql"))]
impl Snapshots for Turns {
    fn snapshot<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>> {
        Box::pin(async move {
            let mut open = self.0.open.lock().await;
            // Gone with a question that is given up.
            let mut admin = match open.take() {
                Some(admin) => admin,
                None => self.0.store.admin().await?,
            };
            let seen = admin.snapshot(election).await;
            if seen.is_ok() {
                *open = Some(admin);
            }
            seen
        })
    }
}

/// Opens a connection of its own for everything else, when it is asked for it.
pub(super) struct SharedAdmin<S> {
    /// Which gives each a connection of its own.
    store: Arc<dyn Store>,
    own: Option<Box<dyn Admin>>,
    snapshots: S,
}

impl<S: Snapshots> SharedAdmin<S> {
    pub(super) fn new(store: Arc<dyn Store>, snapshots: S) -> Self {
        Self { store, own: None, snapshots }
    }

    async fn own(&mut self) -> Result<&mut Box<dyn Admin>, StoreError> {
        Ok(match &mut self.own {
            Some(own) => own,
            none => none.insert(self.store.admin().await?),
        })
    }
}

impl<S: Snapshots> Admin for SharedAdmin<S> {
    fn snapshot<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>> {
        self.snapshots.snapshot(election)
    }

    fn support<'a>(
        &'a mut self,
        election: &'a ElectionName,
    ) -> BoxFuture<'a, Result<Option<LeaderSupport>, StoreError>> {
        Box::pin(async move { self.own().await?.support(election).await })
    }

    fn elections(&mut self) -> BoxFuture<'_, Result<Vec<Snapshot>, StoreError>> {
        Box::pin(async move { self.own().await?.elections().await })
    }

    fn history<'a>(
        &'a mut self,
        election: &'a ElectionName,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Term>, StoreError>> {
        Box::pin(async move { self.own().await?.history(election, limit).await })
    }

    fn members<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Members>, StoreError>> {
        Box::pin(async move { self.own().await?.members(election).await })
    }

    fn events<'a>(
        &'a mut self,
        election: &'a ElectionName,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<MemberEvent>, StoreError>> {
        Box::pin(async move { self.own().await?.events(election, limit).await })
    }

    fn order<'a>(
        &'a mut self,
        election: &'a ElectionName,
        order: Order,
    ) -> BoxFuture<'a, Result<OrderOutcome, StoreError>> {
        Box::pin(async move { self.own().await?.order(election, order).await })
    }

    fn forget<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<ForgetOutcome, StoreError>> {
        Box::pin(async move { self.own().await?.forget(election).await })
    }

    fn probe(&mut self) -> BoxFuture<'_, Result<Probe, StoreError>> {
        Box::pin(async move { self.own().await?.probe().await })
    }
}
