//! The grant beside a machine of one peer: its vote, and its quorum client when it is nominated. The core's own, over
//! the same sockets.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use primacy_core::contest::PeerId;
use primacy_core::lease::{Expectation, Holder, Reply, Request, Version};
use primacy_core::quorum::{Answer, Ask, Durable, Output, QuorumClient, Round, Voter, VoterId, VoterSet};
use primacy_core::{CandidateId, Instant, Label, Token};

use super::network::Network;
use super::seat::{Kind, Out};
use super::wire::Frame;

/// By how much clocks may be wrong, in millionths.
const DRIFT_PPM: u32 = 20_000;

/// How long a nominee waits before it asks again.
const RETRY: Duration = Duration::from_millis(1);

/// A voter that is told nothing of a leader says so when its promise has ended; a leader leads while it believes its own lease.
pub(super) struct Grant {
    me: PeerId,
    voter: Voter,
    client: QuorumClient,
    holder: Holder,
    office: Office,
    times: Times,
    /// Nobody is looked for before: a leader may be heard of until then.
    quiet_until: Instant,
    leader: Option<PeerId>,
    is_told_vacant: bool,
    /// What is on disk has changed.
    pub(super) must_flush: bool,
}

struct Times {
    lease: Duration,
    renew_every: Duration,
    patience: Duration,
}

enum Office {
    Out,
    /// Nominated, and asks.
    Asking {
        until: Instant,
        /// The last term that its own voter knew, when it began.
        token: Token,
        sent: Instant,
        /// When it asks again, if the last call is over; or when that one has taken too long.
        next: Instant,
        is_calling: bool,
    },
    Leading {
        version: Version,
        until: Instant,
        sent: Instant,
        /// When it renews again, if the last call is over; or when that one has taken too long.
        next: Instant,
    },
}

impl Grant {
    /// Of a peer that starts, with what its voter's disk has kept.
    ///
    /// # Errors
    /// If there is nobody.
    pub(super) fn new(
        me: PeerId,
        peers: &BTreeSet<PeerId>,
        durable: Durable,
        id: u128,
        network: &Network,
        now: Instant,
    ) -> Result<Self> {
        let voter_set = VoterSet::new(peers.iter().map(|peer| voter(*peer)).collect())?;
        let holder = Holder { id: CandidateId::from_bits(id), label: Label::new(me.to_string())?, data: String::new() };
        Ok(Self {
            me,
            voter: Voter::restarted(durable, DRIFT_PPM, now),
            client: QuorumClient::new(voter_set),
            holder,
            office: Office::Out,
            times: Times {
                lease: network.lease,
                renew_every: network.renew_every(),
                patience: network.grant_patience(),
            },
            quiet_until: now + network.lease + network.round_trip(),
            leader: None,
            is_told_vacant: false,
            must_flush: false,
        })
    }

    /// What the voter's disk must have.
    pub(super) fn durable(&self) -> &Durable {
        self.voter.durable()
    }

    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let office = match self.office {
            Office::Out => None,
            Office::Asking { until, next, .. } => Some(until.min(next)),
            Office::Leading { until, next, .. } => Some(until.min(next)),
        };
        let vacancy = (!self.is_told_vacant && !self.leads())
            .then(|| self.voter.bound_until(now).unwrap_or(now).max(self.quiet_until));
        Instant::earliest(office, vacancy)
    }

    pub(super) fn leads(&self) -> bool {
        matches!(self.office, Office::Leading { .. })
    }

    pub(super) fn nominated(&mut self, now: Instant, out: &mut Vec<Out>) {
        if matches!(self.office, Office::Out) {
            let token = self.voter.durable().term;
            let until = now + self.times.patience;
            self.office = Office::Asking { until, token, sent: now, next: now, is_calling: false };
            let expect = self.client.shown().map(|shown| shown.expectation());
            self.acquire(expect, now, out);
        }
    }

    fn acquire(&mut self, expect: Option<Expectation>, now: Instant, out: &mut Vec<Out>) {
        let Office::Asking { sent, next, is_calling, .. } = &mut self.office else { return };
        // Long enough for two round trips and the flushes of a busy disk; then it is asked anew.
        (*sent, *next, *is_calling) = (now, now + self.times.patience / 2, true);
        let (holder, lease) = (self.holder.clone(), self.times.lease);
        let request = Request::Acquire { expect, floor: Token::NONE.into(), holder, lease };
        let mut outputs = Vec::new();
        self.client.begin(request, &mut outputs);
        self.carry_out(outputs, now, out);
    }

    fn renew(&mut self, now: Instant, out: &mut Vec<Out>) {
        let Office::Leading { version, sent, next, .. } = &mut self.office else { return };
        // Where peers are far away, an answer may take longer than a renewal should.
        (*sent, *next) = (now, now + self.times.lease / 2);
        let (id, lease) = (self.holder.id, self.times.lease);
        let request = Request::Renew { id, version: *version, lease, completed_order: None };
        let mut outputs = Vec::new();
        self.client.begin(request, &mut outputs);
        out.push(Out::Renewed);
        self.carry_out(outputs, now, out);
    }

    pub(super) fn tick(&mut self, now: Instant, out: &mut Vec<Out>) {
        match self.office {
            Office::Asking { until, .. } if until <= now => {
                self.stop_asking(now, out);
                out.push(Out::Refused);
            }
            Office::Asking { ref mut next, is_calling: true, .. } if *next <= now => {
                // A voter that has not answered does not. The call may go on without.
                *next = now + self.times.patience / 2;
                let mut outputs = Vec::new();
                self.client.conclude(&mut outputs);
                self.carry_out(outputs, now, out);
            }
            Office::Asking { next, is_calling: false, .. } if next <= now => {
                let expect = self.client.shown().map(|shown| shown.expectation());
                self.acquire(expect, now, out);
            }
            Office::Leading { until, .. } if until <= now => self.lose(out),
            Office::Leading { next, .. } if next <= now => self.renew(now, out),
            _ => {}
        }
        let is_vacant = !self.leads() && self.voter.bound_until(now).is_none() && self.quiet_until <= now;
        if is_vacant && !self.is_told_vacant {
            self.is_told_vacant = true;
            out.push(Out::Vacant(self.leader.take()));
        }
    }

    /// A voter that supports it already need not be bound for nothing.
    fn stop_asking(&mut self, now: Instant, out: &mut Vec<Out>) {
        self.office = Office::Out;
        let mut outputs = Vec::new();
        self.client.begin(Request::Leave, &mut outputs);
        self.carry_out(outputs, now, out);
    }

    fn lose(&mut self, out: &mut Vec<Out>) {
        self.office = Office::Out;
        self.leader = None;
        out.push(Out::Lost);
    }

    /// Another peer's connection has ended.
    pub(super) fn gone(&mut self, peer: PeerId, now: Instant, out: &mut Vec<Out>) {
        let mut outputs = Vec::new();
        self.client.unheard(voter(peer), self.client.round(), &mut outputs);
        self.carry_out(outputs, now, out);
    }

    pub(super) fn asked(&mut self, from: PeerId, round: Round, ask: &Ask, now: Instant, out: &mut Vec<Out>) {
        let answer = self.vote(from, ask, now, out);
        out.push(Out::Send { to: from, frame: Box::new(Frame::Answer { round, answer }), kind: kind(ask) });
    }

    fn vote(&mut self, from: PeerId, ask: &Ask, now: Instant, out: &mut Vec<Out>) -> Answer {
        let verdict = self.voter.handle(ask, now);
        self.must_flush |= verdict.must_flush;
        // Only who leads renews.
        if from != self.me && matches!(ask, Ask::Renew { .. }) && verdict.answer.accepted {
            if self.leader != Some(from) || self.is_told_vacant {
                out.push(Out::Led(from));
            }
            (self.leader, self.is_told_vacant) = (Some(from), false);
            if let Office::Asking { .. } = self.office {
                self.stop_asking(now, out);
            }
        }
        verdict.answer
    }

    pub(super) fn answered(&mut self, from: PeerId, round: Round, answer: Answer, now: Instant, out: &mut Vec<Out>) {
        let mut outputs = Vec::new();
        self.client.answered(voter(from), round, answer, &mut outputs);
        self.carry_out(outputs, now, out);
    }

    fn carry_out(&mut self, mut outputs: Vec<Output>, now: Instant, out: &mut Vec<Out>) {
        while !outputs.is_empty() {
            for output in std::mem::take(&mut outputs) {
                match output {
                    Output::Send { to, round, ask } if to == voter(self.me) => {
                        let answer = self.vote(self.me, &ask, now, out);
                        self.client.answered(to, round, answer, &mut outputs);
                    }
                    Output::Send { to, round, ask } => {
                        let kind = kind(&ask);
                        out.push(Out::Send { to: peer(to), frame: Box::new(Frame::Ask { round, ask }), kind });
                    }
                    Output::Done(result) => self.done(result.ok(), now, out),
                }
            }
        }
    }

    /// A call has ended. `None`: without a reply.
    fn done(&mut self, reply: Option<Reply>, now: Instant, out: &mut Vec<Out>) {
        let believed = self.times.lease.mul_f64(0.95);
        match &mut self.office {
            Office::Out => {}
            Office::Asking { token, sent, next, is_calling, .. } => match reply {
                Some(Reply::Applied(record)) => {
                    let (version, until, sent) = (record.version, *sent + believed, *sent);
                    self.office = Office::Leading { version, until, sent, next: now };
                    (self.leader, self.is_told_vacant) = (Some(self.me), false);
                    out.extend([Out::Leads, Out::Until(until)]);
                    self.renew(now, out);
                }
                Some(Reply::Conflict(seen)) => {
                    let record = seen.record;
                    let granted = record.as_ref().map(|record| record.version.token).unwrap_or_default();
                    let is_held = record.as_ref().is_some_and(|record| record.holder.is_some()) && !seen.holder_gone;
                    (*next, *is_calling) = (now + RETRY, false);
                    if !is_held {
                        self.acquire(record.map(|record| record.expectation()), now, out);
                    } else if *token != Token::NONE && granted > *token {
                        // Another was granted it meanwhile, and will tell.
                        self.office = Office::Out;
                    } else {
                        *token = granted;
                    }
                }
                _ => (*next, *is_calling) = (now + RETRY, false),
            },
            Office::Leading { version, until, sent, next } => {
                *next = *sent + self.times.renew_every;
                match reply {
                    Some(Reply::Applied(record)) => {
                        *version = record.version;
                        *until = (*until).max(*sent + believed);
                        out.push(Out::Until(*until));
                    }
                    Some(Reply::Conflict(seen)) => match seen.record {
                        // An earlier attempt was promised: the next renewal is the one after it.
                        Some(record)
                            if record.is_held_by(self.holder.id)
                                && record.version.token == version.token
                                && record.version > *version =>
                        {
                            (*version, *next) = (record.version, now);
                        }
                        _ => self.lose(out),
                    },
                    // Nothing is known: the lease goes on, and so does its end.
                    _ => {}
                }
            }
        }
    }
}

fn kind(ask: &Ask) -> Kind {
    if matches!(ask, Ask::Renew { .. } | Ask::Withdraw { .. }) { Kind::Beat } else { Kind::Grant }
}

fn voter(peer: PeerId) -> VoterId {
    VoterId::from_bits(u128::from(peer.0))
}

/// The other way round: all voters here are such.
fn peer(voter: VoterId) -> PeerId {
    PeerId(u16::try_from(voter.to_bits()).unwrap_or_default())
}
