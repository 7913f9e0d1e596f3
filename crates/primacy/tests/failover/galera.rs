//! Three Galera nodes, and candidates of which each begins at another one: nodes die, the cluster splits and heals.

use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts, TxOpts};
use primacy::fenced::{self, FenceError};
use primacy::{ElectionName, TimingSettings, Token, clock};
use primacy_servers::{Galera, GaleraOptions};

use crate::crew::{Crew, Span, tell};

const NAMES: [&str; 3] = ["n0", "n1", "n2"];

/// All nodes, from this one on.
fn from_node(cluster: &Galera, first: usize) -> String {
    let hosts = (0..3).map(|turn| format!("127.0.0.1:{}", cluster.node((first + turn) % 3).port()));
    let own = format!("127.0.0.1:{}", cluster.node(first).port());
    cluster.node(first).url().replacen(&own, &hosts.collect::<Vec<_>>().join(","), 1)
}

/// A candidate at each node, of which this one leads.
async fn stand(cluster: &Galera, crew: &mut Crew, leader: usize) -> Span {
    crew.join(NAMES[leader], &from_node(cluster, leader));
    let span = crew.leader().await;
    for node in (0..3).filter(|node| *node != leader) {
        crew.join(NAMES[node], &from_node(cluster, node));
    }
    crew.confirmed_after(clock::now()).await.token.eq(&span.token).then_some(span).expect("nobody else leads yet")
}

/// One cluster for all, since it takes longer to start than any of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn galera() {
    let cluster = Galera::start(&GaleraOptions::quick()).expect("Galera starts");
    a_fence_holds_across_nodes(&cluster).await;
    a_leader_on_the_small_side_stops_before_the_large_side_elects(&cluster).await;
    a_leader_outlives_its_node(&cluster, 1).await;
    a_short_lease_ends_with_its_node_and_another_leads(&cluster, 2).await;
}

async fn connect(cluster: &Galera, node: usize) -> Conn {
    Conn::new(Opts::from_url(&cluster.node(node).url()).expect("a URL")).await.expect("connects")
}

/// A line of work, under a fence.
async fn begin(conn: &mut Conn, token: Token) -> Result<mysql_async::Transaction<'_>, FenceError> {
    let mut transaction = conn.start_transaction(TxOpts::default()).await.expect("begins");
    let name = ElectionName::new("fence").expect("valid");
    fenced::fence(&mut transaction, &name, token, Duration::from_secs(30)).await?;
    transaction.exec_drop("INSERT INTO work VALUES (?)", (token.get(),)).await.expect("works");
    Ok(transaction)
}

/// Galera's answer to a transaction that conflicts with another.
fn is_conflict(error: &mysql_async::Error) -> bool {
    matches!(error, mysql_async::Error::Server(error) if error.code == 1213)
}

/// The work of the present leader, begun again after each conflict, as the manual asks.
///
/// A node shows a grant to its clients a moment before it counts it as applied. Until then it sends their write sets as
/// if they had not seen the grant, and certification refuses those that write the fence row.
async fn work_until_certified(conn: &mut Conn, token: Token) {
    let deadline = clock::now() + Duration::from_secs(30);
    while clock::now() < deadline {
        match begin(conn, token).await.map(mysql_async::Transaction::commit) {
            Ok(commit) => match commit.await {
                Ok(()) => return,
                Err(error) => assert!(is_conflict(&error), "{error:?}"),
            },
            Err(error) => assert!(matches!(error, FenceError::Busy(_)), "{error:?}"),
        }
    }
    panic!("the work of the leader was never certified");
}

async fn a_fence_holds_across_nodes(cluster: &Galera) {
    let mut crew = Crew::new("fence", Duration::from_secs(4));
    let first = stand(cluster, &mut crew, 0).await;
    let (mut near, mut other) = (connect(cluster, 0).await, connect(cluster, 0).await);
    near.query_drop("CREATE TABLE work (token BIGINT NOT NULL) ENGINE = InnoDB").await.expect("a table");
    // In flight on one node while the others take over.
    let late = begin(&mut near, first.token).await.expect("it leads");
    crew.depose("n1").await;
    let next = crew.leader_after(first.token).await;
    assert_ne!(next.who, first.who);
    let refused = late.commit().await;
    assert!(refused.as_ref().is_err_and(is_conflict), "{refused:?}");
    match begin(&mut other, first.token).await.map(drop) {
        Err(FenceError::Stale { highest, .. }) => assert_eq!(highest, next.token),
        admitted => panic!("a late write was admitted: {admitted:?}"),
    }
    // The driver rolls back with what is sent next, or with the connection.
    drop(other);
    work_until_certified(&mut near, next.token).await;
    for node in 0..3 {
        let mut conn = connect(cluster, node).await;
        conn.query_drop("SET SESSION wsrep_sync_wait = 1").await.expect("sets");
        let written: Vec<u64> = conn.query("SELECT token FROM work").await.expect("reads");
        assert_eq!(written, [next.token.get()], "on node {node}");
    }
    crew.judge();
}

async fn a_leader_on_the_small_side_stops_before_the_large_side_elects(cluster: &Galera) {
    let mut crew = Crew::new("split", Duration::from_secs(2));
    // It knows of no other node.
    crew.join("small", &cluster.node(0).url());
    let first = crew.leader().await;
    crew.join("n1", &from_node(cluster, 1));
    crew.join("n2", &from_node(cluster, 2));
    crew.confirmed_after(clock::now()).await;
    cluster.cut(0).expect("cuts");
    let cut = clock::now();
    let ended = crew.end_of(first.token).await;
    assert!(ended.until <= cut + crew.timing.believed(), "{ended:?}");
    let next = crew.leader_after(first.token).await;
    tell(format_args!(
        "split to the end of belief: {:.1?}, to the next leadership: {:.1?}",
        ended.until.since(cut),
        next.from.since(cut)
    ));
    cluster.await_non_primary(0).expect("alone");
    cluster.heal(0).expect("heals");
    cluster.await_size(0, 3).expect("returns");
    // The node that was away serves its candidate again, which leads when it is its turn.
    crew.confirmed_after(clock::now()).await;
    crew.leave("n1").await;
    crew.leave("n2").await;
    let back = crew.until("the small side", |span| span.who == "small" && span.token > next.token).await;
    assert!(back.token > next.token);
    crew.judge();
}

async fn a_leader_outlives_its_node(cluster: &Galera, node: usize) {
    let lease = Duration::from_secs(8);
    let settings = TimingSettings {
        grace: Duration::from_millis(200),
        renew_every: Some(Duration::from_secs(1)),
        call_timeout: Some(Duration::from_secs(1)),
        ..TimingSettings::new(lease)
    };
    let mut crew = Crew::with("outlives", settings);
    let first = stand(cluster, &mut crew, node).await;
    cluster.kill9(node).expect("dies");
    let killed = clock::now();
    // By a renewal that was sent when the node was dead.
    let confirmed = crew.confirmed_after(killed).await;
    tell(format_args!("a node died; the leadership was confirmed after {:.1?}", clock::now().since(killed)));
    assert_eq!(confirmed.token, first.token, "the leadership was lost: {:?}", crew.spans());
    cluster.start_again(node).expect("starts");
    cluster.await_size(node, 3).expect("returns");
    let confirmed = crew.confirmed_after(clock::now()).await;
    assert_eq!(confirmed.token, first.token, "a node's return cost the leadership: {:?}", crew.spans());
    crew.judge();
}

async fn a_short_lease_ends_with_its_node_and_another_leads(cluster: &Galera, node: usize) {
    let mut crew = Crew::new("ends", Duration::from_millis(1_500));
    let first = stand(cluster, &mut crew, node).await;
    cluster.kill9(node).expect("dies");
    let killed = clock::now();
    let next = crew.confirmed_after(killed).await;
    tell(format_args!("a node died; {} {} led after {:.1?}", next.who, next.token, clock::now().since(killed)));
    assert!(next.token >= first.token);
    cluster.start_again(node).expect("starts");
    cluster.await_size(node, 3).expect("returns");
    crew.confirmed_after(clock::now()).await;
    crew.judge();
}
