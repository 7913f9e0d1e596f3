//! Voters that come and go while an election goes on.

use std::sync::Arc;
use std::time::Duration;

use primacy::peers::{
    Peer, PeerError, PeersStore, Reconfiguration, ReconfigurationError, ReconfigurationOutcome, ReconfigurationProgress,
};
use primacy::store::Store;
use primacy::{Candidate, CandidateConfig, Election, ElectionName, Label, Status, Timing};

use crate::cluster::{Cluster, within};

const LEASE: Duration = Duration::from_secs(6);

fn campaign(store: Arc<dyn Store>, label: &str) -> Candidate {
    let mut config = CandidateConfig::new(Label::new(label).expect("valid"));
    config.timing = Timing::with_lease(LEASE).expect("valid");
    Election::new(store, ElectionName::new("test").expect("valid")).campaign_with(config).expect("a thread")
}

fn add(cluster: &Cluster, who: &[usize]) -> Reconfiguration {
    Reconfiguration { add: who.iter().map(|n| cluster.addresses[*n].clone()).collect(), remove: Vec::new() }
}

fn remove(names: &[&str]) -> Reconfiguration {
    Reconfiguration { add: Vec::new(), remove: names.iter().map(|name| (*name).to_owned()).collect() }
}

async fn done(store: &PeersStore, reconfiguration: &Reconfiguration) -> ReconfigurationOutcome {
    within("the exchange", store.reconfigure(reconfiguration, &mut |_| ())).await.expect("it can be done")
}

fn names(done: &ReconfigurationOutcome) -> Vec<&str> {
    done.voters.voters.iter().map(|place| place.address.name()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn voters_come_and_go_under_a_leader_that_goes_on() {
    let mut cluster = Cluster::start_with(3, 2).await;
    let mut a = campaign(cluster.first_store(), "a");
    let led = within("a", a.elected()).await.expect("elected");
    let mut b = campaign(cluster.first_store(), "b");
    let held = |status: &Status| matches!(status, Status::Waiting { .. });
    b.status().wait_for(held).await.expect("it takes part");

    let outcome = done(&cluster.first_store(), &add(&cluster, &[3, 4])).await;
    assert_eq!((names(&outcome), outcome.is_changed), (vec!["a", "b", "c", "d", "e"], true));
    assert_eq!(outcome.voters.number, 2);
    let again = done(&cluster.first_store(), &add(&cluster, &[3, 4])).await;
    assert!(!again.is_changed && !again.has_finished, "the same twice is once");

    let outcome = done(&cluster.first_store(), &remove(&["a", "b"])).await;
    assert_eq!(names(&outcome), ["c", "d", "e"]);
    cluster.ends(0).await;
    cluster.ends(1).await;
    tokio::time::timeout(LEASE * 3 / 2, led.lost()).await.expect_err("it renews with the new voters");
    assert!(led.is_current());
    let token = led.token();
    led.resign().await;
    let next = within("b", b.elected()).await.expect("elected");
    assert!(next.token() > token);
    // One that was told of the first voters only finds one of them.
    assert_eq!(within("a look", cluster.first_store().voters()).await.expect("c tells").voters.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_whose_folder_was_lost_is_replaced_by_one_with_its_name_and_address() {
    let mut cluster = Cluster::start(3).await;
    let mut a = campaign(cluster.store(), "a");
    let led = within("a", a.elected()).await.expect("elected");
    cluster.kill(2).await;
    for file in ["voter", "voter.lock"] {
        std::fs::remove_file(cluster.folder(2).join(file)).expect("it was there");
    }
    cluster.run(2).await;
    let replace = Reconfiguration { add: vec![cluster.addresses[2].clone()], remove: vec!["c".to_owned()] };
    let before = within("a look", cluster.store().voters()).await.expect("two are a majority");
    let outcome = done(&cluster.store(), &replace).await;
    assert_eq!(names(&outcome), ["a", "b", "c"]);
    assert_ne!(outcome.voters.voters[2].voter, before.voters[2].voter);
    // It counts: without it there would be no majority now.
    cluster.kill(1).await;
    tokio::time::timeout(LEASE * 3 / 2, led.lost()).await.expect_err("two of three are there");
    assert!(led.is_current());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_that_was_given_up_is_finished_by_the_next_one() {
    let cluster = Cluster::start_with(3, 2).await;
    let mut a = campaign(cluster.first_store(), "a");
    let led = within("a", a.elected()).await.expect("elected");
    let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
    let first = cluster.first_store();
    let wanted = add(&cluster, &[3]);
    let giving_up = async move {
        let mut told = |progress| {
            if matches!(progress, ReconfigurationProgress::Waiting(_)) {
                begun.send(()).expect("it is awaited");
            }
        };
        first.reconfigure(&wanted, &mut told).await
    };
    tokio::select! {
        ended = giving_up => panic!("a lease holds that only old voters granted: {ended:?}"),
        _ = has_begun.recv() => {}
    }
    let joint = within("a look", cluster.first_store().voters()).await.expect("a majority of both");
    assert_eq!(joint.incoming.map(|new| new.len()), Some(4));
    let outcome = done(&cluster.first_store(), &add(&cluster, &[4])).await;
    assert!(outcome.has_finished && outcome.is_changed);
    assert_eq!(names(&outcome), ["a", "b", "c", "d", "e"]);
    assert!(led.is_current());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_who_exchange_voters_at_once_both_get_what_they_want() {
    let cluster = Cluster::start_with(3, 2).await;
    let (one, other) = (cluster.first_store(), cluster.first_store());
    let (d, e) = (add(&cluster, &[3]), add(&cluster, &[4]));
    let (first, second) = tokio::join!(done(&one, &d), done(&other, &e));
    let last = if first.voters.number > second.voters.number { first } else { second };
    assert_eq!(names(&last), ["a", "b", "c", "d", "e"]);
    assert_eq!(last.voters.number, 4, "one after the other");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_that_cannot_be_done_is_refused_before_it_begins() {
    let mut cluster = Cluster::start_with(3, 2).await;
    cluster.kill(4).await;
    let store = cluster.first_store();
    let refused = async |reconfiguration: &Reconfiguration| {
        within("an answer", store.reconfigure(reconfiguration, &mut |_| ())).await.expect_err("it should be refused")
    };
    assert!(matches!(refused(&add(&cluster, &[4])).await, ReconfigurationError::NotReached { .. }));
    assert!(matches!(refused(&remove(&["a", "b", "c"])).await, ReconfigurationError::Count(0)));
    let taken = format!("a@{}", cluster.addresses[3].place()).parse().expect("an address");
    let named = refused(&Reconfiguration { add: vec![taken], remove: Vec::new() }).await;
    assert!(matches!(named, ReconfigurationError::NotReached { .. }), "it is called d: {named}");
    cluster.kill(2).await;
    let minority = refused(&remove(&["a", "b"])).await;
    assert!(matches!(minority, ReconfigurationError::Minority { .. }), "{minority}");
    assert_eq!(store.voters().await.expect("a majority").number, 0);
    let absent = refused(&remove(&["x"])).await;
    assert!(matches!(&absent, ReconfigurationError::Absent { name, .. } if name == "x"), "{absent}");
    let already = done(&store, &add(&cluster, &[0])).await;
    assert!(!already.is_changed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_that_was_taken_out_while_it_was_away_says_so_when_it_comes_back() {
    let mut cluster = Cluster::start(3).await;
    cluster.kill(2).await;
    assert_eq!(names(&done(&cluster.store(), &remove(&["c"])).await), ["a", "b"]);
    let peer = Peer::start(cluster.settings(2)).await.expect("its file is as it was");
    let error = within("its end", peer.run()).await;
    assert!(matches!(error, PeerError::Removed { .. }), "{error}");
    let error = Peer::start(cluster.settings(2)).await.expect_err("by now it knows");
    assert!(matches!(error, PeerError::Removed { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_that_was_taken_out_is_not_taken_in_again_before_it_ends() {
    let cluster = Cluster::start(3).await;
    let store = cluster.store();
    done(&store, &remove(&["c"])).await;
    // It listens for another second, and then votes never again.
    let refused = within("an answer", store.reconfigure(&add(&cluster, &[2]), &mut |_| ())).await;
    let refused = refused.expect_err("nobody could finish that");
    assert!(
        matches!(refused, ReconfigurationError::Removed { .. } | ReconfigurationError::NotReached { .. }),
        "{refused}"
    );
    assert_eq!(within("a look", store.voters()).await.expect("a majority").number, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_moves_to_another_address_with_its_folder() {
    let mut cluster = Cluster::start(3).await;
    let first = cluster.store();
    let before = within("a look", first.voters()).await.expect("a majority");
    cluster.kill(2).await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("free").port();
    cluster.addresses[2] = format!("c@127.0.0.1:{port}").parse().expect("an address");
    cluster.run(2).await;
    let replace = Reconfiguration { add: vec![cluster.addresses[2].clone()], remove: vec!["c".to_owned()] };
    let outcome = done(&first, &replace).await;
    assert_eq!(outcome.voters.voters[2].voter, before.voters[2].voter, "it is the same");
    assert_eq!(outcome.voters.voters[2].address, cluster.addresses[2]);
    cluster.kill(0).await;
    let mut a = campaign(first, "a");
    let led = within("a", a.elected()).await.expect("b and c, where it is now, are a majority");
    assert!(led.is_current());
}
