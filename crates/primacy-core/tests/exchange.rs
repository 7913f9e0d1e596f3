//! Voters that are exchanged while they grant leases: each step, and what comes between them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use primacy_core::lease::{CallError, Holder, Record, Reply, Request};
use primacy_core::quorum::{
    Ask, Ballot, Change, ChangeOutput, Clerk, Counts, Durable, Membership, Ordered, Orders, Output, Roll, RollAnswer,
    RollAsk, Voter, VoterId,
};
use primacy_core::{CandidateId, ElectionName, Instant, Label, Token};

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
    roll: Roll<Membership>,
}

/// Voters 1 to 5, of whom some vote, and who of them can be reached.
struct Peers {
    now: Instant,
    posts: BTreeMap<VoterId, Post>,
    cut: BTreeSet<VoterId>,
}

impl Peers {
    fn new(voting: &[u128]) -> Self {
        let first = Membership::new(ids(voting)).expect("there are some");
        let post = |id: VoterId| {
            let mut voter = Voter::restarted(Durable::default(), 0, Instant::ZERO);
            let known = voting.contains(&id.to_bits()).then(|| first.clone());
            let roll = Roll::restarted(known, Ballot::default(), None, &(&name(), &mut voter), Instant::ZERO);
            (id, Post { voter, roll })
        };
        Self { now: Instant::ZERO, posts: ids(&[1, 2, 3, 4, 5]).into_iter().map(post).collect(), cut: BTreeSet::new() }
    }

    fn post(&mut self, voter: VoterId) -> &mut Post {
        self.posts.get_mut(&voter).expect("there is one")
    }

    fn roll(&mut self, voter: VoterId, ask: RollAsk<Membership>) -> RollAnswer<Membership> {
        let now = self.now;
        let Post { voter, roll } = self.post(voter);
        roll.handle(ask, &mut (&name(), voter), now)
    }

    /// Whether this voter does what it is asked.
    fn vote(&mut self, voter: u128, ask: &Ask) -> bool {
        let now = self.now;
        self.post(VoterId::from_bits(voter)).voter.handle(ask, now).answer.accepted
    }

    /// Who votes, as this voter knows.
    fn known(&self, voter: u128) -> &Membership {
        self.posts[&VoterId::from_bits(voter)].roll.configuration().expect("it knows of some")
    }

    /// From what the first voter knows to these, until it has to wait or is over; gives what it says then.
    fn change(&mut self, to: &[u128], by: u128) -> (Change<Membership>, ChangeOutput<Membership>) {
        let current = self.known(1).clone();
        let wanted = current.clone().joint(ids(to)).ok();
        let mut change = Change::new(current, wanted, by);
        let said = self.go_on(&mut change);
        (change, said)
    }

    fn go_on(&mut self, change: &mut Change<Membership>) -> ChangeOutput<Membership> {
        self.go_on_where(change, |_, _| true)
    }

    /// The same where only what `arrives` does.
    fn go_on_where(
        &mut self,
        change: &mut Change<Membership>,
        arrives: impl Fn(VoterId, &RollAsk<Membership>) -> bool,
    ) -> ChangeOutput<Membership> {
        let mut out = Vec::new();
        change.resume(&mut out);
        loop {
            let mut next = Vec::new();
            for output in out {
                match output {
                    ChangeOutput::Send { to, round, ask } if self.cut.contains(&to) || !arrives(to, &ask) => {
                        change.unheard(to, round, &mut next);
                    }
                    ChangeOutput::Send { to, round, ask } => {
                        let answer = self.roll(to, ask);
                        change.answered(to, round, answer, &mut next);
                    }
                    ChangeOutput::Begun(_) => {}
                    end => return end,
                }
            }
            assert!(!next.is_empty(), "it goes on or says why not");
            out = next;
        }
    }

    fn call(&mut self, clerk: &mut Clerk, request: Request) -> Result<Reply, CallError> {
        let mut out = Vec::new();
        clerk.begin(request, &mut out);
        loop {
            let mut next = Vec::new();
            // What is sent counts with the voters of that moment.
            let of = clerk.membership().clone();
            for output in out {
                match output {
                    Output::Done(result) => return result,
                    Output::Send { to, round, .. } if self.cut.contains(&to) => clerk.unheard(to, round, &mut next),
                    Output::Send { to, round, ask } => {
                        self.roll(to, RollAsk::Adopt(of.clone()));
                        let now = self.now;
                        let post = self.post(to);
                        if post.roll.admits(of.number()) {
                            let answer = post.voter.handle(&ask, now).answer;
                            clerk.answered(to, round, answer, &mut next);
                        } else if let Some(later) = post.roll.configuration() {
                            clerk.moved(later.clone(), &mut next);
                        }
                    }
                }
            }
            out = next;
        }
    }

    fn ask(&mut self, clerk: &mut Clerk, name: &str) -> Result<Reply, CallError> {
        let Ok(Reply::Seen(seen)) = self.call(clerk, Request::Look { announce: None }) else {
            panic!("a majority is there")
        };
        let expect = seen.record.as_ref().map(Record::expectation);
        self.call(clerk, Request::Acquire { expect, floor: Token::NONE, holder: holder(name), lease: LEASE })
    }

    fn lead(&mut self, clerk: &mut Clerk, name: &str) -> Record {
        match self.ask(clerk, name) {
            Ok(Reply::Applied(record)) => record,
            other => panic!("{other:?}"),
        }
    }

    fn renew(&mut self, clerk: &mut Clerk, name: &str, record: &Record) -> Record {
        let request = Request::Renew { id: holder(name).id, version: record.version, lease: LEASE, fulfilled: None };
        match self.call(clerk, request) {
            Ok(Reply::Applied(record)) => record,
            other => panic!("{other:?}"),
        }
    }
}

fn clerk(voters: &[u128]) -> Clerk {
    Clerk::new(Membership::new(ids(voters)).expect("there are some"))
}

fn settled(number: u64, voters: &[u128]) -> ChangeOutput<Membership> {
    ChangeOutput::Done(Membership::numbered(number, ids(voters), None).expect("there are some"))
}

#[test]
fn a_leader_renews_while_all_its_voters_are_exchanged() {
    let mut peers = Peers::new(&[1, 2]);
    let mut a = clerk(&[1, 2]);
    let mut led = peers.lead(&mut a, "a");
    let (mut change, said) = peers.change(&[3, 4, 5], 7);
    assert_eq!(said, ChangeOutput::Wait(LEASE), "the lease was granted by the old voters alone");
    led = peers.renew(&mut a, "a", &led);
    assert_eq!((led.version.token, a.membership().number()), (Token::NONE.next(0), 1));
    assert!(peers.posts[&VoterId::from_bits(3)].voter.bound_until(peers.now).is_some(), "the new ones are bound too");
    peers.now = peers.now + LEASE / 2;
    led = peers.renew(&mut a, "a", &led);
    peers.now = peers.now + LEASE / 2;
    assert_eq!(peers.go_on(&mut change), settled(2, &[3, 4, 5]));
    led = peers.renew(&mut a, "a", &led);
    assert_eq!((led.version.beat, a.membership().number()), (6, 2), "two were asked for when they learned of others");
    peers.cut = ids(&[1, 2]);
    peers.renew(&mut a, "a", &led);
}

#[test]
fn voters_that_granted_nothing_hand_over_at_once_and_a_token_is_never_given_twice() {
    let mut peers = Peers::new(&[1, 2, 3]);
    let mut a = clerk(&[1, 2, 3]);
    let led = peers.lead(&mut a, "a");
    peers.now = peers.now + LEASE;
    assert_eq!(peers.change(&[4, 5], 7).1, settled(2, &[4, 5]));
    let mut b = clerk(&[1, 2, 3]);
    let next = peers.lead(&mut b, "b");
    assert_eq!(next.version.token, led.version.token.next(0));
}

#[test]
fn a_claim_that_only_a_few_heard_of_is_not_taken_over_when_all_report() {
    let mut peers = Peers::new(&[1, 2, 3]);
    let mut a = clerk(&[1, 2, 3]);
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
    let mut a = clerk(&[1, 2, 3]);
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
    let mut a = clerk(&[1, 2, 3]);
    peers.lead(&mut a, "a");
    assert_eq!(peers.change(&[1, 2, 4], 7).1, ChangeOutput::Wait(LEASE));
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
        assert_eq!(peers.roll(voter, RollAsk::Prepare { number: 0, ballot }), RollAnswer::Prepared(None));
        let take = RollAsk::Take { number: 0, ballot, proposal: one.clone() };
        assert_eq!(peers.roll(voter, take), RollAnswer::Done);
    }
    let late = Ballot { count: 1, by: 6 };
    let take = RollAsk::Take { number: 0, ballot: late, proposal: other.clone() };
    assert_eq!(peers.roll(VoterId::from_bits(1), take), RollAnswer::Outbid(ballot));
    assert_eq!(peers.change(&[5], 8).1, settled(2, &[4]));
}

#[test]
fn a_change_that_reaches_no_majority_begins_nothing() {
    let mut peers = Peers::new(&[1, 2, 3]);
    peers.cut = ids(&[2, 3]);
    assert_eq!(peers.change(&[1, 4, 5], 7).1, ChangeOutput::Stuck(vec![VoterId::from_bits(2), VoterId::from_bits(3)]));
    assert_eq!(peers.known(1).number(), 0);
}

#[test]
fn the_new_voters_do_not_vote_alone_before_a_majority_of_them_is_there() {
    let mut peers = Peers::new(&[1, 2, 3]);
    peers.cut = ids(&[4, 5]);
    assert!(matches!(peers.change(&[3, 4, 5], 7).1, ChangeOutput::Stuck(_)));
    assert_eq!(peers.known(1).number(), 1, "it has begun");
    assert!(matches!(peers.call(&mut clerk(&[1, 2, 3]), Request::Look { announce: None }), Err(CallError::NotDone)));
    peers.cut.clear();
    assert_eq!(peers.change(&[3, 4, 5], 7).1, settled(2, &[3, 4, 5]));
}

/// Who goes ends when it hears that; who stays and does not know of the end needs it to leave the joint phase.
#[test]
fn those_that_go_are_told_when_a_majority_of_those_that_stay_has_it() {
    let mut peers = Peers::new(&[1, 2]);
    let current = peers.known(1).clone();
    let mut change = Change::new(current.clone(), current.joint(ids(&[2])).ok(), 7);
    let stays = VoterId::from_bits(2);
    let ends = |ask: &RollAsk<Membership>| matches!(ask, RollAsk::Adopt(voters) if voters.number() == 2);
    let said = peers.go_on_where(&mut change, |to, ask| to != stays || !ends(ask));
    assert_eq!(said, ChangeOutput::Stuck(vec![stays]));
    assert_eq!((peers.known(1).number(), peers.known(2).number()), (1, 1), "who goes can still agree to its going");
    assert_eq!(peers.change(&[2], 8).1, settled(2, &[2]));
    assert_eq!(peers.known(1).number(), 2, "and then hears of it");
}

fn claim(name: &str, term: Token) -> Ask {
    Ask::Claim { term, holder: holder(name), lease: LEASE, seen: Counts::default(), granted: None }
}

/// Two claimed one term, and the voter that is asked first supports the one who was not granted it.
#[test]
fn the_new_voters_inherit_whom_the_term_was_granted_to_if_that_is_known() {
    let term = Token::NONE.next(0);
    let release = |name, beat| Ask::Release { term, id: holder(name).id, beat, fulfilled: 0 };
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
    let mut a = clerk(&[1, 2, 3]);
    let led = peers.lead(&mut a, "a");
    let paused = Ordered { until: Some(led.version.token), ..Ordered::new(1 << 20, true) };
    let orders = Orders { paused, ..Orders::default() };
    for voter in [1, 2, 3] {
        assert!(peers.vote(voter, &Ask::Order { orders: orders.clone(), token: Some(led.version.token) }));
    }
    peers.now = peers.now + LEASE;
    let term = led.version.token.next(0);
    let seen = orders.counts();
    let holder = holder("b");
    assert!(peers.vote(1, &Ask::Claim { term, holder, lease: LEASE, seen, granted: None }));
    peers.now = peers.now + LEASE;
    peers.cut = ids(&[3]);
    assert_eq!(peers.change(&[4, 5], 7).1, settled(2, &[4, 5]));
    assert_eq!(peers.post(VoterId::from_bits(4)).voter.durable().term, term, "nobody is granted it again");
    for mut observer in [a, clerk(&[4, 5])] {
        let Ok(Reply::Seen(seen)) = peers.call(&mut observer, Request::Look { announce: None }) else { panic!() };
        let record = seen.record.expect("there are orders");
        assert!(record.paused && record.version.token <= led.version.token, "{record:?}");
    }
}

#[test]
fn a_claim_that_is_overtaken_by_a_change_is_given_up() {
    let mut peers = Peers::new(&[1, 2, 3]);
    let mut a = clerk(&[1, 2, 3]);
    let mut out = Vec::new();
    a.begin(Request::Acquire { expect: None, floor: Token::NONE, holder: holder("a"), lease: LEASE }, &mut out);
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
