//! What observers see, and what operators order.

use std::ops::ControlFlow;
use std::path::PathBuf;

use primacy::store::row;
use primacy::store::{
    Admin, Basis, BoxFuture, Finding, ForgetOutcome, Order, OrderOutcome, Probe, Severity, Snapshot, StoreError, Term,
    TermHistory, WaitQueue, Waiting,
};
use primacy::{ElectionName, Instant};

use crate::folder::{Folder, Locked};
use crate::format::State;
use crate::{blocking, now};

#[derive(Debug)]
pub(crate) struct FilesAdmin {
    pub(crate) root: PathBuf,
}

impl FilesAdmin {
    /// Does something in the election's folder while nobody else can; `None` if there is none.
    async fn with<T: Send + 'static>(
        &self,
        election: &ElectionName,
        work: impl FnOnce(&Locked, &ElectionName) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<Option<T>, StoreError> {
        let (folder, election) = (Folder::of(&self.root, election), election.clone());
        if !folder.exists() {
            return Ok(None);
        }
        let locked = folder.lock().await?;
        blocking(move || work(&locked, &election)).await.map(Some)
    }
}

impl Admin for FilesAdmin {
    fn snapshot<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>> {
        Box::pin(async move { Ok(self.with(election, read).await?.flatten()) })
    }

    fn elections(&mut self) -> BoxFuture<'_, Result<Vec<Snapshot>, StoreError>> {
        Box::pin(async move {
            let root = self.root.clone();
            let mut elections = Vec::new();
            for election in blocking(move || Folder::all(&root)).await?.iter().filter_map(Folder::election) {
                elections.extend(self.snapshot(&election).await?.filter(|seen| seen.basis != Basis::Forgotten));
            }
            elections.sort_by(|a, b| a.election.cmp(&b.election));
            Ok(elections)
        })
    }

    fn history<'a>(
        &'a mut self,
        election: &'a ElectionName,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Term>, StoreError>> {
        Box::pin(async move {
            let state = self.with(election, |locked, _| locked.state()).await?.unwrap_or_default();
            Ok(state.past.newest(limit).cloned().collect())
        })
    }

    fn order<'a>(
        &'a mut self,
        election: &'a ElectionName,
        order: Order,
    ) -> BoxFuture<'a, Result<OrderOutcome, StoreError>> {
        Box::pin(async move {
            let ordered = self.with(election, move |locked, election| write(locked, election, &order)).await?;
            Ok(ordered.unwrap_or(OrderOutcome::NoSuchElection))
        })
    }

    fn forget<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<ForgetOutcome, StoreError>> {
        Box::pin(async move { Ok(self.with(election, forget).await?.unwrap_or(ForgetOutcome::NoSuchElection)) })
    }

    fn probe(&mut self) -> BoxFuture<'_, Result<Probe, StoreError>> {
        let message =
            format!("{} must be on a file system of this host that keeps what was synced", self.root.display());
        let finding = Finding { severity: Severity::Warning, code: "durability", message };
        let probe =
            Probe { product: "files".to_owned(), renewals: Vec::new(), findings: vec![finding], latencies: None };
        Box::pin(std::future::ready(Ok(probe)))
    }
}

fn read(locked: &Locked, election: &ElectionName) -> Result<Option<Snapshot>, StoreError> {
    Ok(locked.state()?.snapshot(election, &locked.waiting(), now()?))
}

/// Carries out an order. The rules say what it makes of the record.
fn write(locked: &Locked, election: &ElectionName, order: &Order) -> Result<OrderOutcome, StoreError> {
    let mut state = locked.state()?;
    let Some(before) = state.snapshot(election, &locked.waiting(), now()?) else {
        return Ok(OrderOutcome::NoSuchElection);
    };
    Ok(match OrderOutcome::judge(&before, order) {
        ControlFlow::Break(unchanged) => unchanged,
        ControlFlow::Continue((record, ended)) => {
            if let Some(reason) = ended {
                state.past.close(record.version.token, reason.word());
            }
            state.record = Some(record);
            locked.write_state(election, &state)?;
            locked.hint();
            OrderOutcome::Written(before)
        }
    })
}

/// Leaves nothing of an election but its token.
fn forget(locked: &Locked, election: &ElectionName) -> Result<ForgetOutcome, StoreError> {
    let state = locked.state()?;
    let Some(before) = state.snapshot(election, &locked.waiting(), now()?) else {
        return Ok(ForgetOutcome::NoSuchElection);
    };
    if let Some(unchanged) = ForgetOutcome::unchanged(&before) {
        return Ok(unchanged);
    }
    let token = row::token_of_forgetting(before.record.version.token.max(state.past.highest()))?;
    locked.write_state(election, &State { past: TermHistory::forgotten(token), ..State::default() })?;
    locked.write_waiting(&WaitQueue::default());
    locked.hint();
    Ok(ForgetOutcome::Done(before))
}

impl State {
    fn snapshot(&self, election: &ElectionName, waiting: &WaitQueue, now: Instant) -> Option<Snapshot> {
        let mut snapshot = match &self.record {
            None => self.past.remains(election)?,
            Some(record) => Snapshot {
                election: election.clone(),
                record: record.clone(),
                age: self.renewed.map(|renewed| now.since(renewed)),
                held_for: self.granted.filter(|_| record.holder.is_some()).map(|granted| now.since(granted)),
                candidates: Vec::new(),
                basis: Basis::Record,
            },
        };
        snapshot.candidates = Waiting::list(waiting, self.holder(), now);
        Some(snapshot)
    }
}
