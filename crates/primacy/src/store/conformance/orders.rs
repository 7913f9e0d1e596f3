//! Checks of what operators order, and of what becomes of their orders.

use super::super::{Expectation, Holder, Order, OrderKind, Ordered, Record, Request, Version, Wish};
use super::actor::{LEASE, Outcome, Trial, applied, label};
use super::{Verdict, ensure};
use crate::Token;

fn promote(successor: &str, now: bool) -> OrderKind {
    OrderKind::Promote { successor: label(successor), now }
}

fn successor(text: &str) -> Option<Wish> {
    Some(Wish::Successor(label(text)))
}

/// The count of orders after one more.
fn counted(before: &Record, after: &Record) -> Result<u64, Verdict> {
    ensure!(after.intent > before.intent, "an order left the count of orders at {}", after.intent);
    Ok(after.intent)
}

pub(super) async fn expected_intent(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let mut b = trial.candidate("b").await?;
    let seen = a.take().await?;
    trial.ordered(OrderKind::Pause).await?;
    let asking = |expect: Expectation, holder: &Holder| Request::Acquire {
        expect: Some(expect),
        floor: Token::NONE,
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
    let ahead = Expectation { intent: ordered.intent + 1, ..ordered.expectation() };
    b.refused("a grant on an order that was never given", asking(ahead, &b.me)).await?;
    a.renew(ordered.version).await.map(drop)
}

pub(super) async fn pause(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let before = a.take().await?;
    let shown = trial.ordered(OrderKind::Pause).await?;
    ensure!(shown.record == before, "an order shows {:?} as what was before, not {before:?}", shown.record);
    let paused = a.record().await?;
    let expected = Record { paused: true, intent: counted(&before, &paused)?, ..before };
    ensure!(paused == expected, "a pause made the row {paused:?}");
    ensure!(matches!(trial.order(OrderKind::Pause).await?, Ordered::Already(_)), "a second pause is not 'already'");
    ensure!(a.record().await? == paused, "a second pause changed the row");
    let renewed = a.renew(paused.version).await?;
    ensure!(renewed.paused, "a renewal ended the pause");
    let released = a.release(renewed.version).await?;
    ensure!(released.paused, "a release ended the pause");
    trial.ordered(OrderKind::Resume).await?;
    let resumed = a.record().await?;
    let expected = Record { paused: false, intent: counted(&released, &resumed)?, ..released };
    ensure!(resumed == expected, "a resume made the row {resumed:?}");
    ensure!(matches!(trial.order(OrderKind::Resume).await?, Ordered::Already(_)), "a second resume is not 'already'");
    Ok(())
}

pub(super) async fn promotion(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let mut b = trial.candidate("b").await?;
    let before = a.take().await?;
    trial.ordered(promote("b", false)).await?;
    let wished = b.record().await?;
    let expected = Record { wish: successor("b"), intent: counted(&before, &wished)?, ..before };
    ensure!(wished == expected, "a promotion made the row {wished:?}, not {expected:?}");
    ensure!(matches!(trial.order(promote("b", false)).await?, Ordered::Already(_)), "promoting twice is not 'already'");
    trial.ordered(promote("c", false)).await?;
    let wished = b.record().await?;
    ensure!(wished.wish == successor("c"), "the later promotion does not count: {:?}", wished.wish);
    let taken = applied("a grant", b.ask(Some(wished.expectation()), Token::NONE).await?)?;
    ensure!(taken.wish.is_none(), "a grant leaves the wish {:?}", taken.wish);
    ensure!(taken.intent == wished.intent, "a grant changed the intent from {} to {}", wished.intent, taken.intent);
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
        matches!(trial.order(promote(&own, false)).await?, Ordered::Already(_)),
        "the leader's id is not 'already'"
    );
    ensure!(
        matches!(trial.order(promote("a", false)).await?, Ordered::Already(_)),
        "the leader's label is not 'already'"
    );
    trial.ordered(promote(&other, false)).await?;
    let wished = namesake.record().await?;
    let expected = Record { wish: successor(&other), intent: counted(&led, &wished)?, ..led };
    ensure!(wished == expected, "a promotion by id made the row {wished:?}, not {expected:?}");
    let names =
        |candidate: &Holder| wished.wish.as_ref().is_some_and(|wish| wish.names(candidate.id, &candidate.label));
    ensure!(names(&namesake.me) && !names(&a.me), "the wish {:?} does not tell them apart", wished.wish);
    let released = a.release(wished.version).await?;
    ensure!(released.wish == wished.wish, "a release left the wish {:?}", released.wish);
    let taken = applied("a grant", namesake.ask(Some(released.expectation()), Token::NONE).await?)?;
    ensure!(taken.wish.is_none(), "a grant leaves the wish {:?}", taken.wish);
    Ok(())
}

pub(super) async fn fulfilled(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let granted = a.take().await?;
    trial.ordered(promote("b", false)).await?;
    let wished = a.record().await?;
    let mut version = granted.version;
    for (intent, stays) in [(Some(granted.intent), true), (Some(wished.intent + 1), true), (Some(wished.intent), false)]
    {
        let request = Request::Renew { id: a.me.id, version, lease: LEASE, fulfilled: intent };
        let renewed = applied("a renewal", a.step(request).await?)?;
        ensure!(
            renewed.wish.is_some() == stays,
            "fulfilled at {intent:?} while the intent is {}: the wish is {:?}",
            wished.intent,
            renewed.wish
        );
        ensure!(renewed.intent == wished.intent, "a renewal changed the intent to {}", renewed.intent);
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
    ensure!(released.wish == successor("b"), "a release left the wish {:?} of a successor", released.wish);
    ensure!(a.record().await? == released, "the release that was answered does not stand");
    let again = applied("a grant", a.ask(Some(released.expectation()), Token::NONE).await?)?;
    trial.ordered(OrderKind::Depose { now: false }).await?;
    let wished = a.record().await?;
    ensure!(wished.wish == Some(Wish::NewElection), "a deposition made the wish {:?}", wished.wish);
    let released = a.release(again.version).await?;
    ensure!(released.wish.is_none(), "a release left the wish for a new election, which has come true");
    ensure!(released.intent == wished.intent, "a release changed the intent to {}", released.intent);
    Ok(())
}

pub(super) async fn deposition(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let granted = a.take().await?;
    trial.ordered(OrderKind::Depose { now: false }).await?;
    let wished = a.record().await?;
    let expected = Record { wish: Some(Wish::NewElection), intent: counted(&granted, &wished)?, ..granted };
    ensure!(wished == expected, "a deposition made the row {wished:?}");
    let again = trial.order(OrderKind::Depose { now: false }).await?;
    ensure!(matches!(again, Ordered::Already(_)), "deposing twice is not 'already' but {again:?}");
    let released = a.release(wished.version).await?;
    for now in [false, true] {
        let nobody = trial.order(OrderKind::Depose { now }).await?;
        ensure!(matches!(nobody, Ordered::Already(_)), "deposing nobody (now: {now}) is not 'already' but {nobody:?}");
    }
    ensure!(a.record().await? == released, "deposing nobody changed the row");
    Ok(())
}

/// `now` empties the row at once, and its holder cannot renew.
pub(super) async fn now(trial: Trial<'_>) -> Outcome {
    for (kind, wish) in [(OrderKind::Depose { now: true }, None), (promote("heir", true), successor("heir"))] {
        let mut a = trial.candidate("a").await?;
        let granted = a.take().await?;
        let before = trial.ordered(kind.clone()).await?;
        ensure!(before.record == granted, "{kind:?} shows {:?} as what was before", before.record);
        let emptied = a.record().await?;
        let version = Version { beat: granted.version.beat + 1, ..granted.version };
        let expected = Record { version, holder: None, wish, intent: counted(&granted, &emptied)?, ..granted };
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
    let mut desk = trial.desk().await?;
    for kind in [OrderKind::Depose { now: true }, OrderKind::Pause, promote("b", true)] {
        let order = Order { kind, token: Some(first.version.token) };
        match desk.order(&trial.election, order.clone()).await? {
            Ordered::TokenChanged(now) if now.record == second => {}
            other => return Err(format!("{order:?} while {second:?} stands was answered with {other:?}").into()),
        }
    }
    ensure!(a.record().await? == second, "an order for another token changed the row");
    let order = Order { kind: OrderKind::Pause, token: Some(second.version.token) };
    let written = desk.order(&trial.election, order).await?;
    ensure!(matches!(written, Ordered::Written(_)), "an order for the present token was answered with {written:?}");
    Ok(())
}

pub(super) async fn without_election(trial: Trial<'_>) -> Outcome {
    // The store itself exists from here on.
    let mut a = trial.candidate("a").await?;
    for kind in [OrderKind::Pause, OrderKind::Depose { now: true }, promote("a", false)] {
        let answer = trial.order(kind.clone()).await?;
        ensure!(answer == Ordered::NoSuchElection, "{kind:?} in an election that nobody has run: {answer:?}");
    }
    ensure!(a.look().await?.record.is_none(), "an order made a row");
    Ok(())
}
