//! Observers and operators of a file.

use std::ops::ControlFlow;

use super::super::{
    Admin, Basis, BoxFuture, ForgetOutcome, MemberEvent, Members, Order, OrderOutcome, Probe, Snapshot, StoreError,
    Term,
};
use super::connection::{Db, Durability, End};
use super::errors::Fault;
use super::hints::HintFile;
use super::records::{self, StampChange};
use super::url::DatabaseFile;
use super::worker::Worker;
use super::{member_statements, probe, schema};
use crate::ElectionName;
use primacy_core::lease::row;

/// The connection of an observer or operator.
#[derive(Debug)]
pub(super) struct SqliteAdmin(Worker<Db>);

impl SqliteAdmin {
    pub(super) async fn open(file: &DatabaseFile) -> Result<Self, StoreError> {
        let file = file.clone();
        Worker::start(&file.stuck.clone(), move |abandoned| Db::existing(&file, abandoned)).await.map(Self)
    }
}

impl Admin for SqliteAdmin {
    fn snapshot<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>> {
        let election = election.clone();
        Box::pin(self.0.call(move |db| {
            let host = db.host;
            db.snapshot(|conn| records::snapshot(conn, &election, &host))
        }))
    }

    fn elections(&mut self) -> BoxFuture<'_, Result<Vec<Snapshot>, StoreError>> {
        Box::pin(self.0.call(|db| {
            let host = db.host;
            db.snapshot(|conn| {
                let names = records::elections(conn)?;
                let snapshots = names.iter().map(|name| records::snapshot(conn, name, &host));
                let is_shown = |seen: &Result<Snapshot, Fault>| {
                    seen.as_ref().map_or(true, |snapshot| snapshot.basis != Basis::Forgotten)
                };
                snapshots.filter_map(Result::transpose).filter(is_shown).collect()
            })
        }))
    }

    fn history<'a>(
        &'a mut self,
        election: &'a ElectionName,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Term>, StoreError>> {
        let election = election.clone();
        Box::pin(self.0.call(move |db| db.read(|conn| records::history(conn, &election, limit))))
    }

    fn members<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Members>, StoreError>> {
        let election = election.clone();
        Box::pin(self.0.call(move |db| {
            let (host, file) = (db.host, db.file.clone());
            db.snapshot(|conn| {
                if schema::has_registers(conn, &file)? {
                    member_statements::members(conn, &election, &host)
                } else {
                    Ok(None)
                }
            })
        }))
    }

    fn events<'a>(
        &'a mut self,
        election: &'a ElectionName,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<MemberEvent>, StoreError>> {
        let election = election.clone();
        Box::pin(self.0.call(move |db| {
            let file = db.file.clone();
            db.snapshot(|conn| {
                let there = schema::has_registers(conn, &file)?;
                if there { member_statements::events(conn, &election, limit) } else { Ok(Vec::new()) }
            })
        }))
    }

    fn order<'a>(
        &'a mut self,
        election: &'a ElectionName,
        order: Order,
    ) -> BoxFuture<'a, Result<OrderOutcome, StoreError>> {
        let election = election.clone();
        Box::pin(self.0.call(move |db| {
            let ordered = write_order(db, &election, &order)?;
            if matches!(ordered, OrderOutcome::Written(_)) {
                HintFile::of(db.file.path(), &election).ring();
            }
            Ok(ordered)
        }))
    }

    fn forget<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<ForgetOutcome, StoreError>> {
        let election = election.clone();
        Box::pin(self.0.call(move |db| {
            let hint_file = HintFile::of(db.file.path(), &election);
            let forgotten = remove(db, &election, &hint_file)?;
            if !matches!(forgotten, ForgetOutcome::Refused(..)) {
                hint_file.ring();
                hint_file.remove();
            }
            Ok(forgotten)
        }))
    }

    fn probe(&mut self) -> BoxFuture<'_, Result<Probe, StoreError>> {
        Box::pin(self.0.call(probe::run))
    }
}

fn remove(db: &mut Db, election: &ElectionName, hint_file: &HintFile) -> Result<ForgetOutcome, StoreError> {
    let (host, beside) = (db.host, hint_file.remembered());
    db.write(Durability::Full, |conn| {
        let Some(before) = records::snapshot(conn, election, &host)? else {
            return Ok(End::Rollback(ForgetOutcome::NoSuchElection));
        };
        if let Some(unchanged) = ForgetOutcome::unchanged(&before) {
            return Ok(End::Rollback(unchanged));
        }
        let highest = records::load(conn, election)?.remembered.max(before.record.version.token).max(beside);
        let token = row::token_of_forgetting(highest).map_err(StoreError::from)?;
        records::forget(conn, election, token)?;
        Ok(End::Commit(ForgetOutcome::Done(before)))
    })
}

fn write_order(db: &mut Db, election: &ElectionName, order: &Order) -> Result<OrderOutcome, StoreError> {
    let host = db.host;
    db.write(Durability::Full, |conn| {
        let Some(before) = records::snapshot(conn, election, &host)? else {
            return Ok(End::Rollback(OrderOutcome::NoSuchElection));
        };
        let (new, ended) = match OrderOutcome::judge(&before, order) {
            ControlFlow::Continue(written) => written,
            ControlFlow::Break(unchanged) => return Ok(End::Rollback(unchanged)),
        };
        let row = &before.record;
        if !records::swap(conn, election, Some(row), &new, &host, StampChange::Neither)? {
            return Err(Fault::Damaged("the row of the election"));
        }
        if let Some(reason) = ended {
            records::close_term(conn, election, row.version.token, reason.word())?;
        }
        Ok(End::Commit(OrderOutcome::Written(before)))
    })
}
