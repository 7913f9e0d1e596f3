//! What candidates are called; which of them have one label, and which one an operator means by a name.

use std::collections::BTreeMap;

use primacy::store::{HandoverRequest, Holder, Snapshot};
use primacy::{CandidateId, Label};
use serde::Serialize;

/// The fewest digits of an id that name a candidate.
const DIGITS_LEAST: usize = 4;
/// How many digits of an id are shown, unless more are needed.
const DIGITS_SHOWN: usize = 8;
/// How many candidates one sentence lists.
const LISTED: usize = 6;

/// `web-1 (3f2a91bc)`: the readable name, and enough of the identity to tell two of the same name apart.
pub(crate) fn named(holder: &Holder) -> String {
    format!("{} ({})", holder.label, short_id(&holder.id.to_string()))
}

pub(crate) fn short_id(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}

/// Those that lead or wait, the leader first.
fn live(snapshot: &Snapshot) -> impl Iterator<Item = &Holder> {
    snapshot.leader().into_iter().chain(snapshot.candidates.iter().map(|waiting| &waiting.who))
}

/// The labels that more than one live candidate has, and who has them.
pub(crate) fn namesakes(snapshot: &Snapshot) -> Vec<(&Label, Vec<&Holder>)> {
    let mut by_label: BTreeMap<&Label, Vec<&Holder>> = BTreeMap::new();
    for candidate in live(snapshot) {
        by_label.entry(&candidate.label).or_default().push(candidate);
    }
    by_label.into_iter().filter(|(_, candidates)| candidates.len() > 1).collect()
}

/// Live candidates with one label.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Namesakes {
    label: String,
    ids: Vec<String>,
}

/// The labels that more than one live candidate has, for JSON.
pub(crate) fn shared_labels(snapshot: &Snapshot) -> Vec<Namesakes> {
    let found = namesakes(snapshot).into_iter();
    found
        .map(|(label, candidates)| Namesakes {
            label: label.as_str().to_owned(),
            ids: candidates.iter().map(|candidate| candidate.id.to_string()).collect(),
        })
        .collect()
}

/// What to say of candidates with one label.
pub(crate) fn warning(snapshot: &Snapshot, label: &Label, candidates: &[&Holder]) -> String {
    let ids = listed(candidates.iter().map(|candidate| shortest(candidate.id, snapshot)));
    format!(
        "{} candidates are called {label}: {ids}. Give each its own --name, and promote one by its id. Just after a crash, one \
         is the run before it",
        candidates.len()
    )
}

/// The first digits of an id that no other live candidate's id begins with.
pub(crate) fn shortest(id: CandidateId, snapshot: &Snapshot) -> String {
    let digits = id.to_string();
    let others: Vec<String> = live(snapshot).filter(|other| other.id != id).map(|other| other.id.to_string()).collect();
    let is_unique = |length: &usize| !others.iter().any(|other| other.starts_with(&digits[..*length]));
    let length = (DIGITS_SHOWN..digits.len()).find(is_unique).unwrap_or(digits.len());
    digits[..length].to_owned()
}

/// Whom a name means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meant<'a> {
    /// What to write into the record: a label, or all digits of an id.
    One(Label),
    /// More than one live candidate.
    Several(Vec<&'a Holder>),
}

/// Whom this name means: the live candidate with this label; or else the one whose id begins with it. Where there is neither,
/// the name is taken for the label of a candidate to come.
pub(crate) fn meant<'a>(name: &Label, snapshot: &'a Snapshot) -> Meant<'a> {
    let handover = HandoverRequest::Successor(name.clone());
    let exact: Vec<&Holder> =
        live(snapshot).filter(|candidate| handover.names(candidate.id, &candidate.label)).collect();
    match exact.as_slice() {
        [] => by_prefix(name, snapshot),
        [one] if one.label == *name => Meant::One(name.clone()),
        [one] => Meant::One(digits_of(one)),
        _ => Meant::Several(exact),
    }
}

fn by_prefix<'a>(name: &Label, snapshot: &'a Snapshot) -> Meant<'a> {
    let prefix = name.as_str().to_ascii_lowercase();
    if prefix.len() < DIGITS_LEAST {
        return Meant::One(name.clone());
    }
    let found: Vec<&Holder> =
        live(snapshot).filter(|candidate| candidate.id.to_string().starts_with(&prefix)).collect();
    match found.as_slice() {
        [] => Meant::One(name.clone()),
        [one] => Meant::One(digits_of(one)),
        _ => Meant::Several(found),
    }
}

fn digits_of(candidate: &Holder) -> Label {
    Label::new(candidate.id.to_string()).expect("32 digits are a label")
}

/// Why a name that means several is refused. `command`: what to type before the id of one.
pub(crate) fn ambiguous(name: &Label, candidates: &[&Holder], snapshot: &Snapshot, command: &str) -> String {
    let shown = |candidate: &&Holder| {
        let does = if snapshot.record.is_held_by(candidate.id) { "leads" } else { "waits" };
        format!("{} ({}) {does}", candidate.label, shortest(candidate.id, snapshot))
    };
    let first = candidates.iter().find(|candidate| !snapshot.record.is_held_by(candidate.id));
    let id = first.map(|candidate| shortest(candidate.id, snapshot)).unwrap_or_default();
    format!(
        "{name} means {} candidates: {}; nothing was changed. Name one by its id: {command} {id}",
        candidates.len(),
        listed(candidates.iter().map(shown))
    )
}

fn listed(all: impl ExactSizeIterator<Item = String>) -> String {
    let more = all.len().saturating_sub(LISTED);
    let shown = all.take(LISTED).collect::<Vec<_>>().join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

/// Whom an order names, for people: with the label, where it names a candidate by its id.
pub(crate) fn called(successor: &Label, snapshot: &Snapshot) -> String {
    let Ok(id) = successor.as_str().parse::<CandidateId>() else { return successor.to_string() };
    let mut seen = snapshot.record.holder.iter().chain(snapshot.candidates.iter().map(|waiting| &waiting.who));
    match seen.find(|candidate| candidate.id == id) {
        Some(candidate) => named(candidate),
        None => successor.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{holder, label, led, silent, with};
    use super::*;
    use expect_test::expect;

    /// web-1 leads; web-2 waits, and another web-1, whose id begins like the leader's.
    fn crowded() -> Snapshot {
        with(led(), |snapshot| {
            let id = CandidateId::from_bits(holder(1).id.to_bits() ^ 0xf);
            snapshot.candidates[1].who = Holder { id, ..holder(1) };
        })
    }

    fn one(text: &str) -> Meant<'static> {
        Meant::One(label(text))
    }

    #[test]
    fn a_label_goes_before_an_id_and_a_prefix_must_fit_one() {
        let snapshot = led();
        let id = "22222222222222222222222222222222";
        assert_eq!(meant(&label("web-2"), &snapshot), one("web-2"));
        for prefix in ["2222", "222222222", id] {
            assert_eq!(meant(&label(prefix), &snapshot), one(id), "{prefix}");
        }
        assert_eq!(meant(&label("222"), &snapshot), one("222"), "too short for an id");
        assert_eq!(meant(&label("2223"), &snapshot), one("2223"), "a candidate to come");
        let called_so = with(led(), |snapshot| snapshot.candidates[1].who.label = label("2222"));
        assert_eq!(meant(&label("2222"), &called_so), one("2222"), "web-3 is called so");
        let mixed = with(led(), |snapshot| snapshot.candidates[1].who.id = CandidateId::from_bits(0xabcd << 112));
        for written in ["ABCD", "ABCD0000000000000000000000000000"] {
            assert_eq!(meant(&label(written), &mixed), one("abcd0000000000000000000000000000"));
        }
    }

    #[test]
    fn what_means_several_is_refused_with_all_of_them() {
        let snapshot = crowded();
        for name in ["web-1", "1111"] {
            let Meant::Several(found) = meant(&label(name), &snapshot) else { panic!("{name}") };
            assert_eq!(
                found.iter().map(|holder| holder.id).collect::<Vec<_>>(),
                [holder(1).id, snapshot.candidates[1].who.id]
            );
        }
        let Meant::Several(found) = meant(&label("web-1"), &snapshot) else { panic!("two") };
        expect!["web-1 means 2 candidates: web-1 (11111111111111111111111111111111) leads, web-1 (1111111111111111111111111111111e) waits; nothing was changed. Name one by its id: primacy promote 1111111111111111111111111111111e"]
            .assert_eq(&ambiguous(&label("web-1"), &found, &snapshot, "primacy promote"));
        // Somebody is called like the id of another: both would follow.
        let id = label("22222222222222222222222222222222");
        let borrowed = with(led(), |snapshot| snapshot.candidates[1].who.label = id.clone());
        let Meant::Several(found) = meant(&id, &borrowed) else { panic!("two") };
        assert_eq!(found.len(), 2);
        assert_eq!(meant(&label("3333"), &borrowed), one("33333333333333333333333333333333"));
    }

    #[test]
    fn only_live_candidates_are_namesakes() {
        assert_eq!(namesakes(&led()), []);
        let snapshot = crowded();
        let found = namesakes(&snapshot);
        expect!["2 candidates are called web-1: 11111111111111111111111111111111, 1111111111111111111111111111111e. Give each its own --name, and promote one by its id. Just after a crash, one is the run before it"]
            .assert_eq(&warning(&snapshot, found[0].0, &found[0].1));
        // The leader has not been heard of for a lease: its own next run is no namesake.
        let again = Snapshot { candidates: snapshot.candidates.clone(), ..silent() };
        assert_eq!(namesakes(&again), []);
        assert_eq!(meant(&label("web-1"), &again), one("web-1"));
    }

    #[test]
    fn an_order_for_an_id_is_told_with_its_label() {
        assert_eq!(called(&label("22222222222222222222222222222222"), &led()), "web-2 (22222222)");
        assert_eq!(called(&label("99999999999999999999999999999999"), &led()), "99999999999999999999999999999999");
        assert_eq!(called(&label("web-2"), &led()), "web-2");
    }
}
