//! The `registers` protocol in simulated time: who stands where, who is evicted, and how long rounds last.

mod group_world;

use std::time::Duration;

use group_world::{Crew, GroupWorld, ROUND, candidacy, candidate, rounds};
use primacy_core::Instant;
use primacy_core::registers::{Event, HEIRS};
use primacy_core::select::{FailBack, Rank};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn the_oldest_stand_in_line_and_all_others_in_reserve() {
    let mut world = GroupWorld::new();
    world.settle(30);
    world.crown(1, 1);
    world.run(ROUND * 3);
    for process in 2..=30u32 {
        let ahead = world.ahead(u128::from(process));
        assert_eq!(ahead, (process - 2 < HEIRS).then_some(process - 2), "{process}");
        let position = world.host(u128::from(process)).positions[&candidate(u128::from(process), 0)];
        assert_eq!(position.in_line, ahead.is_some());
        assert!(position.standing.others > 0);
        assert!(ahead.is_some() || position.standing.ahead >= HEIRS, "a reserve asks after those in line");
    }
}

#[test]
fn everybody_beats_once_a_round_and_reads_the_head_alone_and_that_seldom() {
    let mut world = GroupWorld::new();
    world.settle(100);
    world.crown(1, 1);
    world.run(ROUND * 5);
    let (beats, rows) = (world.beats, world.rows_read);
    world.run(ROUND * 30);
    let (beats, rows) = (world.beats - beats, world.rows_read - rows);
    assert!((99 * 29..=99 * 31).contains(&beats), "{beats}");
    // Those in line with every beat, the other 91 with every fourth.
    let heads = u64::from(HEIRS) * 31 + 91 * 9;
    assert!(rows <= heads * u64::from(HEIRS + 1), "{rows}");
    assert_eq!(world.registers.processes().len(), 100);
}

#[test]
fn who_moves_up_into_the_line_hears_of_it_in_a_few_rounds() {
    let mut world = GroupWorld::new();
    world.settle(12);
    world.crown(1, 1);
    world.run(MINUTE);
    assert_eq!((world.ahead(9), world.ahead(10)), (Some(7), None));
    world.kill(5);
    world.run(rounds().patience(ROUND) + ROUND * 2);
    assert!(!world.registers.processes().contains(&5));
    world.run(ROUND * 4);
    assert_eq!((world.ahead(9), world.ahead(10), world.ahead(11)), (Some(6), Some(7), None));
}

#[test]
fn a_dead_process_is_evicted_in_time_and_not_before() {
    let mut world = GroupWorld::new();
    world.settle(12);
    world.crown(1, 1);
    world.run(MINUTE);
    world.kill(5);
    world.run(rounds().lease(ROUND) - ROUND);
    assert!(world.registers.processes().contains(&5), "its last beat may be that old");
    world.run(ROUND * 3);
    assert!(!world.registers.processes().contains(&5));
    assert_eq!(world.round(), ROUND, "death is no reason for longer rounds");
    world.run(ROUND);
    assert_eq!(world.ahead(6), Some(3), "the line has moved up");
}

#[test]
fn who_was_evicted_alive_is_told_why_and_makes_rounds_longer_until_the_load_is_gone() {
    let mut world = GroupWorld::new();
    world.settle(6);
    world.crown(1, 1);
    world.run(MINUTE);
    let wakes = world.now + Duration::from_secs(9);
    world.host_mut(3).stopped_until = wakes;
    world.run(Duration::from_secs(9) - ROUND / 2);
    assert!(!world.registers.processes().contains(&3));
    world.run(ROUND / 2 + ROUND * 2);
    let told = &world.host(3).evictions;
    assert!(told.len() == 1 && told[0].contains("the leader with token 1"), "{told:?}");
    assert_eq!(world.host(3).group.view().id, Some(7), "it is the youngest now");
    assert!(world.round() > ROUND, "within two rounds of its coming back");
    let longer = world.round();
    assert!(longer < ROUND * 2, "one stall is no reason for {longer:?}");
    world.run(MINUTE);
    assert_eq!(world.round(), ROUND, "load gone, down from {longer:?}");
    assert!(world.host(4).rounds_seen.ends_with(&[ROUND, longer, ROUND]), "{:?}", world.host(4).rounds_seen);
    assert_eq!(world.registers.processes().len(), 6, "nobody was evicted by the change");
}

#[test]
fn a_slow_process_is_given_time_before_it_is_evicted() {
    let mut world = GroupWorld::new();
    world.settle(6);
    world.crown(1, 1);
    world.run(MINUTE);
    // Its beats come later and later, as on a machine that gets busier.
    for late in 1..=8u32 {
        let until = world.now + ROUND + ROUND / 8 * late;
        world.host_mut(3).stopped_until = until;
        world.run(until.since(world.now) + ROUND * 2);
    }
    assert!(world.host(3).evictions.is_empty(), "{:?}", world.host(3).evictions);
    assert!(world.round() > ROUND);
}

#[test]
fn a_rack_that_dies_does_not_block_the_line() {
    let mut world = GroupWorld::new();
    world.settle(60);
    world.crown(1, 1);
    world.run(MINUTE);
    // The leader and all who stand in line, and those behind them.
    (1..=40).for_each(|process| world.kill(process));
    world.run(rounds().patience(ROUND) * 3);
    assert_eq!(world.ahead(41), Some(0).filter(|_| world.registers.processes().len() <= 20), "nobody evicts");
    world.crown(50, 2);
    world.run(ROUND * 6);
    assert_eq!(world.registers.processes().len(), 20);
    assert_eq!(world.ahead(41), Some(0));
}

#[test]
fn many_candidates_of_a_process_beat_as_one() {
    let mut world = GroupWorld::new();
    for process in 1..=20 {
        world.enter(process, 100, Rank::default(), FailBack::Never);
    }
    world.run(ROUND * 2);
    world.crown(1, 1);
    world.run(ROUND * 3);
    let before = world.beats;
    world.run(ROUND * 10);
    assert!(world.beats - before <= 19 * 11, "{}", world.beats - before);
    let positions = &world.host(2).positions;
    assert_eq!(positions.len(), 100);
    assert_eq!(positions.values().filter(|position| position.in_line).count(), 1, "the others would die with it");
}

#[test]
fn a_better_candidate_stands_first_and_is_made_way_for_after_a_while() {
    let mut world = GroupWorld::new();
    let after = FailBack::After(Duration::from_secs(30));
    world.enter(1, 1, Rank::default(), after);
    world.enter(2, 1, Rank::default(), after);
    world.run(ROUND);
    world.crown(1, 1);
    world.run(ROUND * 2);
    world.enter(3, 1, Rank::new(&[-1]).expect("short"), after);
    world.run(ROUND * 3);
    assert_eq!((world.ahead(3), world.ahead(2)), (Some(0), Some(1)));
    assert!(world.host(1).hand_overs.is_empty(), "it has not been well for long");
    world.run(Duration::from_secs(30));
    assert_eq!(world.host(1).hand_overs.iter().map(|to| to.to_bits()).collect::<Vec<_>>(), [3]);
}

#[test]
fn who_never_leads_stands_nowhere_and_is_a_member_all_the_same() {
    let mut world = GroupWorld::new();
    world.settle(2);
    world.enter(9, 1, Rank::default(), FailBack::Never);
    world.tell(9, Event::Candidates(vec![candidacy(9, 0, None)]));
    world.run(ROUND * 3);
    assert_eq!(world.ahead(9), None);
    assert!(world.host(9).positions.is_empty());
    assert!(world.registers.processes().contains(&9));
    world.tell(9, Event::Candidates(vec![candidacy(9, 0, Some(Rank::default()))]));
    world.run(ROUND * 2);
    assert_eq!(world.ahead(9), Some(2), "published at once, with the number that it had");
}

#[test]
fn who_leaves_is_gone_and_may_come_back() {
    let mut world = GroupWorld::new();
    world.settle(3);
    world.run(ROUND);
    world.tell(2, Event::Candidates(Vec::new()));
    world.run(ROUND);
    assert!(world.host(2).stopped);
    assert_eq!(world.registers.processes(), [1, 3]);
    world.tell(2, Event::Candidates(vec![candidacy(2, 0, Some(Rank::default()))]));
    world.run(ROUND);
    assert_eq!(world.host(2).group.view().id, Some(4));
}

#[test]
fn who_is_cut_off_backs_off_and_leaves_within_bounds() {
    let mut world = GroupWorld::new();
    world.settle(2);
    world.run(ROUND);
    world.host_mut(2).cut_off = true;
    world.run(ROUND * 2);
    let failures = world.host(2).group.view().failures;
    assert!((5..=40).contains(&failures), "{failures}");
    world.tell(2, Event::Candidates(Vec::new()));
    world.run(ROUND);
    assert!(world.host(2).stopped, "whom the store does not answer is evicted sooner or later");
}

#[test]
fn a_look_is_answered_by_a_beat_that_was_sent_after_it() {
    let mut world = GroupWorld::new();
    world.settle(2);
    world.run(ROUND * 2);
    let shown = world.host(2).shown;
    world.tell(2, Event::Look);
    world.run(Duration::from_millis(6));
    assert_eq!(world.host(2).shown, shown + 1, "at once, not at the next round");
    let shown = world.host(2).shown;
    world.run(ROUND / 2);
    assert_eq!(world.host(2).shown, shown, "and only once");
}

#[test]
fn half_an_hour_of_jitter_evicts_nobody() {
    let mut world = GroupWorld::new();
    world.settle(50);
    world.crown(1, 1);
    let mut seed = 11u64;
    while world.now < Instant::ZERO + MINUTE * 30 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let process = u128::from(seed >> 33) % 50 + 1;
        let late = Duration::from_millis((seed >> 20) % 1_500);
        let until = world.now + late;
        let host = world.host_mut(process);
        host.stopped_until = until;
        host.latency = Duration::from_millis((seed >> 40) % 300);
        world.run(Duration::from_millis(200));
    }
    assert_eq!(world.registers.processes().len(), 50);
    assert_eq!(world.registers.vars().max_id, 50, "nobody had to join again");
}

#[test]
fn what_could_not_be_published_is_published_later() {
    let mut world = GroupWorld::new();
    world.settle(3);
    world.run(ROUND * 2);
    world.host_mut(3).cut_off = true;
    world.tell(3, Event::Candidates(vec![candidacy(3, 0, Some(Rank::new(&[-1]).expect("short")))]));
    world.run(ROUND / 2);
    world.host_mut(3).cut_off = false;
    world.run(ROUND * 2);
    assert_eq!(world.ahead(3), Some(0));
    assert_eq!(world.ahead(1), Some(1));
}

#[test]
fn siblings_of_a_leader_see_the_record_and_its_surveys_go_on() {
    let mut world = GroupWorld::new();
    world.enter(1, 2, Rank::default(), FailBack::Never);
    world.enter(2, 1, Rank::default(), FailBack::Never);
    world.run(ROUND);
    world.crown(1, 1);
    world.run(ROUND * 2);
    world.kill(2);
    for _ in 0..20 {
        let shown = world.host(1).shown;
        world.tell(1, Event::Look);
        world.run(ROUND / 4);
        assert!(world.host(1).shown > shown);
    }
    assert_eq!(world.registers.processes(), [1], "looks are no reason to forget the dead");
}

#[test]
fn a_leader_whose_candidate_is_gone_surveys_no_more() {
    let mut world = GroupWorld::new();
    world.enter(1, 2, Rank::default(), FailBack::Never);
    world.run(ROUND);
    world.crown(1, 1);
    world.run(ROUND * 2);
    world.tell(1, Event::Candidates(vec![candidacy(1, 1, Some(Rank::default()))]));
    let beats = world.beats;
    world.run(ROUND * 4);
    assert!(world.beats >= beats + 3, "its sibling is shown the record");
}

#[test]
fn after_the_store_was_away_nobody_is_evicted_for_it() {
    let mut world = GroupWorld::new();
    world.settle(20);
    world.crown(1, 1);
    world.run(MINUTE);
    (1..=20).for_each(|process| world.host_mut(process).cut_off = true);
    world.run(MINUTE / 2);
    (1..=20).for_each(|process| world.host_mut(process).cut_off = false);
    world.run(MINUTE);
    assert_eq!(world.registers.vars().max_id, 20, "nobody had to join again");
}

#[test]
fn a_late_no_to_the_survey_of_a_former_lead_does_not_end_the_present_one() {
    let mut world = GroupWorld::new();
    world.settle(6);
    world.host_mut(1).latency = ROUND / 4;
    world.crown(1, 1);
    world.run(ROUND / 8);
    // The scan with token 1 is under way, and will be told that somebody else leads.
    world.crown(1, 2);
    world.run(ROUND);
    world.kill(5);
    world.run(rounds().patience(ROUND) + ROUND * 3);
    assert!(!world.registers.processes().contains(&5), "nobody surveys");
}

/// Ten others stand in line, ask for nothing and beat; a hundred candidates ask in vain.
#[test]
fn a_crew_in_reserve_that_asks_in_vain_beats_once_a_round() {
    let mut world = GroupWorld::new();
    world.settle(10);
    let mut crew = Crew::aboard(world, 11, 100);
    crew.run(ROUND * 2);
    let (shown, asked) = (crew.shown, crew.asked);
    crew.run(ROUND * 30);
    let (shown, asked) = (crew.shown - shown, crew.asked - asked);
    assert!(asked >= 100, "{asked}: nobody asks");
    assert!((29..=32).contains(&shown), "{shown} beats in 30 rounds");
}
