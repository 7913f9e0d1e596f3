//! Orders that few voters have: what later orders and candidates make of them.

use super::*;

/// A client that has read only voters without a completed order orders above it all the same.
#[test]
fn an_order_given_after_one_that_came_true_elsewhere_is_not_taken_for_it() {
    let mut peers = Peers::new();
    let (mut a, mut admin) = (QuorumClient::new(voter_set()), QuorumClient::new(voter_set()));
    applied(peers.ask(&mut a, "a"));
    peers.look(&mut admin);
    // One voter alone has it, and its operator was told that nobody knows.
    let depose =
        |count| Orders { handover: OrderRegister::new(count, Some(HandoverRequest::NewElection)), ..Orders::default() };
    peers.cut(&[1, 2]);
    let mut out = Vec::new();
    admin.order(depose(admin.orders().next_count(900)), None, &mut out);
    assert_eq!(peers.told(&mut admin, out), Err(CallError::Unknown));
    peers.cut(&[2]);
    peers.pass(LEASE);
    let mut b = QuorumClient::new(voter_set());
    let second = applied(peers.ask(&mut b, "b"));
    let second = applied(peers.renew(&mut b, "b", second.version));
    assert_eq!(second.handover, None, "it has come true");
    peers.cut(&[3]);
    let mut again = QuorumClient::new(voter_set());
    peers.look(&mut again);
    let mut out = Vec::new();
    again.order(depose(again.orders().next_count(3)), None, &mut out);
    let Ok(Reply::Seen(seen)) = peers.told(&mut again, out) else { panic!("two have it") };
    assert_eq!(seen.record.and_then(|record| record.handover), Some(HandoverRequest::NewElection));
    assert_eq!(applied(peers.renew(&mut b, "b", second.version)).handover, Some(HandoverRequest::NewElection));
}

#[test]
fn an_order_that_came_true_once_is_not_obeyed_by_a_later_leader_though_few_voters_had_it() {
    let mut peers = Peers::new();
    let mut admin = QuorumClient::new(voter_set());
    applied(peers.ask(&mut QuorumClient::new(voter_set()), "a"));
    peers.look(&mut admin);
    let handover = Some(HandoverRequest::Successor(Label::new("b").expect("valid")));
    let orders = Orders { handover: OrderRegister::new(admin.orders().next_count(7), handover), ..Orders::default() };
    peers.cut(&[1, 2]);
    let mut out = Vec::new();
    admin.order(orders, None, &mut out);
    assert_eq!(peers.told(&mut admin, out), Err(CallError::Unknown));
    for (name, away) in [("b", 2), ("c", 3)] {
        peers.pass(LEASE);
        peers.cut(&[away]);
        let mut client = QuorumClient::new(voter_set());
        let led = applied(peers.ask(&mut client, name));
        assert_eq!(led.handover, None);
        let led = applied(peers.renew(&mut client, name, led.version));
        peers.cut(&[1]);
        let led = applied(peers.renew(&mut client, name, led.version));
        assert_eq!(led.handover, None, "{name}: b has led");
    }
}

/// Nobody was told that the pause is in force. A candidate that remembered it would wait for ever, and an operator who looks
/// sees no pause to take back.
#[test]
fn a_pause_that_only_a_lost_voter_had_holds_nobody_up() {
    let mut peers = Peers::new();
    let mut admin = QuorumClient::new(voter_set());
    peers.look(&mut admin);
    let paused = OrderRegister { count: admin.orders().next_count(7), value: true, until: None };
    peers.cut(&[1, 2]);
    let mut out = Vec::new();
    admin.order(Orders { paused, ..Orders::default() }, None, &mut out);
    assert_eq!(peers.told(&mut admin, out), Err(CallError::Unknown));
    let mut a = QuorumClient::new(voter_set());
    peers.cut(&[2]);
    assert!(peers.look(&mut a).record.expect("there is an order").paused);
    peers.cut(&[3]);
    assert_eq!(peers.look(&mut a).record, None);
    assert!(!applied(peers.ask(&mut a, "a")).paused);
    peers.cut(&[1]);
    assert!(peers.look(&mut QuorumClient::new(voter_set())).record.expect("a leads").paused, "the lost voter is back");
}
