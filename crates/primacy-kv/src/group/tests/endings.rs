//! What could go on for ever, be done twice, or grow without bound.

use super::*;

/// Entries that a leader has fetched, on their way from one to another.
const fn is_fetched(_: u128, _: u128, message: &Message) -> bool {
    matches!(message, Message::Log(log::Message::Answer(log::Answer { verdict: log::Verdict::Fetched { .. }, .. })))
}

#[test]
fn a_pipeline_that_meets_a_leader_while_it_opens_is_done_in_order() {
    let mut cluster = Cluster::of(3);
    cluster.away = [1].into();
    cluster.lead(2, 1);
    assert_eq!(cluster.answer(3, set("x", "zero")), Ok(Reply::OK));
    cluster.away.clear();
    // 1 lacks an entry, and fetches it. That takes some time, and it beats.
    cluster.grant(1, 2);
    let fetched = cluster.run_but(is_fetched);
    assert_eq!(fetched.len(), 1);
    cluster.now = cluster.now + LEASE / 6;
    cluster.turn(1);
    assert!(cluster.run_but(is_fetched).is_empty());
    let first = cluster.ask(3, set("x", "first"));
    // What 1 says to 3 is under way from here on, in order.
    let mut held = cluster.run_but(|from, to, _| (from, to) == (1, 3));
    cluster.wire.extend(fetched);
    held.extend(cluster.run_but(|from, to, _| (from, to) == (1, 3)));
    assert_eq!(cluster.nodes[&1].group.status().leads, Some((ballot(2), true)));
    let second = cluster.ask(3, set("x", "second"));
    held.extend(cluster.run_but(|from, to, _| (from, to) == (1, 3)));
    cluster.wire.extend(held);
    cluster.run();
    assert_eq!([first, second].map(|tag| cluster.answers.remove(&tag)), [Some(Ok(Reply::OK)), Some(Ok(Reply::OK))]);
    assert_eq!(cluster.answer(2, get("x")), bulk("second"));
}

#[test]
fn a_hand_over_to_one_that_is_lost_comes_to_an_end() {
    let mut cluster = Cluster::of(3);
    cluster.lead(1, 1);
    cluster.away = [2].into();
    let write = cluster.ask(3, add("n"));
    cluster.run();
    assert_eq!(cluster.answers.get(&write), Some(&Ok(Reply::Integer(1))), "two of three are enough");
    let now = cluster.now;
    cluster.act(1, |group| group.hand_over(Some(id(2)), now));
    cluster.pass(LEASE * 10);
    assert!(!cluster.resigned.is_empty(), "it leads for ever and takes no request");
}

#[test]
fn a_hand_over_that_takes_time_does_not_have_everything_sent_with_each_message() {
    let mut cluster = Cluster::of(3);
    cluster.lead(1, 1);
    cluster.away = [2].into();
    let now = cluster.now;
    assert_eq!(cluster.answer(3, add("n")), Ok(Reply::Integer(1)));
    cluster.act(1, |group| group.hand_over(Some(id(2)), now));
    cluster.ask(3, add("n"));
    let mut forwards = 0;
    for _ in 0..20 {
        cluster.now = cluster.now + Duration::from_millis(20);
        cluster.turn(1);
        while let Some((from, to, message)) = cluster.wire.pop_front() {
            forwards += usize::from(matches!(message, Message::Forward(_)));
            let now = cluster.now;
            cluster.act(to, |group| group.receive(id(from), message, now));
        }
    }
    assert!(forwards <= 2, "sent {forwards} times to one that has said that it is over");
}

#[test]
fn what_was_under_way_when_its_entries_went_is_not_under_way_for_ever() {
    let mut cluster = Cluster { snapshot_every: Some(1), ..Cluster::default() }.with(3);
    cluster.lead(1, 1);
    assert_eq!(cluster.answer(1, set("a", "1")), Ok(Reply::OK));
    let big = alloc::string::String::from_utf8(vec![b'x'; 1 << 20]).expect("it is text");
    let mut held = VecDeque::new();
    for number in 0..6 {
        cluster.ask(1, set(&alloc::format!("k{number}"), &big));
        held.extend(cluster.run_but(|_, to, _| to == 3));
    }
    assert_eq!(cluster.answers.len(), 7, "two of three are enough");
    // The log is four times as large as what makes a snapshot due: nobody is waited for.
    cluster.snapshot(1);
    cluster.wire.extend(held);
    cluster.pass(LEASE);
    let last = |own: u128| cluster.nodes[&own].group.status().last;
    assert_eq!(last(3), last(1), "it is sent nothing any more");
}

#[test]
fn a_node_that_is_taken_out_does_nothing_twice() {
    let mut cluster = Cluster::of(3);
    cluster.lead(1, 1);
    let write = cluster.ask(3, add("n"));
    // It is done. The answer is lost with the connection.
    let is_lost = |_: u128, to: u128, message: &Message| to == 3 && matches!(message, Message::Answers(_));
    assert_eq!(cluster.run_but(is_lost).len(), 1);
    assert_eq!(cluster.act(1, |group| group.replace(Some(id(3)), None)), Ok(()));
    cluster.turn(1);
    cluster.run();
    assert_eq!(cluster.answer(1, get("n")), bulk("1"));
    assert_eq!(cluster.nodes[&1].group.status().replicas, [1, 2].map(id).into());
    cluster.connect(1, 3);
    cluster.run();
    assert_eq!(cluster.answer(1, get("n")), bulk("1"), "{:?}", cluster.answers.get(&write));
}

#[test]
fn a_node_that_the_leader_did_not_count_is_served_once_it_does() {
    let mut cluster = Cluster { snapshot_every: Some(1), ..Cluster::default() }.with(3);
    cluster.lead(1, 1);
    // The change reaches the new replica alone, and its leader is lost.
    cluster.blank(4);
    cluster.away = [2, 3].into();
    assert_eq!(cluster.act(1, |group| group.replace(None, Some(id(4)))), Ok(()));
    cluster.turn(1);
    cluster.run();
    assert!(cluster.nodes[&4].group.may_stand(), "it takes itself for a member");
    cluster.away = [1].into();
    cluster.lead(2, 2);
    cluster.fill(2);
    cluster.snapshot(2);
    // While the next leader sends it a snapshot, it hears of that leader, which does not count it yet.
    let early = cluster.ask(4, add("n"));
    assert_eq!(cluster.act(2, |group| group.replace(None, Some(id(4)))), Ok(()));
    cluster.pass(LEASE * 3 / 2);
    assert!(cluster.nodes[&2].group.status().replicas.contains(&id(4)));
    assert_eq!(cluster.answers.get(&early), Some(&Ok(Reply::Integer(1))));
    assert_eq!(cluster.answer(4, add("n")), Ok(Reply::Integer(2)));
}

#[test]
fn a_leader_that_reaches_no_quorum_does_not_keep_its_lease() {
    let mut cluster = Cluster::of(5);
    cluster.away = [3, 4, 5].into();
    cluster.grant(1, 1);
    cluster.pass(LEASE * 5);
    assert_eq!(cluster.resigned, [(1, Resignation::NoProgress)]);
}

#[test]
fn a_leader_that_waits_for_a_silent_source_does_not_keep_its_lease() {
    let mut cluster = Cluster::of(3);
    cluster.away = [1].into();
    cluster.lead(2, 1);
    assert_eq!(cluster.answer(3, set("x", "zero")), Ok(Reply::OK));
    cluster.away.clear();
    cluster.grant(1, 2);
    // Beats are answered all the time.
    for _ in 0..50 {
        cluster.run_but(is_fetched);
        cluster.now = cluster.now + LEASE / 50;
        cluster.turn(1);
    }
    assert_eq!(cluster.resigned, [(2, Resignation::Outbid), (1, Resignation::NoProgress)]);
}

#[test]
fn a_new_replica_is_sent_each_chunk_once() {
    let mut cluster = Cluster { snapshot_every: Some(1), ..Cluster::default() }.with(3);
    cluster.lead(1, 1);
    cluster.fill(1);
    cluster.snapshot(1);
    let chunks = cluster.nodes[&1].disk.snapshots.last_key_value().map_or(0, |(_, chunks)| chunks.len());
    cluster.begin_adding(4);
    let (mut sent, mut bulk) = (0, VecDeque::new());
    while !cluster.nodes[&4].group.may_stand() {
        bulk.extend(cluster.run_but(|_, _, message| is_install(message)));
        let Some((from, to, message)) = bulk.pop_front() else { break };
        // Two of them for each beat.
        cluster.now = cluster.now + LEASE / 16;
        let now = cluster.now;
        cluster.act(to, |group| group.receive(id(from), message, now));
        cluster.turn(1);
        sent += 1;
    }
    sent += bulk.len();
    assert!(cluster.nodes[&4].group.may_stand() && cluster.resigned.is_empty());
    assert!(sent <= chunks + 3, "{chunks} chunks were sent in {sent} messages");
}

#[test]
fn a_replica_gets_a_snapshot_of_which_a_chunk_was_gone() {
    let mut cluster = Cluster { snapshot_every: Some(1), ..Cluster::default() }.with(3);
    cluster.lead(1, 1);
    cluster.fill(1);
    cluster.snapshot(1);
    cluster.begin_adding(4);
    // What was to be sent is not there.
    assert_eq!(cluster.run_but(|_, _, message| is_install(message)).len(), 1);
    let now = cluster.now;
    cluster.act(1, |group| group.chunk_gone(id(4), now));
    cluster.run();
    assert!(cluster.nodes[&4].group.may_stand());
}

#[test]
fn what_waits_for_room_is_appended_when_there_is_room() {
    let mut cluster = Cluster::of(1);
    cluster.lead(1, 1);
    let big = alloc::string::String::from_utf8(vec![b'x'; 8 << 20]).expect("it is text");
    let now = cluster.now;
    cluster.act(1, |group| {
        for tag in 101..=103 {
            group.request(tag, set("a", &big), now);
        }
    });
    cluster.run();
    assert_eq!(cluster.answers.len(), 3, "and nothing is to be waited for");
}

#[test]
fn no_snapshot_is_due_where_it_would_be_the_one_that_is_there() {
    let mut cluster = Cluster { snapshot_every: Some(1), ..Cluster::default() }.with(3);
    cluster.lead(1, 1);
    assert_eq!(cluster.answer(1, set("a", "1")), Ok(Reply::OK));
    cluster.restart(2);
    // Nobody tells it what is committed.
    let group = &mut cluster.nodes.get_mut(&2).expect("is there").group;
    let mut taken = 0;
    while group.wants_snapshot() && taken < 10 {
        let index = group.begin_snapshot().expect("there is something");
        let chunks = core::iter::from_fn(|| group.snapshot_chunk(64)).count();
        group.snapshot_written(index, chunks as u32);
        let turn = Turn { now: cluster.now, time_of_day: 0, believed: None, memory_left: 0, is_disk_full: false };
        group.turn(turn, &mut Vec::new());
        taken += 1;
    }
    assert_eq!(taken, 0, "of the same table");
}

#[test]
fn a_quorum_that_answers_within_a_third_of_a_lease_is_progress() {
    let mut leading = Leading::new(ballot(1), Instant::ZERO);
    let cluster = Cluster::of(1);
    let (every, mut beat) = (cluster.nodes[&1].group.beats_every(), Instant::ZERO);
    // A turn comes a little after its moment.
    let trip = LEASE / 3 - Duration::from_millis(10);
    let mut sent: Vec<(u64, Instant)> = Vec::new();
    let mut heard = 0;
    for step in 0..400_u64 {
        let now = Instant::from_nanos(step * 5_000_000);
        heard = sent.iter().filter(|(_, at)| *at + trip <= now).map(|(round, _)| *round).max().unwrap_or(heard);
        leading.progress.heard(log::BeatRounds { sent: sent.len() as u64, confirmed: heard, own: heard });
        assert!(now.since(leading.progress.last) < LEASE / 2, "it would resign at {now}");
        if now >= beat {
            beat = beat + every;
            let round = sent.len() as u64 + 1;
            leading.progress.sent(round, now);
            sent.push((round, now));
        }
    }
}

#[test]
fn a_change_that_cannot_be_done_does_not_stand_in_the_way_of_another() {
    let mut cluster = Cluster::of(3);
    cluster.lead(1, 1);
    // 4 does not come up.
    assert_eq!(cluster.act(1, |group| group.replace(Some(id(3)), Some(id(4)))), Ok(()));
    cluster.pass(LEASE * 10);
    cluster.blank(5);
    assert_eq!(cluster.act(1, |group| group.replace(Some(id(3)), Some(id(5)))), Ok(()));
}

#[test]
fn a_leader_that_fetches_a_snapshot_does_not_begin_anew_when_another_node_goes() {
    let mut cluster = Cluster { snapshot_every: Some(1), ..Cluster::default() }.with(3);
    cluster.away = [1].into();
    cluster.lead(2, 1);
    cluster.fill(2);
    cluster.snapshot(2);
    cluster.snapshot(3);
    cluster.away.clear();
    let is_chunk = |_: u128, _: u128, message: &Message| {
        matches!(
            message,
            Message::Log(log::Message::Answer(log::Answer { verdict: log::Verdict::FetchedChunk { .. }, .. }))
        )
    };
    cluster.grant(1, 2);
    let mut bulk = VecDeque::new();
    for chunk in 1..500 {
        bulk.extend(cluster.run_but(is_chunk));
        let Some((from, to, message)) = bulk.pop_front() else { break };
        let now = cluster.now;
        cluster.act(to, |group| group.receive(id(from), message, now));
        if chunk % 15 == 0 {
            let other = if from == 2 { 3 } else { 2 };
            cluster.act(1, |group| group.disconnected(id(other), now));
        }
    }
    assert_eq!(cluster.nodes[&1].group.status().leads, Some((ballot(2), true)));
}

#[test]
fn the_last_leader_answers_what_was_committed_before_it_handed_over() {
    let mut cluster = Cluster::of(3);
    cluster.lead(1, 1);
    let write = cluster.ask(3, add("n"));
    let forwards: Vec<_> = cluster.wire.drain(..).collect();
    for (from, to, message) in forwards {
        let now = cluster.now;
        cluster.act(to, |group| group.receive(id(from), message, now));
    }
    let now = cluster.now;
    cluster.act(1, |group| group.hand_over(Some(id(2)), now));
    cluster.run();
    assert_eq!(cluster.resigned, [(1, Resignation::HandedOver(id(2)))]);
    assert_eq!(cluster.answers.get(&write), Some(&Ok(Reply::Integer(1))), "and not by the next one alone");
}

#[test]
fn a_node_that_was_away_does_not_get_the_answers_to_all_that_is_in_the_log() {
    let mut cluster = Cluster::of(3);
    cluster.lead(1, 1);
    for number in 1..=100 {
        assert_eq!(cluster.answer(3, add("n")), Ok(Reply::Integer(number)));
    }
    cluster.restart(2);
    // The restarted one leads, and applies its log anew.
    cluster.grant(2, 2);
    let mut answers = 0;
    while let Some((from, to, message)) = cluster.wire.pop_front() {
        if let Message::Answers(told) = &message {
            answers += told.writes.len();
        }
        let now = cluster.now;
        cluster.act(to, |group| group.receive(id(from), message, now));
    }
    assert!(answers <= 1, "{answers} answers, and nobody waits for any");
}

#[test]
fn many_writes_of_one_node_wait_for_each_other_and_do_not_fail() {
    let mut cluster = Cluster::of(1);
    cluster.lead(1, 1);
    let now = cluster.now;
    cluster.act(1, |group| (1_000..71_000).for_each(|tag| group.request(tag, add("n"), now)));
    cluster.run();
    let failed = cluster.answers.values().filter(|answer| answer.is_err()).count();
    assert_eq!(failed, 0, "of {}", cluster.answers.len());
}

#[test]
fn no_message_is_larger_than_one_request_or_a_few_mebibytes() {
    let mut cluster = Cluster::of(3);
    let big = alloc::string::String::from_utf8(vec![b'x'; 1 << 20]).expect("it is text");
    for number in 0..64 {
        cluster.ask(3, set(&alloc::format!("k{number}"), &big));
    }
    cluster.grant(1, 1);
    let mut most = 0;
    while let Some((from, to, message)) = cluster.wire.pop_front() {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        most = most.max(bytes.len());
        let now = cluster.now;
        cluster.act(to, |group| group.receive(id(from), message, now));
    }
    assert!(most <= 16 << 20, "{most} bytes in one message");
}

#[test]
fn a_follower_that_says_nonsense_does_not_end_its_leader() {
    let mut cluster = Cluster::of(3);
    cluster.lead(1, 1);
    let answer = log::Answer { ballot: ballot(1), verdict: log::Verdict::Matched(u64::MAX) };
    let now = cluster.now;
    cluster.act(1, |group| group.receive(id(3), Message::Log(log::Message::Answer(answer)), now));
}

#[test]
fn a_snapshot_head_that_is_nonsense_does_not_end_a_replica_by_a_panic() {
    let position = Position { ballot: ballot(1), index: u64::MAX };
    let config = Config::new([1, 2, 3].map(id).into()).expect("there are some");
    let snapshot = log::Snapshot { position, config, time: log::GroupTime::default(), chunks: 2 };
    let install = log::Request::Install { ballot: ballot(1), snapshot, chunk: 1 << 31, data: vec![0].into() };
    let mut bytes = Vec::new();
    Message::Log(log::Message::Request(install)).encode(&mut bytes);
    assert!(Message::decode(&bytes).is_err());
}

#[test]
fn a_refused_copy_of_a_write_says_nothing_of_the_others() {
    let mut cluster = Cluster::of(3);
    cluster.lead(3, 1);
    let write = cluster.ask(1, set("a", "1"));
    // The leader appends it, and the next one has the entry.
    let (from, to, forward) = cluster.wire.pop_front().expect("it is sent");
    let now = cluster.now;
    cluster.act(to, |group| group.receive(id(from), forward, now));
    let appends: Vec<_> = cluster.wire.drain(..).collect();
    for (from, to, message) in appends.into_iter().filter(|(_, to, _)| *to == 2) {
        cluster.act(to, |group| group.receive(id(from), message, now));
    }
    cluster.wire.clear();
    cluster.away = [3].into();
    cluster.full = [2].into();
    cluster.lead(2, 2);
    assert_eq!(cluster.answers.get(&write), Some(&Ok(Reply::OK)), "it is done, and not refused");
    assert_eq!(cluster.answer(1, set("b", "1")), Err(Failure::DiskFull), "one that was never sent before");
}

#[test]
fn what_a_removed_node_sends_again_is_not_done_again() {
    let mut cluster = Cluster::of(3);
    cluster.lead(3, 1);
    let write = cluster.ask(1, add("n"));
    let now = cluster.now;
    while let Some((from, to, message)) = cluster.wire.pop_front() {
        // The answer is lost.
        if !matches!(message, Message::Answers(_)) {
            cluster.act(to, |group| group.receive(id(from), message, now));
        }
    }
    cluster.act(3, |group| group.replace(Some(id(1)), None)).expect("it leads");
    cluster.pass(LEASE / 2);
    assert_eq!(cluster.nodes[&3].group.status().replicas, [id(2), id(3)].into());
    cluster.act(1, |group| group.connected(id(3), now));
    cluster.run();
    cluster.pass(LEASE * 2);
    assert_eq!(cluster.answers[&write], Err(Failure::Unknown));
    assert_eq!(cluster.answer(2, get("n")), bulk("1"));
}

#[test]
fn what_comes_when_nothing_is_heard_of_the_leader_was_certainly_not_done() {
    let mut cluster = Cluster::of(3);
    cluster.lead(1, 1);
    assert_eq!(cluster.answer(2, set("k", "1")), Ok(Reply::OK));
    cluster.away.insert(1);
    let sent = cluster.ask(2, set("k", "2"));
    let now = cluster.now;
    cluster.act(2, |group| group.disconnected(id(1), now));
    assert_eq!(cluster.nodes[&2].group.status().leader, None);
    let unsent = cluster.ask(2, set("k", "3"));
    cluster.pass(LEASE * 3);
    assert_eq!(cluster.answers[&sent], Err(Failure::Unknown));
    assert_eq!(cluster.answers[&unsent], Err(Failure::NoLeader));
    // What comes next goes there when there is a connection again.
    cluster.away.clear();
    cluster.lead(1, 2);
    let later = cluster.ask(2, set("k", "4"));
    cluster.run();
    assert!(!cluster.answers.contains_key(&later));
    let now = cluster.now;
    cluster.act(2, |group| group.connected(id(1), now));
    cluster.run();
    assert_eq!(cluster.answers[&later], Ok(Reply::OK));
    assert_eq!(cluster.answer(2, get("k")), bulk("4"));
}

#[test]
fn what_was_refused_is_not_done_behind_what_came_later() {
    let mut cluster = Cluster::of(3);
    cluster.lead(1, 1);
    assert_eq!(cluster.answer(2, set("k", "1")), Ok(Reply::OK));
    let is_answer = |message: &Message| matches!(message, Message::Answers(_));
    // The leader has no room for the first one, and its word of that is lost.
    cluster.full.insert(1);
    let first = cluster.ask(2, set("k", "2"));
    assert_eq!(cluster.run_but(|_, _, message| is_answer(message)).len(), 1);
    cluster.full.clear();
    let second = cluster.ask(2, set("k", "3"));
    assert_eq!(cluster.run_but(|_, _, message| is_answer(message)).len(), 1);
    let now = cluster.now;
    for (one, other) in [(1, 2), (2, 1)] {
        cluster.act(one, |group| group.disconnected(id(other), now));
        cluster.act(one, |group| group.connected(id(other), now));
    }
    cluster.run();
    assert_eq!(cluster.answers[&second], Ok(Reply::OK));
    assert_eq!(cluster.answers[&first], Err(Failure::Overtaken), "else the client's writes are done in another order");
    assert_eq!(cluster.answer(2, get("k")), bulk("3"));
}

#[test]
fn no_snapshot_is_taken_of_what_a_snapshot_has() {
    let mut cluster = Cluster { snapshot_every: Some(1), ..Cluster::default() }.with(1);
    cluster.lead(1, 1);
    assert_eq!(cluster.answer(1, set("a", "1")), Ok(Reply::OK));
    assert!(cluster.nodes[&1].group.wants_snapshot());
    cluster.snapshot(1);
    assert!(!cluster.nodes[&1].group.wants_snapshot());
}

#[test]
fn more_than_some_mebibytes_of_requests_are_not_asked_for() {
    let mut cluster = Cluster::of(1);
    let value = "v".repeat(1 << 20);
    let mut tags = Vec::new();
    while cluster.nodes[&1].group.has_room() {
        tags.push(cluster.ask(1, set("k", &value)));
    }
    assert_eq!(tags.len(), 16);
    cluster.lead(1, 1);
    cluster.run();
    assert!(tags.iter().all(|tag| cluster.answers[tag] == Ok(Reply::OK)));
    assert!(cluster.nodes[&1].group.has_room());
    cluster.ask(1, set("k", &value));
    // So it is with what only reads.
    let keys: Vec<crate::command::Key> = (0..100).map(|_| value.as_bytes()[..60_000].into()).collect();
    let many = || ClientRequest::Read(Query::Operation(Operation::GetMany { keys: keys.clone() }));
    let mut reader = Cluster::of(1);
    let mut tags = Vec::new();
    while reader.nodes[&1].group.has_room() {
        tags.push(reader.ask(1, many()));
    }
    assert_eq!(tags.len(), 3);
    reader.lead(1, 1);
    reader.run();
    assert!(tags.iter().all(|tag| reader.answers[tag].is_ok()));
    assert!(reader.nodes[&1].group.has_room());
    // What nobody does within the patience of its client makes room as well.
    let mut alone = Cluster::of(1);
    while alone.nodes[&1].group.has_room() {
        alone.ask(1, set("k", &value));
    }
    alone.pass(LEASE * 12);
    assert!(alone.nodes[&1].group.has_room());
}
