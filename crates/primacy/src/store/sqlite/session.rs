//! One candidate's steps, each a short transaction on the election's row.

use std::time::Duration;

use rusqlite::Connection;

use super::super::announcement_failure::AnnouncementFailure;
use super::super::{
    Announcement, BoxFuture, EndReason, Expectation, Floor, Holder, Record, Reply, Request, Session, Sighting,
    Standing, StoreError, Version,
};
use super::connection::{Db, Durability, End};
use super::errors::Fault;
use super::hints::HintFile;
use super::host::Host;
use super::records::{self, StampChange, StoredState};
use super::url::DatabaseFile;
use super::worker::{Abandoned, Worker, with_patience};
use crate::{CandidateId, ElectionName, Instant, clock};
use primacy_core::lease::row::{self, Renewal};
use primacy_core::lease::wait_queue;

/// How long an announcement may wait for its turn. Looking must go on without it.
const ANNOUNCEMENT_PATIENCE: Duration = Duration::from_millis(100);

/// A candidate's connection.
#[derive(Debug)]
pub(super) struct SqliteSession(Worker<SessionState>);

impl SqliteSession {
    pub(super) async fn open(file: &DatabaseFile, election: &ElectionName, me: &Holder) -> Result<Self, StoreError> {
        let (file, memory) = (file.clone(), SessionMemory::new(file, election, me));
        Worker::start(&file.stuck.clone(), move |abandoned| SessionState::open(&file, memory, abandoned))
            .await
            .map(Self)
    }
}

impl Session for SqliteSession {
    fn step(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, StoreError>> {
        Box::pin(self.0.call(move |SessionState { db, memory }| Step { db, memory }.take(request)))
    }
}

/// What the thread of a session owns.
struct SessionState {
    db: Db,
    memory: SessionMemory,
}

impl SessionState {
    fn open(file: &DatabaseFile, memory: SessionMemory, abandoned: &Abandoned) -> Result<Self, StoreError> {
        Ok(Self { db: Db::create_writable(file, abandoned)?, memory })
    }
}

/// What a session remembers from one step to the next.
pub(super) struct SessionMemory {
    pub(super) election: ElectionName,
    me: Holder,
    hint_file: HintFile,
    announced_at: Option<Instant>,
    announcement_failure: AnnouncementFailure,
}

impl SessionMemory {
    pub(super) fn new(file: &DatabaseFile, election: &ElectionName, me: &Holder) -> Self {
        Self {
            election: election.clone(),
            me: me.clone(),
            hint_file: HintFile::of(file.path(), election),
            announced_at: None,
            announcement_failure: AnnouncementFailure::default(),
        }
    }
}

/// A step of a session over a connection, which may be its own.
pub(super) struct Step<'a> {
    pub(super) db: &'a mut Db,
    pub(super) memory: &'a mut SessionMemory,
}

impl Step<'_> {
    pub(super) fn take(&mut self, request: Request) -> Result<Reply, StoreError> {
        match request {
            Request::Look { announce } => {
                if let Some(said) = announce {
                    self.announce(&said);
                }
                self.look().map(Reply::Seen)
            }
            Request::Acquire { expect, floor, holder, lease } => self.acquire(expect, floor, holder, lease),
            Request::Renew { id, version, lease, completed_order } => {
                self.renew(Renewal { id, version, lease, completed_order })
            }
            Request::Release { id, version, reason } => self.release(id, version, &reason),
            Request::Leave => self.leave(),
        }
    }

    fn look(&mut self) -> Result<Sighting, StoreError> {
        let (election, me, host) = (self.memory.election.clone(), self.memory.me.id, self.db.host);
        let sighting = |conn: &Connection| {
            let stored = records::load(conn, &election)?;
            Ok((stored, records::standing(conn, &election, me, &host)?))
        };
        let (stored, standing) = self.db.read(sighting)?;
        Ok(self.sight(stored, standing))
    }

    fn sight(&self, stored: StoredState, standing: Standing) -> Sighting {
        sight(self.db, &self.memory.hint_file, stored, standing)
    }

    /// A store that cannot be written just now can still be looked at.
    fn announce(&mut self, said: &Announcement) {
        let (election, me, host) = (self.memory.election.clone(), self.memory.me.clone(), self.db.host);
        let since_last = self.memory.announced_at.map(|at| clock::now().since(at));
        let written = with_patience(ANNOUNCEMENT_PATIENCE, || {
            self.db.write(Durability::Normal, |conn| {
                let lease = records::load(conn, &election)?.record().map(|record| record.lease);
                let fresh_for = wait_queue::fresh_for(lease, since_last);
                records::announce(conn, &election, &me, said, &host, fresh_for).map(End::Commit)
            })
        });
        match written {
            Ok(()) => {
                self.memory.announced_at = Some(clock::now());
                self.memory.announcement_failure.end();
            }
            Err(error) => self.memory.announcement_failure.tell(&self.memory.election, &error),
        }
    }

    fn acquire(
        &mut self,
        expect: Option<Expectation>,
        floor: Floor,
        holder: Holder,
        lease: Duration,
    ) -> Result<Reply, StoreError> {
        // Losers read; only who may win waits for the lock and writes.
        let sighting = self.look()?;
        if sighting.record.as_ref().map(Record::expectation) != expect {
            return Ok(Reply::Conflict(sighting));
        }
        // Opened before the lock is taken: what others may have put there must not keep it.
        let memory = self.memory.hint_file.memory();
        let beside = memory.remembered();
        let reply = self.change(|conn, stored, election, host| {
            let remembered = stored.remembered.max(beside);
            let old = stored.record();
            let Some(new) =
                row::acquire(old, expect, remembered, 0, floor, &holder, lease).map_err(StoreError::from)?
            else {
                return Ok(None);
            };
            if !records::swap(conn, election, old, &new, host, StampChange::Granted)? {
                return Ok(None);
            }
            records::open_term(conn, election, old, &new, &holder)?;
            records::withdraw(conn, election, holder.id)?;
            memory.remember(new.version.token);
            Ok(Some(new))
        })?;
        self.ring_if_applied(&reply);
        Ok(reply)
    }

    fn renew(&mut self, renewal: Renewal) -> Result<Reply, StoreError> {
        self.change(|conn, stored, election, host| renew(conn, stored, election, host, &renewal))
    }

    fn release(&mut self, id: CandidateId, version: Version, reason: &EndReason) -> Result<Reply, StoreError> {
        let reply = self.change(|conn, stored, election, host| {
            let Some(new) = row::release(stored.record(), id, version) else { return Ok(None) };
            if !records::swap(conn, election, stored.record(), &new, host, StampChange::Neither)? {
                return Ok(None);
            }
            records::close_term(conn, election, new.version.token, reason.word())?;
            Ok(Some(new))
        })?;
        self.ring_if_applied(&reply);
        Ok(reply)
    }

    fn leave(&mut self) -> Result<Reply, StoreError> {
        let (election, me) = (self.memory.election.clone(), self.memory.me.id);
        if self.db.read(|conn| records::is_announced(conn, &election, me))? {
            self.db.write(Durability::Normal, |conn| records::withdraw(conn, &election, me).map(End::Commit))?;
        }
        Ok(Reply::Left)
    }

    /// Runs a durable transaction that either changes the row, or answers with what stands in it.
    fn change<F>(&mut self, change: F) -> Result<Reply, StoreError>
    where
        F: FnOnce(&Connection, &StoredState, &ElectionName, &Host) -> Result<Option<Record>, Fault>,
    {
        let (election, me, host) = (self.memory.election.clone(), self.memory.me.id, self.db.host);
        let changed = self.db.write(Durability::Full, |conn| {
            let stored = records::load(conn, &election)?;
            match change(conn, &stored, &election, &host)? {
                Some(record) => Ok(End::Commit(Ok(record))),
                None => {
                    let standing = records::standing(conn, &election, me, &host)?;
                    Ok(End::Rollback(Err((stored, standing))))
                }
            }
        })?;
        Ok(match changed {
            Ok(record) => Reply::Applied(record),
            Err((stored, standing)) => Reply::Conflict(self.sight(stored, standing)),
        })
    }

    fn ring_if_applied(&self, reply: &Reply) {
        if matches!(reply, Reply::Applied(_)) {
            self.memory.hint_file.ring();
        }
    }
}

/// Renews within a transaction that is open; nothing, if the row is not as the renewal expects it.
pub(super) fn renew(
    conn: &Connection,
    stored: &StoredState,
    election: &ElectionName,
    host: &Host,
    renewal: &Renewal,
) -> Result<Option<Record>, Fault> {
    let Some(new) = row::renew(stored.record(), renewal) else { return Ok(None) };
    let swapped = records::swap(conn, election, stored.record(), &new, host, StampChange::Renewed)?;
    Ok(swapped.then_some(new))
}

/// What was read, and what follows from it on this host.
pub(super) fn sight(db: &Db, hint_file: &HintFile, stored: StoredState, standing: Standing) -> Sighting {
    let Some(row) = stored.row else {
        // R11: what the database has forgotten, the hint file may still know.
        let remembered = stored.remembered.max(hint_file.remembered());
        return Sighting { record: None, remembered, age: None, holder_gone: false, standing };
    };
    let held = row.record.holder.is_some();
    Sighting {
        remembered: stored.remembered,
        age: db.host.age_of(row.renewed),
        holder_gone: held && db.file.is_of_one_host() && db.host.has_restarted_since(&row.by),
        standing,
        record: Some(row.record),
    }
}
