//! What each machine does with what it hears.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::launch::place;
use super::*;
use primacy_core::Instant;
use primacy_core::contest::{Contest, Context, Effect, Event};
use primacy_core::time::exponential;

const ME: PeerId = PeerId(0);

fn p(id: u16) -> PeerId {
    PeerId(id)
}

fn ids(peers: u16) -> BTreeSet<PeerId> {
    (0..peers).map(PeerId).collect()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A source of bits that only has to be spread well.
fn bits() -> impl FnMut() -> u64 {
    let mut state = 7_u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state ^ (state >> 33) ^ (state << 29)
    }
}

/// A machine, its clock, and what chance brings.
struct Desk<C: Contest> {
    machine: C,
    now: Instant,
    chance: u64,
}

impl<C: Contest> Desk<C> {
    fn new(machine: C) -> Self {
        Self { machine, now: Instant::ZERO, chance: u64::MAX }
    }

    fn tell(&mut self, event: Event<C::Message>) -> Vec<Effect<C::Message>> {
        let mut effects = Vec::new();
        let chance = self.chance;
        self.machine.handle(event, &mut Context { now: self.now, entropy: &mut || chance, effects: &mut effects });
        effects
    }

    fn hears(&mut self, from: u16, message: C::Message) -> Vec<Effect<C::Message>> {
        self.tell(Event::Heard { from: p(from), message })
    }

    /// Lets time pass until something is due.
    fn wakes(&mut self) -> Vec<Effect<C::Message>> {
        self.now = self.machine.deadline().expect("something is due");
        self.tell(Event::Wake)
    }
}

fn send<M>(to: u16, message: M) -> Effect<M> {
    Effect::Send { to: p(to), message }
}

#[test]
fn the_wheel_stops_as_often_as_weights_say() {
    let wheel: BTreeMap<PeerId, u32> = [(p(1), 1), (p(2), 0), (p(3), 3)].into();
    let mut entropy = bits();
    let mut drawn: BTreeMap<PeerId, u32> = BTreeMap::new();
    for _ in 0..10_000 {
        *drawn.entry(draw(wheel.iter(), &mut entropy).expect("there is weight")).or_default() += 1;
    }
    assert!((2_300..2_700).contains(&drawn[&p(1)]), "{drawn:?}");
    assert_eq!(drawn.get(&p(2)), None, "no weight");
    assert_eq!(drawn[&p(1)] + drawn[&p(3)], 10_000);
    assert_eq!(draw([(p(2), 0)].iter().map(|(peer, weight)| (peer, weight)), &mut entropy), None);
}

#[test]
fn the_timer_is_exponential() {
    let mut entropy = bits();
    let drawn: Vec<Duration> = (0..20_000).map(|_| exponential(ms(10), &mut entropy)).collect();
    let mean = drawn.iter().sum::<Duration>() / 20_000;
    assert!((9_700..10_300).contains(&mean.as_micros()), "{mean:?}");
    // e^-1 and e^-3 of them.
    let longer = |than| drawn.iter().filter(|span| **span > than).count();
    assert!((7_150..7_570).contains(&longer(ms(10))), "{}", longer(ms(10)));
    assert!((880..1_120).contains(&longer(ms(30))), "{}", longer(ms(30)));
    assert_eq!(exponential(Duration::ZERO, &mut entropy), Duration::ZERO);
}

#[test]
fn everybody_has_a_place_of_its_own_and_comes_first_in_some_term() {
    let peers = ids(5);
    let mut first: BTreeMap<PeerId, u32> = BTreeMap::new();
    for term in 0..5_000 {
        let others = |me| peers.iter().filter(move |peer| **peer != me);
        let mut order: Vec<PeerId> = peers.iter().copied().collect();
        order.sort_by_key(|me| place(term, *me, others(*me)));
        let places: Vec<u32> = order.iter().map(|me| place(term, *me, others(*me))).collect();
        assert_eq!(places, [0, 1, 2, 3, 4], "term {term}");
        // Without the first, the others move up in the same order.
        let rest = |me| others(me).filter(|peer| **peer != order[0]);
        assert!((1..5).all(|index| place(term, order[index], rest(order[index])) + 1 == places[index]));
        *first.entry(order[0]).or_default() += 1;
    }
    assert!(first.values().all(|count| (900..1_100).contains(count)), "{first:?}");
}

mod repaired {
    use super::*;

    fn desk(kept: DurableTerm) -> Desk<Roulette> {
        Desk::new(Roulette::new(ME, &ids(5), Settings::default(), kept))
    }

    /// Asks for votes in term 1.
    fn candidate() -> Desk<Roulette> {
        let mut desk = desk(DurableTerm::default());
        assert_eq!(desk.tell(Event::Vacant), []);
        let proposals: Vec<_> = (1..5).map(|to| send(to, Message::Propose { term: 1 })).collect();
        assert_eq!(desk.wakes(), proposals);
        desk
    }

    #[test]
    fn the_second_vote_of_five_elects_and_one_of_the_voters_is_drawn_and_told() {
        let mut desk = candidate();
        assert_eq!(desk.machine.kept(), DurableTerm { term: 1, voted: Some(ME) }, "its own vote");
        assert_eq!(desk.hears(1, Message::Vote { term: 1, weight: 1 }), []);
        assert_eq!(desk.hears(1, Message::Vote { term: 1, weight: 1 }), [], "the same vote again");
        let drawn = desk.hears(3, Message::Vote { term: 1, weight: 1 });
        assert_eq!(drawn, [send(3, Message::Draw { term: 1 }), Effect::Nominate(p(3))]);
        assert_eq!(desk.hears(4, Message::Vote { term: 1, weight: 1 }), [], "drawn once");
        assert_eq!(desk.machine.tally(), Tally { launched: 1, won: 1, lost: 0 });
    }

    #[test]
    fn a_vote_is_given_once_in_a_term_also_after_a_restart() {
        let mut voter = desk(DurableTerm::default());
        let vote = [send(1, Message::Vote { term: 4, weight: 1 })];
        assert_eq!(voter.hears(1, Message::Propose { term: 4 }), vote);
        assert_eq!(voter.hears(1, Message::Propose { term: 4 }), vote, "it may have been lost");
        let mut again = desk(voter.machine.kept());
        assert_eq!(again.hears(2, Message::Propose { term: 4 }), [send(2, Message::Refuse { term: 4, latest: 4 })]);
        assert_eq!(again.hears(2, Message::Propose { term: 3 }), [send(2, Message::Refuse { term: 3, latest: 4 })]);
        assert_eq!(again.hears(1, Message::Propose { term: 4 }), vote);
        assert_eq!(again.hears(2, Message::Propose { term: 5 }), [send(2, Message::Vote { term: 5, weight: 1 })]);
    }

    #[test]
    fn only_the_one_it_voted_for_draws_it_and_only_once() {
        let mut voter = desk(DurableTerm::default());
        voter.hears(1, Message::Propose { term: 4 });
        assert_eq!(voter.hears(2, Message::Draw { term: 4 }), [], "not its candidate");
        assert_eq!(voter.hears(1, Message::Draw { term: 3 }), [], "late");
        assert_eq!(voter.hears(1, Message::Draw { term: 4 }), [Effect::Nominate(ME)]);
        assert_eq!(voter.hears(1, Message::Draw { term: 4 }), [], "twice");
        voter.hears(1, Message::Propose { term: 5 });
        voter.tell(Event::Led(p(2)));
        assert_eq!(voter.hears(1, Message::Draw { term: 5 }), [], "there is a leader since");
    }

    #[test]
    fn spread_votes_end_a_round_at_once_and_the_next_is_drawn() {
        let mut desk = candidate();
        desk.hears(1, Message::Refuse { term: 1, latest: 1 });
        desk.hears(2, Message::Vote { term: 1, weight: 1 });
        desk.hears(3, Message::Refuse { term: 1, latest: 1 });
        assert_eq!(desk.machine.tally().lost, 0, "with the last one it would have a majority");
        let before = desk.machine.deadline();
        desk.hears(4, Message::Refuse { term: 1, latest: 1 });
        assert_eq!(desk.machine.tally(), Tally { launched: 1, won: 0, lost: 1 });
        assert_ne!(desk.machine.deadline(), before);
        assert_eq!(desk.wakes()[0], send(1, Message::Propose { term: 2 }));
    }

    #[test]
    fn a_candidate_that_is_behind_asks_again_above_what_it_is_told() {
        let mut desk = candidate();
        desk.hears(1, Message::Refuse { term: 1, latest: 8 });
        assert_eq!(desk.machine.kept(), DurableTerm { term: 8, voted: None });
        assert_eq!(desk.hears(2, Message::Vote { term: 1, weight: 1 }), []);
        assert_eq!(desk.hears(3, Message::Vote { term: 1, weight: 1 }), [], "that round is over");
        assert_eq!(desk.wakes()[0], send(1, Message::Propose { term: 9 }));
    }

    #[test]
    fn a_refused_nominee_is_off_the_wheel_for_a_time_that_grows() {
        let mut desk = desk(DurableTerm::default());
        let mut shortest = Duration::ZERO;
        for _ in 0..4 {
            desk.tell(Event::Refused(p(4)));
            let from = desk.now;
            let waited = loop {
                desk.tell(Event::Led(p(1)));
                desk.tell(Event::Vacant);
                while desk.machine.tally().launched == desk.machine.tally().won + desk.machine.tally().lost {
                    desk.wakes();
                }
                let term = desk.machine.kept().term;
                desk.hears(3, Message::Vote { term, weight: 1 });
                let drawn = desk.hears(4, Message::Vote { term, weight: 1 });
                match drawn.last() {
                    Some(Effect::Nominate(peer)) if *peer == p(4) => break desk.now.since(from),
                    _ => desk.now = desk.now + ms(1),
                }
            };
            assert!(waited > shortest, "{waited:?}");
            shortest = waited + ms(4);
        }
    }

    #[test]
    fn whoever_was_refused_itself_says_that_it_has_no_weight() {
        let mut voter = desk(DurableTerm::default());
        voter.tell(Event::Refused(ME));
        assert_eq!(voter.hears(1, Message::Propose { term: 1 }), [send(1, Message::Vote { term: 1, weight: 0 })]);
        voter.now = voter.now + ms(70);
        assert_eq!(voter.hears(1, Message::Propose { term: 2 }), [send(1, Message::Vote { term: 2, weight: 1 })]);
        voter.machine.set_weight(0);
        assert_eq!(voter.hears(1, Message::Propose { term: 3 }), [send(1, Message::Vote { term: 3, weight: 0 })]);
    }

    #[test]
    fn a_coordinator_of_voters_without_weight_names_itself() {
        let mut desk = candidate();
        desk.hears(1, Message::Vote { term: 1, weight: 0 });
        assert_eq!(desk.hears(2, Message::Vote { term: 1, weight: 0 }), [Effect::Nominate(ME)]);
    }

    #[test]
    fn without_a_majority_in_reach_it_waits() {
        let mut desk = desk(DurableTerm::default());
        (2..5).for_each(|peer| drop(desk.tell(Event::Down(p(peer)))));
        desk.tell(Event::Vacant);
        assert_eq!(desk.machine.deadline(), None, "two of five elect nobody");
        desk.now = desk.now + ms(10_000);
        desk.tell(Event::Up(p(3)));
        assert!(desk.machine.deadline() >= Some(desk.now));
        assert_eq!(desk.wakes(), [1, 3].map(|to| send(to, Message::Propose { term: 1 })));
    }

    #[test]
    fn a_vacancy_that_is_noticed_after_voting_waits_for_that_round() {
        let mut voter = desk(DurableTerm::default());
        voter.hears(1, Message::Propose { term: 1 });
        voter.now = voter.now + ms(1);
        voter.tell(Event::Vacant);
        assert_eq!(voter.machine.deadline(), Some(Instant::ZERO + ms(50)), "patience, from the vote");
        voter.wakes();
        assert_eq!(voter.wakes().len(), 4, "now it asks");
    }

    /// Comes last in the next round.
    fn last() -> Desk<Roulette> {
        let others: BTreeSet<PeerId> = (1..5).map(PeerId).collect();
        let term = (0..).find(|term| place(*term, ME, others.iter()) == 4).expect("in some term");
        let mut desk = desk(DurableTerm { term, voted: None });
        desk.tell(Event::Vacant);
        desk
    }

    #[test]
    fn whoever_is_down_has_no_place() {
        let mut desk = last();
        assert_eq!(desk.machine.deadline(), Some(Instant::ZERO + ms(8)), "four steps of stagger and round trip");
        desk.tell(Event::Down(p(2)));
        assert_eq!(desk.machine.deadline(), Some(Instant::ZERO + ms(6)));
    }

    #[test]
    fn the_longest_of_the_last_round_trips_counts() {
        let mut desk = last();
        desk.machine.observe_round_trip(ms(9));
        assert_eq!(desk.machine.deadline(), Some(Instant::ZERO + ms(40)));
        (0..40).for_each(|_| desk.machine.observe_round_trip(ms(2)));
        assert_eq!(desk.machine.deadline(), Some(Instant::ZERO + ms(12)), "forgotten by and by");
        desk.machine.observe_round_trip(ms(100_000));
        assert_eq!(desk.machine.deadline(), Some(Instant::ZERO + ms(204)), "no longer than patience");
    }

    #[test]
    fn strangers_and_forged_terms_do_no_harm() {
        let mut desk = desk(DurableTerm::default());
        assert_eq!(desk.hears(9, Message::Propose { term: 1 }), []);
        assert_eq!(desk.hears(0, Message::Propose { term: 1 }), [], "itself");
        desk.tell(Event::Up(p(9)));
        desk.hears(1, Message::Propose { term: u64::MAX });
        desk.tell(Event::Vacant);
        for _ in 0..3 {
            let before = desk.now;
            assert_eq!(desk.wakes(), []);
            assert!(desk.machine.deadline() > Some(before), "no busy loop");
        }
    }
}

mod published {
    use super::*;
    use PublishedMessage::{Announce, Heartbeat, Negative, Positive, Propose};

    /// A peer that has drawn numbers of which the greatest is this, and asks for votes.
    fn candidate(variant: Variant, number_ppm: u32) -> Desk<Published> {
        let mut desk = Desk::new(Published::new(ME, &ids(5), PublishedSettings::new(variant)));
        desk.tell(Event::Vacant);
        desk.chance = bits_of(number_ppm);
        desk.wakes();
        desk.wakes();
        let proposals: Vec<_> = (1..5).map(|to| send(to, Propose { round: 1, number_ppm })).collect();
        assert_eq!(desk.wakes(), proposals, "with the third");
        assert_eq!(desk.machine.role(), Role::Candidate);
        desk
    }

    fn bits_of(number_ppm: u32) -> u64 {
        // The middle of what becomes this number.
        u64::MAX / 999_999 * u64::from(number_ppm - 1) + u64::MAX / 2_000_000
    }

    #[test]
    fn three_numbers_in_a_row_launch_and_two_do_not() {
        let mut desk = Desk::new(Published::new(ME, &ids(5), PublishedSettings::new(Variant::WaitForAll)));
        desk.tell(Event::Vacant);
        for number_ppm in [900_000, 999_999, 850_000, 1, 850_001, 990_000] {
            desk.chance = bits_of(number_ppm);
            assert_eq!(desk.wakes(), []);
        }
        desk.chance = bits_of(870_000);
        assert_eq!(desk.wakes()[0], send(1, Propose { round: 1, number_ppm: 999_999 }), "the greatest of all");
    }

    #[test]
    fn the_first_case_study() {
        let mut a = candidate(Variant::WaitForAll, 900_000);
        for voter in 1..4 {
            assert_eq!(a.hears(voter, Positive { round: 1, greatest_ppm: 400_000 }), []);
        }
        a.chance = u64::MAX / 2;
        let drawn = a.hears(4, Positive { round: 1, greatest_ppm: 400_000 });
        assert_eq!(drawn, [send(2, Announce { round: 1 })], "4 asked, 4 answered, 1 told: 2v - 1");
        assert_eq!(a.machine.role(), Role::Coordinator);

        let mut c = Desk::new(Published::new(p(2), &ids(5), PublishedSettings::new(Variant::WaitForAll)));
        c.hears(0, Propose { round: 1, number_ppm: 900_000 });
        let led = c.hears(0, Announce { round: 1 });
        assert_eq!(led[0], Effect::Nominate(p(2)));
        assert_eq!(led[1..], [0, 1, 3, 4].map(|to| send(to, Heartbeat { round: 1 })));
        assert_eq!(a.hears(2, Heartbeat { round: 1 }), [Effect::Nominate(p(2))]);
    }

    #[test]
    fn the_second_case_study() {
        let settings = PublishedSettings::new(Variant::WaitForAll);
        let mut d = Desk::new(Published::new(p(3), &ids(5), settings));
        let positive = |to| [send(to, Positive { round: 1, greatest_ppm: 0 })];
        assert_eq!(d.hears(0, Propose { round: 1, number_ppm: 900_000 }), positive(0));
        assert_eq!(d.hears(1, Propose { round: 1, number_ppm: 950_000 }), positive(1), "a second vote");
        let refused = [send(0, Negative { round: 1, greatest_ppm: 0, coordinator: false })];
        assert_eq!(d.hears(0, Propose { round: 1, number_ppm: 900_000 }), refused);

        let mut a = candidate(Variant::WaitForAll, 900_000);
        a.hears(3, Positive { round: 1, greatest_ppm: 0 });
        a.hears(4, Positive { round: 1, greatest_ppm: 0 });
        assert_eq!(a.machine.role(), Role::Candidate, "it has a majority, and waits for all");
        a.hears(2, Negative { round: 1, greatest_ppm: 0, coordinator: false });
        assert_eq!(a.machine.role(), Role::Basic);
        let voted = [send(1, Positive { round: 1, greatest_ppm: 900_000 })];
        assert_eq!(a.hears(1, Propose { round: 1, number_ppm: 950_000 }), voted);
    }

    #[test]
    fn two_with_the_same_number_refuse_each_other_and_the_next_round_decides() {
        let mut a = candidate(Variant::WaitForAll, 900_000);
        let refused = [send(1, Negative { round: 1, greatest_ppm: 900_000, coordinator: false })];
        assert_eq!(a.hears(1, Propose { round: 1, number_ppm: 900_000 }), refused);
        a.hears(1, Negative { round: 1, greatest_ppm: 900_000, coordinator: false });
        assert_eq!(a.machine.role(), Role::Basic);
        a.wakes();
        assert_eq!(a.machine.round(), 2);
    }

    #[test]
    fn at_majority_a_vote_stays_and_the_third_elects() {
        let mut a = candidate(Variant::AtMajority, 900_000);
        let refused = [send(1, Negative { round: 1, greatest_ppm: 900_000, coordinator: false })];
        assert_eq!(a.hears(1, Propose { round: 1, number_ppm: 950_000 }), refused, "a greater number is nothing here");
        a.hears(1, Negative { round: 1, greatest_ppm: 950_000, coordinator: false });
        a.hears(2, Positive { round: 1, greatest_ppm: 10 });
        let drawn = a.hears(3, Positive { round: 1, greatest_ppm: 10 });
        assert_eq!(drawn, [send(1, Announce { round: 1 })], "who voted against it is on the wheel as well");
        let refused = [send(4, Negative { round: 1, greatest_ppm: 900_000, coordinator: true })];
        assert_eq!(a.hears(4, Propose { round: 1, number_ppm: 999_999 }), refused, "rule 3");
    }

    #[test]
    fn a_peer_that_comes_back_is_told_of_the_round_by_the_leader_alone() {
        let mut leader = Desk::new(Published::new(ME, &ids(5), PublishedSettings::new(Variant::AtMajority)));
        leader.hears(1, Propose { round: 7, number_ppm: 900_000 });
        assert_eq!(leader.tell(Event::Up(p(2))), [], "who only votes tells nothing");
        leader.hears(1, Announce { round: 7 });
        assert_eq!(leader.tell(Event::Up(p(2))), [send(2, Heartbeat { round: 7 })]);

        let mut back = Desk::new(Published::new(p(2), &ids(5), PublishedSettings::new(Variant::AtMajority)));
        assert_eq!(back.hears(0, Heartbeat { round: 7 }), [Effect::Nominate(ME)]);
        back.tell(Event::Vacant);
        assert_eq!(back.machine.round(), 8, "the next round, as all others");
    }

    #[test]
    fn numbers_come_at_their_pace_however_late_a_peer_is_woken() {
        let settings = PublishedSettings { pace: ms(10), ..PublishedSettings::new(Variant::AtMajority) };
        let mut desk = Desk::new(Published::new(ME, &ids(5), settings));
        desk.chance = 0;
        desk.tell(Event::Vacant);
        for (late, next) in [(3, 7), (0, 10), (25, 0), (0, 10)] {
            desk.now = desk.machine.deadline().expect("it draws") + ms(late);
            desk.tell(Event::Wake);
            assert_eq!(desk.machine.deadline(), Some(desk.now + ms(next)), "{late} ms late");
        }
    }

    #[test]
    fn a_coordinator_that_hears_no_heartbeat_draws_another_and_then_begins_anew() {
        let mut a = candidate(Variant::AtMajority, 900_000);
        a.hears(2, Positive { round: 1, greatest_ppm: 10 });
        let first = a.hears(3, Positive { round: 1, greatest_ppm: 10 });
        let second = a.wakes();
        assert_ne!(first, second);
        assert!(matches!(second[..], [Effect::Send { message: Announce { round: 1 }, .. }]), "rule 7: {second:?}");
        assert_eq!(a.wakes(), [], "nobody is left");
        assert_eq!((a.machine.role(), a.machine.round()), (Role::Basic, 2));
    }

    #[test]
    fn without_enough_votes_a_candidate_begins_the_next_round() {
        let mut a = candidate(Variant::WaitForAll, 900_000);
        a.hears(2, Positive { round: 1, greatest_ppm: 10 });
        assert_eq!(a.wakes(), [], "two of five");
        assert_eq!((a.machine.round(), a.machine.tally().lost), (2, 1));
    }
}
