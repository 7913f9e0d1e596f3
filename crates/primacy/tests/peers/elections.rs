//! Candidates and leaders of a cluster whose voters come and go.

use std::sync::Arc;
use std::time::Duration;

use primacy::peers::{Peer, PeerError};
use primacy::select::{FailBack, Rank};
use primacy::store::{Holder, Order, OrderKind, OrderOutcome, Record, Reply, Request, Store, Why};
use primacy::{Candidate, CandidateConfig, CandidateId, Election, ElectionName, Label, Status, Timing, Token};

use crate::cluster::{Cluster, within};

fn name() -> ElectionName {
    ElectionName::new("test").expect("valid")
}

fn campaign(store: Arc<dyn Store>, label: &str, lease: Duration) -> Candidate {
    let mut config = CandidateConfig::new(Label::new(label).expect("valid"));
    config.timing = Timing::with_lease(lease).expect("valid");
    Election::new(store, name()).campaign_with(config).expect("the system has a thread")
}

/// Until it has seen who leads, and so is known to wait.
async fn waits(candidate: &Candidate) {
    let held = |status: &Status| matches!(status, Status::Waiting { why: Why::Held { .. }, .. });
    candidate.status().wait_for(held).await.expect("it takes part");
}

const LONG: Duration = Duration::from_secs(600);
/// One whose end may be awaited, and still longer than a machine stalls.
const SHORT: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_leads_at_a_time_and_hands_over() {
    let cluster = Cluster::start(3).await;
    let mut a = campaign(cluster.store(), "a", LONG);
    let first = within("a", a.elected()).await.expect("elected");
    let mut b = campaign(cluster.store(), "b", LONG);
    let token = first.token();
    within("b in line", waits(&b)).await;
    first.resign().await;
    let second = within("b", b.elected()).await.expect("elected");
    assert!(second.token() > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_floor_further_above_than_voters_leap_is_told_of() {
    let cluster = Cluster::start(3).await;
    let mut a = campaign(cluster.store(), "a", LONG);
    let first = within("a", a.elected()).await.expect("elected");
    a.raise_floor(Token::new(1 << 40).expect("it fits"));
    first.resign().await;
    let mut status = a.status();
    let in_trouble = |status: &Status| matches!(status, Status::Waiting { trouble: Some(_), .. });
    let waits = within("trouble", status.wait_for(in_trouble)).await.expect("it goes on").clone();
    let Status::Waiting { trouble: Some(trouble), .. } = waits else { panic!("{waits:?}") };
    let why = trouble.error.to_string();
    assert!(
        why.contains("no token is granted so far above 1, which is the highest that the voters know of 'test'"),
        "{why}"
    );
}

/// Each admin connection opens a connection to each voter, and both ends of them are in this process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_opened_and_dropped_leaves_no_connection_open() {
    const TIMES: usize = 40;
    let cluster = Cluster::start(3).await;
    let open_files = || std::fs::read_dir("/proc/self/fd").expect("Linux lists them").count();
    drop(cluster.store().admin().await.expect("opens"));
    let before = open_files();
    for _ in 0..TIMES {
        let store = cluster.store();
        store.admin().await.expect("opens").snapshot(&name()).await.expect("a majority answers");
        drop(store.hints(&name()).await.expect("opens"));
    }
    let are_closed = async {
        while open_files() > before + 3 {
            tokio::task::yield_now().await;
        }
    };
    within("all to be closed", are_closed).await;
}

/// The folder of a voter is copied while it runs, and used at another port.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_voter_ends_beside_the_original_which_restarts_as_it_likes() {
    let mut cluster = Cluster::start(3).await;
    let mut a = campaign(cluster.store(), "a", SHORT);
    let led = within("a", a.elected()).await.expect("elected");
    let copy = tempfile::tempdir().expect("a folder");
    for file in ["voter", "history"] {
        std::fs::copy(cluster.folder(2).join(file), copy.path().join(file)).expect("it is there");
    }
    let mut settings = cluster.settings(2);
    settings.listen = "127.0.0.1:0".parse().expect("an address");
    settings.folder = copy.path().to_owned();
    settings.socket = None;
    let peer = Peer::start(settings).await.expect("nothing is wrong with its file");
    let error = within("its end", peer.run()).await;
    assert!(matches!(&error, PeerError::Copied { address, .. } if *address == cluster.addresses[2]), "{error}");
    for _ in 0..3 {
        cluster.kill(2).await;
        cluster.run(2).await;
    }
    assert!(led.is_current(), "the original restarts without any alarm");
    let voters = within("a look", cluster.store().voters()).await.expect("a majority");
    assert!(voters.voters.iter().all(|voter| voter.trouble.is_none()), "{voters:?}");
}

/// The order among those that wait is the voters' to keep, and each of them has it from the candidates themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_makes_way_for_a_better_one() {
    let cluster = Cluster::start(3).await;
    let start = |label: &str, place: i32| {
        let mut config = CandidateConfig::new(Label::new(label).expect("valid"));
        config.timing = Timing::with_lease(SHORT).expect("valid");
        config.rank = Rank::new(&[place]).ok();
        config.fail_back = FailBack::After(SHORT / 2);
        Election::new(cluster.store(), name()).campaign_with(config).expect("the system has a thread")
    };
    let mut a = start("a", 0);
    let led = within("a", a.elected()).await.expect("elected");
    let (_worse, mut best) = (start("worse", 9), start("best", -1));
    within("the notice", led.lost()).await;
    drop(led);
    let _leads = within("the best", best.elected()).await.expect("elected");
    within("word of the others", async {
        loop {
            let mut admin = cluster.store().admin().await.expect("opens");
            let shown = admin.snapshot(&name()).await.expect("a majority answers").expect("there is one");
            let waiting: Vec<_> = shown.candidates.iter().map(|one| (one.who.label.as_str(), one.rank)).collect();
            if waiting.len() == 2 {
                assert_eq!(waiting.last(), Some(&("worse", Rank::new(&[9]).ok())), "{waiting:?}");
                return;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loss_of_one_voter_of_three_costs_nothing_and_of_two_the_leadership() {
    let mut cluster = Cluster::start(3).await;
    let mut a = campaign(cluster.store(), "a", SHORT);
    let led = within("a", a.elected()).await.expect("elected");
    cluster.kill(0).await;
    tokio::time::timeout(SHORT * 3 / 2, led.lost()).await.expect_err("two are a majority");
    cluster.kill(1).await;
    within("the loss of the lease", led.lost()).await;
    let token = led.token();
    drop(led);
    cluster.run(1).await;
    let again = within("a again", a.elected()).await.expect("elected");
    assert!(again.token() > token, "{} {}", again.token(), token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_voters_remember_across_a_restart_of_all() {
    let mut cluster = Cluster::start(3).await;
    let mut a = campaign(cluster.store(), "a", SHORT);
    let led = within("a", a.elected()).await.expect("elected");
    for n in 0..3 {
        cluster.kill(n).await;
    }
    within("the loss of the lease", led.lost()).await;
    for n in 0..3 {
        cluster.run(n).await;
    }
    let mut b = campaign(cluster.store(), "b", SHORT);
    let next = within("the next", async {
        tokio::select! { led = a.elected() => led, led = b.elected() => led }
    });
    let next = next.await.expect("elected");
    assert!(next.token() > led.token());
    let mut admin = cluster.store().admin().await.expect("opens");
    let terms = admin.history(&name(), 10).await.expect("a majority answers");
    let tokens: Vec<_> = terms.iter().map(|term| (term.token, term.ended.is_some())).collect();
    assert_eq!(tokens.first(), Some(&(next.token(), false)), "{tokens:?}");
    assert!(tokens.contains(&(led.token(), true)), "what was before the restart is known too: {tokens:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_depose_promote_and_pause() {
    let cluster = Cluster::start(3).await;
    let mut a = campaign(cluster.store(), "a", LONG);
    let first = within("a", a.elected()).await.expect("elected");
    let mut b = campaign(cluster.store(), "b", LONG);
    let mut admin = cluster.store().admin().await.expect("opens");
    let order =
        Order { kind: OrderKind::Promote { successor: Label::new("b").expect("valid"), now: false }, token: None };
    assert!(matches!(admin.order(&name(), order).await, Ok(OrderOutcome::Written(_))));
    within("the requested hand-over", first.lost()).await;
    drop(first);
    let second = within("the successor", b.elected()).await.expect("elected");
    assert!(matches!(
        admin.order(&name(), Order { kind: OrderKind::Pause, token: None }).await,
        Ok(OrderOutcome::Written(_))
    ));
    let seen = admin.snapshot(&name()).await.expect("a majority answers").expect("it was held");
    assert!(seen.record.paused && seen.record.handover.is_none(), "{seen:?}");
    assert_eq!(seen.leader().map(|leader| leader.label.as_str()), Some("b"));
    let terms = admin.history(&name(), 10).await.expect("a majority answers");
    let of = |term: &primacy::store::Term| (term.label.to_string(), term.ended.clone().map(|(_, why)| why));
    let terms: Vec<_> = terms.iter().map(of).collect();
    assert!(second.is_current());
    assert_eq!(terms, [("b".to_owned(), None), ("a".to_owned(), Some("promoted".to_owned()))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_whose_folder_was_lost_does_not_come_back_as_the_old_one() {
    let mut cluster = Cluster::start(3).await;
    cluster.kill(1).await;
    for file in ["voter", "voter.lock"] {
        std::fs::remove_file(cluster.folder(1).join(file)).expect("it was there");
    }
    let peer = Peer::start(cluster.settings(1)).await.expect("it starts");
    let why = within("it to know", peer.outside()).await;
    assert!(why.contains("primacy peer replace b b@127.0.0.1:"), "{why}");
    let mut a = campaign(cluster.store(), "a", LONG);
    let led = within("a", a.elected()).await.expect("the other two are a majority");
    assert!(led.is_current());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_deposes_a_leader_at_once_does_not_name_it_again_by_an_order_that_came_true() {
    let cluster = Cluster::start(3).await;
    let (store, election) = (cluster.store(), name());
    let mut admin = store.admin().await.expect("opens");
    let mut say = async |kind| within("an order", admin.order(&election, Order { kind, token: None })).await;
    for (bits, label) in [(1, "a"), (2, "b")] {
        let label = Label::new(label).expect("valid");
        let me = Holder { id: CandidateId::from_bits(bits), label: label.clone(), data: String::new() };
        let mut session = store.session(&election, &me).await.expect("opens");
        let Ok(Reply::Seen(seen)) = session.step(Request::Look { announce: None }).await else { panic!("a look") };
        let expect = seen.record.as_ref().map(Record::expectation);
        let ask = Request::Acquire { expect, floor: Token::NONE.into(), holder: me, lease: LONG };
        assert!(matches!(session.step(ask).await, Ok(Reply::Applied(_))));
        if bits == 1 {
            let promote = OrderKind::Promote { successor: Label::new("b").expect("valid"), now: true };
            assert!(matches!(say(promote).await, Ok(OrderOutcome::Written(_))));
        }
    }
    assert!(matches!(say(OrderKind::Depose { now: true }).await, Ok(OrderOutcome::Written(_))));
    let seen = admin.snapshot(&election).await.expect("a majority answers").expect("it was held");
    assert_eq!((seen.record.holder, seen.record.handover), (None, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_that_listens_and_says_nothing_holds_nobody_up() {
    let mut cluster = Cluster::start(3).await;
    cluster.kill(2).await;
    let silent = tokio::net::TcpListener::bind(cluster.addresses[2].place()).await.expect("it is free");
    let held = tokio::spawn(async move {
        let mut taken = Vec::new();
        while let Ok(connection) = silent.accept().await {
            taken.push(connection);
        }
    });
    let mut a = campaign(cluster.store(), "a", SHORT);
    let led = within("a", a.elected()).await.expect("two are a majority");
    let mut b = campaign(cluster.store(), "b", SHORT);
    within("b in line", waits(&b)).await;
    led.resign().await;
    let next = within("b", b.elected()).await.expect("two are a majority");
    tokio::time::timeout(SHORT * 3 / 2, next.lost()).await.expect_err("it renews with two");
    held.abort();
}

/// Or a leader that resigns would believe that nobody else waits, for as long as a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn voters_that_restart_are_told_again_who_waits() {
    let mut cluster = Cluster::start(3).await;
    let mut a = campaign(cluster.store(), "a", LONG);
    let led = within("a", a.elected()).await.expect("elected");
    let b = campaign(cluster.store(), "b", LONG);
    within("b in line", waits(&b)).await;
    for n in 0..2 {
        cluster.kill(n).await;
        cluster.run(n).await;
    }
    cluster.kill(2).await;
    within("word of b", async {
        loop {
            let mut admin = cluster.store().admin().await.expect("two are a majority");
            let seen = admin.snapshot(&name()).await.expect("a majority answers").expect("it is held");
            if seen.candidates.iter().any(|waiting| waiting.who.label.as_str() == "b") {
                return;
            }
        }
    })
    .await;
    assert!(led.is_current());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candidates_with_one_label_are_told_of_each_other_and_promoted_by_their_id() {
    let cluster = Cluster::start(3).await;
    crate::namesakes::tell_of_each_other_and_follow_their_id(cluster.store()).await;
}
