//! What holds of a candidate whatever happens to it, in whatever order: properties against a suspicious witness.
//!
//! `PROPTEST_CASES=500000 cargo test --release -p primacy-core --test properties` for a long run.

#[path = "stage/store.rs"]
mod store;

use std::time::Duration;

use primacy_core::lease::{
    CallError, CallId, Candidate, CandidatePhase, Config, Context, Effect, Event, HandoverRequest, Holder, Record,
    Reply, Request, Sighting, Standing, Version,
};
use primacy_core::{CandidateId, Instant, Label, Timing, Token};
use proptest::prelude::*;
use store::Row;

/// What happens next, to one candidate before one store.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a few thousand of them live at a time")]
enum Happening {
    /// This many milliseconds pass, and nobody notices.
    Passes(u64),
    /// Time passes until the deadline, and a little, and it is woken.
    Wakes(u64),
    Told(Event),
    /// Its call is carried out and answered.
    Answered,
    /// Its call is carried out; the answer is under way.
    CarriedOut,
    /// Its call ends with this error.
    Fails(CallError),
    /// One of its abandoned calls is carried out now.
    Late(usize),
    /// One of its abandoned calls is answered now.
    LateAnswer(usize),
    /// Another candidate, with a lease of this many milliseconds, takes the row as it is.
    Taken(u64),
    /// The other renews or releases.
    OtherBeats,
    OtherReleases,
    Ordered(Order),
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Depose,
    PromoteMe,
    PromoteOther,
    PromoteMyId,
    PromoteOthersId,
    Pause,
    Resume,
    Delete,
    Save,
    Restore,
}

fn happening() -> impl Strategy<Value = Happening> {
    use Happening::{
        Answered, CarriedOut, Fails, Late, LateAnswer, Ordered, OtherBeats, OtherReleases, Passes, Taken, Told, Wakes,
    };
    prop_oneof![
        3 => (0u64..4_000).prop_map(Passes),
        8 => prop_oneof![4 => Just(0), 1 => 0u64..500].prop_map(Wakes),
        3 => Just(Told(Event::Campaign)),
        1 => Just(Told(Event::Withdraw)),
        1 => Just(Told(Event::Resign)),
        3 => Just(Told(Event::Drained)),
        1 => Just(Told(Event::Suspended)),
        2 => Just(Told(Event::Hint)),
        1 => Just(Told(Event::Wake)),
        2 => prop_oneof![Just(100u64), Just(1_000), 100u64..60_000].prop_map(|lease| {
            Told(Event::SetTiming(Timing::with_lease(Duration::from_millis(lease)).expect("long enough")))
        }),
        2 => (0u64..20_000).prop_map(|at| Told(Event::LookAt(Instant::from_nanos(at * 1_000_000)))),
        2 => (0u64..200).prop_map(|floor| Told(Event::RaiseFloor(Token::new(floor).expect("small")))),
        1 => (0u64..2_000).prop_map(|slot| Told(Event::SetSlot(Duration::from_millis(slot)))),
        12 => Just(Answered),
        2 => Just(CarriedOut),
        2 => prop_oneof![Just(CallError::NotDone), Just(CallError::Unknown)].prop_map(Fails),
        1 => (0usize..4).prop_map(Late),
        1 => (0usize..4).prop_map(LateAnswer),
        1 => (100u64..60_000).prop_map(Taken),
        1 => Just(OtherBeats),
        1 => Just(OtherReleases),
        2 => prop_oneof![
            Just(Order::Depose), Just(Order::PromoteMe), Just(Order::PromoteOther),
            Just(Order::PromoteMyId), Just(Order::PromoteOthersId), Just(Order::Pause),
            Just(Order::Resume), Just(Order::Delete), Just(Order::Save), Just(Order::Restore),
        ].prop_map(Ordered),
    ]
}

struct Call {
    id: CallId,
    request: Request,
    sent_at: Instant,
    reply: Option<Reply>,
}

fn drawn(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    *seed >> 8
}

/// Does what a driver does, believes nothing, and remembers all that a promise is about.
struct Witness {
    now: Instant,
    candidate: Candidate,
    /// The same without a floor.
    twin: Candidate,
    row: Row,
    saved: Row,
    call: Option<Call>,
    abandoned: Vec<Call>,
    /// Answered calls since time last went on: what must stay bounded.
    calls_now: u32,
    last_call: CallId,
    led: Token,
    until: Option<Instant>,
    drain_by: Option<Instant>,
    /// Begun by `Lead`, ended by `Drained`.
    works: bool,
    told: bool,
    entropy: u64,
}

const ME: CandidateId = CandidateId::from_bits(1);
const OTHER: CandidateId = CandidateId::from_bits(77);

impl Witness {
    fn new(lease: u64, entropy: u64) -> Self {
        let timing = Timing::with_lease(Duration::from_millis(lease)).expect("within bounds");
        let label = Label::new("me").expect("valid");
        let candidate = Candidate::new(Config::new(CandidateId::from_bits(1), label, timing));
        Self {
            now: Instant::ZERO,
            twin: candidate.clone(),
            candidate,
            row: Row::default(),
            saved: Row::default(),
            call: None,
            abandoned: Vec::new(),
            calls_now: 0,
            last_call: CallId(0),
            led: Token::NONE,
            until: None,
            drain_by: None,
            works: false,
            told: false,
            entropy,
        }
    }

    fn timing(&self) -> Timing {
        self.candidate.config().timing
    }

    fn happens(&mut self, happening: Happening) -> Result<(), TestCaseError> {
        match happening {
            Happening::Passes(millis) => self.pass(Duration::from_millis(millis)),
            Happening::Wakes(late) => {
                if let Some(deadline) = self.candidate.deadline() {
                    self.pass(deadline.since(self.now) + Duration::from_millis(late));
                    self.handle(Event::Wake, None)?;
                }
            }
            Happening::Told(Event::Drained) => {
                // Work that still runs and was not told to stop may end by itself.
                self.works = false;
                self.handle(Event::Drained, None)?;
            }
            Happening::Told(event) => self.handle(event, None)?,
            Happening::Answered => self.answer()?,
            Happening::CarriedOut => self.carry_out(),
            Happening::Fails(error) => self.fail(error)?,
            Happening::Late(index) => {
                if let Some(call) = self.abandoned.get_mut(index).filter(|call| call.reply.is_none()) {
                    call.reply = Some(self.row.step(&call.request, Standing::default()));
                }
            }
            Happening::LateAnswer(index) => {
                if index < self.abandoned.len() && self.abandoned[index].reply.is_some() {
                    let Call { id, reply, .. } = self.abandoned.swap_remove(index);
                    let before = self.candidate.clone();
                    self.handle(Event::Done { call: id, result: Ok(reply.expect("just seen")) }, None)?;
                    let mut undisturbed = before;
                    let mut effects = Vec::new();
                    let mut entropy = || 0;
                    undisturbed.handle(
                        Event::Wake,
                        &mut Context { now: self.now, entropy: &mut entropy, effects: &mut effects },
                    );
                    prop_assert_eq!(undisturbed.view(), self.candidate.view(), "a late answer told it something");
                }
            }
            Happening::Taken(lease) => self.other_takes(Duration::from_millis(lease)),
            Happening::OtherBeats => self.other(|record| record.version.beat += 1),
            Happening::OtherReleases => self.other(|record| {
                record.version.beat += 1;
                record.holder = None;
            }),
            Happening::Ordered(order) => self.order(order),
        }
        Ok(())
    }

    fn pass(&mut self, span: Duration) {
        if span > Duration::ZERO {
            self.calls_now = 0;
        }
        self.now = self.now + span;
    }

    fn carry_out(&mut self) {
        if let Some(call) = self.call.as_mut().filter(|call| call.reply.is_none()) {
            call.reply = Some(self.row.step(&call.request, Standing::default()));
        }
    }

    fn answer(&mut self) -> Result<(), TestCaseError> {
        self.carry_out();
        let Some(call) = self.call.take() else { return Ok(()) };
        let event = Event::Done { call: call.id, result: Ok(call.reply.clone().expect("carried out")) };
        self.handle(event, Some(call))
    }

    fn fail(&mut self, error: CallError) -> Result<(), TestCaseError> {
        let Some(mut call) = self.call.take() else { return Ok(()) };
        if call.reply.is_some() && error == CallError::NotDone {
            self.call = Some(call);
            return Ok(()); // it was done
        }
        let id = call.id;
        call.reply = None;
        if error == CallError::Unknown {
            self.abandoned.push(call);
        }
        self.handle(Event::Done { call: id, result: Err(error) }, None)
    }

    fn other_takes(&mut self, lease: Duration) {
        let expect = self.row.record.as_ref().map(Record::expectation);
        let holder =
            primacy_core::lease::Holder { id: OTHER, label: Label::new("other").expect("valid"), data: String::new() };
        let floor = self.row.remembered.into();
        self.row.step(&Request::Acquire { expect, floor, holder, lease }, Standing::default());
    }

    fn other(&mut self, change: impl FnOnce(&mut Record)) {
        if let Some(record) = self.row.record.as_mut().filter(|record| record.is_held_by(OTHER)) {
            change(record);
        }
    }

    fn order(&mut self, order: Order) {
        let successor = |name: &str| Some(Label::new(name).expect("valid"));
        match order {
            Order::Depose => self.row.handover(None),
            Order::PromoteMe => self.row.handover(successor("me")),
            Order::PromoteOther => self.row.handover(successor("other")),
            Order::PromoteMyId => self.row.handover(successor(&ME.to_string())),
            Order::PromoteOthersId => self.row.handover(successor(&OTHER.to_string())),
            Order::Pause => self.row.order(|record| record.paused = true),
            Order::Resume => self.row.order(|record| record.paused = false),
            Order::Delete => self.row.record = None,
            Order::Save => self.saved = self.row.clone(),
            Order::Restore => self.row = self.saved.clone(),
        }
    }

    /// Hands the event over and judges every effect, with the call that it answers if there is one.
    fn handle(&mut self, event: Event, answered: Option<Call>) -> Result<(), TestCaseError> {
        let now = self.now;
        let without = if matches!(event, Event::RaiseFloor(_)) { Event::Wake } else { event.clone() };
        let (mut seed, mut as_before) = (self.entropy, Vec::new());
        self.twin.handle(without, &mut Context { now, entropy: &mut || drawn(&mut seed), effects: &mut as_before });
        let (mut seed, mut effects) = (self.entropy, Vec::new());
        self.candidate.handle(event, &mut Context { now, entropy: &mut || drawn(&mut seed), effects: &mut effects });
        self.entropy = seed;
        // A floor from outside is an argument of a request. It is nothing that was seen: no record has gone back for it.
        let mut asked = effects.clone();
        for effect in &mut asked {
            if let Effect::Call { request: Request::Acquire { floor, .. }, .. } = effect {
                floor.outside = Token::NONE;
            }
        }
        prop_assert_eq!(asked, as_before, "a floor from outside has changed more than the request");
        prop_assert_eq!(self.candidate.view(), self.twin.view());
        for effect in effects {
            self.judge(effect, answered.as_ref())?;
        }
        // No hot loop: the caller that wakes it at its deadline lets time pass first.
        let deadline = self.candidate.deadline();
        prop_assert!(deadline.is_none_or(|deadline| deadline > now), "due at {deadline:?}, which is not after {now}");
        // What is waited for can come: a call under way has a deadline, and a candidate that takes part one of its own.
        let phase = self.candidate.view().phase;
        if !matches!(phase, CandidatePhase::Idle | CandidatePhase::Stopping) || self.call.is_some() {
            prop_assert!(deadline.is_some(), "nothing would ever wake it while it is {phase:?}");
        }
        let believed = self.candidate.view().until.is_some_and(|until| now < until);
        prop_assert_eq!(believed, self.until.is_some_and(|until| now < until), "the view and the effects disagree");
        Ok(())
    }

    fn judge(&mut self, effect: Effect, answered: Option<&Call>) -> Result<(), TestCaseError> {
        match effect {
            Effect::Call { call, request, deadline } => {
                prop_assert!(self.call.is_none(), "two calls at once");
                prop_assert!(call > self.last_call, "a call's name is used twice");
                prop_assert!(deadline > self.now, "a call without time");
                if let (Request::Renew { lease, .. }, Some(until)) = (&request, self.until) {
                    prop_assert!(deadline <= until, "R8: a renewal may end after belief");
                    let lasts = self.now + self.timing().believed_of(*lease);
                    prop_assert!(until <= lasts, "R2: asks for a lease that ends before what it believes");
                }
                if matches!(request, Request::Release { .. }) {
                    prop_assert!(!self.works, "R9: released while the work runs");
                    prop_assert!(self.until.is_none(), "released before the end was told");
                }
                self.calls_now += 1;
                prop_assert!(self.calls_now <= 12, "HAZARDS 25: a hot loop of {request:?}");
                self.last_call = call;
                self.call = Some(Call { id: call, request, sent_at: self.now, reply: None });
            }
            Effect::Abandon { call } => {
                // One that was just answered is not abandoned as well, unless it was late.
                if let Some(given_up) = self.call.take() {
                    prop_assert_eq!(given_up.id, call);
                    self.abandoned.push(given_up);
                }
            }
            Effect::Lead { token, until, version } => {
                prop_assert!(!self.works, "it leads while the work of its last leadership runs");
                prop_assert!(self.until.is_none(), "it leads while it leads");
                prop_assert!(token > self.led, "R6: token {token} after {}", self.led);
                let Some(Call {
                    request: Request::Acquire { floor, .. },
                    sent_at,
                    reply: Some(Reply::Applied(record)),
                    ..
                }) = answered
                else {
                    return Err(TestCaseError::fail("it leads without an acquire that was carried out"));
                };
                prop_assert_eq!(record.version, version);
                prop_assert_eq!(record.version.token, token);
                prop_assert!(token > floor.highest(), "token {token} is not above {floor}");
                prop_assert!(
                    until <= *sent_at + self.timing().believed_of(record.lease),
                    "R1: counted from later than the sending"
                );
                prop_assert!(until > self.now);
                (self.led, self.until, self.works, self.told) = (token, Some(until), true, false);
            }
            Effect::Extend { until, .. } => {
                let Some(Call { request: Request::Renew { .. }, sent_at, reply: Some(Reply::Applied(record)), .. }) =
                    answered
                else {
                    return Err(TestCaseError::fail("belief is extended without a renewal that was carried out"));
                };
                prop_assert!(self.until.is_some_and(|former| former <= until), "an extension shortens");
                let most = (*sent_at + self.timing().believed_of(record.lease)).max(self.until.unwrap_or_default());
                prop_assert!(until <= most, "R1: counted from later than the sending");
                self.until = Some(until);
            }
            Effect::Drain { by, .. } => {
                prop_assert!(self.until.is_some_and(|until| by < until), "the work may go on until belief is over");
                prop_assert!(!self.told, "told twice");
                (self.told, self.drain_by) = (true, Some(by));
            }
            Effect::End { .. } => {
                prop_assert!(self.until.take().is_some(), "an end without a beginning");
                self.told = true;
            }
            Effect::Stopped => {
                prop_assert!(self.until.is_none(), "stopped while it leads");
                prop_assert!(!self.works, "stopped while its work runs");
            }
        }
        Ok(())
    }
}

/// As many as a test run has patience for, or as the environment says.
fn cases() -> ProptestConfig {
    let patience = if cfg!(debug_assertions) { 1_500 } else { 20_000 };
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(patience);
    // What was found is kept as a scenario, not as a seed.
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    /// R1, R6 to R9, HAZARDS 25: whatever happens, in whatever order, before a store that keeps its promises or goes
    /// back in time.
    #[test]
    fn nothing_breaks_a_promise(
        lease in prop_oneof![Just(100u64), Just(1_000), Just(10_000), 100u64..86_400_000],
        entropy in any::<u64>(),
        happenings in prop::collection::vec(happening(), 1..120),
    ) {
        let mut witness = Witness::new(lease, entropy);
        witness.happens(Happening::Told(Event::Campaign))?;
        for happening in happenings {
            witness.happens(happening)?;
        }
    }
}

fn any_token() -> impl Strategy<Value = Token> {
    any_number().prop_map(|number| Token::new(number).unwrap_or(Token::MAX))
}

fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..6, Just(Token::MAX.get()), any::<u64>()]
}

fn any_span() -> impl Strategy<Value = Duration> {
    prop_oneof![Just(Duration::ZERO), Just(Duration::MAX), (0u64..60_000).prop_map(Duration::from_millis)]
}

/// A row with anything at all in it: what a store that is damaged or edited by hand might show.
fn any_record() -> impl Strategy<Value = Record> {
    let name = prop_oneof![Just("me"), Just("other")].prop_map(|name| Label::new(name).expect("valid"));
    let holder = (prop_oneof![Just(1u128), Just(77)], name.clone()).prop_map(|(id, label)| Holder {
        id: CandidateId::from_bits(id),
        label,
        data: String::new(),
    });
    let handover = prop_oneof![Just(HandoverRequest::NewElection), name.prop_map(HandoverRequest::Successor)];
    let (holder, handover) = (prop::option::of(holder), prop::option::of(handover));
    (any_token(), any_number(), holder, any_span(), any_number(), handover, any::<bool>()).prop_map(
        |(token, beat, holder, lease, order_number, handover, paused)| {
            let version = Version { token, beat };
            Record { version, holder, lease, order_number, handover, paused }
        },
    )
}

fn any_sighting() -> impl Strategy<Value = Sighting> {
    let standing = (any::<u32>(), any::<u32>()).prop_map(|(ahead, others)| Standing { ahead, others });
    let (record, age) = (prop::option::of(any_record()), prop::option::of(any_span()));
    (record, any_token(), age, any::<bool>(), standing).prop_map(|(record, remembered, age, holder_gone, standing)| {
        Sighting { record, remembered, age, holder_gone, standing }
    })
}

fn any_reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        3 => any_sighting().prop_map(Reply::Seen),
        3 => any_sighting().prop_map(Reply::Conflict),
        3 => any_record().prop_map(Reply::Applied),
        1 => Just(Reply::Left),
    ]
}

proptest! {
    #![proptest_config(cases())]

    /// A store that answers nonsense costs leaderships, not the process: no panic, no overflow, tokens that only grow,
    /// work that is never left beside another leadership.
    #[test]
    fn nonsense_from_a_store_is_survived(
        lease in prop_oneof![Just(100u64), Just(10_000), Just(86_400_000)],
        steps in prop::collection::vec(
            prop_oneof![
                6 => any_reply().prop_map(|reply| (Some(Ok(reply)), None)),
                1 => Just((Some(Err(CallError::Unknown)), None)),
                1 => Just((Some(Err(CallError::NotDone)), None)),
                2 => prop_oneof![Just(0u64), 0u64..10_000, any::<u64>()].prop_map(|millis| (None, Some(millis))),
            ],
            1..60,
        ),
        drains in any::<bool>(),
    ) {
        let timing = Timing::with_lease(Duration::from_millis(lease)).expect("within bounds");
        let mut candidate = Candidate::new(Config::new(CandidateId::from_bits(1), Label::new("me").expect("valid"), timing));
        let (mut now, mut call, mut works, mut led) = (Instant::ZERO, None, false, Token::NONE);
        let mut events = vec![Event::Campaign];
        for (result, millis) in steps {
            if let Some(millis) = millis {
                now = now + Duration::from_millis(millis);
                events.push(Event::Wake);
            }
            if let (Some(result), Some(call)) = (result, call) {
                events.push(Event::Done { call, result });
            }
            if drains && works {
                works = false;
                events.push(Event::Drained);
            }
            for event in events.drain(..) {
                let mut effects = Vec::new();
                candidate.handle(event, &mut Context { now, entropy: &mut || u64::MAX, effects: &mut effects });
                for effect in effects {
                    match effect {
                        Effect::Call { call: id, .. } => call = Some(id),
                        Effect::Abandon { .. } => call = None,
                        Effect::Lead { token, .. } => {
                            prop_assert!(!works && token > led, "leads with {token} after {led}, works: {works}");
                            (works, led) = (true, token);
                        }
                        _ => {}
                    }
                }
                let _ = candidate.view();
                prop_assert!(candidate.deadline().is_none_or(|deadline| deadline > now || now == Instant::FAR));
            }
        }
    }
}

proptest! {
    #![proptest_config(cases())]

    /// R2 against a dumb twin: over any looks at any rows of another holder, a candidate asks exactly when the newest
    /// version has been seen for the holder's lease and 2 %, by the clock and not by the number of looks (R3).
    #[test]
    fn a_takeover_is_due_exactly_after_the_stretched_lease(
        looks in prop::collection::vec((0u64..900, any::<bool>(), 100u64..4_000), 1..40),
    ) {
        let mut witness = Witness::new(1_000, 0);
        witness.other_takes(Duration::from_millis(1_000));
        witness.happens(Happening::Told(Event::Campaign))?;
        witness.answer()?;
        let (mut lease, mut seen_at) = (1_000u64, witness.now);
        for (millis, renewed, next_lease) in looks {
            let due = seen_at + Duration::from_micros(lease * 1_020);
            prop_assert_eq!(witness.candidate.view().asks_at, Some(due));
            let at = witness.now + Duration::from_millis(millis);
            if at >= due {
                witness.pass(due.since(witness.now));
                witness.handle(Event::Wake, None)?;
                // A look that fell due before it is answered first.
                if witness.call.as_ref().is_some_and(|call| matches!(call.request, Request::Look { .. })) {
                    witness.answer()?;
                }
                let request = witness.call.as_ref().map(|call| &call.request);
                prop_assert!(matches!(request, Some(Request::Acquire { .. })), "{request:?} when the lease is due");
                return Ok(());
            }
            witness.pass(Duration::from_millis(millis));
            if renewed {
                witness.other(|record| {
                    record.version.beat += 1;
                    record.lease = Duration::from_millis(next_lease);
                });
                (lease, seen_at) = (next_lease, witness.now);
            }
            witness.handle(Event::Hint, None)?;
            witness.answer()?;
        }
    }
}

proptest! {
    #![proptest_config(cases())]

    /// What `Timing::ride_through` publishes: a store that refuses every call for that time, from the worst moment on, costs
    /// no leadership.
    #[test]
    fn an_outage_that_is_ridden_through_costs_nothing(lease in 200u64..60_000, entropy: u64) {
        let mut witness = Witness::new(lease, entropy);
        witness.happens(Happening::Told(Event::Campaign))?;
        while witness.until.is_none() {
            witness.happens(if witness.call.is_some() { Happening::Answered } else { Happening::Wakes(0) })?;
        }
        let led = witness.led;
        // The worst moment is just before a renewal is sent.
        witness.happens(Happening::Wakes(0))?;
        let back_at = witness.now + witness.timing().ride_through();
        while witness.now < back_at {
            let refused = witness.call.is_some();
            witness.happens(if refused { Happening::Fails(CallError::NotDone) } else { Happening::Wakes(0) })?;
        }
        witness.happens(if witness.call.is_some() { Happening::Answered } else { Happening::Wakes(0) })?;
        witness.answer()?;
        prop_assert!(!witness.told, "told to stop by an outage of {:?}", witness.timing().ride_through());
        prop_assert_eq!(witness.candidate.view().phase, CandidatePhase::Leading);
        prop_assert_eq!(witness.led, led);
    }
}
