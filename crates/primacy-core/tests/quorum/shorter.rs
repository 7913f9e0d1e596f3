//! A lease that becomes shorter under way (HAZARDS P17).

use super::*;

#[test]
fn a_voter_that_restarts_waits_for_the_longest_lease_that_it_has_promised() {
    let (term, now) = (Token::new(1).expect("small"), Instant::ZERO);
    let mut voter = Voter::restarted(Durable::default(), 0, now);
    let claim = |name: &str, term: Token| {
        let (lease, seen) = (LEASE, OrderNumbers::default());
        Ask::Claim { term, holder: holder(name), lease, seen, granted: None }
    };
    assert!(voter.handle(&claim("a", term), now).answer.accepted);
    let shorter = Ask::Renew { term, id: holder("a").id, beat: 2, lease: LEASE / 10, completed_order: 0 };
    assert!(voter.handle(&shorter, now + LEASE / 2).answer.accepted);
    let restarted = now + LEASE * 3 / 4;
    let mut voter = Voter::restarted(voter.durable().clone(), 0, restarted);
    let next = claim("b", term.next(0));
    let last_moment = restarted + (LEASE - Duration::from_millis(1));
    assert!(!voter.handle(&next, last_moment).answer.accepted, "`a` may believe in what it was promised first");
    assert!(voter.handle(&next, restarted + LEASE).answer.accepted);
}
