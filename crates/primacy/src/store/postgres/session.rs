//! One candidate's steps, each one statement in one round trip.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Row;
use tracing::debug;

use super::super::announcement_failure::AnnouncementFailure;
use super::super::{
    Announcement, BoxFuture, EndReason, Expectation, Floor, Holder, Record, Reply, Request, Session, Sighting,
    StoreError, Version,
};
use super::connection::{Connection, Purpose};
use super::dialer::Dialer;
use super::ears::Ringer;
use super::errors::{Fault, Stake};
use super::notifier::{Channel, NotifierHandle, Notifiers};
use super::parameter::Parameter;
use super::schema::Server;
use super::{records, schema, statements};
use crate::{CandidateId, ElectionName, Instant, Token, clock};
use primacy_core::lease::row::{Renewal, TokensUsedUp};
use primacy_core::lease::wait_queue;

/// This many from the front of the line hear of every grant and release. More than can be used up, one after the other, while the next
/// of the crowd wait for their own time to look, which tells them that they have moved up.
const HEARERS: u32 = 32;

/// How long an announcement may take at the server, which somebody's lock can hold up. Looking must go on without it, within the
/// deadline of the same call, which is a part of the lease.
fn announcement_patience(lease: Option<Duration>) -> Duration {
    lease.map_or(Duration::from_millis(250), |lease| {
        (lease / 20).clamp(Duration::from_millis(100), Duration::from_secs(1))
    })
}

/// For how long nothing is announced after an announcement was held up: another connection would wait for the same lock.
pub(super) const SILENT_AFTER_LOCK: Duration = Duration::from_secs(5);

/// A candidate's connection.
#[derive(Debug)]
pub(super) struct PostgresSession {
    dialer: Arc<Dialer>,
    link: Link,
    memory: SessionMemory,
}

/// A connection to a server that takes writes.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) connection: Connection,
    pub(super) has_timeline: bool,
}

/// What a session remembers from one step to the next.
#[derive(Debug)]
pub(super) struct SessionMemory {
    pub(super) notifier: NotifierHandle,
    pub(super) election: ElectionName,
    pub(super) me: Holder,
    /// The holder's lease as it was last seen.
    lease: Option<Duration>,
    announced_at: Option<Instant>,
    announcement_failure: AnnouncementFailure,
}

impl SessionMemory {
    pub(super) fn new(notifiers: &Notifiers, election: &ElectionName, me: &Holder) -> Self {
        Self {
            notifier: notifiers.of(election),
            election: election.clone(),
            me: me.clone(),
            lease: None,
            announced_at: None,
            announcement_failure: AnnouncementFailure::default(),
        }
    }

    /// A look showed this. What is to be heard from now on.
    pub(super) fn saw(&mut self, sighting: &Sighting) -> Channel {
        self.lease = sighting.record.as_ref().map(|record| record.lease);
        let handover = sighting.record.as_ref().and_then(|record| record.handover.as_ref());
        let is_named = handover.is_some_and(|handover| handover.names(self.me.id, &self.me.label));
        let is_near = is_named || sighting.standing.ahead < HEARERS;
        if is_near || self.notifier.has_many() { Channel::Everything } else { Channel::Promotions }
    }

    /// A change was made of the record, which is this now.
    pub(super) fn changed(&mut self, record: &Record) {
        self.lease = Some(record.lease);
    }

    /// How long an announcement may take over this connection. It may have to be prepared first.
    pub(super) fn announcement_patience(&self, connection: &Connection) -> Duration {
        announcement_patience(self.lease) + connection.quickest() * 2
    }

    /// For how long an announcement that is made now counts.
    pub(super) fn fresh_for(&self) -> Duration {
        let since_last = self.announced_at.map(|at| clock::now().since(at));
        wait_queue::fresh_for(self.lease, since_last)
    }

    pub(super) fn was_announced(&mut self) {
        self.announced_at = Some(clock::now());
        self.announcement_failure.end();
    }

    pub(super) fn was_not_announced(&mut self, error: &StoreError) {
        self.announcement_failure.tell(&self.election, error);
    }

    /// Looks, and says that it waits; over this connection.
    pub(super) async fn announce(&self, connection: &mut Connection, said: &Announcement) -> Result<Vec<Row>, Fault> {
        let (note, rank) = (said.why.to_string(), said.rank.to_bytes());
        let parameters = [
            self.election.as_str().into(),
            self.me.id.into(),
            self.me.label.as_str().into(),
            self.me.data.as_bytes().into(),
            note.as_str().into(),
            self.fresh_for().into(),
            rank.as_slice().into(),
        ];
        connection.run_often(statements::ANNOUNCE, &parameters, Stake::Reading).await
    }
}

/// What is lost without an answer to this.
pub(super) fn stake(request: &Request) -> Stake {
    match request {
        Request::Look { .. } => Stake::Reading,
        _ => Stake::Writing,
    }
}

impl PostgresSession {
    pub(super) async fn open(
        dialer: &Arc<Dialer>,
        notifiers: &Notifiers,
        election: &ElectionName,
        me: &Holder,
    ) -> Result<Self, StoreError> {
        let memory = SessionMemory::new(notifiers, election, me);
        let link = connect(dialer, &memory.notifier).await?;
        Ok(Self { dialer: Arc::clone(dialer), link, memory })
    }

    async fn take(&mut self, request: Request) -> Result<Reply, StoreError> {
        let stake = stake(&request);
        let taken = match request {
            Request::Look { announce: Some(said) } => self.look_and_announce(&said).await,
            request => {
                if matches!(request, Request::Acquire { .. }) {
                    // A leader has to hear of every order.
                    self.hear(Channel::Everything).await;
                }
                self.step().take(request).await
            }
        };
        if let Ok(Reply::Seen(sighting) | Reply::Conflict(sighting)) = &taken {
            let wanted = self.memory.saw(sighting);
            self.hear(wanted).await;
        }
        taken.map_err(|fault| fault.meaning(self.link.connection.shown(), stake))
    }

    fn step(&mut self) -> Step<'_> {
        Step { link: &mut self.link, memory: &mut self.memory }
    }

    async fn hear(&mut self, wanted: Channel) {
        let connection = &mut self.link.connection;
        if connection.hears().is_some_and(|heard| heard != wanted)
            && let Err(fault) = self.memory.notifier.listen(connection, wanted).await
        {
            debug!(?fault, "what this connection listens to could not be changed");
        }
    }

    /// A store that cannot be written just now can still be looked at.
    async fn look_and_announce(&mut self, said: &Announcement) -> Result<Reply, Fault> {
        if self.dialer.is_silent() {
            return self.step().look().await.map(Reply::Seen);
        }
        let Self { dialer, link, memory } = self;
        let patience = memory.announcement_patience(&link.connection);
        match timeout(patience, memory.announce(&mut link.connection, said)).await {
            Ok(Ok(rows)) => {
                memory.was_announced();
                return records::sighting(&rows).map(Reply::Seen);
            }
            // A right that was taken away does not come back by itself.
            Ok(Err(fault)) if matches!(fault.code(), None | Some(schema::LACKS_RIGHT)) => return Err(fault),
            Ok(Err(fault)) => memory.was_not_announced(&fault.meaning(link.connection.shown(), Stake::Reading)),
            Err(_) => {
                debug!("the announcement of the candidate is held up; looking without it over another connection");
                // On a long way there may be no time for that in this call: the next one is not held up again.
                dialer.be_silent_until(clock::now() + SILENT_AFTER_LOCK);
                *link = connect(dialer, &memory.notifier).await?;
                dialer.be_silent_until(Instant::ZERO);
            }
        }
        self.step().look().await.map(Reply::Seen)
    }
}

/// A step of a session over a connection, which may be its own.
pub(super) struct Step<'a> {
    pub(super) link: &'a mut Link,
    pub(super) memory: &'a mut SessionMemory,
}

impl Step<'_> {
    /// Takes it; a look without announcing the candidate.
    pub(super) async fn take(&mut self, request: Request) -> Result<Reply, Fault> {
        match request {
            Request::Look { .. } => self.look().await.map(Reply::Seen),
            Request::Acquire { expect, floor, holder, lease } => self.acquire(expect, floor, &holder, lease).await,
            Request::Renew { id, version, lease, completed_order } => {
                self.renew(Renewal { id, version, lease, completed_order }).await
            }
            Request::Release { id, version, reason } => self.release(id, version, &reason).await,
            Request::Leave => self.leave().await,
        }
    }

    pub(super) async fn look(&mut self) -> Result<Sighting, Fault> {
        let parameters = [self.memory.election.as_str().into(), self.memory.me.id.into()];
        let rows = self.link.connection.run_often(statements::LOOK, &parameters, Stake::Reading).await?;
        records::sighting(&rows)
    }

    async fn acquire(
        &mut self,
        expect: Option<Expectation>,
        floor: Floor,
        holder: &Holder,
        lease: Duration,
    ) -> Result<Reply, Fault> {
        let mut parameters: Vec<Parameter<'_>> = vec![
            self.memory.election.as_str().into(),
            if expect.is_some() { floor.highest() } else { floor.seen }.get().into(),
            holder.id.into(),
            holder.label.as_str().into(),
            holder.data.as_bytes().into(),
            lease.into(),
        ];
        if let Some(Expectation { version, order_number }) = expect {
            parameters.extend([version.token.get().into(), version.beat.into(), order_number.into()]);
        } else {
            parameters.push(floor.highest().get().into());
        }
        let statement = match (expect.is_some(), self.link.has_timeline) {
            (true, true) => statements::ACQUIRE,
            (true, false) => statements::ACQUIRE_WITHOUT_EPOCH,
            (false, true) => statements::ACQUIRE_FIRST,
            (false, false) => statements::ACQUIRE_FIRST_WITHOUT_EPOCH,
        };
        let rows = match self.link.connection.run(statement, &parameters, Stake::Writing).await {
            // Somebody else made or raised the row after this statement had begun; it was rolled back.
            Err(fault) if matches!(fault.code(), Some("23505" | "22012")) => Vec::new(),
            other => other?,
        };
        if let Some(row) = rows.first() {
            return self.applied(row);
        }
        let sighting = self.look().await?;
        let highest = sighting.remembered.max(floor.highest()).max(expect.map_or(Token::NONE, |row| row.version.token));
        if sighting.record.as_ref().map(Record::expectation) == expect && highest == Token::MAX {
            return Err(StoreError::from(TokensUsedUp).into());
        }
        Ok(Reply::Conflict(sighting))
    }

    async fn renew(&mut self, renewal: Renewal) -> Result<Reply, Fault> {
        let Renewal { id, version, lease, completed_order } = renewal;
        let parameters = [
            self.memory.election.as_str().into(),
            id.into(),
            version.token.get().into(),
            version.beat.into(),
            completed_order.into(),
            lease.into(),
        ];
        let rows = self.link.connection.run(statements::RENEW, &parameters, Stake::Writing).await?;
        self.applied_or_conflict(&rows).await
    }

    async fn release(&mut self, id: CandidateId, version: Version, reason: &EndReason) -> Result<Reply, Fault> {
        let parameters = [
            self.memory.election.as_str().into(),
            id.into(),
            version.token.get().into(),
            version.beat.into(),
            reason.word().into(),
        ];
        let rows = self.link.connection.run(statements::RELEASE, &parameters, Stake::Writing).await?;
        self.applied_or_conflict(&rows).await
    }

    async fn applied_or_conflict(&mut self, rows: &[Row]) -> Result<Reply, Fault> {
        match rows.first() {
            Some(row) => self.applied(row),
            None => self.look().await.map(Reply::Conflict),
        }
    }

    fn applied(&mut self, row: &Row) -> Result<Reply, Fault> {
        let record = records::record(row, 0)?;
        self.memory.changed(&record);
        Ok(Reply::Applied(record))
    }

    async fn leave(&mut self) -> Result<Reply, Fault> {
        let parameters = [self.memory.election.as_str().into(), self.memory.me.id.into()];
        self.link.connection.run(statements::LEAVE, &parameters, Stake::Writing).await?;
        Ok(Reply::Left)
    }
}

impl Session for PostgresSession {
    fn step(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, StoreError>> {
        Box::pin(self.take(request))
    }
}

/// A connection on which everything is as it must be, and which listens if it can.
async fn connect(dialer: &Arc<Dialer>, notifier: &NotifierHandle) -> Result<Link, StoreError> {
    let (mut connection, server) = stand(dialer, Ringer::One(notifier.clone())).await?;
    if dialer.url().push
        && connection.hears().is_none()
        && let Err(fault) = notifier.listen(&mut connection, Channel::Everything).await
    {
        debug!(?fault, "no notifications on this connection; the store is polled");
    }
    Ok(Link { connection, has_timeline: server.has_timeline })
}

/// A connection to a server that takes writes, with the tables that elections need.
pub(super) async fn stand(dialer: &Arc<Dialer>, ringer: Ringer) -> Result<(Connection, Server), StoreError> {
    let (mut connection, server) = dialer.dial(Purpose::Stand, ringer).await?;
    if schema::create_or_migrate(&mut connection, &server).await? {
        // Who came first may have made another version, or tables in another schema.
        connection.reopen_schema(dialer.schema_is_open());
        let made = schema::inspect(&mut connection).await?;
        made.check_tables(connection.shown())?;
        if made.tables.is_none() {
            return Err(StoreError::Unusable(format!("{}: primacy_schema is not primacy's table", connection.shown())));
        }
        dialer.settle(&connection);
    }
    Ok((connection, server))
}
