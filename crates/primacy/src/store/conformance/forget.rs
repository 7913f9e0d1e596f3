//! Checks of what forgetting an election leaves, and of what stands in its way.

use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::super::{Basis, Floor, ForgetOutcome, Hindrance, OrderKind, OrderOutcome, Reply, Snapshot};
use super::actor::{Outcome, Trial, applied};
use super::registers::Party;
use super::{Verdict, ensure};
use crate::Token;

impl Trial<'_> {
    async fn forget(&self) -> Outcome<ForgetOutcome> {
        Ok(self.admin().await?.forget(&self.election).await?)
    }

    /// Forgets what can be forgotten: the election as it was before.
    async fn forgotten(&self) -> Outcome<Snapshot> {
        match self.forget().await? {
            ForgetOutcome::Done(before) => Ok(before),
            other => Err(format!("forgetting was answered with {other:?}").into()),
        }
    }

    async fn forget_in_vain(&self, why: Hindrance) -> Outcome {
        match self.forget().await? {
            ForgetOutcome::Refused(hindrance, _) if hindrance == why => Ok(()),
            other => Err(format!("forgetting was answered with {other:?}, not refused since {why:?}").into()),
        }
    }

    async fn is_listed(&self) -> Outcome<bool> {
        let all = self.admin().await?.elections().await?;
        Ok(all.iter().any(|snapshot| snapshot.election == self.election))
    }
}

/// Everything goes but the token, which is raised, so that the last leader cannot come back.
pub(super) async fn forget(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    ensure!(trial.forget().await? == ForgetOutcome::NoSuchElection, "what has never been was forgotten");
    a.take().await?;
    let last = a.take().await?;
    let released = a.release(last.version).await?;
    ensure!(trial.is_listed().await?, "an election is not listed");
    let before = trial.forgotten().await?;
    ensure!(before.record == released, "forgetting shows {:?} as what was before, not {released:?}", before.record);
    ensure!(!trial.is_listed().await?, "a forgotten election is listed");
    let left = trial.snapshot().await?.ok_or("of a forgotten election nothing is known")?;
    let raised = left.record.version.token;
    ensure!(left.basis == Basis::Forgotten, "a forgotten election is shown as {left:?}");
    ensure!(
        raised > last.version.token,
        "the token stays {raised}, and the leader with {} comes back",
        last.version.token
    );
    ensure!(matches!(trial.forget().await?, ForgetOutcome::Already(_)), "forgetting twice is not 'already'");
    let answer = trial.order(OrderKind::Pause).await?;
    ensure!(
        matches!(answer, OrderOutcome::NoRecord(_)),
        "a pause of a forgotten election was answered with {answer:?}"
    );
    let terms = trial.admin().await?.history(&trial.election, 10).await?;
    ensure!(terms.len() == 1 && terms[0].token == raised, "the history of a forgotten election is {terms:?}");

    // Neither a renewal nor a claim of what was there before brings it back.
    for version in [last.version, released.version] {
        let request = a.renewal(version);
        a.refused("a renewal of a forgotten election", request).await?;
    }
    let seen = Floor::from(last.version.token);
    // However high a floor from outside is, it is not what the candidate has seen.
    let above = Floor { outside: Token::new(raised.get() + 1_000).ok_or("the suite's token")?, ..seen };
    for (expect, floor) in [(Some(released.expectation()), seen), (None, seen), (None, above)] {
        let reply = a.ask(expect, floor).await?;
        ensure!(matches!(reply, Reply::Conflict(_)), "a claim from before was answered with {reply:?}");
    }
    let seen = a.look().await?;
    ensure!(seen.record.is_none() && seen.remembered == raised, "a candidate sees {seen:?} of what is forgotten");
    let granted = applied("a grant", a.ask(None, seen.remembered).await?)?;
    ensure!(granted.version.token > raised, "after {raised} the token {} was granted", granted.version.token);
    ensure!(!granted.paused && granted.handover.is_none(), "an order has outlived its election: {granted:?}");
    let shown = trial.snapshot().await?.ok_or("an election that began again is not shown")?;
    ensure!(
        shown.basis == Basis::Record && shown.record == granted,
        "an election that began again is shown as {shown:?}"
    );
    ensure!(trial.is_listed().await?, "an election that began again is not listed");
    let terms = trial.admin().await?.history(&trial.election, 10).await?;
    let tokens: Vec<_> = terms.iter().map(|term| term.token).collect();
    ensure!(tokens == [granted.version.token, raised], "the history after it is {terms:?}");
    Ok(())
}

/// Nothing is taken from anybody.
pub(super) async fn refused(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let mut b = trial.candidate("b").await?;
    let led = a.take().await?;
    trial.forget_in_vain(Hindrance::Led).await?;
    trial.ordered(OrderKind::Pause).await?;
    trial.forget_in_vain(Hindrance::Led).await?;
    a.release(led.version).await?;
    trial.forget_in_vain(Hindrance::Paused).await?;
    trial.ordered(OrderKind::Resume).await?;
    b.announce().await?;
    trial.forget_in_vain(Hindrance::Candidates).await?;
    let record = a.record().await?;
    ensure!(record.version.token == led.version.token, "a refusal made the row {record:?}");
    b.step(super::super::Request::Leave).await?;
    trial.forgotten().await.map(drop)
}

/// What has lost its record can be forgotten too, with a token above all that were granted.
pub(super) async fn deleted_record(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let led = a.take().await?;
    if !trial.harness.delete_record(&trial.election).await {
        return Err(Verdict::Skipped);
    }
    let before = trial.forgotten().await?;
    ensure!(before.basis == Basis::Remains, "what has no record is shown as {before:?}");
    ensure!(!trial.is_listed().await?, "a forgotten election is listed");
    let seen = a.look().await?;
    ensure!(seen.remembered > led.version.token, "of {} is remembered {}", led.version.token, seen.remembered);
    Ok(())
}

/// The registers go too, and a process that was stopped meanwhile joins again.
pub(super) async fn registers(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let mut waits = Party::of(&trial, "b").await?;
    let led = a.take().await?;
    a.release(led.version).await?;
    trial.forget_in_vain(Hindrance::Candidates).await?;
    waits.leave().await?;
    let mut stopped = Party::open(&trial, Vec::new()).await?;
    stopped.join(None).await?;
    trial.forgotten().await?;
    let mut admin = trial.admin().await?;
    ensure!(admin.members(&trial.election).await?.is_none(), "the members of a forgotten election are shown");
    ensure!(admin.events(&trial.election, 10).await?.is_empty(), "its events are shown");
    let (eviction, seen) = stopped.beat_in_vain().await?;
    ensure!(eviction.is_none() && seen.record.is_none(), "a beat brought {eviction:?}, {seen:?}");
    stopped.join(None).await?;
    stopped.beat().await.map(drop)
}

/// Of those who claim the lease and one who forgets the election, all at once, exactly one is first, and no token is
/// granted twice.
pub(super) async fn races(trial: Trial<'_>) -> Outcome {
    const CANDIDATES: usize = 3;
    let mut actors = Vec::new();
    for number in 0..CANDIDATES {
        actors.push(trial.candidate(&format!("c{number}")).await?);
    }
    let mut admins = vec![trial.admin().await?];
    let mut last = Token::NONE;
    for _round in 0..12 {
        let before = actors[0].look().await?;
        let expect = before.record.as_ref().map(|record| record.expectation());
        let start = Arc::new(Barrier::new(CANDIDATES + 1));
        let mut racing = JoinSet::new();
        for mut actor in actors.drain(..) {
            let (start, floor) = (Arc::clone(&start), before.remembered);
            racing.spawn(async move {
                start.wait().await;
                let reply = actor.ask(expect, floor).await;
                (actor, reply)
            });
        }
        let mut admin = admins.pop().ok_or("one admin connection")?;
        start.wait().await;
        let forgotten = admin.forget(&trial.election).await?;
        admins.push(admin);
        let mut won = Vec::new();
        while let Some(done) = racing.join_next().await {
            let (actor, reply) = done?;
            if let Reply::Applied(record) = reply? {
                won.push(record);
            }
            actors.push(actor);
        }
        let is_forgotten = matches!(forgotten, ForgetOutcome::Done(_));
        ensure!(won.len() + usize::from(is_forgotten) == 1, "{won:?} were granted, and {forgotten:?}");
        let after = actors[0].look().await?;
        let token = after.record.as_ref().map_or(after.remembered, |record| record.version.token);
        ensure!(token > last, "token {token} after {last}");
        last = token;
        if let Some(record) = won.pop() {
            ensure!(after.record.as_ref() == Some(&record), "{record:?} was granted, but {after:?} stands");
            let holder = record.holder.as_ref().map(|holder| holder.id);
            let winner = actors.iter_mut().find(|actor| Some(actor.me.id) == holder).ok_or("a winner")?;
            winner.release(record.version).await?;
        }
    }
    Ok(())
}
