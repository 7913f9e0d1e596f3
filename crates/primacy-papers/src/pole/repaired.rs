//! POLE with its repairs: ranks that are known before they are needed, and a nominee that must get the grant.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::standing::{DurableTerm, Lead, PoleSettings, Standing};
use crate::exclusions::Exclusions;
use primacy_core::Instant;
use primacy_core::contest::{Contest, Context, Effect, Event, PeerId};
use primacy_core::select::{FailBackWatch, Rank};

/// One peer of the repaired POLE.
///
/// Peers tell each other all the time how they stand. In a vacancy everybody therefore knows the line: the best rank
/// first, then the higher id. The first in line nominates itself at once and asks for the grant; who comes next does so
/// when the slots of those before it have passed, or they were refused.
///
/// * **Who stands in line**: who has a rank and two-way contact with a majority, not long ago; who was not refused just
///   now; who does not say that it leads. A peer that can send and not hear never stands in line.
/// * **Terms**: each nomination of itself has a higher term than any this peer has heard of, or used before a restart.
/// * **A late starter** that hears of a leader, from the leader too and with itself from a majority, names that one and
///   asks for nothing.
/// * **A follower** that hears of a leader nominated in a later term, from that one itself, names that one.
/// * **Resignation**: a leader names another when that one's rank is better by the rule of
///   [`FailBack`](primacy_core::select::FailBack). Then its driver ends the leadership, releases the grant and says
///   [`Event::Vacant`], of which it tells the others, so that they need not wait to find out.
///
/// Every message is a hint: believing a wrong one costs time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pole {
    me: PeerId,
    /// Without `me`.
    others: BTreeSet<PeerId>,
    settings: PoleSettings,
    kept: DurableTerm,
    rank: Option<Rank>,
    /// What was heard of each other peer, the last time.
    heard: BTreeMap<PeerId, Heard>,
    /// To whom the last message said that this peer hears it.
    answered: BTreeSet<PeerId>,
    down: BTreeSet<PeerId>,
    leader: Option<Lead>,
    vacancy: Option<Vacancy>,
    exclusions: Exclusions,
    fail_back: FailBackWatch<PeerId>,
    /// What all were told of this peer: whether it is in contact, and where it stands.
    told: (bool, Option<Rank>),
    tell_due: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Heard {
    first: Instant,
    at: Instant,
    standing: Standing,
    /// It led, and was lost, since it said this.
    is_lost: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Vacancy {
    since: Instant,
    /// The leader that said itself that it leads no more, if nothing else tells of the vacancy.
    hinted_by: Option<PeerId>,
    slot: Duration,
    /// Whom this peer prefers now, and until when.
    named: Option<(PeerId, Instant)>,
    /// Whose turn it was.
    tried: BTreeSet<PeerId>,
    /// When to look again, if nothing is heard before.
    look: Option<Instant>,
}

impl Pole {
    /// A peer that starts, one of `peers`, with what it has kept. It has no rank yet.
    pub fn new(me: PeerId, peers: impl IntoIterator<Item = PeerId>, settings: PoleSettings, kept: DurableTerm) -> Self {
        Self {
            me,
            others: peers.into_iter().filter(|peer| *peer != me).collect(),
            settings,
            kept,
            rank: None,
            heard: BTreeMap::new(),
            answered: BTreeSet::new(),
            down: BTreeSet::new(),
            leader: None,
            vacancy: None,
            exclusions: Exclusions::default(),
            fail_back: FailBackWatch::new(settings.fail_back),
            told: (false, None),
            tell_due: Instant::ZERO,
        }
    }

    /// What must be on disk before the effects so far are carried out.
    pub const fn kept(&self) -> DurableTerm {
        self.kept
    }

    /// Whom it takes for the leader.
    pub fn leader(&self) -> Option<PeerId> {
        self.leader.map(|leader| leader.peer)
    }

    /// Where this peer stands, from its names and scores. `None` while it must not lead: it is not known yet, its log is
    /// behind, its disk is ill. The others are told with the next event.
    pub fn set_rank(&mut self, rank: Option<Rank>) {
        self.rank = rank;
    }

    fn is_majority(&self, count: usize) -> bool {
        count > self.others.len().div_ceil(2)
    }

    fn fresh(&self, peer: PeerId, now: Instant) -> Option<&Heard> {
        self.heard.get(&peer).filter(|heard| now.since(heard.at) < self.settings.fresh)
    }

    fn in_contact(&self, now: Instant) -> bool {
        let both_ways = |peer: &&PeerId| self.fresh(**peer, now).is_some_and(|heard| heard.standing.hears_you);
        self.is_majority(1 + self.others.iter().filter(both_ways).count())
    }

    /// Whether it is in contact, and its rank if it can lead now.
    fn own(&self, now: Instant) -> (bool, Option<Rank>) {
        let in_contact = self.in_contact(now);
        (in_contact, self.rank.filter(|_| in_contact && !self.exclusions.contains(self.me, now)))
    }

    /// By its own last word, and not lost since.
    fn says_it_leads(&self, peer: PeerId, now: Instant) -> bool {
        let said = self.fresh(peer, now).filter(|heard| !heard.is_lost);
        said.and_then(|heard| heard.standing.leader).is_some_and(|leader| leader.peer == peer)
    }

    /// Those who can lead now, but this peer.
    fn contenders(&self, now: Instant) -> impl Iterator<Item = (PeerId, &Rank)> {
        self.others.iter().filter_map(move |peer| {
            let Heard { standing, is_lost, .. } = self.fresh(*peer, now)?;
            let may = !self.says_it_leads(*peer, now)
                && !is_lost
                && !self.exclusions.contains(*peer, now)
                && !self.down.contains(peer);
            standing.rank.as_ref().filter(|_| may).map(|rank| (*peer, rank))
        })
    }

    /// Everybody who can lead now, the best first.
    fn line(&self, now: Instant) -> Vec<PeerId> {
        let (_, own) = self.own(now);
        let mut line: Vec<_> = self.contenders(now).chain(own.as_ref().map(|rank| (self.me, rank))).collect();
        line.sort_unstable_by_key(|(peer, rank)| (**rank, Reverse(*peer)));
        line.into_iter().map(|(peer, _)| peer).collect()
    }

    fn tell(&mut self, to: PeerId, cx: &mut Context<'_, Standing>) {
        let hears_you = self.fresh(to, cx.now).is_some();
        if hears_you {
            self.answered.insert(to);
        } else {
            self.answered.remove(&to);
        }
        let (in_contact, rank) = self.own(cx.now);
        let message = Standing { term: self.kept.term, in_contact, rank, hears_you, leader: self.leader };
        cx.effects.push(Effect::Send { to, message });
    }

    fn tell_all(&mut self, cx: &mut Context<'_, Standing>) {
        self.told = self.own(cx.now);
        self.tell_due = cx.now + self.settings.interval;
        for to in self.others.clone() {
            self.tell(to, cx);
        }
    }

    fn heard(&mut self, from: PeerId, standing: Standing, cx: &mut Context<'_, Standing>) {
        let says_it_leads = |standing: &Standing| standing.leader.is_some_and(|leader| leader.peer == from);
        let before = self.heard.get(&from);
        let led_before = before.is_some_and(|heard| says_it_leads(&heard.standing));
        let first = before.map_or(cx.now, |heard| heard.first);
        self.kept.term = self.kept.term.max(standing.term);
        self.down.remove(&from);
        self.heard.insert(from, Heard { first, at: cx.now, standing, is_lost: false });
        match self.leader {
            Some(leader) if leader.peer == from => match standing.leader.filter(|_| says_it_leads(&standing)) {
                Some(lead) => self.leader = Some(lead),
                // It resigns, or has lost the grant.
                None if led_before => self.vacate(Some(from), cx),
                None => {}
            },
            // Who leads itself is told by its grant, and by nobody else, that it does not.
            Some(leader) if leader.peer != self.me => {
                if let Some(lead) = standing.leader.filter(|lead| says_it_leads(&standing) && lead.term > leader.term) {
                    self.follow(lead, cx);
                }
            }
            Some(_) => {}
            // It was its older word that came late.
            None if self.vacancy.as_ref().is_some_and(|vacancy| vacancy.hinted_by == Some(from)) => {
                if let Some(lead) = standing.leader.filter(|_| says_it_leads(&standing)) {
                    self.follow(lead, cx);
                }
            }
            None => {}
        }
        let asks_who_leads = standing.leader.is_none() && self.leader.is_some();
        if asks_who_leads || !self.answered.contains(&from) {
            self.tell(from, cx);
        }
    }

    fn follow(&mut self, leader: Lead, cx: &mut Context<'_, Standing>) {
        self.leader = Some(leader);
        self.vacancy = None;
        cx.effects.push(Effect::Nominate(leader.peer));
    }

    fn led(&mut self, peer: PeerId, now: Instant) {
        let said = self.fresh(peer, now).and_then(|heard| heard.standing.leader).filter(|lead| lead.peer == peer);
        let term = if peer == self.me { self.kept.term } else { said.map_or(0, |lead| lead.term) };
        if peer == self.me && self.leader() != Some(peer) {
            self.fail_back.lead_begins();
            // All are to know, before the next vacancy, that it is no contender in it.
            self.tell_due = now;
        }
        self.leader = Some(Lead { peer, term });
        self.vacancy = None;
        self.exclusions.forgive(peer);
    }

    /// The leader is lost, which may itself not know it yet: it is no contender until it says that it leads no more.
    fn lost(&mut self, cx: &mut Context<'_, Standing>) {
        if let Some(heard) = self.leader().and_then(|leader| self.heard.get_mut(&leader)) {
            heard.is_lost = true;
        }
        self.vacate(None, cx);
    }

    fn vacate(&mut self, hinted_by: Option<PeerId>, cx: &mut Context<'_, Standing>) {
        if let Some(vacancy) = &mut self.vacancy {
            vacancy.hinted_by = None;
            return;
        }
        let old = self.leader.take().map(|leader| leader.peer);
        self.vacancy = Some(Vacancy {
            since: cx.now,
            hinted_by,
            slot: self.slot(),
            named: None,
            tried: BTreeSet::new(),
            look: None,
        });
        let is_known =
            |peer: &PeerId| self.fresh(*peer, cx.now).is_some() || self.down.contains(peer) || old == Some(*peer);
        // Who led tells the others at once. Who may have missed something asks.
        if old == Some(self.me) || !self.others.iter().all(is_known) {
            self.tell_all(cx);
        }
    }

    /// At least a nanosecond, so that time goes on.
    fn slot(&self) -> Duration {
        self.settings.slot.max(Duration::from_nanos(1))
    }

    /// Until when a vacancy is left open for peers that may turn out to be the best: those never heard of, and those heard
    /// of since a short while and not in contact yet. One that has fallen silent, or stays deaf, is not waited for.
    fn open_until(&self, vacancy: &Vacancy) -> Instant {
        let waits_for = self.others.iter().filter(|peer| !self.down.contains(peer));
        let ends = waits_for.filter_map(|peer| match self.heard.get(peer) {
            None => Some(vacancy.since),
            Some(heard) if !heard.standing.in_contact => Some(heard.first.min(vacancy.since)),
            Some(_) => None,
        });
        ends.max().map_or(Instant::ZERO, |since| since + self.settings.wait)
    }

    /// Who leads by the word of a majority, the leader and this peer among them.
    fn established(&self, since: Instant) -> Option<Lead> {
        let told = |peer: &PeerId| self.heard.get(peer).filter(|heard| heard.at > since)?.standing.leader;
        let own_word = |peer: &PeerId| told(peer).filter(|lead| lead.peer == *peer);
        self.others.iter().filter_map(own_word).find(|lead| {
            let voters = self.others.iter().filter(|peer| told(peer).is_some_and(|told| told.peer == lead.peer));
            self.is_majority(1 + voters.count())
        })
    }

    /// Names who should lead, or the next in line.
    fn name(&mut self, cx: &mut Context<'_, Standing>) {
        let now = cx.now;
        let Some(mut vacancy) = self.vacancy.take() else { return };
        if let Some(lead) = self.established(vacancy.since) {
            return self.follow(lead, cx);
        }
        let open_until = self.open_until(&vacancy);
        if open_until <= now {
            let line = self.line(now);
            // Who was named and says that it leads is in no line, and has what it was named for.
            let stands = |named: &PeerId| line.contains(named) || self.says_it_leads(*named, now);
            if let Some((named, until)) = vacancy.named
                && (until <= now || !stands(&named))
            {
                vacancy.tried.insert(named);
                vacancy.named = None;
            }
            if vacancy.named.is_none() {
                if !line.is_empty() && line.iter().all(|peer| vacancy.tried.contains(peer)) {
                    vacancy.tried.clear();
                    vacancy.slot = vacancy.slot.saturating_mul(2).min(self.settings.back_off_most).max(self.slot());
                }
                if let Some(next) = line.into_iter().find(|peer| !vacancy.tried.contains(peer)) {
                    vacancy.named = Some((next, now + vacancy.slot));
                    if next == self.me {
                        self.kept.term = self.kept.term.saturating_add(1);
                    }
                    cx.effects.push(Effect::Nominate(next));
                }
            }
            vacancy.look = vacancy.named.map(|(_, until)| until).or_else(|| self.exclusions.next_end(now));
        } else {
            vacancy.look = Some(open_until);
        }
        self.vacancy = Some(vacancy);
    }

    /// A leader looks whether another should lead.
    fn reconsider(&mut self, cx: &mut Context<'_, Standing>) {
        // Who must not lead at all gives way to anybody.
        let own = self.rank.unwrap_or(Rank::from([i32::MAX; Rank::ELEMENTS_MAX]));
        let others: Vec<_> = self.contenders(cx.now).map(|(peer, rank)| (peer, *rank)).collect();
        if let Some(better) = self.fail_back.observe(cx.now, &own, others.iter().map(|(peer, rank)| (*peer, rank))) {
            cx.effects.push(Effect::Nominate(better));
        }
    }
}

impl Contest for Pole {
    type Message = Standing;

    fn handle(&mut self, event: Event<Standing>, cx: &mut Context<'_, Standing>) {
        match event {
            Event::Wake => {}
            Event::Heard { from, message } if self.others.contains(&from) => self.heard(from, message, cx),
            Event::Heard { .. } => {}
            Event::Up(peer) if self.others.contains(&peer) => {
                self.down.remove(&peer);
                self.tell(peer, cx);
            }
            Event::Down(peer) if self.others.contains(&peer) => {
                self.down.insert(peer);
                self.heard.remove(&peer);
            }
            Event::Up(_) | Event::Down(_) => {}
            Event::Led(peer) => self.led(peer, cx.now),
            Event::Vacant => self.lost(cx),
            Event::Refused(peer) => {
                self.exclusions.failed(peer, cx.now, self.settings.back_off_most, cx.entropy);
                if self.leader() == Some(peer) {
                    self.lost(cx);
                }
            }
        }
        if self.tell_due <= cx.now {
            if self.leader() == Some(self.me) {
                self.reconsider(cx);
            }
            self.tell_all(cx);
        } else if self.told != self.own(cx.now) {
            self.tell_all(cx);
        }
        self.name(cx);
    }

    fn deadline(&self) -> Option<Instant> {
        Instant::earliest(Some(self.tell_due), self.vacancy.as_ref().and_then(|vacancy| vacancy.look))
    }
}
