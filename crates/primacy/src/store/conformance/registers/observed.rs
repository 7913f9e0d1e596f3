//! Checks of what observers see of the registers, and that elections and names stay apart.

use super::super::super::{Member, MemberEvent, OrderKind};
use super::super::actor::{Outcome, Trial, label, name};
use super::super::ensure;
use super::party::{Duties, Leader, Party, ROUND, SILENT, candidacy, find, rank};
use primacy_core::registers::{Candidacy, MemberEventKind, Vars};

/// Before anybody has joined, there is nothing, and looking creates nothing.
pub(in super::super) async fn nobody(trial: Trial<'_>) -> Outcome {
    let nothing = async |when: &str| -> Outcome {
        let mut admin = trial.admin().await?;
        let (members, events) = (admin.members(&trial.election).await?, admin.events(&trial.election, 10).await?);
        ensure!(members.is_none() && events.is_empty(), "{when}, there are {members:?} and {events:?}");
        Ok(())
    };
    // The store itself may not exist before the first session.
    trial.candidate("a").await?;
    nothing("before anybody has joined").await?;
    let mut a = Party::open(&trial, vec![candidacy("a")]).await?;
    nothing("with an open registry").await?;
    let (eviction, sighting) = a.beat_in_vain().await?;
    ensure!(eviction.is_none() && sighting.record.is_none(), "a beat shows {eviction:?} and {sighting:?}");
    a.leave().await?;
    nothing("after one has left that never joined").await?;
    a.join(None).await?;
    a.leave().await?;
    let members = trial.admin().await?.members(&trial.election).await?;
    let empty = members.as_ref().is_some_and(|members| members.members.is_empty());
    ensure!(empty, "after the only one has left, the members are {members:?}");
    Ok(())
}

/// Members are shown with all that they publish.
pub(in super::super) async fn members(trial: Trial<'_>) -> Outcome {
    let mut leader = Leader::of(&trial, "leader").await?;
    let both = vec![Candidacy { rank: rank(5), ..candidacy("a1") }, Candidacy { rank: None, ..candidacy("a2") }];
    let mut a = Party::open(&trial, both.clone()).await?;
    a.join(None).await?;
    let b = Party::ranked(&trial, "b", rank(-5)).await?;
    a.beat().await?;
    let (vars, descriptors) = leader.scan(Duties::default()).await?;
    let shown = trial.admin().await?.members(&trial.election).await?.ok_or("there are no members")?;
    ensure!(shown.vars == vars, "VARS are {vars:?}, and shown as {:?}", shown.vars);
    ensure!(vars == Vars { max_id: 3, leader: Some(leader.party.process), ..Vars::new(ROUND) }, "VARS are {vars:?}");
    let mut expected = Vec::new();
    for party in [&leader.party, &a, &b] {
        let mut candidates = party.candidates.clone();
        candidates.sort_by_key(|candidate| candidate.id);
        let descriptor = find(&descriptors, party.process)?;
        expected.extend(candidates.into_iter().map(|candidacy| (candidacy, descriptor.clone())));
    }
    let seen: Vec<_> =
        shown.members.iter().map(|member| (member.candidacy.clone(), member.descriptor.clone())).collect();
    ensure!(seen == expected, "{expected:?} take part, and are shown as {seen:?}");
    for Member { age, joined_unix_ms, candidacy, .. } in &shown.members {
        let young = age.is_some_and(|age| age.as_secs() < 60);
        ensure!(young, "'{}' is said to have beaten {age:?} ago", candidacy.label);
        let sane = (1_577_836_800_000..4_102_444_800_000).contains(joined_unix_ms);
        ensure!(sane, "'{}' is said to have joined at {joined_unix_ms} ms", candidacy.label);
    }
    // They wait, in the order in which they lead; but not the one that leads.
    let snapshot = trial.snapshot().await?.ok_or("the row is missing")?;
    let waiting: Vec<_> = snapshot.candidates.iter().map(|waiting| waiting.who.label.as_str()).collect();
    ensure!(waiting == ["b", "a1", "a2"], "the waiting candidates are shown as {:?}", snapshot.candidates);
    // Operators order by the same picture.
    let ordered = trial.ordered(OrderKind::Pause).await?;
    let waiting: Vec<_> = ordered.candidates.iter().map(|waiting| waiting.who.label.as_str()).collect();
    ensure!(waiting == ["b", "a1", "a2"], "to who gives an order, those waiting are {:?}", ordered.candidates);
    let listed = trial.admin().await?.elections().await?;
    let listed = listed.into_iter().find(|snapshot| snapshot.election == trial.election);
    let waiting = listed.map_or(0, |snapshot| snapshot.candidates.len());
    ensure!(waiting == 3, "three wait, and in the list of elections {waiting} do");
    let published = &snapshot.candidates[1].who;
    ensure!(published.id == both[0].id && published.data == both[0].data, "{both:?} are shown as {published:?}");
    a.leave().await?;
    let snapshot = trial.snapshot().await?.ok_or("the row is missing")?;
    ensure!(snapshot.candidates.len() == 1, "who has left is still shown: {:?}", snapshot.candidates);
    Ok(())
}

/// Everything that happens is told once, the newest first.
pub(in super::super) async fn events(trial: Trial<'_>) -> Outcome {
    let mut leader = Leader::of(&trial, "leader").await?;
    let mut a = Party::open(&trial, vec![candidacy("a"), candidacy("other")]).await?;
    a.join(None).await?;
    let process = a.process;
    let eviction = leader.evict(process).await?;
    // Nothing more happens by these.
    leader.scan(Duties { evict: vec![(process, 1, SILENT)], round: Some((ROUND * 2, 5)) }).await?;
    a.beat_in_vain().await?;
    a.join(Some(SILENT)).await?;
    a.join(Some(SILENT)).await?;
    a.beat().await?;
    leader.scan(Duties { evict: Vec::new(), round: Some((ROUND * 2, 0)) }).await?;
    a.leave().await?;
    a.leave().await?;
    let told = trial.admin().await?.events(&trial.election, 100).await?;
    let numbers: Vec<u64> = told.iter().map(|event| event.number).collect();
    ensure!(numbers == [6, 5, 4, 3, 2, 1], "six things happened, and are numbered {numbers:?}: {told:?}");
    let kinds: Vec<_> = told.iter().rev().map(|event| event.kind.clone()).collect();
    let label = label("a");
    let joined = |came_back| MemberEventKind::Joined { process, label: label.clone(), came_back };
    let expected = [
        MemberEventKind::Joined {
            process: leader.party.process,
            label: leader.actor.me.label.clone(),
            came_back: None,
        },
        joined(None),
        MemberEventKind::Evicted { process, label: label.clone(), eviction },
        joined(Some(SILENT)),
        MemberEventKind::Round { round: ROUND * 2 },
        MemberEventKind::Left { process, label: label.clone() },
    ];
    ensure!(kinds == expected, "{expected:?} happened, and are told as {kinds:?}");
    let first_two = trial.admin().await?.events(&trial.election, 2).await?;
    ensure!(first_two == told[..2], "the newest two of {told:?} are told as {first_two:?}");
    for MemberEvent { number, unix_ms, .. } in &told {
        let sane = (1_577_836_800_000..4_102_444_800_000).contains(unix_ms);
        ensure!(sane, "event {number} is said to have happened at {unix_ms} ms");
    }
    Ok(())
}

/// Labels and data are kept byte by byte and never executed; names that look alike are different elections.
pub(in super::super) async fn names(trial: Trial<'_>) -> Outcome {
    let texts =
        ["a'; DROP TABLE primacy_process;--", "\"", "\\'", "%s", "$1", "?1", ":x", "{0}", "🗳️", "ALPHA", "alpha"];
    let mut leader = Leader::of(&trial, "o'leader \"🗳️\" \\").await?;
    let candidates = texts.map(|text| Candidacy {
        data: format!("{text}\n\t\r\u{1}{}", "é".repeat(300)),
        label: label(text),
        ..candidacy("x")
    });
    let mut a = Party::open(&trial, candidates.to_vec()).await?;
    a.join(None).await?;
    let members = trial.admin().await?.members(&trial.election).await?.ok_or("there are no members")?;
    for candidate in &candidates {
        let shown = members.members.iter().find(|member| member.candidacy.id == candidate.id);
        let shown = shown.map(|member| &member.candidacy);
        ensure!(shown == Some(candidate), "{candidate:?} is shown as {shown:?}");
    }
    let eviction = leader.evict(a.process).await?;
    let told = a.beat_in_vain().await?.0;
    ensure!(told.as_ref() == Some(&eviction), "{eviction:?} is told as {told:?}");
    let newest = trial.admin().await?.events(&trial.election, 1).await?;
    let expected = MemberEventKind::Evicted { process: a.process, label: label(texts[0]), eviction };
    ensure!(newest.first().is_some_and(|event| event.kind == expected), "{expected:?} is told as {newest:?}");
    let prefix: String = trial.election.as_str().chars().rev().take(12).collect();
    for suffix in ["a'b", "A'b", "a'b ", "á\"b", "á\"b\\"] {
        let trial = trial.elsewhere(name(format!("{prefix}{suffix}")));
        let mut first = Party::open(&trial, vec![candidacy(suffix.trim())]).await?;
        let (number, vars) = first.join(None).await?;
        ensure!(number == 1 && vars.max_id == 1, "'{}' is taken for another: {vars:?}", trial.election);
        let shown = first.beat().await?;
        ensure!(shown.processes() == [first.process], "'{}' shows {:?}", trial.election, shown.head);
    }
    Ok(())
}

/// What happens in one election does not show in another.
pub(in super::super) async fn apart(trial: Trial<'_>) -> Outcome {
    let there = trial.elsewhere(name(format!("{}-too", trial.election)));
    let mut here = Leader::of(&trial, "here").await?;
    let mut other = Leader::of(&there, "there").await?;
    let mut a = Party::of(&trial, "a").await?;
    // The same process in both, as one that campaigns in two elections.
    let mut twin = Party::open(&there, a.candidates.clone()).await?;
    twin.process = a.process;
    twin.join(None).await?;
    for _ in 0..3 {
        twin.beat().await?;
    }
    let counters = (find(&here.all().await?, a.process)?.counter, find(&other.all().await?, a.process)?.counter);
    ensure!(counters.1 == counters.0 + 3, "three beats in another election took the counters to {counters:?}");
    other.scan(Duties { evict: Vec::new(), round: Some((ROUND * 2, 0)) }).await?;
    let vars = a.beat().await?.vars;
    ensure!(vars.round == ROUND && vars.changes == 0, "another election's round time changed {vars:?}");
    let request = other.survey_of(Duties::default());
    let reply = here.party.round(request).await?;
    ensure!(reply == primacy_core::registers::Reply::NotLeading, "the leader of another election surveys: {reply:?}");
    other.evict(a.process).await?;
    a.beat().await?;
    twin.beat_in_vain().await?;
    a.leave().await?;
    let events = trial.admin().await?.events(&there.election, 100).await?;
    ensure!(events.len() == 4, "four things happened there, and these are told: {events:?}");
    let mut number = 0;
    for trial in [&trial, &there] {
        let members = trial.admin().await?.members(&trial.election).await?.ok_or("there are no members")?;
        ensure!(members.members.len() == 1, "one is left, and these are shown: {members:?}");
        number += members.vars.max_id;
    }
    ensure!(number == 4, "two joined in each, and the numbers add up to {number}");
    Ok(())
}
