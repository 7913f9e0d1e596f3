//! Observers and operators of a database.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use tracing::debug;

use super::super::{
    Admin, Basis, BoxFuture, EndReason, ForgetOutcome, MemberEvent, Members, Order, OrderOutcome, Probe, Record,
    Snapshot, StoreError, Term, nobody, roster,
};
use super::connection::{Connection, Purpose};
use super::dialer::Dialer;
use super::ears::Ringer;
use super::errors::{Fault, Stake};
use super::notifier::{NotifierHandle, Notifiers};
use super::parameter::Parameter;
use super::schema::{self, Server};
use super::{member_records, member_statements, observer_statements, probe, records, statements};
use crate::{CandidateId, ElectionName, Token};
use primacy_core::lease::row;

/// How often an order is judged anew because the row changed under it. Between two changes of a row there is mostly a
/// third of a lease.
const JUDGEMENTS: u32 = 200;

/// The connection of an observer or operator.
#[derive(Debug)]
pub(super) struct PostgresAdmin {
    connection: Connection,
    server: Server,
    /// For the probe alone.
    notifier: NotifierHandle,
}

impl PostgresAdmin {
    pub(super) async fn open(dialer: &Arc<Dialer>) -> Result<Self, StoreError> {
        let notifier = Notifiers::default().of(&ElectionName::new("primacy-probe").expect("a valid name"));
        let (connection, server) = dialer.dial(Purpose::Watch, Ringer::One(notifier.clone())).await?;
        if server.tables.is_none() {
            return Err(StoreError::Unusable(format!(
                "{}: nobody has run an election there yet; `primacy run` does",
                connection.shown()
            )));
        }
        Ok(Self { connection, server, notifier })
    }

    /// The election, and the token of its fence row.
    async fn look(&mut self, election: &ElectionName) -> Result<(Option<Snapshot>, Token), Fault> {
        let rows =
            self.connection.run(observer_statements::SNAPSHOT, &[election.as_str().into()], Stake::Reading).await?;
        let mut seen = records::snapshots(&rows)?;
        if !seen.is_empty() {
            with_members(&mut self.connection, Some(std::slice::from_ref(election)), &mut seen).await?;
        }
        Ok((seen.pop(), records::fence_of(&rows)?))
    }

    async fn all(&mut self) -> Result<Vec<Snapshot>, Fault> {
        let mut seen =
            records::snapshots(&self.connection.run(observer_statements::ELECTIONS, &[], Stake::Reading).await?)?;
        seen.retain(|snapshot| snapshot.basis != Basis::Forgotten);
        with_members(&mut self.connection, None, &mut seen).await?;
        Ok(seen)
    }

    async fn happened(&mut self, election: &ElectionName, limit: u32) -> Result<Vec<MemberEvent>, Fault> {
        let parameters = [election.as_str().into(), u64::from(limit).into()];
        let rows = self.connection.run(member_statements::EVENTS, &parameters, Stake::Reading).await?;
        member_records::events(&rows, self.connection.shown())
    }

    async fn terms(&mut self, election: &ElectionName, limit: u32) -> Result<Vec<Term>, Fault> {
        let parameters = [election.as_str().into(), u64::from(limit).into()];
        let rows = self.connection.run(observer_statements::HISTORY, &parameters, Stake::Reading).await?;
        records::terms(&rows)
    }

    async fn write(&mut self, election: &ElectionName, order: &Order) -> Result<OrderOutcome, Fault> {
        for _ in 0..JUDGEMENTS {
            let Some(before) = self.look(election).await?.0 else { return Ok(OrderOutcome::NoSuchElection) };
            let (new, ended) = match OrderOutcome::judge(&before, order) {
                ControlFlow::Continue(written) => written,
                ControlFlow::Break(unchanged) => return Ok(unchanged),
            };
            if self.swap(election, &before.record, &new, ended.as_ref()).await? {
                return Ok(OrderOutcome::Written(before));
            }
        }
        Err(Fault::Said(StoreError::Unreachable(format!("{}: the row changes all the time", self.connection.shown()))))
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
        let (handover, successor) = records::handover_columns(new.handover.as_ref());
        let parameters = [
            election.as_str().into(),
            old.version.token.get().into(),
            old.version.beat.into(),
            old.order_number.into(),
            empties.into(),
            handover.into(),
            successor.into(),
            new.paused.into(),
            ended.map(EndReason::word).into(),
        ];
        Ok(!self.connection.run(statements::ORDER, &parameters, Stake::Writing).await?.is_empty())
    }

    async fn remove(&mut self, election: &ElectionName) -> Result<ForgetOutcome, Fault> {
        for _ in 0..JUDGEMENTS {
            let (before, fence) = self.look(election).await?;
            let Some(before) = before else { return Ok(ForgetOutcome::NoSuchElection) };
            if let Some(unchanged) = ForgetOutcome::unchanged(&before) {
                if matches!(unchanged, ForgetOutcome::Already(_)) {
                    self.remove_registers(election).await?;
                }
                return Ok(unchanged);
            }
            let token = row::token_of_forgetting(fence.max(before.record.version.token)).map_err(StoreError::from)?;
            let (nobody, version) = (nobody(), before.record.version);
            let mut parameters = vec![
                election.as_str().into(),
                fence.get().into(),
                token.get().into(),
                CandidateId::from_bits(0).into(),
                nobody.as_str().into(),
            ];
            let statement = match before.basis {
                Basis::Record => {
                    parameters.extend([
                        version.token.get().into(),
                        version.beat.into(),
                        before.record.order_number.into(),
                    ]);
                    observer_statements::FORGET
                }
                Basis::Remains | Basis::Forgotten => observer_statements::FORGET_REMAINS,
            };
            if !self.connection.run(statement, &parameters, Stake::Writing).await?.is_empty() {
                self.remove_registers(election).await?;
                return Ok(ForgetOutcome::Done(before));
            }
        }
        Err(Fault::Said(StoreError::Unreachable(format!("{}: the row changes all the time", self.connection.shown()))))
    }

    async fn remove_registers(&mut self, election: &ElectionName) -> Result<(), Fault> {
        let gone = self.connection.run(member_statements::FORGET, &[election.as_str().into()], Stake::Writing).await;
        none_without_tables(gone).map(drop)
    }

    fn told<T>(&self, result: Result<T, Fault>, stake: Stake) -> Result<T, StoreError> {
        result.map_err(|fault| fault.meaning(self.connection.shown(), stake))
    }
}

/// These elections, in any order; those that there have never been are missing.
pub(super) async fn look_at(connection: &mut Connection, elections: &[ElectionName]) -> Result<Vec<Snapshot>, Fault> {
    let names = elections.iter().map(ElectionName::as_str).collect();
    let mut seen =
        records::snapshots(&connection.run(observer_statements::SNAPSHOTS, &[names], Stake::Reading).await?)?;
    with_members(connection, Some(elections), &mut seen).await?;
    Ok(seen)
}

/// The members of these elections, or of all.
async fn roster(
    connection: &mut Connection,
    elections: Option<&[ElectionName]>,
) -> Result<Vec<(ElectionName, Members)>, Fault> {
    let names = elections.map(|elections| elections.iter().map(ElectionName::as_str).collect());
    let parameters = [names.unwrap_or(Parameter::ManyTexts(None))];
    let rows = connection.run(member_statements::MEMBERS, &parameters, Stake::Reading).await?;
    member_records::members(&rows, connection.shown())
}

/// Adds to snapshots the candidates that wait as members, read just after them. A user that has no right to see members, or
/// meets tables of another version, sees the elections without them.
async fn with_members(
    connection: &mut Connection,
    elections: Option<&[ElectionName]>,
    snapshots: &mut [Snapshot],
) -> Result<(), Fault> {
    let all = match roster(connection, elections).await {
        Ok(all) => all,
        Err(fault @ Fault::Sql(_)) if fault.code().is_none() => return Err(fault),
        Err(fault) => {
            debug!(?fault, "no members are shown");
            return Ok(());
        }
    };
    let mut all: BTreeMap<ElectionName, Members> = all.into_iter().collect();
    for snapshot in snapshots {
        if let Some(Members { vars, members }) = all.remove(&snapshot.election) {
            roster::add_members(&mut snapshot.candidates, &snapshot.record, vars.round, members);
        }
    }
    Ok(())
}

/// Where nobody has ever joined, there need be no tables.
fn none_without_tables<T>(result: Result<Vec<T>, Fault>) -> Result<Vec<T>, Fault> {
    match result {
        Err(fault) if fault.code() == Some("42P01") => Ok(Vec::new()),
        other => other,
    }
}

impl Admin for PostgresAdmin {
    fn snapshot<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>> {
        Box::pin(async move {
            let seen = self.look(election).await.map(|(seen, _)| seen);
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

    fn members<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Members>, StoreError>> {
        Box::pin(async move {
            let seen = none_without_tables(roster(&mut self.connection, Some(std::slice::from_ref(election))).await);
            Ok(self.told(seen, Stake::Reading)?.pop().map(|(_, members)| members))
        })
    }

    fn events<'a>(
        &'a mut self,
        election: &'a ElectionName,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<MemberEvent>, StoreError>> {
        Box::pin(async move {
            let seen = none_without_tables(self.happened(election, limit).await);
            self.told(seen, Stake::Reading)
        })
    }

    fn order<'a>(
        &'a mut self,
        election: &'a ElectionName,
        order: Order,
    ) -> BoxFuture<'a, Result<OrderOutcome, StoreError>> {
        Box::pin(async move {
            let written = self.write(election, &order).await;
            self.told(written, Stake::Writing)
        })
    }

    fn forget<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<ForgetOutcome, StoreError>> {
        Box::pin(async move {
            let forgotten = self.remove(election).await;
            if forgotten.as_ref().is_err_and(|fault| fault.code() == Some(schema::LACKS_RIGHT)) {
                let schema = self.connection.schema();
                return Err(StoreError::Unusable(format!(
                    "{}: this user lacks a right that forgetting takes, and that candidates have not: let an administrator \
                     run it, or GRANT DELETE ON \"{schema}\".primacy_election, \"{schema}\".primacy_round and the other \
                     rights of operators that the end of `primacy schema` shows",
                    self.connection.shown()
                )));
            }
            self.told(forgotten, Stake::Writing)
        })
    }

    fn probe(&mut self) -> BoxFuture<'_, Result<Probe, StoreError>> {
        Box::pin(async move {
            // Settings may have changed since the connection was opened.
            self.server = schema::inspect(&mut self.connection).await?;
            let probed = probe::run(&mut self.connection, &self.server, &self.notifier).await;
            self.told(probed, Stake::Reading)
        })
    }
}
