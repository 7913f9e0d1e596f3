//! A store that a test can break and mend while candidates use it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use primacy::ElectionName;
use primacy::store::{BoxFuture, Desk, Hints, Holder, NoHints, Reply, Request, Session, Store, StoreError};

/// What the store does with a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mood {
    /// Takes it.
    Fine,
    /// Refuses it, untaken.
    Unreachable,
    /// Never answers.
    Silent,
    /// Takes it and loses the answer.
    Forgetful,
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

struct MoodySession {
    inner: Box<dyn Session>,
    mood: Arc<AtomicU8>,
}

impl Session for MoodySession {
    fn step(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, StoreError>> {
        let mood = self.mood.load(Ordering::SeqCst);
        Box::pin(async move {
            match mood {
                mood if mood == Mood::Unreachable as u8 => Err(StoreError::Unreachable("the test says so".into())),
                mood if mood == Mood::Silent as u8 => std::future::pending().await,
                mood if mood == Mood::Forgetful as u8 => {
                    let _ = self.inner.step(request).await;
                    Err(StoreError::Unknown("the test says so".into()))
                }
                mood if mood == Mood::Panics as u8 => panic!("the test says so"),
                _ => self.inner.step(request).await,
            }
        })
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
            Ok(Box::new(MoodySession { inner, mood: Arc::clone(&self.mood) }) as Box<dyn Session>)
        })
    }

    fn desk(&self) -> BoxFuture<'_, Result<Box<dyn Desk>, StoreError>> {
        self.inner.desk()
    }

    fn hints<'a>(&'a self, _: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Hints>, StoreError>> {
        Box::pin(async { Ok(Box::new(NoHints) as Box<dyn Hints>) })
    }
}
