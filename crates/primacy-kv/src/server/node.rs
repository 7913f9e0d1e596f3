//! A node: its voter, its connections, its groups, and its clients, from its start to its end.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use nix::sys::statvfs::statvfs;
use primacy::peers::{Links, Peer, PeerAddress, PeerError, PeerSettings};
use primacy::store::BoxFuture;
use primacy::{Label, Timing};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tracing::{info, warn};

use super::backend::Backend;
use super::clients::Clients;
use super::control;
use super::core::{Core, Disk, Notice};
use super::disk;
use super::founding::Founder;
use super::grants::{self, Candidacy, Events};
use super::identity::Identity;
use super::links::{self, Nodes as _, Wires};
pub use super::port::{Event, NodeError, NodeSettings};
use super::snapshots::SnapshotWriter;
use crate::group::{self, SnapshotEvery};

/// How often the disk is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long it takes until people are told of what is waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// Runs a node until `stop` is ready, on a `LocalRuntime`. (In a `LocalSet` it works too; there each wake of a task is a call of the
/// system.)
///
/// # Errors
/// Why it cannot go on. What it has acknowledged is on disks.
pub async fn run(
    settings: NodeSettings,
    events: impl Fn(&Event) + 'static,
    stop: impl Future<Output = ()> + 'static,
) -> Result<(), NodeError> {
    boxed(settings, Box::new(|_| {}), Rc::new(events), Box::pin(stop)).await
}

/// As [`run`], with a planted bug in each of its groups.
///
/// # Errors
/// As there.
#[cfg(feature = "flaws")]
pub async fn run_flawed(
    settings: NodeSettings,
    flaw: group::AnyFlaw,
    events: impl Fn(&Event) + 'static,
    stop: impl Future<Output = ()> + 'static,
) -> Result<(), NodeError> {
    boxed(settings, Box::new(move |group| group.flaw = Some(flaw)), Rc::new(events), Box::pin(stop)).await
}

type Boxed<T> = Pin<Box<dyn Future<Output = T>>>;
/// Has the last word on the settings of groups.
type Adjust = Box<dyn FnOnce(&mut group::Settings)>;

/// Nothing here depends on the caller's types, so that all of it is compiled here, as fast as this crate's code is made.
fn boxed(settings: NodeSettings, adjust: Adjust, events: Events, stop: Boxed<()>) -> Boxed<Result<(), NodeError>> {
    Box::pin(run_with(settings, adjust, events, stop))
}

async fn run_with(
    settings: NodeSettings,
    adjust: Adjust,
    events: Events,
    mut stop: Boxed<()>,
) -> Result<(), NodeError> {
    let NodeSettings { folder, voter, store, groups, timing, reads, memory_max, snapshot_every, clients } = settings;
    let (name, all) = (voter.name.clone(), voter.voters.clone());
    let identity = Identity::open(&folder, &name)?;
    let folder = identity.folder().to_path_buf();
    let clients = Clients::bind(clients).await?;
    let serves = clients.addresses().first().map(ToString::to_string).unwrap_or_default();
    let (votes, links, address) = Votes::start(voter).await?;
    let names = all.iter().map(|peer| peer.name().to_owned()).collect();
    let record = identity.record();
    let founder = Founder::new((name.clone(), record.node), names, groups, record.founding.clone());
    let others: Vec<PeerAddress> = all.into_iter().filter(|peer| peer.name() != name).collect();
    let wires = Rc::new(Wires::new(others));
    info!(node = %record.node, starts = record.starts, %serves, "a node starts");
    let core = Core::new(identity, founder, Rc::clone(&wires), serves.clone(), memory_max);
    events(&Event::Listening { clients: serves.clone(), voter: address });
    let socket = control::listen(&folder)?;
    let mut tasks = Tasks::default();
    tasks.spawn(links::keep(Rc::clone(&core), Rc::clone(&wires), links));
    if let Some(socket) = socket {
        tasks.spawn(control::serve(socket, Rc::clone(&core)));
    }
    let (failed, stopped) = (core.failed(), votes.ended());
    tokio::pin!(failed, stopped);
    core.begin();
    let mut of_groups = group::Settings::new(core.own(), core.starts(), timing.lease());
    of_groups.reads = reads;
    if let Some(bytes) = snapshot_every {
        of_groups.snapshot_every = SnapshotEvery::fixed(bytes);
    }
    adjust(&mut of_groups);
    let opening = open(Rc::clone(&core), Rc::clone(&events), of_groups, folder.clone());
    let (end, ends) = oneshot::channel::<()>();
    let backend: Rc<dyn Backend> = Rc::clone(&core) as _;
    let loaded = {
        let core = Rc::clone(&core);
        async move { core.ready().await }
    };
    let serving = clients.serve(backend, loaded, async move { _ = ends.await });
    tokio::pin!(serving);
    // Clients are answered what needs no group, and wait with the rest.
    tokio::select! {
        opened = opening => opened?,
        () = &mut serving => return Ok(()),
        error = &mut failed => return Err(error),
        error = &mut stopped => return Err(error),
        () = &mut stop => return Ok(()),
    }
    tasks.spawn(Rc::clone(&core).run());
    let candidacy = Candidacy { label: label(&name)?, data: serves, timing };
    let standing = Rc::new(grants::stand(&core, store, &candidacy, &events)?);
    tasks.spawn(review(Rc::clone(&core), Rc::clone(&standing), timing));
    tasks.spawn(look(Rc::clone(&core), folder));
    // Until all voters have met, none of them can be lost.
    let met = async {
        votes.met().await;
        events(&Event::Ready);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = &mut serving => {}
        error = &mut failed => return Err(error),
        error = &mut stopped => return Err(error),
        () = &mut stop => {}
        () = met => {}
    }
    info!("the node ends: its leaderships are handed over");
    let ending = async {
        // What clients wait for goes to the next leaders.
        core.leads().into_iter().for_each(|group| core.hand_over(group, None));
        drop(end);
        serving.await;
        core.end();
        standing.iter().for_each(grants::Standing::withdraw);
        while !standing.iter().all(grants::Standing::is_withdrawn) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::select! {
        ended = tokio::time::timeout(timing.lease() + Duration::from_secs(5), ending) => drop(ended),
        error = &mut failed => return Err(error),
        error = &mut stopped => return Err(error),
    }
    Ok(())
}

fn label(name: &str) -> Result<Label, NodeError> {
    Label::new(name).map_err(|error| NodeError::Election(error.into()))
}

/// Waits for the founding, and opens what is on the disk.
async fn open(core: Rc<Core>, events: Events, mut settings: group::Settings, folder: PathBuf) -> Result<(), NodeError> {
    let founding = loop {
        match tokio::time::timeout(PATIENCE, core.founded()).await {
            Ok(founding) => break founding,
            Err(_) => {
                let unheard = core.unheard().join(", ");
                let why = if unheard.is_empty() {
                    "the nodes have met, and one of them was told of other --peers, or has another folder than before"
                        .to_owned()
                } else {
                    format!("the first start needs all nodes, and this one has not heard of {unheard}: start them")
                };
                warn!("{why}");
                events(&Event::Waiting { why });
            }
        }
    };
    if let (_, Some(max), _) = core.memory() {
        settings = settings.within(max, founding.groups);
    }
    let has_begun = core.has_begun();
    let opening = tokio::task::spawn_blocking(move || disk::open(&folder, &founding, settings, has_begun));
    let opened = match opening.await {
        Ok(opened) => opened?,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    };
    if !has_begun {
        core.begun()?;
    }
    // Since its groups are the same, one tells of all.
    if !opened.groups.iter().any(|group| group.status().replicas.contains(&core.own())) {
        let why = format!(
            "this node keeps no replica that counts, and the others go on without it: have it take its place with \
             primacy kv replace {}, on the machine of one of them",
            core.name()
        );
        warn!("{why}");
        events(&Event::Waiting { why });
    }
    let (wal, notices) = (Arc::new(opened.wal), core.notices());
    let snapshots =
        SnapshotWriter::start(opened.folder.clone(), Arc::clone(&wal), move |told| notices.put(Notice::Snapshot(told)));
    let snapshots = snapshots.map_err(NodeError::Thread)?;
    core.start(opened.groups, Disk { wal, folder: opened.folder, snapshots });
    Ok(())
}

/// Sees to it that the node stands where it may. Never ends.
async fn review(core: Rc<Core>, standing: Rc<Vec<grants::Standing>>, timing: Timing) {
    let every = grants::review_every(&timing);
    loop {
        let is_healthy = core.is_healthy(timing.lease() / 2);
        for (group, one) in standing.iter().enumerate() {
            one.review(&core, group as u16, is_healthy);
        }
        core.review_due(every).await;
    }
}

/// Looks after the disk, and goes on with changes of replicas. Never ends.
async fn look(core: Rc<Core>, folder: PathBuf) {
    loop {
        let place = folder.clone();
        if let Ok(Some(is_full)) = tokio::task::spawn_blocking(move || is_full(&place)).await {
            core.disk_full(is_full);
        }
        let is_long = core.look_after_log();
        core.go_on_replacing();
        tokio::time::sleep(if is_long { LOOK / 10 } else { LOOK }).await;
    }
}

/// Whether less than a twentieth of the disk, or of 1 GiB, is free.
fn is_full(folder: &Path) -> Option<bool> {
    let found = statvfs(folder).ok()?;
    let (free, all) = (found.blocks_available(), found.blocks());
    let bytes = free.saturating_mul(found.fragment_size());
    Some(free < all / 20 && bytes < 1 << 30)
}

/// Tasks that end with this.
#[derive(Default)]
struct Tasks(Vec<AbortHandle>);

impl Tasks {
    fn spawn(&mut self, task: impl Future<Output = ()> + 'static) {
        self.0.push(tokio::task::spawn_local(task).abort_handle());
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// The node's voter, on a thread of its own: whatever the groups do, it answers in time.
struct Votes {
    stop: Option<oneshot::Sender<()>>,
    error: RefCell<Option<oneshot::Receiver<PeerError>>>,
    met: RefCell<Option<BoxFuture<'static, ()>>>,
    thread: Option<JoinHandle<()>>,
}

impl Votes {
    async fn start(settings: PeerSettings) -> Result<(Self, Links, String), NodeError> {
        let (started, has_started) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let (fail, error) = oneshot::channel();
        let votes = move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(NodeError::Thread(error)))),
            };
            runtime.block_on(async move {
                match Peer::start_with_links(settings).await {
                    Ok((peer, links)) => {
                        let address = peer.address().to_string();
                        let met: BoxFuture<'static, ()> = Box::pin(peer.founded());
                        if started.send(Ok((links, address, met))).is_err() {
                            return;
                        }
                        tokio::select! {
                            error = peer.run() => drop(fail.send(error)),
                            _ = stopped => {}
                        }
                    }
                    Err(error) => drop(started.send(Err(error.into()))),
                }
            });
        };
        let thread = Builder::new().name("primacy-kv-vote".into()).spawn(votes).map_err(NodeError::Thread)?;
        let (links, address, met) = has_started.await.unwrap_or(Err(NodeError::VoterGone))?;
        let (error, met) = (RefCell::new(Some(error)), RefCell::new(Some(met)));
        let votes = Self { stop: Some(stop), error, met, thread: Some(thread) };
        Ok((votes, links, address))
    }

    /// Waits until all voters have met, now or before.
    fn met(&self) -> impl Future<Output = ()> + use<> {
        let met = self.met.borrow_mut().take();
        async move {
            if let Some(met) = met {
                met.await;
            }
        }
    }

    /// Waits until it votes no more, and tells why.
    fn ended(&self) -> impl Future<Output = NodeError> + use<> {
        let error = self.error.borrow_mut().take();
        async move {
            match error {
                Some(error) => error.await.map_or(NodeError::VoterGone, NodeError::Voter),
                None => std::future::pending().await,
            }
        }
    }
}

impl Drop for Votes {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _: Result<(), _> = thread.join();
        }
    }
}
