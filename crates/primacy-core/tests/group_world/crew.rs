//! The candidates of one process in the `registers` protocol, and what they make their group do, in simulated time.

use std::collections::BTreeMap;
use std::time::Duration;

use primacy_core::lease::{self, Config, Event, Request};
use primacy_core::registers::{self, CandidateContext, CandidateEffect, FromGroup, GroupCandidate, ToGroup};
use primacy_core::select::{FailBack, Rank};
use primacy_core::{CandidateId, Timing};

use super::{GroupWorld, ROUND, candidacy, rounds};

type Step = dyn FnOnce(&mut GroupCandidate, &mut CandidateContext<'_>);

/// A process whose candidates ask a store for the lease that answers beats alone: what asks for the lease is never answered.
pub(crate) struct Crew {
    world: GroupWorld,
    process: u128,
    candidates: BTreeMap<CandidateId, GroupCandidate>,
    /// Beats that were answered.
    pub(crate) shown: u32,
    /// Attempts to get the lease.
    pub(crate) asked: u64,
    seed: u64,
}

impl Crew {
    pub(crate) fn aboard(world: GroupWorld, process: u128, count: u128) -> Self {
        let timing = Timing::with_lease(rounds().lease(ROUND)).expect("the paper's settings");
        let candidates = (0..count).map(|index| {
            let candidacy = candidacy(process, index, Some(Rank::default()));
            let config = Config::new(candidacy.id, candidacy.label.clone(), timing);
            (candidacy.id, GroupCandidate::new(config, rounds(), candidacy))
        });
        let candidates = candidates.collect();
        let mut crew = Self { world, process, candidates, shown: 0, asked: 0, seed: 3 };
        crew.world.enter(process, count, Rank::default(), FailBack::Never);
        let ids: Vec<_> = crew.candidates.keys().copied().collect();
        ids.into_iter().for_each(|id| crew.tell(id, Event::Campaign));
        crew
    }

    fn tell(&mut self, id: CandidateId, event: Event) {
        self.step(id, |candidate, cx| candidate.handle(event, cx));
    }

    fn step(&mut self, id: CandidateId, step: impl FnOnce(&mut GroupCandidate, &mut CandidateContext<'_>)) {
        let seed = &mut self.seed;
        let mut entropy = || {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *seed >> 8
        };
        let now = self.world.now;
        let mut effects = Vec::new();
        let candidate = self.candidates.get_mut(&id).expect("it is aboard");
        step(candidate, &mut CandidateContext { now, entropy: &mut entropy, effects: &mut effects });
        for effect in effects {
            match effect {
                CandidateEffect::Tell(ToGroup::Look) => self.world.tell(self.process, registers::Event::Look),
                // Nobody waits for anybody.
                CandidateEffect::Tell(ToGroup::AwaitTurn { call, .. }) => {
                    let has_turn: Box<Step> = Box::new(move |candidate, cx| {
                        candidate.hear(FromGroup::Turn { call }, cx).expect("no word of rounds");
                    });
                    self.step(id, has_turn);
                }
                CandidateEffect::Lease(lease::Effect::Call { request: Request::Acquire { .. }, .. }) => self.asked += 1,
                CandidateEffect::Lease(lease::Effect::Abandon { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Hands to all what the group has been answered, and where they stand.
    fn hear(&mut self) {
        let host = self.world.host(self.process);
        if host.shown == self.shown {
            return;
        }
        self.shown = host.shown;
        let positions = host.positions.clone();
        let Some((sighting, asked_at)) = host.last_shown.clone() else { return };
        for (id, position) in positions {
            for said in [FromGroup::PositionChanged(position), FromGroup::Seen { sighting: sighting.clone(), asked_at }]
            {
                self.step(id, |candidate, cx| candidate.hear(said, cx).expect("no word of rounds"));
            }
        }
    }

    pub(crate) fn run(&mut self, span: Duration) {
        let end = self.world.now + span;
        loop {
            self.hear();
            let due = |(id, candidate): (&CandidateId, &GroupCandidate)| Some((candidate.deadline()?, *id));
            let sailor = self.candidates.iter().filter_map(due).min().filter(|(at, _)| *at <= end);
            let group = self.world.next().map(|(at, _)| at).filter(|at| *at <= end);
            match (sailor, group) {
                (Some((at, id)), group) if group.is_none_or(|group| at <= group) => {
                    self.world.now = self.world.now.max(at);
                    self.tell(id, Event::Wake);
                }
                (_, Some(at)) => self.world.run(at.since(self.world.now)),
                (_, None) => break,
            }
        }
        self.world.now = end;
    }
}
