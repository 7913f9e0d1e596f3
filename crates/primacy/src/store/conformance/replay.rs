//! Linearizability of one row, checked in one pass: the versions themselves tell the order of the changes.
//!
//! Version and order number together only grow, so sorting the changes by them gives the only order in which they can
//! have taken effect. What remains is to replay that order by the rules, and to see that no answer contradicts real
//! time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::{Expectation, Floor, Holder, Order, OrderKind, Record, Version};
use crate::{CandidateId, Token};
use primacy_core::lease::row::{self, Renewal, Verdict};

/// One answered step.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// When it was called and answered, by a clock that all share.
    pub(super) called: u64,
    pub(super) answered: u64,
    /// Whose it was, unless an operator's.
    pub(super) by: Option<CandidateId>,
    pub(super) step: Step,
}

/// What it told or did.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Saw(Option<Record>),
    Acquired { expect: Option<Expectation>, floor: Floor, holder: Holder, record: Record },
    Renewed { version: Version, lease: Duration, completed_order: Option<u64>, record: Record },
    Released { version: Version, record: Record },
    Ordered { kind: OrderKind, before: Record },
}

/// Where a state stands among all states of the row; nothing before there was one.
type ReplayPosition = Option<(Version, u64)>;

fn place(record: Option<&Record>) -> ReplayPosition {
    record.map(|record| (record.version, record.order_number))
}

impl Entry {
    /// The state that it made, or `None` if it made none.
    fn made(&self) -> Result<Option<Record>, String> {
        match &self.step {
            Step::Saw(_) => Ok(None),
            Step::Acquired { record, .. } | Step::Renewed { record, .. } | Step::Released { record, .. } => {
                Ok(Some(record.clone()))
            }
            // The store says what was before; what was made of it follows from the rules. A successor's label is led by
            // nobody here, and every lease is long.
            Step::Ordered { kind, before } => {
                let order = Order { kind: kind.clone(), token: None };
                match row::order(before, before.holder.is_some(), &order) {
                    Verdict::Write(record, _) => Ok(Some(record)),
                    _ => Err(format!("an order was written that changes nothing: {self:?}")),
                }
            }
        }
    }

    /// What the rules make of the state before.
    fn replayed(&self, before: Option<&Record>) -> Option<Record> {
        match &self.step {
            Step::Saw(_) => None,
            Step::Acquired { expect, floor, holder, record } => {
                row::acquire(before, *expect, Token::NONE, 0, *floor, holder, record.lease).ok()?
            }
            &Step::Renewed { version, lease, completed_order, .. } => {
                row::renew(before, &Renewal { id: self.by?, version, lease, completed_order })
            }
            Step::Released { version, .. } => row::release(before, self.by?, *version),
            Step::Ordered { before: told, .. } => (before == Some(told)).then(|| self.made().ok().flatten()).flatten(),
        }
    }
}

/// Checks one history.
pub(super) fn replay(entries: Vec<Entry>) -> Result<(), String> {
    let mut states: BTreeMap<ReplayPosition, (Option<Record>, Option<Entry>)> = BTreeMap::new();
    states.insert(None, (None, None));
    for entry in &entries {
        let Some(record) = entry.made()? else { continue };
        let made = place(Some(&record));
        if let Some((_, Some(other))) = states.insert(made, (Some(record), Some(entry.clone()))) {
            return Err(format!("one state was made twice: by {other:?} and by {entry:?}"));
        }
    }
    chain(&states)?;
    in_real_time(&states, &entries)
}

/// Each change starts from the state that the one before it made.
fn chain(states: &BTreeMap<ReplayPosition, (Option<Record>, Option<Entry>)>) -> Result<(), String> {
    let mut before: Option<&Record> = None;
    for (record, entry) in states.values() {
        let Some(entry) = entry else { continue };
        if entry.replayed(before).as_ref() != record.as_ref() {
            return Err(format!("{entry:?} cannot have been applied to {before:?}"));
        }
        before = record.as_ref();
    }
    Ok(())
}

/// No answer tells of a state older than one that had been answered before the call, or of one that was made later.
fn in_real_time(
    states: &BTreeMap<ReplayPosition, (Option<Record>, Option<Entry>)>,
    entries: &[Entry],
) -> Result<(), String> {
    let mut told = Vec::new();
    for entry in entries {
        let at = match (&entry.step, entry.made()?) {
            (Step::Saw(record), _) => {
                let at = place(record.as_ref());
                let Some((state, maker)) = states.get(&at) else {
                    return Err(format!("{entry:?} tells of a state that nobody made"));
                };
                if state != record {
                    return Err(format!("{entry:?} tells of another state than {state:?}"));
                }
                if maker.as_ref().is_some_and(|maker| maker.called > entry.answered) {
                    return Err(format!("{entry:?} tells of a state that was made later, by {maker:?}"));
                }
                at
            }
            (_, made) => place(made.as_ref()),
        };
        told.push((entry, at));
    }
    let mut answers = told.clone();
    answers.sort_by_key(|(entry, _)| entry.answered);
    told.sort_by_key(|(entry, _)| entry.called);
    let mut answers = answers.into_iter().peekable();
    let mut newest: (ReplayPosition, Option<&Entry>) = (None, None);
    for (entry, at) in told {
        while let Some((answered, place)) = answers.next_if(|(answered, _)| answered.answered < entry.called) {
            if place > newest.0 {
                newest = (place, Some(answered));
            }
        }
        if at < newest.0 {
            return Err(format!("{entry:?} is older than what was answered before it: {:?}", newest.1));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const LEASE: Duration = Duration::from_secs(1);

    fn me() -> Holder {
        super::super::actor::holder("a")
    }

    fn entry(called: u64, answered: u64, by: &Holder, step: Step) -> Entry {
        Entry { called, answered, by: Some(by.id), step }
    }

    fn grant(called: u64, answered: u64, me: &Holder, before: Option<&Record>) -> (Entry, Record) {
        let expect = before.map(Record::expectation);
        let record = row::acquire(before, expect, Token::NONE, 0, Token::NONE.into(), me, LEASE);
        let record = record.expect("tokens are left").expect("as expected");
        let step = Step::Acquired { expect, floor: Token::NONE.into(), holder: me.clone(), record: record.clone() };
        (entry(called, answered, me, step), record)
    }

    #[test]
    fn a_sound_history_passes_and_each_lie_is_found() {
        let (a, b) = (me(), me());
        let (first, granted) = grant(0, 1, &a, None);
        let (second, taken) = grant(2, 5, &b, Some(&granted));
        let seen = entry(3, 4, &a, Step::Saw(Some(granted.clone())));
        let sound = vec![first.clone(), second.clone(), seen];
        assert_eq!(replay(sound.clone()), Ok(()));

        let twice = grant(2, 5, &a, Some(&granted)).0;
        assert!(replay([&sound[..], &[twice]].concat()).expect_err("two winners").contains("made twice"));
        let stale = entry(6, 7, &a, Step::Saw(Some(granted.clone())));
        assert!(replay([&sound[..], &[stale]].concat()).expect_err("a stale read").contains("older"));
        let early = entry(0, 1, &a, Step::Saw(Some(taken.clone())));
        assert!(replay([&sound[..], &[early]].concat()).expect_err("from the future").contains("later"));
        let invented = Record { paused: true, ..taken.clone() };
        let invented = entry(6, 7, &a, Step::Saw(Some(invented)));
        assert!(replay([&sound[..], &[invented]].concat()).expect_err("made up").contains("another state"));
        let gap = vec![second];
        assert!(replay(gap).expect_err("no first").contains("cannot have been applied"));
        let renewal = Renewal { id: a.id, version: granted.version, lease: granted.lease, completed_order: None };
        let renewed = row::renew(Some(&granted), &renewal).expect("holds");
        let late = entry(
            6,
            7,
            &a,
            Step::Renewed { version: granted.version, lease: renewed.lease, completed_order: None, record: renewed },
        );
        assert!(replay([&sound[..], &[late]].concat()).is_err(), "a renewal of what was taken over");
    }
}
