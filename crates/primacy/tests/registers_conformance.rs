//! The conformance suite finds stores whose registers are wrong, each by the check that names what is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use primacy::ElectionName;
use primacy::registers::{Descriptor, ProcessId, RegistryReply as Reply, RegistryRequest as Request};
use primacy::store::conformance::{self, Harness};
use primacy::store::memory::MemoryStore;
use primacy::store::{Admin, BoxFuture, Hints, Holder, Registry, Session, Sighting, Store, StoreError};

/// What the registers do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// Nothing: the wrapper itself is sound.
    None,
    /// A process gets another number when it publishes what has changed.
    NewNumber,
    /// Answers every other beat from a cache.
    LostBeat,
    /// Shows the oldest first, whatever their rank.
    NoRank,
    /// Shows more than was asked for.
    NoLimit,
    /// Leaves out who was silent once, for ever.
    NeverBack,
    /// Shows the record as it was at the beat before.
    OldRecord,
    /// Leaves everything of a process that left.
    NeverLeaves,
    /// Evicts whatever counter stands.
    NoCounter,
    /// Reads the counter, and then evicts.
    CheckThenEvict,
    /// Does not tell why.
    SaysNotWhy,
    /// Does not count who came back.
    NoComeback,
    /// Changes the round time from whatever it is.
    NoCount,
    /// Lets everybody scan.
    AnyScan,
    /// Reads the highest number, and then gives the next.
    CheckThenJoin,
}

#[derive(Clone, Debug)]
struct Flawed {
    inner: MemoryStore,
    flaw: Flaw,
    records: Arc<Mutex<BTreeMap<ElectionName, Sighting>>>,
}

impl Flawed {
    fn new(flaw: Flaw) -> Self {
        Self { inner: MemoryStore::default(), flaw, records: Arc::default() }
    }
}

impl Harness for Flawed {
    fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
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
        self.inner.session(election, candidate)
    }

    fn registry<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Registry>, StoreError>> {
        Box::pin(async move {
            let inner = self.inner.registry(election).await?;
            let (store, election) = (self.clone(), election.clone());
            Ok(Box::new(FlawedRegistry { inner, store, election, cached: None }) as Box<dyn Registry>)
        })
    }

    fn admin(&self) -> BoxFuture<'_, Result<Box<dyn Admin>, StoreError>> {
        self.inner.admin()
    }

    fn hints<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Hints>, StoreError>> {
        self.inner.hints(election)
    }
}

struct FlawedRegistry {
    inner: Box<dyn Registry>,
    store: Flawed,
    election: ElectionName,
    cached: Option<Reply>,
}

impl Registry for FlawedRegistry {
    fn round(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, StoreError>> {
        Box::pin(async move {
            match (self.store.flaw, request) {
                (Flaw::None, request) => self.inner.round(request).await,
                (flaw, request @ Request::Join { .. }) => self.join(flaw, request).await,
                (flaw, request @ Request::Beat { .. }) => self.beat(flaw, request).await,
                (flaw, request @ Request::MembershipScan { .. }) => self.scan(flaw, request).await,
                (Flaw::NeverLeaves, Request::Leave { .. }) => Ok(Reply::Left),
                (_, request @ Request::Leave { .. }) => self.inner.round(request).await,
            }
        })
    }
}

impl FlawedRegistry {
    async fn descriptors(&mut self) -> Result<Vec<Descriptor>, StoreError> {
        let members = self.store.inner.admin().await?.members(&self.election).await?;
        let members = members.map(|members| members.members).unwrap_or_default();
        Ok(members.into_iter().map(|member| member.descriptor).collect())
    }

    async fn join(&mut self, flaw: Flaw, mut request: Request) -> Result<Reply, StoreError> {
        let Request::Join { process, came_back, .. } = &mut request else { return self.inner.round(request).await };
        let process = *process;
        match flaw {
            Flaw::NewNumber => {
                self.inner.round(Request::Leave { process }).await?;
            }
            Flaw::NoComeback => *came_back = None,
            Flaw::CheckThenJoin => {
                let known = self.descriptors().await?;
                if known.iter().all(|descriptor| descriptor.process != process) {
                    let highest = self.store.inner.admin().await?.members(&self.election).await?;
                    let highest = highest.map_or(0, |members| members.vars.max_id);
                    tokio::task::yield_now().await;
                    return Ok(match self.inner.round(request).await? {
                        Reply::Joined { vars, .. } => Reply::Joined { id: highest + 1, vars },
                        other => other,
                    });
                }
            }
            _ => {}
        }
        self.inner.round(request).await
    }

    async fn beat(&mut self, flaw: Flaw, mut request: Request) -> Result<Reply, StoreError> {
        let Request::Beat { without, head, .. } = &mut request else { return self.inner.round(request).await };
        let (silent, most) = (without.clone(), *head as usize);
        match flaw {
            Flaw::LostBeat => {
                if let Some(cached) = self.cached.take() {
                    return Ok(cached);
                }
            }
            Flaw::NoLimit => *head = u32::MAX,
            Flaw::NeverBack => {
                without.clear();
                *head = u32::MAX;
            }
            _ => {}
        }
        let mut reply = self.inner.round(request).await?;
        match &mut reply {
            Reply::Beaten { head, .. } if flaw == Flaw::NeverBack => {
                head.retain(|descriptor| silent.iter().all(|(process, _)| *process != descriptor.process));
                head.truncate(most);
            }
            Reply::Beaten { head, .. } if flaw == Flaw::NoRank => head.sort_by_key(|descriptor| descriptor.id),
            Reply::Beaten { sighting, .. } if flaw == Flaw::OldRecord => {
                let mut records = self.store.records.lock().expect("no panics");
                let before = records.insert(self.election.clone(), sighting.clone());
                *sighting = before.unwrap_or_else(|| sighting.clone());
            }
            Reply::Evicted { eviction, .. } if flaw == Flaw::SaysNotWhy => *eviction = None,
            _ => {}
        }
        if flaw == Flaw::LostBeat && matches!(reply, Reply::Beaten { .. }) {
            self.cached = Some(reply.clone());
        }
        Ok(reply)
    }

    async fn scan(&mut self, flaw: Flaw, mut request: Request) -> Result<Reply, StoreError> {
        let Request::MembershipScan { holder, token, evict, round, .. } = &mut request else {
            return self.inner.round(request).await;
        };
        match flaw {
            Flaw::NoCounter => {
                let known = self.descriptors().await?;
                for (process, counter, _) in evict {
                    *counter = counter_of(&known, *process).unwrap_or(*counter);
                }
            }
            Flaw::CheckThenEvict => {
                let known = self.descriptors().await?;
                evict.retain(|(process, counter, _)| counter_of(&known, *process) == Some(*counter));
                if !evict.is_empty() {
                    for _ in 0..50 {
                        tokio::task::yield_now().await;
                    }
                }
                let known = self.descriptors().await?;
                for (process, counter, _) in evict {
                    *counter = counter_of(&known, *process).unwrap_or(*counter);
                }
            }
            Flaw::NoCount => {
                let members = self.store.inner.admin().await?.members(&self.election).await?;
                if let (Some(members), Some((_, changes))) = (members, round) {
                    *changes = members.vars.changes;
                }
            }
            Flaw::AnyScan => {
                let snapshot = self.store.inner.admin().await?.snapshot(&self.election).await?;
                if let Some(record) = snapshot.map(|snapshot| snapshot.record)
                    && let Some(leader) = record.holder
                {
                    (*holder, *token) = (leader.id, record.version.token);
                }
            }
            _ => {}
        }
        self.inner.round(request).await
    }
}

fn counter_of(descriptors: &[Descriptor], process: ProcessId) -> Option<u64> {
    descriptors.iter().find(|descriptor| descriptor.process == process).map(|descriptor| descriptor.counter)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_suite_finds_each_flaw_of_the_registers() {
    conformance::run(&Flawed::new(Flaw::None)).await.expect("the wrapper is sound");
    for (flaw, check) in [
        (Flaw::NewNumber, "registers-numbers"),
        (Flaw::LostBeat, "registers-beats"),
        (Flaw::NoRank, "registers-head"),
        (Flaw::NoLimit, "registers-head"),
        (Flaw::NeverBack, "registers-without"),
        (Flaw::OldRecord, "registers-record"),
        (Flaw::NeverLeaves, "registers-nobody"),
        (Flaw::NoCounter, "registers-eviction"),
        (Flaw::SaysNotWhy, "registers-eviction"),
        (Flaw::NoComeback, "registers-comebacks"),
        (Flaw::NoCount, "registers-round-time"),
        (Flaw::AnyScan, "registers-leader-only"),
        (Flaw::CheckThenJoin, "registers-crowd"),
        (Flaw::CheckThenEvict, "registers-eviction-races"),
    ] {
        let failure = conformance::run(&Flawed::new(flaw)).await.expect_err(&format!("{flaw:?} is found"));
        assert_eq!(failure.check, check, "{flaw:?} is found by another check: {failure}");
    }
}
