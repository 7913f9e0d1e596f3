//! Which groups of one node take snapshots, and which keep nothing for others any more.

use super::*;
use crate::snapshots::{LogBounds, LogLength, Replica, Snapshots};

/// One of a node's replicas: the first of a cluster of its own.
struct OnlyReplica {
    cluster: Cluster,
    is_given: bool,
}

impl Replica for OnlyReplica {
    fn group(&mut self) -> &mut Group {
        &mut self.cluster.nodes.get_mut(&1).expect("is there").group
    }

    fn is_given_snapshot(&self) -> bool {
        self.is_given
    }
}

const BOUNDS: LogBounds = LogBounds { before_asking: 2, for_late: 4, segment_bytes: 1 << 20 };

/// Groups in which something was written since their snapshots, with one due of those that are named.
fn groups<const COUNT: usize>(due: &[usize]) -> [OnlyReplica; COUNT] {
    core::array::from_fn(|number| {
        let every = if due.contains(&number) { 1 } else { usize::MAX };
        let mut cluster = Cluster { snapshot_every: Some(every), ..Cluster::default() }.with(1);
        cluster.lead(1, 1);
        assert_eq!(cluster.answer(1, set("a", "1")), Ok(Reply::OK));
        OnlyReplica { cluster, is_given: false }
    })
}

fn look(snapshots: &mut Snapshots, segments: u64, holding: &[u16], groups: &mut [OnlyReplica]) -> BTreeSet<u16> {
    snapshots.look_after(LogLength { segments, holding }, BOUNDS, groups)
}

/// The groups whose snapshots are begun, one after the other, each of them written at once.
fn taken(snapshots: &mut Snapshots, groups: &mut [OnlyReplica]) -> Vec<u16> {
    let begin = || {
        let (group, index) = snapshots.begin(Instant::ZERO, groups)?;
        groups[usize::from(group)].group().cancel_snapshot();
        snapshots.ended(group, index);
        Some(group)
    };
    core::iter::from_fn(begin).collect()
}

#[test]
fn groups_that_hold_a_long_log_take_snapshots_although_none_is_due() {
    let mut groups = groups::<3>(&[2]);
    let mut snapshots = Snapshots::default();
    snapshots.is_due(2);
    assert!(look(&mut snapshots, 2, &[0], &mut groups).is_empty());
    assert_eq!(taken(&mut snapshots, &mut groups), [2], "the log is not long");
    snapshots.is_due(2);
    assert!(look(&mut snapshots, 3, &[0], &mut groups).is_empty());
    assert_eq!(taken(&mut snapshots, &mut groups), [0, 2], "the one that holds it comes first");
}

#[test]
fn a_group_is_not_asked_again_while_its_snapshot_is_taken_or_given_to_its_log() {
    let mut groups = groups::<2>(&[1]);
    let mut snapshots = Snapshots::default();
    look(&mut snapshots, 3, &[0], &mut groups);
    let (group, index) = snapshots.begin(Instant::ZERO, &mut groups).expect("it was asked");
    assert_eq!(group, 0);
    // Something is written meanwhile, so another one would have something to take.
    assert_eq!(groups[0].cluster.answer(1, set("a", "2")), Ok(Reply::OK));
    look(&mut snapshots, 3, &[0], &mut groups);
    groups[0].group().cancel_snapshot();
    snapshots.ended(group, index);
    groups[0].is_given = true;
    look(&mut snapshots, 3, &[0], &mut groups);
    groups[0].is_given = false;
    snapshots.is_due(1);
    assert_eq!(taken(&mut snapshots, &mut groups), [1]);
    look(&mut snapshots, 3, &[0], &mut groups);
    assert_eq!(taken(&mut snapshots, &mut groups), [0], "it still holds the log");
}

#[test]
fn one_whose_snapshot_cannot_be_written_waits_and_holds_up_no_other() {
    let mut groups = groups::<2>(&[1]);
    let mut snapshots = Snapshots::default();
    look(&mut snapshots, 3, &[0], &mut groups);
    let (group, index) = snapshots.begin(Instant::ZERO, &mut groups).expect("it was asked");
    groups[0].group().cancel_snapshot();
    let until = Instant::ZERO + Duration::from_secs(10);
    snapshots.failed(group, index, until);
    look(&mut snapshots, 3, &[0], &mut groups);
    snapshots.is_due(1);
    assert_eq!(taken(&mut snapshots, &mut groups), [1]);
    assert_eq!(snapshots.begin(until, &mut groups).map(|(group, _)| group), Some(0), "its time has come");
}

#[test]
fn one_that_has_all_in_its_snapshot_takes_none() {
    let mut groups = groups::<1>(&[]);
    let mut snapshots = Snapshots::default();
    groups[0].cluster.snapshot(1);
    groups[0].cluster.run();
    snapshots.ask(0);
    assert_eq!(snapshots.begin(Instant::ZERO, &mut groups), None);
    assert!(!groups[0].group().is_taking_snapshot(1));
}

#[test]
fn the_log_of_a_node_waits_for_nobody_when_it_has_too_many_segments() {
    let mut groups = groups::<2>(&[]);
    let mut snapshots = Snapshots::default();
    assert!(look(&mut snapshots, 4, &[1], &mut groups).is_empty());
    assert_eq!(look(&mut snapshots, 5, &[1], &mut groups), [1].into());
    assert!(look(&mut snapshots, 5, &[1], &mut groups).is_empty(), "that is nothing new");
    assert_eq!(look(&mut snapshots, 5, &[0], &mut groups), [0, 1].into(), "another one holds it now");
    assert_eq!(look(&mut snapshots, 1, &[], &mut groups), [0].into());
    // As many more as the tables have.
    let large = "x".repeat(3 << 20);
    assert_eq!(groups[0].cluster.answer(1, set("large", &large)), Ok(Reply::OK));
    assert!(look(&mut snapshots, 7, &[1], &mut groups).is_empty());
    assert_eq!(look(&mut snapshots, 8, &[1], &mut groups), [1].into());
}

#[test]
fn a_snapshot_is_given_up_when_a_newer_one_comes() {
    let mut cluster = Cluster::of(3);
    cluster.lead(1, 1);
    assert_eq!(cluster.answer(1, set("a", "1")), Ok(Reply::OK));
    let index = cluster.nodes.get_mut(&3).expect("is there").group.begin_snapshot().expect("something is applied");
    assert!(cluster.nodes[&3].group.is_taking_snapshot(index));
    cluster.away.insert(3);
    for number in 0..10 {
        assert_eq!(cluster.answer(1, set("a", &alloc::format!("{number}"))), Ok(Reply::OK));
    }
    cluster.snapshot(1);
    cluster.run();
    cluster.nodes.get_mut(&1).expect("is there").group.set_waits_for_none(true);
    cluster.turn(1);
    cluster.run();
    cluster.away.remove(&3);
    let now = cluster.now;
    cluster.act(1, |group| group.connected(id(3), now));
    cluster.act(3, |group| group.connected(id(1), now));
    cluster.run();
    assert!(!cluster.nodes[&3].group.is_taking_snapshot(index), "the leader's has taken the table's place");
    assert_eq!(cluster.nodes.get_mut(&3).expect("is there").group.snapshot_chunk(64), None);
}
