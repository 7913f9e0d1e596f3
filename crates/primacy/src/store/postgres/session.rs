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
const SILENT_AFTER_LOCK: Duration = Duration::from_secs(5);

/// A candidate's connection.
#[derive(Debug)]
pub(super) struct PostgresSession {
    dialer: Arc<Dialer>,
    connection: Connection,
    notifier: NotifierHandle,
    election: ElectionName,
    me: Holder,
    has_timeline: bool,
    /// The holder's lease as it was last seen.
    lease: Option<Duration>,
    announced_at: Option<Instant>,
    announcement_failure: AnnouncementFailure,
}

impl PostgresSession {
    pub(super) async fn open(
        dialer: &Arc<Dialer>,
        notifiers: &Notifiers,
        election: &ElectionName,
        me: &Holder,
    ) -> Result<Self, StoreError> {
        let notifier = notifiers.of(election);
        let (connection, has_timeline) = connect(dialer, &notifier).await?;
        Ok(Self {
            dialer: Arc::clone(dialer),
            connection,
            notifier,
            election: election.clone(),
            me: me.clone(),
            has_timeline,
            lease: None,
            announced_at: None,
            announcement_failure: AnnouncementFailure::default(),
        })
    }

    async fn take(&mut self, request: Request) -> Result<Reply, StoreError> {
        let stake = match request {
            Request::Look { .. } => Stake::Reading,
            _ => Stake::Writing,
        };
        let taken = match request {
            Request::Look { announce: None } => self.look().await.map(Reply::Seen),
            Request::Look { announce: Some(said) } => self.look_and_announce(&said).await.map(Reply::Seen),
            Request::Acquire { expect, floor, holder, lease } => self.acquire(expect, floor, &holder, lease).await,
            Request::Renew { id, version, lease, completed_order } => {
                self.renew(Renewal { id, version, lease, completed_order }).await
            }
            Request::Release { id, version, reason } => self.release(id, version, &reason).await,
            Request::Leave => self.leave().await,
        };
        taken.map_err(|fault| fault.meaning(self.connection.shown(), stake))
    }

    async fn look(&mut self) -> Result<Sighting, Fault> {
        let parameters = [self.election.as_str().into(), self.me.id.into()];
        let rows = self.connection.run_often(statements::LOOK, &parameters, Stake::Reading).await?;
        let sighting = records::sighting(&rows)?;
        self.note(&sighting).await;
        Ok(sighting)
    }

    async fn note(&mut self, sighting: &Sighting) {
        self.lease = sighting.record.as_ref().map(|record| record.lease);
        let handover = sighting.record.as_ref().and_then(|record| record.handover.as_ref());
        let is_named = handover.is_some_and(|handover| handover.names(self.me.id, &self.me.label));
        let is_near = is_named || sighting.standing.ahead < HEARERS;
        self.hear(if is_near || self.notifier.has_many() { Channel::Everything } else { Channel::Promotions }).await;
    }

    async fn hear(&mut self, wanted: Channel) {
        if self.connection.hears().is_some_and(|heard| heard != wanted)
            && let Err(fault) = self.notifier.listen(&mut self.connection, wanted).await
        {
            debug!(?fault, "what this connection listens to could not be changed");
        }
    }

    /// A store that cannot be written just now can still be looked at.
    async fn look_and_announce(&mut self, said: &Announcement) -> Result<Sighting, Fault> {
        if self.dialer.is_silent() {
            return self.look().await;
        }
        // It may have to be prepared first.
        let patience = announcement_patience(self.lease) + self.connection.quickest() * 2;
        let since_last = self.announced_at.map(|at| clock::now().since(at));
        let (note, rank) = (said.why.to_string(), said.rank.to_bytes());
        let parameters = [
            self.election.as_str().into(),
            self.me.id.into(),
            self.me.label.as_str().into(),
            self.me.data.as_bytes().into(),
            note.as_str().into(),
            wait_queue::fresh_for(self.lease, since_last).into(),
            rank.as_slice().into(),
        ];
        let announcing = self.connection.run_often(statements::ANNOUNCE, &parameters, Stake::Reading);
        match timeout(patience, announcing).await {
            Ok(Ok(rows)) => {
                self.announced_at = Some(clock::now());
                self.announcement_failure.end();
                let sighting = records::sighting(&rows)?;
                self.note(&sighting).await;
                return Ok(sighting);
            }
            // A right that was taken away does not come back by itself.
            Ok(Err(fault)) if matches!(fault.code(), None | Some(schema::LACKS_RIGHT)) => return Err(fault),
            Ok(Err(fault)) => {
                self.announcement_failure.tell(&self.election, &fault.meaning(self.connection.shown(), Stake::Reading));
            }
            Err(_) => {
                debug!("the announcement of the candidate is held up; looking without it over another connection");
                // On a long way there may be no time for that in this call: the next one is not held up again.
                self.dialer.be_silent_until(clock::now() + SILENT_AFTER_LOCK);
                self.connection = connect(&self.dialer, &self.notifier).await?.0;
                self.dialer.be_silent_until(Instant::ZERO);
            }
        }
        self.look().await
    }

    async fn acquire(
        &mut self,
        expect: Option<Expectation>,
        floor: Floor,
        holder: &Holder,
        lease: Duration,
    ) -> Result<Reply, Fault> {
        // A leader has to hear of every order.
        self.hear(Channel::Everything).await;
        let mut parameters: Vec<Parameter<'_>> = vec![
            self.election.as_str().into(),
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
        let statement = match (expect.is_some(), self.has_timeline) {
            (true, true) => statements::ACQUIRE,
            (true, false) => statements::ACQUIRE_WITHOUT_EPOCH,
            (false, true) => statements::ACQUIRE_FIRST,
            (false, false) => statements::ACQUIRE_FIRST_WITHOUT_EPOCH,
        };
        let rows = match self.connection.run(statement, &parameters, Stake::Writing).await {
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
            self.election.as_str().into(),
            id.into(),
            version.token.get().into(),
            version.beat.into(),
            completed_order.into(),
            lease.into(),
        ];
        let rows = self.connection.run(statements::RENEW, &parameters, Stake::Writing).await?;
        self.applied_or_conflict(&rows).await
    }

    async fn release(&mut self, id: CandidateId, version: Version, reason: &EndReason) -> Result<Reply, Fault> {
        let parameters = [
            self.election.as_str().into(),
            id.into(),
            version.token.get().into(),
            version.beat.into(),
            reason.word().into(),
        ];
        let rows = self.connection.run(statements::RELEASE, &parameters, Stake::Writing).await?;
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
        self.lease = Some(record.lease);
        Ok(Reply::Applied(record))
    }

    async fn leave(&mut self) -> Result<Reply, Fault> {
        let parameters = [self.election.as_str().into(), self.me.id.into()];
        self.connection.run(statements::LEAVE, &parameters, Stake::Writing).await?;
        Ok(Reply::Left)
    }
}

impl Session for PostgresSession {
    fn step(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, StoreError>> {
        Box::pin(self.take(request))
    }
}

/// A connection on which everything is as it must be, and which listens if it can.
async fn connect(dialer: &Arc<Dialer>, notifier: &NotifierHandle) -> Result<(Connection, bool), StoreError> {
    let (mut connection, server) = stand(dialer, notifier).await?;
    if dialer.url().push
        && connection.hears().is_none()
        && let Err(fault) = notifier.listen(&mut connection, Channel::Everything).await
    {
        debug!(?fault, "no notifications on this connection; the store is polled");
    }
    Ok((connection, server.has_timeline))
}

/// A connection to a server that takes writes, with the tables that elections need.
pub(super) async fn stand(dialer: &Arc<Dialer>, notifier: &NotifierHandle) -> Result<(Connection, Server), StoreError> {
    let (mut connection, server) = dialer.dial(Purpose::Stand, notifier.clone()).await?;
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
