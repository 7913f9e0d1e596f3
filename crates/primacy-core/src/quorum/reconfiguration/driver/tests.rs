//! What comes first, what comes after that, and when it is given up.

use alloc::collections::{BTreeSet, VecDeque};

use super::*;
use crate::quorum::config_acceptor::VoterReport;
use crate::quorum::voter_set::VoterSet;

type Effect = ReconfigurationEffect<VoterSet>;
type Own = ReconfigurationDriver<VoterSet>;

fn ids(voters: &[u128]) -> BTreeSet<VoterId> {
    voters.iter().copied().map(VoterId::from_bits).collect()
}

fn first() -> VoterSet {
    VoterSet::new(ids(&[1, 2, 3])).expect("there are some")
}

fn joint(of: &VoterSet, new: &[u128]) -> VoterSet {
    of.clone().joint(ids(new)).expect("it is not joint")
}

/// What a voter says that does all it is asked.
fn willing(ask: &ConfigRequest<VoterSet>) -> ConfigReply<VoterSet> {
    match ask {
        ConfigRequest::Prepare { .. } => ConfigReply::Prepared(None),
        ConfigRequest::Report { .. } => ConfigReply::Reported(VoterReport::default()),
        _ => ConfigReply::Done,
    }
}

/// All questions are answered so, until it wants something else; gives that, and the numbers of the questions.
fn go_on(
    own: &mut Own,
    out: &mut Vec<Effect>,
    answer: impl Fn(&ConfigRequest<VoterSet>) -> ConfigReply<VoterSet>,
) -> (Effect, BTreeSet<u64>) {
    let (mut open, mut rounds) = (VecDeque::from(mem::take(out)), BTreeSet::new());
    while let Some(effect) = open.pop_front() {
        let Effect::Send { to, round, ask } = effect else {
            *out = open.into();
            return (effect, rounds);
        };
        rounds.insert(round);
        let mut next = Vec::new();
        own.answered(to, round, answer(&ask), &mut next);
        open.extend(next);
    }
    panic!("it waits for nothing");
}

#[test]
fn what_is_under_way_is_finished_before_anything_is_planned() {
    let mut out = Vec::new();
    let under_way = joint(&first(), &[2, 3, 4]);
    let mut own = Own::begin(under_way.clone(), 7, &mut out);
    let begun = Effect::Begun { voters: under_way.clone(), is_wanted: false };
    assert_eq!(go_on(&mut own, &mut out, willing).0, begun);
    assert_eq!(go_on(&mut own, &mut out, willing).0, Effect::Plan { is_later: true });
    let settled = under_way.settled().expect("it is joint");
    assert_eq!((own.current(), own.has_finished(), own.is_changed()), (&settled, true, false));
    own.planned(Planned::Already, &mut out);
    assert_eq!(out, [Effect::Done(settled)]);
}

#[test]
fn the_voters_that_are_wanted_take_the_place_of_those_that_vote_and_nothing_is_asked_after_that() {
    let mut out = Vec::new();
    let mut own = Own::begin(first(), 7, &mut out);
    let (plan, before) = go_on(&mut own, &mut out, willing);
    assert_eq!(plan, Effect::Plan { is_later: false });
    let wanted = joint(&first(), &[1, 2, 4]);
    own.planned(Planned::Joint(wanted.clone()), &mut out);
    assert_eq!(go_on(&mut own, &mut out, willing).0, Effect::Begun { voters: wanted.clone(), is_wanted: true });
    let (done, after) = go_on(&mut own, &mut out, willing);
    assert_eq!(done, Effect::Done(wanted.settled().expect("it is joint")));
    assert!(own.is_changed() && !own.has_finished() && out.is_empty());
    assert!(before.last() < after.first(), "no two questions have one number");
}

#[test]
fn an_answer_to_a_question_of_the_change_before_is_none() {
    let mut out = Vec::new();
    let mut own = Own::begin(first(), 7, &mut out);
    let Some(Effect::Send { round: old, .. }) = out.first().cloned() else { panic!("it asks: {out:?}") };
    go_on(&mut own, &mut out, willing);
    own.planned(Planned::Joint(joint(&first(), &[1, 2, 4])), &mut out);
    out.clear();
    for voter in 1..=3 {
        own.answered(VoterId::from_bits(voter), old, ConfigReply::Prepared(None), &mut out);
        own.unheard(VoterId::from_bits(voter), old, &mut out);
    }
    assert_eq!(out, []);
}

#[test]
fn it_gives_up_when_others_are_sooner_again_and_again() {
    let mut out = Vec::new();
    let mut own = Own::begin(first(), 7, &mut out);
    let mut attempts = 0;
    loop {
        match go_on(&mut own, &mut out, willing).0 {
            Effect::Plan { .. } => {
                attempts += 1;
                let current = own.current().clone();
                own.planned(Planned::Joint(joint(&current, &[1, 2, 4])), &mut out);
                // Somebody else's has been taken, and is over.
                let sooner = joint(&current, &[1, 2, 3]).settled().expect("it is joint");
                let (to, round) = match &out[..] {
                    [Effect::Send { to, round, .. }, ..] => (*to, *round),
                    other => panic!("it asks: {other:?}"),
                };
                out.clear();
                own.answered(to, round, ConfigReply::Elsewhere(Some(sooner)), &mut out);
            }
            Effect::Outrun => break,
            other => panic!("nobody is in its way: {other:?}"),
        }
    }
    assert_eq!(attempts, Own::ATTEMPTS_MAX);
    assert!(!own.is_changed());
}

#[test]
fn later_voters_that_become_known_meanwhile_are_heard_first() {
    let mut out = Vec::new();
    let mut own = Own::begin(first(), 7, &mut out);
    go_on(&mut own, &mut out, willing);
    let later = joint(&first(), &[1, 2, 4]);
    own.learn(&later);
    own.planned(Planned::Joint(joint(&first(), &[1, 2, 5])), &mut out);
    assert_eq!(go_on(&mut own, &mut out, willing).0, Effect::Begun { voters: later, is_wanted: false });
}

#[test]
fn without_a_majority_it_is_stuck_and_says_of_whom_one_is_needed() {
    let stuck_from = |voters: VoterSet| {
        let mut out = Vec::new();
        let mut own = Own::begin(voters, 7, &mut out);
        let mut next = Vec::new();
        for effect in out {
            let Effect::Send { to, round, .. } = effect else { panic!("it asks first") };
            own.unheard(to, round, &mut next);
        }
        match next.pop() {
            Some(Effect::Stuck { silent, is_joint }) => (silent.len(), is_joint),
            other => panic!("nobody answers: {other:?}"),
        }
    };
    assert_eq!(stuck_from(first()), (3, false));
    assert_eq!(stuck_from(joint(&first(), &[2, 3, 4])), (4, true));
}
