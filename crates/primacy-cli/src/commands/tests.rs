//! The commands against a store that answers as it is told.

use std::time::Duration;

use primacy::store::{Order, OrderKind, OrderOutcome, Snapshot, StoreError};

use super::fake::{FakeStore, Script};
use super::{status, watch};
use crate::cli::{OrderArgs, StatusArgs, WatchArgs};
use crate::failure::Failure;
use crate::order::pause::{self, Switch};
use crate::order::{OperatorOrder, handover};
use crate::output::sample::*;
use crate::output::testing::captured;
use crate::reach::Reach;

fn args() -> OrderArgs {
    OrderArgs { now: false, token: None, force: false, no_wait: false }
}

fn store(
    snapshots: impl IntoIterator<Item = Snapshot>,
    orders: impl IntoIterator<Item = Result<OrderOutcome, StoreError>>,
) -> FakeStore {
    FakeStore::new(Script {
        snapshots: snapshots.into_iter().map(Some).collect(),
        orders: orders.into_iter().collect(),
        ..Script::default()
    })
}

fn reach(store: &FakeStore) -> Reach {
    Reach::new(std::sync::Arc::new(store.clone()), election(), None)
}

/// web-`n` has taken over with the next token.
fn taken_by(n: u8) -> Snapshot {
    with(led(), |snapshot| {
        snapshot.record.holder = Some(holder(n));
        snapshot.record.version.token = token(18);
    })
}

async fn order(wanted: OperatorOrder, args: &OrderArgs, store: &FakeStore) -> (Result<u8, Failure>, String, String) {
    let (mut output, out, err) = captured(false);
    let ended = handover::run(wanted, args, &mut reach(store), &mut output).await;
    (ended, out.text(), err.text())
}

fn web2() -> OperatorOrder {
    OperatorOrder::Promote(label("web-2"))
}

fn code(ended: &Result<u8, Failure>) -> u8 {
    match ended {
        Ok(code) => *code,
        Err(failure) => failure.code,
    }
}

#[tokio::test(start_paused = true)]
async fn a_promotion_waits_until_the_successor_leads() {
    let store = store([led(), promoting(led(), "web-2"), vacant(), taken_by(2)], [Ok(OrderOutcome::Written(led()))]);
    let (ended, out, _) = order(web2(), &args(), &store).await;
    assert_eq!(ended, Ok(0));
    assert!(out.starts_with("web-2 (22222222) leads with token 18, "), "{out}");
    let expected = Order { kind: OrderKind::Promote { successor: label("web-2"), now: false }, token: None };
    assert_eq!(store.with(|script| script.given.clone()), [expected]);
}

#[tokio::test(start_paused = true)]
async fn a_promotion_that_another_won_says_so() {
    let store = store([led(), taken_by(3)], [Ok(OrderOutcome::Written(led()))]);
    let (ended, ..) = order(web2(), &args(), &store).await;
    assert_eq!(code(&ended), 3);
    assert!(ended.expect_err("another leads").to_string().contains("web-3 (33333333) leads with token 18"));
}

#[tokio::test(start_paused = true)]
async fn an_order_without_waiting_returns_at_once() {
    let store = store([led()], [Ok(OrderOutcome::Written(led()))]);
    let (ended, out, _) = order(web2(), &OrderArgs { no_wait: true, ..args() }, &store).await;
    assert_eq!((ended, out.as_str()), (Ok(0), "the order stands\n"));
    assert_eq!(store.with(|script| script.given.len()), 1);
}

#[tokio::test]
async fn what_cannot_come_true_is_refused_before_anything_is_written() {
    let paused = with(led(), |snapshot| snapshot.record.paused = true);
    let alone = with(led(), |snapshot| snapshot.candidates.clear());
    let unwilling = with(led(), |snapshot| snapshot.candidates.iter_mut().for_each(|waiting| waiting.rank = None));
    let stale = OrderArgs { token: Some(token(16)), ..args() };
    let web9 = OperatorOrder::Promote(label("web-9"));
    let cases = [
        (led(), web9, args(), "no candidate called web-9 waits (waiting: web-2, web-3)"),
        (paused.clone(), web2(), args(), "paused"),
        (paused, OperatorOrder::Depose, args(), "paused"),
        (alone.clone(), OperatorOrder::Depose, args(), "no other candidate"),
        (alone, web2(), args(), "nobody waits"),
        (unwilling, web2(), args(), "nobody waits"),
        (led(), web2(), stale.clone(), "the last granted token is 17, not 16"),
        (led(), OperatorOrder::Promote(label("web-1")), stale, "the last granted token is 17, not 16"),
    ];
    for (snapshot, wanted, args, says) in cases {
        let store = store([snapshot], []);
        let (ended, out, _) = order(wanted, &args, &store).await;
        assert_eq!((code(&ended), out.as_str()), (1, ""));
        let line = ended.expect_err("refused").to_string();
        assert!(line.contains(says) && line.contains("not") && !line.contains('\n'), "{line}");
        assert_eq!(store.with(|script| script.given.len()), 0);
    }
    let never = FakeStore::new(Script::default());
    let (ended, ..) = order(web2(), &args(), &never).await;
    assert_eq!(code(&ended), 1);
}

#[tokio::test]
async fn force_orders_what_cannot_come_true_yet() {
    let store = store([led()], [Ok(OrderOutcome::Written(led()))]);
    let args = OrderArgs { force: true, no_wait: true, ..args() };
    let (ended, ..) = order(OperatorOrder::Promote(label("web-9")), &args, &store).await;
    assert_eq!(ended, Ok(0));
    assert_eq!(store.with(|script| script.given.len()), 1);
}

#[tokio::test]
async fn what_is_so_already_changes_nothing() {
    for (snapshot, wanted) in [(led(), OperatorOrder::Promote(label("web-1"))), (vacant(), OperatorOrder::Depose)] {
        let store = store([snapshot], []);
        let (ended, out, _) = order(wanted, &args(), &store).await;
        assert_eq!(ended, Ok(0));
        assert!(!out.is_empty());
        assert_eq!(store.with(|script| script.given.len()), 0);
    }
}

#[tokio::test]
async fn keeping_the_leader_replaces_an_order_for_another() {
    let before = promoting(led(), "web-2");
    let store = store([before.clone(), promoting(led(), "web-1"), led()], [Ok(OrderOutcome::Written(before))]);
    let (ended, out, _) = order(OperatorOrder::Promote(label("web-1")), &args(), &store).await;
    assert_eq!(ended, Ok(0));
    assert!(out.starts_with("web-1 (11111111) leads with token 17"), "{out}");
}

#[tokio::test(start_paused = true)]
async fn an_order_whose_answer_was_lost_never_deposes_twice() {
    let lost = Err(StoreError::Unknown("the answer was lost".to_owned()));
    let store = store([led(), taken_by(2)], [lost, Ok(OrderOutcome::TokenChanged(taken_by(2)))]);
    let (ended, out, _) = order(OperatorOrder::Depose, &args(), &store).await;
    assert_eq!(ended, Ok(0), "the first attempt had been carried out");
    assert!(out.contains("web-2 (22222222) leads with token 18"), "{out}");
    let tokens = store.with(|script| script.given.iter().map(|order| order.token).collect::<Vec<_>>());
    assert_eq!(tokens, [None, Some(token(17))]);
}

#[tokio::test]
async fn now_says_what_it_risks() {
    let store = store([led(), taken_by(2)], [Ok(OrderOutcome::Written(led()))]);
    let (ended, _, err) = order(web2(), &OrderArgs { now: true, ..args() }, &store).await;
    assert_eq!(ended, Ok(0));
    assert!(err.contains("for up to 7.") && err.contains("two may lead"), "{err}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_comes_back_in_time_is_reached() {
    let store = store([led()], []);
    store.with(|script| {
        script.errors.extend([StoreError::Unreachable("down".into()), StoreError::Unknown("lost".into())])
    });
    let answer = reach(&store).snapshot().await.expect("it came back");
    assert_eq!(answer.value, Some(led()));
    assert_eq!(store.with(|script| script.opened), 3, "a connection that failed is not used again");
}

#[tokio::test]
async fn patience_and_what_must_be_repaired_end_with_69() {
    let unusable = store([led()], []);
    unusable.with(|script| script.errors.push_back(StoreError::Unusable("schema 9".into())));
    let failure = reach(&unusable).snapshot().await.expect_err("someone has to act");
    assert_eq!(failure.code, 69);
    assert_eq!(unusable.with(|script| script.opened), 1, "trying again would not help");

    let repaired = store([led()], []);
    repaired.with(|script| script.errors.push_back(StoreError::Unusable("not there yet".into())));
    let mut patient = Reach::new(std::sync::Arc::new(repaired), election(), Some(Duration::from_secs(60)));
    assert!(patient.snapshot().await.is_ok(), "who says how long to wait waits for that, too");

    let down = store([led()], []);
    down.with(|script| script.errors.extend((0..1_000).map(|_| StoreError::Unreachable("down".into()))));
    let mut reach = Reach::new(std::sync::Arc::new(down), election(), Some(Duration::from_millis(50)));
    let failure = reach.snapshot().await.expect_err("it stays away");
    assert_eq!(failure.code, 69);
    assert!(failure.to_string().starts_with("fake:somewhere: the store cannot be reached: down"), "{failure}");
}

#[tokio::test]
async fn pause_and_resume_say_whether_they_changed_anything() {
    let cases = [
        (Switch::Pause, Ok(OrderOutcome::Written(led())), Ok(0), "paused: web-1 goes on"),
        (Switch::Pause, Ok(OrderOutcome::Already(led())), Ok(0), "paused already"),
        (Switch::Resume, Ok(OrderOutcome::Already(led())), Ok(0), "was not paused"),
        (Switch::Resume, Ok(OrderOutcome::NoSuchElection), Err(1), ""),
    ];
    for (switch, answer, code, says) in cases {
        let store = store([led()], [answer]);
        let (mut output, out, _) = captured(false);
        let ended = pause::run(switch, &mut reach(&store), &mut output).await;
        assert_eq!(ended.map_err(|failure| failure.code), code);
        assert!(out.text().starts_with(says), "{}", out.text());
    }
}

#[tokio::test]
async fn status_tells_by_its_exit_code_whether_somebody_leads() {
    for (snapshot, code) in [(Some(led()), 0), (Some(vacant()), 1), (Some(silent()), 1), (None, 1)] {
        let store = FakeStore::new(Script { snapshots: [snapshot].into(), ..Script::default() });
        let (mut output, out, _) = captured(false);
        let ended = status::run(&StatusArgs { explain: true }, &mut reach(&store), &mut output).await;
        assert_eq!(ended, Ok(code));
        assert!(out.text().starts_with("election"), "{}", out.text());
    }
}

#[tokio::test(start_paused = true)]
async fn watch_goes_on_while_the_store_is_away() {
    let store = store([led(), taken_by(2)], []);
    store.with(|script| script.errors_later = [StoreError::Unreachable("down".into())].into());
    let args = WatchArgs { count: Some(4), until_leader: false, interval: Duration::from_secs(1) };
    let (mut output, out, _) = captured(true);
    assert_eq!(watch::run(&args, &mut reach(&store), &mut output).await, Ok(0));
    let events: Vec<String> = out
        .text()
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).expect("JSON on each line")["event"]
                .as_str()
                .expect("a word")
                .to_owned()
        })
        .collect();
    assert_eq!(events, ["now", "unreachable", "reachable", "leader"]);
}
