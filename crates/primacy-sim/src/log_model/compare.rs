//! Whether states that are taken for one are one.

use super::setup::Setup;
use super::world::World;
use crate::search::{Model, World as _, alike};

/// Whether all that `merge` says holds of a search, by doing it without as well: whether two states of one fingerprint lead elsewhere or
/// show something else; and whether the search of merged states misses one or invents one. Also says how many states there are, and how
/// many are left.
pub fn compare(setup: &Setup) -> (usize, usize, Option<String>) {
    compare_by(setup, |_| {})
}

/// The same if this is forgotten as well.
pub(super) fn compare_by(setup: &Setup, forget: impl Fn(&mut World)) -> (usize, usize, Option<String>) {
    let plain = Setup { merged: false, ..setup.clone() };
    let forgotten = |world: &World| {
        let mut world = world.clone();
        world.forget(&plain);
        forget(&mut world);
        world
    };
    let all = alike(&Model(plain.clone()), |world| world.just.clear(), |world| forgotten(world).fingerprint());
    if let Some((one, other)) = all.differ {
        return (all.states, all.classes.len(), Some(format!("{one}\n{other}")));
    }
    let merged = Model(Setup { merged: true, ..setup.clone() });
    let found = alike(&merged, |world| world.just.clear(), |world| forgotten(world).fingerprint()).classes;
    let missed = all.classes.iter().find(|(print, world)| {
        // All but a leader's entries is flushed at once, so there is no such state.
        !found.contains_key(*print) && !forgotten(world).waits_in_vain(&merged.0)
    });
    let invented = found.iter().find(|(print, _)| !all.classes.contains_key(*print));
    let missed = missed.map(|(_, world)| format!("missed: {world:?}"));
    let invented = invented.map(|(_, world)| format!("invented: {world:?}"));
    (all.states, found.len(), missed.or(invented))
}

impl World {
    /// Whether something is on its way to a disk that the merged search flushes at once.
    fn waits_in_vain(&self, merged: &Setup) -> bool {
        let waits = |post: &u8| !self.posts[usize::from(*post)].node.unwritten().is_empty();
        (0..merged.posts()).filter(waits).any(|post| !self.may_wait(post, merged))
    }
}
