//! Three candidates with one label, in any store: they are told of each other, and an operator chooses one by its id.

use std::sync::Arc;
use std::time::Duration;

use primacy::store::{Order, OrderKind, OrderOutcome, Store};
use primacy::{Candidate, CandidateConfig, CandidateId, Election, ElectionName, Label, Timing};

use crate::logged::Log;

fn campaign(election: &Election) -> Candidate {
    let mut config = CandidateConfig::new(Label::new("web").expect("valid"));
    config.timing = Timing::with_lease(Duration::from_secs(3)).expect("valid");
    election.campaign_with(config).expect("the system has a thread")
}

async fn within<T>(what: &str, awaited: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), awaited).await.unwrap_or_else(|_| panic!("{what} does not come"))
}

async fn until_waiting(election: &Election, id: CandidateId) {
    let mut admin = election.store().admin().await.expect("opens");
    loop {
        let seen = admin.snapshot(election.name()).await.expect("an answer");
        if seen.is_some_and(|seen| seen.candidates.iter().any(|waiting| waiting.who.id == id)) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// The one that is named by its id leads next, though another of its label is before it in line; and each is told of others.
pub(crate) async fn tell_of_each_other_and_follow_their_id(store: Arc<dyn Store>) {
    let mut log = Log::begin();
    let name = format!("namesakes-{:08x}", rand::random::<u32>());
    let election = Election::new(store, ElectionName::new(name).expect("valid"));
    let mut first = campaign(&election);
    let led = within("a leader", first.elected()).await.expect("elected");
    let second = campaign(&election);
    within("the second", until_waiting(&election, second.id())).await;
    let mut third = campaign(&election);
    within("the third", until_waiting(&election, third.id())).await;

    let (own, others) = (third.id().to_string(), [first.id().to_string(), second.id().to_string()]);
    for other in &others {
        log.says(&["another candidate is called web too", other, &format!("this one is {own}")]).await;
    }

    let mut admin = election.store().admin().await.expect("opens");
    let successor = Label::new(own).expect("valid");
    let order = Order { kind: OrderKind::Promote { successor, now: false }, token: Some(led.token()) };
    let ordered = admin.order(election.name(), order).await;
    assert!(matches!(ordered, Ok(OrderOutcome::Written(_))), "{ordered:?}");
    within("the end of the first", led.lost()).await;
    drop(led);
    let next = within("the third to lead", third.elected()).await.expect("elected");
    assert!(next.is_current());
    let seen = admin.snapshot(election.name()).await.expect("an answer").expect("a leader");
    assert_eq!((seen.record.holder.map(|holder| holder.id), seen.record.handover), (Some(third.id()), None));
}
