//! Whether a search that takes states for one shows all that happens, and nothing else.
//!
//! What is taken for one here is not alike in every step: a state may stand for others that can do less, such as those in which a ballot
//! was used up and nobody has heard of it. So what is compared is what there is to see whenever all is on disk: the replicas, their state
//! machines, their leaders, and what was committed. A search without merging must see nothing that the merged one does not, and the other
//! way round.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash as _, Hasher as _};

use primacy_core::log::Ballot;

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
        if world.is_written() {
            seen.entry(world.looks(merged)).or_insert_with(|| world.clone());
        }
        world.steps(setup, &mut steps);
        open.extend(steps.drain(..).filter_map(|step| world.after(step, setup)));
    }
    (known.len(), seen)
}

impl World {
    /// Whether all is on disk that was written.
    fn is_written(&self) -> bool {
        self.posts.iter().all(|post| post.node.unwritten().is_empty())
    }

    /// A fingerprint of all but what is under way, and what leaders know of others; the same if only names differ.
    fn looks(&self, merged: &Setup) -> u128 {
        let mut world = self.clone();
        for post in &mut world.posts {
            // Who restarts with a promise that it has not told is like one whose answer is lost.
            post.told = Ballot::NONE;
            post.prints.clear();
        }
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
