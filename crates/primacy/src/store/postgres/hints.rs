//! Hints: notifications of the server, heard over connections that exist anyway, and one of their own where none does.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::super::{BoxFuture, Hints, StoreError};
use super::connection::{Connection, Purpose};
use super::dialer::Dialer;
use super::ears::Ringer;
use super::errors::{Fault, Stake};
use super::notifier::{Channel, NotifierHandle, Notifiers, listening};
use super::statements;
use crate::ElectionName;

impl NotifierHandle {
    /// Lets the server tell all who listen.
    pub(super) async fn notify(&self, connection: &mut Connection) -> Result<(), Fault> {
        connection.run(statements::NOTIFY, &[self.election().into()], Stake::Reading).await.map(drop)
    }

    /// Lets the server notify this connection, which rings this notifier.
    pub(super) async fn listen(&self, connection: &mut Connection, to: Channel) -> Result<(), Fault> {
        let channel = match self.channel() {
            Some(channel) => channel.clone(),
            None => {
                let election = self.election();
                self.learn(&connection.run(statements::CHANNEL, &[election.into()], Stake::Reading).await?)?
            }
        };
        connection.run_batch(&listening(&channel, to), Stake::Reading).await?;
        self.listens(to, |guard| connection.listens(guard));
        Ok(())
    }
}

/// How long the connection of a session may be missing before a listener opens one of its own. A candidate opens its
/// next one with its next call; until then its listener needs no second one.
const GRACE: Duration = Duration::from_secs(15);

/// Who listens to one election.
pub(super) struct PostgresHints {
    rings: watch::Receiver<u64>,
    ear: JoinHandle<()>,
}

impl fmt::Debug for PostgresHints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresHints").finish_non_exhaustive()
    }
}

impl PostgresHints {
    /// When this returns, either somebody listens already, or a connection of its own does.
    pub(super) async fn open(
        dialer: &Arc<Dialer>,
        notifiers: &Notifiers,
        election: &ElectionName,
    ) -> Result<Self, StoreError> {
        let notifier = notifiers.of(election);
        let rings = notifier.subscribe();
        let is_missed = notifier.is_missed();
        let own = if is_missed { Some(connect(dialer, &notifier).await?) } else { None };
        let ear = tokio::spawn(stay_connected(Arc::clone(dialer), notifier, own));
        Ok(Self { rings, ear })
    }
}

impl Hints for PostgresHints {
    fn next(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if self.rings.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}

impl Drop for PostgresHints {
    fn drop(&mut self) {
        self.ear.abort();
    }
}

async fn connect(dialer: &Arc<Dialer>, notifier: &NotifierHandle) -> Result<Connection, StoreError> {
    let (mut connection, _) = dialer.dial(Purpose::Watch, Ringer::One(notifier.clone())).await?;
    match notifier.listen(&mut connection, Channel::Everything).await {
        Ok(()) => Ok(connection),
        Err(fault) => Err(fault.meaning(connection.shown(), Stake::Reading)),
    }
}

/// Opens a connection whenever nobody has listened for a while.
async fn stay_connected(dialer: Arc<Dialer>, notifier: NotifierHandle, mut own: Option<Connection>) {
    const BACK_OFF_MOST: Duration = Duration::from_secs(30);
    let mut back_off = Duration::from_millis(200);
    loop {
        notifier.until_missed(true).await;
        let grace = if own.take().is_some() { back_off } else { GRACE.max(back_off) };
        if timeout(grace, notifier.until_missed(false)).await.is_ok() {
            back_off = Duration::from_millis(200);
            continue;
        }
        match connect(&dialer, &notifier).await {
            Ok(connection) => own = Some(connection),
            Err(error) => {
                debug!(%error, "nobody listens for notifications; trying again");
                sleep(rand::random_range(back_off / 2..back_off)).await;
                back_off = (back_off * 2).min(BACK_OFF_MOST);
            }
        }
    }
}
