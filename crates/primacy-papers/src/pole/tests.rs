//! Both machines, event by event.

use std::time::Duration;

use super::*;
use primacy_core::Instant;
use primacy_core::contest::{Contest, Context, Effect, Event, PeerId};
use primacy_core::select::{FailBack, Rank, Score};

const A: PeerId = PeerId(1);
const B: PeerId = PeerId(2);
const C: PeerId = PeerId(3);
const ALL: [PeerId; 3] = [A, B, C];

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn step<C: Contest>(contest: &mut C, millis: u64, event: Event<C::Message>) -> Vec<Effect<C::Message>> {
    let mut effects = Vec::new();
    contest.handle(event, &mut Context { now: at(millis), entropy: &mut || 0, effects: &mut effects });
    effects
}

fn heard<M>(from: PeerId, message: M) -> Event<M> {
    Event::Heard { from, message }
}

fn named<M>(effects: &[Effect<M>]) -> Vec<PeerId> {
    let name = |effect: &Effect<M>| match effect {
        Effect::Nominate(peer) => Some(*peer),
        Effect::Send { .. } => None,
    };
    effects.iter().filter_map(name).collect()
}

mod as_published {
    use super::*;

    fn peer(me: PeerId, score: i32) -> Published<Option<Score>> {
        Published::new(me, ALL, PUBLISHED_WAIT, Some(Score::from(score)))
    }

    fn propose(epoch: u64, peer: PeerId, score: i32) -> PublishedMessage {
        let proposal = Proposal { score: Some(Score::from(score)), peer };
        PublishedMessage::Propose { epoch, proposal }
    }

    #[test]
    fn a_quorum_starts_the_timer_and_all_proposals_end_it_at_once() {
        let mut b = peer(B, 2);
        assert_eq!(step(&mut b, 0, Event::Vacant).len(), 2, "line 13");
        assert_eq!(step(&mut b, 10, heard(A, propose(1, A, 1))).len(), 1, "line 38: the lesser one is told");
        assert!(named(&step(&mut b, 100, Event::Wake)).is_empty());
        let told = step(&mut b, 150, heard(C, propose(1, C, 3)));
        assert_eq!(told.len(), 2, "line 42: the better proposal goes to all");
        assert_eq!(b.deadline(), Some(at(150)), "line 30");
        assert_eq!(named(&step(&mut b, 150, Event::Wake)), [C]);
        let mut alone = peer(B, 2);
        step(&mut alone, 0, Event::Vacant);
        step(&mut alone, 10, heard(A, propose(1, A, 1)));
        step(&mut alone, 200, Event::Wake);
        assert_eq!(alone.deadline(), Some(at(210)));
        assert_eq!(named(&step(&mut alone, 210, Event::Wake)), [B], "line 50");
    }

    #[test]
    fn equal_scores_are_decided_by_id_and_a_later_epoch_before_any_score() {
        let mut b = peer(B, 5);
        step(&mut b, 0, Event::Vacant);
        step(&mut b, 1, heard(C, propose(1, C, 5)));
        step(&mut b, 2, heard(A, propose(1, A, 5)));
        assert_eq!(named(&step(&mut b, 2, Event::Wake)), [C]);
        let mut b = peer(B, 5);
        step(&mut b, 0, Event::Vacant);
        let joined = step(&mut b, 1, heard(A, propose(4, A, 1)));
        assert_eq!(b.epoch(), 4);
        assert!(joined.contains(&Effect::Send { to: A, message: propose(4, B, 5) }), "line 45: its own score again");
    }

    #[test]
    fn proposals_are_repeated_ever_more_rarely() {
        let mut a = peer(A, 1);
        step(&mut a, 0, Event::Vacant);
        for due in [200, 600, 1_400, 3_000, 6_200] {
            assert_eq!(a.deadline(), Some(at(due)));
            assert_eq!(step(&mut a, due, Event::Wake).len(), 2);
        }
    }

    #[test]
    fn a_late_starter_follows_a_quorum_of_votes_with_the_leaders_own() {
        let mut c = peer(C, 9);
        let vote = |epoch, leader| PublishedMessage::Vote { epoch, leader };
        let mut a = peer(A, 1);
        step(&mut a, 0, Event::Led(A));
        let answer = step(&mut a, 0, heard(C, propose(1, C, 9)));
        assert_eq!(answer, [Effect::Send { to: C, message: vote(0, A) }], "line 35");
        step(&mut c, 0, Event::Vacant);
        assert!(named(&step(&mut c, 1, heard(A, vote(7, A)))).is_empty(), "one is no quorum of three");
        assert_eq!(named(&step(&mut c, 2, heard(B, vote(7, A)))), [A]);
        assert_eq!((c.epoch(), c.leader(), c.deadline()), (7, Some(A), None));
        let mut c = peer(C, 9);
        step(&mut c, 0, Event::Vacant);
        step(&mut c, 1, heard(A, vote(7, B)));
        assert!(named(&step(&mut c, 2, heard(A, vote(7, B)))).is_empty(), "line 60: nothing from B itself");
    }
}

mod as_repaired {
    use super::*;

    fn settings() -> PoleSettings {
        PoleSettings { fail_back: FailBack::After(Duration::from_secs(2)), ..PoleSettings::default() }
    }

    fn rank(place: i32) -> Option<Rank> {
        Some(Rank::new(&[place]).expect("one element"))
    }

    fn stands(place: i32) -> Standing {
        Standing { term: 0, in_contact: true, rank: rank(place), hears_you: true, leader: None }
    }

    fn leads(peer: PeerId, term: u64, place: i32) -> Standing {
        Standing { term, leader: Some(Lead { peer, term }), ..stands(place) }
    }

    /// One of three, in contact with both, which are of rank 1 and 3; C leads since `millis`.
    fn follower(millis: u64) -> Pole {
        let mut b = Pole::new(B, ALL, settings(), DurableTerm::default());
        b.set_rank(rank(2));
        step(&mut b, millis, heard(A, Standing { leader: Some(Lead { peer: C, term: 4 }), ..stands(1) }));
        step(&mut b, millis, heard(C, leads(C, 4, 3)));
        step(&mut b, millis, Event::Led(C));
        b
    }

    #[test]
    fn the_first_in_line_is_named_at_once_and_the_next_after_a_slot() {
        let mut b = follower(0);
        let effects = step(&mut b, 100, Event::Vacant);
        assert_eq!(effects, [Effect::Nominate(A)], "and nobody has to be asked");
        assert_eq!(b.deadline(), Some(at(150)));
        assert_eq!(named(&step(&mut b, 150, Event::Wake)), [B]);
        assert_eq!(b.kept(), DurableTerm { term: 5 }, "above the leader's");
        assert_eq!(named(&step(&mut b, 200, Event::Wake)), [A], "all were tried: from the front, in longer slots");
        assert_eq!(b.deadline(), Some(at(300)));
    }

    #[test]
    fn who_was_named_and_says_that_it_leads_is_not_passed_over() {
        let mut b = Pole::new(B, (1..=5).map(PeerId), settings(), DurableTerm::default());
        b.set_rank(rank(2));
        for (other, place) in [(A, 1), (C, 0), (PeerId(4), 4), (PeerId(5), 5)] {
            step(&mut b, 0, heard(other, stands(place)));
        }
        step(&mut b, 0, Event::Led(C));
        assert_eq!(named(&step(&mut b, 100, Event::Vacant)), [A]);
        assert!(named(&step(&mut b, 101, heard(A, leads(A, 5, 1)))).is_empty(), "it has what it was named for");
        assert_eq!(named(&step(&mut b, 150, Event::Wake)), [B], "but no grant was heard of within its slot");
    }

    #[test]
    fn the_lost_leader_is_no_contender_until_it_says_that_it_leads_no_more() {
        let mut b = Pole::new(B, ALL, settings(), DurableTerm::default());
        b.set_rank(rank(2));
        step(&mut b, 0, heard(A, stands(1)));
        step(&mut b, 0, heard(C, stands(0)));
        step(&mut b, 0, Event::Led(C));
        assert_eq!(named(&step(&mut b, 100, Event::Vacant)), [A], "although C is better and was just heard");
        step(&mut b, 110, heard(C, stands(0)));
        assert_eq!(named(&step(&mut b, 150, Event::Wake)), [C], "it lives");
    }

    #[test]
    fn who_was_refused_is_passed_over_for_ever_longer() {
        let mut b = follower(0);
        step(&mut b, 100, Event::Vacant);
        assert_eq!(named(&step(&mut b, 120, Event::Refused(A))), [B], "without waiting for the slot");
        let effects = step(&mut b, 124, Event::Refused(B));
        let gives_up = Effect::Send { to: A, message: Standing { rank: None, leader: None, term: 5, ..stands(0) } };
        assert!(effects.contains(&gives_up), "it says so: {effects:?}");
        assert!(named(&effects).is_empty(), "both are excluded");
        assert_eq!(named(&step(&mut b, 125, Event::Wake)), [A], "5 ms after it was refused");
    }

    #[test]
    fn without_two_way_contact_with_a_majority_it_does_not_stand() {
        let mut a = Pole::new(A, ALL, settings(), DurableTerm::default());
        a.set_rank(rank(0));
        step(&mut a, 0, heard(B, Standing { hears_you: false, ..stands(2) }));
        step(&mut a, 0, heard(C, Standing { hears_you: false, ..stands(3) }));
        assert_eq!(named(&step(&mut a, 1, Event::Vacant)), [B], "nobody hears it");
        let told = step(&mut a, 2, heard(B, stands(2)));
        assert!(
            told.iter().any(|effect| matches!(effect, Effect::Send { message: Standing { rank: Some(_), .. }, .. }))
        );
        assert_eq!(named(&step(&mut a, 51, Event::Wake)), [A]);
        let mut stale = follower(0);
        step(&mut stale, 4_000, Event::Vacant);
        assert!(named(&step(&mut stale, 5_000, Event::Wake)).is_empty(), "all that it knows is too old");
    }

    #[test]
    fn peers_that_were_never_heard_of_are_waited_for_and_dead_ones_are_not() {
        let start = || {
            let mut b = Pole::new(B, ALL, settings(), DurableTerm::default());
            b.set_rank(rank(2));
            step(&mut b, 0, Event::Vacant);
            (named(&step(&mut b, 1, heard(C, stands(3)))), b)
        };
        let (names, mut b) = start();
        assert!(names.is_empty() && b.deadline() == Some(at(200)));
        assert_eq!(named(&step(&mut b, 200, Event::Wake)), [B]);
        let (_, mut b) = start();
        assert_eq!(named(&step(&mut b, 2, heard(A, stands(1)))), [A]);
        let (_, mut b) = start();
        assert_eq!(named(&step(&mut b, 2, Event::Down(A))), [B]);
        let (_, mut b) = start();
        let joining = Standing { in_contact: false, rank: None, ..stands(1) };
        assert!(named(&step(&mut b, 2, heard(A, joining))).is_empty(), "it may be in contact soon");
        assert_eq!(named(&step(&mut b, 3, heard(A, stands(1)))), [A]);
        let mut b = follower(0);
        step(&mut b, 900, heard(A, joining));
        assert_eq!(named(&step(&mut b, 901, Event::Vacant)), [B], "it was, and is no more");
    }

    #[test]
    fn a_late_starter_names_the_leader_that_a_majority_and_the_leader_tell_of() {
        let mut b = Pole::new(B, ALL, settings(), DurableTerm { term: 9 });
        b.set_rank(rank(0));
        step(&mut b, 0, Event::Vacant);
        assert_eq!(named(&step(&mut b, 1, heard(C, leads(C, 4, 3)))), [C], "its word, and B's own, of three");
        assert_eq!((b.leader(), b.kept()), (Some(C), DurableTerm { term: 9 }));
        let mut b = Pole::new(B, ALL, settings(), DurableTerm::default());
        step(&mut b, 0, Event::Vacant);
        let hearsay = Standing { leader: Some(Lead { peer: C, term: 4 }), ..stands(1) };
        assert_ne!(named(&step(&mut b, 1, heard(A, hearsay))), [C], "nothing from C itself");
    }

    #[test]
    fn a_follower_turns_to_a_leader_of_a_later_term_and_to_no_earlier_one() {
        let mut b = follower(0);
        assert!(named(&step(&mut b, 10, heard(A, leads(A, 3, 1)))).is_empty());
        assert_eq!(named(&step(&mut b, 20, heard(A, leads(A, 6, 1)))), [A]);
        assert_eq!(b.kept(), DurableTerm { term: 6 });
        step(&mut b, 30, Event::Led(B));
        assert!(named(&step(&mut b, 40, heard(A, leads(A, 7, 1)))).is_empty(), "a leader asks its grant alone");
    }

    #[test]
    fn a_leader_names_a_better_one_that_stays_so_and_tells_when_it_has_resigned() {
        let mut b = follower(0);
        step(&mut b, 0, Event::Led(B));
        let mut names = vec![];
        for second in 1..5 {
            step(&mut b, 1_000 * second - 1, heard(A, stands(1)));
            names.push(named(&step(&mut b, 1_000 * second, Event::Wake)));
        }
        assert_eq!(names, [vec![], vec![A], vec![], vec![]], "better since 0 s, and after that not again at once");
        let told = step(&mut b, 4_100, Event::Vacant);
        let farewell =
            |effect: &&Effect<Standing>| matches!(effect, Effect::Send { message, .. } if message.leader.is_none());
        assert_eq!(told.iter().filter(farewell).count(), 2);
        let mut c = follower(0);
        step(&mut c, 10, heard(C, stands(3)));
        assert_eq!(c.leader(), None, "C has led and says that it does not: a vacancy at once");
        step(&mut c, 11, heard(C, leads(C, 4, 3)));
        assert_eq!(c.leader(), Some(C), "it was the older message");
    }

    #[test]
    fn no_term_is_used_twice_over_a_restart() {
        let mut b = follower(0);
        step(&mut b, 100, Event::Vacant);
        step(&mut b, 150, Event::Wake);
        let kept = b.kept();
        let mut again = Pole::new(B, ALL, settings(), kept);
        again.set_rank(rank(0));
        step(&mut again, 0, heard(A, stands(1)));
        step(&mut again, 0, heard(C, stands(3)));
        assert_eq!(named(&step(&mut again, 1, Event::Vacant)), [B]);
        assert!(again.kept() > kept);
    }
}
