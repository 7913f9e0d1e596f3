//! When a voter asks, and how the pauses grow.

use super::*;

fn voter(n: u128) -> VoterId {
    VoterId::from_bits(n)
}

fn voters() -> VoterSet {
    VoterSet::new((1..=3).map(voter).collect()).expect("there are some")
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// These know of no later voters.
fn no_more(who: &[u128]) -> BTreeMap<VoterId, ConfigEvidence<VoterSet>> {
    who.iter().map(|n| (voter(*n), ConfigEvidence::default())).collect()
}

fn later(who: u128) -> BTreeMap<VoterId, ConfigEvidence<VoterSet>> {
    let joint = voters().joint([voter(4)].into()).expect("it is not joint");
    [(voter(who), ConfigEvidence { adopted: [joint].into(), taken: None })].into()
}

/// Asks at once, and hears that.
fn ask(inquiry: &mut Inquiry, now: Instant, said: &BTreeMap<VoterId, ConfigEvidence<VoterSet>>) -> bool {
    inquiry.begin(&voters());
    let may_prove = inquiry.heard(said);
    inquiry.over(&voters(), false, now);
    may_prove
}

#[test]
fn it_asks_at_once_and_again_until_a_majority_knows_of_no_later_voters() {
    let mut inquiry = Inquiry::new(voter(1));
    assert_eq!(inquiry.next(&voters()), Some(at(0)));
    assert!(!ask(&mut inquiry, at(10), &no_more(&[])));
    assert_eq!(inquiry.next(&voters()), Some(at(210)));
    assert!(ask(&mut inquiry, at(220), &later(2)), "what one says may be proven by others");
    assert_eq!(inquiry.next(&voters()), Some(at(420)), "it knows of later ones, and is not counted");
    assert!(!ask(&mut inquiry, at(420), &no_more(&[3])));
    assert_eq!(inquiry.next(&voters()), None, "a majority with its own disk");
}

#[test]
fn a_majority_that_is_not_there_is_asked_for_more_rarely_after_some_time() {
    let mut inquiry = Inquiry::new(voter(1));
    for turn in 1..=26 {
        ask(&mut inquiry, at(0), &no_more(&[]));
        let pause = if turn <= 25 { 200 } else { 1_000 };
        assert_eq!(inquiry.next(&voters()), Some(at(pause)), "{turn}");
    }
}

#[test]
fn a_word_that_was_in_vain_makes_the_next_one_wait_for_longer() {
    let mut inquiry = Inquiry::new(voter(1));
    ask(&mut inquiry, at(0), &no_more(&[2]));
    let mut pauses = [0; 7];
    for pause in &mut pauses {
        inquiry.told();
        ask(&mut inquiry, at(0), &no_more(&[2, 3]));
        assert_eq!(inquiry.next(&voters()), None, "it was told once");
        inquiry.told();
        *pause = inquiry.next(&voters()).expect("it was told").since(Instant::ZERO).as_millis();
    }
    assert_eq!(pauses, [400, 800, 1_600, 3_200, 6_400, 8_000, 8_000]);
}

#[test]
fn who_was_heard_of_the_voters_before_is_asked_again_when_it_has_gone_on() {
    let mut inquiry = Inquiry::new(voter(1));
    ask(&mut inquiry, at(0), &no_more(&[2]));
    inquiry.told();
    inquiry.begin(&voters());
    inquiry.heard(&later(3));
    inquiry.over(&voters(), true, at(500));
    assert_eq!(inquiry.next(&voters()), Some(at(500)));
    ask(&mut inquiry, at(500), &no_more(&[]));
    assert_eq!(inquiry.next(&voters()), Some(at(700)), "the pause is short again");
}
