//! Stores that are founded while a node is killed.

use std::path::Path;

use crate::nodes::Nodes;
use crate::trouble::preloaded;

/// Founds a store of three nodes, of which one is killed instead of its flush with this number, and started again. Returns false if the
/// node served before it had made so many.
fn found_although_killed(nodes: &mut Nodes, n: usize, flush: u32, library: &Path) -> bool {
    nodes.forget();
    for other in (0..3).filter(|other| *other != n) {
        nodes.run(other);
    }
    let flush = flush.to_string();
    nodes.run_with(n, &[("LD_PRELOAD", library), ("FLUSH_KILLS", Path::new(&flush))]);
    if nodes.lives_until(n, "ready") {
        return false;
    }
    nodes.run(n);
    (0..3).for_each(|n| nodes.await_event(n, "ready"));
    // All three are of one store.
    for from in 0..3 {
        nodes.client(from).set("told", &format!("by {from}"));
        for to in 0..3 {
            assert_eq!(nodes.client(to).get("told"), format!("by {from}"), "killed at flush {flush}");
        }
    }
    true
}

/// Kills a node at each of its flushes, but for those of the zeros in its log's first file, of which there are some fifty.
fn kill_at_flushes(n: usize) {
    let mut nodes = Nodes::planned(&["--groups", "2"]);
    let library = preloaded("flush_kills", &nodes.beside("flush_kills.so")).expect("cc is there: cargo xtask services");
    let flushes = (1..=14).chain((16..70).step_by(18)).chain(72..);
    let kills = flushes.take_while(|flush| found_although_killed(&mut nodes, n, *flush, &library)).count();
    assert!(kills > 20, "it was killed {kills} times");
}

#[test]
fn a_node_that_waits_for_the_others_is_there_and_refuses_commands_about_keys() {
    let mut nodes = Nodes::planned(&["--groups", "2"]);
    nodes.run(0);
    nodes.await_event(0, "listening");
    let loading = |nodes: &Nodes| {
        let mut client = nodes.client(0);
        assert_eq!(client.ask(&["PING"]), "+PONG");
        let said = client.ask(&["INFO", "persistence"]);
        said.lines().find_map(|line| line.strip_prefix("loading:")).expect("it says so").to_owned()
    };
    assert_eq!(loading(&nodes), "1");
    assert_eq!(nodes.client(0).ask(&["WAIT", "0", "0"]), ":0");
    let mut client = nodes.client(0);
    for words in [&["SET", "k", "early"][..], &["DBSIZE"], &["WATCH", "k"], &["DEL", "k", "l"], &["FLUSHALL"]] {
        assert!(client.ask(words).starts_with("-LOADING "), "{words:?}");
    }
    assert_eq!(client.ask(&["MULTI"]), "+OK");
    assert_eq!(client.ask(&["SET", "k", "early"]), "+QUEUED");
    assert!(client.ask(&["EXEC"]).starts_with("-LOADING "));
    assert_eq!(client.ask(&["EXEC"]), "-ERR EXEC without MULTI", "the transaction has gone");
    (1..3).for_each(|n| nodes.run(n));
    (0..3).for_each(|n| nodes.await_event(n, "ready"));
    assert_eq!(loading(&nodes), "0");
    client.set("k", "late");
}

#[test]
fn a_decider_that_is_killed_at_any_flush_founds_one_store_with_the_others() {
    kill_at_flushes(0);
}

#[test]
fn another_that_is_killed_at_any_flush_comes_into_the_one_store() {
    kill_at_flushes(2);
}
