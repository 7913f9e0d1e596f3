//! What operators had done before an exchange of voters: who was deposed leads no more, and what was forgotten stays so.

use super::*;

/// The first of three voters is lost, and a fourth votes in its place.
fn replace_the_first(peers: &mut Peers) {
    peers.cut = ids(&[1]);
    let current = peers.known(2).clone();
    let mut change = ReconfigurationAttempt::new(current.clone(), current.joint(ids(&[2, 3, 4])).ok(), 7);
    assert_eq!(peers.go_on(&mut change), settled(2, &[2, 3, 4]));
}

/// `depose --now` has reached a majority of the five voters that support `a`, and is done.
fn deposed_peers() -> (Peers, QuorumClient, Record) {
    let mut peers = Peers::new(&[1, 2, 3, 4, 5]);
    let mut a = client(&[1, 2, 3, 4, 5]);
    let mut led = peers.lead(&mut a, "a");
    led = peers.renew(&mut a, "a", &led);
    let term = led.version.token;
    for voter in [1, 2, 3] {
        assert!(peers.vote(voter, &Ask::Release { term, id: holder("a").id, beat: 9, completed_order: 0 }));
    }
    (peers, a, led)
}

#[test]
fn a_deposed_leader_finds_no_quorum_after_an_exchange() {
    let (mut peers, mut a, led) = deposed_peers();
    assert_eq!(peers.change(&[3, 4, 5], 7).1, settled(2, &[3, 4, 5]));
    let request = Request::Renew { id: holder("a").id, version: led.version, lease: LEASE, completed_order: None };
    let said = peers.call(&mut a, request);
    assert!(!matches!(said, Ok(Reply::Applied(_))), "{said:?}");
}

#[test]
fn a_deposed_leader_finds_no_quorum_after_an_exchange_when_another_has_led_since() {
    let (mut peers, mut a, led) = deposed_peers();
    let term = led.version.token.next(0);
    let short = LEASE / 10;
    for voter in [1, 2, 3] {
        let ask = Ask::Claim { term, holder: holder("c"), lease: short, seen: OrderNumbers::default(), granted: None };
        assert!(peers.vote(voter, &ask), "c is granted the next term");
    }
    peers.now = peers.now + short;
    let said = peers.change(&[3, 4, 5], 7).1;
    let request = Request::Renew { id: holder("a").id, version: led.version, lease: LEASE, completed_order: None };
    let renewed = peers.call(&mut a, request);
    assert!(!matches!(renewed, Ok(Reply::Applied(_))), "{said:?} {renewed:?}");
}

#[test]
fn what_was_forgotten_stays_so_after_an_exchange() {
    let mut peers = Peers::new(&[1, 2, 3]);
    let mut a = client(&[1, 2, 3]);
    let mut led = peers.lead(&mut a, "a");
    led = peers.renew(&mut a, "a", &led);
    peers.now = peers.now + LEASE;
    let term = led.version.token.next(0);
    for voter in [1, 2] {
        assert!(peers.vote(voter, &Ask::Forget { term }));
    }
    replace_the_first(&mut peers);
    for silent in [1, 2] {
        peers.cut = ids(&[1, silent]);
        let mut observer = client(&[2, 3, 4]);
        let Ok(Reply::Seen(seen)) = peers.call(&mut observer, Request::Look { announce: None }) else {
            panic!("a majority answers")
        };
        assert_eq!((seen.record, seen.remembered), (None, term), "without {silent}");
    }
}

/// The voter that stays is bound by a late renewal of the leader that is gone, and could not take over that it was forgotten.
#[test]
fn what_was_forgotten_stays_so_if_who_stays_was_bound() {
    let mut peers = Peers::new(&[1, 2, 3]);
    let mut a = client(&[1, 2, 3]);
    let led = peers.lead(&mut a, "a");
    pause(&mut peers, &led);
    peers.now = peers.now + LEASE / 2;
    let (term, id) = (led.version.token, holder("a").id);
    assert!(peers.vote(3, &Ask::Renew { term, id, beat: 2, lease: LEASE, completed_order: 0 }));
    peers.now = peers.now + LEASE / 2;
    for voter in [1, 2] {
        assert!(peers.vote(voter, &Ask::Forget { term: term.next(0) }));
    }
    let (mut change, said) = peers.change(&[3], 7);
    assert_eq!(said, ReconfigurationOutput::Wait(LEASE / 2));
    peers.now = peers.now + LEASE / 2;
    assert_eq!(peers.go_on(&mut change), settled(2, &[3]));
    let Ok(Reply::Seen(seen)) = peers.call(&mut client(&[3]), Request::Look { announce: None }) else {
        panic!("a majority answers")
    };
    assert_eq!((seen.record, seen.remembered), (None, term.next(0)));
}

/// The only voter that comes is bound by a word of the leader that is gone, which was sent in the joint phase.
#[test]
fn what_was_forgotten_stays_so_if_who_comes_was_bound() {
    let mut peers = Peers::new(&[1, 2, 3]);
    let mut a = client(&[1, 2, 3]);
    let led = peers.lead(&mut a, "a");
    pause(&mut peers, &led);
    peers.now = peers.now + LEASE;
    let term = led.version.token;
    for voter in [1, 2] {
        assert!(peers.vote(voter, &Ask::Forget { term: term.next(0) }));
    }
    let late = Ask::Claim {
        term,
        holder: holder("a"),
        lease: LEASE,
        seen: OrderNumbers::default(),
        granted: Some(GrantProgress { beat: 2, completed_order: 0 }),
    };
    assert!(peers.vote(4, &late));
    let (mut change, said) = peers.change(&[4], 7);
    assert_eq!(said, ReconfigurationOutput::Wait(LEASE));
    peers.now = peers.now + LEASE / 2;
    assert!(!peers.vote(4, &Ask::Renew { term, id: holder("a").id, beat: 3, lease: LEASE, completed_order: 0 }));
    assert_eq!(peers.go_on(&mut change), ReconfigurationOutput::Wait(LEASE / 2));
    peers.now = peers.now + LEASE / 2;
    assert_eq!(peers.go_on(&mut change), settled(2, &[4]));
    let Ok(Reply::Seen(seen)) = peers.call(&mut client(&[4]), Request::Look { announce: None }) else {
        panic!("a majority answers")
    };
    assert_eq!((seen.record, seen.remembered), (None, term.next(0)));
}

#[test]
fn a_pause_from_before_it_was_forgotten_stays_gone() {
    let mut peers = Peers::new(&[1, 2, 3]);
    let mut a = client(&[1, 2, 3]);
    let led = peers.lead(&mut a, "a");
    pause(&mut peers, &led);
    peers.now = peers.now + LEASE;
    let term = led.version.token.next(0);
    for voter in [1, 2] {
        assert!(peers.vote(voter, &Ask::Forget { term }));
    }
    let Ok(Reply::Seen(before)) = peers.call(&mut client(&[1, 2, 3]), Request::Look { announce: None }) else {
        panic!("a majority answers")
    };
    replace_the_first(&mut peers);
    peers.cut = ids(&[1, 2]);
    let Ok(Reply::Seen(seen)) = peers.call(&mut client(&[2, 3, 4]), Request::Look { announce: None }) else {
        panic!("a majority answers")
    };
    assert_eq!(before.record.map(|record| record.paused), None);
    assert_eq!(seen.record, None, "the pause is back");
}

/// `forget` and a claim cross in one term: the claim is granted, `forget` is refused, and one voter has forgotten.
#[test]
fn a_voter_that_forgot_in_vain_comes_back_like_others() {
    let mut peers = Peers::new(&[1, 2, 3]);
    let mut a = client(&[1, 2, 3]);
    let term = Token::NONE.next(0);
    assert!(peers.vote(1, &Ask::Forget { term }));
    peers.cut = ids(&[1]);
    let mut led = peers.lead(&mut a, "a");
    assert_eq!(led.version.token, term);
    peers.cut.clear();
    led = peers.renew(&mut a, "a", &led);
    assert_eq!(peers.post(VoterId::from_bits(1)).voter.durable().support(), (term, Some(holder("a").id)));
    // The first is cut off from the leader; a rival claims there in vain.
    peers.cut = ids(&[1]);
    for _ in 0..2 {
        peers.now = peers.now + LEASE / 2;
        led = peers.renew(&mut a, "a", &led);
    }
    assert!(peers.vote(1, &claim("b", term.next(0))));
    for _ in 0..2 {
        peers.now = peers.now + LEASE / 2;
        led = peers.renew(&mut a, "a", &led);
    }
    peers.cut.clear();
    peers.renew(&mut a, "a", &led);
    assert_eq!(peers.post(VoterId::from_bits(1)).voter.durable().support(), (term, Some(holder("a").id)));
}
