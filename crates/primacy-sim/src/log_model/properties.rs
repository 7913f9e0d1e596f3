//! What must hold in every state of a search, and what must occur in some.

use stateright::Property;

use super::setup::{Beginning, Setup};
use super::shown::{CUT, FETCHED, HANDED_OVER, INSTALLED, KEPT_OUT, LOST, READ, TOOK_OVER};
use super::world::World;
use crate::search::{self, Model};

/// L5.
pub(super) const ONE: &str = "in one place of the log one entry is committed";
/// L5, of state machines.
pub(super) const PREFIX: &str = "what is applied is what is committed, from the first entry on";
/// L2.
pub(super) const PROMISED: &str = "a replica keeps what it has said that it has promised";
/// L3.
pub(super) const SHARED: &str = "two logs that share an entry share all before it";
/// L3, of one log.
pub(super) const FENCED: &str =
    "no entry has a larger ballot than one behind it, or than its replica has promised itself to";
/// What commits rest on.
pub(super) const COUNTED: &str = "what a leader counts is on that replica's disk";
/// L5, as replicas see it.
pub(super) const KEPT: &str = "no leader asks a replica to cut what is committed";
/// L6.
pub(super) const FRESH: &str = "a read sees all that was shown before it came";
/// Of a hand-over.
pub(super) const STILL: &str = "a leader that has handed over appends nothing";

const COMMITTED: &str = "an entry is committed by a second leader";
const SETTLED: &str = "a change of replicas is finished";

impl search::Setup for Setup {
    type World = World;

    fn name(&self) -> &'static str {
        self.name
    }

    /// There are no ticks: a longer search has more writes.
    fn longer(self, ticks: i8) -> Self {
        let mut setup = self;
        setup.budget.writes = setup.budget.writes.saturating_add_signed(ticks);
        setup
    }

    fn start(&self) -> Vec<World> {
        vec![World::start(self)]
    }

    fn properties(&self) -> Vec<Property<Model<Self>>> {
        of(self)
    }

    fn is_merged(&self) -> bool {
        self.merged
    }
}

fn of(setup: &Setup) -> Vec<Property<Model<Setup>>> {
    let mut properties = vec![
        Property::always(ONE, |_, world: &World| !world.wrong.is_two),
        Property::always(PREFIX, |_, world: &World| !world.wrong.is_no_prefix),
        Property::always(PROMISED, |_, world: &World| !world.wrong.breaks_promise),
        Property::always(SHARED, |_, world: &World| !world.wrong.parts),
        Property::always(FENCED, |_, world: &World| !world.wrong.is_ahead),
        Property::always(COUNTED, |_, world: &World| !world.wrong.miscounts),
        Property::always(KEPT, |_, world: &World| !world.wrong.has_diverged),
        Property::always(FRESH, |_, world: &World| !world.wrong.is_stale),
        Property::always(STILL, |_, world: &World| !world.wrong.writes_on),
    ];
    let budget = setup.budget;
    let several = setup.ballots > 1;
    let mut occurs = |wanted: bool, name: &'static str, is: fn(&Model<Setup>, &World) -> bool| {
        if wanted {
            properties.push(Property::sometimes(name, is));
        }
    };
    occurs(several, COMMITTED, |_, world| {
        let mut ballots: Vec<_> = world.ledger.committed.iter().map(|entry| entry.ballot).collect();
        ballots.dedup();
        ballots.len() > 1
    });
    // What was committed at the beginning is nothing that a later leader commits.
    let has_new = budget.writes > 0 || !matches!(setup.begins, Beginning::Written(_));
    occurs(several && setup.replicas > 2 && has_new, KEPT_OUT, |_, world| world.just.contains(&KEPT_OUT));
    occurs(setup.ballots > 2 && setup.replicas > 2, CUT, |_, world| world.just.contains(&CUT));
    occurs(several && setup.replicas > 2, FETCHED, |_, world| world.just.contains(&FETCHED));
    occurs(budget.restarts > 0, LOST, |_, world| world.just.contains(&LOST));
    occurs(budget.reads > 0, READ, |_, world| world.just.contains(&READ));
    occurs(budget.snapshots > 0, INSTALLED, |_, world| world.just.contains(&INSTALLED));
    occurs(budget.handovers > 0, HANDED_OVER, |_, world| world.just.contains(&HANDED_OVER));
    occurs(budget.handovers > 0 && several, TOOK_OVER, |_, world| world.just.contains(&TOOK_OVER));
    occurs(budget.changes > 0, SETTLED, |_, world| world.ledger.has_settled());
    properties
}
