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
    url: StoreUrl,
    election: ElectionName,
    me: Holder,
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

impl MysqlSession {
    pub(super) async fn open(
        url: &StoreUrl,
        election: &ElectionName,
        me: &Holder,
        purpose: Purpose,
        hints: Arc<HintState>,
    ) -> Result<Self, StoreError> {
        let connection = Connection::open(url, purpose).await?;
        let (election, me) = (election.clone(), me.clone());
        Ok(Self {
            connection,
            url: url.clone(),
            election,
            me,
            known: None,
            looked: None,
            hints,
            announced_at: None,
            is_listed: false,
            order: WaitingOrder::default(),
            announcements: 0,
            announcement_failure: AnnouncementFailure::default(),
            presence: None,
            has_looked: false,
        })
    }

    async fn take(&mut self, request: Request) -> Result<Reply, StoreError> {
        if !matches!(request, Request::Look { .. }) {
            // It leads, or leaves.
            self.is_listed = false;
            self.order.forget();
        }
        match request {
            Request::Look { announce } => {
                let seen = match announce {
                    Some(said) => self.announce_and_look(&said).await?,
                    None if self.order.is_known(self.hints.hints()) => self.short_look().await?,
                    None => self.look().await?,
                };
                Ok(Reply::Seen(seen.sighting))
            }
            Request::Acquire { expect, floor, holder, lease } => {
                let grant = |seen: &Look| grant(seen, expect, floor, &holder, lease);
                let write =
                    |election: &ElectionName, seen: &Look, new: &Record| records::grant(election, seen, new, &holder);
                // A write that fails costs more on a cluster than a look: its nodes certify it.
                let looked = self.looked.take().filter(|_| !self.connection.server.is_galera);
                let reply = self.change(looked, grant, write).await?;
                self.presence = None;
                self.be_present(&reply);
                Ok(reply)
            }
            Request::Renew { id, version, lease, completed_order } => {
                let reply = self.renew(Renewal { id, version, lease, completed_order }).await?;
                self.be_present(&reply);
                Ok(reply)
            }
            Request::Release { id, version, reason } => {
                let reply = self.release(id, version, &reason).await?;
                // After the change: those that hear of this look at the row.
                if self.presence.take().is_some_and(|presence| presence.is_announced()) {
                    self.connection.clear(&records::withdraw(&self.election, self.me.id)).await;
                }
                Ok(reply)
            }
            Request::Leave => {
                self.connection.run_patiently(&Packet::single(records::withdraw(&self.election, self.me.id))).await?;
                Ok(Reply::Left)
            }
        }
    }

    /// Neither in the transaction of a grant nor before its answer: a lock on the announcement would stop all grants, or have
    /// them committed and not believed. A holder is never taken for a waiting candidate, but one that has died would be,
    /// and hold up those behind it.
    fn be_present(&mut self, reply: &Reply) {
        match reply {
            Reply::Applied(record) if self.presence.is_none() => {
                self.hints.leads();
                let token = record.version.token;
                self.presence = Some(Presence::start(&self.url, &self.election, self.me.id, token));
            }
            Reply::Applied(_) => {}
            _ => self.presence = None,
        }
    }

    async fn look(&mut self) -> Result<Look, StoreError> {
        let answers = self.connection.run(&Packet::read(records::look(&self.election, self.me.id))).await?;
        self.note(answers.into_iter().next())
    }

    /// Leaves the waiting order unread, if the record turns out to be as it was but for renewals.
    async fn short_look(&mut self) -> Result<Look, StoreError> {
        let answers = self.connection.run(&Packet::read(records::short_look(&self.election))).await?;
        if let Some(mut row) = answers.into_iter().next().and_then(|answer| answer.rows.into_iter().next()) {
            let mut seen = records::seen_by_all(&mut row, self.connection.host())?;
            if let Some(standing) = seen.sighting.record.as_ref().and_then(|record| self.order.standing(record)) {
                seen.sighting.standing = standing;
                return Ok(self.keep(seen));
            }
        }
        self.look().await
    }

    fn note(&mut self, answer: Option<Answer>) -> Result<Look, StoreError> {
        let answer = answer.ok_or_else(|| Fault::damaged("an answer"))?;
        let seen = records::seen(answer, self.connection.host())?;
        Ok(self.keep(seen))
    }

    fn keep(&mut self, seen: Look) -> Look {
        self.known.clone_from(&seen.sighting.record);
        self.hints.waits(seen.sighting.standing);
        self.looked = Some(seen.clone());
        self.has_looked = true;
        seen
    }

    /// A store that cannot be written just now can still be looked at.
    async fn announce_and_look(&mut self, said: &Announcement) -> Result<Look, StoreError> {
        if !self.has_looked {
            self.look().await?;
        }
        let hints = self.hints.hints();
        match self.announce(said).await {
            Ok(answer) => {
                self.announced_at = Some(clock::now());
                self.is_listed = true;
                self.announcement_failure.end();
                self.announcements = self.announcements.wrapping_add(1);
                let seen = self.note(answer)?;
                self.order.announced(self.me.id, said.rank, &seen.sighting, hints);
                Ok(seen)
            }
            Err(fault) if self.connection.is_sound() => {
                self.announcement_failure.tell(&self.election, fault.error());
                self.order.forget();
                self.look().await
            }
            Err(fault) => Err(fault.into()),
        }
    }

    /// The answer to a look that is in the same packet as the announcement.
    async fn announce(&mut self, said: &Announcement) -> Result<Option<Answer>, Fault> {
        let since_last = self.announced_at.map(|at| clock::now().since(at));
        let fresh_for = wait_queue::fresh_for(self.known.as_ref().map(|record| record.lease), since_last);
        let mut statements = Vec::with_capacity(3);
        if self.announcements.is_multiple_of(FORGET_EVERY) {
            statements.push(records::forget(&self.election));
        }
        let at = statements.len();
        statements.push(records::announce_again(&self.election, self.me.id, said, fresh_for));
        statements.push(records::look(&self.election, self.me.id));
        if self.is_listed {
            let mut answers = self.connection.run(&Packet::of(&statements)).await?;
            if answers.get(at).is_some_and(|answer| answer.affected == 1) {
                return Ok(answers.pop());
            }
        }
        // It is not there: it was silent for long, and has been forgotten.
        statements[at] = records::announce(&self.election, &self.me, said, fresh_for);
        Ok(self.connection.run(&Packet::of(&statements)).await?.pop())
    }

    /// One statement, unless an operator's order came since the row was last seen: then the statement finds another
    /// row, and is sent again for that.
    async fn renew(&mut self, renewal: Renewal) -> Result<Reply, StoreError> {
        let renew = |seen: &Look| Ok(row::renew(seen.sighting.record.as_ref(), &renewal));
        self.change(self.known.clone().map(of_memory), renew, |election, seen, new| match &seen.sighting.record {
            Some(old) => Change::single(records::swap(election, old, new, StampChange::Renewed)),
            None => unreachable!("what is missing is not renewed"),
        })
        .await
    }

    async fn release(&mut self, id: CandidateId, version: Version, reason: &EndReason) -> Result<Reply, StoreError> {
        let release = |seen: &Look| Ok(row::release(seen.sighting.record.as_ref(), id, version));
        self.change(self.known.clone().map(of_memory), release, |election, seen, new| match &seen.sighting.record {
            Some(old) => records::change(election, old, new, Some(reason.word())),
            None => unreachable!("what is missing is not released"),
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
    ) -> Result<Reply, StoreError> {
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
            let change = write(&self.election, &seen, &new);
            match self.connection.make(&change).await {
                Ok(true) => {
                    self.known = Some(new.clone());
                    return Ok(Reply::Applied(new));
                }
                Ok(false) | Err(Fault::Outrun(_)) => {}
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(StoreError::Unreachable(format!("{}: the row changes too often", self.connection.host())))
    }
}

impl Session for MysqlSession {
    fn step(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, StoreError>> {
        Box::pin(self.take(request))
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
