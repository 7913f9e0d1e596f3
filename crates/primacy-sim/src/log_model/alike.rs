//! Which replicas are alike, so that states that differ in their names only are taken for one.

use super::ids::replica_of;
use super::setup::Setup;
use crate::search::print_of;

/// Which replicas are alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Alike {
    /// For each its kind.
    pub(super) kinds: Vec<u8>,
    /// All orders in which one is only in the place of another of its kind.
    pub(super) orders: Vec<Vec<usize>>,
    /// Another one for each kind of search.
    pub(super) salt: u64,
}

impl Alike {
    pub(super) fn new(setup: &Setup) -> Self {
        let kinds = setup.kinds();
        let mut orders = vec![Vec::new()];
        for kind in &kinds {
            let longer = orders.into_iter().flat_map(|order: Vec<usize>| {
                let free: Vec<_> =
                    (0..kinds.len()).filter(|index| kinds[*index] == *kind && !order.contains(index)).collect();
                free.into_iter().map(move |index| order.iter().copied().chain([index]).collect())
            });
            orders = longer.collect();
        }
        let flaw = setup.flaw.map(|flaw| flaw as u8);
        let salt = print_of(&(&kinds, setup.one_by_one, flaw)) as u64;
        Self { kinds, orders, salt }
    }
}

/// Names the replicas of one kind alike: which one is meant is hashed apart.
pub(super) fn rename(kinds: &[u8]) -> impl Fn(u128) -> u128 {
    move |name| replica_of(name).and_then(|replica| kinds.get(replica)).map_or(name, |kind| u128::from(*kind))
}
