//! Observers and operators of a database.

use std::sync::Arc;

use super::super::{
    BoxFuture, Desk, EndReason, MemberEvent, Members, Order, Ordered, Probe, Record, Snapshot, StoreError, Term,
    row::{self, Verdict},
};
use super::bell::{Bells, Ringer};
use super::fault::{Fault, Stake};
use super::link::{Dialer, Link, Purpose};
use super::schema::{self, Server};
use super::{probe, rows, statements};
use crate::ElectionName;

/// How often an order is judged anew because the row changed under it. Between two changes of a row there is mostly a
/// third of a lease.
const JUDGEMENTS: u32 = 200;

/// The connection of an observer or operator.
#[derive(Debug)]
pub(super) struct PostgresDesk {
    link: Link,
    server: Server,
    /// For the probe alone.
    ringer: Ringer,
}

impl PostgresDesk {
    pub(super) async fn open(dialer: &Arc<Dialer>) -> Result<Self, StoreError> {
        let ringer = Bells::default().of(&ElectionName::new("primacy-probe").expect("a valid name"));
        let (link, server) = dialer.dial(Purpose::Watch, ringer.clone()).await?;
        if server.tables.is_none() {
            return Err(StoreError::Unusable(format!(
                "{}: nobody has run an election there yet; `primacy run` does",
                link.shown()
            )));
        }
        Ok(Self { link, server, ringer })
    }

    async fn look(&mut self, election: &ElectionName) -> Result<Option<Snapshot>, Fault> {
        let rows = self.link.run(statements::SNAPSHOT, &[election.as_str().into()], Stake::Reading).await?;
        Ok(rows::snapshots(&rows)?.pop())
    }

    async fn all(&mut self) -> Result<Vec<Snapshot>, Fault> {
        rows::snapshots(&self.link.run(statements::ELECTIONS, &[], Stake::Reading).await?)
    }

    async fn terms(&mut self, election: &ElectionName, limit: u32) -> Result<Vec<Term>, Fault> {
        let parameters = [election.as_str().into(), u64::from(limit).into()];
        let rows = self.link.run(statements::HISTORY, &parameters, Stake::Reading).await?;
        rows::terms(&rows)
    }

    async fn write(&mut self, election: &ElectionName, order: &Order) -> Result<Ordered, Fault> {
        for _ in 0..JUDGEMENTS {
            let Some(before) = self.look(election).await? else { return Ok(Ordered::NoSuchElection) };
            let (new, ended) = match row::order(&before.record, before.leader().is_some(), order) {
                Verdict::Already => return Ok(Ordered::Already(before)),
                Verdict::TokenChanged => return Ok(Ordered::TokenChanged(before)),
                Verdict::Write(new, ended) => (new, ended),
            };
            if self.swap(election, &before.record, &new, ended.as_ref()).await? {
                return Ok(Ordered::Written(before));
            }
        }
        Err(Fault::Said(StoreError::Unreachable(format!("{}: the row changes all the time", self.link.shown()))))
    }

    /// `false` if the row is not the one that was judged.
    async fn swap(
        &mut self,
        election: &ElectionName,
        old: &Record,
        new: &Record,
        ended: Option<&EndReason>,
    ) -> Result<bool, Fault> {
        let empties = old.holder.is_some() && new.holder.is_none();
        let (wish, successor) = rows::to_wish(new.wish.as_ref());
        let parameters = [
            election.as_str().into(),
            old.version.token.get().into(),
            old.version.beat.into(),
            old.intent.into(),
            empties.into(),
            wish.into(),
            successor.into(),
            new.paused.into(),
            ended.map(EndReason::word).into(),
        ];
        Ok(!self.link.run(statements::ORDER, &parameters, Stake::Writing).await?.is_empty())
    }

    fn told<T>(&self, result: Result<T, Fault>, stake: Stake) -> Result<T, StoreError> {
        result.map_err(|fault| fault.meaning(self.link.shown(), stake))
    }
}

impl Desk for PostgresDesk {
    fn snapshot<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>> {
        Box::pin(async move {
            let seen = self.look(election).await;
            self.told(seen, Stake::Reading)
        })
    }

    fn elections(&mut self) -> BoxFuture<'_, Result<Vec<Snapshot>, StoreError>> {
        Box::pin(async move {
            let seen = self.all().await;
            self.told(seen, Stake::Reading)
        })
    }

    fn history<'a>(
        &'a mut self,
        election: &'a ElectionName,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Term>, StoreError>> {
        Box::pin(async move {
            let seen = self.terms(election, limit).await;
            self.told(seen, Stake::Reading)
        })
    }

    fn members<'a>(&'a mut self, _: &'a ElectionName) -> BoxFuture<'a, Result<Option<Members>, StoreError>> {
        Box::pin(async { Ok(None) })
    }

    fn events<'a>(&'a mut self, _: &'a ElectionName, _: u32) -> BoxFuture<'a, Result<Vec<MemberEvent>, StoreError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn order<'a>(&'a mut self, election: &'a ElectionName, order: Order) -> BoxFuture<'a, Result<Ordered, StoreError>> {
        Box::pin(async move {
            let written = self.write(election, &order).await;
            self.told(written, Stake::Writing)
        })
    }

    fn probe(&mut self) -> BoxFuture<'_, Result<Probe, StoreError>> {
        Box::pin(async move {
            // Settings may have changed since the connection was opened.
            self.server = schema::inspect(&mut self.link).await?;
            let probed = probe::run(&mut self.link, &self.server, &self.ringer).await;
            self.told(probed, Stake::Reading)
        })
    }
}
