//! What has changed between two looks at an election, in the words of `primacy watch`.

use primacy::ElectionName;
use primacy::store::{Holder, Snapshot};

use super::lead::{LOST, Lead};
use super::report::handover_text;
use super::schema::ChangeText;
use super::span::span;
use super::style::Tone;
use crate::foreign_text::shorten;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change<'a> {
    /// A word for it, for scripts.
    pub(crate) event: &'static str,
    /// A sentence for people.
    pub(crate) text: String,
    /// The candidate that came or went.
    pub(crate) candidate: Option<&'a Holder>,
    /// How it looks.
    pub(crate) tone: Tone,
}

impl From<Change<'_>> for ChangeText {
    fn from(change: Change<'_>) -> Self {
        Self { event: change.event, text: change.text, candidate: change.candidate.map(Into::into) }
    }
}

impl Change<'_> {
    /// A change that is not about one candidate.
    pub(crate) fn new(event: &'static str, text: impl Into<String>, tone: Tone) -> Self {
        Self { event, text: text.into(), candidate: None, tone }
    }

    /// Whether it is known how the election is after it.
    pub(crate) fn is_known(&self) -> bool {
        self.event != UNREACHABLE
    }
}

const UNREACHABLE: &str = "unreachable";

/// The store does not answer any more, for this reason.
pub(crate) fn lost(error: &str) -> Change<'static> {
    let text = format!("{}; who leads is unknown until it is back", shorten(error, 300));
    Change::new(UNREACHABLE, text, Tone::Bad)
}

/// The store answers again.
pub(crate) fn found() -> Change<'static> {
    Change::new("reachable", "the store answers again", Tone::Plain)
}

/// How things stand at the beginning.
pub(crate) fn beginning<'a>(election: &ElectionName, snapshot: Option<&Snapshot>) -> Change<'a> {
    let waiting = match snapshot.map_or(0, |snapshot| snapshot.candidates.len()) {
        0 => "no candidate waits".to_owned(),
        1 => "1 candidate waits".to_owned(),
        count => format!("{count} candidates wait"),
    };
    let paused = if snapshot.is_some_and(|snapshot| snapshot.record.paused) { "; the election is paused" } else { "" };
    let (text, tone) = match Lead::of(snapshot) {
        Lead::Led(holder, _) => {
            let held = snapshot.and_then(|snapshot| snapshot.held_for).map(|held| format!(" for {}", span(held)));
            let text =
                format!("{} has led{} with token {}", holder.label, held.unwrap_or_default(), token_of(snapshot));
            (text, Tone::Good)
        }
        Lead::Vacant => ("nobody leads: the lease is free".to_owned(), Tone::Notice),
        Lead::Unknown(holder) => (silence(holder, &token_of(snapshot)), Tone::Notice),
        Lead::Lost => (format!("{LOST}; the last token is {}", token_of(snapshot)), Tone::Bad),
        Lead::Forgotten => (format!("{election} is forgotten"), Tone::Notice),
        Lead::Never => (format!("nobody has ever campaigned in {election}"), Tone::Notice),
    };
    Change::new("now", format!("{text}; {waiting}{paused}"), tone)
}

/// What is different now.
pub(crate) fn changes<'a>(before: Option<&'a Snapshot>, after: Option<&'a Snapshot>) -> Vec<Change<'a>> {
    let mut changes = Vec::new();
    changes.extend(orders(before, after));
    changes.extend(lead(before, after));
    changes.extend(coming_and_going(before, after));
    changes
}

fn token_of(snapshot: Option<&Snapshot>) -> String {
    snapshot.map(|snapshot| snapshot.record.version.token.to_string()).unwrap_or_default()
}

fn silence(holder: &Holder, token: &str) -> String {
    format!("who leads is unknown: {} has not renewed its lease with token {token} in time", holder.label)
}

fn lead<'a>(before: Option<&Snapshot>, after: Option<&Snapshot>) -> Option<Change<'a>> {
    let (old, new) = (Lead::of(before), Lead::of(after));
    let same_grant =
        before.map(|snapshot| snapshot.record.version.token) == after.map(|snapshot| snapshot.record.version.token);
    match (old, new) {
        (Lead::Led(..), Lead::Led(..)) | (Lead::Unknown(_), Lead::Unknown(_)) | (Lead::Vacant, Lead::Vacant)
            if same_grant =>
        {
            None
        }
        (Lead::Never, Lead::Never) | (Lead::Lost, Lead::Lost) | (Lead::Forgotten, Lead::Forgotten) => None,
        (Lead::Unknown(_), Lead::Led(holder, _)) if same_grant => Some(Change::new(
            "leader",
            format!("{} leads on with token {}: it renewed late", holder.label, token_of(after)),
            Tone::Good,
        )),
        (_, Lead::Led(holder, _)) => {
            Some(Change::new("leader", format!("{} leads with token {}", holder.label, token_of(after)), Tone::Good))
        }
        (Lead::Led(holder, _) | Lead::Unknown(holder), Lead::Vacant) if same_grant => Some(Change::new(
            "vacant",
            format!("{} gave the lease with token {} back: nobody leads", holder.label, token_of(after)),
            Tone::Notice,
        )),
        (_, Lead::Vacant) => Some(Change::new("vacant", "nobody leads: the lease is free", Tone::Notice)),
        (_, Lead::Unknown(holder)) => Some(Change::new("unknown", silence(holder, &token_of(after)), Tone::Notice)),
        (_, Lead::Forgotten) => Some(Change::new("forgotten", "the election was forgotten", Tone::Notice)),
        (_, Lead::Lost) => Some(Change::new("vanished", LOST, Tone::Bad)),
        (_, Lead::Never) => Some(Change::new("vanished", "the election's record is gone", Tone::Bad)),
    }
}

fn orders<'a>(before: Option<&'a Snapshot>, after: Option<&'a Snapshot>) -> Vec<Change<'a>> {
    let mut changes = Vec::new();
    let handover =
        |snapshot: Option<&'a Snapshot>| snapshot.and_then(|seen| Some((seen.record.handover.as_ref()?, seen)));
    match (handover(before), handover(after)) {
        (old, Some((new, seen))) if old.map(|(old, _)| old) != Some(new) => {
            changes.push(Change::new(
                "order",
                format!("an operator's order: {}", handover_text(new, seen)),
                Tone::Notice,
            ));
        }
        (Some((old, seen)), None) => {
            let text = format!("no longer ordered: {}", handover_text(old, seen));
            changes.push(Change::new("order-done", text, Tone::Plain));
        }
        _ => {}
    }
    let paused = |snapshot: Option<&Snapshot>| snapshot.is_some_and(|snapshot| snapshot.record.paused);
    match (paused(before), paused(after)) {
        (false, true) => changes.push(Change::new("paused", "paused: nobody else may take the lease", Tone::Notice)),
        (true, false) => changes.push(Change::new("resumed", "resumed: candidates may take the lease", Tone::Plain)),
        _ => {}
    }
    changes
}

fn coming_and_going<'a>(before: Option<&'a Snapshot>, after: Option<&'a Snapshot>) -> Vec<Change<'a>> {
    fn waiting(snapshot: Option<&Snapshot>) -> impl Iterator<Item = &Holder> {
        snapshot.into_iter().flat_map(|snapshot| snapshot.candidates.iter().map(|waiting| &waiting.who))
    }
    let gone = |from: Option<&'a Snapshot>, to: Option<&'a Snapshot>| {
        waiting(from).filter(move |who| !waiting(to).any(|other| other.id == who.id))
    };
    // Who leads now has not left.
    let leads = |who: &Holder| after.is_some_and(|snapshot| snapshot.record.is_held_by(who.id));
    let joined = gone(after, before).map(|who| Change {
        candidate: Some(who),
        ..Change::new("joined", format!("{} waits", who.label), Tone::Faint)
    });
    let left = gone(before, after).filter(|who| !leads(who)).map(|who| Change {
        candidate: Some(who),
        ..Change::new("left", format!("{} waits no more", who.label), Tone::Faint)
    });
    joined.chain(left).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample::*;
    use super::*;
    use expect_test::{Expect, expect};

    fn check(before: Option<&Snapshot>, after: Option<&Snapshot>, expected: &Expect) {
        let lines: Vec<_> =
            changes(before, after).iter().map(|change| format!("{}: {}", change.event, change.text)).collect();
        expected.assert_eq(&lines.join("\n"));
    }

    /// web-2 has taken over.
    fn taken() -> Snapshot {
        with(led(), |snapshot| {
            snapshot.record.holder = Some(holder(2));
            snapshot.record.version.token = token(18);
            snapshot.candidates.remove(0);
        })
    }

    #[test]
    fn a_renewal_is_no_change() {
        let renewed = with(led(), |snapshot| {
            snapshot.record.version.beat += 1;
            snapshot.age = Some(std::time::Duration::ZERO);
        });
        check(Some(&led()), Some(&renewed), &expect![[""]]);
        check(None, None, &expect![[""]]);
    }

    #[test]
    fn changes_of_leadership_are_told() {
        check(
            None,
            Some(&led()),
            &expect![[r#"
            leader: web-1 leads with token 17
            joined: web-2 waits
            joined: web-3 waits"#]],
        );
        check(
            Some(&led()),
            Some(&silent()),
            &expect!["unknown: who leads is unknown: web-1 has not renewed its lease with token 17 in time"],
        );
        check(Some(&silent()), Some(&led()), &expect!["leader: web-1 leads on with token 17: it renewed late"]);
        check(Some(&silent()), Some(&taken()), &expect!["leader: web-2 leads with token 18"]);
        check(Some(&led()), Some(&vacant()), &expect!["vacant: web-1 gave the lease with token 17 back: nobody leads"]);
        check(Some(&vacant()), Some(&taken()), &expect!["leader: web-2 leads with token 18"]);
        check(
            Some(&led()),
            None,
            &expect![[r#"
            vanished: the election's record is gone
            left: web-2 waits no more
            left: web-3 waits no more"#]],
        );
    }

    #[test]
    fn orders_and_pauses_are_told() {
        let paused = with(led(), |snapshot| snapshot.record.paused = true);
        check(Some(&led()), Some(&paused), &expect!["paused: paused: nobody else may take the lease"]);
        check(Some(&paused), Some(&led()), &expect!["resumed: resumed: candidates may take the lease"]);
        check(
            Some(&led()),
            Some(&promoting(led(), "web-2")),
            &expect!["order: an operator's order: hand over to web-2"],
        );
        check(
            Some(&promoting(led(), "web-2")),
            Some(&promoting(led(), "web-3")),
            &expect!["order: an operator's order: hand over to web-3"],
        );
        check(
            Some(&promoting(led(), "web-2")),
            Some(&taken()),
            &expect![[r#"
            order-done: no longer ordered: hand over to web-2
            leader: web-2 leads with token 18"#]],
        );
    }

    #[test]
    fn candidates_come_and_go() {
        let fewer = with(led(), |snapshot| drop(snapshot.candidates.pop()));
        check(Some(&fewer), Some(&led()), &expect!["joined: web-3 waits"]);
        check(Some(&led()), Some(&fewer), &expect!["left: web-3 waits no more"]);
    }

    #[test]
    fn the_beginning_is_told() {
        let texts: Vec<_> = [Some(&led()), Some(&silent()), Some(&vacant()), None]
            .into_iter()
            .map(|snapshot| beginning(&election(), snapshot).text)
            .collect();
        expect![[r#"
            web-1 has led for 3m 12s with token 17; 2 candidates wait
            who leads is unknown: web-1 has not renewed its lease with token 17 in time; 2 candidates wait
            nobody leads: the lease is free; 2 candidates wait
            nobody has ever campaigned in billing; no candidate waits"#]]
        .assert_eq(&texts.join("\n"));
    }
}
