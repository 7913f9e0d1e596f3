//! What each step and each order makes of an election's row: the rules that the stores of this crate share.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{EndReason, Expectation, Holder, Order, OrderKind, Record, StoreError, Wish};
use crate::select::Rank;
use crate::{CandidateId, Label, Token};
use primacy_core::lease::Version;

/// What to do about damaged tables, where the tokens are in `$table`. What gives the tokens up is never advised: those that
/// follow would be as small as those of leaders that resources have seen, and an old leader would not be refused.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
macro_rules! repair {
    ($table:literal) => {
        concat!(
            "Stop all candidates and mend the tables, or restore a backup, and then raise the tokens in ",
            $table,
            " above every one that was granted (the page on stores says how): where tokens repeat, an old leader is not \
             refused"
        )
    };
}
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub(super) use repair;

/// Why a term is over that another candidate ended by taking the lease.
pub(crate) const TAKEN_OVER: &str = "taken-over";

/// Why the term is over that stands in the history for the moment in which an election was forgotten.
pub(crate) const FORGOTTEN: &str = "forgotten";

/// Whose that term is.
pub(crate) const NOBODY: &str = "nobody";

/// How many terms the history keeps of each election.
pub(super) const TERMS_KEPT: u32 = 1_000;

/// The record after a grant, or `None` if the row is not as expected. `remembered` is the highest token that the store
/// knows beside the row, `floor` the highest that the candidate has seen. Absence has no version: a row that was granted
/// and deleted since is not the absence that the candidate saw.
///
/// # Errors
/// When no larger token is left.
pub(super) fn acquire(
    row: Option<&Record>,
    expect: Option<Expectation>,
    remembered: Token,
    floor: Token,
    holder: Holder,
    lease: Duration,
) -> Result<Option<Record>, StoreError> {
    if row.map(Record::expectation) != expect || (row.is_none() && remembered > floor) {
        return Ok(None);
    }
    let highest = row.map_or(Token::NONE, |record| record.version.token).max(remembered).max(floor);
    Ok(Some(Record {
        version: Version { token: next_token(highest)?, beat: 1 },
        holder: Some(holder),
        lease,
        intent: row.map_or(0, |record| record.intent),
        wish: None,
        paused: row.is_some_and(|record| record.paused),
    }))
}

/// The token that the fence has after an election was forgotten: that of a grant to nobody.
///
/// # Errors
/// When no larger token is left.
pub(super) fn token_of_forgetting(highest: Token) -> Result<Token, StoreError> {
    next_token(highest)
}

fn next_token(highest: Token) -> Result<Token, StoreError> {
    Some(highest.next(0)).filter(|next| *next > highest).ok_or_else(used_up)
}

pub(super) fn used_up() -> StoreError {
    StoreError::Unusable("the tokens of this election are used up".into())
}

/// What a holder asks for with a renewal: [`Request::Renew`](super::Request::Renew).
#[derive(Clone, Copy, Debug)]
pub(super) struct Renewal {
    pub(super) id: CandidateId,
    pub(super) version: Version,
    pub(super) lease: Duration,
    pub(super) fulfilled: Option<u64>,
}

/// The record after a renewal, or `None` if another candidate, grant or beat stands in the row (rule R5).
pub(super) fn renew(row: Option<&Record>, renewal: &Renewal) -> Option<Record> {
    let Renewal { id, version, lease, fulfilled } = *renewal;
    let row = row.filter(|record| record.is_held_by(id) && record.version == version)?;
    let wish = row.wish.clone().filter(|_| fulfilled != Some(row.intent));
    Some(Record { version: next_beat(version), lease, wish, ..row.clone() })
}

/// The record after a release, or `None` if another candidate, grant or beat stands in the row (rule R5).
pub(super) fn release(row: Option<&Record>, id: CandidateId, version: Version) -> Option<Record> {
    let row = row.filter(|record| record.is_held_by(id) && record.version == version)?;
    Some(emptied(row))
}

/// R6: the token stays, so that the next one is larger.
fn emptied(row: &Record) -> Record {
    let wish = row.wish.clone().filter(|wish| *wish != Wish::NewElection);
    Record { version: next_beat(row.version), holder: None, wish, ..row.clone() }
}

fn next_beat(version: Version) -> Version {
    Version { beat: version.beat.saturating_add(1), ..version }
}

/// What an order makes of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// This is to be written; and the present term, if any, ends for this reason.
    Write(Record, Option<EndReason>),
    /// The row is as wanted.
    Already,
    /// Another token was granted since the operator looked.
    TokenChanged,
}

/// Judges an order. `live`: whether the holder's lease still runs as far as the store's clock can tell.
pub(crate) fn order(row: &Record, live: bool, order: &Order) -> Verdict {
    if order.token.is_some_and(|token| token != row.version.token) {
        return Verdict::TokenChanged;
    }
    let ordered = |record: Record| Record { intent: record.intent.saturating_add(1), ..record };
    match &order.kind {
        OrderKind::Promote { successor, now } => promote(row, live, successor, *now),
        OrderKind::Depose { .. } if row.holder.is_none() => Verdict::Already,
        OrderKind::Depose { now: true } => {
            Verdict::Write(ordered(Record { wish: None, ..emptied(row) }), Some(EndReason::Deposed))
        }
        OrderKind::Depose { now: false } if row.wish == Some(Wish::NewElection) => Verdict::Already,
        OrderKind::Depose { now: false } => {
            Verdict::Write(ordered(Record { wish: Some(Wish::NewElection), ..row.clone() }), None)
        }
        OrderKind::Pause if row.paused => Verdict::Already,
        OrderKind::Resume if !row.paused => Verdict::Already,
        OrderKind::Pause => Verdict::Write(ordered(Record { paused: true, ..row.clone() }), None),
        OrderKind::Resume => Verdict::Write(ordered(Record { paused: false, ..row.clone() }), None),
    }
}

fn promote(row: &Record, live: bool, successor: &Label, now: bool) -> Verdict {
    let wish = Wish::Successor(successor.clone());
    let leads = live && row.holder.as_ref().is_some_and(|holder| wish.names(holder.id, &holder.label));
    let wish = (!leads).then_some(wish);
    let empties = now && !leads && row.holder.is_some();
    if row.wish == wish && !empties {
        return Verdict::Already;
    }
    let record = if empties { emptied(row) } else { row.clone() };
    let reason = empties.then(|| EndReason::Promoted { successor: successor.clone() });
    Verdict::Write(Record { wish, intent: row.intent.saturating_add(1), ..record }, reason)
}

/// For how long an announcement counts. A candidate announces itself once per lease length; the store knows the
/// holder's, and how long the candidate has let pass since its last announcement.
pub(super) fn fresh_for(holders_lease: Option<Duration>, since_last: Option<Duration>) -> Duration {
    /// Where there is no row yet: three leases of the default length.
    const WITHOUT_A_ROW: Duration = Duration::from_secs(30);
    const LONGEST: Duration = Duration::from_secs(3 * 86_400);
    let period = holders_lease.max(since_last);
    period.map_or(WITHOUT_A_ROW, |period| period.saturating_mul(5) / 2).clamp(Duration::from_millis(250), LONGEST)
}

/// After how many times its freshness an announcement is forgotten.
pub(super) const FORGOTTEN_AFTER: u32 = 10;

/// The rank of one that waits, as observers are shown it: none of one that never asks.
pub(crate) fn shown_rank(rank: Rank) -> Option<Rank> {
    (rank != Rank::LAST).then_some(rank)
}

/// Milliseconds since 1970 by the wall clock, for people only.
pub(super) fn unix_ms() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "it only informs people")]
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
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
            intent: 2,
            wish: None,
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
            acquire(row, row.map(Record::expectation), highest, highest, holder(2, "b"), Duration::from_secs(1))
                .expect("tokens are left")
                .expect("as expected")
                .version
        };
        let highest = Token::new(40).expect("small");
        assert_eq!(next(Some(&row()), Token::NONE).token.get(), 8);
        assert_eq!(next(Some(&row()), highest).token.get(), 41);
        assert_eq!(next(None, highest).token.get(), 41);
        assert_eq!(next(None, Token::NONE), Version { token: Token::NONE.next(0), beat: 1 });
        let last = acquire(None, None, Token::MAX, Token::MAX, holder(2, "b"), Duration::from_secs(1));
        assert!(matches!(last, Err(StoreError::Unusable(_))), "no token may be granted twice");
    }

    #[test]
    fn promoting_the_live_leader_is_done_already_but_its_dead_namesake_gives_way() {
        assert_eq!(say(&row(), true, promote("a", true)), Verdict::Already);
        let Verdict::Write(record, None) = say(&row(), false, promote("a", false)) else { panic!("a wish") };
        assert_eq!(record.wish, Some(Wish::Successor(Label::new("a").expect("valid"))));
        let wished = Record { wish: Some(Wish::Successor(Label::new("b").expect("valid"))), ..row() };
        let Verdict::Write(record, None) = say(&wished, true, promote("a", false)) else { panic!("the wish goes") };
        assert_eq!(record.wish, None);
    }

    #[test]
    fn a_promoted_id_means_one_of_two_namesakes() {
        let id = |bits: u128| CandidateId::from_bits(bits).to_string();
        assert_eq!(say(&row(), true, promote(&id(1), true)), Verdict::Already, "it leads");
        let Verdict::Write(record, None) = say(&row(), true, promote(&id(2), false)) else { panic!("a wish") };
        let wish = record.wish.expect("a wish");
        let names = |bits, label| wish.names(CandidateId::from_bits(bits), &Label::new(label).expect("valid"));
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
            assert_eq!(record.intent, 3);
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

    #[test]
    fn freshness_follows_the_slower_of_lease_and_habit() {
        assert_eq!(fresh_for(None, None), Duration::from_secs(30));
        assert_eq!(fresh_for(Some(Duration::from_secs(10)), None), Duration::from_secs(25));
        assert_eq!(fresh_for(Some(Duration::from_secs(10)), Some(Duration::from_secs(20))), Duration::from_secs(50));
        assert_eq!(fresh_for(Some(Duration::ZERO), None), Duration::from_millis(250));
    }
}
