//! Three Galera nodes form one component; a lost node comes back, and one that is cut off knows it.

use primacy_servers::{Galera, GaleraOptions};

#[test]
fn nodes_are_lost_and_come_back() {
    let cluster = Galera::start(&GaleraOptions::default()).expect("it starts");
    cluster.node(0).sql("create table kept (n int primary key)").expect("it is written");
    cluster.kill9(2).expect("it is killed");
    cluster.await_size(0, 2).expect("the others notice");
    cluster.node(1).sql("insert into kept values (42)").expect("two are a majority");
    cluster.start_again(2).expect("it comes back");
    cluster.await_size(2, 3).expect("it is a member again");
    assert_eq!(cluster.node(2).sql("set wsrep_sync_wait = 1; select n from kept").expect("it answers"), "42");

    cluster.cut(0).expect("it is cut off");
    cluster.await_non_primary(0).expect("it notices");
    cluster.await_size(1, 2).expect("the others notice");
    let refused = cluster.node(0).sql("insert into kept values (0)").expect_err("it is alone");
    assert!(refused.to_string().contains("WSREP has not yet prepared node"), "{refused}");
    cluster.heal(0).expect("it is reached again");
    cluster.await_size(0, 3).expect("it is a member again");
}

#[test]
fn a_cluster_begins_again_after_all_nodes_were_killed() {
    let cluster = Galera::start(&GaleraOptions { nodes: 2, ..GaleraOptions::default() }).expect("it starts");
    cluster.node(0).sql("create table kept (n int primary key); insert into kept values (42)").expect("it is written");
    // A node acknowledges a commit that the others have received but not applied: a node that is killed in between, and
    // from which the cluster begins again, never had it.
    assert_eq!(cluster.node(1).sql("set wsrep_sync_wait = 1; select n from kept").expect("it answers"), "42");
    cluster.kill9(0).expect("it is killed");
    cluster.kill9(1).expect("it is killed");
    cluster.start_again(1).expect("it begins again");
    cluster.start_again(0).expect("it joins");
    cluster.await_size(0, 2).expect("it is a member");
    assert_eq!(cluster.node(0).sql("set wsrep_sync_wait = 1; select n from kept").expect("it answers"), "42");
}
