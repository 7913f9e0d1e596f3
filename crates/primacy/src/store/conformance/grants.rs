//! Checks of the compare-and-swap itself: who gets the lease, who keeps it, who gives it back.

use std::time::Duration;

use super::super::{EndReason, Expectation, Floor, Holder, Record, Reply, Request, Version};
use super::actor::{Actor, LEASE, Outcome, Trial, applied};
use super::ensure;
use crate::Token;

pub(super) async fn first_grant(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let seen = a.look().await?;
    ensure!(seen.record.is_none(), "an election that nobody has run has a row: {seen:?}");
    ensure!(seen.remembered == Token::NONE, "a token is remembered that was never granted: {}", seen.remembered);
    ensure!(trial.snapshot().await?.is_none(), "a look alone made a row");
    let record = a.take().await?;
    ensure!(record.version == Version { token: Token::NONE.next(0), beat: 1 }, "the first is {}", record.version);
    ensure!(record.holder.as_ref() == Some(&a.me), "the grant names {:?}", record.holder);
    ensure!(record.lease == LEASE && record.handover.is_none() && !record.paused, "the grant wrote {record:?}");
    let seen = a.look().await?;
    ensure!(seen.record.as_ref() == Some(&record), "granted {record:?} but then saw {:?}", seen.record);
    ensure!(seen.remembered == record.version.token, "the granted token is not remembered but {}", seen.remembered);
    ensure!(!seen.holder_gone, "a live holder is said to be gone");
    Ok(())
}

pub(super) async fn renewal(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let mut before = a.take().await?;
    for beat in 2..=5 {
        let record = a.renew(before.version).await?;
        let expected = Version { beat, ..before.version };
        ensure!(record.version == expected, "renewed {} to {}, not {expected}", before.version, record.version);
        let same = Record { version: expected, ..before };
        ensure!(record == same, "a renewal changed more than the beat: {record:?}");
        ensure!(a.record().await? == record, "the renewal that was answered does not stand");
        before = record;
    }
    Ok(())
}

pub(super) async fn stale_beat(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let first = a.take().await?;
    let second = a.renew(first.version).await?;
    for version in [first.version, Version { beat: second.version.beat + 1, ..second.version }] {
        let request = a.renewal(version);
        a.refused(&format!("a renewal of {version} while {} stands", second.version), request).await?;
    }
    a.renew(second.version).await.map(drop)
}

pub(super) async fn same_label_other_id(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("same").await?;
    let mut b = trial.candidate("same").await?;
    let record = a.take().await?;
    let request = b.renewal(record.version);
    b.refused("a renewal by another candidate with the same label", request).await?;
    let request = Request::Release { id: b.me.id, version: record.version, reason: EndReason::Withdrawn };
    b.refused("a release by another candidate with the same label", request).await?;
    a.renew(record.version).await.map(drop)
}

pub(super) async fn other_token(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let first = a.take().await?;
    let released = a.release(first.version).await?;
    let second = applied("a second grant", a.ask(Some(released.expectation()), Token::NONE).await?)?;
    ensure!(second.version.beat == 1, "a grant begins with beat {}", second.version.beat);
    // The beats are equal: only the token tells the terms of this candidate apart (HAZARDS 17).
    let request = a.renewal(first.version);
    a.refused("a late renewal of an older term", request).await?;
    let request = Request::Release { id: a.me.id, version: first.version, reason: EndReason::Expired };
    a.refused("a late release of an older term", request).await.map(drop)
}

pub(super) async fn release(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let granted = a.take().await?;
    let released = a.release(granted.version).await?;
    let expected = Version { beat: granted.version.beat + 1, ..granted.version };
    ensure!(released.version == expected, "a release of {} left {}", granted.version, released.version);
    ensure!(released.holder.is_none(), "a release left the holder {:?}", released.holder);
    ensure!(a.record().await? == released, "the release that was answered does not stand");
    let request = a.renewal(released.version);
    a.refused("a renewal after the release", request).await?;
    let request = Request::Release { id: a.me.id, version: released.version, reason: EndReason::Withdrawn };
    a.refused("a second release", request).await.map(drop)
}

pub(super) async fn release_by_another(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let mut b = trial.candidate("b").await?;
    let first = a.take().await?;
    let second = b.take().await?;
    for version in [first.version, second.version] {
        let request = Request::Release { id: a.me.id, version, reason: EndReason::Expired };
        a.refused("a release of the successor's lease", request).await?;
    }
    b.renew(second.version).await.map(drop)
}

pub(super) async fn expected_version(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let mut b = trial.candidate("b").await?;
    let watched = a.take().await?;
    let renewed = a.renew(watched.version).await?;
    let later = Version { beat: renewed.version.beat + 1, ..renewed.version };
    let above = Version { token: renewed.version.token.next(0), ..renewed.version };
    for version in [watched.version, later, above] {
        let expect = Some(Expectation { version, order_number: renewed.order_number });
        b.refused(&format!("a takeover of {version} while {} stands", renewed.version), asking(&b, expect)).await?;
    }
    Ok(())
}

pub(super) async fn takeover(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let mut b = trial.candidate("b").await?;
    let watched = a.take().await?;
    // Whether the lease has run out is for the candidates' clocks to say, never for the store's.
    let taken = applied("a takeover", b.ask(Some(watched.expectation()), Token::NONE).await?)?;
    ensure!(
        taken.version.token > watched.version.token,
        "the token went from {} to {}",
        watched.version,
        taken.version
    );
    ensure!(taken.holder.as_ref() == Some(&b.me), "the takeover names {:?}", taken.holder);
    let request = a.renewal(watched.version);
    let sighting = a.refused("a renewal after the takeover", request).await?;
    ensure!(sighting.record == Some(taken), "the deposed leader is shown {:?}", sighting.record);
    Ok(())
}

pub(super) async fn expected_absence(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let expect = Some(Expectation { version: Version::default(), order_number: 0 });
    let request = asking(&a, expect);
    a.refused("a grant on a row that is missing", request).await?;
    let request = a.renewal(Version { token: Token::NONE.next(0), beat: 1 });
    a.refused("a renewal of a row that is missing", request).await?;
    a.take().await?;
    let mut b = trial.candidate("b").await?;
    let request = asking(&b, None);
    b.refused("a first grant on a row that is there", request).await.map(drop)
}

pub(super) async fn tokens_grow(trial: Trial<'_>) -> Outcome {
    let mut last = Token::NONE;
    for round in 0..6 {
        let mut a = trial.candidate(&format!("c{}", round % 2)).await?;
        let record = a.take().await?;
        ensure!(record.version.token > last, "token {} was granted after {last}", record.version.token);
        last = record.version.token;
        if round % 3 != 0 {
            let released = a.release(record.version).await?;
            ensure!(released.version.token == last, "a release changed the token to {}", released.version.token);
        }
        let seen = a.look().await?;
        ensure!(seen.remembered == last, "{} is remembered after a grant of {last}", seen.remembered);
    }
    Ok(())
}

pub(super) async fn floor(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let floor = Token::new(1_000_000_007).ok_or("the suite's token")?;
    let record = applied("a grant above a floor", a.ask(None, floor).await?)?;
    ensure!(record.version.token > floor, "{} was granted to a candidate that has seen {floor}", record.version.token);
    let next = applied("a grant", a.ask(Some(record.expectation()), Token::NONE).await?)?;
    ensure!(next.version.token > record.version.token, "the floor is forgotten: {}", next.version.token);
    Ok(())
}

/// One that comes from elsewhere, whether there is a record or none.
pub(super) async fn floor_outside(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let mut expect = None;
    for outside in [1_000_000, 1_000_000_007] {
        let outside = Token::new(outside).ok_or("the suite's token")?;
        let asked = a.ask(expect, Floor { outside, ..Floor::default() }).await?;
        let record = applied("a grant above a floor from outside", asked)?;
        let token = record.version.token;
        ensure!(token > outside, "{token} was granted above a floor of {outside} from outside");
        let seen = a.look().await?;
        ensure!(seen.remembered == token, "{} is remembered after a grant of {token}", seen.remembered);
        expect = Some(a.release(record.version).await?.expectation());
    }
    Ok(())
}

/// The largest tokens must not wrap around, and the last is granted once.
pub(super) async fn tokens_end(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let last = Token::new(Token::MAX.get() - 1).ok_or("the suite's token")?;
    let record = applied("the last grant", a.ask(None, last).await?)?;
    ensure!(record.version.token == Token::MAX, "{} was granted above {last}", record.version.token);
    let request = asking(&a, Some(record.expectation()));
    match a.step(request).await {
        Err(_) | Ok(Reply::Conflict(_)) => {}
        Ok(other) => return Err(format!("a token above all tokens was granted: {other:?}").into()),
    }
    // A connection that answered with an error is not used again.
    let mut b = trial.candidate("b").await?;
    ensure!(b.record().await? == record, "asking for a token above all tokens changed the row");
    Ok(())
}

pub(super) async fn lease_is_the_holders(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let mut expect = None;
    for lease in [Duration::from_millis(100), Duration::from_nanos(123_456_789_123), Duration::from_secs(86_400)] {
        let asked = Request::Acquire { expect, floor: Token::NONE.into(), holder: a.me.clone(), lease };
        let record = applied("a grant", a.step(asked).await?)?;
        ensure!(record.lease == lease, "a lease of {lease:?} is kept as {:?}", record.lease);
        ensure!(a.record().await?.lease == lease, "a lease of {lease:?} is read back as another");
        expect = Some(record.expectation());
    }
    Ok(())
}

/// A renewal says how long the lease lasts from then on.
pub(super) async fn renewed_lease(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let mut b = trial.candidate("b").await?;
    let mut version = a.take().await?.version;
    for lease in [LEASE * 3, Duration::from_nanos(123_456_789_123), LEASE / 2, LEASE] {
        let renewal = Request::Renew { id: a.me.id, version, lease, completed_order: None };
        let record = applied("a renewal", a.step(renewal).await?)?;
        ensure!(record.lease == lease, "a lease renewed for {lease:?} is kept as {:?}", record.lease);
        let seen = b.record().await?;
        ensure!(seen == record, "a lease renewed for {lease:?} is {record:?}, and seen as {seen:?}");
        version = record.version;
    }
    Ok(())
}

fn asking(actor: &Actor, expect: Option<Expectation>) -> Request {
    let holder: Holder = actor.me.clone();
    Request::Acquire { expect, floor: Token::NONE.into(), holder, lease: LEASE }
}
