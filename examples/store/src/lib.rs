//! A store for primacy that keeps elections in a folder of files, for the processes of one host: an example for the authors
//! of stores. It is written on primacy's exported API alone, and passes the conformance suite (`tests/conformance.rs`).
//! `docs/advanced/writing-a-store.md` goes through it step by step.
//!
//! ```
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use primacy::{Election, ElectionName};
//! use primacy_files::FilesStore;
//! use std::sync::Arc;
//!
//! let store = Arc::new(FilesStore::at("/var/lib/jobs/elections"));
//! let mut candidate = Election::new(store, ElectionName::new("nightly")?).campaign("web-1")?;
//! let leadership = candidate.elected().await?;
//! # Ok(()) }
//! ```

mod admin;
mod folder;
mod format;

use std::path::PathBuf;
use std::time::Duration;

use primacy::store::row::{self, Renewal};
use primacy::store::{
    Admin, Announcement, BoxFuture, Hints, Holder, Record, Reply, Request, Session, Sighting, Store, StoreError,
    WaitQueue, WaiterInfo,
};
use primacy::{CandidateId, ElectionName, Instant, clock};

use admin::FilesAdmin;
use folder::{Folder, Locked};
use format::State;

/// Elections in a folder, one folder below it for each. Processes of one host only: locks of a file system that several
/// hosts share are not to be relied on.
#[derive(Clone, Debug)]
pub struct FilesStore {
    root: PathBuf,
}

impl FilesStore {
    /// The store in this folder, which is made when the first candidate comes.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }
}

impl Store for FilesStore {
    fn location(&self) -> String {
        format!("files:{}", self.root.display())
    }

    fn session<'a>(
        &'a self,
        election: &'a ElectionName,
        candidate: &'a Holder,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, StoreError>> {
        Box::pin(async move {
            let folder = Folder::of(&self.root, election);
            blocking({
                let folder = folder.clone();
                move || folder.create()
            })
            .await?;
            let session = FilesSession { folder, election: election.clone(), me: candidate.clone() };
            Ok(Box::new(session) as Box<dyn Session>)
        })
    }

    fn admin(&self) -> BoxFuture<'_, Result<Box<dyn Admin>, StoreError>> {
        let admin = FilesAdmin { root: self.root.clone() };
        Box::pin(std::future::ready(Ok(Box::new(admin) as Box<dyn Admin>)))
    }

    fn hints<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Hints>, StoreError>> {
        let folder = Folder::of(&self.root, election);
        let seen = folder.changes();
        Box::pin(std::future::ready(Ok(Box::new(FilesHints { folder, seen }) as Box<dyn Hints>)))
    }
}

/// Looks at a small file, some ten times a second. What came while nobody waited is one change of it.
struct FilesHints {
    folder: Folder,
    seen: Vec<u8>,
}

impl Hints for FilesHints {
    fn next(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            loop {
                let now = self.folder.changes();
                if now != self.seen {
                    self.seen = now;
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
    }
}

struct FilesSession {
    folder: Folder,
    election: ElectionName,
    me: Holder,
}

impl Session for FilesSession {
    fn step(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, StoreError>> {
        Box::pin(async move {
            let locked = self.folder.lock().await?;
            let (election, me) = (self.election.clone(), self.me.clone());
            // Goes on to its end on a thread of its own, with the lock, if this future is dropped: a step is taken wholly
            // or not at all.
            blocking(move || take(&locked, &election, &me, request)).await
        })
    }
}

/// Runs what waits for the disk on a thread that may wait.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(StoreError::Unknown(error.to_string())))
}

/// Takes one step while nobody else can read or write.
fn take(locked: &Locked, election: &ElectionName, me: &Holder, request: Request) -> Result<Reply, StoreError> {
    let (now, mut state, mut waiting) = (now()?, locked.state()?, locked.waiting());
    let changed: Option<Record> = match &request {
        Request::Look { announce } => {
            if let Some(Announcement { why, rank }) = announce {
                let lease = state.record.as_ref().map(|record| record.lease);
                let info = WaiterInfo { who: me.clone(), note: why.to_string() };
                waiting.announce(me.id, *rank, info, lease, now);
                locked.write_waiting(&waiting);
            }
            return Ok(Reply::Seen(state.sighting(&waiting, me.id, now)));
        }
        Request::Leave => {
            waiting.leave(me.id);
            locked.write_waiting(&waiting);
            return Ok(Reply::Left);
        }
        Request::Acquire { expect, floor, holder, lease } => {
            let (record, remembered) = (state.record.as_ref(), state.past.highest());
            row::acquire(record, *expect, remembered, 0, *floor, holder, *lease)?
        }
        &Request::Renew { id, version, lease, completed_order } => {
            row::renew(state.record.as_ref(), &Renewal { id, version, lease, completed_order })
        }
        Request::Release { id, version, .. } => row::release(state.record.as_ref(), *id, *version),
    };
    let Some(record) = changed else { return Ok(Reply::Conflict(state.sighting(&waiting, me.id, now))) };
    match &request {
        Request::Acquire { holder, .. } => {
            state.past.grant(record.version.token, holder, state.holder().is_some());
            (state.granted, state.renewed) = (Some(now), Some(now));
        }
        Request::Renew { .. } => state.renewed = Some(now),
        Request::Release { reason, .. } => state.past.close(record.version.token, reason.word()),
        Request::Look { .. } | Request::Leave => {}
    }
    state.record = Some(record.clone());
    locked.write_state(election, &state)?;
    if let Request::Acquire { holder, .. } = &request {
        waiting.leave(holder.id);
        locked.write_waiting(&waiting);
    }
    if !matches!(request, Request::Renew { .. }) {
        locked.hint();
    }
    Ok(Reply::Applied(record))
}

impl State {
    fn holder(&self) -> Option<CandidateId> {
        self.record.as_ref()?.holder.as_ref().map(|holder| holder.id)
    }

    fn sighting(&self, waiting: &WaitQueue, me: CandidateId, now: Instant) -> Sighting {
        Sighting {
            record: self.record.clone(),
            remembered: self.past.highest(),
            age: self.renewed.map(|renewed| now.since(renewed)),
            holder_gone: false,
            standing: waiting.standing(me, self.holder(), now),
        }
    }
}

/// Now, on the clock that all processes of this boot share.
fn now() -> Result<Instant, StoreError> {
    let nanos = clock::boot_nanos().ok_or_else(|| StoreError::Unusable("the clock cannot be read".to_owned()))?;
    Ok(Instant::from_nanos(nanos))
}
