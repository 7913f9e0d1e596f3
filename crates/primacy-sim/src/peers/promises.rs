//! The checkers among peers: a majority keeps its promise to whoever believes, in memory and on disk; what a voter has told it
//! does not forget; no claim goes against an order that is in place.

use std::collections::{BTreeMap, BTreeSet};

use primacy_core::lease::{CallError, Reply, Wish};
use primacy_core::quorum::{Answer, Ask, Counts, Durable, VoterId};
use primacy_core::{CandidateId, Instant, Token};

use super::client::Client;
use super::voter::{Booth, Life, promise_on};
use crate::oracle::Oracle;
use crate::tally::Sometimes;
use crate::world::World;

/// What the checkers remember.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The last pause that an operator was told of, and the last order of that register that was ever sent. One that was
    /// refused or not answered may come later than one that was: with some voter it may be.
    paused: u64,
    sent: u64,
    /// Terms that were claimed although such a pause was in place, and by whom.
    against: BTreeSet<(Token, CandidateId)>,
    /// The last claim of each asker: its call, and the term.
    claims: BTreeMap<u64, (u64, Token)>,
    /// Whom an operator wants to lead, since they said so.
    wished: Option<Wish>,
    /// Terms that were released by whoever led.
    released: BTreeSet<Token>,
    /// To whom each term was granted.
    granted: BTreeMap<Token, CandidateId>,
    /// What each voter has told last.
    told: BTreeMap<VoterId, Told>,
}

#[derive(Clone, Debug, Default)]
struct Told {
    term: Token,
    holder: Option<CandidateId>,
    released: bool,
    orders: Counts,
    fulfilled: u64,
}

impl Ledger {
    pub(super) fn paused(&mut self, count: u64) {
        self.paused = self.paused.max(count);
    }

    pub(super) fn wished(&mut self, wish: Option<Wish>) {
        self.wished = wish;
    }

    pub(super) fn sent(&mut self, count: u64) {
        self.sent = self.sent.max(count);
    }
}

impl World {
    /// The inductive oracle: whoever believes has a majority of voters that is bound to it beyond that, however clocks run
    /// from now on within their bounds, and whichever of the voters restart now.
    pub(crate) fn check_promises(&mut self) {
        if !self.scenario.sound() {
            return;
        }
        for n in 0..self.nodes.len() {
            if self.nodes[n].belief(self.now).is_some() && !self.is_promised(n) {
                let booths = self.peers.booths.iter().enumerate();
                let now = self.now;
                let all: Vec<String> = booths.map(|(v, booth)| format!("v{v} {}", booth.describe(now))).collect();
                let token = self.nodes[n].belief(now).map(|belief| belief.token);
                self.violate(Oracle::Binding, Some(n), || {
                    format!("believes in {token:?}, which no majority promises: {}", all.join("; "))
                });
            }
        }
        self.check_terms();
    }

    /// Whether a majority is bound to this believer.
    pub(crate) fn is_promised(&self, n: usize) -> bool {
        let Some(process) = &self.nodes[n].process else { return false };
        let Some(belief) = process.belief(self.now) else { return false };
        let left = u128::from(crate::nanos(belief.until.since(process.clock.read(self.now))));
        let slowest = u128::from(1_000_000 - self.nodes[n].part.timing.drift_ppm());
        let drift_ppm = self.scenario.peers.as_ref().map_or(0, |setting| setting.drift_ppm);
        let fastest = u128::from(1_000_000 + drift_ppm);
        let supports = |durable: &Durable| {
            durable.term == belief.token
                && durable.released.is_none()
                && durable.holder.as_ref().is_some_and(|holder| holder.id == process.id)
        };
        let restarted = |durable: &Durable| u128::from(crate::nanos(durable.lease)) * fastest / 1_000_000;
        let lasts = |bound: u128| bound * slowest >= left * fastest;
        let keeps = |booth: &Booth| {
            let on_disk = supports(promise_on(&booth.synced)) && lasts(restarted(promise_on(&booth.synced)));
            let in_memory = match &booth.life {
                Some(life) => {
                    let own = life.clock.read(self.now);
                    let bound = life.bound_until(own).map_or(0, |until| crate::nanos(until.since(own)));
                    life.voter().is_some_and(|voter| supports(voter.durable())) && lasts(u128::from(bound))
                }
                None => supports(promise_on(&booth.kept)) && lasts(restarted(promise_on(&booth.kept))),
            };
            on_disk && in_memory
        };
        if self.peers.exchange.is_some() {
            self.is_promised_across(process.number, keeps)
        } else {
            self.is_majority(keeps)
        }
    }

    fn is_majority(&self, is: impl Fn(&Booth) -> bool) -> bool {
        let booths = &self.peers.booths;
        if let Some(exchange) = &self.peers.exchange {
            return exchange.latest().is_quorum(|voter| self.booth_of(voter).is_some_and(&is));
        }
        booths.iter().filter(|booth| is(booth)).count() * 2 > booths.len()
    }

    /// What a voter has told of itself stays true until it tells of something later.
    pub(super) fn check_memory(&mut self, v: usize, answer: &Answer) {
        let view = &answer.view;
        let now = Told {
            term: view.term,
            holder: view.holder.as_ref().map(|holder| holder.id),
            released: view.released,
            orders: view.orders.counts(),
            fulfilled: view.fulfilled,
        };
        let id = self.peers.booths[v].id;
        let Ledger { told, granted, .. } = &mut self.peers.ledger;
        let told = told.entry(id).or_default();
        let same = now.term == told.term && (now.holder == told.holder || told.holder.is_none());
        // To whom the term was granted, from somebody to whom it was not.
        let comes_over = now.term == told.term && !same && now.holder == granted.get(&now.term).copied();
        let keeps = (now.term > told.term || comes_over || (same && (now.released || !told.released)))
            && now.orders.wish >= told.orders.wish
            && now.orders.paused >= told.orders.paused
            && now.fulfilled >= told.fulfilled;
        let before = std::mem::replace(told, now.clone());
        if !keeps {
            self.violate(Oracle::Memory, None, || format!("v{v} has told {before:?}, and now it tells {now:?}"));
        }
    }

    /// A claim is about to be sent.
    pub(super) fn note_claim(&mut self, number: u64, ask: &Ask) {
        let ledger = &mut self.peers.ledger;
        let Some(client) = self.peers.clients.get(number) else { return };
        let Some(term) = Client::claims(ask) else { return };
        // Who asks again within its call claims nothing new.
        let claim = (client.calls, term);
        let former = ledger.claims.insert(number, claim);
        if former == Some(claim) {
            return;
        }
        if ledger.paused > 0 && ledger.paused == ledger.sent {
            ledger.against.insert((term, client.id));
        }
        if let Some((_, last)) = former.filter(|(_, last)| *last >= term) {
            self.violate(Oracle::Numbers, None, || format!("whoever has claimed term {last} claims term {term}"));
        }
    }

    /// A candidate has been told what became of its call.
    pub(super) fn count_reply(&mut self, result: &Result<Reply, CallError>) {
        match result {
            Ok(Reply::Conflict(_)) => self.saw(Sometimes::Conflict),
            Ok(Reply::Applied(record)) => match &record.holder {
                None => _ = self.peers.ledger.released.insert(record.version.token),
                Some(holder) => _ = self.peers.ledger.granted.entry(record.version.token).or_insert(holder.id),
            },
            _ => {}
        }
    }

    /// Somebody begins to lead, after the leadership with that token.
    pub(crate) fn check_lead_of_peers(&mut self, n: usize, token: Token, former: Token) {
        let id = self.nodes[n].process.as_ref().map(|process| process.id);
        if id.is_some_and(|id| self.peers.ledger.against.contains(&(token, id))) {
            self.violate(Oracle::Orders, Some(n), || {
                format!("leads with token {token}, which it claimed while the election was paused")
            });
        }
        let label = &self.nodes[n].part.label;
        let is_meant = |wished: &mut Wish| id.is_some_and(|id| wished.names(id, label));
        if self.peers.ledger.wished.take_if(is_meant).is_some() {
            self.saw(Sometimes::Successor);
        }
        if former > Token::NONE {
            let released = self.peers.ledger.released.contains(&former);
            self.saw(if released { Sometimes::ReleaseTaken } else { Sometimes::Takeover });
        }
    }

    /// A voter was asked: a renewal that a majority has heard of is the moment at which to lose a leader.
    pub(super) fn note_renewal(&mut self, ask: &Ask) {
        let Ask::Renew { term, id, beat, .. } = ask else { return };
        let Some(n) = self.healing_waits_for_renewal() else { return };
        if self.nodes[n].process.as_ref().is_none_or(|process| process.id != *id) {
            return;
        }
        let has = |booth: &Booth| {
            booth.life.as_ref().and_then(Life::voter).is_some_and(|voter| {
                let view = voter.clone().handle(&Ask::Read, Instant::ZERO).answer.view;
                view.term == *term && view.beat >= *beat
            })
        };
        if self.is_majority(has) {
            self.healing_renewed(n);
        }
    }

    /// How many at most wait as far as voters know, and are not alive.
    pub(crate) fn dead_announcements(&self, live: impl Fn(CandidateId) -> bool) -> u32 {
        let dead = |booth: &Booth| booth.waiting(self.now).into_iter().filter(|id| !live(*id)).count();
        self.peers.booths.iter().map(dead).max().unwrap_or_default() as u32
    }
}

impl Booth {
    pub(super) fn describe(&self, now: u64) -> String {
        let holder = |durable: &Durable| {
            let holder = durable.holder.as_ref().map_or("nobody", |holder| holder.label.as_str());
            format!("{} of {holder}{}", durable.term, if durable.released.is_some() { ", released" } else { "" })
        };
        let on_disk = holder(promise_on(&self.synced)) + &self.number_on_disk();
        match &self.life {
            None => format!("({on_disk} on its disk, is down)"),
            Some(life) => {
                let own = life.clock.read(now);
                let bound = life.bound_until(own).map_or(std::time::Duration::ZERO, |until| until.since(own));
                let held = life.voter().map_or_else(|| "nothing".to_owned(), |voter| holder(voter.durable()));
                format!("({on_disk} on its disk, {held}, bound for {bound:?})")
            }
        }
    }
}
