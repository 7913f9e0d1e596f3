//! One candidate's steps, each a round trip or two.

use std::sync::Arc;

use super::super::announcement_failure::AnnouncementFailure;
use super::super::{
    Announcement, BoxFuture, EndReason, Expectation, Floor, Holder, Record, Reply, Request, Session, Sighting,
    StoreError, Version,
};
use super::answer::Answer;
use super::change::Change;
use super::connection::Connection;
use super::errors::Fault;
use super::hint_state::HintState;
use super::opening::Purpose;
use super::packet::Packet;
use super::presence::Presence;
use super::records::{self, Look, StampChange};
use super::url::StoreUrl;
use super::waiting_order::WaitingOrder;
use crate::{CandidateId, ElectionName, Instant, Token, clock};
use primacy_core::lease::row::{self, Renewal};
use primacy_core::lease::wait_queue;

/// How often a step looks again because the row has changed under it. Each time somebody else's step was taken.
const TRIES: u32 = 12;

/// With how many of its announcements a candidate also forgets those who have gone without a word.
const FORGET_EVERY: u32 = 16;

/// A candidate's connection.
pub(super) struct MysqlSession {
    connection: Connection,
    memory: SessionMemory,
}

impl MysqlSession {
    pub(super) async fn open(
        url: &StoreUrl,
        election: &ElectionName,
        me: &Holder,
        purpose: Purpose,
        hints: Arc<HintState>,
    ) -> Result<Self, StoreError> {
        let connection = Connection::open(url, purpose).await?;
        Ok(Self { connection, memory: SessionMemory::new(election, me, hints, Some(url)) })
    }
}

impl Session for MysqlSession {
    fn step(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, StoreError>> {
        Box::pin(async move {
            let Self { connection, memory } = self;
            Ok(Step { connection, memory }.take(request).await?)
        })
    }
}

/// What a session remembers from one step to the next.
pub(super) struct SessionMemory {
    /// Where a leader has a connection of its own; those of a fleet have none.
    url: Option<StoreUrl>,
    pub(super) election: ElectionName,
    pub(super) me: Holder,
    /// The row as it was last seen or written here. Every change insists on it, so that what has become of the row is
    /// known without reading it back.
    known: Option<Record>,
    /// What the last look showed, for the grant that it leads to.
    looked: Option<Look>,
    hints: Arc<HintState>,
    announced_at: Option<Instant>,
    /// Its announcement is there, unless it has been silent for long.
    is_listed: bool,
    order: WaitingOrder,
    announcements: u32,
    announcement_failure: AnnouncementFailure,
    /// While it leads.
    presence: Option<Presence>,
    has_looked: bool,
}

impl SessionMemory {
    pub(super) fn new(election: &ElectionName, me: &Holder, hints: Arc<HintState>, url: Option<&StoreUrl>) -> Self {
        Self {
            url: url.cloned(),
            election: election.clone(),
            me: me.clone(),
            known: hints.kept(me.id),
            looked: None,
            hints,
            announced_at: None,
            is_listed: false,
            order: WaitingOrder::default(),
            announcements: 0,
            announcement_failure: AnnouncementFailure::default(),
            presence: None,
            has_looked: false,
        }
    }

    /// The record that a renewal makes of the row as it is known, and the statement that does so if that is how it still is.
    /// `None` if the renewal does not fit what is known.
    pub(super) fn renewal(&self, renewal: &Renewal) -> Option<(Record, String)> {
        let old = self.known.as_ref()?;
        let new = row::renew(Some(old), renewal)?;
        let statement = records::swap(&self.election, old, &new, StampChange::Renewed);
        Some((new, statement))
    }

    /// A renewal has made this record.
    pub(super) fn renewed(&mut self, record: Record) -> Reply {
        self.leave_line();
        self.known = Some(record.clone());
        let reply = Reply::Applied(record);
        self.be_present(&reply);
        reply
    }

    /// The row turned out to be another than is known.
    pub(super) fn forget_row(&mut self) {
        self.known = None;
    }

    /// Whether a leader's own connection sees to what is beside its steps.
    pub(super) fn has_presence(&self) -> bool {
        self.presence.is_some()
    }

    /// It leads, or leaves.
    fn leave_line(&mut self) {
        self.is_listed = false;
        self.order.forget();
    }

    /// Neither in the transaction of a grant nor before its answer: a lock on the announcement would stop all grants, or have
    /// them committed and not believed. A holder is never taken for a waiting candidate, but one that has died would be,
    /// and hold up those behind it.
    fn be_present(&mut self, reply: &Reply) {
        match reply {
            Reply::Applied(record) if self.presence.is_none() => {
                self.hints.leads();
                let token = record.version.token;
                let start = |url| Presence::start(url, &self.election, self.me.id, token);
                self.presence = self.url.as_ref().map(start);
            }
            Reply::Applied(_) => {}
            _ => self.presence = None,
        }
    }
}

impl Drop for SessionMemory {
    fn drop(&mut self) {
        // Hundreds that have lost one connection would have to look one by one before their renewals go together again.
        if let Some(known) = self.known.take() {
            self.hints.keep(self.me.id, known);
        }
    }
}

/// A step of a session over a connection, which may be its own.
pub(super) struct Step<'a> {
    pub(super) connection: &'a mut Connection,
    pub(super) memory: &'a mut SessionMemory,
}

impl Step<'_> {
    pub(super) async fn take(&mut self, request: Request) -> Result<Reply, Fault> {
        if !matches!(request, Request::Look { .. }) {
            self.memory.leave_line();
        }
        match request {
            Request::Look { announce } => {
                let seen = match announce {
                    Some(said) => self.announce_and_look(&said).await?,
                    None if self.memory.order.is_known(self.memory.hints.hints()) => self.short_look().await?,
                    None => self.look().await?,
                };
                Ok(Reply::Seen(seen.sighting))
            }
            Request::Acquire { expect, floor, holder, lease } => {
                let grant = |seen: &Look| grant(seen, expect, floor, &holder, lease);
                let write =
                    |election: &ElectionName, seen: &Look, new: &Record| records::grant(election, seen, new, &holder);
                // A write that fails costs more on a cluster than a look: its nodes certify it.
                let looked = self.memory.looked.take().filter(|_| !self.connection.server.is_galera);
                let reply = self.change(looked, grant, write).await?;
                self.memory.presence = None;
                self.memory.be_present(&reply);
                Ok(reply)
            }
            Request::Renew { id, version, lease, completed_order } => {
                let reply = self.renew(Renewal { id, version, lease, completed_order }).await?;
                self.memory.be_present(&reply);
                Ok(reply)
            }
            Request::Release { id, version, reason } => {
                let reply = self.release(id, version, &reason).await?;
                // After the change: those that hear of this look at the row.
                if self.memory.presence.take().is_some_and(|presence| presence.is_announced()) {
                    self.connection.clear(&records::withdraw(&self.memory.election, self.memory.me.id)).await;
                }
                Ok(reply)
            }
            Request::Leave => {
                self.connection
                    .run_patiently(&Packet::single(records::withdraw(&self.memory.election, self.memory.me.id)))
                    .await?;
                Ok(Reply::Left)
            }
        }
    }

    async fn look(&mut self) -> Result<Look, Fault> {
        let answers =
            self.connection.run(&Packet::read(records::look(&self.memory.election, self.memory.me.id))).await?;
        self.note(answers.into_iter().next())
    }

    /// Leaves the waiting order unread, if the record turns out to be as it was but for renewals.
    async fn short_look(&mut self) -> Result<Look, Fault> {
        let answers = self.connection.run(&Packet::read(records::short_look(&self.memory.election))).await?;
        if let Some(mut row) = answers.into_iter().next().and_then(|answer| answer.rows.into_iter().next()) {
            let mut seen = records::seen_by_all(&mut row, self.connection.host())?;
            if let Some(standing) = seen.sighting.record.as_ref().and_then(|record| self.memory.order.standing(record))
            {
                seen.sighting.standing = standing;
                return Ok(self.keep(seen));
            }
        }
        self.look().await
    }

    fn note(&mut self, answer: Option<Answer>) -> Result<Look, Fault> {
        let answer = answer.ok_or_else(|| Fault::damaged("an answer"))?;
        let seen = records::seen(answer, self.connection.host())?;
        Ok(self.keep(seen))
    }

    fn keep(&mut self, seen: Look) -> Look {
        self.memory.known.clone_from(&seen.sighting.record);
        self.memory.hints.waits(seen.sighting.standing);
        self.memory.looked = Some(seen.clone());
        self.memory.has_looked = true;
        seen
    }

    /// A store that cannot be written just now can still be looked at.
    async fn announce_and_look(&mut self, said: &Announcement) -> Result<Look, Fault> {
        if !self.memory.has_looked {
            self.look().await?;
        }
        let hints = self.memory.hints.hints();
        match self.announce(said).await {
            Ok(answer) => {
                self.memory.announced_at = Some(clock::now());
                self.memory.is_listed = true;
                self.memory.announcement_failure.end();
                self.memory.announcements = self.memory.announcements.wrapping_add(1);
                let seen = self.note(answer)?;
                self.memory.order.announced(self.memory.me.id, said.rank, &seen.sighting, hints);
                Ok(seen)
            }
            Err(fault) if self.connection.is_sound() => {
                self.memory.announcement_failure.tell(&self.memory.election, fault.error());
                self.memory.order.forget();
                self.look().await
            }
            Err(fault) => Err(fault),
        }
    }

    /// The answer to a look that is in the same packet as the announcement.
    async fn announce(&mut self, said: &Announcement) -> Result<Option<Answer>, Fault> {
        let since_last = self.memory.announced_at.map(|at| clock::now().since(at));
        let fresh_for = wait_queue::fresh_for(self.memory.known.as_ref().map(|record| record.lease), since_last);
        let mut statements = Vec::with_capacity(3);
        if self.memory.announcements.is_multiple_of(FORGET_EVERY) {
            statements.push(records::forget(&self.memory.election));
        }
        let at = statements.len();
        statements.push(records::announce_again(&self.memory.election, self.memory.me.id, said, fresh_for));
        statements.push(records::look(&self.memory.election, self.memory.me.id));
        if self.memory.is_listed {
            let mut answers = self.connection.run(&Packet::of(&statements)).await?;
            if answers.get(at).is_some_and(|answer| answer.affected == 1) {
                return Ok(answers.pop());
            }
        }
        // It is not there: it was silent for long, and has been forgotten.
        statements[at] = records::announce(&self.memory.election, &self.memory.me, said, fresh_for);
        Ok(self.connection.run(&Packet::of(&statements)).await?.pop())
    }

    /// One statement, unless an operator's order came since the row was last seen: then the statement finds another
    /// row, and is sent again for that.
    async fn renew(&mut self, renewal: Renewal) -> Result<Reply, Fault> {
        let renew = |seen: &Look| Ok(row::renew(seen.sighting.record.as_ref(), &renewal));
        self.change(self.memory.known.clone().map(of_memory), renew, |election, seen, new| {
            match &seen.sighting.record {
                Some(old) => Change::single(records::swap(election, old, new, StampChange::Renewed)),
                None => unreachable!("what is missing is not renewed"),
            }
        })
        .await
    }

    async fn release(&mut self, id: CandidateId, version: Version, reason: &EndReason) -> Result<Reply, Fault> {
        let release = |seen: &Look| Ok(row::release(seen.sighting.record.as_ref(), id, version));
        self.change(self.memory.known.clone().map(of_memory), release, |election, seen, new| {
            match &seen.sighting.record {
                Some(old) => records::change(election, old, new, Some(reason.word())),
                None => unreachable!("what is missing is not released"),
            }
        })
        .await
    }

    /// Makes of the row what `decide` says, if it is still as it was when that was decided; otherwise looks and decides
    /// again. `remembered`: the row as it was last seen here, for the first time. Every write insists on what it was decided on.
    async fn change(
        &mut self,
        mut remembered: Option<Look>,
        decide: impl Fn(&Look) -> Result<Option<Record>, StoreError>,
        write: impl Fn(&ElectionName, &Look, &Record) -> Change,
    ) -> Result<Reply, Fault> {
        for _ in 0..TRIES {
            let is_fresh = remembered.is_none();
            let seen = match remembered.take() {
                Some(seen) => seen,
                None => self.look().await?,
            };
            let Some(new) = decide(&seen)? else {
                // Losers read, and write nothing.
                if is_fresh {
                    return Ok(Reply::Conflict(seen.sighting));
                }
                continue;
            };
            let change = write(&self.memory.election, &seen, &new);
            match self.connection.make(&change).await {
                Ok(true) => {
                    self.memory.known = Some(new.clone());
                    return Ok(Reply::Applied(new));
                }
                Ok(false) | Err(Fault::Outrun(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
        Err(StoreError::Unreachable(format!("{}: the row changes too often", self.connection.host())).into())
    }
}

/// The row as it is known; nothing beside it is asked of a renewal or a release.
fn of_memory(record: Record) -> Look {
    let sighting = Sighting {
        record: Some(record),
        remembered: Token::NONE,
        age: None,
        holder_gone: false,
        standing: Default::default(),
    };
    Look { sighting, has_fence: true }
}

fn grant(
    seen: &Look,
    expect: Option<Expectation>,
    floor: Floor,
    holder: &Holder,
    lease: std::time::Duration,
) -> Result<Option<Record>, StoreError> {
    let remembered = seen.sighting.remembered;
    Ok(row::acquire(seen.sighting.record.as_ref(), expect, remembered, 0, floor, holder, lease)?)
}
