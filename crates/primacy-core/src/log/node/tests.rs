//! Some processes and the messages between them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;

use super::super::config::Config;
use super::super::port::Content;
use super::*;
use crate::CandidateId;

type Bytes = Vec<u8>;

const NOW: GroupTime = GroupTime::from_millis(0);

fn id(replica: u128) -> ReplicaId {
    ReplicaId::from_bits(replica)
}

fn ids(replicas: &[u128]) -> BTreeSet<ReplicaId> {
    replicas.iter().copied().map(id).collect()
}

fn ballot(token: u64) -> Ballot {
    Ballot { token: Token::new(token).expect("a small one"), id: CandidateId::from_bits(token.into()) }
}

/// All that is applied becomes the snapshot.
fn compact(node: &mut LogNode<Bytes>) -> Snapshot {
    node.compact(node.replica().applied(), 2).expect("something is applied")
}

#[derive(Default)]
struct Net {
    limits: Limits,
    nodes: BTreeMap<u128, LogNode<Bytes>>,
    /// What each has applied.
    states: BTreeMap<u128, Vec<u8>>,
    snapshots: BTreeMap<u128, Vec<u8>>,
    aside: BTreeMap<u128, Vec<u8>>,
    packets: VecDeque<(u128, u128, Message<Bytes>)>,
    /// Who neither hears nor is heard.
    away: BTreeSet<u128>,
    /// What else there was to do.
    told: Vec<(u128, Effect<Bytes>)>,
}

impl Net {
    fn of(count: u128) -> Self {
        Self::with(count, Limits::default())
    }

    fn with(count: u128, limits: Limits) -> Self {
        let config = Config::new((1..=count).map(id).collect()).expect("there are some");
        let mut net = Self { limits, ..Self::default() };
        (1..=count).for_each(|own| net.add(own, DurableLog::founding(config.clone())));
        net
    }

    fn add(&mut self, own: u128, disk: DurableLog<Bytes>) {
        self.nodes.insert(own, LogNode::restarted(id(own), disk, self.limits));
        self.states.insert(own, Vec::new());
    }

    fn act<T>(&mut self, own: u128, does: impl FnOnce(&mut LogNode<Bytes>, &mut Vec<Effect<Bytes>>) -> T) -> T {
        let mut out = Vec::new();
        let done = does(self.nodes.get_mut(&own).expect("is there"), &mut out);
        self.carry_out(own, out);
        while let Some((_, entry)) = self.nodes[&own].next_to_apply() {
            if let Content::Payload(bytes) = &entry.content {
                self.states.get_mut(&own).expect("is there").extend(bytes);
            }
            let mut out = Vec::new();
            self.nodes.get_mut(&own).expect("is there").applied(&mut out);
            self.carry_out(own, out);
        }
        done
    }

    fn carry_out(&mut self, own: u128, out: Vec<Effect<Bytes>>) {
        for effect in out {
            match effect {
                Effect::Send { to, message } => self.packets.push_back((own, to.to_bits(), message)),
                Effect::SendChunk(order) => {
                    let bytes = self.snapshots.get(&own).cloned().unwrap_or_default();
                    // Each cuts in its own way.
                    let half = bytes.len() / 2 + own as usize % 2;
                    let data = match order.chunk {
                        _ if order.snapshot.chunks == 1 => bytes,
                        0 => bytes[..half].to_vec(),
                        _ => bytes[half..].to_vec(),
                    };
                    self.packets.push_back((own, order.to.to_bits(), order.message(data)));
                }
                Effect::Restore(_) => {
                    let mut state = self.aside.get(&own).cloned().unwrap_or_default();
                    self.nodes[&own].unwritten().iter().for_each(|write| keep_aside(&mut state, write));
                    self.snapshots.insert(own, state.clone());
                    self.states.insert(own, state);
                }
                effect => self.told.push((own, effect)),
            }
        }
    }

    fn flush(&mut self, own: u128) {
        self.act(own, |node, out| {
            let writes = node.begin_write();
            if writes.is_some() {
                node.written(out);
            }
            writes
        })
        .iter()
        .flatten()
        .for_each(|write| keep_aside(self.aside.entry(own).or_default(), write));
    }

    fn deliver(&mut self) -> bool {
        let Some((from, to, message)) = self.packets.pop_front() else { return false };
        if !self.away.contains(&from) && !self.away.contains(&to) {
            self.act(to, |node, out| node.receive(id(from), message, out));
        }
        true
    }

    /// Flushes and delivers all.
    fn run(&mut self) {
        loop {
            let owns: Vec<_> = self.nodes.keys().copied().collect();
            owns.into_iter().for_each(|own| self.flush(own));
            if !self.deliver() {
                return;
            }
        }
    }

    fn open(&mut self, own: u128, token: u64) {
        self.act(own, |node, out| node.open(ballot(token), out)).expect("a larger one");
    }

    fn write(&mut self, own: u128, says: u8) {
        self.act(own, |node, out| node.propose(vec![vec![says]], NOW, out)).expect("it leads");
    }

    fn beat(&mut self, own: u128) {
        self.act(own, |node, out| node.beat(NOW, out));
    }

    fn has_told(&self, own: u128, effect: &Effect<Bytes>) -> bool {
        self.told.iter().any(|told| (told.0, &told.1) == (own, effect))
    }
}

fn keep_aside(aside: &mut Vec<u8>, write: &Write<Bytes>) {
    if let Write::Aside { chunk, data, .. } = write {
        if *chunk == 0 {
            aside.clear();
        }
        aside.extend(data);
    }
}

#[test]
fn a_leader_opens_and_what_it_appends_is_committed_and_applied_everywhere() {
    let mut net = Net::of(3);
    net.open(1, 1);
    net.run();
    assert!(net.has_told(1, &Effect::Serves { opening: 1 }));
    net.write(1, 7);
    net.run();
    assert_eq!((net.nodes[&1].committed(), &net.states[&1]), (Some(2), &vec![7]));
    net.beat(1);
    net.run();
    assert!(net.states.values().all(|state| *state == [7]), "{:?}", net.states);
}

#[test]
fn nobody_hears_of_a_ballot_before_it_is_on_the_disk_of_its_own_replica() {
    let mut net = Net::of(3);
    net.open(1, 1);
    assert!(net.packets.is_empty(), "{:?}", net.packets);
    net.flush(1);
    assert_eq!(net.packets.len(), 2);
}

#[test]
fn an_answer_leaves_when_all_is_on_disk_that_it_may_rest_on() {
    let mut net = Net::of(3);
    net.open(1, 1);
    net.flush(1);
    net.packets.retain(|(_, to, _)| *to == 2);
    assert!(net.deliver() && net.packets.is_empty(), "the promise is not on disk");
    // Asked again while the write is under way: that answer waits for the same write.
    let writes = net.nodes.get_mut(&2).expect("is there").begin_write();
    assert_eq!(writes, Some(vec![Write::Promise(ballot(1))]));
    let request = Message::Request(Request::Open { ballot: ballot(1) });
    net.act(2, |node, out| node.receive(id(1), request, out));
    assert!(net.packets.is_empty());
    net.act(2, |node, out| node.written(out));
    assert_eq!(net.packets.len(), 2);
}

#[test]
fn a_leader_counts_its_own_entries_when_they_are_on_its_disk() {
    let mut net = Net::of(3);
    net.open(1, 1);
    net.run();
    net.write(1, 7);
    net.packets.retain(|(_, to, _)| *to == 2);
    while net.deliver() {
        net.flush(2);
    }
    assert_eq!(net.nodes[&1].committed(), Some(1), "one of three has it on disk");
    net.flush(1);
    assert_eq!(net.nodes[&1].committed(), Some(2));
}

#[test]
fn a_leader_adopts_the_greatest_log_of_a_quorum_and_fetches_what_it_lacks() {
    let mut net = Net::of(3);
    net.away.insert(3);
    net.open(1, 1);
    net.run();
    net.write(1, 7);
    net.run();
    assert_eq!(net.nodes[&1].committed(), Some(2));
    net.away = [1].into();
    net.open(3, 2);
    net.run();
    assert_eq!((net.nodes[&3].committed(), net.nodes[&3].opening()), (Some(3), Some(3)));
    assert_eq!(net.states[&3], [7]);
    // Who was away is outbid when it says something.
    net.away.clear();
    net.beat(1);
    net.run();
    assert!(net.has_told(1, &Effect::Ended(EndReason::Outbid(ballot(2)))));
    assert_eq!((net.nodes[&1].leads(), net.nodes[&1].floor()), (None, ballot(2).token));
}

#[test]
fn what_only_a_minority_has_is_cut_when_another_leads() {
    let mut net = Net::of(3);
    net.open(1, 1);
    net.run();
    net.away.insert(1);
    net.write(1, 7);
    net.flush(1);
    net.open(2, 2);
    net.run();
    net.write(2, 8);
    net.run();
    assert_eq!(net.states[&2], [8]);
    net.away.clear();
    net.act(2, |node, out| node.reconnected(id(1), out));
    net.run();
    net.beat(2);
    net.run();
    assert_eq!((&net.states[&1], net.nodes[&1].diverged()), (&vec![8], None));
}

#[test]
fn a_ballot_is_opened_once_and_only_by_a_member() {
    let mut net = Net::of(3);
    net.add(4, DurableLog::blank());
    net.open(1, 2);
    net.run();
    let not_above = Err(OpenError::NotAbove(ballot(2)));
    assert_eq!(net.act(1, |node, out| node.open(ballot(2), out)), not_above);
    assert_eq!(net.act(2, |node, out| node.open(ballot(1), out)), not_above);
    assert_eq!(net.act(4, |node, out| node.open(ballot(3), out)), Err(OpenError::NoMember));
    let leap = net.act(1, |node, out| node.open(ballot(1 << 40), out));
    assert_eq!(leap, Err(OpenError::Leap(ballot(2))));
    assert_eq!(net.nodes[&1].leads(), Some(ballot(2)));
}

#[test]
fn a_read_waits_for_the_opening_entry_and_for_a_check_after_it_has_come() {
    let mut net = Net::of(3);
    net.open(1, 1);
    net.flush(1);
    let token = ballot(1).token;
    net.act(1, |node, out| node.read(10, Reading::Lease, out));
    net.act(1, |node, out| node.check(Some(token), out));
    assert!(!net.has_told(1, &Effect::Read(10)), "its opening entry is not applied");
    net.run();
    net.act(1, |node, out| node.check(None, out));
    net.act(1, |node, out| node.check(Some(ballot(2).token), out));
    assert!(!net.has_told(1, &Effect::Read(10)), "it believes in nothing, or in a later token");
    net.act(1, |node, out| node.check(Some(token), out));
    assert!(net.has_told(1, &Effect::Read(10)));
    net.act(1, |node, out| node.read(11, Reading::Lease, out));
    assert!(!net.has_told(1, &Effect::Read(11)), "that check was before");
}

#[test]
fn a_round_confirms_the_reads_that_had_come_before_it_was_sent() {
    let mut net = Net::of(3);
    net.open(1, 1);
    net.run();
    net.act(1, |node, out| node.read(10, Reading::Quorum, out));
    net.beat(1);
    net.act(1, |node, out| node.read(11, Reading::Quorum, out));
    net.run();
    assert!(net.has_told(1, &Effect::Read(10)) && !net.has_told(1, &Effect::Read(11)));
    net.away = [2, 3].into();
    net.beat(1);
    net.run();
    assert!(!net.has_told(1, &Effect::Read(11)), "nobody answers");
    net.away.clear();
    net.beat(1);
    net.run();
    assert!(net.has_told(1, &Effect::Read(11)));
}

#[test]
fn one_replica_comes_for_another_by_snapshot_and_a_joint_phase() {
    let mut net = Net::of(3);
    net.open(1, 1);
    net.run();
    for says in [1, 2, 3] {
        net.write(1, says);
    }
    net.run();
    compact(net.nodes.get_mut(&1).expect("is there"));
    net.snapshots.insert(1, net.states[&1].clone());
    net.write(1, 4);
    net.run();
    net.add(4, DurableLog::blank());
    net.act(1, |node, out| node.follow(id(4), out));
    net.run();
    assert_eq!((net.nodes[&1].matched(id(4)), &net.states[&4]), (5, &vec![1, 2, 3, 4]));
    let several = net.act(1, |node, out| node.reconfigure(ids(&[1, 4, 5]), out));
    assert!(matches!(several, Err(ProposeError::Config(_))), "{several:?}");
    net.act(1, |node, out| node.reconfigure(ids(&[1, 2, 4]), out)).expect("nothing is under way");
    let twice = net.act(1, |node, out| node.reconfigure(ids(&[1, 2, 3]), out));
    assert_eq!(twice, Err(ProposeError::Uncommitted));
    net.run();
    let config = net.nodes[&4].replica().log().config().cloned();
    assert_eq!(config, Config::new(ids(&[1, 2, 4])).ok());
    assert_eq!(net.nodes[&1].committed(), Some(7), "the joint config, and the new one");
    net.away = [2, 3].into();
    net.write(1, 5);
    net.run();
    assert_eq!(net.states[&1], [1, 2, 3, 4, 5], "1 and 4 are a majority");
    let removed = net.act(3, |node, out| node.open(ballot(9), out));
    assert_eq!(removed, Err(OpenError::NoMember));
}

#[test]
fn a_learner_is_sent_what_is_written_until_its_leader_is_told_otherwise() {
    let mut net = Net::of(3);
    net.open(1, 1);
    net.run();
    net.add(4, DurableLog::blank());
    net.act(1, |node, out| node.follow(id(4), out));
    net.write(1, 7);
    net.run();
    assert_eq!((net.nodes[&1].matched(id(4)), net.nodes[&1].matched(id(2))), (2, 2));
    for other in [2, 4] {
        net.act(1, |node, out| node.unfollow(id(other), out));
    }
    net.write(1, 8);
    net.run();
    assert_eq!((net.nodes[&4].replica().log().last().index, net.nodes[&2].replica().log().last().index), (2, 3));
}

#[test]
fn a_leader_that_is_taken_out_ends_when_that_is_committed() {
    let mut net = Net::of(4);
    net.open(1, 1);
    net.run();
    net.act(1, |node, out| node.reconfigure(ids(&[2, 3, 4]), out)).expect("nothing is under way");
    net.run();
    assert!(net.has_told(1, &Effect::Ended(EndReason::Removed)));
    assert_eq!(net.act(1, |node, out| node.open(ballot(2), out)), Err(OpenError::NoMember));
    net.open(2, 3);
    net.run();
    assert_eq!(net.nodes[&2].committed(), Some(4));
}

#[test]
fn a_new_leader_finishes_a_change_that_is_under_way() {
    let mut net = Net::of(4);
    net.open(1, 1);
    net.run();
    net.act(1, |node, out| node.reconfigure(ids(&[1, 2, 3]), out)).expect("nothing is under way");
    // The joint entry reaches all, and nothing follows.
    let count = net.packets.len();
    (0..count).for_each(|_| {
        net.deliver();
    });
    net.packets.clear();
    net.away.insert(1);
    net.open(2, 2);
    net.run();
    assert_eq!(net.nodes[&2].replica().log().config().cloned(), Config::new(ids(&[1, 2, 3])).ok());
}

#[test]
fn a_successor_that_has_all_opens_with_nothing_to_fetch() {
    let mut net = Net::of(3);
    net.open(1, 1);
    net.run();
    net.write(1, 7);
    net.act(1, |node, out| node.hand_over(id(2), out)).expect("it leads");
    let held = net.act(1, |node, out| node.propose(vec![vec![8]], NOW, out));
    assert_eq!(held, Err(ProposeError::HandingOver));
    assert!(!net.has_told(1, &Effect::HandedOver(id(2))));
    net.run();
    assert!(net.has_told(1, &Effect::HandedOver(id(2))));
    net.act(1, |node, out| node.end(out));
    net.open(2, 2);
    net.flush(2);
    let mut fetches = 0;
    while net.deliver() {
        fetches += net
            .packets
            .iter()
            .filter(|(_, _, message)| matches!(message, Message::Request(Request::Fetch { .. })))
            .count();
        (1..=3).for_each(|own| net.flush(own));
    }
    assert_eq!((fetches, net.nodes[&2].committed(), net.nodes[&2].opening()), (0, Some(3), Some(3)));
}

#[test]
fn a_leader_that_fetches_from_one_that_is_gone_fetches_from_another() {
    let mut net = Net::of(3);
    net.away.insert(3);
    net.open(1, 1);
    net.run();
    net.write(1, 7);
    net.run();
    net.away.clear();
    net.open(3, 2);
    net.flush(3);
    // Both promise; the first that is asked to tell its entries is gone.
    while net.packets.iter().all(|(_, _, message)| !matches!(message, Message::Request(Request::Fetch { .. }))) {
        assert!(net.deliver());
        (1..=3).for_each(|own| net.flush(own));
    }
    let fetched = net
        .packets
        .iter()
        .find_map(|(_, to, message)| matches!(message, Message::Request(Request::Fetch { .. })).then_some(*to));
    let gone = fetched.expect("one is asked");
    net.run_without(gone);
    assert_eq!(net.nodes[&3].opening(), None);
    net.act(3, |node, out| node.lost(id(gone), out));
    net.run();
    assert_eq!((net.nodes[&3].opening(), &net.states[&3]), (Some(3), &vec![7]));
}

#[test]
fn a_leader_whose_source_is_gone_halfway_goes_on_from_what_its_own_replica_has_by_then() {
    let mut net = Net::with(3, Limits { message_bytes: 0, ..Limits::default() });
    let last = |net: &Net, own: u128| net.nodes[&own].replica().log().last();
    net.open(3, 1);
    net.run_to(|net| net.nodes[&3].opening().is_some());
    net.packets.clear();
    net.away.insert(3);
    net.open(1, 2);
    net.run_to(|net| net.nodes[&1].opening().is_some());
    net.write(1, 7);
    net.flush(1);
    net.packets.clear();
    net.away.clear();
    assert_eq!((last(&net, 1).index, last(&net, 2).index, last(&net, 3).index), (2, 0, 1));
    net.open(3, 3);
    net.run_to(|net| last(net, 3).ballot == ballot(2));
    assert_eq!(last(&net, 3).index, 1, "it has the first entry instead of its own");
    net.away.insert(1);
    net.run();
    net.act(3, |node, out| node.lost(id(1), out));
    net.run();
    assert_eq!((net.nodes[&3].opening(), net.nodes[&3].committed()), (Some(2), Some(2)));
}

#[test]
fn the_time_of_a_group_never_goes_back() {
    let mut net = Net::of(3);
    net.away.insert(3);
    net.open(1, 1);
    net.run();
    net.act(1, |node, out| node.propose(vec![vec![7]], GroupTime::from_millis(50), out)).expect("it leads");
    net.run();
    net.away = [1].into();
    net.act(3, |node, out| node.open(ballot(2), out)).expect("a larger one");
    net.run();
    let log = net.nodes[&3].replica().log();
    let times: Vec<u64> = log.entries().iter().map(|entry| entry.time.millis()).collect();
    assert_eq!((times, net.nodes[&3].replica().time().millis()), (vec![0, 50, 50], 50));
}

#[test]
fn what_was_taken_of_a_log_that_is_not_adopted_counts_for_nothing() {
    let mut net = Net::with(3, Limits { message_bytes: 0, ..Limits::default() });
    let last = |net: &Net, own: u128| net.nodes[&own].replica().log().last();
    net.open(1, 1);
    net.run();
    net.away = [2, 3].into();
    for says in 1..=4 {
        net.write(1, says);
    }
    net.run();
    // 2 has one entry of its own, and 1 another behind its many.
    for (leader, token, away) in [(2, 2, 1), (1, 3, 2)] {
        net.away = [away].into();
        net.open(leader, token);
        net.run_to(|net| net.nodes[&leader].opening().is_some());
        net.flush(leader);
        net.packets.clear();
    }
    let lasts = [1, 2, 3].map(|own| (last(&net, own).ballot.token.get(), last(&net, own).index));
    assert_eq!(lasts, [(3, 6), (2, 2), (1, 1)]);
    // 3 fetches from 1, until nothing but the last entry is missing, and then from 2.
    net.open(3, 4);
    net.run_to(|net| last(net, 3).index == 5);
    net.away = [1].into();
    net.run();
    net.act(3, |node, out| node.lost(id(1), out));
    net.act(3, |node, out| node.reconnected(id(2), out));
    net.run();
    assert_eq!((net.nodes[&3].opening(), net.nodes[&3].committed()), (Some(3), Some(3)));
    assert_eq!(net.nodes[&3].matched(id(3)), 3);
    net.write(3, 8);
    while net.deliver() {
        net.flush(2);
    }
    assert_eq!(net.nodes[&3].committed(), Some(3), "one of three has it on disk");
    net.run();
    assert_eq!(net.nodes[&3].committed(), Some(4));
}

#[test]
fn chunks_of_two_sources_are_not_put_together() {
    let mut net = Net::of(3);
    net.away.insert(3);
    net.open(1, 1);
    net.run();
    for says in [1, 2, 3] {
        net.write(1, says);
    }
    net.run();
    net.beat(1);
    net.run();
    for own in [1, 2] {
        let snapshot = compact(net.nodes.get_mut(&own).expect("is there"));
        assert_eq!(snapshot.position.index, 4);
        net.snapshots.insert(own, net.states[&own].clone());
    }
    net.away.clear();
    net.open(3, 2);
    net.run_to(|net| net.aside.get(&3).is_some_and(|state| !state.is_empty()));
    let sources =
        net.packets.iter().filter(|(_, _, message)| matches!(message, Message::Request(Request::Fetch { .. })));
    let source = sources.map(|(_, to, _)| *to).next_back().expect("it asks for the next chunk");
    net.away.insert(source);
    net.run();
    assert_eq!(net.nodes[&3].opening(), None);
    net.act(3, |node, out| node.lost(id(source), out));
    net.run();
    assert_eq!((net.nodes[&3].opening(), &net.states[&3]), (Some(5), &vec![1, 2, 3]));
}

#[test]
fn a_replica_that_restarts_applies_all_again_although_nothing_is_written() {
    let mut net = Net::of(3);
    net.open(1, 1);
    net.run();
    net.write(1, 7);
    net.run();
    let disk = net.nodes[&2].replica().log().clone();
    net.add(2, disk);
    net.act(1, |node, out| node.reconnected(id(2), out));
    net.run();
    assert_eq!(net.states[&2], [7]);
}

impl Net {
    /// Flushes and delivers, until that is so.
    fn run_to(&mut self, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) {
            let owns: Vec<_> = self.nodes.keys().copied().collect();
            owns.into_iter().for_each(|own| self.flush(own));
            assert!(is_so(self) || self.deliver(), "nothing follows");
        }
    }

    fn run_without(&mut self, gone: u128) {
        self.away.insert(gone);
        self.run();
    }
}
