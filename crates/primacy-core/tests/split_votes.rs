//! Candidates whose claims were in each other's way: when they ask again.

use std::time::Duration;

use primacy_core::lease::{Candidate, Config, Context, Effect, Event, Reply, Request, Sighting, Standing};
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
