//! One process's rounds, each a short transaction.
//!
//! A file has one writer at a time, so that whatever a round reads after its `BEGIN IMMEDIATE` is also what stands when it
//! commits: no row needs a lock of its own. A beat commits without waiting for the disk, since a power cut ends everyone
//! who could tell that a counter went back; what gives or takes away a number is durable.

use std::time::Duration;

use rusqlite::Connection;

use super::super::{BoxFuture, Registry, Sighting, Standing, StoreError};
use super::connection::{Db, Durability, End};
use super::errors::Fault;
use super::hints::HintFile;
use super::records::{self, StoredState};
use super::session::sight;
use super::url::DatabaseFile;
use super::worker::{Abandoned, Worker};
use super::{member_statements, schema};
use crate::{CandidateId, ElectionName, Token};
use primacy_core::registers::{Candidacy, Eviction, MemberEventKind, ProcessId, Reply, Request, process_label};
use primacy_core::select::Rank;

/// A process's connection.
#[derive(Debug)]
pub(super) struct SqliteRegistry(Worker<Rounds>);

impl SqliteRegistry {
    pub(super) async fn open(file: &DatabaseFile, election: &ElectionName) -> Result<Self, StoreError> {
        let (file, election) = (file.clone(), election.clone());
        Worker::start(&file.stuck.clone(), move |abandoned| Rounds::open(&file, election, abandoned)).await.map(Self)
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
    hint_file: HintFile,
}

/// What a leader's scan is to do.
struct MembershipScan {
    process: ProcessId,
    holder: CandidateId,
    token: Token,
    evict: Vec<(ProcessId, u64, Duration)>,
    round: Option<(Duration, u64)>,
}

/// A process that takes no part: why, if that is known, and the election's row.
type Outside = (Option<Eviction>, StoredState);

impl Rounds {
    fn open(file: &DatabaseFile, election: ElectionName, abandoned: &Abandoned) -> Result<Self, StoreError> {
        let mut db = Db::create_writable(file, abandoned)?;
        if !db.read(|conn| schema::has_registers(conn, file))? {
            db.write(Durability::Full, |conn| {
                if schema::has_registers(conn, file)? {
                    return Ok(End::Rollback(()));
                }
                schema::create_registers(conn).map(End::Commit)
            })?;
        }
        let hint_file = HintFile::of(file.path(), &election);
        Ok(Self { db, election, hint_file })
    }

    fn take(&mut self, request: Request) -> Result<Reply, StoreError> {
        match request {
            Request::Join { process, candidates, rank, came_back, round } => {
                self.join(process, &candidates, rank, came_back, round)
            }
            Request::Beat { process, late, without, head } => self.beat(process, late, &without, head),
            Request::MembershipScan { process, holder, token, evict, round } => {
                self.scan(&MembershipScan { process, holder, token, evict, round })
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
            member_statements::begin(conn, election, round)?;
            let vars = member_statements::present_vars(conn, election)?;
            if let Some(id) = member_statements::number_of(conn, election, process)? {
                member_statements::set_rank(conn, election, process, rank)?;
                member_statements::set_candidates(conn, election, process, candidates)?;
                return Ok(End::Commit(Reply::Joined { id, vars }));
            }
            let vars = vars.joined(came_back);
            member_statements::set_vars(conn, election, &vars)?;
            member_statements::insert(conn, election, process, vars.max_id, rank, &host)?;
            member_statements::set_candidates(conn, election, process, candidates)?;
            let label = process_label(process, candidates);
            member_statements::happens(conn, election, &MemberEventKind::Joined { process, label, came_back })?;
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
            if !member_statements::beat(conn, election, process, Some(late), &host)? {
                return outside(conn, election, process).map(|outside| End::Rollback(Err(outside)));
            }
            let vars = member_statements::present_vars(conn, election)?;
            let head = member_statements::head(conn, election, without, head)?;
            Ok(End::Commit(Ok((vars, head, records::load(conn, election)?))))
        })?;
        Ok(match beaten {
            Ok((vars, head, stored)) => Reply::Beaten { vars, head, sighting: self.sight(stored) },
            Err(outside) => self.evicted(outside),
        })
    }

    fn scan(&mut self, scan: &MembershipScan) -> Result<Reply, StoreError> {
        let MembershipScan { process, holder, token, ref evict, round } = *scan;
        let (election, host) = (&self.election, self.db.host);
        let has_duties = !evict.is_empty() || round.is_some();
        let durability = if has_duties { Durability::Full } else { Durability::Normal };
        let scanned = self.db.write(durability, |conn| {
            let stored = records::load(conn, election)?;
            let record = stored.record().filter(|record| record.version.token == token);
            let Some(leader) = record.and_then(|record| record.holder.as_ref()).filter(|leader| leader.id == holder)
            else {
                return Ok(End::Rollback(Ok(Reply::NotLeading)));
            };
            if !member_statements::beat(conn, election, process, None, &host)? {
                return outside(conn, election, process).map(|outside| End::Rollback(Err(outside)));
            }
            let mut vars = member_statements::present_vars(conn, election)?;
            if vars.leader != Some(process) {
                vars.leader = Some(process);
                member_statements::set_vars(conn, election, &vars)?;
            }
            for &(process, counter, silent) in evict {
                if let Some(label) = member_statements::remove(conn, election, process, Some(counter))? {
                    let eviction = Eviction { by: leader.label.clone(), token, silent };
                    member_statements::happens(conn, election, &MemberEventKind::Evicted { process, label, eviction })?;
                }
            }
            if let Some((round, changes)) = round
                && let Some(paced) = vars.paced(round, changes)
            {
                member_statements::set_vars(conn, election, &paced)?;
                if paced.round != vars.round {
                    member_statements::happens(conn, election, &MemberEventKind::Round { round })?;
                }
                vars = paced;
            }
            let descriptors = member_statements::everybody(conn, election)?;
            Ok(End::Commit(Ok(Reply::Scanned { vars, descriptors })))
        })?;
        Ok(scanned.unwrap_or_else(|outside| self.evicted(outside)))
    }

    fn leave(&mut self, process: ProcessId) -> Result<Reply, StoreError> {
        let election = &self.election;
        let leads = |conn: &Connection| {
            let vars = member_statements::vars(conn, election)?;
            Ok::<_, Fault>(vars.filter(|vars| vars.leader == Some(process)))
        };
        let is_there = |conn: &Connection| {
            Ok(leads(conn)?.is_some() || member_statements::number_of(conn, election, process)?.is_some())
        };
        if self.db.read(is_there)? {
            self.db.write(Durability::Full, |conn| {
                if let Some(vars) = leads(conn)? {
                    member_statements::set_vars(
                        conn,
                        election,
                        &primacy_core::registers::Vars { leader: None, ..vars },
                    )?;
                }
                if let Some(label) = member_statements::remove(conn, election, process, None)? {
                    member_statements::happens(conn, election, &MemberEventKind::Left { process, label })?;
                }
                Ok(End::Commit(()))
            })?;
        }
        Ok(Reply::Left)
    }

    fn evicted(&self, (eviction, stored): Outside) -> Reply {
        Reply::Evicted { eviction, sighting: self.sight(stored) }
    }

    fn sight(&self, stored: StoredState) -> Sighting {
        sight(&self.db, &self.hint_file, stored, Standing::default())
    }
}

fn outside(conn: &Connection, election: &ElectionName, process: ProcessId) -> Result<Outside, Fault> {
    Ok((member_statements::eviction_of(conn, election, process)?, records::load(conn, election)?))
}
