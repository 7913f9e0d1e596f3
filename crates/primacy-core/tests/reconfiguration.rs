//! Voters that are exchanged while they grant leases: each step, and what comes between them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use primacy_core::lease::{CallError, Holder, Record, Reply, Request};
use primacy_core::quorum::{
    Ask, Ballot, ConfigAcceptor, ConfigReply, ConfigRequest, Durable, GrantProgress, OrderNumbers, OrderRegister,
    Orders, Output, QuorumClient, ReconfigurationAttempt, ReconfigurationOutput, Voter, VoterId, VoterSet,
};
use primacy_core::{CandidateId, ElectionName, Instant, Label, Token};

#[path = "reconfiguration/orders.rs"]
mod orders;

const LEASE: Duration = Duration::from_secs(10);

fn ids(voters: &[u128]) -> BTreeSet<VoterId> {
    voters.iter().copied().map(VoterId::from_bits).collect()
}

fn name() -> ElectionName {
    ElectionName::new("e").expect("valid")
}

fn holder(name: &str) -> Holder {
    let bits = name.bytes().fold(0, |bits, byte| bits << 8 | u128::from(byte));
    Holder { id: CandidateId::from_bits(bits), label: Label::new(name).expect("valid"), data: String::new() }
}

struct Post {
    voter: Voter,
    acceptor: ConfigAcceptor<VoterSet>,
}

/// Voters 1 to 5, of whom some vote, and who of them can be reached.
struct Peers {
    now: Instant,
    posts: BTreeMap<VoterId, Post>,
    cut: BTreeSet<VoterId>,
}

impl Peers {
    fn new(voting: &[u128]) -> Self {
        let first = VoterSet::new(ids(voting)).expect("there are some");
        let post = |id: VoterId| {
            let mut voter = Voter::restarted(Durable::default(), 0, Instant::ZERO);
            let known = voting.contains(&id.to_bits()).then(|| first.clone());
            let acceptor =
                ConfigAcceptor::restarted(known, Ballot::default(), None, &(&name(), &mut voter), Instant::ZERO);
            (id, Post { voter, acceptor })
        };
        Self { now: Instant::ZERO, posts: ids(&[1, 2, 3, 4, 5]).into_iter().map(post).collect(), cut: BTreeSet::new() }
    }

    fn post(&mut self, voter: VoterId) -> &mut Post {
        self.posts.get_mut(&voter).expect("there is one")
    }

    fn acceptor(&mut self, voter: VoterId, ask: ConfigRequest<VoterSet>) -> ConfigReply<VoterSet> {
        let now = self.now;
        let Post { voter, acceptor } = self.post(voter);
        acceptor.handle(ask, &mut (&name(), voter), now)
    }

    /// Whether this voter does what it is asked.
    fn vote(&mut self, voter: u128, ask: &Ask) -> bool {
        let now = self.now;
        self.post(VoterId::from_bits(voter)).voter.handle(ask, now).answer.accepted
    }

    /// Who votes, as this voter knows.
    fn known(&self, voter: u128) -> &VoterSet {
        self.posts[&VoterId::from_bits(voter)].acceptor.configuration().expect("it knows of some")
    }

    /// From what the first voter knows to these, until it has to wait or is over; gives what it says then.
    fn change(&mut self, to: &[u128], by: u128) -> (ReconfigurationAttempt<VoterSet>, ReconfigurationOutput<VoterSet>) {
        let current = self.known(1).clone();
        let wanted = current.clone().joint(ids(to)).ok();
        let mut change = ReconfigurationAttempt::new(current, wanted, by);
        let said = self.go_on(&mut change);
        (change, said)
    }

    fn go_on(&mut self, change: &mut ReconfigurationAttempt<VoterSet>) -> ReconfigurationOutput<VoterSet> {
        self.go_on_where(change, |_, _| true)
    }

    /// The same where only what `arrives` does.
    fn go_on_where(
        &mut self,
        change: &mut ReconfigurationAttempt<VoterSet>,
        arrives: impl Fn(VoterId, &ConfigRequest<VoterSet>) -> bool,
    ) -> ReconfigurationOutput<VoterSet> {
        let mut out = Vec::new();
        change.resume(&mut out);
        loop {
            let mut next = Vec::new();
            for output in out {
                match output {
                    ReconfigurationOutput::Send { to, round, ask } if self.cut.contains(&to) || !arrives(to, &ask) => {
                        change.unheard(to, round, &mut next);
                    }
                    ReconfigurationOutput::Send { to, round, ask } => {
                        let answer = self.acceptor(to, ask);
                        change.answered(to, round, answer, &mut next);
                    }
                    ReconfigurationOutput::Begun(_) => {}
                    end => return end,
                }
            }
            assert!(!next.is_empty(), "it goes on or says why not");
            out = next;
        }
    }

    fn call(&mut self, client: &mut QuorumClient, request: Request) -> Result<Reply, CallError> {
        let mut out = Vec::new();
        client.begin(request, &mut out);
        loop {
            let mut next = Vec::new();
            // What is sent counts with the voters of that moment.
            let of = client.voter_set().clone();
            for output in out {
                match output {
                    Output::Done(result) => return result,
                    Output::Send { to, round, .. } if self.cut.contains(&to) => client.unheard(to, round, &mut next),
                    Output::Send { to, round, ask } => {
                        self.acceptor(to, ConfigRequest::Adopt(of.clone()));
                        let now = self.now;
                        let post = self.post(to);
                        if post.acceptor.admits(of.number()) {
                            let answer = post.voter.handle(&ask, now).answer;
                            client.answered(to, round, answer, &mut next);
                        } else if let Some(later) = post.acceptor.configuration() {
                            client.moved(later.clone(), &mut next);
                        }
                    }
                }
            }
            out = next;
        }
    }

    fn ask(&mut self, client: &mut QuorumClient, name: &str) -> Result<Reply, CallError> {
        let Ok(Reply::Seen(seen)) = self.call(client, Request::Look { announce: None }) else {
            panic!("a majority is there")
        };
        let expect = seen.record.as_ref().map(Record::expectation);
        self.call(client, Request::Acquire { expect, floor: Token::NONE.into(), holder: holder(name), lease: LEASE })
    }

    fn lead(&mut self, client: &mut QuorumClient, name: &str) -> Record {
        match self.ask(client, name) {
            Ok(Reply::Applied(record)) => record,
            other => panic!("{other:?}"),
        }
    }

    fn renew(&mut self, client: &mut QuorumClient, name: &str, record: &Record) -> Record {
        let request =
            Request::Renew { id: holder(name).id, version: record.version, lease: LEASE, completed_order: None };
        match self.call(client, request) {
            Ok(Reply::Applied(record)) => record,
            other => panic!("{other:?}"),
        }
    }
}

fn client(voters: &[u128]) -> QuorumClient {
    QuorumClient::new(VoterSet::new(ids(voters)).expect("there are some"))
}

fn settled(number: u64, voters: &[u128]) -> ReconfigurationOutput<VoterSet> {
    ReconfigurationOutput::Done(VoterSet::numbered(number, ids(voters), None).expect("there are some"))
}

/// All three voters keep a pause that is meant for leaderships up to this one.
fn pause(peers: &mut Peers, led: &Record) -> Orders {
    let paused = OrderRegister { until: Some(led.version.token), ..OrderRegister::new(1 << 20, true) };
    let orders = Orders { paused, ..Orders::default() };
    for voter in [1, 2, 3] {
        assert!(peers.vote(voter, &Ask::Order { orders: orders.clone(), token: Some(led.version.token) }));
    }
    orders
}

#[test]
fn a_leader_renews_while_all_its_voters_are_exchanged() {
    let mut peers = Peers::new(&[1, 2]);
    let mut a = client(&[1, 2]);
    let mut led = peers.lead(&mut a, "a");
    let (mut change, said) = peers.change(&[3, 4, 5], 7);
    assert_eq!(said, ReconfigurationOutput::Wait(LEASE), "the lease was granted by the old voters alone");
    led = peers.renew(&mut a, "a", &led);
    assert_eq!((led.version.token, a.voter_set().number()), (Token::NONE.next(0), 1));
    assert!(peers.posts[&VoterId::from_bits(3)].voter.bound_until(peers.now).is_some(), "the new ones are bound too");
    peers.now = peers.now + LEASE / 2;
    led = peers.renew(&mut a, "a", &led);
    peers.now = peers.now + LEASE / 2;
    assert_eq!(peers.go_on(&mut change), settled(2, &[3, 4, 5]));
    led = peers.renew(&mut a, "a", &led);
    assert_eq!((led.version.beat, a.voter_set().number()), (6, 2), "two were asked for when they learned of others");
    peers.cut = ids(&[1, 2]);
    peers.renew(&mut a, "a", &led);
}

#[test]
fn voters_that_granted_nothing_hand_over_at_once_and_a_token_is_never_given_twice() {
    let mut peers = Peers::new(&[1, 2, 3]);
    let mut a = client(&[1, 2, 3]);
    let led = peers.lead(&mut a, "a");
    peers.now = peers.now + LEASE;
    assert_eq!(peers.change(&[4, 5], 7).1, settled(2, &[4, 5]));
    let mut b = client(&[1, 2, 3]);
    let next = peers.lead(&mut b, "b");
    assert_eq!(next.version.token, led.version.token.next(0));
}

#[test]
fn a_claim_that_only_a_few_heard_of_is_not_taken_over_when_all_report() {
    let mut peers = Peers::new(&[1, 2, 3]);
    let mut a = client(&[1, 2, 3]);
    let led = peers.lead(&mut a, "a");
    assert!(peers.vote(3, &claim("a", led.version.token.next(0))));
    peers.now = peers.now + LEASE;
    assert_eq!(peers.change(&[4, 5], 7).1, settled(2, &[4, 5]));
    let inherited = peers.posts[&VoterId::from_bits(4)].voter.durable().term;
    assert_eq!(inherited, led.version.token);
}

#[test]
fn without_a_report_the_highest_term_that_anybody_has_is_taken_over() {
    let mut peers = Peers::new(&[1, 2, 3]);
    let mut a = client(&[1, 2, 3]);
    peers.cut = ids(&[1]);
    let led = peers.lead(&mut a, "a");
    peers.now = peers.now + LEASE;
    peers.cut = ids(&[3]);
    assert_eq!(peers.change(&[1, 4, 5], 7).1, settled(2, &[1, 4, 5]));
    for voter in [1, 4, 5] {
        assert_eq!(peers.posts[&VoterId::from_bits(voter)].voter.durable().term, led.version.token, "{voter}");
    }
}

#[test]
fn a_change_whose_driver_is_gone_is_finished_by_the_next() {
    let mut peers = Peers::new(&[1, 2, 3]);
    let mut a = client(&[1, 2, 3]);
    peers.lead(&mut a, "a");
    assert_eq!(peers.change(&[1, 2, 4], 7).1, ReconfigurationOutput::Wait(LEASE));
    peers.now = peers.now + LEASE;
    // Another wants others; the one that has begun comes first.
    assert_eq!(peers.change(&[1, 2, 5], 8).1, settled(2, &[1, 2, 4]));
    assert_eq!(peers.change(&[1, 2, 5], 8).1, settled(4, &[1, 2, 5]));
}

#[test]
fn what_a_majority_may_have_taken_is_what_the_next_attempt_proposes() {
    let mut peers = Peers::new(&[1, 2, 3]);
    let first = peers.known(1).clone();
    let (one, other) = (first.clone().joint(ids(&[4])), first.clone().joint(ids(&[5])));
    let (one, other) = (one.expect("it does not change"), other.expect("it does not change"));
    let ballot = Ballot { count: 1, by: 7 };
    for voter in [1, 2] {
        let voter = VoterId::from_bits(voter);
        assert_eq!(peers.acceptor(voter, ConfigRequest::Prepare { number: 0, ballot }), ConfigReply::Prepared(None));
        let take = ConfigRequest::Take { number: 0, ballot, proposal: one.clone() };
        assert_eq!(peers.acceptor(voter, take), ConfigReply::Done);
    }
    let late = Ballot { count: 1, by: 6 };
    let take = ConfigRequest::Take { number: 0, ballot: late, proposal: other.clone() };
    assert_eq!(peers.acceptor(VoterId::from_bits(1), take), ConfigReply::Outbid(ballot));
    assert_eq!(peers.change(&[5], 8).1, settled(2, &[4]));
}

#[test]
fn a_change_that_reaches_no_majority_begins_nothing() {
    let mut peers = Peers::new(&[1, 2, 3]);
    peers.cut = ids(&[2, 3]);
    assert_eq!(
        peers.change(&[1, 4, 5], 7).1,
        ReconfigurationOutput::Stuck(vec![VoterId::from_bits(2), VoterId::from_bits(3)])
    );
    assert_eq!(peers.known(1).number(), 0);
}

#[test]
fn the_new_voters_do_not_vote_alone_before_a_majority_of_them_is_there() {
    let mut peers = Peers::new(&[1, 2, 3]);
    peers.cut = ids(&[4, 5]);
    assert!(matches!(peers.change(&[3, 4, 5], 7).1, ReconfigurationOutput::Stuck(_)));
    assert_eq!(peers.known(1).number(), 1, "it has begun");
    assert!(matches!(peers.call(&mut client(&[1, 2, 3]), Request::Look { announce: None }), Err(CallError::NotDone)));
    peers.cut.clear();
    assert_eq!(peers.change(&[3, 4, 5], 7).1, settled(2, &[3, 4, 5]));
}

/// Who goes ends when it hears that; who stays and does not know of the end needs it to leave the joint phase.
#[test]
fn those_that_go_are_told_when_a_majority_of_those_that_stay_has_it() {
    let mut peers = Peers::new(&[1, 2]);
    let current = peers.known(1).clone();
    let mut change = ReconfigurationAttempt::new(current.clone(), current.joint(ids(&[2])).ok(), 7);
    let stays = VoterId::from_bits(2);
    let ends = |ask: &ConfigRequest<VoterSet>| matches!(ask, ConfigRequest::Adopt(voters) if voters.number() == 2);
    let said = peers.go_on_where(&mut change, |to, ask| to != stays || !ends(ask));
    assert_eq!(said, ReconfigurationOutput::Stuck(vec![stays]));
    assert_eq!((peers.known(1).number(), peers.known(2).number()), (1, 1), "who goes can still agree to its going");
    assert_eq!(peers.change(&[2], 8).1, settled(2, &[2]));
    assert_eq!(peers.known(1).number(), 2, "and then hears of it");
}

/// Only a new voter has adopted the joint phase, and tells others of it: seed 3990 of the roulette's worlds among peers.
#[test]
fn what_the_old_voters_have_taken_is_finished_by_who_only_finishes() {
    let mut peers = Peers::new(&[1, 2, 3]);
    let current = peers.known(1).clone();
    let mut change = ReconfigurationAttempt::new(current.clone(), current.clone().joint(ids(&[1, 2, 4])).ok(), 7);
    let is_new =
        |to, ask: &ConfigRequest<VoterSet>| !matches!(ask, ConfigRequest::Adopt(_)) || to == VoterId::from_bits(4);
    assert!(matches!(peers.go_on_where(&mut change, is_new), ReconfigurationOutput::Stuck(_)));
    assert_eq!((peers.known(1).number(), peers.known(4).number()), (0, 1));
    let mut finishes = ReconfigurationAttempt::new(current, None, 8);
    assert_eq!(peers.go_on(&mut finishes), settled(2, &[1, 2, 4]));
}

#[test]
fn what_a_minority_has_taken_is_left_alone_by_who_only_finishes_if_all_others_say_so() {
    let first_alone =
        |to, ask: &ConfigRequest<VoterSet>| !matches!(ask, ConfigRequest::Take { .. }) || to == VoterId::from_bits(1);
    for (silent, end) in
        [(vec![], settled(0, &[1, 2, 3])), (vec![3], settled(2, &[1, 2, 4])), (vec![1], settled(0, &[1, 2, 3]))]
    {
        let mut peers = Peers::new(&[1, 2, 3]);
        let current = peers.known(1).clone();
        let mut change = ReconfigurationAttempt::new(current.clone(), current.clone().joint(ids(&[1, 2, 4])).ok(), 7);
        assert!(matches!(peers.go_on_where(&mut change, first_alone), ReconfigurationOutput::Stuck(_)));
        peers.cut = ids(&silent);
        let mut finishes = ReconfigurationAttempt::new(current, None, 8);
        assert_eq!(peers.go_on(&mut finishes), end, "where {silent:?} does not answer");
    }
}

fn claim(name: &str, term: Token) -> Ask {
    Ask::Claim { term, holder: holder(name), lease: LEASE, seen: OrderNumbers::default(), granted: None }
}

/// The operator reaches a voter that supports a rival's later claim, and the leader's voters only in part.
#[test]
fn a_later_claim_in_vain_keeps_no_new_voter_from_taking_over_and_no_leader_from_leading() {
    let mut peers = Peers::new(&[1, 2, 3]);
    let mut a = client(&[1, 2, 3]);
    peers.cut = ids(&[3]);
    let mut led = peers.lead(&mut a, "a");
    let beyond = led.version.token.next(0);
    assert!(peers.vote(3, &claim("b", beyond)));
    peers.cut = ids(&[1]);
    let current = peers.known(2).clone();
    let mut change = ReconfigurationAttempt::new(current.clone(), current.joint(ids(&[3, 4, 5])).ok(), 7);
    assert_eq!(peers.go_on(&mut change), ReconfigurationOutput::Wait(LEASE));
    for _ in 0..2 {
        peers.now = peers.now + LEASE / 2;
        peers.cut.clear();
        led = peers.renew(&mut a, "a", &led);
        peers.cut = ids(&[1]);
    }
    assert_eq!(peers.go_on(&mut change), settled(2, &[3, 4, 5]));
    led = peers.renew(&mut a, "a", &led);
    let durable = peers.post(VoterId::from_bits(4)).voter.durable().clone();
    assert_eq!((durable.support(), durable.highest), ((led.version.token, Some(holder("a").id)), beyond));
    peers.now = peers.now + LEASE;
    assert!(
        peers.lead(&mut client(&[3, 4, 5]), "c").version.token > beyond,
        "what a majority may have supported is not granted again"
    );
}

/// A voter of the operator's supports a later claim, and the new voters were bound to the leader before they inherited anything.
#[test]
fn a_change_ends_although_operator_and_leader_reach_different_old_voters_all_the_while() {
    let mut peers = Peers::new(&[1, 2, 3]);
    let mut a = client(&[1, 2, 3]);
    let (of_leader, of_operator) = (ids(&[3]), ids(&[1]));
    peers.cut = of_leader.clone();
    let mut led = peers.lead(&mut a, "a");
    let beyond = led.version.token.next(0);
    assert!(peers.vote(3, &claim("b", beyond)));
    peers.cut = of_operator.clone();
    let current = peers.known(2).clone();
    let mut change = ReconfigurationAttempt::new(current.clone(), current.joint(ids(&[2, 4, 5])).ok(), 7);
    let untold = |_, ask: &ConfigRequest<VoterSet>| !matches!(ask, ConfigRequest::Inherit { .. });
    assert!(matches!(peers.go_on_where(&mut change, untold), ReconfigurationOutput::Stuck(_)));
    let mut change = ReconfigurationAttempt::new(peers.known(2).clone(), None, 8);
    let mut said = Vec::new();
    for _ in 0..3 {
        peers.cut = of_leader.clone();
        led = peers.renew(&mut a, "a", &led);
        peers.cut = of_operator.clone();
        said.push(peers.go_on(&mut change));
        peers.now = peers.now + LEASE / 2;
    }
    assert_eq!(
        said,
        [ReconfigurationOutput::Wait(LEASE), ReconfigurationOutput::Wait(LEASE / 2), settled(2, &[2, 4, 5])]
    );
    peers.cut.clear();
    led = peers.renew(&mut a, "a", &led);
    assert!(led.version.token < beyond);
}

/// Two claimed one term, and the voter that is asked first supports the one who was not granted it.
#[test]
fn the_new_voters_inherit_whom_the_term_was_granted_to_if_that_is_known() {
    let term = Token::NONE.next(0);
    let release = |name, beat| Ask::Release { term, id: holder(name).id, beat, completed_order: 0 };
    let heir = |asks: &[(u128, Ask)], silent: &[u128]| {
        let mut peers = Peers::new(&[1, 2, 3]);
        for (voter, ask) in asks {
            assert!(peers.vote(*voter, ask));
        }
        peers.cut = ids(silent);
        peers.change(&[4, 5], 7);
        let heir = peers.post(VoterId::from_bits(4)).voter.durable().clone();
        assert_eq!(heir.term, term);
        (heir.holder.map(|holder| holder.label.to_string()), heir.released)
    };
    let a = || Some("a".to_owned());
    let taken_back = [(1, claim("b", term)), (1, release("b", 0)), (2, claim("a", term)), (3, claim("a", term))];
    assert_eq!(heir(&taken_back, &[]), (a(), None));
    assert_eq!(heir(&taken_back, &[3]), (None, None));
    // `b` is gone without a word, and `a` has given the lease back.
    let given_back = [(1, claim("b", term)), (2, claim("a", term)), (3, claim("a", term)), (2, release("a", 3))];
    assert_eq!(heir(&given_back, &[]), (a(), Some(3)));
    assert_eq!(heir(&given_back, &[3]), (a(), Some(3)));
}

/// A pause that is in place, and meant for leaderships up to the one that was granted last, is not outlived by a claim in vain.
#[test]
fn a_term_that_nobody_is_known_to_have_led_in_does_not_look_as_if_somebody_had() {
    let mut peers = Peers::new(&[1, 2, 3]);
    let mut a = client(&[1, 2, 3]);
    let led = peers.lead(&mut a, "a");
    let orders = pause(&mut peers, &led);
    peers.now = peers.now + LEASE;
    let term = led.version.token.next(0);
    let seen = orders.counts();
    let holder = holder("b");
    assert!(peers.vote(1, &Ask::Claim { term, holder, lease: LEASE, seen, granted: None }));
    peers.now = peers.now + LEASE;
    peers.cut = ids(&[3]);
    assert_eq!(peers.change(&[4, 5], 7).1, settled(2, &[4, 5]));
    assert_eq!(peers.post(VoterId::from_bits(4)).voter.durable().term, term, "nobody is granted it again");
    for mut observer in [a, client(&[4, 5])] {
        let Ok(Reply::Seen(seen)) = peers.call(&mut observer, Request::Look { announce: None }) else { panic!() };
        let record = seen.record.expect("there are orders");
        assert!(record.paused && record.version.token <= led.version.token, "{record:?}");
    }
}

#[test]
fn a_claim_that_is_overtaken_by_a_change_is_given_up() {
    let mut peers = Peers::new(&[1, 2, 3]);
    let mut a = client(&[1, 2, 3]);
    let mut out = Vec::new();
    a.begin(Request::Acquire { expect: None, floor: Token::NONE.into(), holder: holder("a"), lease: LEASE }, &mut out);
    let now = peers.now;
    let mut claims = Vec::new();
    for output in out {
        let Output::Send { to, round, ask } = output else { panic!("{output:?}") };
        let answer = peers.post(to).voter.handle(&ask, now).answer;
        a.answered(to, round, answer, &mut claims);
    }
    let joint = peers.known(1).clone().joint(ids(&[3, 4, 5])).expect("it does not change");
    let mut out = Vec::new();
    a.moved(joint, &mut out);
    assert_eq!(out.pop(), Some(Output::Done(Err(CallError::NotDone))));
    let is_back = |output: &Output| matches!(output, Output::Send { ask: Ask::Release { beat: 0, .. }, .. });
    assert!(out.len() == 5 && out.iter().all(is_back), "{out:?}");
    for output in claims {
        let Output::Send { to, round, ask } = output else { panic!("{output:?}") };
        let answer = peers.post(to).voter.handle(&ask, now).answer;
        a.answered(to, round, answer, &mut out);
    }
    assert_eq!(a.shown(), None, "answers that come late make nobody lead");
}
