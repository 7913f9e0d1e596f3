//! Algorithm 1 as the paper prints it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use primacy_core::Instant;
use primacy_core::contest::{Contest, Context, Effect, Event, PeerId};
use primacy_core::select::{Score, ScoreOracle};

/// The paper's T where nothing is chosen. The paper gives no number; ZooKeeper, for which it was written, waits 200 ms.
pub const PUBLISHED_WAIT: Duration = Duration::from_millis(200);

/// A score and whose it is: what is compared within an epoch. A score that is not known is below all that are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Proposal {
    /// How good its peer is.
    pub score: Option<Score>,
    /// Who should lead; decides between equal scores.
    pub peer: PeerId,
}

/// What peers tell each other in Algorithm 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PublishedMessage {
    /// ⟨P, epoch, proposal⟩.
    Propose {
        /// The sender's epoch.
        epoch: u64,
        /// The best that the sender has heard of.
        proposal: Proposal,
    },
    /// ⟨V, epoch, leader⟩, to who proposes although the sender knows a leader.
    Vote {
        /// The sender's epoch.
        epoch: u64,
        /// Whom it follows.
        leader: PeerId,
    },
}

/// One peer of Algorithm 1, with its faults. **It elects two leaders, and its epochs fall**: it is here to be measured
/// and broken. `Effect::Nominate` says whom this peer takes for the leader.
///
/// What the paper leaves open, and how it is read here:
///
/// * "All" includes the sender, whose own proposal arrives at once (line 13: else a peer would need a quorum of *others*).
/// * Line 28 adds the argument j, not i, to the proposal set: line 49 and 65 pass it for that.
/// * A timer that runs is not started again (line 32); "start with T + 1" makes it due at once (line 30).
/// * `new-election` is [`Event::Vacant`], and also [`Event::Refused`] if the refused one is the leader: ZooKeeper calls it
///   for both.
/// * `get-score` blocks at a first election until there is a score (§5). Here a score that is not known counts as the worst.
/// * Only who called `new-election` has a retry timer. Who was drawn into an epoch has none.
///
/// Nothing is kept over a restart: line 5 to 9 begin with epoch 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Published<O> {
    me: PeerId,
    peers: BTreeSet<PeerId>,
    /// The paper's T.
    wait: Duration,
    oracle: O,
    leader: Option<PeerId>,
    epoch: u64,
    proposal: Option<Proposal>,
    proposal_set: BTreeSet<PeerId>,
    /// The voters for each epoch and leader.
    vote_set: BTreeMap<(u64, PeerId), BTreeSet<PeerId>>,
    election_due: Option<Instant>,
    retry: Option<Retry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Retry {
    due: Instant,
    /// The paper's t.
    after: Duration,
}

impl<O: ScoreOracle> Published<O> {
    /// A peer that has just started, one of `peers`.
    pub fn new(me: PeerId, peers: impl IntoIterator<Item = PeerId>, wait: Duration, oracle: O) -> Self {
        let mut peers: BTreeSet<_> = peers.into_iter().collect();
        peers.insert(me);
        Self {
            me,
            peers,
            wait,
            oracle,
            leader: None,
            epoch: 0,
            proposal: None,
            proposal_set: BTreeSet::new(),
            vote_set: BTreeMap::new(),
            election_due: None,
            retry: None,
        }
    }

    /// Whom it takes for the leader.
    pub const fn leader(&self) -> Option<PeerId> {
        self.leader
    }

    /// Its epoch: the number of its election, and no token.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Where its scores come from.
    pub const fn oracle_mut(&mut self) -> &mut O {
        &mut self.oracle
    }

    fn is_quorum(&self, peers: &BTreeSet<PeerId>) -> bool {
        peers.len() > self.peers.len() / 2
    }

    fn own_proposal(&self) -> Proposal {
        Proposal { score: self.oracle.score(self.epoch), peer: self.me }
    }

    fn send(to: PeerId, message: PublishedMessage, cx: &mut Context<'_, PublishedMessage>) {
        cx.effects.push(Effect::Send { to, message });
    }

    /// Sends the proposal to all; the own one arrives at once.
    fn propose_to_all(&mut self, cx: &mut Context<'_, PublishedMessage>) {
        let Some(proposal) = self.proposal else { return };
        let others: Vec<_> = self.peers.iter().copied().filter(|peer| *peer != self.me).collect();
        for to in others {
            Self::send(to, PublishedMessage::Propose { epoch: self.epoch, proposal }, cx);
        }
        self.start_timer(self.me, cx.now);
    }

    /// Lines 10 to 13.
    fn start_epoch(&mut self, cx: &mut Context<'_, PublishedMessage>) {
        self.leader = None;
        self.proposal_set.clear();
        self.vote_set.clear();
        self.propose_to_all(cx);
    }

    /// Lines 14 to 20. A timer that runs from an earlier epoch goes on, as nothing in the paper stops it.
    fn new_election(&mut self, cx: &mut Context<'_, PublishedMessage>) {
        self.epoch = self.epoch.saturating_add(1);
        self.proposal = Some(self.own_proposal());
        self.retry = Some(Retry { due: cx.now + self.wait, after: self.wait });
        self.start_epoch(cx);
    }

    /// Lines 27 to 32.
    fn start_timer(&mut self, from: PeerId, now: Instant) {
        self.proposal_set.insert(from);
        if self.proposal_set.len() == self.peers.len() {
            self.election_due = Some(now);
        } else if self.is_quorum(&self.proposal_set) && self.election_due.is_none() {
            self.election_due = Some(now + self.wait);
        }
    }

    /// Lines 33 to 49.
    fn proposed(&mut self, from: PeerId, epoch: u64, theirs: Proposal, cx: &mut Context<'_, PublishedMessage>) {
        if let Some(leader) = self.leader {
            return Self::send(from, PublishedMessage::Vote { epoch: self.epoch, leader }, cx);
        }
        match self.proposal {
            // The order of proposals has the epoch first.
            Some(ours) if (epoch, theirs) < (self.epoch, ours) => {
                Self::send(from, PublishedMessage::Propose { epoch: self.epoch, proposal: ours }, cx);
            }
            Some(ours) if epoch == self.epoch => {
                if ours < theirs {
                    self.proposal = Some(theirs);
                    self.propose_to_all(cx);
                }
            }
            _ => {
                self.epoch = epoch;
                self.proposal = Some(self.own_proposal().max(theirs));
                self.start_epoch(cx);
            }
        }
        self.start_timer(from, cx.now);
    }

    /// Lines 54 to 65.
    fn voted(&mut self, from: PeerId, epoch: u64, leader: PeerId, cx: &mut Context<'_, PublishedMessage>) {
        self.vote_set.entry((epoch, leader)).or_default().insert(from);
        let elected = self.vote_set.iter().find(|((_, leader), voters)| {
            // Line 60: the leader itself has voted, so it was alive.
            self.is_quorum(voters) && voters.contains(leader)
        });
        match elected.map(|(elected, _)| *elected) {
            Some((epoch, leader)) => {
                self.epoch = epoch;
                self.election_due = None;
                self.follow(leader, cx);
            }
            // As printed: a voter counts among those who proposed.
            None => self.start_timer(from, cx.now),
        }
    }

    fn follow(&mut self, leader: PeerId, cx: &mut Context<'_, PublishedMessage>) {
        self.retry = None;
        if self.leader.replace(leader) != Some(leader) {
            cx.effects.push(Effect::Nominate(leader));
        }
    }

    fn wake(&mut self, cx: &mut Context<'_, PublishedMessage>) {
        if self.election_due.is_some_and(|due| due <= cx.now) {
            // Lines 50 to 53.
            self.election_due = None;
            if let Some(proposal) = self.proposal {
                self.follow(proposal.peer, cx);
            }
        }
        if let Some(retry) = self.retry.filter(|retry| retry.due <= cx.now) {
            // Lines 23 to 25. It doubles without a bound.
            let after = retry.after.saturating_mul(2);
            self.retry = Some(Retry { due: cx.now + after, after });
            self.propose_to_all(cx);
        }
    }
}

impl<O: ScoreOracle> Contest for Published<O> {
    type Message = PublishedMessage;

    fn handle(&mut self, event: Event<PublishedMessage>, cx: &mut Context<'_, PublishedMessage>) {
        match event {
            Event::Wake => self.wake(cx),
            Event::Heard { from, message } if self.peers.contains(&from) && from != self.me => match message {
                PublishedMessage::Propose { epoch, proposal } => self.proposed(from, epoch, proposal, cx),
                PublishedMessage::Vote { epoch, leader } => self.voted(from, epoch, leader, cx),
            },
            Event::Vacant => self.new_election(cx),
            Event::Refused(peer) if self.leader == Some(peer) => self.new_election(cx),
            Event::Led(leader) => {
                self.leader = Some(leader);
                self.election_due = None;
                self.retry = None;
            }
            Event::Heard { .. } | Event::Refused(_) | Event::Up(_) | Event::Down(_) => {}
        }
    }

    fn deadline(&self) -> Option<Instant> {
        Instant::earliest(self.election_due, self.retry.map(|retry| retry.due))
    }
}
