//! When those who wait look for the leader's renewals, by where they stand in line.

use std::time::Duration;

use primacy_core::lease::{
    CallId, Candidate, Config, Context, Effect, Event, Holder, Record, Reply, Request, Sighting, Standing, Version,
};
use primacy_core::{CandidateId, Instant, Label, Timing, TimingSettings, Token};

fn timing() -> Timing {
    Timing::with_lease(Timing::DEFAULT_LEASE).expect("the default")
}

/// One who waits behind `ahead` others, and what it last wanted of the store.
struct Waiter {
    candidate: Candidate,
    ahead: u32,
    /// How much faster its clock is than the right one.
    rate: f64,
    luck: u64,
}

impl Waiter {
    fn new(ahead: u32, timing: Timing, rate: f64, luck: u64) -> Self {
        let candidate = Candidate::new(Config::new(CandidateId::from_bits(1), label("me"), timing));
        Self { candidate, ahead, rate, luck }
    }

    /// What it asks of the store, if it does.
    fn handle(&mut self, event: Event, at: f64) -> Option<(CallId, Request)> {
        let mut effects = Vec::new();
        let luck = &mut self.luck;
        // Knuth's numbers; only the upper bits are any good.
        let mut entropy = || {
            *luck = luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *luck >> 16
        };
        let now = Instant::ZERO + Duration::from_secs_f64(at * (1.0 + self.rate));
        self.candidate.handle(event, &mut Context { now, entropy: &mut entropy, effects: &mut effects });
        effects.into_iter().find_map(|effect| match effect {
            Effect::Call { call, request, .. } => Some((call, request)),
            _ => None,
        })
    }

    /// When it does something next by itself.
    fn next(&self) -> f64 {
        let deadline = self.candidate.deadline().expect("it waits").since(Instant::ZERO);
        (deadline + Duration::from_nanos(2)).as_secs_f64() / (1.0 + self.rate)
    }

    /// The row of a leader that has renewed this many times, as this one sees it.
    fn seen(&self, beat: u64, age: f64) -> Sighting {
        let token = Token::new(1).expect("small");
        let holder = Holder { id: CandidateId::from_bits(2), label: label("leader"), data: String::new() };
        let record = Record {
            version: Version { token, beat },
            holder: Some(holder),
            lease: self.candidate.config().timing.lease(),
            order_number: 0,
            handover: None,
            paused: false,
        };
        let (age, remembered) = (Some(Duration::from_secs_f64(age)), token);
        let standing = Standing { ahead: self.ahead, others: 800 };
        Sighting { record: Some(record), remembered, age, holder_gone: false, standing }
    }
}

fn label(name: &str) -> Label {
    Label::new(name).expect("valid")
}

/// How long after it has seen a renewal a candidate looks again, with this luck.
fn next_look(ahead: u32, luck: u64) -> Duration {
    let mut waiter = Waiter::new(ahead, timing(), 0.0, luck);
    let (call, _) = waiter.handle(Event::Campaign, 0.0).expect("it looks");
    let seen = waiter.seen(1, 0.0);
    assert!(waiter.handle(Event::Done { call, result: Ok(Reply::Seen(seen)) }, 0.0).is_none());
    waiter.candidate.deadline().expect("it waits").since(Instant::ZERO)
}

#[test]
fn the_front_looks_after_the_next_renewal_and_the_crowd_at_times_of_its_own() {
    let (renewal, lag) = (timing().renew_every(), timing().look_lag());
    for ahead in [0, 1, 7] {
        for luck in 0..20 {
            let wait = next_look(ahead, luck);
            assert!((renewal + lag..=renewal + lag * 2).contains(&wait), "{ahead} before it: {wait:?}");
        }
    }
    let crowd = timing().watch_every(Standing { ahead: 8, ..Standing::default() });
    let looks: Vec<Duration> = (0..100).map(|nth| next_look(8, nth)).collect();
    let (soonest, latest) = (*looks.iter().min().expect("some"), *looks.iter().max().expect("some"));
    assert!(latest - soonest > crowd * 2 / 5, "hundreds must not look at once: {soonest:?} {latest:?}");
    assert!(soonest >= crowd / 2 && latest <= crowd + lag * 2, "{soonest:?} {latest:?}");
}

/// How long after the last renewal of a leader, which dies at once, a candidate asks for the lease.
fn asks_after_loss(waiter: &mut Waiter, renewal: f64, begins: f64, dies_with: u64) -> f64 {
    let death = renewal * dies_with as f64;
    let mut at = begins;
    let mut wants = waiter.handle(Event::Campaign, at);
    loop {
        // Calls take no time.
        while let Some((call, request)) = wants {
            let beat = dies_with.min((at / renewal) as u64);
            let seen = waiter.seen(beat, at - renewal * beat as f64);
            let reply = match request {
                Request::Look { .. } => Reply::Seen(seen),
                Request::Acquire { expect, .. } if expect.is_some_and(|watched| watched.version.beat == dies_with) => {
                    return at - death;
                }
                request => panic!(
                    "{} ahead, {}: {at}: {request:?} though the leader lives until {death}",
                    waiter.ahead, waiter.rate
                ),
            };
            wants = waiter.handle(Event::Done { call, result: Ok(reply) }, at);
        }
        at = waiter.next();
        wants = waiter.handle(Event::Wake, at);
    }
}

#[test]
fn whoever_is_the_first_alive_asks_within_the_published_bound_and_after_the_end_of_belief() {
    let settings = TimingSettings::new(Timing::DEFAULT_LEASE);
    let slow = TimingSettings { grace: Duration::from_secs(5), ..settings };
    let rare = TimingSettings { grace: Duration::ZERO, renew_every: Some(Duration::from_secs(7)), ..settings };
    let mut longest = 0.0_f64;
    for (number, settings) in [settings, slow, rare].into_iter().enumerate() {
        let timing = Timing::new(settings).expect("they fit");
        for ahead in [0, 1, 2, 7, 8, 20, 799] {
            let bound = timing.failover_bound(ahead, Duration::ZERO).as_secs_f64();
            for (holders, own) in [(0.02, -0.02), (-0.02, 0.02), (0.0, 0.0), (0.02, 0.02), (-0.02, -0.02)] {
                let renewal = timing.renew_every().as_secs_f64() / (1.0 + holders);
                let belief = timing.believed().as_secs_f64() / (1.0 + holders);
                for luck in 0..200 {
                    let mut waiter = Waiter::new(ahead, timing, own, luck);
                    let begins = renewal * (1.0 + luck as f64 / 199.0);
                    let asks = asks_after_loss(&mut waiter, renewal, begins, 4 + luck % 7);
                    let case = format!("timing {number}, {ahead} ahead, clocks {holders} and {own}, luck {luck}");
                    assert!(asks <= bound, "{case}: {asks} after the loss, and not {bound}");
                    assert!(asks > belief, "{case}: {asks} after the loss, and belief ends after {belief}");
                    longest = longest.max(asks / bound);
                }
            }
        }
    }
    assert!(longest > 0.97, "nothing came near the bound: {longest}");
}

#[test]
fn whoever_an_operator_names_has_heard_of_it_while_the_lease_is_left_to_it_however_far_behind() {
    for (lease, ahead) in [(1, 40), (1, 799), (10, 400), (10, 799)] {
        let timing = Timing::with_lease(Duration::from_secs(lease)).expect("it fits");
        let looks: Vec<f64> = (0..100)
            .map(|luck| {
                let mut waiter = Waiter::new(ahead, timing, 0.0, luck);
                let (call, _) = waiter.handle(Event::Campaign, 0.0).expect("it looks");
                let seen = waiter.seen(1, 0.0);
                waiter.handle(Event::Done { call, result: Ok(Reply::Seen(seen)) }, 0.0);
                waiter.handle(Event::Hint, 0.0);
                waiter.next()
            })
            .collect();
        let (soonest, latest) = looks.iter().fold((f64::MAX, 0.0_f64), |(a, b), look| (a.min(*look), b.max(*look)));
        let window = timing.window().as_secs_f64();
        assert!(latest <= window * 0.51, "{ahead} ahead, {lease} s: it looks after {latest} s of {window}");
        assert!(latest - soonest > window * 0.4, "hundreds must not look at once: {soonest} {latest}");
    }
}

/// How many calls it makes in 4 s of a hint each millisecond, of which none brings news.
fn calls_in_a_flood(mut waiter: Waiter, leads: bool) -> u32 {
    let (mut at, mut beat, mut calls, mut next_hint) = (0.0, 1, 0, 0.0);
    let mut wants = waiter.handle(Event::Campaign, at);
    while at < 4.0 {
        while let Some((call, request)) = wants {
            calls += 1;
            let mut seen = waiter.seen(beat, 0.0);
            let mine = Holder { id: CandidateId::from_bits(1), label: label("me"), data: String::new() };
            let reply = match request {
                Request::Look { .. } if leads => {
                    seen.record.as_mut().expect("it is there").holder = None;
                    Reply::Seen(seen)
                }
                Request::Look { .. } => Reply::Seen(seen),
                Request::Acquire { .. } | Request::Renew { .. } => {
                    beat += 1;
                    let mut record = waiter.seen(beat, 0.0).record.expect("it is there");
                    (record.version.token, record.holder) = (Token::new(2).expect("small"), Some(mine));
                    Reply::Applied(record)
                }
                request => panic!("{request:?}"),
            };
            wants = waiter.handle(Event::Done { call, result: Ok(reply) }, at);
        }
        let wake = waiter.next();
        if wake < next_hint {
            at = wake;
            wants = waiter.handle(Event::Wake, at);
        } else {
            at = next_hint;
            next_hint += 0.001;
            let now = Instant::ZERO + Duration::from_secs_f64(at);
            let heeds = waiter.candidate.heeds_hints(now);
            let before = waiter.candidate.deadline();
            wants = waiter.handle(Event::Hint, at);
            let is_due = before.is_none_or(|before| before <= now);
            assert!(heeds || is_due || waiter.candidate.deadline() == before, "it need not be told");
        }
    }
    calls
}

#[test]
fn a_flood_of_hints_causes_eight_calls_and_then_one_an_interval() {
    for lease in [100, 1_000, 10_000] {
        let timing = Timing::with_lease(Duration::from_millis(lease)).expect("it fits");
        // With no hint at all it makes one call each renewal interval.
        let usual = (4.0 / timing.renew_every().as_secs_f64()) as u32 + 2;
        let most = usual + 8 + (4.0 / timing.hint_interval().as_secs_f64()) as u32;
        for (ahead, leads) in [(0, true), (0, false), (3, false), (40, false)] {
            let waiter = Waiter::new(ahead, timing, 0.0, 1);
            let calls = calls_in_a_flood(waiter, leads);
            assert!(calls <= most, "lease {lease} ms, {ahead} ahead, leads: {leads}: {calls} calls, not {most}");
            assert!(calls >= 8, "hints are heeded: {calls}");
        }
    }
}

/// The check above bites.
#[cfg(feature = "flaws")]
#[test]
fn a_candidate_that_heeds_every_hint_is_found() {
    let mut config = Waiter::new(0, timing(), 0.0, 1).candidate.config().clone();
    config.flaw = Some(primacy_core::lease::Flaw::HeedsEveryHint);
    for leads in [true, false] {
        let waiter = Waiter { candidate: Candidate::new(config.clone()), ahead: 0, rate: 0.0, luck: 1 };
        assert!(calls_in_a_flood(waiter, leads) > 3_000);
    }
}

/// Where the store tells the waiting order only with announcements, who moves up hears of it within a lease and a look.
#[test]
fn whoever_moves_up_hears_of_it_with_its_next_announcement_a_lease_and_a_look_later_at_most() {
    const AGES: f64 = 40.0;
    let (timing, mut longest) = (timing(), 0.0_f64);
    for ahead in [1, 2, 7, 8, 20] {
        let standing = Standing { ahead, ..Standing::default() };
        let bound = timing.place_told_within(standing);
        for luck in 0..200 {
            let mut waiter = Waiter::new(ahead, timing, 0.0, luck);
            let moves_up = AGES + luck as f64 / 20.0;
            let (mut told, mut at) = (ahead, 0.0);
            let mut wants = waiter.handle(Event::Campaign, at);
            while waiter.candidate.standing().is_none_or(|standing| standing.ahead > 0) {
                while let Some((call, request)) = wants {
                    if matches!(request, Request::Look { announce: Some(_) }) {
                        told = if at < moves_up { ahead } else { 0 };
                    }
                    waiter.ahead = told;
                    let renewal = timing.renew_every().as_secs_f64();
                    let beat = (at / renewal) as u64;
                    let seen = waiter.seen(beat, at - renewal * beat as f64);
                    wants = waiter.handle(Event::Done { call, result: Ok(Reply::Seen(seen)) }, at);
                }
                if told > 0 {
                    at = waiter.next();
                    wants = waiter.handle(Event::Wake, at);
                }
            }
            let waited = at - moves_up;
            assert!(waited <= bound.as_secs_f64(), "{ahead} before it: told after {waited} s, bound {bound:?}");
            longest = longest.max(waited);
        }
    }
    println!("at most {longest:.2} s after it has moved up");
}
