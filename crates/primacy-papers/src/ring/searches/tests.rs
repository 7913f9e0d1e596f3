//! What elections cost beside the paper's figures, and how both forms end where things go wrong.

use std::time::Duration;

use crate::ring::{HEARTBEAT, Published};
use primacy_core::contest::ring::{DurableTerm, Ring, Settings};
use primacy_core::contest::{Event, PeerId};

use super::*;
use crate::world::{Link, World as Simulated};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn ids(peers: u16) -> Vec<u16> {
    (1..=peers).collect()
}

fn servers(peers: u16, link: Link) -> Simulated<Published> {
    let mut world = Simulated::new(1, link);
    for id in ids(peers) {
        world.start(PeerId(id), Published::member(PeerId(id), circle(&ids(peers)), HEARTBEAT));
    }
    world
}

fn hall(peers: u16) -> Hall {
    Hall::new(circle(&ids(peers)), Settings::default(), Link::exact(ms(1)), 1)
}

/// Whom each server takes for the leader at last.
fn last(world: &Simulated<Published>, peers: u16) -> Vec<Option<u16>> {
    let of = |id: &u16| world.nominations.iter().rfind(|one| one.by.0 == *id).map(|one| one.nominee.0);
    ids(peers).iter().map(of).collect()
}

#[test]
fn messages_are_as_many_as_known_of_chang_and_roberts() {
    let link = Link::exact(ms(5));
    for (peers, harmonic) in [(3_u16, 1.833), (5, 2.283), (9, 2.829)] {
        let n = u64::from(peers);
        let (mut published_sum, mut repaired_sum) = (0, 0);
        for seed in 0..1_000 {
            let ring = shuffled(peers, seed);
            let cost = published(&ring, &ids(peers), link, seed).expect("one winner");
            // ELECTED goes round, and the winner lifts the others' blocks.
            published_sum += cost.messages - n - (n - 1);
            repaired_sum += repaired(&ring, &ids(peers), link, seed).expect("one winner").messages;
        }
        let elections = f64::from(u32::try_from(published_sum).expect("few")) / 1_000.0;
        let average = f64::from(peers) * harmonic;
        assert!((elections / average - 1.0).abs() < 0.03, "{elections} against {average} of {peers}");
        let all = f64::from(u32::try_from(repaired_sum).expect("few")) / 1_000.0;
        let with_acknowledgements = 2.0 * (average + f64::from(peers));
        assert!(all < with_acknowledgements * 1.01, "{all} against {with_acknowledgements} of {peers}");
    }
}

#[test]
fn in_a_ring_in_the_order_of_ids_only_the_greatest_candidature_goes_far() {
    let link = Link::exact(ms(5));
    let reversed: Vec<u16> = ids(9).into_iter().rev().collect();
    let elections = |ring: &[u16]| published(ring, &ids(9), link, 0).expect("one winner").messages - 9 - 8;
    assert_eq!(elections(&ids(9)), 2 * 9 - 1);
    assert_eq!(elections(&reversed), 9 * 10 / 2, "the worst order");
}

#[test]
fn propagation_takes_once_to_twice_round_as_the_papers_50_to_100_ms() {
    // The paper gives neither servers nor delay. With five servers and 10 ms a hop:
    for form in [published, repaired] {
        let known = |start| form(&ids(5), &[start], Link::exact(ms(10)), 0).expect("one winner").known;
        assert_eq!((known(5), known(1)), (ms(50), ms(90)), "from the winner, and from behind it");
    }
    // And with delays that vary, in any order of ids, from any start.
    let link = Link { least: ms(7), most: ms(13), loss_ppm: 0, twice_ppm: 0 };
    let known =
        |seed: u64| published(&shuffled(5, seed), &[1 + (seed % 5) as u16], link, seed).expect("one winner").known;
    let mut spans: Vec<Duration> = (0..500).map(known).collect();
    spans.sort_unstable();
    assert!(spans[10] > ms(40) && spans[489] < ms(105), "{:?} to {:?}", spans[10], spans[489]);
}

#[test]
fn as_published_more_servers_notice_a_dead_leader_sooner() {
    let link = Link { least: ms(4), most: ms(8), loss_ppm: 0, twice_ppm: 0 };
    let mean = |others| (0..400).map(|seed| takeover(others, link, seed).expect("a leader")).sum::<Duration>() / 400;
    let (two, four, eight) = (mean(2), mean(4), mean(8));
    // Two servers ask every 700 ms each, so the first asks after 233 ms, waits for 700 ms, and the way takes 15.
    assert!(two > ms(910) && two < ms(980), "{two:?}");
    assert!(two > four + ms(40) && four > eight + ms(10), "{two:?}, {four:?}, {eight:?}");
    // Not for ever: what is gained by noticing is lost on the way round.
    assert!(mean(16) > eight, "{eight:?}");
}

#[test]
fn as_published_a_late_election_message_makes_a_second_leader() {
    let mut world = servers(3, Link::exact(ms(1)));
    world.set_link(PeerId(3), PeerId(1), Link::exact(ms(500)));
    world.tell(PeerId(2), Event::Down(PeerId(3)));
    world.tell(PeerId(2), Event::Vacant);
    world.tell(PeerId(3), Event::Vacant);
    world.run(ms(100), |_| false);
    assert_eq!(last(&world, 3), [Some(2), Some(2), None], "2 has won, and its election is over");
    world.tell(PeerId(2), Event::Up(PeerId(3)));
    world.run(ms(900), |_| false);
    assert_eq!(last(&world, 3), [Some(2), Some(2), Some(3)], "3 leads as well, since 503 ms");
}

#[test]
fn as_published_a_leader_that_was_cut_off_goes_on_beside_the_next() {
    let mut world = servers(3, Link::exact(ms(1)));
    world.tell(PeerId(3), Event::Vacant);
    world.run(ms(3_000), |_| false);
    assert_eq!(last(&world, 3), [Some(3); 3]);
    let cut = |world: &mut Simulated<Published>, is_cut: bool| {
        for other in [1, 2].map(PeerId) {
            world.set_cut(PeerId(3), other, is_cut);
            world.set_cut(other, PeerId(3), is_cut);
            world.tell(other, if is_cut { Event::Down(PeerId(3)) } else { Event::Up(PeerId(3)) });
        }
    };
    cut(&mut world, true);
    world.run(ms(6_000), |_| false);
    cut(&mut world, false);
    world.run(ms(120_000), |_| false);
    assert_eq!(last(&world, 3), [Some(2), Some(2), Some(3)], "two minutes after all is well again");
}

#[test]
fn as_published_two_that_start_during_one_search_both_lead() {
    for later in [ms(0), ms(350), ms(690)] {
        assert_eq!(published_start(later, Link::exact(ms(1)), 0), 2, "{later:?} later");
    }
    assert_eq!(published_start(ms(800), Link::exact(ms(1)), 0), 1);
}

#[test]
fn repaired_starts_are_elections_like_all_others() {
    for later in [ms(0), ms(1), ms(350)] {
        let mut hall = hall(2);
        hall.world.tell(PeerId(1), Event::Vacant);
        hall.run(later);
        if hall.granted().is_none() {
            hall.world.tell(PeerId(2), Event::Vacant);
        }
        hall.run(ms(1_000));
        assert_eq!(hall.granted().map(|granted| granted.leader), Some(PeerId(2)), "{later:?} later");
    }
}

#[test]
fn as_published_the_crash_of_the_winner_leaves_no_leader_and_a_message_that_circles() {
    let mut world = servers(5, Link::exact(ms(1)));
    world.tell(PeerId(1), Event::Vacant);
    world.run(ms(100), |world| world.nominations.len() == 3);
    world.crash(PeerId(5));
    world.tell_all(&Event::Down(PeerId(5)));
    world.run(ms(60_000), |_| false);
    assert_eq!(last(&world, 5), [Some(5); 5], "after a minute of heartbeats without a reply");
    assert!(world.sent > 50_000, "{} messages", world.sent);
}

#[test]
fn repaired_the_crash_of_the_winner_costs_one_more_election() {
    for is_noticed in [true, false] {
        let mut hall = hall(5);
        hall.world.tell(PeerId(1), Event::Vacant);
        hall.world.run(ms(100), |world| world.nominations.len() == 3);
        hall.world.crash(PeerId(5));
        if is_noticed {
            hall.world.tell_all(&Event::Down(PeerId(5)));
        }
        hall.run(ms(10_000));
        let granted = hall.granted().expect("a leader");
        // Otherwise its grant is awaited for half a second, and each hand-over to it is tried twice.
        let limit = if is_noticed { ms(100) } else { ms(700) };
        assert!(granted.leader == PeerId(4) && granted.at < limit, "{granted:?}");
    }
}

#[test]
fn a_deaf_greatest_id_blocks_the_published_form_and_not_the_repaired() {
    let others = [1, 2].map(PeerId);
    let mut world = servers(3, Link::exact(ms(1)));
    others.into_iter().for_each(|other| world.set_cut(other, PeerId(3), true));
    world.tell_all(&Event::Led(PeerId(9)));
    world.run(ms(60_000), |_| false);
    assert_eq!(last(&world, 3), [None; 3], "after a minute");

    let mut hall = hall(3);
    hall.unfit.insert(PeerId(3));
    others.into_iter().for_each(|other| hall.world.set_cut(other, PeerId(3), true));
    hall.world.tell_all(&Event::Vacant);
    hall.run(ms(10_000));
    let granted = hall.granted().expect("a leader");
    assert!(granted.leader == PeerId(2) && granted.at < ms(100), "{granted:?}");
}

#[test]
fn repaired_a_nominee_without_a_grant_is_not_asked_again_for_a_while() {
    let mut hall = hall(5);
    hall.unfit.insert(PeerId(5));
    hall.world.tell_all(&Event::Vacant);
    hall.run(ms(2_000));
    let granted = hall.granted().expect("a leader");
    assert!(granted.leader == PeerId(4) && granted.at > ms(500) && granted.at < ms(600), "{granted:?}");
    let before = hall.world.nominations.len();
    hall.world.tell_all(&Event::Vacant);
    hall.run(ms(3_000));
    let next: Vec<u16> = hall.world.nominations.iter().skip(before).map(|one| one.nominee.0).collect();
    assert_eq!(next, [4; 5]);
}

#[test]
fn false_suspicions_split_the_published_form_and_cost_the_repaired_nothing() {
    let link = Link { least: ms(1), most: ms(20), loss_ppm: 10_000, twice_ppm: 10_000 };
    for peers in [3, 5, 9] {
        let published = published_with_suspicions(peers, 3, link, 200);
        assert!(published.settled < 190, "{peers}: {published:?}");
        let repaired = repaired_with_suspicions(peers, 3, link, 200);
        assert_eq!(repaired.settled, 200, "{peers}: {repaired:?}");
        assert!(repaired.percentile(99) < Some(ms(400)), "{peers}: {repaired:?}");
        if peers == 3 {
            assert!(published.split >= 5, "{published:?}");
            assert!(repaired.split > 0, "or the grants had nothing to decide: {repaired:?}");
        }
    }
}

#[test]
fn repaired_a_restart_with_its_term_takes_no_part_in_what_it_has_forgotten() {
    let ring = |kept| Ring::new(PeerId(2), circle(&[1, 2]), Settings::default(), kept);
    let mut world = Simulated::new(1, Link::exact(ms(1)));
    world.start(PeerId(1), Ring::new(PeerId(1), circle(&[1, 2]), Settings::default(), DurableTerm::default()));
    world.start(PeerId(2), ring(DurableTerm::default()));
    world.tell(PeerId(2), Event::Vacant);
    // Its candidature is on the way back to it.
    world.run(ms(1), |_| false);
    let kept = world.crash(PeerId(2)).expect("it ran").kept();
    world.start(PeerId(2), ring(kept));
    world.run(ms(50), |_| false);
    assert_eq!((kept, world.nominations.len()), (DurableTerm { term: 1 }, 0));
}
