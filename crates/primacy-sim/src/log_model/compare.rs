//! Whether a search that takes states for one shows all that happens, and nothing else.
//!
//! What is taken for one here is not alike in every step: a state may stand for others that can do less, such as those in which a ballot
//! was used up and nobody has heard of it. So what is compared is what there is to see: the replicas, their disks and state machines, their
//! leaders, and what was committed. A search without merging must see nothing that the merged one does not, and the other way round.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash as _, Hasher as _};

use super::setup::Setup;
use super::world::World;
use crate::search::{self, Prints, World as _, print_of};

/// Goes through a search with states merged and without: how many states there are, how many are left, and what only one of them sees.
pub fn compare(setup: &Setup) -> (usize, usize, Option<String>) {
    compare_by(setup, |_| {})
}

/// The same if this is forgotten as well where states are merged.
pub(super) fn compare_by(setup: &Setup, forget: impl Fn(&mut World)) -> (usize, usize, Option<String>) {
    let merged = Setup { merged: true, ..setup.clone() };
    let (all, seen) = go_through(&Setup { merged: false, ..setup.clone() }, &merged, |_| {});
    let (left, shown) = go_through(&merged, &merged, forget);
    let only = |one: &BTreeMap<u128, World>, other: &BTreeMap<u128, World>, says| {
        let alone = one.iter().find(|(print, _)| !other.contains_key(*print));
        alone.map(|(_, world)| format!("{says}: {world:?}"))
    };
    (all, left, only(&seen, &shown, "missed").or_else(|| only(&shown, &seen, "invented")))
}

/// How many states there are, and a world for each that looks different.
fn go_through(setup: &Setup, merged: &Setup, forget: impl Fn(&mut World)) -> (usize, BTreeMap<u128, World>) {
    let (mut known, mut seen) = (BTreeSet::new(), BTreeMap::new());
    let (mut steps, mut open) = (Vec::new(), search::Setup::start(setup));
    while let Some(mut world) = open.pop() {
        world.just.clear();
        forget(&mut world);
        if !known.insert(if setup.merged { world.fingerprint() } else { print_of(&world) }) {
            continue;
        }
        if !world.waits_in_vain(merged) {
            seen.entry(world.looks(merged)).or_insert_with(|| world.clone());
        }
        world.steps(setup, &mut steps);
        open.extend(steps.drain(..).filter_map(|step| world.after(step, setup)));
    }
    (known.len(), seen)
}

impl World {
    /// Whether something is on its way to a disk that the merged search flushes at once: it has no such state.
    fn waits_in_vain(&self, merged: &Setup) -> bool {
        let waits = |post: &u8| !self.posts[usize::from(*post)].node.unwritten().is_empty();
        (0..merged.posts()).filter(waits).any(|post| !self.may_wait(post, merged))
    }

    /// A fingerprint of all but what is under way, and what leaders know of others; the same if only names differ.
    fn looks(&self, merged: &Setup) -> u128 {
        let mut world = self.clone();
        world.posts.iter_mut().for_each(|post| post.prints.clear());
        world.forget(merged);
        let looks = |order: &Vec<usize>| {
            let mut print = Prints::new(|name| name);
            order.iter().for_each(|post| print.write_u128(world.posts[*post].prints[0]));
            (world.budget, world.wrong, &*world.ledger).hash(&mut print);
            print.print()
        };
        world.alike.orders.iter().map(looks).min().unwrap_or_default()
    }
}
