//! An operator forgets an election: its term stays, and nothing else.

use super::*;

impl Peers {
    fn forget(&mut self) -> Result<Reply, CallError> {
        let mut client = QuorumClient::new(voter_set());
        self.look(&mut client);
        let mut out = Vec::new();
        client.forget(&mut out);
        self.told(&mut client, out)
    }

    fn release(&mut self, client: &mut QuorumClient, name: &str, version: Version) -> Record {
        let request = Request::Release { id: holder(name).id, version, reason: EndReason::Finished };
        applied(self.call(client, request))
    }

    fn ask_above(&mut self, client: &mut QuorumClient, name: &str) -> Result<Reply, CallError> {
        let seen = self.look(client);
        let (expect, floor) = (seen.record.as_ref().map(Record::expectation), seen.remembered.into());
        self.call(client, Request::Acquire { expect, floor, holder: holder(name), lease: LEASE })
    }
}

fn token(number: u64) -> Token {
    Token::new(number).expect("valid")
}

#[test]
fn the_token_goes_on_and_a_leader_from_before_does_not() {
    let mut peers = Peers::new();
    let (mut a, mut b) = (QuorumClient::new(voter_set()), QuorumClient::new(voter_set()));
    let first = applied(peers.ask(&mut a, "a"));
    assert!(matches!(peers.forget(), Ok(Reply::Conflict(_))), "its voters are bound");
    assert_eq!(peers.look(&mut b).record, Some(first.clone()), "nothing was changed");
    peers.pass(LEASE);
    assert!(matches!(peers.forget(), Ok(Reply::Seen(_))));
    let seen = peers.look(&mut b);
    assert_eq!((seen.record, seen.remembered), (None, token(2)));
    // It was paused meanwhile, and goes on.
    assert_eq!(conflict(peers.renew(&mut a, "a", first.version)).record, None);
    assert_eq!(peers.look(&mut b).record, None, "it has not come back");
    let mut blind = QuorumClient::new(voter_set());
    let old = Request::Acquire { expect: None, floor: Token::NONE.into(), holder: holder("c"), lease: LEASE };
    assert_eq!(conflict(peers.call(&mut blind, old)).remembered, token(2), "the absence before is another");
    assert!(matches!(peers.forget(), Ok(Reply::Seen(_))), "twice is once");
    assert_eq!(peers.look(&mut b).remembered, token(2));
    assert_eq!(applied(peers.ask_above(&mut b, "b")).version, version(3, 1));
}

#[test]
fn a_voter_that_missed_it_shows_nothing_of_what_was_before_and_loses_no_token() {
    for missing in 1..=3 {
        let mut peers = Peers::new();
        let (mut a, mut b) = (QuorumClient::new(voter_set()), QuorumClient::new(voter_set()));
        let first = applied(peers.ask(&mut a, "a"));
        let renewed = applied(peers.renew(&mut a, "a", first.version));
        peers.release(&mut a, "a", renewed.version);
        peers.cut(&[missing]);
        assert!(matches!(peers.forget(), Ok(Reply::Seen(_))));
        for other in (1..=3).filter(|other| *other != missing) {
            (1..=3).for_each(|voter| peers.restart(voter));
            peers.cut(&[other]);
            let seen = peers.look(&mut QuorumClient::new(voter_set()));
            assert_eq!((seen.record, seen.remembered), (None, token(2)), "without {other}");
        }
        assert_eq!(applied(peers.ask_above(&mut b, "b")).version, version(3, 1));
    }
}

#[test]
fn a_pause_that_comes_before_it_is_not_lost_and_orders_that_were_missed_do_not_come_back() {
    let mut peers = Peers::new();
    let mut a = QuorumClient::new(voter_set());
    let first = applied(peers.ask(&mut a, "a"));
    peers.release(&mut a, "a", first.version);
    peers.order(None, true);
    assert!(matches!(peers.forget(), Ok(Reply::Seen(_))), "the operator looked before the pause");
    assert!(peers.look(&mut a).record.is_some_and(|record| record.paused && record.version.token == token(2)));
    // One voter has missed that it was ended, and that the election was forgotten then.
    let all: Vec<_> = peers.voters.values().cloned().collect();
    peers.order(Some(HandoverRequest::Successor(holder("x").label)), false);
    assert!(matches!(peers.forget(), Ok(Reply::Seen(_))));
    assert_eq!(peers.look(&mut QuorumClient::new(voter_set())).record, None);
    peers.voters.insert(VoterId::from_bits(1), all[0].clone());
    peers.cut(&[2]);
    assert_eq!(peers.look(&mut QuorumClient::new(voter_set())).record, None);
}

/// Dice that are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// A history of claims, renewals, releases, forgetting and restarts, in which a voter may be cut off at any time: the tokens in
/// the order of their grants, and whether two led at once.
fn history(seed: u64, restarted: impl Fn(Durable, Instant) -> Voter) -> (Vec<Token>, bool) {
    let mut dice = Dice(seed);
    let mut peers = Peers::new();
    for voter in peers.voters.values_mut() {
        *voter = restarted(Durable::default(), Instant::ZERO);
    }
    let mut clients = [QuorumClient::new(voter_set()), QuorumClient::new(voter_set())];
    let (mut led, mut tokens, mut both): ([Option<(Version, Instant)>; 2], _, _) = ([None; 2], Vec::new(), false);
    for _ in 0..60 {
        let (who, voter) = (dice.roll(2) as usize, 1 + u128::from(dice.roll(3)));
        let name = ["a", "b"][who];
        peers.cut(if dice.roll(3) == 0 { std::slice::from_ref(&voter) } else { &[] });
        let until = peers.now + LEASE;
        match dice.roll(8) {
            0..=2 => {
                if let Ok(Reply::Applied(record)) = peers.ask_above(&mut clients[who], name) {
                    tokens.push(record.version.token);
                    led[who] = Some((record.version, until));
                }
            }
            3 => {
                if let Some((version, _)) = led[who]
                    && let Ok(Reply::Applied(record)) = peers.renew(&mut clients[who], name, version)
                {
                    led[who] = Some((record.version, until));
                }
            }
            4 => {
                if let Some((version, _)) = led[who].take() {
                    let request = Request::Release { id: holder(name).id, version, reason: EndReason::Finished };
                    drop(peers.call(&mut clients[who], request));
                }
            }
            5 | 6 => drop(peers.forget()),
            _ => {
                let (now, id) = (peers.now, VoterId::from_bits(voter));
                let voter = peers.voters.get_mut(&id).expect("it is there");
                *voter = restarted(voter.durable().clone(), now);
            }
        }
        let now = peers.now;
        both |= led.iter().flatten().filter(|(_, until)| now < *until).count() > 1;
        peers.pass(LEASE * u32::try_from(dice.roll(4)).expect("small") / 4);
    }
    (tokens, both)
}

fn is_sound((tokens, both): &(Vec<Token>, bool)) -> bool {
    !both && tokens.is_sorted_by(|one, next| one < next)
}

#[test]
fn among_claims_renewals_and_restarts_tokens_grow_and_one_leads() {
    let voter = |durable, now| Voter::restarted(durable, 0, now);
    let mut granted = 0;
    for seed in 0..3_000 {
        let told = history(seed, voter);
        assert!(is_sound(&told), "seed {seed}: {told:?}");
        granted += told.0.len();
    }
    assert!(granted > 3_000, "{granted}");
}

#[cfg(feature = "flaws")]
#[test]
fn a_voter_that_forgets_the_term_too_is_found() {
    let flaw = Some(primacy_core::quorum::Flaw::ForgetsTerm);
    let voter = |durable, now| Voter::flawed(durable, 0, now, flaw);
    assert!((0..100).any(|seed| !is_sound(&history(seed, voter))), "tokens that begin again are not found");
}
