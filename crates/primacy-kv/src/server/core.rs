//! The state of a node, on one thread: its groups, what goes to and comes from the other nodes, its disk, and its clients' requests.
//!
//! Tasks bring inputs; each touches groups. One task takes [turns](Core::turn): when it is woken it lets all tasks that are ready bring
//! their inputs first, and then has each touched group do what follows from them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use primacy::{Instant, Leadership, Token, clock};
use primacy_core::log::{Ballot, ChunkOrder, ReplicaId};
use tokio::sync::Notify;
use tracing::{error, info, warn};

use super::backend::{Backend, Done, GroupFacts, NodeFacts};
use super::founding::{Founder, Founding, Step};
use super::frames::{Control, Hello};
use super::identity::Identity;
use super::links::{Direction, Nodes, Wires};
use super::node::NodeError;
use super::snapshots::{self, SnapshotFileError, SnapshotFolder, SnapshotWriter, Told};
use crate::group::{Effect, Group, Message, Resignation, Status, Turn};
use crate::payload::LogBytes;
use crate::request::{Answered, ClientRequest, Failure};
use crate::slot::Slot;
use crate::wal::{AppendError, GroupId, Wal};

/// How large the chunks of snapshots are, about.
const CHUNK: usize = 1 << 20;
/// How many requests of one group may wait before its clients are not read any more.
const WAITING_MAX: usize = 20_000;

/// What threads tell the node's thread.
#[derive(Debug)]
pub(super) enum Notice {
    /// What a group had to write is on the disk, or not. Its log has a snapshot up to there now.
    Appended { group: u16, given: Option<u64>, done: Result<(), AppendError> },
    /// About snapshots.
    Snapshot(Told),
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
    /// A snapshot is wanted although none is due.
    is_asked: bool,
    /// How many bytes its table had after its last turn.
    bytes: usize,
    waiting: usize,
    wakers: Vec<Waker>,
    /// Since when what it had to write is on its way to the disk.
    writes_since: Option<Instant>,
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
    /// The snapshot that is being taken: one at a time.
    taking: Option<(u16, u64)>,
    /// No snapshot is taken before.
    snapshots_from: Instant,
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
    is_ready: Cell<bool>,
    failure: RefCell<Option<NodeError>>,
    failed: Notify,
}

fn slots_of(group: u16, groups: u16) -> std::ops::Range<u16> {
    let bound = |group: u16| (u32::from(group) * u32::from(Slot::COUNT) / u32::from(groups)) as u16;
    bound(group)..bound(group + 1)
}

/// The slots of a group.
pub(super) fn slots(group: u16, groups: u16) -> std::ops::Range<u16> {
    slots_of(group, groups)
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
            taking: None,
            snapshots_from: Instant::ZERO,
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
            is_ready: Cell::new(false),
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
        let is_heard = |name: &&String| **name == self.name || state.peers.iter().zip(&self.wires.peers).any(|(peer, address)| peer.node.is_some() && address.name() == name.as_str());
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
        outbox.put(0, None, |out| control.encode(out));
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
            is_asked: false,
            waiting: 0,
            wakers: Vec::new(),
            writes_since: None,
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
        self.is_ready.set(true);
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

    pub(super) fn hand_over(&self, group: u16) {
        self.with(group, |replica| replica.group.hand_over(None, clock::now()));
    }

    /// The leadership with this token is over.
    pub(super) fn ended(&self, group: u16, token: Token) {
        self.with(group, |replica| {
            replica.leadership = None;
            replica.group.ended(token, clock::now());
        });
    }

    /// Whether a grant would be of use: a majority of the nodes is connected, and the disk answers within that time.
    pub(super) fn is_healthy(&self, within: Duration) -> bool {
        let state = self.state.borrow();
        let connected = 1 + state.peers.iter().filter(|peer| peer.node.is_some()).count();
        let now = clock::now();
        let is_late = |replica: &Replica| replica.writes_since.is_some_and(|since| now.since(since) > within);
        connected * 2 > self.names.len() && !state.replicas.iter().any(is_late)
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
            let leads: Vec<u16> = (0..state.replicas.len() as u16).filter(|group| state.replicas[usize::from(*group)].leadership.is_some()).collect();
            let may_move = is_full && state.peers.iter().any(|peer| peer.node.is_some());
            drop(state);
            if may_move {
                leads.into_iter().for_each(|group| self.hand_over(group));
            }
        }
    }

    /// Asks groups for snapshots that hold old segments of the log.
    pub(super) fn look_after_log(&self) {
        let mut state = self.state.borrow_mut();
        let Some(disk) = &state.disk else { return };
        let status = disk.wal.status();
        if status.segments > SEGMENTS_MAX {
            for group in status.holding {
                let Ok(number) = u16::try_from(group.0 - 1) else { continue };
                if let Some(replica) = state.replicas.get_mut(usize::from(number)) {
                    replica.is_asked = true;
                    state.touch(number);
                }
            }
            self.wake.notify_one();
        }
    }

    /// Has each group take a snapshot.
    pub(super) fn ask_for_snapshots(&self) {
        let mut state = self.state.borrow_mut();
        for number in 0..state.replicas.len() as u16 {
            state.replicas[usize::from(number)].is_asked = true;
            state.touch(number);
        }
        self.wake.notify_one();
    }

    // ---- changes of replicas ----

    /// Who was called so before, and is now: what is known of replicas that a node with this name has in its groups.
    pub(super) fn replacement(&self, name: &str) -> Result<(ReplicaId, ReplicaId), String> {
        let state = self.state.borrow();
        let Some(peer) = self.wires.peers.iter().position(|peer| peer.name() == name) else {
            let names = self.wires.peers.iter().map(|peer| peer.name()).collect::<Vec<_>>().join(", ");
            return Err(format!("there is no other node called '{name}'; there are {names}"));
        };
        let Some(add) = state.peers[peer].node else {
            return Err(format!("'{name}' is not connected: start it, with an empty folder, and try again"));
        };
        let is_anothers = |id: ReplicaId| id == add || state.name_of(id, self).is_some_and(|other| other != name);
        let members = state.replicas.iter().flat_map(|replica| replica.group.status().replicas);
        match members.into_iter().find(|id| !is_anothers(*id)) {
            Some(remove) => Ok((remove, add)),
            None => Err(format!("'{name}' keeps replicas of all groups already: there is nothing to replace")),
        }
    }

    /// Wants the one replica in the place of the other in all groups, and tells the others so.
    pub(super) fn want(&self, remove: ReplicaId, add: ReplicaId) {
        self.state.borrow_mut().wishes.insert(remove, add);
        (0..self.wires.peers.len()).for_each(|peer| self.tell(peer, &Control::Replace { remove, add }));
    }

    /// In how many groups that is done.
    pub(super) fn replaced(&self, remove: ReplicaId, add: ReplicaId) -> usize {
        let state = self.state.borrow();
        let statuses = state.replicas.iter().map(|replica| replica.group.status());
        statuses.filter(|status| is_done(status, remove, add)).count()
    }

    /// Goes on with what is wanted in the groups that it leads.
    pub(super) fn go_on_replacing(&self) {
        let mut state = self.state.borrow_mut();
        let wishes: Vec<_> = state.wishes.iter().map(|(remove, add)| (*remove, *add)).collect();
        for (remove, add) in wishes {
            let (mut is_left, mut touched) = (false, Vec::new());
            for (number, replica) in state.replicas.iter_mut().enumerate() {
                let status = replica.group.status();
                if is_done(&status, remove, add) {
                    continue;
                }
                is_left = true;
                if status.leads.is_some_and(|(_, serves)| serves) && !status.is_changing {
                    let has = |id| status.replicas.contains(&id);
                    let begun = replica.group.replace(has(remove).then_some(remove), (!has(add)).then_some(add));
                    match begun {
                        Ok(()) => info!(group = number, %remove, %add, "a replica is replaced"),
                        Err(error) => warn!(group = number, %error, "a replica is not replaced yet"),
                    }
                }
                touched.push(number as u16);
            }
            if !is_left {
                state.wishes.remove(&remove);
            }
            touched.into_iter().for_each(|group| state.touch(group));
        }
        // Who has come in the place of another is known by that from now on.
        let members: BTreeSet<ReplicaId> =
            state.replicas.first().map(|replica| replica.group.status().replicas).unwrap_or_default();
        let new: Vec<(String, ReplicaId)> = members
            .into_iter()
            .filter(|id| state.recorded_name(*id).is_none())
            .filter_map(|id| state.ids.get(&id).map(|peer| (self.wires.peers[*peer].name().to_owned(), id)))
            .collect();
        for (name, id) in new {
            if let Err(error) = state.identity.succeeded(&name, id) {
                return self.fail(NodeError::Identity(error));
            }
        }
        drop(state);
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

    // ---- turns ----

    /// Takes turns. Never ends.
    pub(super) async fn run(self: Rc<Self>) {
        let mut effects = Vec::new();
        loop {
            let due = self.state.borrow().deadlines.first().map(|(at, _)| *at);
            let sleep = async {
                match due {
                    // The runtime's timer stops in suspend; a minute later all is looked at again.
                    Some(at) => tokio::time::sleep(at.since(clock::now()).min(Duration::from_secs(60))).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.wake.notified() => {}
                () = self.notices.wake.notified() => {}
                () = sleep => {}
            }
            // All that are ready bring their inputs first.
            tokio::task::yield_now().await;
            self.turn(&mut effects);
        }
    }

    fn turn(self: &Rc<Self>, effects: &mut Vec<Effect>) {
        let mut answers = Vec::new();
        let mut state = self.state.borrow_mut();
        let now = clock::now();
        for notice in self.notices.take() {
            self.notice(&mut state, notice, now);
        }
        while let Some((at, group)) = state.deadlines.first().copied()
            && at <= now
        {
            state.deadlines.pop_first();
            state.replicas[usize::from(group)].deadline = None;
            state.touch(group);
        }
        let (time_of_day, is_disk_full) = (time_of_day(), state.is_disk_full);
        for number in mem::take(&mut state.touched) {
            let memory_left = self.memory_max.map_or(usize::MAX, |max| max.saturating_sub(state.memory));
            let replica = &mut state.replicas[usize::from(number)];
            replica.is_touched = false;
            let believed = replica.leadership.as_ref().filter(|leadership| leadership.is_current());
            let believed = believed.map(|leadership| leadership.token());
            replica.group.turn(Turn { now, time_of_day, believed, memory_left, is_disk_full }, effects);
            for effect in effects.drain(..) {
                self.follow(&mut state, number, effect, &mut answers);
            }
            self.write(&mut state, number, now);
            self.take_snapshot(&mut state, number, now);
            let replica = &mut state.replicas[usize::from(number)];
            let (before, bytes) = (mem::replace(&mut replica.bytes, replica.group.bytes()), replica.group.bytes());
            let (old, new) = (replica.deadline, replica.group.deadline());
            replica.deadline = new;
            state.memory = (state.memory + bytes).saturating_sub(before);
            if old != new {
                old.map(|at| state.deadlines.remove(&(at, number)));
                new.map(|at| state.deadlines.insert((at, number)));
            }
        }
        drop(state);
        self.wires.outboxes.iter().flatten().for_each(super::links::Outbox::flush);
        for (done, answer) in answers {
            done(answer);
        }
    }

    /// What a thread has told.
    fn notice(&self, state: &mut State, notice: Notice, now: Instant) {
        match notice {
            Notice::Appended { group, given, done } => {
                if let Err(error) = done {
                    return self.fail(NodeError::Log(error));
                }
                if let (Some(index), Some(disk)) = (given, &state.disk) {
                    disk.snapshots.retire(GroupId(u32::from(group) + 1), index);
                }
                let replica = &mut state.replicas[usize::from(group)];
                replica.writes_since = None;
                replica.group.written(now);
                state.touch(group);
            }
            Notice::Snapshot(Told::Chunk { group, index }) => {
                let number = (group.0 - 1) as u16;
                if state.taking == Some((number, index)) {
                    next_chunk(state, number, index);
                }
            }
            Notice::Snapshot(Told::Written { group, index, chunks }) => {
                let number = (group.0 - 1) as u16;
                if state.taking == Some((number, index)) {
                    state.taking = None;
                }
                info!(group = number, index, chunks, "a snapshot is written");
                state.replicas[usize::from(number)].group.snapshot_written(index, chunks);
                state.touch(number);
                state.touch_those_who_want();
            }
            Notice::Snapshot(Told::NotWritten { group, index, error }) => {
                let number = (group.0 - 1) as u16;
                if state.taking == Some((number, index)) {
                    state.taking = None;
                }
                state.replicas[usize::from(number)].group.cancel_snapshot();
                state.snapshots_from = now + Duration::from_secs(10);
                match error {
                    SnapshotFileError::Full { .. } => warn!(group = number, %error, "no snapshot"),
                    _ => error!(group = number, %error, "no snapshot"),
                }
            }
            Notice::Snapshot(Told::Failed { error }) => self.fail(NodeError::Snapshot(error)),
        }
    }

    /// Does what a group wants.
    fn follow(self: &Rc<Self>, state: &mut State, group: u16, effect: Effect, answers: &mut Vec<(Done, Answered)>) {
        match effect {
            Effect::Send { to, message } => {
                if let Some(peer) = state.ids.get(&to) {
                    let kind = usize::from(message.is_bulk());
                    self.wires.outboxes[*peer][kind].put(kind, Some(group), |out| message.encode(out));
                }
            }
            Effect::SendChunk(order) => self.send_chunk(state, group, order),
            Effect::Answer { tag, answer } => {
                if let Some((group, done)) = state.requests.remove(&tag) {
                    let replica = &mut state.replicas[usize::from(group)];
                    replica.waiting -= 1;
                    replica.wakers.drain(..).for_each(Waker::wake);
                    answers.push((done, answer));
                }
            }
            Effect::Serves(ballot) => info!(group, token = ballot.token.get(), "leads"),
            Effect::Resign { ballot, reason } => {
                let replica = &mut state.replicas[usize::from(group)];
                if replica.leadership.as_ref().is_some_and(|leadership| leadership.token() == ballot.token) {
                    replica.leadership = None;
                    replica.resigned.why.set(Some(reason));
                    replica.resigned.changed.notify_one();
                }
            }
            Effect::Broken(broken) => {
                self.fail(NodeError::Broken { group, why: broken.to_string(), name: self.name.clone() });
            }
        }
    }

    fn send_chunk(self: &Rc<Self>, state: &State, group: u16, order: ChunkOrder) {
        let Some(disk) = &state.disk else { return };
        let (core, folder) = (Rc::clone(self), disk.folder.clone());
        tokio::task::spawn_local(async move {
            let (index, number) = (order.snapshot.position.index, order.chunk);
            let id = GroupId(u32::from(group) + 1);
            let read = tokio::task::spawn_blocking(move || folder.chunk(id, index, number)).await;
            match read {
                Ok(Ok(data)) => {
                    let peer = core.state.borrow().ids.get(&order.to).copied();
                    let message = Message::Log(order.message(LogBytes::from(data)));
                    if let Some(peer) = peer {
                        let outbox = &core.wires.outboxes[peer][1];
                        outbox.put(1, Some(group), |out| message.encode(out));
                        outbox.flush();
                    }
                }
                Ok(Err(error)) => {
                    let is_current = core.with(group, |replica| {
                        replica.group.status().snapshot.is_some_and(|position| position.index == index)
                    });
                    match is_current {
                        Some(true) => core.fail(NodeError::Snapshot(error.to_string())),
                        // A newer one has taken its place: it is asked for anew.
                        _ => drop(core.with(group, |replica| replica.group.connected(order.to, clock::now()))),
                    }
                }
                Err(_) => {}
            }
        });
    }

    /// Has that written which a group has changed.
    fn write(&self, state: &mut State, number: u16, now: Instant) {
        let Some(disk) = &state.disk else { return };
        let replica = &mut state.replicas[usize::from(number)];
        let Some(writes) = replica.group.take_writes() else { return };
        replica.writes_since = Some(now);
        let (notices, given) = (Arc::clone(&self.notices), snapshots::given(&writes));
        let done = move |done| notices.put(Notice::Appended { group: number, given, done });
        let group = GroupId(u32::from(number) + 1);
        if snapshots::concerns(&writes) {
            disk.snapshots.write(group, writes, done);
        } else if let Err(error) = disk.wal.append(group, &writes, done) {
            self.fail(NodeError::Log(error));
        }
    }

    fn take_snapshot(&self, state: &mut State, number: u16, now: Instant) {
        let replica = &mut state.replicas[usize::from(number)];
        let is_wanted = replica.is_asked || replica.group.wants_snapshot();
        // What is on its way to the disk may be the head of the last one.
        if !is_wanted || replica.writes_since.is_some() || state.taking.is_some() || now < state.snapshots_from {
            return;
        }
        replica.is_asked = false;
        let has = replica.group.status().snapshot.map(|position| position.index);
        match replica.group.begin_snapshot() {
            // A file that the log names is never written again.
            Some(index) if has.is_some_and(|has| has >= index) => replica.group.cancel_snapshot(),
            Some(index) => {
                state.taking = Some((number, index));
                next_chunk(state, number, index);
            }
            None => {}
        }
    }
}

/// How many segments the log may have before idle groups are asked for snapshots.
const SEGMENTS_MAX: u64 = 8;

fn is_done(status: &Status, remove: ReplicaId, add: ReplicaId) -> bool {
    status.replicas.contains(&add) && !status.replicas.contains(&remove) && !status.is_changing
}

fn next_chunk(state: &mut State, number: u16, index: u64) {
    let Some(disk) = &state.disk else { return };
    let group = GroupId(u32::from(number) + 1);
    match state.replicas[usize::from(number)].group.snapshot_chunk(CHUNK) {
        Some(data) => disk.snapshots.chunk(group, index, data),
        None => disk.snapshots.finish(group, index),
    }
}

fn draw() -> (u128, [u8; 16]) {
    (rand::random(), rand::random())
}

#[expect(clippy::disallowed_methods, reason = "it is what EXAT and PXAT are about; nothing rests on it")]
fn time_of_day() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl State {
    fn touch(&mut self, group: u16) {
        let replica = &mut self.replicas[usize::from(group)];
        if !mem::replace(&mut replica.is_touched, true) {
            self.touched.push(group);
        }
    }

    fn touch_those_who_want(&mut self) {
        for number in 0..self.replicas.len() as u16 {
            let replica = &self.replicas[usize::from(number)];
            if replica.is_asked || replica.group.wants_snapshot() {
                self.touch(number);
            }
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

impl Nodes for Core {
    fn hello(&self) -> Hello {
        let state = self.state.borrow();
        Hello {
            node: self.own,
            name: self.name.clone(),
            starts: state.identity.record().starts,
            names: self.names.clone(),
            serves: self.serves(),
            founding: state.founder.founding().cloned(),
        }
    }

    fn admit(&self, peer: &str, hello: &Hello) -> Result<(), String> {
        if hello.name != peer {
            return Err(format!("a node answers as '{}' where '{peer}' is", hello.name));
        }
        if hello.node == self.own {
            return Err(format!("'{peer}' runs on a copy of this node's folder: give it an empty one"));
        }
        let state = self.state.borrow();
        if let (Some(own), Some(other)) = (state.founder.founding(), &hello.founding)
            && own != other
        {
            warn!(peer, "it belongs to another store");
            return Err(format!("'{peer}' belongs to another store: one of the two has the folder of something else"));
        }
        if state.founder.founding().is_none() && hello.founding.is_none() && hello.names != self.names {
            warn!(peer, theirs = hello.names.join(", "), own = self.names.join(", "), "it was told of other nodes: --peers has to be the same for all");
        }
        Ok(())
    }

    fn met(&self, peer: usize, kind: usize, direction: Direction, hello: Hello) {
        let mut state = self.state.borrow_mut();
        let State { peers, ids, founder, .. } = &mut *state;
        let known = &mut peers[peer];
        if known.node != Some(hello.node) {
            ids.retain(|_, other| *other != peer);
            ids.insert(hello.node, peer);
            known.node = Some(hello.node);
        }
        known.serves.clone_from(&hello.serves);
        if direction == Direction::In {
            known.taken[kind] += 1;
        }
        let name = self.wires.peers[peer].name();
        let step = founder.met(name, hello.node, &hello.names, hello.founding.clone());
        let untold = founder.founding().filter(|_| hello.founding.is_none() && direction == Direction::Out && kind == 0);
        let untold = untold.cloned();
        drop(state);
        if let Some(founding) = untold {
            self.tell(peer, &Control::Founding(founding));
        }
        self.carry_out(step);
        self.with_all(|group| group.connected(hello.node, clock::now()));
    }

    fn parted(&self, peer: usize, kind: usize, direction: Direction) {
        let mut state = self.state.borrow_mut();
        if direction == Direction::In {
            state.peers[peer].taken[kind] -= 1;
        }
        let is_sent = self.wires.outboxes[peer][0].is_open();
        let is_heard = state.peers[peer].taken[0] > 0;
        let node = state.peers[peer].node;
        if kind != 0 || (is_sent && is_heard) {
            return;
        }
        state.founder.parted(self.wires.peers[peer].name());
        if !is_sent && !is_heard {
            state.ids.retain(|_, other| *other != peer);
            state.peers[peer].node = None;
        }
        drop(state);
        if let Some(node) = node {
            self.with_all(|group| group.disconnected(node, clock::now()));
        }
    }

    fn control(&self, peer: usize, hello: &Hello, control: Control) {
        let name = self.wires.peers[peer].name();
        let mut state = self.state.borrow_mut();
        let step = match control {
            Control::Hello(_) => None,
            Control::Pledge => state.founder.pledged(name, hello.node, draw),
            Control::Founding(founding) => state.founder.told(hello.node, founding),
            Control::Replace { remove, add } => {
                state.wishes.insert(remove, add);
                None
            }
        };
        drop(state);
        self.carry_out(step);
    }

    fn message(&self, hello: &Hello, group: u16, message: Message) {
        self.with(group, |replica| replica.group.receive(hello.node, message, clock::now()));
    }

    async fn ready(&self) {
        while !self.is_ready.get() {
            self.changed.notified().await;
        }
    }
}

impl Backend for Core {
    fn groups(&self) -> u16 {
        self.groups_count()
    }

    fn group_of(&self, slot: Slot) -> u16 {
        // The inverse of how slots are given to groups.
        let (slot, groups) = (u32::from(slot.number()), u32::from(self.groups()));
        (((slot + 1) * groups - 1) / u32::from(Slot::COUNT)) as u16
    }

    fn submit(&self, group: u16, request: ClientRequest, done: Done) {
        let mut state = self.state.borrow_mut();
        if state.is_ending {
            drop(state);
            return done(Err(Failure::Stopped));
        }
        state.last_tag += 1;
        let tag = state.last_tag;
        state.requests.insert(tag, (group, done));
        let replica = &mut state.replicas[usize::from(group)];
        replica.waiting += 1;
        replica.group.request(tag, request, clock::now());
        state.touch(group);
        drop(state);
        self.wake.notify_one();
    }

    fn poll_ready(&self, group: u16, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.borrow_mut();
        let replica = &mut state.replicas[usize::from(group)];
        if replica.waiting < WAITING_MAX {
            return Poll::Ready(());
        }
        replica.wakers.push(context.waker().clone());
        Poll::Pending
    }

    fn copies(&self, group: u16) -> u16 {
        let state = self.state.borrow();
        (state.replicas[usize::from(group)].group.status().replicas.len() / 2) as u16
    }

    fn facts(&self) -> NodeFacts {
        let state = self.state.borrow();
        let group = |replica: &Replica| {
            let status = replica.group.status();
            GroupFacts {
                leader: status.leader.and_then(|(_, id)| state.name_of(id, self)),
                is_led_here: status.leads.is_some_and(|(_, serves)| serves),
                applied: status.applied,
                keys: status.keys as u64,
            }
        };
        NodeFacts {
            name: self.name.clone(),
            id: self.own.to_string(),
            connected_nodes: state.peers.iter().filter(|peer| peer.node.is_some()).count() as u16,
            memory_bytes: state.memory as u64,
            memory_max: self.memory_max.map(|max| max as u64),
            groups: state.replicas.iter().map(group).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_is_in_the_group_whose_slots_it_is_among() {
        for groups in [1, 2, 3, 7, 16, 100, 1_000, 1_024] {
            let mut next = 0;
            for group in 0..groups {
                let slots = slots(group, groups);
                assert_eq!(slots.start, next);
                next = slots.end;
                for slot in slots {
                    let found = ((u32::from(slot) + 1) * u32::from(groups) - 1) / u32::from(Slot::COUNT);
                    assert_eq!(found, u32::from(group), "slot {slot} of {groups} groups");
                }
            }
            assert_eq!(next, Slot::COUNT);
        }
    }
}
