//! What must hold in every state, and what must occur in some, or the search has proved nothing.

use primacy_core::Token;
use primacy_core::lease::{HandoverRequest, Request};
use stateright::Property;

use super::node::{Node, Wrong, label};
use super::row::Former;
use super::setup::Setup;
use super::world::World;
use crate::search::{self, Model};

/// The promise itself.
pub(super) const INTEGRITY: &str = "integrity: at most one believes";
/// The oracle that fails before the promise does.
pub(super) const UNTHREATENED: &str = "nothing under way can take a believer's row";
/// R9, and that a process never leads beside its own old work.
pub(super) const DRAINED: &str = "no lease is given back, and none begins, while work runs";

impl search::Setup for Setup {
    type World = World;

    fn name(&self) -> &'static str {
        self.name
    }

    fn longer(self, ticks: i8) -> Self {
        Self { horizon: self.horizon.saturating_add_signed(ticks), ..self }
    }

    fn start(&self) -> Vec<World> {
        self.rates.iter().map(|rates| World::start(self, rates)).collect()
    }

    fn properties(&self) -> Vec<Property<Model<Self>>> {
        of(self)
    }
}

/// The properties that this setup can show.
fn of(setup: &Setup) -> Vec<Property<Model<Setup>>> {
    let budget = &setup.budget;
    let mut properties = vec![
        Property::always(INTEGRITY, |_, world: &World| believers(world).count() <= 1),
        Property::always("order: every leadership has a larger token", |_, world: &World| {
            !went(world, Wrong::OldToken)
        }),
        Property::always("belief is founded on an answered acquire, from its sending", |_, world: &World| {
            !went(world, Wrong::Unfounded)
        }),
        Property::always(DRAINED, |_, world: &World| !went(world, Wrong::WorkRuns)),
        Property::always("at most one call at a time", |_, world: &World| !went(world, Wrong::TwoCalls)),
        Property::always("no hot loop", |_, world: &World| !went(world, Wrong::HotLoop)),
        Property::sometimes("somebody leads", |_, world: &World| believers(world).next().is_some()),
    ];
    // After the store has gone back, the row and what is under way belong to another history.
    if budget.regressions == 0 {
        properties.push(Property::always("a believer's row names it", |_, world: &World| {
            believers(world).all(|node| is_named(world, node))
        }));
        properties.push(Property::always(UNTHREATENED, |_, world: &World| {
            believers(world).all(|node| !is_threatened(world, node))
        }));
    }
    if setup.flaw.is_none() {
        properties.extend(liveliness(setup));
    }
    properties
}

fn liveliness(setup: &Setup) -> Vec<Property<Model<Setup>>> {
    let budget = &setup.budget;
    let mut properties = Vec::new();
    // It takes a lease and a fifth of ticks until a challenger that was told nothing leads.
    if setup.horizon >= 13 && budget.pauses + budget.crashes + budget.faults / 2 > 0 {
        properties.push(Property::sometimes("a silent leader is followed by another", |_, world: &World| {
            leads_after(world, Former::TakenOver)
        }));
    }
    if budget.faults > 0 {
        properties.push(Property::sometimes("an unknown acquire is read back and asked anew", |_, world: &World| {
            world.row.former == Former::Retaken && believers(world).any(|node| node.doubted)
        }));
        properties.push(Property::sometimes("an unknown renewal is found and gone on from", |_, world: &World| {
            world.row.former == Former::None
                && believers(world).any(|node| node.doubted && node.known.token.get() == 1 && node.known.beat >= 3)
        }));
    }
    if budget.resigns > 0 {
        properties.push(Property::sometimes("a released lease is taken by another", |_, world: &World| {
            leads_after(world, Former::Released)
        }));
    }
    if budget.deletions > 0 {
        properties.push(Property::sometimes("a deleted row is waited out", |_, world: &World| {
            leads_after(world, Former::Deleted)
        }));
    }
    if budget.orders > 0 {
        properties.push(Property::sometimes("a promoted candidate waits for a released lease", |_, world: &World| {
            let record = world.row.record.as_ref();
            record.is_some_and(|r| r.holder.is_none() && matches!(r.handover, Some(HandoverRequest::Successor(_))))
        }));
        properties.push(Property::sometimes("an order changes the leader", |_, world: &World| {
            leads_after(world, Former::Released)
        }));
        properties.push(Property::sometimes("a completed hand-over is forgotten", |_, world: &World| {
            let record = world.row.record.as_ref();
            let at_home =
                |r: &primacy_core::lease::Record| r.handover.is_none() && r.order_number > 0 && r.version.beat >= 3;
            world.led.get() == 1
                && record.is_some_and(|r| at_home(r) && r.holder.as_ref().is_some_and(|h| h.label == label(0)))
        }));
    }
    if budget.old_looks > 0 {
        properties.push(Property::sometimes(
            "one follows although what is past was shown",
            |model: &Model<Setup>, world: &World| {
                world.budget.old_looks < model.0.budget.old_looks && leads_after(world, Former::TakenOver)
            },
        ));
    }
    if budget.withdrawals > 0 {
        properties.push(Property::sometimes("everybody's lease is released at last", |_, world: &World| {
            world.row.record.as_ref().is_some_and(|record| record.holder.is_none())
        }));
    }
    properties
}

fn believers(world: &World) -> impl Iterator<Item = &Node> {
    world.nodes.iter().map(AsRef::as_ref).filter(|node| node.believes(world.tick))
}

fn leads_after(world: &World, former: Former) -> bool {
    world.row.former == former && believers(world).any(|node| token(node) > Token::NONE.next(0))
}

fn went(world: &World, wrong: Wrong) -> bool {
    world.nodes.iter().any(|node| node.wrong == Some(wrong))
}

fn token(node: &Node) -> Token {
    node.belief.map_or(Token::NONE, |belief| belief.token)
}

/// The inductive oracle: it is false some ticks before two believe, and on every path that could lead there.
fn is_named(world: &World, node: &Node) -> bool {
    let id = node.candidate.as_ref().map(|candidate| candidate.config().id);
    match &world.row.record {
        Some(record) => id.is_some_and(|id| record.is_held_by(id)) && record.version.token == token(node),
        // Deleted under it, and nothing granted since.
        None => world.row.remembered == token(node),
    }
}

/// Somebody else has asked for the very row that this one believes in.
fn is_threatened(world: &World, node: &Node) -> bool {
    let takes = |request: &Request| matches!(request, Request::Acquire { .. }) && world.row.would_change(request);
    world.nodes.iter().filter(|other| other.index != node.index).any(|other| {
        let under_way = other.call.iter().filter(|call| call.reply.is_none()).map(|call| &call.request);
        under_way.chain(&other.limbo).any(takes)
    })
}
