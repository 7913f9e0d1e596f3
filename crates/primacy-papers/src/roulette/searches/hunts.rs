//! The counterexamples of `roulette.txt`, and the same adversaries against the repaired form.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::roulette::{DurableTerm, Majority, Published, PublishedSettings, Roulette, Settings, Variant};
use primacy_core::Instant;
use primacy_core::contest::{Contest, Context, Event, PeerId};

use super::search::{Claim, Duel};
use primacy_sim::search::{self, Hunt};

pub(super) fn ids(peers: u16) -> BTreeSet<PeerId> {
    (0..peers).map(PeerId).collect()
}

/// That machine after it has found that nobody leads.
fn vacant<C: Contest>(mut contest: C) -> C {
    let mut effects = Vec::new();
    contest.handle(Event::Vacant, &mut Context { now: Instant::ZERO, entropy: &mut || 0, effects: &mut effects });
    assert!(effects.is_empty(), "nothing is lost");
    contest
}

/// This many peers that draw; each may launch, and nothing else is ever up.
pub(super) fn published(name: &'static str, peers: u16, variant: Variant, majority: Majority) -> Duel<Published> {
    let settings = PublishedSettings {
        draws: 1,
        pace: Duration::ZERO,
        patience: Duration::ZERO,
        majority,
        ..PublishedSettings::new(variant)
    };
    Duel {
        name,
        peers: ids(peers).into_iter().map(|me| vacant(Published::new(me, &ids(peers), settings))).collect(),
        // Nothing is kept.
        restarted: |machine, me| Published::new(me, &ids(3), machine.settings()),
        wakes: vec![1; usize::from(peers)],
        restarts: 0,
        crashes: 0,
        cuts: 0,
        redraws: false,
        slow: BTreeSet::new(),
        claims: Vec::new(),
    }
}

/// This many peers, of which each may ask once.
pub(super) fn repaired(name: &'static str, peers: u16) -> Duel<Roulette> {
    let zero = Duration::ZERO;
    let settings = Settings { round_trip: zero, stagger: zero, patience: zero, ..Settings::default() };
    Duel {
        name,
        peers: ids(peers)
            .into_iter()
            .map(|me| vacant(Roulette::new(me, &ids(peers), settings, DurableTerm::default())))
            .collect(),
        restarted: |machine, me| Roulette::new(me, &ids(3), machine.settings(), machine.kept()),
        wakes: vec![1; usize::from(peers)],
        restarts: 0,
        crashes: 0,
        cuts: 0,
        redraws: true,
        slow: BTreeSet::new(),
        claims: Vec::new(),
    }
}

/// The counterexamples.
pub fn hunts() -> Vec<Hunt> {
    let all = |name, peers| published(name, peers, Variant::WaitForAll, Majority::OfAll);
    let majority = |name, peers| published(name, peers, Variant::AtMajority, Majority::OfAll);
    let up = |name| published(name, 3, Variant::AtMajority, Majority::OfUp);
    let hunt = |duel: Duel<Published>, claim: Claim, steps| {
        Hunt::new(Duel { claims: vec![claim], ..duel }, claim.name()).found_after(steps)
    };
    // Whom a message would tell of the other.
    let slow = [(PeerId(0), PeerId(1)), (PeerId(1), PeerId(0))].into();
    vec![
        hunt(Duel { wakes: vec![2, 2, 0], ..all("published roulette: votes move", 3) }, Claim::OneCoordinator, 8),
        hunt(
            Duel { wakes: vec![2, 2, 0, 0], slow, ..all("published roulette: two of one round", 4) },
            Claim::OneLeader,
            14,
        ),
        hunt(Duel { restarts: 1, ..majority("published roulette: a restart", 3) }, Claim::OneCoordinator, 7),
        hunt(
            Duel { wakes: vec![2, 0, 0], redraws: true, ..majority("published roulette: drawn again", 3) },
            Claim::OneLeader,
            8,
        ),
        hunt(Duel { wakes: vec![1, 2, 0], ..majority("published roulette: two rounds", 3) }, Claim::OneLeader, 10),
        hunt(Duel { cuts: 1, ..up("published roulette: two halves") }, Claim::OneLeader, 6),
        hunt(Duel { wakes: vec![1, 1, 0, 0], ..majority("published roulette: two of four", 4) }, Claim::Decides, 13),
        hunt(
            Duel { wakes: vec![1, 0, 0], crashes: 1, ..majority("published roulette: drawn, and dead", 3) },
            Claim::Announced,
            6,
        ),
        hunt(Duel { wakes: vec![3, 0, 0], ..majority("published roulette: no luck", 3) }, Claim::Progress, 2),
    ]
}

/// What the repaired form stands.
pub fn held() -> Vec<search::Search> {
    let claims = vec![Claim::OneCoordinator, Claim::OneNominee, Claim::OneGrant, Claim::Granted, Claim::Way];
    let duel = |name| Duel { claims: claims.clone(), wakes: vec![1, 1, 0], ..repaired(name, 3) };
    vec![
        search::Search::new(Duel {
            claims: claims.clone(),
            wakes: vec![1, 1, 0, 0],
            ..repaired("roulette: two of four", 4)
        }),
        search::Search::new(Duel { restarts: 1, ..duel("roulette: a restart") }),
        search::Search::new(Duel { crashes: 1, ..duel("roulette: a crash") }),
        search::Search::new(Duel { cuts: 1, ..duel("roulette: a cut") }),
    ]
}

/// One peer launches, and nothing fails.
#[cfg(test)]
pub(crate) fn one_candidate() -> search::Outcome {
    let duel = published("one candidate", 4, Variant::AtMajority, Majority::OfAll);
    let claims = vec![Claim::OneCoordinator, Claim::OneLeader, Claim::Decides, Claim::Announced];
    search::search(Duel { wakes: vec![1, 0, 0, 0], claims, ..duel }, 2)
}
