//! Who takes part by the `registers` protocol: in which order they lead, and what has happened among them.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::tz::TimeZone;
use primacy::registers::{MemberEventKind, ProcessId};
use primacy::store::{Member, MemberEvent, Members, Snapshot};
use primacy::{CandidateId, ElectionName};

use super::lead::Lead;
use super::namesakes::{named, short_id};
use super::report::{DATA_SHOWN, date};
use super::span::{ago, span};
use super::style::{Palette, Tone};
use super::table::{Cell, table};
use crate::foreign_text::shorten;

/// Where a member stands. The order is that in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MemberPosition {
    /// It leads.
    Leads,
    /// Its place in line, from 1, which is next.
    InLine(usize),
    /// Its process is silent for as long as it takes to be evicted.
    Silent,
    /// Another candidate of its process leads, or stands in line for all of them.
    Behind,
    /// It never leads.
    Never,
}

impl MemberPosition {
    /// In a table.
    fn text(self) -> String {
        match self {
            Self::InLine(place) => place.to_string(),
            other => other.word().to_owned(),
        }
    }

    /// The word for it in JSON.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Leads => "leads",
            Self::InLine(_) => "in-line",
            Self::Silent => "silent",
            Self::Behind => "behind",
            Self::Never => "never",
        }
    }
}

/// The members in the order in which they lead, each with its place.
pub(crate) fn places<'a>(members: &'a Members, snapshot: Option<&Snapshot>) -> Vec<(MemberPosition, &'a Member)> {
    let leader = match Lead::of(snapshot) {
        Lead::Led(holder, _) => members.members.iter().find(|member| member.candidacy.id == holder.id),
        Lead::Vacant | Lead::Unknown(_) | Lead::Lost | Lead::Forgotten | Lead::Never => None,
    };
    // A lease of the registers protocol lasts as long as one may be silent; its rounds are two unless chosen otherwise.
    let patience = match (leader, snapshot) {
        (Some(_), Some(snapshot)) => snapshot.record.lease,
        _ => members.vars.round * 2,
    };
    let mut sorted: Vec<&Member> = members.members.iter().collect();
    sorted.sort_by_key(|member| (member.candidacy.rank.is_none(), member.candidacy.rank, member.descriptor.id));
    let mut spoken_for: BTreeSet<ProcessId> = leader.iter().map(|leader| leader.descriptor.process).collect();
    let mut in_line = 0;
    let mut placed: Vec<_> = sorted
        .into_iter()
        .map(|member| {
            let place = if leader.is_some_and(|leader| leader.candidacy.id == member.candidacy.id) {
                MemberPosition::Leads
            } else if member.candidacy.rank.is_none() {
                MemberPosition::Never
            } else if member.age.is_some_and(|age| age > patience) {
                MemberPosition::Silent
            } else if spoken_for.insert(member.descriptor.process) {
                in_line += 1;
                MemberPosition::InLine(in_line)
            } else {
                MemberPosition::Behind
            };
            (place, member)
        })
        .collect();
    placed.sort_by_key(|(place, _)| *place);
    placed
}

/// The snapshot without those that cannot lead now: they never do, or are silent members.
pub(crate) fn able(mut snapshot: Snapshot, members: Option<&Members>) -> Snapshot {
    if let Some(members) = members {
        let unable: BTreeSet<CandidateId> = places(members, Some(&snapshot))
            .into_iter()
            .filter(|(place, _)| matches!(place, MemberPosition::Silent | MemberPosition::Never))
            .map(|(_, member)| member.candidacy.id)
            .collect();
        snapshot.candidates.retain(|waiting| !unable.contains(&waiting.who.id));
    }
    snapshot.candidates.retain(|waiting| waiting.rank.is_some());
    snapshot
}

/// Who takes part, for people.
pub(crate) fn report(
    election: &ElectionName,
    members: Option<&Members>,
    snapshot: Option<&Snapshot>,
    store: &str,
    answer_age: Duration,
    palette: Palette,
) -> String {
    let pair = |key: &str, value: Cell| vec![Cell::new(key, Tone::Faint), value];
    let mut rows = vec![pair("election", Cell::plain(election.to_string())), pair("leader", leader(snapshot))];
    if let Some(members) = members {
        rows.push(pair("rounds", Cell::plain(rounds(members))));
    }
    rows.push(pair("store", Cell::plain(store)));
    rows.push(pair("answer", Cell::plain(format!("{} old", span(answer_age)))));
    let head = table(&rows, 0, palette);
    let Some(members) = members.filter(|members| !members.members.is_empty()) else {
        return format!("{head}\n{}\n", palette.paint("nobody takes part by the registers protocol", Tone::Faint));
    };
    let heading = ["PLACE", "CANDIDATE", "NUMBER", "RANK", "LAST BEAT", "LATE BY", "DATA"];
    let mut rows = vec![heading.iter().map(|name| Cell::new(*name, Tone::Heading)).collect()];
    rows.extend(places(members, snapshot).into_iter().map(|(place, member)| row(place, member)));
    format!(
        "{head}\n{}\n{}",
        palette.paint("members, in the order in which they lead", Tone::Heading),
        table(&rows, 2, palette)
    )
}

fn leader(snapshot: Option<&Snapshot>) -> Cell {
    match Lead::of(snapshot) {
        Lead::Led(holder, _) => {
            let token = snapshot.map(|snapshot| snapshot.record.version.token.to_string()).unwrap_or_default();
            Cell::new(format!("{} with token {token}", named(holder)), Tone::Good)
        }
        Lead::Vacant => Cell::new("nobody: the lease is free", Tone::Notice),
        Lead::Unknown(holder) => {
            Cell::new(format!("unknown: {} has not renewed its lease in time", named(holder)), Tone::Notice)
        }
        Lead::Lost => Cell::new("unknown: the election's record is gone", Tone::Bad),
        Lead::Forgotten => Cell::new("nobody: the election is forgotten", Tone::Notice),
        Lead::Never => Cell::new("nobody has ever campaigned", Tone::Notice),
    }
}

fn rounds(members: &Members) -> String {
    let times = |count: u64| match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        count => format!("{count} times"),
    };
    let mut text = format!("{} long", span(members.vars.round));
    if members.vars.changes > 0 {
        text.push_str(&format!("; set anew {}", times(members.vars.changes)));
    }
    if members.vars.comebacks > 0 {
        text.push_str(&format!("; somebody was evicted and came back {}", times(members.vars.comebacks)));
    }
    text
}

fn row(place: MemberPosition, member: &Member) -> Vec<Cell> {
    let candidacy = &member.candidacy;
    let name = format!("{} ({})", candidacy.label, short_id(&candidacy.id.to_string()));
    let tone = match place {
        MemberPosition::Leads => Tone::Good,
        MemberPosition::Silent => Tone::Notice,
        MemberPosition::InLine(_) | MemberPosition::Behind | MemberPosition::Never => Tone::Plain,
    };
    vec![
        Cell::new(place.text(), tone),
        Cell::new(name, tone),
        Cell::number(member.descriptor.id.to_string()),
        Cell::plain(candidacy.rank.map(|rank| rank.to_string()).unwrap_or_default()),
        Cell::new(ago(member.age), Tone::Faint),
        Cell::number(span(member.descriptor.late)),
        Cell::new(shorten(&candidacy.data, DATA_SHOWN), Tone::Faint),
    ]
}

/// What has happened, the newest first.
pub(crate) fn events(events: &[MemberEvent], zone: &TimeZone, palette: Palette) -> String {
    if events.is_empty() {
        return String::new();
    }
    let row = |event: &MemberEvent| {
        let (text, tone) = told(&event.kind);
        vec![
            Cell::number(event.number.to_string()),
            Cell::new(date(event.unix_ms, zone), Tone::Faint),
            Cell::new(text, tone),
        ]
    };
    let rows: Vec<_> = events.iter().map(row).collect();
    format!("{}\n{}", palette.paint("what has happened, the newest first", Tone::Heading), table(&rows, 2, palette))
}

/// An event in words.
pub(crate) fn told(kind: &MemberEventKind) -> (String, Tone) {
    match kind {
        MemberEventKind::Joined { label, came_back: None, .. } => (format!("{label} joined"), Tone::Plain),
        MemberEventKind::Joined { label, came_back: Some(silent), .. } => {
            (format!("{label} came back: it had been silent for {}", span(*silent)), Tone::Notice)
        }
        MemberEventKind::Left { label, .. } => (format!("{label} left"), Tone::Plain),
        MemberEventKind::Evicted { label, eviction, .. } => (
            format!(
                "{label} was evicted by {} with token {}, which had seen no beat for {}",
                eviction.by,
                eviction.token,
                span(eviction.silent)
            ),
            Tone::Notice,
        ),
        MemberEventKind::Round { round } => (format!("rounds last {} from now on", span(*round)), Tone::Plain),
    }
}

/// How things stand, in one line.
pub(crate) fn summary(members: Option<&Members>, snapshot: Option<&Snapshot>) -> String {
    let Some(members) = members else { return "nobody has ever taken part by the registers protocol".to_owned() };
    let count = match members.members.len() {
        0 => "nobody takes part".to_owned(),
        1 => "1 member takes part".to_owned(),
        count => format!("{count} members take part"),
    };
    let lead = match Lead::of(snapshot) {
        Lead::Led(holder, _) => format!("{} leads", holder.label),
        Lead::Unknown(_) | Lead::Lost => "who leads is unknown".to_owned(),
        Lead::Vacant | Lead::Forgotten | Lead::Never => "nobody leads".to_owned(),
    };
    format!("{count} in rounds of {}; {lead}", span(members.vars.round))
}

/// The most in line that a sentence names.
const NAMED_MOST: usize = 4;

/// Who stands where in line, and why: sentences for `status --explain`.
pub(crate) fn explain(members: &Members, snapshot: Option<&Snapshot>) -> Vec<String> {
    let placed = places(members, snapshot);
    let of = |wanted: fn(MemberPosition) -> bool| {
        placed.iter().filter(move |(place, _)| wanted(*place)).map(|(_, member)| *member)
    };
    let line: Vec<&Member> = of(|place| matches!(place, MemberPosition::InLine(_))).collect();
    let mut sentences = Vec::new();
    if let Some(first) = line.first() {
        let why = match line.get(1) {
            None => "it is the only one".to_owned(),
            Some(second) => reason(first, second),
        };
        let mut text = format!("{} is next in line, because {why}", first.candidacy.label);
        for pair in line.windows(2).take(NAMED_MOST - 1).skip(1) {
            text.push_str(&format!("; then {}, because {}", pair[0].candidacy.label, reason(pair[0], pair[1])));
        }
        if let Some(last) = line.last().filter(|_| (2..=NAMED_MOST).contains(&line.len())) {
            text.push_str(&format!("; then {}", last.candidacy.label));
        }
        if line.len() > NAMED_MOST {
            text.push_str(&format!("; then {} more", line.len() - NAMED_MOST + 1));
        }
        sentences.push(format!("{text}."));
    }
    for silent in of(|place| place == MemberPosition::Silent).take(NAMED_MOST) {
        let for_so_long = silent.age.map(span).unwrap_or_default();
        sentences.push(format!(
            "{} is silent for {for_so_long} and stands in no line: the leader evicts it, and it joins again if it lives.",
            silent.candidacy.label
        ));
    }
    let never: Vec<_> =
        of(|place| place == MemberPosition::Never).map(|member| member.candidacy.label.to_string()).collect();
    match never.as_slice() {
        [] => {}
        [one] => sentences.push(format!("{one} takes part and never leads, as chosen with --never.")),
        [first, others @ ..] => sentences
            .push(format!("{first} and {} more take part and never lead, as chosen with --never.", others.len())),
    }
    sentences
}

/// Why one stands before another.
fn reason(before: &Member, after: &Member) -> String {
    let (rank, other) = (before.candidacy.rank.unwrap_or_default(), after.candidacy.rank.unwrap_or_default());
    if rank == other {
        format!("it has been here longer (number {} before {})", before.descriptor.id, after.descriptor.id)
    } else {
        format!("it is preferred (rank {rank} before {other})")
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{self, holder, led, vacant};
    use super::*;
    use expect_test::expect;
    use primacy::registers::{Candidacy, Descriptor, Eviction, Vars};
    use primacy::select::Rank;

    fn member(n: u8, rank: Option<&[i32]>, age_ms: u64) -> Member {
        let who = holder(n);
        let rank = rank.map(|elements| Rank::new(elements).expect("a short one"));
        let process = ProcessId::from_bits(u128::from(n));
        let late = Duration::from_micros(1_500 * u64::from(n));
        Member {
            candidacy: Candidacy { id: who.id, label: who.label, data: who.data, rank },
            descriptor: Descriptor { process, id: n.into(), counter: 40, rank, late },
            age: Some(Duration::from_millis(age_ms)),
            joined_unix_ms: 1_790_000_000_000,
        }
    }

    fn members(members: Vec<Member>) -> Members {
        let vars = Vars { max_id: 9, changes: 2, comebacks: 1, ..Vars::new(Duration::from_secs(2)) };
        Members { vars, members }
    }

    fn five() -> Members {
        members(vec![
            member(1, Some(&[]), 300),
            member(2, Some(&[]), 900),
            member(3, Some(&[-100]), 20),
            member(4, None, 700),
            member(5, Some(&[]), 60_000),
            member(6, Some(&[1]), 10),
        ])
    }

    #[test]
    fn members_are_shown_in_the_order_in_which_they_lead() {
        expect![[r#"
            election  billing
            leader    web-1 (11111111) with token 17
            rounds    2s long; set anew twice; somebody was evicted and came back once
            store     sqlite:x
            answer    0.8ms old

            members, in the order in which they lead
              PLACE   CANDIDATE         NUMBER  RANK  LAST BEAT  LATE BY  DATA
              leads   web-1 (11111111)       1  0     300ms ago    1.5ms  http://10.0.0.1:8080
              1       web-3 (33333333)       3  -100  20ms ago     4.5ms  http://10.0.0.3:8080
              2       web-2 (22222222)       2  0     900ms ago    3.0ms  http://10.0.0.2:8080
              3       web-6 (66666666)       6  1     10ms ago     9.0ms  http://10.0.0.6:8080
              silent  web-5 (55555555)       5  0     1m ago       7.5ms  http://10.0.0.5:8080
              never   web-4 (44444444)       4        700ms ago    6.0ms  http://10.0.0.4:8080
        "#]]
        .assert_eq(&report(
            &sample::election(),
            Some(&five()),
            Some(&led()),
            "sqlite:x",
            Duration::from_micros(850),
            Palette::new(false),
        ));
    }

    #[test]
    fn an_election_without_members_says_so() {
        for none in [None, Some(&members(Vec::new()))] {
            let text = report(&sample::election(), none, Some(&led()), "sqlite:x", Duration::ZERO, Palette::new(false));
            assert!(text.ends_with("nobody takes part by the registers protocol\n"), "{text}");
        }
    }

    #[test]
    fn a_process_stands_in_line_once() {
        let mut all = members(vec![member(1, Some(&[]), 0), member(2, Some(&[]), 0), member(3, Some(&[]), 0)]);
        all.members[2].descriptor = all.members[1].descriptor.clone();
        let places =
            |snapshot: Snapshot| places(&all, Some(&snapshot)).into_iter().map(|(place, _)| place).collect::<Vec<_>>();
        assert_eq!(places(led()), [MemberPosition::Leads, MemberPosition::InLine(1), MemberPosition::Behind]);
        assert_eq!(places(vacant()), [MemberPosition::InLine(1), MemberPosition::InLine(2), MemberPosition::Behind]);
    }

    #[test]
    fn who_cannot_lead_is_no_candidate() {
        let snapshot = sample::with(led(), |snapshot| {
            snapshot.candidates = vec![sample::waiting(4, "never leads", 1), sample::waiting(2, "waits", 1)];
        });
        let able = able(snapshot, Some(&five()));
        assert_eq!(able.candidates.iter().map(|who| who.who.label.as_str()).collect::<Vec<_>>(), ["web-2"]);
    }

    #[test]
    fn the_line_is_explained() {
        expect![[r#"
            web-3 is next in line, because it is preferred (rank -100 before 0); then web-2, because it is preferred (rank 0 before 1); then web-6.
            web-5 is silent for 1m and stands in no line: the leader evicts it, and it joins again if it lives.
            web-4 takes part and never leads, as chosen with --never."#]].assert_eq(&explain(&five(), Some(&led())).join("\n"));
        expect!["web-2 is next in line, because it is the only one."]
            .assert_eq(&explain(&members(vec![member(2, Some(&[]), 0)]), Some(&led())).join("\n"));
        let many = members((2..15).map(|n| member(n, Some(&[]), 0)).collect());
        expect!["web-2 is next in line, because it has been here longer (number 2 before 3); then web-3, because it has been here longer (number 3 before 4); then web-4, because it has been here longer (number 4 before 5); then 10 more."].assert_eq(&explain(&many, Some(&led())).join("\n"));
    }

    #[test]
    fn events_are_told() {
        let (process, label) = (ProcessId::from_bits(2), sample::label("web-2"));
        let eviction =
            Eviction { by: sample::label("web-1"), token: sample::token(17), silent: Duration::from_millis(4_100) };
        let kinds = [
            MemberEventKind::Joined { process, label: label.clone(), came_back: Some(Duration::from_secs(7)) },
            MemberEventKind::Round { round: Duration::from_millis(2_050) },
            MemberEventKind::Evicted { process, label: label.clone(), eviction },
            MemberEventKind::Left { process, label: label.clone() },
            MemberEventKind::Joined { process, label, came_back: None },
        ];
        let all: Vec<_> = (1..=5)
            .rev()
            .zip(kinds)
            .map(|(number, kind)| MemberEvent { number, unix_ms: 1_790_000_000_000, kind })
            .collect();
        expect![[r#"
            what has happened, the newest first
              5  2026-09-21 14:13:20  web-2 came back: it had been silent for 7s
              4  2026-09-21 14:13:20  rounds last 2s from now on
              3  2026-09-21 14:13:20  web-2 was evicted by web-1 with token 17, which had seen no beat for 4.1s
              2  2026-09-21 14:13:20  web-2 left
              1  2026-09-21 14:13:20  web-2 joined
        "#]]
        .assert_eq(&events(&all, &TimeZone::UTC, Palette::new(false)));
    }

    #[test]
    fn hostile_text_cannot_steer_the_terminal() {
        let mut hostile = five();
        hostile.members[0].candidacy.data = "\u{1b}[2Jgone\nleads  web-9".to_owned();
        hostile.members[1].candidacy.label = sample::label("rtl\u{202e}");
        let text = report(&sample::election(), Some(&hostile), Some(&led()), "x", Duration::ZERO, Palette::new(false));
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()) && !text.contains('\u{202e}'), "{text:?}");
    }
}
