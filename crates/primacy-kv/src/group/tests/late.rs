//! For whom a leader keeps its log, and for how long.

use super::*;
use crate::group::late::AWAY_LEASES;

const VALUE: &str = "some value of some length";

/// Three nodes, of which the first leads and has a snapshot of a table of some 10 kB; one is due with each kB.
fn cluster() -> Cluster {
    let mut cluster = Cluster { snapshot_every: Some(1_000), window_bytes: Some(500), ..Cluster::default() }.with(3);
    cluster.lead(1, 1);
    for number in 0..60 {
        assert_eq!(cluster.answer(1, set(&alloc::format!("k{number}"), VALUE)), Ok(Reply::OK));
    }
    cluster.snapshot(1);
    cluster
}

fn start(cluster: &Cluster) -> u64 {
    cluster.nodes[&1].group.log.replica().log().start().index
}

fn log_bytes(cluster: &Cluster) -> usize {
    cluster.nodes[&1].group.log.replica().log().bytes()
}

/// The fourth node is taken in, and the first chunk for it is under way.
fn taking_in(cluster: &mut Cluster) -> VecDeque<(u128, u128, Message)> {
    cluster.begin_adding(4);
    cluster.run_but(|_, _, message| is_install(message))
}

/// Writes until the log has that many bytes, and takes a snapshot. What is sent of an older one is held.
fn write_until(cluster: &mut Cluster, bytes: usize) -> VecDeque<(u128, u128, Message)> {
    let mut held = VecDeque::new();
    while log_bytes(cluster) < bytes {
        cluster.ask(1, set("a", VALUE));
        held.extend(cluster.run_but(|_, _, message| is_install(message)));
    }
    cluster.snapshot(1);
    held.extend(cluster.run_but(|_, _, message| is_install(message)));
    held
}

#[test]
fn a_new_replica_comes_in_although_the_log_goes_on() {
    let mut cluster = Cluster { snapshot_every: Some(1_000), ..Cluster::default() }.with(3);
    cluster.lead(1, 1);
    cluster.fill(1);
    cluster.snapshot(1);
    cluster.begin_adding(4);
    let mut bulk = VecDeque::new();
    for chunk in 1..2_000 {
        bulk.extend(cluster.run_but(|_, _, message| is_install(message)));
        if cluster.nodes[&4].group.may_stand() {
            return;
        }
        let Some((from, to, message)) = bulk.pop_front() else { break };
        let now = cluster.now;
        cluster.act(to, |group| group.receive(id(from), message, now));
        if chunk % 15 == 0 {
            // So much is written meanwhile that another snapshot is taken.
            cluster.ask(1, set("a", "1"));
            bulk.extend(cluster.run_but(|_, _, message| is_install(message)));
            cluster.snapshot(1);
        }
    }
    panic!("it begins anew with each snapshot, {} chunks are under way", bulk.len());
}

#[test]
fn a_new_replica_gets_what_was_written_while_it_was_sent_the_snapshot() {
    let mut cluster = cluster();
    let table = cluster.nodes[&1].group.bytes();
    let mut bulk = taking_in(&mut cluster);
    // More than for one that is late, less than what is sent.
    let bytes = 7_000;
    assert!(4_000 < bytes && bytes < table, "{table}");
    bulk.extend(write_until(&mut cluster, bytes));
    let mut first_chunks = 0;
    while let Some((from, to, message)) = bulk.pop_front() {
        first_chunks +=
            usize::from(matches!(message, Message::Log(log::Message::Request(log::Request::Install { chunk: 0, .. }))));
        let now = cluster.now;
        cluster.act(to, |group| group.receive(id(from), message, now));
        bulk.extend(cluster.run_but(|_, _, message| is_install(message)));
    }
    assert!(cluster.nodes[&4].group.may_stand());
    assert_eq!(first_chunks, 1, "it is sent the next snapshot");
    assert!(log_bytes(&cluster) < 1_000, "nothing is kept when it has all");
}

#[test]
fn what_is_written_while_a_snapshot_is_sent_does_not_grow_without_end() {
    let mut cluster = cluster();
    let before = start(&cluster);
    let _held = taking_in(&mut cluster);
    let table = cluster.nodes[&1].group.bytes();
    write_until(&mut cluster, table - 500);
    assert_eq!(start(&cluster), before);
    while start(&cluster) == before {
        assert!(log_bytes(&cluster) < table + 500, "{table}");
        cluster.ask(1, set("a", VALUE));
        let _held = cluster.run_but(|_, _, message| is_install(message));
    }
}

#[test]
fn one_that_stays_away_while_it_is_sent_the_snapshot_is_waited_for_no_longer_than_any_that_is_late() {
    let mut cluster = cluster();
    let before = start(&cluster);
    let _held = taking_in(&mut cluster);
    write_until(&mut cluster, 4_000);
    assert_eq!(start(&cluster), before);
    let now = cluster.now;
    cluster.away = [4].into();
    cluster.act(1, |group| group.disconnected(id(4), now));
    // The connection has broken, and is made again.
    cluster.pass(LEASE);
    assert_eq!(start(&cluster), before);
    cluster.pass(LEASE * AWAY_LEASES);
    assert!(start(&cluster) > before);
}

#[test]
fn a_replica_that_was_taken_out_is_not_waited_for() {
    let mut cluster = cluster();
    cluster.away = [3].into();
    assert_eq!(cluster.act(1, |group| group.replace(Some(id(3)), None)), Ok(()));
    cluster.turn(1);
    cluster.run();
    let before = start(&cluster);
    write_until(&mut cluster, 1_000);
    assert!(start(&cluster) > before);
}

#[test]
fn entries_that_are_in_the_way_go_although_a_replica_is_late() {
    let mut cluster = cluster();
    cluster.away = [3].into();
    let before = start(&cluster);
    write_until(&mut cluster, 1_000);
    assert_eq!(start(&cluster), before, "it waits");
    assert!(cluster.act(1, |group| group.set_waits_for_none(true)));
    let after = start(&cluster);
    assert!(after > before);
    assert!(cluster.act(1, |group| group.set_waits_for_none(false)));
    write_until(&mut cluster, 1_000);
    assert_eq!(start(&cluster), after);
    cluster.away.clear();
    cluster.connect(1, 3);
    cluster.pass(LEASE / 2);
    let last = |own: u128| cluster.nodes[&own].group.status().last;
    assert_eq!(last(3), last(1), "it is sent the snapshot");
}
