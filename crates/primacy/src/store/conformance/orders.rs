//! Checks of what operators order, and of what becomes of their orders.

use super::super::{Expectation, HandoverRequest, Holder, Order, OrderKind, OrderOutcome, Record, Request, Version};
use super::actor::{LEASE, Outcome, Trial, applied, label};
use super::{Verdict, ensure};
use crate::Token;

fn promote(successor: &str, now: bool) -> OrderKind {
    OrderKind::Promote { successor: label(successor), now }
}

fn successor(text: &str) -> Option<HandoverRequest> {
    Some(HandoverRequest::Successor(label(text)))
}

/// The count of orders after one more.
fn counted(before: &Record, after: &Record) -> Result<u64, Verdict> {
    ensure!(after.order_number > before.order_number, "an order left the count of orders at {}", after.order_number);
    Ok(after.order_number)
}

pub(super) async fn expected_order_number(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let mut b = trial.candidate("b").await?;
    let seen = a.take().await?;
    trial.ordered(OrderKind::Pause).await?;
    let asking = |expect: Expectation, holder: &Holder| Request::Acquire {
        expect: Some(expect),
        floor: Token::NONE.into(),
        holder: holder.clone(),
        lease: LEASE,
    };
    b.refused("a grant against an order that was not seen", asking(seen.expectation(), &b.me)).await?;
    let ordered = b.record().await?;
    ensure!(
        ordered.version == seen.version,
        "an order changed the version from {} to {}",
        seen.version,
        ordered.version
    );
    let ahead = Expectation { order_number: ordered.order_number + 1, ..ordered.expectation() };
    b.refused("a grant on an order that was never given", asking(ahead, &b.me)).await?;
    a.renew(ordered.version).await.map(drop)
}

pub(super) async fn pause(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let before = a.take().await?;
    let shown = trial.ordered(OrderKind::Pause).await?;
    ensure!(shown.record == before, "an order shows {:?} as what was before, not {before:?}", shown.record);
    let paused = a.record().await?;
    let expected = Record { paused: true, order_number: counted(&before, &paused)?, ..before };
    ensure!(paused == expected, "a pause made the row {paused:?}");
    ensure!(
        matches!(trial.order(OrderKind::Pause).await?, OrderOutcome::Already(_)),
        "a second pause is not 'already'"
    );
    ensure!(a.record().await? == paused, "a second pause changed the row");
    let renewed = a.renew(paused.version).await?;
    ensure!(renewed.paused, "a renewal ended the pause");
    let released = a.release(renewed.version).await?;
    ensure!(released.paused, "a release ended the pause");
    trial.ordered(OrderKind::Resume).await?;
    let resumed = a.record().await?;
    let expected = Record { paused: false, order_number: counted(&released, &resumed)?, ..released };
    ensure!(resumed == expected, "a resume made the row {resumed:?}");
    ensure!(
        matches!(trial.order(OrderKind::Resume).await?, OrderOutcome::Already(_)),
        "a second resume is not 'already'"
    );
    Ok(())
}

pub(super) async fn promotion(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let mut b = trial.candidate("b").await?;
    let before = a.take().await?;
    trial.ordered(promote("b", false)).await?;
    let updated = b.record().await?;
    let expected = Record { handover: successor("b"), order_number: counted(&before, &updated)?, ..before };
    ensure!(updated == expected, "a promotion made the row {updated:?}, not {expected:?}");
    ensure!(
        matches!(trial.order(promote("b", false)).await?, OrderOutcome::Already(_)),
        "promoting twice is not 'already'"
    );
    trial.ordered(promote("c", false)).await?;
    let updated = b.record().await?;
    ensure!(updated.handover == successor("c"), "the later promotion does not count: {:?}", updated.handover);
    let taken = applied("a grant", b.ask(Some(updated.expectation()), Token::NONE).await?)?;
    ensure!(taken.handover.is_none(), "a grant leaves the hand-over request {:?}", taken.handover);
    ensure!(
        taken.order_number == updated.order_number,
        "a grant changed the order number from {} to {}",
        updated.order_number,
        taken.order_number
    );
    ensure!(b.record().await? == taken, "the grant that was answered does not stand");
    Ok(())
}

/// Two candidates have one label, and an order names one of them by its id.
pub(super) async fn promotion_by_id(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let mut namesake = trial.candidate("a").await?;
    let led = a.take().await?;
    let (own, other) = (a.me.id.to_string(), namesake.me.id.to_string());
    ensure!(
        matches!(trial.order(promote(&own, false)).await?, OrderOutcome::Already(_)),
        "the leader's id is not 'already'"
    );
    ensure!(
        matches!(trial.order(promote("a", false)).await?, OrderOutcome::Already(_)),
        "the leader's label is not 'already'"
    );
    trial.ordered(promote(&other, false)).await?;
    let updated = namesake.record().await?;
    let expected = Record { handover: successor(&other), order_number: counted(&led, &updated)?, ..led };
    ensure!(updated == expected, "a promotion by id made the row {updated:?}, not {expected:?}");
    let names = |candidate: &Holder| {
        updated.handover.as_ref().is_some_and(|handover| handover.names(candidate.id, &candidate.label))
    };
    ensure!(
        names(&namesake.me) && !names(&a.me),
        "the hand-over request {:?} does not tell them apart",
        updated.handover
    );
    let released = a.release(updated.version).await?;
    ensure!(released.handover == updated.handover, "a release left the hand-over request {:?}", released.handover);
    let taken = applied("a grant", namesake.ask(Some(released.expectation()), Token::NONE).await?)?;
    ensure!(taken.handover.is_none(), "a grant leaves the hand-over request {:?}", taken.handover);
    Ok(())
}

pub(super) async fn completed_order(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let granted = a.take().await?;
    trial.ordered(promote("b", false)).await?;
    let updated = a.record().await?;
    let mut version = granted.version;
    for (order_number, stays) in [
        (Some(granted.order_number), true),
        (Some(updated.order_number + 1), true),
        (Some(updated.order_number), false),
    ] {
        let request = Request::Renew { id: a.me.id, version, lease: LEASE, completed_order: order_number };
        let renewed = applied("a renewal", a.step(request).await?)?;
        ensure!(
            renewed.handover.is_some() == stays,
            "completed at {order_number:?} while the order number is {}: the hand-over request is {:?}",
            updated.order_number,
            renewed.handover
        );
        ensure!(
            renewed.order_number == updated.order_number,
            "a renewal changed the order number to {}",
            renewed.order_number
        );
        ensure!(a.record().await? == renewed, "the renewal that was answered does not stand");
        version = renewed.version;
    }
    Ok(())
}

pub(super) async fn release_keeps_successor(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let granted = a.take().await?;
    trial.ordered(promote("b", false)).await?;
    let released = a.release(granted.version).await?;
    ensure!(
        released.handover == successor("b"),
        "a release left the hand-over request {:?} of a successor",
        released.handover
    );
    ensure!(a.record().await? == released, "the release that was answered does not stand");
    let again = applied("a grant", a.ask(Some(released.expectation()), Token::NONE).await?)?;
    trial.ordered(OrderKind::Depose { now: false }).await?;
    let updated = a.record().await?;
    ensure!(
        updated.handover == Some(HandoverRequest::NewElection),
        "a deposition made the hand-over request {:?}",
        updated.handover
    );
    let released = a.release(again.version).await?;
    ensure!(released.handover.is_none(), "a release left the request for a new election, which is completed");
    ensure!(
        released.order_number == updated.order_number,
        "a release changed the order number to {}",
        released.order_number
    );
    Ok(())
}

pub(super) async fn deposition(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let granted = a.take().await?;
    trial.ordered(OrderKind::Depose { now: false }).await?;
    let updated = a.record().await?;
    let expected =
        Record { handover: Some(HandoverRequest::NewElection), order_number: counted(&granted, &updated)?, ..granted };
    ensure!(updated == expected, "a deposition made the row {updated:?}");
    let again = trial.order(OrderKind::Depose { now: false }).await?;
    ensure!(matches!(again, OrderOutcome::Already(_)), "deposing twice is not 'already' but {again:?}");
    let released = a.release(updated.version).await?;
    for now in [false, true] {
        let nobody = trial.order(OrderKind::Depose { now }).await?;
        ensure!(
            matches!(nobody, OrderOutcome::Already(_)),
            "deposing nobody (now: {now}) is not 'already' but {nobody:?}"
        );
    }
    ensure!(a.record().await? == released, "deposing nobody changed the row");
    Ok(())
}

/// `now` empties the row at once, and its holder cannot renew.
pub(super) async fn now(trial: Trial<'_>) -> Outcome {
    for (kind, handover) in [(OrderKind::Depose { now: true }, None), (promote("heir", true), successor("heir"))] {
        let mut a = trial.candidate("a").await?;
        let granted = a.take().await?;
        let before = trial.ordered(kind.clone()).await?;
        ensure!(before.record == granted, "{kind:?} shows {:?} as what was before", before.record);
        let emptied = a.record().await?;
        let version = Version { beat: granted.version.beat + 1, ..granted.version };
        let expected =
            Record { version, holder: None, handover, order_number: counted(&granted, &emptied)?, ..granted };
        ensure!(emptied == expected, "{kind:?} made the row {emptied:?}, not {expected:?}");
        for version in [granted.version, emptied.version] {
            let request = a.renewal(version);
            a.refused("a renewal after the row was emptied", request).await?;
        }
    }
    Ok(())
}

pub(super) async fn for_a_token(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let first = a.take().await?;
    let second = a.take().await?;
    let mut admin = trial.admin().await?;
    for kind in [OrderKind::Depose { now: true }, OrderKind::Pause, promote("b", true)] {
        let order = Order { kind, token: Some(first.version.token) };
        match admin.order(&trial.election, order.clone()).await? {
            OrderOutcome::TokenChanged(now) if now.record == second => {}
            other => return Err(format!("{order:?} while {second:?} stands was answered with {other:?}").into()),
        }
    }
    ensure!(a.record().await? == second, "an order for another token changed the row");
    let order = Order { kind: OrderKind::Pause, token: Some(second.version.token) };
    let written = admin.order(&trial.election, order).await?;
    ensure!(
        matches!(written, OrderOutcome::Written(_)),
        "an order for the present token was answered with {written:?}"
    );
    Ok(())
}

pub(super) async fn without_election(trial: Trial<'_>) -> Outcome {
    // The store itself exists from here on.
    let mut a = trial.candidate("a").await?;
    for kind in [OrderKind::Pause, OrderKind::Depose { now: true }, promote("a", false)] {
        let answer = trial.order(kind.clone()).await?;
        ensure!(answer == OrderOutcome::NoSuchElection, "{kind:?} in an election that nobody has run: {answer:?}");
    }
    ensure!(a.look().await?.record.is_none(), "an order made a row");
    Ok(())
}
