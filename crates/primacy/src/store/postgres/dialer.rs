//! Opens connections: to the first host that is no standby, with what has to be known of it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::{Config, NoTls};

use super::super::race::{race, together};
use super::super::{BoxFuture, StoreError};
use super::cancel::CancelHandle;
use super::connection::{Connection, Events, Purpose, attend};
use super::ears::Ringer;
use super::errors::not_connected;
use super::host::Host;
use super::notifier::Channel;
use super::schema::{self, Server};
use super::timeline::Timelines;
use super::tls::Authorities;
use super::url::{StoreUrl, TlsMode};
use crate::qualified::Schema;
use crate::{Instant, clock};

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

/// Opens connections to the hosts of one URL.
#[derive(Debug)]
pub(super) struct Dialer {
    url: StoreUrl,
    hosts: Turn,
    /// Where the tables are, once they have been found there.
    schema: OnceLock<Schema>,
    /// For each host, of the addresses of its name.
    addresses: Vec<Turn>,
    timelines: Timelines,
    /// Until when candidates are not announced, in nanoseconds of [`clock`].
    silent_until: AtomicU64,
}

impl Dialer {
    pub(super) fn new(url: StoreUrl) -> Self {
        let addresses = url.hosts.iter().map(|_| Turn::default()).collect();
        let schema = url.schema.clone().map(OnceLock::from).unwrap_or_default();
        let silent_until = AtomicU64::new(0);
        Self { url, hosts: Turn::default(), schema, addresses, timelines: Timelines::default(), silent_until }
    }

    /// Lets candidates look without being announced for a while.
    pub(super) fn be_silent_until(&self, until: Instant) {
        self.silent_until.store(until.as_nanos(), Ordering::Relaxed);
    }

    pub(super) fn is_silent(&self) -> bool {
        clock::now().as_nanos() < self.silent_until.load(Ordering::Relaxed)
    }

    pub(super) fn url(&self) -> &StoreUrl {
        &self.url
    }

    /// Remembers where the tables are: for all connections from now on, whatever the search path of their sessions is.
    pub(super) fn settle(&self, connection: &Connection) {
        // Another connection may have found them first.
        let _ = self.schema.set(connection.schema().clone());
    }

    /// Connects to the first host that will do, and looks what is there.
    pub(super) async fn dial(
        self: &Arc<Self>,
        purpose: Purpose,
        ringer: Ringer,
    ) -> Result<(Connection, Server), StoreError> {
        let order = self.hosts.order(self.url.hosts.len());
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
    ) -> Result<(Connection, Server), StoreError> {
        let host = &self.url.hosts[index];
        let shown: Arc<str> = self.url.url_of(std::slice::from_ref(host)).into();
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
                let host = &dialer.url.hosts[index];
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
    ) -> Result<(Connection, Server), StoreError> {
        let late = || StoreError::Unreachable(format!("{shown}: no answer within {:?}", self.url.connect_timeout));
        let opening = async {
            let handle = ringer.of_one().cloned();
            let mut connection = self.open(host, address, Arc::clone(&shown), ringer).await?;
            let client = connection.client();
            let handle = handle.filter(|_| purpose == Purpose::Stand && self.url.push);
            // In the same round trip.
            let early = async {
                match &handle {
                    Some(handle) => handle.begin_to_listen(&client).await,
                    None => false,
                }
            };
            let (server, is_heard) = tokio::join!(schema::inspect(&mut connection), early);
            let server = server?;
            server.check(&shown, purpose)?;
            if server.tables.is_some() {
                self.settle(&connection);
            }
            if let Some(handle) = handle.filter(|_| is_heard) {
                handle.listens(Channel::Everything, |guard| connection.listens(guard));
            }
            // Only a choice can be a wrong one.
            if self.url.hosts.len() > 1 && server.has_timeline {
                self.timelines.check(&mut connection).await?;
            }
            Ok((connection, server))
        };
        timeout(self.url.connect_timeout, opening).await.map_err(|_| late())?
    }

    async fn open(
        &self,
        host: &Host,
        address: Option<std::net::IpAddr>,
        shown: Arc<str>,
        ringer: Ringer,
    ) -> Result<Connection, StoreError> {
        let mut config = self.config(host);
        if let Some(address) = address {
            config.hostaddr(address);
        }
        let events = Arc::new(Events::new(ringer));
        let refused = |error| not_connected(&error, &shown);
        let mode = self.url.tls_mode(host);
        let (client, task) = match mode {
            TlsMode::Disable => {
                config.ssl_mode(tokio_postgres::config::SslMode::Disable);
                let (client, connection) = config.connect(NoTls).await.map_err(refused)?;
                (client, tokio::spawn(attend(connection, Arc::clone(&events))))
            }
            TlsMode::VerifyFull => {
                config.ssl_mode(tokio_postgres::config::SslMode::Require);
                let connector = Authorities::connector(&self.url.tls)
                    .map_err(|why| StoreError::Unusable(format!("{shown}: {why}")))?;
                let (client, connection) = config.connect(connector).await.map_err(refused)?;
                (client, tokio::spawn(attend(connection, Arc::clone(&events))))
            }
        };
        let stop = CancelHandle::new(client.cancel_token(), host, address, mode, &self.url.tls);
        let schema = self.schema.get().cloned();
        Ok(Connection::new(client, task, stop, events, shown, host.is_local(), schema))
    }

    /// Whether it is not known yet where the tables are.
    pub(super) fn schema_is_open(&self) -> bool {
        self.schema.get().is_none()
    }

    fn config(&self, host: &Host) -> Config {
        let url = &self.url;
        let mut config = Config::new();
        match host {
            Host::Tcp { name, port } => config.host(name).port(*port),
            Host::Socket { folder, port } => config.host_path(folder).port(*port),
        };
        let system_user = || std::env::var("USER").ok();
        let user = url.user.clone().or_else(system_user);
        let database = url.database.clone().or_else(|| user.clone());
        if let Some(user) = &user {
            config.user(user);
        }
        if let Some(database) = &database {
            config.dbname(database);
        }
        let names = (database.as_deref().unwrap_or_default(), user.as_deref().unwrap_or_default());
        if let Some(password) = url.password.find(host, names.0, names.1) {
            config.password(password);
        }
        config
            .application_name(&url.application)
            .connect_timeout(url.connect_timeout)
            // A host that vanished is noticed also by a connection that only listens.
            .keepalives(true)
            .keepalives_idle(Duration::from_secs(10))
            .keepalives_interval(Duration::from_secs(5))
            .keepalives_retries(3)
            .tcp_user_timeout(Duration::from_secs(20));
        config
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
