//! Forgetting an election: what is left of it, and what stands in the way.

use super::history::{FORGOTTEN, NOBODY};
use super::{Holder, Record, Snapshot, Term, Version};
use crate::{ElectionName, Label, Token};
use std::time::Duration;

/// What a [`Snapshot`] rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Basis {
    /// The election's record.
    #[default]
    Record,
    /// The record is gone, though leaders were granted: somebody has deleted it, or no voter is left that knows it. The
    /// token is the last one that is known, and the holder is the candidate that had it, if the history tells that its
    /// term has not ended. Orders that stood in the record, such as a pause, are lost.
    Remains,
    /// An operator has had the election forgotten. Its token stays, and the next one is larger.
    Forgotten,
}

/// What became of an order to forget an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forgotten {
    /// Only its token is left. The election was like this just before.
    Done(Snapshot),
    /// It was forgotten before; nothing was changed.
    Already(Snapshot),
    /// Something stands in the way; nothing was changed.
    Refused(Hindrance, Snapshot),
    /// Nobody has ever campaigned in this election; nothing was changed.
    NoSuchElection,
}

/// What stands in the way of forgetting an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// Somebody leads.
    Led,
    /// Somebody held the lease, and it cannot be told whether that is over.
    Unknown,
    /// The election is paused, which would be forgotten too.
    Paused,
    /// Candidates wait for the lease.
    Candidates,
}

impl Hindrance {
    /// What stands in the way, if anything does.
    pub fn of(snapshot: &Snapshot) -> Option<Self> {
        let is_held = snapshot.basis == Basis::Record && snapshot.record.holder.is_some();
        match snapshot {
            _ if snapshot.leader().is_some() => Some(Self::Led),
            _ if is_held && snapshot.age.is_none() => Some(Self::Unknown),
            _ if snapshot.record.paused => Some(Self::Paused),
            _ if !snapshot.candidates.is_empty() => Some(Self::Candidates),
            _ => None,
        }
    }
}

/// Why an order to forget this election changes nothing, if so.
pub(crate) fn unchanged(before: &Snapshot) -> Option<Forgotten> {
    if before.basis == Basis::Forgotten {
        return Some(Forgotten::Already(before.clone()));
    }
    Hindrance::of(before).map(|hindrance| Forgotten::Refused(hindrance, before.clone()))
}

/// What is left of an election that has no record: the highest token, and the newest term of the history. `None` if it
/// has never had one. Nobody is shown to wait in it.
pub(crate) fn remains(election: &ElectionName, remembered: Token, newest: Option<Term>) -> Option<Snapshot> {
    let told = newest.as_ref().map_or(Token::NONE, |term| term.token);
    let token = remembered.max(told);
    if token == Token::NONE {
        return None;
    }
    let newest = newest.filter(|term| term.token == token);
    let is_forgotten = newest.as_ref().is_some_and(is_of_forgetting);
    let holder = newest.filter(|term| term.ended.is_none());
    let holder = holder.map(|term| Holder { id: term.id, label: term.label, data: String::new() });
    let version = Version { token, beat: 0 };
    Some(Snapshot {
        election: election.clone(),
        record: Record { version, holder, lease: Duration::ZERO, intent: 0, wish: None, paused: false },
        age: None,
        held_for: None,
        candidates: Vec::new(),
        basis: if is_forgotten { Basis::Forgotten } else { Basis::Remains },
    })
}

/// Whether a term stands for the moment in which the election was forgotten.
pub(crate) fn is_of_forgetting(term: &Term) -> bool {
    term.ended.as_ref().is_some_and(|(_, reason)| reason == FORGOTTEN)
}

/// Who is named in such a term.
pub(crate) fn nobody() -> Label {
    Label::new(NOBODY).expect("a valid label")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CandidateId;

    fn term(token: u64, ended: Option<&str>) -> Term {
        Term {
            token: Token::new(token).expect("small"),
            id: CandidateId::from_bits(9),
            label: Label::new("a").expect("valid"),
            granted_unix_ms: 1,
            ended: ended.map(|reason| (2, reason.to_owned())),
        }
    }

    fn left(remembered: u64, newest: Option<Term>) -> Option<(u64, Option<String>, Basis)> {
        let election = ElectionName::new("e").expect("valid");
        let left = remains(&election, Token::new(remembered).expect("small"), newest)?;
        let holder = left.record.holder.map(|holder| holder.label.to_string());
        Some((left.record.version.token.get(), holder, left.basis))
    }

    #[test]
    fn what_is_left_tells_what_can_be_proven() {
        assert_eq!(left(0, None), None);
        assert_eq!(left(7, None), Some((7, None, Basis::Remains)));
        assert_eq!(left(7, Some(term(7, None))), Some((7, Some("a".into()), Basis::Remains)));
        assert_eq!(left(7, Some(term(7, Some("withdrawn")))), Some((7, None, Basis::Remains)));
        // A later token was granted to somebody of whom the history does not tell.
        assert_eq!(left(8, Some(term(7, None))), Some((8, None, Basis::Remains)));
        assert_eq!(left(8, Some(term(8, Some(FORGOTTEN)))), Some((8, None, Basis::Forgotten)));
        assert_eq!(left(9, Some(term(8, Some(FORGOTTEN)))), Some((9, None, Basis::Remains)));
    }
}
