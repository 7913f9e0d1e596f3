//! Observers and operators of a database.

use std::ops::ControlFlow;
use std::time::Duration;

use tracing::debug;

use super::super::{
    Admin, Basis, BoxFuture, ForgetOutcome, MemberEvent, Members, Order, OrderOutcome, Probe, Snapshot, StoreError,
    Term, roster,
};
use super::answer::Answer;
use super::connection::Connection;
use super::errors::Fault;
use super::opening::Purpose;
use super::packet::Packet;
use super::url::StoreUrl;
use super::{member_records, member_statements, probe, records, schema};
use crate::{CandidateId, ElectionName, Instant, clock};

/// How often an order is written anew because the row has changed under it: a leader renews it, candidates take it.
const TRIES: u32 = 60;

/// The connection of an observer or operator.
pub(super) struct MysqlAdmin {
    connection: Connection,
    registers: Registers,
}

/// Whether the tables of the `registers` protocol are there.
enum Registers {
    Unasked,
    /// They were not at that moment.
    Missing(Instant),
    /// They stay.
    There,
}

/// For this long snapshots are without members once the tables were missing. Each question costs two round trips, and a fleet takes
/// snapshots of hundreds of elections in a row, to see whether others have a candidate's name.
const MISSING_FOR: Duration = Duration::from_secs(5);

impl MysqlAdmin {
    pub(super) async fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        Ok(Self { connection: Connection::open(url, Purpose::Observe).await?, registers: Registers::Unasked })
    }

    async fn ask(&mut self, statement: String) -> Result<Answer, StoreError> {
        let answers = self.connection.run(&Packet::read(statement)).await?;
        Ok(answers.into_iter().next().ok_or_else(|| Fault::damaged("an answer"))?)
    }

    async fn snapshots(&mut self, election: Option<&ElectionName>) -> Result<Vec<Snapshot>, StoreError> {
        let answer = self.ask(records::snapshots(election)).await?;
        let mut snapshots = records::read_snapshots(answer, self.connection.host())?;
        if matches!(self.registers, Registers::Missing(at) if clock::now().since(at) < MISSING_FOR) {
            return Ok(snapshots);
        }
        let members = match self.members_of(election).await {
            Ok(members) => members,
            // Of another version, or not for this user: who leads can be told all the same.
            Err(StoreError::Unusable(message)) => {
                debug!(message, "members are not shown");
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        for (election, Members { vars, members }) in members {
            // Both are in the order of their names, as bytes.
            if let Ok(at) = snapshots.binary_search_by(|snapshot| snapshot.election.cmp(&election)) {
                let snapshot = &mut snapshots[at];
                roster::add_members(&mut snapshot.candidates, &snapshot.record, vars.round, members);
            }
        }
        Ok(snapshots)
    }

    async fn members_of(
        &mut self,
        election: Option<&ElectionName>,
    ) -> Result<Vec<(ElectionName, Members)>, StoreError> {
        if !self.has_registers().await? {
            return Ok(Vec::new());
        }
        let answer = self.ask(member_statements::members(election)).await?;
        Ok(member_records::members(answer, self.connection.host())?)
    }

    async fn has_registers(&mut self) -> Result<bool, StoreError> {
        if matches!(self.registers, Registers::There) {
            return Ok(true);
        }
        let now = clock::now();
        let are_there = schema::has_registers(&mut self.connection).await?;
        self.registers = if are_there { Registers::There } else { Registers::Missing(now) };
        Ok(are_there)
    }

    /// Ends the waits of the pollers on this server, which then look at the row. Those of other users, and those on other
    /// nodes of a cluster, look a little later by themselves.
    async fn wake_lookouts(&mut self, election: &ElectionName) {
        if !self.connection.server.is_mariadb() {
            return;
        }
        let wake = async {
            let waits = self.ask(records::waits(election)).await?;
            for mut wait in waits.rows {
                // It may have ended by itself.
                let _ = self.connection.run(&Packet::read(format!("KILL QUERY ID {}", wait.number()?))).await;
            }
            Ok::<_, StoreError>(())
        };
        if let Err(error) = wake.await {
            debug!(%error, "the order is heard of a little later");
        }
    }

    async fn write_order(&mut self, election: &ElectionName, order: &Order) -> Result<OrderOutcome, StoreError> {
        for _ in 0..TRIES {
            let Some(before) = self.snapshots(Some(election)).await?.pop() else {
                return Ok(OrderOutcome::NoSuchElection);
            };
            let (new, ended) = match OrderOutcome::judge(&before, order) {
                ControlFlow::Continue(written) => written,
                ControlFlow::Break(unchanged) => return Ok(unchanged),
            };
            let change = records::change(election, &before.record, &new, ended.as_ref().map(|reason| reason.word()));
            match self.connection.make(&change).await {
                Ok(true) => {
                    self.wake_lookouts(election).await;
                    return Ok(OrderOutcome::Written(before));
                }
                Ok(false) | Err(Fault::Outrun(_)) => {}
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(StoreError::Unreachable(format!("{}: the row changes too often", self.connection.host())))
    }

    async fn remove(&mut self, election: &ElectionName) -> Result<ForgetOutcome, Fault> {
        for _ in 0..TRIES {
            let look = self.ask(records::look(election, CandidateId::from_bits(0))).await?;
            let seen = records::seen(look, self.connection.host())?;
            let Some(before) = self.snapshots(Some(election)).await?.pop() else {
                return Ok(ForgetOutcome::NoSuchElection);
            };
            if let Some(unchanged) = ForgetOutcome::unchanged(&before) {
                if matches!(unchanged, ForgetOutcome::Already(_)) {
                    self.remove_registers(election).await?;
                }
                return Ok(unchanged);
            }
            match self.connection.make(&records::forget_election(election, &before, &seen)?).await {
                Ok(true) => {
                    self.remove_registers(election).await?;
                    return Ok(ForgetOutcome::Done(before));
                }
                Ok(false) | Err(Fault::Outrun(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
        Err(StoreError::Unreachable(format!("{}: the row changes too often", self.connection.host())).into())
    }

    async fn remove_registers(&mut self, election: &ElectionName) -> Result<(), Fault> {
        if !self.has_registers().await? {
            return Ok(());
        }
        for _ in 0..TRIES {
            match self.connection.make(&member_statements::forget(election)).await {
                Err(Fault::Outrun(_)) => {}
                done => return done.map(drop),
            }
        }
        Err(StoreError::Unreachable(format!("{}: the rows change too often", self.connection.host())).into())
    }
}

impl Admin for MysqlAdmin {
    fn snapshot<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>> {
        Box::pin(async move { Ok(self.snapshots(Some(election)).await?.pop()) })
    }

    fn elections(&mut self) -> BoxFuture<'_, Result<Vec<Snapshot>, StoreError>> {
        Box::pin(async move {
            let mut all = self.snapshots(None).await?;
            all.retain(|snapshot| snapshot.basis != Basis::Forgotten);
            Ok(all)
        })
    }

    fn history<'a>(
        &'a mut self,
        election: &'a ElectionName,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Term>, StoreError>> {
        Box::pin(async move { Ok(records::read_history(self.ask(records::history(election, limit)).await?)?) })
    }

    fn members<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Members>, StoreError>> {
        Box::pin(async move { Ok(self.members_of(Some(election)).await?.pop().map(|(_, members)| members)) })
    }

    fn events<'a>(
        &'a mut self,
        election: &'a ElectionName,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<MemberEvent>, StoreError>> {
        Box::pin(async move {
            if !self.has_registers().await? {
                return Ok(Vec::new());
            }
            Ok(member_records::events(self.ask(member_statements::events(election, limit)).await?)?)
        })
    }

    fn order<'a>(
        &'a mut self,
        election: &'a ElectionName,
        order: Order,
    ) -> BoxFuture<'a, Result<OrderOutcome, StoreError>> {
        Box::pin(async move { self.write_order(election, &order).await })
    }

    fn forget<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<ForgetOutcome, StoreError>> {
        Box::pin(async move {
            self.remove(election).await.map_err(|fault| match fault.is_denied() {
                true => StoreError::Unusable(format!(
                    "{}: this user lacks a right that forgetting takes, and that candidates have not: let an administrator \
                     run it, or GRANT DELETE ON primacy_election and primacy_round as `primacy schema` shows ({})",
                    self.connection.host(),
                    fault.error()
                )),
                false => fault.into(),
            })
        })
    }

    fn probe(&mut self) -> BoxFuture<'_, Result<Probe, StoreError>> {
        Box::pin(probe::run(&mut self.connection))
    }
}
