//! The text of `status`, `list` and `history` for people.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use primacy::store::{HandoverRequest, Holder, LeaderSupport, Snapshot, Term, Waiting};
use primacy::{ElectionName, Label};

use super::explain::because;
use super::lead::{LOST, Lead};
use super::namesakes::{self, called, named, namesakes, short_id};
use super::span::{ago, span};
use super::style::{Palette, Tone};
use super::table::{Cell, table};
use crate::foreign_text::shorten;

/// The most of a candidate's data that is shown.
pub(crate) const DATA_SHOWN: usize = 80;

/// An election: who leads, how fresh that is, who waits.
pub(crate) fn status(
    election: &ElectionName,
    (snapshot, support): (Option<&Snapshot>, Option<&LeaderSupport>),
    store: &str,
    answer_age: Duration,
    palette: Palette,
) -> String {
    let mut rows = vec![pair("election", Cell::plain(election.to_string())), pair("leader", leader(snapshot))];
    if let Some(snapshot) = snapshot {
        rows.extend(grant(snapshot));
        rows.extend(orders(snapshot));
        let warned = |(label, who): (&Label, Vec<&Holder>)| namesakes::warning(snapshot, label, &who);
        rows.extend(
            namesakes(snapshot).into_iter().map(|found| pair("warning", Cell::new(warned(found), Tone::Notice))),
        );
    }
    rows.extend(support.map(|support| pair("voters", super::support::cell(support))));
    rows.push(pair("store", Cell::plain(store)));
    rows.push(pair("answer", Cell::plain(format!("{} old", span(answer_age)))));
    let mut text = table(&rows, 0, palette);
    if let Some(snapshot) = snapshot {
        text.push('\n');
        text.push_str(&candidates(snapshot, palette));
    }
    text
}

fn pair(key: &str, value: Cell) -> Vec<Cell> {
    vec![Cell::new(key, Tone::Faint), value]
}

fn leader(snapshot: Option<&Snapshot>) -> Cell {
    match Lead::of(snapshot) {
        Lead::Led(holder, _) => {
            let data =
                if holder.data.is_empty() { String::new() } else { format!("  {}", shorten(&holder.data, DATA_SHOWN)) };
            Cell::new(format!("{}{data}", named(holder)), Tone::Good)
        }
        Lead::Vacant => Cell::new("nobody: the lease is free", Tone::Notice),
        Lead::Unknown(holder) => {
            Cell::new(format!("unknown: {} has not renewed its lease in time", named(holder)), Tone::Notice)
        }
        Lead::Lost => {
            let holder = snapshot.and_then(|snapshot| snapshot.record.holder.as_ref());
            let last = holder.map_or_else(String::new, |holder| format!("; {} had it last", named(holder)));
            Cell::new(format!("unknown: {LOST}{last}"), Tone::Bad)
        }
        Lead::Forgotten => Cell::new("nobody: the election is forgotten", Tone::Notice),
        Lead::Never => Cell::new("nobody has ever campaigned", Tone::Notice),
    }
}

fn grant(snapshot: &Snapshot) -> Vec<Vec<Cell>> {
    let record = &snapshot.record;
    let token = record.version.token.to_string();
    match Lead::of(Some(snapshot)) {
        Lead::Led(_, left) => {
            let lease = format!("{} of {} left, renewed {}", span(left), span(record.lease), ago(snapshot.age));
            let held = snapshot.held_for.map_or_else(|| "an unknown time".to_owned(), span);
            vec![
                pair("token", Cell::plain(token)),
                pair("held for", Cell::plain(held)),
                pair("lease", Cell::plain(lease)),
            ]
        }
        Lead::Unknown(_) => {
            let over = match snapshot.age.and_then(|age| age.checked_sub(record.lease)) {
                Some(over) => format!("{} long, ran out {} ago", span(record.lease), span(over)),
                None => format!("{} long, renewed {}", span(record.lease), ago(snapshot.age)),
            };
            vec![pair("last token", Cell::plain(token)), pair("lease", Cell::plain(over))]
        }
        Lead::Vacant | Lead::Lost | Lead::Forgotten | Lead::Never => vec![pair("last token", Cell::plain(token))],
    }
}

fn orders(snapshot: &Snapshot) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    if let Some(handover) = &snapshot.record.handover {
        rows.push(pair("order", Cell::new(handover_text(handover, snapshot), Tone::Notice)));
    }
    if snapshot.record.paused {
        rows.push(pair("paused", Cell::new("yes: nobody else may take the lease", Tone::Notice)));
    }
    rows
}

/// What an operator wants, in words.
pub(crate) fn handover_text(handover: &HandoverRequest, snapshot: &Snapshot) -> String {
    match handover {
        HandoverRequest::NewElection => "hand over to anybody else".to_owned(),
        HandoverRequest::Successor(successor) => format!("hand over to {}", called(successor, snapshot)),
    }
}

fn candidates(snapshot: &Snapshot, palette: Palette) -> String {
    if snapshot.candidates.is_empty() {
        return palette.paint("no candidate waits", Tone::Faint) + "\n";
    }
    let rows: Vec<_> = snapshot
        .candidates
        .iter()
        .enumerate()
        .map(|(index, waiting)| {
            vec![
                Cell::number((index + 1).to_string()),
                Cell::plain(named(&waiting.who)),
                Cell::plain(note(snapshot, waiting)),
                Cell::new(ago(waiting.age), Tone::Faint),
                Cell::new(shorten(&waiting.who.data, DATA_SHOWN), Tone::Faint),
            ]
        })
        .collect();
    format!("{}\n{}", palette.paint("waiting, in this order", Tone::Heading), table(&rows, 2, palette))
}

/// What a candidate says that it does. What it said before the present leadership began is told as that: each says something
/// new once per lease only.
fn note(snapshot: &Snapshot, waiting: &Waiting) -> String {
    let leader = snapshot.record.holder.as_ref().zip(snapshot.held_for).zip(waiting.age);
    match leader {
        Some(((_, held), age)) if age > held => {
            format!("waited when token {} was granted", snapshot.record.version.token)
        }
        _ => shorten(&waiting.note, 120),
    }
}

/// All elections, one in a row.
pub(crate) fn list(elections: &[Snapshot], store: &str, palette: Palette) -> String {
    if elections.is_empty() {
        return format!("no election in {store} yet\n");
    }
    let mut rows = vec![heading(&["ELECTION", "LEADER", "TOKEN", "HELD FOR", "LEASE LEFT", "WAITING", "ORDERS"])];
    rows.extend(elections.iter().map(list_row));
    table(&rows, 0, palette)
}

fn heading(names: &[&str]) -> Vec<Cell> {
    names.iter().map(|name| Cell::new(*name, Tone::Heading)).collect()
}

fn list_row(snapshot: &Snapshot) -> Vec<Cell> {
    let record = &snapshot.record;
    let (leader, held, left) = match Lead::of(Some(snapshot)) {
        Lead::Led(holder, left) => {
            let left = format!("{} of {}", span(left), span(record.lease));
            (Cell::new(holder.label.to_string(), Tone::Good), snapshot.held_for.map(span).unwrap_or_default(), left)
        }
        Lead::Unknown(_) => (Cell::new("unknown", Tone::Notice), String::new(), "ran out".to_owned()),
        Lead::Lost => (Cell::new("unknown", Tone::Bad), String::new(), "no record".to_owned()),
        Lead::Vacant | Lead::Forgotten | Lead::Never => {
            (Cell::new("nobody", Tone::Notice), String::new(), String::new())
        }
    };
    let mut orders: Vec<_> = record.handover.iter().map(|handover| handover_text(handover, snapshot)).collect();
    if record.paused {
        orders.push("paused".to_owned());
    }
    vec![
        Cell::plain(snapshot.election.to_string()),
        leader,
        Cell::plain(record.version.token.to_string()),
        Cell::plain(held),
        Cell::plain(left),
        Cell::plain(snapshot.candidates.len().to_string()),
        Cell::new(orders.join(", "), Tone::Notice),
    ]
}

/// Past leaderships, the newest first. `current` is the token of who leads now.
pub(crate) fn history(terms: &[Term], current: Option<primacy::Token>, zone: &TimeZone, palette: Palette) -> String {
    let mut rows = vec![heading(&["TOKEN", "LEADER", "FROM", "LASTED", "ENDED BECAUSE"])];
    rows.extend(terms.iter().map(|term| history_row(term, current, zone)));
    table(&rows, 0, palette)
}

fn history_row(term: &Term, current: Option<primacy::Token>, zone: &TimeZone) -> Vec<Cell> {
    let (lasted, why) = match &term.ended {
        Some((at, why)) => {
            let lasted = u64::try_from(at.saturating_sub(term.granted_unix_ms)).unwrap_or(0);
            (span(Duration::from_millis(lasted)), Cell::plain(because(why)))
        }
        None if current == Some(term.token) => (String::new(), Cell::new("leads now", Tone::Good)),
        None => (String::new(), Cell::new("unknown: not given back", Tone::Notice)),
    };
    vec![
        Cell::number(term.token.to_string()),
        Cell::plain(format!("{} ({})", term.label, short_id(&term.id.to_string()))),
        Cell::plain(date(term.granted_unix_ms, zone)),
        Cell::plain(lasted),
        why,
    ]
}

/// A time of day by the clock of the process that wrote it, in this reader's time zone.
pub(crate) fn date(unix_ms: i64, zone: &TimeZone) -> String {
    match Timestamp::from_millisecond(unix_ms) {
        Ok(at) => at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => "no valid time".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{self, label, led, promoting, silent, vacant, with};
    use super::*;
    use expect_test::{Expect, expect};

    fn check(snapshot: Option<&Snapshot>, expected: &Expect) {
        let text = status(
            &sample::election(),
            (snapshot, None),
            "sqlite:/var/lib/primacy/primacy.db",
            Duration::from_micros(850),
            Palette::new(false),
        );
        expected.assert_eq(&text);
    }

    #[test]
    fn status_of_a_led_election() {
        check(
            Some(&led()),
            &expect![[r#"
            election  billing
            leader    web-1 (11111111)  http://10.0.0.1:8080
            token     17
            held for  3m 12s
            lease     7.9s of 10s left, renewed 2.1s ago
            store     sqlite:/var/lib/primacy/primacy.db
            answer    0.8ms old

            waiting, in this order
              1  web-2 (22222222)  waits for the lease that web-1 holds with token 17  1.2s ago  http://10.0.0.2:8080
              2  web-3 (33333333)  waits for the lease that web-1 holds with token 17  3.4s ago  http://10.0.0.3:8080
        "#]],
        );
    }

    #[test]
    fn status_after_expiry_names_no_leader() {
        check(
            Some(&silent()),
            &expect![[r#"
            election    billing
            leader      unknown: web-1 (11111111) has not renewed its lease in time
            last token  17
            lease       10s long, ran out 150ms ago
            store       sqlite:/var/lib/primacy/primacy.db
            answer      0.8ms old

            waiting, in this order
              1  web-2 (22222222)  waits for the lease that web-1 holds with token 17  1.2s ago  http://10.0.0.2:8080
              2  web-3 (33333333)  waits for the lease that web-1 holds with token 17  3.4s ago  http://10.0.0.3:8080
        "#]],
        );
        check(
            Some(&with(silent(), |snapshot| snapshot.age = None)),
            &expect![[r#"
            election    billing
            leader      unknown: web-1 (11111111) has not renewed its lease in time
            last token  17
            lease       10s long, renewed at an unknown time
            store       sqlite:/var/lib/primacy/primacy.db
            answer      0.8ms old

            waiting, in this order
              1  web-2 (22222222)  waits for the lease that web-1 holds with token 17  1.2s ago  http://10.0.0.2:8080
              2  web-3 (33333333)  waits for the lease that web-1 holds with token 17  3.4s ago  http://10.0.0.3:8080
        "#]],
        );
    }

    #[test]
    fn what_was_said_before_the_present_leadership_is_told_as_that() {
        let stale = with(led(), |snapshot| {
            snapshot.held_for = Some(Duration::from_secs(2));
            snapshot.candidates[1].note = "asks for the free lease".to_owned();
        });
        let text = candidates(&stale, Palette::new(false));
        assert!(text.contains("web-2 (22222222)  waits for the lease that web-1 holds with token 17"), "{text}");
        assert!(text.contains("waited when token 17 was granted"), "{text}");
        assert!(!text.contains("asks for the free lease"), "{text}");
    }

    #[test]
    fn status_of_a_free_election() {
        check(
            Some(&vacant()),
            &expect![[r#"
            election    billing
            leader      nobody: the lease is free
            last token  17
            store       sqlite:/var/lib/primacy/primacy.db
            answer      0.8ms old

            waiting, in this order
              1  web-2 (22222222)  waits for the lease that web-1 holds with token 17  1.2s ago  http://10.0.0.2:8080
              2  web-3 (33333333)  waits for the lease that web-1 holds with token 17  3.4s ago  http://10.0.0.3:8080
        "#]],
        );
        check(
            None,
            &expect![[r#"
            election  billing
            leader    nobody has ever campaigned
            store     sqlite:/var/lib/primacy/primacy.db
            answer    0.8ms old
        "#]],
        );
    }

    #[test]
    fn status_shows_orders() {
        let snapshot = promoting(led(), "web-2");
        check(
            Some(&with(snapshot, |snapshot| snapshot.record.paused = true)),
            &expect![[r#"
            election  billing
            leader    web-1 (11111111)  http://10.0.0.1:8080
            token     17
            held for  3m 12s
            lease     7.9s of 10s left, renewed 2.1s ago
            order     hand over to web-2
            paused    yes: nobody else may take the lease
            store     sqlite:/var/lib/primacy/primacy.db
            answer    0.8ms old

            waiting, in this order
              1  web-2 (22222222)  waits for the lease that web-1 holds with token 17  1.2s ago  http://10.0.0.2:8080
              2  web-3 (33333333)  waits for the lease that web-1 holds with token 17  3.4s ago  http://10.0.0.3:8080
        "#]],
        );
    }

    #[test]
    fn hostile_text_cannot_steer_the_terminal() {
        let hostile = with(led(), |snapshot| {
            let holder = snapshot.record.holder.as_mut().expect("it is led");
            holder.label = label("rtl\u{202e}");
            holder.data = "\u{1b}[2Jgone\nleader  web-9".to_owned();
            snapshot.candidates[0].note = "\u{7}".repeat(500);
        });
        let text = status(&sample::election(), (Some(&hostile), None), "sqlite:x", Duration::ZERO, Palette::new(false));
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        assert!(!text.contains('\u{202e}'));
        assert_eq!(text.matches("\nleader").count(), 1);
    }

    #[test]
    fn list_has_a_row_per_election() {
        let other = |name: &str, snapshot: Snapshot| {
            with(snapshot, |snapshot| snapshot.election = ElectionName::new(name).expect("valid"))
        };
        let elections = [led(), other("outbox relay", silent()), other("選挙", promoting(vacant(), "web-3"))];
        expect![[r#"
            ELECTION      LEADER   TOKEN  HELD FOR  LEASE LEFT   WAITING  ORDERS
            billing       web-1    17     3m 12s    7.9s of 10s  2
            outbox relay  unknown  17               ran out      2
            選挙          nobody   17                            2        hand over to web-3
        "#]]
        .assert_eq(&list(&elections, "sqlite:x", Palette::new(false)));
        expect![[r#"
            no election in sqlite:x yet
        "#]]
        .assert_eq(&list(&[], "sqlite:x", Palette::new(false)));
    }

    #[test]
    fn history_tells_why_each_leadership_ended() {
        let terms = sample::history();
        expect![[r#"
            TOKEN  LEADER            FROM                 LASTED  ENDED BECAUSE
               17  web-1 (11111111)  2026-09-21 14:13:20          leads now
               16  web-2 (22222222)  2026-09-21 11:50:20  2h 22m  its process died
               15  web-1 (11111111)  2026-09-21 11:48:20  1m 59s  an operator asked for a new election
        "#]]
        .assert_eq(&history(&terms, Some(sample::token(17)), &TimeZone::UTC, Palette::new(false)));
        let open = history(&terms[..1], None, &TimeZone::UTC, Palette::new(false));
        assert!(open.contains("unknown: not given back"), "a silent leader does not lead: {open}");
        let absurd = Term { granted_unix_ms: i64::MIN, ended: Some((i64::MAX, "x".to_owned())), ..terms[0].clone() };
        assert!(history(&[absurd], None, &TimeZone::UTC, Palette::new(false)).contains("no valid time"));
    }

    #[test]
    fn colour_marks_the_leader() {
        let text = status(&sample::election(), (Some(&led()), None), "s", Duration::ZERO, Palette::new(true));
        assert!(text.contains("\u{1b}[1m\u{1b}[32mweb-1"), "{text:?}");
    }
}
