//! A candidate in the group of its process: where each of its looks goes, and what it is told.

use std::time::Duration;

use primacy_core::lease::{
    CallError, CallId, CandidatePhase, Config, Effect, EndReason, Event, HandoverRequest, Holder, Record, Reply,
    Request, Sighting, Standing, Version,
};
use primacy_core::registers::{
    Candidacy, CandidateContext, CandidateEffect, FromGroup, GroupCandidate, LinePosition, Rounds, RoundsSettings,
    ToGroup,
};
use primacy_core::select::Rank;
use primacy_core::{CandidateId, Instant, Label, Timing, Token};

const ROUND: Duration = Duration::from_secs(5);

fn timing() -> Timing {
    Timing::with_lease(ROUND * 2).expect("the default lease")
}

fn label(name: &str) -> Label {
    Label::new(name).expect("valid")
}

struct Member {
    candidate: GroupCandidate,
    now: Instant,
    /// No sibling asks for the lease: a candidate that waits for its turn has it at once.
    turn_is_free: bool,
}

impl Member {
    fn new() -> Self {
        let (id, rank) = (CandidateId::from_bits(1), Some(Rank::default()));
        let candidacy = Candidacy { id, label: label("me"), data: String::new(), rank };
        let rounds = Rounds::new(RoundsSettings::new(ROUND)).expect("valid");
        let config = Config::new(id, label("me"), timing());
        let candidate = GroupCandidate::new(config, rounds, candidacy);
        Self { candidate, now: Instant::from_nanos(1_000_000_000), turn_is_free: true }
    }

    /// One that has been shown the record once, and stands there.
    fn placed(in_line: bool, record: Sighting) -> Self {
        let mut member = Self::new();
        assert_eq!(member.handle(Event::Campaign), [CandidateEffect::Tell(ToGroup::Look)]);
        assert!(member.places(in_line).is_empty(), "the answer to its look comes next");
        assert!(member.sees(record, member.now).is_empty());
        member
    }

    /// How long a candidate takes to ask for the record, after its process's rounds have come to last this long.
    fn asks_to_see_after(&mut self) -> Duration {
        let from = self.now;
        while self.wakes().is_empty() {}
        self.now.since(from)
    }

    fn step(&mut self, step: impl FnOnce(&mut GroupCandidate, &mut CandidateContext<'_>)) -> Vec<CandidateEffect> {
        let mut effects = Vec::new();
        let mut seed = 7u64;
        let mut entropy = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 8
        };
        let mut cx = CandidateContext { now: self.now, entropy: &mut entropy, effects: &mut effects };
        step(&mut self.candidate, &mut cx);
        match effects.last() {
            Some(CandidateEffect::Tell(ToGroup::AwaitTurn { call, .. })) if self.turn_is_free => {
                let call = *call;
                effects.pop();
                effects.extend(self.hear(FromGroup::Turn { call }));
                effects
            }
            _ => effects,
        }
    }

    fn handle(&mut self, event: Event) -> Vec<CandidateEffect> {
        self.step(|candidate, cx| candidate.handle(event, cx))
    }

    fn hear(&mut self, said: FromGroup) -> Vec<CandidateEffect> {
        self.step(|candidate, cx| candidate.hear(said, cx).expect("a lease can follow"))
    }

    fn places(&mut self, in_line: bool) -> Vec<CandidateEffect> {
        let standing = Standing { ahead: if in_line { 1 } else { 20 }, others: 800 };
        self.hear(FromGroup::PositionChanged(LinePosition { standing, in_line }))
    }

    fn sees(&mut self, sighting: Sighting, asked_at: Instant) -> Vec<CandidateEffect> {
        self.hear(FromGroup::Seen { sighting, asked_at })
    }

    /// At its next deadline.
    fn wakes(&mut self) -> Vec<CandidateEffect> {
        self.now = self.candidate.deadline().expect("it waits");
        self.handle(Event::Wake)
    }

    fn runs(&mut self, span: Duration) {
        self.now = self.now + span;
    }
}

fn held(beat: u64) -> Sighting {
    let token = Token::new(1).expect("small");
    let holder = Holder { id: CandidateId::from_bits(2), label: label("leader"), data: String::new() };
    let version = Version { token, beat };
    let record =
        Record { version, holder: Some(holder), lease: ROUND * 2, order_number: 0, handover: None, paused: false };
    let standing = Standing::default();
    Sighting { record: Some(record), remembered: token, age: None, holder_gone: false, standing }
}

/// The record that is free, and was renewed this many times.
fn free(beat: u64) -> Sighting {
    let mut free = held(beat);
    free.record.as_mut().expect("it is there").holder = None;
    free
}

fn vacant() -> Sighting {
    free(9)
}

/// The same, left to this candidate by an operator.
fn promised(mut sighting: Sighting) -> Sighting {
    let record = sighting.record.as_mut().expect("it is there");
    (record.handover, record.order_number) = (Some(HandoverRequest::Successor(label("me"))), 1);
    sighting
}

fn call(effects: &[CandidateEffect]) -> (CallId, &Request) {
    match effects {
        [CandidateEffect::Lease(Effect::Call { call, request, .. })] => (*call, request),
        other => panic!("{other:?}"),
    }
}

#[test]
fn heartbeats_spare_those_in_reserve_their_looks() {
    let mut member = Member::placed(false, held(1));
    for beat in 2..20 {
        member.runs(ROUND);
        assert!(member.candidate.deadline().is_some_and(|due| due > member.now), "it would look by itself");
        let asked_at = member.now;
        member.runs(Duration::from_millis(5));
        assert!(member.sees(held(beat), asked_at).is_empty());
        assert_eq!(member.candidate.lease().view().version.map(|version| version.beat), Some(beat));
        assert_eq!(member.candidate.lease().view().failures, 0);
    }
    // Nobody shows it anything any more.
    let last = member.now;
    let effects = member.wakes();
    assert_eq!(effects, [CandidateEffect::Tell(ToGroup::Look)]);
    assert!(member.now.since(last) <= timing().lease() + timing().look_lag() * 2);
}

#[test]
fn in_line_it_looks_by_itself_and_is_shown_nothing() {
    let mut member = Member::placed(true, held(1));
    let planned = member.candidate.deadline().expect("it waits");
    assert!(planned.since(member.now) < timing().renew_every() * 2, "after the next renewal");
    member.runs(Duration::from_millis(100));
    assert!(member.sees(held(2), member.now).is_empty());
    assert_eq!(member.candidate.deadline(), Some(planned));
    let effects = member.wakes();
    let (id, request) = call(&effects);
    assert_eq!(*request, Request::Look { announce: None }, "the registers say who waits");
    member.handle(Event::Done { call: id, result: Ok(Reply::Seen(held(3))) });
    let view = member.candidate.lease().view();
    assert_eq!(view.version.map(|version| version.beat), Some(3));
    assert_eq!(member.candidate.lease().standing(), Some(Standing { ahead: 1, others: 800 }), "not as the store says");
}

#[test]
fn who_moves_up_into_the_line_plans_its_next_look_anew() {
    let mut member = Member::placed(false, held(1));
    assert!(!member.candidate.listens());
    member.runs(ROUND);
    let effects = member.places(true);
    assert!(member.candidate.listens());
    // By the turn of its old place it would wait too long, and no heartbeat of a leader's process shows the record.
    let (look, request) = call(&effects);
    assert_eq!(*request, Request::Look { announce: None });
    assert!(member.sees(held(1), member.now).is_empty());
    assert!(member.handle(Event::Done { call: look, result: Ok(Reply::Seen(held(1))) }).is_empty());
    assert_eq!(member.candidate.lease().standing(), Some(Standing { ahead: 1, others: 800 }));
    let due = member.candidate.deadline().expect("it waits");
    assert!(due.since(member.now) < timing().renew_every() * 2, "{:?}", due.since(member.now));
    // One that is told again where it stands has nothing to do.
    assert!(member.places(true).is_empty() && member.places(false).is_empty());
}

#[test]
fn a_record_that_comes_when_it_is_to_ask_is_what_it_asks_by() {
    let mut member = Member::placed(false, vacant());
    let asks_at = member.candidate.deadline().expect("its turn comes");
    // Somebody else leads: to ask would be in vain.
    let mut other = Member::placed(false, vacant());
    other.now = asks_at;
    assert!(other.sees(held(12), asks_at).is_empty());
    assert_eq!(other.candidate.lease().view().version.map(|version| version.beat), Some(12));
    // It is still free, and has been written since.
    member.now = asks_at;
    let effects = member.sees(free(10), asks_at);
    assert!(effects.is_empty(), "the turns count from then: {effects:?}");
    let effects = member.wakes();
    let (_, request) = call(&effects);
    let Request::Acquire { expect: Some(expect), .. } = request else { panic!("{request:?}") };
    assert_eq!(expect.version.beat, 10);
    // As it was: it asks at once.
    let mut member = Member::placed(false, vacant());
    member.now = asks_at;
    assert!(matches!(call(&member.sees(vacant(), asks_at)).1, Request::Acquire { .. }));
}

#[test]
fn in_reserve_it_asks_for_the_lease_when_its_turn_has_come_and_in_line_at_once() {
    let id = CandidateId::from_bits(1);
    let queued = || {
        let mut member = Member::placed(false, vacant());
        member.turn_is_free = false;
        let effects = member.wakes();
        let [CandidateEffect::Tell(ToGroup::AwaitTurn { id: who, call })] = *effects else { panic!("{effects:?}") };
        assert_eq!(who, id);
        (member, call)
    };
    let asks = |effects: &[CandidateEffect], by| {
        let (call, request) = call(effects);
        assert!(matches!(request, Request::Acquire { .. }) && call == by, "{effects:?}");
    };
    let (mut member, by) = queued();
    asks(&member.hear(FromGroup::Turn { call: by }), by);
    assert!(member.hear(FromGroup::Turn { call: by }).is_empty(), "once");
    let (mut member, by) = queued();
    asks(&member.places(true), by);
    let (mut member, by) = queued();
    asks(&member.step(|candidate, cx| candidate.leave_to_itself(cx)), by);
    // Its time is over before its turn: the store hears nothing of it, and the next has its turn.
    for turn_comes in [false, true] {
        let (mut member, by) = queued();
        member.now = member.candidate.deadline().expect("the call's");
        let effects = if turn_comes { member.hear(FromGroup::Turn { call: by }) } else { member.handle(Event::Wake) };
        assert_eq!(effects, [CandidateEffect::Tell(ToGroup::EndTurn { id, call: by })]);
        assert_eq!(member.candidate.lease().view().failures, 1);
    }
}

#[test]
fn in_reserve_it_waits_no_longer_for_a_record_than_shorter_rounds_let_it() {
    let mut member = Member::placed(false, held(1));
    member.hear(FromGroup::Round(ROUND * 4));
    member.runs(ROUND);
    assert!(member.sees(held(2), member.now).is_empty());
    assert!(member.hear(FromGroup::Round(ROUND)).is_empty());
    let waited = member.asks_to_see_after();
    assert!(waited <= timing().lease() + timing().look_lag() * 2, "{waited:?}");
}

#[test]
fn a_successor_in_reserve_looks_after_the_next_renewal_however_it_hears_of_the_order() {
    // By a request for the lease that came too late.
    let mut member = Member::placed(false, vacant());
    let effects = member.wakes();
    let (asks, _) = call(&effects);
    let conflict = Reply::Conflict(promised(held(12)));
    assert!(member.handle(Event::Done { call: asks, result: Ok(conflict) }).is_empty());
    let waited = member.asks_to_see_after();
    assert!(waited < timing().renew_every() * 2, "{waited:?}");
    // By a record that its process was shown.
    let mut member = Member::placed(false, held(1));
    member.runs(ROUND);
    assert!(member.sees(promised(held(2)), member.now).is_empty());
    let waited = member.asks_to_see_after();
    assert!(waited < timing().renew_every() * 2, "{waited:?}");
}

#[test]
fn a_look_is_answered_by_what_was_asked_for_later_and_failed_by_that_alone() {
    let mut member = Member::new();
    member.runs(ROUND);
    assert_eq!(member.handle(Event::Campaign), [CandidateEffect::Tell(ToGroup::Look)]);
    let before = member.now - Duration::from_millis(1);
    let error = CallError::Unknown;
    assert!(member.hear(FromGroup::NotSeen { error, asked_at: before }).is_empty());
    assert_eq!(member.candidate.lease().view().failures, 0, "an older failure is not its own");
    assert!(member.sees(held(1), before).is_empty());
    assert_eq!(member.candidate.lease().view().version, None);
    member.hear(FromGroup::NotSeen { error, asked_at: member.now });
    assert_eq!(member.candidate.lease().view().failures, 1);
}

#[test]
fn after_many_looks_without_an_answer_it_goes_to_the_store_itself() {
    let mut member = Member::new();
    let mut effects = member.handle(Event::Campaign);
    let mut told = 0;
    loop {
        if effects.contains(&CandidateEffect::Tell(ToGroup::Look)) {
            told += 1;
        }
        let is_look = |effect: &CandidateEffect| {
            matches!(effect, CandidateEffect::Lease(Effect::Call { request: Request::Look { .. }, .. }))
        };
        if effects.iter().any(is_look) {
            break;
        }
        assert!(told <= 8, "its own way to the store may be open");
        effects = member.wakes();
    }
    assert_eq!(told, 8);
}

/// Its process has stopped beating, or it has come to stand in line: nobody shows it the record.
#[test]
fn who_has_asked_in_vain_in_reserve_does_not_look_at_once_but_within_a_lease() {
    for comes_into_line in [false, true] {
        let mut member = Member::placed(false, held(1));
        member.runs(ROUND);
        assert!(member.sees(vacant(), member.now).is_empty(), "those in line come first");
        let mut last_shown = member.now;
        let mut effects = member.wakes();
        for attempt in 0..5 {
            let (asks, request) = call(&effects);
            assert!(matches!(request, Request::Acquire { .. }), "{request:?}");
            let result = Err(CallError::Unknown);
            assert!(member.handle(Event::Done { call: asks, result }).is_empty(), "hundreds would look at once");
            effects = if comes_into_line { member.places(true) } else { member.wakes() };
            let waited = member.now.since(last_shown);
            assert!(waited <= timing().lease() + timing().look_lag() * 2, "attempt {attempt}: {waited:?}");
            if comes_into_line {
                assert!(matches!(call(&effects).1, Request::Look { .. }));
                break;
            }
            assert_eq!(effects, [CandidateEffect::Tell(ToGroup::Look)]);
            last_shown = member.now;
            // Its turn has come long ago.
            effects = member.sees(vacant(), member.now);
        }
    }
}

#[test]
fn a_record_from_before_its_own_last_call_is_not_shown_to_it() {
    let mut member = Member::placed(false, vacant());
    let effects = member.wakes();
    let (asks, _) = call(&effects);
    let asked_at = member.now;
    member.runs(Duration::from_millis(20));
    let conflict = Reply::Conflict(held(12));
    assert!(member.handle(Event::Done { call: asks, result: Ok(conflict) }).is_empty());
    assert!(member.sees(held(11), asked_at).is_empty());
    assert_eq!(member.candidate.lease().view().version.map(|version| version.beat), Some(12));
}

#[test]
fn the_group_hears_of_a_leadership_and_its_end() {
    let mut member = Member::placed(false, vacant());
    let effects = member.wakes();
    let (asks, _) = call(&effects);
    let id = CandidateId::from_bits(1);
    let mut record = held(1).record.expect("it is there");
    record.version.token = Token::new(2).expect("small");
    record.holder = Some(Holder { id, label: label("me"), data: String::new() });
    let token = record.version.token;
    let effects = member.handle(Event::Done { call: asks, result: Ok(Reply::Applied(record)) });
    let leads = CandidateEffect::Tell(ToGroup::Leads { id, token, chosen: false });
    assert!(matches!(effects.as_slice(), [CandidateEffect::Lease(Effect::Lead { .. }), told] if *told == leads));
    assert!(member.candidate.listens(), "a leader is told of orders");
    // Not for a leadership that is over.
    assert!(member.hear(FromGroup::MakeWay { token: Token::new(1).expect("small") }).is_empty());
    let effects = member.hear(FromGroup::MakeWay { token });
    assert!(matches!(effects.as_slice(), [CandidateEffect::Lease(Effect::Drain { reason: EndReason::Resigned, .. })]));
    let effects = member.handle(Event::Drained);
    let ended = CandidateEffect::Tell(ToGroup::LeadEnded { id });
    assert!(matches!(&effects[..2], [CandidateEffect::Lease(Effect::End { .. }), told] if *told == ended));
}

#[test]
fn a_leader_makes_way_for_nobody_while_an_operator_wants_something_else() {
    for paused in [false, true] {
        let mut member = Member::placed(false, vacant());
        let effects = member.wakes();
        let (asks, _) = call(&effects);
        let mut record = held(1).record.expect("it is there");
        let token = Token::new(2).expect("small");
        (record.version.token, record.paused) = (token, paused);
        record.handover = (!paused).then(|| HandoverRequest::Successor(label("me")));
        let me = Holder { id: CandidateId::from_bits(1), label: label("me"), data: String::new() };
        record.holder = Some(me);
        member.handle(Event::Done { call: asks, result: Ok(Reply::Applied(record)) });
        assert_eq!(member.candidate.lease().view().phase, CandidatePhase::Leading);
        assert!(member.hear(FromGroup::MakeWay { token }).is_empty());
    }
}

#[test]
fn who_withdraws_from_the_reserve_finds_out_at_once_what_it_has_left() {
    let mut member = Member::placed(false, vacant());
    let effects = member.wakes();
    let (asks, _) = call(&effects);
    member.handle(Event::Done { call: asks, result: Err(CallError::Unknown) });
    let effects = member.handle(Event::Withdraw);
    assert_eq!(effects, [CandidateEffect::Tell(ToGroup::Look)]);
    let effects = member.sees(vacant(), member.now);
    let leave = CandidateEffect::Tell(ToGroup::Leave { id: CandidateId::from_bits(1) });
    assert_eq!(effects, std::slice::from_ref(&leave));
    let effects = member.hear(FromGroup::Left);
    assert_eq!(effects, [leave, CandidateEffect::Lease(Effect::Stopped)]);
}

#[test]
fn without_its_group_it_goes_on_by_itself() {
    let mut member = Member::new();
    assert_eq!(member.handle(Event::Campaign), [CandidateEffect::Tell(ToGroup::Look)]);
    let effects = member.step(|candidate, cx| candidate.leave_to_itself(cx));
    assert!(effects.is_empty(), "it backs off: {effects:?}");
    let effects = member.wakes();
    assert!(matches!(call(&effects).1, Request::Look { announce: Some(_) }));
    assert!(member.candidate.listens() && !member.candidate.is_in_reserve());
}

/// Those that it was shown the record by are gone: what it was not to look for, it has to look for now.
#[test]
fn without_its_group_it_looks_soon() {
    let mut member = Member::placed(false, held(1));
    let from = member.now;
    member.step(|candidate, cx| candidate.leave_to_itself(cx));
    let effects = member.wakes();
    assert!(matches!(call(&effects).1, Request::Look { announce: Some(_) }));
    assert!(member.now.since(from) <= timing().renew_every(), "{:?}", member.now.since(from));
}
