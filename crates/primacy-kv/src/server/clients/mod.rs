//! The clients' front of a node: a listener that speaks RESP, connections whose commands go to the groups of the node, and the replies in
//! their order.
//!
//! It knows groups only as a [`Backend`]. [`Clients::bind`] listens, [`Clients::serve`] serves, on a `LocalRuntime`.

mod answers;
mod connection;
mod hub;
mod information;
mod keyspace;
mod line;
mod requests;
mod session;
mod settings;
mod statistics;
mod transaction;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use primacy::peers::tls::{ServerTls, TlsError};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, spawn_local};
use tokio::time::{sleep, timeout};

pub use self::settings::{Password, Settings, SettingsError};
pub use self::statistics::Statistics;
use super::backend::Backend;
use connection::Connection;
use hub::{Entered, Hub};
use line::Ends;
use statistics::add;

/// How long what is under way may take when the front ends.
const ENDING_MAX: Duration = Duration::from_secs(5);
/// How long to wait when no connection can be accepted, mostly for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// When a client that says nothing is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(300);

/// Why clients cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The settings are not usable, or not safe.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// TLS was asked for, and its files are not usable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An address cannot be listened at.
    #[error("{address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
}

/// A front that listens.
pub struct Clients {
    settings: Settings,
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    tls: Option<ServerTls>,
    statistics: Rc<Statistics>,
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Clients {
    /// Checks the settings, and listens. Who connects waits for [`Clients::serve`].
    pub async fn bind(settings: Settings) -> Result<Self, ServeError> {
        settings.check()?;
        let tls = settings.tls.clone().map(ServerTls::load).transpose()?;
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        for address in &settings.listen {
            let failed = |source| ServeError::Listen { address: *address, source };
            let listener = TcpListener::bind(address).await.map_err(failed)?;
            addresses.push(listener.local_addr().map_err(failed)?);
            listeners.push(listener);
        }
        Ok(Self { settings, listeners, addresses, tls, statistics: Rc::default() })
    }

    /// Where it listens: with the ports that were chosen where the settings have 0.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What clients ask for, in numbers.
    pub fn statistics(&self) -> Rc<Statistics> {
        Rc::clone(&self.statistics)
    }

    /// Serves clients until `stop` is ready, and then finishes what is under way, within seconds. `loaded` is ready when the groups are
    /// there. It has to be called on a `LocalRuntime`. If it is dropped, all connections end at once.
    pub async fn serve(
        self,
        backend: Rc<dyn Backend>,
        loaded: impl Future<Output = ()> + 'static,
        stop: impl Future<Output = ()>,
    ) {
        let Self { settings, listeners, addresses, tls, statistics } = self;
        let hub = Rc::new(Hub::new(backend, settings, statistics, addresses));
        let _guard = EndAll(Rc::clone(&hub));
        let mut accepting = JoinSet::new();
        for listener in listeners {
            accepting.spawn_local(accept(listener, tls.clone(), Rc::clone(&hub)));
        }
        accepting.spawn_local(sweep(Rc::clone(&hub)));
        accepting.spawn_local(go_on(Rc::clone(&hub), loaded));
        stop.await;
        accepting.shutdown().await;
        hub.is_ending.set(true);
        hub.lines().iter().for_each(|line| line.wake());
        let _ = timeout(ENDING_MAX, async {
            loop {
                let left = hub.left.notified();
                if hub.is_empty() {
                    break;
                }
                left.await;
            }
        })
        .await;
    }
}

/// Ends all connections.
struct EndAll(Rc<Hub>);

impl Drop for EndAll {
    fn drop(&mut self) {
        self.0.lines().iter().for_each(|line| line.end());
    }
}

async fn sweep(hub: Rc<Hub>) {
    loop {
        sleep(Duration::from_secs(1)).await;
        hub.sweep();
    }
}

/// Lets those go on who wait for the groups, when they are there.
async fn go_on(hub: Rc<Hub>, loaded: impl Future<Output = ()>) {
    loaded.await;
    hub.lines().iter().for_each(|line| line.wake());
}

async fn accept(listener: TcpListener, tls: Option<ServerTls>, hub: Rc<Hub>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => admit(stream, peer, tls.as_ref(), &hub),
            Err(error) => {
                tracing::warn!("no connection can be accepted: {error}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn admit(stream: TcpStream, peer: SocketAddr, tls: Option<&ServerTls>, hub: &Rc<Hub>) {
    if !hub.has_room() {
        add(&hub.statistics.refused, 1);
        if tls.is_none() {
            let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
        }
        return;
    }
    // A client that has gone meanwhile is found by the first read.
    let Ok(local) = stream.local_addr() else { return };
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE));
    let entered = hub.enter(Ends { peer, local });
    match tls {
        None => {
            spawn_local(async move { Connection::new(stream, &entered).serve().await });
        }
        Some(tls) => {
            spawn_local(encrypted(tls.accept(stream), entered));
        }
    }
}

async fn encrypted<S>(handshake: impl Future<Output = io::Result<S>>, entered: Entered)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match timeout(entered.hub.settings.greeting_max, handshake).await {
        Ok(Ok(stream)) => Box::pin(Connection::new(stream, &entered).serve()).await,
        Ok(Err(error)) => tracing::debug!(peer = %entered.line.ends.peer, "no TLS: {error}"),
        Err(_) => tracing::debug!(peer = %entered.line.ends.peer, "no TLS: it takes too long"),
    }
}
