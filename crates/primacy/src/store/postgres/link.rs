//! One connection: to the first host that is no standby, with whatever the server says on its own.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::error::{DbError, Severity};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, Row, Socket};
use tracing::debug;

use super::super::race::{race, together};
use super::super::{BoxFuture, StoreError};
use super::bell::{Listening, Ringer, Tidings};
use super::cancel::Stop;
use super::fault::{Fault, Stake, not_connected};
use super::host::Host;
use super::lineage::Lineage;
use super::parameter::Parameter;
use super::place::{Place, TlsMode};
use super::prepared::Preparations;
use super::schema::{self, Server};
use super::statements;
use super::tls::Authorities;
use crate::qualified::Schema;
use crate::{Instant, clock};

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A candidate: the server must take writes.
    Stand,
    /// An observer or operator: a primary that is read-only for this user still shows the truth.
    Watch,
}

/// What `pg_notify` says at the commit when the server's queue has no room: program_limit_exceeded.
const QUEUE_IS_FULL: &str = "54000";

/// Which of several served last: it is tried first.
#[derive(Debug, Default)]
struct Turn(AtomicUsize);

impl Turn {
    /// In which order they are tried. A caller that gives up while the first one says nothing begins with another the
    /// next time.
    fn order(&self, count: usize) -> Vec<usize> {
        let first = self.0.load(Ordering::Relaxed);
        self.0.store((first + 1) % count.max(1), Ordering::Relaxed);
        (0..count).map(|offset| (first + offset) % count).collect()
    }

    fn served(&self, which: usize) {
        self.0.store(which, Ordering::Relaxed);
    }
}

/// Opens connections to one place.
#[derive(Debug)]
pub(super) struct Dialer {
    place: Place,
    hosts: Turn,
    /// Where the tables are, once they have been found there.
    schema: OnceLock<Schema>,
    /// For each host, of the addresses of its name.
    addresses: Vec<Turn>,
    lineage: Lineage,
    /// Until when candidates are not announced, in nanoseconds of [`clock`].
    silent_until: AtomicU64,
}

impl Dialer {
    pub(super) fn new(place: Place) -> Self {
        let addresses = place.hosts.iter().map(|_| Turn::default()).collect();
        let schema = place.schema.clone().map(OnceLock::from).unwrap_or_default();
        let silent_until = AtomicU64::new(0);
        Self { place, hosts: Turn::default(), schema, addresses, lineage: Lineage::default(), silent_until }
    }

    /// Lets candidates look without being announced for a while.
    pub(super) fn be_silent_until(&self, until: Instant) {
        self.silent_until.store(until.as_nanos(), Ordering::Relaxed);
    }

    pub(super) fn is_silent(&self) -> bool {
        clock::now().as_nanos() < self.silent_until.load(Ordering::Relaxed)
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Remembers where the tables are: for all connections from now on, whatever the search path of their sessions is.
    pub(super) fn settle(&self, link: &Link) {
        // Another connection may have found them first.
        let _ = self.schema.set(link.schema.clone());
    }

    /// Connects to the first host that will do, and looks what is there.
    pub(super) async fn dial(self: &Arc<Self>, purpose: Purpose, ringer: Ringer) -> Result<(Link, Server), StoreError> {
        let order = self.hosts.order(self.place.hosts.len());
        let attempts = order.iter().map(|&index| {
            let (dialer, ringer) = (Arc::clone(self), ringer.clone());
            Box::pin(async move { dialer.try_host(index, purpose, ringer).await }) as BoxFuture<'static, _>
        });
        let (winner, reached) = race(attempts.collect()).await.map_err(together)?;
        self.hosts.served(order[winner]);
        Ok(reached)
    }

    /// A name may stand for several addresses, of which only one is the primary's.
    async fn try_host(
        self: Arc<Self>,
        index: usize,
        purpose: Purpose,
        ringer: Ringer,
    ) -> Result<(Link, Server), StoreError> {
        let host = &self.place.hosts[index];
        let shown: Arc<str> = self.place.url_of(std::slice::from_ref(host)).into();
        let Host::Tcp { name, port } = host else {
            return self.try_address(host, None, shown, purpose, ringer).await;
        };
        let resolved = tokio::net::lookup_host((name.as_str(), *port)).await;
        let addresses = resolved
            .map_err(|error| StoreError::Unreachable(format!("{shown}: the name cannot be resolved ({error})")))?;
        // In an order of their own, since a resolver may give another one each time.
        let mut addresses: Vec<_> = addresses.collect();
        addresses.sort_unstable();
        addresses.dedup();
        if addresses.is_empty() {
            return Err(StoreError::Unreachable(format!("{shown}: the name has no address")));
        }
        let order = self.addresses[index].order(addresses.len());
        let attempts = order.iter().map(|&which| {
            let address = addresses[which];
            let (dialer, shown, ringer) = (Arc::clone(&self), Arc::clone(&shown), ringer.clone());
            Box::pin(async move {
                let host = &dialer.place.hosts[index];
                dialer.try_address(host, Some(address.ip()), shown, purpose, ringer).await
            }) as BoxFuture<'static, _>
        });
        let (winner, reached) = race(attempts.collect()).await.map_err(together)?;
        self.addresses[index].served(order[winner]);
        Ok(reached)
    }

    async fn try_address(
        &self,
        host: &Host,
        address: Option<std::net::IpAddr>,
        shown: Arc<str>,
        purpose: Purpose,
        ringer: Ringer,
    ) -> Result<(Link, Server), StoreError> {
        let late = || StoreError::Unreachable(format!("{shown}: no answer within {:?}", self.place.connect_timeout));
        let opening = async {
            let bell = ringer.clone();
            let mut link = self.open(host, address, Arc::clone(&shown), ringer).await?;
            let client = Arc::clone(&link.client);
            let hears = purpose == Purpose::Stand && self.place.push;
            // In the same round trip.
            let early = async { if hears { bell.begin_to_listen(&client).await } else { false } };
            let (server, is_heard) = tokio::join!(schema::inspect(&mut link), early);
            let server = server?;
            server.check(&shown, purpose)?;
            if server.tables.is_some() {
                self.settle(&link);
            }
            if is_heard {
                bell.listens(&link, Tidings::Everything);
            }
            // Only a choice can be a wrong one.
            if self.place.hosts.len() > 1 && server.has_timeline {
                self.lineage.check(&mut link).await?;
            }
            Ok((link, server))
        };
        timeout(self.place.connect_timeout, opening).await.map_err(|_| late())?
    }

    async fn open(
        &self,
        host: &Host,
        address: Option<std::net::IpAddr>,
        shown: Arc<str>,
        ringer: Ringer,
    ) -> Result<Link, StoreError> {
        let mut config = self.config(host);
        if let Some(address) = address {
            config.hostaddr(address);
        }
        let events = Arc::new(Events { warned: AtomicBool::new(false), ringer, listening: Mutex::new(None) });
        let refused = |error| not_connected(&error, &shown);
        let mode = self.place.tls_mode(host);
        let (client, task) = match mode {
            TlsMode::Disable => {
                config.ssl_mode(tokio_postgres::config::SslMode::Disable);
                let (client, connection) = config.connect(NoTls).await.map_err(refused)?;
                (client, tokio::spawn(attend(connection, Arc::clone(&events))))
            }
            TlsMode::VerifyFull => {
                config.ssl_mode(tokio_postgres::config::SslMode::Require);
                let connector = Authorities::connector(&self.place.tls)
                    .map_err(|why| StoreError::Unusable(format!("{shown}: {why}")))?;
                let (client, connection) = config.connect(connector).await.map_err(refused)?;
                (client, tokio::spawn(attend(connection, Arc::clone(&events))))
            }
        };
        let stop = Stop::new(client.cancel_token(), host, address, mode, &self.place.tls);
        Ok(Link {
            client: Arc::new(client),
            task: Some(task),
            stop: Some(stop),
            events,
            shown,
            is_local: host.is_local(),
            is_open: self.schema.get().is_none(),
            schema: self.schema.get().cloned().unwrap_or_else(Schema::public),
            unfit: false,
            begun_at: Instant::ZERO,
            quickest: Duration::MAX,
            preparations: Preparations::default(),
        })
    }

    fn config(&self, host: &Host) -> Config {
        let place = &self.place;
        let mut config = Config::new();
        match host {
            Host::Tcp { name, port } => config.host(name).port(*port),
            Host::Socket { folder, port } => config.host_path(folder).port(*port),
        };
        let system_user = || std::env::var("USER").ok();
        let user = place.user.clone().or_else(system_user);
        let database = place.database.clone().or_else(|| user.clone());
        if let Some(user) = &user {
            config.user(user);
        }
        if let Some(database) = &database {
            config.dbname(database);
        }
        let names = (database.as_deref().unwrap_or_default(), user.as_deref().unwrap_or_default());
        if let Some(password) = place.password.find(host, names.0, names.1) {
            config.password(password);
        }
        config
            .application_name(&place.application)
            .connect_timeout(place.connect_timeout)
            // A host that vanished is noticed also by a connection that only listens.
            .keepalives(true)
            .keepalives_idle(Duration::from_secs(10))
            .keepalives_interval(Duration::from_secs(5))
            .keepalives_retries(3)
            .tcp_user_timeout(Duration::from_secs(20));
        config
    }
}

/// What the server said between the answers.
#[derive(Debug)]
struct Events {
    /// It warned: of a commit that may not have reached its standbys, for one.
    warned: AtomicBool,
    ringer: Ringer,
    /// Until the connection ends.
    listening: Mutex<Option<Listening>>,
}

impl Events {
    fn listening(&self) -> MutexGuard<'_, Option<Listening>> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets go of the bell also when the task is aborted.
struct Attention(Arc<Events>);

impl Drop for Attention {
    fn drop(&mut self) {
        *self.0.listening() = None;
    }
}

/// Moves the connection's bytes until it ends.
async fn attend<S>(mut connection: Connection<Socket, S>, events: Arc<Events>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let attention = Attention(events);
    let events = &attention.0;
    loop {
        match poll_fn(|cx| connection.poll_message(cx)).await {
            Some(Ok(AsyncMessage::Notice(notice))) => {
                debug!(%notice, "a notice from the server");
                // Notices come before the end of the answer to which they belong.
                if casts_doubt(&notice) {
                    events.warned.store(true, Ordering::Release);
                }
            }
            Some(Ok(AsyncMessage::Notification(_))) => {
                events.ringer.ring();
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                debug!(%error, "a connection ended");
                return;
            }
            None => return,
        }
    }
}

/// Whether this may be the only sign that a commit did not wait for its synchronous standby. The message is translated
/// and the code is general; what tells is the name of the server's routine. Whoever leaves it out is not trusted.
fn casts_doubt(notice: &DbError) -> bool {
    let is_warning = notice.parsed_severity().is_none_or(|severity| severity == Severity::Warning);
    is_warning && notice.routine().is_none_or(|routine| routine == "SyncRepWaitForLSN")
}

/// A connection to a server that was found fit.
#[derive(Debug)]
pub(super) struct Link {
    client: Arc<Client>,
    task: Option<JoinHandle<()>>,
    stop: Option<Stop>,
    events: Arc<Events>,
    shown: Arc<str>,
    is_local: bool,
    /// Where the tables are.
    schema: Schema,
    /// Whether `schema` is still to be found.
    is_open: bool,
    /// Set while a statement is under way: one whose future was dropped leaves its outcome unknown.
    unfit: bool,
    begun_at: Instant,
    /// The shortest time from a statement to its answer: about a round trip.
    quickest: Duration,
    pub(super) preparations: Preparations,
}

impl Link {
    /// Whether it stays on this machine.
    pub(super) fn is_local(&self) -> bool {
        self.is_local
    }

    /// Where it leads, for messages.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// About how long a round trip takes.
    pub(super) fn quickest(&self) -> Duration {
        if self.quickest == Duration::MAX { Duration::ZERO } else { self.quickest }
    }

    pub(super) fn schema(&self) -> &Schema {
        &self.schema
    }

    pub(super) fn schema_is_open(&self) -> bool {
        self.is_open
    }

    pub(super) fn use_schema(&mut self, schema: Schema) {
        self.schema = schema;
        self.is_open = false;
    }

    /// Looks for the schema again, after tables have been made.
    pub(super) fn reopen_schema(&mut self, dialer: &Dialer) {
        self.is_open = dialer.schema.get().is_none();
    }

    /// This connection rings a bell from now on.
    pub(super) fn listens(&self, listening: Listening) {
        *self.events.listening() = Some(listening);
    }

    /// What makes it ring, if anything does.
    pub(super) fn hears(&self) -> Option<Tidings> {
        self.events.listening().as_ref().map(Listening::to)
    }

    /// Runs one statement, a template, which is a transaction of its own, in one round trip and without a name on the
    /// server. All rows have come, and the commit is through, when this returns.
    pub(super) async fn run(
        &mut self,
        statement: &str,
        parameters: &[Parameter<'_>],
        stake: Stake,
    ) -> Result<Vec<Row>, Fault> {
        let ran = self.run_text(&self.schema.statement(statement), parameters, stake).await;
        // Raised before the commit, so that nothing was done.
        if stake == Stake::Writing
            && matches!(&ran, Err(fault) if fault.code() == Some(QUEUE_IS_FULL))
            && let Some(silent) = statements::silent(statement)
        {
            debug!(fault = ?ran.err(), "the change is made without its notification");
            return self.run_text(&self.schema.statement(&silent), parameters, stake).await;
        }
        ran
    }

    /// The same, of a statement as the server reads it.
    pub(super) async fn run_text(
        &mut self,
        statement: &str,
        parameters: &[Parameter<'_>],
        stake: Stake,
    ) -> Result<Vec<Row>, Fault> {
        self.begin()?;
        let typed: Vec<_> = parameters.iter().map(Parameter::typed).collect();
        let result = self.client.query_typed(statement, &typed).await;
        self.end(stake, result)
    }

    /// Prepares a statement, a template, and runs another one that needs it, as the server reads it, in one round trip.
    /// Whether the first has failed is told by the second.
    pub(super) async fn run_prepared(
        &mut self,
        prepare: &str,
        statement: &str,
        stake: Stake,
    ) -> Result<Vec<Row>, Fault> {
        self.begin()?;
        let prepare = self.schema.statement(prepare);
        let prepared = self.client.batch_execute(&prepare);
        let ran = self.client.query_typed(statement, &[]);
        let (_, result) = tokio::join!(biased; prepared, ran);
        self.end(stake, result)
    }

    /// Runs several statements without parameters, a template, as one transaction, in one round trip.
    pub(super) async fn run_batch(&mut self, statements: &str, stake: Stake) -> Result<(), Fault> {
        self.begin()?;
        let result = self.client.batch_execute(&self.schema.statement(statements)).await;
        self.end(stake, result)
    }

    fn begin(&mut self) -> Result<(), Fault> {
        let refuse = |why: &str| Err(Fault::Said(StoreError::Unreachable(format!("{}: {why}", self.shown))));
        if self.unfit {
            return refuse("a step was abandoned on this connection; open another");
        }
        // Certain: nothing of this statement has been sent.
        if self.client.is_closed() {
            return refuse("the connection has ended");
        }
        self.events.warned.store(false, Ordering::Release);
        (self.unfit, self.begun_at) = (true, clock::now());
        Ok(())
    }

    fn end<T>(&mut self, stake: Stake, result: Result<T, tokio_postgres::Error>) -> Result<T, Fault> {
        self.unfit = false;
        self.quickest = self.quickest.min(clock::now().since(self.begun_at));
        let answer = result?;
        // R11: a commit whose wait for a synchronous standby was cut short is answered with a warning only.
        if stake == Stake::Writing && self.events.warned.load(Ordering::Acquire) {
            let why = "the server warned that the change may not have reached its synchronous standby";
            return Err(Fault::Doubtful(why.into()));
        }
        Ok(answer)
    }
}

impl Drop for Link {
    /// A statement whose answer nobody awaits any more may wait for a lock for hours, and the next attempt behind it:
    /// the server is told to give it up. Nobody believes what it did or did not do (rule R8).
    fn drop(&mut self) {
        let (Some(task), Some(stop)) = (self.task.take(), self.stop.take()) else { return };
        if !self.unfit || task.is_finished() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(stop.until_it_ends(task));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_served_is_first_and_who_says_nothing_is_not_the_next_time() {
        let turn = Turn::default();
        // The first caller gave up, then the second one.
        assert_eq!(turn.order(3), [0, 1, 2]);
        assert_eq!(turn.order(3), [1, 2, 0]);
        turn.served(1);
        assert_eq!(turn.order(3), [1, 2, 0]);
        turn.served(2);
        assert_eq!(turn.order(1), [0], "a name may have fewer addresses than before");
        assert_eq!(turn.order(0), Vec::<usize>::new());
    }
}
