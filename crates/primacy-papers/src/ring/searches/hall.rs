//! A ring of the repaired form among voters: who nominates itself asks for the grant, and is told.

use std::collections::BTreeSet;
use std::time::Duration;

use primacy_core::contest::ring::{Circle, DurableTerm, Ring, Settings};
use primacy_core::contest::{Event, PeerId};

use crate::world::{Link, World};

/// How long a voter's answer takes, and how long the one that named somebody waits for the grant.
const ANSWER: Duration = Duration::from_millis(20);
const REFUSAL: Duration = Duration::from_millis(500);

/// Who leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Since when.
    pub at: Duration,
    /// Who.
    pub leader: PeerId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// The voters' answers to that one are there.
    Decide(PeerId),
    /// The first has named the second, and hears of no grant.
    Refuse(PeerId, PeerId),
}

/// The ring, and a grant that is given once: to the first who asks, lives, and is not one of the unfit.
pub struct Hall {
    /// The ring.
    pub world: World<Ring>,
    /// Who never gets the grant.
    pub unfit: BTreeSet<PeerId>,
    seen: usize,
    due: Vec<(Duration, Due)>,
    asked: Vec<(u64, PeerId)>,
    granted: Option<Granted>,
}

impl Hall {
    /// The ring, of which nobody knows yet that there is no leader.
    pub fn new(circle: Circle, settings: Settings, link: Link, seed: u64) -> Self {
        let mut world = World::new(seed, link);
        for peer in circle.after(PeerId(0)) {
            world.start(peer, Ring::new(peer, circle.clone(), settings, DurableTerm::default()));
        }
        Self { world, unfit: BTreeSet::new(), seen: 0, due: Vec::new(), asked: Vec::new(), granted: None }
    }

    /// Who has got the grant.
    pub fn granted(&self) -> Option<Granted> {
        self.granted
    }

    /// Who has asked for it, in which term.
    pub fn asked(&self) -> &[(u64, PeerId)] {
        &self.asked
    }

    /// Whether two have asked for the grant of one term.
    pub fn has_split(&self) -> bool {
        self.asked.iter().any(|(term, peer)| self.asked.iter().any(|other| other.0 == *term && other.1 != *peer))
    }

    /// Lets time pass until then, or until the grant is given.
    pub fn run(&mut self, limit: Duration) {
        while self.granted.is_none() {
            let next = self.due.iter().map(|(at, _)| *at).min().filter(|at| *at < limit);
            let seen = self.seen;
            let more = self.world.run(next.unwrap_or(limit), |world| world.nominations.len() > seen);
            if more {
                self.note();
            } else if next.is_some() {
                self.settle();
            } else {
                return;
            }
        }
        self.world.run(limit, |_| false);
    }

    fn note(&mut self) {
        for one in self.world.nominations.iter().skip(self.seen) {
            self.due.push((one.at + REFUSAL, Due::Refuse(one.by, one.nominee)));
            let term = self.world.contest(one.by).map(Ring::term).filter(|_| one.by == one.nominee);
            if let Some(term) = term {
                self.asked.push((term, one.by));
                self.due.push((one.at + ANSWER, Due::Decide(one.by)));
            }
        }
        self.seen = self.world.nominations.len();
    }

    fn settle(&mut self) {
        let now = self.world.now();
        let (ripe, rest): (Vec<_>, Vec<_>) = self.due.drain(..).partition(|(at, _)| *at <= now);
        self.due = rest;
        for (_, due) in ripe {
            match due {
                Due::Decide(nominee) if self.unfit.contains(&nominee) || self.world.contest(nominee).is_none() => {}
                Due::Decide(nominee) => {
                    self.granted.get_or_insert(Granted { at: now, leader: nominee });
                    self.world.tell_all(&Event::Led(nominee));
                    return;
                }
                Due::Refuse(by, nominee) => self.world.tell(by, Event::Refused(nominee)),
            }
        }
    }
}
