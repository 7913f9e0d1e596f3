//! The quorum grant: clients and voters with messages that arrive, get lost, or come late.

#[path = "quorum/forget.rs"]
mod forget;
#[path = "quorum/orders.rs"]
mod orders;
#[path = "quorum/repeats.rs"]
mod repeats;
#[path = "quorum/shorter.rs"]
mod shorter;
#[path = "quorum/split.rs"]
mod split;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use primacy_core::lease::{
    CallError, EndReason, Floor, HandoverRequest, Holder, Record, Reply, Request, Sighting, Version,
};
use primacy_core::quorum::{
    Ask, Durable, GrantProgress, OrderNumbers, OrderRegister, Orders, Output, Pace, QuorumClient, Round,
    TERM_LEAP_MOST, Voter, VoterId, VoterSet,
};
use primacy_core::{CandidateId, Instant, Label, Token};

const LEASE: Duration = Duration::from_secs(10);

fn holder(name: &str) -> Holder {
    let bits = name.bytes().fold(0, |bits, byte| bits << 8 | u128::from(byte));
    let label = Label::new(name).expect("valid");
    Holder { id: CandidateId::from_bits(bits), label, data: format!("{name}:8080") }
}

fn voter_set() -> VoterSet {
    VoterSet::new((1..=3).map(VoterId::from_bits).collect()).expect("there are some")
}

/// Three voters, and who of them can be reached.
struct Peers {
    now: Instant,
    voters: BTreeMap<VoterId, Voter>,
    cut: BTreeSet<VoterId>,
}

impl Peers {
    fn new() -> Self {
        let voter = |id: VoterId| (id, Voter::restarted(Durable::default(), 0, Instant::ZERO));
        Self { now: Instant::ZERO, voters: voter_set().voters().map(voter).collect(), cut: BTreeSet::new() }
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now + span;
    }

    fn cut(&mut self, voters: &[u128]) {
        self.cut = voters.iter().copied().map(VoterId::from_bits).collect();
    }

    fn restart(&mut self, voter: u128) {
        let now = self.now;
        let voter = self.voters.get_mut(&VoterId::from_bits(voter)).expect("it is there");
        *voter = Voter::restarted(voter.durable().clone(), 0, now);
    }

    /// What operators want from now on; gives the count of orders that a record shows.
    fn order(&mut self, handover: Option<HandoverRequest>, paused: bool) -> u64 {
        let mut orders = Orders::default();
        self.voters.values().for_each(|voter| orders.merge(&voter.durable().orders));
        let count = orders.next_count(7);
        let orders =
            Orders { handover: OrderRegister::new(count, handover), paused: OrderRegister::new(count, paused) };
        let now = self.now;
        for voter in self.voters.values_mut() {
            voter.handle(&Ask::Order { orders: orders.clone(), token: None }, now);
        }
        orders.order_number()
    }

    /// All of these messages arrive, and their answers; what follows from that. Those to a voter that is cut off are
    /// lost, and that is noticed.
    fn deliver(&mut self, client: &mut QuorumClient, messages: Vec<Output>) -> Vec<Output> {
        let mut next = Vec::new();
        for message in messages {
            let Output::Send { to, round, ask } = message else { panic!("{message:?}") };
            if self.cut.contains(&to) {
                client.unheard(to, round, &mut next);
            } else {
                let verdict = self.voters.get_mut(&to).expect("a voter").handle(&ask, self.now);
                client.answered(to, round, verdict.answer, &mut next);
            }
        }
        next
    }

    /// One call, to its end.
    fn call(&mut self, client: &mut QuorumClient, request: Request) -> Result<Reply, CallError> {
        let mut out = Vec::new();
        client.begin(request, &mut out);
        let mut done = None;
        while !out.is_empty() {
            if let Some(at) = out.iter().position(|output| matches!(output, Output::Done(_))) {
                done = Some(out.remove(at));
            }
            out = self.deliver(client, out);
        }
        let Some(Output::Done(result)) = done else { panic!("every call ends") };
        result
    }

    /// An operator's call, to its end.
    fn told(&mut self, client: &mut QuorumClient, mut out: Vec<Output>) -> Result<Reply, CallError> {
        out = self.deliver(client, out);
        let Some(Output::Done(result)) = out.pop() else { panic!("it ends with one round") };
        result
    }

    fn look(&mut self, client: &mut QuorumClient) -> Sighting {
        match self.call(client, Request::Look { announce: None }) {
            Ok(Reply::Seen(sighting)) => sighting,
            other => panic!("{other:?}"),
        }
    }

    fn ask(&mut self, client: &mut QuorumClient, name: &str) -> Result<Reply, CallError> {
        let expect = self.look(client).record.as_ref().map(Record::expectation);
        self.call(client, Request::Acquire { expect, floor: Token::NONE.into(), holder: holder(name), lease: LEASE })
    }

    fn renew(&mut self, client: &mut QuorumClient, name: &str, version: Version) -> Result<Reply, CallError> {
        let request = Request::Renew { id: holder(name).id, version, lease: LEASE, completed_order: None };
        self.call(client, request)
    }
}

fn applied(result: Result<Reply, CallError>) -> Record {
    let Ok(Reply::Applied(record)) = result else { panic!("{result:?}") };
    record
}

fn conflict(result: Result<Reply, CallError>) -> Sighting {
    let Ok(Reply::Conflict(sighting)) = result else { panic!("{result:?}") };
    sighting
}

fn version(token: u64, beat: u64) -> Version {
    Version { token: Token::new(token).expect("valid"), beat }
}

#[test]
fn a_lease_is_granted_renewed_released_and_granted_again_with_a_larger_token() {
    let mut peers = Peers::new();
    let (mut a, mut b) = (QuorumClient::new(voter_set()), QuorumClient::new(voter_set()));
    assert_eq!(peers.look(&mut a).record, None, "nothing was ever granted");
    let first = applied(peers.ask(&mut a, "a"));
    assert_eq!((first.version, first.holder.clone()), (version(1, 1), Some(holder("a"))));
    let renewed = applied(peers.renew(&mut a, "a", first.version));
    assert_eq!(renewed.version, version(1, 2));
    let seen = peers.look(&mut b);
    assert_eq!(seen.record, Some(renewed.clone()), "others see the same");
    assert_eq!((seen.age, seen.holder_gone), (Some(Duration::ZERO), false));
    let release = Request::Release { id: holder("a").id, version: renewed.version, reason: EndReason::Finished };
    let released = applied(peers.call(&mut a, release));
    assert_eq!((released.version, released.holder), (version(1, 3), None));
    let second = applied(peers.ask(&mut b, "b"));
    assert_eq!((second.version, second.holder), (version(2, 1), Some(holder("b"))));
}

#[test]
fn whoever_is_bound_refuses_others_until_its_promise_ends() {
    let mut peers = Peers::new();
    let (mut a, mut b) = (QuorumClient::new(voter_set()), QuorumClient::new(voter_set()));
    let first = applied(peers.ask(&mut a, "a"));
    peers.pass(LEASE - Duration::from_nanos(1));
    assert!(matches!(peers.ask(&mut b, "b"), Ok(Reply::Seen(_))), "nothing has changed");
    assert!(!peers.look(&mut b).holder_gone);
    peers.pass(Duration::from_nanos(1));
    assert!(peers.look(&mut b).holder_gone, "all promises have ended");
    assert_eq!(applied(peers.ask(&mut b, "b")).version, version(2, 1));
    let lost = conflict(peers.renew(&mut a, "a", first.version));
    assert_eq!(lost.record.and_then(|record| record.holder), Some(holder("b")));
}

#[test]
fn a_claim_in_vain_is_taken_back_and_raises_nothing_for_those_who_refused_it() {
    let mut peers = Peers::new();
    let (mut a, mut b) = (QuorumClient::new(voter_set()), QuorumClient::new(voter_set()));
    // The voters seem free when b looks, and two of them support a when its claim arrives.
    let mut out = Vec::new();
    b.begin(Request::Acquire { expect: None, floor: Token::NONE.into(), holder: holder("b"), lease: LEASE }, &mut out);
    let claims = peers.deliver(&mut b, out);
    peers.cut(&[3]);
    let first = applied(peers.ask(&mut a, "a"));
    peers.cut(&[]);
    let is_claim = |output: &Output| matches!(output, Output::Send { ask: Ask::Claim { .. }, .. });
    assert!(claims.iter().all(is_claim), "{claims:?}");
    let out = peers.deliver(&mut b, claims);
    let taken_back = |output: &Output| matches!(output, Output::Send { ask: Ask::Release { beat: 0, .. }, .. });
    assert_eq!(out.iter().filter(|output| taken_back(output)).count(), 3);
    let Some(Output::Done(Ok(Reply::Conflict(seen)))) = out.last() else { panic!("{out:?}") };
    assert_eq!(seen.record.as_ref().map(|record| record.version), Some(first.version));
    for output in &out {
        if let Output::Send { to, ask, .. } = output {
            peers.voters.get_mut(to).expect("a voter").handle(ask, peers.now);
        }
    }
    let third = &peers.voters[&VoterId::from_bits(3)];
    assert_eq!(third.bound_until(peers.now), None, "it is free at once");
    applied(peers.renew(&mut a, "a", first.version));
}

#[test]
fn a_renewal_counts_when_a_majority_has_seen_it_and_is_shown_no_sooner() {
    let mut peers = Peers::new();
    let (mut a, mut b) = (QuorumClient::new(voter_set()), QuorumClient::new(voter_set()));
    let first = applied(peers.ask(&mut a, "a"));
    peers.cut(&[1, 2]);
    assert_eq!(peers.renew(&mut a, "a", first.version), Err(CallError::Unknown));
    peers.cut(&[]);
    assert_eq!(peers.look(&mut b).record, Some(first.clone()), "one voter is not enough");
    peers.cut(&[1]);
    applied(peers.renew(&mut a, "a", first.version));
    peers.cut(&[3]);
    let seen = peers.look(&mut b).record.expect("there is one");
    assert_eq!(seen.version, version(1, 1), "a majority that missed it proves no more");
    assert_eq!(peers.look(&mut a).record.expect("there is one").version, version(1, 3), "but nobody unlearns");
}

#[test]
fn a_restarted_voter_is_bound_as_if_it_had_promised_just_now() {
    let mut peers = Peers::new();
    let (mut a, mut b) = (QuorumClient::new(voter_set()), QuorumClient::new(voter_set()));
    peers.cut(&[1]);
    let first = applied(peers.ask(&mut a, "a"));
    peers.cut(&[]);
    peers.pass(Duration::from_secs(4));
    peers.restart(2);
    assert!(!matches!(peers.ask(&mut b, "b"), Ok(Reply::Applied(_))));
    peers.pass(Duration::from_secs(6));
    // Voters 1 and 3 are free now; 2 is bound for another four seconds.
    peers.cut(&[3]);
    assert!(!peers.look(&mut b).holder_gone);
    peers.cut(&[]);
    assert_eq!(applied(peers.ask(&mut b, "b")).version.token, first.version.token.next(0));
}

#[test]
fn a_release_is_remembered_across_a_restart_of_all() {
    let mut peers = Peers::new();
    let (mut a, mut b) = (QuorumClient::new(voter_set()), QuorumClient::new(voter_set()));
    let first = applied(peers.ask(&mut a, "a"));
    let renewed = applied(peers.renew(&mut a, "a", first.version));
    let release = Request::Release { id: holder("a").id, version: renewed.version, reason: EndReason::Resigned };
    let released = applied(peers.call(&mut a, release));
    (1..=3).for_each(|voter| peers.restart(voter));
    assert_eq!(peers.look(&mut b).record, Some(released), "and so is how often it was renewed");
    assert!(!matches!(peers.renew(&mut a, "a", renewed.version), Ok(Reply::Applied(_))));
    assert_eq!(applied(peers.ask(&mut b, "b")).version.token, first.version.token.next(0));
}

#[test]
fn a_voter_that_missed_the_claim_supports_the_holder_from_its_next_renewal_on() {
    let mut peers = Peers::new();
    let mut a = QuorumClient::new(voter_set());
    peers.cut(&[3]);
    let first = applied(peers.ask(&mut a, "a"));
    peers.cut(&[]);
    let renewed = applied(peers.renew(&mut a, "a", first.version));
    let third = &peers.voters[&VoterId::from_bits(3)];
    assert_eq!(third.durable().term, first.version.token);
    peers.cut(&[1]);
    applied(peers.renew(&mut a, "a", renewed.version));
}

#[test]
fn nobody_is_granted_against_an_order_and_the_grant_makes_it_come_true() {
    let mut peers = Peers::new();
    let (mut a, mut b) = (QuorumClient::new(voter_set()), QuorumClient::new(voter_set()));
    let first = applied(peers.ask(&mut a, "a"));
    let handover = HandoverRequest::Successor(Label::new("b").expect("valid"));
    let order_number = peers.order(Some(handover.clone()), false);
    let renewed = applied(peers.renew(&mut a, "a", first.version));
    assert_eq!(
        (renewed.order_number, renewed.handover.clone()),
        (order_number, Some(handover)),
        "the leader hears of it"
    );
    let before = Some(first.expectation());
    let stale = Request::Acquire { expect: before, floor: Token::NONE.into(), holder: holder("b"), lease: LEASE };
    conflict(peers.call(&mut b, stale));
    let release = Request::Release {
        id: holder("a").id,
        version: renewed.version,
        reason: EndReason::Promoted { successor: Label::new("b").expect("valid") },
    };
    assert!(applied(peers.call(&mut a, release)).handover.is_some(), "a successor is still to come");
    let second = applied(peers.ask(&mut b, "b"));
    assert_eq!(second.handover, None);
    assert_eq!(peers.look(&mut a).record, Some(second.clone()), "for others too");
    assert_eq!(applied(peers.renew(&mut b, "b", second.version)).handover, None);
}

/// As the resource names it that has taken tokens of other voters.
#[test]
fn a_floor_from_outside_is_above_what_was_granted_and_no_leap_that_voters_refuse() {
    let mut peers = Peers::new();
    let mut a = QuorumClient::new(voter_set());
    let at = |token| Token::new(token).expect("small");
    let ask = |expect, outside| {
        let floor = Floor { outside: at(outside), ..Floor::default() };
        Request::Acquire { expect, floor, holder: holder("a"), lease: LEASE }
    };
    let record = applied(peers.call(&mut a, ask(None, 40)));
    assert_eq!(record.version.token, at(41));
    let expect = Some(record.expectation());
    // Nobody is disturbed by what no voter takes, and the client can say why nothing comes of it.
    let far = 41 + TERM_LEAP_MOST;
    assert_eq!(peers.call(&mut a, ask(expect, far)), Err(CallError::NotDone));
    assert_eq!(a.leap(), Some(at(41)));
    assert_eq!(peers.look(&mut a).record, Some(record));
    assert_eq!(a.leap(), None, "of an earlier call it says nothing");
    assert_eq!(applied(peers.call(&mut a, ask(expect, far - 1))).version.token, at(far));
}

#[test]
fn a_voter_refuses_a_claim_that_has_not_seen_its_orders() {
    let mut peers = Peers::new();
    peers.order(None, true);
    let voter = peers.voters.get_mut(&VoterId::from_bits(1)).expect("a voter");
    let claim = |seen| Ask::Claim {
        term: Token::new(1).expect("valid"),
        holder: holder("a"),
        lease: LEASE,
        seen,
        granted: None,
    };
    let all = voter.durable().orders.counts();
    for unseen in
        [OrderNumbers::default(), OrderNumbers { handover: 0, ..all }, OrderNumbers { paused: 0, handover: 1 << 21 }]
    {
        assert!(!voter.handle(&claim(unseen), Instant::ZERO).answer.accepted, "{unseen:?}");
    }
    let verdict = voter.handle(&claim(all), Instant::ZERO);
    assert!(verdict.answer.accepted && verdict.must_flush);
    assert!(!voter.handle(&claim(all), Instant::ZERO).must_flush, "asked again, nothing changes on disk");
}

#[test]
fn an_operator_is_told_that_an_order_stands_when_a_majority_has_it() {
    let mut peers = Peers::new();
    let (mut a, mut admin) = (QuorumClient::new(voter_set()), QuorumClient::new(voter_set()));
    let first = applied(peers.ask(&mut a, "a"));
    peers.look(&mut admin);
    let count = admin.orders().next_count(7);
    let orders =
        Orders { handover: OrderRegister::new(count, Some(HandoverRequest::NewElection)), ..admin.orders().clone() };
    peers.cut(&[1, 2]);
    let mut out = Vec::new();
    admin.order(orders.clone(), Some(first.version.token), &mut out);
    assert_eq!(peers.told(&mut admin, out), Err(CallError::Unknown), "one voter is not enough");
    peers.cut(&[3]);
    let mut out = Vec::new();
    admin.order(orders.clone(), Some(first.version.token), &mut out);
    let Ok(Reply::Seen(seen)) = peers.told(&mut admin, out) else { panic!("two are") };
    assert_eq!(seen.record.and_then(|record| record.handover), Some(HandoverRequest::NewElection));
    let renewed = applied(peers.renew(&mut a, "a", first.version));
    assert_eq!(renewed.handover, Some(HandoverRequest::NewElection), "the leader hears of it");
    let release = Request::Release { id: holder("a").id, version: renewed.version, reason: EndReason::Deposed };
    assert_eq!(applied(peers.call(&mut a, release)).handover, None);
    let second = applied(peers.ask(&mut QuorumClient::new(voter_set()), "b")).version.token;
    assert!(second > first.version.token);
    let count = admin.orders().next_count(8);
    let late = Orders { handover: OrderRegister::new(count, Some(HandoverRequest::NewElection)), ..orders };
    let mut out = Vec::new();
    admin.order(late, Some(first.version.token), &mut out);
    let Ok(Reply::Conflict(seen)) = peers.told(&mut admin, out) else { panic!("it was meant for another leader") };
    assert_eq!(seen.record.map(|record| (record.version.token, record.handover)), Some((second, None)));
}

#[test]
fn an_operator_can_free_the_voters_of_a_leader_that_does_not_answer() {
    let mut peers = Peers::new();
    let (mut a, mut b, mut admin) =
        (QuorumClient::new(voter_set()), QuorumClient::new(voter_set()), QuorumClient::new(voter_set()));
    let first = applied(peers.ask(&mut a, "a"));
    peers.look(&mut admin);
    let mut out = Vec::new();
    admin.dismiss(&mut out);
    let Ok(Reply::Seen(seen)) = peers.told(&mut admin, out) else { panic!("it is freed") };
    assert_eq!(seen.record.and_then(|record| record.holder), None);
    let second = applied(peers.ask(&mut b, "b"));
    let seen = conflict(peers.renew(&mut a, "a", first.version));
    assert_eq!(seen.record, Some(second));
}

#[test]
fn an_order_against_a_token_is_not_for_later_leaders_though_a_voter_has_missed_them() {
    let mut peers = Peers::new();
    let (mut a, mut b, mut admin) =
        (QuorumClient::new(voter_set()), QuorumClient::new(voter_set()), QuorumClient::new(voter_set()));
    let first = applied(peers.ask(&mut a, "a"));
    let release = Request::Release { id: holder("a").id, version: first.version, reason: EndReason::Resigned };
    applied(peers.call(&mut a, release));
    peers.cut(&[3]);
    let second = applied(peers.ask(&mut b, "b"));
    peers.cut(&[]);
    let (count, token) = (admin.orders().next_count(7), Some(first.version.token));
    let handover = OrderRegister { count, value: Some(HandoverRequest::NewElection), until: token };
    let mut out = Vec::new();
    admin.order(Orders { handover, ..Orders::default() }, token, &mut out);
    let Ok(Reply::Conflict(_)) = peers.told(&mut admin, out) else { panic!("two voters know of the later leader") };
    let mut version = second.version;
    for _ in 0..3 {
        let renewed = applied(peers.renew(&mut b, "b", version));
        assert_eq!(renewed.handover, None, "the third voter has it, and it is not meant");
        version = renewed.version;
    }
}

#[test]
fn a_claim_that_may_have_been_granted_makes_a_look_wait_but_not_for_ever() {
    let mut peers = Peers::new();
    let mut b = QuorumClient::new(voter_set());
    let term = Token::NONE.next(0);
    let claim = Ask::Claim { term, holder: holder("a"), lease: LEASE, seen: OrderNumbers::default(), granted: None };
    peers.voters.get_mut(&VoterId::from_bits(1)).expect("a voter").handle(&claim, peers.now);
    let mut out = Vec::new();
    b.begin(Request::Look { announce: None }, &mut out);
    // The third voter says nothing, and nobody knows whether it will.
    out.retain(|output| !matches!(output, Output::Send { to, .. } if *to == VoterId::from_bits(3)));
    assert_eq!(peers.deliver(&mut b, out), [], "the third voter may know that it was granted");
    assert!(b.is_curious());
    let mut out = Vec::new();
    b.conclude(&mut out);
    let [Output::Done(Ok(Reply::Seen(seen)))] = &out[..] else { panic!("{out:?}") };
    assert_eq!(seen.record, None, "no majority has promised it");
}

#[test]
fn no_number_is_used_up_by_one_mistaken_ask() {
    let mut voter = Voter::restarted(Durable::default(), 0, Instant::ZERO);
    let claim = |term, seen, granted| Ask::Claim { term, holder: holder("a"), lease: LEASE, seen, granted };
    let none = OrderNumbers::default();
    let granted = |completed_order| Some(GrantProgress { beat: 1, completed_order });
    let order = |count| Ask::Order {
        orders: Orders { paused: OrderRegister::new(count, true), ..Orders::default() },
        token: None,
    };
    let one = Token::NONE.next(0);
    for ask in [
        claim(Token::MAX, none, None),
        claim(one, OrderNumbers { handover: u64::MAX, paused: 0 }, None),
        claim(one, none, granted(u64::MAX)),
        order(u64::MAX),
    ] {
        let verdict = voter.handle(&ask, Instant::ZERO);
        assert!(!verdict.answer.accepted && !verdict.must_flush, "{ask:?}");
    }
    assert!(voter.handle(&order(9 << 20), Instant::ZERO).answer.accepted);
    let seen = voter.durable().orders.counts();
    assert!(voter.handle(&claim(one, seen, None), Instant::ZERO).answer.accepted);
    let renew = Ask::Renew { term: one, id: holder("a").id, beat: 2, lease: LEASE, completed_order: u64::MAX };
    assert!(!voter.handle(&renew, Instant::ZERO).answer.accepted);
}

#[test]
fn an_order_against_a_token_is_refused_where_a_later_one_is_supported() {
    let mut peers = Peers::new();
    let first = applied(peers.ask(&mut QuorumClient::new(voter_set()), "a")).version.token;
    let voter = peers.voters.get_mut(&VoterId::from_bits(1)).expect("a voter");
    let orders = Orders { paused: OrderRegister::new(1 << 20, true), ..Orders::default() };
    let mut order = |token| voter.handle(&Ask::Order { orders: orders.clone(), token }, Instant::ZERO).answer;
    assert!(!order(Some(Token::NONE)).accepted);
    let answer = order(Some(first));
    assert!(answer.accepted && answer.view.orders.paused.value);
}

/// Or a late message about the earlier attempt would be taken for one about the later: it could free the voters of a leader.
#[test]
fn a_term_that_was_asked_for_in_vain_is_never_asked_for_again() {
    let mut peers = Peers::new();
    let mut a = QuorumClient::new(voter_set());
    let mut out = Vec::new();
    a.begin(Request::Acquire { expect: None, floor: Token::NONE.into(), holder: holder("a"), lease: LEASE }, &mut out);
    let claims = peers.deliver(&mut a, out);
    let term = |output: &Output| match output {
        Output::Send { ask: Ask::Claim { term, .. }, .. } => Some(*term),
        _ => None,
    };
    assert_eq!(claims.iter().filter_map(term).collect::<Vec<_>>(), [Token::new(1).expect("valid"); 3]);
    // None of them arrives in time, and the call is given up: they are taken back.
    let mut out = Vec::new();
    a.begin(Request::Look { announce: None }, &mut out);
    let take_backs = out.iter().filter(|output| matches!(output, Output::Send { ask: Ask::Release { .. }, .. }));
    assert_eq!(take_backs.count(), 3);
    assert_eq!(applied(peers.ask(&mut a, "a")).version, version(2, 1));
}

#[test]
fn a_promise_lasts_longer_by_what_the_voters_clock_may_be_fast() {
    let mut voter = Voter::restarted(Durable::default(), 20_000, Instant::ZERO);
    let term = Token::new(1).expect("valid");
    let claim = Ask::Claim { term, holder: holder("a"), lease: LEASE, seen: OrderNumbers::default(), granted: None };
    voter.handle(&claim, Instant::ZERO);
    let end = Instant::ZERO + LEASE + Duration::from_millis(200);
    assert_eq!(voter.bound_until(Instant::ZERO), Some(end));
    let again = Voter::restarted(voter.durable().clone(), 20_000, Instant::ZERO);
    assert_eq!(again.bound_until(Instant::ZERO), Some(end));
}

#[test]
fn disks_that_went_back_are_shown_as_they_are() {
    let mut peers = Peers::new();
    let mut a = QuorumClient::new(voter_set());
    applied(peers.ask(&mut a, "a"));
    let old: Vec<_> = peers.voters.iter().map(|(id, voter)| (*id, voter.durable().clone())).collect();
    peers.pass(LEASE);
    let second = applied(peers.ask(&mut a, "a"));
    assert_eq!(second.version, version(2, 1));
    for (id, durable) in old {
        peers.voters.insert(id, Voter::restarted(durable, 0, peers.now));
    }
    assert_eq!(peers.look(&mut a).record.expect("there is one").version.token, Token::new(1).expect("valid"));
}

#[test]
fn answers_to_another_round_count_for_nothing() {
    let mut peers = Peers::new();
    let mut a = QuorumClient::new(voter_set());
    let mut out = Vec::new();
    a.begin(Request::Look { announce: None }, &mut out);
    let (mut old, mut new) = (Vec::new(), Vec::new());
    std::mem::swap(&mut out, &mut old);
    a.begin(Request::Look { announce: None }, &mut new);
    for output in old {
        let Output::Send { to, round, ask } = output else { panic!("{output:?}") };
        assert_eq!(round, Round(1));
        let answer = peers.voters.get_mut(&to).expect("a voter").handle(&ask, peers.now).answer;
        a.answered(to, round, answer, &mut out);
        a.unheard(to, round, &mut out);
    }
    assert_eq!(out, Vec::new());
}

#[test]
fn without_a_majority_nothing_is_said_to_be_done_or_known() {
    let mut peers = Peers::new();
    let mut a = QuorumClient::new(voter_set());
    let first = applied(peers.ask(&mut a, "a"));
    peers.cut(&[1, 3]);
    assert_eq!(peers.call(&mut a, Request::Look { announce: None }), Err(CallError::NotDone));
    assert_eq!(peers.renew(&mut a, "a", first.version), Err(CallError::Unknown));
    let release = Request::Release { id: holder("a").id, version: first.version, reason: EndReason::Finished };
    assert_eq!(peers.call(&mut a, release), Err(CallError::Unknown));
}

/// It belongs to another election, asked over the same connection.
#[test]
fn a_late_answer_to_the_client_before_counts_for_nothing() {
    let mut peers = Peers::new();
    let mut before = QuorumClient::new(voter_set());
    let mut late = Vec::new();
    before.begin(Request::Look { announce: None }, &mut late);
    let mut client = QuorumClient::after(&before);
    let mut out = Vec::new();
    client.begin(Request::Look { announce: None }, &mut out);
    assert_eq!(peers.deliver(&mut client, late), []);
}

#[test]
fn a_beat_that_cannot_grow_ends_nobody() {
    let mut peers = Peers::new();
    let (mut a, mut admin) = (QuorumClient::new(voter_set()), QuorumClient::new(voter_set()));
    let first = applied(peers.ask(&mut a, "a"));
    let last =
        Ask::Renew { term: first.version.token, id: holder("a").id, beat: u64::MAX, lease: LEASE, completed_order: 0 };
    let now = peers.now;
    peers.voters.values_mut().for_each(|voter| assert!(voter.handle(&last, now).answer.accepted));
    let shown = peers.look(&mut admin).record.expect("there is one").version;
    let mut out = Vec::new();
    admin.dismiss(&mut out);
    let Ok(Reply::Seen(_)) = peers.told(&mut admin, out) else { panic!("it is freed") };
    peers.look(&mut a);
    conflict(peers.renew(&mut a, "a", shown));
}
