//! The ring election with numbered elections, acknowledged hand-overs, and a nominee instead of a leader.

mod exclusions;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use super::Circle;
use crate::Instant;
use crate::contest::{Contest, Context, Effect, Event, PeerId};
use exclusions::Exclusions;

/// How often one peer is handed the same message before it is passed over.
const TRIES: u8 = 2;

/// The times of a [`Ring`]. Only speed depends on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// How long a hand-over waits for its acknowledgement. Longer than a round trip between two peers.
    pub hop: Duration,
    /// How long an election may take until a nominee is known, before a new one. Longer than twice the way round. Each further
    /// election without a leader has twice as long, up to eight times.
    pub patience: Duration,
    /// How long a nominee may take to get the grant, before a new election without it. Longer than a lease, by which voters may
    /// be bound. [`Event::Refused`] says it earlier.
    pub grant: Duration,
    /// For how long a nominee that got no grant is preferred by nobody. Twice as long each further time, up to 64 times.
    pub exclusion: Duration,
}

impl Default for Settings {
    /// For rings within one site: 20 ms, the paper's 700 ms, 15 s, 10 s.
    fn default() -> Self {
        Self {
            hop: Duration::from_millis(20),
            patience: Duration::from_millis(700),
            grant: Duration::from_secs(15),
            exclusion: Duration::from_secs(10),
        }
    }
}

/// What must be on disk before any effect is carried out that was given with it. A peer that loses it comes back as another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DurableTerm {
    /// The highest election that this peer has started, or heard of.
    pub term: u64,
}

/// How far an election has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The origin stands.
    Election,
    /// The origin's candidature has come back to it.
    Elected,
}

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Note {
    /// In which election.
    pub term: u64,
    /// Whose candidature.
    pub origin: PeerId,
    /// How far it has come.
    pub stage: Stage,
}

/// What peers of a ring tell each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// To be passed round the ring.
    Pass {
        /// What it says.
        note: Note,
        /// Whom nobody should prefer in this election.
        excluded: BTreeSet<PeerId>,
    },
    /// The acknowledgement of `Pass`, whatever becomes of it.
    Got {
        /// What was passed.
        note: Note,
        /// The highest election that the receiver has heard of.
        term: u64,
    },
}

/// One peer of a ring that elects a nominee.
///
/// An election is a number, the *term*. In it each peer passes on the stronger of the candidature that comes and its own, if
/// it is stronger than all that it has passed before; the strongest comes back to its owner, who is the nominee. The greater
/// id is stronger; an excluded peer is weaker than all others.
///
/// A new machine has heard nothing: tell it [`Event::Vacant`] when no leader has been heard of for a while. That is the whole
/// of starting up. It relies on being told [`Event::Led`] when the grant is given to somebody, and by the transport who can
/// be reached; its own timers see to the rest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ring {
    me: PeerId,
    circle: Circle,
    settings: Settings,
    term: u64,
    /// Its part in that term. Without one it takes no part in it: it knows a leader since, or it has been restarted.
    round: Option<Round>,
    parcel: Option<Parcel>,
    /// When it gives the term up.
    until: Option<Instant>,
    /// How many terms it has started since it knew a leader.
    starts: u32,
    leader: Option<PeerId>,
    down: BTreeSet<PeerId>,
    exclusions: Exclusions,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Round {
    excluded: BTreeSet<PeerId>,
    /// The strongest candidature that it has passed on.
    best: Option<PeerId>,
    nominee: Option<PeerId>,
    /// Who has been handed something and did not answer. In the next term they are tried again.
    silent: BTreeSet<PeerId>,
}

impl Round {
    fn new(excluded: BTreeSet<PeerId>) -> Self {
        Self { excluded, best: None, nominee: None, silent: BTreeSet::new() }
    }

    fn strength(&self, peer: PeerId) -> (bool, PeerId) {
        (!self.excluded.contains(&peer), peer)
    }

    fn is_stronger(&self, peer: PeerId, than: Option<PeerId>) -> bool {
        than.is_none_or(|than| self.strength(peer) > self.strength(than))
    }
}

/// What was handed over and not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Parcel {
    note: Note,
    to: PeerId,
    tries: u8,
    until: Instant,
}

type Out<'a, 'b> = &'a mut Context<'b, Message>;

impl Ring {
    /// The peer with what its disk has kept, as its process starts.
    pub fn new(me: PeerId, circle: Circle, settings: Settings, kept: DurableTerm) -> Self {
        Self {
            me,
            circle,
            settings,
            term: kept.term,
            round: None,
            parcel: None,
            until: None,
            starts: 0,
            leader: None,
            down: BTreeSet::new(),
            exclusions: Exclusions::default(),
        }
    }

    /// What must be on disk.
    pub fn kept(&self) -> DurableTerm {
        DurableTerm { term: self.term }
    }

    /// The highest election that it has heard of: when it nominates itself, the one that it has won.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// The ring in which it stands.
    pub fn circle(&self) -> &Circle {
        &self.circle
    }

    fn enter(&mut self, term: u64, now: Instant) {
        self.term = term;
        self.round = Some(Round::new(self.exclusions.at(now)));
        self.parcel = None;
        let doublings = self.starts.saturating_sub(1).min(3);
        self.until = Some(now + self.settings.patience.saturating_mul(1 << doublings));
    }

    fn leave(&mut self) {
        (self.round, self.parcel, self.until) = (None, None, None);
    }

    fn start(&mut self, cx: Out<'_, '_>) {
        self.starts = self.starts.saturating_add(1);
        self.enter(self.term.saturating_add(1), cx.now);
        self.weigh(self.me, cx);
    }

    /// Passes on the stronger of this candidature and its own, if that is news.
    fn weigh(&mut self, origin: PeerId, cx: Out<'_, '_>) {
        let Some(round) = &mut self.round else { return };
        let stronger = if round.is_stronger(origin, Some(self.me)) { origin } else { self.me };
        if round.is_stronger(stronger, round.best) {
            round.best = Some(stronger);
            self.hand_on(Stage::Election, stronger, cx);
        }
    }

    fn hand_on(&mut self, stage: Stage, origin: PeerId, cx: Out<'_, '_>) {
        let note = Note { term: self.term, origin, stage };
        let others = self.circle.after(self.me).collect::<Vec<_>>();
        self.hand_to_first(note, &others, cx);
    }

    /// To the first of these who seems to be there. Passing over the origin itself ends its candidature.
    fn hand_to_first(&mut self, note: Note, others: &[PeerId], cx: Out<'_, '_>) {
        self.parcel = None;
        for peer in others.iter().copied() {
            let is_silent = self.round.as_ref().is_some_and(|round| round.silent.contains(&peer));
            if !is_silent && !self.down.contains(&peer) {
                self.parcel = Some(Parcel { note, to: peer, tries: 0, until: cx.now });
                return self.hand_over(cx);
            }
            if peer == note.origin {
                return self.lose(note, cx);
            }
        }
        // Nobody else is there.
        if note == (Note { term: self.term, origin: self.me, stage: Stage::Election }) {
            self.come_back(cx);
        }
    }

    fn hand_over(&mut self, cx: Out<'_, '_>) {
        let Some(parcel) = &mut self.parcel else { return };
        parcel.tries += 1;
        parcel.until = cx.now + self.settings.hop;
        let excluded = self.round.as_ref().map_or_else(BTreeSet::new, |round| round.excluded.clone());
        cx.effects.push(Effect::Send { to: parcel.to, message: Message::Pass { note: parcel.note, excluded } });
    }

    /// Whom it was handed to does not answer, or is suspected.
    fn pass_over(&mut self, cx: Out<'_, '_>) {
        let (Some(Parcel { note, to, .. }), Some(round)) = (self.parcel.take(), &mut self.round) else { return };
        round.silent.insert(to);
        if to == note.origin {
            return self.lose(note, cx);
        }
        let rest = self.circle.after(self.me).skip_while(|peer| *peer != to).skip(1).collect::<Vec<_>>();
        self.hand_to_first(note, &rest, cx);
    }

    /// A candidature cannot be handed back to its owner, who could not be reached with a grant either.
    fn lose(&mut self, note: Note, cx: Out<'_, '_>) {
        let Some(round) = self.round.as_mut().filter(|_| note.stage == Stage::Election) else { return };
        round.excluded.insert(note.origin);
        self.weigh(self.me, cx);
    }

    fn come_back(&mut self, cx: Out<'_, '_>) {
        if self.round.as_ref().is_some_and(|round| round.best == Some(self.me)) {
            self.name(self.me, cx);
        }
    }

    fn name(&mut self, nominee: PeerId, cx: Out<'_, '_>) {
        let Some(round) = &mut self.round else { return };
        if round.is_stronger(nominee, round.nominee) {
            round.nominee = Some(nominee);
            self.until = Some(cx.now + self.settings.grant);
            cx.effects.push(Effect::Nominate(nominee));
            self.hand_on(Stage::Elected, nominee, cx);
        }
    }

    fn passed(&mut self, from: PeerId, note: Note, excluded: &BTreeSet<PeerId>, cx: Out<'_, '_>) {
        let term = self.term.max(note.term);
        cx.effects.push(Effect::Send { to: from, message: Message::Got { note, term } });
        // Who leads and is reached has no need of elections.
        if note.term < self.term || self.leader == Some(self.me) || !self.circle.contains(note.origin) {
            return;
        }
        if note.term > self.term {
            self.enter(note.term, cx.now);
        }
        let Some(round) = &mut self.round else { return };
        round.excluded.extend(excluded.iter().filter(|peer| self.circle.contains(**peer)));
        match note.stage {
            Stage::Election if round.nominee.is_some() => {}
            Stage::Election if note.origin == self.me => self.come_back(cx),
            Stage::Election => self.weigh(note.origin, cx),
            Stage::Elected if note.origin == self.me => {}
            Stage::Elected => self.name(note.origin, cx),
        }
    }

    fn got(&mut self, from: PeerId, note: Note, term: u64, cx: Out<'_, '_>) {
        if self.parcel.as_ref().is_some_and(|parcel| parcel.to == from && parcel.note == note) {
            self.parcel = None;
        }
        if term > self.term && self.leader != Some(self.me) {
            self.enter(term, cx.now);
        }
    }

    fn wake(&mut self, cx: Out<'_, '_>) {
        if let Some(parcel) = self.parcel.as_ref().filter(|parcel| cx.now >= parcel.until) {
            if parcel.tries < TRIES { self.hand_over(cx) } else { self.pass_over(cx) }
        }
        if self.until.is_some_and(|until| cx.now >= until) {
            match self.round.as_ref().and_then(|round| round.nominee) {
                Some(nominee) => self.refused(nominee, cx),
                None => self.give_up(cx),
            }
        }
    }

    fn refused(&mut self, nominee: PeerId, cx: Out<'_, '_>) {
        // That somebody leads already is no fault of the nominee's.
        if self.leader.is_some() {
            return self.leave();
        }
        self.exclusions.add(nominee, self.settings.exclusion, cx.now);
        match &mut self.round {
            // A later election goes on, without it.
            Some(round) if round.nominee != Some(nominee) => {
                round.excluded.insert(nominee);
            }
            _ => self.start(cx),
        }
    }

    fn give_up(&mut self, cx: Out<'_, '_>) {
        if self.leader.is_none() { self.start(cx) } else { self.leave() }
    }
}

impl Contest for Ring {
    type Message = Message;

    fn handle(&mut self, event: Event<Message>, cx: &mut Context<'_, Message>) {
        match event {
            Event::Wake => self.wake(cx),
            Event::Heard { from, message: Message::Pass { note, excluded } } => self.passed(from, note, &excluded, cx),
            Event::Heard { from, message: Message::Got { note, term } } => self.got(from, note, term, cx),
            Event::Up(peer) => {
                self.down.remove(&peer);
            }
            Event::Down(peer) => {
                self.down.insert(peer);
                if self.round.as_ref().is_some_and(|round| round.nominee == Some(peer)) {
                    self.give_up(cx);
                } else if self.parcel.as_ref().is_some_and(|parcel| parcel.to == peer) {
                    self.pass_over(cx);
                }
            }
            Event::Led(leader) => {
                self.leader = Some(leader);
                self.starts = 0;
                self.exclusions.forget(leader);
                self.leave();
            }
            Event::Vacant => {
                self.leader = None;
                // An election that others have started is as good as its own.
                if self.round.is_none() {
                    self.start(cx);
                }
            }
            Event::Refused(nominee) => self.refused(nominee, cx),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        Instant::earliest(self.until, self.parcel.as_ref().map(|parcel| parcel.until))
    }
}
