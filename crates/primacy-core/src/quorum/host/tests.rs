//! What may leave a voter, and when; what it keeps of the past.

use alloc::vec;
use core::time::Duration;

use super::*;
use crate::lease::Holder;
use crate::quorum::{OrderNumbers, VoterSet};
use crate::{Label, Token};

const OWN: VoterId = VoterId::from_bits(1);
const LEASE: Duration = Duration::from_secs(10);

type Host = VoterHost<VoterSet, (), u32>;

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn name(name: &str) -> ElectionName {
    ElectionName::new(name).expect("valid")
}

fn started(disk: DurableState<VoterSet>) -> Host {
    VoterHost::restarted(OWN, disk, 0, at(1))
}

fn host() -> Host {
    started(DurableState::of(VoterSet::new([OWN].into()).expect("one is enough")))
}

fn query(election: &str, candidate: u128, ask: Ask) -> Query<()> {
    let asker = CandidateId::from_bits(candidate);
    Query { number: 0, election: name(election), ask, asker, announce: None }
}

fn claim(candidate: u128, term: u64) -> Ask {
    let id = CandidateId::from_bits(candidate);
    let holder = Holder { id, label: Label::new("web").expect("valid"), data: Default::default() };
    let term = Token::new(term).expect("small");
    Ask::Claim { term, holder, lease: LEASE, seen: OrderNumbers::default(), granted: None }
}

/// Asks for a term at that time, and holds what is answered as this.
fn claims(host: &mut Host, candidate: u128, term: u64, now: Instant, answer: u32) -> bool {
    let outcome =
        host.answer(query("jobs", candidate, claim(candidate, term)), now).expect("it counts with this voter");
    host.hold(answer);
    outcome.answer.accepted
}

#[test]
fn nothing_leaves_before_what_it_may_rest_on_is_on_disk_and_one_write_serves_all() {
    let mut host = host();
    assert!(claims(&mut host, 1, 5, at(1), 10));
    host.answer(query("other", 3, Ask::Read), at(1)).expect("it counts with this voter");
    host.hold(11);
    assert_eq!(host.release().0, vec![], "also a look that came after the claim may tell of it");
    let disk = host.begin_write().expect("a claim is written");
    assert!(host.is_writing() && host.begin_write().is_none());
    assert_eq!(host.release().0, vec![], "it is not on disk yet");
    host.written();
    assert_eq!(host.release(), (vec![10, 11], [name("jobs")].into()));
    assert_eq!(host.begin_write(), None);
    // What was written is what it starts with: it is bound.
    let mut again = started(disk);
    assert!(!claims(&mut again, 2, 6, at(10), 12));
    assert!(claims(&mut again, 2, 7, at(11), 13));
}

#[test]
fn a_look_and_a_refusal_wait_for_no_disk() {
    let mut host = host();
    host.answer(query("jobs", 1, Ask::Read), at(1)).expect("it counts with this voter");
    host.hold(1);
    assert_eq!(host.begin_write(), None);
    assert_eq!(host.release(), (vec![1], [].into()));
    assert_eq!(host.counts(), (0, 0, 0), "a look leaves nothing behind");
    let other = Query { number: 1, ..query("jobs", 1, claim(1, 1)) };
    assert_eq!(host.answer(other, at(1)), Err(Refusal::OtherVoters));
    assert_eq!(host.begin_write(), None);
}

#[test]
fn the_end_of_a_promise_is_news_once() {
    let mut host = host();
    claims(&mut host, 1, 5, at(1), 0);
    host.begin_write();
    host.written();
    host.release();
    let end = host.next_end().expect("it is bound");
    assert_eq!(end, at(1) + LEASE);
    host.expire(at(10));
    assert!(host.release().1.is_empty());
    host.expire(end);
    assert_eq!((host.release().1, host.next_end()), ([name("jobs")].into(), None));
    host.bind_anew(at(60));
    assert_eq!(host.next_end(), Some(at(60) + LEASE), "the clock has failed: it is bound as after a restart");
}

#[test]
fn a_voter_keeps_the_last_configurations_and_testifies_of_them() {
    let mut host = host();
    let two = VoterId::from_bits(2);
    let (alone, both) = (BTreeSet::from([OWN]), BTreeSet::from([OWN, two]));
    let mut next = VoterSet::new(alone.clone()).expect("one is enough");
    for step in 0..PAST_MAX + 8 {
        let target = if step % 4 == 0 { both.clone() } else { alone.clone() };
        next = next.settled().map_or_else(|| next.clone().joint(target), Ok).expect("there are some");
        assert_eq!(host.answer_config(ConfigRequest::Adopt(next.clone()), at(2)), ConfigReply::Done);
    }
    let last = next.number();
    let numbers = |after| host.evidence(after).adopted.iter().map(VoterSet::number).collect::<Vec<_>>();
    assert_eq!(numbers(last - 3), [last - 2, last - 1, last]);
    assert_eq!(numbers(0).len(), PAST_MAX + 1, "those before the present one, and that one");
}
