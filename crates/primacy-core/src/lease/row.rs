//! What each step and each order makes of an election's record: the rules that every store follows.
//!
//! The stores in memory and the simulator run these functions; the model check and the scenario tests do for requests, and
//! write orders by hand, also some that no operator could give. SQLite and MySQL write what these functions return, by a
//! statement that insists on the record which they were given. PostgreSQL does the same for orders; its steps are one
//! statement each, which the conformance suite compares with these functions.

use core::time::Duration;

use super::{EndReason, Expectation, Floor, HandoverRequest, Holder, Record, Request, Version};
use crate::{CandidateId, Label, Token};

/// No token is left that is larger than the highest one of the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tokens of this election are used up")]
pub struct TokensUsedUp;

/// What an operator wants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Order {
    /// What.
    pub kind: OrderKind,
    /// Refuse unless the last granted token is still this one, so that nobody is deposed who has just begun.
    pub token: Option<Token>,
}

/// The orders.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OrderKind {
    /// Hand over to a candidate with this label, or to the one with this id.
    Promote {
        /// Its label, or the 32 hexadecimal digits of its [`CandidateId`]: of two candidates with one label, either may
        /// follow a label.
        successor: Label,
        /// Empty the row at once, without waiting for the leader to stop: two may lead until it notices.
        now: bool,
    },
    /// Hand over to anybody else.
    Depose {
        /// Empty the row at once, without waiting for the leader to stop: two may lead until it notices.
        now: bool,
    },
    /// Let nobody take the lease who does not hold it already.
    Pause,
    /// Let candidates take the lease again.
    Resume,
}

/// The record after this request, or `None` if nothing changes: the request only reads, or insists on another record.
/// `remembered` is the highest token that the store knows beside the record, `epoch` the store's epoch.
///
/// # Errors
/// As [`acquire`].
pub fn change(
    record: Option<&Record>,
    remembered: Token,
    epoch: u32,
    request: &Request,
) -> Result<Option<Record>, TokensUsedUp> {
    Ok(match request {
        Request::Look { .. } | Request::Leave => None,
        Request::Acquire { expect, floor, holder, lease } => {
            acquire(record, *expect, remembered, epoch, *floor, holder, *lease)?
        }
        &Request::Renew { id, version, lease, completed_order } => {
            renew(record, &Renewal { id, version, lease, completed_order })
        }
        Request::Release { id, version, .. } => release(record, *id, *version),
    })
}

/// The record after a grant, or `None` if the record is not as expected. `remembered` is the highest token that the store
/// knows beside the record, `epoch` the store's epoch, and `floor` what the token is to exceed. Absence
/// has no version: a record that was granted and deleted since is not the absence that the candidate saw.
///
/// # Errors
/// When no larger token is left.
pub fn acquire(
    record: Option<&Record>,
    expect: Option<Expectation>,
    remembered: Token,
    epoch: u32,
    floor: Floor,
    holder: &Holder,
    lease: Duration,
) -> Result<Option<Record>, TokensUsedUp> {
    if record.map(Record::expectation) != expect || (record.is_none() && remembered > floor.seen) {
        return Ok(None);
    }
    let highest = record.map_or(Token::NONE, |record| record.version.token).max(remembered).max(floor.highest());
    Ok(Some(Record {
        version: Version { token: next_token(highest, epoch)?, beat: 1 },
        holder: Some(holder.clone()),
        lease,
        order_number: record.map_or(0, |record| record.order_number),
        handover: None,
        paused: record.is_some_and(|record| record.paused),
    }))
}

/// The token that a store keeps of an election that is forgotten: that of a grant to nobody.
///
/// # Errors
/// When no larger token is left.
pub fn token_of_forgetting(highest: Token) -> Result<Token, TokensUsedUp> {
    next_token(highest, 0)
}

fn next_token(highest: Token, epoch: u32) -> Result<Token, TokensUsedUp> {
    Some(highest.next(epoch)).filter(|next| *next > highest).ok_or(TokensUsedUp)
}

/// What a holder asks for with a renewal: [`Request::Renew`].
#[derive(Clone, Copy, Debug)]
pub struct Renewal {
    /// Who must hold the lease.
    pub id: CandidateId,
    /// The version it last knew.
    pub version: Version,
    /// How long its lease lasts.
    pub lease: Duration,
    /// Forget the hand-over that was requested, if the operators' orders are still those of this number.
    pub completed_order: Option<u64>,
}

/// The record after a renewal, or `None` if another candidate, grant or beat stands there (rule R5).
pub fn renew(record: Option<&Record>, renewal: &Renewal) -> Option<Record> {
    let Renewal { id, version, lease, completed_order } = *renewal;
    let record = record.filter(|record| record.is_held_by(id) && record.version == version)?;
    let handover = record.handover.clone().filter(|_| completed_order != Some(record.order_number));
    Some(Record { version: next_beat(version), lease, handover, ..record.clone() })
}

/// The record after a release, or `None` if another candidate, grant or beat stands there (rule R5).
pub fn release(record: Option<&Record>, id: CandidateId, version: Version) -> Option<Record> {
    record.filter(|record| record.is_held_by(id) && record.version == version).map(emptied)
}

/// R6: the token stays, so that the next one is larger.
fn emptied(record: &Record) -> Record {
    let handover = record.handover.clone().filter(|handover| *handover != HandoverRequest::NewElection);
    Record { version: next_beat(record.version), holder: None, handover, ..record.clone() }
}

fn next_beat(version: Version) -> Version {
    Version { beat: version.beat.saturating_add(1), ..version }
}

/// What an order makes of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This is to be written; and the present term, if any, ends for this reason.
    Write(Record, Option<EndReason>),
    /// The record is as wanted.
    Already,
    /// Another token was granted since the operator looked.
    TokenChanged,
}

/// Judges an order. `live`: whether the holder's lease still runs, as far as the store's clock can tell.
pub fn order(record: &Record, live: bool, order: &Order) -> Verdict {
    if order.token.is_some_and(|token| token != record.version.token) {
        return Verdict::TokenChanged;
    }
    let ordered = |record: Record| Record { order_number: record.order_number.saturating_add(1), ..record };
    match &order.kind {
        OrderKind::Promote { successor, now } => promote(record, live, successor, *now),
        OrderKind::Depose { .. } if record.holder.is_none() => Verdict::Already,
        OrderKind::Depose { now: true } => {
            Verdict::Write(ordered(Record { handover: None, ..emptied(record) }), Some(EndReason::Deposed))
        }
        OrderKind::Depose { now: false } if record.handover == Some(HandoverRequest::NewElection) => Verdict::Already,
        OrderKind::Depose { now: false } => {
            Verdict::Write(ordered(Record { handover: Some(HandoverRequest::NewElection), ..record.clone() }), None)
        }
        OrderKind::Pause if record.paused => Verdict::Already,
        OrderKind::Resume if !record.paused => Verdict::Already,
        OrderKind::Pause => Verdict::Write(ordered(Record { paused: true, ..record.clone() }), None),
        OrderKind::Resume => Verdict::Write(ordered(Record { paused: false, ..record.clone() }), None),
    }
}

fn promote(record: &Record, live: bool, successor: &Label, now: bool) -> Verdict {
    let handover = HandoverRequest::Successor(successor.clone());
    let leads = live && record.holder.as_ref().is_some_and(|holder| handover.names(holder.id, &holder.label));
    let handover = (!leads).then_some(handover);
    let empties = now && !leads && record.holder.is_some();
    if record.handover == handover && !empties {
        return Verdict::Already;
    }
    let next = if empties { emptied(record) } else { record.clone() };
    let reason = empties.then(|| EndReason::Promoted { successor: successor.clone() });
    Verdict::Write(Record { handover, order_number: record.order_number.saturating_add(1), ..next }, reason)
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString as _};

    use super::*;

    fn holder(id: u128, label: &str) -> Holder {
        Holder { id: CandidateId::from_bits(id), label: Label::new(label).expect("valid"), data: String::new() }
    }

    fn row() -> Record {
        let version = Version { token: Token::new(7).expect("small"), beat: 3 };
        Record {
            version,
            holder: Some(holder(1, "a")),
            lease: Duration::from_secs(10),
            order_number: 2,
            handover: None,
            paused: false,
        }
    }

    fn say(row: &Record, live: bool, kind: OrderKind) -> Verdict {
        order(row, live, &Order { kind, token: None })
    }

    fn promote(label: &str, now: bool) -> OrderKind {
        OrderKind::Promote { successor: Label::new(label).expect("valid"), now }
    }

    #[test]
    fn a_grant_outranks_everything_known() {
        let next = |row: Option<&Record>, highest| {
            acquire(
                row,
                row.map(Record::expectation),
                highest,
                0,
                highest.into(),
                &holder(2, "b"),
                Duration::from_secs(1),
            )
            .expect("tokens are left")
            .expect("as expected")
            .version
        };
        let highest = Token::new(40).expect("small");
        assert_eq!(next(Some(&row()), Token::NONE).token.get(), 8);
        assert_eq!(next(Some(&row()), highest).token.get(), 41);
        assert_eq!(next(None, highest).token.get(), 41);
        assert_eq!(next(None, Token::NONE), Version { token: Token::NONE.next(0), beat: 1 });
        let last = acquire(None, None, Token::MAX, 0, Token::MAX.into(), &holder(2, "b"), Duration::from_secs(1));
        assert_eq!(last, Err(TokensUsedUp), "no token may be granted twice");
    }

    #[test]
    fn promoting_the_live_leader_is_done_already_but_its_dead_namesake_gives_way() {
        assert_eq!(say(&row(), true, promote("a", true)), Verdict::Already);
        let Verdict::Write(record, None) = say(&row(), false, promote("a", false)) else {
            panic!("a requested hand-over")
        };
        assert_eq!(record.handover, Some(HandoverRequest::Successor(Label::new("a").expect("valid"))));
        let other = Record { handover: Some(HandoverRequest::Successor(Label::new("b").expect("valid"))), ..row() };
        let Verdict::Write(record, None) = say(&other, true, promote("a", false)) else {
            panic!("the requested hand-over goes")
        };
        assert_eq!(record.handover, None);
    }

    #[test]
    fn a_promoted_id_means_one_of_two_namesakes() {
        let id = |bits: u128| CandidateId::from_bits(bits).to_string();
        assert_eq!(say(&row(), true, promote(&id(1), true)), Verdict::Already, "it leads");
        let Verdict::Write(record, None) = say(&row(), true, promote(&id(2), false)) else {
            panic!("a requested hand-over")
        };
        let handover = record.handover.expect("a requested hand-over");
        let names = |bits, label| handover.names(CandidateId::from_bits(bits), &Label::new(label).expect("valid"));
        assert!(names(2, "a") && !names(1, "a") && !names(1, "b"));
        assert!(names(3, &id(2)), "a candidate may be called like the id of another");
    }

    #[test]
    fn every_written_order_counts_and_only_now_empties() {
        for (kind, empties) in [
            (promote("b", false), false),
            (promote("b", true), true),
            (OrderKind::Depose { now: false }, false),
            (OrderKind::Depose { now: true }, true),
            (OrderKind::Pause, false),
        ] {
            let Verdict::Write(record, reason) = say(&row(), true, kind.clone()) else { panic!("{kind:?}") };
            assert_eq!(record.order_number, 3);
            assert_eq!(record.holder.is_none(), empties, "{kind:?}");
            assert_eq!(reason.is_some(), empties, "{kind:?}");
            assert_eq!(record.version.beat, if empties { 4 } else { 3 }, "{kind:?}");
            let again = say(&record, true, kind.clone());
            assert_eq!(again, Verdict::Already, "{kind:?}");
        }
        assert_eq!(say(&row(), true, OrderKind::Resume), Verdict::Already);
    }

    #[test]
    fn an_order_for_another_token_changes_nothing() {
        let stale = Order { kind: OrderKind::Pause, token: Token::new(6) };
        assert_eq!(order(&row(), true, &stale), Verdict::TokenChanged);
        let vacant = Record { holder: None, ..row() };
        assert_eq!(say(&vacant, false, OrderKind::Depose { now: true }), Verdict::Already);
    }
}
