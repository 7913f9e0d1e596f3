//! Checks of what waiting candidates tell each other.

use super::super::{Announcement, Request, Standing, Why};
use super::actor::{Actor, Outcome, Trial};
use super::ensure;
use crate::select::Rank;

fn at(ahead: u32, others: u32) -> Standing {
    Standing { ahead, others }
}

pub(super) async fn waiting_order(trial: Trial<'_>) -> Outcome {
    let mut leader = trial.candidate("leader").await?;
    leader.take().await?;
    let mut a = trial.candidate("a").await?;
    let mut b = trial.candidate("b").await?;
    let mut c = trial.candidate("c").await?;
    let silent = a.look().await?.standing;
    ensure!(silent == at(0, 0), "an election without announcements counts {silent:?}");
    for (position, actor) in [&mut a, &mut b, &mut c].into_iter().enumerate() {
        let position = u32::try_from(position)?;
        let standing = actor.announce().await?.standing;
        ensure!(standing == at(position, position), "candidate {position} stands at {standing:?} when it comes");
    }
    // Saying it again changes nothing of the order.
    a.announce().await?;
    for (position, actor) in [&mut a, &mut b, &mut c].into_iter().enumerate() {
        let standing = actor.look().await?.standing;
        ensure!(standing == at(u32::try_from(position)?, 2), "candidate {position} of 3 stands at {standing:?}");
    }
    let unannounced = trial.candidate("d").await?.look().await?.standing;
    ensure!(unannounced == at(3, 3), "who has not announced itself stands at {unannounced:?} behind three");
    let shown = trial.snapshot().await?.ok_or("the row is missing")?.candidates;
    let shown: Vec<_> = shown.into_iter().map(|waiting| waiting.who).collect();
    ensure!(shown == [a.me, b.me, c.me], "the candidates are shown as {shown:?}");
    Ok(())
}

/// Where it stands, once the others' ranks have come to all who tell of it: among peers a majority has them at once, and the
/// next look may ask another one. It says its rank each time: a look that says nothing may tell what the last that did has shown.
async fn settles_at(actor: &mut Actor, rank: Rank, expected: Standing) -> Outcome<Standing> {
    const LOOKS: usize = 200;
    let mut standing = actor.announce_as(rank).await?.standing;
    for _ in 0..LOOKS {
        if standing == expected {
            break;
        }
        standing = actor.announce_as(rank).await?.standing;
    }
    Ok(standing)
}

/// Who is preferred comes first, in whatever order they came; equals keep their order, and a rank may change.
pub(super) async fn ranks(trial: Trial<'_>) -> Outcome {
    let rank = |elements: &[i32]| Rank::new(elements).expect("few elements");
    let mut leader = trial.candidate("leader").await?;
    leader.take().await?;
    let mut never = trial.candidate("never").await?;
    let mut plain = trial.candidate("plain").await?;
    let mut best = trial.candidate("best").await?;
    never.announce_as(Rank::LAST).await?;
    plain.announce().await?;
    best.announce_as(rank(&[-1, 7])).await?;
    let ranked = [(&mut best, rank(&[-1, 7])), (&mut plain, Rank::default()), (&mut never, Rank::LAST)];
    for ((actor, rank), ahead) in ranked.into_iter().zip(0..) {
        let standing = settles_at(actor, rank, at(ahead, 2)).await?;
        ensure!(standing == at(ahead, 2), "{} stands at {standing:?}, not at {ahead}", actor.me.label);
    }
    let shown = trial.snapshot().await?.ok_or("the row is missing")?.candidates;
    let shown: Vec<_> = shown.into_iter().map(|waiting| (waiting.who, waiting.rank)).collect();
    let expected = [(&best, Some(rank(&[-1, 7]))), (&plain, Some(Rank::default())), (&never, None)]
        .map(|(a, rank)| (a.me.clone(), rank));
    ensure!(shown == expected, "the candidates are shown as {shown:?}");
    // Below zero too, and also those that are moved.
    for (low, high) in [(-2, -1), (-1, 1), (1, 2), (i32::MIN, i32::MAX)] {
        for (first, last) in [(plain.me.id, never.me.id), (never.me.id, plain.me.id)] {
            let rank_of = |actor: &Actor| rank(&[0, if actor.me.id == first { low } else { high }]);
            for actor in [&mut plain, &mut never] {
                actor.announce_as(rank_of(actor)).await?;
            }
            for actor in [&mut plain, &mut never] {
                let place = if actor.me.id == last { 2 } else { 1 };
                let standing = settles_at(actor, rank_of(actor), at(place, 2)).await?;
                ensure!(standing == at(place, 2), "of {low} and {high}, one stands at {standing:?} and not at {place}");
            }
        }
    }
    Ok(())
}

pub(super) async fn winner_waits_no_more(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let mut b = trial.candidate("b").await?;
    a.announce().await?;
    b.announce().await?;
    let granted = a.take().await?;
    let standing = b.look().await?.standing;
    ensure!(standing == at(0, 0), "the winner still counts as waiting: {standing:?}");
    let shown = trial.snapshot().await?.ok_or("the row is missing")?.candidates;
    ensure!(shown.len() == 1 && shown[0].who == b.me, "beside the winner, these are shown as waiting: {shown:?}");
    // Having led, it comes last.
    a.release(granted.version).await?;
    let standing = a.announce().await?.standing;
    ensure!(standing == at(1, 1), "a former leader waits at {standing:?}");
    Ok(())
}

/// However many have led and gone since, in however short a time.
pub(super) async fn former_leaders(trial: Trial<'_>) -> Outcome {
    for number in 0..20 {
        let mut former = trial.candidate(&format!("former {number}")).await?;
        former.announce().await?;
        let granted = former.take().await?;
        former.release(granted.version).await?;
    }
    let standing = trial.candidate("a").await?.announce().await?.standing;
    ensure!(standing == at(0, 0), "who has led, released and gone still counts as waiting: {standing:?}");
    Ok(())
}

pub(super) async fn leave(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let mut b = trial.candidate("b").await?;
    let mut leader = trial.candidate("leader").await?;
    let record = leader.take().await?;
    a.announce().await?;
    b.announce().await?;
    for _ in 0..2 {
        let reply = a.step(Request::Leave).await?;
        ensure!(reply == super::super::Reply::Left, "leaving was answered with {reply:?}");
        let standing = b.look().await?.standing;
        ensure!(standing == at(0, 0), "who has left still counts: {standing:?}");
    }
    let shown = trial.snapshot().await?.ok_or("the row is missing")?;
    ensure!(shown.candidates.len() == 1, "who has left is still shown: {:?}", shown.candidates);
    ensure!(shown.record == record, "announcing and leaving changed the row to {:?}", shown.record);
    Ok(())
}

pub(super) async fn note(trial: Trial<'_>) -> Outcome {
    let mut leader = trial.candidate("leader").await?;
    let record = leader.take().await?;
    let mut a = trial.candidate("a").await?;
    for why in [Why::Paused, Why::Held { by: leader.me.label.clone(), token: record.version.token }] {
        let announce = Some(Announcement { why: why.clone(), rank: Rank::default() });
        a.step(Request::Look { announce }).await?;
        let shown = trial.snapshot().await?.ok_or("the row is missing")?.candidates;
        let [waiting] = &shown[..] else { return Err(format!("one candidate waits, but shown are {shown:?}").into()) };
        ensure!(waiting.note == why.to_string(), "'{why}' is shown as '{}'", waiting.note);
        ensure!(waiting.who == a.me, "{:?} is shown as {:?}", a.me, waiting.who);
    }
    Ok(())
}
