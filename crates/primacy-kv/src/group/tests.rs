//! Some nodes with one group each, the messages between them, and their disks.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;

use core::time::Duration;

use primacy_core::CandidateId;
use primacy_core::log::{Config, Position, Reading};

use super::*;
use crate::command::{Condition, Expiry, Operation, Set, SetAnswer};
use crate::entry::Change;
use crate::request::{Answered, Query};
use crate::resp::Reply;
use crate::table::Install;

mod endings;
mod late;
mod snapshots;
mod time;

const LEASE: Duration = Duration::from_secs(1);
const SLOTS: core::ops::Range<u16> = 0..16_384;

fn id(node: u128) -> ReplicaId {
    ReplicaId::from_bits(node)
}

fn ballot(token: u64) -> Ballot {
    Ballot { token: Token::new(token).expect("a small one"), id: CandidateId::from_bits(token.into()) }
}

fn table() -> Table {
    Table::new(SLOTS, [7; 16])
}

/// What a node has on disk.
struct Disk {
    log: DurableLog<LogBytes>,
    snapshots: BTreeMap<Position, Vec<Vec<u8>>>,
    aside: Vec<Vec<u8>>,
    starts: u64,
}

struct Node {
    group: Group,
    disk: Disk,
    believed: Option<Token>,
}

#[derive(Default)]
struct Cluster {
    nodes: BTreeMap<u128, Node>,
    wire: VecDeque<(u128, u128, Message)>,
    /// Who neither hears nor is heard.
    away: BTreeSet<u128>,
    /// Whose disk is full.
    full: BTreeSet<u128>,
    answers: BTreeMap<u64, Answered>,
    resigned: Vec<(u128, Resignation)>,
    now: Instant,
    tag: u64,
    reads: Option<Reading>,
    snapshot_every: Option<usize>,
    /// How many bytes of entries are under way to one replica at most.
    window_bytes: Option<usize>,
    #[cfg(feature = "flaws")]
    flaw: Option<AnyFlaw>,
}

impl Cluster {
    fn of(count: u128) -> Self {
        Self::default().with(count)
    }

    fn with(mut self, count: u128) -> Self {
        let config = Config::new((1..=count).map(id).collect()).expect("there are some");
        for own in 1..=count {
            let mut first = table();
            first.begin_snapshot();
            let chunk = first.snapshot_chunk(1 << 20).expect("there is one");
            let log = DurableLog::founding(config.clone());
            let snapshots = [(Position::START, vec![chunk])].into();
            self.start(own, Disk { log, snapshots, aside: Vec::new(), starts: 0 });
        }
        self
    }

    fn start(&mut self, own: u128, mut disk: Disk) {
        disk.starts += 1;
        let mut settings = Settings::new(id(own), disk.starts, LEASE);
        settings.reads = self.reads.unwrap_or(Reading::Lease);
        settings.snapshot_every = SnapshotEvery::fixed(self.snapshot_every.unwrap_or(usize::MAX));
        settings.limits.window_bytes = self.window_bytes.unwrap_or(settings.limits.window_bytes);
        settings.limits.message_bytes = settings.limits.message_bytes.min(settings.limits.window_bytes);
        #[cfg(feature = "flaws")]
        {
            settings.flaw = self.flaw;
        }
        let mut install = Install::new();
        let kept = disk.log.snapshot().map(|snapshot| &disk.snapshots[&snapshot.position]);
        let table = kept.and_then(|chunks| {
            chunks.iter().filter_map(|chunk| install.take(chunk).expect("it is what was written")).last()
        });
        let group = Group::new(settings, disk.log.clone(), table, self.now).expect("they fit");
        self.nodes.insert(own, Node { group, disk, believed: None });
    }

    fn blank(&mut self, own: u128) {
        let disk = Disk { log: DurableLog::blank(), snapshots: BTreeMap::new(), aside: Vec::new(), starts: 0 };
        self.start(own, disk);
    }

    /// Its process ends and begins again. What was written is there.
    fn restart(&mut self, own: u128) {
        let node = self.nodes.remove(&own).expect("is there");
        self.wire.retain(|(from, to, _)| *from != own && *to != own);
        self.start(own, node.disk);
        let others: Vec<u128> = self.nodes.keys().copied().filter(|other| *other != own).collect();
        for other in others {
            let now = self.now;
            self.act(other, |group| group.connected(id(own), now));
            self.act(own, |group| group.connected(id(other), now));
        }
    }

    fn act<T>(&mut self, own: u128, does: impl FnOnce(&mut Group) -> T) -> T {
        let done = does(&mut self.nodes.get_mut(&own).expect("is there").group);
        self.turn(own);
        done
    }

    fn turn(&mut self, own: u128) {
        let node = self.nodes.get_mut(&own).expect("is there");
        let mut out = Vec::new();
        let is_disk_full = self.full.contains(&own);
        let turn = Turn { now: self.now, time_of_day: 0, believed: node.believed, memory_left: 1 << 30, is_disk_full };
        node.group.turn(turn, &mut out);
        for effect in out {
            match effect {
                Effect::Send { to, message } => self.send(own, to, message),
                Effect::SendChunk(order) => {
                    let chunks = &self.nodes[&own].disk.snapshots[&order.snapshot.position];
                    let chunk = chunks[order.chunk as usize].clone();
                    let (to, message) = (order.to, order.message(chunk.into()));
                    self.send(own, to, Message::Log(message));
                }
                Effect::Answer { tag, answer } => {
                    assert!(self.answers.insert(tag, answer).is_none(), "request {tag} is answered twice");
                }
                Effect::Serves(_) => {}
                Effect::Resign { reason, .. } => {
                    self.resigned.push((own, reason));
                    self.nodes.get_mut(&own).expect("is there").believed = None;
                }
                Effect::Broken(broken) => panic!("node {own}: {broken}"),
            }
        }
        self.write(own);
    }

    fn send(&mut self, from: u128, to: ReplicaId, message: Message) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let read = Message::decode(&bytes);
        assert_eq!(read.as_ref(), Ok(&message), "what is sent is what comes");
        if !self.away.contains(&from) && !self.away.contains(&to.to_bits()) {
            self.wire.push_back((from, to.to_bits(), message));
        }
    }

    fn write(&mut self, own: u128) {
        let node = self.nodes.get_mut(&own).expect("is there");
        if let Some(writes) = node.group.take_writes() {
            for write in &writes {
                match write {
                    Write::Aside { chunk, data, .. } => {
                        node.disk.aside.truncate(*chunk as usize);
                        node.disk.aside.push(data.as_ref().to_vec());
                    }
                    Write::Install(snapshot) => {
                        node.disk.snapshots.insert(snapshot.position, core::mem::take(&mut node.disk.aside));
                    }
                    _ => {}
                }
                node.disk.log.apply(write);
            }
            let now = self.now;
            self.act(own, |group| group.written(now));
        }
    }

    fn run(&mut self) {
        self.run_but(|_, _, _| false);
    }

    /// Delivers what `holds` does not hold back. What was held, in order.
    fn run_but(&mut self, holds: impl Fn(u128, u128, &Message) -> bool) -> VecDeque<(u128, u128, Message)> {
        let mut held = VecDeque::new();
        while let Some((from, to, message)) = self.wire.pop_front() {
            if holds(from, to, &message) {
                held.push_back((from, to, message));
            } else if self.nodes.contains_key(&to) && !self.away.contains(&to) && !self.away.contains(&from) {
                let now = self.now;
                self.act(to, |group| group.receive(id(from), message, now));
            }
        }
        held
    }

    fn connect(&mut self, one: u128, other: u128) {
        let now = self.now;
        self.act(one, |group| group.connected(id(other), now));
        self.act(other, |group| group.connected(id(one), now));
    }

    /// Time goes on in small steps.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.now = self.now + Duration::from_millis(20);
            let nodes: Vec<u128> = self.nodes.keys().copied().collect();
            nodes.into_iter().for_each(|own| self.turn(own));
            self.run();
        }
    }

    fn grant(&mut self, own: u128, token: u64) {
        self.nodes.values_mut().for_each(|node| node.believed = None);
        self.nodes.get_mut(&own).expect("is there").believed = Some(ballot(token).token);
        let now = self.now;
        self.act(own, |group| group.granted(ballot(token), now));
    }

    fn lead(&mut self, own: u128, token: u64) {
        self.grant(own, token);
        self.run();
        assert_eq!(self.nodes[&own].group.status().leads, Some((ballot(token), true)));
    }

    fn ask(&mut self, own: u128, request: ClientRequest) -> u64 {
        self.tag += 1;
        let (tag, now) = (self.tag, self.now);
        self.act(own, |group| group.request(tag, request, now));
        tag
    }

    fn answer(&mut self, own: u128, request: ClientRequest) -> Answered {
        let tag = self.ask(own, request);
        self.run();
        self.answers.get(&tag).cloned().expect("is answered")
    }

    /// Writes some 40 keys, through the leader.
    fn fill(&mut self, leader: u128) {
        for number in 0..40 {
            let written = self.answer(leader, set(&alloc::format!("k{number}"), "some value of some length"));
            assert_eq!(written, Ok(Reply::OK));
        }
    }

    /// A new node starts, and node 1, which leads, begins to take it in.
    fn begin_adding(&mut self, new: u128) {
        self.blank(new);
        assert_eq!(self.act(1, |group| group.replace(None, Some(id(new)))), Ok(()));
        self.turn(1);
    }

    fn snapshot(&mut self, own: u128) {
        let node = self.nodes.get_mut(&own).expect("is there");
        let index = node.group.begin_snapshot().expect("there is something");
        let chunks: Vec<_> = core::iter::from_fn(|| node.group.snapshot_chunk(64)).collect();
        let position = node.group.log.replica().log().position_at(index).expect("is kept");
        node.disk.snapshots.insert(position, chunks.clone());
        node.group.snapshot_written(index, chunks.len() as u32);
        self.turn(own);
    }
}

fn write(operation: Operation) -> ClientRequest {
    ClientRequest::Write(Change::Operation(operation))
}

fn set(key: &str, value: &str) -> ClientRequest {
    expiring(key, value, Expiry::Never)
}

fn expiring(key: &str, value: &str, expiry: Expiry) -> ClientRequest {
    let (key, value) = (key.as_bytes().into(), Vec::from(value).into());
    write(Operation::Set(Set { key, value, condition: Condition::Always, expiry, answer: SetAnswer::Done }))
}

fn add(key: &str) -> ClientRequest {
    write(Operation::Add { key: key.as_bytes().into(), delta: 1 })
}

fn get(key: &str) -> ClientRequest {
    ClientRequest::Read(Query::Operation(Operation::Get { key: key.as_bytes().into() }))
}

fn bulk(value: &str) -> Answered {
    Ok(Reply::bulk(value))
}

#[test]
fn a_node_alone_writes_and_reads() {
    let mut cluster = Cluster::of(1);
    cluster.lead(1, 1);
    assert_eq!(cluster.answer(1, set("a", "1")), Ok(Reply::OK));
    assert_eq!(cluster.answer(1, get("a")), bulk("1"));
    assert_eq!(cluster.answer(1, get("b")), Ok(Reply::Null));
}

#[test]
fn each_node_answers_all_requests_through_the_leader() {
    let mut cluster = Cluster::of(3);
    cluster.lead(2, 1);
    assert_eq!(cluster.answer(1, set("a", "1")), Ok(Reply::OK));
    assert_eq!(cluster.answer(3, get("a")), bulk("1"));
    assert_eq!(cluster.answer(2, add("n")), Ok(Reply::Integer(1)));
    assert_eq!(cluster.answer(3, add("n")), Ok(Reply::Integer(2)));
    let keys = ClientRequest::Read(Query::Count);
    assert_eq!(cluster.answer(1, keys), Ok(Reply::Integer(2)));
}

#[test]
fn a_request_waits_for_a_leader_and_for_no_longer_than_its_patience() {
    let mut cluster = Cluster::of(3);
    let waits = cluster.ask(1, add("n"));
    cluster.run();
    cluster.lead(3, 1);
    assert_eq!(cluster.answers.remove(&waits), Some(Ok(Reply::Integer(1))));
    let mut cluster = Cluster::of(3);
    let (write, read) = (cluster.ask(1, add("n")), cluster.ask(1, get("n")));
    cluster.pass(LEASE * 2 - Duration::from_millis(20));
    assert_eq!(cluster.answers.len(), 0);
    cluster.pass(Duration::from_millis(20));
    assert_eq!(cluster.answers[&write], Err(Failure::NoLeader));
    assert_eq!(cluster.answers[&read], Err(Failure::NoLeader));
}

#[test]
fn what_a_leader_got_and_nobody_finished_is_unknown_at_last() {
    let mut cluster = Cluster::of(3);
    cluster.lead(3, 1);
    cluster.away = [1, 2].into();
    let write = cluster.ask(3, add("n"));
    cluster.pass(LEASE * 2);
    assert_eq!(cluster.answers[&write], Err(Failure::Unknown));
    assert_eq!(cluster.resigned, [(3, Resignation::NoProgress)]);
}

#[test]
fn the_next_leader_does_what_the_last_one_did_not_and_nothing_twice() {
    for heard in [false, true] {
        let mut cluster = Cluster::of(3);
        cluster.lead(3, 1);
        assert_eq!(cluster.answer(1, add("n")), Ok(Reply::Integer(1)));
        let tags = [cluster.ask(1, add("n")), cluster.ask(1, add("n"))];
        // The leader gets them, and dies before or after the others have its entry.
        let forwards: Vec<_> = cluster.wire.drain(..).collect();
        for (from, to, message) in forwards {
            let now = cluster.now;
            cluster.act(to, |group| group.receive(id(from), message, now));
        }
        if heard {
            let appends: Vec<_> = cluster.wire.drain(..).collect();
            for (from, to, message) in appends.into_iter().filter(|(_, to, _)| *to == 2) {
                let now = cluster.now;
                cluster.act(to, |group| group.receive(id(from), message, now));
            }
        }
        cluster.wire.clear();
        cluster.away = [3].into();
        cluster.lead(2, 2);
        assert_eq!(
            tags.map(|tag| cluster.answers.remove(&tag)),
            [2, 3].map(|n| Some(Ok(Reply::Integer(n)))),
            "{heard}"
        );
        assert_eq!(cluster.answer(2, add("n")), Ok(Reply::Integer(4)));
    }
}

#[test]
fn a_hand_over_loses_nothing_and_leaves_nobody_in_doubt() {
    let mut cluster = Cluster::of(3);
    cluster.lead(1, 1);
    let before: Vec<u64> = (1..=3).map(|own| cluster.ask(own, add("n"))).collect();
    let now = cluster.now;
    cluster.act(1, |group| group.hand_over(Some(id(2)), now));
    let during: Vec<u64> = (1..=3).map(|own| cluster.ask(own, add("n"))).collect();
    cluster.run();
    assert_eq!(cluster.resigned, [(1, Resignation::HandedOver(id(2)))]);
    let end = cluster.nodes[&1].group.status().last;
    assert_eq!(cluster.nodes[&2].group.status().last, end, "the successor lacks nothing");
    cluster.lead(2, 2);
    let mut numbers: Vec<_> = before.iter().chain(&during).map(|tag| cluster.answers.remove(tag)).collect();
    numbers.sort_by_key(|answer| alloc::format!("{answer:?}"));
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6].map(|number| Some(Ok(Reply::Integer(number)))));
}

#[test]
fn a_restarted_node_goes_on_and_nothing_of_its_last_start_is_taken_for_this_one() {
    let mut cluster = Cluster::of(3);
    cluster.lead(1, 1);
    assert_eq!(cluster.answer(2, add("n")), Ok(Reply::Integer(1)));
    cluster.restart(2);
    cluster.run();
    assert_eq!(cluster.answer(2, add("n")), Ok(Reply::Integer(2)), "its numbers begin anew");
    for own in 1..=3 {
        cluster.restart(own);
    }
    cluster.lead(3, 2);
    assert_eq!(cluster.answer(1, get("n")), bulk("2"));
}

#[test]
fn a_read_waits_for_the_belief_in_its_leaders_token() {
    let mut cluster = Cluster::of(3);
    cluster.lead(1, 5);
    assert_eq!(cluster.answer(1, set("a", "1")), Ok(Reply::OK));
    let other = Some(ballot(6).token);
    cluster.nodes.get_mut(&1).expect("is there").believed = None;
    let read = cluster.ask(1, get("a"));
    cluster.nodes.get_mut(&1).expect("is there").believed = other;
    cluster.turn(1);
    assert_eq!(cluster.answers.get(&read), None, "a later belief is another one");
    cluster.nodes.get_mut(&1).expect("is there").believed = Some(ballot(5).token);
    cluster.turn(1);
    assert_eq!(cluster.answers.get(&read), Some(&bulk("1")));
}

#[test]
fn reads_by_quorum_need_no_belief_and_a_quorum_each() {
    let mut cluster = Cluster { reads: Some(Reading::Quorum), ..Cluster::default() }.with(3);
    cluster.lead(1, 1);
    assert_eq!(cluster.answer(1, set("a", "1")), Ok(Reply::OK));
    cluster.nodes.get_mut(&1).expect("is there").believed = None;
    assert_eq!(cluster.answer(3, get("a")), bulk("1"));
    cluster.away = [2, 3].into();
    let read = cluster.ask(1, get("a"));
    cluster.run();
    assert_eq!(cluster.answers.get(&read), None);
}

#[test]
fn a_key_whose_time_is_over_is_gone_for_every_later_leader() {
    let mut cluster = Cluster::of(3);
    cluster.lead(1, 1);
    assert_eq!(cluster.answer(1, expiring("a", "1", Expiry::After(100))), Ok(Reply::OK));
    assert_eq!(cluster.answer(1, get("a")), bulk("1"));
    cluster.now = cluster.now + Duration::from_millis(150);
    assert_eq!(cluster.answer(2, get("a")), Ok(Reply::Null));
    let time = |cluster: &Cluster| cluster.nodes[&2].group.log.replica().time();
    assert!(time(&cluster).millis() >= 100);
    cluster.lead(2, 2);
    assert_eq!(cluster.answer(3, get("a")), Ok(Reply::Null));
    assert_eq!(cluster.answer(3, ClientRequest::Read(Query::Count)), Ok(Reply::Integer(0)), "it is removed");
}

#[test]
fn keys_expire_without_anybody_asking() {
    let mut cluster = Cluster::of(3);
    cluster.lead(1, 1);
    for key in ["a", "b", "c"] {
        assert_eq!(cluster.answer(1, expiring(key, "1", Expiry::After(100))), Ok(Reply::OK));
    }
    cluster.pass(Duration::from_millis(300));
    assert!(cluster.nodes.values().all(|node| node.group.status().keys == 0));
}

#[test]
fn a_snapshot_takes_the_place_of_entries_that_nobody_needs() {
    let mut cluster = Cluster::of(3);
    cluster.lead(1, 1);
    for number in 0..20 {
        assert_eq!(cluster.answer(1, set(&alloc::format!("k{number}"), "v")), Ok(Reply::OK));
    }
    cluster.away = [3].into();
    assert_eq!(cluster.answer(1, set("k", "v")), Ok(Reply::OK));
    cluster.snapshot(1);
    assert_eq!(cluster.nodes[&1].group.status().snapshot, Some(Position::START), "3 lacks one of them");
    cluster.away.clear();
    let now = cluster.now;
    cluster.act(1, |group| group.connected(id(3), now));
    cluster.run();
    cluster.turn(1);
    let status = cluster.nodes[&1].group.status();
    assert_eq!(status.snapshot.map(|position| position.index), Some(22));
    (1..=3).for_each(|own| cluster.restart(own));
    cluster.lead(1, 2);
    assert_eq!(cluster.answer(2, get("k7")), bulk("v"));
}

#[test]
fn a_new_node_comes_for_one_that_is_lost() {
    let mut cluster = Cluster { snapshot_every: Some(1), ..Cluster::default() }.with(3);
    cluster.lead(1, 1);
    for number in 0..20 {
        assert_eq!(cluster.answer(3, set(&alloc::format!("k{number}"), "v")), Ok(Reply::OK));
    }
    cluster.nodes.remove(&3);
    // So many bytes that what a lost one lacks is not kept for it.
    cluster.snapshot(1);
    cluster.blank(4);
    assert!(!cluster.nodes[&4].group.may_stand());
    let replace = |group: &mut Group| group.replace(Some(id(3)), Some(id(4)));
    assert_eq!(cluster.act(2, replace), Err(ReplaceError::NotLeading));
    assert_eq!(cluster.act(1, replace), Ok(()));
    assert_eq!(cluster.act(1, replace), Ok(()), "the same again");
    cluster.pass(Duration::from_millis(200));
    let status = cluster.nodes[&1].group.status();
    assert_eq!(status.replicas, [1, 2, 4].map(id).into());
    assert!(!status.is_changing && cluster.nodes[&4].group.may_stand());
    assert_eq!(cluster.answer(4, get("k3")), bulk("v"));
    cluster.lead(4, 2);
    assert_eq!(cluster.answer(2, get("k19")), bulk("v"));
}

#[test]
fn memory_and_disk_bound_what_makes_the_table_larger_and_nothing_else() {
    let mut cluster = Cluster::of(1);
    cluster.lead(1, 1);
    let group = &mut cluster.nodes.get_mut(&1).expect("is there").group;
    let mut out = Vec::new();
    let turn = Turn { now: Instant::ZERO, time_of_day: 0, believed: None, memory_left: 200, is_disk_full: false };
    group.request(100, set("a", "1"), Instant::ZERO);
    group.request(101, set("b", "1"), Instant::ZERO);
    group.turn(turn, &mut out);
    let answer = Effect::Answer { tag: 101, answer: Err(Failure::OutOfMemory) };
    assert!(out.contains(&answer), "{out:?}");
    group.request(102, set("b", "1"), Instant::ZERO);
    group.turn(Turn { is_disk_full: true, ..turn }, &mut out);
    assert!(out.contains(&Effect::Answer { tag: 102, answer: Err(Failure::DiskFull) }));
    cluster.write(1);
    let delete = write(Operation::Delete { keys: vec![b"a"[..].into()] });
    assert_eq!(cluster.answer(1, delete), Ok(Reply::Integer(1)));
}

#[test]
fn a_refusal_counts_only_where_there_is_no_other_copy() {
    let mut cluster = Cluster::of(3);
    cluster.lead(1, 1);
    let write = cluster.ask(3, add("n"));
    // The leader has no room. While its refusal is on its way, another one leads and does it.
    let (_, _, forward) = cluster.wire.pop_front().expect("is sent");
    let now = cluster.now;
    let leader = &mut cluster.nodes.get_mut(&1).expect("is there").group;
    leader.receive(id(3), forward, now);
    let mut out = Vec::new();
    leader.turn(Turn { now, time_of_day: 0, believed: None, memory_left: 0, is_disk_full: false }, &mut out);
    let refusal = out.into_iter().find_map(|effect| match effect {
        Effect::Send { message: message @ Message::Answers(_), .. } => Some(message),
        _ => None,
    });
    cluster.wire.clear();
    cluster.lead(2, 2);
    assert_eq!(cluster.answers.remove(&write), Some(Ok(Reply::Integer(1))));
    // The same, and the refusal comes before the answer of the other.
    let write = cluster.ask(3, add("n"));
    cluster.wire.clear();
    cluster.grant(1, 3);
    cluster.run();
    cluster.act(3, |group| group.receive(id(1), refusal.clone().expect("is refused"), now));
    assert_eq!(cluster.answers.get(&write), Some(&Ok(Reply::Integer(2))));
    // Nor does a leader refuse what may have been done.
    let write = cluster.ask(3, add("n"));
    let forwards: Vec<_> = cluster.wire.drain(..).collect();
    cluster.act(3, |group| group.connected(id(1), now));
    let again = cluster.wire.drain(..).find_map(|(_, _, message)| match message {
        Message::Forward(forward) => Some(forward),
        _ => None,
    });
    let again = again.expect("is sent again");
    assert_eq!((forwards.len(), again.writes.len(), again.sent_before), (1, 1, again.writes[0].0));
    let leader = &mut cluster.nodes.get_mut(&1).expect("is there").group;
    leader.receive(id(3), Message::Forward(again), now);
    let mut out = Vec::new();
    leader.turn(Turn { now, time_of_day: 0, believed: None, memory_left: 0, is_disk_full: true }, &mut out);
    assert!(!out.iter().any(|effect| matches!(effect, Effect::Send { message: Message::Answers(_), .. })), "{out:?}");
    assert_eq!(cluster.answers.get(&write), None);
}

#[test]
fn a_request_that_no_record_can_hold_is_refused() {
    let mut cluster = Cluster::of(1);
    cluster.lead(1, 1);
    let value = alloc::string::String::from_utf8(vec![b'x'; REQUEST_MAX + 1]).expect("it is text");
    assert_eq!(cluster.answer(1, set("a", &value)), Err(Failure::TooLarge));
}

const fn is_install(message: &Message) -> bool {
    matches!(message, Message::Log(log::Message::Request(log::Request::Install { .. })))
}
