//! Checks of what is kept, what is told, and what an interrupted step leaves.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use super::super::{Basis, EndReason, Hints, OrderKind, OrderOutcome, Request, Version};
use super::actor::{Actor, Outcome, Trial, applied};
use super::{Verdict, ensure};
use crate::{Token, clock};

pub(super) async fn deleted_record(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let first = a.take().await?;
    let lost = a.renew(first.version).await?;
    if !trial.harness.delete_record(&trial.election).await {
        return Err(Verdict::Skipped);
    }
    let mut b = trial.candidate("b").await?;
    let seen = b.look().await?;
    ensure!(seen.record.is_none(), "the deleted row is still seen: {:?}", seen.record);
    ensure!(seen.remembered == lost.version.token, "after the deletion {} is remembered", seen.remembered);
    let request = a.renewal(lost.version);
    a.refused("a renewal of the deleted row", request).await?;
    // No answer knows less than the one before.
    let left = trial.snapshot().await?;
    let shown = left.as_ref().map(|left| (left.basis, left.record.version.token, left.leader()));
    ensure!(
        shown == Some((Basis::Remains, lost.version.token, None)),
        "of the deleted row this is shown: {left:?}, not its last token, and that its leader is unknown"
    );
    let holder = left.and_then(|left| left.record.holder).map(|holder| holder.id);
    ensure!(holder == Some(a.me.id), "the candidate that had the deleted row is shown as {holder:?}");
    let listed = trial.admin().await?.elections().await?;
    ensure!(listed.iter().any(|election| election.election == trial.election), "the deleted row is not listed");
    let answer = trial.order(OrderKind::Pause).await?;
    ensure!(matches!(answer, OrderOutcome::NoRecord(_)), "a pause of what has no row was answered with {answer:?}");
    // Absence has no version: what was granted and deleted since must not count as the absence that b saw before.
    let (expect, floor) = (None, Token::NONE);
    let holder = b.me.clone();
    let blind = Request::Acquire { expect, floor: floor.into(), holder, lease: Duration::from_secs(1) };
    b.refused("a grant to a candidate that has not seen what was lost", blind).await?;
    let granted = applied("a grant", b.ask(None, seen.remembered).await?)?;
    ensure!(granted.version.token > lost.version.token, "token {} was granted again", granted.version.token);
    Ok(())
}

pub(super) async fn history(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let mut b = trial.candidate("b").await?;
    let first = a.take().await?;
    a.release(first.version).await?;
    let second = b.take().await?;
    let third = a.take().await?;
    trial.ordered(OrderKind::Depose { now: true }).await?;
    let fourth = b.take().await?;
    let mut admin = trial.admin().await?;
    let terms = admin.history(&trial.election, 10).await?;
    let shown: Vec<_> =
        terms.iter().map(|term| (term.token, term.id, term.ended.as_ref().map(|(_, why)| why.as_str()))).collect();
    let resigned = EndReason::Resigned.word();
    let expected = [
        (fourth.version.token, b.me.id, None),
        (third.version.token, a.me.id, Some(EndReason::Deposed.word())),
        (second.version.token, b.me.id, Some("taken-over")),
        (first.version.token, a.me.id, Some(resigned)),
    ];
    ensure!(shown == expected, "the history is {shown:?}, not {expected:?}");
    ensure!(terms[0].label == b.me.label, "the history calls {:?} '{}'", b.me, terms[0].label);
    let limited = admin.history(&trial.election, 2).await?;
    ensure!(limited == terms[..2], "the two newest terms are {limited:?}");
    for term in &terms {
        let ended = term.ended.as_ref().map_or(i64::MAX, |(at, _)| *at);
        ensure!(term.granted_unix_ms > 1_600_000_000_000 && ended > 1_600_000_000_000, "nonsense times: {term:?}");
    }
    Ok(())
}

pub(super) async fn ages(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let granted = a.take().await?;
    tokio::time::sleep(Duration::from_millis(120)).await;
    let before = trial.snapshot().await?.ok_or("the row is missing")?;
    // A store without a clock of its own may know no ages; what it tells must be right.
    let old = |age: Option<Duration>| age.is_none_or(|age| (110..30_000).contains(&age.as_millis()));
    ensure!(old(before.age) && old(before.held_for), "120 ms after a grant the ages are {before:?}");
    let start = clock::now();
    let renewed = a.renew(granted.version).await?;
    let after = trial.snapshot().await?.ok_or("the row is missing")?;
    // A busy machine may take its time to answer.
    let since = clock::now().since(start) + Duration::from_millis(10);
    ensure!(after.age.is_none_or(|age| age <= since), "{since:?} after a renewal the age is {:?}", after.age);
    ensure!(old(after.held_for), "a renewal changed how long the lease was held to {:?}", after.held_for);
    let seen = a.look().await?;
    ensure!(seen.age.is_none_or(|age| age < Duration::from_secs(30)), "a fresh row has the age {:?}", seen.age);
    a.release(renewed.version).await?;
    let vacant = trial.snapshot().await?.ok_or("the row is missing")?;
    ensure!(vacant.held_for.is_none(), "nobody holds the lease, for {:?}", vacant.held_for);
    ensure!(vacant.leader().is_none(), "nobody holds the lease, but {:?} leads", vacant.leader());
    Ok(())
}

pub(super) async fn hints(trial: Trial<'_>) -> Outcome {
    if !trial.harness.has_hints() {
        return Err(Verdict::Skipped);
    }
    let mut a = trial.candidate("a").await?;
    let mut hints = trial.store.hints(&trial.election).await?;
    // Another handle, as another process has it.
    let mut elsewhere = trial.harness.open().hints(&trial.election).await?;
    // What was kept of before.
    for hints in [&mut hints, &mut elsewhere] {
        while arrived(&mut **hints, Duration::from_millis(50)).await {}
    }
    let granted = a.take().await?;
    expect_hint(&mut *hints, &mut *elsewhere, "a grant").await?;
    trial.ordered(OrderKind::Pause).await?;
    expect_hint(&mut *hints, &mut *elsewhere, "an order").await?;
    let renewed = a.renew(granted.version).await?;
    a.release(renewed.version).await?;
    expect_hint(&mut *hints, &mut *elsewhere, "a release").await?;
    // Hints that nobody waits for are kept, as one. More may come while they are read.
    const CHANGES: u32 = 10;
    const LATE: u32 = 3;
    for _ in 0..CHANGES / 2 {
        let again = a.take().await?;
        a.release(again.version).await?;
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    for hints in [&mut hints, &mut elsewhere] {
        let mut kept = 0;
        while arrived(&mut **hints, Duration::from_millis(if kept == 0 { 5_000 } else { 20 })).await {
            kept += 1;
        }
        ensure!(kept > 0, "no hint of {CHANGES} changes came while nobody waited");
        ensure!(kept <= 1 + LATE, "{kept} hints of {CHANGES} changes were kept while nobody waited, not one");
    }
    Ok(())
}

async fn expect_hint(same: &mut dyn Hints, other: &mut dyn Hints, what: &str) -> Outcome {
    expect_one(same, what, "the same").await?;
    expect_one(other, what, "another").await
}

async fn expect_one(hints: &mut dyn Hints, what: &str, whose: &str) -> Outcome {
    ensure!(arrived(hints, Duration::from_secs(5)).await, "no hint of {what} came to {whose} handle within 5 s");
    while arrived(hints, Duration::from_millis(20)).await {}
    Ok(())
}

async fn arrived(hints: &mut dyn Hints, within: Duration) -> bool {
    tokio::time::timeout(within, hints.next()).await.is_ok()
}

pub(super) async fn reopened(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let granted = a.take().await?;
    trial.ordered(OrderKind::Pause).await?;
    let renewed = a.renew(granted.version).await?;
    // Among peers a look by another may show a renewal less, and no change of another kind.
    let released = a.release(renewed.version).await?;
    drop(a);
    let store = trial.harness.open();
    let trial = Trial { store, ..trial };
    let read = trial.candidate("b").await?.record().await?;
    ensure!(read == released, "another handle reads {read:?}, not {released:?}");
    ensure!(!trial.store.location().is_empty(), "the store has no location");
    Ok(())
}

/// A probe leaves nothing behind.
pub(super) async fn probe(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    a.announce().await?;
    let granted = a.take().await?;
    let mut admin = trial.admin().await?;
    let before = admin.elections().await?.len();
    let probe = admin.probe().await?;
    ensure!(!probe.product.is_empty(), "the store has no name");
    ensure!(probe.renewals.is_sorted(), "the measured times are not sorted: {:?}", probe.renewals);
    for finding in &probe.findings {
        ensure!(!finding.code.is_empty() && !finding.message.contains('\n'), "a finding for nobody: {finding:?}");
    }
    ensure!(admin.elections().await?.len() == before, "the probe made or removed an election");
    ensure!(a.record().await? == granted, "the probe changed the row");
    Ok(())
}

/// A step whose future is dropped before it was polled, after it was polled, or later, is taken wholly or not at all.
pub(super) async fn dropped_step(trial: Trial<'_>) -> Outcome {
    if !trial.harness.survives_dropped_steps() {
        return Err(Verdict::Skipped);
    }
    let mut a = trial.candidate("a").await?;
    let mut standing = a.take().await?;
    for polls in 0..24 {
        let mut beating = Actor::join(&trial.store, &trial.election, a.me.clone()).await?;
        let request = match polls % 2 {
            0 => beating.renewal(standing.version),
            _ => Request::Release { id: a.me.id, version: standing.version, reason: EndReason::Resigned },
        };
        {
            let mut step = pin!(beating.session.step(request));
            for _ in 0..polls / 4 {
                if step.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        drop(beating);
        // Until it settles: what was under way may still be taken.
        let next = Version { beat: standing.version.beat + 1, ..standing.version };
        let read = a.record().await?;
        let whole = match polls % 2 {
            0 => super::super::Record { version: next, ..standing.clone() },
            _ => super::super::Record { version: next, holder: None, ..standing.clone() },
        };
        ensure!(read == standing || read == whole, "a dropped step left {read:?}, between {standing:?} and {whole:?}");
        let mut b = trial.candidate("b").await?;
        standing = match b.ask(Some(read.expectation()), Token::NONE).await? {
            super::super::Reply::Applied(record) => record,
            // It was taken meanwhile.
            _ => b.take().await?,
        };
        a = b;
    }
    Ok(())
}
