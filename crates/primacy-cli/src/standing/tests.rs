//! How a candidate's standing is told, moment by moment.

use std::sync::Arc;
use std::time::Duration;

use primacy::store::memory::MemoryStore;
use primacy::store::{EndReason, Version, Why};
use primacy::{Election, Label, Phase, Status, Timing, TimingSettings, Token, clock};
use tokio::sync::watch;

use super::{CandidateSource, CandidateState, CurrentLeadership, Standing};

fn token(number: u64) -> Token {
    Token::new(number).expect("it is small")
}

#[test]
fn nobody_is_told_to_lead_after_the_lease_whatever_was_heard_last() {
    let election = Election::new(Arc::new(MemoryStore::default()), "billing".parse().expect("a name"));
    let waiting = || Status::Waiting { why: Why::Asking, leader: None, standing: None, trouble: None };
    let (status, told) = watch::channel(waiting());
    let (led, leads) = watch::channel(None);
    let state = CandidateState { status: told, group: None, counted: Arc::default() };
    let candidate = CandidateSource::new(election.name(), &Label::new("a").expect("a label"), state, leads);
    assert!(matches!(candidate.standing(), Standing::Waits { .. }));

    let timing = Timing::new(TimingSettings::for_program(Duration::from_secs(10))).expect("the usual one");
    let leading = |until| Phase::Leading { until, version: Version::default(), timing };
    let (phase, phases) = watch::channel(leading(clock::now() + Duration::from_secs(3600)));
    led.send_replace(Some(CurrentLeadership { token: token(7), phases, told: None }));
    let Standing::Leads { token: own, stop_at } = candidate.standing() else { panic!("{:?}", candidate.standing()) };
    assert!(own == token(7) && stop_at.since(clock::now()) > Duration::from_secs(3000), "{own:?} {stop_at:?}");

    // What its program was told counts, if that is earlier.
    let (told, heard) = watch::channel(clock::now());
    let phases = phase.subscribe();
    led.send_replace(Some(CurrentLeadership { token: token(7), phases, told: Some(heard) }));
    assert!(matches!(candidate.standing(), Standing::Stops { .. }), "{:?}", candidate.standing());
    told.send_replace(clock::now() + Duration::from_secs(3600));
    assert!(matches!(candidate.standing(), Standing::Leads { .. }), "{:?}", candidate.standing());

    // Its warden tells the program to stop before that, by the clock alone.
    let now = clock::now();
    for until in [now, now + timing.kill() + timing.grace()] {
        phase.send_replace(leading(until));
        let stops = Standing::Stops { token: Some(token(7)), why: "the lease runs out".to_owned() };
        assert_eq!(candidate.standing(), stops);
    }
    phase.send_replace(Phase::Draining { reason: EndReason::Withdrawn, by: now + Duration::from_secs(3600) });
    assert!(matches!(candidate.standing(), Standing::Stops { .. }), "its program was told to stop");

    led.send_replace(None);
    status.send_replace(Status::Leading { token: token(7), trouble: None });
    assert!(matches!(candidate.standing(), Standing::Stops { .. }), "its program does not run");
    status.send_replace(waiting());
    assert!(matches!(candidate.standing(), Standing::Waits { .. }));
}
