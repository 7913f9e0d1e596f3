//! Checks of what falls to the leader's process, and to nobody else.

use std::time::Duration;

use super::super::super::OrderKind;
use super::super::actor::{Outcome, Trial, holder};
use super::super::ensure;
use super::party::{Duties, Leader, Party, ROUND, SILENT, find};
use crate::CandidateId;
use primacy_core::registers::{Eviction, MemberEventKind, ProcessId, Reply, Request};

/// Who is evicted is told by whom and why; whose counter has grown since stays.
pub(in super::super) async fn eviction(trial: Trial<'_>) -> Outcome {
    let mut leader = Leader::of(&trial, "the leader").await?;
    let mut a = Party::of(&trial, "a").await?;
    let mut b = Party::of(&trial, "b").await?;
    let seen = find(&leader.all().await?, a.process)?.counter;
    a.beat().await?;
    for outdated in [seen, seen + 2, 0] {
        let duties = Duties { evict: vec![(a.process, outdated, SILENT)], round: None };
        let (_, left) = leader.scan(duties).await?;
        ensure!(left.len() == 3, "one at {} was evicted as if it were at {outdated}: {left:?}", seen + 1);
    }
    a.beat().await?;
    let expected = leader.evict(a.process).await?;
    ensure!(b.beat().await?.processes() == [leader.party.process, b.process], "others still see who was evicted");
    for _ in 0..2 {
        let (told, sighting) = a.beat_in_vain().await?;
        ensure!(told.as_ref() == Some(&expected), "{expected:?}, but it is told {told:?}");
        ensure!(sighting.record == leader.actor.look().await?.record, "who was evicted is shown {sighting:?}");
    }
    // The newest eviction is told, not the first.
    a.join(Some(SILENT)).await?;
    let silent = SILENT * 2;
    let counter = find(&leader.all().await?, a.process)?.counter;
    leader.scan(Duties { evict: vec![(a.process, counter, silent)], round: None }).await?;
    let (told, _) = a.beat_in_vain().await?;
    ensure!(told == Some(Eviction { silent, ..expected }), "it was evicted again, and is told {told:?}");
    // One who survives the eviction of others in one scan with it.
    let counters = leader.all().await?;
    let b_at = find(&counters, b.process)?.counter;
    let c = Party::of(&trial, "c").await?;
    let c_at = find(&leader.all().await?, c.process)?.counter;
    b.beat().await?;
    let evict = vec![(b.process, b_at, SILENT), (c.process, c_at, SILENT), (a.process, counter, SILENT)];
    let (_, left) = leader.scan(Duties { evict, round: None }).await?;
    let left: Vec<ProcessId> = left.iter().map(|descriptor| descriptor.process).collect();
    ensure!(left.len() == 2 && left.contains(&b.process), "of a living and a dead one, {left:?} are left");
    Ok(())
}

/// Who comes back gets a larger number, and is counted until the round time allows for it.
pub(in super::super) async fn comebacks(trial: Trial<'_>) -> Outcome {
    let mut leader = Leader::of(&trial, "leader").await?;
    let mut a = Party::of(&trial, "a").await?;
    let mut slowest = Duration::ZERO;
    for (times, silent) in [(1, SILENT), (2, SILENT * 3), (3, SILENT * 2)] {
        leader.evict(a.process).await?;
        slowest = slowest.max(silent);
        let before = leader.scan(Duties::default()).await?.0;
        let (number, vars) = a.join(Some(silent)).await?;
        ensure!(number > before.max_id, "who came back got {number} after {before:?}");
        let right = vars.comebacks == times && vars.heard == 0 && vars.slowest == slowest && vars.came_back();
        ensure!(right, "{times} came back, after {slowest:?} at most, and VARS are {vars:?}");
        // No answer had come: it asks again.
        let again = a.join(Some(silent)).await?;
        ensure!(again == (number, vars), "joining twice brought {:?}, then {again:?}", (number, vars));
    }
    let round = ROUND * 2;
    let (vars, _) = leader.scan(Duties { evict: Vec::new(), round: Some((round, 0)) }).await?;
    let heard = vars.heard == 3 && vars.slowest == Duration::ZERO && !vars.came_back();
    ensure!(heard && vars.round == round, "three comebacks were heard, and VARS are {vars:?}");
    leader.evict(a.process).await?;
    let (_, vars) = a.join(Some(SILENT)).await?;
    let right = vars.comebacks == 4 && vars.heard == 3 && vars.slowest == SILENT;
    ensure!(right, "one came back since, and VARS are {vars:?}");
    Ok(())
}

/// The round time changes only from the state that was seen.
pub(in super::super) async fn round_time(trial: Trial<'_>) -> Outcome {
    let mut leader = Leader::of(&trial, "leader").await?;
    let mut a = Party::of(&trial, "a").await?;
    let round = Duration::from_nanos(3_456_789_012);
    let (vars, _) = leader.scan(Duties { evict: Vec::new(), round: Some((round, 0)) }).await?;
    ensure!(vars.round == round && vars.changes == 1, "{round:?} was set, and VARS are {vars:?}");
    for outdated in [0, 2] {
        let (after, _) = leader.scan(Duties { evict: Vec::new(), round: Some((ROUND, outdated)) }).await?;
        ensure!(after == vars, "a change from count {outdated} was made from {vars:?} to {after:?}");
    }
    let shown = a.beat().await?.vars;
    ensure!(shown == vars, "the leader is told {vars:?}, and others {shown:?}");
    // The same time: somebody was heard.
    let (after, _) = leader.scan(Duties { evict: Vec::new(), round: Some((round, 1)) }).await?;
    ensure!(after.round == round && after.changes == 2, "{round:?} was set again, and VARS are {after:?}");
    let happened = trial.admin().await?.events(&trial.election, 100).await?;
    let changes: Vec<_> = happened.iter().filter(|event| matches!(event.kind, MemberEventKind::Round { .. })).collect();
    ensure!(changes.len() == 1, "the round time changed once, and these are the events: {changes:?}");
    ensure!(changes[0].kind == MemberEventKind::Round { round }, "{round:?} is told as {changes:?}");
    Ok(())
}

/// Who does not hold the lease with that token changes nothing, its own counter included.
pub(in super::super) async fn by_the_leader_only(trial: Trial<'_>) -> Outcome {
    let mut leader = Leader::of(&trial, "leader").await?;
    let mut a = Party::of(&trial, "a").await?;
    let before = leader.scan(Duties::default()).await?;
    let leader_at = find(&before.1, leader.party.process)?.counter;
    let a_at = find(&before.1, a.process)?.counter;
    let (holder_id, token) = (leader.actor.me.id, leader.record.version.token);
    let wrong = [
        (holder("leader").id, token, "another holder of the same label"),
        (CandidateId::from_bits(!holder_id.to_bits()), token, "another holder"),
        (holder_id, token.next(0), "a token that was not granted"),
    ];
    for (holder, token, what) in wrong {
        let evict = vec![(leader.party.process, leader_at, SILENT)];
        let request = Request::MembershipScan { process: a.process, holder, token, evict, round: Some((ROUND * 2, 0)) };
        let reply = a.round(request).await?;
        ensure!(reply == Reply::NotLeading, "a survey of {what} was answered with {reply:?}");
    }
    let after = leader.scan(Duties::default()).await?;
    ensure!(after.0 == before.0, "surveys of others changed {:?} to {:?}", before.0, after.0);
    let (leader_is, a_is) = (find(&after.1, leader.party.process)?.counter, find(&after.1, a.process)?.counter);
    ensure!(leader_is == leader_at + 1, "a survey took the counter of its process from {leader_at} to {leader_is}");
    ensure!(a_is == a_at, "refused surveys took the counter of their process from {a_at} to {a_is}");
    // A lease that was given back, taken by another, or emptied by an operator is none.
    leader.record = leader.actor.renew(leader.record.version).await?;
    leader.scan(Duties::default()).await?;
    trial.ordered(OrderKind::Depose { now: true }).await?;
    let evict = vec![(a.process, a_at, SILENT)];
    let reply = leader.party.round(leader.survey_of(Duties { evict, round: None })).await?;
    ensure!(reply == Reply::NotLeading, "a survey of one who was deposed was answered with {reply:?}");
    a.beat().await?;
    let mut second = trial.candidate("second").await?;
    second.take().await?;
    let reply = leader.party.round(leader.survey_of(Duties::default())).await?;
    ensure!(reply == Reply::NotLeading, "a survey of a former leader was answered with {reply:?}");
    // One who leads and takes no part is told so, and changes nothing.
    let version = second.record().await?.version;
    let mut outside = Party::open(&trial, Vec::new()).await?;
    let request = Request::MembershipScan {
        process: outside.process,
        holder: second.me.id,
        token: version.token,
        evict: Vec::new(),
        round: Some((ROUND * 2, 0)),
    };
    match outside.round(request).await? {
        Reply::Evicted { eviction: None, sighting } => {
            let stands = second.look().await?.record;
            ensure!(sighting.record == stands, "it is shown {sighting:?}, not {stands:?}");
        }
        other => return Err(format!("a survey of one who takes no part was answered with {other:?}").into()),
    }
    let after = a.beat().await?.vars;
    let right = after.round == ROUND && after.changes == 0 && after.leader == Some(leader.party.process);
    ensure!(right, "a survey of one who takes no part changed VARS to {after:?}");
    Ok(())
}

/// An eviction and a beat at once: the one that comes first wins, and both are told so.
pub(in super::super) async fn eviction_races(trial: Trial<'_>) -> Outcome {
    let mut leader = Leader::of(&trial, "leader").await?;
    let mut victim = Party::of(&trial, "victim").await?;
    let process = victim.process;
    for race in 0..40 {
        let counter = find(&leader.all().await?, process)?.counter;
        let evict = leader.scan(Duties { evict: vec![(process, counter, SILENT)], round: None });
        let beat = victim.round(Request::Beat { process, late: Duration::ZERO, without: Vec::new(), head: 8 });
        let (evicted, beaten) = if race % 2 == 0 {
            tokio::join!(evict, beat)
        } else {
            let (beaten, evicted) = tokio::join!(beat, evict);
            (evicted, beaten)
        };
        let stays = evicted?.1.iter().any(|descriptor| descriptor.process == process);
        let remains = leader.all().await?.iter().any(|descriptor| descriptor.process == process);
        ensure!(
            stays == remains,
            "race {race}: a survey told that who was to be evicted stays: {stays}; it is {remains}"
        );
        match beaten? {
            Reply::Beaten { .. } => {
                ensure!(stays, "race {race}: its beat was answered, and it was evicted as if it had stood still");
            }
            Reply::Evicted { .. } => {
                ensure!(!stays, "race {race}: it was told that it was evicted, and it is there");
                victim.join(Some(SILENT)).await?;
            }
            other => return Err(format!("a beat was answered with {other:?}").into()),
        }
    }
    Ok(())
}
