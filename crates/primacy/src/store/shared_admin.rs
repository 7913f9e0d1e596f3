//! What the candidates of a fleet ask as observers: who else waits. That goes over their shared connections.

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
