//! Which replicas are alike, so that states that differ in their names only are taken for one.

use super::ids::replica_of;

/// Which replicas are alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Alike {
    /// For each its kind.
    pub(super) kinds: Vec<u8>,
    /// All orders in which one is only in the place of another of its kind.
    pub(super) orders: Vec<Vec<usize>>,
}

impl Alike {
    pub(super) fn new(kinds: Vec<u8>) -> Self {
        let mut orders = vec![Vec::new()];
        for kind in &kinds {
            let longer = orders.into_iter().flat_map(|order: Vec<usize>| {
                let free: Vec<_> =
                    (0..kinds.len()).filter(|index| kinds[*index] == *kind && !order.contains(index)).collect();
                free.into_iter().map(move |index| order.iter().copied().chain([index]).collect())
            });
            orders = longer.collect();
        }
        Self { kinds, orders }
    }
}

/// Names the replicas of one kind alike: which one is meant is hashed apart.
pub(super) fn rename(kinds: &[u8]) -> impl Fn(u128) -> u128 {
    move |name| replica_of(name).and_then(|replica| kinds.get(replica)).map_or(name, |kind| u128::from(*kind))
}
