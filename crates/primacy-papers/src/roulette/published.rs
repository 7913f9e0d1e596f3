//! The algorithm of `roulette.txt` as it is printed, with both of its variants: for comparison, and for its flaws.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Tally, draw};
use primacy_core::Instant;
use primacy_core::contest::{Contest, Context, Effect, Event, PeerId};
use primacy_core::time::{below, spread};

/// Numbers are in (0, 1), with the six decimal places that section 2.2, rule 1 finds sufficient.
const WHOLE_PPM: u32 = 1_000_000;

/// How votes are given and counted (section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// A vote goes over to a greater number; a candidate counts when all have answered or have had their time (rule 2).
    WaitForAll,
    /// One vote a round, for the first that asks; a candidate is elected with the vote that makes a majority ("modified
    /// algorithm", last paragraph).
    AtMajority,
}

/// Of whom a candidate needs more than half. The text says "majority", and that each peer knows who is up (rule 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Majority {
    /// Of all peers.
    OfAll,
    /// Of those that the candidate believes to be up. Two halves of a network each have one.
    OfUp,
}

/// The constants of the paper, and of what it leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PublishedSettings {
    /// How votes are given and counted.
    pub variant: Variant,
    /// How many numbers in a row must be above the threshold. Section 2.4 suggests three.
    pub draws: u32,
    /// The threshold, in millionths. Section 2 takes .85.
    pub threshold_ppm: u32,
    /// The time from one number to the next. The paper gives none; its mean of 385 ms for three numbers above .85, which
    /// take 347.4 numbers on average, makes it 1.108 ms.
    pub pace: Duration,
    /// How long a candidate waits for answers (rule 2) and a coordinator for the drawn one's heartbeat (rule 7). The paper
    /// gives neither.
    pub patience: Duration,
    /// Of whom a majority is needed.
    pub majority: Majority,
}

impl PublishedSettings {
    /// The paper's own, in one of its variants.
    pub fn new(variant: Variant) -> Self {
        Self {
            variant,
            draws: 3,
            threshold_ppm: 850_000,
            pace: Duration::from_micros(1_108),
            patience: Duration::from_millis(100),
            majority: Majority::OfAll,
        }
    }
}

/// The five messages of section 2.2. The rounds in them are ours, see [`Published`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PublishedMessage {
    /// "Vote for me": the candidate's greatest number.
    Propose {
        /// The sender's round.
        round: u32,
        /// In millionths.
        number_ppm: u32,
    },
    /// A vote for who asked.
    Positive {
        /// The round it asked in.
        round: u32,
        /// The voter's greatest number, in millionths; 0 if it has drawn none.
        greatest_ppm: u32,
    },
    /// No vote for who asked.
    Negative {
        /// The round it asked in.
        round: u32,
        /// The voter's greatest number, in millionths.
        greatest_ppm: u32,
        /// The voter is coordinator of this round already (rule 3).
        coordinator: bool,
    },
    /// From the coordinator: you are drawn.
    Announce {
        /// The round.
        round: u32,
    },
    /// From the new leader, to all.
    Heartbeat {
        /// The round.
        round: u32,
    },
}

/// The modes of section 2.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Votes for others, or follows.
    Basic,
    /// Has satisfied the launch condition, and asks for votes.
    Candidate,
    /// Has a majority, and draws.
    Coordinator,
    /// Was drawn, or has drawn itself because there was nobody else.
    Leader,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Follows, or has not been told that nobody leads.
    Led,
    Drawing {
        /// How many in a row were above the threshold.
        run: u32,
        at: Instant,
    },
    /// Takes part in a round that another may win.
    Waiting {
        until: Instant,
    },
    Candidate {
        until: Instant,
        answers: BTreeMap<PeerId, Answer>,
    },
    Coordinator {
        until: Instant,
        /// Who may still be drawn.
        wheel: BTreeMap<PeerId, u32>,
    },
    Leader,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Answer {
    positive: bool,
    greatest_ppm: u32,
}

/// One peer's part in the published algorithm. [`Effect::Nominate`] is what the paper calls the leader, here.
///
/// Where the text is open it is read so that it fails least:
/// - *Round* has no number there, and nothing says when one begins. Here a peer counts its rounds; messages carry the number;
///   who hears of a later round enters it, and messages of earlier ones are dropped. A candidate without a majority begins the
///   next round at once, a coordinator that has nobody left to draw does, and so does who has heard of no leader for three
///   times the [patience](PublishedSettings::patience). A leader's heartbeat also tells one that comes back, which has
///   forgotten its round, what the round is.
/// - A candidate that votes for another is none any more (rule 1). A negative answer ends a candidacy (step 4) where it says
///   that a greater number is about; where votes go to the first that asks it only does with the coordinator's flag.
/// - The wheel has "the numbers received from other nodes", of those who answered, whatever they answered; its own number only a
///   peer without others needs. That is also what makes it 2v − 1 messages.
/// - Votes are given by every peer that is asked, also by a peer that has not noticed the vacancy.
///
/// Nothing is kept on disk. A grant that was refused is unknown to the paper: it begins another round.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Published {
    me: PeerId,
    others: BTreeSet<PeerId>,
    up: BTreeSet<PeerId>,
    settings: PublishedSettings,
    round: u32,
    greatest_ppm: u32,
    voted: Option<(PeerId, u32)>,
    phase: Phase,
    /// The latest that this peer knows, and its round.
    leader: Option<(u32, PeerId)>,
    tally: Tally,
}

type Cx<'a, 'b> = &'a mut Context<'b, PublishedMessage>;

impl Published {
    /// A peer that has just been started, among these (itself may be one of them). It takes all for up.
    pub fn new(me: PeerId, peers: &BTreeSet<PeerId>, settings: PublishedSettings) -> Self {
        let others: BTreeSet<PeerId> = peers.iter().copied().filter(|peer| *peer != me).collect();
        Self {
            me,
            up: others.clone(),
            others,
            settings,
            round: 0,
            greatest_ppm: 0,
            voted: None,
            phase: Phase::Led,
            leader: None,
            tally: Tally::default(),
        }
    }

    /// As it was started.
    pub fn settings(&self) -> PublishedSettings {
        self.settings
    }

    /// What it is now.
    pub fn role(&self) -> Role {
        match self.phase {
            Phase::Led | Phase::Drawing { .. } | Phase::Waiting { .. } => Role::Basic,
            Phase::Candidate { .. } => Role::Candidate,
            Phase::Coordinator { .. } => Role::Coordinator,
            Phase::Leader => Role::Leader,
        }
    }

    /// The round that it is in. They count from 1.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// How its candidacies went.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Whether nothing but the number of its round, and its tally, tells it from that one: it can do the same again, for ever.
    pub fn is_as(&self, other: &Self) -> bool {
        let leader = self.leader.map(|(_, leader)| leader);
        let renumbered = Self { round: other.round, tally: other.tally, leader: other.leader, ..self.clone() };
        renumbered == *other && leader == other.leader.map(|(_, leader)| leader)
    }

    /// Votes that elect, one's own among them.
    fn majority(&self) -> usize {
        let of = match self.settings.majority {
            Majority::OfAll => self.others.len(),
            Majority::OfUp => self.up.len(),
        };
        of.saturating_add(1) / 2 + 1
    }

    fn send(&self, to: PeerId, message: PublishedMessage, cx: Cx<'_, '_>) {
        cx.effects.push(Effect::Send { to, message });
    }

    fn send_all(&self, message: &PublishedMessage, cx: Cx<'_, '_>) {
        self.up.iter().for_each(|to| self.send(*to, message.clone(), cx));
    }

    fn enter(&mut self, round: u32) {
        (self.round, self.greatest_ppm, self.voted) = (round, 0, None);
    }

    fn next_round(&mut self, cx: Cx<'_, '_>) {
        self.enter(self.round.saturating_add(1));
        // Machines do not draw in step.
        self.phase = Phase::Drawing { run: 0, at: cx.now + spread(self.settings.pace, cx.entropy) };
    }

    fn wait(&mut self, cx: Cx<'_, '_>) {
        self.phase = Phase::Waiting { until: cx.now + self.settings.patience.saturating_mul(3) };
    }

    /// Step 1 and rule 5.
    fn draw_number(&mut self, run: u32, due: Instant, cx: Cx<'_, '_>) {
        let decimals = below((cx.entropy)(), u64::from(WHOLE_PPM - 1));
        let number_ppm = u32::try_from(decimals).unwrap_or_default() + 1;
        self.greatest_ppm = self.greatest_ppm.max(number_ppm);
        let run = if number_ppm > self.settings.threshold_ppm { run + 1 } else { 0 };
        if run < self.settings.draws {
            // A peer that is woken a little late does not draw more slowly for it.
            self.phase = Phase::Drawing { run, at: (due + self.settings.pace).max(cx.now) };
            return;
        }
        self.voted = Some((self.me, self.greatest_ppm));
        self.tally.launched = self.tally.launched.saturating_add(1);
        self.phase = Phase::Candidate { until: cx.now + self.settings.patience, answers: BTreeMap::new() };
        self.send_all(&PublishedMessage::Propose { round: self.round, number_ppm: self.greatest_ppm }, cx);
        self.count(false, cx);
    }

    /// Whether a candidate is elected by now, or will not be. `expired`: nobody waits for more answers.
    fn count(&mut self, expired: bool, cx: Cx<'_, '_>) {
        let Phase::Candidate { answers, .. } = &self.phase else { return };
        let votes = 1 + answers.values().filter(|answer| answer.positive).count();
        let over = expired || self.up.iter().all(|peer| answers.contains_key(peer));
        let enough = votes >= self.majority();
        if enough && (over || self.settings.variant == Variant::AtMajority) {
            // A number of 0 is that of a peer that has drawn none: it has the smallest chance, not none.
            let wheel = answers.iter().map(|(peer, answer)| (*peer, answer.greatest_ppm.max(1))).collect();
            self.tally.won = self.tally.won.saturating_add(1);
            if !self.turn(wheel, cx) {
                self.lead(cx);
            }
        } else if over {
            self.lose();
            self.next_round(cx);
        }
    }

    fn lose(&mut self) {
        self.tally.lost = self.tally.lost.saturating_add(1);
    }

    /// Step 3 and rule 7: draws one of those on the wheel, who is on it no more. Says whether there was one.
    fn turn(&mut self, mut wheel: BTreeMap<PeerId, u32>, cx: Cx<'_, '_>) -> bool {
        let Some(drawn) = draw(wheel.iter(), cx.entropy) else { return false };
        wheel.remove(&drawn);
        self.phase = Phase::Coordinator { until: cx.now + self.settings.patience, wheel };
        self.send(drawn, PublishedMessage::Announce { round: self.round }, cx);
        true
    }

    fn lead(&mut self, cx: Cx<'_, '_>) {
        self.leader = Some((self.round, self.me));
        self.phase = Phase::Leader;
        cx.effects.push(Effect::Nominate(self.me));
        self.send_all(&PublishedMessage::Heartbeat { round: self.round }, cx);
    }

    fn wake(&mut self, cx: Cx<'_, '_>) {
        match std::mem::replace(&mut self.phase, Phase::Led) {
            Phase::Drawing { run, at } => self.draw_number(run, at, cx),
            Phase::Waiting { .. } => self.next_round(cx),
            phase @ Phase::Candidate { .. } => {
                self.phase = phase;
                self.count(true, cx);
            }
            Phase::Coordinator { wheel, .. } => {
                if !self.turn(wheel, cx) {
                    self.next_round(cx);
                }
            }
            phase @ (Phase::Led | Phase::Leader) => self.phase = phase,
        }
    }

    /// Step 2, and rules 1 and 3.
    fn proposed(&mut self, from: PeerId, number_ppm: u32, cx: Cx<'_, '_>) {
        let (round, greatest_ppm) = (self.round, self.greatest_ppm);
        if self.role() == Role::Coordinator {
            self.send(from, PublishedMessage::Negative { round, greatest_ppm, coordinator: true }, cx);
            return;
        }
        let positive = match (self.voted, self.settings.variant) {
            (None, _) => true,
            (Some((by, _)), Variant::AtMajority) => by == from,
            (Some((by, own)), Variant::WaitForAll) if by == self.me => number_ppm > own,
            (Some((_, other)), Variant::WaitForAll) => number_ppm >= other,
        };
        if !positive {
            self.send(from, PublishedMessage::Negative { round, greatest_ppm, coordinator: false }, cx);
            return;
        }
        self.voted = Some((from, number_ppm));
        match self.phase {
            Phase::Candidate { .. } => {
                self.lose();
                self.wait(cx);
            }
            Phase::Drawing { .. } => self.wait(cx),
            _ => {}
        }
        self.send(from, PublishedMessage::Positive { round, greatest_ppm }, cx);
    }

    fn answered(&mut self, from: PeerId, answer: Answer, coordinator: bool, cx: Cx<'_, '_>) {
        match &mut self.phase {
            Phase::Candidate { answers, .. } => {
                let ends = self.settings.variant == Variant::WaitForAll || coordinator;
                if !answer.positive && ends {
                    self.lose();
                    self.wait(cx);
                } else {
                    answers.insert(from, answer);
                    self.count(false, cx);
                }
            }
            // Who answers late may still be drawn, should the first one not come.
            Phase::Coordinator { wheel, .. } => drop(wheel.insert(from, answer.greatest_ppm.max(1))),
            _ => {}
        }
    }

    fn heard_leader(&mut self, from: PeerId, round: u32, cx: Cx<'_, '_>) {
        // Nothing in the paper tells a leader of another one of the same round.
        if self.leader.is_some_and(|(known, by)| known > round || (known == round && by == self.me)) {
            return;
        }
        self.phase = Phase::Led;
        if self.leader.replace((round, from)) != Some((round, from)) {
            cx.effects.push(Effect::Nominate(from));
        }
    }

    fn heard(&mut self, from: PeerId, message: PublishedMessage, cx: Cx<'_, '_>) {
        let (PublishedMessage::Propose { round, .. }
        | PublishedMessage::Positive { round, .. }
        | PublishedMessage::Negative { round, .. }
        | PublishedMessage::Announce { round }
        | PublishedMessage::Heartbeat { round }) = message;
        if round > self.round {
            self.enter(round);
            if self.role() == Role::Candidate {
                self.lose();
            }
            self.wait(cx);
        }
        let is_of_this_round = round == self.round;
        match message {
            PublishedMessage::Heartbeat { round } => self.heard_leader(from, round, cx),
            _ if !is_of_this_round => {}
            PublishedMessage::Propose { number_ppm, .. } => self.proposed(from, number_ppm, cx),
            PublishedMessage::Positive { greatest_ppm, .. } => {
                self.answered(from, Answer { positive: true, greatest_ppm }, false, cx);
            }
            PublishedMessage::Negative { greatest_ppm, coordinator, .. } => {
                self.answered(from, Answer { positive: false, greatest_ppm }, coordinator, cx);
            }
            PublishedMessage::Announce { .. } => self.lead(cx),
        }
    }
}

impl Contest for Published {
    type Message = PublishedMessage;

    fn handle(&mut self, event: Event<PublishedMessage>, cx: &mut Context<'_, PublishedMessage>) {
        match event {
            Event::Wake => {
                if self.deadline().is_some_and(|deadline| deadline <= cx.now) {
                    self.wake(cx);
                }
            }
            Event::Heard { from, message } if self.others.contains(&from) => self.heard(from, message, cx),
            Event::Up(peer) if self.others.contains(&peer) => {
                self.up.insert(peer);
                if self.role() == Role::Leader {
                    self.send(peer, PublishedMessage::Heartbeat { round: self.round }, cx);
                }
            }
            Event::Down(peer) => {
                self.up.remove(&peer);
                self.count(false, cx);
            }
            Event::Led(peer) => {
                self.leader = Some((self.round, peer));
                self.phase = if peer == self.me { Phase::Leader } else { Phase::Led };
            }
            Event::Vacant | Event::Refused(_) => {
                if matches!(self.phase, Phase::Led | Phase::Leader) {
                    self.next_round(cx);
                }
            }
            Event::Heard { .. } | Event::Up(_) => {}
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Drawing { at, .. } => Some(at),
            Phase::Waiting { until } | Phase::Candidate { until, .. } | Phase::Coordinator { until, .. } => Some(until),
            Phase::Led | Phase::Leader => None,
        }
    }
}
