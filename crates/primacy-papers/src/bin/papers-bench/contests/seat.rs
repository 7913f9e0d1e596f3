//! What makes a nominee the leader: the grant, or, for the published forms, its own belief.

use primacy_core::Instant;
use primacy_core::contest::PeerId;

use super::grant::Grant;
use super::network::Network;
use super::wire::Frame;

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// To find a nominee.
    Contest,
    /// To grant it the lead.
    Grant,
    /// That somebody leads, and the answer to it.
    Beat,
}

/// What follows.
#[derive(Debug)]
pub(super) enum Out {
    Send {
        to: PeerId,
        frame: Box<Frame>,
        kind: Kind,
    },
    /// Nobody leads; that one did, as far as this peer knew.
    Vacant(Option<PeerId>),
    /// This peer leads.
    Leads,
    /// That one leads, which the machine has to be told.
    Led(PeerId),
    /// That one leads, by what the machine has said itself.
    Believes(PeerId),
    /// This peer may believe until then that it leads.
    Until(Instant),
    /// This peer leads no more.
    Lost,
    /// This peer's own nomination was in vain.
    Refused,
    /// This peer has begun to renew its lead, or told of it.
    Renewed,
}

pub(super) enum Seat {
    Grant(Box<Grant>),
    Belief(Belief),
}

/// The nominee leads, and tells the others of it at an interval. Who hears nothing of a leader suspects it.
pub(super) struct Belief {
    me: PeerId,
    others: Vec<PeerId>,
    network: std::sync::Arc<Network>,
    leader: Option<PeerId>,
    is_told_vacant: bool,
    /// Until when it need not hear of a leader.
    until: Instant,
    beat_at: Instant,
}

impl Belief {
    pub(super) fn new(me: PeerId, others: Vec<PeerId>, network: std::sync::Arc<Network>, now: Instant) -> Self {
        let until = now + network.lease + network.round_trip();
        Self { me, others, network, leader: None, is_told_vacant: false, until, beat_at: now }
    }

    fn leads(&self) -> bool {
        self.leader == Some(self.me)
    }

    fn deadline(&self) -> Option<Instant> {
        match self.leader {
            Some(leader) if leader == self.me => Some(self.beat_at),
            _ => (!self.is_told_vacant).then_some(self.until),
        }
    }

    fn follow(&mut self, leader: PeerId, now: Instant) {
        (self.leader, self.is_told_vacant, self.until) = (Some(leader), false, now + self.network.lease);
    }

    fn nominated(&mut self, nominee: PeerId, now: Instant, out: &mut Vec<Out>) {
        let is_new = self.leader != Some(nominee);
        self.follow(nominee, now);
        if is_new && nominee == self.me {
            self.beat_at = now;
            out.push(Out::Leads);
        } else if is_new {
            out.push(Out::Believes(nominee));
        }
    }

    fn beat(&mut self, from: PeerId, now: Instant, out: &mut Vec<Out>) {
        if self.leader == Some(from) {
            self.until = now + self.network.lease;
        } else if self.leader.is_none() && !self.is_told_vacant {
            self.follow(from, now);
            out.push(Out::Led(from));
        }
    }

    fn tick(&mut self, now: Instant, out: &mut Vec<Out>) {
        if self.leads() && self.beat_at <= now {
            self.beat_at = now + self.network.renew_every();
            out.push(Out::Renewed);
            out.extend(self.others.iter().map(|to| Out::Send {
                to: *to,
                frame: Box::new(Frame::Beat),
                kind: Kind::Beat,
            }));
        }
        if !self.leads() && !self.is_told_vacant && self.until <= now {
            self.vacate(out);
        }
    }

    fn vacate(&mut self, out: &mut Vec<Out>) {
        self.is_told_vacant = true;
        out.push(Out::Vacant(self.leader.take()));
    }
}

impl Seat {
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        match self {
            Self::Grant(grant) => grant.deadline(now),
            Self::Belief(belief) => belief.deadline(),
        }
    }

    pub(super) fn tick(&mut self, now: Instant, out: &mut Vec<Out>) {
        match self {
            Self::Grant(grant) => grant.tick(now, out),
            Self::Belief(belief) => belief.tick(now, out),
        }
    }

    /// By whom the machine says that it should lead.
    pub(super) fn nominated(&mut self, me: PeerId, nominee: PeerId, now: Instant, out: &mut Vec<Out>) {
        match self {
            Self::Grant(grant) if nominee == me => grant.nominated(now, out),
            // That one asks for itself.
            Self::Grant(_) => {}
            Self::Belief(belief) => belief.nominated(nominee, now, out),
        }
    }

    /// Another peer's connection has ended. Without a grant that is enough to suspect a leader.
    pub(super) fn gone(&mut self, peer: PeerId, now: Instant, out: &mut Vec<Out>) {
        match self {
            Self::Grant(grant) => grant.gone(peer, now, out),
            Self::Belief(belief) if belief.leader == Some(peer) => belief.vacate(out),
            Self::Belief(_) => {}
        }
    }

    pub(super) fn heard(&mut self, from: PeerId, frame: Frame, now: Instant, out: &mut Vec<Out>) {
        match (self, frame) {
            (Self::Grant(grant), Frame::Ask { round, ask }) => grant.asked(from, round, &ask, now, out),
            (Self::Grant(grant), Frame::Answer { round, answer }) => grant.answered(from, round, answer, now, out),
            (Self::Belief(belief), Frame::Beat) => belief.beat(from, now, out),
            // No peer of this group sends it.
            (_, _) => {}
        }
    }

    /// What must be on disk has changed since this was asked last.
    pub(super) fn take_must_flush(&mut self) -> bool {
        match self {
            Self::Grant(grant) => std::mem::take(&mut grant.must_flush),
            Self::Belief(_) => false,
        }
    }
}
