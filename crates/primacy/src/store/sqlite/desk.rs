//! Observers and operators of a file.

use super::super::{
    Basis, BoxFuture, Desk, Forgotten, MemberEvent, Members, Order, Ordered, Probe, Snapshot, StoreError, Term, forget,
};
use super::board::Board;
use super::db::{Db, Durability, End};
use super::fault::Fault;
use super::place::Place;
use super::rows::{self, Stamped};
use super::worker::Worker;
use super::{probe, registers, schema};
use crate::ElectionName;
use primacy_core::lease::row::{self, Verdict};

/// The connection of an observer or operator.
#[derive(Debug)]
pub(super) struct SqliteDesk(Worker<Db>);

impl SqliteDesk {
    pub(super) async fn open(place: &Place) -> Result<Self, StoreError> {
        let place = place.clone();
        Worker::start(&place.stuck.clone(), move |abandoned| Db::existing(&place, abandoned)).await.map(Self)
    }
}

impl Desk for SqliteDesk {
    fn snapshot<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>> {
        let election = election.clone();
        Box::pin(self.0.call(move |db| {
            let host = db.host;
            db.snapshot(|conn| rows::snapshot(conn, &election, &host))
        }))
    }

    fn elections(&mut self) -> BoxFuture<'_, Result<Vec<Snapshot>, StoreError>> {
        Box::pin(self.0.call(|db| {
            let host = db.host;
            db.snapshot(|conn| {
                let names = rows::elections(conn)?;
                let snapshots = names.iter().map(|name| rows::snapshot(conn, name, &host));
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
        Box::pin(self.0.call(move |db| db.read(|conn| rows::history(conn, &election, limit))))
    }

    fn members<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Members>, StoreError>> {
        let election = election.clone();
        Box::pin(self.0.call(move |db| {
            let (host, place) = (db.host, db.place.clone());
            db.snapshot(|conn| {
                if schema::has_registers(conn, &place)? { registers::members(conn, &election, &host) } else { Ok(None) }
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
            let place = db.place.clone();
            db.snapshot(|conn| {
                let there = schema::has_registers(conn, &place)?;
                if there { registers::events(conn, &election, limit) } else { Ok(Vec::new()) }
            })
        }))
    }

    fn order<'a>(&'a mut self, election: &'a ElectionName, order: Order) -> BoxFuture<'a, Result<Ordered, StoreError>> {
        let election = election.clone();
        Box::pin(self.0.call(move |db| {
            let ordered = write_order(db, &election, &order)?;
            if matches!(ordered, Ordered::Written(_)) {
                Board::of(db.place.path(), &election).ring();
            }
            Ok(ordered)
        }))
    }

    fn forget<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Forgotten, StoreError>> {
        let election = election.clone();
        Box::pin(self.0.call(move |db| {
            let board = Board::of(db.place.path(), &election);
            let forgotten = remove(db, &election, &board)?;
            if !matches!(forgotten, Forgotten::Refused(..)) {
                board.ring();
                board.remove();
            }
            Ok(forgotten)
        }))
    }

    fn probe(&mut self) -> BoxFuture<'_, Result<Probe, StoreError>> {
        Box::pin(self.0.call(probe::run))
    }
}

fn remove(db: &mut Db, election: &ElectionName, board: &Board) -> Result<Forgotten, StoreError> {
    let (host, beside) = (db.host, board.remembered());
    db.write(Durability::Full, |conn| {
        let Some(before) = rows::snapshot(conn, election, &host)? else {
            return Ok(End::Rollback(Forgotten::NoSuchElection));
        };
        if let Some(unchanged) = forget::unchanged(&before) {
            return Ok(End::Rollback(unchanged));
        }
        let highest = rows::load(conn, election)?.remembered.max(before.record.version.token).max(beside);
        let token = row::token_of_forgetting(highest).map_err(StoreError::from)?;
        rows::forget(conn, election, token)?;
        Ok(End::Commit(Forgotten::Done(before)))
    })
}

fn write_order(db: &mut Db, election: &ElectionName, order: &Order) -> Result<Ordered, StoreError> {
    let host = db.host;
    db.write(Durability::Full, |conn| {
        let Some(before) = rows::snapshot(conn, election, &host)? else {
            return Ok(End::Rollback(Ordered::NoSuchElection));
        };
        if before.basis != Basis::Record {
            return Ok(End::Rollback(Ordered::NoRecord(before)));
        }
        let row = &before.record;
        let (new, ended) = match row::order(row, before.leader().is_some(), order) {
            Verdict::Already => return Ok(End::Rollback(Ordered::Already(before))),
            Verdict::TokenChanged => return Ok(End::Rollback(Ordered::TokenChanged(before))),
            Verdict::Write(new, ended) => (new, ended),
        };
        if !rows::swap(conn, election, Some(row), &new, &host, Stamped::Neither)? {
            return Err(Fault::Damaged("the row of the election"));
        }
        if let Some(reason) = ended {
            rows::close_term(conn, election, row.version.token, reason.word())?;
        }
        Ok(End::Commit(Ordered::Written(before)))
    })
}
