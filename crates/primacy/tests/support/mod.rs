//! A store that a test can break and mend while candidates use it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use primacy::ElectionName;
use primacy::registers::{RegistryReply, RegistryRequest};
use primacy::store::{Admin, BoxFuture, Hints, Holder, NoHints, Registry, Reply, Request, Session, Store, StoreError};

/// What the store does with a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mood {
    /// Takes it.
    Fine,
    /// Refuses it, untaken.
    Unreachable,
    /// Refuses it, and says that trying again does not help.
    Unusable,
    /// Never answers.
    Silent,
    /// Takes it and loses the answer.
    Forgetful,
    /// Holds up the thread that asks it, until the mood changes.
    Blocks,
    /// Panics.
    Panics,
}

/// A store in front of another, without hints.
#[derive(Clone, Debug)]
pub(crate) struct Moody {
    inner: Arc<dyn Store>,
    mood: Arc<AtomicU8>,
}

impl Moody {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, mood: Arc::new(AtomicU8::new(Mood::Fine as u8)) }
    }

    pub(crate) fn set(&self, mood: Mood) {
        self.mood.store(mood as u8, Ordering::SeqCst);
    }
}

/// A session or a registry.
struct Moodily<S> {
    inner: S,
    mood: Arc<AtomicU8>,
}

async fn moodily<T>(mood: &AtomicU8, step: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    while mood.load(Ordering::SeqCst) == Mood::Blocks as u8 {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    match mood.load(Ordering::SeqCst) {
        mood if mood == Mood::Unreachable as u8 => Err(StoreError::Unreachable("the test says so".into())),
        mood if mood == Mood::Unusable as u8 => Err(StoreError::Unusable("the test says so".into())),
        mood if mood == Mood::Silent as u8 => std::future::pending().await,
        mood if mood == Mood::Forgetful as u8 => {
            let _ = step.await;
            Err(StoreError::Unknown("the test says so".into()))
        }
        mood if mood == Mood::Panics as u8 => panic!("the test says so"),
        _ => step.await,
    }
}

impl Session for Moodily<Box<dyn Session>> {
    fn step(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, StoreError>> {
        Box::pin(moodily(&self.mood, self.inner.step(request)))
    }
}

impl Registry for Moodily<Box<dyn Registry>> {
    fn round(&mut self, request: RegistryRequest) -> BoxFuture<'_, Result<RegistryReply, StoreError>> {
        Box::pin(moodily(&self.mood, self.inner.round(request)))
    }
}

impl Store for Moody {
    fn location(&self) -> String {
        format!("moody:{}", self.inner.location())
    }

    fn session<'a>(
        &'a self,
        election: &'a ElectionName,
        candidate: &'a Holder,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, StoreError>> {
        Box::pin(async move {
            let inner = self.inner.session(election, candidate).await?;
            Ok(Box::new(Moodily { inner, mood: Arc::clone(&self.mood) }) as Box<dyn Session>)
        })
    }

    fn registry<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Registry>, StoreError>> {
        Box::pin(async move {
            let inner = self.inner.registry(election).await?;
            Ok(Box::new(Moodily { inner, mood: Arc::clone(&self.mood) }) as Box<dyn Registry>)
        })
    }

    fn admin(&self) -> BoxFuture<'_, Result<Box<dyn Admin>, StoreError>> {
        self.inner.admin()
    }

    fn hints<'a>(&'a self, _: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Hints>, StoreError>> {
        Box::pin(async { Ok(Box::new(NoHints) as Box<dyn Hints>) })
    }
}
