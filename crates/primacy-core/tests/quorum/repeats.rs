//! Renewals that are not answered in time: their holder may be heard and hear nothing.

use primacy_core::quorum::Answer;

use super::*;

/// What the client asks, as it is received by voters whose answers are all lost.
fn unanswered(peers: &mut Peers, client: &mut QuorumClient, version: Version, reached: &[u128]) {
    let (mut out, request) =
        (Vec::new(), Request::Renew { id: holder("a").id, version, lease: LEASE, completed_order: None });
    client.begin(request, &mut out);
    for output in out {
        let Output::Send { to, ask, .. } = output else { panic!("{output:?}") };
        if reached.contains(&to.to_bits()) {
            peers.voters.get_mut(&to).expect("a voter").handle(&ask, peers.now);
        }
    }
}

#[test]
fn a_holder_that_hears_nothing_is_waited_for_no_longer_than_one_that_is_gone() {
    let mut peers = Peers::new();
    let mut a = QuorumClient::new(voter_set());
    let first = applied(peers.ask(&mut a, "a")).version;
    for _ in 0..3 {
        peers.pass(LEASE / 4);
        unanswered(&mut peers, &mut a, first, &[1, 2, 3]);
    }
    let mut b = QuorumClient::new(voter_set());
    peers.pass(LEASE / 4 - Duration::from_nanos(1));
    assert!(!peers.look(&mut b).holder_gone, "it may believe what it was granted");
    peers.pass(Duration::from_nanos(1));
    assert!(peers.look(&mut b).holder_gone, "what it has renewed since it has withdrawn");
    assert_eq!(applied(peers.ask(&mut b, "b")).version, version(2, 1));
}

#[test]
fn a_renewal_that_was_not_answered_is_withdrawn_and_the_next_one_counts() {
    let mut peers = Peers::new();
    let mut a = QuorumClient::new(voter_set());
    let first = applied(peers.ask(&mut a, "a")).version;
    unanswered(&mut peers, &mut a, first, &[1, 2, 3]);
    peers.pass(LEASE / 2);
    peers.cut(&[3]);
    assert_eq!(applied(peers.renew(&mut a, "a", first)).version, version(1, 3));
    peers.pass(LEASE - Duration::from_nanos(1));
    let refused = peers.ask(&mut QuorumClient::new(voter_set()), "b");
    assert!(matches!(refused, Ok(Reply::Seen(_))), "bound by the one that counted");
    peers.cut(&[]);
    assert_eq!(applied(peers.renew(&mut a, "a", version(1, 3))).version, version(1, 4));
}

/// Nothing new is promised to a holder that a majority cannot answer.
#[test]
fn whoever_has_not_been_answered_asks_for_nothing_before_a_majority_is_heard() {
    let mut peers = Peers::new();
    let mut a = QuorumClient::new(voter_set());
    let first = applied(peers.ask(&mut a, "a")).version;
    unanswered(&mut peers, &mut a, first, &[1]);
    peers.cut(&[2, 3]);
    for _ in 0..2 {
        assert_eq!(peers.renew(&mut a, "a", first), Err(CallError::Unknown));
    }
    assert_eq!(peers.voters[&VoterId::from_bits(1)].bound_until(peers.now), Some(peers.now + LEASE), "by the claim");
    peers.cut(&[]);
    assert_eq!(applied(peers.renew(&mut a, "a", first)).version, version(1, 3));
}

/// The messages of one holder, in every order in which they can come.
#[test]
fn a_voter_is_bound_by_what_was_not_withdrawn() {
    let term = Token::new(1).expect("small");
    let id = holder("a").id;
    let at = |quarters: u32| Instant::ZERO + LEASE / 4 * quarters;
    let claim = Ask::Claim { term, holder: holder("a"), lease: LEASE, seen: OrderNumbers::default(), granted: None };
    let renew = |beat| Ask::Renew { term, id, beat, lease: LEASE, completed_order: 0 };
    let withdraw = |beat| Ask::Withdraw { term, id, beat };
    let mut voter = Voter::restarted(Durable::default(), 0, Instant::ZERO);
    let mut told = |quarters, ask: &Ask, accepted: bool, until: u32| {
        assert_eq!(voter.handle(ask, at(quarters)).answer.accepted, accepted, "{ask:?}");
        assert_eq!(voter.bound_until(at(quarters)), Some(at(until)), "after {ask:?}");
    };
    told(0, &claim, true, 4);
    told(0, &withdraw(1), true, 4); // a claim is no renewal
    told(1, &renew(2), true, 5);
    told(1, &Ask::Withdraw { term, id: holder("b").id, beat: 2 }, false, 5);
    told(2, &renew(3), true, 6);
    told(3, &withdraw(2), true, 6); // too late
    told(3, &withdraw(3), true, 5);
    told(3, &withdraw(3), true, 5);
    told(3, &renew(3), false, 5);
    told(3, &withdraw(4), true, 5); // before the renewal itself
    told(3, &withdraw(4), true, 5);
    told(3, &renew(4), false, 5);
    told(3, &renew(5), true, 7);
    told(4, &withdraw(4), true, 7);
    let late = GrantProgress { beat: 6, completed_order: 0 };
    told(
        4,
        &Ask::Claim { term, holder: holder("a"), lease: LEASE, seen: OrderNumbers::default(), granted: Some(late) },
        true,
        8,
    );
    told(4, &withdraw(6), true, 7);
}

/// A voter that it has asked to support its term after all is free again, if nobody hears that it does.
#[test]
fn a_renewal_that_came_as_a_claim_is_withdrawn_too() {
    let mut voter = Voter::restarted(Durable::default(), 0, Instant::ZERO);
    let (term, id) = (Token::new(1).expect("small"), holder("a").id);
    let granted = Some(GrantProgress { beat: 7, completed_order: 0 });
    let claim = Ask::Claim { term, holder: holder("a"), lease: LEASE, seen: OrderNumbers::default(), granted };
    assert!(voter.handle(&claim, Instant::ZERO).answer.accepted);
    assert!(voter.handle(&Ask::Withdraw { term, id, beat: 7 }, Instant::ZERO).answer.accepted);
    assert_eq!(voter.bound_until(Instant::ZERO), None);
    assert!(!voter.handle(&claim, Instant::ZERO).answer.accepted, "nor does it bind when it comes again");
}

/// A renewal reaches a voter that has missed the term as a claim, and binds it once as well.
#[test]
fn a_voter_that_catches_up_is_bound_once_for_each_renewal() {
    let mut voter = Voter::restarted(Durable::default(), 0, Instant::ZERO);
    let claim = |beat| Ask::Claim {
        term: Token::new(1).expect("small"),
        holder: holder("a"),
        lease: LEASE,
        seen: OrderNumbers::default(),
        granted: Some(GrantProgress { beat, completed_order: 0 }),
    };
    assert!(voter.handle(&claim(7), Instant::ZERO).answer.accepted);
    let later = Instant::ZERO + LEASE / 2;
    assert!(!voter.handle(&claim(7), later).answer.accepted);
    assert_eq!(voter.bound_until(later), Some(Instant::ZERO + LEASE));
    assert!(voter.handle(&claim(8), later).answer.accepted);
    assert_eq!(voter.bound_until(later), Some(later + LEASE));
}

/// `a` has claimed, one has accepted, one has refused for a rival in this term, and the third says nothing.
fn contested(peers: &mut Peers, a: &mut QuorumClient, rivals: u64) {
    let mut out = Vec::new();
    let (lease, floor) = (LEASE, Token::NONE.into());
    a.begin(Request::Acquire { expect: None, floor, holder: holder("a"), lease }, &mut out);
    out.retain(|output| !matches!(output, Output::Send { ask: Ask::Release { .. }, .. }));
    let mut claims = peers.deliver(a, out);
    let term = Token::new(rivals).expect("small");
    let rival = Ask::Claim { term, holder: holder("b"), lease, seen: OrderNumbers::default(), granted: None };
    assert!(peers.voters.get_mut(&VoterId::from_bits(2)).expect("it").handle(&rival, peers.now).answer.accepted);
    claims.retain(|output| !matches!(output, Output::Send { to, .. } if to.to_bits() == 3));
    assert_eq!(peers.deliver(a, claims), []);
    assert!(a.is_curious(), "one has accepted, one has refused");
}

/// Somebody who has asked, and waits for a voter that is gone, holds two others bound for nothing.
#[test]
fn a_claim_that_a_majority_has_answered_is_given_up_without_those_that_are_silent() {
    let (mut peers, mut a, mut pace) = (Peers::new(), QuorumClient::new(voter_set()), Pace::default());
    contested(&mut peers, &mut a, 9);
    assert_eq!(pace.due(&a, peers.now), peers.now + Duration::from_millis(20));
    peers.pass(Duration::from_millis(20));
    let mut out = Vec::new();
    pace.act(&mut a, peers.now, &mut out);
    let taken_back = |output: &Output| matches!(output, Output::Send { ask: Ask::Release { beat: 0, .. }, .. });
    assert_eq!(out.iter().filter(|output| taken_back(output)).count(), 3, "also by the one that is silent");
    assert!(matches!(out.last(), Some(Output::Done(Ok(Reply::Conflict(_))))), "{out:?}");
}

#[test]
fn a_claim_waits_for_those_that_answer_late_and_only_a_moment_for_those_that_say_nothing() {
    let (mut peers, mut a, mut pace) = (Peers::new(), QuorumClient::new(voter_set()), Pace::default());
    a.begin(Request::Look { announce: None }, &mut Vec::new());
    pace.due(&a, peers.now);
    peers.pass(LEASE / 100);
    pace.done(true, peers.now);
    let mut waits = |rivals, pace: &mut Pace| {
        peers.pass(LEASE * 2);
        contested(&mut peers, &mut a, rivals);
        let (began, mut out) = (peers.now, Vec::new());
        while out.iter().all(|output| !matches!(output, Output::Done(_))) {
            peers.now = pace.due(&a, peers.now);
            pace.act(&mut a, peers.now, &mut out);
        }
        peers.now.since(began)
    };
    assert_eq!(waits(9, &mut pace), LEASE / 25, "four times as long as rounds take");
    assert_eq!(waits(19, &mut pace), Duration::from_millis(20), "nothing was heard of it since");
    pace.heard(VoterId::from_bits(3));
    assert_eq!(waits(29, &mut pace), LEASE * 2 / 25, "it is there, and takes longer");
    pace.heard(VoterId::from_bits(3));
    pace.heard(VoterId::from_bits(3));
    assert_eq!(waits(39, &mut pace), LEASE * 4 / 25);
    pace.heard(VoterId::from_bits(3));
    assert_eq!(waits(49, &mut pace), LEASE / 6, "the call would be over");
}

/// Two of four claim at once, and one voter is gone: it is known that neither can win before a majority has answered.
#[test]
fn a_claim_that_cannot_win_is_taken_back_at_once_and_counts_for_nothing_while_the_others_are_asked_what_there_is() {
    let four = VoterSet::new((1..=4).map(VoterId::from_bits).collect()).expect("some");
    let voter = |id: VoterId| (id, Voter::restarted(Durable::default(), 0, Instant::ZERO));
    let mut peers = Peers { voters: four.voters().map(voter).collect(), ..Peers::new() };
    let (mut a, mut out) = (QuorumClient::new(four), Vec::new());
    let request = Request::Acquire { expect: None, floor: Token::NONE.into(), holder: holder("a"), lease: LEASE };
    a.begin(request, &mut out);
    let claims: Vec<Output> = peers.deliver(&mut a, out);
    let term = Token::new(1).expect("small");
    let rival = Ask::Claim { term, holder: holder("b"), lease: LEASE, seen: OrderNumbers::default(), granted: None };
    assert!(peers.voters.get_mut(&VoterId::from_bits(2)).expect("it").handle(&rival, peers.now).answer.accepted);
    peers.cut(&[4]);
    let (first, late) = claims.into_iter().partition(|claim| matches!(sent_to(claim), Some(2 | 4)));
    let next = peers.deliver(&mut a, first);
    let asked = |ask: fn(&Ask) -> bool| {
        next.iter().filter(|output| matches!(output, Output::Send { ask: asked, .. } if ask(asked))).count()
    };
    assert_eq!(asked(|ask| matches!(ask, Ask::Release { beat: 0, .. })), 4);
    assert_eq!(asked(|ask| *ask == Ask::Read), 4);
    assert_eq!(next.len(), 8);
    assert_eq!(peers.deliver(&mut a, late), [], "two more accept it, too late");
    let mut again = Vec::new();
    a.ask_again(&mut again);
    assert!(again.iter().all(|output| matches!(output, Output::Send { ask: Ask::Read, .. })), "{again:?}");
    let done = peers.deliver(&mut a, next);
    assert!(matches!(done[..], [Output::Done(Ok(Reply::Conflict(_)))]), "{done:?}");
    let bound = |voter: u128| peers.voters[&VoterId::from_bits(voter)].bound_until(peers.now).is_some();
    assert_eq!([1, 2, 3].map(bound), [false, true, false]);
    let mut once_more = Vec::new();
    a.begin(Request::Look { announce: None }, &mut once_more);
    assert_eq!(once_more.len(), 8, "the fourth may have heard the claim alone");
}

#[test]
fn a_renewal_that_is_overdue_is_withdrawn_and_the_next_is_asked_for_in_the_same_call() {
    let mut peers = Peers::new();
    let (mut a, mut pace) = (QuorumClient::new(voter_set()), Pace::default());
    let first = applied(peers.ask(&mut a, "a")).version;
    let (mut out, request) =
        (Vec::new(), Request::Renew { id: holder("a").id, version: first, lease: LEASE, completed_order: None });
    a.begin(request, &mut out);
    assert_eq!(pace.due(&a, peers.now), peers.now + LEASE / 100);
    out.retain(|output| !matches!(output, Output::Send { to, .. } if to.to_bits() == 2));
    let [_, late] = &out[..] else { panic!("{out:?}") };
    let late = peers.deliver(&mut a.clone(), vec![late.clone()]);
    assert_eq!(late, []);
    peers.pass(LEASE / 100);
    let mut again = Vec::new();
    pace.act(&mut a, peers.now, &mut again);
    let is_withdrawn = |output: &Output| matches!(output, Output::Send { ask: Ask::Withdraw { beat: 2, .. }, .. });
    assert!(again.len() == 3 && again.iter().all(is_withdrawn), "{again:?}");
    let next = peers.deliver(&mut a, again);
    let done = peers.deliver(&mut a, next);
    let Some(Output::Done(Ok(Reply::Applied(record)))) = done.first() else { panic!("{done:?}") };
    assert_eq!(record.version, version(1, 3));
}

#[test]
fn what_is_overdue_is_asked_again_of_those_who_have_not_answered() {
    let mut peers = Peers::new();
    let (mut a, mut pace) = (QuorumClient::new(voter_set()), Pace::default());
    let first = applied(peers.ask(&mut a, "a")).version;
    let mut out = Vec::new();
    a.begin(Request::Release { id: holder("a").id, version: first, reason: EndReason::Finished }, &mut out);
    assert_eq!(pace.due(&a, peers.now), peers.now + LEASE / 100);
    // One answers; the question to the second is lost, and the third cannot be reached.
    out.retain(|output| !matches!(output, Output::Send { to, .. } if to.to_bits() == 2));
    peers.cut(&[3]);
    assert_eq!(peers.deliver(&mut a, out), []);
    peers.pass(LEASE / 100);
    let mut again = Vec::new();
    pace.act(&mut a, peers.now, &mut again);
    assert_eq!(pace.due(&a, peers.now), peers.now + LEASE / 50, "twice as long");
    let asked: Vec<u128> = again.iter().filter_map(sent_to).collect();
    assert_eq!(asked, [2, 3]);
    peers.cut(&[]);
    let done = peers.deliver(&mut a, again);
    let [Output::Done(Ok(Reply::Applied(record)))] = &done[..] else { panic!("{done:?}") };
    assert_eq!(record.version, version(1, 2));
    pace.done(true, peers.now);
    let (mut out, look) = (Vec::new(), Request::Look { announce: None });
    a.begin(look, &mut out);
    assert_eq!(pace.due(&a, peers.now), peers.now + LEASE / 50, "rounds have taken half of that");
    let mut none = Vec::new();
    peers.deliver(&mut a, out);
    a.ask_again(&mut none);
    assert_eq!(none, [], "nobody waits any more");
}

fn sent_to(output: &Output) -> Option<u128> {
    match output {
        Output::Send { to, .. } => Some(to.to_bits()),
        Output::Done(_) => None,
    }
}

/// A voter at some distance, with a disk that takes some time.
struct Site {
    voter: Voter,
    away: u64,
    flush: u64,
}

/// Answers on their way, the next first.
type UnderWay = Vec<(Instant, VoterId, Round, Answer)>;

/// One call over the network, with a pace as a client's caller uses it. Answers that come after it are heard with
/// the next one.
fn over(
    (sites, under_way): (&mut BTreeMap<VoterId, Site>, &mut UnderWay),
    (client, pace): (&mut QuorumClient, &mut Pace),
    request: Request,
    now: &mut Instant,
) -> Result<Reply, CallError> {
    let mut out = Vec::new();
    let hear =
        |under_way: &mut UnderWay, by: Instant, client: &mut QuorumClient, pace: &mut Pace, out: &mut Vec<Output>| {
            let (at, from, round, answer) = under_way.first().filter(|(at, ..)| *at <= by).cloned()?;
            under_way.remove(0);
            pace.heard(from);
            client.answered(from, round, answer, out);
            Some(at)
        };
    while hear(under_way, *now, client, pace, &mut out).is_some() {}
    client.begin(request, &mut out);
    loop {
        for output in std::mem::take(&mut out) {
            let Output::Send { to, round, ask } = output else {
                let Output::Done(result) = output else { unreachable!() };
                pace.done(result.is_ok(), *now);
                return result;
            };
            let site = sites.get_mut(&to).expect("a voter");
            let verdict = site.voter.handle(&ask, *now);
            let late = site.away + if verdict.must_flush { site.flush } else { 0 };
            under_way.push((*now + Duration::from_millis(late), to, round, verdict.answer));
        }
        under_way.sort_by_key(|(at, ..)| *at);
        let due = pace.due(client, *now);
        if let Some(at) = hear(under_way, due, client, pace, &mut out) {
            *now = at.max(*now);
        } else {
            *now = due;
            pace.act(client, due, &mut out);
        }
    }
}

/// How many attempts a candidate needs, where this voter is bound to somebody who is gone.
fn attempts(places: &[(u64, u64)], bound: u128) -> Option<usize> {
    let lease = Duration::from_secs(1);
    let site = |(n, (away, flush)): (usize, &(u64, u64))| {
        let voter = Voter::restarted(Durable::default(), 0, Instant::ZERO);
        (VoterId::from_bits(n as u128 + 1), Site { voter, away: *away, flush: *flush })
    };
    let mut sites: BTreeMap<VoterId, Site> = places.iter().enumerate().map(site).collect();
    let gone = Ask::Claim {
        term: Token::new(1).expect("small"),
        holder: holder("gone"),
        lease: Duration::from_secs(3_600),
        seen: OrderNumbers::default(),
        granted: None,
    };
    sites.get_mut(&VoterId::from_bits(bound)).expect("it").voter.handle(&gone, Instant::ZERO);
    let mut client = QuorumClient::new(VoterSet::new(sites.keys().copied().collect()).expect("some"));
    let (mut pace, mut now, mut under_way) = (Pace::default(), Instant::ZERO, UnderWay::new());
    (1..=20).find(|_| {
        now = now + lease;
        let look = Request::Look { announce: None };
        let mut call = |request| over((&mut sites, &mut under_way), (&mut client, &mut pace), request, &mut now);
        let Ok(Reply::Seen(seen)) = call(look) else { panic!("it looks") };
        let expect = seen.record.as_ref().map(Record::expectation);
        let acquire = Request::Acquire { expect, floor: Token::NONE.into(), holder: holder("a"), lease };
        matches!(call(acquire), Ok(Reply::Applied(_)))
    })
}

/// Most are near, and one of those cannot be had: the far ones are needed, whose answers no round has waited for so far.
#[test]
fn a_claim_waits_longer_each_time_until_those_that_it_needs_have_answered() {
    let far = attempts(&[(0, 1), (10, 1), (20, 1), (150, 1), (172, 1)], 3);
    assert!(far.is_some_and(|attempts| attempts <= 5), "{far:?}");
    let slow = attempts(&[(0, 1), (1, 60), (1, 1)], 3);
    assert!(slow.is_some_and(|attempts| attempts <= 5), "{slow:?}");
}

/// Where the voters are far, or become so, renewals are not withdrawn again and again.
#[test]
fn a_renewal_waits_as_long_as_rounds_take() {
    let lease = Duration::from_secs(10);
    let site = |n| {
        (
            VoterId::from_bits(n),
            Site { voter: Voter::restarted(Durable::default(), 0, Instant::ZERO), away: 600, flush: 1 },
        )
    };
    let mut sites: BTreeMap<VoterId, Site> = (1..=3).map(site).collect();
    let (mut client, mut pace, mut now) = (QuorumClient::new(voter_set()), Pace::default(), Instant::ZERO);
    let mut under_way = UnderWay::new();
    let acquire = Request::Acquire { expect: None, floor: Token::NONE.into(), holder: holder("a"), lease };
    let granted = over((&mut sites, &mut under_way), (&mut client, &mut pace), acquire, &mut now);
    let mut version = applied(granted).version;
    let mut renew = |sites: &mut BTreeMap<VoterId, Site>| {
        let (began, beat) = (now, version.beat);
        let request = Request::Renew { id: holder("a").id, version, lease, completed_order: None };
        version = applied(over((sites, &mut under_way), (&mut client, &mut pace), request, &mut now)).version;
        (now.since(began), version.beat - beat)
    };
    assert_eq!(renew(&mut sites), (Duration::from_millis(600), 1), "as the rounds of the claim before");
    sites.values_mut().for_each(|site| site.away = 5);
    for _ in 0..10 {
        assert_eq!(renew(&mut sites), (Duration::from_millis(5), 1));
    }
    sites.values_mut().for_each(|site| site.away = 400);
    assert_eq!(renew(&mut sites), (Duration::from_millis(100 + 400 + 400), 2), "withdrawn once, and then known");
    assert_eq!(renew(&mut sites), (Duration::from_millis(400), 1));
}
