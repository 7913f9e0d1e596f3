//! An operator who is told that an order stands already can rely on it as one who has just given it.

use std::time::Duration;

use primacy_core::lease::row::{Order, OrderKind};
use primacy_core::lease::{HandoverRequest, Holder, Reply, Request};
use primacy_core::quorum::{
    Ask, Durable, OrderMessage, OrderNumbers, OrderVerdict, Output, QuorumClient, Voter, VoterId, VoterSet,
};
use primacy_core::{CandidateId, Instant, Label, Token};

fn label(name: &str) -> Label {
    Label::new(name).expect("valid")
}

/// What a look shows that these voters answer, with the client that has looked.
fn look(voters: &mut [Voter; 3], who: [usize; 2]) -> (QuorumClient, Option<primacy_core::lease::Record>) {
    let ids = (0..3).map(VoterId::from_bits).collect();
    let (mut client, mut out) = (QuorumClient::new(VoterSet::new(ids).expect("three")), Vec::new());
    client.begin(Request::Look { announce: None }, &mut out);
    let now = Instant::ZERO + Duration::from_secs(20);
    for (n, voter) in voters.iter_mut().enumerate() {
        let (id, round) = (VoterId::from_bits(n as u128), client.round());
        if who.contains(&n) {
            client.answered(id, round, voter.handle(&Ask::Read, now).answer, &mut out);
        } else {
            client.unheard(id, round, &mut out);
        }
    }
    let done = out.into_iter().find_map(|output| match output {
        Output::Done(Ok(Reply::Seen(seen))) => Some(seen),
        _ => None,
    });
    (client, done.expect("a majority has answered").record)
}

#[test]
fn what_stands_already_with_one_voter_is_told_to_all() {
    let now = Instant::ZERO + Duration::from_secs(20);
    for (kind, wanted) in [
        (OrderKind::Promote { successor: label("b"), now: false }, HandoverRequest::Successor(label("b"))),
        (OrderKind::Depose { now: false }, HandoverRequest::NewElection),
    ] {
        let mut voters: [Voter; 3] = std::array::from_fn(|_| Voter::restarted(Durable::default(), 0, Instant::ZERO));
        let holder = Holder { id: CandidateId::from_bits(7), label: label("a"), data: String::new() };
        let (term, lease) = (Token::NONE.next(0), Duration::from_secs(10));
        let claim = Ask::Claim { term, holder, lease, seen: OrderNumbers::default(), granted: None };
        voters.iter_mut().for_each(|voter| assert!(voter.handle(&claim, now).answer.accepted));
        // An operator whose order has reached one voter, and who was told that its outcome is unknown, gives it again.
        let order = Order { kind: kind.clone(), token: None };
        let (client, record) = look(&mut voters, [0, 1]);
        let OrderVerdict::Tell(message) = client.orders().judge(&record.expect("led"), true, &order, 5) else {
            panic!("{kind:?}")
        };
        assert!(voters[2].handle(&Ask::Order { orders: message.orders, token: message.until }, now).answer.accepted);
        let (client, record) = look(&mut voters, [1, 2]);
        let record = record.expect("led");
        assert_eq!(record.handover.as_ref(), Some(&wanted));
        // It is told that the order stands. So a majority has it.
        match client.orders().judge(&record, true, &order, 6) {
            OrderVerdict::Tell(OrderMessage { orders, until, ended: None, is_new: false }) => {
                assert_eq!(orders, *client.orders(), "no other order than the one that stands");
                for voter in &mut voters[..2] {
                    assert!(voter.handle(&Ask::Order { orders: orders.clone(), token: until }, now).answer.accepted);
                }
            }
            OrderVerdict::Already => {}
            other => panic!("{other:?}"),
        }
        let (_, record) = look(&mut voters, [0, 1]);
        assert_eq!(record.expect("led").handover, Some(wanted), "an order that an operator was told to stand is lost");
    }
}
