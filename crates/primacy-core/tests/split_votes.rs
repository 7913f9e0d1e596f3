//! Candidates whose claims were in each other's way: when they ask again.

use std::time::Duration;

use primacy_core::lease::{
    Candidate, Config, Context, Effect, Event, Holder, Record, Reply, Request, Sighting, Standing, Version,
};
use primacy_core::{CandidateId, Instant, Label, Timing, Token};

/// How long an attempt takes.
const TOOK: Duration = Duration::from_millis(30);

fn vacant(ahead: u32) -> Sighting {
    let standing = Standing { ahead, others: ahead + 1 };
    Sighting { record: None, remembered: Token::NONE, age: None, holder_gone: false, standing }
}

/// A candidate in this place whose first attempt is answered so, and when it does something again, from then on.
fn after(ahead: u32, reply: Reply) -> (Candidate, Duration) {
    let timing = Timing::with_lease(Timing::DEFAULT_LEASE).expect("the default");
    let label = Label::new("a").expect("a label");
    let mut candidate = Candidate::new(Config::new(CandidateId::from_bits(1), label, timing));
    let mut now = Instant::ZERO;
    let mut handle = |event, now| {
        let mut effects = Vec::new();
        candidate.handle(event, &mut Context { now, entropy: &mut || 0, effects: &mut effects });
        effects
    };
    let asked = |effects: &[Effect]| match effects {
        [Effect::Call { call, request, .. }] => (*call, request.clone()),
        other => panic!("one call, and not {other:?}"),
    };
    let (look, _) = asked(&handle(Event::Campaign, now));
    let seen = handle(Event::Done { call: look, result: Ok(Reply::Seen(vacant(ahead))) }, now);
    let (acquire, request) = asked(&seen);
    assert!(matches!(request, Request::Acquire { .. }), "{request:?}");
    now = now + TOOK;
    if !handle(Event::Done { call: acquire, result: Ok(reply) }, now).is_empty() {
        return (candidate, Duration::ZERO);
    }
    let waits = candidate.deadline().expect("it tries again").since(now);
    (candidate, waits)
}

#[test]
fn those_who_have_refused_each_other_ask_one_after_another() {
    for ahead in [0, 1, 2] {
        assert_eq!(after(ahead, Reply::Conflict(vacant(ahead))).1, TOOK * ahead);
    }
    let window = Timing::with_lease(Timing::DEFAULT_LEASE).expect("the default").window();
    assert_eq!(after(1_000, Reply::Conflict(vacant(1_000))).1, window, "those ahead may be gone");
}

#[test]
fn who_was_told_that_no_majority_is_free_asks_again_soon_and_counts_no_failure() {
    let (candidate, waits) = after(0, Reply::Seen(vacant(0)));
    assert_eq!(waits, Duration::from_millis(5));
    assert_eq!(candidate.view().failures, 0);
}

/// How long after a release a candidate in this place asks, if each look takes this long.
fn asks_after_release(ahead: u32, look: Duration) -> Duration {
    let timing = Timing::with_lease(Timing::DEFAULT_LEASE).expect("the default");
    let mut candidate =
        Candidate::new(Config::new(CandidateId::from_bits(1), Label::new("a").expect("a label"), timing));
    let holder =
        Holder { id: CandidateId::from_bits(2), label: Label::new("b").expect("a label"), data: String::new() };
    let record = |beat, holder| Record {
        version: Version { token: Token::NONE.next(0), beat },
        order_number: 0,
        holder,
        lease: timing.lease(),
        handover: None,
        paused: false,
    };
    let mut now = Instant::ZERO;
    let mut step = |event, now| {
        let mut effects = Vec::new();
        candidate.handle(event, &mut Context { now, entropy: &mut || 0, effects: &mut effects });
        let call = effects.iter().find_map(|effect| match effect {
            Effect::Call { call, request, .. } => Some((*call, matches!(request, Request::Acquire { .. }))),
            _ => None,
        });
        (call, candidate.deadline())
    };
    let (mut asked, mut deadline) = step(Event::Campaign, now);
    for turn in 0.. {
        let (call, _) = asked.expect("a look");
        now = now + look;
        let is_released = turn == 3;
        let record = record(turn, (!is_released).then(|| holder.clone()));
        let seen = Sighting { record: Some(record), standing: Standing { ahead, others: 2 }, ..vacant(ahead) };
        (asked, deadline) = step(Event::Done { call, result: Ok(Reply::Seen(seen)) }, now);
        if is_released {
            break;
        }
        now = deadline.expect("the next look");
        (asked, deadline) = step(Event::Wake, now);
    }
    let released = now;
    while !asked.is_some_and(|(_, claims)| claims) {
        assert_eq!(asked, None, "no look comes between");
        now = deadline.expect("its turn");
        (asked, deadline) = step(Event::Wake, now);
    }
    now.since(released)
}

#[test]
fn each_place_in_the_waiting_order_asks_later_by_as_long_as_a_look_takes() {
    let ms = Duration::from_millis;
    for (look, slot) in [(ms(1), ms(5)), (ms(5), ms(5)), (ms(40), ms(40))] {
        for ahead in [0, 1, 3] {
            assert_eq!(asks_after_release(ahead, look), slot * ahead, "looks of {look:?}, {ahead} ahead");
        }
    }
}
