//! Rings by hand: one message at a time, first come, first served.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::*;
use crate::Instant;
use crate::contest::{Contest, Context, Effect, Event, PeerId};

fn peers(ids: &[u16]) -> Vec<PeerId> {
    ids.iter().copied().map(PeerId).collect()
}

fn circle(ids: &[u16]) -> Circle {
    Circle::new(peers(ids))
}

/// What one machine does.
fn handle<C: Contest>(machine: &mut C, event: Event<C::Message>, now: Instant) -> Vec<Effect<C::Message>> {
    let mut effects = Vec::new();
    machine.handle(event, &mut Context { now, entropy: &mut || 0, effects: &mut effects });
    effects
}

/// A ring of machines 1, 2, …, in which messages come in the order in which they were sent. Time stands still.
struct Table<C: Contest> {
    machines: Vec<C>,
    /// Who is gone: hears nothing.
    gone: BTreeSet<PeerId>,
    packets: VecDeque<(PeerId, PeerId, C::Message)>,
    nominations: Vec<(PeerId, PeerId)>,
}

impl<C: Contest> Table<C> {
    fn new(count: u16, machine: impl Fn(PeerId, Circle) -> C) -> Self {
        let ids: Vec<u16> = (1..=count).collect();
        let machines = peers(&ids).into_iter().map(|me| machine(me, circle(&ids))).collect();
        Self { machines, gone: BTreeSet::new(), packets: VecDeque::new(), nominations: Vec::new() }
    }

    fn tell(&mut self, peer: u16, event: Event<C::Message>) {
        let by = PeerId(peer);
        let machine = &mut self.machines[usize::from(peer) - 1];
        let now = if event == Event::Wake { machine.deadline().expect("it waits") } else { Instant::ZERO };
        for effect in handle(machine, event, now) {
            match effect {
                Effect::Send { to, message } => self.packets.push_back((by, to, message)),
                Effect::Nominate(nominee) => self.nominations.push((by, nominee)),
            }
        }
    }

    fn settle(&mut self) {
        while let Some((from, to, message)) = self.packets.pop_front() {
            if !self.gone.contains(&to) {
                self.tell(to.0, Event::Heard { from, message });
            }
        }
    }

    /// Who nominates whom, of those asked for.
    fn opinions(&self) -> Vec<(u16, u16)> {
        self.nominations.iter().map(|(by, nominee)| (by.0, nominee.0)).collect()
    }
}

fn ring(count: u16) -> Table<Ring> {
    Table::new(count, |me, circle| Ring::new(me, circle, Settings::default(), DurableTerm::default()))
}

#[test]
fn the_circle_goes_round_from_each_place() {
    let circle = circle(&[3, 1, 2, 1]);
    let after = |id| circle.after(PeerId(id)).map(|peer| peer.0).collect::<Vec<_>>();
    assert_eq!((after(3), after(1), after(2)), ([1, 2].into(), [2, 3].into(), [3, 1].into()));
    assert_eq!(after(9), [3, 1, 2], "who has no place sees all");
    assert_eq!(Circle::new([]).after(PeerId(1)).count(), 0);
}

#[test]
fn a_start_makes_the_greatest_id_the_nominee_of_all() {
    let mut table = ring(4);
    table.tell(2, Event::Vacant);
    table.settle();
    assert_eq!(table.opinions(), [(4, 4), (1, 4), (2, 4), (3, 4)]);
    assert!(table.machines.iter().all(|machine| machine.term() == 1));
}

#[test]
fn starts_at_one_time_are_one_election() {
    let mut table = ring(5);
    (1..=5).for_each(|peer| table.tell(peer, Event::Vacant));
    table.settle();
    assert_eq!(table.opinions(), [(5, 5), (1, 5), (2, 5), (3, 5), (4, 5)]);
    assert!(table.machines.iter().all(|machine| machine.term() == 1));
}

#[test]
fn a_hand_over_that_is_not_acknowledged_goes_to_the_next() {
    let mut table = ring(4);
    table.gone.insert(PeerId(3));
    table.tell(2, Event::Vacant);
    table.settle();
    assert_eq!(table.opinions(), [], "it has stuck at 2");
    table.tell(2, Event::Wake);
    table.settle();
    assert_eq!(table.opinions(), [], "tried again");
    table.tell(2, Event::Wake);
    table.settle();
    assert_eq!(table.opinions(), [(4, 4), (1, 4), (2, 4)]);
}

#[test]
fn who_is_suspected_is_passed_over_at_once_and_not_when_it_is_back() {
    let mut table = ring(3);
    table.gone.insert(PeerId(3));
    table.tell(2, Event::Vacant);
    table.tell(2, Event::Down(PeerId(3)));
    table.settle();
    assert_eq!(table.opinions(), [(2, 2), (1, 2)]);
    let mut table = ring(3);
    table.tell(2, Event::Down(PeerId(3)));
    table.tell(2, Event::Up(PeerId(3)));
    table.tell(2, Event::Vacant);
    table.settle();
    assert_eq!(table.opinions(), [(3, 3), (1, 3), (2, 3)]);
}

#[test]
fn a_candidature_that_cannot_come_back_gives_way_to_the_next_best() {
    let mut table = ring(3);
    table.tell(3, Event::Vacant);
    table.gone.insert(PeerId(3));
    table.tell(2, Event::Down(PeerId(3)));
    table.settle();
    assert_eq!(table.opinions(), [(2, 2), (1, 2)]);
    assert!(table.machines.iter().all(|machine| machine.term() == 1), "in the same election");
}

#[test]
fn messages_of_earlier_elections_are_acknowledged_and_dropped() {
    let mut machine = Ring::new(PeerId(2), circle(&[1, 2, 3]), Settings::default(), DurableTerm { term: 7 });
    for (term, stage) in [(6, Stage::Election), (6, Stage::Elected), (7, Stage::Election), (7, Stage::Elected)] {
        // 7 too: it may have taken part in that before it was restarted.
        let note = Note { term, origin: PeerId(3), stage };
        let event = Event::Heard { from: PeerId(1), message: Message::Pass { note, excluded: BTreeSet::new() } };
        let got = Effect::Send { to: PeerId(1), message: Message::Got { note, term: 7 } };
        assert_eq!(handle(&mut machine, event, Instant::ZERO), [got]);
    }
    assert_eq!(machine.deadline(), None);
    handle(&mut machine, Event::Vacant, Instant::ZERO);
    assert_eq!(machine.kept(), DurableTerm { term: 8 });
}

#[test]
fn who_starts_with_an_old_number_learns_the_newest_and_starts_above_it() {
    let mut table = ring(3);
    table.machines[1] = Ring::new(PeerId(2), circle(&[1, 2, 3]), Settings::default(), DurableTerm { term: 7 });
    table.tell(1, Event::Vacant);
    table.settle();
    assert_eq!((table.opinions(), table.machines[0].term()), (Vec::new(), 7));
    table.tell(1, Event::Wake);
    table.settle();
    assert_eq!(table.opinions(), [(3, 3), (1, 3), (2, 3)]);
    assert_eq!(table.machines[2].term(), 8);
}

#[test]
fn a_nominee_without_a_grant_is_excluded_by_all_until_it_leads() {
    let mut table = ring(3);
    table.tell(1, Event::Vacant);
    table.settle();
    table.nominations.clear();
    // Only one is told: the others hear of it by the next election's messages.
    table.tell(1, Event::Refused(PeerId(3)));
    table.settle();
    assert_eq!(table.opinions(), [(2, 2), (3, 2), (1, 2)]);
    (1..=3).for_each(|peer| table.tell(peer, Event::Led(PeerId(3))));
    table.nominations.clear();
    (1..=3).for_each(|peer| table.tell(peer, Event::Vacant));
    table.settle();
    assert_eq!(table.opinions().first(), Some(&(3, 3)));
}

#[test]
fn where_all_are_excluded_the_greatest_id_is_asked_again() {
    let mut table = ring(2);
    table.tell(1, Event::Vacant);
    table.settle();
    for (refused, next) in [(2, 1), (1, 2)] {
        table.nominations.clear();
        table.tell(1, Event::Refused(PeerId(refused)));
        table.settle();
        assert_eq!(table.opinions().first(), Some(&(next, next)));
    }
}

#[test]
fn an_exclusion_ends_and_comes_back_longer() {
    let settings = Settings { exclusion: Duration::from_secs(1), ..Settings::default() };
    let mut machine = Ring::new(PeerId(1), circle(&[1, 2]), settings, DurableTerm::default());
    let excluded = |machine: &mut Ring, at: u64| {
        handle(machine, Event::Led(PeerId(1)), Instant::ZERO + Duration::from_secs(at));
        let effects = handle(machine, Event::Vacant, Instant::ZERO + Duration::from_secs(at));
        effects.iter().any(|effect| {
            matches!(effect, Effect::Send { message: Message::Pass { excluded, .. }, .. } if !excluded.is_empty())
        })
    };
    handle(&mut machine, Event::Refused(PeerId(2)), Instant::ZERO);
    assert!(excluded(&mut machine, 0));
    assert!(!excluded(&mut machine, 1));
    handle(&mut machine, Event::Refused(PeerId(2)), Instant::ZERO + Duration::from_secs(1));
    assert!(excluded(&mut machine, 2));
    assert!(!excluded(&mut machine, 3));
}

#[test]
fn who_leads_swallows_elections() {
    let mut table = ring(3);
    table.tell(3, Event::Led(PeerId(3)));
    table.tell(2, Event::Vacant);
    table.settle();
    assert_eq!(table.opinions(), []);
}

#[test]
fn whoever_knows_no_leader_waits_for_something() {
    let mut table = ring(3);
    table.gone.insert(PeerId(2));
    table.tell(1, Event::Vacant);
    for _ in 0..20 {
        table.settle();
        assert!(table.machines[0].deadline().is_some());
        table.tell(1, Event::Wake);
    }
    assert_eq!(table.opinions().first(), Some(&(3, 3)));
}
