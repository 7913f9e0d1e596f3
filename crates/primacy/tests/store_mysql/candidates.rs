//! Candidates through the public API.

use std::sync::Arc;
use std::time::Duration;

use primacy::{Candidate, CandidateConfig, Election, Label, Timing, clock};

use crate::hints::await_queue;
use crate::many::all_wait;
use crate::support::{at, server};

fn campaign(election: &Election, number: usize) -> Candidate {
    let mut config = CandidateConfig::new(Label::new(format!("c{number}")).expect("a valid label"));
    config.timing = Timing::with_lease(Duration::from_secs(60)).expect("valid");
    election.campaign_with(config).expect("starts")
}

/// The next leader hears of a resignation from the lookout: it leads long before it would have looked by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_candidate_hears_of_a_resignation() {
    let server = server();
    let election = Election::open(&server.url(), "handover").expect("a valid URL");
    let mut leader = campaign(&election, 0);
    let mut leadership = leader.elected().await.expect("leads");
    let mut spans = Vec::new();
    for number in 1..=10 {
        // The server notices after up to a second that a candidate has gone, whose connection is in the queue until then.
        await_queue(&server, 0).await;
        // Who has just led lets others go first, so that each round needs a new candidate. Where it knows of none, it takes the
        // lease again: so the next one must have said that it waits.
        let mut next = campaign(&election, number);
        all_wait(std::slice::from_ref(&next)).await;
        await_queue(&server, 1).await;
        let start = clock::now();
        leadership.resign().await;
        let elected = tokio::time::timeout(Duration::from_secs(8), next.elected()).await;
        leadership = elected.expect("hears of it").expect("leads");
        spans.push(clock::now().since(start));
        std::mem::replace(&mut leader, next).withdraw().await;
    }
    spans.sort_unstable();
    println!("from a resignation to the next leadership: {spans:?}");
    assert!(spans[spans.len() / 2] < Duration::from_millis(500), "{spans:?}");
    leadership.resign().await;
    leader.withdraw().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candidates_with_one_label_are_told_of_each_other_and_promoted_by_their_id() {
    let server = server();
    crate::namesakes::tell_of_each_other_and_follow_their_id(Arc::new(at(&server.url()))).await;
}
