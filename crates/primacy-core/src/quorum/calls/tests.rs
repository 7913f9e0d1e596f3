//! One result for each call, and for no other.

use alloc::collections::BTreeMap;
use core::time::Duration;

use super::super::port::Ask;
use super::super::voter::{Durable, Voter};
use super::*;
use crate::lease::{CallError, Holder, Reply, Request};
use crate::{CandidateId, Label, Token};

const LOOK: Request = Request::Look { announce: None };

fn voter_set() -> VoterSet {
    VoterSet::new((1..=3).map(VoterId::from_bits).collect()).expect("there are some")
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn claim() -> Request {
    let holder = Holder {
        id: CandidateId::from_bits(7),
        label: Label::new("a").expect("valid"),
        data: alloc::string::String::new(),
    };
    Request::Acquire { expect: None, floor: Token::NONE.into(), holder, lease: Duration::from_secs(10) }
}

struct Voters(BTreeMap<VoterId, Voter>);

impl Voters {
    fn new() -> Self {
        let voter = |id| (id, Voter::restarted(Durable::default(), 0, Instant::ZERO));
        Self(voter_set().voters().map(voter).collect())
    }

    /// All questions are answered, and those of claims only if they are `granted`; gives the results.
    fn answer(&mut self, client: &mut QuorumCalls, out: Vec<Output>, granted: bool) -> Vec<Result<Reply, CallError>> {
        let (mut open, mut results) = (out, Vec::new());
        while !open.is_empty() {
            let mut next = Vec::new();
            for output in open {
                match output {
                    Output::Done(result) => results.push(result),
                    Output::Send { ask: Ask::Claim { .. }, .. } if !granted => {}
                    Output::Send { to, round, ask } => {
                        let voter = self.0.get_mut(&to).expect("there is one");
                        let answer = voter.handle(&ask, at(1)).answer;
                        client.answered(to, round, answer, at(1), &mut next);
                    }
                }
            }
            open = next;
        }
        results
    }
}

fn begin(client: &mut QuorumCalls, request: Request) -> Vec<Output> {
    let mut out = Vec::new();
    client.begin(|client, out| client.begin(request, out), at(1), &mut out);
    out
}

#[test]
fn a_call_has_one_result_and_nothing_is_due_after_it() {
    let (mut client, mut voters) = (QuorumCalls::new(QuorumClient::new(voter_set())), Voters::new());
    assert_eq!(client.due(at(0)), None);
    let out = begin(&mut client, claim());
    assert!(client.due(at(1)) > Some(at(1)));
    let results = voters.answer(&mut client, out, true);
    assert!(matches!(results[..], [Ok(Reply::Applied(_))]), "{results:?}");
    assert_eq!(client.due(at(2)), None);
    let mut out = Vec::new();
    client.act(at(9_000), &mut out);
    assert_eq!(out, []);
}

#[test]
fn the_end_of_a_claim_that_was_given_up_is_no_answer_to_the_next_call() {
    let (mut client, mut voters) = (QuorumCalls::new(QuorumClient::new(voter_set())), Voters::new());
    let out = begin(&mut client, claim());
    assert!(voters.answer(&mut client, out, false).is_empty(), "nobody answers the claim");
    client.abandon();
    let mut out = Vec::new();
    let joint = voter_set().joint([VoterId::from_bits(4)].into()).expect("it is not joint");
    client.moved(joint.settled().expect("it is joint"), at(2), &mut out);
    assert!(!out.is_empty() && out.iter().all(|output| matches!(output, Output::Send { .. })), "{out:?}");
    voters.0.insert(VoterId::from_bits(4), Voter::restarted(Durable::default(), 0, Instant::ZERO));
    let out = begin(&mut client, LOOK);
    let results = voters.answer(&mut client, out, true);
    assert!(matches!(results[..], [Ok(Reply::Seen(_))]), "{results:?}");
}
