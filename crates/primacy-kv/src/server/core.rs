//! The state of a node, on one thread: its groups, what goes to and comes from the other nodes, its disk, and its clients' requests.
//!
//! Tasks bring inputs; each touches groups. One task takes [turns](Core::turn): when it is woken it lets all tasks that are ready bring
//! their inputs first, and then has each touched group do what follows from them.

mod nodes;
mod replacing;
mod requests;
mod turns;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use primacy::store::EndReason;
use primacy::{CandidateId, Instant, Label, Leadership, Token, clock};
use primacy_core::log::{Ballot, ReplicaId};
use tokio::sync::Notify;
use tracing::{error, info};

use super::backend::Done;
use super::founding::{Founder, Founding, Step};
use super::frames::Control;
use super::identity::Identity;
use super::links::Wires;
use super::port::NodeError;
use super::snapshots::{SnapshotFolder, SnapshotWriter, Told};
use crate::group::{Group, Resignation, Status};
use crate::snapshots::{self, LogBounds, LogLength, Snapshots};
use crate::wal::{AppendError, SEGMENT_BYTES, Wal};

/// What threads tell the node's thread.
#[derive(Debug)]
pub(super) enum Notice {
    /// What groups had to write is on the disk, or not.
    Appended(Vec<AppendResult>),
    /// About snapshots.
    Snapshot(Told),
}

/// What became of a group's writes.
#[derive(Debug)]
pub(super) struct AppendResult {
    group: u16,
    done: Result<(), AppendError>,
}

/// Where threads leave what they tell.
#[derive(Debug, Default)]
pub(super) struct Notices {
    untaken: Mutex<Vec<Notice>>,
    wake: Notify,
}

impl Notices {
    pub(super) fn put(&self, notice: Notice) {
        self.untaken.lock().unwrap_or_else(PoisonError::into_inner).push(notice);
        self.wake.notify_one();
    }

    fn take(&self) -> Vec<Notice> {
        mem::take(&mut *self.untaken.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A node's replica of one group.
#[derive(Debug)]
struct Replica {
    group: Group,
    is_touched: bool,
    deadline: Option<Instant>,
    /// What it has of the group's election.
    leadership: Option<Rc<Leadership>>,
    /// Why that is to be given back, for the task that has it.
    resigned: Rc<Resigned>,
    /// How many bytes its table had after its last turn.
    bytes: usize,
    waiting: usize,
    wakers: Vec<Waker>,
    /// What was begun last of replacing a replica, while this node leads.
    replacing: Option<(ReplicaId, ReplicaId)>,
    /// Since when what it had to write is on its way to the disk.
    writes_since: Option<Instant>,
    /// Up to where its log has a snapshot when that is on the disk, if a snapshot is given to it with that.
    given: Option<u64>,
}

impl snapshots::Replica for Replica {
    fn group(&mut self) -> &mut Group {
        &mut self.group
    }

    fn is_given_snapshot(&self) -> bool {
        self.given.is_some()
    }
}

/// Tells the task that stands for a group that its leadership is to be given back.
#[derive(Debug, Default)]
pub(super) struct Resigned {
    why: Cell<Option<Resignation>>,
    changed: Notify,
}

impl Resigned {
    pub(super) async fn wait(&self) -> Resignation {
        loop {
            if let Some(why) = self.why.take() {
                return why;
            }
            self.changed.notified().await;
        }
    }
}

/// What is known of another node.
#[derive(Debug, Default)]
struct Peer {
    node: Option<ReplicaId>,
    serves: String,
    /// How many connections of each kind it has to this one.
    taken: [u32; 2],
}

/// What a node's state rests on once its groups are there.
pub(super) struct Disk {
    pub(super) wal: Arc<Wal>,
    pub(super) folder: SnapshotFolder,
    pub(super) snapshots: SnapshotWriter,
}

struct State {
    identity: Identity,
    founder: Founder,
    peers: Vec<Peer>,
    ids: HashMap<ReplicaId, usize>,
    replicas: Vec<Replica>,
    touched: Vec<u16>,
    deadlines: BTreeSet<(Instant, u16)>,
    requests: HashMap<u64, (u16, Done)>,
    last_tag: u64,
    disk: Option<Disk>,
    snapshots: Snapshots,
    memory: usize,
    is_disk_full: bool,
    is_ending: bool,
    /// Replicas that are to take the place of others.
    wishes: BTreeMap<ReplicaId, ReplicaId>,
}

/// A node, on its thread.
pub(super) struct Core {
    own: ReplicaId,
    name: String,
    serves: String,
    memory_max: Option<usize>,
    names: Vec<String>,
    state: RefCell<State>,
    wires: Rc<Wires>,
    notices: Arc<Notices>,
    wake: Notify,
    /// The founding is known, or groups are there.
    changed: Notify,
    /// The turn after this moment is followed by a review.
    review_from: Cell<Option<Instant>>,
    review: Notify,
    failure: RefCell<Option<NodeError>>,
    failed: Notify,
}

impl Core {
    pub(super) fn new(
        identity: Identity,
        founder: Founder,
        wires: Rc<Wires>,
        serves: String,
        memory_max: Option<usize>,
    ) -> Rc<Self> {
        let record = identity.record();
        let (own, name) = (record.node, record.name.clone());
        let names = founder.names().to_vec();
        let state = State {
            identity,
            founder,
            peers: wires.peers.iter().map(|_| Peer::default()).collect(),
            ids: HashMap::new(),
            replicas: Vec::new(),
            touched: Vec::new(),
            deadlines: BTreeSet::new(),
            requests: HashMap::new(),
            last_tag: 0,
            disk: None,
            snapshots: Snapshots::default(),
            memory: 0,
            is_disk_full: false,
            is_ending: false,
            wishes: BTreeMap::new(),
        };
        Rc::new(Self {
            own,
            name,
            serves,
            memory_max,
            names,
            state: RefCell::new(state),
            wires,
            notices: Arc::default(),
            wake: Notify::new(),
            changed: Notify::new(),
            review_from: Cell::new(None),
            review: Notify::new(),
            failure: RefCell::new(None),
            failed: Notify::new(),
        })
    }

    pub(super) fn notices(&self) -> Arc<Notices> {
        Arc::clone(&self.notices)
    }

    pub(super) fn own(&self) -> ReplicaId {
        self.own
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn serves(&self) -> String {
        self.serves.clone()
    }

    // ---- its end ----

    /// It cannot go on.
    pub(super) fn fail(&self, failure: NodeError) {
        self.failure.borrow_mut().get_or_insert(failure);
        self.failed.notify_one();
    }

    pub(super) async fn failed(&self) -> NodeError {
        loop {
            if let Some(failure) = self.failure.borrow_mut().take() {
                return failure;
            }
            self.failed.notified().await;
        }
    }

    /// It takes no part any more once its leaderships are handed over.
    pub(super) fn end(&self) {
        self.state.borrow_mut().is_ending = true;
    }

    // ---- founding ----

    /// Alone it founds at once.
    pub(super) fn begin(&self) {
        let step = self.state.borrow().founder.begin(draw);
        self.carry_out(step);
    }

    /// With whom the groups are kept, once that is on the disk.
    pub(super) async fn founded(&self) -> Founding {
        loop {
            if let Some(founding) = self.state.borrow().founder.founding() {
                return founding.clone();
            }
            self.changed.notified().await;
        }
    }

    /// Of whom the decider still waits to hear, for people.
    pub(super) fn unheard(&self) -> Vec<String> {
        let state = self.state.borrow();
        let is_heard = |name: &&String| {
            **name == self.name
                || state
                    .peers
                    .iter()
                    .zip(&self.wires.peers)
                    .any(|(peer, address)| peer.node.is_some() && address.name() == name.as_str())
        };
        self.names.iter().filter(|name| !is_heard(name)).cloned().collect()
    }

    fn carry_out(&self, step: Option<Step>) {
        match step {
            Some(Step::Pledge { to }) => {
                if let Some(peer) = self.wires.peers.iter().position(|peer| peer.name() == to) {
                    self.tell(peer, &Control::Pledge);
                }
            }
            Some(Step::Keep(founding)) => {
                let mut state = self.state.borrow_mut();
                if let Err(error) = state.identity.found(founding.clone()) {
                    drop(state);
                    return self.fail(NodeError::Identity(error));
                }
                state.founder.kept(founding.clone());
                drop(state);
                let is_own = founding.has(self.own);
                info!(store = format!("{:032x}", founding.id), groups = founding.groups, member = is_own, "founded");
                (0..self.wires.peers.len()).for_each(|peer| self.tell(peer, &Control::Founding(founding.clone())));
                self.changed.notify_waiters();
            }
            None => {}
        }
    }

    fn tell(&self, peer: usize, control: &Control) {
        let outbox = &self.wires.outboxes[peer][0];
        outbox.put(None, |out| control.encode(out));
        outbox.flush();
    }

    // ---- groups ----

    /// Its groups are there.
    pub(super) fn start(&self, groups: Vec<Group>, disk: Disk) {
        let mut state = self.state.borrow_mut();
        let now = clock::now();
        let replica = |group: Group| Replica {
            bytes: group.bytes(),
            group,
            is_touched: false,
            deadline: None,
            leadership: None,
            resigned: Rc::default(),
            waiting: 0,
            wakers: Vec::new(),
            replacing: None,
            writes_since: None,
            given: None,
        };
        state.replicas = groups.into_iter().map(replica).collect();
        state.memory = state.replicas.iter().map(|replica| replica.bytes).sum();
        state.disk = Some(disk);
        let connected: Vec<ReplicaId> = state.peers.iter().filter_map(|peer| peer.node).collect();
        for number in 0..state.replicas.len() as u16 {
            for node in &connected {
                state.replicas[usize::from(number)].group.connected(*node, now);
            }
            state.touch(number);
        }
        drop(state);
        self.changed.notify_waiters();
        self.wake.notify_one();
    }

    pub(super) fn has_begun(&self) -> bool {
        self.state.borrow().identity.record().has_replicas
    }

    /// Its replicas have begun.
    pub(super) fn begun(&self) -> Result<(), NodeError> {
        self.state.borrow_mut().identity.begun().map_err(NodeError::Identity)
    }

    pub(super) fn starts(&self) -> u64 {
        self.state.borrow().identity.record().starts
    }

    /// Gives an input to a group.
    fn with<T>(&self, group: u16, input: impl FnOnce(&mut Replica) -> T) -> Option<T> {
        let mut state = self.state.borrow_mut();
        let given = input(state.replicas.get_mut(usize::from(group))?);
        state.touch(group);
        drop(state);
        self.wake.notify_one();
        Some(given)
    }

    fn with_all(&self, input: impl Fn(&mut Group)) {
        let mut state = self.state.borrow_mut();
        for number in 0..state.replicas.len() as u16 {
            input(&mut state.replicas[usize::from(number)].group);
            state.touch(number);
        }
        drop(state);
        self.wake.notify_one();
    }

    // ---- grants ----

    pub(super) fn groups_count(&self) -> u16 {
        self.state.borrow().replicas.len() as u16
    }

    /// Whether it may stand in a group's election, and above which token a grant is of use.
    pub(super) fn standing(&self, group: u16) -> (bool, Token) {
        let state = self.state.borrow();
        let replica = &state.replicas[usize::from(group)];
        (replica.group.may_stand() && !state.is_ending, replica.group.floor())
    }

    pub(super) fn granted(&self, group: u16, ballot: Ballot, leadership: Rc<Leadership>) -> Rc<Resigned> {
        let resigned = self.with(group, |replica| {
            replica.leadership = Some(leadership);
            replica.resigned = Rc::default();
            replica.group.granted(ballot, clock::now());
            Rc::clone(&replica.resigned)
        });
        resigned.unwrap_or_default()
    }

    /// Gives a group's leadership to that node, or to the one that has most of its log.
    pub(super) fn hand_over(&self, group: u16, to: Option<ReplicaId>) {
        self.with(group, |replica| replica.group.hand_over(to, clock::now()));
    }

    /// The node that an operator wants to lead next.
    pub(super) fn meant(&self, reason: &EndReason) -> Option<ReplicaId> {
        let state = self.state.borrow();
        let nodes = state.peers.iter().zip(&self.wires.peers);
        // An order that names a candidate's id is followed by the grant; who that is, is not known here.
        let is_meant = |name: &str| Label::new(name).is_ok_and(|label| reason.names(CandidateId::from_bits(0), &label));
        nodes.filter(|(_, address)| is_meant(address.name())).find_map(|(peer, _)| peer.node)
    }

    /// The leadership with this token is over.
    pub(super) fn ended(&self, group: u16, token: Token) {
        self.with(group, |replica| {
            replica.leadership = None;
            replica.group.ended(token, clock::now());
        });
        self.review.notify_one();
    }

    /// Whether a grant would be of use: a majority of the nodes is connected, and the disk answers within that time.
    pub(super) fn is_healthy(&self, within: Duration) -> bool {
        let state = self.state.borrow();
        let connected = 1 + state.peers.iter().filter(|peer| peer.node.is_some()).count();
        let now = clock::now();
        let is_late = |replica: &Replica| replica.writes_since.is_some_and(|since| now.since(since) > within);
        connected * 2 > self.names.len() && !state.replicas.iter().any(is_late)
    }

    /// Returns when it is time to look again at what decides whether the node stands: at once when another node is connected or no more,
    /// or a leadership is over; after the first turn when nearly `every` has passed; or after twice as long. Beats cause turns, and a timer
    /// of its own would wake the thread as often once more.
    pub(super) async fn review_due(&self, every: Duration) {
        self.review_from.set(Some(clock::now() + every * 3 / 4));
        // Either way it is due.
        drop(tokio::time::timeout(every * 2, self.review.notified()).await);
    }

    pub(super) fn leads(&self) -> Vec<u16> {
        let state = self.state.borrow();
        let leads = state.replicas.iter().enumerate().filter(|(_, replica)| replica.leadership.is_some());
        leads.map(|(group, _)| group as u16).collect()
    }

    // ---- what is looked at from time to time ----

    pub(super) fn disk_full(&self, is_full: bool) {
        let mut state = self.state.borrow_mut();
        if mem::replace(&mut state.is_disk_full, is_full) != is_full {
            match is_full {
                true => error!("the disk is nearly full: nothing that needs room is written until there is more"),
                false => info!("the disk has room again"),
            }
            let leads: Vec<u16> = (0..state.replicas.len() as u16)
                .filter(|group| state.replicas[usize::from(*group)].leadership.is_some())
                .collect();
            let may_move = is_full && state.peers.iter().any(|peer| peer.node.is_some());
            drop(state);
            if may_move {
                leads.into_iter().for_each(|group| self.hand_over(group, None));
            }
        }
    }

    /// Sees to it that the log does not become too long. Returns whether it is: then groups hold it that are soon done, or others after them.
    pub(super) fn look_after_log(&self) -> bool {
        let mut state = self.state.borrow_mut();
        let Some(disk) = &state.disk else { return false };
        let status = disk.wal.status();
        let holding: Vec<u16> = status.holding.iter().map(|group| (group.0 - 1) as u16).collect();
        let log = LogLength { segments: status.segments, holding: &holding };
        let State { snapshots, replicas, .. } = &mut *state;
        let bounds = LogBounds::of(SEGMENT_BYTES);
        for touched in snapshots.look_after(log, bounds, replicas) {
            state.touch(touched);
        }
        self.wake.notify_one();
        log.segments > bounds.before_asking
    }

    /// Has each group take a snapshot.
    pub(super) fn ask_for_snapshots(&self) {
        let mut state = self.state.borrow_mut();
        for number in 0..state.replicas.len() as u16 {
            state.snapshots.ask(number);
        }
        self.wake.notify_one();
    }

    // ---- for people ----

    /// How each replica stands, and what each node is called.
    pub(super) fn statuses(&self) -> Vec<(Status, Option<Duration>)> {
        let state = self.state.borrow();
        let one = |replica: &Replica| {
            (replica.group.status(), replica.leadership.as_ref().map(|leadership| leadership.remaining()))
        };
        state.replicas.iter().map(one).collect()
    }

    pub(super) fn name_of(&self, id: ReplicaId) -> Option<String> {
        self.state.borrow().name_of(id, self)
    }

    /// The other nodes: name, address, whether they are connected, where they serve.
    pub(super) fn others(&self) -> Vec<(String, String, Option<ReplicaId>, String)> {
        let state = self.state.borrow();
        let one = |(peer, address): (&Peer, &primacy::peers::PeerAddress)| {
            (address.name().to_owned(), address.place(), peer.node, peer.serves.clone())
        };
        state.peers.iter().zip(&self.wires.peers).map(one).collect()
    }

    pub(super) fn memory(&self) -> (usize, Option<usize>, bool) {
        let state = self.state.borrow();
        (state.memory, self.memory_max, state.is_disk_full)
    }

    pub(super) fn wal_status(&self) -> Option<crate::wal::Status> {
        self.state.borrow().disk.as_ref().map(|disk| disk.wal.status())
    }
}

fn draw() -> (u128, [u8; 16]) {
    (rand::random(), rand::random())
}

impl State {
    fn touch(&mut self, group: u16) {
        let replica = &mut self.replicas[usize::from(group)];
        if !mem::replace(&mut replica.is_touched, true) {
            self.touched.push(group);
        }
    }

    /// What a node with this identity is called, by what is on the disk.
    fn recorded_name(&self, id: ReplicaId) -> Option<&str> {
        let record = self.identity.record();
        let first = record.founding.iter().flat_map(|founding| &founding.members);
        first.chain(&record.successors).find(|(_, known)| *known == id).map(|(name, _)| name.as_str())
    }

    fn name_of(&self, id: ReplicaId, core: &Core) -> Option<String> {
        if id == core.own {
            return Some(core.name.clone());
        }
        let connected = self.ids.get(&id).map(|peer| core.wires.peers[*peer].name());
        connected.or_else(|| self.recorded_name(id)).map(str::to_owned)
    }
}
