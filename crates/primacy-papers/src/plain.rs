//! Contests without a message: each peer knows by itself who should lead.
//!
//! Everybody has a [`Preference`] among those whom it can reach. In a vacancy the first in line is nominated, and asks for the
//! grant; who comes next is, when a slot has passed or the one before was refused. Peers that see different peers come to
//! different nominees, and the grant decides, as everywhere.
//!
//! A selector of one's own is one function. This one wants the leader in the rack of its database:
//!
//! ```
//! use std::collections::{BTreeMap, BTreeSet};
//!
//! use primacy_core::Instant;
//! use primacy_papers::plain::{Plain, Preference, Settings};
//! use primacy_core::contest::{Contest, Context, Effect, Event, PeerId};
//!
//! struct NearDatabase {
//!     racks: BTreeMap<PeerId, &'static str>,
//!     database: &'static str,
//! }
//!
//! impl Preference for NearDatabase {
//!     fn place(&self, peer: PeerId, _last: Option<PeerId>) -> Option<u64> {
//!         match self.racks.get(&peer) {
//!             Some(rack) if *rack == self.database => Some(0),
//!             Some(_) => Some(1),
//!             None => None, // a spare in no rack never leads
//!         }
//!     }
//! }
//!
//! let racks = BTreeMap::from([(PeerId(1), "a"), (PeerId(2), "b"), (PeerId(3), "b")]);
//! let peers: BTreeSet<_> = (1..=4).map(PeerId).collect();
//! let near = NearDatabase { racks, database: "b" };
//! let mut contest = Plain::new(PeerId(1), &peers, near, Settings::default());
//!
//! let mut nominated = |event| {
//!     let mut effects = Vec::new();
//!     contest.handle(event, &mut Context { now: Instant::ZERO, entropy: &mut || 7, effects: &mut effects });
//!     effects
//! };
//! assert_eq!(nominated(Event::Vacant), [Effect::Nominate(PeerId(2))]);
//! assert_eq!(nominated(Event::Down(PeerId(2))), [Effect::Nominate(PeerId(3))]);
//! assert_eq!(nominated(Event::Down(PeerId(3))), [Effect::Nominate(PeerId(1))], "better another rack than nobody");
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use crate::exclusions::Exclusions;
use primacy_core::Instant;
use primacy_core::contest::{Contest, Context, Effect, Event, PeerId};

/// Who should lead, as one peer sees it. Peers that agree on it elect sooner; nothing else depends on that.
pub trait Preference {
    /// Where a peer stands: the smallest number is the first in line, then the lower id. `None`: it should not lead. `last`:
    /// who led last, as far as this peer has been told.
    fn place(&self, peer: PeerId, last: Option<PeerId>) -> Option<u64>;
}

/// The lowest id leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LowestId;

impl Preference for LowestId {
    fn place(&self, _peer: PeerId, _last: Option<PeerId>) -> Option<u64> {
        Some(0)
    }
}

/// The first of these leads; then, of all others, the lowest id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Named(pub Vec<PeerId>);

impl Preference for Named {
    fn place(&self, peer: PeerId, _last: Option<PeerId>) -> Option<u64> {
        let place = self.0.iter().position(|named| *named == peer).unwrap_or(self.0.len());
        u64::try_from(place).ok()
    }
}

/// Who led last leads again, if it can be reached; then the lowest id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sticky;

impl Preference for Sticky {
    fn place(&self, peer: PeerId, last: Option<PeerId>) -> Option<u64> {
        Some(u64::from(last != Some(peer)))
    }
}

/// How patient a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// How long it prefers one nominee before the next in line: longer than peers differ in when they notice a vacancy, and a
    /// grant takes.
    pub slot: Duration,
    /// The longest back-off of a nominee that was refused, and the longest slot, which doubles with each time through the line.
    pub back_off_most: Duration,
}

/// For a local network.
impl Default for Settings {
    fn default() -> Self {
        Self { slot: Duration::from_millis(50), back_off_most: Duration::from_secs(1) }
    }
}

/// What peers tell each other here: nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Silence {}

/// One peer's part in a contest without messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plain<P> {
    me: PeerId,
    /// With `me`.
    peers: BTreeSet<PeerId>,
    down: BTreeSet<PeerId>,
    preference: P,
    settings: Settings,
    last: Option<PeerId>,
    vacancy: Option<Vacancy>,
    exclusions: Exclusions,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Vacancy {
    slot: Duration,
    /// Whom it prefers now, and until when.
    named: Option<(PeerId, Instant)>,
    /// Whose turn it was.
    tried: BTreeSet<PeerId>,
    /// When to look again, if nothing happens before.
    look: Option<Instant>,
}

impl<P: Preference> Plain<P> {
    /// A peer that has just been started, among these (itself may be one of them). It takes all for up. It keeps nothing.
    pub fn new(me: PeerId, peers: &BTreeSet<PeerId>, preference: P, settings: Settings) -> Self {
        let mut peers = peers.clone();
        peers.insert(me);
        Self {
            me,
            peers,
            down: BTreeSet::new(),
            preference,
            settings,
            last: None,
            vacancy: None,
            exclusions: Exclusions::default(),
        }
    }

    /// At least a nanosecond, so that time goes on.
    fn slot(&self) -> Duration {
        self.settings.slot.max(Duration::from_nanos(1))
    }

    /// Everybody who can lead now, the first in line first.
    fn line(&self, now: Instant) -> Vec<PeerId> {
        let can = |peer: &&PeerId| !self.down.contains(peer) && !self.exclusions.contains(**peer, now);
        let placed = |peer: &PeerId| Some((self.preference.place(*peer, self.last)?, *peer));
        let mut line: Vec<_> = self.peers.iter().filter(can).filter_map(placed).collect();
        line.sort_unstable();
        line.into_iter().map(|(_, peer)| peer).collect()
    }

    /// Names who should lead, or the next in line.
    fn name(&mut self, cx: &mut Context<'_, Silence>) {
        let Some(mut vacancy) = self.vacancy.take() else { return };
        let line = self.line(cx.now);
        if let Some((named, until)) = vacancy.named
            && (until <= cx.now || !line.contains(&named))
        {
            vacancy.tried.insert(named);
            vacancy.named = None;
        }
        if vacancy.named.is_none() {
            if line.iter().all(|peer| vacancy.tried.contains(peer)) && !line.is_empty() {
                vacancy.tried.clear();
                vacancy.slot = vacancy.slot.saturating_mul(2).min(self.settings.back_off_most).max(self.slot());
            }
            if let Some(next) = line.into_iter().find(|peer| !vacancy.tried.contains(peer)) {
                vacancy.named = Some((next, cx.now + vacancy.slot));
                cx.effects.push(Effect::Nominate(next));
            }
        }
        vacancy.look = vacancy.named.map(|(_, until)| until).or_else(|| self.exclusions.next_end(cx.now));
        self.vacancy = Some(vacancy);
    }
}

impl<P: Preference> Contest for Plain<P> {
    type Message = Silence;

    fn handle(&mut self, event: Event<Silence>, cx: &mut Context<'_, Silence>) {
        match event {
            Event::Wake => {}
            Event::Heard { message, .. } => match message {},
            Event::Up(peer) => drop(self.down.remove(&peer)),
            Event::Down(peer) if peer != self.me => drop(self.down.insert(peer)),
            Event::Down(_) => {}
            Event::Led(peer) => {
                (self.last, self.vacancy) = (Some(peer), None);
                self.exclusions.forgive(peer);
            }
            Event::Vacant if self.vacancy.is_none() => {
                self.vacancy = Some(Vacancy { slot: self.slot(), named: None, tried: BTreeSet::new(), look: None });
            }
            Event::Vacant => {}
            Event::Refused(peer) => {
                self.exclusions.failed(peer, cx.now, self.settings.back_off_most, cx.entropy);
            }
        }
        self.name(cx);
    }

    fn deadline(&self) -> Option<Instant> {
        self.vacancy.as_ref().and_then(|vacancy| vacancy.look)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    struct Trial<P> {
        contest: Plain<P>,
        now: Instant,
    }

    impl<P: Preference> Trial<P> {
        fn new(preference: P) -> Self {
            let peers = (1..=3).map(PeerId).collect();
            Self { contest: Plain::new(PeerId(2), &peers, preference, Settings::default()), now: Instant::ZERO }
        }

        /// Whom it names by this event, if anybody.
        fn tell(&mut self, event: Event<Silence>) -> Option<u16> {
            let mut effects = Vec::new();
            self.contest.handle(event, &mut Context { now: self.now, entropy: &mut || 0, effects: &mut effects });
            assert!(effects.len() <= 1, "{effects:?}");
            effects.first().map(|effect| match effect {
                Effect::Nominate(peer) => peer.0,
                Effect::Send { message, .. } => match *message {},
            })
        }

        fn wake(&mut self) -> Option<u16> {
            self.now = self.contest.deadline().expect("something is to be done");
            self.tell(Event::Wake)
        }
    }

    #[test]
    fn the_lowest_id_that_is_up_is_named_and_the_next_when_its_slot_has_passed() {
        let mut trial = Trial::new(LowestId);
        assert_eq!(trial.tell(Event::Down(PeerId(1))), None, "nobody is named while somebody may lead");
        assert_eq!(trial.tell(Event::Vacant), Some(2));
        assert_eq!(trial.tell(Event::Vacant), None, "it is named already");
        assert_eq!(trial.wake(), Some(3));
        assert_eq!(trial.now, Instant::from_nanos(50 * MILLISECOND));
        assert_eq!(trial.tell(Event::Led(PeerId(3))), None);
        assert_eq!(trial.contest.deadline(), None, "somebody leads");
    }

    #[test]
    fn a_slot_doubles_with_each_time_through_the_line() {
        let mut trial = Trial::new(LowestId);
        trial.tell(Event::Vacant);
        assert_eq!([trial.wake(), trial.wake(), trial.wake()], [Some(2), Some(3), Some(1)]);
        let begun = trial.now;
        trial.wake();
        assert_eq!(trial.now.since(begun), Duration::from_millis(100));
    }

    #[test]
    fn who_was_refused_is_passed_over_until_its_back_off_ends_or_it_leads() {
        let mut trial = Trial::new(LowestId);
        trial.tell(Event::Vacant);
        assert_eq!(trial.tell(Event::Refused(PeerId(1))), Some(2));
        assert_eq!(trial.tell(Event::Refused(PeerId(2))), Some(3));
        assert_eq!(trial.tell(Event::Refused(PeerId(3))), None, "all were refused");
        assert_eq!(trial.wake(), Some(1), "the first back-off is over");
        trial.tell(Event::Led(PeerId(1)));
        assert_eq!(trial.tell(Event::Vacant), Some(1));
    }

    #[test]
    fn names_come_first_in_their_order() {
        let mut trial = Trial::new(Named(std::vec![PeerId(3), PeerId(2)]));
        assert_eq!(trial.tell(Event::Vacant), Some(3));
        assert_eq!(trial.tell(Event::Down(PeerId(3))), Some(2));
        assert_eq!(trial.tell(Event::Refused(PeerId(2))), Some(1));
    }

    #[test]
    fn who_led_last_comes_first_while_it_can_be_reached() {
        let mut trial = Trial::new(Sticky);
        trial.tell(Event::Led(PeerId(3)));
        assert_eq!(trial.tell(Event::Vacant), Some(3));
        assert_eq!(trial.tell(Event::Down(PeerId(3))), Some(1));
        trial.tell(Event::Led(PeerId(1)));
        trial.tell(Event::Up(PeerId(3)));
        assert_eq!(trial.tell(Event::Vacant), Some(1));
    }
}
