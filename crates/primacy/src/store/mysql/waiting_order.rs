//! When a look may leave the waiting order unread.
//!
//! Reading it costs the server more than all else that a look asks, and it seldom changes. So a look without an announcement
//! tells what the look with the last announcement showed. That is at most as old as the announcement, which a candidate
//! makes once in a lease. The order is read with each look while it may be changing: until two announcements in a row have
//! shown the same, while nobody leads, and after a change of leader, an order or a hint.

use super::super::{Record, Sighting, Standing};
use crate::CandidateId;
use crate::select::Rank;

/// What a candidate knows of the waiting order.
#[derive(Debug, Default)]
pub(super) struct WaitingOrder {
    /// What the look with the last announcement showed.
    last: Option<LookResult>,
    /// The announcement before showed the same.
    is_settled: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct LookResult {
    leadership: Record,
    /// How the candidate stands by preference, as announced.
    rank: Rank,
    standing: Standing,
    /// How many hints there were before the look.
    hints: u64,
}

impl WaitingOrder {
    /// An announcement has been written, and the look with it showed this; before it there were this many hints.
    pub(super) fn announced(&mut self, me: CandidateId, rank: Rank, seen: &Sighting, hints: u64) {
        // Where nobody else leads, the order decides who does, soon.
        let led = seen.record.as_ref().filter(|record| record.holder.is_some() && !record.is_held_by(me));
        let standing = seen.standing;
        let shown = led.map(|record| LookResult { leadership: without_beat(record), rank, standing, hints });
        self.is_settled = shown.is_some() && shown == self.last;
        self.last = shown;
    }

    /// The announcement may be gone.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Whether the next look may leave the order unread, after this many hints.
    pub(super) fn is_known(&self, hints: u64) -> bool {
        self.is_settled && self.last.as_ref().is_some_and(|last| last.hints == hints)
    }

    /// Where the candidate stands, if the record is as its last announcement showed it, apart from renewals.
    pub(super) fn standing(&self, record: &Record) -> Option<Standing> {
        self.last.as_ref().filter(|last| last.leadership == without_beat(record)).map(|last| last.standing)
    }
}

/// What of a record no renewal changes. How long the lease lasts is the leader's own affair.
fn without_beat(record: &Record) -> Record {
    let mut record = record.clone();
    record.version.beat = 0;
    record.lease = std::time::Duration::ZERO;
    record
}

#[cfg(test)]
mod tests {
    use super::super::super::{HandoverRequest, Holder, Version};
    use super::*;
    use crate::{Label, Token};

    const ME: CandidateId = CandidateId::from_bits(1);

    fn record(token: u64, beat: u64) -> Record {
        let version = Version { token: Token::new(token).expect("a token"), beat };
        let label = Label::new("b").expect("valid");
        let holder = Some(Holder { id: CandidateId::from_bits(2), label, data: String::new() });
        Record {
            version,
            holder,
            lease: std::time::Duration::from_secs(10),
            order_number: 0,
            handover: None,
            paused: false,
        }
    }

    fn seen(record: Record, ahead: u32) -> Sighting {
        let standing = Standing { ahead, others: 3 };
        Sighting { record: Some(record), remembered: Token::NONE, age: None, holder_gone: false, standing }
    }

    fn known(order: &WaitingOrder, record: &Record, hints: u64) -> Option<u32> {
        order.standing(record).filter(|_| order.is_known(hints)).map(|standing| standing.ahead)
    }

    #[test]
    fn what_two_announcements_in_a_row_have_shown_is_known_until_something_happens() {
        let mut order = WaitingOrder::default();
        let mut announce = |ahead, token, rank, hints| {
            order.announced(ME, rank, &seen(record(token, 7), ahead), hints);
            known(&order, &record(token, 9), hints)
        };
        let (rank, other) = (Rank::default(), Rank::LAST);
        assert_eq!(announce(2, 5, rank, 0), None, "the first");
        assert_eq!(announce(2, 5, rank, 0), Some(2), "the same again, renewed since");
        assert_eq!(announce(1, 5, rank, 0), None, "another place");
        assert_eq!(announce(1, 5, rank, 0), Some(1));
        assert_eq!(announce(1, 6, rank, 0), None, "another leader");
        assert_eq!(announce(1, 6, rank, 0), Some(1));
        assert_eq!(announce(1, 6, other, 0), None, "another rank");
        assert_eq!(announce(1, 6, other, 0), Some(1));
        assert_eq!(announce(1, 6, other, 1), None, "a hint");
        assert_eq!(announce(1, 6, other, 1), Some(1));
        assert_eq!(known(&order, &record(6, 9), 2), None, "a hint since");
        let longer = Record { lease: std::time::Duration::from_secs(60), ..record(6, 9) };
        assert_eq!(known(&order, &longer, 1), Some(1));
        for changed in [
            record(7, 1),
            Record { order_number: 1, ..record(6, 9) },
            Record { paused: true, ..record(6, 9) },
            Record { handover: Some(HandoverRequest::NewElection), ..record(6, 9) },
            Record { holder: None, ..record(6, 9) },
        ] {
            assert_eq!(known(&order, &changed, 1), None, "{changed:?}");
        }
        order.forget();
        assert_eq!(known(&order, &record(6, 9), 1), None, "the announcement is gone");
    }

    #[test]
    fn while_nobody_else_leads_each_look_reads_it() {
        let mut order = WaitingOrder::default();
        let vacant = Record { holder: None, ..record(5, 7) };
        let mut own = record(5, 7);
        own.holder.as_mut().expect("held").id = ME;
        for record in [vacant, own] {
            for _ in 0..3 {
                order.announced(ME, Rank::default(), &seen(record.clone(), 0), 0);
                assert_eq!(known(&order, &record, 0), None);
            }
        }
    }
}
