//! What an operator's order makes of the orders that voters keep.

use super::port::{OrderRegister, Orders};
use crate::Token;
use crate::lease::row::{self, Order, OrderKind, Verdict};
use crate::lease::{EndReason, Record};

/// What is to be done about an order among voters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderVerdict {
    /// Nothing: the record is as wanted.
    Already,
    /// Nothing: another token was granted since the operator looked.
    TokenChanged,
    /// Tell the voters.
    Tell(OrderMessage),
}

/// What the voters are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderMessage {
    /// The orders that count from now on.
    pub orders: Orders,
    /// They are meant for leaderships up to this token only: a voter may have missed a later one.
    pub until: Option<Token>,
    /// The present term ends for this reason.
    pub ended: Option<EndReason>,
    /// Whether anything is ordered that was not known.
    pub is_new: bool,
}

impl Orders {
    /// Judges an operator's order, where these orders are known. `record` is what a look has shown, `live` whether its
    /// holder's lease still runs; `entropy` makes the count of the order differ from that of any other.
    pub fn judge(&self, record: &Record, live: bool, order: &Order, entropy: u64) -> OrderVerdict {
        let is_pause = matches!(order.kind, OrderKind::Pause | OrderKind::Resume);
        // What is so already may be so with a few voters only: it is told to all the same, or a claim could pass it by, and a
        // hand-over that is requested would be lost with those voters.
        let is_told_again = is_pause || record.handover.is_some();
        // A pause that is meant for leaderships up to some token is less than one that is meant for all.
        let is_enough = !self.paused.value || self.paused.until.is_none() || self.paused.until == order.token;
        let (next, ended, is_new) = match row::order(record, live, order) {
            Verdict::TokenChanged => return OrderVerdict::TokenChanged,
            Verdict::Already if !is_told_again => return OrderVerdict::Already,
            Verdict::Already => (record.clone(), None, is_pause && !is_enough),
            Verdict::Write(next, ended) => (next, ended, true),
        };
        let (mut orders, count, until) = (self.clone(), self.next_count(entropy), order.token);
        // What is so already keeps its count: nothing changes where it is known.
        if is_pause && is_new {
            orders.paused = OrderRegister { count, value: next.paused, until };
        }
        // What is only done at once is an order too: a candidate that has not seen it does not ask. The last hand-over
        // may have come true.
        if next.handover != record.handover || (is_new && orders == *self) {
            orders.handover = OrderRegister { count, value: next.handover, until };
        }
        OrderVerdict::Tell(OrderMessage { orders, until, ended, is_new })
    }
}
