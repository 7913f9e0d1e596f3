//! One process's rounds, each a short transaction.
//!
//! A file has one writer at a time, so that whatever a round reads after its `BEGIN IMMEDIATE` is also what stands when it
//! commits: no row needs a lock of its own. A beat commits without waiting for the disk, since a power cut ends everyone
//! who could tell that a counter went back; what gives or takes away a number is durable.

use std::time::Duration;

use rusqlite::Connection;

use super::super::registers::{Candidacy, Eviction, ProcessId, Reply, Request, process_label};
use super::super::{BoxFuture, MemberEventKind, Registry, Sighting, Standing, StoreError};
use super::board::Board;
use super::db::{Db, Durability, End};
use super::fault::Fault;
use super::place::Place;
use super::rows::{self, Stored};
use super::session::sight;
use super::worker::{Abandoned, Worker};
use super::{registers, schema};
use crate::{CandidateId, ElectionName, Token};
use primacy_core::select::Rank;

/// A process's connection.
#[derive(Debug)]
pub(super) struct SqliteRegistry(Worker<Rounds>);

impl SqliteRegistry {
    pub(super) async fn open(place: &Place, election: &ElectionName) -> Result<Self, StoreError> {
        let (place, election) = (place.clone(), election.clone());
        Worker::start(&place.stuck.clone(), move |abandoned| Rounds::open(&place, election, abandoned)).await.map(Self)
    }
}

impl Registry for SqliteRegistry {
    fn round(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, StoreError>> {
        Box::pin(self.0.call(move |rounds| rounds.take(request)))
    }
}

/// What the thread of a registry owns.
struct Rounds {
    db: Db,
    election: ElectionName,
    board: Board,
}

/// What a leader's survey is to do.
struct Survey {
    process: ProcessId,
    holder: CandidateId,
    token: Token,
    evict: Vec<(ProcessId, u64, Duration)>,
    round: Option<(Duration, u64)>,
}

/// A process that takes no part: why, if that is known, and the election's row.
type Outside = (Option<Eviction>, Stored);

impl Rounds {
    fn open(place: &Place, election: ElectionName, abandoned: &Abandoned) -> Result<Self, StoreError> {
        let mut db = Db::create_writable(place, abandoned)?;
        if !db.read(|conn| schema::has_registers(conn, place))? {
            db.write(Durability::Full, |conn| {
                if schema::has_registers(conn, place)? {
                    return Ok(End::Rollback(()));
                }
                schema::create_registers(conn).map(End::Commit)
            })?;
        }
        let board = Board::of(place.path(), &election);
        Ok(Self { db, election, board })
    }

    fn take(&mut self, request: Request) -> Result<Reply, StoreError> {
        match request {
            Request::Join { process, candidates, rank, came_back, round } => {
                self.join(process, &candidates, rank, came_back, round)
            }
            Request::Beat { process, late, without, head } => self.beat(process, late, &without, head),
            Request::Survey { process, holder, token, evict, round } => {
                self.survey(&Survey { process, holder, token, evict, round })
            }
            Request::Leave { process } => self.leave(process),
        }
    }

    fn join(
        &mut self,
        process: ProcessId,
        candidates: &[Candidacy],
        rank: Option<Rank>,
        came_back: Option<Duration>,
        round: Duration,
    ) -> Result<Reply, StoreError> {
        let (election, host) = (&self.election, self.db.host);
        self.db.write(Durability::Full, |conn| {
            registers::begin(conn, election, round)?;
            let vars = registers::present_vars(conn, election)?;
            if let Some(id) = registers::number_of(conn, election, process)? {
                registers::set_rank(conn, election, process, rank)?;
                registers::set_candidates(conn, election, process, candidates)?;
                return Ok(End::Commit(Reply::Joined { id, vars }));
            }
            let vars = vars.joined(came_back);
            registers::set_vars(conn, election, &vars)?;
            registers::insert(conn, election, process, vars.max_id, rank, &host)?;
            registers::set_candidates(conn, election, process, candidates)?;
            let label = process_label(process, candidates);
            registers::happens(conn, election, &MemberEventKind::Joined { process, label, came_back })?;
            Ok(End::Commit(Reply::Joined { id: vars.max_id, vars }))
        })
    }

    fn beat(
        &mut self,
        process: ProcessId,
        late: Duration,
        without: &[(ProcessId, u64)],
        head: u32,
    ) -> Result<Reply, StoreError> {
        let (election, host) = (&self.election, self.db.host);
        let beaten = self.db.write(Durability::Normal, |conn| {
            if !registers::beat(conn, election, process, Some(late), &host)? {
                return outside(conn, election, process).map(|outside| End::Rollback(Err(outside)));
            }
            let vars = registers::present_vars(conn, election)?;
            let head = registers::head(conn, election, without, head)?;
            Ok(End::Commit(Ok((vars, head, rows::load(conn, election)?))))
        })?;
        Ok(match beaten {
            Ok((vars, head, stored)) => Reply::Beaten { vars, head, sighting: self.sight(stored) },
            Err(outside) => self.evicted(outside),
        })
    }

    fn survey(&mut self, survey: &Survey) -> Result<Reply, StoreError> {
        let Survey { process, holder, token, ref evict, round } = *survey;
        let (election, host) = (&self.election, self.db.host);
        let has_duties = !evict.is_empty() || round.is_some();
        let durability = if has_duties { Durability::Full } else { Durability::Normal };
        let surveyed = self.db.write(durability, |conn| {
            let stored = rows::load(conn, election)?;
            let record = stored.record().filter(|record| record.version.token == token);
            let Some(leader) = record.and_then(|record| record.holder.as_ref()).filter(|leader| leader.id == holder)
            else {
                return Ok(End::Rollback(Ok(Reply::NotLeading)));
            };
            if !registers::beat(conn, election, process, None, &host)? {
                return outside(conn, election, process).map(|outside| End::Rollback(Err(outside)));
            }
            let mut vars = registers::present_vars(conn, election)?;
            if vars.leader != Some(process) {
                vars.leader = Some(process);
                registers::set_vars(conn, election, &vars)?;
            }
            for &(process, counter, silent) in evict {
                if let Some(label) = registers::remove(conn, election, process, Some(counter))? {
                    let eviction = Eviction { by: leader.label.clone(), token, silent };
                    registers::happens(conn, election, &MemberEventKind::Evicted { process, label, eviction })?;
                }
            }
            if let Some((round, changes)) = round
                && let Some(paced) = vars.paced(round, changes)
            {
                registers::set_vars(conn, election, &paced)?;
                if paced.round != vars.round {
                    registers::happens(conn, election, &MemberEventKind::Round { round })?;
                }
                vars = paced;
            }
            let descriptors = registers::everybody(conn, election)?;
            Ok(End::Commit(Ok(Reply::Surveyed { vars, descriptors })))
        })?;
        Ok(surveyed.unwrap_or_else(|outside| self.evicted(outside)))
    }

    fn leave(&mut self, process: ProcessId) -> Result<Reply, StoreError> {
        let election = &self.election;
        let leads = |conn: &Connection| {
            let vars = registers::vars(conn, election)?;
            Ok::<_, Fault>(vars.filter(|vars| vars.leader == Some(process)))
        };
        let is_there =
            |conn: &Connection| Ok(leads(conn)?.is_some() || registers::number_of(conn, election, process)?.is_some());
        if self.db.read(is_there)? {
            self.db.write(Durability::Full, |conn| {
                if let Some(vars) = leads(conn)? {
                    registers::set_vars(conn, election, &super::super::registers::Vars { leader: None, ..vars })?;
                }
                if let Some(label) = registers::remove(conn, election, process, None)? {
                    registers::happens(conn, election, &MemberEventKind::Left { process, label })?;
                }
                Ok(End::Commit(()))
            })?;
        }
        Ok(Reply::Left)
    }

    fn evicted(&self, (eviction, stored): Outside) -> Reply {
        Reply::Evicted { eviction, sighting: self.sight(stored) }
    }

    fn sight(&self, stored: Stored) -> Sighting {
        sight(&self.db, &self.board, stored, Standing::default())
    }
}

fn outside(conn: &Connection, election: &ElectionName, process: ProcessId) -> Result<Outside, Fault> {
    Ok((registers::eviction_of(conn, election, process)?, rows::load(conn, election)?))
}
