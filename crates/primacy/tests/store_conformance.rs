//! The stores of this crate keep their promises, and the suite that says so finds those who do not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use primacy::store::conformance::{self, Harness};
use primacy::store::memory::MemoryStore;
use primacy::store::{
    Admin, Basis, BoxFuture, Expectation, Hints, Holder, NoHints, Record, Registry, Reply, Request, Session, Store,
    StoreError,
};
use primacy::{ElectionName, Token};

struct Memory(MemoryStore);

impl Harness for Memory {
    fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    fn delete_record<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, bool> {
        self.0.delete_record(election);
        Box::pin(std::future::ready(true))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_memory_store_conforms() {
    let report = conformance::run(&Memory(MemoryStore::default())).await.expect("conforms");
    assert_eq!(report.skipped, Vec::<&str>::new());
    assert!(report.passed.len() >= 59, "{report:?}");
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::*;
    use primacy::store::sqlite::SqliteStore;

    struct File(tempfile::TempDir, Option<Arc<dyn Store>>);

    impl File {
        fn path(&self) -> String {
            self.0.path().join("p.db").to_str().expect("UTF-8").to_owned()
        }
    }

    impl Harness for File {
        fn open(&self) -> Arc<dyn Store> {
            self.1.clone().unwrap_or_else(|| Arc::new(SqliteStore::at(&self.path()).expect("a valid path")))
        }

        fn delete_record<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, bool> {
            let conn = rusqlite::Connection::open(self.path()).expect("opens");
            let deleted =
                conn.execute("DELETE FROM primacy_election WHERE election = ?1", [election.as_str()]).expect("deletes");
            Box::pin(std::future::ready(deleted == 1))
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn the_sqlite_store_conforms() {
        let file = File(tempfile::tempdir().expect("a folder"), None);
        // The second run meets what the first one left.
        for _ in 0..2 {
            let report = conformance::run(&file).await.expect("conforms");
            assert_eq!(report.skipped, Vec::<&str>::new());
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn the_sqlite_store_conforms_to_candidates_that_share_a_connection() {
        let file = File(tempfile::tempdir().expect("a folder"), None);
        let shared = file.open().sharing();
        let report = conformance::run(&File(file.0, shared)).await.expect("conforms");
        assert_eq!(report.skipped, Vec::<&str>::new());
    }
}

/// What a store does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// Nothing: the wrapper itself is sound.
    None,
    /// Renews whatever beat stands.
    NoBeat,
    /// Grants whatever version stands.
    NoVersion,
    /// Grants whatever was ordered.
    NoOrderNumber,
    /// Renews for anyone of the same label.
    ByLabel,
    /// Reads whether it may grant, and then grants.
    ReadThenWrite,
    /// Counts tokens from 1 again after a release.
    TokenReset,
    /// Keeps the length of a lease as it was granted.
    OldLease,
    /// Forgets what the candidate has seen.
    NoFloor,
    /// Ignores a floor from outside.
    NoFloorOutside,
    /// Takes a floor from outside for what the candidate has seen.
    FloorIsSeen,
    /// Folds the case of names, as many collations do.
    FoldedCase,
    /// Ignores trailing spaces, as some collations do.
    Padded,
    /// Cuts data off.
    ShortData,
    /// Answers from a cache.
    StaleLook,
    /// Never hints.
    Deaf,
    /// Keeps announcements for ever.
    NeverLeaves,
    /// Says that a renewal was made and does not make it.
    NotWritten,
}

#[derive(Clone, Debug)]
struct Flawed {
    inner: MemoryStore,
    flaw: Flaw,
    /// By how much tokens are shown too small.
    reset: Arc<Mutex<BTreeMap<ElectionName, u64>>>,
    cache: Arc<Mutex<BTreeMap<ElectionName, Reply>>>,
}

impl Flawed {
    fn new(flaw: Flaw) -> Self {
        Self { inner: MemoryStore::default(), flaw, reset: Arc::default(), cache: Arc::default() }
    }

    fn folded(&self, election: &ElectionName) -> ElectionName {
        let name = match self.flaw {
            Flaw::FoldedCase => election.as_str().to_lowercase(),
            Flaw::Padded => election.as_str().trim_end().to_owned(),
            _ => election.as_str().to_owned(),
        };
        ElectionName::new(name).expect("still a name")
    }
}

impl Harness for Flawed {
    fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }

    fn delete_record<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, bool> {
        self.inner.delete_record(election);
        Box::pin(std::future::ready(true))
    }
}

impl Store for Flawed {
    fn location(&self) -> String {
        "flawed:".into()
    }

    fn session<'a>(
        &'a self,
        election: &'a ElectionName,
        candidate: &'a Holder,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, StoreError>> {
        Box::pin(async move {
            let election = self.folded(election);
            let inner = self.inner.session(&election, candidate).await?;
            Ok(Box::new(FlawedSession { inner, store: self.clone(), election }) as Box<dyn Session>)
        })
    }

    fn registry<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Registry>, StoreError>> {
        Box::pin(async move { self.inner.registry(&self.folded(election)).await })
    }

    fn admin(&self) -> BoxFuture<'_, Result<Box<dyn Admin>, StoreError>> {
        self.inner.admin()
    }

    fn hints<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Hints>, StoreError>> {
        match self.flaw {
            Flaw::Deaf => Box::pin(std::future::ready(Ok(Box::new(NoHints) as Box<dyn Hints>))),
            _ => self.inner.hints(election),
        }
    }
}

struct FlawedSession {
    inner: Box<dyn Session>,
    store: Flawed,
    election: ElectionName,
}

impl Session for FlawedSession {
    fn step(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, StoreError>> {
        Box::pin(async move {
            let stands = match self.inner.step(Request::Look { announce: None }).await? {
                Reply::Seen(sighting) => sighting.record,
                other => return Ok(other),
            };
            let request = spoilt(&self.store, &self.election, request, stands.as_ref()).await;
            if self.store.flaw == Flaw::StaleLook && matches!(request, Request::Look { announce: None }) {
                return self.cached(request).await;
            }
            if let (Flaw::NotWritten, Request::Renew { id, version, .. }) = (self.store.flaw, &request)
                && let Some(record) = stands.filter(|record| record.is_held_by(*id) && record.version == *version)
            {
                let mut record: Record = record;
                record.version.beat += 1;
                return Ok(Reply::Applied(record));
            }
            if self.store.flaw == Flaw::NeverLeaves && request == Request::Leave {
                return Ok(Reply::Left);
            }
            let reply = self.inner_step(request).await?;
            Ok(self.reset(reply))
        })
    }
}

impl FlawedSession {
    /// As the inner store would be asked if tokens had never been reset.
    async fn inner_step(&mut self, mut request: Request) -> Result<Reply, StoreError> {
        let by = self.store.reset.lock().expect("no panics").get(&self.election).copied().unwrap_or(0);
        let raise = |token: Token| Token::new(token.get() + by).expect("small");
        match &mut request {
            Request::Acquire { expect: Some(expect), .. } => expect.version.token = raise(expect.version.token),
            Request::Renew { version, .. } | Request::Release { version, .. } => version.token = raise(version.token),
            _ => {}
        }
        self.inner.step(request).await
    }

    async fn cached(&mut self, request: Request) -> Result<Reply, StoreError> {
        let fresh = self.inner.step(request).await?;
        let mut cache = self.store.cache.lock().expect("no panics");
        // What was seen the time before.
        Ok(cache.insert(self.election.clone(), fresh.clone()).unwrap_or(fresh))
    }

    fn reset(&self, mut reply: Reply) -> Reply {
        if self.store.flaw != Flaw::TokenReset {
            return reply;
        }
        let mut reset = self.store.reset.lock().expect("no panics");
        let by = reset.entry(self.election.clone()).or_default();
        let record = match &mut reply {
            Reply::Applied(record) => Some(record),
            Reply::Seen(sighting) | Reply::Conflict(sighting) => sighting.record.as_mut(),
            Reply::Left => None,
        };
        if let Some(record) = record {
            let token = record.version.token.get();
            if record.holder.is_none() {
                *by = token;
            }
            let shown = if record.holder.is_none() { token } else { token - *by };
            record.version.token = Token::new(shown).expect("small");
        }
        reply
    }
}

async fn spoilt(store: &Flawed, election: &ElectionName, mut request: Request, stands: Option<&Record>) -> Request {
    match (&mut request, store.flaw) {
        (Request::Renew { id, version, .. }, Flaw::NoBeat) => {
            if let Some(record) = stands.filter(|record| record.is_held_by(*id)) {
                version.beat = record.version.beat;
            }
        }
        (Request::Acquire { expect, .. }, Flaw::NoVersion) => *expect = stands.map(Record::expectation),
        (Request::Acquire { expect, .. }, Flaw::ReadThenWrite) if stands.map(Record::expectation) == *expect => {
            tokio::task::yield_now().await;
            // As an unconditional write would.
            let admin = store.inner.admin().await.expect("opens").snapshot(election).await;
            let stands = admin.expect("reads").filter(|snapshot| snapshot.basis == Basis::Record);
            *expect = stands.map(|snapshot| snapshot.record.expectation());
        }
        (Request::Acquire { expect: Some(expect), .. }, Flaw::NoOrderNumber) => {
            *expect = Expectation { order_number: stands.map_or(0, |record| record.order_number), ..*expect };
        }
        (Request::Renew { id, .. }, Flaw::ByLabel) => {
            if let Some(holder) = stands.and_then(|record| record.holder.as_ref()) {
                *id = holder.id;
            }
        }
        (Request::Renew { lease, .. }, Flaw::OldLease) => {
            *lease = stands.map_or(*lease, |record| record.lease);
        }
        (Request::Acquire { floor, .. }, Flaw::NoFloor) => floor.seen = Token::NONE,
        (Request::Acquire { floor, .. }, Flaw::NoFloorOutside) => floor.outside = Token::NONE,
        (Request::Acquire { floor, .. }, Flaw::FloorIsSeen) => floor.seen = floor.highest(),
        (Request::Acquire { holder, .. }, Flaw::ShortData) => {
            while holder.data.len() > 255 {
                holder.data.pop();
            }
        }
        _ => {}
    }
    request
}

/// Each flaw is found, and by the check that names it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_suite_finds_each_flaw() {
    conformance::run(&Flawed::new(Flaw::None)).await.expect("the wrapper is sound");
    for (flaw, checks) in [
        (Flaw::NoBeat, &["stale-beat"][..]),
        (Flaw::NoVersion, &["expected-version"]),
        (Flaw::NoOrderNumber, &["expected-order-number"]),
        (Flaw::ByLabel, &["same-label-other-id"]),
        (Flaw::ReadThenWrite, &["one-winner"]),
        (Flaw::TokenReset, &["release", "other-token", "tokens-grow"]),
        (Flaw::OldLease, &["renewed-lease"]),
        (Flaw::NoFloor, &["floor"]),
        (Flaw::NoFloorOutside, &["floor-outside"]),
        (Flaw::FloorIsSeen, &["forget"]),
        (Flaw::FoldedCase, &["distinct-names"]),
        (Flaw::Padded, &["distinct-names"]),
        (Flaw::ShortData, &["large-data"]),
        (Flaw::StaleLook, &["first-grant"]),
        (Flaw::Deaf, &["hints"]),
        (Flaw::NeverLeaves, &["leave"]),
        (Flaw::NotWritten, &["renewal"]),
    ] {
        let failure = conformance::run(&Flawed::new(flaw)).await.expect_err(&format!("{flaw:?} is found"));
        assert!(checks.contains(&failure.check), "{flaw:?} is found by another check: {failure}");
    }
}
