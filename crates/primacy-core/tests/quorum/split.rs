//! Claims of different candidates in one term, and claims that failed.

use super::*;

/// `a` leads in term 1 by two voters, and has renewed; then an operator wants another leader; and the third voter has supported
/// `b` in that term, which had seen that order and has taken its claim back.
fn split_in_one_term() -> Peers {
    let mut peers = Peers::new();
    let (term, now) = (Token::new(1).expect("small"), peers.now);
    let claim = |name: &str, seen| Ask::Claim { term, holder: holder(name), lease: LEASE, seen, granted: None };
    let renewal = Ask::Renew { term, id: holder("a").id, beat: 5, lease: LEASE, completed_order: 0 };
    let [first, second, third] = [1, 2, 3].map(VoterId::from_bits);
    for voter in [first, second] {
        for ask in [claim("a", OrderNumbers::default()), renewal.clone()] {
            assert!(peers.voters.get_mut(&voter).expect("a voter").handle(&ask, now).answer.accepted);
        }
    }
    peers.order(Some(HandoverRequest::NewElection), false);
    let seen = peers.voters[&third].durable().orders.counts();
    let back = Ask::Release { term, id: holder("b").id, beat: 0, completed_order: 0 };
    for ask in [claim("b", seen), back] {
        assert!(peers.voters.get_mut(&third).expect("a voter").handle(&ask, now).answer.accepted);
    }
    peers
}

#[test]
fn a_claim_of_anothers_term_that_was_taken_back_is_no_release_and_makes_no_order_come_true() {
    let mut peers = split_in_one_term();
    let record = peers.look(&mut QuorumClient::new(voter_set())).record.expect("granted");
    assert!(record.is_held_by(holder("a").id), "{record:?}");
    assert_eq!(record.handover, Some(HandoverRequest::NewElection), "its leader has not seen that");
}

#[test]
fn a_look_that_hears_a_voter_of_anothers_claim_waits_for_the_beat_that_the_others_know() {
    let peers = split_in_one_term();
    let mut client = QuorumClient::new(voter_set());
    let mut out = Vec::new();
    client.begin(Request::Look { announce: None }, &mut out);
    out.clear();
    for voter in [1, 3, 2].map(VoterId::from_bits) {
        assert!(out.is_empty(), "a majority that cannot know is not enough: {out:?}");
        let answer = peers.voters[&voter].clone().handle(&Ask::Read, peers.now).answer;
        client.answered(voter, client.round(), answer, &mut out);
    }
    let [Output::Done(Ok(Reply::Seen(sighting)))] = &out[..] else { panic!("{out:?}") };
    assert_eq!(sighting.record.as_ref().map(|record| record.version), Some(version(1, 5)));
}

/// The time-out of a call is shorter than a long lease's moment, and a client that has just started would never hear of
/// anything.
#[test]
fn a_first_look_waits_for_the_silent_no_longer_than_fits_the_lease_that_the_others_tell_of() {
    let (term, now) = (Token::new(3).expect("small"), Peers::new().now);
    let fresh = |durable| Voter::restarted(durable, 0, now);
    let claim = |lease| Ask::Claim { term, holder: holder("a"), lease, seen: OrderNumbers::default(), granted: None };
    let supporting = |millis| {
        let mut voter = fresh(Durable::default());
        assert!(voter.handle(&claim(Duration::from_millis(millis)), now).answer.accepted);
        voter
    };
    // Who was told of a term and of nobody who led in it knows of no lease.
    let heir = fresh(Durable { highest: term, term, ..Durable::default() });
    for (told, moment) in [(supporting(100), 5), (supporting(300), 15), (supporting(10_000), 20), (heir, 5)] {
        let [first, second, _] = [1, 2, 3].map(VoterId::from_bits);
        let (mut client, mut pace, mut out) = (QuorumClient::new(voter_set()), Pace::default(), Vec::new());
        client.begin(Request::Look { announce: None }, &mut out);
        pace.due(&client, now);
        out.clear();
        for (voter, mut answering) in [(first, told), (second, fresh(Durable::default()))] {
            client.answered(voter, client.round(), answering.handle(&Ask::Read, now).answer, &mut out);
        }
        assert_eq!(out, [], "the third may know more");
        let due = now + Duration::from_millis(moment);
        assert_eq!(pace.due(&client, now), due);
        pace.act(&mut client, due, &mut out);
        let [Output::Done(Ok(Reply::Seen(_)))] = &out[..] else { panic!("{out:?}") };
    }
}

#[test]
fn what_takes_a_claim_back_is_sent_again_if_the_call_has_failed_and_its_connections_with_it() {
    let (mut peers, mut client) = (Peers::new(), QuorumClient::new(voter_set()));
    let mut out = Vec::new();
    let (holder, floor) = (holder("a"), Token::NONE.into());
    client.begin(Request::Acquire { expect: None, floor, holder, lease: LEASE }, &mut out);
    let claims = peers.deliver(&mut client, out);
    peers.cut(&[2, 3]);
    let failed = peers.deliver(&mut client, claims);
    assert_eq!(failed.last(), Some(&Output::Done(Err(CallError::NotDone))), "and nothing before it leaves");
    let first = VoterId::from_bits(1);
    assert!(peers.voters[&first].bound_until(peers.now).is_some());
    peers.cut(&[]);
    peers.look(&mut client);
    assert_eq!(peers.voters[&first].bound_until(peers.now), None, "free for others");
    let mut again = Vec::new();
    client.begin(Request::Look { announce: None }, &mut again);
    assert_eq!(again.len(), 3, "once is enough");
}

/// `a` leads in a term in which the third voter has supported `b`.
#[test]
fn a_free_voter_that_has_supported_another_in_the_leaders_term_comes_over() {
    let (mut peers, mut a) = (Peers::new(), QuorumClient::new(voter_set()));
    let third = VoterId::from_bits(3);
    let term = Token::new(1).expect("small");
    let claim = Ask::Claim { term, holder: holder("b"), lease: LEASE, seen: OrderNumbers::default(), granted: None };
    let back = Ask::Release { term, id: holder("b").id, beat: 0, completed_order: 0 };
    let mut out = Vec::new();
    a.begin(Request::Acquire { expect: None, floor: Token::NONE.into(), holder: holder("a"), lease: LEASE }, &mut out);
    let claims = peers.deliver(&mut a, out);
    let now = peers.now;
    let of = |peers: &mut Peers, ask: &Ask| peers.voters.get_mut(&third).expect("it").handle(ask, now).answer.accepted;
    assert!(of(&mut peers, &claim));
    let granted = peers.deliver(&mut a, claims);
    let Some(Output::Done(Ok(Reply::Applied(first)))) = granted.first() else { panic!("{granted:?}") };

    peers.cut(&[1]);
    let failed = peers.renew(&mut a, "a", first.version);
    assert_eq!(failed, Err(CallError::Unknown), "while it is bound to `b` it stays");
    assert!(of(&mut peers, &back));
    assert_eq!(applied(peers.renew(&mut a, "a", first.version)).version, version(1, 3));

    // What `b` has sent comes again, late.
    assert!(!of(&mut peers, &claim) && !of(&mut peers, &back));
    assert!(peers.voters[&third].bound_until(now).is_some());
    assert_eq!(peers.voters[&third].durable().holder, Some(holder("a")));
}

#[test]
fn what_voters_have_inherited_without_its_holder_can_be_let_go_by_whoever_held_it() {
    let (mut peers, mut a) = (Peers::new(), QuorumClient::new(voter_set()));
    let granted = applied(peers.ask(&mut a, "a"));
    for voter in peers.voters.values_mut() {
        let durable = Durable { holder: None, ..voter.durable().clone() };
        *voter = Voter::restarted(durable, 0, peers.now);
    }
    let shown = peers.look(&mut a).record.expect("it was shown before");
    assert!(shown.is_held_by(holder("a").id), "as far as it knows");
    let (id, version, reason) = (holder("a").id, granted.version, EndReason::Died);
    let left = conflict(peers.call(&mut a, Request::Release { id, version, reason }));
    assert_eq!(left.record.map(|record| (record.version.token, record.holder)), Some((granted.version.token, None)));
    assert_eq!(peers.look(&mut a).record.and_then(|record| record.holder), None);
    let again = applied(peers.ask(&mut a, "a"));
    assert!(again.version.token > granted.version.token);
}

/// Voters that were exchanged know nobody in its term any more, and one of them is gone.
#[test]
fn a_release_that_was_refused_is_settled_by_a_majority_and_not_by_the_first_answer() {
    let (mut peers, mut a) = (Peers::new(), QuorumClient::new(voter_set()));
    let version = applied(peers.ask(&mut a, "a")).version;
    for voter in 1..=3 {
        let heir = Durable { highest: version.token, term: version.token, ..Durable::default() };
        peers.voters.insert(VoterId::from_bits(voter), Voter::restarted(heir, 0, peers.now));
    }
    let mut out = Vec::new();
    a.begin(Request::Release { id: holder("a").id, version, reason: EndReason::Finished }, &mut out);
    let third = out.pop().expect("one for each");
    let second = out.pop().expect("one for each");
    assert_eq!(peers.deliver(&mut a, out), []);
    let mut done = Vec::new();
    a.unheard(VoterId::from_bits(3), a.round(), &mut done);
    assert_eq!((done, matches!(third, Output::Send { .. })), (vec![], true), "the second may tell more");
    let done = peers.deliver(&mut a, vec![second]);
    assert!(matches!(&done[..], [Output::Done(Ok(Reply::Conflict(_)))]), "nothing is left to release: {done:?}");
}

/// `a` leads by the first two voters; `b` has claimed a term beyond at the third, and got no majority.
fn claimed_beyond() -> (Peers, QuorumClient, Record, Ask) {
    let mut peers = Peers::new();
    let mut a = QuorumClient::new(voter_set());
    peers.cut(&[3]);
    let led = applied(peers.ask(&mut a, "a"));
    let term = led.version.token.next(0);
    let claim = Ask::Claim { term, holder: holder("b"), lease: LEASE, seen: OrderNumbers::default(), granted: None };
    assert!(peers.voters.get_mut(&VoterId::from_bits(3)).expect("a voter").handle(&claim, peers.now).answer.accepted);
    peers.cut(&[]);
    (peers, a, led, claim)
}

#[test]
fn a_voter_comes_back_from_a_claim_in_vain_once_it_is_bound_to_nobody() {
    let (mut peers, mut a, led, claim) = claimed_beyond();
    let third = VoterId::from_bits(3);
    peers.pass(LEASE / 2);
    let led = applied(peers.renew(&mut a, "a", led.version));
    assert_eq!(peers.voters[&third].durable().support().1, Some(holder("b").id), "it is bound");
    peers.pass(LEASE / 2);
    let led = applied(peers.renew(&mut a, "a", led.version));
    let durable = peers.voters[&third].durable().clone();
    assert_eq!((durable.term, durable.highest), (led.version.token, led.version.token.next(0)));
    assert_eq!(durable.holder, Some(holder("a")));
    // So it can do without another one, and what was claimed in vain is not granted any more.
    peers.cut(&[1]);
    peers.pass(LEASE / 2);
    let led = applied(peers.renew(&mut a, "a", led.version));
    peers.cut(&[]);
    peers.pass(LEASE * 2);
    assert!(!peers.voters.get_mut(&third).expect("a voter").handle(&claim, peers.now).answer.accepted);
    peers.cut(&[1]);
    let next = applied(peers.ask(&mut QuorumClient::new(voter_set()), "c"));
    assert_eq!(next.version.token, led.version.token.next(0).next(0), "above what was claimed in vain");
}

#[test]
fn a_late_word_of_a_former_leader_brings_back_no_voter_that_knows_better() {
    let (mut peers, _, led, _) = claimed_beyond();
    let (third, term) = (VoterId::from_bits(3), led.version.token.next(0));
    let late = |peers: &mut Peers| {
        let granted = Some(GrantProgress { beat: 7, completed_order: 0 });
        let (term, seen) = (led.version.token, OrderNumbers::default());
        let ask = Ask::Claim { term, holder: holder("a"), lease: LEASE, seen, granted };
        peers.voters.get_mut(&third).expect("a voter").handle(&ask, peers.now).answer.accepted
    };
    // The other was granted its term: it has renewed it, or given it back.
    let renewal = Ask::Renew { term, id: holder("b").id, beat: 2, lease: LEASE, completed_order: 0 };
    assert!(peers.voters.get_mut(&third).expect("a voter").handle(&renewal, peers.now).answer.accepted);
    peers.pass(LEASE);
    assert!(!late(&mut peers));
    let release = Ask::Release { term, id: holder("b").id, beat: 3, completed_order: 0 };
    assert!(peers.voters.get_mut(&third).expect("a voter").handle(&release, peers.now).answer.accepted);
    peers.restart(3);
    assert!(!late(&mut peers), "a release is on its disk");
}
