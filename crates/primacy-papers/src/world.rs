//! Peers of one contest, their clocks and their network, by one seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use primacy_core::Instant;
use primacy_core::contest::{Contest, Context, Effect, Event, PeerId};

use primacy_sim::engine::Queue;
use primacy_sim::engine::Rng;

/// What the network does to a message from one peer to another.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// How long it takes at least.
    pub least: Duration,
    /// How long it takes at most; anything between is as likely. Messages may pass each other.
    pub most: Duration,
    /// How many of a million are lost.
    pub loss_ppm: u32,
    /// How many of a million come twice.
    pub twice_ppm: u32,
}

impl Link {
    /// One that takes exactly this long and loses nothing.
    pub fn exact(delay: Duration) -> Self {
        Self { least: delay, most: delay, loss_ppm: 0, twice_ppm: 0 }
    }
}

/// One peer's opinion of who should lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nomination {
    /// When, since the world began.
    pub at: Duration,
    /// Whose opinion.
    pub by: PeerId,
    /// Who should lead.
    pub nominee: PeerId,
}

enum Happening<M> {
    Wake { peer: PeerId, generation: u64 },
    Arrives { from: PeerId, to: PeerId, message: M },
}

struct Peer<C> {
    contest: Option<C>,
    entropy: Rng,
    /// Counts what it was armed for: a later deadline replaces an earlier one.
    generation: u64,
}

/// A contest of some peers. Nothing happens but what is told here and what follows.
pub struct World<C: Contest> {
    now: u64,
    number: u64,
    rng: Rng,
    queue: Queue<Happening<C::Message>>,
    peers: BTreeMap<PeerId, Peer<C>>,
    links: BTreeMap<(PeerId, PeerId), Link>,
    link: Link,
    cut: BTreeSet<(PeerId, PeerId)>,
    /// Opinions so far, in order of time.
    pub nominations: Vec<Nomination>,
    /// Messages that were sent so far.
    pub sent: u64,
}

impl<C: Contest> World<C> {
    /// An empty world, in which all links are alike unless [`set_link`](Self::set_link) says otherwise.
    pub fn new(seed: u64, link: Link) -> Self {
        Self {
            now: 0,
            number: 0,
            rng: Rng::new(seed),
            queue: Queue::new(),
            peers: BTreeMap::new(),
            links: BTreeMap::new(),
            link,
            cut: BTreeSet::new(),
            nominations: Vec::new(),
            sent: 0,
        }
    }

    /// The time since the world began.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.now)
    }

    /// Starts a peer, or starts it again with whatever `contest` has kept.
    pub fn start(&mut self, peer: PeerId, contest: C) {
        let entropy = self.rng.fork();
        let generation = self.peers.get(&peer).map_or(0, |old| old.generation + 1);
        self.peers.insert(peer, Peer { contest: Some(contest), entropy, generation });
        self.arm(peer);
    }

    /// Ends a peer's process at once, and gives what is left of it.
    pub fn crash(&mut self, peer: PeerId) -> Option<C> {
        self.peers.get_mut(&peer)?.contest.take()
    }

    /// One peer's state, while it runs.
    pub fn contest(&self, peer: PeerId) -> Option<&C> {
        self.peers.get(&peer)?.contest.as_ref()
    }

    /// Makes one direction between two peers different from the others.
    pub fn set_link(&mut self, from: PeerId, to: PeerId, link: Link) {
        self.links.insert((from, to), link);
    }

    /// Cuts one direction, or mends it.
    pub fn set_cut(&mut self, from: PeerId, to: PeerId, is_cut: bool) {
        if is_cut {
            self.cut.insert((from, to));
        } else {
            self.cut.remove(&(from, to));
        }
    }

    /// Tells one peer of an event, now.
    pub fn tell(&mut self, peer: PeerId, event: Event<C::Message>) {
        let now = Instant::from_nanos(self.now);
        let Some(Peer { contest: Some(contest), entropy, .. }) = self.peers.get_mut(&peer) else { return };
        let mut effects = Vec::new();
        contest.handle(event, &mut Context { now, entropy: &mut || entropy.bits(), effects: &mut effects });
        for effect in effects {
            match effect {
                Effect::Send { to, message } => self.send(peer, to, message),
                Effect::Nominate(nominee) => {
                    self.nominations.push(Nomination { at: Duration::from_nanos(self.now), by: peer, nominee });
                }
            }
        }
        self.arm(peer);
    }

    /// Tells all that run.
    pub fn tell_all(&mut self, event: &Event<C::Message>) {
        let all: Vec<PeerId> = self.peers.keys().copied().collect();
        for peer in all {
            self.tell(peer, event.clone());
        }
    }

    /// Lets time pass until `done` says so, after anything that happens, or until `limit` after the world began. Says
    /// whether it was done.
    pub fn run(&mut self, limit: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        let limit = primacy_sim::engine::nanos(limit);
        while !done(self) {
            match self.queue.pop() {
                Some((at, happening)) if at <= limit => {
                    self.now = at;
                    self.happen(happening);
                }
                Some((at, happening)) => {
                    self.number += 1;
                    self.queue.push(at, self.number, happening);
                    self.now = limit;
                    return false;
                }
                None => {
                    self.now = limit;
                    return false;
                }
            }
        }
        true
    }

    fn happen(&mut self, happening: Happening<C::Message>) {
        match happening {
            Happening::Wake { peer, generation } => {
                if self.peers.get(&peer).is_some_and(|peer| peer.generation == generation) {
                    self.tell(peer, Event::Wake);
                }
            }
            Happening::Arrives { from, to, message } => self.tell(to, Event::Heard { from, message }),
        }
    }

    fn send(&mut self, from: PeerId, to: PeerId, message: C::Message) {
        self.sent += 1;
        let link = self.links.get(&(from, to)).copied().unwrap_or(self.link);
        if self.cut.contains(&(from, to)) || self.rng.chance(link.loss_ppm) {
            return;
        }
        let copies = 1 + u32::from(self.rng.chance(link.twice_ppm));
        for _ in 0..copies {
            let delay = self.rng.between(primacy_sim::engine::nanos(link.least), primacy_sim::engine::nanos(link.most));
            self.number += 1;
            let arrives = Happening::Arrives { from, to, message: message.clone() };
            self.queue.push(self.now + delay, self.number, arrives);
        }
    }

    fn arm(&mut self, peer: PeerId) {
        let now = self.now;
        let Some(part) = self.peers.get_mut(&peer) else { return };
        part.generation += 1;
        let Some(deadline) = part.contest.as_ref().and_then(C::deadline) else { return };
        let at = deadline.as_nanos().max(now);
        self.number += 1;
        self.queue.push(at, self.number, Happening::Wake { peer, generation: part.generation });
    }
}
