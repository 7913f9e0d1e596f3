//! Connections over sockets to voters that read or answer nothing.

use std::time::Duration;

use primacy_core::quorum::VoterId;
use tokio::net::TcpListener;

use super::*;
use crate::peers::wire::{self, VERSION, Welcome};

const PATIENCE: Duration = Duration::from_secs(20);
const VOTER: VoterId = VoterId::from_bits(7);

/// A voter's end of a connection, after it has said who it is.
async fn greeted(listener: &TcpListener) -> (Sender, Receiver) {
    let (stream, _) =
        tokio::time::timeout(PATIENCE, listener.accept()).await.expect("somebody comes").expect("it does");
    let (mut sender, mut receiver) = channel::channel(Box::new(stream));
    assert!(matches!(receiver.first().await.expect("a greeting"), Body::Hello(_)));
    let voter = wire::voter_bytes(VOTER);
    let welcome = Welcome { version: VERSION, voter, name: "a".to_owned(), ..Welcome::default() };
    sender.send(0, Body::Welcome(welcome)).await.expect("it is read");
    (sender, receiver)
}

fn address(listener: &TcpListener) -> PeerAddress {
    let place = listener.local_addr().expect("it is bound");
    format!("a@{place}").parse().expect("an address")
}

fn settings() -> ConnectionSettings {
    let (name, cluster, seen) = ("a test".to_owned(), Vec::new(), Arc::default());
    ConnectionSettings { name, transport: Transport::Network(None), cluster, seen }
}

fn asker(watches: Option<&str>) -> (Asker, mpsc::UnboundedReceiver<VoterEvent>) {
    let (events, heard) = mpsc::unbounded_channel();
    (Asker { watches: watches.map(str::to_owned), events }, heard)
}

fn open(listener: &TcpListener, watches: Option<&str>) -> (ConnectionHandle, mpsc::UnboundedReceiver<VoterEvent>) {
    let (asker, heard) = asker(watches);
    (ConnectionHandle::open(address(listener), settings(), asker), heard)
}

async fn next(heard: &mut mpsc::UnboundedReceiver<VoterEvent>) -> VoterEvent {
    tokio::time::timeout(PATIENCE, heard.recv()).await.expect("in time").expect("the connection is kept")
}

/// These are lost, in whatever order.
async fn lost(heard: &mut mpsc::UnboundedReceiver<VoterEvent>, tags: std::ops::Range<u64>) {
    let mut open: Vec<u64> = tags.collect();
    while !open.is_empty() {
        match next(heard).await {
            VoterEvent::Lost(VOTER, tag) => open.retain(|other| *other != tag),
            _ => panic!("no answer was given"),
        }
    }
}

#[tokio::test]
async fn questions_are_lost_to_a_voter_that_reads_or_answers_nothing_each_time_that_it_is_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (connection, mut heard) = open(&listener, None);
    let _reads_nothing = greeted(&listener).await;
    // More than the kernel takes for somebody who does not read.
    for tag in 0..40 {
        assert!(connection.ask(VOTER, tag, Body::Watch("x".repeat(900_000))));
    }
    lost(&mut heard, 0..40).await;
    assert_eq!(connection.state(), ConnectionState::Down("it does not answer any more".to_owned()));
    let (_sender, mut receiver) = greeted(&listener).await;
    let up = |state: &ConnectionState| matches!(state, ConnectionState::Up { .. });
    let mut state = connection.connection.state.subscribe();
    tokio::time::timeout(PATIENCE, state.wait_for(up)).await.expect("in time").expect("it is kept");
    assert!(connection.ask(VOTER, 40, Body::Probe(true)));
    assert!(matches!(receiver.next().await, Ok(Some((_, Body::Probe(true))))));
    lost(&mut heard, 40..41).await;
    assert_eq!(connection.state(), ConnectionState::Down("it does not answer any more".to_owned()));
}

#[tokio::test]
async fn what_is_asked_before_the_first_connection_stands_is_asked_over_it_and_only_of_the_voter_that_is_meant() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (connection, mut heard) = open(&listener, Some("e"));
    let other = VoterId::from_bits(8);
    assert!(connection.ask(other, 1, Body::Probe(true)) && connection.ask(VOTER, 2, Body::Probe(true)));
    let (mut sender, mut receiver) = greeted(&listener).await;
    assert!(matches!(next(&mut heard).await, VoterEvent::Lost(voter, 1) if voter == other));
    let Ok(Some((number, Body::Probe(true)))) = receiver.next().await else { panic!("it is asked") };
    sender.send(number, Body::Left(true)).await.expect("it is read");
    sender.send(number, Body::Left(true)).await.expect("it is read");
    sender.send(0, Body::Hint("e".to_owned())).await.expect("it is read");
    assert!(matches!(next(&mut heard).await, VoterEvent::Answer(VOTER, 2, _)));
    assert!(matches!(next(&mut heard).await, VoterEvent::Hint), "a second answer to one question is none");
}

#[tokio::test]
async fn a_shared_connection_tells_each_asker_what_concerns_it_and_is_closed_after_the_last() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let shared = SharedConnections::default();
    let join = |watches| {
        let (asker, heard) = asker(Some(watches));
        (shared.join(address(&listener), settings(), asker), heard)
    };
    let ((one, mut of_one), (other, mut of_other)) = (join("e"), join("f"));
    // Both count their questions from one.
    assert!(one.ask(VOTER, 1, Body::Probe(true)) && other.ask(VOTER, 1, Body::Echo(true)));
    let (mut sender, mut receiver) = greeted(&listener).await;
    let mut numbers = Vec::new();
    for _ in 0..4 {
        match receiver.next().await {
            Ok(Some((0, Body::Watch(election)))) => {
                sender.send(0, Body::Hint(election)).await.expect("it is read");
            }
            Ok(Some((number, Body::Probe(true) | Body::Echo(true)))) => numbers.push(number),
            other => panic!("{other:?}"),
        }
    }
    let [probe, echo] = numbers[..] else { panic!("{numbers:?}") };
    assert!(matches!((next(&mut of_one).await, next(&mut of_other).await), (VoterEvent::Hint, VoterEvent::Hint)));
    sender.send(echo, Body::Left(true)).await.expect("it is read");
    assert!(matches!(next(&mut of_other).await, VoterEvent::Answer(VOTER, 1, _)));
    drop(other);
    sender.send(probe, Body::Left(true)).await.expect("it is read");
    assert!(matches!(next(&mut of_one).await, VoterEvent::Answer(VOTER, 1, _)), "it outlives the other");
    drop(one);
    let end = tokio::time::timeout(PATIENCE, receiver.next()).await.expect("it is closed");
    assert!(!matches!(end, Ok(Some(_))), "{end:?}");
}

#[tokio::test]
async fn who_joins_a_connection_that_is_made_anew_waits_for_it_and_a_dead_one_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let shared = SharedConnections::default();
    let (one, _of_one) = {
        let (asker, heard) = asker(None);
        (shared.join(address(&listener), settings(), asker), heard)
    };
    let first = greeted(&listener).await;
    one.settled().await;
    // A question stays without an answer; the one that asked leaves, and the other is still there.
    let (asker_of_two, _of_two) = asker(None);
    let two = shared.join(address(&listener), settings(), asker_of_two);
    assert!(two.ask(VOTER, 1, Body::Probe(true)));
    let (_sender, mut receiver) = first;
    assert!(matches!(receiver.next().await, Ok(Some((_, Body::Probe(true))))));
    tokio::time::sleep(Connection::LATE).await;
    drop(two);
    let end = tokio::time::timeout(PATIENCE, receiver.next()).await.expect("it is given up");
    assert!(!matches!(end, Ok(Some(_))), "{end:?}");
    let (asker_of_three, _of_three) = asker(None);
    let three = shared.join(address(&listener), settings(), asker_of_three);
    let _second = greeted(&listener).await;
    tokio::time::timeout(PATIENCE, three.settled()).await.expect("it is made anew");
    assert!(matches!(three.state(), ConnectionState::Up { .. }), "{:?}", three.state());
}
