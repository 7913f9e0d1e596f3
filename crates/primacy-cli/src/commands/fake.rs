//! A store for tests, which answers as it is told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use primacy::ElectionName;
use primacy::store::{
    Admin, BoxFuture, ForgetOutcome, Hints, Holder, MemberEvent, Members, NoHints, Order, OrderOutcome, Probe,
    Registry, Session, Snapshot, Store, StoreError, Term,
};

/// What the fake will answer, and what it was asked.
#[derive(Debug, Default)]
pub(super) struct Script {
    /// Answers to snapshots, in order; the last one stays.
    pub(super) snapshots: VecDeque<Option<Snapshot>>,
    /// Answers to orders, in order.
    pub(super) orders: VecDeque<Result<OrderOutcome, StoreError>>,
    /// Errors that come before every other answer.
    pub(super) errors: VecDeque<StoreError>,
    /// Errors that come after the first snapshot.
    pub(super) errors_later: VecDeque<StoreError>,
    /// The orders that were given.
    pub(super) given: Vec<Order>,
    /// How often an admin connection was opened.
    pub(super) opened: usize,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FakeStore(Arc<Mutex<Script>>);

impl FakeStore {
    pub(super) fn new(script: Script) -> Self {
        Self(Arc::new(Mutex::new(script)))
    }

    pub(super) fn with<T>(&self, look: impl FnOnce(&mut Script) -> T) -> T {
        look(&mut self.0.lock().expect("no test panics while it holds this"))
    }

    fn answer<T: Send + 'static>(
        &self,
        say: impl FnOnce(&mut Script) -> Result<T, StoreError>,
    ) -> BoxFuture<'static, Result<T, StoreError>> {
        let said = self.with(|script| match script.errors.pop_front() {
            Some(error) => Err(error),
            None => say(script),
        });
        Box::pin(async move { said })
    }
}

impl Store for FakeStore {
    fn location(&self) -> String {
        "fake:somewhere".to_owned()
    }

    fn session<'a>(
        &'a self,
        _: &'a ElectionName,
        _: &'a Holder,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, StoreError>> {
        Box::pin(async { Err(StoreError::Unusable("nobody campaigns in these tests".to_owned())) })
    }

    fn registry<'a>(&'a self, _: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Registry>, StoreError>> {
        Box::pin(async { Err(StoreError::Unusable("nobody campaigns in these tests".to_owned())) })
    }

    fn admin(&self) -> BoxFuture<'_, Result<Box<dyn Admin>, StoreError>> {
        self.with(|script| script.opened += 1);
        let admin: Box<dyn Admin> = Box::new(FakeAdmin(self.clone()));
        Box::pin(async { Ok(admin) })
    }

    fn hints<'a>(&'a self, _: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Hints>, StoreError>> {
        Box::pin(async { Ok(Box::new(NoHints) as Box<dyn Hints>) })
    }
}

struct FakeAdmin(FakeStore);

impl Admin for FakeAdmin {
    fn snapshot<'a>(&'a mut self, _: &'a ElectionName) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>> {
        self.0.answer(|script| {
            let later = std::mem::take(&mut script.errors_later);
            script.errors.extend(later);
            let next = if script.snapshots.len() > 1 { script.snapshots.pop_front() } else { None };
            Ok(next.or_else(|| script.snapshots.front().cloned()).flatten())
        })
    }

    fn elections(&mut self) -> BoxFuture<'_, Result<Vec<Snapshot>, StoreError>> {
        self.0.answer(|script| Ok(script.snapshots.iter().flatten().cloned().collect()))
    }

    fn history<'a>(&'a mut self, _: &'a ElectionName, _: u32) -> BoxFuture<'a, Result<Vec<Term>, StoreError>> {
        self.0.answer(|_| Ok(crate::output::sample::history()))
    }

    fn members<'a>(&'a mut self, _: &'a ElectionName) -> BoxFuture<'a, Result<Option<Members>, StoreError>> {
        self.0.answer(|_| Ok(None))
    }

    fn events<'a>(&'a mut self, _: &'a ElectionName, _: u32) -> BoxFuture<'a, Result<Vec<MemberEvent>, StoreError>> {
        self.0.answer(|_| Ok(Vec::new()))
    }

    fn order<'a>(&'a mut self, _: &'a ElectionName, order: Order) -> BoxFuture<'a, Result<OrderOutcome, StoreError>> {
        self.0.answer(|script| {
            script.given.push(order);
            script.orders.pop_front().expect("as many answers as orders")
        })
    }

    fn forget<'a>(&'a mut self, _: &'a ElectionName) -> BoxFuture<'a, Result<ForgetOutcome, StoreError>> {
        self.0.answer(|_| Ok(ForgetOutcome::NoSuchElection))
    }

    fn probe(&mut self) -> BoxFuture<'_, Result<Probe, StoreError>> {
        self.0.answer(|_| Err(StoreError::Unusable("there is nothing to probe".to_owned())))
    }
}
