//! When those who wait look for the leader's renewals, by where they stand in line.

use std::time::Duration;

use primacy_core::lease::{
    Candidate, Config, Context, Effect, Event, Holder, Record, Reply, Sighting, Standing, Version,
};
use primacy_core::{CandidateId, Instant, Label, Timing, Token};

fn timing() -> Timing {
    Timing::with_lease(Timing::DEFAULT_LEASE).expect("the default")
}

/// How long after it has seen a renewal a candidate looks again, with this luck.
fn next_look(ahead: u32, luck: u64) -> Duration {
    let label = |name: &str| Label::new(name).expect("valid");
    let mut candidate = Candidate::new(Config::new(CandidateId::from_bits(1), label("me"), timing()));
    let mut effects = Vec::new();
    let mut handle = |event, effects: &mut Vec<Effect>| {
        candidate.handle(event, &mut Context { now: Instant::ZERO, entropy: &mut || luck, effects });
        candidate.deadline().expect("it waits").since(Instant::ZERO)
    };
    handle(Event::Campaign, &mut effects);
    let call = effects.iter().find_map(|effect| match effect {
        Effect::Call { call, .. } => Some(*call),
        _ => None,
    });
    let token = Token::new(1).expect("small");
    let holder = Holder { id: CandidateId::from_bits(2), label: label("leader"), data: String::new() };
    let record = Record {
        version: Version { token, beat: 1 },
        holder: Some(holder),
        lease: timing().lease(),
        intent: 0,
        wish: None,
        paused: false,
    };
    let standing = Standing { ahead, others: 800, ..Standing::default() };
    let sighting =
        Sighting { record: Some(record), remembered: token, age: Some(Duration::ZERO), holder_gone: false, standing };
    handle(Event::Done { call: call.expect("it looks"), result: Ok(Reply::Seen(sighting)) }, &mut effects)
}

#[test]
fn the_front_looks_after_the_next_renewal_and_the_crowd_at_times_of_its_own() {
    let (renewal, lag) = (timing().renew_every(), timing().look_lag());
    for ahead in [0, 1, 7] {
        for luck in [0, u64::MAX] {
            let wait = next_look(ahead, luck);
            assert!((renewal + lag..=renewal + lag * 2).contains(&wait), "{ahead} before it: {wait:?}");
        }
    }
    let crowd = timing().watch_every(Standing { ahead: 8, ..Standing::default() });
    let looks: Vec<Duration> = (0..100).map(|nth| next_look(8, nth * 61_000_000)).collect();
    let (soonest, latest) = (*looks.iter().min().expect("some"), *looks.iter().max().expect("some"));
    assert!(latest - soonest > crowd * 2 / 5, "hundreds must not look at once: {soonest:?} {latest:?}");
    assert!(soonest >= crowd / 2 && latest <= crowd + lag * 2, "{soonest:?} {latest:?}");
}
