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
fn a_decider_that_is_killed_at_any_flush_founds_one_store_with_the_others() {
    kill_at_flushes(0);
}

#[test]
fn another_that_is_killed_at_any_flush_comes_into_the_one_store() {
    kill_at_flushes(2);
}
