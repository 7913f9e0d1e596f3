//! A voter that was away learns from the others who votes by now: what proves a step, and what does not.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use primacy_core::quorum::{
    Ask, Ballot, ConfigAcceptor, ConfigEvidence, ConfigReply, ConfigRequest, Durable, OrderNumbers, Orders, Role,
    Voter, VoterId, VoterSet,
};
use primacy_core::{CandidateId, ElectionName, Instant, Label, Token};

fn ids(voters: &[u128]) -> BTreeSet<VoterId> {
    voters.iter().copied().map(VoterId::from_bits).collect()
}

fn first(voters: &[u128]) -> VoterSet {
    VoterSet::new(ids(voters)).expect("there are some")
}

fn joint(from: &VoterSet, to: &[u128]) -> VoterSet {
    from.clone().joint(ids(to)).expect("it does not change")
}

fn settled(from: &VoterSet, to: &[u128]) -> VoterSet {
    joint(from, to).settled().expect("it changes")
}

fn voter() -> Voter {
    Voter::restarted(Durable::default(), 0, Instant::ZERO)
}

fn name() -> ElectionName {
    ElectionName::new("e").expect("valid")
}

fn acceptor(configuration: &VoterSet) -> ConfigAcceptor<VoterSet> {
    ConfigAcceptor::restarted(
        Some(configuration.clone()),
        Ballot::default(),
        None,
        &(&name(), &mut voter()),
        Instant::ZERO,
    )
}

fn adopted(all: &[&VoterSet]) -> ConfigEvidence<VoterSet> {
    ConfigEvidence { adopted: all.iter().map(|one| (*one).clone()).collect(), taken: None }
}

fn taken(count: u64, next: &VoterSet) -> ConfigEvidence<VoterSet> {
    ConfigEvidence { adopted: Vec::new(), taken: Some((Ballot { count, by: 0 }, next.clone())) }
}

fn proven(own: &VoterSet, said: &[(u128, ConfigEvidence<VoterSet>)]) -> Option<VoterSet> {
    let said: BTreeMap<_, _> = said.iter().map(|(voter, said)| (VoterId::from_bits(*voter), said.clone())).collect();
    acceptor(own).proven(&said)
}

#[test]
fn a_joint_phase_is_proven_by_a_majority_of_the_voters_before_it() {
    let own = first(&[1, 2, 3, 4, 5]);
    let next = joint(&own, &[1, 2, 6]);
    let has = || adopted(&[&next]);
    assert_eq!(proven(&own, &[(1, has()), (2, has()), (3, has())]), Some(next.clone()));
    assert_eq!(proven(&own, &[(1, has()), (2, has())]), None, "a minority");
    assert_eq!(proven(&own, &[(1, has()), (2, has()), (6, has())]), None, "one that comes did not vote before");
    assert_eq!(
        proven(&own, &[(1, has()), (2, has()), (3, ConfigEvidence::default())]),
        None,
        "one that has not gone on"
    );
    let other = joint(&own, &[7]);
    assert_eq!(proven(&own, &[(1, has()), (2, has()), (3, adopted(&[&other]))]), None, "they say different things");
}

#[test]
fn what_a_majority_has_taken_in_one_attempt_is_proven_once_somebody_has_adopted_it() {
    let own = first(&[1, 2, 3]);
    let next = joint(&own, &[1, 2, 4]);
    assert_eq!(proven(&own, &[(1, adopted(&[&next])), (3, taken(3, &next))]), Some(next.clone()));
    let begun = || (4, adopted(&[&next]));
    assert_eq!(proven(&own, &[(1, taken(3, &next)), (3, taken(3, &next)), begun()]), Some(next.clone()));
    assert_eq!(proven(&own, &[(1, taken(2, &next)), (3, taken(3, &next)), begun()]), None, "in two attempts");
    assert_eq!(proven(&own, &[(1, taken(3, &joint(&own, &[5]))), (3, taken(3, &next)), begun()]), None, "two things");
}

/// Its operator was told that it did not come through, and another that no exchange is under way: nobody would end it.
#[test]
fn a_joint_phase_that_was_only_taken_does_not_begin_by_itself() {
    let own = first(&[1, 2]);
    let next = joint(&own, &[1, 3]);
    assert_eq!(proven(&own, &[(1, taken(3, &next)), (2, taken(3, &next))]), None);
}

#[test]
fn the_end_of_a_joint_phase_is_proven_by_a_majority_of_the_new_voters() {
    let own = joint(&first(&[1, 2, 3]), &[3, 4, 5]);
    let end = own.settled().expect("it changes");
    let later = joint(&end, &[3, 4, 6]);
    assert_eq!(proven(&own, &[(4, adopted(&[&end])), (5, adopted(&[&later]))]), Some(end.clone()));
    assert_eq!(proven(&own, &[(1, adopted(&[&end])), (2, adopted(&[&end]))]), None, "those that go");
    assert_eq!(proven(&own, &[(4, adopted(&[&end]))]), None, "a minority");
    assert_eq!(proven(&own, &[(4, taken(1, &end)), (5, taken(1, &end))]), None, "nobody takes an end");
}

#[test]
fn nothing_is_proven_that_is_not_the_next_step() {
    let own = first(&[1, 2, 3]);
    let evil = |number, incoming| VoterSet::numbered(number, ids(&[9]), incoming).expect("there are some");
    let all = |said: &VoterSet| proven(&own, &[(1, adopted(&[said])), (2, adopted(&[said])), (3, adopted(&[said]))]);
    assert_eq!(all(&evil(1 << 63, None)), None);
    assert_eq!(all(&evil(u64::MAX, Some(ids(&[9])))), None);
    assert_eq!(all(&evil(1, None)), None);
    assert_eq!(all(&evil(1, Some(ids(&[9])))), None, "the voters before it are not these");
    assert_eq!(all(&settled(&own, &[9])), None, "a step is left out");
    assert!(ConfigAcceptor::<VoterSet>::new().proven(&BTreeMap::new()).is_none(), "it has never voted");
}

#[test]
fn an_operator_can_have_nothing_taken_or_adopted_that_uses_up_the_numbers_or_leaves_out_the_voters() {
    let own = first(&[1, 2, 3]);
    let (next, end) = (joint(&own, &[1, 2, 4]), settled(&own, &[1, 2, 4]));
    let evil = |number, incoming| VoterSet::numbered(number, ids(&[9]), incoming).expect("there are some");
    let adopt = |own: &VoterSet, said: &VoterSet| {
        let mut acceptor = acceptor(own);
        let answer = acceptor.handle(ConfigRequest::Adopt(said.clone()), &mut (&name(), &mut voter()), Instant::ZERO);
        (answer, acceptor.configuration().cloned())
    };
    let refused = |own: &VoterSet| (ConfigReply::Elsewhere(Some(own.clone())), Some(own.clone()));
    for said in [evil(1 << 63, None), evil(u64::MAX, None), evil(1, None), evil(1, Some(ids(&[9])))] {
        assert_eq!(adopt(&own, &said), refused(&own), "{said:?}");
    }
    assert_eq!(adopt(&next, &evil(2, None)), refused(&next), "the end of another change");
    for (own, said) in [(&own, &next), (&next, &end), (&own, &end)] {
        assert_eq!(adopt(own, said), (ConfigReply::Done, Some(said.clone())));
    }
    let ballot = Ballot { count: 1, by: 7 };
    for proposal in [evil(1, None), evil(1, Some(ids(&[9]))), evil(1 << 63, None), end] {
        let ask = ConfigRequest::Take { number: 0, ballot, proposal };
        let answer = acceptor(&own).handle(ask, &mut (&name(), &mut voter()), Instant::ZERO);
        assert_eq!(answer, ConfigReply::Elsewhere(Some(own.clone())));
    }
}

#[test]
fn a_voter_catches_up_one_step_at_a_time() {
    let own = first(&[1, 2, 3]);
    let (next, end) = (joint(&own, &[1, 2, 4]), settled(&own, &[1, 2, 4]));
    let both = || adopted(&[&next, &end]);
    let said = [(1, both()), (2, both())].map(|(voter, said)| (VoterId::from_bits(voter), said)).into();
    let mut acceptor = acceptor(&own);
    for number in [1, 2] {
        assert!(acceptor.catch_up(&said, &(&name(), &mut voter()), Instant::ZERO));
        assert_eq!(acceptor.configuration().map(VoterSet::number), Some(number));
    }
    assert!(!acceptor.catch_up(&said, &(&name(), &mut voter()), Instant::ZERO));
}

#[test]
fn looks_take_no_right_campaigns_a_candidate_and_orders_an_operator() {
    let (term, id, lease) = (Token::NONE, CandidateId::from_bits(1), Duration::from_secs(1));
    let holder = primacy_core::lease::Holder { id, label: Label::new("a").expect("valid"), data: String::new() };
    let claim = Ask::Claim { term, holder, lease, seen: OrderNumbers::default(), granted: None };
    assert_eq!(Ask::Read.least_role(), Role::Observer);
    assert_eq!(claim.least_role(), Role::Candidate);
    assert_eq!(Ask::Release { term, id, beat: 1, completed_order: 0 }.least_role(), Role::Candidate);
    assert_eq!(Ask::Order { orders: Orders::default(), token: None }.least_role(), Role::Operator);
    assert_eq!(ConfigRequest::Adopt(first(&[1])).least_role(), Role::Operator);
    assert!(Role::Observer < Role::Candidate && Role::Candidate < Role::Operator && Role::Operator < Role::Voter);
}
