//! Checks that names, labels and data are bytes to the store: compared exactly, kept exactly, never executed.

use super::super::{HandoverRequest, Holder, OrderKind, Request};
use super::actor::{Actor, LEASE, Outcome, Trial, applied, holder, label, name};
use super::ensure;
use crate::{Label, Token};

/// Equal in some collation, and different bytes.
const LOOK_ALIKE: &[&str] = &[
    "alpha",
    "ALPHA",
    "Alpha",
    "alpha ",
    " alpha",
    "alphá",
    "alpha\u{301}",
    "alpha\u{200b}",
    "álpha",
    "ａlpha",
    "alph",
];

/// What breaks statements that are put together from text.
const HOSTILE: &[&str] = &[
    "a'; DROP TABLE primacy_election;--",
    "'",
    "''",
    "\"",
    "`",
    "\\",
    "\\'",
    "%",
    "_",
    "%s",
    "?1",
    ":name",
    "$1",
    "{0}",
    "NULL",
    "0",
    "-1",
    "1e3",
    "x'00'",
    "../../etc/passwd",
    ".",
    "..",
    "CON",
    "a\u{202e}b",
    "🗳️",
    "\u{feff}bom",
];

fn names(trial: &Trial<'_>, suffixes: &[&str]) -> Vec<crate::ElectionName> {
    // Unique in the store under test, and still alike.
    let prefix: String = trial.election.as_str().chars().rev().take(12).collect();
    suffixes.iter().map(|suffix| name(format!("{prefix}{suffix}"))).collect()
}

pub(super) async fn distinct(trial: Trial<'_>) -> Outcome {
    let names = names(&trial, LOOK_ALIKE);
    let mut tokens = Vec::new();
    for (round, name) in names.iter().enumerate() {
        let trial = trial.elsewhere(name.clone());
        let mut a = trial.candidate("a").await?;
        let seen = a.look().await?;
        ensure!(seen.record.is_none(), "'{name}' is taken for another of {LOOK_ALIKE:?}: it has a row already");
        // Another token for each.
        let floor = Token::new(round as u64 * 10).ok_or("the suite's token")?;
        tokens.push(applied("a grant", a.ask(None, floor).await?)?.version.token);
    }
    for (name, token) in names.iter().zip(&tokens) {
        let trial = trial.elsewhere(name.clone());
        let record = trial.candidate("b").await?.record().await?;
        ensure!(record.version.token == *token, "'{name}' shows token {}, not {token}", record.version.token);
        let history = trial.admin().await?.history(name, 10).await?;
        ensure!(history.len() == 1, "'{name}' has the history {history:?}");
    }
    let listed = trial.admin().await?.elections().await?;
    for name in &names {
        let count = listed.iter().filter(|snapshot| snapshot.election == *name).count();
        ensure!(count == 1, "'{name}' is listed {count} times");
    }
    Ok(())
}

pub(super) async fn are_data(trial: Trial<'_>) -> Outcome {
    for name in names(&trial, HOSTILE) {
        let trial = trial.elsewhere(name.clone());
        let mut a = trial.candidate("a").await?;
        ensure!(a.look().await?.record.is_none(), "'{name}' is taken for another name");
        let record = a.take().await?;
        let snapshot = trial.snapshot().await?;
        ensure!(snapshot.is_some_and(|snapshot| snapshot.election == name), "'{name}' is not found again");
        a.release(record.version).await?;
    }
    let mut a = trial.candidate("a").await?;
    let mut expect = None;
    for text in HOSTILE {
        let me = Holder { label: label(text), data: format!("{text}\n\t\r{text}"), ..a.me.clone() };
        let asked = Request::Acquire { expect, floor: Token::NONE.into(), holder: me.clone(), lease: LEASE };
        let record = applied("a grant", a.step(asked).await?)?;
        ensure!(record.holder.as_ref() == Some(&me), "{me:?} became {:?}", record.holder);
        let read = a.record().await?;
        ensure!(read.holder.as_ref() == Some(&me), "{me:?} is read back as {:?}", read.holder);
        trial.ordered(OrderKind::Promote { successor: label(&format!("{text}+")), now: false }).await?;
        let read = a.record().await?;
        ensure!(
            read.handover == Some(HandoverRequest::Successor(label(&format!("{text}+")))),
            "the hand-over request became {:?}",
            read.handover
        );
        expect = Some(read.expectation());
    }
    Ok(())
}

pub(super) async fn byte_exact(trial: Trial<'_>) -> Outcome {
    let longest = "é".repeat(64);
    ensure!(longest.len() == 128, "the suite's own arithmetic");
    let name = name(longest.clone());
    let trial = trial.elsewhere(name.clone());
    let me = Holder { label: Label::new(longest)?, ..holder("x") };
    let mut a = Actor::join(&trial.store, &name, me.clone()).await?;
    // The longest name is one name: an earlier run of the suite may have used it.
    let record = a.take().await?;
    ensure!(record.holder.as_ref() == Some(&me), "the longest label became {:?}", record.holder);
    let snapshot = trial.snapshot().await?.ok_or("the election with the longest name is missing")?;
    ensure!(snapshot.election == name, "the longest name became '{}'", snapshot.election);
    ensure!(snapshot.record.holder.as_ref() == Some(&me), "the longest label became {:?}", snapshot.record.holder);
    a.release(record.version).await.map(drop)
}

pub(super) async fn large_data(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let mut b = trial.candidate("b").await?;
    for data in [String::new(), "x".repeat(1_024), "🗳".repeat(256), "a\u{0}b".into(), "'\"\\\u{1}\u{7f}".repeat(100)]
    {
        let me = Holder { data: data.clone(), ..a.me.clone() };
        let expect = a.look().await?.record.map(|record| record.expectation());
        let asked = Request::Acquire { expect, floor: Token::NONE.into(), holder: me.clone(), lease: LEASE };
        applied("a grant", a.step(asked).await?)?;
        let read = b.record().await?;
        ensure!(read.holder == Some(me), "{} bytes of data came back as {:?}", data.len(), read.holder);
    }
    Ok(())
}
