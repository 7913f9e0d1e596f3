//! Checks of the rounds that every process takes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::super::super::Standing;
use super::super::actor::{Outcome, Trial};
use super::super::ensure;
use super::party::{Leader, Party, ROUND, candidacy, find, rank};
use primacy_core::registers::{Candidacy, Descriptor, Reply, Request, Vars};

/// Each process gets a number of its own, above all that were given, and keeps it.
pub(in super::super) async fn numbers(trial: Trial<'_>) -> Outcome {
    let mut a = Party::open(&trial, vec![candidacy("a")]).await?;
    let (first, vars) = a.join(None).await?;
    let expected = Vars { max_id: first, ..Vars::new(ROUND) };
    ensure!(first > 0 && vars == expected, "the first to join got {first} and {vars:?}, not {expected:?}");
    let mut b = Party::open(&trial, vec![candidacy("a")]).await?;
    let (second, vars) = b.join(None).await?;
    ensure!(second > first && vars.max_id == second, "after {first}, number {second} was given, with {vars:?}");
    b.leave().await?;
    let mut c = Party::of(&trial, "c").await?;
    let (third, _) = c.join(None).await?;
    ensure!(third > second, "number {third} was given after {second} had been, whose process has left");
    // Not the round time of one that comes later.
    let late = Request::Join {
        process: c.process,
        candidates: c.candidates.clone(),
        rank: None,
        came_back: None,
        round: ROUND * 3,
    };
    match c.round(late).await? {
        Reply::Joined { id, vars } => {
            ensure!(id == third && vars.round == ROUND, "joining again brought {id} and {vars:?}, not {third}");
        }
        other => return Err(format!("joining again was answered with {other:?}").into()),
    }
    Ok(())
}

/// A beat adds one to the own counter, for all to see, and shows its process.
pub(in super::super) async fn beats(trial: Trial<'_>) -> Outcome {
    let mut a = Party::of(&trial, "a").await?;
    let mut b = Party::of(&trial, "b").await?;
    let joined = find(&b.beat().await?.head, a.process)?.clone();
    for beats in 1..=5 {
        let own = a.beat().await?;
        ensure!(own.vars.max_id == 2 && own.vars.round == ROUND, "a beat shows {:?}", own.vars);
        find(&own.head, a.process)?;
        let seen = find(&b.beat().await?.head, a.process)?.clone();
        let expected = Descriptor { counter: joined.counter + beats, ..joined.clone() };
        ensure!(seen == expected, "after {beats} beats, {expected:?} is seen as {seen:?}");
    }
    let late = Duration::from_nanos(123_456_789);
    a.round(Request::Beat { process: a.process, late, without: Vec::new(), head: 1 }).await?;
    let seen = find(&b.beat().await?.head, a.process)?.clone();
    ensure!(seen.late == late, "{late:?} late is seen as {seen:?}");
    Ok(())
}

/// The head is of those who may lead, by rank, then by number, and as long as was asked.
pub(in super::super) async fn head(trial: Trial<'_>) -> Outcome {
    let mut never = Party::ranked(&trial, "never", None).await?;
    let mut order = Vec::new();
    for (label, first) in [("d", 7), ("b", -2), ("c", 0), ("c2", 0), ("a", i32::MIN), ("e", i32::MAX)] {
        order.push((rank(first), label, Party::ranked(&trial, label, rank(first)).await?));
    }
    order.sort_by_key(|(rank, ..)| *rank);
    let expected: Vec<_> = order.iter().map(|(.., party)| party.process).collect();
    for most in [100, 6, 5, 2, 1, 0] {
        let shown = never.beat_without(Vec::new(), most).await?;
        let expected = &expected[..expected.len().min(most as usize)];
        ensure!(shown.processes() == expected, "of {most} to be shown, {:?} are, not {expected:?}", shown.head);
        for (descriptor, (rank, ..)) in shown.head.iter().zip(&order) {
            ensure!(descriptor.rank == *rank, "rank {rank:?} became {descriptor:?}");
        }
    }
    let mut leader = Leader::of(&trial, "leader").await?;
    let everybody = leader.all().await?;
    ensure!(find(&everybody, never.process)?.rank.is_none(), "who never leads is shown as {everybody:?}");
    ensure!(everybody.len() == 8, "of 8 processes, a survey shows {everybody:?}");
    Ok(())
}

/// Who is known to be silent is left out, until it beats; others move up.
pub(in super::super) async fn without(trial: Trial<'_>) -> Outcome {
    let mut parties = Vec::new();
    for label in ["a", "b", "c", "d"] {
        parties.push(Party::of(&trial, label).await?);
    }
    let shown = parties[3].beat().await?;
    let [a, b, c, d] = &shown.head[..] else { return Err(format!("of 4, these are shown: {:?}", shown.head).into()) };
    let silent = vec![(a.process, a.counter), (b.process, b.counter)];
    let fewer = parties[3].beat_without(silent.clone(), 1).await?.processes();
    ensure!(fewer == [c.process], "without {silent:?}, the first is {fewer:?}");
    let rest = parties[3].beat_without(silent.clone(), 100).await?.processes();
    ensure!(rest == [c.process, d.process], "without {silent:?}, {rest:?} are shown");
    parties[1].beat().await?;
    let rest = parties[3].beat_without(silent.clone(), 2).await?.processes();
    ensure!(rest == [b.process, c.process], "without {silent:?}, of whom the second has beaten, {rest:?} are shown");
    // Another's counter is none of its own.
    let crossed = vec![(c.process, a.counter + 77), (d.process, c.counter + 77)];
    let rest = parties[2].beat_without(crossed.clone(), 100).await?.processes();
    ensure!(rest.len() == 4, "without {crossed:?}, which stand for nobody, only {rest:?} are shown");
    Ok(())
}

/// The record is shown as a look shows it, whatever became of it, also to those who take no part.
pub(in super::super) async fn record(trial: Trial<'_>) -> Outcome {
    let mut party = Party::of(&trial, "a").await?;
    let mut outside = Party::open(&trial, vec![candidacy("b")]).await?;
    let mut actor = trial.candidate("leader").await?;
    let mut waiting = trial.candidate("waiting").await?;
    waiting.announce().await?;
    let mut version = None;
    for round in 0..6 {
        match (round, version) {
            (0, _) => {}
            (1 | 4, _) => version = Some(actor.take().await?.version),
            (2 | 5, Some(held)) => version = Some(actor.renew(held).await?.version),
            (_, Some(held)) => drop(actor.release(held).await?),
            _ => return Err("the suite's own steps".into()),
        }
        let looked = waiting.look().await?;
        for shown in [party.beat().await?.sighting, outside.beat_in_vain().await?.1] {
            let alike = shown.record == looked.record
                && shown.remembered == looked.remembered
                && shown.holder_gone == looked.holder_gone
                && shown.age.is_some() == looked.age.is_some();
            ensure!(alike, "step {round}: a look sees {looked:?}, and a beat {shown:?}");
            ensure!(shown.standing == Standing::default(), "a beat shows somebody's standing: {:?}", shown.standing);
            let patience = Duration::from_secs(60);
            ensure!(shown.age.is_none_or(|age| age < patience), "the record is said to be {:?} old", shown.age);
        }
    }
    Ok(())
}

/// Joining again publishes what has changed, and is answered alike if nothing has.
pub(in super::super) async fn join_again(trial: Trial<'_>) -> Outcome {
    let mut leader = Leader::of(&trial, "leader").await?;
    let mut a = Party::ranked(&trial, "a", rank(3)).await?;
    a.beat().await?;
    let before = find(&leader.all().await?, a.process)?.clone();
    let changes: [Vec<Candidacy>; 4] = [
        a.candidates.clone(),
        vec![candidacy("first"), Candidacy { rank: rank(-1), ..a.candidates[0].clone() }],
        vec![Candidacy { data: "moved".into(), rank: None, ..a.candidates[0].clone() }],
        vec![Candidacy { rank: rank(3), ..candidacy("another") }],
    ];
    for candidates in changes {
        a.candidates = candidates;
        let best = a.candidates.iter().filter_map(|candidate| candidate.rank).min();
        let (number, vars) = a.join(None).await?;
        ensure!(
            number == before.id && vars.max_id == before.id,
            "joining again brought {number}: {before:?}, {vars:?}"
        );
        let after = find(&leader.all().await?, a.process)?.clone();
        ensure!(after.rank == best && after.id == before.id, "{best:?} was published, and {after:?} is shown");
        ensure!(after.counter >= before.counter, "joining again took {before:?} back to {after:?}");
        let members = trial.admin().await?.members(&trial.election).await?.ok_or("there are no members")?;
        let mut shown: Vec<_> = members.members.into_iter().map(|member| member.candidacy).collect();
        shown.retain(|candidate| candidate.id != leader.actor.me.id);
        let mut expected = a.candidates.clone();
        expected.sort_by_key(|candidate| candidate.id);
        ensure!(shown == expected, "{expected:?} were published, and {shown:?} are shown");
    }
    Ok(())
}

/// Who has left is not there, and VARS do not name it.
pub(in super::super) async fn leave(trial: Trial<'_>) -> Outcome {
    let mut leader = Leader::of(&trial, "leader").await?;
    let mut a = Party::of(&trial, "a").await?;
    let (vars, _) = leader.scan(super::party::Duties::default()).await?;
    ensure!(vars.leader == Some(leader.party.process), "after its survey, the leader is {:?}", vars.leader);
    a.leave().await?;
    ensure!(a.beat_in_vain().await?.0.is_none(), "who has left is told that it was evicted");
    let rest = leader.all().await?;
    ensure!(rest.len() == 1, "one has left, and {rest:?} are there");
    a.leave().await?;
    let (number, vars) = a.join(None).await?;
    ensure!(number == 3 && vars.comebacks == 0, "who has left joined again as {number}, with {vars:?}");
    ensure!(vars.leader == Some(leader.party.process), "another left, and the leader is {:?}", vars.leader);
    leader.party.leave().await?;
    let shown = a.beat().await?;
    ensure!(shown.vars.leader.is_none(), "the leader has left, and is {:?}", shown.vars.leader);
    ensure!(shown.processes() == [a.process], "after two have left, {:?} are shown", shown.head);
    Ok(())
}

/// Of many who join at once, none gets the number of another.
pub(in super::super) async fn crowd(trial: Trial<'_>) -> Outcome {
    const PROCESSES: usize = 8;
    let start = Arc::new(Barrier::new(PROCESSES));
    let mut joining = JoinSet::new();
    for number in 0..PROCESSES {
        // The first connection of each may have to create the tables.
        let mut party = Party::open(&trial, vec![candidacy(&format!("p{number}"))]).await?;
        let start = Arc::clone(&start);
        joining.spawn(async move {
            start.wait().await;
            let joined = party.join(None).await;
            (party, joined)
        });
    }
    let mut numbers = Vec::new();
    let mut parties = Vec::new();
    while let Some(done) = joining.join_next().await {
        let (party, joined) = done?;
        let (number, vars) = joined?;
        ensure!(vars.max_id >= number, "number {number} was given, and {vars:?} shown");
        numbers.push(number);
        parties.push(party);
    }
    numbers.sort_unstable();
    numbers.dedup();
    ensure!(numbers.len() == PROCESSES, "{PROCESSES} processes joined at once and got the numbers {numbers:?}");
    for party in &mut parties {
        let shown = party.beat().await?;
        ensure!(shown.head.len() == PROCESSES, "of {PROCESSES}, {:?} are shown", shown.head);
        let highest = numbers.last().copied();
        ensure!(Some(shown.vars.max_id) == highest, "{highest:?} was given, and {:?} shown", shown.vars);
    }
    Ok(())
}
