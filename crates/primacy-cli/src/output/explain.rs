//! Plain sentences: why this candidate leads or why nobody does, and what will happen next.

use std::borrow::Cow;
use std::time::Duration;

use primacy::store::{HandoverRequest, Holder, Snapshot, Term, Waiting};
use primacy::{ElectionName, Timing};

use super::lead::{LOST, Lead};
use super::namesakes::{called, named};
use super::span::{bound, span};
use crate::foreign_text::shorten;

/// The sentences for an election as it is now, with its last leaderships, the newest first.
pub(crate) fn explain(election: &ElectionName, snapshot: Option<&Snapshot>, history: &[Term]) -> Vec<String> {
    let Some(snapshot) = snapshot else {
        return vec![
            format!("Nobody has ever campaigned in the election {election} in this store."),
            "Check the name (--election) and the store (--store), or start a candidate: primacy run -- CMD".to_owned(),
        ];
    };
    let mut sentences = match Lead::of(Some(snapshot)) {
        Lead::Led(holder, left) => why_led(snapshot, holder, left, history),
        Lead::Unknown(holder) => why_unknown(snapshot, holder),
        Lead::Lost => why_lost(snapshot),
        Lead::Forgotten => vec![format!(
            "An operator has had this election forgotten. Its token stays: the next one is above {}.",
            snapshot.record.version.token
        )],
        Lead::Vacant | Lead::Never => why_vacant(snapshot, history),
    };
    sentences.extend(ordered(snapshot));
    sentences
}

fn why_lost(snapshot: &Snapshot) -> Vec<String> {
    let last = match &snapshot.record.holder {
        Some(holder) => format!("{} had it last as far as the history tells, and may lead still.", named(holder)),
        None => "Who had it last is not known.".to_owned(),
    };
    let token = snapshot.record.version.token;
    vec![
        format!("Who leads is unknown: {LOST}. {last}"),
        format!("Orders that stood in it, such as a pause, are lost. The last token that is known is {token}."),
        "Candidates wait for one lease and then take it with a larger token: start one, or primacy forget".to_owned(),
    ]
}

/// Why a leadership ended, by its word in the store's history, to follow on "because".
pub(crate) fn because(word: &str) -> Cow<'static, str> {
    Cow::Borrowed(match word {
        "finished" => "its work was finished",
        "withdrawn" => "it was asked to stop",
        "resigned" => "it resigned",
        "deposed" => "an operator asked for a new election",
        "promoted" => "an operator asked for another leader",
        "expired" => "it could not renew its lease in time",
        "lost" => "another candidate held the lease",
        "removed" => "the record was emptied or deleted",
        "store-regressed" => "the store went back to an older state",
        "suspended" => "its machine was suspended",
        "died" => "its process died",
        "taken-over" => "it went silent and its lease was taken over",
        other => return Cow::Owned(shorten(other, 60)),
    })
}

fn why_led(snapshot: &Snapshot, holder: &Holder, left: Duration, history: &[Term]) -> Vec<String> {
    let token = snapshot.record.version.token;
    let since = snapshot.held_for.map(|held| format!(" {} ago", span(held))).unwrap_or_default();
    let before = history.iter().find(|term| term.token < token);
    let after = match before.map(|term| (&term.label, &term.ended)) {
        None => String::new(),
        Some((label, Some((_, why)))) => format!(", after the leadership of {label} ended because {}", because(why)),
        Some((label, None)) => format!(", after that of {label}"),
    };
    let renewed = snapshot.age.map(|age| format!("It renewed its lease {} ago. ", span(age))).unwrap_or_default();
    vec![
        format!("{} leads because it was granted token {token}{since}{after}.", holder.label),
        format!(
            "{renewed}Without another renewal the lease ends in {}, and {}.",
            span(left),
            successor_clause(snapshot)
        ),
    ]
}

fn why_unknown(snapshot: &Snapshot, holder: &Holder) -> Vec<String> {
    let (record, label) = (&snapshot.record, &holder.label);
    let over = match snapshot.age.and_then(|age| age.checked_sub(record.lease)) {
        Some(over) => format!("but its lease of {} ran out {} ago without a renewal", span(record.lease), span(over)),
        None => "but how long ago it renewed cannot be told, because the store's clock was reset since".to_owned(),
    };
    vec![
        format!("Who leads is unknown: {label} was granted token {}, {over}.", record.version.token),
        format!(
            "{label} may be dead, suspended or cut off from the store. Unless it renews, {}.",
            successor_clause(snapshot)
        ),
    ]
}

fn why_vacant(snapshot: &Snapshot, history: &[Term]) -> Vec<String> {
    let last = history.iter().find(|term| term.token == snapshot.record.version.token);
    let why = match last {
        Some(Term { label, ended: Some((_, why)), .. }) => {
            format!("Nobody leads: the leadership of {label} ended because {}, and the lease is free.", because(why))
        }
        _ => "Nobody leads: the lease is free.".to_owned(),
    };
    let first = able(snapshot).next().map(|waiting| &waiting.who);
    let next = match first {
        _ if snapshot.record.paused => "The election is paused, so nobody takes it until: primacy resume".to_owned(),
        None if !snapshot.candidates.is_empty() => "All that wait never lead, as chosen with --never.".to_owned(),
        None => "No candidate waits. Start one: primacy run -- CMD".to_owned(),
        Some(who) if reserved_for_other(snapshot, who) => String::new(),
        Some(who) => format!("{} is the first in the waiting order and takes it within moments.", who.label),
    };
    [why, next].into_iter().filter(|sentence| !sentence.is_empty()).collect()
}

/// Those that wait and may lead, in waiting order.
fn able(snapshot: &Snapshot) -> impl Iterator<Item = &Waiting> {
    snapshot.candidates.iter().filter(|waiting| waiting.rank.is_some())
}

fn reserved_for_other(snapshot: &Snapshot, who: &Holder) -> bool {
    snapshot
        .record
        .handover
        .as_ref()
        .is_some_and(|handover| *handover != HandoverRequest::NewElection && !handover.names(who.id, &who.label))
}

/// What happens once the lease of a holder has run out.
fn successor_clause(snapshot: &Snapshot) -> String {
    if snapshot.record.paused {
        return "nobody takes its place, because the election is paused (primacy resume)".to_owned();
    }
    if let Some(HandoverRequest::Successor(successor)) = &snapshot.record.handover {
        return format!("the order for {} decides who is next", called(successor, snapshot));
    }
    let Some(first) = able(snapshot).next() else {
        // Each announces itself once per lease.
        let is_young = snapshot.held_for.is_some_and(|held| held < snapshot.record.lease);
        return if is_young && snapshot.candidates.is_empty() {
            "a candidate that waits then takes its place: nobody has announced since the grant that it waits, which each does \
             once per lease"
                .to_owned()
        } else {
            "nobody takes its place, because no candidate waits that may lead (primacy run)".to_owned()
        };
    };
    let of = match able(snapshot).count() {
        1 => "the only candidate that waits".to_owned(),
        count => format!("the first of {count} that wait"),
    };
    let label = &first.who.label;
    match Takeover::of(snapshot) {
        Some(Takeover::Within(within)) => format!("{label}, {of}, takes over within {} from now", bound(within)),
        Some(Takeover::FromAfar(within)) => format!(
            "{label}, {of}, takes over within {} from now: it may have moved up from far behind just now, and not know yet \
             that it is the first",
            bound(within)
        ),
        Some(Takeover::Overdue) => {
            format!("{label}, {of}, should have taken over by now: see what it says, and primacy doctor")
        }
        None => format!("{label}, {of}, takes over after the lease and its margin"),
    }
}

/// How long until the first in line leads if the holder is never heard of again: the published bound, for the holder's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takeover {
    Within(Duration),
    /// The bound has passed. One that has not heard yet that it is the first has this time left.
    FromAfar(Duration),
    Overdue,
}

impl Takeover {
    /// `None` if it is not known when the holder renewed.
    pub(crate) fn of(snapshot: &Snapshot) -> Option<Self> {
        let timing = Timing::with_lease(snapshot.record.lease).ok()?;
        let age = snapshot.age?;
        let left = |of: Duration| of.checked_sub(age).filter(|left| !left.is_zero());
        Some(if let Some(within) = left(timing.failover_bound(0, Duration::ZERO)) {
            Self::Within(within)
        } else {
            left(timing.bound_from_afar(Duration::ZERO)).map_or(Self::Overdue, Self::FromAfar)
        })
    }
}

fn ordered(snapshot: &Snapshot) -> Option<String> {
    match (snapshot.record.handover.as_ref()?, &snapshot.record.holder) {
        (handover @ HandoverRequest::Successor(successor), Some(holder))
            if handover.names(holder.id, &holder.label) =>
        {
            Some(format!("An operator asked for {}, who holds the lease already.", called(successor, snapshot)))
        }
        (handover @ HandoverRequest::Successor(successor), holder) => {
            let name = called(successor, snapshot);
            let then = succession(snapshot, handover, &name, holder.as_ref());
            Some(format!("An operator asked for {name} to lead: {then}."))
        }
        (HandoverRequest::NewElection, Some(holder)) => Some(format!(
            "An operator asked for a new election: {} stops its work and hands over once it sees the order.",
            holder.label
        )),
        (HandoverRequest::NewElection, None) => None,
    }
}

fn succession(snapshot: &Snapshot, handover: &HandoverRequest, successor: &str, holder: Option<&Holder>) -> String {
    let waits = snapshot.candidates.iter().any(|waiting| handover.names(waiting.who.id, &waiting.who.label));
    let window = Timing::with_lease(snapshot.record.lease).map(|timing| timing.window());
    let first = match (waits, window) {
        (true, _) => format!("{successor} waits, and has the first right"),
        (false, Ok(window)) => {
            format!("no candidate of that name waits, and {} after the lease is free others may take it", bound(window))
        }
        (false, Err(_)) => "no candidate of that name waits, and others may take the lease after a while".to_owned(),
    };
    match holder {
        Some(holder) => format!("{} hands over once it sees the order; {first}", holder.label),
        None => first,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::*;
    use super::*;
    use expect_test::{Expect, expect};

    fn check(snapshot: Option<&Snapshot>, expected: &Expect) {
        expected.assert_eq(&explain(&election(), snapshot, &history()).join("\n"));
    }

    #[test]
    fn why_somebody_leads() {
        check(
            Some(&led()),
            &expect![[r#"
                web-1 leads because it was granted token 17 3m 12s ago, after the leadership of web-2 ended because its process died.
                It renewed its lease 2.1s ago. Without another renewal the lease ends in 7.9s, and web-2, the first of 2 that wait, takes over within 8.6s from now."#]],
        );
        check(
            Some(&with(led(), |snapshot| snapshot.candidates.clear())),
            &expect![[r#"
            web-1 leads because it was granted token 17 3m 12s ago, after the leadership of web-2 ended because its process died.
            It renewed its lease 2.1s ago. Without another renewal the lease ends in 7.9s, and nobody takes its place, because no candidate waits that may lead (primacy run)."#]],
        );
        check(
            Some(&with(led(), |snapshot| snapshot.record.paused = true)),
            &expect![[r#"
            web-1 leads because it was granted token 17 3m 12s ago, after the leadership of web-2 ended because its process died.
            It renewed its lease 2.1s ago. Without another renewal the lease ends in 7.9s, and nobody takes its place, because the election is paused (primacy resume)."#]],
        );
    }

    #[test]
    fn right_after_a_grant_silence_is_not_taken_for_absence() {
        let young = with(led(), |snapshot| {
            snapshot.candidates.clear();
            (snapshot.held_for, snapshot.age) = (Some(Duration::from_secs(2)), Some(Duration::from_secs(1)));
        });
        check(
            Some(&young),
            &expect![[r#"
            web-1 leads because it was granted token 17 2s ago, after the leadership of web-2 ended because its process died.
            It renewed its lease 1s ago. Without another renewal the lease ends in 9s, and a candidate that waits then takes its place: nobody has announced since the grant that it waits, which each does once per lease."#]],
        );
    }

    #[test]
    fn what_an_order_will_do() {
        check(
            Some(&promoting(led(), "web-2")),
            &expect![[r#"
            web-1 leads because it was granted token 17 3m 12s ago, after the leadership of web-2 ended because its process died.
            It renewed its lease 2.1s ago. Without another renewal the lease ends in 7.9s, and the order for web-2 decides who is next.
            An operator asked for web-2 to lead: web-1 hands over once it sees the order; web-2 waits, and has the first right."#]],
        );
        check(
            Some(&promoting(led(), "web-9")),
            &expect![[r#"
            web-1 leads because it was granted token 17 3m 12s ago, after the leadership of web-2 ended because its process died.
            It renewed its lease 2.1s ago. Without another renewal the lease ends in 7.9s, and the order for web-9 decides who is next.
            An operator asked for web-9 to lead: web-1 hands over once it sees the order; no candidate of that name waits, and 2s after the lease is free others may take it."#]],
        );
        check(
            Some(&promoting(vacant(), "web-3")),
            &expect![[r#"
            Nobody leads: the lease is free.
            An operator asked for web-3 to lead: web-3 waits, and has the first right."#]],
        );
        check(
            Some(&with(led(), |snapshot| snapshot.record.handover = Some(HandoverRequest::NewElection))),
            &expect![[r#"
                web-1 leads because it was granted token 17 3m 12s ago, after the leadership of web-2 ended because its process died.
                It renewed its lease 2.1s ago. Without another renewal the lease ends in 7.9s, and web-2, the first of 2 that wait, takes over within 8.6s from now.
                An operator asked for a new election: web-1 stops its work and hands over once it sees the order."#]],
        );
    }

    #[test]
    fn why_nobody_leads() {
        check(
            None,
            &expect![[r#"
            Nobody has ever campaigned in the election billing in this store.
            Check the name (--election) and the store (--store), or start a candidate: primacy run -- CMD"#]],
        );
        check(
            Some(&silent()),
            &expect![[r#"
                Who leads is unknown: web-1 was granted token 17, but its lease of 10s ran out 150ms ago without a renewal.
                web-1 may be dead, suspended or cut off from the store. Unless it renews, web-2, the first of 2 that wait, takes over within 546ms from now."#]],
        );
        // The first may have been one of the crowd until a moment ago, and has the bound of its old place then.
        for (age, left) in [(11, "6.7s"), (17, "673ms")] {
            let late = with(silent(), |snapshot| snapshot.age = Some(Duration::from_secs(age)));
            let clause = format!(
                "takes over within {left} from now: it may have moved up from far behind just now, and not know yet that \
                 it is the first"
            );
            assert_eq!(successor_clause(&late), format!("web-2, the first of 2 that wait, {clause}"));
        }
        let overdue = with(silent(), |snapshot| snapshot.age = Some(Duration::from_secs(18)));
        assert!(successor_clause(&overdue).contains("should have taken over by now"));
        check(
            Some(&with(silent(), |snapshot| snapshot.age = Some(Duration::from_secs(60)))),
            &expect![[r#"
            Who leads is unknown: web-1 was granted token 17, but its lease of 10s ran out 50s ago without a renewal.
            web-1 may be dead, suspended or cut off from the store. Unless it renews, web-2, the first of 2 that wait, should have taken over by now: see what it says, and primacy doctor."#]],
        );
        check(
            Some(&with(silent(), |snapshot| snapshot.age = None)),
            &expect![[r#"
            Who leads is unknown: web-1 was granted token 17, but how long ago it renewed cannot be told, because the store's clock was reset since.
            web-1 may be dead, suspended or cut off from the store. Unless it renews, web-2, the first of 2 that wait, takes over after the lease and its margin."#]],
        );
        check(
            Some(&with(silent(), |snapshot| snapshot.record.paused = true)),
            &expect![[r#"
            Who leads is unknown: web-1 was granted token 17, but its lease of 10s ran out 150ms ago without a renewal.
            web-1 may be dead, suspended or cut off from the store. Unless it renews, nobody takes its place, because the election is paused (primacy resume)."#]],
        );
        check(
            Some(&vacant()),
            &expect![[r#"
            Nobody leads: the lease is free.
            web-2 is the first in the waiting order and takes it within moments."#]],
        );
        check(
            Some(&with(vacant(), |snapshot| snapshot.candidates.clear())),
            &expect![[r#"
            Nobody leads: the lease is free.
            No candidate waits. Start one: primacy run -- CMD"#]],
        );
    }

    #[test]
    fn every_reason_of_the_protocol_has_words() {
        use primacy::store::EndReason;
        let reasons = [
            EndReason::Finished,
            EndReason::Withdrawn,
            EndReason::Resigned,
            EndReason::Deposed,
            EndReason::Promoted { successor: label("x") },
            EndReason::Expired,
            EndReason::Lost { to: label("x"), token: token(1) },
            EndReason::Removed,
            EndReason::StoreRegressed,
            EndReason::Suspended,
            EndReason::Died,
        ];
        for reason in reasons {
            assert!(matches!(because(reason.word()), Cow::Borrowed(_)), "{}", reason.word());
        }
        assert_eq!(because("odd\u{1b}[2J"), "odd\\u{1b}[2J");
    }
}
