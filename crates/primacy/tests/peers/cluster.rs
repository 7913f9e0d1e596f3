//! Some peers of one cluster, each with a folder of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use primacy::peers::{Peer, PeerAddress, PeerError, PeerSettings, PeersStore, RequestRate};
use tempfile::TempDir;
use tokio::sync::oneshot;

/// Far more than anything here takes; a test that reaches it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited {PATIENCE:?} for {what}"))
}

pub(crate) struct Cluster {
    pub(crate) addresses: Vec<PeerAddress>,
    folders: Vec<TempDir>,
    /// How many are told of each other; others wait to be taken in.
    first: usize,
    running: Vec<Option<Running>>,
}

/// A peer with a thread and a runtime of its own: when they are gone, so is everything of it, as with a process.
struct Running {
    requests: RequestRate,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Cluster {
    /// Peers that have been brought together.
    pub(crate) async fn start(count: usize) -> Self {
        let mut cluster = Self::planned(count);
        for n in 0..count {
            cluster.run(n).await;
        }
        for n in 0..count {
            within("the voters to meet", cluster.meet(n)).await;
        }
        cluster
    }

    /// Peers that have been brought together, and more that wait to be taken in.
    pub(crate) async fn start_with(count: usize, more: usize) -> Self {
        let mut cluster = Self { first: count, ..Self::planned(count + more) };
        for n in 0..count + more {
            cluster.run(n).await;
        }
        for n in 0..count {
            within("the voters to meet", cluster.meet(n)).await;
        }
        cluster
    }

    /// Peers of which none runs yet.
    pub(crate) fn planned(count: usize) -> Self {
        // Each port is free until its socket is gone, and nobody here asks for one of a given number.
        let sockets: Vec<std::net::TcpListener> =
            (0..count).map(|_| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port")).collect();
        let address = |(n, socket): (usize, &std::net::TcpListener)| {
            let name = char::from(b'a' + u8::try_from(n).expect("a few"));
            let port = socket.local_addr().expect("bound").port();
            format!("{name}@127.0.0.1:{port}").parse().expect("an address")
        };
        let addresses = sockets.iter().enumerate().map(address).collect();
        let folders = (0..count).map(|_| tempfile::tempdir().expect("a folder")).collect();
        Self { addresses, folders, first: count, running: (0..count).map(|_| None).collect() }
    }

    pub(crate) fn settings(&self, n: usize) -> PeerSettings {
        let place: SocketAddr = self.addresses[n].place().parse().expect("an address");
        let mut voters = self.addresses[..self.first].to_vec();
        if n >= self.first {
            voters.push(self.addresses[n].clone());
        }
        let (name, folder) = (self.addresses[n].name().to_owned(), self.folders[n].path().to_owned());
        let mut settings = PeerSettings::new(name, place, voters, folder);
        settings.socket = Some(self.socket(n));
        settings
    }

    /// Starts one.
    pub(crate) async fn run(&mut self, n: usize) {
        let settings = self.settings(n);
        let (stop, stopped) = oneshot::channel();
        let (started, listens) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let peer = Peer::start(settings).await.expect("it starts");
                assert!(started.send(peer.requests()).is_ok(), "it is awaited");
                tokio::select! {
                    error = peer.run() => assert!(matches!(error, PeerError::Removed { .. }), "{error}"),
                    _ = stopped => {}
                }
            });
        });
        let requests = listens.await.expect("it listens");
        self.running[n] = Some(Running { requests, stop, thread });
    }

    /// By which one is told how many requests arrive at its place.
    pub(crate) fn requests(&self, n: usize) -> &RequestRate {
        &self.running[n].as_ref().expect("it runs").requests
    }

    /// Ends one, as if its process were killed.
    pub(crate) async fn kill(&mut self, n: usize) {
        let Running { stop, thread, .. } = self.running[n].take().expect("it runs");
        stop.send(()).expect("it ran until now");
        tokio::task::spawn_blocking(|| thread.join()).await.expect("joined").expect("no panic");
    }

    /// Waits until this one has met the others.
    async fn meet(&self, n: usize) {
        let own = PeersStore::new(vec![self.addresses[n].clone()], None);
        while primacy::store::Store::admin(&own).await.is_err() {
            tokio::task::yield_now().await;
        }
    }

    /// Waits until one has ended by itself.
    pub(crate) async fn ends(&mut self, n: usize) {
        let Running { stop, thread, .. } = self.running[n].take().expect("it runs");
        let ended = tokio::task::spawn_blocking(|| thread.join());
        within("its end", ended).await.expect("joined").expect("no panic");
        drop(stop);
    }

    /// The store of one that was told of the first voters only.
    pub(crate) fn first_store(&self) -> Arc<PeersStore> {
        Arc::new(PeersStore::new(self.addresses[..self.first].to_vec(), None))
    }

    pub(crate) fn folder(&self, n: usize) -> &std::path::Path {
        self.folders[n].path()
    }

    pub(crate) fn socket(&self, n: usize) -> PathBuf {
        self.folders[n].path().join("socket")
    }

    pub(crate) fn store(&self) -> Arc<PeersStore> {
        Arc::new(PeersStore::new(self.addresses.clone(), None))
    }
}
