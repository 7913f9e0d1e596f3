//! What an operator wants done, and which order that makes.

use primacy_core::Token;
use primacy_core::lease::Record;
use primacy_core::lease::row::{Order, OrderKind};
use primacy_core::quorum::{OrderVerdict, Orders};

/// What an operator wants done.
#[derive(Debug)]
pub(crate) struct OrderTask {
    pub(crate) order: OrderKind,
    pub(crate) target: OrderTarget,
    /// It goes on until it has come through.
    pub(crate) insists: bool,
    /// The orders that it is telling, once it has looked.
    pub(crate) telling: Option<Orders>,
}

/// Which leadership an operator means.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OrderTarget {
    /// Whichever there is.
    Any,
    /// The one with this token.
    This(Token),
    /// The one that is seen.
    Seen,
    /// The one before that.
    Former,
}

pub(crate) fn judge(record: &Record, live: bool, known: &Orders, order_task: &OrderTask, entropy: u64) -> OrderVerdict {
    let seen = record.version.token;
    let token = match order_task.target {
        OrderTarget::Any => None,
        OrderTarget::This(token) => Some(token),
        OrderTarget::Seen => Some(seen),
        OrderTarget::Former => Token::new(seen.get().saturating_sub(1)),
    };
    let order = Order { kind: order_task.order.clone(), token };
    if !order_task.insists {
        return known.judge(record, live, &order, entropy);
    }
    // An operator that insists knows of a pause that this look has not shown, and its own order is to come after that.
    let record = Record { paused: known.paused.value, ..record.clone() };
    known.judge(&record, live, &order, entropy)
}
